//! Cancel or detach: the arithmetic of a disconnect, what counts as the same prompt, and who came back.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "economics/decisions.rs"]
mod decisions;
#[path = "economics/fingerprints.rs"]
mod fingerprints;
#[path = "economics/re_asks.rs"]
mod re_asks;
