//! Routes: which requests they match and which policies apply; and [`Terms`], what a generation was admitted under.

mod route;

pub use route::{Expiry, Policies, Route, RouteMatch, resolve_on_disconnect};

use crate::capability::Capabilities;
use crate::dialect::Dialect;
use crate::economics::{AutoTerms, Workload};
use crate::money::Micros;
use crate::pricing::ModelPrice;
use crate::request::Endpoint;
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What happens to the generation when its last reader is gone (seed 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(description = "What happens to the generation when its last reader is gone."))]
#[serde(rename_all = "snake_case")]
pub enum OnDisconnect {
    /// Abort upstream, after the grace time. Where nobody has chosen: a detached answer with no way back to it is
    /// paid and lost.
    #[default]
    Cancel,
    /// Go on to the end, within the caps.
    Detach,
    /// Whichever is cheaper at the moment of the disconnect: see [`crate::economics`].
    Auto,
}

/// Who reads from the provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum Owner {
    /// The ReservationObject: any length, any number of readers.
    #[default]
    Object,
    /// The Worker, under `ctx.wait_until`: short generations with one client. The platform stops such work 30 s
    /// after the client has left.
    Edge,
}

/// What happens to the credit when the deadline of an unresolved reservation is reached (seed 1, "Use Leases and
/// Deadlines to Resolve Unknown Outcomes"). Expiry does not prove that the provider stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(
    feature = "schema",
    schemars(
        description = "What happens to the credit when the deadline of an unresolved reservation is reached. Expiry does not prove that the provider stopped."
    )
)]
#[serde(rename_all = "snake_case")]
pub enum OnExpiry {
    /// The hold is kept; a late signal or an operator resolves it.
    Quarantine,
    /// The hold is reduced to what the work can have cost by the evidence, and kept.
    ReduceHold,
    /// The hold is released, and the provider is still asked for `watch_ms`; what comes late is settled late.
    ExpireAndWatch,
    /// The hold is kept, disputed, and an operator is called.
    Escalate,
    /// The hold is released.
    Release,
    /// The hold is settled at the price of an upper bound.
    SettleEstimate,
}

/// What happens to the concurrency slot when the credit is kept beyond the deadline.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum SlotOnExpiry {
    /// Kept as long as the hold: nothing is reused while an attempt may live.
    #[default]
    Quarantine,
    /// Given back at the deadline.
    Release,
}

/// What a lost driver means where the provider cannot resume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(rename_all = "snake_case")]
pub enum OnInterruption {
    /// The generation fails; the stored part stays readable.
    #[default]
    Fail,
    /// A new attempt under an extended hold: only where the route says that the call may be repeated.
    Retry,
    /// The hold is kept until somebody decides.
    Quarantine,
}

/// Attempts of one generation, the first included.
pub const ATTEMPTS_MAX: u32 = 3;

/// Longest time that `ctx.wait_until` carries work after the client has left, less a margin for the end.
pub const EDGE_DETACH_CEILING_MS: u64 = 28_000;

/// Shortest lease: below it, alarms and renewals would cost more than they find.
pub const LEASE_MIN_MS: u64 = 1_000;

/// What a generation was admitted under. A later change of configuration does not reach it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Terms {
    /// Version of the tenant's configuration that it was admitted under.
    #[serde(default)]
    pub config_version: u64,
    /// Route name.
    pub route: String,
    /// Provider name.
    pub provider: String,
    /// Provider's wire format.
    pub dialect: Dialect,
    /// Request path at the provider.
    pub path: String,
    /// Model as the client named it.
    pub model: String,
    /// Whether the answer is a stream.
    pub streaming: bool,
    /// Who reads from the provider.
    pub owner: Owner,
    /// What a disconnect does.
    pub on_disconnect: OnDisconnect,
    /// Policy `cancel`, and `auto` where it cancels: how long a reader may be away.
    pub grace_ms: u64,
    /// Whether a cancelled generation's output stays readable.
    pub keep_partial: bool,
    /// See [`Route::lease_ms`].
    pub lease_ms: u64,
    /// See [`Route::first_byte_ms`].
    pub first_byte_ms: u64,
    /// See [`Route::idle_ms`].
    pub idle_ms: u64,
    /// See [`Route::total_ms`].
    pub total_ms: u64,
    /// See [`Route::observation_ms`].
    pub observation_ms: u64,
    /// See [`Route::retention_s`].
    pub retention_s: u64,
    /// The proxy asked for usage and the client did not: the usage event is kept as evidence and left out of the log.
    pub strip_usage: bool,
    /// Output limit sent upstream, for one choice.
    pub max_output_tokens: u64,
    /// No request of this size has more input tokens: one token is at least one byte.
    pub input_bound_tokens: u64,
    /// Output limit over all choices.
    pub output_bound_tokens: u64,
    /// Price of the model, pinned.
    pub price: ModelPrice,
    /// Version of the price list it came from.
    pub price_version: String,
    /// The hold: the worst case at that price.
    pub hold: Micros,
    /// What the provider can do besides answering.
    #[serde(default)]
    pub capabilities: Capabilities,
    /// What the deadline of an unresolved hold does to the credit. Where the route has not chosen, what can be proved
    /// decides: see [`crate::reconcile`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub on_expiry: Option<OnExpiry>,
    /// What the same deadline does to the slot.
    #[serde(default)]
    pub slot_on_expiry: SlotOnExpiry,
    /// What a lost driver means.
    #[serde(default)]
    pub on_interruption: OnInterruption,
    /// A hold above this is never resolved by a rule alone when its outcome is open.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_above: Option<Micros>,
    /// How long the provider is still asked after an expiry.
    #[serde(default)]
    pub watch_ms: u64,
    /// How long a generation of this route normally takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<u64>,
    /// What kind of work the route does.
    #[serde(default)]
    pub workload: Workload,
    /// What prices a disconnect. It is there under every policy: `auto` acts by the price, the others only record it, so
    /// that a tenant can see what another policy would have cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoTerms>,
    /// The client's own headers that go to the provider, by name.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forward: BTreeMap<String, String>,
    /// The operation runs in the background at the provider: it outlives our socket to it.
    #[serde(default)]
    pub background: bool,
}

impl Terms {
    /// Whether this system may send the request again by itself: the route says so, and the work is of a kind that is
    /// repeated.
    #[must_use]
    pub fn may_repeat(&self) -> bool {
        self.on_interruption == OnInterruption::Retry && self.workload.may_repeat()
    }
}

/// What a request says about running in the background at its provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Background {
    /// It cannot, or says that it will not.
    #[default]
    Never,
    /// It leaves that to its route.
    Open,
    /// It asks for it.
    Asked,
}

impl Background {
    /// Whether it does, on a route that switches requests to it or not.
    #[must_use]
    pub const fn on_route(self, switches: bool) -> bool {
        match self {
            Self::Never => false,
            Self::Open => switches,
            Self::Asked => true,
        }
    }
}

impl Terms {
    /// The dialect that the client speaks: that of its path. A provider whose answers are not read speaks it too, and errors
    /// of ours are written in it.
    #[must_use]
    pub fn client_dialect(&self) -> Dialect {
        Endpoint::at(&self.path).map_or(self.dialect, Endpoint::dialect)
    }
}
