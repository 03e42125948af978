//! Effects, authorities, late signals and the chain of records.

use crate::world::{POSTING, effects, late_signal, not_available, release, resealed, timed};
use holdfast_core::evidence::{
    Disposition, Effect, EffectKind, EvidenceRecord, Fact, FactValue, Flaw, LateSignalRecord, Outcome, ReleaseEffects,
    ReleaseMode, ReleaseRecord,
};
use holdfast_core::finding::Finding;
use holdfast_core::ids::{AttemptId, ReservationId, TenantId};
use holdfast_core::money::Micros;
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;

/// Seed 3: "record each request and its outcome rather than collapsing the entire operation into a single success flag".
#[test]
fn effects_have_their_own_outcomes() {
    let record = release().release_effects;
    let names = |effects: &[Effect]| effects.iter().map(|effect| effect.what.as_str()).collect::<Vec<_>>();
    assert_eq!(names(&record.resources_returned), ["credit_returned", "slot_returned"]);
    assert_eq!(names(&record.downstream_actions), ["posting_authored", "abort_requested"]);
    assert_eq!(names(&record.notifications), ["notification"]);
    assert_eq!(record.partial_failures, ["abort_requested", "notification"], "pending is not done");
    assert_eq!(record.all().count(), effects().len());
    let json = serde_json::to_value(&record).unwrap();
    assert_eq!(
        json["notifications"][0],
        serde_json::json!({"effect": "notification", "channel": "webhook", "message_id": "msg_1",
                           "outcome": "failed", "why": "status_503"})
    );
    assert_eq!(json["downstream_actions"][1]["outcome"], "pending");

    let done = Outcome::Done { done_at: timed(1) };
    let all = [
        EffectKind::CreditReturned { amount: Micros::ZERO },
        EffectKind::SlotReturned,
        EffectKind::PostingAuthored { posting_id: POSTING.into() },
        EffectKind::AbortRequested { attempt_id: AttemptId::from_random([3; 16]) },
        EffectKind::CancelRequested { provider_operation_id: "resp_1".into() },
        EffectKind::WatchScheduled { until: timed(2) },
        EffectKind::ContentDeleted { bytes: 4_096 },
        EffectKind::Notification { channel: "operator".into(), message_id: "msg_1".into() },
        EffectKind::Retry { attempt_id: AttemptId::from_random([4; 16]) },
    ];
    let listed = |outcome: &Outcome| {
        let effects = all.iter().map(|what| Effect { what: what.clone(), outcome: outcome.clone() });
        ReleaseEffects::new(effects.collect(), Vec::new())
    };
    let (finished, open) = (listed(&done), listed(&Outcome::Pending));
    assert!(finished.partial_failures.is_empty() && finished.is_consistent());
    let lengths =
        [&finished.resources_returned, &finished.downstream_actions, &finished.notifications, &finished.retries];
    assert_eq!(lengths.map(Vec::len), [2, 5, 1, 1]);
    assert_eq!(open.partial_failures, all.each_ref().map(EffectKind::as_str));
    for effect in open.all() {
        let tag = serde_json::to_value(&effect.what).unwrap()["effect"].clone();
        assert_eq!(tag, effect.what.as_str(), "the name is the tag");
    }
}

/// Seed 3, "Reconcile late completion signals": the four dispositions, and a record "even if the event requires no
/// further action". The release stays as it was.
#[test]
fn late_signals_refer_to_their_release() {
    let release = release();
    for (disposition, word) in [
        (Disposition::Ignored, "ignored"),
        (Disposition::ProcessedWithoutDuplicateEffects, "processed_without_duplicate_effects"),
        (Disposition::Quarantined, "quarantined"),
        (Disposition::CorrectiveActionInitiated, "corrective_action_initiated"),
    ] {
        let late = late_signal(&release, disposition);
        assert_eq!(late.verify(), Ok(()));
        assert!(late.refers_to(&release) && late.follows(Some(&release.hash())));
        assert_eq!(serde_json::to_value(&late).unwrap()["reconciliation"]["disposition"]["value"], word);
    }
    let late = late_signal(&release, Disposition::Ignored);
    assert!(!late.refers_to(&resealed(|record| record.decision_policy.rules_version.push('x'))), "another record");
    let foreign = LateSignalRecord { tenant_ref: TenantId::parse("other").unwrap(), ..late.clone() };
    let of_another = LateSignalRecord { reservation_id: ReservationId::from_random([9; 16]), ..late };
    assert!(!foreign.refers_to(&release) && !of_another.refers_to(&release));
}

#[test]
fn records_of_a_reservation_chain() {
    let first = release();
    assert!(first.follows(None) && !first.follows(Some(&first.hash())));
    let second = late_signal(&first, Disposition::Quarantined);
    assert!(second.follows(Some(&first.hash())) && !second.follows(None));
    assert!(!second.follows(Some(&second.hash())));
    let mut third = late_signal(&first, Disposition::Ignored);
    third.record_governance.previous_record = Finding::of(second.hash());
    let third = third.sealed();
    assert!(third.follows(Some(&second.hash())) && !third.follows(Some(&first.hash())), "a removed record shows");
    let mut unknown = first.clone();
    unknown.record_governance.previous_record = not_available("lost");
    assert!(!unknown.follows(None), "not to be had is not the same as none");
    // The same JSON would hash otherwise as another kind of record.
    assert_ne!(ReleaseRecord::DOMAIN, LateSignalRecord::DOMAIN);
}

/// Seed 3, the three kinds of release, each with what it has to name.
#[test]
fn authority_names_who_is_responsible() {
    for (mode, json) in [
        (
            ReleaseMode::Automatic { execution: "alarm:190000".into() },
            serde_json::json!({"release_mode": "automatic", "execution": "alarm:190000"}),
        ),
        (
            ReleaseMode::Manual { channel: "console".into(), operator_justification: "confirmed".into() },
            serde_json::json!({"release_mode": "manual", "channel": "console", "operator_justification": "confirmed"}),
        ),
        (
            ReleaseMode::Recovery { process: "sweep".into(), reference: "inc_7".into() },
            serde_json::json!({"release_mode": "recovery", "process": "sweep", "reference": "inc_7"}),
        ),
    ] {
        let record = resealed(|record| record.release_authority.release_mode = mode.clone());
        let authority = serde_json::to_value(&record).unwrap()["release_authority"].clone();
        for (member, value) in json.as_object().unwrap() {
            assert_eq!(authority[member], *value);
        }
        assert_eq!(authority.as_object().unwrap().len(), json.as_object().unwrap().len() + 2);
        assert_eq!(authority["reason_code"], "expired_released", "every mode has its reason");
        assert_eq!(ReleaseRecord::from_stored(&record.to_stored()), Ok(record));
    }
    let unjustified = serde_json::json!({"release_mode": "manual", "channel": "console"});
    assert!(serde_json::from_value::<ReleaseMode>(unjustified).is_err());
}

fn finding(text: String) -> impl Strategy<Value = Finding<String>> {
    let window = (0_u64..1 << 53, 0_u64..1 << 53);
    let searched = window.prop_map({
        let stores = vec![text.clone()];
        move |(from, until)| Finding::SearchedNotObserved {
            stores: stores.clone(),
            from: UnixMillis(from),
            until: UnixMillis(until),
        }
    });
    prop_oneof![
        Just(Finding::NotApplicable),
        Just(Finding::NotAvailable { why: text.clone() }),
        Just(Finding::of(text)),
        searched
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever the texts and numbers are: the stored form is read back as it was, and another content is another hash.
    #[test]
    fn stored_records_are_read_back(
        trace in any::<String>().prop_flat_map(finding),
        word in any::<String>(),
        amount in 0_u64..1 << 53,
        version in any::<u64>(),
    ) {
        let record = resealed(|record| {
            record.reservation_identity.trace_id = trace.clone();
            record.reservation_identity.resource_scope.credit = Micros::new(amount).unwrap();
            record.state_transition.state_version.before = version;
            let value = Finding::of(FactValue::Word(word.clone()));
            record.decision_policy.evaluated_facts.push(Fact { name: "word".into(), value });
        });
        prop_assert_eq!(ReleaseRecord::from_stored(&record.to_stored()), Ok(record.clone()));
        let mut other = record.clone();
        other.decision_policy.evaluated_facts.pop();
        prop_assert!(other.hash() != record.hash() && other.verify() == Err(Flaw::Altered));
    }
}
