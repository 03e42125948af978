//! Records as text, every member of every group: a member that is added fails to compile here.

use super::world::START;
use holdfast_core::evidence::{
    Activity, DecisionPolicy, DeliveryMetadata, Effect, EffectKind, EffectsRecord, ExpectedSignal, FactValue,
    LateSignalRecord, LifecycleTiming, Outcome, Reconciliation, RecordGovernance, ReleaseAuthority, ReleaseEffects,
    ReleaseMode, ReleaseRecord, ReservationIdentity, ReservationState, StateTransition, TimeSource, Timed, Window,
};
use holdfast_core::finding::Finding;
use serde::Serialize;

fn word<T: Serialize>(value: &T) -> String {
    serde_json::to_value(value).unwrap().as_str().unwrap().into()
}

/// Milliseconds after the start; by the clock of the generation's object, where nothing else is said.
fn time(timed: &Timed) -> String {
    let ms = timed.at.since(START);
    match timed.source {
        TimeSource::ReservationObjectClock => format!("+{ms}"),
        other => format!("+{ms} by {}", word(&other)),
    }
}

/// What is searched in vain is searched within the window of the record.
fn finding<T>(finding: &Finding<T>, window: &Window, show: impl FnOnce(&T) -> String) -> String {
    match finding {
        Finding::Observed { value } => show(value),
        Finding::NotApplicable => "-".into(),
        Finding::NotAvailable { why } => format!("({why})"),
        Finding::SearchedNotObserved { stores, from, until } => {
            assert_eq!((*from, *until), (window.from.at, window.until.at), "one window for all");
            format!("none in {}", stores.join("+"))
        }
    }
}

/// Ids of this reservation, without it.
fn short(id: &str) -> String {
    let hex = "01".repeat(16);
    id.replace(&format!("res_{hex}:"), "").replace(&format!("evt_{hex}_"), "evt_").replace(&hex, "1")
}

fn effect(effect: &Effect) -> String {
    let what = match &effect.what {
        EffectKind::CreditReturned { amount } => format!("credit {}", amount.get()),
        EffectKind::SlotReturned => "slot".into(),
        EffectKind::PostingAuthored { posting_id } => format!("posting {}", short(posting_id)),
        EffectKind::WatchScheduled { until } => format!("watch until {}", time(until)),
        EffectKind::ContentDeleted { bytes } => format!("{bytes} bytes deleted"),
        EffectKind::Notification { channel, message_id } => format!("{} by {channel}", short(message_id)),
        other => other.as_str().into(),
    };
    match &effect.outcome {
        Outcome::Pending => format!("{what}?"),
        Outcome::Done { done_at } => format!("{what} at {}", time(done_at)),
        Outcome::Failed { why } => format!("{what} failed: {why}"),
    }
}

fn list<T>(items: &[T], show: impl Fn(&T) -> String) -> String {
    if items.is_empty() { "-".into() } else { items.iter().map(show).collect::<Vec<_>>().join(", ") }
}

fn effects(group: &ReleaseEffects) -> String {
    let ReleaseEffects { resources_returned, downstream_actions, notifications, retries, errors, partial_failures } =
        group;
    format!(
        "returned {} | downstream {} | notified {} | retries {} | errors {} | not done {}",
        list(resources_returned, effect),
        list(downstream_actions, effect),
        list(notifications, effect),
        list(retries, effect),
        list(errors, Clone::clone),
        list(partial_failures, Clone::clone),
    )
}

fn governance(group: &RecordGovernance) -> String {
    let RecordGovernance {
        record_created_at,
        schema_version,
        classification,
        retention_class,
        previous_record,
        integrity_reference,
    } = group;
    assert_eq!((*schema_version, integrity_reference.len()), (1, 64));
    let previous = if previous_record.observed().is_some() { "a record before" } else { "the first" };
    format!("{} {} {} {previous}", time(record_created_at), word(classification), word(retention_class))
}

fn state(state: &ReservationState) -> String {
    format!("{}/{}", word(&state.lifecycle), word(&state.settlement))
}

fn delivery(group: &DeliveryMetadata, window: &Window) -> String {
    let DeliveryMetadata {
        event_id,
        attempt_count,
        response_status,
        queue_status,
        dead_letter_status,
        idempotency_key,
    } = group;
    format!(
        "event {} attempts {} status {} queue {} dead letter {} key {}",
        finding(event_id, window, Clone::clone),
        finding(attempt_count, window, u32::to_string),
        finding(response_status, window, u16::to_string),
        finding(queue_status, window, word),
        finding(dead_letter_status, window, word),
        finding(idempotency_key, window, Clone::clone),
    )
}

fn reconciliation(group: &Reconciliation, window: &Window) -> String {
    let Reconciliation { late_signal_observed, late_signal_id, disposition, corrective_action_ref } = group;
    format!(
        "late {late_signal_observed} {} {} {}",
        finding(late_signal_id, window, Clone::clone),
        finding(disposition, window, word),
        finding(corrective_action_ref, window, |id| short(id)),
    )
}

fn fact(value: &FactValue) -> String {
    match value {
        FactValue::Flag(flag) => flag.to_string(),
        FactValue::Count(n) | FactValue::Ms(n) => n.to_string(),
        FactValue::Micros(amount) => amount.get().to_string(),
        FactValue::Time(at) => time(at),
        FactValue::Word(word) => word.clone(),
    }
}

fn identity(group: &ReservationIdentity, window: &Window) -> String {
    let ReservationIdentity {
        reservation_id,
        tenant_ref,
        generation,
        resource_scope,
        attempt_ids,
        provider_operation_id,
        workflow_id,
        trace_id,
    } = group;
    format!(
        "{} {tenant_ref} {} {} micros {} slot {}/{} attempts {} operation {} workflow {} trace {}",
        short(reservation_id.as_str()),
        short(generation.as_str()),
        resource_scope.credit.get(),
        resource_scope.slots,
        resource_scope.route,
        resource_scope.provider,
        list(attempt_ids, |id| short(id.as_str())),
        finding(provider_operation_id, window, Clone::clone),
        finding(workflow_id, window, Clone::clone),
        finding(trace_id, window, Clone::clone),
    )
}

/// The ten groups of a release, one in a line.
pub(crate) fn release(record: &ReleaseRecord) -> String {
    let ReleaseRecord {
        reservation_identity,
        lifecycle_timing,
        state_transition,
        decision_policy,
        expected_signal,
        delivery_metadata,
        release_authority,
        release_effects,
        reconciliation: later,
        record_governance,
    } = record;
    let ExpectedSignal {
        signal_type,
        contract_version,
        receiver,
        correlation_key,
        observation_window: window,
        stores_searched,
        matching_criteria,
        match_result,
    } = expected_signal;
    let LifecycleTiming { created_at, expected_completion_at, expires_at, last_activity_at, decision_at, released_at } =
        lifecycle_timing;
    let activity =
        |seen: &Activity| format!("{} {}", word(&seen.kind), time(&Timed { at: seen.at, source: seen.source }));
    let StateTransition { state_before, state_after, state_version, lease_generation, fencing_token } =
        state_transition;
    let DecisionPolicy { policy_id, policy_version, rules_version, stale_threshold_ms, evaluated_facts } =
        decision_policy;
    let facts = list(evaluated_facts, |it| format!("{} {}", it.name, finding(&it.value, window, fact)));
    let ReleaseAuthority { release_mode, service_or_actor, reason_code } = release_authority;
    let mode = match release_mode {
        ReleaseMode::Automatic { execution } => format!("automatic {}", short(execution)),
        ReleaseMode::Manual { channel, operator_justification } => {
            format!("manual {channel} {operator_justification:?}")
        }
        ReleaseMode::Recovery { process, reference } => format!("recovery {process} {}", short(reference)),
    };
    [
        format!("identity   {}", identity(reservation_identity, window)),
        format!(
            "timing     created {} expected {} expired {} active {} decided {} released {}",
            time(created_at),
            finding(expected_completion_at, window, time),
            time(expires_at),
            finding(last_activity_at, window, activity),
            time(decision_at),
            finding(released_at, window, time),
        ),
        format!(
            "transition {} -> {} version {} -> {} lease {} fence {}",
            finding(state_before, window, state),
            state(state_after),
            state_version.before,
            state_version.after,
            finding(lease_generation, window, u32::to_string),
            finding(fencing_token, window, u32::to_string),
        ),
        format!(
            "policy     {policy_id} {} {rules_version} stale after {stale_threshold_ms}: {facts}",
            finding(policy_version, window, Clone::clone),
        ),
        format!(
            "signal     {} {} at {receiver} by {} from {} to {} in {}: {matching_criteria}: {}",
            word(signal_type),
            finding(contract_version, window, Clone::clone),
            short(correlation_key),
            time(&window.from),
            time(&window.until),
            stores_searched.join("+"),
            word(match_result),
        ),
        format!("delivery   {}", delivery(delivery_metadata, window)),
        format!("authority  {mode} {service_or_actor} {}", word(reason_code)),
        format!("effects    {}", effects(release_effects)),
        format!("later      {}", reconciliation(later, window)),
        format!("record     {}", governance(record_governance)),
    ]
    .join("\n")
}

/// What came after a release.
pub(crate) fn late_signal(record: &LateSignalRecord) -> String {
    let LateSignalRecord {
        release_record: _,
        reservation_id: _,
        tenant_ref: _,
        signal_type,
        correlation_key,
        observed_at,
        state_found,
        state_version,
        lease_generation,
        delivery_metadata,
        reconciliation: handled,
        effects: made,
        record_governance,
    } = record;
    let window = Window { from: *observed_at, until: *observed_at };
    [
        format!(
            "signal     {} by {} at {} found {} version {state_version} lease {}",
            word(signal_type),
            short(correlation_key),
            time(observed_at),
            state(state_found),
            finding(lease_generation, &window, u32::to_string),
        ),
        format!("delivery   {}", delivery(delivery_metadata, &window)),
        format!("effects    {}", effects(made)),
        format!("later      {}", reconciliation(handled, &window)),
        format!("record     {}", governance(record_governance)),
    ]
    .join("\n")
}

/// What became of the effects.
pub(crate) fn completed(record: &EffectsRecord) -> String {
    let EffectsRecord { completes: _, reservation_id: _, tenant_ref: _, released_at, effects: made, record_governance } =
        record;
    let now = record_governance.record_created_at;
    [
        format!("released   {}", finding(released_at, &Window { from: now, until: now }, time)),
        format!("effects    {}", effects(made)),
        format!("record     {}", governance(record_governance)),
    ]
    .join("\n")
}
