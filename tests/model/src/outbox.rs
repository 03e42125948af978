//! Postings on their way to the tenant: one delivery per posting, in order, each with its own answer.

use crate::bug::Bug;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Sending, Settled};
use crate::step::Step;
use holdfast_core::ledger::Posting;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Parcel};
use holdfast_core::time::UnixMillis;

impl Settled {
    /// What a delivery comes to.
    pub(crate) fn of(answer: Result<(), Refusal>) -> Self {
        match answer {
            Ok(()) => Self::Applied,
            Err(refusal) if refusal.is_permanent_for_posting() => Self::Refused(refusal.code()),
            Err(_) => Self::Failed,
        }
    }
}

impl Step<'_> {
    /// Begins a round with all that is due, one by one. A second call while one runs does nothing.
    pub(crate) fn deliver(&mut self, g: usize) {
        if self.memory(g).sending.is_some() {
            return;
        }
        let now = self.now();
        let object = &self.state.generations[g].object;
        let mut rows = 0_u8;
        for delivery in object.aggregate.due_deliveries(now) {
            let row = object.outbox.iter().position(|posting| posting.id == delivery.posting_id);
            rows |= row.map_or(0, |row| 1 << row);
        }
        self.send_next(g, rows);
    }

    /// What is only told moves no money: it is taken as soon as it is due. Nothing here is over the cap of detached
    /// generations.
    pub(crate) fn take_words(&mut self, g: usize, now: UnixMillis) {
        let due = self.state.generations[g].object.aggregate.due_deliveries(now);
        let words: Vec<String> =
            due.filter(|due| due.parcel != Parcel::Posting).map(|due| due.posting_id.clone()).collect();
        for posting_id in words {
            let taken = self.apply(g, &Command::Acknowledge { posting_id });
            self.check(taken.is_ok(), p::COST_IS_KEPT);
        }
    }

    fn send_next(&mut self, g: usize, rows: u8) {
        if rows == 0 {
            return;
        }
        let row = u8::try_from(rows.trailing_zeros()).unwrap_or(0);
        let rest = rows & !(1 << row);
        self.generation(g).settles.insert(row);
        let sending = Sending { row, rest, answer: None };
        if self.bug(Bug::NoOutbox) {
            return self.acknowledge(g, sending, Settled::Applied);
        }
        self.memory(g).sending = Some(sending);
    }

    /// The receipt, or its absence. The first failure ends the round.
    pub(crate) fn acknowledge(&mut self, g: usize, sending: Sending, answer: Settled) {
        let posting_id = self.posting(g, sending.row).id;
        let command = match answer {
            Settled::Applied => Command::Acknowledge { posting_id },
            Settled::Refused(refusal) => Command::DeliveryRefused { posting_id, refusal: refusal.into() },
            Settled::Failed => Command::DeliveryFailed { posting_id },
        };
        // All three are taken in every state that has an outbox.
        let taken = self.apply(g, &command);
        self.check(taken.is_ok(), p::COST_IS_KEPT);
        self.hit_if(sending.rest != 0 && answer == Settled::Applied, Probe::NextInRound);
        if answer != Settled::Failed {
            self.send_next(g, sending.rest);
        }
    }

    /// A row of the outbox.
    pub(crate) fn posting(&self, g: usize, row: u8) -> Posting {
        (*self.state.generations[g].object.outbox[usize::from(row)]).clone()
    }
}
