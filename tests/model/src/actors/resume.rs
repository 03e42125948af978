//! Tries to take a stream up again: the provider is asked for the rest of it. It sends the rest on, refuses for good, or
//! not now; in between anything may happen, a crash that takes the try with it, too.

use crate::bug::Bug;
use crate::config::Fault;
use crate::probes::Probe;
use crate::state::{Driver, Piece, Resuming, State};
use crate::step::Step;
use crate::world;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Command, Reply, Reservation, Resumption};

/// What a provider answers to a request for the rest of a stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Answers {
    /// It sends the rest.
    TakesUp,
    /// It sends something else than the rest: that is never spliced.
    Differs,
    /// It refuses for good.
    Refuses,
    /// It cannot just now, or is not heard.
    Fails,
}

/// What becomes of a try.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The provider's answer comes.
    Answered {
        /// Which request.
        g: usize,
        /// What it is.
        answer: Answers,
    },
    /// No answer comes.
    Unanswered {
        /// Which request.
        g: usize,
    },
}

pub(crate) fn actions(state: &State, resumes: &[Answers], g: usize, may: &mut dyn FnMut(Action)) {
    let object = &state.generations[g].object;
    if object.memory.as_ref().is_none_or(|memory| memory.resuming.is_none()) {
        return;
    }
    for answer in resumes {
        may(Action::Answered { g, answer: *answer });
    }
    if resumes.contains(&Answers::Fails) {
        return;
    }
    // Whoever is told to stop closes the socket.
    let stopped = object.aggregate.live().is_none_or(|live| live.attempt.abort.is_some());
    if stopped {
        may(Action::Answered { g, answer: Answers::Fails });
    } else if state.faults.allow(Fault::Loss) {
        may(Action::Unanswered { g });
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Answered { g, answer } => step.try_is_answered(g, answer),
        Action::Unanswered { g } => {
            step.state.faults.spend(Fault::Loss);
            step.try_is_answered(g, Answers::Fails);
        }
    }
}

impl Step<'_> {
    /// Takes the stream of a lost driver up again, where its stored events end. A try that is under way goes on.
    pub(crate) fn take_up(&mut self, g: usize, epoch: u32, operation_id: &str) {
        let memory = self.memory(g);
        let drives = memory.driver.as_ref().is_some_and(|driver| driver.epoch == epoch);
        if drives || memory.resuming.is_some_and(|resuming| resuming.epoch == epoch) {
            return;
        }
        // The client of a fenced driver at the edge reads nothing more there.
        memory.edge_client = false;
        // Those that came back since the driver was lost, and those that went with an object that was restarted meanwhile.
        self.readers_changed(g);
        let now = self.now();
        if !self.aggregate(g).live().is_some_and(|live| live.may_resume(now)) {
            return;
        }
        let log = &self.object(g).log;
        // All of it is stored: there is nothing to ask for.
        if log.iter().any(|piece| matches!(piece, Piece::Terminal(_))) {
            return self.resolve_lost(g, epoch);
        }
        let stored = log.iter().filter(|piece| matches!(piece, Piece::Content { .. })).count();
        let from = u8::try_from(stored).unwrap_or(u8::MAX);
        let from = if self.bug(Bug::ResumeRepeatsAPiece) { from.saturating_sub(1) } else { from };
        let attempt = world::attempt_of(operation_id);
        self.memory(g).resuming = Some(Resuming { epoch, attempt, from });
    }

    fn try_is_answered(&mut self, g: usize, answer: Answers) {
        let Some(resuming) = self.memory(g).resuming else { return };
        let epoch = resuming.epoch;
        let failed = |refused| Command::ResumeFailed { epoch, refused, retry_after_ms: None };
        // A try of an epoch that does not own any more is refused, and so is one whose generation has ended.
        let _: Result<Reply, Refusal> = match answer {
            Answers::TakesUp | Answers::Differs => {
                let driven = self.apply(g, &Command::Resumed { epoch });
                self.memory(g).resuming = None;
                self.hit_if(driven == Ok(Reply::Stop), Probe::TakenUpInVain);
                match (answer, &driven) {
                    (Answers::TakesUp, Ok(Reply::Continue)) => {
                        self.memory(g).driver = Some(Driver::resumed(resuming));
                        driven
                    }
                    (Answers::Differs, Ok(Reply::Continue)) => self.apply(g, &failed(true)),
                    _ => driven,
                }
            }
            Answers::Refuses | Answers::Fails => {
                self.memory(g).resuming = None;
                self.apply(g, &failed(answer == Answers::Refuses))
            }
        };
        self.deliver(g);
    }

    /// What a change says about tries.
    pub(crate) fn note_resumption(&self, before: &Reservation, after: &Reservation, command: &Command) {
        let tries = |live: &Reservation| live.attempt.resumption.unwrap_or_default();
        let (was, is): (Resumption, Resumption) = (tries(before), tries(after));
        self.hit_if(was.resumed_at != is.resumed_at, Probe::TakenUp);
        self.hit_if(is.tries > was.tries && was.tries > 0, Probe::TriedAgain);
        let given_up = is.given_up && !was.given_up;
        match command {
            Command::ResumeFailed { .. } if before.reconciliation.is_none() => self.hit_if(given_up, Probe::OtherBytes),
            Command::ResumeFailed { .. } => self.hit_if(given_up, Probe::TryRefused),
            Command::Wake { .. } => self.hit_if(given_up, Probe::TriesGivenUp),
            Command::Cancel => self.hit_if(given_up, Probe::CancelledWhileTried),
            Command::End { .. } => {
                let completed = after.lifecycle == holdfast_core::reservation::Lifecycle::Completed;
                self.hit_if(completed && is.resumed_at.is_some(), Probe::TakenUpAndCompleted);
            }
            _ => {}
        }
    }

    /// A write of an older epoch was refused: by a stream that was taken up again?
    pub(crate) fn note_zombie(&self, aggregate: &Aggregate) {
        let resumed = |live: &Reservation| live.attempt.resumption.is_some_and(|it| it.resumed_at.is_some());
        self.hit_if(aggregate.live().is_some_and(resumed), Probe::ZombieAfterResume);
    }
}
