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
