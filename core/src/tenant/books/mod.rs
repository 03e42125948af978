//! The consistency check: what a tenant's rows say, recomputed from other rows that say the same in other words. It finds
//! and names; it repairs nothing, since errors are fixed by corrections, never by edits (design 8).
//!
//! | told by | against | where |
//! |---|---|---|
//! | audit chain, entry by entry | postings, running balances | [`Verified`] (invariant 10) |
//! | a hold, its entries, its invoice lines, its usage records | the postings of its reservation | [`HoldRows`] (invariants 1, 2) |
//! | the tenant's balances and slots, its budget periods | entries, postings, invoice lines | [`Check`] (invariant 11) |
//! | an open hold | what its reservation says itself | [`ReservationBooks`] (invariant 11) |
//!
//! Rows are given page by page, and a check may rest between two pages for as long as it likes: it counts what was
//! posted up to one sequence number, and takes what came since in its last step, which sees all of it at once.

mod chain;
mod check;
mod difference;
mod holds;
mod reservations;

pub use chain::{ChainRow, StoredPosting, Verified};
pub use check::{Books, Check, Counted, DIFFERENCES_MAX, Home, Stage, Totals};
pub use difference::{Difference, Said, What};
pub use holds::{HoldColumns, HoldRows, KeptLine, KeptPosting, Standing};
pub use reservations::{Asked, BookedState, ReservationBooks};
