//! What the rules rely on and the default bounds assume. Each is dropped here, and the violation that follows is shown:
//! who makes an assumption unneeded finds a test here that fails, and widens the default bounds.

use holdfast_model::{Config, Faults, properties, seek, world};

fn is_violated(config: Config, property: &'static str) {
    let (found, search) = seek(config, property);
    let found = found.unwrap_or_else(|| panic!("holds without the assumption, in {} states", search.unique_states));
    println!("{found}");
}

/// `UpstreamEnd::unseen_bytes_max` says that at most one batch is lost with a driver. A driver at the edge reads on while
/// it waits for its object, so it can have received more when it dies, or when its lease is over.
#[test]
fn a_driver_at_the_edge_loses_at_most_one_batch() {
    let config = Config { edge_reads_ahead: true, pieces: 2, ..Config::default_test() };
    is_violated(config, properties::AT_LEAST);
}

/// After a lost driver, a cursor that equals the log's length by chance is taken for one behind the appended error.
#[test]
fn lost_bytes_are_not_as_long_as_the_error_that_stands_for_them() {
    let config = Config { piece_bytes: world::lost_error_bytes(), ..Config::default_test() };
    is_violated(config, properties::GROWS);
}

/// Nobody looks after a tenant whose own alarm is lost, until its next call.
#[test]
fn the_alarm_of_a_tenant_is_not_lost() {
    let config = Config { sweep_may_be_lost: true, faults: Faults::up_to(1), ..Config::default_test() };
    is_violated(config, properties::DRAINS);
}
