//! Every history within the default bounds.

use holdfast_model::{Config, check};

/// Fewer states would say that the encoding has lost something.
const UNIQUE_STATES_MIN: usize = 100_000;

/// Invariants 1 to 12 hold in every reachable state, and the interesting situations are among them.
#[test]
fn all_invariants_hold_in_every_reachable_state() {
    let outcome = check(&Config::default_test(), 2, &mut |_| {});
    println!("{} unique states, {} steps, {:.1} s", outcome.unique_states, outcome.steps, outcome.took.as_secs_f64());
    for found in &outcome.violations {
        println!("{found}");
    }
    assert!(outcome.violations.is_empty(), "{} properties are violated", outcome.violations.len());
    assert_eq!(outcome.missed(), [], "situations that were never reached");
    assert!(outcome.unique_states >= UNIQUE_STATES_MIN, "{}", outcome.unique_states);
}

/// What is not the rules' fault: the bounds are what this run is worth, so they are not lowered in passing.
#[test]
fn the_default_bounds_have_every_kind_of_fault() {
    let faults = Config::default_test().faults;
    assert!(
        [faults.total, faults.crashes, faults.lost, faults.duplicates, faults.alarms, faults.words]
            .iter()
            .all(|left| *left > 0)
    );
    assert_eq!(Config::default_test().bug, None);
}
