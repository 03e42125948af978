//! What was changed or contradicts itself shows.

use crate::world::{governance, late_signal, not_available, release, resealed, timed};
use holdfast_core::evidence::{
    DeliveryMetadata, Disposition, EffectKind, EvidenceRecord, Flaw, Outcome, Reconciliation, ReleaseMode,
    ReleaseRecord,
};
use holdfast_core::finding::Finding;
use serde_json::Value;

/// Paths of all scalars.
fn leaves(value: &Value, path: &str, found: &mut Vec<String>) {
    match value {
        Value::Object(members) => {
            members.iter().for_each(|(key, member)| leaves(member, &format!("{path}/{key}"), found));
        }
        Value::Array(items) => {
            items.iter().enumerate().for_each(|(n, item)| leaves(item, &format!("{path}/{n}"), found));
        }
        _ => found.push(path.into()),
    }
}

/// Other values for a scalar, of which one at least is well formed where the old one was.
fn alterations(leaf: &Value) -> Vec<Value> {
    const WORDS: [&str; 17] = [
        "waiting",
        "slot_returned",
        "retry",
        "pending",
        "heartbeat",
        "tenant_object_clock",
        "provider",
        "completed",
        "released",
        "committed",
        "observed",
        "start",
        "quarantined",
        "operator_statement",
        "operational",
        "granted",
        "delivered",
    ];
    match leaf {
        Value::String(text) => {
            let shortened = text.get(..text.len().saturating_sub(1)).unwrap_or_default();
            let edits = [format!("{shortened}0"), format!("{shortened}1"), format!("{text}x")];
            let words = WORDS.into_iter().map(String::from);
            edits.into_iter().chain(words).filter(|other| other != text).map(Value::from).collect()
        }
        Value::Number(number) => vec![Value::from(number.as_u64().unwrap() + 1)],
        Value::Bool(flag) => vec![Value::from(!flag)],
        other => panic!("{other} is no scalar of a record"),
    }
}

fn replaced(json: &Value, path: &str, value: Value) -> Value {
    let mut edited = json.clone();
    *edited.pointer_mut(path).unwrap() = value;
    edited
}

/// Alters every scalar of `record` in every well-formed way and asserts that it shows. Returns the top-level members that
/// were altered, and the leaves that no other word can stand in for.
fn every_edit_shows<R: EvidenceRecord + PartialEq>(record: &R) -> (Vec<String>, Vec<String>) {
    let json = serde_json::to_value(record).unwrap();
    let (mut paths, mut members, mut fixed) = (Vec::new(), Vec::new(), Vec::new());
    leaves(&json, "", &mut paths);
    for path in paths {
        let mut altered = 0;
        // A finding becomes another with the members that this one has.
        let (path, values) = match path.strip_suffix("/finding") {
            Some(finding) => (finding.into(), vec![serde_json::json!({"finding": "not_available", "why": "?"})]),
            None => (path.clone(), alterations(json.pointer(&path).unwrap())),
        };
        for value in values {
            let edited = replaced(&json, &path, value.clone());
            let Ok(read) = serde_json::from_value::<R>(edited) else { continue };
            assert!(read != *record, "{path} = {value}");
            assert_eq!(read.verify(), Err(Flaw::Altered), "{path} = {value}");
            altered += 1;
        }
        if altered > 0 {
            members.push(path.split('/').nth(1).unwrap().into());
        } else {
            fixed.push(path);
        }
    }
    members.dedup();
    (members, fixed)
}

/// Seed 3, "Protect the evidence": readers must be able to determine "whether it was subsequently changed".
#[test]
fn every_edit_of_every_field_shows() {
    let release = release();
    assert_eq!(release.verify(), Ok(()));
    let (members, fixed) = every_edit_shows(&release);
    let groups = serde_json::to_value(&release).unwrap().as_object().unwrap().len();
    assert_eq!(members.len(), groups, "{members:?}");
    // Another mode, effect or outcome has other members, so these words alone cannot be exchanged.
    assert_eq!(
        fixed,
        [
            "/release_authority/release_mode",
            "/release_effects/downstream_actions/1/outcome",
            "/release_effects/resources_returned/1/effect"
        ]
    );
    let late = late_signal(&release, Disposition::Ignored);
    assert_eq!(late.verify(), Ok(()));
    let (members, fixed) = every_edit_shows(&late);
    // Its effects are empty lists.
    assert_eq!((members.len(), fixed), (12, Vec::new()), "{members:?}");
}

#[test]
fn whole_values_are_noticed_too() {
    type Edit = fn(&mut ReleaseRecord);
    let edits: [Edit; 11] = [
        |record| record.release_effects.downstream_actions[1].outcome = Outcome::Failed { why: "gone".into() },
        |record| record.release_effects.resources_returned[1].what = EffectKind::ContentDeleted { bytes: 1 },
        |record| record.reservation_identity.attempt_ids.clear(),
        |record| record.lifecycle_timing.released_at = Finding::NotApplicable,
        |record| record.state_transition.state_before = not_available("gone"),
        |record| record.decision_policy.evaluated_facts.swap(0, 1),
        |record| drop(record.expected_signal.stores_searched.pop()),
        |record| record.delivery_metadata = DeliveryMetadata::not_applicable(),
        |record| {
            record.release_authority.release_mode =
                ReleaseMode::Recovery { process: "sweep".into(), reference: "run_1".into() };
        },
        |record| drop(record.release_effects.notifications.pop()),
        |record| record.record_governance.previous_record = Finding::of("00".into()),
    ];
    for (n, edit) in edits.into_iter().enumerate() {
        let mut edited = release();
        edit(&mut edited);
        assert_eq!(edited.verify(), Err(Flaw::Altered), "edit {n}");
        assert_ne!(edited.hash(), release().hash(), "edit {n}");
    }
    let unsealed = ReleaseRecord { record_governance: governance(Finding::NotApplicable), ..release() };
    assert_eq!(unsealed.verify(), Err(Flaw::Altered), "an open record is none");
}

/// A record that was sealed over a contradiction is still none.
#[test]
fn contradictions_show_behind_a_good_seal() {
    type Edit = fn(&mut ReleaseRecord);
    let edits: [(&str, Edit, Flaw); 6] = [
        ("a failure left out", |r| drop(r.release_effects.partial_failures.pop()), Flaw::EffectsContradict),
        ("a failure made up", |r| r.release_effects.partial_failures.push("retry".into()), Flaw::EffectsContradict),
        (
            "an outcome glossed over",
            |r| r.release_effects.notifications[0].outcome = Outcome::Done { done_at: timed(1) },
            Flaw::EffectsContradict,
        ),
        (
            "an effect in another's list",
            |r| {
                let moved = r.release_effects.resources_returned.pop().unwrap();
                r.release_effects.downstream_actions.push(moved);
            },
            Flaw::EffectsContradict,
        ),
        (
            "a signal without disposition",
            |r| r.reconciliation.late_signal_observed = true,
            Flaw::ReconciliationContradicts,
        ),
        (
            "a disposition without signal",
            |r| r.reconciliation.disposition = Finding::of(Disposition::Ignored),
            Flaw::ReconciliationContradicts,
        ),
    ];
    for (what, edit, flaw) in edits {
        let record = resealed(edit);
        assert_eq!(record.verify(), Err(flaw), "{what}");
        assert_eq!(ReleaseRecord::from_stored(&record.to_stored()), Err(flaw), "{what}");
    }
    let mut nothing_late = late_signal(&release(), Disposition::Ignored);
    nothing_late.reconciliation = Reconciliation::nothing_late();
    assert_eq!(nothing_late.sealed().verify(), Err(Flaw::ReconciliationContradicts), "a late record of nothing late");
}
