//! The tenant still holds what was resolved: rows were lost on one side or the other (faults 33, 36 and 40).

use super::world::*;
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Aggregate, Command};

fn hold_open(rows: &[Posting]) -> Command {
    Command::HoldOpen { postings: rows.to_vec() }
}

fn acknowledge_all(world: &mut World) {
    let ids: Vec<_> = world.aggregate.deliveries().iter().map(|delivery| delivery.posting_id.clone()).collect();
    for posting_id in ids {
        world.take(&Command::Acknowledge { posting_id }).unwrap();
    }
}

fn underway(world: &World) -> Vec<String> {
    world.aggregate.deliveries().iter().map(|delivery| delivery.posting_id.clone()).collect()
}

/// Settled with an overage: two postings of one moment.
fn over() -> World {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(500, 5_000))).unwrap();
    world
}

#[test]
fn what_runs_or_is_on_its_way_is_left_alone() {
    let mut running = World::processing(&terms());
    assert_eq!(running.say(&hold_open(&[])), "done=");
    let mut world = over();
    let rows = world.postings.clone();
    assert_eq!(world.say(&hold_open(&rows)), "done=", "it is on its way");
    let mut kept = World::expired(&with(CALLBACK));
    acknowledge_all(&mut kept);
    let rows = kept.postings.clone();
    assert_eq!(kept.say(&hold_open(&rows)), "done=", "the hold is kept: it has no resolution");
    assert_eq!(World::new().say(&hold_open(&[])), "!not_found");
}

/// The tenant acknowledged, and holds all the same: its rows were lost. All that was authored goes again, the settlement
/// before its overage, and a correction behind both, whatever the order of the rows.
#[test]
fn what_the_tenant_lost_is_sent_again() {
    let mut world = over();
    acknowledge_all(&mut world);
    world.at(40_000);
    assert_eq!(world.hear(lookup(1, ended_as(Outcome::Completed, Some(usage(1, 1))))), "corrected");
    acknowledge_all(&mut world);
    let mut rows = world.postings.clone();
    let kinds: Vec<_> = rows.iter().map(|posting| posting.kind).collect();
    assert_eq!(kinds, [PostingKind::Settle, PostingKind::Overage, PostingKind::Correction]);
    let in_order: Vec<_> = rows.iter().map(|posting| posting.id.clone()).collect();
    rows.reverse();
    assert!(world.live().acknowledged_at.is_some());
    assert_eq!(world.say(&hold_open(&rows)), "done");
    assert_eq!((underway(&world), world.live().acknowledged_at), (in_order, None));
    assert_eq!(world.postings.len(), 3, "nothing new was authored");
    assert_eq!(world.say(&hold_open(&rows)), "done=", "now it is on its way");
    assert_eq!(world.outcomes().last(), Some(&"sent_again"));
}

/// The row of the settlement is gone. The state says all of it: it is made again, the same to the last byte.
#[test]
fn a_lost_row_is_made_again() {
    for acknowledged in [true, false] {
        let mut world = over();
        let authored = world.postings.clone();
        if acknowledged {
            acknowledge_all(&mut world);
        }
        world.at(60_000);
        let transition = world.take(&hold_open(&[])).unwrap();
        assert_eq!(transition.postings.len(), 2);
        for (made, was) in transition.postings.iter().zip(&authored) {
            assert_eq!(made.without_notices(), was.without_notices(), "a tenant that has it says yes");
        }
        assert_eq!(underway(&world), authored.iter().map(|posting| posting.id.clone()).collect::<Vec<_>>());
        assert_eq!(world.live().review, None);
    }
    let mut released = World::submitted(&terms());
    let refused = holdfast_core::reservation::UpstreamEnd {
        head: Some(head(429)),
        ..ended(holdfast_core::reservation::SourceEnd::Body(holdfast_core::meter::EndClass::Complete))
    };
    released.take(&end(1, refused)).unwrap();
    let was = released.postings[0].without_notices();
    let made = released.take(&hold_open(&[])).unwrap().postings;
    assert_eq!(made.iter().map(Posting::without_notices).collect::<Vec<_>>(), [was]);
}

/// Something was posted since: the state says what it is now, and not what it was. Nobody makes that up.
#[test]
fn a_lost_row_that_cannot_be_made_again_is_put_aside() {
    let mut world = over();
    acknowledge_all(&mut world);
    world.hear(lookup(1, ended_as(Outcome::Completed, Some(usage(1, 1)))));
    let correction = underway(&world);
    assert_eq!(world.say(&hold_open(&[])), "done");
    assert_eq!(underway(&world), Vec::<String>::new());
    let live = world.live();
    let refused: Vec<_> =
        live.refused_deliveries.iter().map(|it| (it.posting_id.clone(), it.refusal.as_str())).collect();
    assert_eq!(refused, [(correction[0].clone(), "outbox_row_lost")]);
    assert_eq!(live.review.map(|review| review.reason), Some(ReasonCode::PostingRefused));
}

/// What the tenant refused for good is not sent for ever.
#[test]
fn what_was_refused_stays_put_aside() {
    let mut world = over();
    let rows = world.postings.clone();
    let ids = underway(&world);
    for posting_id in ids {
        let refusal = "posting_conflict".into();
        world.take(&Command::DeliveryRefused { posting_id, refusal }).unwrap();
    }
    assert_eq!(world.say(&hold_open(&rows)), "done=");
    assert_eq!(underway(&world), Vec::<String>::new());
}

#[test]
fn a_tombstones_release_goes_again() {
    for (acknowledged, row_lost) in [(true, false), (true, true), (false, true)] {
        let mut world = World::new();
        world.take(&never_started(1, &terms())).unwrap();
        let rows = if row_lost { Vec::new() } else { world.postings.clone() };
        let release = world.postings[0].clone();
        if acknowledged {
            acknowledge_all(&mut world);
        }
        world.at(90_000);
        let transition = world.take(&hold_open(&rows)).unwrap();
        assert_eq!(underway(&world), [release.id.clone()]);
        let made: Vec<_> = transition.postings.iter().map(Posting::without_notices).collect();
        let expected = if row_lost { vec![release.without_notices()] } else { vec![] };
        assert_eq!(made, expected);
        let again = world.postings.clone();
        assert_eq!(world.say(&hold_open(&again)), "done=");
        assert!(matches!(&world.aggregate, Aggregate::Tombstone(_)));
    }
}
