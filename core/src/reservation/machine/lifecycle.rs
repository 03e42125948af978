//! The reservation: where is the work that the hold was made for?
//!
//! ```text
//!            last reader left
//!   active ◀──────────────────▶ detached
//!     │ │    a reader came back    │ │
//!     │ └────────────┐ ┌───────────┘ │
//!     │    cancel,   ▼ ▼  grace over │
//!     │      cancellation_requested  │
//!     │               │              │
//!     └───────────────┼──────────────┘   end, or the deadline
//!                     ▼
//!   completed   cancelled   failed   expired
//!        └───────────┴───┬────┴─────────┘    an operator compensates
//!                        ▼
//!                   compensated
//! ```
//!
//! | from | to | on |
//! |---|---|---|
//! | `active` | `detached` | the last reader left |
//! | `active` | `cancellation_requested` | somebody asked for cancellation |
//! | `active` | `completed` | completion was reported |
//! | `active` | `cancelled` | the provider confirmed a cancellation, or the driver stopped by itself |
//! | `active` | `failed` | the work failed |
//! | `active` | `expired` | the deadline was reached with an open outcome |
//! | `detached` | `active` | a reader came back |
//! | `detached` | `cancellation_requested` | somebody asked for cancellation, or the grace time is over |
//! | `detached` | `completed` | completion was reported |
//! | `detached` | `cancelled` | the provider confirmed a cancellation, or the driver stopped by itself |
//! | `detached` | `failed` | the work failed |
//! | `detached` | `expired` | the deadline was reached with an open outcome |
//! | `cancellation_requested` | `completed` | completion won the race |
//! | `cancellation_requested` | `cancelled` | the cancellation is confirmed |
//! | `cancellation_requested` | `failed` | the work failed |
//! | `cancellation_requested` | `expired` | the deadline was reached with an open outcome |
//! | `completed` | `compensated` | an operator compensated |
//! | `cancelled` | `compensated` | an operator compensated |
//! | `failed` | `compensated` | an operator compensated |
//! | `expired` | `compensated` | an operator compensated |

use super::{Arrow, arrow};
use serde::{Deserialize, Serialize};

/// Lifecycle of the reservation: the eight states of seed 1, "A Practical Reservation Lifecycle After Disconnection".
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// A reader is attached; the work is pending or running.
    Active,
    /// The last reader is gone, the outcome is open.
    Detached,
    /// The work is being stopped.
    CancellationRequested,
    /// Completion was reported.
    Completed,
    /// The work was stopped.
    Cancelled,
    /// The work failed, or its outcome could not be learnt and cannot change any more.
    Failed,
    /// A deadline was reached with an open outcome: the route's rule for it was applied.
    Expired,
    /// A later action compensated an effect that could not be undone. The outcome before it stays on record.
    Compensated,
}

impl Lifecycle {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Active,
        Self::Detached,
        Self::CancellationRequested,
        Self::Completed,
        Self::Cancelled,
        Self::Failed,
        Self::Expired,
        Self::Compensated,
    ];

    /// Whether the work has ended for this system: the log is closed. Only a compensation follows.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed | Self::Expired | Self::Compensated)
    }

    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Detached => "detached",
            Self::CancellationRequested => "cancellation_requested",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
            Self::Expired => "expired",
            Self::Compensated => "compensated",
        }
    }
}

/// The arrows of the machine.
pub const ARROWS: &[Arrow<Lifecycle>] = {
    use Lifecycle::{Active, CancellationRequested, Cancelled, Compensated, Completed, Detached, Expired, Failed};
    &[
        arrow(Active, Detached, "the last reader left"),
        arrow(Active, CancellationRequested, "somebody asked for cancellation"),
        arrow(Active, Completed, "completion was reported"),
        arrow(Active, Cancelled, "the provider confirmed a cancellation, or the driver stopped by itself"),
        arrow(Active, Failed, "the work failed"),
        arrow(Active, Expired, "the deadline was reached with an open outcome"),
        arrow(Detached, Active, "a reader came back"),
        arrow(Detached, CancellationRequested, "somebody asked for cancellation, or the grace time is over"),
        arrow(Detached, Completed, "completion was reported"),
        arrow(Detached, Cancelled, "the provider confirmed a cancellation, or the driver stopped by itself"),
        arrow(Detached, Failed, "the work failed"),
        arrow(Detached, Expired, "the deadline was reached with an open outcome"),
        arrow(CancellationRequested, Completed, "completion won the race"),
        arrow(CancellationRequested, Cancelled, "the cancellation is confirmed"),
        arrow(CancellationRequested, Failed, "the work failed"),
        arrow(CancellationRequested, Expired, "the deadline was reached with an open outcome"),
        arrow(Completed, Compensated, "an operator compensated"),
        arrow(Cancelled, Compensated, "an operator compensated"),
        arrow(Failed, Compensated, "an operator compensated"),
        arrow(Expired, Compensated, "an operator compensated"),
    ]
};
