//! Invariant 7, checked from every state: the faults stop, and nobody outside helps. Clients and edges are gone,
//! messages on their way are lost, the provider is silent for ever. Only the objects go on: drivers that were told to stop
//! stop, alarms ring at their times, deliveries are answered, the sweep asks. That must end everything, in bounded time.

use crate::HoldfastModel;
use crate::state::{Edge, Memory, State};
use crate::step::Step;
use crate::tenant::Asked;
use holdfast_core::ledger::Posting;
use holdfast_core::money::Micros;
use holdfast_core::reservation::{Reservation, Settlement};
use holdfast_core::tenant::HoldState;
use std::sync::Arc;

/// Steps within which everything must have ended.
const STEPS_MAX: usize = 160;

/// Whether the drain from this state ends as it must.
#[must_use]
pub(crate) fn converges(model: &HoldfastModel, state: &State) -> bool {
    let gone = |state: &State| {
        let mut state = state.clone();
        state.generations.iter_mut().for_each(|generation| {
            generation.messages.clear();
            if let Some(memory) = &mut generation.object.memory {
                (memory.lookup, memory.cancelling, memory.resuming) = (None, None, None);
            }
            if !matches!(generation.edge, Edge::Idle) {
                generation.edge = Edge::Done;
            }
        });
        state
    };
    ends(model, gone(state))
}

fn ends(model: &HoldfastModel, state: State) -> bool {
    let mut step = Step { model, state, deaf: false, draining: true };
    let mut looked = !model.config.looked_at_after_resolution;
    for _ in 0..STEPS_MAX {
        let over = is_over(model, &step.state);
        let receipts = step.state.generations.iter().all(|generation| generation.object.undelivered().is_empty());
        if over && receipts {
            return agrees(model, &step.state);
        }
        if step.advance() {
            continue;
        }
        if std::mem::replace(&mut looked, true) || !step.is_looked_at() {
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
            if self.finish_told_driver(g) || self.deliver_one(g) || self.extend_one(g) {
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

    /// A generation whose hold is resolved, and who has something left to deliver, is looked at: that loads it, since nobody
    /// has called it for long, and repairs its alarm. False when there is none.
    fn is_looked_at(&mut self) -> bool {
        let mut looked_at = false;
        for g in 0..self.state.generations.len() {
            let hold = self.state.tenant.rows.hold(&self.model.identities[g].reservation);
            let resolved = hold.is_some_and(|hold| hold.state != HoldState::Open);
            if resolved && !self.state.generations[g].object.undelivered().is_empty() {
                self.generation(g).object.memory = None;
                self.call(g);
                looked_at = true;
            }
        }
        looked_at
    }

    fn object_alarm(&self, g: usize) -> Option<holdfast_core::time::UnixMillis> {
        self.state.generations[g].object.alarm
    }

    fn finish_told_driver(&mut self, g: usize) -> bool {
        let driver = self.memory_of(g).and_then(|memory| memory.driver.as_ref());
        if driver.is_none_or(|driver| !driver.told && driver.outcome.is_none()) {
            return false;
        }
        self.finish(g);
        true
    }

    /// A delivery that waits: it reaches the tenant now, and so does its receipt.
    fn deliver_one(&mut self, g: usize) -> bool {
        let Some(sending) = self.memory_of(g).and_then(|memory| memory.sending) else { return false };
        let answer = sending.answer.unwrap_or_else(|| self.tenant_takes(g, sending.message));
        self.memory(g).sending = None;
        self.acknowledge(g, sending, answer);
        true
    }

    /// A larger hold that is waited for: the tenant is asked now, and answers. What asks the provider waits in vain.
    fn extend_one(&mut self, g: usize) -> bool {
        let Some(question) = self.memory_of(g).and_then(|memory| memory.extending) else { return false };
        if question.answer.is_none() {
            self.tenant_extends(g);
        }
        self.extension_is_answered(g);
        true
    }

    fn memory_of(&self, g: usize) -> Option<&Memory> {
        self.state.generations[g].object.memory.as_ref()
    }
}

/// Whether the hold is kept beyond its deadline, for a late signal or an operator.
fn is_quarantined(live: &Reservation) -> bool {
    live.lifecycle.is_terminal() && matches!(live.settlement, Settlement::Expired | Settlement::Disputed)
}

/// Every reservation is terminal, or its hold is kept on purpose; and every posting was applied.
fn is_over(model: &HoldfastModel, state: &State) -> bool {
    let applied = |posting: &Arc<Posting>| state.tenant.rows.postings.iter().any(|applied| applied.id == posting.id);
    let resolved = state.generations.iter().enumerate().all(|(g, generation)| {
        let hold = state.tenant.rows.hold(&model.identities[g].reservation);
        let kept = generation.object.aggregate.live().is_some_and(is_quarantined);
        hold.is_none_or(|hold| (hold.state == HoldState::Open) == kept)
    });
    resolved
        && state.generations.iter().all(|generation| {
            let object = &generation.object;
            (object.aggregate.live().is_none() || object.is_over()) && object.outbox.iter().all(applied)
        })
}

/// The two objects agree about every reservation: what is charged, what is held, the slot, and that nothing that has
/// ended goes on without a reader.
fn agrees(model: &HoldfastModel, state: &State) -> bool {
    let rows = &state.tenant.rows;
    let (mut held, mut slots) = (0, 0);
    let all = state.generations.iter().enumerate().all(|(g, generation)| {
        let Some(hold) = rows.hold(&model.identities[g].reservation) else { return true };
        let live = generation.object.aggregate.live();
        let cost = live.and_then(|live| live.cost).map_or(0, Micros::get);
        let kept = live.filter(|live| is_quarantined(live)).map_or(0, |live| live.hold().get());
        held += hold.held().get();
        slots += u32::from(hold.has_slot());
        hold.charged.get() == cost && hold.held().get() == kept && !hold.is_detached()
    });
    all && rows.tenant.balances.held.get() == held && rows.tenant.slots_in_use == slots
}
