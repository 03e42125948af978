//! Postings on their way to the tenant, and generations that were resolved before they started.

use super::world::*;
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::reconcile::Outcome;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Command, Delivery, RefusedDelivery, Tombstone};

fn ids(deliveries: &[Delivery]) -> Vec<&str> {
    deliveries.iter().map(|delivery| delivery.posting_id.as_str()).collect()
}

fn acknowledge(posting_id: &str) -> Command {
    Command::Acknowledge { posting_id: posting_id.into() }
}

fn failed(posting_id: &str) -> Command {
    Command::DeliveryFailed { posting_id: posting_id.into() }
}

fn tombstone(world: &World) -> &Tombstone {
    match &world.aggregate {
        Aggregate::Tombstone(tombstone) => tombstone,
        other => panic!("not a tombstone: {other:?}"),
    }
}

/// The settlement goes before its overage: the tenant takes an overage only of a settled hold.
#[test]
fn the_settlement_goes_before_its_overage() {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(500, 5_000))).unwrap();
    let reservation = identity(1).reservation;
    let expected = [format!("{reservation}:1:settle:1"), format!("{reservation}:1:overage:1")];
    assert_eq!(ids(&world.live().deliveries), expected);
    let due: Vec<_> = world.aggregate.due_deliveries(world.now).cloned().collect();
    assert_eq!(ids(&due), expected);
    for id in &expected {
        world.take(&failed(id)).unwrap();
    }
    assert_eq!(ids(&world.live().deliveries), expected, "failures keep the order");
    assert_eq!(world.aggregate.due_deliveries(world.now).count(), 0);
}

/// Settled means that the tenant has acknowledged all of them; a repeated receipt writes nothing (invariant 8).
#[test]
fn it_is_settled_when_the_last_is_acknowledged() {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(500, 5_000))).unwrap();
    let [settle, overage] = [0, 1].map(|n| world.live().deliveries[n].posting_id.clone());
    assert_eq!(world.at(10).say(&acknowledge(&settle)), "done");
    assert_eq!(world.live().acknowledged_at, None);
    assert_eq!(world.at(20).say(&acknowledge(&overage)), "done");
    let acknowledged_at = world.live().acknowledged_at;
    assert_eq!(acknowledged_at, Some(world.now));
    for late in [acknowledge(&settle), acknowledge(&overage), failed(&settle), failed(&overage)] {
        assert_eq!(world.at(30).say(&late), "done=");
    }
    assert_eq!(world.live().acknowledged_at, acknowledged_at);
    assert!(world.live().deliveries.is_empty(), "a late failure brings nothing back");
}

/// Design 4.2: the empty object stores a tombstone and the release, and a late Start is refused.
#[test]
fn a_generation_that_never_started_is_released() {
    let mut world = World::new();
    assert_eq!(world.say(&never_started(1, &terms())), "done");
    let [release] = world.postings.as_slice() else { panic!("one posting: {:?}", world.postings) };
    assert_eq!(
        (release.kind, release.amount, release.reason),
        (PostingKind::Release, micros(HOLD), ReasonCode::NeverStarted)
    );
    assert_eq!(release.id, format!("{}:0:release:1", identity(1).reservation));
    assert_eq!(world.outcomes(), ["released"]);
    assert_eq!(world.take(&start(1, &terms())), Err(Refusal::NeverStarted));
    assert_eq!(world.say(&never_started(1, &terms())), "done=", "the sweep asks again");
    assert_eq!(world.postings.len(), 1, "invariant 1");
}

#[test]
fn a_tombstones_release_is_delivered_until_it_is_acknowledged() {
    let mut world = World::new();
    world.take(&never_started(1, &terms())).unwrap();
    let id = tombstone(&world).deliveries[0].posting_id.clone();
    assert_eq!(world.say(&failed(&id)), "done");
    assert_eq!(world.next_wake_ms(), Some(1_000));
    assert_eq!(world.at(1_000).say(&failed(&id)), "done");
    assert_eq!(world.next_wake_ms(), Some(3_000));
    assert_eq!(world.at(3_000).say(&acknowledge(&id)), "done");
    for late in [acknowledge(&id), failed(&id), wake(false)] {
        assert_eq!(world.say(&late), "done=");
    }
    assert_eq!((world.next_wake(), ids(&tombstone(&world).deliveries)), (None, vec![]));
}

/// The tenant asks about a generation that lives: nothing is released (invariant 4).
#[test]
fn a_living_generation_is_not_released_for_the_asking() {
    let ended = {
        let mut world = World::processing(&terms());
        world.take(&end(1, complete(1, 1))).unwrap();
        world
    };
    for mut world in [World::prepared(&terms()), World::submitted(&terms()), World::lost(&terms()), ended] {
        let (before, postings) = (world.aggregate.clone(), world.postings.len());
        assert_eq!(world.say(&never_started(1, &terms())), "again=");
        assert_eq!((&world.aggregate, world.postings.len()), (&before, postings));
    }
}

/// Everything that is stored can be read back, in every state.
#[test]
fn stored_states_read_back() {
    let mut entombed = World::new();
    entombed.take(&never_started(1, &terms())).unwrap();
    let mut ended = World::processing(&terms());
    ended.take(&Command::Cancel).unwrap();
    ended.take(&end(1, complete(500, 5_000))).unwrap();
    for world in [
        World::new(),
        entombed,
        World::prepared(&terms()),
        World::processing(&cancels(5)),
        World::lost(&terms()),
        ended,
    ] {
        let json = serde_json::to_string(&world.aggregate).unwrap();
        assert_eq!(serde_json::from_str::<Aggregate>(&json).unwrap(), world.aggregate, "{json}");
    }
}

fn refused(posting_id: &str) -> Command {
    Command::DeliveryRefused { posting_id: posting_id.into(), refusal: "already_resolved".into() }
}

/// A posting that the tenant refuses for good is put aside and shown: nothing unresolved is deleted, and nothing is tried
/// for ever (design 7; invariant 6).
#[test]
fn a_refused_posting_is_put_aside_for_review() {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(500, 5_000))).unwrap();
    let [settle, overage] = [0, 1].map(|n| world.live().deliveries[n].posting_id.clone());
    assert_eq!(world.at(10).say(&refused(&settle)), "done");
    let live = world.live();
    assert_eq!(ids(&live.deliveries), [overage.as_str()]);
    let put_aside = RefusedDelivery { posting_id: settle.clone(), refusal: "already_resolved".into(), at: world.now };
    assert_eq!(live.refused_deliveries, [put_aside]);
    assert_eq!(live.review.map(|review| (review.since, review.reason)), Some((world.now, ReasonCode::PostingRefused)));
    assert_eq!(
        world.history.last().map(|row| (row.command.as_str(), row.outcome.as_str())),
        Some(("delivery_refused", "already_resolved"))
    );
    // Said again, or of a posting that has arrived: nothing.
    for late in [refused(&settle), acknowledge(&settle), failed(&settle), refused("none")] {
        assert_eq!(world.at(20).say(&late), "done=");
    }
    assert_eq!(world.live().refused_deliveries.len(), 1);
    // The hold and the lifecycle stay as they were decided (invariant 3).
    assert_eq!(world.states(), ("completed", "completed", "committed"));
}

/// Settled means that the tenant has applied everything: not that everything it has not refused has arrived.
#[test]
fn what_was_refused_is_not_settled() {
    for refuse in [0, 1] {
        let mut world = World::processing(&terms());
        world.take(&end(1, complete(500, 5_000))).unwrap();
        let on_the_way = [0, 1].map(|n| world.live().deliveries[n].posting_id.clone());
        world.take(&refused(&on_the_way[refuse])).unwrap();
        world.take(&acknowledge(&on_the_way[1 - refuse])).unwrap();
        assert_eq!(ids(&world.live().deliveries), Vec::<&str>::new());
        assert_eq!(world.live().acknowledged_at, None, "{} was refused", on_the_way[refuse]);
    }
}

/// The first reason for a review stands.
#[test]
fn a_refused_posting_does_not_hide_an_earlier_reason() {
    let mut world = World::identified(&with(CALLBACK));
    world.hear(callback("e-1", "no such operation", ended_as(Outcome::Completed, None)));
    let first = world.live().review;
    world.at(5).take(&end(1, complete(1, 1))).unwrap();
    let posting_id = world.postings[0].id.clone();
    world.take(&refused(&posting_id)).unwrap();
    assert_eq!((world.live().review, first.unwrap().reason), (first, ReasonCode::LateCompletion));
}

/// The release of a generation that never started may be refused too: its tombstone keeps it.
#[test]
fn a_tombstones_refused_release() {
    let mut world = World::new();
    world.take(&never_started(1, &terms())).unwrap();
    let id = tombstone(&world).deliveries[0].posting_id.clone();
    assert_eq!(world.at(7).say(&refused(&id)), "done");
    assert_eq!(world.say(&refused(&id)), "done=");
    let stone = tombstone(&world);
    assert_eq!((ids(&stone.deliveries), stone.refused_deliveries.len()), (vec![], 1));
    assert_eq!((stone.refused_deliveries[0].at, world.next_wake()), (world.now, None));
    assert_eq!(world.outcomes().last(), Some(&"already_resolved"));
}

/// A correction goes out by itself, long after the rest has arrived; until then it is not settled again.
#[test]
fn a_later_posting_is_on_its_way_again() {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(10, 20))).unwrap();
    let settle = world.postings[0].id.clone();
    world.take(&acknowledge(&settle)).unwrap();
    assert!(world.live().acknowledged_at.is_some());
    world.at(500).hear(lookup(1, ended_as(Outcome::Completed, Some(usage(10, 30)))));
    assert_eq!((ids(&world.live().deliveries), world.live().acknowledged_at), (vec![&*world.postings[1].id], None));
    assert_eq!(world.next_wake(), Some(world.now));
    let correction = world.postings[1].id.clone();
    world.at(600).take(&acknowledge(&correction)).unwrap();
    assert_eq!(world.live().acknowledged_at, Some(world.now));
}
