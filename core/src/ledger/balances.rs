//! What a tenant has: granted, held, spent.

use super::{Direction, Posting, PostingKind};
use crate::money::{Micros, MoneyError};
use serde::{Deserialize, Serialize};

/// A tenant's balances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Balances {
    /// Credit given.
    pub granted: Micros,
    /// Credit set aside.
    pub held: Micros,
    /// Credit spent. May exceed `granted` by what costs more than its hold.
    pub spent: Micros,
}

impl Balances {
    /// `granted − held − spent`, zero when negative.
    #[must_use]
    pub fn available(&self) -> Micros {
        self.granted.saturating_minus(self.held).saturating_minus(self.spent)
    }

    /// The balances after one movement. `held` is what its reservation still holds: a resolution ends all of it.
    ///
    /// # Errors
    /// [`MoneyError`] when a balance would leave its range; then nothing may be stored.
    pub fn after(&self, posting: &Posting, held: Micros) -> Result<Self, MoneyError> {
        let amount = posting.amount;
        let mut next = *self;
        match posting.kind {
            PostingKind::Grant => next.granted = self.granted.plus(amount)?,
            PostingKind::Hold | PostingKind::HoldExtended => next.held = self.held.plus(amount)?,
            PostingKind::HoldReduced => next.held = self.held.minus(amount)?,
            PostingKind::Settle => {
                next.held = self.held.minus(held)?;
                next.spent = self.spent.plus(amount)?;
            }
            PostingKind::Release => next.held = self.held.minus(held)?,
            PostingKind::Overage | PostingKind::LateSettlement => next.spent = self.spent.plus(amount)?,
            PostingKind::Correction | PostingKind::Compensation => {
                next.spent = match posting.direction {
                    Direction::Charge => self.spent.plus(amount)?,
                    Direction::Refund => self.spent.minus(amount)?,
                };
            }
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::ReasonCode;
    use crate::time::UnixMillis;

    fn micros(n: u64) -> Micros {
        Micros::new(n).unwrap()
    }

    /// Every kind from the same balances: granted 100, held 30, spent 20; the posting's hold still holds 25.
    #[test]
    fn movements() {
        let start = Balances { granted: micros(100), held: micros(30), spent: micros(20) };
        let (charge, refund) = (Direction::Charge, Direction::Refund);
        for (kind, direction, after) in [
            (PostingKind::Grant, charge, (112, 30, 20)),
            (PostingKind::Hold, charge, (100, 42, 20)),
            (PostingKind::HoldExtended, charge, (100, 42, 20)),
            (PostingKind::HoldReduced, charge, (100, 18, 20)),
            (PostingKind::Settle, charge, (100, 5, 32)),
            (PostingKind::Release, charge, (100, 5, 20)),
            (PostingKind::Overage, charge, (100, 30, 32)),
            (PostingKind::LateSettlement, charge, (100, 30, 32)),
            (PostingKind::Correction, charge, (100, 30, 32)),
            (PostingKind::Correction, refund, (100, 30, 8)),
            (PostingKind::Compensation, charge, (100, 30, 32)),
            (PostingKind::Compensation, refund, (100, 30, 8)),
        ] {
            let posting = Posting {
                direction,
                ..Posting::new("p".into(), kind, micros(12), ReasonCode::CompletedExact, UnixMillis(1))
            };
            let moved = start.after(&posting, micros(25)).unwrap();
            assert_eq!((moved.granted.get(), moved.held.get(), moved.spent.get()), after, "{kind:?} {direction:?}");
            let beyond = Posting { amount: Micros::MAX, ..posting };
            assert_eq!(start.after(&beyond, micros(25)).is_err(), kind != PostingKind::Release, "{kind:?}");
            assert_eq!(start.after(&beyond, micros(31)), Err(MoneyError), "more than is held, or beyond the range");
        }
        assert_eq!((start.available(), Balances { held: micros(90), ..start }.available()), (micros(50), micros(0)));
    }
}
