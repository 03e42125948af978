//! The reservation aggregate: one generation from its start to its settlement. Numbers are those of the invariants in
//! the crate's documentation; sections are those of the tables in [`holdfast_core::reservation`].
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "reservation/amounts.rs"]
mod amounts;
#[path = "reservation/announce.rs"]
mod announce;
#[path = "reservation/arrows.rs"]
mod arrows;
#[path = "reservation/asked.rs"]
mod asked;
#[path = "reservation/auto.rs"]
mod auto;
#[path = "reservation/books.rs"]
mod books;
#[path = "reservation/callbacks.rs"]
mod callbacks;
#[path = "reservation/cancel.rs"]
mod cancel;
#[path = "reservation/commands.rs"]
mod commands;
#[path = "reservation/conclusions.rs"]
mod conclusions;
#[path = "reservation/deadlines.rs"]
mod deadlines;
#[path = "reservation/disconnects.rs"]
mod disconnects;
#[path = "reservation/expiry.rs"]
mod expiry;
#[path = "reservation/histories.rs"]
mod histories;
#[path = "reservation/late.rs"]
mod late;
#[path = "reservation/model.rs"]
mod model;
#[path = "reservation/open.rs"]
mod open;
#[path = "reservation/operate.rs"]
mod operate;
#[path = "reservation/outbox.rs"]
mod outbox;
#[path = "reservation/place.rs"]
mod place;
#[path = "reservation/records.rs"]
mod records;
#[path = "reservation/records_text.rs"]
mod records_text;
#[path = "reservation/redeliver.rs"]
mod redeliver;
#[path = "reservation/rejoin.rs"]
mod rejoin;
#[path = "reservation/repeats.rs"]
mod repeats;
#[path = "reservation/results.rs"]
mod results;
#[path = "reservation/resume.rs"]
mod resume;
#[path = "reservation/retry.rs"]
mod retry;
#[path = "reservation/signals.rs"]
mod signals;
#[path = "reservation/steps.rs"]
mod steps;
#[path = "reservation/views.rs"]
mod views;
#[path = "reservation/words.rs"]
mod words;
#[path = "reservation/world.rs"]
mod world;
