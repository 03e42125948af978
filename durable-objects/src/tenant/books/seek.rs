//! From a moment to a sequence number. Numbers have no gaps and times grow with them, but for a clock that steps back
//! by seconds; so a moment is found by halving, and no index over times is kept.

use super::super::store::Store;
use crate::sql;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::Span;
use worker::Result;

/// Two clocks of the platform never differ by more.
const CLOCK_SLACK_MS: u64 = 60_000;

/// Numbers that are read: above `after`, up to `upto`. What lies in them is still compared with the span.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Window {
    pub(super) after: u64,
    pub(super) upto: u64,
}

/// The smallest number in `1..=last` that `reached` says yes to, which then says yes to all above; `last + 1` if none.
fn first_where(last: u64, mut reached: impl FnMut(u64) -> Result<bool>) -> Result<u64> {
    let (mut low, mut high) = (1, last.saturating_add(1));
    while low < high {
        let middle = low.midpoint(high);
        if reached(middle)? { high = middle } else { low = middle.saturating_add(1) }
    }
    Ok(low)
}

impl Store {
    /// The numbers behind `after` that a span can have.
    pub(super) fn window(&self, span: Span, after: u64) -> Result<Window> {
        let last = self.last_seq()?;
        let after = match span.from {
            Some(from) => {
                after.max(self.first_at(UnixMillis(from.0.saturating_sub(CLOCK_SLACK_MS)), last)?.saturating_sub(1))
            }
            None => after,
        };
        let upto = match span.until {
            Some(until) => self.first_at(until.plus(CLOCK_SLACK_MS), last)?.saturating_sub(1),
            None => last,
        };
        Ok(Window { after, upto })
    }

    fn first_at(&self, at: UnixMillis, last: u64) -> Result<u64> {
        first_where(last, |seq| Ok(self.recorded_at(seq)?.is_none_or(|recorded| recorded >= at)))
    }

    fn recorded_at(&self, seq: u64) -> Result<Option<UnixMillis>> {
        let query = "SELECT json_extract(json, '$.recorded_at') FROM ledger_entry WHERE seq = ?";
        let row = sql::first(self.sql(), query, vec![sql::int(seq)?])?;
        Ok(sql::as_int(row.as_ref().and_then(|row| row.first()))?.map(UnixMillis))
    }

    /// The last number of the ledger.
    pub(super) fn last_seq(&self) -> Result<u64> {
        let row = sql::first(self.sql(), "SELECT MAX(seq) FROM ledger_entry", vec![])?;
        Ok(sql::as_int(row.as_ref().and_then(|row| row.first()))?.unwrap_or_default())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn halving_finds_the_first() {
        for last in 0..20 {
            for first in 1..=last + 1 {
                let mut asked = 0;
                let found = first_where(last, |seq| {
                    asked += 1;
                    Ok(seq >= first)
                });
                assert_eq!((found.unwrap(), asked <= 5), (first, true), "{first} of {last}");
            }
        }
    }
}
