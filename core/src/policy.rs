//! Routes: which requests they match and which policies apply; and [`Terms`], what a generation was admitted under.

use crate::capability::Capabilities;
use crate::dialect::Dialect;
use crate::economics::{Artifact, AutoTerms, PerMille, Workload};
use crate::glob::glob_matches;
use crate::money::Micros;
use crate::pricing::ModelPrice;
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What happens to the generation when its last reader is gone (seed 4).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
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

/// Which requests a route matches. Absent parts match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct RouteMatch {
    /// Exact request path.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub path: Option<String>,
    /// Model name or glob.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// Request headers (lower-case `x-…` names) and their exact values.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub header: BTreeMap<String, String>,
}

impl RouteMatch {
    /// Whether a request with these facts is matched.
    #[must_use]
    pub fn matches(&self, path: &str, model: &str, headers: &BTreeMap<String, String>) -> bool {
        self.path.as_deref().is_none_or(|wanted| wanted == path)
            && self.model.as_deref().is_none_or(|glob| glob_matches(glob, model))
            && self.header.iter().all(|(name, value)| headers.get(name) == Some(value))
    }
}

/// A tenant's rule, as configured. Times in milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Name in reports and in the generation.
    pub name: String,
    /// Name of the provider that serves it.
    pub provider: String,
    /// Which requests it takes; all when absent.
    #[serde(default, rename = "match")]
    pub matches: RouteMatch,
    /// Who reads from the provider.
    #[serde(default)]
    pub owner: Owner,
    /// What a disconnect does.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Whether a request may choose for itself with `Holdfast-On-Disconnect`.
    #[serde(default = "yes")]
    pub allow_override: bool,
    /// Policy `cancel`, and `auto` where it cancels: how long a reader may be away.
    #[serde(default)]
    pub grace_ms: u64,
    /// What it makes, by seed 4's three properties: policy `auto` decides by it.
    #[serde(default)]
    pub artifact: Artifact,
    /// What kind of work it does: presets for what the route does not say itself.
    #[serde(default)]
    pub workload: Workload,
    /// How often users ask again after a run that was cancelled, in thousandths: policy `auto` uses it until enough was
    /// measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub re_ask_prior_per_mille: Option<PerMille>,
    /// What a minute of a user's time is worth: policy `auto` adds the time that a user loses who has to ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_minute_micros: Option<Micros>,
    /// How long a generation of this route normally takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_ms: Option<u64>,
    /// Upper limit for the output of one choice; a request's own limit is lowered to it.
    #[serde(default = "default_max_output_tokens")]
    pub max_output_tokens: u64,
    /// Whether the proxy asks the provider for usage where the client did not.
    #[serde(default = "yes")]
    pub include_usage: bool,
    /// Whether the output of a cancelled generation stays readable.
    #[serde(default = "yes")]
    pub keep_partial: bool,
    /// How long a driver may be silent before it counts as lost.
    #[serde(default = "default_lease_ms")]
    pub lease_ms: u64,
    /// From submission to the provider's first byte.
    #[serde(default = "default_first_byte_ms")]
    pub first_byte_ms: u64,
    /// Between two bytes of the provider.
    #[serde(default = "default_idle_ms")]
    pub idle_ms: u64,
    /// From submission to the end.
    #[serde(default = "default_total_ms")]
    pub total_ms: u64,
    /// How long to watch for evidence after a driver was lost, before the hold is settled by estimate.
    #[serde(default)]
    pub observation_ms: u64,
    /// How long stored output is kept after the end, in seconds.
    #[serde(default = "default_retention_s")]
    pub retention_s: u64,
}

fn yes() -> bool {
    true
}
fn default_max_output_tokens() -> u64 {
    4_096
}
fn default_lease_ms() -> u64 {
    120_000
}
fn default_first_byte_ms() -> u64 {
    60_000
}
fn default_idle_ms() -> u64 {
    60_000
}
fn default_total_ms() -> u64 {
    600_000
}
fn default_retention_s() -> u64 {
    86_400
}

impl Route {
    /// Why this route cannot work, if so: checked when the configuration is read.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        let edge = self.owner == Owner::Edge;
        let may_detach = self.on_disconnect != OnDisconnect::Cancel || self.allow_override;
        if edge && self.grace_ms > 0 {
            Some("owner `edge` has no grace: its one client cannot come back to a running stream")
        } else if edge && may_detach && self.total_ms > EDGE_DETACH_CEILING_MS {
            Some(
                "owner `edge` may detach, but `total_ms` is above what `ctx.wait_until` carries: at most 28000, or `allow_override`: false with `cancel`",
            )
        } else if self.lease_ms < LEASE_MIN_MS {
            Some("`lease_ms` must be at least 1000: a driver shows life three times in a lease")
        } else if self.first_byte_ms == 0 || self.idle_ms == 0 || self.total_ms == 0 {
            Some("`first_byte_ms`, `idle_ms` and `total_ms` must be above zero")
        } else if self.max_output_tokens == 0 {
            Some("`max_output_tokens` must be above zero")
        } else {
            None
        }
    }
}

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
    /// What prices a disconnect. It is there under every policy: `auto` acts by the price, the others only record it, so
    /// that a tenant can see what another policy would have cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<AutoTerms>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edge_routes_must_fit_the_platform() {
        let route = |json: &str| serde_json::from_str::<Route>(json).unwrap();
        assert_eq!(route(r#"{"name":"a","provider":"p"}"#).contradiction(), None);
        assert!(route(r#"{"name":"a","provider":"p","owner":"edge"}"#).contradiction().is_some());
        assert_eq!(route(r#"{"name":"a","provider":"p","owner":"edge","allow_override":false}"#).contradiction(), None);
        assert_eq!(
            route(r#"{"name":"a","provider":"p","owner":"edge","on_disconnect":"detach","total_ms":25000}"#)
                .contradiction(),
            None
        );
        assert!(
            route(r#"{"name":"a","provider":"p","owner":"edge","total_ms":9,"grace_ms":1}"#).contradiction().is_some()
        );
        let auto = |members: &str| {
            route(&alloc::format!(
                r#"{{"name":"a","provider":"p","owner":"edge","allow_override":false,"on_disconnect":"auto"{members}}}"#
            ))
        };
        assert!(auto("").contradiction().is_some(), "`auto` may detach");
        assert_eq!(auto(r#","total_ms":25000"#).contradiction(), None);
    }
}
