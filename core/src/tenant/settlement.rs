//! Settlement: what a reservation decides about its hold, from the reduction of an expired one to the compensation
//! after its end. The posting id makes a repeated delivery harmless; one hold has one resolution; what comes later
//! refers to it.

use super::{Hold, HoldState, IdempotencyRow, PeriodState, PostedRows, TenantState, post_on_hold};
use crate::config::Limits;
use crate::ledger::{InvoiceLine, Posting, PostingKind, ReasonCode};
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::format;

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
    /// The stored posting that [`Posting::refers_to`] names, if there is one.
    pub referred: Option<&'a Posting>,
}

/// The rows of a posting on a hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct SettlementRows {
    /// Posting, entry, audit row and tenant row.
    pub posted: PostedRows,
    /// What is billed by it, if it changes what is spent.
    pub invoice_line: Option<InvoiceLine>,
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
/// | kind | hold must be | amount at most |
/// |---|---|---|
/// | `hold_reduced` | open | what is held |
/// | `settle`, `release` | open | what is held; all of it ends |
/// | `overage` | settled | |
/// | `late_settlement` | released | |
/// | `correction`, `compensation` | settled or released | refund: what was charged so far |
///
/// # Errors
/// In this order: [`Refusal::PostingConflict`] (same id, other content), [`Refusal::NotFound`] (no such hold),
/// [`Refusal::WrongState`] (see [`Posting::contradiction`]), [`Refusal::NotResolvedYet`] (it overtook the resolution),
/// [`Refusal::AlreadyResolved`] (the resolution was another), [`Refusal::NotResolvedYet`] (it overtook the posting that
/// it refers to), [`Refusal::WrongState`] (that one is another hold's, or of a kind that cannot be referred to),
/// [`Refusal::AmountOutOfRange`].
///
/// [`Refusal::is_permanent_for_posting`] tells which of them stand for ever.
pub fn settle(
    context: &SettleContext<'_>,
    posting: &Posting,
    now: UnixMillis,
) -> Result<Option<SettlementRows>, Refusal> {
    if let Some(stored) = context.same_id {
        return if stored == posting { Ok(None) } else { Err(Refusal::PostingConflict) };
    }
    let hold = context.hold.ok_or(Refusal::NotFound)?;
    if let Some(contradiction) = posting.contradiction() {
        return Err(wrong(posting, contradiction));
    }
    check_state(hold.state, posting.kind)?;
    check_reference(hold, posting, context.referred)?;
    check_amount(hold, posting)?;

    let rows = post_on_hold(context.tenant, hold, context.period, posting.clone(), now)?;
    Ok(Some(SettlementRows { idempotency: key_after(context, posting, now), ..rows }))
}

fn wrong(posting: &Posting, what: &str) -> Refusal {
    Refusal::WrongState { state: format!("{}: {what}", posting.kind.as_str()) }
}

const fn check_state(state: HoldState, kind: PostingKind) -> Result<(), Refusal> {
    use HoldState::{Open, Released, Settled};
    let follows = !matches!(kind, PostingKind::HoldReduced | PostingKind::Settle | PostingKind::Release);
    match (state, kind) {
        (Open, _) if follows => Err(Refusal::NotResolvedYet),
        (Settled | Released, _) if !follows => Err(Refusal::AlreadyResolved),
        // What costs more than a released hold is settled late; what costs more than a settled one is its overage.
        (Released, PostingKind::Overage) | (Settled, PostingKind::LateSettlement) => Err(Refusal::AlreadyResolved),
        _ => Ok(()),
    }
}

/// What comes after the resolution names the resolution, or another charge of the same hold.
fn check_reference(hold: &Hold, posting: &Posting, referred: Option<&Posting>) -> Result<(), Refusal> {
    if !posting.kind.refers() {
        return Ok(());
    }
    let referred = referred.ok_or(Refusal::NotResolvedYet)?;
    let of_kind = match posting.kind {
        PostingKind::LateSettlement => referred.kind == PostingKind::Release,
        _ => referred.kind.resolves_hold() || referred.kind.bills(),
    };
    if of_kind && referred.reservation.as_ref() == Some(&hold.identity.reservation) {
        Ok(())
    } else {
        Err(wrong(posting, "refers to what it cannot follow"))
    }
}

/// A refund above what was charged is found where it is taken off, as is whatever leaves the range.
fn check_amount(hold: &Hold, posting: &Posting) -> Result<(), Refusal> {
    let of_hold = matches!(posting.kind, PostingKind::HoldReduced | PostingKind::Settle | PostingKind::Release);
    if of_hold && posting.amount > hold.held() { Err(Refusal::AmountOutOfRange) } else { Ok(()) }
}

fn key_after(context: &SettleContext<'_>, posting: &Posting, now: UnixMillis) -> KeyAfter {
    // An open hold keeps its key, so what resolves it finds its own row. An overage comes later, when the key may be
    // forgotten, or in use by another generation: it leaves the row alone.
    match context.idempotency.filter(|_| posting.kind.resolves_hold()) {
        None => KeyAfter::Unchanged,
        Some(_) if posting.reason == ReasonCode::NeverStarted => KeyAfter::Freed,
        Some(row) => KeyAfter::Expires(IdempotencyRow {
            expires_at: Some(now.plus(context.limits.idempotency_ms)),
            may_run_again: posting.kind == PostingKind::Release && !posting.reason.leaves_outcome_open(),
            ..row.clone()
        }),
    }
}
