//! The record of a release and of what comes late (seed 3).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "evidence/edits.rs"]
mod edits;
#[path = "evidence/form.rs"]
mod form;
#[path = "evidence/records.rs"]
mod records;
#[path = "evidence/world.rs"]
mod world;
