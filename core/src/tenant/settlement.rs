//! Settlement: a reservation's posting ends its hold. The posting id makes a repeated delivery harmless; one hold has
//! one resolution.

use super::{Hold, HoldState, IdempotencyRow, PeriodState, PostedRows, TenantState, post};
use crate::config::Limits;
use crate::ledger::{Posting, PostingKind, ReasonCode};
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::time::UnixMillis;

/// The stored rows that a settlement depends on.
#[derive(Clone, Copy, Debug)]
pub struct SettleContext<'a> {
    /// Bounds.
    pub limits: &'a Limits,
    /// The tenant's row.
    pub tenant: &'a TenantState,
    /// The hold of the posting's reservation.
    pub hold: Option<&'a Hold>,
    /// The period that the hold belongs to.
    pub period: &'a PeriodState,
    /// The row under the hold's idempotency scope, if there is one; after the resolution it may be another generation's.
    pub idempotency: Option<&'a IdempotencyRow>,
    /// The stored posting of the same id, if there is one.
    pub same_id: Option<&'a Posting>,
}

/// The rows of a settlement.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SettlementRows {
    /// Posting, audit row and tenant row.
    pub posted: PostedRows,
    /// The hold after it.
    pub hold: Hold,
    /// The period after it.
    pub period: PeriodState,
    /// What becomes of the idempotency key.
    pub idempotency: KeyAfter,
}

/// What a settlement does to the idempotency key of its hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum KeyAfter {
    /// There is none, or it stays as it is.
    Unchanged,
    /// It is kept until the given row's expiry.
    Expires(IdempotencyRow),
    /// It is free again: nothing ever ran under it.
    Freed,
}

/// Applies a posting of a reservation. `Ok(None)` means that it was applied before.
///
/// # Errors
/// In this order: [`Refusal::PostingConflict`] (same id, other content), [`Refusal::NotFound`] (no such hold),
/// [`Refusal::WrongState`] (a kind that a reservation does not author), [`Refusal::AlreadyResolved`] (another posting
/// ended the hold; for an overage: the hold was not settled), [`Refusal::AmountOutOfRange`].
pub fn settle(
    context: &SettleContext<'_>,
    posting: &Posting,
    now: UnixMillis,
) -> Result<Option<SettlementRows>, Refusal> {
    if let Some(stored) = context.same_id {
        return if stored == posting { Ok(None) } else { Err(Refusal::PostingConflict) };
    }
    let hold = context.hold.ok_or(Refusal::NotFound)?;
    let state = match posting.kind {
        PostingKind::Settle => HoldState::Settled,
        PostingKind::Release => HoldState::Released,
        PostingKind::Overage => HoldState::Settled,
        _ => {
            return Err(Refusal::WrongState { state: posting.kind.as_str().into() });
        }
    };
    let expected = if posting.kind.resolves_hold() { HoldState::Open } else { HoldState::Settled };
    if hold.state != expected {
        return Err(Refusal::AlreadyResolved);
    }
    let amount_fits = match posting.kind {
        PostingKind::Settle => posting.amount <= hold.terms.hold,
        PostingKind::Release => posting.amount == hold.terms.hold,
        _ => true,
    };
    if !amount_fits {
        return Err(Refusal::AmountOutOfRange);
    }

    let posted = post(context.tenant, posting.clone(), hold.terms.hold, now)?;
    Ok(Some(SettlementRows {
        posted,
        hold: Hold { state, ..hold.clone() },
        period: period_after(context.period, posting, hold.terms.hold)?,
        idempotency: key_after(context, posting, now),
    }))
}

fn period_after(period: &PeriodState, posting: &Posting, hold: Micros) -> Result<PeriodState, Refusal> {
    let mut next = period.clone();
    if posting.kind.resolves_hold() {
        next.held = period.held.minus(hold)?;
    }
    if posting.kind != PostingKind::Release {
        next.spent = period.spent.plus(posting.amount)?;
    }
    Ok(next)
}

fn key_after(context: &SettleContext<'_>, posting: &Posting, now: UnixMillis) -> KeyAfter {
    // An open hold keeps its key, so what resolves it finds its own row. An overage comes later, when the key may be
    // forgotten, or in use by another generation: it leaves the row alone.
    match context.idempotency.filter(|_| posting.kind.resolves_hold()) {
        None => KeyAfter::Unchanged,
        Some(_) if posting.reason == ReasonCode::NeverStarted => KeyAfter::Freed,
        Some(row) => KeyAfter::Expires(IdempotencyRow {
            expires_at: Some(now.plus(context.limits.idempotency_ms)),
            may_run_again: posting.kind == PostingKind::Release,
            ..row.clone()
        }),
    }
}
