//! What is said outside of the stream, as the shell takes it: each event once, by its id; a refused end is recorded, and
//! what it saw is said on. And who is asked before anything is taken in.

use crate::bug::Bug;
use crate::probes::Probe;
use crate::properties as p;
use crate::step::Step;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Reply, Reservation, Signal, late_signal, refused_row};

impl Step<'_> {
    /// The record of a refused write, and the signal that is in it. Every completion that a driver brings must leave both
    /// (invariant 5).
    pub(crate) fn record_refused(&mut self, g: usize, command: &Command, refusal: &Refusal) {
        let now = self.now();
        let row = refused_row(command, refusal, now).filter(|_| !self.bug(Bug::DropLate));
        let stale = row.is_some() && matches!(refusal, Refusal::StaleEpoch { .. });
        self.hit_if(stale, Probe::StaleRefused);
        if stale {
            self.note_zombie(&self.aggregate(g));
        }
        let told = late_signal(command, refusal, now);
        if let Some(signal) = told.clone().filter(|_| !self.bug(Bug::DropLateSignal)) {
            // A tombstone records it, too; nothing refuses a signal.
            let taken = self.take_signal(g, signal);
            self.check(taken.is_ok(), p::RECORDED);
            self.deliver(g);
        }
        if matches!(command, Command::End { .. }) {
            self.hit_if(row.is_some(), Probe::LateEndRefused);
            self.check(row.is_some_and(|row| row.command == "end"), p::RECORDED);
            let id = told.and_then(|signal| signal.event_id);
            let kept = id.is_none_or(|id| self.state.generations[g].object.signals.contains_key(&id));
            self.check(kept, p::RECORDED);
        }
    }

    /// Handles what was said, once per event.
    pub(crate) fn take_signal(&mut self, g: usize, signal: Signal) -> Result<Reply, Refusal> {
        let id = signal.event_id.as_ref();
        let seen = id.and_then(|id| self.state.generations[g].object.signals.get(id)).copied();
        let before = self.aggregate(g);
        let answer = self.apply(g, &Command::Signal { signal: Box::new(signal), seen });
        if let Some(disposition) = seen {
            self.hit(Probe::EventRepeated);
            let same = answer == Ok(Reply::Signal(disposition)) && *before == *self.aggregate(g);
            self.check(same, p::REPLAY);
        }
        answer
    }

    /// Whether a driver of this epoch may still call the provider.
    pub(crate) fn owns(&self, g: usize, epoch: u32) -> bool {
        let works = |live: &Reservation| live.attempt.epoch() == epoch && !live.lifecycle.is_terminal();
        self.state.generations[g].object.aggregate.live().is_some_and(works)
    }

    /// Asked before anything is taken in: a fenced driver adds neither a head nor a byte.
    pub(crate) fn allow(&mut self, g: usize, command: &Command) -> Result<(), Refusal> {
        let now = self.now();
        let object = &self.state.generations[g].object;
        let epoch = object.aggregate.live().map(|live| live.attempt.epoch());
        let mut asked = command.clone();
        if let (true, Some(owns), Command::Append { epoch, .. } | Command::End { epoch, .. }) =
            (self.bug(Bug::StaleEpochAccepted), epoch, &mut asked)
        {
            *epoch = owns;
        }
        match object.aggregate.apply(&asked, &object.facts(), 0, now) {
            Ok(_) => Ok(()),
            Err(refusal) => {
                self.record_refused(g, command, &refusal);
                Err(refusal)
            }
        }
    }
}
