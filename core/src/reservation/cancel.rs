//! Cancellation: a request is not a confirmation (seed 1, "Cancellation Requested Is Not Cancellation Confirmed").
//!
//! | state | means |
//! |---|---|
//! | requested | somebody asked, or the policy decided; recorded before anything is done |
//! | sent | the socket is closed, or the provider was asked to cancel its operation; where that was lost it is asked again |
//! | confirmed | the provider confirmed, or the only lever there is was pulled: closed as cancelled |
//! | completion won | the work had completed: settled as a completion |
//! | unknown | neither came to light: bounded, by the rules of [`crate::reconcile`] |
//!
//! Work that outlives its socket can be asked about by its name alone, and the socket brings the name. What is stopped
//! before it has one is therefore read on until it is named, and stopped then: see [`Levers::await_name`].

use super::command::{Command, Effect, Reply, Transition};
use super::resolve::{EVIDENCE_RETRY_MS, LOOK_UP_PATIENCE_MS};
use super::{AbortCause, Lifecycle, LogFacts, Report, Reservation, Signal, Subject, UpstreamState};
use crate::capability::Capabilities;
use crate::finding::Source;
use crate::reconcile::{Outcome, backoff_ms};
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// How long a stop waits for the name of what it stops, where the time for its first byte is not longer.
pub const NAME_PATIENCE_MS: u64 = 10_000;

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
    /// How often it was sent.
    #[serde(default)]
    pub times: u32,
    /// When it is sent again, after an answer that failed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub again_at: Option<UnixMillis>,
}

impl CancelRequest {
    /// When it is sent again; `None` where the provider has said something. One of which nothing was heard was lost with
    /// whoever sent it.
    #[must_use]
    pub fn due_at(&self) -> Option<UnixMillis> {
        match self.answer {
            None => Some(self.sent_at.plus(LOOK_UP_PATIENCE_MS)),
            Some(CancelAnswer::Failed { .. }) => Some(self.again_at.unwrap_or(self.sent_at)),
            Some(_) => None,
        }
    }
}

/// What a stop does to an attempt in its phase, beside telling its driver. What was never sent never will be.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Levers {
    /// Its driver reads on until it has a name: closing the socket would not stop it, and nobody could ask about it.
    pub await_name: bool,
    /// The provider can be asked.
    pub ask_provider: bool,
}

/// Cancellation by operation phase and by what the provider can do (seed 1; design 6).
#[must_use]
pub const fn levers(phase: UpstreamState, capabilities: Capabilities, operation_known: bool) -> Levers {
    let driven = matches!(phase, UpstreamState::Submitted | UpstreamState::Processing);
    let open = driven || matches!(phase, UpstreamState::Unknown);
    Levers {
        await_name: driven && !operation_known && capabilities.outlives_socket(),
        ask_provider: open && operation_known && capabilities.practice().requests_cancel(),
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

    /// Tells the driver to stop, and the provider where it can be told: at once, or as soon as the work has a name. The
    /// first cause stands.
    pub(super) fn abort(&self, cause: AbortCause, now: UnixMillis, command: &str) -> Transition {
        let mut next = self.clone();
        next.attempt.abort = Some(cause);
        next.attempt.name_by = self.levers().await_name.then(|| self.name_deadline(now));
        if matches!(cause, AbortCause::Request | AbortCause::Disconnect | AbortCause::DetachedMax) {
            next.lifecycle = Lifecycle::CancellationRequested;
        }
        let epoch = self.attempt.epoch();
        if next.attempt.name_by.is_some() {
            let transition = next.changed(Reply::Done).with_history(now, command, cause.outcome(), epoch);
            return transition.with_history(now, command, "awaits_name", epoch);
        }
        let request = next.request_cancel(now);
        let extension = next.hurry_extension(now);
        let evidence = self.may_resume(now).then(|| next.stop_resuming(now)).flatten();
        let mut transition = next.changed(Reply::Stop).with_history(now, command, cause.outcome(), epoch);
        transition.effects.push(Effect::AbortUpstream { epoch });
        transition.effects.extend(extension);
        transition.effects.extend(request);
        transition.effects.extend(evidence);
        transition
    }

    fn levers(&self) -> Levers {
        levers(self.attempt.upstream, self.terms.capabilities, self.attempt.operation_id.is_some())
    }

    /// Until when a stop of now waits for the name: as long as for the first byte, and a little in any case.
    fn name_deadline(&self, now: UnixMillis) -> UnixMillis {
        let sent_at = self.attempt.submitted_at.unwrap_or(now);
        let first_byte_ms = self.terms.first_byte_ms.min(self.terms.total_ms);
        sent_at.plus(first_byte_ms).max(now.plus(NAME_PATIENCE_MS))
    }

    /// The name did not come: the driver is told to stop all the same. `renews`: it lives here.
    pub(super) fn stop_unnamed(&self, renews: bool, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.attempt.name_by = None;
        if renews {
            next.attempt.lease = next.attempt.lease.renewed(now);
        }
        let epoch = self.attempt.epoch();
        let transition = next.changed(Reply::Stop).with_history(now, "wake", "name_not_told", epoch);
        transition.with_effect(Effect::AbortUpstream { epoch })
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

    /// Asks the provider to cancel what we want stopped, where it can be asked, and was not, or not in vain.
    pub(super) fn request_cancel(&mut self, now: UnixMillis) -> Option<Effect> {
        self.attempt.abort?;
        let before = self.attempt.cancel;
        let due = before.is_none_or(|request| request.due_at().is_some_and(|at| at <= now));
        if !due || !self.levers().ask_provider {
            return None;
        }
        let times = before.map_or(0, |request| request.times).saturating_add(1);
        self.attempt.cancel = Some(CancelRequest { sent_at: now, answer: None, times, again_at: None });
        let operation_id = self.attempt.operation_id.clone()?;
        Some(Effect::RequestCancel { epoch: self.attempt.epoch(), operation_id })
    }

    /// When the provider is asked again, while the work is open.
    pub(super) fn cancel_due_at(&self) -> Option<UnixMillis> {
        self.attempt.cancel.filter(|_| self.levers().ask_provider)?.due_at()
    }

    /// The provider is asked again, if it is time. `renews`: a driver lives here.
    pub(super) fn ask_again(&self, renews: bool, now: UnixMillis) -> Option<Transition> {
        self.cancel_due_at().filter(|at| *at <= now)?;
        let mut next = self.clone();
        if renews {
            next.attempt.lease = next.attempt.lease.renewed(now);
        }
        let request = next.request_cancel(now)?;
        Some(next.changed(Reply::Done).with_effect(request))
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
        let again_at = match answer {
            CancelAnswer::Failed { retry_after_ms } => {
                Some(now.plus(backoff_ms(request.times.saturating_sub(1), retry_after_ms, self.jitter())))
            }
            _ => None,
        };
        let mut next = self.clone();
        next.attempt.cancel = Some(CancelRequest { answer: Some(answer), again_at, ..request });
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
        let resumable = Capabilities { resume: true, ..Capabilities::default() };
        for (phase, capabilities, known, expected) in [
            (UpstreamState::Prepared, able, true, (false, false)),
            (UpstreamState::Prepared, able, false, (false, false)),
            (UpstreamState::Submitted, able, false, (true, false)),
            (UpstreamState::Submitted, unable, false, (false, false)),
            (UpstreamState::Submitted, resumable, false, (true, false)),
            (UpstreamState::Submitted, able, true, (false, true)),
            (UpstreamState::Processing, able, false, (true, false)),
            (UpstreamState::Processing, able, true, (false, true)),
            (UpstreamState::Processing, unable, true, (false, false)),
            (UpstreamState::Unknown, able, true, (false, true)),
            (UpstreamState::Unknown, able, false, (false, false)),
            (UpstreamState::Unknown, unable, true, (false, false)),
            (UpstreamState::Completed, able, true, (false, false)),
            (UpstreamState::Incomplete, able, true, (false, false)),
            (UpstreamState::Failed, able, true, (false, false)),
            (UpstreamState::Cancelled, able, true, (false, false)),
        ] {
            let Levers { await_name, ask_provider } = levers(phase, capabilities, known);
            assert_eq!((await_name, ask_provider), expected, "{phase:?} {capabilities:?} {known}");
        }
    }
}
