//! The rules of reconciliation. Rows are those of the tables of seed 2 ("candidate row": the table of the candidate
//! query; "recovery row": the table of recovery from authoritative evidence) and seed 1 (capability matrix).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "reconcile/candidates.rs"]
mod candidates;
#[path = "reconcile/deadline.rs"]
mod deadline;
#[path = "reconcile/properties.rs"]
mod properties;
#[path = "reconcile/world.rs"]
mod world;
