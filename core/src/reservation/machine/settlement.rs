//! The hold: what is held, and how did it end?
//!
//! ```text
//!           usage                        no charge, or the route gives it back
//! committed ◀───────────────── pending ─────────────────▶ released
//!     ▲                      │         │                    ▲
//!     │        deadline, the │         │ conflict,          │
//!     │        hold is kept  ▼         ▼ escalation         │
//!     ├────────────────── expired ──▶ disputed ─────────────┤
//!     │     late signal                  │   an operator    │
//!     └──────────────────────────────────┴──────────────────┘
//! ```
//!
//! | from | to | on |
//! |---|---|---|
//! | `pending` | `committed` | settled by usage |
//! | `pending` | `released` | the work made no charge, or the route releases at the deadline |
//! | `pending` | `expired` | the deadline was reached and the route keeps the hold |
//! | `pending` | `disputed` | the evidence conflicts, or an operator is called |
//! | `expired` | `committed` | a late signal or an operator settles it |
//! | `expired` | `released` | a late signal or an operator releases it |
//! | `expired` | `disputed` | late evidence conflicts, or an operator is called |
//! | `disputed` | `committed` | an operator settles it |
//! | `disputed` | `released` | an operator releases it |

use super::{Arrow, arrow};
use serde::{Deserialize, Serialize};

/// State of the hold: the five states of seed 2, "Model Reservation Ownership and Settlement as Durable State".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// Credit and slot are held.
    Pending,
    /// Settled by usage, exact or estimated.
    Committed,
    /// Returned: the work made no charge that is known.
    Released,
    /// Beyond its deadline; the hold is kept and awaits a late signal or an operator.
    Expired,
    /// The evidence conflicts or needs a review; the hold is kept for an operator.
    Disputed,
}

impl Settlement {
    /// Every state.
    pub const ALL: [Self; 5] = [Self::Pending, Self::Committed, Self::Released, Self::Expired, Self::Disputed];

    /// Whether the hold is still kept.
    #[must_use]
    pub const fn holds(self) -> bool {
        matches!(self, Self::Pending | Self::Expired | Self::Disputed)
    }

    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Committed => "committed",
            Self::Released => "released",
            Self::Expired => "expired",
            Self::Disputed => "disputed",
        }
    }
}

/// The arrows of the machine. What becomes known after `committed` or `released` makes a posting that refers to it.
pub const ARROWS: &[Arrow<Settlement>] = {
    use Settlement::{Committed, Disputed, Expired, Pending, Released};
    &[
        arrow(Pending, Committed, "settled by usage"),
        arrow(Pending, Released, "the work made no charge, or the route releases at the deadline"),
        arrow(Pending, Expired, "the deadline was reached and the route keeps the hold"),
        arrow(Pending, Disputed, "the evidence conflicts, or an operator is called"),
        arrow(Expired, Committed, "a late signal or an operator settles it"),
        arrow(Expired, Released, "a late signal or an operator releases it"),
        arrow(Expired, Disputed, "late evidence conflicts, or an operator is called"),
        arrow(Disputed, Committed, "an operator settles it"),
        arrow(Disputed, Released, "an operator releases it"),
    ]
};
