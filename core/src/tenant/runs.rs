//! The recent runs of a route: what its re-ask rate, its expectations and its policy report are made of. A row keeps no
//! prompt, no output and no name: a keyed signature, a keyed hash, counts and times.

use super::Admit;
use crate::economics::{
    AutoTerms, Departure, ExpectedFrom, Fingerprint, RE_ASK_WINDOW_MS, ReAskRate, Run, SAMPLES_MIN, UserTime,
    estimated_tokens, fingerprint, re_ask_rate,
};
use crate::ids::{GenerationId, TenantId, to_hex};
use crate::key::{derived_key, hmac_sha256};
use crate::policy::{OnDisconnect, Policies, Terms};
use crate::reservation::{Lifecycle, RunEnd};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Runs that are kept of one route, the latest ones: [`re_ask_rate`] grows with the square of their number.
pub const RUNS_MAX: u32 = 500;

/// For so long a run is kept: a week has both working days and a weekend.
pub const RUNS_KEPT_MS: u64 = 7 * 86_400_000;

/// A route is measured anew when the last measurement is so old. Admissions in between use that one.
pub const MEASURED_FOR_MS: u64 = 60_000;

/// Length of the hash of a client: enough to tell a tenant's users apart.
const CLIENT_BYTES: usize = 16;

/// What the edge tells of a run at admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunStart {
    /// Keyed hash of who asks.
    pub client: String,
    /// Keyed signature of what is asked.
    pub fingerprint: Fingerprint,
}

/// What the keys are for that runs are told by.
const PURPOSE: &str = "holdfast/runs/1";

impl RunStart {
    /// Who asks what, in hashes that only this tenant's others can be compared with, and only by whoever has the pepper.
    ///
    /// `asker` is the client's name for its user, or what else tells the tenant's users apart.
    #[must_use]
    pub fn of(pepper: &[u8], tenant: &TenantId, asker: &str, question: &str) -> Self {
        let key = derived_key(pepper, PURPOSE, tenant);
        let client = hmac_sha256(&key, &[b"client", asker.as_bytes()]);
        Self {
            client: to_hex(client.get(..CLIENT_BYTES).unwrap_or_default()),
            fingerprint: fingerprint(&key, question),
        }
    }
}

/// One run of a route, as stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunRow {
    /// Which run.
    pub generation: GenerationId,
    /// Its route.
    pub route: String,
    /// The policy it was admitted under.
    pub on_disconnect: OnDisconnect,
    /// See [`RunStart::client`].
    pub client: String,
    /// See [`RunStart::fingerprint`].
    pub fingerprint: Fingerprint,
    /// When it was admitted.
    pub started_at: UnixMillis,
    /// How it ended, once that is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub end: Option<Box<RunEnd>>,
    /// When the result was first read after the end.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub read_at: Option<UnixMillis>,
}

impl RunRow {
    /// The row of an admitted run; none where the edge told nothing of it.
    pub(super) fn admitted(admit: &Admit, terms: &Terms, now: UnixMillis) -> Option<Self> {
        let RunStart { client, fingerprint } = admit.run.clone()?;
        Some(Self {
            generation: admit.identity.generation.clone(),
            route: terms.route.clone(),
            on_disconnect: terms.on_disconnect,
            client,
            fingerprint,
            started_at: now,
            end: None,
            read_at: None,
        })
    }

    /// The row after an end was told. A later word of the same run knows more: its usage may be corrected.
    #[must_use]
    pub fn ended(self, end: RunEnd) -> Self {
        Self { end: Some(Box::new(end)), ..self }
    }

    /// The row after its result was read; the first time stands.
    #[must_use]
    pub fn read(self, now: UnixMillis) -> Self {
        Self { read_at: self.read_at.or(Some(now)), ..self }
    }

    /// How the departure of its readers ended it, with what became known since.
    #[must_use]
    pub fn departure(&self) -> Option<Departure> {
        let departure = self.end.as_ref()?.departure?;
        Some(match departure {
            Departure::Detached { finished_at, read_later } => {
                Departure::Detached { finished_at, read_later: read_later || self.read_at.is_some() }
            }
            cancelled @ Departure::Cancelled { .. } => cancelled,
        })
    }

    /// The run as the re-ask rate sees it.
    #[must_use]
    pub fn run(&self) -> Run {
        Run {
            client: self.client.clone(),
            fingerprint: self.fingerprint.clone(),
            started_at: self.started_at,
            departure: self.departure(),
        }
    }

    /// Whether `later` is the same question of the same client again, soon after (seed 4: "two generations with
    /// near-identical prompts inside ten minutes"), whatever became of this run.
    pub(super) fn is_repeated_by(&self, later: &Self) -> bool {
        self.started_at < later.started_at
            && later.started_at.since(self.started_at) < RE_ASK_WINDOW_MS
            && self.client == later.client
            && self.fingerprint.is_near_identical(&later.fingerprint)
    }

    /// Output tokens and duration, where it completed and the provider has counted.
    fn whole(&self) -> Option<(u64, u64)> {
        let end = self.end.as_ref().filter(|end| end.lifecycle == Lifecycle::Completed)?;
        match end.usage? {
            Metered::Exact(usage) => Some((usage.output_tokens, end.ended_at.since(self.started_at))),
            Metered::AtLeast(_) => None,
        }
    }
}

/// What a route's recent runs come to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteMeasures {
    /// When they were looked at.
    pub measured_at: UnixMillis,
    /// How often users asked again.
    pub re_ask: ReAskRate,
    /// Runs that completed with the provider's own count.
    pub completed: u32,
    /// Mean output of these, in tokens, rounded up; zero without any.
    pub output_tokens: u64,
    /// Mean duration of these from admission to the end, in milliseconds, rounded up; zero without any.
    pub duration_ms: u64,
}

impl RouteMeasures {
    /// Whether a new measurement is due.
    #[must_use]
    pub fn is_stale(&self, now: UnixMillis) -> bool {
        now.since(self.measured_at) >= MEASURED_FOR_MS
    }

    /// Means of fewer runs say little: as with the re-ask rate, fewer than [`SAMPLES_MIN`] do not count.
    fn means(&self) -> Option<(u64, u64)> {
        (self.completed >= SAMPLES_MIN).then_some((self.output_tokens, self.duration_ms))
    }
}

/// Measures a route by its recent runs, in any order. The work grows with the square of their number: at most
/// [`RUNS_MAX`].
#[must_use]
pub fn measure(rows: &[RunRow], now: UnixMillis) -> RouteMeasures {
    let runs: Vec<Run> = rows.iter().map(RunRow::run).collect();
    let whole = rows.iter().filter_map(RunRow::whole);
    let (completed, tokens, ms) = whole.fold((0_u32, 0_u64, 0_u64), |(count, tokens, ms), (more, longer)| {
        (count.saturating_add(1), tokens.saturating_add(more), ms.saturating_add(longer))
    });
    let mean = |sum: u64| if completed == 0 { 0 } else { sum.div_ceil(u64::from(completed)) };
    RouteMeasures {
        measured_at: now,
        re_ask: re_ask_rate(&runs, now),
        completed,
        output_tokens: mean(tokens),
        duration_ms: mean(ms),
    }
}

/// What is pinned for a decision at the disconnect.
///
/// The time that a user loses who has to ask again is that of a whole run: as measured, or as the route expects it.
/// Without either it is not known, and counts for nothing.
#[must_use]
pub fn auto_terms(
    policies: &Policies,
    body_bytes: u64,
    output_bound_tokens: u64,
    measures: Option<&RouteMeasures>,
) -> AutoTerms {
    let means = measures.and_then(RouteMeasures::means);
    let lost_ms = means.map(|(_, duration_ms)| duration_ms).or(policies.expected_ms);
    let user_time = policies.user_minute_micros.zip(lost_ms);
    let (expected_output_tokens, expected_from) = match means {
        Some((output_tokens, _)) => (output_tokens.min(output_bound_tokens), ExpectedFrom::Measured),
        None => (output_bound_tokens, ExpectedFrom::OutputLimit),
    };
    AutoTerms {
        artifact: policies.artifact,
        measured: measures.map(|measures| measures.re_ask).unwrap_or_default(),
        prior_per_mille: policies.re_ask_prior_per_mille,
        user_time: user_time.map(|(minute_micros, lost_ms)| UserTime { minute_micros, lost_ms }),
        input_tokens: estimated_tokens(body_bytes),
        expected_output_tokens,
        expected_from,
    }
}
