//! The records that transitions build (seed 3, "Illustrative audit record for a stale-reservation release"): all groups of
//! each, and what completes them.

use super::records_text as text;
use super::world::*;
use holdfast_core::evidence::{ActivityKind, EffectsRecord, EvidenceRecord};
use holdfast_core::ledger::{PostingKind, Receipt};
use holdfast_core::policy::{OnExpiry, OnInterruption, SlotOnExpiry, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{
    Aggregate, Command, EvidenceRow, OpenRecord, Operation, Parcel, Report, SourceEnd, UpstreamEnd,
};
use std::collections::BTreeSet;

fn seen() -> UpstreamEnd {
    UpstreamEnd { content_bytes: 10, ..ended(SourceEnd::Lost) }
}

/// Time to look, before a deadline.
fn patient() -> Terms {
    Terms { observation_ms: 60_000, expected_ms: Some(4_000), ..with(STATUS) }
}

/// The driver was lost with its lease at 9 s; the stored log is read 100 ms later, and says `log`.
fn resolved(terms: &Terms, log: UpstreamEnd) -> World {
    let mut world = World::searching(terms);
    world.at(9_100).take(&reconcile(2, log)).unwrap();
    world
}

fn at_once(terms: Terms) -> Terms {
    Terms { observation_ms: 0, ..terms }
}

fn chosen(on_expiry: OnExpiry) -> Terms {
    at_once(Terms { on_expiry: Some(on_expiry), watch_ms: 600_000, ..with(STATUS) })
}

fn operated(mut world: World, at_ms: u64, operation: Operation) -> World {
    assert!(world.at(at_ms).operate("a-1", operation).starts_with("operated"));
    world
}

/// Each way to a record, by the rule or by who decides.
fn ways() -> Vec<(&'static str, World)> {
    let stated = || Operation::Finalize { usage: usage(10, 20) };
    vec![
        ("rule 1: two equals differ", {
            let mut world = World::searching(&patient());
            world.hear(callback("e-1", OPERATION, ended_as(Outcome::Completed, None)));
            world.hear(callback("e-2", OPERATION, ended_as(Outcome::Failed, None)));
            world.at(9_100).take(&reconcile(2, seen())).unwrap();
            world
        }),
        ("rule 4: the terminal is in the log", resolved(&patient(), complete(10, 20))),
        ("rule 4: a lookup tells", {
            let mut world = World::searching(&patient());
            world.at(10_000).take(&reconcile(2, seen())).unwrap();
            world.at(11_500).take(&wake(false)).unwrap();
            world.at(11_600).hear(lookup(2, ended_as(Outcome::Completed, Some(usage(10, 20)))));
            world.take(&reconcile(2, seen())).unwrap();
            world
        }),
        ("rule 5: never submitted", {
            let mut world = World::prepared(&terms());
            world.at(9_000).take(&wake(false)).unwrap();
            world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
            world
        }),
        ("rule 8: the route quarantines", {
            resolved(&at_once(Terms { on_interruption: OnInterruption::Quarantine, ..patient() }), seen())
        }),
        ("rule 9: too much to be decided by a rule", {
            resolved(&at_once(Terms { escalate_above: Some(micros(7)), ..patient() }), seen())
        }),
        ("rule 10: released and watched", resolved(&chosen(OnExpiry::ExpireAndWatch), seen())),
        ("rule 10: reduced, its slot given back", {
            let terms = Terms { slot_on_expiry: SlotOnExpiry::Release, ..at_once(terms()) };
            resolved(&Terms { on_expiry: Some(OnExpiry::ReduceHold), ..terms }, seen())
        }),
        ("rule 10: every lookup failed", {
            let mut world = World::searching(&Terms { observation_ms: 3_000, ..chosen(OnExpiry::Release) });
            for ms in [9_100, 10_500, 12_000] {
                world.at(ms).take(&reconcile(2, seen())).unwrap();
                if world.at(ms + 1_400).say(&wake(false)) == "done+look_up" {
                    world.take(&Command::LookUpFailed { epoch: 2, retry_after_ms: None }).unwrap();
                }
            }
            assert!(world.lifecycle().is_terminal());
            world
        }),
        ("rule 10: a lookup knows of nothing", {
            let mut world = World::searching(&Terms { observation_ms: 3_000, ..chosen(OnExpiry::Release) });
            world.at(9_100).take(&reconcile(2, seen())).unwrap();
            assert_eq!(world.at(10_500).say(&wake(false)), "done+look_up");
            world.hear(lookup(2, Report::Unknown));
            world.at(12_000).take(&reconcile(2, seen())).unwrap();
            world
        }),
        // Output at 1 s, signs of life to 6 s, a lease of 9 s.
        ("rule 11: the work died with its socket", {
            let mut world = World::identified(&terms());
            world.at(1_000).take(&Command::Append { epoch: 1, bytes: 50 }).unwrap();
            world.at(6_000).take(&Command::Append { epoch: 1, bytes: 0 }).unwrap();
            world.at(15_000).take(&wake(false)).unwrap();
            world.at(15_100).take(&reconcile(2, seen())).unwrap();
            world
        }),
        ("an operator releases", operated(World::searching(&patient()), 9_100, Operation::Release)),
        ("an operator states the usage", operated(World::searching(&patient()), 9_100, stated())),
        ("an operator quarantines", operated(World::searching(&patient()), 9_100, Operation::Quarantine)),
        ("an operator escalates", operated(World::searching(&patient()), 9_100, Operation::Escalate)),
        ("an operator escalates a kept hold", {
            let kept = resolved(&chosen(OnExpiry::Quarantine), seen());
            operated(kept, 50_000, Operation::Escalate)
        }),
        ("an operator releases a kept hold", {
            let kept = resolved(&chosen(OnExpiry::Quarantine), seen());
            operated(kept, 50_000, Operation::Release)
        }),
        ("never started", {
            let mut world = World::new();
            world.at(5_000).take(&never_started(1, &terms())).unwrap();
            world
        }),
        ("a late signal", {
            let mut world = resolved(&chosen(OnExpiry::Release), seen());
            world.at(20_000);
            world.hear(callback("e-1", OPERATION, ended_as(Outcome::Completed, Some(usage(10, 20)))));
            world
        }),
    ]
}

/// What the tenant answers, 7 ms later by its own clock. The hold is as it was admitted.
fn receipt(world: &World, posting_id: &str) -> Receipt {
    let posting = world.postings.iter().find(|posting| posting.id == posting_id).unwrap();
    let returned = match posting.kind {
        PostingKind::Release => HOLD,
        PostingKind::Settle => HOLD - posting.amount.get(),
        PostingKind::HoldReduced => posting.amount.get(),
        _ => 0,
    };
    Receipt {
        posting_id: posting_id.into(),
        recorded_at: world.now.plus(7),
        credit_returned: micros(returned),
        slot_returned: posting.kind.resolves_hold() || posting.frees_slot,
    }
}

/// The tenant takes all that is on its way, a second later.
fn deliver(world: &mut World) {
    world.now = world.now.plus(1_000);
    while let Some(delivery) = world.aggregate.deliveries().first().cloned() {
        let posting_id = delivery.posting_id;
        let command = match delivery.parcel {
            Parcel::Posting => Command::Applied { receipt: receipt(world, &posting_id) },
            _ => Command::Acknowledge { posting_id },
        };
        world.take(&command).unwrap();
    }
}

fn described(row: &EvidenceRow) -> String {
    let (group, verified) = match row {
        EvidenceRow::Release(record) => (text::release(record), record.verify()),
        EvidenceRow::LateSignal(record) => (text::late_signal(record), record.verify()),
        EvidenceRow::Effects(record) => (text::completed(record), record.verify()),
    };
    assert_eq!(verified, Ok(()));
    group
}

/// What is stored reads back, also while effects are open.
fn stored_and_read(world: &mut World) {
    let json = serde_json::to_string(&world.aggregate).unwrap();
    assert_eq!(serde_json::from_str::<Aggregate>(&json).unwrap(), world.aggregate, "{json}");
}

fn open_records(world: &World) -> &[OpenRecord] {
    match &world.aggregate {
        Aggregate::Vacant => &[],
        Aggregate::Tombstone(tombstone) => &tombstone.open_records,
        Aggregate::Live(live) => &live.open_records,
    }
}

/// Whatever happened: once everything has arrived, no effect is open, and each record that completes one names one that
/// was there before it, once.
pub(crate) fn assert_completed(world: &World) {
    assert_eq!(open_records(world), [], "what became of each effect is recorded");
    let mut completed = BTreeSet::new();
    for (place, row) in world.evidence.iter().enumerate() {
        described(row);
        let EvidenceRow::Effects(effects) = row else { continue };
        assert!(world.evidence[..place].iter().any(|earlier| earlier.hash() == effects.completes));
        assert!(completed.insert(effects.completes.clone()), "completed once");
    }
}

/// The one record that completes `record`.
fn completion_of<'a>(world: &'a World, record: &EvidenceRow) -> &'a EffectsRecord {
    let completes = |row: &'a EvidenceRow| match row {
        EvidenceRow::Effects(effects) if effects.completes == record.hash() => Some(&**effects),
        _ => None,
    };
    let [found] = world.evidence.iter().filter_map(completes).collect::<Vec<_>>()[..] else {
        panic!("one for {}: {:?}", record.hash(), world.evidence)
    };
    assert!(found.follows(Some(record.hash())), "it names the record that it completes");
    found
}

/// The last record of each way, and the one that completes it when the tenant has taken everything.
#[test]
fn all_groups_of_what_transitions_record() {
    let mut table = String::new();
    for (name, mut world) in ways() {
        let before = world.evidence.clone();
        stored_and_read(&mut world);
        deliver(&mut world);
        stored_and_read(&mut world);
        assert_eq!(world.evidence[..before.len()], before, "rows are never rewritten");
        assert!(open_records(&world).is_empty(), "{name}");
        let record = before.last().unwrap();
        table += &format!("# {name}\n{}\n", described(record));
        let completed = EvidenceRow::Effects(Box::new(completion_of(&world, record).clone()));
        table += &format!("completed\n{}\n\n", described(&completed));
    }
    assert!(table == include_str!("records.txt"), "it should say:\n{table}");
}

fn release_of(world: &World) -> &EvidenceRow {
    world.evidence.iter().find(|row| matches!(row, EvidenceRow::Release(_))).unwrap()
}

fn effects_text(record: &EffectsRecord) -> String {
    text::completed(record).lines().take(2).collect::<Vec<_>>().join("\n")
}

/// Seed 3: "Capture errors and partial failures explicitly." What the tenant refuses was not had, and what an earlier
/// posting gave back is not given back again; the tenant's word about the amount counts.
#[test]
fn what_became_of_each_effect_is_told_apart() {
    let released = || resolved(&chosen(OnExpiry::Release), seen());
    let id = |world: &World| world.postings[0].id.clone();
    let mut refused = released();
    refused.at(20_000);
    let command = Command::DeliveryRefused { posting_id: id(&refused), refusal: "already_resolved".into() };
    refused.take(&command).unwrap();
    assert_eq!(
        effects_text(completion_of(&refused, release_of(&refused))),
        "released   (already_resolved)\n\
         effects    returned credit 2100 failed: already_resolved, slot failed: already_resolved | \
         downstream posting 2:release:1 failed: already_resolved | notified evt_6_expired by tenant at +20000 | \
         retries - | errors - | not done credit_returned, slot_returned, posting_authored",
        "what a refused posting tells is noted all the same"
    );
    let mut other = released();
    let receipt = Receipt { credit_returned: micros(4_200), slot_returned: false, ..receipt(&other, &id(&other)) };
    other.at(20_000).take(&Command::Applied { receipt: receipt.clone() }).unwrap();
    assert_eq!(
        effects_text(completion_of(&other, release_of(&other))),
        "released   +9107 by tenant_object_clock\n\
         effects    returned credit 4200 at +9107 by tenant_object_clock, slot failed: returned_before | \
         downstream posting 2:release:1 at +9107 by tenant_object_clock | \
         notified evt_6_expired by tenant at +9107 by tenant_object_clock | \
         retries - | errors - | not done slot_returned"
    );
    let rows = other.evidence.clone();
    assert_eq!(other.say(&Command::Applied { receipt }), "done=", "a repeated receipt writes nothing");
    assert_eq!(other.evidence, rows);
    // A tenant that says no more than that it is applied: when that became known here.
    let mut older = released();
    let posting_id = id(&older);
    older.at(20_000).take(&Command::Acknowledge { posting_id }).unwrap();
    assert!(text::completed(completion_of(&older, release_of(&older))).starts_with("released   +20000\n"));
    // A row that is lost and cannot be made again.
    let dies = Terms { capabilities: Default::default(), ..chosen(OnExpiry::ReduceHold) };
    let mut lost = resolved(&dies, seen());
    lost.at(20_000).take(&Command::HoldOpen { postings: Vec::new() }).unwrap();
    let completed = text::completed(completion_of(&lost, release_of(&lost)));
    assert!(completed.starts_with("released   (outbox_row_lost)\n"), "{completed}");
}

/// Two records can be open at once: each is completed by what is its own, whatever comes first.
#[test]
fn each_record_is_completed_by_its_own() {
    let mut world = resolved(&chosen(OnExpiry::Quarantine), seen());
    let kept = world.evidence[0].clone();
    let mut world = operated(std::mem::take(&mut world), 50_000, Operation::Release);
    let released = world.evidence[1].clone();
    assert_eq!(open_records(&world).len(), 2);
    let receipt = receipt(&world, &world.postings[0].id);
    world.at(51_000).take(&Command::Applied { receipt }).unwrap();
    assert_eq!(completion_of(&world, &released).record_governance.record_created_at.at, world.now);
    assert_eq!(world.evidence.len(), 3);
    deliver(&mut world);
    completion_of(&world, &kept);
    assert_eq!((world.evidence.len(), open_records(&world)), (4, &[][..]));
}

/// What an earlier version has stored opens: what it did not keep is not made up.
#[test]
fn rows_of_an_earlier_version_open() {
    let earlier = |world: &World| {
        let mut json = serde_json::to_value(&world.aggregate).unwrap();
        for (group, member) in [
            ("", "open_records"),
            ("/reconciliation", "lookups_answered"),
            ("/attempt/lease", "fenced_owner_renewed_at"),
        ] {
            if let Some(group) = json.pointer_mut(group).and_then(|group| group.as_object_mut()) {
                group.remove(member);
            }
        }
        World { aggregate: serde_json::from_value(json).unwrap(), ..world.clone() }
    };
    // Searched: the take-over has overwritten when the driver last renewed.
    let mut searching = World::identified(&terms());
    searching.at(6_000).take(&Command::Append { epoch: 1, bytes: 0 }).unwrap();
    searching.at(15_000).take(&wake(false)).unwrap();
    let mut searching = earlier(&searching);
    searching.take(&reconcile(2, seen())).unwrap();
    let EvidenceRow::Release(record) = release_of(&searching) else { panic!("a release") };
    let active = record.lifecycle_timing.last_activity_at.observed().unwrap();
    assert_eq!((active.kind, active.at), (ActivityKind::ProviderBytes, START));
    // On its way: its record stays as it is, and nothing follows.
    let mut underway = earlier(&resolved(&chosen(OnExpiry::Release), seen()));
    let rows = underway.evidence.clone();
    deliver(&mut underway);
    assert_eq!(underway.evidence, rows);
}
