//! The client side: can somebody still get the answer as it comes?
//!
//! ```text
//!             last reader left             a reader attached
//! connected ───────────────────▶ disconnected ⇄ reconnected
//!                                             last reader left
//! ```
//!
//! | from | to | on |
//! |---|---|---|
//! | `connected` | `disconnected` | the last reader left, or the driver that held it was lost |
//! | `disconnected` | `reconnected` | a reader attached |
//! | `reconnected` | `disconnected` | the last reader left, or the driver that held it was lost |

use super::{Arrow, arrow};
use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// Who reads, as far as it was last stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Connection {
    /// Whether the last reader is gone, and whether one came back.
    pub state: ConnectionState,
    /// Furthest byte that any reader was given.
    pub furthest_offset: u64,
    /// When the last reader left, if none is attached.
    pub disconnected_at: Option<UnixMillis>,
}

/// State of the client side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// At least one reader, and never none.
    #[default]
    Connected,
    /// No reader.
    Disconnected,
    /// A reader after there was none.
    Reconnected,
}

impl ConnectionState {
    /// Every state.
    pub const ALL: [Self; 3] = [Self::Connected, Self::Disconnected, Self::Reconnected];

    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Connected => "connected",
            Self::Disconnected => "disconnected",
            Self::Reconnected => "reconnected",
        }
    }
}

/// The arrows of the machine.
pub const ARROWS: &[Arrow<ConnectionState>] = {
    use ConnectionState::{Connected, Disconnected, Reconnected};
    &[
        arrow(Connected, Disconnected, "the last reader left, or the driver that held it was lost"),
        arrow(Disconnected, Reconnected, "a reader attached"),
        arrow(Reconnected, Disconnected, "the last reader left, or the driver that held it was lost"),
    ]
};
