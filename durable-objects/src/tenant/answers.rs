//! The answer to each call: load rows, apply the rules, store the rows of the transition. Nothing waits between load
//! and store, so no other call comes between.

use super::{Failure, Tenant};
use crate::clock;
use holdfast_core::config::TenantConfig;
use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::{LedgerEntry, Posting, Receipt};
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Detached, RunEnd};
use holdfast_core::tenant::account::Role;
use holdfast_core::tenant::{
    Admit, AdmitContext, Admitted, DetachedContext, Extend, ExtendContext, Hold, IdempotencyRow, PeriodState,
    SettleContext, admit, detach, extend, route_of, settle,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::token::Credential;
use holdfast_core::wire::{TenantCall, TenantReply};
use worker::Error;

/// Expired idempotency keys that are removed at once.
pub(super) const FORGET_MAX: u32 = 20;

type Answer = Result<TenantReply, Failure>;

impl Tenant {
    /// Answers a call, and sees to it that the alarm stands.
    pub(super) async fn answer(&self, call: TenantCall, page: Result<Option<Origin>, Refusal>) -> Answer {
        // Before anything is read or written: a guessed tenant name or key leaves no trace.
        self.check_key(&call, clock::now())?;
        self.check_page(page?.as_ref())?;
        if call == TenantCall::Sweep {
            // Who pokes does not rely on memory either.
            self.wake.forget();
        }
        self.wake.load(clock::now()).await?;
        // From here to the armed alarm nothing waits, so rows and alarm are stored together.
        let answer = match call {
            TenantCall::Books { question, .. } => self.answer_books(*question).await,
            TenantCall::Sweep => self.poked().await,
            call => self.apply(call, clock::now()),
        };
        if let Some(due) = self.store.earliest_due()? {
            self.wake.no_later_than(due, clock::now()).await?;
        }
        answer
    }

    /// Refuses a call whose key may not make it. Postings and extensions come from a generation, which has no key;
    /// account calls are checked where they are answered, since some are the operator's.
    fn check_key(&self, call: &TenantCall, now: UnixMillis) -> Result<(), Failure> {
        let role = match call {
            TenantCall::Books { question, .. } => question.role(),
            TenantCall::Policy { .. } => Role::Admin,
            _ => Role::Client,
        };
        let key = match call {
            TenantCall::Admit(admit) => return self.check_credential(&admit.key, now),
            TenantCall::Authenticate { key, .. }
            | TenantCall::FindByIdempotencyKey { key, .. }
            | TenantCall::Tokens { key, .. } => {
                return self.check_credential(key, now);
            }
            TenantCall::Balance { key }
            | TenantCall::Books { key, .. }
            | TenantCall::MintToken { key, .. }
            | TenantCall::Policy { key, .. } => key,
            TenantCall::Webhook { key, .. } => return self.authenticate(key, Role::Admin, now).map(|_| ()),
            TenantCall::Account { .. }
            | TenantCall::Settle { .. }
            | TenantCall::Notify { .. }
            | TenantCall::ResultRead { .. }
            | TenantCall::Operation { .. }
            | TenantCall::Sweep
            | TenantCall::Extend(_)
            | TenantCall::Detached(_) => return Ok(()),
        };
        self.authenticate(key, role, now).map(|_| ())
    }

    /// Answers a call whose key was checked.
    fn apply(&self, call: TenantCall, now: UnixMillis) -> Answer {
        match call {
            TenantCall::Admit(admit) => self.admit(&admit, now),
            TenantCall::Authenticate { key, generation } => self.admitted(&key, generation.as_ref()),
            TenantCall::FindByIdempotencyKey { key, idempotency_key } => self.find(&key, &idempotency_key, now),
            TenantCall::MintToken { key, id, request } => self.mint_token(&key, id, &request, now),
            TenantCall::Balance { .. } => Ok(TenantReply::Balance(Box::new(self.balance()?))),
            TenantCall::Operation { provider, action } => self.operation(&provider, action, now),
            // Answered where they may wait.
            TenantCall::Books { .. } | TenantCall::Sweep => Err(Refusal::NotFound.into()),
            TenantCall::Account { authority, action } => self.act(&authority, action, now),
            TenantCall::Webhook { action, .. } => self.act_on_webhook(action, now),
            TenantCall::Settle { postings, run } => self.settle(&postings, run, now),
            TenantCall::Notify { notices } => self.note(&notices, now).map(|()| TenantReply::Noted),
            TenantCall::ResultRead { generation } => self.result_read(&generation, now),
            TenantCall::Policy { window_ms, .. } => self.policy_report(window_ms, now),
            TenantCall::Extend(request) => self.extend(&request, now),
            TenantCall::Detached(told) => self.detach(&told),
            TenantCall::Tokens { key, action } => self.act_on_tokens(&key, action, now),
        }
    }

    fn admit(&self, call: &Admit, now: UnixMillis) -> Answer {
        let account = self.account()?.ok_or(Refusal::InvalidKey)?;
        let config = self.config(&account)?;
        let limits = self.settings.limits(&self.env)?;
        self.store.forget_expired(now, FORGET_MAX)?;

        let key = PeriodState::key_for(&config, now);
        let period = self.store.period(&key)?.unwrap_or_else(|| PeriodState::empty(key));
        let tenant = self.store.tenant()?;
        let same_generation = self.store.hold_of(&call.identity.generation)?;
        let same_key = self.same_key(call)?;
        let measures = self.measures(&config, call, now)?;
        let context = AdmitContext {
            account: &account,
            config: &config,
            providers: self.settings.providers(&self.env)?,
            limits,
            tenant: &tenant,
            period: &period,
            same_generation: same_generation.as_ref(),
            same_key: same_key.as_ref().map(|(row, hold)| (row, hold)),
            route_slots: self.route_slots(&config, call)?,
            measures: measures.as_ref(),
        };
        let (admitted, rows) = admit(&context, call, now)?;
        if let Some(rows) = rows {
            self.store.store_admission(rows)?;
        }
        Ok(TenantReply::Admitted(Box::new(admitted)))
    }

    /// Counted only where the route has a limit of its own: open holds are few, and most routes have none.
    fn route_slots(&self, config: &TenantConfig, call: &Admit) -> Result<u32, Error> {
        match route_of(config, call).filter(|route| route.concurrency.is_some()) {
            Some(route) => self.store.slots_of_route(&route.name),
            None => Ok(0),
        }
    }

    fn same_key(&self, call: &Admit) -> Result<Option<(IdempotencyRow, Hold)>, Error> {
        let Some(scope) = call.idempotency_scope() else { return Ok(None) };
        let Some(row) = self.store.idempotency(&scope)? else { return Ok(None) };
        let hold = self.store.hold(&row.identity.reservation)?;
        hold.map(|hold| Some((row, hold))).ok_or_else(|| Error::from("idempotency key without a hold"))
    }

    fn admitted(&self, asks: &Credential, generation: Option<&GenerationId>) -> Answer {
        let hold = match generation {
            Some(generation) if self.store.exists()? => self.store.hold_of(generation)?,
            _ => None,
        };
        let hold = hold.filter(|hold| asks.sees(&hold.identity.generation, &hold.terms.route));
        Ok(TenantReply::Authenticated { admitted: hold.map(|hold| Box::new(Admitted::of(&hold, false))) })
    }

    fn find(&self, asks: &Credential, idempotency_key: &str, now: UnixMillis) -> Answer {
        let row = if self.store.exists()? { self.store.idempotency_on_any_path(idempotency_key, now)? } else { None };
        let hold = match row {
            Some(row) => self.store.hold(&row.identity.reservation)?,
            None => None,
        };
        let hold = hold.filter(|hold| asks.sees(&hold.identity.generation, &hold.terms.route));
        Ok(TenantReply::Found { generation: hold.map(|hold| hold.identity.generation) })
    }

    /// Each posting is a transition of its own. When one is refused, those before it stay applied; delivering the call
    /// again is harmless.
    fn settle(&self, postings: &[Posting], run: Option<Box<RunEnd>>, now: UnixMillis) -> Answer {
        let receipts = postings.iter().map(|posting| self.settle_and_note(posting, now));
        let receipts = receipts.collect::<Result<Vec<_>, _>>()?.into_iter().flatten().collect();
        if let Some(end) = run {
            self.run_ended(*end)?;
        }
        Ok(TenantReply::Settled { receipts })
    }

    /// What a posting tells is noted with it, in one storage turn. It is true as well where the posting is refused for
    /// good; what is delivered again tells it again.
    fn settle_and_note(&self, posting: &Posting, now: UnixMillis) -> Result<Option<Receipt>, Failure> {
        let settled = self.settle_one(posting, now);
        match &settled {
            Ok(_) => self.note(&posting.notices, now)?,
            Err(Failure::Refused(refusal)) if refusal.is_permanent_for_posting() => {
                self.note(&posting.notices, now)?;
            }
            Err(_) => {}
        }
        settled
    }

    /// The receipt of a posting that was applied before is made of its entry.
    fn settle_one(&self, posting: &Posting, now: UnixMillis) -> Result<Option<Receipt>, Failure> {
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
        let slot_freed = hold.as_ref().is_some_and(|hold| hold.slot_freed);
        let receipt = |entry: &LedgerEntry| Receipt::of(posting, entry, slot_freed);
        match settle(&context, posting, now)? {
            Some(rows) => {
                let receipt = receipt(&rows.posted.entry);
                self.store.store_settlement(rows)?;
                Ok(Some(receipt))
            }
            None => Ok(self.store.entry(&posting.id)?.as_ref().map(receipt)),
        }
    }

    fn extend(&self, request: &Extend, now: UnixMillis) -> Answer {
        let account = self.account()?.ok_or(Refusal::NotFound)?;
        let config = self.config(&account)?;
        let (hold, period) = self.hold_and_period(Some(&request.identity.reservation))?;
        let tenant = self.store.tenant()?;
        let same_id = self.store.posting(&request.posting_id())?;
        let context = ExtendContext {
            config: &config,
            tenant: &tenant,
            hold: hold.as_ref(),
            period: &period,
            same_id: same_id.as_ref(),
            account: &account,
        };
        if let Some(rows) = extend(&context, request, now)? {
            self.store.store_settlement(rows)?;
        }
        Ok(TenantReply::Extended)
    }

    /// Work goes on without a reader, or does so no longer.
    fn detach(&self, told: &Detached) -> Answer {
        let account = self.account()?.ok_or(Refusal::NotFound)?;
        let config = self.config(&account)?;
        let hold = self.store.hold(&told.identity.reservation)?;
        let context = DetachedContext { config: &config, hold: hold.as_ref(), detached: self.store.detached()? };
        if let Some(hold) = detach(&context, told)? {
            self.store.store_hold(hold)?;
        }
        Ok(TenantReply::Noted)
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
