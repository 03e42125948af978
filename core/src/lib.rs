#![cfg_attr(not(test), no_std)]
#![forbid(unsafe_code)]
//! The rules of Holdfast: pure functions over plain data. No clock, randomness, I/O or async: time and ids are arguments,
//! and every decision about money, leases and states is taken here. Shells load, apply, store, arm and reply.
//!
//! # Invariants
//!
//! Tests cite them by number.
//!
//! 1. At most one settlement per reservation.
//! 2. `held + settled + released = reserved`, as extended or reduced; a cost above the hold appears only as
//!    [`ledger::PostingKind::Overage`], `LateSettlement`, `Correction` or `Compensation`.
//! 3. The first terminal state is never overwritten.
//! 4. Nothing is released while an attempt may still be live or a newer attempt owns.
//! 5. Every received completion is recorded, late and stale ones too.
//! 6. A recorded cost has an outbox row or an applied posting.
//! 7. After faults stop, a bounded drain brings every reservation to a terminal state, and the ledger agrees.
//! 8. A replay has the same effect and the same answer; a different body is refused without effect.
//! 9. Epochs and offsets only grow; a reader's bytes are a prefix of the log, each once.
//! 10. Audit `seq` has no gaps, each row names its predecessor's hash, each posting has one audit row.
//! 11. After the outbox is drained, balances equal the sum over reservations; slots in use never exceed the limit.
//! 12. No second dispatch for an attempt of unknown outcome.
//!
//! # Where to look
//!
//! | question | module |
//! |---|---|
//! | may this request run, and what does it hold? | [`tenant`] |
//! | what happens to a generation from start to settlement? | [`reservation`] |
//! | what becomes of a hold whose outcome is open? | [`reconcile`] |
//! | what did the provider's bytes say? | [`sse`], [`meter`], [`intake`] |
//! | what may a page in a browser do, and which page? | [`token`], [`origin`] |
//! | what does it cost? | [`pricing`], [`ledger`] |
//! | is an answer that nobody waits for worth finishing? | [`economics`] |
//! | on what evidence was a hold released, and what came late? | [`evidence`], [`finding`] |
//! | what do edge and objects say to each other? | [`wire`] |

extern crate alloc;

pub mod audit;
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
pub mod origin;
pub mod policy;
pub mod pricing;
pub mod reconcile;
pub mod refusal;
pub mod relay;
pub mod request;
pub mod reservation;
pub mod sse;
pub mod tenant;
pub mod time;
pub mod token;
pub mod usage;
pub mod view;
pub mod wire;
