//! Callbacks: what the provider tells by itself, of whichever attempt. Once sent, one may arrive at any time and any
//! number of times: an event that was handled changes nothing, so a copy of it costs no state.

use crate::properties as p;
use crate::state::{Callback, Fate, Said, State};
use crate::step::Step;
use crate::world::{operation_id, report_of};
use holdfast_core::finding::Source;
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Report, Signal, Subject};

/// What a callback does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It arrives, for the first time or again.
    Arrives {
        /// Which request.
        g: usize,
        /// Which one.
        callback: Callback,
    },
}

pub(crate) fn actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    for callback in &generation.callbacks {
        // One that is earlier than its operation waits at the tenant.
        let id = operation_id(callback.attempt);
        let is_known = |live: &holdfast_core::reservation::Reservation| {
            live.attempts().any(|attempt| attempt.operation_id.as_ref() == Some(&id))
        };
        if generation.object.aggregate.live().is_some_and(is_known) {
            may(Action::Arrives { g, callback: *callback });
        }
    }
}

pub(crate) fn perform(step: &mut Step<'_>, Action::Arrives { g, callback }: Action) {
    step.call(g);
    let report = step.callback_says(g, callback);
    let signal = Signal {
        event_id: Some(format!("event:{}:{:?}", callback.attempt, callback.said)),
        source: Source::Callback,
        subject: Subject::Operation { operation_id: operation_id(callback.attempt) },
        report,
        observed_at: step.now(),
    };
    let taken = step.take_signal(g, signal);
    step.check(taken.is_ok(), p::RECORDED);
    step.deliver(g);
}

impl Step<'_> {
    fn callback_says(&self, g: usize, Callback { attempt, said }: Callback) -> Report {
        let truth = || report_of(self, g, attempt);
        match said {
            Said::Runs => Report::Processing,
            // One that can be asked leaves the usage for that.
            Said::Truth => match truth() {
                Report::Ended { outcome, .. } if self.variant().capabilities.status => {
                    Report::Ended { outcome, usage: None }
                }
                told => told,
            },
            Said::Contradiction => match truth() {
                Report::Ended { outcome: Outcome::Completed, .. } => {
                    Report::Ended { outcome: Outcome::Failed, usage: None }
                }
                other => other,
            },
        }
    }

    /// The provider calls back where it does such things: it may have sent these from now on.
    pub(crate) fn calls_back(&mut self, g: usize, attempt: u8) {
        let variant = self.variant();
        let generation = self.generation(g);
        let Some(operation) = generation.operation(attempt) else { return };
        let ended = matches!(operation.fate, Fate::Completed(_) | Fate::Unbilled | Fate::Cancelled(_));
        let runs = operation.fate == Fate::Running;
        for said in &variant.callbacks {
            if if *said == Said::Runs { runs } else { ended } {
                generation.callbacks.insert(Callback { attempt, said: *said });
            }
        }
    }
}
