//! The words and the bytes of a record.

use crate::world::{late_signal, not_available, release, resealed};
use holdfast_core::evidence::{
    Disposition, EvidenceRecord, Flaw, LateSignalRecord, MatchResult, ReleaseMode, ReleaseRecord,
};
use serde_json::Value;

fn keys_under(value: &Value, keys: &mut Vec<String>) {
    match value {
        Value::Object(members) => members.iter().for_each(|(key, member)| {
            keys.push(key.clone());
            keys_under(member, keys);
        }),
        Value::Array(items) => items.iter().for_each(|item| keys_under(item, keys)),
        _ => {}
    }
}

/// Seed 3, "Illustrative audit record for a stale-reservation release", row by row: the group and its fields. The
/// threshold has its unit behind its name.
#[test]
fn fields_of_the_seeds_table() {
    let rows: [(&str, &[&str]); 10] = [
        ("reservation_identity", &["reservation_id", "tenant_ref", "resource_scope", "workflow_id", "trace_id"]),
        (
            "lifecycle_timing",
            &["created_at", "expected_completion_at", "expires_at", "last_activity_at", "decision_at", "released_at"],
        ),
        ("state_transition", &["state_before", "state_after", "state_version", "lease_generation", "fencing_token"]),
        ("decision_policy", &["policy_id", "policy_version", "stale_threshold_ms", "evaluated_facts"]),
        (
            "expected_signal",
            &["signal_type", "receiver", "correlation_key", "observation_window", "stores_searched", "match_result"],
        ),
        (
            "delivery_metadata",
            &["event_id", "attempt_count", "response_status", "queue_status", "dead_letter_status", "idempotency_key"],
        ),
        ("release_authority", &["release_mode", "service_or_actor", "reason_code", "operator_justification"]),
        (
            "release_effects",
            &["resources_returned", "downstream_actions", "notifications", "retries", "errors", "partial_failures"],
        ),
        ("reconciliation", &["late_signal_observed", "late_signal_id", "disposition", "corrective_action_ref"]),
        (
            "record_governance",
            &["record_created_at", "schema_version", "classification", "retention_class", "integrity_reference"],
        ),
    ];
    let manual = resealed(|record| {
        record.release_authority.release_mode =
            ReleaseMode::Manual { channel: "console".into(), operator_justification: "provider confirmed".into() };
    });
    let json = serde_json::to_value(&manual).unwrap();
    assert_eq!(json.as_object().unwrap().len(), rows.len(), "these groups and no other");
    for (group, fields) in rows {
        let mut keys = Vec::new();
        keys_under(&json[group], &mut keys);
        for field in fields {
            assert!(keys.iter().any(|key| key == field), "{group}.{field}");
        }
    }
}

/// The bytes and the hash that every version must make of this record; the hash was computed apart from this code.
#[test]
fn canonical_form_is_pinned() {
    let record = release();
    let bytes = String::from_utf8(record.canonical_bytes()).unwrap();
    assert_eq!(bytes, PINNED_BYTES);
    assert_eq!(record.hash(), PINNED_HASH);
    assert_eq!(record.record_governance.integrity_reference, PINNED_HASH);
    let open = r#""integrity_reference":"""#;
    let stored = bytes.replace(open, &format!(r#""integrity_reference":"{PINNED_HASH}""#));
    assert_eq!(ReleaseRecord::from_stored(stored.as_bytes()), Ok(record), "what is stored is the same with its seal");
}

const PINNED_BYTES: &str = concat!(
    r#"{"reservation_identity":{"reservation_id":"res_02020202020202020202020202020202","tenant_ref":"demo","#,
    r#""generation":"gen_01010101010101010101010101010101","resource_scope":{"credit":141000,"slots":1,"#,
    r#""route":"report","provider":"openai"},"attempt_ids":["att_03030303030303030303030303030303"],"#,
    r#""provider_operation_id":{"finding":"observed","value":"resp_1"},"#,
    r#""workflow_id":{"finding":"not_applicable"},"trace_id":{"finding":"not_available","#,
    r#""why":"no_traceparent"}},"#,
    r#""lifecycle_timing":{"created_at":{"at":1000,"source":"tenant_object_clock"},"#,
    r#""expected_completion_at":{"finding":"observed","value":{"at":91000,"#,
    r#""source":"reservation_object_clock"}},"expires_at":{"at":181000,"source":"reservation_object_clock"},"#,
    r#""last_activity_at":{"finding":"observed","value":{"kind":"appended_batch","at":61000,"#,
    r#""source":"reservation_object_clock"}},"decision_at":{"at":190000,"source":"reservation_object_clock"},"#,
    r#""released_at":{"finding":"observed","value":{"at":190250,"source":"tenant_object_clock"}}},"#,
    r#""state_transition":{"state_before":{"finding":"observed","value":{"lifecycle":"detached","#,
    r#""settlement":"pending"}},"state_after":{"lifecycle":"failed","settlement":"released"},"#,
    r#""state_version":{"before":7,"after":8},"lease_generation":{"finding":"observed","value":1},"#,
    r#""fencing_token":{"finding":"observed","value":2}},"#,
    r#""decision_policy":{"policy_id":"report","policy_version":{"finding":"observed","value":"12"},"#,
    r#""rules_version":"reconcile/1","#,
    r#""stale_threshold_ms":120000,"evaluated_facts":[{"name":"lease_expired","value":{"finding":"observed","#,
    r#""value":{"flag":true}}},{"name":"age","value":{"finding":"observed","value":{"ms":129000}}},"#,
    r#"{"name":"stored_bytes","value":{"finding":"observed","value":{"count":4096}}},{"name":"upstream","#,
    r#""value":{"finding":"observed","value":{"word":"unknown"}}},{"name":"exact_usage","#,
    r#""value":{"finding":"not_applicable"}}]},"#,
    r#""expected_signal":{"signal_type":"completion","contract_version":{"finding":"observed","#,
    r#""value":"openai-responses"},"receiver":"reservation_object","correlation_key":"resp_1","#,
    r#""observation_window":{"from":{"at":61000,"source":"reservation_object_clock"},"until":{"at":190000,"#,
    r#""source":"reservation_object_clock"}},"stores_searched":["chunk_log","callback_inbox","status_lookup"],"#,
    r#""matching_criteria":"terminal_of_operation","#,
    r#""match_result":"not_observed_in_named_stores_during_window"},"#,
    r#""delivery_metadata":{"event_id":{"finding":"searched_not_observed","stores":["callback_inbox"],"#,
    r#""from":61000,"until":190000},"attempt_count":{"finding":"observed","value":3},"#,
    r#""response_status":{"finding":"observed","value":404},"queue_status":{"finding":"not_applicable"},"#,
    r#""dead_letter_status":{"finding":"not_applicable"},"idempotency_key":{"finding":"not_applicable"}},"#,
    r#""release_authority":{"release_mode":"automatic","execution":"alarm:190000","#,
    r#""service_or_actor":"reservation_object","reason_code":"expired_released"},"#,
    r#""release_effects":{"resources_returned":[{"effect":"credit_returned","amount":141000,"outcome":"done","#,
    r#""done_at":{"at":190250,"source":"tenant_object_clock"}},{"effect":"slot_returned","outcome":"done","#,
    r#""done_at":{"at":190250,"source":"tenant_object_clock"}}],"#,
    r#""downstream_actions":[{"effect":"posting_authored","#,
    r#""posting_id":"res_02020202020202020202020202020202:1:release:1","outcome":"done","done_at":{"at":190250,"#,
    r#""source":"tenant_object_clock"}},{"effect":"abort_requested","#,
    r#""attempt_id":"att_03030303030303030303030303030303","outcome":"pending"}],"#,
    r#""notifications":[{"effect":"notification","channel":"webhook","message_id":"msg_1","outcome":"failed","#,
    r#""why":"status_503"}],"retries":[],"errors":["lookup_timeout"],"partial_failures":["abort_requested","#,
    r#""notification"]},"#,
    r#""reconciliation":{"late_signal_observed":false,"late_signal_id":{"finding":"not_applicable"},"#,
    r#""disposition":{"finding":"not_applicable"},"corrective_action_ref":{"finding":"not_applicable"}},"#,
    r#""record_governance":{"record_created_at":{"at":190300,"source":"reservation_object_clock"},"#,
    r#""schema_version":1,"classification":"operational_metadata","retention_class":"ledger","#,
    r#""previous_record":{"finding":"not_applicable"},"integrity_reference":""}}"#,
);
const PINNED_HASH: &str = "a00b513f7f8d444bd60ca3d8dba8197c07f8c22a2564bb94e855326776741679";

/// What the record's type would overlook, the stored form does not.
#[test]
fn stored_form_is_strict() {
    let stored = String::from_utf8(release().to_stored()).unwrap();
    assert_eq!(ReleaseRecord::from_stored(stored.as_bytes()), Ok(release()));
    for (what, bytes, flaw) in [
        ("nothing", String::new(), Flaw::Unreadable),
        ("a cut", stored.get(..stored.len() - 1).unwrap().into(), Flaw::Unreadable),
        ("a member twice", stored.replacen(r#""slots":1"#, r#""slots":1,"slots":1"#, 1), Flaw::Unreadable),
        ("an added member", stored.replacen('{', r#"{"note":"x","#, 1), Flaw::NotCanonical),
        ("an added inner member", stored.replacen(r#""slots":1"#, r#""slots":1,"x":2"#, 1), Flaw::NotCanonical),
        ("a space", stored.replacen(':', ": ", 1), Flaw::NotCanonical),
        ("a line end", stored.clone() + "\n", Flaw::NotCanonical),
        ("an escape", stored.replacen("demo", "dem\\u006f", 1), Flaw::NotCanonical),
        ("an edit", stored.replacen("190250", "190251", 1), Flaw::Altered),
    ] {
        assert_eq!(ReleaseRecord::from_stored(bytes.as_bytes()), Err(flaw), "{what}");
    }
    let late = late_signal(&release(), Disposition::Ignored);
    assert_eq!(LateSignalRecord::from_stored(&late.to_stored()), Ok(late.clone()));
    assert_eq!(LateSignalRecord::from_stored(stored.as_bytes()), Err(Flaw::Unreadable), "another kind of record");
}

/// Seed 3: "Avoid a value such as `never_sent`", and "distinguish not applicable, not available, and searched but not
/// observed".
#[test]
fn absences_are_worded_with_care() {
    let words = |result: MatchResult| serde_json::to_string(&result).unwrap();
    assert_eq!(words(MatchResult::Observed), r#""observed""#);
    assert_eq!(
        words(MatchResult::NotObservedInNamedStoresDuringWindow),
        r#""not_observed_in_named_stores_during_window""#
    );
    assert!(serde_json::from_str::<MatchResult>(r#""never_sent""#).is_err());
    let json = serde_json::to_value(release()).unwrap();
    for (path, finding) in [
        ("/reservation_identity/workflow_id", "not_applicable"),
        ("/reservation_identity/trace_id", "not_available"),
        ("/reservation_identity/provider_operation_id", "observed"),
        ("/delivery_metadata/event_id", "searched_not_observed"),
        ("/delivery_metadata/dead_letter_status", "not_applicable"),
    ] {
        assert_eq!(json.pointer(path).unwrap()["finding"], finding, "{path}");
    }
}

fn assert_times_have_sources(value: &Value, times: &mut usize) {
    match value {
        Value::Object(members) => {
            if members.contains_key("at") || members.contains_key("source") {
                assert!(members["source"].is_string(), "{value}");
                *times += 1;
            }
            members.values().for_each(|member| assert_times_have_sources(member, times));
        }
        Value::Array(items) => items.iter().for_each(|item| assert_times_have_sources(item, times)),
        _ => {}
    }
}

/// Seed 3, the table of timestamps: each with its time source, activity with its type, decision apart from effect.
#[test]
fn times_carry_their_source() {
    let json = serde_json::to_value(release()).unwrap();
    let mut times = 0;
    assert_times_have_sources(&json, &mut times);
    // Six of the lifecycle, two of the window, three effects that are done, and the record's own.
    assert_eq!(times, 12);
    let timing = &json["lifecycle_timing"];
    assert_eq!(timing["last_activity_at"]["value"]["kind"], "appended_batch");
    assert_eq!(timing["created_at"]["source"], "tenant_object_clock");
    assert_eq!(timing["decision_at"], serde_json::json!({"at": 190_000, "source": "reservation_object_clock"}));
    assert_eq!(timing["released_at"]["value"]["at"], 190_250, "the effect has its own time");
    let pending = resealed(|record| record.lifecycle_timing.released_at = not_available("not_acknowledged"));
    assert_eq!(pending.verify(), Ok(()), "decided is not released");
}
