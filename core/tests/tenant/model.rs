//! A second, much simpler account of what a tenant's books must say: a list of what happened, and sums over it.

use super::world::identity;
use holdfast_core::config::Period;
use holdfast_core::ledger::{Direction, Posting, PostingKind, ReasonCode, posting_id};
use holdfast_core::tenant::period_key;
use holdfast_core::time::UnixMillis;
use std::collections::BTreeMap;

pub(crate) const GRANT: u64 = 250;
pub(crate) const DAY_LIMIT: u64 = 200;
pub(crate) const SLOTS: u32 = 3;
pub(crate) const DETACHED_MAX: u32 = 1;
/// Worst case of every body beside its size.
pub(crate) const OUTPUT: u64 = 10;
pub(crate) const KEY_LIFE_MS: u64 = 3_600_000;

/// An admission.
#[derive(Clone, Debug)]
pub(crate) struct ModelHold {
    pub(crate) amount: u64,
    body: u64,
    day: String,
    scope: Option<String>,
}

#[derive(Clone, Debug)]
pub(crate) struct ModelKey {
    pub(crate) n: u8,
    body: u64,
    pub(crate) expires_at: Option<u64>,
    /// Its hold was released, and nothing is open: whoever comes next runs anew.
    free: bool,
}

/// A movement of a hold that was applied. What came by the outbox is kept whole, to know it again.
#[derive(Clone, Debug)]
struct Fact {
    n: u8,
    id: String,
    kind: PostingKind,
    amount: u64,
    refund: bool,
    frees_slot: bool,
    sent: Option<Posting>,
}

/// What the books must say.
#[derive(Debug, Default)]
pub(crate) struct Model {
    pub(crate) granted: u64,
    /// Nothing new is run, and nothing more is held. What is recorded stands.
    pub(crate) suspended: bool,
    pub(crate) holds: BTreeMap<u8, ModelHold>,
    pub(crate) keys: BTreeMap<String, ModelKey>,
    applied: Vec<Fact>,
    /// The words about places that were taken in, by their number.
    words: BTreeMap<u8, BTreeMap<u32, bool>>,
}

/// What a step must answer: a word that both sides can say.
pub(crate) type Said = String;

impl Model {
    pub(crate) fn of_credit(granted: u64) -> Self {
        Self { granted, ..Self::default() }
    }

    fn of(&self, n: u8) -> impl Iterator<Item = &Fact> {
        self.applied.iter().filter(move |fact| fact.n == n)
    }

    fn sum(&self, n: u8, kind: PostingKind) -> u64 {
        self.of(n).filter(|fact| fact.kind == kind).map(|fact| fact.amount).sum()
    }

    /// How the hold ended.
    pub(crate) fn ended(&self, n: u8) -> Option<PostingKind> {
        self.of(n).map(|fact| fact.kind).find(|kind| matches!(kind, PostingKind::Settle | PostingKind::Release))
    }

    /// What was reserved: as placed, extended and reduced.
    pub(crate) fn reserved(&self, n: u8) -> u64 {
        self.sum(n, PostingKind::Hold) + self.sum(n, PostingKind::HoldExtended) - self.sum(n, PostingKind::HoldReduced)
    }

    pub(crate) fn held_by(&self, n: u8) -> u64 {
        if self.ended(n).is_some() { 0 } else { self.reserved(n) }
    }

    pub(crate) fn charged(&self, n: u8) -> u64 {
        let bills = |kind| {
            !matches!(
                kind,
                PostingKind::Hold | PostingKind::HoldExtended | PostingKind::HoldReduced | PostingKind::Release
            )
        };
        let billed = |refund| {
            self.of(n).filter(|fact| bills(fact.kind) && fact.refund == refund).map(|fact| fact.amount).sum::<u64>()
        };
        billed(false) - billed(true)
    }

    pub(crate) fn has_slot(&self, n: u8) -> bool {
        self.ended(n).is_none() && !self.of(n).any(|fact| fact.frees_slot)
    }

    fn all(&self) -> impl Iterator<Item = u8> {
        self.holds.keys().copied()
    }

    pub(crate) fn slots(&self) -> usize {
        self.all().filter(|n| self.has_slot(*n)).count()
    }

    pub(crate) fn held(&self) -> u64 {
        self.all().map(|n| self.held_by(n)).sum()
    }

    pub(crate) fn spent(&self) -> u64 {
        self.all().map(|n| self.charged(n)).sum()
    }

    /// Held and spent of a day.
    pub(crate) fn of_day(&self, day: &str) -> (u64, u64) {
        let of_day = || self.holds.iter().filter(|(_, hold)| hold.day == day).map(|(n, _)| *n);
        (of_day().map(|n| self.held_by(n)).sum(), of_day().map(|n| self.charged(n)).sum())
    }

    /// Whether every cost was covered by a hold.
    pub(crate) fn within_holds(&self) -> bool {
        let above = |fact: &Fact| match fact.kind {
            PostingKind::Overage | PostingKind::LateSettlement => true,
            PostingKind::Correction | PostingKind::Compensation => !fact.refund,
            _ => false,
        };
        !self.applied.iter().any(above)
    }

    fn affords(&self, amount: u64, day: &str) -> bool {
        let (held, spent) = self.of_day(day);
        self.held() + self.spent() + amount <= self.granted && held + spent + amount <= DAY_LIMIT
    }

    pub(crate) fn admit(&mut self, n: u8, body: u64, scope: Option<String>, now: UnixMillis) -> Said {
        if let Some(hold) = self.holds.get(&n) {
            return if hold.body == body { format!("runs {n}") } else { "identity_conflict".into() };
        }
        let key = scope.as_ref().and_then(|scope| self.keys.get(scope));
        if let Some(key) = key.filter(|key| !key.free && key.expires_at.is_none_or(|expires_at| expires_at > now.0)) {
            return if key.body == body { format!("joins {}", key.n) } else { "idempotency_key_reused".into() };
        }
        if self.suspended {
            return "tenant_suspended".into();
        }
        let (amount, day) = (body + OUTPUT, period_key(Period::Day, now));
        if !self.affords(amount, &day) {
            return "budget_exhausted".into();
        }
        if self.slots() >= SLOTS as usize {
            return "concurrency_exceeded".into();
        }
        if let Some(scope) = &scope {
            self.keys.insert(scope.clone(), ModelKey { n, body, expires_at: None, free: false });
        }
        self.holds.insert(n, ModelHold { amount, body, day, scope });
        self.apply_own(n, PostingKind::Hold, 1, amount);
        format!("runs {n}")
    }

    pub(crate) fn extend(&mut self, n: u8, epoch: u32, amount: u64) -> Said {
        let id = posting_id(&identity(n).reservation, epoch, PostingKind::HoldExtended, 1);
        if let Some(fact) = self.applied.iter().find(|fact| fact.id == id) {
            return if fact.amount == amount { "applied before".into() } else { "posting_conflict".into() };
        }
        if self.suspended {
            return "tenant_suspended".into();
        }
        let Some(hold) = self.holds.get(&n) else { return "not_found".into() };
        if self.ended(n).is_some() {
            return "already_resolved".into();
        }
        if !self.has_slot(n) {
            return "wrong_state".into();
        }
        if !self.affords(amount, &hold.day) {
            return "budget_exhausted".into();
        }
        self.apply_own(n, PostingKind::HoldExtended, epoch, amount);
        "applied".into()
    }

    pub(crate) fn detach(&mut self, n: u8, number: u32, taken: bool) -> &'static str {
        if !self.holds.contains_key(&n) {
            return "not_found";
        }
        let words = self.words.get(&n);
        if self.ended(n).is_some() || words.is_some_and(|words| words.keys().any(|told| *told >= number)) {
            return "applied before";
        }
        if taken && !self.is_detached(n) && self.detached() == DETACHED_MAX {
            return "detached_exceeded";
        }
        self.words.entry(n).or_default().insert(number, taken);
        "applied"
    }

    fn is_detached(&self, n: u8) -> bool {
        let latest = self.words.get(&n).and_then(|words| words.values().last().copied());
        self.ended(n).is_none() && latest == Some(true)
    }

    pub(crate) fn detached(&self) -> u32 {
        self.all().map(|n| u32::from(self.is_detached(n))).sum()
    }

    /// What the tenant authors itself.
    fn apply_own(&mut self, n: u8, kind: PostingKind, epoch: u32, amount: u64) {
        let id = posting_id(&identity(n).reservation, epoch, kind, 1);
        self.applied.push(Fact { n, id, kind, amount, refund: false, frees_slot: false, sent: None });
    }

    pub(crate) fn settle(&mut self, posting: &Posting, n: u8, now: UnixMillis) -> Said {
        if let Some(fact) = self.applied.iter().find(|fact| fact.id == posting.id) {
            return if fact.sent.as_ref() == Some(posting) { "applied before" } else { "posting_conflict" }.into();
        }
        let Some(hold) = self.holds.get(&n) else { return "not_found".into() };
        let scope = hold.scope.clone();
        if let Some(code) = self.complaint(posting, n) {
            return code.into();
        }
        self.applied.push(Fact {
            n,
            id: posting.id.clone(),
            kind: posting.kind,
            amount: posting.amount.get(),
            refund: posting.direction == Direction::Refund,
            frees_slot: posting.frees_slot,
            sent: Some(posting.clone()),
        });
        if matches!(posting.kind, PostingKind::Settle | PostingKind::Release) {
            self.end_key(posting, n, scope, now);
        }
        "applied".into()
    }

    /// Why a posting of a hold that is known is refused.
    fn complaint(&self, posting: &Posting, n: u8) -> Option<&'static str> {
        use PostingKind as K;
        let (kind, amount) = (posting.kind, posting.amount.get());
        let (late, free) = (kind == K::LateSettlement, matches!(kind, K::Correction | K::Compensation));
        let refund = posting.direction == Direction::Refund;
        if matches!(kind, K::Grant | K::Hold | K::HoldExtended)
            || (refund && !free)
            || (posting.frees_slot && kind != K::HoldReduced)
            || ((late || free) && posting.refers_to.is_none())
        {
            return Some("wrong_state");
        }
        match (kind, self.ended(n)) {
            (K::HoldReduced | K::Settle | K::Release, None) => {
                return (amount > self.held_by(n)).then_some("amount_out_of_range");
            }
            (K::HoldReduced | K::Settle | K::Release, Some(_)) => return Some("already_resolved"),
            (_, None) => return Some("not_resolved_yet"),
            (K::Overage, Some(K::Release)) | (K::LateSettlement, Some(K::Settle)) => return Some("already_resolved"),
            (K::Overage, Some(_)) => return None,
            _ => {}
        }
        let referred = posting.refers_to.as_ref().and_then(|id| self.applied.iter().find(|fact| fact.id == *id));
        match referred {
            None => Some("not_resolved_yet"),
            Some(fact) if fact.n != n => Some("wrong_state"),
            Some(fact) if late && fact.kind != K::Release => Some("wrong_state"),
            Some(fact) if matches!(fact.kind, K::Hold | K::HoldExtended | K::HoldReduced) => Some("wrong_state"),
            Some(_) => (refund && amount > self.charged(n)).then_some("amount_out_of_range"),
        }
    }

    fn end_key(&mut self, posting: &Posting, n: u8, scope: Option<String>, now: UnixMillis) {
        let Some(scope) = scope.filter(|scope| self.keys.get(scope).is_some_and(|key| key.n == n)) else { return };
        if posting.reason == ReasonCode::NeverStarted {
            self.keys.remove(&scope);
            return;
        }
        let key = self.keys.get_mut(&scope).unwrap();
        key.expires_at = Some(now.0 + KEY_LIFE_MS);
        key.free = posting.kind == PostingKind::Release && posting.reason != ReasonCode::ExpiredReleased;
    }
}
