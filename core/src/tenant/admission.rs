//! Admission: key, idempotency, route, price, budget, slot, in this order; then the hold.

use super::account::{Account, Status};
use super::due::first_due;
use super::runs::{RouteMeasures, RunRow, RunStart, auto_terms};
use super::{Hold, HoldState, IdempotencyRow, PeriodState, PostedRows, TenantState, period_key, post};
use crate::config::{Facts, Limits, Provider, TenantConfig, provider_of};
use crate::economics::Workload;
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use crate::money::Micros;
use crate::policy::{Background, OnDisconnect, Owner, Route, Terms, resolve_on_disconnect};
use crate::refusal::Refusal;
use crate::request::Endpoint;
use crate::request::forward::forwarded;
use crate::reservation::Place;
use crate::time::UnixMillis;
use crate::token::Credential;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// A request to run: the few facts that admission needs, never the prompt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Admit {
    /// Minted at the edge. A repeated Admit with the same ids holds once.
    pub identity: Identity,
    /// Minted at the edge.
    pub attempt: AttemptId,
    /// Who asks.
    pub key: Credential,
    /// Request path, without a query.
    pub path: String,
    /// Model as the client named it.
    pub model: String,
    /// Whether the answer is a stream.
    pub streaming: bool,
    /// Whether the client asked for the usage event.
    pub include_usage: bool,
    /// The client's own output limit for one choice.
    pub max_output_tokens: Option<u64>,
    /// Choices asked for.
    pub choices: u32,
    /// Size of the request body.
    pub body_bytes: u64,
    /// Hash of path and body.
    pub fingerprint: String,
    /// The request's `x-…` headers, lower-case, without keys.
    pub headers: BTreeMap<String, String>,
    /// The client's choice of policy.
    pub on_disconnect: Option<OnDisconnect>,
    /// The client's idempotency key.
    pub idempotency_key: Option<String>,
    /// The kind of work that the client says it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub workload: Option<Workload>,
    /// Who asks what, in keyed hashes: for the re-ask rate of the route.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<RunStart>,
    /// The client's own headers that go to the provider where its dialect knows them.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    pub forward: BTreeMap<String, String>,
    /// What the request says about running in the background at its provider.
    #[serde(default)]
    pub background: Background,
}

impl Admit {
    /// The idempotency key's scope: path and key. The tenant is the object.
    #[must_use]
    pub fn idempotency_scope(&self) -> Option<String> {
        self.idempotency_key.as_ref().map(|key| format!("{} {key}", self.path))
    }
}

/// The stored rows that admission depends on.
#[derive(Clone, Copy, Debug)]
pub struct AdmitContext<'a> {
    /// Who the tenant is, and whether it may run anything.
    pub account: &'a Account,
    /// The tenant as configured.
    pub config: &'a TenantConfig,
    /// All providers.
    pub providers: &'a [Provider],
    /// Bounds.
    pub limits: &'a Limits,
    /// The tenant's row.
    pub tenant: &'a TenantState,
    /// The row of the period that `now` lies in.
    pub period: &'a PeriodState,
    /// The hold of the same generation id, if there is one.
    pub same_generation: Option<&'a Hold>,
    /// The row of the same idempotency scope, if there is one, with its hold.
    pub same_key: Option<(&'a IdempotencyRow, &'a Hold)>,
    /// Slots in use of the request's route (see [`route_of`]). Only read where the route has a limit of its own.
    pub route_slots: u32,
    /// What the recent runs of the request's route come to: see [`route_of`].
    pub measures: Option<&'a RouteMeasures>,
}

/// The answer to an Admit that was not refused.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Admitted {
    /// The generation to start or to join.
    pub identity: Identity,
    /// Its first attempt.
    pub attempt: AttemptId,
    /// What it was admitted under.
    pub terms: Terms,
    /// When it was admitted.
    pub admitted_at: UnixMillis,
    /// Whether an earlier request of the same idempotency key made it.
    pub joined: bool,
}

impl Admitted {
    /// The recorded answer of a hold.
    #[must_use]
    pub fn of(hold: &Hold, joined: bool) -> Self {
        Self {
            identity: hold.identity.clone(),
            attempt: hold.attempt.clone(),
            terms: hold.terms.clone(),
            admitted_at: hold.admitted_at,
            joined,
        }
    }
}

/// The rows of a new hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct AdmissionRows {
    /// Posting, entry, audit row and tenant row.
    pub posted: PostedRows,
    /// The hold.
    pub hold: Hold,
    /// The period after it.
    pub period: PeriodState,
    /// The idempotency key, if the request has one.
    pub idempotency: Option<IdempotencyRow>,
    /// The run, for the measures of its route.
    pub run: Option<RunRow>,
}

/// Decides whether a request may run. `Ok((answer, None))` is the recorded answer of an earlier Admit.
///
/// # Errors
/// The key was checked before: see [`super::account::authenticate`]. In this order: [`Refusal::InvalidKey`] (ids of
/// another tenant), [`Refusal::TokenNotAllowed`], [`Refusal::IdentityConflict`], [`Refusal::IdempotencyKeyReused`],
/// [`Refusal::RouteNotAllowed`] (of the recorded answer), [`Refusal::Suspended`] (a recorded answer is given to a
/// suspended tenant too), [`Refusal::NoRoute`], [`Refusal::RouteNotAllowed`], [`Refusal::Unavailable`] (the route's
/// provider is not configured), [`Refusal::DialectMismatch`], [`Refusal::OverrideNotAllowed`], [`Refusal::ModelNotPriced`], [`Refusal::AmountOutOfRange`] (of the
/// worst case), [`Refusal::BudgetExhausted`], [`Refusal::ConcurrencyExceeded`] (of the tenant, of the route).
pub fn admit(
    context: &AdmitContext<'_>,
    admit: &Admit,
    now: UnixMillis,
) -> Result<(Admitted, Option<AdmissionRows>), Refusal> {
    if admit.identity.tenant != context.account.id {
        return Err(Refusal::InvalidKey);
    }
    admit.key.check_start()?;
    if let Some(hold) = context.same_generation {
        let same = hold.fingerprint == admit.fingerprint && hold.identity == admit.identity;
        return if same { recorded(hold, false, &admit.key) } else { Err(Refusal::IdentityConflict) };
    }
    if let Some((row, hold)) = context.same_key.filter(|(row, _)| row.stands(now) && !row.may_run_again) {
        let same = row.fingerprint == admit.fingerprint;
        return if same { recorded(hold, true, &admit.key) } else { Err(Refusal::IdempotencyKeyReused) };
    }
    if context.account.status == Status::Suspended {
        return Err(Refusal::Suspended);
    }
    let route = route_of(context.config, admit).ok_or(Refusal::NoRoute)?;
    admit.key.check_route(&route.name)?;
    let terms = terms(context, route, admit)?;
    check_budget(context.config, context.tenant, context.period, terms.hold)?;
    if context.tenant.slots_in_use >= context.config.concurrency {
        return Err(Refusal::ConcurrencyExceeded { limit: context.config.concurrency });
    }
    if let Some(limit) = route.concurrency.filter(|limit| context.route_slots >= *limit) {
        return Err(Refusal::ConcurrencyExceeded { limit });
    }

    // From here the admission succeeds unless an amount leaves its range.
    let id = posting_id(&admit.identity.reservation, 1, PostingKind::Hold, 1);
    let posting = Posting {
        reservation: Some(admit.identity.reservation.clone()),
        generation: Some(admit.identity.generation.clone()),
        price_version: Some(terms.price_version.clone()),
        ..Posting::new(id, PostingKind::Hold, terms.hold, ReasonCode::Admitted, now)
    };
    let slots_in_use = context.tenant.slots_in_use.checked_add(1);
    let posted = post(context.tenant, posting, Micros::ZERO, slots_in_use, now)?;
    let period = PeriodState { held: context.period.held.plus(terms.hold)?, ..context.period.clone() };
    let run = RunRow::admitted(admit, &terms, now);
    let idempotency = admit.idempotency_scope().map(|scope| IdempotencyRow {
        scope,
        identity: admit.identity.clone(),
        fingerprint: admit.fingerprint.clone(),
        expires_at: None,
        may_run_again: false,
    });
    let hold = Hold {
        identity: admit.identity.clone(),
        attempt: admit.attempt.clone(),
        terms,
        fingerprint: admit.fingerprint.clone(),
        period: period.key.clone(),
        idempotency_scope: admit.idempotency_scope(),
        state: HoldState::Open,
        admitted_at: now,
        due_at: first_due(&admit.identity.reservation, context.limits.start_grace_ms, now),
        extended: Micros::ZERO,
        reduced: Micros::ZERO,
        slot_freed: false,
        charged: Micros::ZERO,
        place: Place::default(),
    };
    Ok((Admitted::of(&hold, false), Some(AdmissionRows { posted, hold, period, idempotency, run })))
}

/// The recorded answer, for who may use its route.
fn recorded(hold: &Hold, joined: bool, asks: &Credential) -> Result<(Admitted, Option<AdmissionRows>), Refusal> {
    asks.check_route(&hold.terms.route)?;
    Ok((Admitted::of(hold, joined), None))
}

/// Whether `amount` more may be held: within the credit, and within what the period still allows.
pub(super) fn check_budget(
    config: &TenantConfig,
    tenant: &TenantState,
    period: &PeriodState,
    amount: Micros,
) -> Result<(), Refusal> {
    let over_credit = tenant.balances.available() < amount;
    let over_period = match config.budget {
        Some(budget) => period.held.plus(period.spent)?.plus(amount)? > budget.limit_micros,
        None => false,
    };
    if over_credit || over_period { Err(Refusal::BudgetExhausted) } else { Ok(()) }
}

/// The route that takes a request: the first that matches, else the default route.
#[must_use]
pub fn route_of<'a>(config: &'a TenantConfig, admit: &Admit) -> Option<&'a Route> {
    let path = Endpoint::pattern_of(&admit.path);
    let facts = Facts { path, model: &admit.model, headers: &admit.headers, workload: admit.workload };
    config.choose(&facts).map(|(_, route, _)| route)
}

fn terms(context: &AdmitContext<'_>, route: &Route, admit: &Admit) -> Result<Terms, Refusal> {
    let provider = provider_of(context.providers, &route.provider)?;
    let endpoint = Endpoint::at(&admit.path);
    check_dialect(endpoint, provider)?;
    let policies = route.policies();
    let on_disconnect = resolve_on_disconnect(&policies, admit.on_disconnect)?;
    let price =
        provider.prices.price_of(&admit.model).ok_or_else(|| Refusal::ModelNotPriced { model: admit.model.clone() })?;
    let max_output_tokens =
        admit.max_output_tokens.map_or(policies.max_output_tokens, |wanted| wanted.min(policies.max_output_tokens));
    let answers = if endpoint.is_none_or(Endpoint::has_output) { u64::from(admit.choices.max(1)) } else { 0 };
    let output_bound_tokens = max_output_tokens.saturating_mul(answers);
    let asks_for_usage = policies.include_usage && endpoint.is_none_or(Endpoint::has_usage_event);
    let background =
        provider.dialect.has_background() && admit.streaming && admit.background.on_route(route.background);
    Ok(Terms {
        config_version: context.account.config_version,
        route: route.name.clone(),
        provider: provider.name.clone(),
        dialect: provider.dialect,
        path: Endpoint::target(&admit.path),
        model: admit.model.clone(),
        streaming: admit.streaming,
        // Only the object takes a stream up again.
        owner: if background { Owner::Object } else { policies.owner },
        on_disconnect,
        grace_ms: policies.grace_ms,
        keep_partial: policies.keep_partial,
        lease_ms: policies.lease_ms,
        first_byte_ms: policies.first_byte_ms,
        idle_ms: policies.idle_ms,
        total_ms: policies.total_ms,
        observation_ms: match route.observation_ms {
            None if background => policies.total_ms,
            _ => policies.observation_ms,
        },
        retention_s: policies.retention_s,
        strip_usage: admit.streaming && asks_for_usage && !admit.include_usage,
        max_output_tokens,
        input_bound_tokens: admit.body_bytes,
        output_bound_tokens,
        price: price.clone(),
        price_version: provider.prices.version.clone(),
        // The most that it can cost: every byte of the body an input token, every output token used.
        hold: price.worst_case(admit.body_bytes, output_bound_tokens)?,
        capabilities: provider.capabilities_for(background),
        on_expiry: policies.on_expiry.credit,
        slot_on_expiry: policies.on_expiry.slot,
        on_interruption: policies.on_interruption,
        escalate_above: policies.escalate_above_micros,
        watch_ms: policies.watch_ms,
        expected_ms: policies.expected_ms,
        workload: policies.workload,
        auto: Some(auto_terms(&policies, admit.body_bytes, output_bound_tokens, context.measures)),
        forward: forwarded(provider.dialect, &admit.forward),
        background,
    })
}

/// Whether the provider can serve the path that the client has chosen.
pub(crate) fn check_dialect(endpoint: Option<Endpoint>, provider: &Provider) -> Result<(), Refusal> {
    match endpoint.filter(|endpoint| !endpoint.is_spoken_by(provider.dialect)) {
        Some(endpoint) => Err(Refusal::DialectMismatch { path: endpoint.dialect(), provider: provider.dialect }),
        None => Ok(()),
    }
}

impl PeriodState {
    /// The key of the period that an admission at `now` belongs to. Without a budget, months are counted.
    #[must_use]
    pub fn key_for(config: &TenantConfig, now: UnixMillis) -> String {
        period_key(config.budget.map_or_else(Default::default, |budget| budget.period), now)
    }
}
