//! The tenant aggregate: who may run what, what is held, what is spent.
//!
//! [`admit`], [`extend`], [`detach`] and [`settle`] are the transitions. Each takes the stored rows that it depends on and `now`,
//! and returns the rows to store: one storage transaction in the TenantObject.
//!
//! `extend` is answered at once, since a further attempt waits for it; what a reservation decides by itself comes by
//! its outbox, to `settle`.

pub mod account;
mod admission;
pub mod books;
mod detached;
mod due;
mod extension;
mod policy_report;
mod runs;
mod settlement;

pub(crate) use admission::check_dialect;
pub use admission::{AdmissionRows, Admit, AdmitContext, Admitted, admit, route_of};
pub use detached::{DetachedContext, detach};
pub use due::{OPEN_ASKED_MAX_MS, due_after_start, first_due};
pub use extension::{Extend, ExtendContext, extend};
pub use policy_report::{
    CancelSignals, ClientSignals, Decisions, Departures, DetachSignals, PolicyCosts, PolicyReport, Recommendation,
    RecommendedBy, RoutePolicy, route_policy,
};
pub use runs::{MEASURED_FOR_MS, RUNS_KEPT_MS, RUNS_MAX, RouteMeasures, RunRow, RunStart, auto_terms, measure};
pub use settlement::{KeyAfter, SettleContext, SettlementRows, settle};

use crate::audit::{AuditRow, ChainHead};
use crate::config::Period;
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Balances, Direction, InvoiceLine, LedgerEntry, Posting, PostingKind};
use crate::money::{Micros, MoneyError};
use crate::policy::Terms;
use crate::refusal::Refusal;
use crate::reservation::Place;
use crate::time::UnixMillis;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// The tenant's own row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct TenantState {
    /// Balances over all postings.
    pub balances: Balances,
    /// Concurrency slots: one for each open hold that has not given its slot back.
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

    /// The period after a posting of a hold that belongs to it: it moves as the tenant's balances do.
    fn after(&self, posting: &Posting, held: Micros) -> Result<Self, MoneyError> {
        let balances = Balances { granted: Micros::ZERO, held: self.held, spent: self.spent };
        let Balances { held, spent, .. } = balances.after(posting, held)?;
        Ok(Self { key: self.key.clone(), held, spent })
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
    /// Credit is held, and the slot if it was not given back.
    Open,
    /// Ended by a `settle` posting.
    Settled,
    /// Ended by a `release` posting.
    Released,
}

impl HoldState {
    /// The state of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        [Self::Open, Self::Settled, Self::Released].into_iter().find(|state| state.as_str() == name)
    }

    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Settled => "settled",
            Self::Released => "released",
        }
    }
}

/// One hold with what it was admitted under.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Hold {
    /// Tenant, generation, reservation.
    pub identity: Identity,
    /// The first attempt.
    pub attempt: AttemptId,
    /// What it was admitted under; `terms.hold` is the amount it was placed with. What is held now is [`Hold::held`].
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
    /// What further attempts added to it.
    #[serde(default)]
    pub extended: Micros,
    /// What was given back while it stayed open.
    #[serde(default)]
    pub reduced: Micros,
    /// Its slot was given back while it stayed open.
    #[serde(default)]
    pub slot_freed: bool,
    /// All that its reservation has been charged so far, refunds taken off: no more than this can be refunded.
    #[serde(default)]
    pub charged: Micros,
    /// Its place among the tenant's detached generations, as its reservation last told.
    #[serde(default, skip_serializing_if = "Place::is_untouched")]
    pub place: Place,
}

impl Hold {
    /// What is held now: as placed, extended and reduced; nothing once it is resolved.
    #[must_use]
    pub fn held(&self) -> Micros {
        match self.state {
            // Extensions were checked against the range when they were posted.
            HoldState::Open => {
                self.terms.hold.plus(self.extended).unwrap_or(Micros::MAX).saturating_minus(self.reduced)
            }
            HoldState::Settled | HoldState::Released => Micros::ZERO,
        }
    }

    /// Whether it has its concurrency slot.
    #[must_use]
    pub fn has_slot(&self) -> bool {
        self.state == HoldState::Open && !self.slot_freed
    }

    /// Whether its generation counts as one that goes on without a reader. What ends the hold ends this.
    #[must_use]
    pub fn is_detached(&self) -> bool {
        self.state == HoldState::Open && self.place.taken
    }

    /// The hold after a posting of its reservation.
    fn after(&self, posting: &Posting) -> Result<Self, MoneyError> {
        let mut next = self.clone();
        match posting.kind {
            PostingKind::HoldExtended => next.extended = self.extended.plus(posting.amount)?,
            PostingKind::HoldReduced => {
                next.reduced = self.reduced.plus(posting.amount)?;
                next.slot_freed = self.slot_freed || posting.frees_slot;
            }
            PostingKind::Settle => next.state = HoldState::Settled,
            PostingKind::Release => next.state = HoldState::Released,
            _ => {}
        }
        if posting.kind.bills() {
            next.charged = match posting.direction {
                Direction::Charge => self.charged.plus(posting.amount)?,
                Direction::Refund => self.charged.minus(posting.amount)?,
            };
        }
        Ok(next)
    }
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

/// One posting with its entry, its audit row and the tenant row after it.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct PostedRows {
    /// The movement as it was decided.
    pub posting: Posting,
    /// The movement as it was applied.
    pub entry: LedgerEntry,
    /// Its audit row (invariant 10).
    pub audit: AuditRow,
    /// The tenant after it.
    pub tenant: TenantState,
}

/// Posts to the tenant's row. `held` is what the posting's reservation holds before it, `slots_in_use` counts after it.
fn post(
    tenant: &TenantState,
    posting: Posting,
    held: Micros,
    slots_in_use: Option<u32>,
    now: UnixMillis,
) -> Result<PostedRows, Refusal> {
    let slots_in_use = slots_in_use.ok_or(Refusal::AmountOutOfRange)?;
    let balances = tenant.balances.after(&posting, held)?;
    let audit = tenant.audit.append(&posting, now);
    let entry = LedgerEntry::of(&posting, audit.seq, &tenant.balances, &balances, now);
    let tenant = TenantState { balances, slots_in_use, audit: audit.head() };
    Ok(PostedRows { posting, entry, audit, tenant })
}

/// The rows of a posting on a hold that stands, the idempotency key left as it is.
fn post_on_hold(
    tenant: &TenantState,
    hold: &Hold,
    period: &PeriodState,
    posting: Posting,
    now: UnixMillis,
) -> Result<SettlementRows, Refusal> {
    let held = hold.held();
    let next = hold.after(&posting)?;
    let slots = if hold.has_slot() && !next.has_slot() {
        tenant.slots_in_use.checked_sub(1)
    } else {
        Some(tenant.slots_in_use)
    };
    let period = period.after(&posting, held)?;
    let invoice_line = InvoiceLine::of(&posting, &hold.identity, &hold.terms, &hold.period, now);
    let posted = post(tenant, posting, held, slots, now)?;
    Ok(SettlementRows { posted, invoice_line, hold: next, period, idempotency: KeyAfter::Unchanged })
}
