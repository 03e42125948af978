//! Generations that go on without a reader: at most `detached_max` of them (design 5).

use super::world::{START, World, identity, request};
use super::{released, settled, world};
use holdfast_core::ids::Identity;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Detached, Place};

pub(crate) fn told(n: u8, number: u32, taken: bool) -> Detached {
    Detached { identity: identity(n), place: Place { number, taken } }
}

fn world_of(detached_max: Option<u32>) -> World {
    let mut world = world();
    world.config.detached_max = detached_max;
    for n in 1..=4 {
        world.admit(&request(n, 20), START).unwrap();
    }
    world
}

fn over(limit: u32) -> Result<bool, Refusal> {
    Err(Refusal::DetachedExceeded { limit })
}

#[test]
fn the_third_of_two_is_refused() {
    let mut world = world_of(Some(2));
    assert_eq!(world.detach(&told(1, 1, true)), Ok(true));
    assert_eq!(world.detach(&told(2, 1, true)), Ok(true));
    let before = world.clone();
    assert_eq!(world.detach(&told(3, 1, true)), over(2));
    assert_eq!(world, before, "a refusal changes nothing");
    assert_eq!(world.detached(), 2);
    // A reader came back to the first: its place is the fourth's, and the third is refused as before.
    assert_eq!(world.detach(&told(1, 2, false)), Ok(true));
    assert_eq!(world.detach(&told(4, 1, true)), Ok(true));
    assert_eq!(world.detach(&told(3, 1, true)), over(2));
}

/// What ends the hold ends the place.
#[test]
fn an_end_frees_the_place() {
    let mut world = world_of(Some(2));
    for n in 1..=2 {
        world.detach(&told(n, 1, true)).unwrap();
    }
    world.settle(&settled(1, 1), START).unwrap();
    assert_eq!(world.detached(), 1);
    world.settle(&released(2, 30, ReasonCode::NeverSubmitted), START).unwrap();
    assert_eq!(world.detached(), 0);
    assert_eq!(world.detach(&told(1, 2, true)), Ok(false), "a late word takes no place");
    assert_eq!(world.detached(), 0);
}

/// Words come late, twice and out of order; the one with the highest number is what is so (invariant 8).
#[test]
fn the_latest_word_counts() {
    let mut world = world_of(Some(1));
    assert_eq!(world.detach(&told(1, 1, true)), Ok(true));
    assert_eq!(world.detach(&told(1, 1, true)), Ok(false), "again");
    assert_eq!(world.detach(&told(1, 3, true)), Ok(true), "it has its place, whatever lies between");
    assert_eq!(world.detach(&told(1, 2, false)), Ok(false), "overtaken");
    assert_eq!(world.detached(), 1);
    assert_eq!(world.detach(&told(1, 4, false)), Ok(true));
    assert_eq!(world.detach(&told(1, 3, true)), Ok(false), "overtaken");
    assert_eq!(world.detached(), 0);
}

#[test]
fn the_cap_of_now_counts() {
    let mut world = world_of(None);
    for n in 1..=4 {
        assert_eq!(world.detach(&told(n, 1, true)), Ok(true), "no cap");
    }
    world.config.detached_max = Some(1);
    assert_eq!(world.detach(&told(1, 3, true)), Ok(true), "a cap that was lowered takes nothing away");
    world.detach(&told(1, 4, false)).unwrap();
    assert_eq!(world.detach(&told(1, 5, true)), over(1));
    world.config.detached_max = Some(0);
    let mut none = world_of(Some(0));
    assert_eq!(none.detach(&told(1, 1, true)), over(0), "nothing goes on");
}

#[test]
fn a_strangers_hold_is_not_found() {
    let mut world = world_of(Some(2));
    assert_eq!(world.detach(&told(9, 1, true)), Err(Refusal::NotFound));
    let mixed = Identity { generation: identity(2).generation, ..identity(1) };
    assert_eq!(world.detach(&Detached { identity: mixed, ..told(1, 1, true) }), Err(Refusal::NotFound));
}

/// A hold of a version before there were places reads as one without.
#[test]
fn a_hold_without_a_place_reads_back() {
    let world = world_of(None);
    let hold = world.holds.values().next().unwrap();
    let stored = serde_json::to_string(hold).unwrap();
    assert!(!stored.contains("place"));
    assert_eq!(&serde_json::from_str::<holdfast_core::tenant::Hold>(&stored).unwrap(), hold);
}
