//! Client keys: `hfk_{tenant}_{secret}{checksum}`. The prefix and the checksum serve secret scanners and turn a typo
//! away before any hop; the tenant names the object that can check the key; only a keyed digest is stored.

use crate::dialect::Dialect;
use crate::ids::{TenantId, to_hex};
use alloc::format;
use alloc::string::String;
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use sha2::{Digest, Sha256};

/// A client's key. It has no `Display` and no `Serialize`: it cannot slip into a log or an answer.
#[derive(Clone)]
pub struct ClientKey {
    tenant: TenantId,
    text: String,
}

impl fmt::Debug for ClientKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "ClientKey(hfk_{}_…)", self.tenant)
    }
}

/// A provider's key. It has no `Display` and no `Serialize`.
#[derive(Clone)]
pub struct ProviderKey(String);

impl fmt::Debug for ProviderKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ProviderKey(…)")
    }
}

impl ProviderKey {
    /// Wraps the value of a secret binding.
    #[must_use]
    pub fn new(secret: String) -> Self {
        Self(secret)
    }

    /// The header, name and value, by which a provider of this dialect knows the key. The one place where the key becomes
    /// text again.
    #[must_use]
    pub fn header(&self, dialect: Dialect) -> (&'static str, String) {
        match dialect {
            Dialect::AnthropicMessages => ("x-api-key", self.0.clone()),
            Dialect::Gemini => ("x-goog-api-key", self.0.clone()),
            Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Opaque => {
                ("authorization", format!("Bearer {}", self.0))
            }
        }
    }
}

impl ClientKey {
    /// Parses a key and checks its checksum. A key that parses is well formed; whether it is *valid* only the
    /// tenant's stored digests tell.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let (tenant, secret) = text.strip_prefix("hfk_")?.rsplit_once('_')?;
        let tenant = TenantId::parse(tenant).ok()?;
        let hex = secret.len() == 40 && secret.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        let (random, checksum) = secret.split_at_checked(32).filter(|_| hex)?;
        (checksum == checksum_of(&tenant, random)).then(|| Self { tenant, text: text.into() })
    }

    /// Makes a key from 128 random bits; the caller brings the randomness.
    #[must_use]
    pub fn mint(tenant: &TenantId, random: [u8; 16]) -> Self {
        let random = to_hex(&random);
        let text = format!("hfk_{tenant}_{random}{}", checksum_of(tenant, &random));
        Self { tenant: tenant.clone(), text }
    }

    /// The key's text: for the one answer that issues it.
    #[must_use]
    pub fn reveal(&self) -> String {
        self.text.clone()
    }

    /// The tenant that the key names.
    #[must_use]
    pub fn tenant(&self) -> &TenantId {
        &self.tenant
    }

    /// The keyed digest under which the tenant stores this key: HMAC-SHA-256(pepper, key), lower-case hex.
    #[must_use]
    pub fn digest(&self, pepper: &[u8]) -> KeyDigest {
        KeyDigest(hmac_hex(pepper, self.text.as_bytes()))
    }
}

/// The keyed digest of a client key; safe to send and to store.
#[derive(Clone, Debug, PartialEq, Eq, Hash, serde::Serialize, serde::Deserialize)]
#[serde(transparent)]
pub struct KeyDigest(pub String);

impl KeyDigest {
    /// Parses a digest: 64 lower-case hex digits.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let hex = text.len() == 64 && text.bytes().all(|b| b.is_ascii_digit() || (b'a'..=b'f').contains(&b));
        hex.then(|| Self(text.into()))
    }

    /// Compares with a stored digest without leaving early.
    #[must_use]
    pub fn matches(&self, stored: &str) -> bool {
        self.0.len() == stored.len()
            && self.0.bytes().zip(stored.bytes()).fold(0_u8, |difference, (a, b)| difference | (a ^ b)) == 0
    }
}

/// Whether a secret that was shown is the expected one. Their digests are compared, so the time tells nothing.
#[must_use]
pub fn same_secret(expected: &str, shown: &str) -> bool {
    let digest = |text: &str| KeyDigest(hmac_hex(b"holdfast/same-secret", text.as_bytes()));
    digest(expected).matches(&digest(shown).0)
}

fn checksum_of(tenant: &TenantId, random: &str) -> String {
    let hash = Sha256::digest(format!("hfk_{tenant}_{random}"));
    to_hex(hash.get(..4).unwrap_or_default())
}

fn hmac_hex(key: &[u8], message: &[u8]) -> String {
    to_hex(&hmac_sha256(key, &[message]))
}

/// HMAC-SHA-256 of the parts, one after the other.
pub(crate) fn hmac_sha256(key: &[u8], parts: &[&[u8]]) -> [u8; 32] {
    // HMAC takes a key of any length; the error type is for other algorithms.
    Hmac::<Sha256>::new_from_slice(key).map_or([0; 32], |mac| {
        parts.iter().fold(mac, |mac, part| mac.chain_update(part)).finalize().into_bytes().into()
    })
}

/// A key for one purpose of one tenant, derived from the pepper: what is made with it says nothing about any other key.
#[must_use]
pub fn derived_key(pepper: &[u8], purpose: &str, tenant: &TenantId) -> [u8; 32] {
    // Neither a purpose nor a tenant's id has a zero byte.
    hmac_sha256(pepper, &[purpose.as_bytes(), &[0], tenant.as_str().as_bytes()])
}

/// SHA-256 of `bytes`, lower-case hex: request fingerprints and audit hashes.
#[must_use]
pub fn sha256_hex(parts: &[&[u8]]) -> String {
    let mut hasher = Sha256::new();
    for part in parts {
        // Length first, so that two different lists never hash alike.
        hasher.update(u64::try_from(part.len()).unwrap_or(u64::MAX).to_be_bytes());
        hasher.update(part);
    }
    to_hex(&hasher.finalize())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn key() -> String {
        let random = "0123456789abcdef0123456789abcdef";
        format!("hfk_demo_{random}{}", checksum_of(&TenantId::parse("demo").unwrap(), random))
    }

    #[test]
    fn parses_only_with_the_right_checksum() {
        let text = key();
        assert_eq!(ClientKey::parse(&text).unwrap().tenant().as_str(), "demo");
        let typo = text.replacen('0', "1", 1);
        for bad in [typo.as_str(), "", "hfk_demo_", "sk-abc", &text.replace("demo", "dem0"), &text.to_uppercase()] {
            assert!(ClientKey::parse(bad).is_none(), "{bad}");
        }
    }

    #[test]
    fn derived_keys_are_for_one_purpose_of_one_tenant() {
        let tenant = |id: &str| TenantId::parse(id).unwrap();
        let key = derived_key(b"pepper", "runs", &tenant("demo"));
        assert_eq!(key, derived_key(b"pepper", "runs", &tenant("demo")));
        for other in [
            derived_key(b"other", "runs", &tenant("demo")),
            derived_key(b"pepper", "tokens", &tenant("demo")),
            derived_key(b"pepper", "runs", &tenant("emo")),
            derived_key(b"pepper", "runsd", &tenant("emo")),
        ] {
            assert_ne!(key, other);
        }
    }

    #[test]
    fn digest_is_keyed_and_never_shown() {
        let key = ClientKey::parse(&key()).unwrap();
        assert_ne!(key.digest(b"one"), key.digest(b"two"));
        assert!(key.digest(b"one").matches(&key.digest(b"one").0));
        assert!(!key.digest(b"one").matches(&key.digest(b"two").0));
        assert_eq!(format!("{key:?}"), "ClientKey(hfk_demo_…)");
    }
}
