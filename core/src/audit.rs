//! The audit chain of a tenant: each row names its predecessor's hash, `seq` has no gaps, each posting has one row.

use crate::key::sha256_hex;
use crate::ledger::Posting;
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Separates these hashes from every other use of SHA-256.
const DOMAIN: &[u8] = b"holdfast/audit/1";

/// Where the chain ends.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ChainHead {
    /// Sequence number of the last row; 0 when there is none.
    pub seq: u64,
    /// Hash of the last row; empty when there is none.
    pub hash: String,
}

/// One row of the chain. It holds ids, hashes and amounts; never prompts, output or keys.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AuditRow {
    /// 1, 2, …
    pub seq: u64,
    /// When it was recorded, by the tenant object's clock.
    pub at: UnixMillis,
    /// The posting it stands for.
    pub posting_id: String,
    /// Hash of the posting's canonical bytes.
    pub payload_hash: String,
    /// Hash of the row before.
    pub prev_hash: String,
    /// Hash of this row.
    pub hash: String,
}

impl ChainHead {
    /// The row that records `posting` after this head.
    #[must_use]
    pub fn append(&self, posting: &Posting, at: UnixMillis) -> AuditRow {
        let seq = self.seq.saturating_add(1);
        let payload_hash = sha256_hex(&[DOMAIN, &canonical(posting)]);
        let hash = row_hash(seq, at, &posting.id, &payload_hash, &self.hash);
        AuditRow { seq, at, posting_id: posting.id.clone(), payload_hash, prev_hash: self.hash.clone(), hash }
    }
}

impl AuditRow {
    /// The head after this row.
    #[must_use]
    pub fn head(&self) -> ChainHead {
        ChainHead { seq: self.seq, hash: self.hash.clone() }
    }

    /// Whether this row follows `head` and is unaltered.
    #[must_use]
    pub fn follows(&self, head: &ChainHead) -> bool {
        head.seq.checked_add(1) == Some(self.seq)
            && self.prev_hash == head.hash
            && self.hash == row_hash(self.seq, self.at, &self.posting_id, &self.payload_hash, &self.prev_hash)
    }
}

fn row_hash(seq: u64, at: UnixMillis, posting_id: &str, payload_hash: &str, prev_hash: &str) -> String {
    sha256_hex(&[
        DOMAIN,
        &seq.to_be_bytes(),
        &at.0.to_be_bytes(),
        posting_id.as_bytes(),
        payload_hash.as_bytes(),
        prev_hash.as_bytes(),
    ])
}

/// The stored JSON of a posting: members in declaration order, no spaces. Stored beside the row, so a verifier hashes
/// the very bytes.
fn canonical(posting: &Posting) -> Vec<u8> {
    serde_json::to_vec(posting).unwrap_or_default()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{PostingKind, ReasonCode};
    use crate::money::Micros;

    fn posting(id: &str) -> Posting {
        Posting::new(id.into(), PostingKind::Grant, Micros::ZERO, ReasonCode::Granted, UnixMillis(1))
    }

    /// Invariant 10.
    #[test]
    fn rows_chain_and_an_edit_shows() {
        let first = ChainHead::default().append(&posting("a"), UnixMillis(5));
        let second = first.head().append(&posting("b"), UnixMillis(6));
        assert_eq!((first.seq, second.seq), (1, 2));
        assert!(first.follows(&ChainHead::default()) && second.follows(&first.head()));
        let edited = AuditRow { at: UnixMillis(7), ..second.clone() };
        assert!(!edited.follows(&first.head()));
        assert!(!second.follows(&ChainHead::default()), "a removed row shows");
    }
}
