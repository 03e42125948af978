//! Deadlines are functions of rows and now: just before, at, just after; early, late and double wake-ups.

use super::world::*;
use holdfast_core::deadline::backoff_ms;
use holdfast_core::policy::{Owner, Terms};
use holdfast_core::reservation::{AbortCause, Aggregate, Command, Effect, Lifecycle, SourceEnd, UpstreamState};
use holdfast_core::time::UnixMillis;

/// A long lease, so that it does not get in the way of another deadline.
fn patient() -> Terms {
    Terms { lease_ms: 120_000, ..terms() }
}

/// A wake-up at `due_ms` does `expected`; one a millisecond earlier writes nothing; one later does the same as at the
/// time; a second one at the same time writes nothing and does nothing.
fn due_at(world: &World, driver_alive: bool, due_ms: u64, expected: &str) {
    let wake = wake(driver_alive);
    assert_eq!(world.clone().at(due_ms - 1).say(&wake), "done=", "just before {due_ms}");
    for late_ms in [0, 1, 60_000] {
        let mut world = world.clone();
        world.at(due_ms + late_ms);
        assert_eq!(world.say(&wake), expected, "{late_ms} after {due_ms}");
        assert_eq!(world.say(&wake), "done=", "again {late_ms} after {due_ms}");
    }
}

#[test]
fn first_byte() {
    let world = World::submitted(&patient());
    due_at(&world, true, 2_000, "stop+abort");
    let mut world = World::submitted(&patient());
    world.at(1_999).take(&respond(1)).unwrap();
    assert_eq!(world.at(2_000).say(&wake(true)), "done=", "it came in time");
}

/// Where nobody listens, silence says nothing of the provider: the lease finds the lost driver, and what it did can be taken
/// up again or repeated. A driver at the edge is not seen from here: it is told to stop as ever.
#[test]
fn silence_counts_while_somebody_listens() {
    let long = Terms { total_ms: 600_000, ..patient() };
    for world in [World::submitted(&long), World::processing(&long)] {
        due_at(&world, false, 120_000, "done>detached+evidence");
    }
    due_at(&World::submitted(&Terms { owner: Owner::Edge, ..long }), false, 2_000, "stop+abort");
}

#[test]
fn idle() {
    due_at(&World::processing(&patient()), true, 3_000, "stop+abort");
    let mut world = World::processing(&patient());
    world.at(1_000).take(&Command::Append { epoch: 1, bytes: 7 }).unwrap();
    due_at(&world, true, 4_000, "stop+abort");
    // A sign of the driver is no byte of the provider.
    world.at(3_900).take(&Command::Append { epoch: 1, bytes: 0 }).unwrap();
    assert_eq!(world.at(4_000).say(&wake(true)), "stop+abort");
    assert_eq!(world.live().attempt.abort, Some(AbortCause::IdleTimeout));
    assert_eq!(world.lifecycle(), Lifecycle::Active, "a timeout is not somebody's cancel");
}

#[test]
fn total() {
    let slow = Terms { first_byte_ms: 90_000, idle_ms: 90_000, ..patient() };
    due_at(&World::submitted(&slow), true, 20_000, "stop+abort");
    due_at(&World::prepared(&slow), true, 20_000, "stop+abort");
    let mut world = World::prepared(&slow);
    world.at(500).take(&Command::Submit { epoch: 1 }).unwrap();
    due_at(&world, true, 20_500, "stop+abort");
}

/// The reader must have come back by then (design 5: after `grace_ms` with no reader).
#[test]
fn grace() {
    let mut world = World::processing(&Terms { lease_ms: 120_000, ..cancels(700) });
    world.at(100).take(&readers(0)).unwrap();
    due_at(&world, true, 800, "stop>cancellation_requested+abort");
    due_at(&world, false, 800, "stop>cancellation_requested+abort");
    world.at(799).take(&readers(1)).unwrap();
    assert_eq!(world.at(800).say(&wake(true)), "done=", "the reader was back in time");
    world.at(900).take(&readers(0)).unwrap();
    due_at(&world, true, 1_600, "stop>cancellation_requested+abort");
}

/// Two deadlines at one time: the total before the grace before the silence. The first cause is the one that stands.
#[test]
fn causes_have_an_order() {
    let all = Terms { total_ms: 1_000, grace_ms: 1_000, idle_ms: 1_000, ..cancels(1_000) };
    for (terms, cause) in [
        (all.clone(), AbortCause::TotalTimeout),
        (Terms { total_ms: 1_001, ..all.clone() }, AbortCause::Disconnect),
        (Terms { total_ms: 1_001, grace_ms: 1_001, ..all }, AbortCause::IdleTimeout),
    ] {
        let mut world = World::processing(&terms);
        world.take(&readers(0)).unwrap();
        world.at(1_000).take(&wake(true)).unwrap();
        assert_eq!(world.live().attempt.abort, Some(cause));
        world.at(8_000).take(&wake(true)).unwrap();
        assert_eq!(world.live().attempt.abort, Some(cause), "the first stands");
    }
}

/// The alarm may be a minute late: the cause is what was missed first, not what is missed by then.
#[test]
fn a_late_alarm_finds_the_same_cause() {
    let mut world = World::processing(&Terms { lease_ms: 120_000, ..cancels(700) });
    world.at(100).take(&readers(0)).unwrap();
    world.at(60_000).take(&wake(true)).unwrap();
    assert_eq!(world.live().attempt.abort, Some(AbortCause::Disconnect));
    world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert_eq!(world.lifecycle(), Lifecycle::Cancelled);
}

/// A lost driver is found by its lease: a new epoch, and the evidence is collected (design 7).
#[test]
fn lease() {
    let slow = Terms { first_byte_ms: 90_000, idle_ms: 90_000, total_ms: 90_000, ..terms() };
    due_at(&World::prepared(&slow), false, 9_000, "done>detached+evidence");
    due_at(&World::submitted(&slow), false, 9_000, "done>detached+evidence");
    let mut world = World::processing(&slow);
    world.at(4_000).take(&Command::Append { epoch: 1, bytes: 7 }).unwrap();
    due_at(&world, false, 13_000, "done>detached+evidence");
    world.at(13_000).take(&wake(false)).unwrap();
    let attempt = &world.live().attempt;
    assert_eq!((attempt.epoch(), attempt.upstream), (2, UpstreamState::Unknown));
}

/// A driver that lives in this very object renews, however late it is asked (design 7).
#[test]
fn a_living_driver_is_not_taken_over() {
    let slow = Terms { first_byte_ms: 90_000, idle_ms: 90_000, total_ms: 90_000, ..terms() };
    for now_ms in [8_999, 9_000, 9_001, 60_000] {
        let mut world = World::submitted(&slow);
        assert_eq!(world.at(now_ms).say(&wake(true)), "done");
        assert_eq!(world.epoch(), 1);
        assert_eq!(world.live().lease_expires_at(&world.log), world.now.plus(9_000));
    }
}

/// A driver in this object keeps no lease of the edge: the edge's own appends do. Its alarm never stays in the past.
#[test]
fn an_edge_lease_is_kept_by_the_edge_alone() {
    let edge = Terms { owner: Owner::Edge, first_byte_ms: 90_000, total_ms: 90_000, ..terms() };
    for driver_alive in [false, true] {
        due_at(&World::submitted(&edge), driver_alive, 9_000, "done>detached+evidence");
    }
    let mut world = World::submitted(&edge);
    for beat_ms in (3_000..=27_000).step_by(3_000) {
        world.at(beat_ms).take(&Command::Append { epoch: 1, bytes: 0 }).unwrap();
        assert_eq!(world.say(&wake(false)), "done=", "a beat every third of the lease keeps it");
    }
    world.at(36_000).take(&wake(false)).unwrap();
    let late = world.take(&Command::Append { epoch: 1, bytes: 7 });
    assert_eq!(late.unwrap_err().code(), "stale_epoch", "the edge is fenced after the take-over");
}

/// Two beats make one row, and a second wake-up none, also where the lease is shorter than two heartbeats.
#[test]
fn a_short_lease_is_not_renewed_at_every_wake_up() {
    for lease_ms in [1, 2, 3, 10, 900, 1_500, 2_000, 2_001, 9_000, 600_000] {
        let mut world = World::submitted(&Terms { lease_ms, ..terms() });
        assert_eq!(world.say(&wake(true)), "done=", "fresh: {lease_ms}");
        assert_eq!(world.say(&Command::Append { epoch: 1, bytes: 0 }), "continue=", "fresh: {lease_ms}");
        world.at(lease_ms - lease_ms / 3);
        if lease_ms < 2_000 && lease_ms > 2 {
            assert_eq!(world.say(&wake(true)), "done", "{lease_ms}");
            assert_eq!(world.say(&wake(true)), "done=", "{lease_ms}");
        }
    }
    let third = |lease_ms: u64| {
        let slow = Terms { lease_ms, first_byte_ms: 9_000_000, total_ms: 9_000_000, ..terms() };
        let mut world = World::submitted(&slow);
        for beat in 1..=9 {
            world.at(beat * lease_ms / 3).take(&Command::Append { epoch: 1, bytes: 0 }).unwrap();
            assert!(world.live().lease_expires_at(&world.log) > world.now, "beat {beat} of {lease_ms}");
        }
    };
    [3, 300, 3_000, 9_000, 120_000, 600_000].into_iter().for_each(third);
}

/// After the lease the attempt is watched for `observation_ms`; an attempt that was never sent is not watched.
#[test]
fn observation() {
    let observed = Terms { observation_ms: 5_000, ..terms() };
    let world = World::lost(&observed);
    assert_eq!(world.next_wake_ms(), Some(14_000));
    due_at(&world, false, 14_000, "done+evidence");
    due_at(&world, true, 14_000, "done+evidence");
    let mut unsent = World::prepared(&observed);
    assert_eq!(unsent.at(9_000).say(&wake(false)), "done>detached+evidence");
}

/// Evidence that could not be collected is looked for again, a second later each time: no alarm in the past.
#[test]
fn failed_evidence_is_collected_again_later() {
    let mut world = World::lost(&terms());
    for again_ms in [10_000, 11_000, 12_000] {
        assert_eq!(world.next_wake_ms(), Some(again_ms));
        let transition = world.at(again_ms).take(&wake(false)).unwrap();
        assert_eq!(transition.effects, [Effect::CollectEvidence { epoch: 2 }], "the epoch stands");
    }
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>failed+close");
    assert_eq!(world.live().reconciliation, None, "nothing is left to look for");
}

/// Delivery is tried at once, then 1, 2, 4, … 60 seconds after each failure.
#[test]
fn outbox() {
    let mut world = World::submitted(&Terms { retention_s: 86_400, ..terms() });
    world.take(&end(1, complete(10, 20))).unwrap();
    let posting_id = world.live().deliveries[0].posting_id.clone();
    let mut due = START;
    for failed in 0..9 {
        assert_eq!(world.next_wake(), Some(due));
        assert_eq!(world.aggregate.due_deliveries(UnixMillis(due.0 - 1)).count(), 0, "just before {due}");
        assert_eq!(world.aggregate.due_deliveries(due).count(), 1, "at {due}");
        world.now = due;
        world.take(&Command::DeliveryFailed { posting_id: posting_id.clone() }).unwrap();
        due = due.plus(backoff_ms(failed));
    }
    assert_eq!(due.since(START), 1_000 * (1 + 2 + 4 + 8 + 16 + 32) + 3 * 60_000);
}

/// Stored output goes after `retention_s`; the record of it stays (design 9).
#[test]
fn retention() {
    let mut world = World::processing(&terms());
    world.at(100).take(&end(1, complete(10, 20))).unwrap();
    let posting_id = world.live().deliveries[0].posting_id.clone();
    world.take(&Command::Acknowledge { posting_id }).unwrap();
    assert_eq!(world.next_wake_ms(), Some(60_100));
    for driver_alive in [false, true] {
        due_at(&world, driver_alive, 60_100, "done+delete");
    }
    world.at(60_100).take(&wake(false)).unwrap();
    assert!(world.live().content_deleted);
    assert_eq!(world.next_wake(), None, "nothing is left to do");
    let mut at_once = World::processing(&Terms { retention_s: 0, ..terms() });
    at_once.take(&end(1, complete(10, 20))).unwrap();
    assert_eq!(at_once.say(&wake(false)), "done+delete");
}

/// The alarm is armed for the earliest deadline, whatever the state; a running driver is visited every heartbeat.
#[test]
fn the_next_wake_is_the_earliest() {
    assert_eq!(World::new().next_wake(), None);
    let long = Terms { lease_ms: 500, ..terms() };
    assert_eq!(World::prepared(&long).next_wake_ms(), Some(500), "lease");
    let at = |mut world: World, ms: u64| world.at(ms).next_wake_ms();
    assert_eq!(at(World::submitted(&terms()), 300), Some(1_300), "heartbeat");
    assert_eq!(at(World::submitted(&terms()), 1_500), Some(2_000), "first byte");
    assert_eq!(at(World::processing(&terms()), 2_500), Some(3_000), "idle");
    let busy = Terms { idle_ms: 90_000, lease_ms: 90_000, ..terms() };
    assert_eq!(at(World::processing(&busy), 19_500), Some(20_000), "total");
    let mut away = World::processing(&cancels(40));
    away.at(10).take(&readers(0)).unwrap();
    assert_eq!(away.next_wake_ms(), Some(50), "grace");
    away.at(50).take(&wake(true)).unwrap();
    assert_eq!(at(away, 3_000), Some(4_000), "a driver that was told to stop is visited, and timed no more");
    let mut tombstone = World::new();
    tombstone.at(5).take(&never_started(1, &terms())).unwrap();
    assert_eq!(tombstone.next_wake_ms(), Some(5), "outbox");
    let Aggregate::Tombstone(stone) = &tombstone.aggregate else { panic!("a tombstone") };
    let posting_id = stone.deliveries[0].posting_id.clone();
    tombstone.take(&Command::Acknowledge { posting_id }).unwrap();
    assert_eq!(tombstone.next_wake(), None);
}

/// A clock that steps back delays; it undoes nothing.
#[test]
fn a_clock_that_steps_back_undoes_nothing() {
    let mut world = World::submitted(&terms());
    world.at(2_000).take(&wake(true)).unwrap();
    let before = world.aggregate.clone();
    assert_eq!(world.at(0).say(&wake(true)), "done=");
    assert_eq!(world.aggregate, before);
}
