//! What the object asks: the provider what became of an operation, the provider to cancel one, the tenant for a larger
//! hold. Each is answered, and the answer comes, or does not; in between anything may happen.

use crate::bug::Bug;
use crate::config::Fault;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Fate, Question, Reported, State};
use crate::step::Step;
use crate::world::{self, operation_id, report_of, tokens_streamed, usage_of};
use holdfast_core::finding::Source;
use holdfast_core::money::Micros;
use holdfast_core::reservation::{CancelAnswer, Command, Reply, Report, Signal, Subject};
use holdfast_core::tenant::Extend;

/// What becomes of a question.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The provider looks at its operation.
    LooksUp {
        /// Which request.
        g: usize,
    },
    /// What it saw comes.
    LookUpAnswered {
        /// Which request.
        g: usize,
    },
    /// No answer comes.
    LookUpFails {
        /// Which request.
        g: usize,
    },
    /// The provider says that it knows no such operation.
    LookUpFindsNothing {
        /// Which request.
        g: usize,
    },
    /// The provider handles a request to cancel.
    Cancels {
        /// Which request.
        g: usize,
        /// What it says, where the operation still runs.
        answer: Willing,
    },
    /// What it said comes.
    CancelAnswered {
        /// Which request.
        g: usize,
    },
    /// The request or its answer is lost.
    CancelFails {
        /// Which request.
        g: usize,
    },
    /// The tenant is asked for a larger hold.
    Extends {
        /// Which request.
        g: usize,
    },
    /// Its answer comes.
    ExtensionAnswered {
        /// Which request.
        g: usize,
    },
    /// Its answer does not come.
    ExtensionUnanswered {
        /// Which request.
        g: usize,
    },
}

/// What a provider does with a request to cancel an operation that runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Willing {
    /// It stops, and tells the usage.
    StopsAndTells,
    /// It stops, and does not tell.
    Stops,
    /// It takes the request in, and goes on for now.
    TakesIn,
    /// It will not.
    Refuses,
}

impl Willing {
    const ALL: [Self; 4] = [Self::StopsAndTells, Self::Stops, Self::TakesIn, Self::Refuses];
}

pub(crate) fn actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    let Some(memory) = &generation.object.memory else { return };
    let loss = state.faults.allow(Fault::Loss);
    if let Some(Question { answer, .. }) = memory.lookup {
        may(if answer.is_some() { Action::LookUpAnswered { g } } else { Action::LooksUp { g } });
        if loss && answer.is_none() {
            may(Action::LookUpFails { g });
            may(Action::LookUpFindsNothing { g });
        }
    }
    if let Some(Question { answer, attempt, .. }) = memory.cancelling {
        let runs = generation.operation(attempt).is_some_and(|operation| operation.fate == Fate::Running);
        match answer {
            Some(_) => may(Action::CancelAnswered { g }),
            None if runs => Willing::ALL.iter().for_each(|answer| may(Action::Cancels { g, answer: *answer })),
            None => may(Action::Cancels { g, answer: Willing::Refuses }),
        }
        if loss {
            may(Action::CancelFails { g });
        }
    }
    if let Some(Question { answer, .. }) = memory.extending {
        may(if answer.is_some() { Action::ExtensionAnswered { g } } else { Action::Extends { g } });
        if loss {
            may(Action::ExtensionUnanswered { g });
        }
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::LooksUp { g } => step.provider_looks(g),
        Action::LookUpAnswered { g } => step.look_up_is_answered(g),
        Action::LookUpFails { g } => {
            step.state.faults.spend(Fault::Loss);
            step.look_up_fails(g);
        }
        Action::LookUpFindsNothing { g } => {
            step.state.faults.spend(Fault::Loss);
            if let Some(question) = &mut step.memory(g).lookup {
                question.answer = Some(Report::Unknown);
            }
        }
        Action::Cancels { g, answer } => step.provider_cancels(g, answer),
        Action::CancelAnswered { g } => step.cancel_is_answered(g),
        Action::CancelFails { g } => {
            step.state.faults.spend(Fault::Loss);
            if let Some(question) = &mut step.memory(g).cancelling {
                question.answer = Some(CancelAnswer::Failed { retry_after_ms: None });
            }
            step.cancel_is_answered(g);
        }
        Action::Extends { g } => step.tenant_extends(g),
        Action::ExtensionAnswered { g } => step.extension_is_answered(g),
        Action::ExtensionUnanswered { g } => {
            step.state.faults.spend(Fault::Loss);
            // The shell gives up; the search asks again.
            step.memory(g).extending = None;
        }
    }
}

impl Step<'_> {
    /// Asks the provider what became of an operation.
    pub(crate) fn look_up(&mut self, g: usize, epoch: u32, id: &str) {
        let attempt = world::attempt_of(id);
        self.memory(g).lookup.get_or_insert(Question { epoch, attempt, answer: None });
    }

    fn provider_looks(&mut self, g: usize) {
        let Some(Question { attempt, .. }) = self.memory(g).lookup else { return };
        let report = report_of(self, g, attempt);
        if let Some(question) = &mut self.memory(g).lookup {
            question.answer = Some(report);
        }
    }

    fn look_up_is_answered(&mut self, g: usize) {
        let Some(Question { attempt, answer: Some(report), .. }) = self.memory(g).lookup.take() else { return };
        self.call(g);
        let signal = Signal {
            event_id: None,
            source: Source::Lookup,
            subject: Subject::Operation { operation_id: operation_id(attempt) },
            report,
            observed_at: self.now(),
        };
        self.hit_if(report == Report::Processing, Probe::FoundRunning);
        let taken = self.take_signal(g, signal);
        self.check(taken.is_ok(), p::RECORDED);
        self.deliver(g);
    }

    pub(crate) fn look_up_fails(&mut self, g: usize) {
        let Some(Question { epoch, .. }) = self.memory(g).lookup.take() else { return };
        // Refused when another epoch owns by now: that one asks for itself.
        let _: Result<_, holdfast_core::refusal::Refusal> =
            self.apply(g, &Command::LookUpFailed { epoch, retry_after_ms: None });
    }

    /// Asks the provider to cancel an operation.
    pub(crate) fn request_cancel(&mut self, g: usize, epoch: u32, id: &str) {
        let attempt = world::attempt_of(id);
        self.memory(g).cancelling.get_or_insert(Question { epoch, attempt, answer: None });
    }

    fn provider_cancels(&mut self, g: usize, willing: Willing) {
        let Some(Question { attempt, .. }) = self.memory(g).cancelling else { return };
        let tokens = tokens_streamed(self, g, attempt);
        let Some(operation) = self.generation(g).operation_mut(attempt) else { return };
        let answer = match (operation.fate, willing) {
            (Fate::Running, Willing::StopsAndTells) => {
                operation.fate = Fate::Cancelled(Reported::Streamed);
                CancelAnswer::Confirmed { usage: usage_of(Reported::Streamed, tokens) }
            }
            (Fate::Running, Willing::Stops) => {
                operation.fate = Fate::Cancelled(Reported::Missing);
                CancelAnswer::Confirmed { usage: None }
            }
            (Fate::Running, Willing::TakesIn) => CancelAnswer::Accepted,
            (Fate::Running, Willing::Refuses) => CancelAnswer::Refused,
            // It has stopped before, and says so again.
            (Fate::Cancelled(reported), _) => CancelAnswer::Confirmed { usage: usage_of(reported, tokens) },
            _ => CancelAnswer::TooLate,
        };
        self.calls_back(g, attempt);
        if let Some(question) = &mut self.memory(g).cancelling {
            question.answer = Some(answer);
        }
    }

    fn cancel_is_answered(&mut self, g: usize) {
        let Some(Question { epoch, answer: Some(answer), .. }) = self.memory(g).cancelling.take() else { return };
        self.call(g);
        // An answer about an attempt that is not the owning one any more is refused.
        let _: Result<_, holdfast_core::refusal::Refusal> = self.apply(g, &Command::CancelAnswered { epoch, answer });
        self.deliver(g);
    }

    /// Asks the tenant to extend the hold.
    pub(crate) fn extend_hold(&mut self, g: usize, epoch: u32) {
        if self.bug(Bug::RetryWithoutExtension) {
            return self.hold_is_extended(g, epoch);
        }
        let question = Question { epoch, attempt: 0, answer: None };
        self.memory(g).extending.get_or_insert(question);
    }

    pub(crate) fn tenant_extends(&mut self, g: usize) {
        let Some(Question { epoch, .. }) = self.memory(g).extending else { return };
        let amount = self.aggregate(g).live().map_or(Micros::ZERO, |live| live.terms.hold);
        let extended = self.extend(&Extend { identity: self.model.identities[g].clone(), epoch, amount });
        if let Some(question) = &mut self.memory(g).extending {
            question.answer = Some(extended.is_ok());
        }
    }

    pub(crate) fn extension_is_answered(&mut self, g: usize) {
        let Some(Question { epoch, answer: Some(extended), .. }) = self.memory(g).extending.take() else { return };
        self.call(g);
        if extended {
            return self.hold_is_extended(g, epoch);
        }
        let refused = self.apply(g, &Command::ExtensionRefused { epoch });
        self.hit_if(refused.is_ok(), Probe::ExtensionRefused);
    }

    fn hold_is_extended(&mut self, g: usize, epoch: u32) {
        let attempt = world::attempt(usize::try_from(epoch).unwrap_or(0) * 16 + g);
        match self.apply(g, &Command::HoldExtended { epoch, attempt }) {
            Ok(Reply::Started { epoch }) => {
                let generation = self.generation(g);
                generation.earlier.push(std::mem::take(&mut generation.provider));
                // Nothing that a reader may have is ever replaced.
                let nothing_stored = generation.object.log.is_empty();
                self.check(nothing_stored, p::GROWS);
                self.start_driver(g, epoch);
            }
            answer => self.hit_if(answer == Ok(Reply::Done), Probe::RetryNotNeeded),
        }
    }
}
