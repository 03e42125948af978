//! A release of a report whose driver was lost, and a completion that comes late.

use holdfast_core::evidence::{
    Activity, ActivityKind, Classification, DecisionPolicy, DeliveryMetadata, Disposition, Effect, EffectKind,
    EvidenceRecord, ExpectedSignal, Fact, FactValue, LateSignalRecord, LifecycleTiming, MatchResult, Outcome,
    QueueStatus, Reconciliation, RecordGovernance, ReleaseAuthority, ReleaseEffects, ReleaseMode, ReleaseRecord,
    ReservationIdentity, ReservationState, ResourceScope, RetentionClass, SCHEMA_VERSION, SignalType, StateTransition,
    StateVersion, TimeSource, Timed, Window,
};
use holdfast_core::finding::Finding;
use holdfast_core::ids::{AttemptId, GenerationId, ReservationId, TenantId};
use holdfast_core::ledger::ReasonCode;
use holdfast_core::money::Micros;
use holdfast_core::reservation::{Lifecycle, Settlement};
use holdfast_core::time::UnixMillis;

pub(crate) const POSTING: &str = "res_02020202020202020202020202020202:1:release:1";

pub(crate) fn timed(at: u64) -> Timed {
    Timed::by_reservation(UnixMillis(at))
}

pub(crate) fn not_available<T>(why: &str) -> Finding<T> {
    Finding::NotAvailable { why: why.into() }
}

pub(crate) fn identity() -> ReservationIdentity {
    ReservationIdentity {
        reservation_id: ReservationId::from_random([2; 16]),
        tenant_ref: TenantId::parse("demo").unwrap(),
        generation: GenerationId::from_random([1; 16]),
        resource_scope: ResourceScope {
            credit: Micros::new(141_000).unwrap(),
            slots: 1,
            route: "report".into(),
            provider: "openai".into(),
        },
        attempt_ids: vec![AttemptId::from_random([3; 16])],
        provider_operation_id: Finding::of("resp_1".into()),
        workflow_id: Finding::NotApplicable,
        trace_id: not_available("no_traceparent"),
    }
}

pub(crate) fn timing() -> LifecycleTiming {
    LifecycleTiming {
        created_at: Timed::by_tenant(UnixMillis(1_000)),
        expected_completion_at: Finding::of(timed(91_000)),
        expires_at: timed(181_000),
        last_activity_at: Finding::of(Activity {
            kind: ActivityKind::AppendedBatch,
            at: UnixMillis(61_000),
            source: TimeSource::ReservationObjectClock,
        }),
        decision_at: timed(190_000),
        released_at: Finding::of(Timed::by_tenant(UnixMillis(190_250))),
    }
}

pub(crate) fn transition() -> StateTransition {
    StateTransition {
        state_before: Finding::of(ReservationState { lifecycle: Lifecycle::Detached, settlement: Settlement::Pending }),
        state_after: ReservationState { lifecycle: Lifecycle::Failed, settlement: Settlement::Released },
        state_version: StateVersion { before: 7, after: 8 },
        lease_generation: Finding::of(1),
        fencing_token: Finding::of(2),
    }
}

pub(crate) fn policy() -> DecisionPolicy {
    let fact = |name: &str, value| Fact { name: name.into(), value };
    DecisionPolicy {
        policy_id: "report".into(),
        policy_version: Finding::of("12".into()),
        rules_version: "reconcile/1".into(),
        stale_threshold_ms: 120_000,
        evaluated_facts: vec![
            fact("lease_expired", Finding::of(FactValue::Flag(true))),
            fact("age", Finding::of(FactValue::Ms(129_000))),
            fact("stored_bytes", Finding::of(FactValue::Count(4_096))),
            fact("upstream", Finding::of(FactValue::Word("unknown".into()))),
            fact("exact_usage", Finding::NotApplicable),
        ],
    }
}

pub(crate) fn expected() -> ExpectedSignal {
    ExpectedSignal {
        signal_type: SignalType::Completion,
        contract_version: Finding::of("openai-responses".into()),
        receiver: "reservation_object".into(),
        correlation_key: "resp_1".into(),
        observation_window: Window { from: timed(61_000), until: timed(190_000) },
        stores_searched: vec!["chunk_log".into(), "callback_inbox".into(), "status_lookup".into()],
        matching_criteria: "terminal_of_operation".into(),
        match_result: MatchResult::NotObservedInNamedStoresDuringWindow,
    }
}

pub(crate) fn delivery() -> DeliveryMetadata {
    DeliveryMetadata {
        event_id: Finding::SearchedNotObserved {
            stores: vec!["callback_inbox".into()],
            from: UnixMillis(61_000),
            until: UnixMillis(190_000),
        },
        attempt_count: Finding::of(3),
        response_status: Finding::of(404),
        ..DeliveryMetadata::not_applicable()
    }
}

pub(crate) fn effects() -> Vec<Effect> {
    let done = Outcome::Done { done_at: Timed::by_tenant(UnixMillis(190_250)) };
    let effect = |what, outcome| Effect { what, outcome };
    vec![
        effect(EffectKind::CreditReturned { amount: Micros::new(141_000).unwrap() }, done.clone()),
        effect(EffectKind::PostingAuthored { posting_id: POSTING.into() }, done.clone()),
        effect(EffectKind::AbortRequested { attempt_id: AttemptId::from_random([3; 16]) }, Outcome::Pending),
        effect(EffectKind::SlotReturned, done),
        effect(
            EffectKind::Notification { channel: "webhook".into(), message_id: "msg_1".into() },
            Outcome::Failed { why: "status_503".into() },
        ),
    ]
}

pub(crate) fn governance(previous_record: Finding<String>) -> RecordGovernance {
    RecordGovernance {
        record_created_at: timed(190_300),
        schema_version: SCHEMA_VERSION,
        classification: Classification::OperationalMetadata,
        retention_class: RetentionClass::Ledger,
        previous_record,
        integrity_reference: String::new(),
    }
}

pub(crate) fn release() -> ReleaseRecord {
    ReleaseRecord {
        reservation_identity: identity(),
        lifecycle_timing: timing(),
        state_transition: transition(),
        decision_policy: policy(),
        expected_signal: expected(),
        delivery_metadata: delivery(),
        release_authority: ReleaseAuthority {
            release_mode: ReleaseMode::Automatic { execution: "alarm:190000".into() },
            service_or_actor: "reservation_object".into(),
            reason_code: ReasonCode::ExpiredReleased,
        },
        release_effects: ReleaseEffects::new(effects(), vec!["lookup_timeout".into()]),
        reconciliation: Reconciliation::nothing_late(),
        record_governance: governance(Finding::NotApplicable),
    }
    .sealed()
}

pub(crate) fn late_signal(release: &ReleaseRecord, disposition: Disposition) -> LateSignalRecord {
    LateSignalRecord {
        release_record: release.hash(),
        reservation_id: identity().reservation_id,
        tenant_ref: identity().tenant_ref,
        signal_type: SignalType::Completion,
        correlation_key: "resp_1".into(),
        observed_at: Timed { at: UnixMillis(250_000), source: TimeSource::Provider },
        state_found: transition().state_after,
        state_version: 8,
        lease_generation: Finding::of(1),
        delivery_metadata: DeliveryMetadata {
            event_id: Finding::of("evt_1".into()),
            queue_status: Finding::of(QueueStatus::Delivered),
            ..DeliveryMetadata::not_applicable()
        },
        reconciliation: Reconciliation {
            late_signal_observed: true,
            late_signal_id: Finding::of("evt_1".into()),
            disposition: Finding::of(disposition),
            corrective_action_ref: Finding::NotApplicable,
        },
        effects: ReleaseEffects::default(),
        record_governance: governance(Finding::of(release.hash())),
    }
    .sealed()
}

pub(crate) fn resealed(change: impl FnOnce(&mut ReleaseRecord)) -> ReleaseRecord {
    let mut record = release();
    change(&mut record);
    record.sealed()
}
