//! A reservation with a lost driver, and what else can be known about it.

use holdfast_core::capability::Capabilities;
use holdfast_core::finding::{Finding, Source};
use holdfast_core::money::Micros;
use holdfast_core::policy::OnInterruption;
use holdfast_core::reconcile::{
    Circumstances, CompletionEvidence, DriverEvidence, Evidence, ExecutionEvidence, LeaseEvidence, LedgerEvidence,
    Outcome, OwnerEvidence, Phase, UsageEvidence,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::{Metered, Usage};

/// When the lease ended.
pub(crate) const EXPIRED_AT: u64 = 400_000;
/// When it is decided, unless a test says otherwise.
pub(crate) const NOW: u64 = 500_000;
/// The end of the observation.
pub(crate) const DEADLINE: u64 = 1_000_000;

pub(crate) const USAGE: Usage =
    Usage { input_tokens: 12, output_tokens: 7, cached_input_tokens: 0, cache_write_tokens: 0, reasoning_tokens: 0 };
pub(crate) const EXACT: Metered = Metered::Exact(USAGE);
pub(crate) const AT_LEAST: Metered = Metered::AtLeast(USAGE);

pub(crate) fn micros(n: u64) -> Micros {
    Micros::new(n).unwrap()
}

pub(crate) fn not_observed<T>() -> Finding<T> {
    Finding::SearchedNotObserved { stores: vec!["log".into()], from: UnixMillis(1), until: UnixMillis(NOW) }
}

/// Expired lease, fenced driver, something may have been sent, nothing more is known.
pub(crate) fn lost() -> Evidence {
    Evidence {
        lease: LeaseEvidence { expires_at: UnixMillis(EXPIRED_AT), expired: true },
        owner: OwnerEvidence {
            epoch: 1,
            last_sign_at: UnixMillis(EXPIRED_AT - 120_000),
            driver: DriverEvidence::Fenced,
            newer_attempt_owns: false,
        },
        execution: phase(Phase::Submitted, Source::OwnCount),
        usage: not_observed(),
        completion: not_observed(),
        ledger: LedgerEvidence::NothingPosted,
        conflict: false,
    }
}

pub(crate) fn phase(phase: Phase, source: Source) -> Finding<ExecutionEvidence> {
    Finding::of(ExecutionEvidence { phase, source })
}

pub(crate) fn usage(metered: Metered, source: Source) -> Finding<UsageEvidence> {
    Finding::of(UsageEvidence { metered, source, of_this_attempt: true })
}

pub(crate) fn completion(outcome: Outcome, source: Source) -> Finding<CompletionEvidence> {
    Finding::of(CompletionEvidence { outcome, source })
}

/// The evidence with another state of the driver.
pub(crate) fn driven(driver: DriverEvidence, evidence: Evidence) -> Evidence {
    Evidence { owner: OwnerEvidence { driver, ..evidence.owner }, ..evidence }
}

/// A newer attempt owns.
pub(crate) fn superseded(evidence: Evidence) -> Evidence {
    Evidence { owner: OwnerEvidence { newer_attempt_owns: true, ..evidence.owner }, ..evidence }
}

/// The lease has not ended.
pub(crate) fn leased(evidence: Evidence) -> Evidence {
    Evidence { lease: LeaseEvidence { expires_at: UnixMillis(NOW + 7_000), expired: false }, ..evidence }
}

/// Before the deadline; nobody has chosen anything, the provider can do nothing.
pub(crate) fn open() -> Circumstances {
    Circumstances {
        capabilities: Capabilities::default(),
        on_expiry: None,
        on_interruption: OnInterruption::Fail,
        hold: micros(1_000),
        escalate_above: None,
        deadline: UnixMillis(DEADLINE),
        lookups: 0,
        attempts: 1,
        retry_refused: false,
        retry_after_ms: None,
        jitter: 0,
        now: UnixMillis(NOW),
    }
}

/// The same at the deadline.
pub(crate) fn due() -> Circumstances {
    Circumstances { now: UnixMillis(DEADLINE), ..open() }
}

/// The provider answers look-ups.
pub(crate) const ASKABLE: Capabilities =
    Capabilities { cancel: false, status: true, resume: false, callback: false, idempotency_key: false };
