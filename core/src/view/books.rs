//! What the API shows of a tenant's books: entries, lines, records, generations, checks.

use super::page::{Cursor, List};
use crate::finding::Source;
use crate::ids::{AttemptId, GenerationId, ReservationId};
use crate::ledger::{
    Balances, ChargedAs, Direction, InvoiceLine, LedgerEntry, Posting, PostingKind, ReasonCode, UsageRecord,
};
use crate::money::{Micros, SignedMicros};
use crate::policy::{OnDisconnect, Owner};
use crate::pricing::CostPart;
use crate::tenant::books::{Check, Counted, Difference};
use crate::tenant::{Hold, HoldState};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde::Serialize;

/// Balances with their unit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct BalancesView {
    /// Credit given.
    pub granted_micros: Micros,
    /// Credit set aside.
    pub held_micros: Micros,
    /// Credit spent.
    pub spent_micros: Micros,
}

impl From<&Balances> for BalancesView {
    fn from(balances: &Balances) -> Self {
        let Balances { granted, held, spent } = *balances;
        Self { granted_micros: granted, held_micros: held, spent_micros: spent }
    }
}

/// A movement: the posting as it was decided, and what it did.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct LedgerEntryView {
    /// `ledger_entry`.
    pub object: String,
    /// Its number: 1, 2, …
    pub seq: u64,
    /// Id of the posting.
    pub posting_id: String,
    /// What it is.
    pub kind: PostingKind,
    /// The reservation it belongs to; none for grants.
    pub reservation_id: Option<ReservationId>,
    /// Its generation.
    pub generation_id: Option<GenerationId>,
    /// The amount that its author decided.
    pub amount_micros: Micros,
    /// Which way it goes.
    pub direction: Direction,
    /// Why.
    pub reason: ReasonCode,
    /// The posting that it corrects, compensates or makes up for.
    pub refers_to: Option<String>,
    /// The price list that the amount was made by.
    pub price_version: Option<String>,
    /// How `granted` moved.
    pub granted_micros: SignedMicros,
    /// How `held` moved.
    pub held_micros: SignedMicros,
    /// How `spent` moved.
    pub spent_micros: SignedMicros,
    /// The balances after it.
    pub after: BalancesView,
    /// When it was decided, by the clock of the object that decided.
    pub decided_at: UnixMillis,
    /// When it was applied, by the tenant object's clock.
    pub recorded_at: UnixMillis,
}

impl LedgerEntryView {
    /// The view of an entry with its posting.
    #[must_use]
    pub fn of(entry: &LedgerEntry, posting: &Posting) -> Self {
        Self {
            object: "ledger_entry".into(),
            seq: entry.seq,
            posting_id: posting.id.clone(),
            kind: posting.kind,
            reservation_id: posting.reservation.clone(),
            generation_id: posting.generation.clone(),
            amount_micros: posting.amount,
            direction: posting.direction,
            reason: posting.reason,
            refers_to: posting.refers_to.clone(),
            price_version: posting.price_version.clone(),
            granted_micros: entry.granted,
            held_micros: entry.held,
            spent_micros: entry.spent,
            after: BalancesView::from(&entry.after),
            decided_at: posting.decided_at,
            recorded_at: entry.recorded_at,
        }
    }
}

/// A billable amount.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct InvoiceLineView {
    /// Its id: that of its posting.
    pub id: String,
    /// `invoice_line`.
    pub object: String,
    /// Number of its ledger entry.
    pub seq: u64,
    /// The reservation that is billed.
    pub reservation_id: ReservationId,
    /// Its generation.
    pub generation_id: GenerationId,
    /// The route that served it.
    pub route: String,
    /// The provider that was called.
    pub provider: String,
    /// Model as the client named it.
    pub model: String,
    /// The budget period it counts in.
    pub period: String,
    /// The price list that the amount was made by.
    pub price_version: String,
    /// Quantities by tier at their unit prices.
    pub parts: Vec<CostPart>,
    /// The price of the usage that it stands on.
    pub rated_micros: Option<Micros>,
    /// What is billed; below zero for a refund.
    pub amount_micros: SignedMicros,
    /// As what it is billed.
    pub disposition: ChargedAs,
    /// The posting's kind.
    pub kind: PostingKind,
    /// Why.
    pub reason: ReasonCode,
    /// The usage behind it is a bound, not the provider's own count.
    pub estimated: bool,
    /// Ids of the usage records that it stands on.
    pub usage_record_ids: Vec<String>,
    /// When it was billed.
    pub recorded_at: UnixMillis,
}

impl InvoiceLineView {
    /// The view of a line.
    #[must_use]
    pub fn of(seq: u64, line: InvoiceLine) -> Self {
        Self {
            disposition: ChargedAs::of(&line),
            id: line.posting_id,
            object: "invoice_line".into(),
            seq,
            reservation_id: line.reservation,
            generation_id: line.generation,
            route: line.route,
            provider: line.provider,
            model: line.model,
            period: line.period,
            price_version: line.price_version,
            parts: line.parts,
            rated_micros: line.rated,
            amount_micros: line.amount,
            kind: line.kind,
            reason: line.reason,
            estimated: line.estimated,
            usage_record_ids: line.usage_records,
            recorded_at: line.recorded_at,
        }
    }
}

/// What one attempt consumed, by one observation.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct UsageRecordView {
    /// Its id.
    pub id: String,
    /// `usage_record`.
    pub object: String,
    /// The reservation it is accounted with.
    pub reservation_id: ReservationId,
    /// Its generation.
    pub generation_id: GenerationId,
    /// Which execution.
    pub attempt_id: AttemptId,
    /// The epoch under which it was observed.
    pub epoch: u32,
    /// The provider.
    pub provider: String,
    /// Model as the client named it.
    pub model: String,
    /// The provider's own id of the execution.
    pub operation_id: Option<String>,
    /// The counts and their quality.
    pub usage: Metered,
    /// Who measured it.
    pub source: Source,
    /// When it was observed.
    pub observed_at: UnixMillis,
}

impl From<UsageRecord> for UsageRecordView {
    fn from(record: UsageRecord) -> Self {
        Self {
            id: record.id,
            object: "usage_record".into(),
            reservation_id: record.reservation,
            generation_id: record.generation,
            attempt_id: record.attempt,
            epoch: record.epoch,
            provider: record.provider,
            model: record.model,
            operation_id: record.operation_id,
            usage: record.usage,
            source: record.source,
            observed_at: record.observed_at,
        }
    }
}

/// What the tenant knows of a generation, without asking it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct GenerationSummary {
    /// Its id.
    pub id: GenerationId,
    /// `generation.summary`.
    pub object: String,
    /// Its hold.
    pub reservation_id: ReservationId,
    /// Open, or how it ended.
    pub state: HoldState,
    /// When it was admitted.
    pub admitted_at: UnixMillis,
    /// Route.
    pub route: String,
    /// Provider.
    pub provider: String,
    /// Model as the client named it.
    pub model: String,
    /// Who reads from the provider.
    pub owner: Owner,
    /// What a disconnect does.
    pub on_disconnect: OnDisconnect,
    /// Whether it has its slot.
    pub has_slot: bool,
    /// What is held now.
    pub held_micros: Micros,
    /// What was charged so far, refunds taken off.
    pub charged_micros: Micros,
}

impl From<&Hold> for GenerationSummary {
    fn from(hold: &Hold) -> Self {
        Self {
            id: hold.identity.generation.clone(),
            object: "generation.summary".into(),
            reservation_id: hold.identity.reservation.clone(),
            state: hold.state,
            admitted_at: hold.admitted_at,
            route: hold.terms.route.clone(),
            provider: hold.terms.provider.clone(),
            model: hold.terms.model.clone(),
            owner: hold.terms.owner,
            on_disconnect: hold.terms.on_disconnect,
            has_slot: hold.has_slot(),
            held_micros: hold.held(),
            charged_micros: hold.charged,
        }
    }
}

/// A check of the books, as far as it has come.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct LedgerCheckView {
    /// `ledger.check`.
    pub object: String,
    /// Everything was read.
    pub complete: bool,
    /// Nothing differs; not known before everything was read, unless something does.
    pub consistent: Option<bool>,
    /// Where to go on, `?after=`; none when it is complete.
    pub next: Option<String>,
    /// How much was read.
    pub read: Counted,
    /// How many differences there are.
    pub differences_count: u64,
    /// The first of them.
    pub differences: Vec<Difference>,
}

impl LedgerCheckView {
    /// The view of check number `run`.
    #[must_use]
    pub fn of(run: u64, check: &Check) -> Self {
        let complete = check.is_done();
        let none = check.differences_count == 0;
        Self {
            object: "ledger.check".into(),
            complete,
            consistent: (complete || !none).then_some(none),
            next: (!complete).then(|| Cursor { list: List::Check, place: run }.to_string()),
            read: check.counted,
            differences_count: check.differences_count,
            differences: check.differences.clone(),
        }
    }
}
