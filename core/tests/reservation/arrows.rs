//! The tables of the machines and what is seen of them: no change without an arrow, no arrow without a change.

use holdfast_core::reservation::Reservation;
use holdfast_core::reservation::machine::{Arrow, connection, lifecycle, settlement, upstream};
use std::collections::BTreeSet;

fn name(machine: &str, from: &str, to: &str) -> String {
    format!("{machine} {from} → {to}")
}

fn table<State: Copy>(machine: &str, arrows: &[Arrow<State>], word: fn(State) -> &'static str) -> BTreeSet<String> {
    arrows.iter().map(|arrow| name(machine, word(arrow.from), word(arrow.to))).collect()
}

/// Every arrow of every table.
pub(crate) fn all() -> BTreeSet<String> {
    let mut all = table("connection", connection::ARROWS, connection::ConnectionState::as_str);
    all.extend(table("lifecycle", lifecycle::ARROWS, lifecycle::Lifecycle::as_str));
    all.extend(table("settlement", settlement::ARROWS, settlement::Settlement::as_str));
    all.extend(table("upstream", upstream::ARROWS, upstream::UpstreamState::as_str));
    all
}

/// The changes between two stored states. Each attempt has its own upstream machine, a past one too.
pub(crate) fn seen(before: &Reservation, after: &Reservation) -> BTreeSet<String> {
    let mut seen = vec![
        ("connection", before.connection.state.as_str(), after.connection.state.as_str()),
        ("lifecycle", before.lifecycle.as_str(), after.lifecycle.as_str()),
        ("settlement", before.settlement.as_str(), after.settlement.as_str()),
    ];
    for earlier in before.attempts() {
        let later = after.attempts().find(|attempt| attempt.id == earlier.id).expect("an attempt is never forgotten");
        seen.push(("upstream", earlier.upstream.as_str(), later.upstream.as_str()));
    }
    let changes: BTreeSet<String> = seen
        .into_iter()
        .filter(|(_, from, to)| from != to)
        .map(|(machine, from, to)| name(machine, from, to))
        .collect();
    let unknown: Vec<_> = changes.difference(&all()).cloned().collect();
    assert!(unknown.is_empty(), "no arrow of a table: {unknown:?}");
    changes
}
