//! What the rules rely on and the default bounds assume. Each is dropped here, and the violation that follows is shown:
//! who makes an assumption unneeded finds a test here that fails, and widens the default bounds. What was an assumption
//! once stands below them, and holds.

use holdfast_model::{Config, Faults, properties, seek, world};

fn is_violated(config: Config, property: &'static str) {
    let (found, search) = seek(config, property);
    let found = found.unwrap_or_else(|| panic!("holds without the assumption, in {} states", search.unique_states));
    println!("{found}");
}

/// The run with some of its variants: those whose names begin so.
fn only(names: &[&str], mut config: Config) -> Config {
    config.variants.retain(|variant| names.iter().any(|name| variant.name.starts_with(name)));
    config
}

fn holds(config: Config, property: &'static str) {
    let (found, search) = seek(config, property);
    if let Some(found) = found {
        panic!("{found}");
    }
    assert!(search.unique_states > 1_000, "{} states prove nothing", search.unique_states);
}

/// Nobody looks after a tenant whose own alarm is lost, until its next call.
#[test]
fn the_alarm_of_a_tenant_is_not_lost() {
    let config = Config { sweep_may_be_lost: true, faults: Faults::up_to(1), ..Config::default_test() };
    is_violated(config, properties::DRAINS);
}

/// The sweep asks after open holds. Once a hold is resolved, what follows it (an overage, a late settlement, a correction)
/// stands in the outbox alone: with the object's alarm gone, nobody delivers it until somebody calls the object.
#[test]
fn somebody_looks_at_a_generation_that_has_lost_its_alarm_after_the_resolution() {
    let config = Config { looked_at_after_resolution: false, ..only(&["expiry: release"], Config::default_test()) };
    is_violated(config, properties::DRAINS);
}

/// A driver at the edge reads on while it waits for its object, so it can have received more than one batch when it dies:
/// its end costs the bound of its terms, and that is enough.
#[test]
fn a_driver_at_the_edge_may_read_ahead() {
    let config = Config { pieces: 2, ..only(&["edge: observed"], Config::default_test()) };
    holds(config, properties::AT_LEAST);
}

/// Bytes that a crash took may be as long as the error that stands for them: a cursor at the end of the log starts again
/// where the provider's bytes end.
#[test]
fn lost_bytes_may_be_as_long_as_the_error_that_stands_for_them() {
    let config = Config {
        piece_bytes: world::lost_error_bytes(),
        ..only(&["object: observed", "edge: observed"], Config::default_test())
    };
    holds(config, properties::GROWS);
}
