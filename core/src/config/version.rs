//! Versions of a tenant's document. Each is kept; one is never changed.

use super::Accepted;
use crate::key::sha256_hex;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// One version of a tenant's document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConfigVersion {
    /// 1 for the first document, then one more each time.
    pub version: u64,
    /// When it was put.
    pub at: UnixMillis,
    /// Its entity tag, quotes included: strong, since the document is shown with these very bytes.
    pub etag: String,
    /// The document.
    pub document: String,
}

/// A version without its document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConfigEntry {
    /// See [`ConfigVersion::version`].
    pub version: u64,
    /// See [`ConfigVersion::at`].
    pub at: UnixMillis,
    /// See [`ConfigVersion::etag`].
    pub etag: String,
}

/// What must hold for a document to be replaced.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "condition", rename_all = "snake_case")]
pub enum Condition {
    /// What a caller's `If-Match` says. Without one only the first document may be put.
    IfMatch {
        /// The header.
        tags: Option<String>,
    },
    /// Nothing: an operator sets the tenant up.
    Always,
}

impl ConfigVersion {
    /// What stands before the first document: an empty one, of version 0.
    #[must_use]
    pub fn none(at: UnixMillis) -> Self {
        let document = String::from("{}");
        Self { version: 0, at, etag: etag_of(&document), document }
    }

    /// Without the document.
    #[must_use]
    pub fn entry(&self) -> ConfigEntry {
        ConfigEntry { version: self.version, at: self.at, etag: self.etag.clone() }
    }
}

/// Puts a document in place of the current one. The very document that is there already makes no new version, so that a
/// put whose answer was lost may be repeated.
///
/// # Errors
/// In this order: [`Refusal::PreconditionRequired`] (a document is there, and `If-Match` does not say which one was
/// looked at), [`Refusal::PreconditionFailed`] (it is another one).
pub fn put(
    current: &ConfigVersion,
    condition: &Condition,
    document: &Accepted,
    now: UnixMillis,
) -> Result<ConfigVersion, Refusal> {
    let same = current.etag == document.etag;
    match condition {
        Condition::IfMatch { tags: None } if current.version > 0 => return Err(Refusal::PreconditionRequired),
        Condition::IfMatch { tags: Some(tags) } if !same && !names(tags, &current.etag) => {
            return Err(Refusal::PreconditionFailed);
        }
        Condition::IfMatch { .. } | Condition::Always => {}
    }
    if same && current.version > 0 {
        return Ok(current.clone());
    }
    Ok(ConfigVersion {
        version: current.version.saturating_add(1),
        at: now,
        etag: document.etag.clone(),
        document: document.document.clone(),
    })
}

/// Whether an `If-Match` header names an entity tag (RFC 9110 13.1.1): `*`, or a list in which it stands. Weak tags never
/// match.
fn names(tags: &str, etag: &str) -> bool {
    tags.trim() == "*" || tags.split(',').any(|tag| tag.trim() == etag)
}

/// The entity tag of a document's bytes.
pub(super) fn etag_of(document: &str) -> String {
    let hash = sha256_hex(&[document.as_bytes()]);
    format!("\"{}\"", hash.get(..32).unwrap_or(&hash))
}
