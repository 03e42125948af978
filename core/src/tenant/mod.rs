//! The tenant aggregate: who may run what, what is held, what is spent.
//!
//! [`admit`] and [`settle`] are the two transitions. Each takes the stored rows that it depends on and `now`, and
//! returns the rows to store: one storage transaction in the TenantObject.

mod admission;
mod settlement;

pub use admission::{AdmissionRows, Admit, AdmitContext, Admitted, admit, key_is_valid};
pub use settlement::{KeyAfter, SettleContext, SettlementRows, settle};

use crate::audit::{AuditRow, ChainHead};
use crate::config::Period;
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Balances, Direction, Posting, PostingKind, ReasonCode};
use crate::money::Micros;
use crate::policy::Terms;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The tenant's own row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TenantState {
    /// Balances over all postings.
    pub balances: Balances,
    /// Holds that are open: each is one concurrency slot.
    pub slots_in_use: u32,
    /// End of the audit chain.
    pub audit: ChainHead,
}

/// What is held and spent in one budget period. A hold belongs to the period of its admission.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct PeriodState {
    /// `2026-11` or `2026-11-29`, UTC.
    pub key: String,
    /// Held by reservations that were admitted in this period.
    pub held: Micros,
    /// Spent by them.
    pub spent: Micros,
}

impl PeriodState {
    /// An untouched period.
    #[must_use]
    pub fn empty(key: String) -> Self {
        Self { key, held: Micros::ZERO, spent: Micros::ZERO }
    }
}

/// Name of the period that `now` lies in.
#[must_use]
pub fn period_key(period: Period, now: UnixMillis) -> String {
    let (year, month, day) = now.year_month_day();
    match period {
        Period::Day => format!("{year:04}-{month:02}-{day:02}"),
        Period::Month => format!("{year:04}-{month:02}"),
    }
}

/// Whether a hold is open, and how it ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum HoldState {
    /// Credit and slot are held.
    Open,
    /// Ended by a `settle` posting.
    Settled,
    /// Ended by a `release` posting.
    Released,
}

/// One hold with what it was admitted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    /// Tenant, generation, reservation.
    pub identity: Identity,
    /// The first attempt.
    pub attempt: AttemptId,
    /// What it was admitted under; `terms.hold` is the amount.
    pub terms: Terms,
    /// Hash of path and body.
    pub fingerprint: String,
    /// Budget period it counts in.
    pub period: String,
    /// Its idempotency key with the path, if it has one.
    pub idempotency_scope: Option<String>,
    /// Open or how it ended.
    pub state: HoldState,
    /// When it was admitted.
    pub admitted_at: UnixMillis,
    /// When it is looked into, if it is still open.
    pub due_at: UnixMillis,
}

/// An idempotency key of the tenant, scoped to the request path.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct IdempotencyRow {
    /// Path and key.
    pub scope: String,
    /// The generation that runs or ran under it.
    pub identity: Identity,
    /// Hash of path and body.
    pub fingerprint: String,
    /// When the key is forgotten; never while the hold is open.
    pub expires_at: Option<UnixMillis>,
    /// The hold was released: nothing was executed, so a retry under the same key runs anew. Until then the key still
    /// finds what was refused.
    #[serde(default)]
    pub may_run_again: bool,
}

impl IdempotencyRow {
    /// The key without the path. A path has no space (it is percent-encoded); a key may have some.
    #[must_use]
    pub fn key(&self) -> &str {
        self.scope.split_once(' ').map_or("", |(_, key)| key)
    }

    /// Whether the key still stands.
    #[must_use]
    pub fn stands(&self, now: UnixMillis) -> bool {
        self.expires_at.is_none_or(|expires_at| expires_at > now)
    }
}

/// One posting with its audit row and the tenant row after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PostedRows {
    /// The movement.
    pub posting: Posting,
    /// Its audit row (invariant 10).
    pub audit: AuditRow,
    /// The tenant after it.
    pub tenant: TenantState,
}

fn post(tenant: &TenantState, posting: Posting, hold: Micros, now: UnixMillis) -> Result<PostedRows, Refusal> {
    let audit = tenant.audit.append(&posting, now);
    let slots_in_use = match posting.kind {
        PostingKind::Hold => tenant.slots_in_use.checked_add(1),
        PostingKind::Settle | PostingKind::Release => tenant.slots_in_use.checked_sub(1),
        _ => Some(tenant.slots_in_use),
    }
    .ok_or(Refusal::AmountOutOfRange)?;
    let balances = tenant.balances.after(posting.kind, posting.amount, hold)?;
    let tenant = TenantState { balances, slots_in_use, audit: audit.head() };
    Ok(PostedRows { posting, audit, tenant })
}

/// The posting that brings the granted credit up to `configured`, if it is below.
///
/// # Errors
/// [`Refusal::AmountOutOfRange`] when a balance would leave its range.
pub fn grant_up_to(tenant: &TenantState, configured: Micros, now: UnixMillis) -> Result<Option<PostedRows>, Refusal> {
    let missing = configured.saturating_minus(tenant.balances.granted);
    if missing == Micros::ZERO {
        return Ok(None);
    }
    let posting = Posting {
        // The granted total names the grant: the same configuration read twice makes the same posting.
        id: format!("config:grant:{}", configured.get()),
        kind: PostingKind::Grant,
        reservation: None,
        generation: None,
        amount: missing,
        usage: None,
        price_version: None,
        direction: Direction::Charge,
        refers_to: None,
        frees_slot: false,
        reason: ReasonCode::Granted,
        decided_at: now,
    };
    post(tenant, posting, Micros::ZERO, now).map(Some)
}

/// When an open hold is looked into again: once its generation must have ended, with a minute for a late alarm.
#[must_use]
pub fn due_after_start(hold: &Hold, now: UnixMillis) -> UnixMillis {
    let terms = &hold.terms;
    let longest = terms.total_ms.saturating_add(terms.lease_ms).saturating_add(terms.observation_ms);
    hold.admitted_at.plus(longest.saturating_add(60_000)).max(now.plus(60_000))
}
