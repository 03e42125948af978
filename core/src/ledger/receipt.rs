//! What the tenant tells the author of a posting: when it was applied, and what it gave back in fact.

use super::{LedgerEntry, Posting, PostingKind};
use crate::money::Micros;
use crate::time::UnixMillis;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The receipt of a posting (design 2: it "brings the time and the effects of the release back"). The same posting has
/// the same receipt, however often it is delivered.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Receipt {
    /// The posting.
    pub posting_id: String,
    /// When it was applied, by the tenant object's clock.
    pub recorded_at: UnixMillis,
    /// What became available again by it, in micro-USD: a release of 30 may have returned 50.
    pub credit_returned: Micros,
    /// The concurrency slot became available by it; an earlier posting may have given it back already.
    pub slot_returned: bool,
}

impl Receipt {
    /// The receipt of a posting that was applied. `slot_freed`: its hold had given its slot back while it stayed open.
    #[must_use]
    pub fn of(posting: &Posting, entry: &LedgerEntry, slot_freed: bool) -> Self {
        let taken = entry.held.get().saturating_add(entry.spent.get());
        let returned = if taken < 0 { taken.unsigned_abs() } else { 0 };
        Self {
            posting_id: posting.id.clone(),
            recorded_at: entry.recorded_at,
            credit_returned: Micros::new(returned).unwrap_or(Micros::MAX),
            slot_returned: match posting.kind {
                PostingKind::HoldReduced => posting.frees_slot,
                kind => kind.resolves_hold() && !slot_freed,
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Balances, ReasonCode};

    fn micros(n: u64) -> Micros {
        Micros::new(n).unwrap()
    }

    /// Of a hold of 50: what is available grows by what is no longer held and was not spent.
    #[test]
    fn what_came_back() {
        use PostingKind as K;
        for (kind, held, spent, frees_slot, slot_freed, credit, slot) in [
            (K::Release, 50, 0, false, false, 50, true),
            (K::Release, 50, 0, false, true, 50, false),
            (K::Settle, 50, 20, false, false, 30, true),
            (K::Settle, 50, 50, false, false, 0, true),
            (K::HoldReduced, 10, 0, false, false, 10, false),
            (K::HoldReduced, 10, 0, true, true, 10, true),
            (K::Overage, 0, 7, false, false, 0, false),
            (K::LateSettlement, 0, 7, false, false, 0, false),
        ] {
            let posting = Posting {
                frees_slot,
                ..Posting::new("p".into(), kind, micros(1), ReasonCode::OperatorDecision, UnixMillis(1))
            };
            let before = Balances { held: micros(50), ..Balances::default() };
            let after = Balances { held: micros(50 - held), spent: micros(spent), ..Balances::default() };
            let entry = LedgerEntry::of(&posting, 1, &before, &after, UnixMillis(9));
            let receipt = Receipt {
                posting_id: "p".into(),
                recorded_at: UnixMillis(9),
                credit_returned: micros(credit),
                slot_returned: slot,
            };
            assert_eq!(Receipt::of(&posting, &entry, slot_freed), receipt, "{kind:?} {frees_slot} {slot_freed}");
        }
    }
}
