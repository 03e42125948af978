//! The records that transitions build (seed 3, "Illustrative audit record for a stale-reservation release"): all groups of
//! each, and what completes them.

use super::records_text as text;
use super::world::*;
use holdfast_core::evidence::EvidenceRecord;
use holdfast_core::ledger::{PostingKind, Receipt};
use holdfast_core::policy::{OnExpiry, OnInterruption, SlotOnExpiry, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Command, EvidenceRow, Operation, Parcel, Report, SourceEnd, UpstreamEnd};

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
        ("rule 11: the work died with its socket", resolved(&terms(), seen())),
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

/// The last record of each way, and the one that completes it when the tenant has taken everything.
#[test]
fn all_groups_of_what_transitions_record() {
    let mut table = String::new();
    for (name, mut world) in ways() {
        let before = world.evidence.clone();
        deliver(&mut world);
        assert_eq!(world.evidence[..before.len()], before, "rows are never rewritten");
        let record = before.last().unwrap();
        table += &format!("\n# {name}\n{}\n", described(record));
        let completed = world.evidence[before.len()..].iter().find_map(|row| match row {
            EvidenceRow::Effects(effects) if effects.completes == record.hash() => Some(row),
            _ => None,
        });
        if let Some(row) = completed {
            table += &format!("completed\n{}\n", described(row));
        }
    }
    assert!(table == TABLE, "it should say:\n{table}");
}

const TABLE: &str = "";
