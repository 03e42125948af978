//! Calls to the DirectoryObject, and its answers.

use crate::ids::TenantId;
use crate::time::UnixMillis;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A call to the DirectoryObject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum DirectoryCall {
    /// A tenant is about to be created. The first entry stands.
    Add {
        /// Which.
        tenant: TenantId,
        /// When.
        created_at: UnixMillis,
    },
    /// Tenants in the order of their ids.
    List {
        /// From behind this one.
        after: Option<TenantId>,
        /// At most so many.
        limit: u32,
    },
    /// Tenants from where the walk of the sweep stands.
    SweepNext {
        /// At most so many.
        limit: u32,
    },
    /// The sweep has come so far; the next one goes on behind it.
    SweptTo {
        /// The last tenant; none at the end of the directory: the next walk begins anew.
        tenant: Option<TenantId>,
    },
}

/// The answer of the DirectoryObject.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum DirectoryReply {
    /// The tenant has its entry.
    Added,
    /// Tenants.
    Tenants {
        /// In the order of their ids.
        tenants: Vec<DirectoryEntry>,
    },
    /// The place of the walk is stored.
    Noted,
}

/// One tenant of the directory.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct DirectoryEntry {
    /// Which.
    pub id: TenantId,
    /// When it was entered.
    pub created_at: UnixMillis,
}
