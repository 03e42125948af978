//! What is on its way to the tenant: one delivery after the other, postings before words, each with its own answer.

use crate::bug::Bug;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Message, Sending, Settled};
use crate::step::Step;
use holdfast_core::ledger::Posting;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{AbortCause, Command, Detached, Parcel, Place};
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

    /// Whether words about places are messages like postings: where there is a cap that they may exceed.
    fn places_are_counted(&self) -> bool {
        self.variant().detached_max.is_some()
    }

    /// After each change: what became due goes out where a word may be among it.
    pub(crate) fn deliver_words(&mut self, g: usize) {
        if self.places_are_counted() {
            self.deliver(g);
        }
    }

    /// The word about the place, as it is now.
    fn word(&self, g: usize) -> Option<Message> {
        let aggregate = &self.state.generations[g].object.aggregate;
        let due = aggregate.due_deliveries(self.now()).any(|due| due.parcel == Parcel::Place);
        let Place { number, taken } = aggregate.live()?.place;
        (due && self.places_are_counted()).then_some(Message::Place { number, taken })
    }

    /// What is only told moves no money: it is taken as soon as it is due, and so is a word about a place where there
    /// is no cap.
    pub(crate) fn take_words(&mut self, g: usize, now: UnixMillis) {
        let counted = self.places_are_counted();
        let is_only_told = |parcel| parcel != Parcel::Posting && !(counted && parcel == Parcel::Place);
        let due = self.state.generations[g].object.aggregate.due_deliveries(now);
        let words: Vec<String> = due.filter(|due| is_only_told(due.parcel)).map(|due| due.posting_id.clone()).collect();
        for posting_id in words {
            let taken = self.apply(g, &Command::Acknowledge { posting_id });
            self.check(taken.is_ok(), p::COST_IS_KEPT);
        }
    }

    fn send_next(&mut self, g: usize, rows: u8) {
        let row = u8::try_from(rows.trailing_zeros()).unwrap_or(0);
        // None overtakes another.
        let aggregate = self.aggregate(g);
        let word_first = aggregate.due_deliveries(self.now()).next().is_some_and(|due| due.parcel == Parcel::Place);
        let (message, rest) = match self.word(g) {
            Some(word) if word_first || rows == 0 => (word, rows),
            _ if rows != 0 => (Message::Settle { row }, rows & !(1 << row)),
            _ => return,
        };
        self.generation(g).messages.insert(message);
        let sending = Sending { message, rest, answer: None };
        if self.bug(Bug::NoOutbox) {
            return self.acknowledge(g, sending, Settled::Applied);
        }
        self.memory(g).sending = Some(sending);
    }

    /// The receipt, or its absence. The first failure ends the round.
    pub(crate) fn acknowledge(&mut self, g: usize, sending: Sending, answer: Settled) {
        let posting_id = match sending.message {
            Message::Settle { row } => self.posting(g, row).id,
            Message::Place { number, .. } => format!("place:{number}"),
        };
        let command = match answer {
            Settled::Applied => Command::Acknowledge { posting_id },
            Settled::Refused(refusal) => Command::DeliveryRefused { posting_id, refusal: refusal.into() },
            Settled::Failed => Command::DeliveryFailed { posting_id },
        };
        // All three are taken in every state that has an outbox. The round goes on, or ends, with the answer.
        self.memory(g).sending = Some(sending);
        let taken = self.apply(g, &command);
        self.memory(g).sending = None;
        self.check(taken.is_ok(), p::COST_IS_KEPT);
        self.check_place(g, sending.message, answer);
        self.hit_if(sending.rest != 0 && answer == Settled::Applied, Probe::NextInRound);
        if answer != Settled::Failed {
            self.send_next(g, sending.rest);
        }
    }

    /// Over the cap the work is stopped, if it still goes on alone.
    fn check_place(&mut self, g: usize, message: Message, answer: Settled) {
        let (Message::Place { number, .. }, Settled::Refused(_)) = (message, answer) else { return };
        let aggregate = self.aggregate(g);
        let Some(live) = aggregate.live() else { return };
        let goes_on = live.place == Place { number, taken: true };
        self.hit_if(live.attempt.abort == Some(AbortCause::DetachedMax), Probe::PlaceRefused);
        self.check(!goes_on, p::PLACES);
    }

    /// The tenant takes a message in, and answers.
    pub(crate) fn tenant_takes(&mut self, g: usize, message: Message) -> Settled {
        Settled::of(match message {
            Message::Settle { row } => {
                let posting = self.posting(g, row);
                self.settle(&posting)
            }
            Message::Place { number, taken } => {
                let identity = self.model.identities[g].clone();
                self.detach(&Detached { identity, place: Place { number, taken } })
            }
        })
    }

    /// A row of the outbox.
    pub(crate) fn posting(&self, g: usize, row: u8) -> Posting {
        (*self.state.generations[g].object.outbox[usize::from(row)]).clone()
    }
}
