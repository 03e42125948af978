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

/// Puts a document in place of the current one. The very document that is there already makes no new version, so that a
/// put whose answer was lost may be repeated.
///
/// # Errors
/// In this order: [`Refusal::PreconditionRequired`] (a document is there, and `if_match` does not say which one was
/// looked at), [`Refusal::PreconditionFailed`] (it is another one, or there is none).
pub fn put(
    current: Option<&ConfigVersion>,
    if_match: Option<&str>,
    document: &Accepted,
    now: UnixMillis,
) -> Result<ConfigVersion, Refusal> {
    let next = |version: u64| ConfigVersion {
        version,
        at: now,
        etag: document.etag.clone(),
        document: document.document.clone(),
    };
    match (current, if_match) {
        (None, None) => Ok(next(1)),
        (None, Some(_)) => Err(Refusal::PreconditionFailed),
        (Some(_), None) => Err(Refusal::PreconditionRequired),
        (Some(current), Some(_)) if current.etag == document.etag => Ok(current.clone()),
        (Some(current), Some(tags)) if names(tags, &current.etag) => Ok(next(current.version.saturating_add(1))),
        (Some(_), Some(_)) => Err(Refusal::PreconditionFailed),
    }
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
