//! The provider's side of one attempt. `submitted` is stored before the provider is called, so that only `prepared`
//! proves that nothing was sent.
//!
//! ```text
//!            intent stored         headers came
//! prepared ──────────────▶ submitted ──────────▶ processing ◀────────────┐
//!    │                      │     │               │     │                │
//!    │ unsent: stopped,     │     └──driver gone──┤     │                │ its stream is
//!    │ out of time, or      │                     ▼     │ terminal event,│ taken up again
//!    │ no connection        │ answer, error,   unknown ─┼─error, limit,──┘
//!    │                      │ limit, cut,         │     │ cut, socket
//!    │                      │ socket closed       │     │ closed
//!    ▼                      ▼            evidence ▼     ▼
//! cancelled,              completed, incomplete, failed, cancelled
//! incomplete, failed
//! ```
//!
//! | from | to | on |
//! |---|---|---|
//! | `prepared` | `submitted` | the intent to call is stored |
//! | `prepared` | `cancelled` | stopped before anything was sent |
//! | `prepared` | `failed` | provably unsent |
//! | `prepared` | `incomplete` | a time limit passed before anything was sent |
//! | `submitted` | `processing` | the provider's headers came |
//! | `submitted` | `completed` | the whole answer came |
//! | `submitted` | `incomplete` | a time limit or a bound was reached, or the answer broke off |
//! | `submitted` | `failed` | the provider refused or failed, or was never reached |
//! | `submitted` | `cancelled` | the socket was closed, as told |
//! | `submitted` | `unknown` | no answer, or the driver is gone |
//! | `processing` | `completed` | terminal event |
//! | `processing` | `incomplete` | ended or cut without terminal event, or a bound was reached |
//! | `processing` | `failed` | the provider reported an error |
//! | `processing` | `cancelled` | the socket was closed, as told |
//! | `processing` | `unknown` | the driver is gone, or a gateway answered in the provider's place |
//! | `unknown` | `processing` | its stream is taken up again |
//! | `unknown` | `completed` | evidence of completion |
//! | `unknown` | `incomplete` | evidence that it ended without completing |
//! | `unknown` | `failed` | evidence of failure |
//! | `unknown` | `cancelled` | evidence of cancellation |

use super::{Arrow, arrow};
use serde::{Deserialize, Serialize};

/// What the provider does, for one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// Intent stored; provably nothing sent.
    Prepared,
    /// Stored before the provider is called: from here on something may have been sent.
    Submitted,
    /// The provider has answered with headers.
    Processing,
    /// Completion was reported.
    Completed,
    /// Ended without terminal event.
    Incomplete,
    /// The provider reported failure.
    Failed,
    /// Stopped: confirmed by the provider, or by closing the only lever there is, the socket.
    Cancelled,
    /// The driver is gone; what the provider did is not known.
    Unknown,
}

impl UpstreamState {
    /// Every state.
    pub const ALL: [Self; 8] = [
        Self::Prepared,
        Self::Submitted,
        Self::Processing,
        Self::Completed,
        Self::Incomplete,
        Self::Failed,
        Self::Cancelled,
        Self::Unknown,
    ];

    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Prepared => "prepared",
            Self::Submitted => "submitted",
            Self::Processing => "processing",
            Self::Completed => "completed",
            Self::Incomplete => "incomplete",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Unknown => "unknown",
        }
    }
}

/// The arrows of the machine.
pub const ARROWS: &[Arrow<UpstreamState>] = {
    use UpstreamState::{Cancelled, Completed, Failed, Incomplete, Prepared, Processing, Submitted, Unknown};
    &[
        arrow(Prepared, Submitted, "the intent to call is stored"),
        arrow(Prepared, Cancelled, "stopped before anything was sent"),
        arrow(Prepared, Failed, "provably unsent"),
        arrow(Prepared, Incomplete, "a time limit passed before anything was sent"),
        arrow(Submitted, Processing, "the provider's headers came"),
        arrow(Submitted, Completed, "the whole answer came"),
        arrow(Submitted, Incomplete, "a time limit or a bound was reached, or the answer broke off"),
        arrow(Submitted, Failed, "the provider refused or failed, or was never reached"),
        arrow(Submitted, Cancelled, "the socket was closed, as told"),
        arrow(Submitted, Unknown, "no answer, or the driver is gone"),
        arrow(Processing, Completed, "terminal event"),
        arrow(Processing, Incomplete, "ended or cut without terminal event, or a bound was reached"),
        arrow(Processing, Failed, "the provider reported an error"),
        arrow(Processing, Cancelled, "the socket was closed, as told"),
        arrow(Processing, Unknown, "the driver is gone, or a gateway answered in the provider's place"),
        arrow(Unknown, Processing, "its stream is taken up again"),
        arrow(Unknown, Completed, "evidence of completion"),
        arrow(Unknown, Incomplete, "evidence that it ended without completing"),
        arrow(Unknown, Failed, "evidence of failure"),
        arrow(Unknown, Cancelled, "evidence of cancellation"),
    ]
};
