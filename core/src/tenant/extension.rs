//! Extension: a further attempt needs more credit than the first one left, or it does not run.

use super::account::{Account, Status};
use super::admission::check_budget;
use super::{Hold, HoldState, PeriodState, SettlementRows, TenantState, post_on_hold};
use crate::config::TenantConfig;
use crate::ids::Identity;
use crate::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::string::ToString;
use serde::{Deserialize, Serialize};

/// A further attempt is planned: may the hold be extended? Asked by the reservation, answered at once.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Extend {
    /// Whose hold.
    pub identity: Identity,
    /// The epoch of the attempt that is planned: one extension for each.
    pub epoch: u32,
    /// By how much.
    pub amount: Micros,
}

impl Extend {
    /// The posting that the extension makes, now or before.
    #[must_use]
    pub fn posting_id(&self) -> alloc::string::String {
        posting_id(&self.identity.reservation, self.epoch, PostingKind::HoldExtended, 1)
    }
}

/// The stored rows that an extension depends on.
#[derive(Clone, Copy, Debug)]
pub struct ExtendContext<'a> {
    /// The tenant as configured.
    pub config: &'a TenantConfig,
    /// The tenant's row.
    pub tenant: &'a TenantState,
    /// The hold of the request's reservation.
    pub hold: Option<&'a Hold>,
    /// The period that the hold belongs to: an extension counts where the admission does.
    pub period: &'a PeriodState,
    /// The stored posting of [`Extend::posting_id`], if there is one.
    pub same_id: Option<&'a Posting>,
    /// Whether the tenant may run anything new.
    pub account: &'a Account,
}

/// Extends a hold. It takes no further slot: the reservation has one. `Ok(None)` means that it was extended before; that
/// answer stands, whatever became of the hold and of the tenant since (invariant 8).
///
/// # Errors
/// In this order: [`Refusal::PostingConflict`] (same reservation and epoch, other amount), [`Refusal::Suspended`] (what
/// a suspended tenant holds is settled, and no more is held), [`Refusal::NotFound`] (no such hold),
/// [`Refusal::AlreadyResolved`], [`Refusal::WrongState`] (the slot was given back: nothing runs without one),
/// [`Refusal::AmountOutOfRange`], [`Refusal::BudgetExhausted`].
pub fn extend(
    context: &ExtendContext<'_>,
    request: &Extend,
    now: UnixMillis,
) -> Result<Option<SettlementRows>, Refusal> {
    if let Some(stored) = context.same_id {
        return if is_same(stored, request) { Ok(None) } else { Err(Refusal::PostingConflict) };
    }
    if context.account.status == Status::Suspended {
        return Err(Refusal::Suspended);
    }
    let hold = context.hold.filter(|hold| hold.identity == request.identity).ok_or(Refusal::NotFound)?;
    if hold.state != HoldState::Open {
        return Err(Refusal::AlreadyResolved);
    }
    if !hold.has_slot() {
        return Err(Refusal::WrongState { state: "slot_freed".to_string() });
    }
    check_budget(context.config, context.tenant, context.period, request.amount)?;

    let posting = Posting {
        reservation: Some(hold.identity.reservation.clone()),
        generation: Some(hold.identity.generation.clone()),
        price_version: Some(hold.terms.price_version.clone()),
        ..Posting::new(request.posting_id(), PostingKind::HoldExtended, request.amount, ReasonCode::RetryExtended, now)
    };
    post_on_hold(context.tenant, hold, context.period, posting, now).map(Some)
}

/// Whether a stored extension answers the request. Its time is the tenant's own, so a repeated request has another one.
fn is_same(stored: &Posting, request: &Extend) -> bool {
    stored.kind == PostingKind::HoldExtended
        && stored.amount == request.amount
        && stored.reservation.as_ref() == Some(&request.identity.reservation)
        && stored.generation.as_ref() == Some(&request.identity.generation)
}
