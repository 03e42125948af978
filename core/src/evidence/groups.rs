//! The field groups of a release record, under the names of seed 3's table. Effects have their own file.

use crate::finding::Finding;
use crate::ids::{AttemptId, GenerationId, ReservationId, TenantId};
use crate::ledger::ReasonCode;
use crate::money::Micros;
use crate::reservation::{Lifecycle, Settlement};
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Whose clock a time was read from. Clocks differ: two times are comparable to the millisecond only within one source.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TimeSource {
    /// The object of the generation.
    ReservationObjectClock,
    /// The object of the tenant.
    TenantObjectClock,
    /// The Worker that drove an edge-owned generation.
    EdgeClock,
    /// The provider said so.
    Provider,
}

/// A time and where it comes from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Timed {
    /// When, in milliseconds since the Unix epoch.
    pub at: UnixMillis,
    /// By whose clock.
    pub source: TimeSource,
}

impl Timed {
    /// A time by the clock of the generation's object.
    #[must_use]
    pub const fn by_reservation(at: UnixMillis) -> Self {
        Self { at, source: TimeSource::ReservationObjectClock }
    }

    /// A time by the clock of the tenant's object.
    #[must_use]
    pub const fn by_tenant(at: UnixMillis) -> Self {
        Self { at, source: TimeSource::TenantObjectClock }
    }
}

/// What is held, and under which rule.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResourceScope {
    /// Credit, in micro-USD.
    pub credit: Micros,
    /// Concurrency slots.
    pub slots: u32,
    /// Route.
    pub route: String,
    /// Provider that serves it.
    pub provider: String,
}

/// Field group "reservation identity". The ids as they were when the release was decided.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReservationIdentity {
    /// The hold.
    pub reservation_id: ReservationId,
    /// Who pays.
    pub tenant_ref: TenantId,
    /// The public object.
    pub generation: GenerationId,
    /// What is held.
    pub resource_scope: ResourceScope,
    /// The executions upstream, in the order of their epochs.
    pub attempt_ids: Vec<AttemptId>,
    /// The provider's id for the last of them.
    pub provider_operation_id: Finding<String>,
    /// The workflow of the caller, where it named one.
    pub workflow_id: Finding<String>,
    /// The trace that the request belonged to.
    pub trace_id: Finding<String>,
}

/// What was last seen of the work.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ActivityKind {
    /// The hold was placed, and nothing since.
    Admitted,
    /// A further attempt was prepared.
    Prepared,
    /// The attempt was submitted.
    Submitted,
    /// A batch of output was stored.
    AppendedBatch,
    /// The driver renewed its lease without output.
    Heartbeat,
    /// Bytes of the provider that are not stored yet.
    ProviderBytes,
    /// A reader attached or read.
    Reader,
    /// The provider answered a lookup.
    StatusLookup,
    /// A verified callback.
    Callback,
}

/// A time of activity and what was active.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Activity {
    /// What was seen.
    pub kind: ActivityKind,
    /// When, in milliseconds since the Unix epoch.
    pub at: UnixMillis,
    /// By whose clock.
    pub source: TimeSource,
}

/// Field group "lifecycle timing".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LifecycleTiming {
    /// When the hold was placed.
    pub created_at: Timed,
    /// When a generation of this route is normally done. Not applicable where the route has no expectation.
    pub expected_completion_at: Finding<Timed>,
    /// When the lease or the deadline behind the release was over.
    pub expires_at: Timed,
    /// The last activity that the decision took into account.
    pub last_activity_at: Finding<Activity>,
    /// When the release was decided.
    pub decision_at: Timed,
    /// When it took effect. A decision is no effect: not available until the effect is confirmed.
    pub released_at: Finding<Timed>,
}

/// State of the reservation and of its hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReservationState {
    /// Lifecycle of the reservation.
    pub lifecycle: Lifecycle,
    /// State of the hold.
    pub settlement: Settlement,
}

/// The count of stored changes, around the transition.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateVersion {
    /// The version that was decided on.
    pub before: u64,
    /// The version that the transition made.
    pub after: u64,
}

/// Field group "state transition".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct StateTransition {
    /// State immediately before. Not applicable where the generation was never started and so had none.
    pub state_before: Finding<ReservationState>,
    /// State immediately after.
    pub state_after: ReservationState,
    /// Versions of both.
    pub state_version: StateVersion,
    /// The epoch of the attempt that held the lease when the release was decided.
    pub lease_generation: Finding<u32>,
    /// The epoch from which on writes are accepted after the release: older ones change nothing.
    pub fencing_token: Finding<u32>,
}

/// The value of a fact.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum FactValue {
    /// Yes or no.
    Flag(bool),
    /// A number of things.
    Count(u64),
    /// A duration in milliseconds.
    Ms(u64),
    /// An amount in micro-USD.
    Micros(Micros),
    /// A time.
    Time(Timed),
    /// A stable word: the name of a state, a class or a rule. Never text of a client or a provider.
    Word(String),
}

/// One thing that was evaluated.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Fact {
    /// Its name in the rules.
    pub name: String,
    /// What was found.
    pub value: Finding<FactValue>,
}

/// Field group "decision policy".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DecisionPolicy {
    /// The policy of the route that was applied.
    pub policy_id: String,
    /// Version of the tenant's configuration that it comes from.
    pub policy_version: Finding<String>,
    /// Version of the rules that applied it.
    pub rules_version: String,
    /// How long without activity made it stale, in milliseconds.
    pub stale_threshold_ms: u64,
    /// What was evaluated, in the order in which the rules ask. The order is part of the record.
    pub evaluated_facts: Vec<Fact>,
}

/// What was expected.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SignalType {
    /// That the generation starts.
    Start,
    /// That its driver shows life.
    Heartbeat,
    /// That the operation ends: terminal event, lookup or callback.
    Completion,
    /// That a requested cancel is confirmed.
    CancelConfirmation,
}

/// From when to when it was looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Window {
    /// Start.
    pub from: Timed,
    /// End.
    pub until: Timed,
}

/// Whether the signal was found. There is no word for "never sent": what is missing here may have been lost on its way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MatchResult {
    /// A matching signal was observed.
    Observed,
    /// None was, in the stores that are named and within the window.
    NotObservedInNamedStoresDuringWindow,
}

/// Field group "expected signal".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExpectedSignal {
    /// What was expected.
    pub signal_type: SignalType,
    /// The wire format and its version, where the signal has one.
    pub contract_version: Finding<String>,
    /// Who would have received it.
    pub receiver: String,
    /// The id that ties it to the reservation.
    pub correlation_key: String,
    /// When it was looked for.
    pub observation_window: Window,
    /// Where it was looked for.
    pub stores_searched: Vec<String>,
    /// What would have counted, as the name of the rule.
    pub matching_criteria: String,
    /// Whether it was found.
    pub match_result: MatchResult,
}

/// State of a delivery that waits in a queue.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum QueueStatus {
    /// Waiting for its turn.
    Waiting,
    /// Handed over.
    Delivered,
    /// Taken out after too many attempts.
    DeadLettered,
}

/// Field group "delivery metadata": what is known of the signal's way. What the way does not have is not applicable, and
/// nothing is inferred.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryMetadata {
    /// Id of the event.
    pub event_id: Finding<String>,
    /// How often it was delivered or asked for.
    pub attempt_count: Finding<u32>,
    /// HTTP status of the last answer.
    pub response_status: Finding<u16>,
    /// State in its queue.
    pub queue_status: Finding<QueueStatus>,
    /// State after its queue gave it up.
    pub dead_letter_status: Finding<QueueStatus>,
    /// SHA-256 of the idempotency key, in hex: the key itself is the client's text.
    pub idempotency_key: Finding<String>,
}

impl DeliveryMetadata {
    /// Of a signal without events, queues and keys: a stream that just breaks off.
    #[must_use]
    pub const fn not_applicable() -> Self {
        Self {
            event_id: Finding::NotApplicable,
            attempt_count: Finding::NotApplicable,
            response_status: Finding::NotApplicable,
            queue_status: Finding::NotApplicable,
            dead_letter_status: Finding::NotApplicable,
            idempotency_key: Finding::NotApplicable,
        }
    }
}

/// How a release came about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "release_mode", rename_all = "snake_case")]
pub enum ReleaseMode {
    /// A rule decided.
    Automatic {
        /// Id of the execution: which wake-up of which object.
        execution: String,
    },
    /// An operator decided.
    Manual {
        /// By which way: `console`, `api`.
        channel: String,
        /// Why, in the operator's words. Required.
        operator_justification: String,
    },
    /// A recovery decided: a sweep, a reconciliation.
    Recovery {
        /// Which process.
        process: String,
        /// The incident, task or run that started it.
        reference: String,
    },
}

/// Field group "release authority".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReleaseAuthority {
    /// How it came about, and the execution, channel or incident behind it.
    #[serde(flatten)]
    pub release_mode: ReleaseMode,
    /// The service that decided, or the id of the operator who did.
    pub service_or_actor: String,
    /// Why, in a stable word.
    pub reason_code: ReasonCode,
}

/// How a late or repeated signal was handled (seed 3, the four dispositions).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// It spoke of an old epoch, or of what was final already.
    Ignored,
    /// It completed what was left, and nothing twice.
    ProcessedWithoutDuplicateEffects,
    /// No rule can say what is right: somebody must look.
    Quarantined,
    /// It showed that something is wrong, and a correction was begun.
    CorrectiveActionInitiated,
}

/// Field group "reconciliation".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reconciliation {
    /// Whether a signal arrived after the release.
    pub late_signal_observed: bool,
    /// Its id. Not applicable to signals that have none.
    pub late_signal_id: Finding<String>,
    /// How it was handled. Observed exactly where a late signal was.
    pub disposition: Finding<Disposition>,
    /// The posting or the task that corrects.
    pub corrective_action_ref: Finding<String>,
}

impl Reconciliation {
    /// Nothing had arrived when the record was written.
    #[must_use]
    pub const fn nothing_late() -> Self {
        Self {
            late_signal_observed: false,
            late_signal_id: Finding::NotApplicable,
            disposition: Finding::NotApplicable,
            corrective_action_ref: Finding::NotApplicable,
        }
    }
}

/// What a record holds, and so who may read it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Classification {
    /// Ids, hashes, counts, amounts, states and times.
    OperationalMetadata,
    /// The same, and the words of an operator.
    OperatorStatement,
}

/// How long a record is kept. Never as short as the output: evidence outlives content.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RetentionClass {
    /// As long as the ledger: money moved.
    Ledger,
    /// As long as operations need it: no money moved.
    Operational,
}

/// Field group "record governance".
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RecordGovernance {
    /// When the record was written.
    pub record_created_at: Timed,
    /// Version of the schema: [`SCHEMA_VERSION`](super::SCHEMA_VERSION).
    pub schema_version: u32,
    /// What it holds.
    pub classification: Classification,
    /// How long it is kept.
    pub retention_class: RetentionClass,
    /// Hash of the reservation's record before this one. Not applicable to the first.
    pub previous_record: Finding<String>,
    /// Hash of the record's canonical bytes; empty until it is sealed.
    pub integrity_reference: String,
}
