#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
//! The rules of Holdfast: pure functions over plain data. No clock, randomness, I/O or async: time and ids are arguments,
//! and every decision about money, leases and states is taken here. Shells load, apply, store, arm and reply.
//!
//! # Invariants
//!
//! Tests cite them by number; the ones named here exist (`core/tests/named_tests.rs` looks for them). The model in
//! `tests/model` checks all twelve over every interleaving within its bounds.
//!
//! 1. At most one settlement per reservation.
//!    Tests: `any_history`, `any_history_keeps_the_books`, `an_operators_release_and_a_completion`.
//! 2. `held + settled + released = reserved`, as extended or reduced; a cost above the hold appears only as
//!    [`ledger::PostingKind::Overage`], `LateSettlement`, `Correction` or `Compensation`.
//!    Tests: `any_history`, `any_history_keeps_the_books`, `a_reduced_hold_ends_as_it_is`.
//! 3. The first terminal state is never overwritten; only a compensation follows it.
//!    Tests: `any_history`, `ends_are_final`, `every_row_of_the_table`.
//! 4. Nothing is released while an attempt may still be live or a newer attempt owns.
//!    Tests: `any_history`, `nothing_is_given_away_without_a_fence`, `a_living_generation_is_not_released_for_the_asking`.
//! 5. Every received completion is recorded, late and stale ones too.
//!    Tests: `any_history`, `every_row_of_the_table`, `a_confirmation_after_the_deadline`.
//! 6. A recorded cost has an outbox row or an applied posting.
//!    Tests: `any_history`, `the_end_stores_its_conclusion`, `a_refused_posting_is_put_aside_for_review`.
//! 7. After faults stop, a bounded drain brings every reservation to a terminal or quarantined state, and the ledger
//!    agrees.
//!    Tests: `any_history`, `any_started_history`, `at_the_deadline_something_is_decided`.
//! 8. A replay has the same effect and the same answer; a different body is refused without effect.
//!    Tests: `any_history`, `any_history_keeps_the_books`, `a_repeated_admit_holds_once`.
//! 9. Epochs and offsets only grow; a reader's bytes are a prefix of the log, each once.
//!    Tests: `any_history`, `no_reader_gets_bytes_that_do_not_follow_its_own`, `a_lost_driver_is_driven_on_and_fenced`,
//!    `cut_anywhere_and_taken_up_it_is_the_same`.
//! 10. Audit `seq` has no gaps, each row names its predecessor's hash, each posting has one audit row.
//!     Tests: `any_history_keeps_the_books`, `rows_chain_and_an_edit_shows`.
//! 11. After the outbox is drained, balances equal the sum over reservations; slots in use never exceed the limit.
//!     Tests: `any_history_keeps_the_books`, `order_of_deliveries_does_not_matter`, `a_slot_is_given_back_once`.
//! 12. No second dispatch for an attempt of unknown outcome unless the route allows it.
//!     Tests: `any_history`, `a_submission_is_never_repeated`, `a_cancelled_attempt_is_not_repeated`,
//!     `a_retry_waits_until_nothing_can_be_taken_up`.
//!
//! # Where to look
//!
//! | question | module |
//! |---|---|
//! | what may a tenant's document say, and which route takes a request? | [`config`], [`policy`] |
//! | may this request run, and what does it hold? | [`tenant`] |
//! | what happens to a generation from start to settlement? | [`reservation`] |
//! | what becomes of a hold whose outcome is open? | [`reconcile`] |
//! | what does a request ask, at which path, and what is changed in it? | [`request`], [`dialect`] |
//! | what did the provider's bytes say? | [`sse`], [`meter`], [`intake`] |
//! | what does a provider say about an operation, and may it be asked? | [`operation`], [`breaker`] |
//! | what may a page in a browser do, and which page? | [`token`], [`origin`] |
//! | what does it cost? | [`pricing`], [`ledger`] |
//! | is an answer that nobody waits for worth finishing? | [`economics`] |
//! | on what evidence was a hold released, and what came late? | [`evidence`], [`finding`] |
//! | who signed this message? | [`signature`] |
//! | what is the tenant told, where, and how often? | [`webhook`] |
//! | what do edge and objects say to each other? | [`wire`] |

extern crate alloc;

pub mod audit;
pub mod breaker;
pub mod callback;
pub mod capability;
pub mod config;
pub mod deadline;
pub mod dialect;
pub mod economics;
pub mod evidence;
pub mod finding;
pub mod glob;
pub mod ids;
pub mod intake;
pub mod key;
pub mod ledger;
pub mod meter;
pub mod money;
pub mod operation;
pub mod origin;
pub mod policy;
pub mod pricing;
pub mod reconcile;
pub mod refusal;
pub mod relay;
pub mod request;
pub mod reservation;
pub mod signature;
pub mod sse;
pub mod tenant;
pub mod time;
pub mod token;
pub mod usage;
pub mod view;
pub mod webhook;
pub mod wire;
