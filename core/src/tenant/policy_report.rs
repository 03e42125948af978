//! Which disconnect policy a route's own numbers speak for (seed 4: "the policy belongs to the route"), and the signals by
//! which a policy that fails is seen ("The shape each policy leaves on a dashboard").
//!
//! Each disconnect is priced under both policies by the module [`crate::economics`], at the rate that is known *now*: what
//! the generation was admitted with may be a prior that has been measured since. Where there is no rate, what cancelling
//! costs is not known, and the disconnect is left out of the sums, so that they compare the same disconnects.

use super::runs::{RUNS_KEPT_MS, RunRow, measure};
use crate::config::ROUTES_MAX;
use crate::economics::{AutoDecision, AutoInputs, AutoRule, Choice, Departure, ReAskRate, SAMPLES_MIN};
use crate::money::Micros;
use crate::policy::OnDisconnect;
use crate::reservation::{Lifecycle, RunEnd};
use crate::time::UnixMillis;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// `auto` is recommended where it would have cost at most so many tenths of the better fixed policy: a policy that always
/// does the same is easier to foresee.
const AUTO_TENTHS: u64 = 9;

/// What the disconnects would have cost.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PolicyCosts {
    /// Disconnects that are summed here: those with a price under either policy.
    pub disconnects: u64,
    /// Disconnects without one: there is no re-ask rate, or an amount is out of range.
    pub unpriced: u64,
    /// Under `cancel`: the expected price of the runs that users ask for again, and of their time.
    pub cancel_micros: Micros,
    /// Under `detach`: the price of the output that was still to come.
    pub detach_micros: Micros,
    /// Under `auto`: the one or the other, by its rules.
    pub auto_micros: Micros,
}

/// What `auto` decided, or would have decided, at the disconnects: as stored then.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Decisions {
    /// Disconnects at which `auto` was the policy.
    pub applied: u64,
    /// Disconnects under a fixed policy: what `auto` would have done was only recorded.
    pub recorded: u64,
    /// How many were decided by which rule.
    pub by_rule: BTreeMap<AutoRule, u64>,
    /// How many came out as `cancel`.
    pub cancel: u64,
    /// How many came out as `detach`.
    pub detach: u64,
}

/// What was done at the disconnects that ended a generation's reading.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Departures {
    /// The generation was cancelled.
    pub cancelled: u64,
    /// It went on to its end.
    pub detached: u64,
}

/// The tell of `cancel`: "the ratio of billed to delivered output tokens. A working policy sits a few percent above 1.0".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CancelSignals {
    /// Runs that are billed and did not go on without readers.
    pub runs: u64,
    /// Output tokens that they were billed for.
    pub billed_output_tokens: u64,
    /// Output tokens that readers were given, in the same measure.
    pub delivered_output_tokens: u64,
    /// The first by the second, in thousandths; absent where nothing was delivered.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub billed_per_delivered_per_mille: Option<u64>,
}

/// The tell of `detach`: "the count of detached generations that reached complete, compared against the count that
/// started detaching. A gap there means the pump is dying with the process".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DetachSignals {
    /// Generations that went on without readers and have ended since.
    pub started: u64,
    /// Those of them that completed.
    pub completed: u64,
    /// Those of the completed ones that somebody came back for.
    pub read: u64,
}

/// "The second signal is generations started per session: … users would be re-running".
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ClientSignals {
    /// Clients that were told apart.
    pub clients: u64,
    /// Generations by client, in thousandths; absent without any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generations_per_client_per_mille: Option<u64>,
    /// Generations that ask what the same client asked within ten minutes before.
    pub re_runs: u64,
    /// Those of them that follow a generation which went on without readers.
    pub re_runs_after_detach: u64,
}

/// Which policy the numbers speak for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Recommendation {
    /// The policy; absent where nothing speaks for any.
    pub policy: Option<OnDisconnect>,
    /// Why.
    pub why: RecommendedBy,
}

/// Why a policy is recommended: the first that applies.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum RecommendedBy {
    /// Nobody has left.
    NoDisconnects,
    /// None of the artifact's three properties holds: cancel.
    NoneHolds,
    /// The result has no home: cancel.
    NoHome,
    /// The answer is short and cheap to ask for again: cancel.
    ShortAndReproducible,
    /// All three properties hold: detach.
    AllHold,
    /// There is no re-ask rate, neither measured nor given: cancel.
    NoEstimate,
    /// Deciding each time would have cost clearly less than either fixed policy.
    DependsOnTheMoment,
    /// Cancelling would have cost less, or as much.
    CancelIsCheaper,
    /// Finishing would have cost less.
    DetachIsCheaper,
}

/// The report of one route.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RoutePolicy {
    /// The route.
    pub route: String,
    /// The policies that its runs were admitted under.
    pub policies: BTreeSet<OnDisconnect>,
    /// Runs in the window.
    pub generations: u64,
    /// The first of them.
    pub from: Option<UnixMillis>,
    /// Times that a last reader left, in runs that have ended.
    pub disconnects: u64,
    /// What was done when readers did not come back.
    pub departures: Departures,
    /// What `auto` makes of the last disconnect of each run.
    pub decisions: Decisions,
    /// What these disconnects would have cost.
    pub costs: PolicyCosts,
    /// How often users come back, over all the runs that are kept.
    pub re_ask: ReAskRate,
    /// There are enough samples for it to count.
    pub re_ask_counts: bool,
    /// Whether `cancel` stops the bill.
    pub cancel: CancelSignals,
    /// Whether `detach` reaches the end.
    pub detach: DetachSignals,
    /// Whether users ask again.
    pub clients: ClientSignals,
    /// Which policy all this speaks for.
    pub recommendation: Recommendation,
}

/// The answer of `GET /v1/policy`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PolicyReport {
    /// `policy_report`.
    pub object: String,
    /// Runs that were admitted from here on are counted.
    pub from: UnixMillis,
    /// Until now.
    pub to: UnixMillis,
    /// A report for each route that ran, by name.
    pub routes: Vec<RoutePolicy>,
    /// Whether these are all. More than [`ROUTES_MAX`] can have run where routes were renamed: the report is then of those
    /// that ran last.
    #[serde(default)]
    pub complete: bool,
}

impl PolicyReport {
    /// An empty report over the last `window_ms`; runs are kept no longer than [`RUNS_KEPT_MS`].
    #[must_use]
    pub fn over(window_ms: u64, now: UnixMillis) -> Self {
        let from = UnixMillis(now.0.saturating_sub(window_ms.min(RUNS_KEPT_MS)));
        Self { object: "policy_report".into(), from, to: now, routes: Vec::new(), complete: true }
    }

    /// Which routes it is of, by name, out of those with kept runs, the last one first: at most [`ROUTES_MAX`]. It notes
    /// whether these are all.
    #[must_use]
    pub fn chosen(&mut self, latest_first: Vec<String>) -> Vec<String> {
        let most = usize::try_from(ROUTES_MAX).unwrap_or(usize::MAX);
        self.complete = latest_first.len() <= most;
        let mut names = latest_first;
        names.truncate(most);
        names.sort_unstable();
        names
    }
}

/// The report of the route whose kept runs these are, in any order, over those that were admitted from `from` on.
#[must_use]
pub fn route_policy(route: &str, rows: &[RunRow], from: UnixMillis, now: UnixMillis) -> RoutePolicy {
    let re_ask = measure(rows, now).re_ask;
    let within: Vec<&RunRow> = rows.iter().filter(|row| row.started_at >= from).collect();
    let ends: Vec<&RunEnd> = within.iter().filter_map(|row| row.end.as_deref()).collect();
    let costs = costs_of(&ends, re_ask);
    RoutePolicy {
        route: route.into(),
        policies: within.iter().map(|row| row.on_disconnect).collect(),
        generations: count(within.len()),
        from: within.iter().map(|row| row.started_at).min(),
        disconnects: ends.iter().map(|end| u64::from(end.disconnects)).sum(),
        departures: departures_of(&within),
        decisions: decisions_of(&ends),
        costs,
        re_ask,
        re_ask_counts: re_ask.samples >= SAMPLES_MIN,
        cancel: cancel_signals(&ends),
        detach: detach_signals(&within),
        clients: client_signals(&within, rows),
        recommendation: recommend(&within, &costs),
    }
}

fn count(number: usize) -> u64 {
    u64::try_from(number).unwrap_or(u64::MAX)
}

fn departures_of(rows: &[&RunRow]) -> Departures {
    let mut departures = Departures::default();
    for departure in rows.iter().filter_map(|row| row.departure()) {
        match departure {
            Departure::Cancelled { .. } => departures.cancelled = departures.cancelled.saturating_add(1),
            Departure::Detached { .. } => departures.detached = departures.detached.saturating_add(1),
        }
    }
    departures
}

fn decisions_of(ends: &[&RunEnd]) -> Decisions {
    let mut decisions = Decisions::default();
    for assessment in ends.iter().filter_map(|end| end.assessment.as_ref()) {
        let AutoDecision { why, choice, .. } = assessment.decision;
        let policy = if assessment.applied { &mut decisions.applied } else { &mut decisions.recorded };
        *policy = policy.saturating_add(1);
        let chosen = match choice {
            Choice::Cancel => &mut decisions.cancel,
            Choice::Detach => &mut decisions.detach,
        };
        *chosen = chosen.saturating_add(1);
        let rule = decisions.by_rule.entry(why).or_default();
        *rule = rule.saturating_add(1);
    }
    decisions
}

fn costs_of(ends: &[&RunEnd], re_ask: ReAskRate) -> PolicyCosts {
    let mut costs = PolicyCosts::default();
    for assessment in ends.iter().filter_map(|end| end.assessment.as_ref()) {
        let inputs = known_now(&assessment.decision.inputs, re_ask);
        let AutoDecision { choice, cost_to_finish, cost_of_cancelling, .. } = inputs.decide();
        let Some((detach, cancel)) = cost_to_finish.zip(cost_of_cancelling) else {
            costs.unpriced = costs.unpriced.saturating_add(1);
            continue;
        };
        costs.disconnects = costs.disconnects.saturating_add(1);
        costs.cancel_micros = sum(costs.cancel_micros, cancel);
        costs.detach_micros = sum(costs.detach_micros, detach);
        costs.auto_micros = sum(costs.auto_micros, if choice == Choice::Cancel { cancel } else { detach });
    }
    costs
}

/// The inputs of then, at the rate of now: once enough is measured it counts for every disconnect.
fn known_now(inputs: &AutoInputs, re_ask: ReAskRate) -> AutoInputs {
    let measured = if re_ask.samples >= SAMPLES_MIN { re_ask } else { inputs.measured };
    AutoInputs { measured, ..inputs.clone() }
}

fn sum(total: Micros, more: Micros) -> Micros {
    total.plus(more).unwrap_or(Micros::MAX)
}

fn cancel_signals(ends: &[&RunEnd]) -> CancelSignals {
    let mut signals = CancelSignals::default();
    for end in ends.iter().filter(|end| !end.went_on) {
        let Some((usage, delivered)) = end.usage.zip(end.delivered_output_tokens) else { continue };
        signals.runs = signals.runs.saturating_add(1);
        signals.billed_output_tokens = signals.billed_output_tokens.saturating_add(usage.usage().output_tokens);
        signals.delivered_output_tokens = signals.delivered_output_tokens.saturating_add(delivered);
    }
    signals.billed_per_delivered_per_mille = per_mille(signals.billed_output_tokens, signals.delivered_output_tokens);
    signals
}

fn per_mille(part: u64, whole: u64) -> Option<u64> {
    let ratio = u128::from(part).saturating_mul(1_000).checked_div(u128::from(whole))?;
    u64::try_from(ratio).ok()
}

fn detach_signals(rows: &[&RunRow]) -> DetachSignals {
    let mut signals = DetachSignals::default();
    for row in rows {
        let Some(end) = row.end.as_ref().filter(|end| end.went_on) else { continue };
        let read = matches!(row.departure(), Some(Departure::Detached { read_later: true, .. }));
        signals.started = signals.started.saturating_add(1);
        signals.completed = signals.completed.saturating_add(u64::from(end.lifecycle == Lifecycle::Completed));
        signals.read = signals.read.saturating_add(u64::from(read));
    }
    signals
}

/// A generation follows another one of the window or of the time before it.
fn client_signals(within: &[&RunRow], kept: &[RunRow]) -> ClientSignals {
    let clients = count(within.iter().map(|row| row.client.as_str()).collect::<BTreeSet<_>>().len());
    let went_on = |row: &RunRow| row.end.as_ref().is_some_and(|end| end.went_on);
    let follows = |later: &&&RunRow| kept.iter().any(|earlier| earlier.is_repeated_by(later));
    let follows_detached =
        |later: &&&RunRow| kept.iter().any(|earlier| went_on(earlier) && earlier.is_repeated_by(later));
    ClientSignals {
        clients,
        generations_per_client_per_mille: per_mille(count(within.len()), clients),
        re_runs: count(within.iter().filter(follows).count()),
        re_runs_after_detach: count(within.iter().filter(follows_detached).count()),
    }
}

/// The artifact is that of the latest disconnect: the route may have been described anew.
fn recommend(rows: &[&RunRow], costs: &PolicyCosts) -> Recommendation {
    use RecommendedBy as By;
    let assessed = rows.iter().filter_map(|row| row.end.as_ref()?.assessment.as_ref());
    let Some(latest) = assessed.max_by_key(|assessment| assessment.at) else {
        return Recommendation { policy: None, why: By::NoDisconnects };
    };
    let artifact = latest.decision.inputs.artifact;
    let best = costs.cancel_micros.min(costs.detach_micros);
    // Both are below 2^53.
    let tenths = |amount: Micros, tenths: u64| amount.get().saturating_mul(tenths);
    let auto_is_better = best > Micros::ZERO && tenths(costs.auto_micros, 10) <= tenths(best, AUTO_TENTHS);
    let (policy, why) = if artifact.none_holds() {
        (OnDisconnect::Cancel, By::NoneHolds)
    } else if artifact.has_home == Some(false) {
        (OnDisconnect::Cancel, By::NoHome)
    } else if artifact.is_short_and_reproducible() {
        (OnDisconnect::Cancel, By::ShortAndReproducible)
    } else if artifact.all_hold() {
        (OnDisconnect::Detach, By::AllHold)
    } else if costs.disconnects == 0 {
        (OnDisconnect::Cancel, By::NoEstimate)
    } else if auto_is_better {
        (OnDisconnect::Auto, By::DependsOnTheMoment)
    } else if costs.detach_micros < costs.cancel_micros {
        (OnDisconnect::Detach, By::DetachIsCheaper)
    } else {
        (OnDisconnect::Cancel, By::CancelIsCheaper)
    };
    Recommendation { policy: Some(policy), why }
}
