//! Callbacks and sweeps on the wire: what the tenant knows of its providers' operations, and what a sweep did.

use crate::callback::CallbackEvent;
use crate::ids::Identity;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is said to a tenant about an operation at one of its providers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum OperationCall {
    /// A generation names its operation. Idempotent; an operation has one generation for ever.
    Named {
        /// Whose it is.
        identity: Identity,
        /// The provider's id.
        operation_id: String,
    },
    /// A verified callback came. Where its operation is not known yet it is parked. Idempotent by the event's id.
    Called {
        /// What it says.
        event: CallbackEvent,
    },
}

/// What the tenant knows of an operation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperationReply {
    /// Its generation; none while a callback waits for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub identity: Option<Identity>,
    /// Callbacks that waited for the operation.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub callbacks: Vec<CallbackEvent>,
}

/// What one sweep of a tenant did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Swept {
    /// Generations of overdue holds that were asked, and answered.
    pub holds_asked: u32,
    /// Generations that did not answer: they are asked again.
    pub holds_failed: u32,
    /// More holds are overdue; the tenant's own alarm goes on with them.
    pub holds_left: bool,
}
