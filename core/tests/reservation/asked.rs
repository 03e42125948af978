//! What a reservation says about its hold, compared with what the tenant has (invariant 11).

use super::world::*;
use holdfast_core::ids::AttemptId;
use holdfast_core::meter::EndClass;
use holdfast_core::reservation::{Aggregate, Command, SourceEnd, UpstreamEnd};
use holdfast_core::tenant::books::{BookedState, ReservationBooks, Said, What};
use holdfast_core::tenant::{Hold, HoldState};

/// The tenant's hold of generation 1, as it was placed.
fn hold() -> Hold {
    Hold {
        identity: identity(1),
        attempt: AttemptId::from_random([1; 16]),
        terms: terms(),
        fingerprint: String::new(),
        period: "2026-11".into(),
        idempotency_scope: None,
        state: HoldState::Open,
        admitted_at: START,
        due_at: START,
        extended: micros(0),
        reduced: micros(0),
        slot_freed: false,
        charged: micros(0),
        place: Default::default(),
    }
}

fn says(aggregate: &Aggregate) -> (BookedState, u64, u64, bool) {
    let books = ReservationBooks::of(aggregate);
    (books.state, books.held.get(), books.charged.get(), books.underway)
}

fn acknowledge_all(world: &mut World) {
    let ids: Vec<_> = world.aggregate.deliveries().iter().map(|delivery| delivery.posting_id.clone()).collect();
    for posting_id in ids {
        world.take(&Command::Acknowledge { posting_id }).unwrap();
    }
}

fn differences(aggregate: &Aggregate, hold: &Hold) -> Vec<What> {
    ReservationBooks::of(aggregate).compare(hold).differences.iter().map(|difference| difference.what).collect()
}

#[test]
fn a_reservation_says_how_it_stands() {
    assert_eq!(says(&Aggregate::Vacant), (BookedState::Vacant, 0, 0, false));
    let mut world = World::processing(&terms());
    assert_eq!(says(&world.aggregate), (BookedState::Open, HOLD, 0, false));
    world.take(&end(1, complete(10, 20))).unwrap();
    assert_eq!(says(&world.aggregate), (BookedState::Settled, 0, 50, true), "its posting is on its way");
    acknowledge_all(&mut world);
    assert_eq!(says(&world.aggregate), (BookedState::Settled, 0, 50, false));

    let mut refused = World::submitted(&terms());
    let answer = UpstreamEnd { head: Some(head(429)), ..ended(SourceEnd::Body(EndClass::Complete)) };
    refused.take(&end(1, answer)).unwrap();
    assert_eq!(says(&refused.aggregate), (BookedState::Released, 0, 0, true));

    let mut tombstone = World::new();
    tombstone.take(&never_started(1, &terms())).unwrap();
    assert_eq!(says(&tombstone.aggregate), (BookedState::Released, 0, 0, true));
}

/// A hold that is open while its reservation says that it ended, and has nothing more to send, is lost: nobody will end
/// it. While a posting is on its way it is no difference.
#[test]
fn an_open_hold_that_its_reservation_has_ended_is_named() {
    let mut world = World::processing(&terms());
    assert_eq!(differences(&world.aggregate, &hold()), []);
    world.take(&end(1, complete(10, 20))).unwrap();
    let asked = ReservationBooks::of(&world.aggregate).compare(&hold());
    assert!(asked.differences.is_empty() && asked.underway);
    acknowledge_all(&mut world);
    let asked = ReservationBooks::of(&world.aggregate).compare(&hold());
    let [difference] = &asked.differences[..] else { panic!("{asked:?}") };
    assert_eq!(difference.what, What::ReservationState);
    assert_eq!(difference.reservation_id, Some(identity(1).reservation));
    let word = |text: &str| Said::Word(text.into());
    assert_eq!((&difference.expected, &difference.found), (&word("open"), &word("settled")));
}

#[test]
fn amounts_of_an_open_hold_are_compared() {
    let world = World::processing(&terms());
    let reduced = Hold { reduced: micros(100), ..hold() };
    assert_eq!(differences(&world.aggregate, &reduced), [What::ReservationHeld]);
    let charged = Hold { charged: micros(3), ..hold() };
    assert_eq!(differences(&world.aggregate, &charged), [What::ReservationCost]);
    assert_eq!(differences(&Aggregate::Vacant, &reduced), [], "what never started has nothing to say");
}

/// The ledger refused what the reservation decided: it stays named, whatever else agrees.
#[test]
fn a_refused_posting_is_named() {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(10, 20))).unwrap();
    let posting_id = world.postings[0].id.clone();
    world
        .take(&Command::DeliveryRefused { posting_id: posting_id.clone(), refusal: "posting_conflict".into() })
        .unwrap();
    let asked = ReservationBooks::of(&world.aggregate).compare(&hold());
    let whats: Vec<_> = asked.differences.iter().map(|difference| (difference.what, difference.row.clone())).collect();
    assert_eq!(whats, [(What::ReservationPosting, Some(posting_id)), (What::ReservationState, None)]);
}
