//! Invariant 7, checked from every state: the faults stop, and nobody outside helps. Clients and edges are gone,
//! messages on their way are lost, the provider is silent for ever. Only the objects go on: drivers that were told to stop
//! stop, alarms ring at their times, deliveries are answered, the sweep asks. That must end everything, in bounded time.

use crate::HoldfastModel;
use crate::state::{Edge, State};
use crate::step::Step;
use crate::tenant::Asked;
use holdfast_core::ledger::{Posting, PostingKind};
use holdfast_core::money::Micros;
use holdfast_core::tenant::HoldState;
use std::sync::Arc;

/// Steps within which everything must have ended.
const STEPS_MAX: usize = 80;

/// Whether the drain from this state ends as it must.
#[must_use]
pub(crate) fn converges(model: &HoldfastModel, state: &State) -> bool {
    let gone = |state: &State| {
        let mut state = state.clone();
        state.generations.iter_mut().for_each(|generation| {
            generation.settles.clear();
            if !matches!(generation.edge, Edge::Idle) {
                generation.edge = Edge::Done;
            }
        });
        state
    };
    ends(model, gone(state))
}

fn ends(model: &HoldfastModel, state: State) -> bool {
    let mut step = Step { model, state, deaf: false };
    for _ in 0..STEPS_MAX {
        let over = is_over(&step.state);
        let receipts = step.state.generations.iter().all(|generation| generation.object.undelivered().is_empty());
        if over && receipts {
            return agrees(model, &step.state);
        }
        if !step.advance() {
            // An object that has lost its alarm after the tenant applied its posting: nobody asks it any more, so the
            // receipt stays away. The books are right all the same.
            return over && agrees(model, &step.state);
        }
    }
    false
}

impl Step<'_> {
    /// One step of the drain; false when nothing will ever happen again.
    fn advance(&mut self) -> bool {
        for g in 0..self.state.generations.len() {
            if self.finish_told_driver(g) || self.deliver_one(g) {
                return true;
            }
        }
        let now = self.now();
        if let Some(g) = (0..self.state.generations.len()).find(|g| self.object_alarm(*g).is_some_and(|at| at <= now)) {
            self.generation(g).object.alarm = None;
            self.ring(g);
            return true;
        }
        if self.state.tenant.alarm.is_some_and(|at| at <= now) {
            self.state.tenant.alarm = None;
            self.sweep(Asked::Answered);
            return true;
        }
        let alarms = (0..self.state.generations.len()).filter_map(|g| self.object_alarm(g));
        let Some(next) = alarms.chain(self.state.tenant.alarm).min() else { return false };
        self.state.now = next;
        true
    }

    fn object_alarm(&self, g: usize) -> Option<holdfast_core::time::UnixMillis> {
        self.state.generations[g].object.alarm
    }

    fn finish_told_driver(&mut self, g: usize) -> bool {
        let driver = self.state.generations[g].object.memory.as_ref().and_then(|memory| memory.driver.as_ref());
        if driver.is_none_or(|driver| !driver.told && driver.outcome.is_none()) {
            return false;
        }
        self.finish(g);
        true
    }

    /// A delivery that waits: it reaches the tenant now, and so does its receipt.
    fn deliver_one(&mut self, g: usize) -> bool {
        let sending = self.state.generations[g].object.memory.as_ref().and_then(|memory| memory.sending);
        let Some(sending) = sending else { return false };
        let settled = sending.settled.unwrap_or_else(|| {
            let postings = self.postings(g, sending.rows);
            self.settle(&postings).is_ok()
        });
        self.memory(g).sending = None;
        self.acknowledge(g, sending.rows, settled);
        true
    }
}

fn is_over(state: &State) -> bool {
    let resolved = state.tenant.rows.holds.values().all(|hold| hold.state != HoldState::Open);
    let applied = |posting: &Arc<Posting>| state.tenant.rows.postings.iter().any(|applied| applied.id == posting.id);
    resolved
        && state.generations.iter().all(|generation| {
            let object = &generation.object;
            (object.aggregate.live().is_none() || object.is_over()) && object.outbox.iter().all(applied)
        })
}

/// The two objects agree about every reservation, nothing is held, no slot is in use.
fn agrees(model: &HoldfastModel, state: &State) -> bool {
    let rows = &state.tenant.rows;
    let spent = |g: usize| -> u64 {
        let reservation = &model.identities[g].reservation;
        rows.postings
            .iter()
            .filter(|posting| posting.reservation.as_ref() == Some(reservation))
            .filter(|posting| matches!(posting.kind, PostingKind::Settle | PostingKind::Overage))
            .map(|posting| posting.amount.get())
            .sum()
    };
    let costs = state.generations.iter().enumerate().all(|(g, generation)| {
        let cost = generation.object.aggregate.live().and_then(|live| live.cost).map_or(0, Micros::get);
        spent(g) == cost
    });
    costs && rows.tenant.balances.held == Micros::ZERO && rows.tenant.slots_in_use == 0
}
