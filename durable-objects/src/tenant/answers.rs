//! The answer to each call: load rows, apply the rules, store the rows of the transition. Nothing waits between load
//! and store, so no other call comes between.

use super::account::Account;
use super::{Failure, Tenant};
use crate::clock;
use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::Posting;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::{
    Admit, AdmitContext, Admitted, Extend, ExtendContext, Hold, IdempotencyRow, PeriodState, SettleContext, admit,
    extend, grant_up_to, settle,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::view::BalanceView;
use holdfast_core::wire::{TenantCall, TenantReply};
use worker::Error;

/// Open holds that a balance shows.
const HOLDS_SHOWN: u32 = 100;
/// Expired idempotency keys that are removed at once.
pub(super) const FORGET_MAX: u32 = 20;

type Answer = Result<TenantReply, Failure>;

impl Tenant {
    /// Answers a call, and sees to it that the alarm stands.
    pub(super) async fn answer(&self, call: TenantCall) -> Answer {
        // Before anything is read or written: a guessed tenant name or key leaves no trace.
        self.check_key(&call)?;
        self.wake.load(clock::now()).await?;
        // From here to the armed alarm nothing waits, so rows and alarm are stored together.
        let answer = self.apply(call, clock::now());
        if let Some(due) = self.store.earliest_due()? {
            self.wake.no_later_than(due, clock::now()).await?;
        }
        answer
    }

    /// Refuses a call whose key is not this tenant's. Postings and extensions come from a generation, which has no key.
    fn check_key(&self, call: &TenantCall) -> Result<(), Failure> {
        let key = match call {
            TenantCall::Admit(admit) => &admit.key,
            TenantCall::Authenticate { key, .. }
            | TenantCall::FindByIdempotencyKey { key, .. }
            | TenantCall::Balance { key } => key,
            TenantCall::Settle { .. } | TenantCall::Extend(_) => return Ok(()),
        };
        self.settings.account(&self.env, key).map(|_| ()).map_err(Failure::from)
    }

    /// Answers a call whose key was checked.
    fn apply(&self, call: TenantCall, now: UnixMillis) -> Answer {
        match call {
            TenantCall::Admit(admit) => self.admit(&admit, now),
            TenantCall::Authenticate { generation, .. } => self.authenticate(generation.as_ref()),
            TenantCall::FindByIdempotencyKey { idempotency_key, .. } => self.find(&idempotency_key, now),
            TenantCall::Balance { key } => {
                let account = self.settings.account(&self.env, &key)?;
                self.balance(account, now)
            }
            TenantCall::Settle { postings } => self.settle(&postings, now),
            TenantCall::Extend(request) => self.extend(&request, now),
        }
    }

    fn admit(&self, call: &Admit, now: UnixMillis) -> Answer {
        let account = self.settings.account(&self.env, &call.key)?;
        let limits = self.settings.limits(&self.env)?;
        self.open_account(account, now)?;
        self.store.forget_expired(now, FORGET_MAX)?;

        let key = PeriodState::key_for(&account.config, now);
        let period = self.store.period(&key)?.unwrap_or_else(|| PeriodState::empty(key));
        let tenant = self.store.tenant()?;
        let same_generation = self.store.hold_of(&call.identity.generation)?;
        let same_key = self.same_key(call)?;
        let context = AdmitContext {
            config: &account.config,
            providers: &account.providers,
            limits,
            tenant: &tenant,
            period: &period,
            same_generation: same_generation.as_ref(),
            same_key: same_key.as_ref().map(|(row, hold)| (row, hold)),
        };
        let (admitted, rows) = admit(&context, call, now)?;
        if let Some(rows) = rows {
            self.store.store_admission(rows)?;
        }
        Ok(TenantReply::Admitted(Box::new(admitted)))
    }

    /// The first valid key makes the tables; configured credit that was not granted yet is granted.
    fn open_account(&self, account: &Account, now: UnixMillis) -> Result<(), Failure> {
        self.store.create()?;
        if let Some(rows) = grant_up_to(&self.store.tenant()?, account.config.grant_micros, now)? {
            self.store.store_posted(rows)?;
        }
        Ok(())
    }

    fn same_key(&self, call: &Admit) -> Result<Option<(IdempotencyRow, Hold)>, Error> {
        let Some(scope) = call.idempotency_scope() else { return Ok(None) };
        let Some(row) = self.store.idempotency(&scope)? else { return Ok(None) };
        let hold = self.store.hold(&row.identity.reservation)?;
        hold.map(|hold| Some((row, hold))).ok_or_else(|| Error::from("idempotency key without a hold"))
    }

    fn authenticate(&self, generation: Option<&GenerationId>) -> Answer {
        let hold = match generation {
            Some(generation) if self.store.exists()? => self.store.hold_of(generation)?,
            _ => None,
        };
        Ok(TenantReply::Authenticated { admitted: hold.map(|hold| Box::new(Admitted::of(&hold, false))) })
    }

    fn find(&self, idempotency_key: &str, now: UnixMillis) -> Answer {
        let row = if self.store.exists()? { self.store.idempotency_on_any_path(idempotency_key, now)? } else { None };
        Ok(TenantReply::Found { generation: row.map(|row| row.identity.generation) })
    }

    fn balance(&self, account: &Account, now: UnixMillis) -> Answer {
        self.open_account(account, now)?;
        let (slots, open_sum) = self.store.open_totals()?;
        let view = BalanceView::of(
            &self.store.tenant()?,
            &self.store.recomputed_balances()?,
            &self.store.open_holds(HOLDS_SHOWN)?,
            slots,
            open_sum,
        );
        Ok(TenantReply::Balance(Box::new(view)))
    }

    /// Each posting is a transition of its own. When one is refused, those before it stay applied; delivering the call
    /// again is harmless.
    fn settle(&self, postings: &[Posting], now: UnixMillis) -> Answer {
        postings.iter().try_for_each(|posting| self.settle_one(posting, now))?;
        Ok(TenantReply::Settled)
    }

    fn settle_one(&self, posting: &Posting, now: UnixMillis) -> Result<(), Failure> {
        let limits = self.settings.limits(&self.env)?;
        let (hold, period) = self.hold_and_period(posting.reservation.as_ref())?;
        let idempotency = match hold.as_ref().and_then(|hold| hold.idempotency_scope.as_deref()) {
            Some(scope) => self.store.idempotency(scope)?,
            None => None,
        };
        let referred = match &posting.refers_to {
            Some(id) => self.store.posting(id)?,
            None => None,
        };
        let tenant = self.store.tenant()?;
        let same_id = self.store.posting(&posting.id)?;
        let context = SettleContext {
            limits,
            tenant: &tenant,
            hold: hold.as_ref(),
            period: &period,
            idempotency: idempotency.as_ref(),
            same_id: same_id.as_ref(),
            referred: referred.as_ref(),
        };
        match settle(&context, posting, now)? {
            Some(rows) => Ok(self.store.store_settlement(rows)?),
            None => Ok(()),
        }
    }

    /// A tenant that was removed from the settings extends nothing: what it holds is settled, and no more is held.
    fn extend(&self, request: &Extend, now: UnixMillis) -> Answer {
        let account = self.settings.configured(&self.env)?;
        let (hold, period) = self.hold_and_period(Some(&request.identity.reservation))?;
        let tenant = self.store.tenant()?;
        let same_id = self.store.posting(&request.posting_id())?;
        let context = ExtendContext {
            config: &account.config,
            tenant: &tenant,
            hold: hold.as_ref(),
            period: &period,
            same_id: same_id.as_ref(),
        };
        if let Some(rows) = extend(&context, request, now)? {
            self.store.store_settlement(rows)?;
        }
        Ok(TenantReply::Extended)
    }

    /// The hold of a reservation, and the period that it counts in.
    fn hold_and_period(&self, reservation: Option<&ReservationId>) -> Result<(Option<Hold>, PeriodState), Failure> {
        if !self.store.exists()? {
            // Never admitted anything: nothing is written for such a name here either.
            return Err(Refusal::NotFound.into());
        }
        let hold = match reservation {
            Some(reservation) => self.store.hold(reservation)?,
            None => None,
        };
        let period = match &hold {
            Some(hold) => self.store.period(&hold.period)?.ok_or_else(|| Error::from("hold without a period"))?,
            None => PeriodState::empty(String::new()),
        };
        Ok((hold, period))
    }
}
