//! What a posting moved when it was applied: the line of the account.

use super::{Balances, Posting, PostingKind};
use crate::ids::ReservationId;
use crate::money::SignedMicros;
use crate::time::UnixMillis;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// One posting as it was applied. The posting says what its author decided; the entry says what that did here: a
/// release of 30 may have returned 50. Entries sum to the balances.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LedgerEntry {
    /// 1, 2, …: the order in which postings were applied. The same number as its audit row's.
    pub seq: u64,
    /// The posting.
    pub posting_id: String,
    /// What it is.
    pub kind: PostingKind,
    /// The reservation it belongs to; none for grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationId>,
    /// How `granted` moved.
    pub granted: SignedMicros,
    /// How `held` moved.
    pub held: SignedMicros,
    /// How `spent` moved.
    pub spent: SignedMicros,
    /// The balances after it.
    pub after: Balances,
    /// When it was applied, by the tenant object's clock.
    pub recorded_at: UnixMillis,
}

impl LedgerEntry {
    /// The entry of a posting that takes the balances from `before` to `after`.
    #[must_use]
    pub fn of(posting: &Posting, seq: u64, before: &Balances, after: &Balances, recorded_at: UnixMillis) -> Self {
        Self {
            seq,
            posting_id: posting.id.clone(),
            kind: posting.kind,
            reservation: posting.reservation.clone(),
            granted: SignedMicros::between(before.granted, after.granted),
            held: SignedMicros::between(before.held, after.held),
            spent: SignedMicros::between(before.spent, after.spent),
            after: *after,
            recorded_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ReasonCode;
    use crate::money::Micros;

    /// The tenant's tables make entries of this form for what was applied before there were any.
    #[test]
    fn bytes_of_an_entry_are_pinned() {
        let micros = |n| Micros::new(n).unwrap();
        let posting =
            Posting::new("config:grant:5".into(), PostingKind::Grant, micros(5), ReasonCode::Granted, UnixMillis(1));
        let (before, after) = (
            Balances { held: micros(9), ..Balances::default() },
            Balances { granted: micros(5), ..Balances::default() },
        );
        let entry = LedgerEntry::of(&posting, 3, &before, &after, UnixMillis(7));
        let bytes = r#"{"seq":3,"posting_id":"config:grant:5","kind":"grant","granted":5,"held":-9,"spent":0,"after":{"granted":5,"held":0,"spent":0},"recorded_at":7}"#;
        assert_eq!(serde_json::to_string(&entry).unwrap(), bytes);
        let from_sql = bytes.replace(r#""grant","#, r#""grant","reservation":null,"#);
        assert_eq!(serde_json::from_str::<LedgerEntry>(&from_sql).unwrap(), entry);
    }
}
