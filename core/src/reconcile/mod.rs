//! The rules of reconciliation.
//!
//! An expired lease is a reason to investigate, and no proof that nothing was executed (seed 2). The control loop is the
//! caller's: select candidates, collect [`Evidence`], [`decide`], apply the action under guard, record, verify. What is
//! decided is decided here, from evidence and the route's policy, by rules that have a version; never from age alone.
//!
//! # The rules
//!
//! The first that matches decides. The same rows stand in [`RULES`].
//!
//! | rule | when | then | source |
//! |---|---|---|---|
//! | 1 | two pieces of evidence of the same rank differ | `quarantine`; `escalate` above `escalate_above` | seed 2, candidate row 6, recovery rows d and e |
//! | 2 | the driver shows life, or a newer attempt owns | `defer` to the end of the lease | seed 2, candidate row 2, recovery row c; invariant 4 |
//! | 3 | the posting that resolves the hold is authored | `defer`: the outbox repeats its delivery | seed 2, candidate row 5, recovery row b |
//! | 4 | an authoritative completion, or exact usage of this attempt | `finalize` from evidence | seed 2, candidate rows 4 and 5, recovery row b |
//! | 5 | the first attempt was only prepared, its driver is fenced, and nothing says otherwise | `release` as unexecuted | seed 2, candidate row 3, recovery row a |
//! | 6 | the driver is silent and not fenced | `defer`, and look up where the provider can be asked | seed 2, candidate row 1 |
//! | 7 | the deadline is not reached | `defer`: by backoff to the next look-up where the provider can be asked, else to the deadline | seed 2, recovery row a; seed 1, capability matrix |
//! | 8 | `on_interruption` is `retry`, attempts are left, the tenant extends the hold, and the provider does not say that it runs; or it is `quarantine` | `retry`; or `quarantine` | seed 2, recovery row a; invariant 12 |
//! | 9 | the hold is above `escalate_above` | `escalate` | seed 2, recovery row e |
//! | 10 | the route has chosen `on_expiry` | as chosen | seed 1, leases and deadlines; design 7 |
//! | 11 | anything else | `finalize` by estimate where the work died with its socket, else `quarantine` | design 7; seed 1, capability matrix |
//!
//! Three things hold whatever the circumstances are. Nothing is released, settled by estimate or repeated while the
//! driver shows life, is not fenced, or a newer attempt owns (invariant 4). Before the deadline only evidence ends a hold.
//! And without a fence, no time that passes ever does.
//!
//! # What is observed before
//!
//! The reservation asks these rules behind the fence and before any resolution: whoever finds the lease over takes it over
//! under a new epoch first, and the stored log is read then. So of its evidence the driver is always fenced, the attempt
//! always the newest, and nothing ever posted; what varies is execution, usage, completion and conflict, with the lease
//! and the last sign of life as they were when the fenced driver lost them. The conditions of the rules 2, 3 and 6 are
//! looked at earlier, by the rows and by now:
//!
//! | condition | looked at | then |
//! |---|---|---|
//! | the driver shows life (rule 2, candidate row 2) | at every wake-up | its lease is renewed, and nothing is taken over |
//! | a newer attempt owns (rule 2) | by the epoch that each command names | refused as `stale_epoch`, and recorded |
//! | the posting is authored (rule 3, candidate row 5) | by the lifecycle, and when the tenant says that it still holds | refused; what was authored is sent again |
//! | silent and not fenced (rule 6) | at the wake-up that finds the lease over | fenced at once; look-ups are rule 7's |
//!
//! The three rules stand here because the rules are total: whoever collects evidence without a fence is told to wait.

mod backoff;
mod classify;
mod decide;
mod evidence;
mod rules;

pub use backoff::{BACKOFF_BASE_MS, BACKOFF_MAX_MS, BACKOFF_STEP_MAX_MS, RETRY_AFTER_MAX_MS, backoff_ms};
pub use classify::{Candidate, Pattern, classify};
pub use decide::decide;
pub use evidence::{
    CompletionEvidence, DriverEvidence, Evidence, ExecutionEvidence, LeaseEvidence, LedgerEvidence, Outcome,
    OwnerEvidence, Phase, Preference, UsageEvidence, prefer,
};
pub use rules::{RULES, Rule};

use crate::capability::Capabilities;
use crate::ledger::ReasonCode;
use crate::money::Micros;
use crate::policy::{OnExpiry, OnInterruption};
use crate::time::UnixMillis;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Version of the rules: written into every decision, raised with every change of what they decide.
pub const RULES_VERSION: &str = "reconcile/1";

/// What a decision depends on besides the evidence: the rules of the route, and what is possible.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Circumstances {
    /// What the provider can do.
    pub capabilities: Capabilities,
    /// What the route chose for the credit at the deadline.
    pub on_expiry: Option<OnExpiry>,
    /// What the route says about a lost driver.
    pub on_interruption: OnInterruption,
    /// What is held.
    pub hold: Micros,
    /// A hold above this is not resolved by a rule alone while its outcome is open.
    pub escalate_above: Option<Micros>,
    /// End of the observation. It limits waiting; it proves nothing.
    pub deadline: UnixMillis,
    /// Look-ups made so far.
    pub lookups: u32,
    /// Attempts so far, this one included.
    pub attempts: u32,
    /// The tenant refused to extend the hold for a further attempt.
    pub retry_refused: bool,
    /// The provider's own wish for the time of the next look-up, in milliseconds from now. Bounded by [`backoff_ms`].
    pub retry_after_ms: Option<u64>,
    /// Any number, derived from ids by the caller. Bounded by [`backoff_ms`].
    pub jitter: u64,
    /// The time of the decision.
    pub now: UnixMillis,
}

/// What is done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "action", rename_all = "snake_case")]
pub enum Action {
    /// The hold is given back.
    Release {
        /// On what ground.
        basis: ReleaseBasis,
    },
    /// The hold is settled.
    Finalize {
        /// On what ground.
        basis: FinalizeBasis,
    },
    /// A new attempt with its own id, after the hold was extended.
    Retry,
    /// Nothing yet.
    Defer {
        /// When to decide again. Always after `now`.
        until: UnixMillis,
        /// The provider is asked then, before the next decision is taken.
        look_up: bool,
    },
    /// The hold is kept until a late signal or an operator resolves it.
    Quarantine {
        /// It is first reduced to what the work can have cost.
        reduce: bool,
    },
    /// The hold is kept, disputed, and an operator is called.
    Escalate,
}

/// Why a hold may be given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReleaseBasis {
    /// Nothing was sent: proved.
    Unexecuted,
    /// The route chose to give it back at the deadline: the outcome stays open.
    Expiry {
        /// Late signals are still looked for.
        watch: bool,
    },
}

/// What a hold is settled by.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FinalizeBasis {
    /// What an authoritative source said.
    Evidence,
    /// An upper bound made from what was seen, never above the hold.
    Estimate,
}

/// What the rules make of the evidence. It is stored beside it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decision {
    /// What is done.
    pub action: Action,
    /// Why.
    pub reason: ReasonCode,
    /// The row of seed 2's candidate table.
    pub candidate: Candidate,
    /// The row of seed 2's recovery table.
    pub pattern: Pattern,
    /// The number of the rule that decided, in [`RULES`].
    pub rule: u8,
    /// The version of the rules, [`RULES_VERSION`] when it was taken.
    pub rules_version: String,
}
