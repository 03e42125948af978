//! Signed messages by Standard Webhooks 1.0: what is sent to a tenant's webhook, and what a provider's callback must show.
//!
//! Signed is `{id}.{timestamp}.{body}`, the body byte for byte as it travels. The signature header lists one signature
//! or several, `v1,` and the HMAC-SHA-256 in base64, divided by spaces: while a secret is being replaced a message has
//! one by each. Other versions in the list (`v1a` is asymmetric) are passed over.
//!
//! ```text
//! webhook-id: evt_…                     the same on every retry
//! webhook-timestamp: 1750861210         seconds, of this very attempt
//! webhook-signature: v1,gUAg… v1,mQ3v…
//! ```

use crate::key::hmac_sha256;
use crate::time::UnixMillis;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use base64ct::{Base64, Base64Unpadded, Encoding};
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// Header that names the message.
pub const ID_HEADER: &str = "webhook-id";
/// Header with the time of the attempt, in seconds since the Unix epoch.
pub const TIMESTAMP_HEADER: &str = "webhook-timestamp";
/// Header with the signatures.
pub const SIGNATURE_HEADER: &str = "webhook-signature";

/// How far a timestamp may be from now, before or after, in seconds: a message that was recorded is of no use later.
pub const TOLERANCE_S: u64 = 300;

/// Shortest and longest secret, in bytes.
pub const SECRET_BYTES: core::ops::RangeInclusive<usize> = 24..=64;

/// Longest id that is accepted, in bytes.
const ID_MAX_BYTES: usize = 256;

const SECRET_PREFIX: &str = "whsec_";
const SIGNATURE_PREFIX: &str = "v1,";

/// A shared secret. It has no `Display` and no `Serialize`: it cannot slip into a log or an answer.
#[derive(Clone)]
pub struct SigningSecret(Vec<u8>);

impl fmt::Debug for SigningSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SigningSecret(whsec_…)")
    }
}

/// The text of a secret on its way from where it is made to where it is stored. Unlike plain text it does not show itself.
#[derive(Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct SecretText(pub String);

impl fmt::Debug for SecretText {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretText(…)")
    }
}

/// The text is no secret: `whsec_` and 24 to 64 bytes in base64.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedSecret;

impl fmt::Display for MalformedSecret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a signing secret is whsec_ and 24 to 64 bytes in base64")
    }
}

impl core::error::Error for MalformedSecret {}

impl SigningSecret {
    /// A new secret of 32 random bytes.
    #[must_use]
    pub fn from_random(bytes: [u8; 32]) -> Self {
        Self(bytes.into())
    }

    /// Reads the text form.
    ///
    /// # Errors
    /// [`MalformedSecret`] for anything else, an empty or short secret above all: who signs with nothing signs nothing.
    pub fn parse(text: &str) -> Result<Self, MalformedSecret> {
        let encoded = text.strip_prefix(SECRET_PREFIX).ok_or(MalformedSecret)?;
        // They are written with padding or without.
        let decoded =
            if encoded.ends_with('=') { Base64::decode_vec(encoded) } else { Base64Unpadded::decode_vec(encoded) };
        let bytes = decoded.map_err(|_| MalformedSecret)?;
        if SECRET_BYTES.contains(&bytes.len()) { Ok(Self(bytes)) } else { Err(MalformedSecret) }
    }

    /// The text form: shown once to its owner, and stored where messages are signed. The one place where the secret
    /// becomes text.
    #[must_use]
    pub fn reveal(&self) -> String {
        format!("{SECRET_PREFIX}{}", Base64::encode_string(&self.0))
    }

    fn sign(&self, id: &str, timestamp: &str, body: &[u8]) -> String {
        let mac = hmac_sha256(&self.0, &[id.as_bytes(), b".", timestamp.as_bytes(), b".", body]);
        format!("{SIGNATURE_PREFIX}{}", Base64::encode_string(&mac))
    }

    /// Compares without leaving early; a message that cannot be authenticated is not authentic.
    fn signed(&self, mac_of: &[&[u8]], signature: &[u8]) -> bool {
        Hmac::<Sha256>::new_from_slice(&self.0).is_ok_and(|mac| {
            mac_of.iter().fold(mac, |mac, part| mac.chain_update(part)).verify_slice(signature).is_ok()
        })
    }
}

/// The value of the signature header: one signature by each secret. `None` without a secret.
#[must_use]
pub fn sign(secrets: &[SigningSecret], id: &str, timestamp_s: u64, body: &[u8]) -> Option<String> {
    let timestamp = format!("{timestamp_s}");
    let signatures: Vec<String> = secrets.iter().map(|secret| secret.sign(id, &timestamp, body)).collect();
    (!signatures.is_empty()).then(|| signatures.join(" "))
}

/// The three headers of a message, as they came.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct SignedHeaders<'a> {
    /// `webhook-id`.
    pub id: &'a str,
    /// `webhook-timestamp`.
    pub timestamp: &'a str,
    /// `webhook-signature`.
    pub signatures: &'a str,
}

/// Why a message is not accepted. The variants stand in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SignatureError {
    /// There is no secret to check with: nothing is authentic then.
    NoSecret,
    /// The id is empty, too long, has a dot (it would be ambiguous in what is signed) or other than visible ASCII.
    MalformedId,
    /// The timestamp is not a plain decimal number of seconds.
    MalformedTimestamp,
    /// The timestamp is more than [`TOLERANCE_S`] ago.
    TooOld,
    /// The timestamp is more than [`TOLERANCE_S`] ahead.
    TooNew,
    /// No listed signature was made with any of the secrets over these very bytes.
    NoMatch,
}

impl fmt::Display for SignatureError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::NoSecret => "no secret is set",
            Self::MalformedId => "the message id is malformed",
            Self::MalformedTimestamp => "the timestamp is malformed",
            Self::TooOld => "the timestamp is too old",
            Self::TooNew => "the timestamp is too new",
            Self::NoMatch => "no signature matches",
        })
    }
}

impl core::error::Error for SignatureError {}

/// Checks a message: some listed signature must be by some secret. Every one is tried. Returns when it was sent.
///
/// A message that was accepted can come again within the tolerance: who must not act twice remembers its id.
///
/// # Errors
/// See [`SignatureError`].
pub fn verify(
    secrets: &[SigningSecret],
    headers: &SignedHeaders<'_>,
    body: &[u8],
    now: UnixMillis,
) -> Result<UnixMillis, SignatureError> {
    if secrets.is_empty() {
        return Err(SignatureError::NoSecret);
    }
    if !is_id(headers.id) {
        return Err(SignatureError::MalformedId);
    }
    let sent_s = seconds(headers.timestamp).ok_or(SignatureError::MalformedTimestamp)?;
    let now_s = now.0 / 1_000;
    if now_s.saturating_sub(sent_s) > TOLERANCE_S {
        return Err(SignatureError::TooOld);
    }
    if sent_s.saturating_sub(now_s) > TOLERANCE_S {
        return Err(SignatureError::TooNew);
    }
    let parts: [&[u8]; 5] = [headers.id.as_bytes(), b".", headers.timestamp.as_bytes(), b".", body];
    let listed = headers.signatures.split(' ').filter_map(|one| one.strip_prefix(SIGNATURE_PREFIX));
    let matches = listed
        .filter_map(|encoded| Base64::decode_vec(encoded).ok())
        .any(|signature| secrets.iter().any(|secret| secret.signed(&parts, &signature)));
    if matches { Ok(UnixMillis(sent_s.saturating_mul(1_000))) } else { Err(SignatureError::NoMatch) }
}

fn is_id(id: &str) -> bool {
    (1..=ID_MAX_BYTES).contains(&id.len()) && id.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'.')
}

fn seconds(text: &str) -> Option<u64> {
    let plain = (1..=12).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}
