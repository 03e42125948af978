//! Seed 2's two tables of interpretation: the candidate's condition, and the pattern of its evidence.

use super::evidence::{DriverEvidence, Evidence, LedgerEvidence, Phase};
use serde::{Deserialize, Serialize};

/// What kind of candidate a reservation is: the six rows of seed 2, "Query for Overdue Reservations Using Multiple
/// Failure Signals".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Candidate {
    /// None: the lease holds, or the hold is resolved already.
    NotACandidate,
    /// Row 1, expired lease and stale heartbeat: the driver may have crashed.
    StaleWorker,
    /// Row 2, expired lease but active job: a renewal may be late or racing.
    DelayedRenewal,
    /// Row 3, no completion event and no usage: the work may not have run.
    NothingObserved,
    /// Row 4, usage exists but no finalized charge: an event may be lost.
    UsageWithoutCharge,
    /// Row 5, completion exists but the ledger entry is absent: the settlement may have failed.
    CompletionWithoutEntry,
    /// Row 6, conflicting usage or attempt records: ambiguous.
    Conflicting,
}

/// What the evidence amounts to: the five rows of seed 2, "Choose recovery from authoritative evidence".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Pattern {
    /// Row a, no execution or usage evidence of an authoritative source: release, expire, retry, or defer.
    NoExecutionOrUsage,
    /// Row b, valid usage or a completion with incomplete settlement: finalize idempotently.
    ValidUsageIncompleteSettlement,
    /// Row c, an attempt that may still be active: renew or transfer ownership conditionally; never release.
    RecoverableActiveAttempt,
    /// Row d, conflicting ownership, usage or ledger data: quarantine.
    ConflictingEvidence,
    /// Row e, high-value or policy-sensitive ambiguity: an operator decides.
    HighValueAmbiguity,
}

/// Classifies a reservation from evidence alone. It takes no age and no `now`: long-running work may be active, and a
/// driver may have finished a moment before it was lost (seed 2: "Age alone cannot identify an orphan safely").
#[must_use]
pub fn classify(evidence: &Evidence) -> Candidate {
    let fenced = evidence.owner.driver == DriverEvidence::Fenced;
    if evidence.conflict {
        Candidate::Conflicting
    } else if evidence.ledger == LedgerEvidence::Posted || !(evidence.lease.expired || fenced) {
        // Fencing takes an expired lease: who is fenced is a candidate, whatever the newer epoch's lease says.
        Candidate::NotACandidate
    } else if evidence.somebody_owns() {
        Candidate::DelayedRenewal
    } else if evidence.outcome().is_some() {
        Candidate::CompletionWithoutEntry
    } else if evidence.has_valid_usage() {
        Candidate::UsageWithoutCharge
    } else if evidence.provider_says_it_runs() {
        Candidate::DelayedRenewal
    } else if fenced && !evidence.has_any_result() && !has_begun(evidence) {
        Candidate::NothingObserved
    } else {
        Candidate::StaleWorker
    }
}

/// Whether the provider was seen to work on it. A stored submission says only that something may have been sent.
fn has_begun(evidence: &Evidence) -> bool {
    matches!(evidence.phase(), Some(Phase::Processing | Phase::Ended))
}

/// The row of the recovery table, in the same order as the rules of [`super::decide`]. Row e needs the amount at stake,
/// and is set by the rule that escalates.
pub(super) fn pattern(evidence: &Evidence) -> Pattern {
    let settled = evidence.ledger == LedgerEvidence::Posted;
    if evidence.conflict {
        Pattern::ConflictingEvidence
    } else if evidence.somebody_owns() {
        Pattern::RecoverableActiveAttempt
    } else if settled || evidence.outcome().is_some() || evidence.has_valid_usage() {
        Pattern::ValidUsageIncompleteSettlement
    } else if evidence.owner.driver != DriverEvidence::Fenced || evidence.provider_says_it_runs() {
        Pattern::RecoverableActiveAttempt
    } else {
        Pattern::NoExecutionOrUsage
    }
}
