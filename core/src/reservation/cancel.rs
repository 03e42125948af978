//! Cancellation: a request is not a confirmation (seed 1, "Cancellation Requested Is Not Cancellation Confirmed").
//!
//! | state | means |
//! |---|---|
//! | requested | somebody asked, or the policy decided; recorded before anything is done |
//! | sent | the socket is closed, or the provider was asked to cancel its operation |
//! | confirmed | the provider confirmed, or the only lever there is was pulled: closed as cancelled |
//! | completion won | the work had completed: settled as a completion |
//! | unknown | neither came to light: bounded, by the rules of [`crate::reconcile`] |

use super::command::{Command, Effect, Reply, Transition};
use super::resolve::EVIDENCE_RETRY_MS;
use super::{AbortCause, Attempt, Lifecycle, LogFacts, Report, Reservation, Signal, Subject, UpstreamState};
use crate::capability::Capabilities;
use crate::finding::Source;
use crate::reconcile::Outcome;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// A recorded request to cancel. The first one stands; a repeated one gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cancellation {
    /// When it was asked for.
    pub requested_at: UnixMillis,
    /// What it came to, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<CancelOutcome>,
}

/// What a cancellation came to: the three outcomes of seed 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CancelOutcome {
    /// Cancelled.
    Confirmed,
    /// The work had completed before.
    CompletionWon,
    /// It failed otherwise, or could not be learnt.
    Unknown,
}

/// What a provider says to a request to cancel, by the documented meaning of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "answer", rename_all = "snake_case")]
pub enum CancelAnswer {
    /// Taken in: the outcome is still open.
    Accepted,
    /// It has stopped, and says so.
    Confirmed {
        /// Its terminal usage, if it told.
        usage: Option<Usage>,
    },
    /// Too late: the operation has ended, or can no longer be cancelled in its phase.
    TooLate,
    /// It will not.
    Refused,
    /// No answer.
    Failed {
        /// When the provider wishes to be asked again.
        retry_after_ms: Option<u64>,
    },
}

impl CancelAnswer {
    /// The name in the history.
    const fn outcome(self) -> &'static str {
        match self {
            Self::Accepted => "cancel_accepted",
            Self::Confirmed { .. } => "cancel_confirmed",
            Self::TooLate => "cancel_too_late",
            Self::Refused => "cancel_refused",
            Self::Failed { .. } => "cancel_failed",
        }
    }
}

/// The request to the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CancelRequest {
    /// When it was sent last.
    pub sent_at: UnixMillis,
    /// What the provider said.
    pub answer: Option<CancelAnswer>,
}

/// What can stop an attempt in its phase.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levers {
    /// Nothing was sent: it never will be.
    pub withhold: bool,
    /// The socket can be closed.
    pub close_socket: bool,
    /// The provider can be asked.
    pub ask_provider: bool,
}

/// Cancellation by operation phase and by what the provider can do (seed 1; design 6).
#[must_use]
pub const fn levers(phase: UpstreamState, capabilities: Capabilities, operation_known: bool) -> Levers {
    let ask = capabilities.practice().requests_cancel() && operation_known;
    match phase {
        UpstreamState::Prepared => Levers { withhold: true, close_socket: false, ask_provider: false },
        UpstreamState::Submitted | UpstreamState::Processing => {
            Levers { withhold: false, close_socket: true, ask_provider: ask }
        }
        UpstreamState::Unknown => Levers { withhold: false, close_socket: false, ask_provider: ask },
        UpstreamState::Completed | UpstreamState::Incomplete | UpstreamState::Failed | UpstreamState::Cancelled => {
            Levers { withhold: false, close_socket: false, ask_provider: false }
        }
    }
}

impl Attempt {
    /// Whether the provider has not been asked yet, or its answer left the question open.
    const fn cancel_is_unanswered(&self) -> bool {
        match self.cancel {
            None => true,
            Some(request) => matches!(request.answer, Some(CancelAnswer::Failed { .. })),
        }
    }
}

impl Reservation {
    /// A cancel is recorded as requested; whether it took effect is decided by evidence. The first one stands.
    pub(super) fn cancel(&self, now: UnixMillis) -> Transition {
        if self.cancellation.is_some() || self.lifecycle.is_terminal() {
            return Transition::unchanged(Reply::Cancellation(self.cancellation));
        }
        let cancellation = Some(Cancellation { requested_at: now, outcome: None });
        let mut next = self.clone();
        next.cancellation = cancellation;
        next.lifecycle = Lifecycle::CancellationRequested;
        let mut transition = if self.attempt.abort.is_none() {
            next.abort(AbortCause::Request, now, "cancel")
        } else {
            next.changed(Reply::Done).with_history(now, "cancel", "already_stopping", self.attempt.epoch())
        };
        transition.reply = Reply::Cancellation(cancellation);
        transition
    }

    /// Tells the driver to stop, and the provider where it can be told. The first cause stands.
    pub(super) fn abort(&self, cause: AbortCause, now: UnixMillis, command: &str) -> Transition {
        let mut next = self.clone();
        next.attempt.abort = Some(cause);
        if matches!(cause, AbortCause::Request | AbortCause::Disconnect | AbortCause::DetachedMax) {
            next.lifecycle = Lifecycle::CancellationRequested;
        }
        let epoch = self.attempt.epoch();
        let outcome = match cause {
            AbortCause::Request => "abort_request",
            AbortCause::Disconnect => "abort_disconnect",
            AbortCause::FirstByteTimeout => "abort_first_byte_timeout",
            AbortCause::IdleTimeout => "abort_idle_timeout",
            AbortCause::TotalTimeout => "abort_total_timeout",
            AbortCause::DetachedMax => "abort_detached_max",
        };
        let request = next.request_cancel(now);
        let extension = next.hurry_extension(now);
        let evidence = self.may_resume(now).then(|| next.stop_resuming(now)).flatten();
        let mut transition = next.changed(Reply::Stop).with_history(now, command, outcome, epoch);
        transition.effects.push(Effect::AbortUpstream { epoch });
        transition.effects.extend(extension);
        transition.effects.extend(request);
        transition.effects.extend(evidence);
        transition
    }

    /// Between two tries to take the stream up nothing runs either: the search for the outcome begins at once.
    fn stop_resuming(&mut self, now: UnixMillis) -> Option<Effect> {
        self.reconciliation?;
        self.give_up(now);
        self.look_again(now)
    }

    /// Between two attempts nothing runs: the tenant's answer, which is waited for, is asked for at once, and ends it.
    fn hurry_extension(&mut self, now: UnixMillis) -> Option<Effect> {
        let effect = self.extension();
        let search = self.reconciliation.as_mut().filter(|search| search.extending)?;
        search.next_at = now.plus(EVIDENCE_RETRY_MS);
        Some(effect)
    }

    /// Asks the provider to cancel what we want stopped, where it can be asked and has not answered.
    pub(super) fn request_cancel(&mut self, now: UnixMillis) -> Option<Effect> {
        self.attempt.abort?;
        let operation_id = self.attempt.operation_id.clone();
        let levers = levers(self.attempt.upstream, self.terms.capabilities, operation_id.is_some());
        if !levers.ask_provider || !self.attempt.cancel_is_unanswered() {
            return None;
        }
        self.attempt.cancel = Some(CancelRequest { sent_at: now, answer: None });
        operation_id.map(|operation_id| Effect::RequestCancel { epoch: self.attempt.epoch(), operation_id })
    }

    /// The provider's answer. Only one that confirms ends anything; every other leaves the outcome open. It is about the
    /// attempt, whichever epoch asked: the driver may have stopped meanwhile.
    pub(super) fn cancel_answered(
        &self,
        epoch: u32,
        answer: CancelAnswer,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        if !self.attempt.had_epoch(epoch) {
            return Err(Refusal::StaleEpoch { current: self.attempt.epoch() });
        }
        let Some(request) = self.attempt.cancel else {
            return Err(Refusal::WrongState { state: "no cancel was sent".into() });
        };
        if request.answer == Some(answer) {
            return Ok(Transition::unchanged(Reply::Done));
        }
        let mut next = self.clone();
        next.attempt.cancel = Some(CancelRequest { answer: Some(answer), ..request });
        if let CancelAnswer::Confirmed { usage } = answer {
            return Ok(next.cancel_confirmed(epoch, usage, log, now));
        }
        if self.lifecycle.is_terminal() {
            return Err(Refusal::WrongState { state: self.lifecycle.as_str().into() });
        }
        if let (Some(reconciliation), CancelAnswer::Failed { retry_after_ms }) = (&mut next.reconciliation, answer) {
            reconciliation.retry_after_ms = retry_after_ms;
        }
        // Too late means that there is an outcome to be learnt: it is looked for at once.
        let effect = if answer == CancelAnswer::TooLate { next.look_again(now) } else { None };
        let mut transition =
            next.changed(Reply::Done).with_history(now, "cancel_answered", answer.outcome(), self.attempt.epoch());
        transition.effects.extend(effect);
        Ok(transition)
    }

    /// A confirmation is the provider's word like any other: evidence, also when it comes late. `self` has the answer.
    fn cancel_confirmed(&self, epoch: u32, usage: Option<Usage>, log: &LogFacts, now: UnixMillis) -> Transition {
        let signal = Signal {
            event_id: None,
            source: Source::Lookup,
            subject: Subject::Epoch { epoch },
            report: Report::Ended { outcome: Outcome::Cancelled, usage },
            observed_at: now,
        };
        let mut transition = self.signal(&signal, log, now);
        if transition.state.is_none() {
            transition.state = self.clone().changed(Reply::Done).state;
        }
        let outcome = CancelAnswer::Confirmed { usage }.outcome();
        Transition { reply: Reply::Done, ..transition }.with_history(now, "cancel_answered", outcome, epoch)
    }

    /// What a recorded cancellation came to, read off the end.
    pub(super) fn close_cancellation(&mut self) {
        let outcome = match self.lifecycle {
            Lifecycle::Cancelled => CancelOutcome::Confirmed,
            Lifecycle::Completed => CancelOutcome::CompletionWon,
            Lifecycle::Failed | Lifecycle::Expired => CancelOutcome::Unknown,
            _ => return,
        };
        if let Some(cancellation) = &mut self.cancellation {
            cancellation.outcome = cancellation.outcome.or(Some(outcome));
        }
    }
}

impl Command {
    /// Whether a driver makes it while it works: such writes are fenced by epoch.
    #[must_use]
    pub const fn is_drivers(&self) -> bool {
        matches!(
            self,
            Self::Submit { .. } | Self::Respond { .. } | Self::Identify { .. } | Self::Append { .. } | Self::End { .. }
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 1, "Cancellation support should also be evaluated by operation phase".
    #[test]
    fn levers_by_phase() {
        let able = Capabilities { cancel: true, ..Capabilities::default() };
        let unable = Capabilities::default();
        for (phase, capabilities, known, expected) in [
            (UpstreamState::Prepared, able, true, (true, false, false)),
            (UpstreamState::Submitted, able, false, (false, true, false)),
            (UpstreamState::Submitted, able, true, (false, true, true)),
            (UpstreamState::Processing, able, true, (false, true, true)),
            (UpstreamState::Processing, unable, true, (false, true, false)),
            (UpstreamState::Unknown, able, true, (false, false, true)),
            (UpstreamState::Unknown, able, false, (false, false, false)),
            (UpstreamState::Unknown, unable, true, (false, false, false)),
            (UpstreamState::Completed, able, true, (false, false, false)),
            (UpstreamState::Incomplete, able, true, (false, false, false)),
            (UpstreamState::Failed, able, true, (false, false, false)),
            (UpstreamState::Cancelled, able, true, (false, false, false)),
        ] {
            let Levers { withhold, close_socket, ask_provider } = levers(phase, capabilities, known);
            assert_eq!((withhold, close_socket, ask_provider), expected, "{phase:?} {capabilities:?} {known}");
        }
    }
}
