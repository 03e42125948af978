//! Questions about a tenant's books.

use crate::ids::{GenerationId, ReservationId};
use crate::ledger::{GroupBy, LedgerEntry, PostingKind, UsageGroup};
use crate::tenant::account::Role;
use crate::tenant::{Hold, HoldState};
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Rows of a page, where nobody says how many.
pub const PAGE_DEFAULT: u32 = 50;

/// Rows of a page at most.
pub const PAGE_MAX: u32 = 200;

/// A span of time; open where a side is absent.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Span {
    /// Not before.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<UnixMillis>,
    /// Before, and not at.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub until: Option<UnixMillis>,
}

impl Span {
    /// Whether a moment lies in it.
    #[must_use]
    pub fn has(&self, at: UnixMillis) -> bool {
        self.from.is_none_or(|from| at >= from) && self.until.is_none_or(|until| at < until)
    }
}

/// Which page.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Paging {
    /// The sequence number that was read last.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<u64>,
    /// Rows at most.
    pub limit: u32,
}

/// Which entries.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LedgerFilter {
    /// Of this kind.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kind: Option<PostingKind>,
    /// Of one hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub hold: Option<HoldName>,
    /// Recorded then.
    #[serde(default)]
    pub span: Span,
}

impl LedgerFilter {
    /// Whether an entry is wanted, its hold aside: the hold's entries are found by its id.
    #[must_use]
    pub fn takes(&self, entry: &LedgerEntry) -> bool {
        self.kind.is_none_or(|kind| kind == entry.kind) && self.span.has(entry.recorded_at)
    }
}

/// A hold, by one of its two names.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldName {
    /// By its reservation.
    Reservation(ReservationId),
    /// By its generation.
    Generation(GenerationId),
}

/// Which usage records.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecordsOf {
    /// Those that an invoice line stands on.
    Line(String),
    /// All of a generation.
    Generation(GenerationId),
}

/// Which generations.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GenerationFilter {
    /// State of the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub state: Option<HoldState>,
    /// Name of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// Model, as the client named it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Admitted then.
    #[serde(default)]
    pub span: Span,
}

impl GenerationFilter {
    /// Whether a generation is wanted.
    #[must_use]
    pub fn takes(&self, hold: &Hold) -> bool {
        self.state.is_none_or(|state| state == hold.state)
            && self.route.as_ref().is_none_or(|route| *route == hold.terms.route)
            && self.model.as_ref().is_none_or(|model| *model == hold.terms.model)
            && self.span.has(hold.admitted_at)
    }
}

/// A question about a tenant's books. None of them changes the books.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BooksCall {
    /// Ledger entries, oldest first.
    Ledger {
        /// Which ones.
        filter: LedgerFilter,
        /// Which page.
        paging: Paging,
    },
    /// Invoice lines, oldest first.
    Lines {
        /// Billed then.
        span: Span,
        /// Which page.
        paging: Paging,
    },
    /// Invoice lines summed, as many as one call may read.
    Sums {
        /// By what.
        by: GroupBy,
        /// Billed then.
        span: Span,
        /// The sequence number that was summed last.
        after: Option<u64>,
        /// The last one that counts; the first call sets it.
        upto: Option<u64>,
    },
    /// Usage records.
    Records(RecordsOf),
    /// Audit events, oldest first.
    Audit {
        /// Which page.
        paging: Paging,
    },
    /// Generations, newest first.
    Generations {
        /// Which ones.
        filter: GenerationFilter,
        /// Which page.
        paging: Paging,
    },
    /// The next step of the check of that number; a new one where there is none.
    Check {
        /// Which one.
        run: Option<u64>,
    },
}

impl BooksCall {
    /// Who may ask. A client sees what it ran; what it cost, and what was recorded of it, is its tenant's business.
    #[must_use]
    pub const fn role(&self) -> Role {
        match self {
            Self::Generations { .. } => Role::Client,
            Self::Ledger { .. }
            | Self::Lines { .. }
            | Self::Sums { .. }
            | Self::Records(_)
            | Self::Audit { .. }
            | Self::Check { .. } => Role::Admin,
        }
    }
}

/// The answer. A document stands in it as text: what the object has written, nobody reads and writes again on the way.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct BooksReply {
    /// What the caller gets: a JSON document, or one a line. Empty for sums.
    #[serde(default)]
    pub body: String,
    /// Sums of some lines.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub sums: Vec<UsageGroup>,
    /// Audit, sums: the number that was read last. Check: which one it is.
    #[serde(default)]
    pub place: u64,
    /// Whether there is more to read.
    #[serde(default)]
    pub more: bool,
    /// Sums: the last number that counts.
    #[serde(default)]
    pub upto: u64,
}
