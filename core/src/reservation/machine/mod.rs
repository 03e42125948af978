//! The machines of a generation, kept apart (seed 1, "Track the Connection, Reservation, and Upstream Operation
//! Separately"; seed 2, "Model Reservation Ownership and Settlement as Durable State").
//!
//! | machine | page | answers |
//! |---|---|---|
//! | connection | [`connection`] | can a client still get the answer? |
//! | upstream, one per attempt | [`upstream`] | what does the provider do? |
//! | lifecycle of the reservation | [`lifecycle`] | where is the work? |
//! | settlement of the hold | [`settlement`] | what is held, and how did it end? |
//!
//! Each page has the table of its arrows. The table is data ([`Arrow`]); [`crate::reservation::Aggregate::apply`]
//! refuses a change that is no arrow, whatever rule proposed it.

pub mod connection;
pub mod lifecycle;
pub mod settlement;
pub mod upstream;

use super::Reservation;
use crate::refusal::Refusal;
use alloc::string::ToString;

/// One allowed change of a machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrow<State: 'static> {
    /// The state before.
    pub from: State,
    /// The state after.
    pub to: State,
    /// What makes it happen.
    pub on: &'static str,
}

const fn arrow<State: Copy>(from: State, to: State, on: &'static str) -> Arrow<State> {
    Arrow { from, to, on }
}

/// Whether a machine may go from one state to another, or stay.
pub(crate) fn allowed<State: PartialEq>(arrows: &[Arrow<State>], from: &State, to: &State) -> bool {
    from == to || arrows.iter().any(|arrow| arrow.from == *from && arrow.to == *to)
}

/// Refuses a change that no machine has. A new attempt starts its own upstream machine.
pub(super) fn guard(before: &Reservation, after: &Reservation) -> Result<(), Refusal> {
    let same_attempt = before.attempt.id == after.attempt.id;
    let fits = allowed(lifecycle::ARROWS, &before.lifecycle, &after.lifecycle)
        && allowed(settlement::ARROWS, &before.settlement, &after.settlement)
        && allowed(connection::ARROWS, &before.connection.state, &after.connection.state)
        && (!same_attempt || allowed(upstream::ARROWS, &before.attempt.upstream, &after.attempt.upstream));
    if fits { Ok(()) } else { Err(Refusal::WrongState { state: before.lifecycle.as_str().to_string() }) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;
    use alloc::string::String;

    /// The table of arrows as the page of the machine must have it.
    fn table<State: Copy + 'static>(arrows: &[Arrow<State>], name: fn(State) -> &'static str) -> String {
        let row =
            |arrow: &Arrow<State>| format!("//! | `{}` | `{}` | {} |\n", name(arrow.from), name(arrow.to), arrow.on);
        let rows: String = arrows.iter().map(row).collect();
        format!("//! | from | to | on |\n//! |---|---|---|\n{rows}")
    }

    /// The pages cannot drift from the code: each has exactly the table that its arrows make.
    #[test]
    fn each_page_has_the_table_of_its_arrows() {
        use connection::ConnectionState;
        use lifecycle::Lifecycle;
        use settlement::Settlement;
        use upstream::UpstreamState;
        let pages = [
            (include_str!("connection.rs"), table(connection::ARROWS, ConnectionState::as_str)),
            (include_str!("upstream.rs"), table(upstream::ARROWS, UpstreamState::as_str)),
            (include_str!("lifecycle.rs"), table(lifecycle::ARROWS, Lifecycle::as_str)),
            (include_str!("settlement.rs"), table(settlement::ARROWS, Settlement::as_str)),
        ];
        for (page, table) in pages {
            let rows = page.lines().filter(|line| line.starts_with("//! | `")).count();
            assert!(page.contains(&table) && rows == table.lines().count() - 2, "the page needs this table:\n{table}");
        }
    }

    /// Invariant 3, read off the tables: nothing leaves a terminal lifecycle but a compensation, nothing leaves a
    /// resolved hold, and no state has two arrows to the same place.
    #[test]
    fn ends_are_final() {
        for Arrow { from, to, .. } in lifecycle::ARROWS {
            assert!(!from.is_terminal() || *to == lifecycle::Lifecycle::Compensated, "{from:?} → {to:?}");
        }
        for Arrow { from, to, .. } in settlement::ARROWS {
            assert!(from.holds(), "{from:?} → {to:?}");
        }
        let mut pairs: alloc::vec::Vec<_> = lifecycle::ARROWS.iter().map(|arrow| (arrow.from, arrow.to)).collect();
        pairs.dedup();
        assert_eq!(pairs.len(), lifecycle::ARROWS.len());
    }

    #[test]
    fn a_machine_may_stay_and_goes_only_along_its_arrows() {
        use settlement::Settlement::{Committed, Expired, Pending};
        for (from, to, expected) in
            [(Pending, Pending, true), (Pending, Expired, true), (Expired, Pending, false), (Committed, Expired, false)]
        {
            assert_eq!(allowed(settlement::ARROWS, &from, &to), expected, "{from:?} → {to:?}");
        }
    }
}
