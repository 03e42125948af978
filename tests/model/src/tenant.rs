//! The TenantObject as its shell works: load rows, apply the rules, store the rows of the transition, see to the alarm.

use crate::bug::Bug;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Armed, TenantRows};
use crate::step::Step;
use crate::world::terms_of;
use holdfast_core::ids::ReservationId;
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use holdfast_core::money::Micros;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Detached, Place, ResolvedBy};
use holdfast_core::tenant::account::grant;
use holdfast_core::tenant::{
    Admit, AdmitContext, Admitted, DetachedContext, Extend, ExtendContext, Hold, HoldState, KeyAfter, PeriodState,
    PostedRows, SettleContext, SettlementRows, admit, detach, due_after_start, extend, settle,
};
use holdfast_core::time::UnixMillis;
use std::sync::Arc;

/// When a generation that did not answer is asked again.
const RETRY_MS: u64 = 60_000;
/// An alarm that has not rung for so long after its time counts as lost.
const LOST_AFTER_MS: u64 = 60_000;

/// How an answer of a generation to the sweep goes astray.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Asked {
    /// The generation is asked, and its answer comes.
    Answered,
    /// The question does not arrive.
    QuestionLost,
    /// The answer does not arrive.
    AnswerLost,
    /// The TenantObject dies while it waits.
    Died,
}

impl TenantRows {
    fn post(&mut self, rows: PostedRows, audited: bool) {
        self.postings.push(rows.posting);
        self.audit.extend(audited.then_some(rows.audit));
        self.tenant = rows.tenant;
    }

    /// The hold of a reservation.
    #[must_use]
    pub fn hold(&self, reservation: &ReservationId) -> Option<&Hold> {
        self.holds.get(reservation)
    }

    /// How many generations go on without a reader, as far as is known here.
    #[must_use]
    pub fn detached(&self) -> u32 {
        u32::try_from(self.holds.values().filter(|hold| hold.is_detached()).count()).unwrap_or(u32::MAX)
    }

    /// When the next open hold is due.
    fn earliest_due(&self) -> Option<UnixMillis> {
        self.holds.values().filter(|hold| hold.state == HoldState::Open).map(|hold| hold.due_at).min()
    }
}

impl Step<'_> {
    fn tenant(&mut self) -> &mut TenantRows {
        Arc::make_mut(&mut self.state.tenant.rows)
    }

    /// A call: the alarm is known before, and stands after.
    fn tenant_call<T>(&mut self, answer: impl FnOnce(&mut Self) -> T) -> T {
        let now = self.now();
        let tenant = &mut self.state.tenant;
        if tenant.armed == Armed::Unknown {
            tenant.armed = tenant.alarm.filter(|at| *at > now).map_or(Armed::Never, Armed::At);
        }
        let answer = answer(self);
        if let Some(due) = self.state.tenant.rows.earliest_due() {
            self.wake_tenant_no_later_than(due);
        }
        answer
    }

    fn wake_tenant_no_later_than(&mut self, due: UnixMillis) {
        let now = self.now();
        match self.state.tenant.armed {
            Armed::At(at) if at <= due.max(now) && now.since(at) < LOST_AFTER_MS => {}
            _ => self.wake_tenant_at(due),
        }
    }

    fn wake_tenant_at(&mut self, due: UnixMillis) {
        let at = due.max(self.now());
        let tenant = &mut self.state.tenant;
        if tenant.armed != Armed::At(at) && !self.deaf {
            (tenant.armed, tenant.alarm) = (Armed::At(at), Some(at));
        }
    }

    /// Admit, up to the reply.
    pub(crate) fn admit(&mut self, call: &Admit) -> Result<Admitted, Refusal> {
        self.tenant_call(|step| step.answer_admit(call))
    }

    fn answer_admit(&mut self, call: &Admit) -> Result<Admitted, Refusal> {
        let (now, setting) = (self.now(), self.setting());
        let granted = self.state.tenant.rows.tenant.balances.granted >= setting.grant;
        let rows = grant(&self.state.tenant.rows.tenant, None, "initial", setting.grant, now);
        if let Some(rows) = if granted { None } else { rows? } {
            self.tenant().post(rows, true);
        }
        let tenant = self.state.tenant.rows.clone();
        let key = PeriodState::key_for(&setting.tenant, now);
        let period = tenant.periods.get(&key).cloned().unwrap_or_else(|| PeriodState::empty(key));
        let row = call.idempotency_scope().and_then(|scope| tenant.keys.get(&scope));
        let context = AdmitContext {
            account: &setting.account,
            route_slots: 0,
            measures: None,
            config: &setting.tenant,
            providers: &setting.providers,
            limits: &setting.limits,
            tenant: &tenant.tenant,
            period: &period,
            same_generation: tenant.holds.values().find(|hold| hold.identity.generation == call.identity.generation),
            same_key: row.and_then(|row| Some((row, tenant.hold(&row.identity.reservation)?))),
        };
        let (mut admitted, rows) = admit(&context, call, now)?;
        if let Some(mut rows) = rows {
            rows.hold.terms = terms_of(self.variant(), &rows.hold.terms);
            admitted = Admitted::of(&rows.hold, false);
            let tenant = self.tenant();
            tenant.post(rows.posted, true);
            tenant.periods.insert(rows.period.key.clone(), rows.period);
            tenant.holds.insert(rows.hold.identity.reservation.clone(), rows.hold);
            tenant.keys.extend(rows.idempotency.map(|row| (row.scope.clone(), row)));
        }
        Ok(admitted)
    }

    /// Settle, with one posting.
    pub(crate) fn settle(&mut self, posting: &Posting) -> Result<(), Refusal> {
        self.tenant_call(|step| step.settle_one(posting))
    }

    /// Extend: the hold of a reservation grows, once for each attempt that is planned.
    pub(crate) fn extend(&mut self, request: &Extend) -> Result<(), Refusal> {
        self.tenant_call(|step| step.answer_extend(request))
    }

    fn answer_extend(&mut self, request: &Extend) -> Result<(), Refusal> {
        let (now, setting) = (self.now(), self.setting());
        let rows = self.state.tenant.rows.clone();
        let hold = rows.hold(&request.identity.reservation);
        let untouched = PeriodState::empty(String::new());
        let id = request.posting_id();
        let context = ExtendContext {
            config: &setting.tenant,
            tenant: &rows.tenant,
            hold,
            period: hold.and_then(|hold| rows.periods.get(&hold.period)).unwrap_or(&untouched),
            same_id: rows.postings.iter().find(|stored| stored.id == id),
            account: &setting.account,
        };
        if let Some(rows) = extend(&context, request, now)? {
            self.store_settlement(rows);
        }
        Ok(())
    }

    /// A word about a place. What it finds is counted before: holds whose generation goes on without a reader.
    pub(crate) fn detach(&mut self, told: &Detached) -> Result<(), Refusal> {
        self.tenant_call(|step| step.answer_detach(told))
    }

    fn answer_detach(&mut self, told: &Detached) -> Result<(), Refusal> {
        let rows = self.state.tenant.rows.clone();
        let mut hold = rows.hold(&told.identity.reservation).cloned();
        if let Some(hold) = hold.as_mut().filter(|_| self.bug(Bug::LatePlaceWordCounts)) {
            hold.place.number = 0;
        }
        let detached = if self.bug(Bug::PlaceAboveCap) { 0 } else { rows.detached() };
        let context = DetachedContext { config: &self.setting().tenant, hold: hold.as_ref(), detached };
        let Some(hold) = detach(&context, told)? else {
            self.hit(Probe::PlaceWordLate);
            return Ok(());
        };
        let Place { number, taken } = told.place;
        self.hit_if(taken, Probe::PlaceGranted);
        self.hit_if(!taken && number > 0, Probe::PlaceFreed);
        if taken || !self.bug(Bug::PlaceNotFreed) {
            self.tenant().holds.insert(hold.identity.reservation.clone(), hold);
        }
        Ok(())
    }

    fn settle_one(&mut self, posting: &Posting) -> Result<(), Refusal> {
        let (now, setting) = (self.now(), self.setting());
        if self.bug(Bug::NonIdempotentLedger) {
            self.forget_resolution(posting);
        }
        let before = self.state.tenant.rows.clone();
        let distorted = self.distorted_settlement(&before, posting);
        let (rows, posting) = distorted.as_ref().map_or((&*before, posting), |(rows, posting)| (rows, posting));
        let hold = posting.reservation.as_ref().and_then(|reservation| rows.hold(reservation));
        let untouched = PeriodState::empty(String::new());
        let context = SettleContext {
            limits: &setting.limits,
            tenant: &rows.tenant,
            hold,
            period: hold.and_then(|hold| rows.periods.get(&hold.period)).unwrap_or(&untouched),
            idempotency: hold.and_then(|hold| rows.keys.get(hold.idempotency_scope.as_deref()?)),
            same_id: rows.postings.iter().find(|stored| stored.id == posting.id && !self.bug(Bug::NonIdempotentLedger)),
            referred: posting.refers_to.as_ref().and_then(|id| rows.postings.iter().find(|stored| stored.id == *id)),
        };
        let known = context.same_id.is_some();
        match settle(&context, posting, now)? {
            Some(mut rows) => {
                if let Some(hold) = before.hold(&rows.hold.identity.reservation) {
                    rows.hold.terms.hold = hold.terms.hold;
                }
                let freed_before = before.hold(&rows.hold.identity.reservation).is_some_and(|hold| hold.slot_freed);
                self.store_settlement(rows);
                if self.bug(Bug::SlotFreedByBoth) && freed_before && posting.kind.resolves_hold() {
                    let slots = &mut self.tenant().tenant.slots_in_use;
                    *slots = slots.wrapping_sub(1);
                }
            }
            None => {
                self.hit(Probe::SettleRepeated);
                if self.bug(Bug::SlotFreedTwice) {
                    let slots = &mut self.tenant().tenant.slots_in_use;
                    *slots = slots.wrapping_sub(1);
                }
            }
        }
        // Invariant 8: what was applied before changes nothing.
        let same = !known || self.bug(Bug::SlotFreedTwice) || *before == *self.state.tenant.rows;
        self.check(same, p::REPLAY);
        Ok(())
    }

    fn store_settlement(&mut self, rows: SettlementRows) {
        let audited = !self.bug(Bug::AuditRowLost);
        let tenant = self.tenant();
        tenant.post(rows.posted, audited);
        tenant.periods.insert(rows.period.key.clone(), rows.period);
        match (rows.idempotency, &rows.hold.idempotency_scope) {
            (KeyAfter::Expires(row), _) => drop(tenant.keys.insert(row.scope.clone(), row)),
            (KeyAfter::Freed, Some(scope)) => drop(tenant.keys.remove(scope)),
            (KeyAfter::Freed, None) | (KeyAfter::Unchanged, _) => {}
        }
        tenant.holds.insert(rows.hold.identity.reservation.clone(), rows.hold);
    }

    /// What a ledger is given that takes a cost above the hold for a settlement ([`Bug::OverageInSettlement`]).
    fn distorted_settlement(&self, rows: &TenantRows, posting: &Posting) -> Option<(TenantRows, Posting)> {
        if !self.bug(Bug::OverageInSettlement) || posting.kind != PostingKind::Settle {
            return None;
        }
        let above = Micros::new(1).unwrap_or_default();
        let raised = |amount: Micros| amount.plus(above).unwrap_or_default();
        let (mut rows, mut posting) = (rows.clone(), posting.clone());
        let hold = rows.holds.get_mut(posting.reservation.as_ref()?).filter(|hold| hold.state == HoldState::Open)?;
        hold.terms.hold = raised(hold.terms.hold);
        posting.amount = hold.terms.hold;
        let period = rows.periods.get_mut(&hold.period)?;
        (period.held, rows.tenant.balances.held) = (raised(period.held), raised(rows.tenant.balances.held));
        Some((rows, posting))
    }

    /// What a ledger does that does not know what it has applied.
    fn forget_resolution(&mut self, posting: &Posting) {
        let applied = self.state.tenant.rows.postings.iter().any(|stored| stored.id == posting.id);
        let tenant = self.tenant();
        let hold = posting.reservation.as_ref().and_then(|reservation| tenant.holds.get_mut(reservation));
        if let Some(hold) = hold.filter(|_| applied && posting.kind.resolves_hold()) {
            hold.state = HoldState::Open;
            let amount = hold.terms.hold;
            let period = hold.period.clone();
            tenant.tenant.slots_in_use += 1;
            tenant.tenant.balances.held = tenant.tenant.balances.held.plus(amount).unwrap_or_default();
            let period = tenant.periods.get_mut(&period);
            period.into_iter().for_each(|period| period.held = period.held.plus(amount).unwrap_or_default());
        }
    }

    /// The alarm: one bounded run. The next alarm stands before any work is done.
    pub(crate) fn sweep(&mut self, asked: Asked) {
        let now = self.now();
        self.deaf = self.bug(Bug::AlarmGivesUp);
        if !self.bug(Bug::SweepBelievesItsAlarm) {
            // It has rung: nothing is armed.
            self.state.tenant.armed = Armed::Never;
        }
        self.wake_tenant_at(now.plus(RETRY_MS));
        self.tenant().keys.retain(|_, row| row.stands(now));
        let holds = self.state.tenant.rows.holds.values();
        let overdue: Vec<Hold> =
            holds.filter(|hold| hold.state == HoldState::Open && hold.due_at <= now).cloned().collect();
        for hold in &overdue {
            self.ask_after(hold, asked);
        }
        if asked == Asked::Died && !overdue.is_empty() {
            self.state.tenant.armed = Armed::Unknown;
        } else if let Some(due) = self.state.tenant.rows.earliest_due() {
            self.wake_tenant_at(due);
        } else {
            (self.state.tenant.armed, self.state.tenant.alarm) = (Armed::Never, None);
        }
        self.deaf = false;
    }

    fn ask_after(&mut self, hold: &Hold, asked: Asked) {
        if self.bug(Bug::ReleaseByTenant) {
            return self.release_by_tenant(hold);
        }
        let g = self.model.identities.iter().position(|identity| *identity == hold.identity);
        if asked != Asked::QuestionLost
            && let Some(g) = g
        {
            self.resolve(g, hold);
        }
        // A settlement may have come meanwhile: the hold is loaded anew.
        let current = self.state.tenant.rows.hold(&hold.identity.reservation);
        let Some(current) = current.filter(|current| current.state == HoldState::Open).cloned() else { return };
        if asked == Asked::Died {
            return;
        }
        let now = self.now();
        let due_at = if asked == Asked::Answered { due_after_start(&current, now) } else { now.plus(RETRY_MS) };
        self.tenant().holds.insert(current.identity.reservation.clone(), Hold { due_at, ..current });
    }

    /// The object's side of the question.
    fn resolve(&mut self, g: usize, hold: &Hold) {
        let alarm_lost = self.state.generations[g].object.alarm.is_none();
        self.call(g);
        let repaired = alarm_lost && self.state.generations[g].object.alarm.is_some();
        self.hit_if(repaired, Probe::AlarmRepaired);
        let admitted = Admitted::of(hold, false);
        let (identity, attempt, terms) = (admitted.identity, admitted.attempt, Box::new(admitted.terms));
        let before = self.aggregate(g);
        let (admitted_at, by) = (admitted.admitted_at, ResolvedBy::Sweep);
        let answer = self.apply(g, &Command::ResolveNeverStarted { identity, attempt, terms, admitted_at, by });
        self.check(answer.is_ok(), p::DRAINS);
        self.hit_if(*before == holdfast_core::reservation::Aggregate::Vacant, Probe::Tombstone);
        self.deliver(g);
    }

    fn release_by_tenant(&mut self, hold: &Hold) {
        let id = posting_id(&hold.identity.reservation, 0, PostingKind::Release, 2);
        let posting = Posting {
            reservation: Some(hold.identity.reservation.clone()),
            generation: Some(hold.identity.generation.clone()),
            ..Posting::new(id, PostingKind::Release, hold.held(), ReasonCode::NeverStarted, self.now())
        };
        let settled = self.settle_one(&posting);
        self.check(settled.is_ok(), p::DRAINS);
    }
}
