//! What a provider lets us do with an operation that runs there, and what follows from it.

use serde::{Deserialize, Serialize};

/// What a provider can do besides answering (design 6). None by default: the socket is then the only lever.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Capabilities {
    /// An operation can be cancelled by its id.
    pub cancel: bool,
    /// An operation can be looked up by its id.
    pub status: bool,
    /// A stream that broke can be read on.
    pub resume: bool,
    /// The provider calls back when an operation has ended.
    pub callback: bool,
    /// A repeated submission under the same key is the same operation.
    pub idempotency_key: bool,
}

impl Capabilities {
    /// Whether an operation may go on at the provider after our socket to it is gone: whatever can be asked about,
    /// cancelled or reported later does not end with a connection.
    #[must_use]
    pub const fn outlives_socket(self) -> bool {
        self.cancel || self.status || self.resume || self.callback
    }

    /// The row of the capability matrix.
    #[must_use]
    pub const fn practice(self) -> Practice {
        match (self.cancel, self.status) {
            (true, true) => Practice::CancelAndVerify,
            (true, false) => Practice::CancelAndWait,
            (false, true) => Practice::LookUp,
            (false, false) => Practice::HoldConservatively,
        }
    }
}

/// What is practical once the work is to be stopped, or its driver was lost: the capability matrix of seed 1
/// ("Choosing a Policy for Inference-Serving Reservations"), one variant per row.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Practice {
    /// Cancellation and status lookup: request the cancel where policy says so, verify the outcome by lookup.
    CancelAndVerify,
    /// Cancellation but no lookup: recorded as requested; any authoritative signal confirms it; bounded ambiguity.
    CancelAndWait,
    /// Lookup but no cancellation: stays detached while the work goes on, looked up within limits, result stored.
    LookUp,
    /// Neither: a conservative lease, no reuse meanwhile, late completion handled.
    HoldConservatively,
}

impl Practice {
    /// Whether the provider is asked to cancel where the policy stops the work.
    #[must_use]
    pub const fn requests_cancel(self) -> bool {
        matches!(self, Self::CancelAndVerify | Self::CancelAndWait)
    }

    /// Whether the outcome is asked for.
    #[must_use]
    pub const fn looks_up(self) -> bool {
        matches!(self, Self::CancelAndVerify | Self::LookUp)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 1, the table of "Choosing a Policy for Inference-Serving Reservations", row by row.
    #[test]
    fn capability_matrix_of_the_seed() {
        for (cancel, status, practice, requests_cancel, looks_up) in [
            (true, true, Practice::CancelAndVerify, true, true),
            (true, false, Practice::CancelAndWait, true, false),
            (false, true, Practice::LookUp, false, true),
            (false, false, Practice::HoldConservatively, false, false),
        ] {
            let capabilities = Capabilities { cancel, status, ..Capabilities::default() };
            assert_eq!(capabilities.practice(), practice);
            assert_eq!((practice.requests_cancel(), practice.looks_up()), (requests_cancel, looks_up), "{practice:?}");
            assert_eq!(capabilities.outlives_socket(), cancel || status);
        }
        assert!(Capabilities { callback: true, ..Capabilities::default() }.outlives_socket());
        assert!(!Capabilities { idempotency_key: true, ..Capabilities::default() }.outlives_socket());
    }
}
