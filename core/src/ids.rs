//! Typed ids. The text form is the wire, storage and API form; parsing checks prefix, length and alphabet,
//! so an id that exists is well formed and safe in a URL, a header or an object name.

use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};

/// The text is not a well-formed id of the wanted kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedId;

impl fmt::Display for MalformedId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("malformed id")
    }
}

fn hex_lower(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().saturating_mul(2));
    for byte in bytes {
        for nibble in [byte >> 4, byte & 0x0f] {
            text.push(char::from_digit(u32::from(nibble), 16).unwrap_or('0'));
        }
    }
    text
}

/// Lower-case hexadecimal of `bytes`.
#[must_use]
pub fn to_hex(bytes: &[u8]) -> String {
    hex_lower(bytes)
}

fn is_lower_hex(text: &str, length: usize) -> bool {
    text.len() == length && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b))
}

macro_rules! random_id {
    ($(#[$doc:meta])* $name:ident, $prefix:literal) => {
        $(#[$doc])*
        #[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
        #[serde(try_from = "String", into = "String")]
        pub struct $name(String);

        impl $name {
            /// The prefix that tells this kind of id from the others.
            pub const PREFIX: &'static str = $prefix;

            /// Makes an id from 128 random bits; the caller brings the randomness.
            #[must_use]
            pub fn from_random(bits: [u8; 16]) -> Self {
                let mut text = String::from($prefix);
                text.push_str(&hex_lower(&bits));
                Self(text)
            }

            /// Parses the text form: the prefix and 32 lower-case hex digits.
            ///
            /// # Errors
            /// [`MalformedId`] for anything else.
            pub fn parse(text: &str) -> Result<Self, MalformedId> {
                match text.strip_prefix($prefix) {
                    Some(rest) if is_lower_hex(rest, 32) => Ok(Self(text.into())),
                    _ => Err(MalformedId),
                }
            }

            /// The text form.
            #[must_use]
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl TryFrom<String> for $name {
            type Error = MalformedId;
            fn try_from(text: String) -> Result<Self, MalformedId> {
                Self::parse(&text)
            }
        }

        impl From<$name> for String {
            fn from(id: $name) -> Self {
                id.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }
    };
}

random_id!(
    /// The public object for one request.
    GenerationId, "gen_"
);
random_id!(
    /// The hold of a generation: credit and one concurrency slot.
    ReservationId, "res_"
);
random_id!(
    /// One execution upstream.
    AttemptId, "att_"
);
random_id!(
    /// A browser token, in records; the token itself is [`crate::token`]'s.
    TokenId, "tok_"
);

impl AttemptId {
    /// The id of a further attempt. It follows from the reservation and the epoch, so that whoever makes it twice makes the
    /// same one; nobody else can, since a reservation's id is random.
    #[must_use]
    pub fn further(reservation: &ReservationId, epoch: u32) -> Self {
        let digest = crate::key::hmac_sha256(reservation.as_str().as_bytes(), &[b"attempt", &epoch.to_be_bytes()]);
        Self::from_random(digest.first_chunk().copied().unwrap_or_default())
    }
}

/// Who pays. `[a-z0-9-]`, 1 to 32 characters: it is part of object names and of client keys.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct TenantId(String);

impl TenantId {
    /// Parses a tenant id.
    ///
    /// # Errors
    /// [`MalformedId`] when empty, too long or outside the alphabet.
    pub fn parse(text: &str) -> Result<Self, MalformedId> {
        let well_formed = (1..=32).contains(&text.len())
            && text.bytes().all(|b| b.is_ascii_lowercase() || b.is_ascii_digit() || b == b'-');
        if well_formed { Ok(Self(text.into())) } else { Err(MalformedId) }
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl TryFrom<String> for TenantId {
    type Error = MalformedId;
    fn try_from(text: String) -> Result<Self, MalformedId> {
        Self::parse(&text)
    }
}

impl From<TenantId> for String {
    fn from(id: TenantId) -> Self {
        id.0
    }
}

impl fmt::Display for TenantId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The three names of one request, minted together at the edge.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Identity {
    /// Who pays.
    pub tenant: TenantId,
    /// The public object.
    pub generation: GenerationId,
    /// Its hold.
    pub reservation: ReservationId,
}

impl Identity {
    /// The headers of the client's answer that name the generation.
    #[must_use]
    pub fn response_headers(&self) -> [(&'static str, String); 4] {
        [
            ("x-generation-id", self.generation.as_str().into()),
            ("x-reservation-id", self.reservation.as_str().into()),
            ("location", alloc::format!("/v1/generations/{}", self.generation)),
            ("cache-control", "no-store".into()),
        ]
    }

    /// Name of the Durable Object of a generation. It starts with the tenant of the *authenticated* key, so another
    /// tenant's ids cannot be addressed.
    #[must_use]
    pub fn object_name(tenant: &TenantId, generation: &GenerationId) -> String {
        alloc::format!("{tenant}:{generation}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_round_trip_and_refuse_strangers() {
        let id = GenerationId::from_random([0xab; 16]);
        assert_eq!(id.as_str(), "gen_abababababababababababababababab");
        assert_eq!(GenerationId::parse(id.as_str()), Ok(id));
        for bad in [
            "",
            "gen_",
            "gen_ABABABABABABABABABABABABABABABAB",
            "res_abababababababababababababababab",
            "gen_abababababababababababababababab0",
        ] {
            assert_eq!(GenerationId::parse(bad), Err(MalformedId), "{bad}");
        }
    }

    #[test]
    fn tenant_alphabet() {
        assert!(TenantId::parse("demo-1").is_ok());
        for bad in ["", "Demo", "a_b", "a:b", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"] {
            assert_eq!(TenantId::parse(bad), Err(MalformedId), "{bad}");
        }
    }
}
