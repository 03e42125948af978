//! A tenant's route: which requests it takes, and what happens to them.

use super::{EDGE_DETACH_CEILING_MS, OnDisconnect, OnExpiry, OnInterruption, Owner, SlotOnExpiry};
use crate::config::{Facts, Mismatch};
use crate::economics::{Artifact, PerMille, Workload};
use crate::glob::glob_matches;
use crate::money::Micros;
use crate::refusal::Refusal;
use alloc::collections::BTreeMap;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Which requests a route takes. Every part that is given must match; absent parts match everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct RouteMatch {
    /// Exact request path.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub path: Option<String>,
    /// Model name or glob: `*` stands for any run of characters.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 256)))]
    pub model: Option<String>,
    /// Request headers (lower-case `x-…` names) and their exact values.
    #[serde(skip_serializing_if = "BTreeMap::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("maxProperties" = 16)))]
    pub header: BTreeMap<String, String>,
    /// The kind of work that the request names with `Holdfast-Workload`. A request that names none does not match.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
}

impl RouteMatch {
    /// The first part that a request does not meet, in the order of the members; `None` when it matches.
    #[must_use]
    pub fn mismatch(&self, request: &Facts<'_>) -> Option<Mismatch> {
        if let Some(wanted) = self.path.as_deref().filter(|wanted| *wanted != request.path) {
            return Some(Mismatch::Path { wanted: wanted.into(), found: request.path.into() });
        }
        if let Some(glob) = self.model.as_deref().filter(|glob| !glob_matches(glob, request.model)) {
            return Some(Mismatch::Model { wanted: glob.into(), found: request.model.into() });
        }
        if let Some((name, wanted)) = self.header.iter().find(|(name, value)| request.headers.get(*name) != Some(value))
        {
            let found = request.headers.get(name).cloned();
            return Some(Mismatch::Header { name: name.clone(), wanted: wanted.clone(), found });
        }
        let wanted = self.workload.filter(|wanted| Some(*wanted) != request.workload)?;
        Some(Mismatch::Workload { wanted, found: request.workload })
    }

    /// Whether every request that `other` matches is matched here too.
    #[must_use]
    pub fn covers(&self, other: &Self) -> bool {
        let path = self.path.is_none() || self.path == other.path;
        // A glob takes the other's text, stars included, only where its own stars stand for the other's.
        let other_model = other.model.as_deref().unwrap_or("*");
        let model = self.model.as_deref().is_none_or(|glob| glob_matches(glob, other_model));
        let header = self.header.iter().all(|(name, value)| other.header.get(name) == Some(value));
        let workload = self.workload.is_none() || self.workload == other.workload;
        path && model && header && workload
    }
}

/// What the deadline of an unresolved reservation does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(default, deny_unknown_fields)]
pub struct Expiry {
    /// To the credit. When absent, what can be proved decides: settled at an upper bound where the work died with its
    /// connection, kept otherwise.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub credit: Option<OnExpiry>,
    /// To the concurrency slot, when the credit is kept.
    pub slot: SlotOnExpiry,
}

/// A tenant's rule, as configured. What is left out follows from `workload`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[serde(deny_unknown_fields)]
pub struct Route {
    /// Name in reports and in the generation; each name once.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub name: String,
    /// Name of the provider that serves it.
    #[cfg_attr(feature = "schema", schemars(length(min = 1, max = 64)))]
    pub provider: String,
    /// Which requests it takes; all when absent.
    #[serde(default, rename = "match")]
    pub matches: RouteMatch,
    /// What kind of work it does: decides about what is left out below. `match.workload` when absent, else `chat`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Who reads from the provider.
    #[serde(default)]
    pub owner: Owner,
    /// What a disconnect of the last reader does.
    #[serde(default)]
    pub on_disconnect: OnDisconnect,
    /// Whether a request may choose for itself with `Holdfast-On-Disconnect`.
    #[serde(default = "yes")]
    pub allow_override: bool,
    /// Policy `cancel`, and `auto` where it cancels: how long a reader may be away, in milliseconds. When absent: 60000 for `batch`, else 0; owner
    /// `edge` has none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 3_600_000)))]
    pub grace_ms: Option<u64>,
    /// Upper limit for the output of one choice; a request's own limit is lowered to it.
    #[serde(default = "default_max_output_tokens")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 1_000_000_000)))]
    pub max_output_tokens: u64,
    /// Whether the proxy asks the provider for usage where the client did not.
    #[serde(default = "yes")]
    pub include_usage: bool,
    /// Whether the output of a cancelled generation stays readable.
    #[serde(default = "yes")]
    pub keep_partial: bool,
    /// How long a driver may be silent before it counts as lost, in milliseconds. 120000 when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1_000, max = 3_600_000)))]
    pub lease_ms: Option<u64>,
    /// From submission to the provider's first byte, in milliseconds. When absent: 300000 for `batch`, else 60000, and
    /// never more than `total_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 86_400_000)))]
    pub first_byte_ms: Option<u64>,
    /// Between two bytes of the provider, in milliseconds. When absent: 120000 for `batch`, else 60000, and never more
    /// than `total_ms`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 86_400_000)))]
    pub idle_ms: Option<u64>,
    /// From submission to the end, in milliseconds. When absent: 1800000 for `batch`, else 600000.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 86_400_000)))]
    pub total_ms: Option<u64>,
    /// How long to watch for evidence after a driver was lost, before `on_expiry` decides, in milliseconds. When absent:
    /// `total_ms` for an operation that runs in the background at its provider, else 0.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 604_800_000)))]
    pub observation_ms: Option<u64>,
    /// `on_expiry.credit` `expire_and_watch`: how long the provider is still asked, in milliseconds. 3600000 when
    /// absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 604_800_000)))]
    pub watch_ms: Option<u64>,
    /// How long a generation of this route normally takes, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 86_400_000)))]
    pub expected_ms: Option<u64>,
    /// What the deadline of an unresolved reservation does.
    #[serde(default)]
    pub on_expiry: Expiry,
    /// What a lost driver means where the provider cannot resume, or a call that got no answer. `retry` says that the call
    /// may be repeated as long as nothing of an answer was stored or shown: three attempts at most, each held for.
    #[serde(default)]
    pub on_interruption: OnInterruption,
    /// A hold above this is never resolved by a rule alone when its outcome is open, in micro-USD.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub escalate_above_micros: Option<Micros>,
    /// How long stored output is kept after the end, in seconds. When absent: 604800 for `batch`, else 86400.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(max = 31_536_000)))]
    pub retention_s: Option<u64>,
    /// What it makes: three properties that say whether an answer that nobody waits for is worth finishing.
    #[serde(default)]
    pub artifact: Artifact,
    /// Policy `auto`: in how many of a thousand cases users ask again after a cancelled answer, until enough was measured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub re_ask_prior_per_mille: Option<PerMille>,
    /// Policy `auto`: what a minute of a user's time is worth, in micro-USD. It adds the time that a user loses who has to
    /// ask again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_minute_micros: Option<Micros>,
    /// Generations of this route that may hold a concurrency slot at once; the tenant's limit holds besides.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[cfg_attr(feature = "schema", schemars(range(min = 1, max = 100_000)))]
    pub concurrency: Option<u32>,
    /// Switches requests that can to background operations of the provider, so that a crash or a deploy costs nothing: the
    /// work goes on there, and its stream is taken up again. Streaming requests to a provider of dialect
    /// `openai-responses` that do not say `background` themselves, and do not say `store` `false`. Owner `object` only.
    #[serde(default)]
    pub background: bool,
}

fn yes() -> bool {
    true
}
fn default_max_output_tokens() -> u64 {
    4_096
}

/// How long the provider is still asked after an expiry, where the route wants that and does not say how long.
const WATCH_DEFAULT_MS: u64 = 3_600_000;

/// What a kind of work has where its route says nothing. The disconnect policy is not among it: where nobody has chosen,
/// `cancel` (seed 4).
struct Preset {
    grace_ms: u64,
    lease_ms: u64,
    first_byte_ms: u64,
    idle_ms: u64,
    total_ms: u64,
    retention_s: u64,
}

/// Seed 1: "A disconnected interactive chat request may call for a different cancellation threshold than a long-running
/// batch job whose completed result remains useful." Nobody watches a batch job: it may be silent for longer, a cut
/// connection does not end it at once, and its result waits a week.
const fn preset(workload: Workload) -> Preset {
    match workload {
        Workload::Chat | Workload::Agentic => Preset {
            grace_ms: 0,
            lease_ms: 120_000,
            first_byte_ms: 60_000,
            idle_ms: 60_000,
            total_ms: 600_000,
            retention_s: 86_400,
        },
        Workload::Batch => Preset {
            grace_ms: 60_000,
            lease_ms: 120_000,
            first_byte_ms: 300_000,
            idle_ms: 120_000,
            total_ms: 1_800_000,
            retention_s: 604_800,
        },
    }
}

/// What a route does, with everything that it leaves out filled in. Members as in [`Route`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Policies {
    /// See [`Route::workload`].
    pub workload: Workload,
    /// See [`Route::owner`].
    pub owner: Owner,
    /// See [`Route::on_disconnect`].
    pub on_disconnect: OnDisconnect,
    /// See [`Route::allow_override`].
    pub allow_override: bool,
    /// See [`Route::grace_ms`].
    pub grace_ms: u64,
    /// See [`Route::max_output_tokens`].
    pub max_output_tokens: u64,
    /// See [`Route::include_usage`].
    pub include_usage: bool,
    /// See [`Route::keep_partial`].
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
    /// See [`Route::watch_ms`].
    pub watch_ms: u64,
    /// See [`Route::expected_ms`].
    pub expected_ms: Option<u64>,
    /// See [`Route::on_expiry`].
    pub on_expiry: Expiry,
    /// See [`Route::on_interruption`].
    pub on_interruption: OnInterruption,
    /// See [`Route::escalate_above_micros`].
    pub escalate_above_micros: Option<Micros>,
    /// See [`Route::retention_s`].
    pub retention_s: u64,
    /// See [`Route::artifact`]. `long` follows from `expected_ms` where the route does not say it.
    pub artifact: Artifact,
    /// See [`Route::re_ask_prior_per_mille`].
    pub re_ask_prior_per_mille: Option<PerMille>,
    /// See [`Route::user_minute_micros`].
    pub user_minute_micros: Option<Micros>,
    /// See [`Route::concurrency`].
    pub concurrency: Option<u32>,
    /// See [`Route::background`].
    #[serde(default)]
    pub background: bool,
}

impl Route {
    /// The kind of work it does.
    #[must_use]
    pub fn workload(&self) -> Workload {
        self.workload.or(self.matches.workload).unwrap_or_default()
    }

    /// What it does, with everything that it leaves out filled in.
    #[must_use]
    pub fn policies(&self) -> Policies {
        let workload = self.workload();
        let preset = preset(workload);
        let total_ms = self.total_ms.unwrap_or(preset.total_ms);
        let watches = self.on_expiry.credit == Some(OnExpiry::ExpireAndWatch);
        Policies {
            workload,
            owner: self.owner,
            on_disconnect: self.on_disconnect,
            allow_override: self.allow_override,
            grace_ms: match self.owner {
                Owner::Edge => 0,
                Owner::Object => self.grace_ms.unwrap_or(preset.grace_ms),
            },
            max_output_tokens: self.max_output_tokens,
            include_usage: self.include_usage,
            keep_partial: self.keep_partial,
            lease_ms: self.lease_ms.unwrap_or(preset.lease_ms),
            first_byte_ms: self.first_byte_ms.unwrap_or_else(|| preset.first_byte_ms.min(total_ms)),
            idle_ms: self.idle_ms.unwrap_or_else(|| preset.idle_ms.min(total_ms)),
            total_ms,
            observation_ms: self.observation_ms.unwrap_or(if self.background { total_ms } else { 0 }),
            watch_ms: self.watch_ms.unwrap_or(if watches { WATCH_DEFAULT_MS } else { 0 }),
            expected_ms: self.expected_ms,
            on_expiry: self.on_expiry,
            on_interruption: self.on_interruption,
            escalate_above_micros: self.escalate_above_micros,
            retention_s: self.retention_s.unwrap_or(preset.retention_s),
            artifact: self.artifact.or_expected(workload, self.expected_ms),
            re_ask_prior_per_mille: self.re_ask_prior_per_mille,
            user_minute_micros: self.user_minute_micros,
            concurrency: self.concurrency,
            background: self.background,
        }
    }
}

impl Policies {
    /// Whether a generation may go on after its last reader has left: by the route's own choice or a request's.
    #[must_use]
    pub fn may_detach(&self) -> bool {
        self.on_disconnect != OnDisconnect::Cancel || self.allow_override
    }

    /// Whether the platform may end the work before the route does.
    #[must_use]
    pub fn is_above_edge_ceiling(&self) -> bool {
        self.owner == Owner::Edge && self.may_detach() && self.total_ms > EDGE_DETACH_CEILING_MS
    }
}

/// The disconnect policy that counts for a request.
///
/// # Errors
/// [`Refusal::OverrideNotAllowed`] when the request wants another one than the route has, and may not.
pub fn resolve_on_disconnect(policies: &Policies, wanted: Option<OnDisconnect>) -> Result<OnDisconnect, Refusal> {
    match wanted {
        None => Ok(policies.on_disconnect),
        Some(wanted) if wanted == policies.on_disconnect || policies.allow_override => Ok(wanted),
        Some(_) => Err(Refusal::OverrideNotAllowed),
    }
}
