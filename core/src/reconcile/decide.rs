//! The rules in their order. Each function below covers one part of [`super::RULES`]; numbers are the rules' own.

use super::backoff::backoff_ms;
use super::classify::{Pattern, classify, pattern};
use super::evidence::{DriverEvidence, Evidence, LedgerEvidence, Outcome, Phase};
use super::{Action, Circumstances, Decision, FinalizeBasis, RULES_VERSION, ReleaseBasis};
use crate::ledger::ReasonCode;
use crate::policy::{ATTEMPTS_MAX, OnExpiry, OnInterruption};
use crate::time::UnixMillis;

/// What a rule says: its number, the action, the reason.
type Verdict = (u8, Action, ReasonCode);

/// Decides what is done about a reservation whose outcome is open. Total: every evidence has a decision, by the first
/// rule of [`super::RULES`] that matches. The caller applies it under the epoch and state that the evidence was collected
/// from, and collects again when they have moved.
#[must_use]
pub fn decide(evidence: &Evidence, circumstances: &Circumstances) -> Decision {
    let (rule, action, reason) = conflicting(evidence, circumstances)
        .or_else(|| owned(evidence, circumstances))
        .or_else(|| evident(evidence, circumstances))
        .or_else(|| unsettled(evidence, circumstances))
        .or_else(|| interrupted(evidence, circumstances))
        .unwrap_or_else(|| expired(circumstances));
    let pattern = if action == Action::Escalate { Pattern::HighValueAmbiguity } else { pattern(evidence) };
    Decision { action, reason, candidate: classify(evidence), pattern, rule, rules_version: RULES_VERSION.into() }
}

impl Circumstances {
    fn is_high_value(&self) -> bool {
        self.escalate_above.is_some_and(|limit| self.hold > limit)
    }

    fn backoff_from_now(&self) -> UnixMillis {
        self.now.plus(backoff_ms(self.lookups, self.retry_after_ms, self.jitter))
    }

    /// When to look at a lease again: at its end, or after a pause if it has passed.
    fn recheck_at(&self, evidence: &Evidence) -> UnixMillis {
        let expires_at = evidence.lease.expires_at;
        if expires_at > self.now { expires_at } else { self.backoff_from_now() }
    }
}

/// Rule 1. No rule prefers one of two equals. A resolution that is posted already stands (invariant 3): the dispute is then
/// about a correction, and the caller keeps it for review.
fn conflicting(evidence: &Evidence, circumstances: &Circumstances) -> Option<Verdict> {
    let action = if circumstances.is_high_value() { Action::Escalate } else { Action::Quarantine { reduce: false } };
    evidence.conflict.then_some((1, action, ReasonCode::EvidenceConflict))
}

/// Rules 2 and 3. Somebody else is at it, with right: the driver, a newer attempt, or the outbox.
fn owned(evidence: &Evidence, circumstances: &Circumstances) -> Option<Verdict> {
    if evidence.somebody_owns() {
        let until = circumstances.recheck_at(evidence);
        return Some((2, Action::Defer { until, look_up: false }, ReasonCode::AttemptLive));
    }
    let until = circumstances.backoff_from_now();
    (evidence.ledger == LedgerEvidence::Posted).then_some((
        3,
        Action::Defer { until, look_up: false },
        ReasonCode::PostingUnderway,
    ))
}

/// Rules 4 and 5. The evidence settles it, at any time.
fn evident(evidence: &Evidence, circumstances: &Circumstances) -> Option<Verdict> {
    let exact = evidence.has_valid_usage();
    let outcome = evidence.outcome();
    if exact || outcome.is_some() {
        let reason = match outcome {
            Some(Outcome::Failed) => ReasonCode::OperationFailed,
            Some(Outcome::Cancelled) => ReasonCode::CancelConfirmed,
            Some(Outcome::Completed | Outcome::Incomplete) | None if exact => ReasonCode::CompletedExact,
            Some(Outcome::Completed | Outcome::Incomplete) | None => ReasonCode::CompletedWithoutUsage,
        };
        return Some((4, Action::Finalize { basis: FinalizeBasis::Evidence }, reason));
    }
    // Only the first attempt proves by its phase that nothing was sent: an earlier one may have run. And a result, of
    // whatever quality, contradicts the phase.
    let unsent = evidence.phase() == Some(Phase::Prepared)
        && evidence.owner.driver == DriverEvidence::Fenced
        && circumstances.attempts <= 1
        && !evidence.has_any_result();
    unsent.then_some((5, Action::Release { basis: ReleaseBasis::Unexecuted }, ReasonCode::NeverSubmitted))
}

/// Rules 6 and 7. The outcome is open, and there is still time to learn it.
fn unsettled(evidence: &Evidence, circumstances: &Circumstances) -> Option<Verdict> {
    let look_up = circumstances.capabilities.practice().looks_up();
    if evidence.owner.driver != DriverEvidence::Fenced {
        let until = circumstances.recheck_at(evidence);
        return Some((6, Action::Defer { until, look_up }, ReasonCode::OutcomeOpen));
    }
    let deadline = circumstances.deadline;
    let until = if look_up { circumstances.backoff_from_now().min(deadline) } else { deadline };
    (circumstances.now < deadline).then_some((7, Action::Defer { until, look_up }, ReasonCode::OutcomeOpen))
}

/// Rule 8. What the route says about an interruption. `retry` is the route's word that the call may be repeated
/// (invariant 12), for an attempt of unknown outcome: not for one that the provider says is running.
fn interrupted(evidence: &Evidence, circumstances: &Circumstances) -> Option<Verdict> {
    let may_retry =
        circumstances.attempts < ATTEMPTS_MAX && !circumstances.retry_refused && !evidence.provider_says_it_runs();
    match circumstances.on_interruption {
        OnInterruption::Retry if may_retry => Some((8, Action::Retry, ReasonCode::RetryExtended)),
        OnInterruption::Quarantine => Some((8, Action::Quarantine { reduce: false }, ReasonCode::ExpiredQuarantined)),
        OnInterruption::Retry | OnInterruption::Fail => None,
    }
}

/// Rules 9 to 11. The deadline was reached with an open outcome.
fn expired(circumstances: &Circumstances) -> Verdict {
    if circumstances.is_high_value() {
        return (9, Action::Escalate, ReasonCode::Escalated);
    }
    if let Some(chosen) = circumstances.on_expiry {
        let (action, reason) = by_route(chosen);
        return (10, action, reason);
    }
    if circumstances.capabilities.outlives_socket() {
        return (11, Action::Quarantine { reduce: false }, ReasonCode::ExpiredQuarantined);
    }
    // The socket was the only lever, and it died with the fenced driver: the work is dead too.
    (11, Action::Finalize { basis: FinalizeBasis::Estimate }, ReasonCode::DriverLost)
}

/// Seed 1's deadline policies, as the route chose.
const fn by_route(chosen: OnExpiry) -> (Action, ReasonCode) {
    match chosen {
        OnExpiry::Quarantine => (Action::Quarantine { reduce: false }, ReasonCode::ExpiredQuarantined),
        OnExpiry::ReduceHold => (Action::Quarantine { reduce: true }, ReasonCode::ExpiredReduced),
        OnExpiry::ExpireAndWatch => {
            (Action::Release { basis: ReleaseBasis::Expiry { watch: true } }, ReasonCode::ExpiredWatching)
        }
        OnExpiry::Escalate => (Action::Escalate, ReasonCode::Escalated),
        OnExpiry::Release => {
            (Action::Release { basis: ReleaseBasis::Expiry { watch: false } }, ReasonCode::ExpiredReleased)
        }
        OnExpiry::SettleEstimate => (Action::Finalize { basis: FinalizeBasis::Estimate }, ReasonCode::ExpiredEstimated),
    }
}
