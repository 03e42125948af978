//! The due list: when an open hold is asked after, and that a crowd at one instant becomes a line.

use super::world::{START, World, config, identity, request};
use holdfast_core::deadline::spread_ms;
use holdfast_core::ids::ReservationId;
use holdfast_core::tenant::{Hold, OPEN_ASKED_MAX_MS, due_after_start, first_due};
use holdfast_core::time::UnixMillis;

const LONGEST_MS: u64 = 3_030;

fn hold(n: u128) -> Hold {
    let routes =
        r#"{"name":"r","provider":"p","max_output_tokens":10,"total_ms":1000,"lease_ms":2000,"observation_ms":30}"#;
    let mut world = World::new(config(1_000, 1_000, 4, routes));
    world.limits.start_grace_ms = 7_000;
    world.admit(&request(1, 20), START).unwrap();
    let mut hold = world.holds[&identity(1).reservation].clone();
    let due_at = first_due(&hold.identity.reservation, 7_000, START);
    assert_eq!(hold.due_at, due_at, "admission is where it comes from");
    hold.identity.reservation = ReservationId::from_random(n.to_be_bytes());
    hold
}

fn spread(hold: &Hold, span_ms: u64) -> u64 {
    spread_ms(hold.identity.reservation.as_str(), span_ms)
}

#[test]
fn a_hold_is_looked_into_after_its_start_and_again_after_its_longest_time() {
    let hold = hold(1);
    let later = spread(&hold, 30_000);
    assert_eq!(due_after_start(&hold, START), START.plus(LONGEST_MS + 60_000 + later));
    let at = START.plus(7_000);
    assert_eq!(due_after_start(&hold, at), START.plus(67_000 + later), "a minute from now at the earliest");
}

/// A hold that waits for somebody is asked after ever more seldom, and never given up.
#[test]
fn a_hold_that_stays_open_is_asked_after_more_seldom() {
    let hold = hold(1);
    let ended_by = START.plus(LONGEST_MS + 60_000);
    let later = spread(&hold, 30_000);
    for (overdue_ms, pause_ms) in [
        (0, 60_000),
        (240_000, 60_000),
        (3_600_000, 900_000),
        (86_400_000, 21_600_000),
        (864_000_000, OPEN_ASKED_MAX_MS),
    ] {
        let now = ended_by.plus(overdue_ms);
        assert_eq!(due_after_start(&hold, now), now.plus(pause_ms + later), "{overdue_ms}");
    }
}

/// Fault 56: ten thousand reservations that were admitted at one instant, and lost at one instant, are due one after the
/// other: over a quarter of the grace, and over half a minute, and no moment has a crowd.
#[test]
fn ten_thousand_expiries_at_one_instant_are_spread() {
    let started: Vec<UnixMillis> =
        (0..10_000_u128).map(|n| first_due(&ReservationId::from_random(n.to_be_bytes()), 30_000, START)).collect();
    assert_spread(&started, START.plus(30_000), 7_500);
    let template = hold(1);
    let lost: Vec<UnixMillis> = (0..10_000_u128)
        .map(|n| {
            let mut hold = template.clone();
            hold.identity.reservation = ReservationId::from_random(n.to_be_bytes());
            due_after_start(&hold, START)
        })
        .collect();
    assert_spread(&lost, START.plus(LONGEST_MS + 60_000), 30_000);
}

fn assert_spread(times: &[UnixMillis], from: UnixMillis, span_ms: u64) {
    let offset = |at: &UnixMillis| at.since(from);
    assert!(times.iter().all(|at| *at >= from && offset(at) < span_ms), "none early, none beyond the span");
    let mut tenths = [0_usize; 10];
    times.iter().for_each(|at| tenths[usize::try_from(offset(at) * 10 / span_ms).unwrap()] += 1);
    assert!(tenths.iter().all(|count| *count < times.len() / 8), "{tenths:?}");
}
