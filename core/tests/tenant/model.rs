//! A second, much simpler account of what a tenant's books must say, and random histories that both must agree on.

use super::world::{PATH, START, World, config, identity, posting, request};
use holdfast_core::config::Period;
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode};
use holdfast_core::tenant::{HoldState, period_key};
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;
use std::collections::{BTreeMap, BTreeSet};

const GRANT: u64 = 250;
const DAY_LIMIT: u64 = 200;
const SLOTS: u32 = 3;
/// Worst case of every body beside its size.
const OUTPUT: u64 = 10;
const KEY_LIFE_MS: u64 = 3_600_000;

/// One step of a history.
#[derive(Clone, Debug)]
enum Step {
    Admit {
        n: u8,
        body: u64,
        key: Option<u8>,
        other_path: bool,
    },
    Settle {
        n: u8,
        amount: u64,
    },
    Release {
        n: u8,
        never_started: bool,
    },
    Overage {
        n: u8,
        amount: u64,
    },
    /// An earlier posting is delivered again, at any distance.
    Again {
        which: prop::sample::Index,
    },
    /// A posting of an earlier id comes with another content.
    Forged {
        which: prop::sample::Index,
    },
    Wait {
        ms: u64,
    },
    Forget,
    RaiseGrant {
        by: u64,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let n = 0_u8..7;
    prop_oneof![
        8 => (n.clone(), prop::sample::select(vec![20_u64, 40, 90]), prop::option::of(0_u8..2), any::<bool>())
            .prop_map(|(n, body, key, other_path)| Step::Admit { n, body, key, other_path }),
        4 => (n.clone(), 0_u64..110).prop_map(|(n, amount)| Step::Settle { n, amount }),
        3 => (n.clone(), any::<bool>()).prop_map(|(n, never_started)| Step::Release { n, never_started }),
        2 => (n, 1_u64..40).prop_map(|(n, amount)| Step::Overage { n, amount }),
        3 => any::<prop::sample::Index>().prop_map(|which| Step::Again { which }),
        1 => any::<prop::sample::Index>().prop_map(|which| Step::Forged { which }),
        2 => prop::sample::select(vec![1_u64, 1_000, KEY_LIFE_MS, 86_400_000]).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Forget),
        1 => (1_u64..100).prop_map(|by| Step::RaiseGrant { by }),
    ]
}

#[derive(Clone, Debug)]
struct ModelHold {
    amount: u64,
    body: u64,
    day: String,
    scope: Option<String>,
    open: bool,
    released: bool,
    spent: u64,
    overage: u64,
}

#[derive(Clone, Debug)]
struct ModelKey {
    n: u8,
    body: u64,
    expires_at: Option<u64>,
    /// Its hold was released: whoever comes next runs anew.
    free: bool,
}

/// What the books must say: plain sums over what happened.
#[derive(Debug, Default)]
struct Model {
    granted: u64,
    holds: BTreeMap<u8, ModelHold>,
    keys: BTreeMap<String, ModelKey>,
    applied: Vec<Posting>,
}

/// What a step must answer: a word that both sides can say.
type Said = String;

impl Model {
    fn open(&self) -> impl Iterator<Item = &ModelHold> {
        self.holds.values().filter(|hold| hold.open)
    }

    fn held(&self) -> u64 {
        self.open().map(|hold| hold.amount).sum()
    }

    fn spent(&self) -> u64 {
        self.holds.values().map(|hold| hold.spent + hold.overage).sum()
    }

    /// Held and spent of a day.
    fn of_day(&self, day: &str) -> (u64, u64) {
        let of_day = || self.holds.values().filter(|hold| hold.day == day);
        let held = of_day().filter(|hold| hold.open).map(|hold| hold.amount).sum();
        (held, of_day().map(|hold| hold.spent + hold.overage).sum())
    }

    fn admit(&mut self, n: u8, body: u64, scope: Option<String>, now: UnixMillis) -> Said {
        if let Some(hold) = self.holds.get(&n) {
            return if hold.body == body { format!("runs {n}") } else { "identity_conflict".into() };
        }
        let key = scope.as_ref().and_then(|scope| self.keys.get(scope));
        if let Some(key) = key.filter(|key| !key.free && key.expires_at.is_none_or(|expires_at| expires_at > now.0)) {
            return if key.body == body { format!("joins {}", key.n) } else { "idempotency_key_reused".into() };
        }
        let (amount, day) = (body + OUTPUT, period_key(Period::Day, now));
        let (held, spent) = self.of_day(&day);
        if self.held() + self.spent() + amount > self.granted || held + spent + amount > DAY_LIMIT {
            return "budget_exhausted".into();
        }
        if self.open().count() >= SLOTS as usize {
            return "concurrency_exceeded".into();
        }
        if let Some(scope) = &scope {
            self.keys.insert(scope.clone(), ModelKey { n, body, expires_at: None, free: false });
        }
        let hold = ModelHold { amount, body, day, scope, open: true, released: false, spent: 0, overage: 0 };
        self.holds.insert(n, hold);
        format!("runs {n}")
    }

    fn settle(&mut self, posting: &Posting, n: u8, now: UnixMillis) -> Said {
        if let Some(applied) = self.applied.iter().find(|applied| applied.id == posting.id) {
            return if applied == posting { "applied before".into() } else { "posting_conflict".into() };
        }
        let Some(hold) = self.holds.get_mut(&n) else { return "not_found".into() };
        let amount = posting.amount.get();
        let overage = posting.kind == PostingKind::Overage;
        if if overage { hold.open || hold.released } else { !hold.open } {
            return "already_resolved".into();
        }
        match posting.kind {
            PostingKind::Settle if amount <= hold.amount => hold.spent = amount,
            PostingKind::Release if amount == hold.amount => hold.released = true,
            PostingKind::Overage => hold.overage = amount,
            _ => return "amount_out_of_range".into(),
        }
        hold.open = false;
        self.applied.push(posting.clone());
        let scope = hold.scope.clone().filter(|scope| !overage && self.keys.get(scope).is_some_and(|key| key.n == n));
        match scope {
            Some(scope) if posting.reason == ReasonCode::NeverStarted => drop(self.keys.remove(&scope)),
            Some(scope) => {
                let key = self.keys.get_mut(&scope).unwrap();
                key.expires_at = Some(now.0 + KEY_LIFE_MS);
                key.free = posting.kind == PostingKind::Release;
            }
            None => {}
        }
        "applied".into()
    }
}

/// Both books side by side.
struct Books {
    world: World,
    model: Model,
    now: UnixMillis,
    /// Every posting that was ever sent, applied or refused.
    sent: Vec<(u8, Posting)>,
}

impl Books {
    fn new() -> Self {
        let mut world =
            World::new(config(GRANT, DAY_LIMIT, SLOTS, r#"{"name":"r","provider":"p","max_output_tokens":10}"#));
        world.limits.idempotency_ms = KEY_LIFE_MS;
        Self { world, model: Model { granted: GRANT, ..Model::default() }, now: START, sent: Vec::new() }
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Admit { n, body, key, other_path } => self.admit(*n, *body, *key, *other_path),
            Step::Settle { n, amount } => {
                self.send(*n, posting(*n, PostingKind::Settle, *amount, ReasonCode::CompletedExact));
            }
            Step::Release { n, never_started } => {
                let reason = if *never_started { ReasonCode::NeverStarted } else { ReasonCode::ProviderRefused };
                let amount = self.model.holds.get(n).map_or(1, |hold| hold.amount);
                self.send(*n, posting(*n, PostingKind::Release, amount, reason));
            }
            Step::Overage { n, amount } => {
                self.send(*n, posting(*n, PostingKind::Overage, *amount, ReasonCode::CompletedExact));
            }
            Step::Again { which } if !self.sent.is_empty() => {
                let (n, posting) = which.get(&self.sent).clone();
                self.send(n, posting);
            }
            Step::Forged { which } if !self.sent.is_empty() => {
                let (n, posting) = which.get(&self.sent).clone();
                self.send(n, Posting { decided_at: posting.decided_at.plus(1), ..posting });
            }
            Step::Again { .. } | Step::Forged { .. } => {}
            Step::Wait { ms } => self.now = self.now.plus(*ms),
            Step::Forget => self.world.forget(self.now),
            Step::RaiseGrant { by } => {
                self.model.granted += by;
                self.world.config.grant_micros = super::world::micros(self.model.granted);
                self.world.grant();
            }
        }
        self.agree();
    }

    fn admit(&mut self, n: u8, body: u64, key: Option<u8>, other_path: bool) {
        let path = if other_path { "/v1/other" } else { PATH };
        let key = key.map(|key| format!("key {key}"));
        let scope = key.as_ref().map(|key| format!("{path} {key}"));
        let call = holdfast_core::tenant::Admit { path: path.into(), idempotency_key: key, ..request(n, body) };
        let before = self.world.clone();
        let known = self.model.holds.contains_key(&n);
        let expected = self.model.admit(n, body, scope, self.now);
        let said = match self.world.admit(&call, self.now) {
            Ok(admitted) => {
                let n = (0..7).find(|n| identity(*n) == admitted.identity).unwrap();
                format!("{} {n}", if admitted.joined { "joins" } else { "runs" })
            }
            Err(refusal) => refusal.code().into(),
        };
        assert_eq!(said, expected);
        if known || !said.starts_with("runs") {
            assert_eq!(self.world, before, "invariant 8: a replay, a join and a refusal change nothing");
        }
    }

    fn send(&mut self, n: u8, posting: Posting) {
        let before = self.world.clone();
        let expected = self.model.settle(&posting, n, self.now);
        let said = match self.world.settle(&posting, self.now) {
            Ok(true) => "applied".into(),
            Ok(false) => "applied before".into(),
            Err(refusal) => refusal.code().to_string(),
        };
        assert_eq!(said, expected);
        if said != "applied" {
            assert_eq!(self.world, before, "invariant 8: a repeated and a refused posting change nothing");
        }
        self.sent.push((n, posting));
    }

    fn agree(&self) {
        let Self { world, model, .. } = self;
        let balances = world.tenant.balances;
        let numbers = (balances.granted.get(), balances.held.get(), balances.spent.get());
        assert_eq!(numbers, (model.granted, model.held(), model.spent()), "invariant 11");
        if model.holds.values().all(|hold| hold.overage == 0) {
            let parts = balances.available().get() + balances.held.get() + balances.spent.get();
            assert_eq!(parts, model.granted, "without an overage, credit is available, held or spent");
        }
        assert_eq!(world.tenant.slots_in_use as usize, model.open().count(), "invariant 11");
        assert!(world.tenant.slots_in_use <= SLOTS, "invariant 11");
        for period in world.periods.values() {
            assert_eq!((period.held.get(), period.spent.get()), model.of_day(&period.key));
        }
        self.agree_on_holds();
        self.agree_on_keys();
    }

    fn agree_on_keys(&self) {
        let stands = |expires_at: Option<u64>| expires_at.is_none_or(|expires_at| expires_at > self.now.0);
        let stored = self.world.keys.iter().filter(|(_, row)| row.stands(self.now));
        let expected = self.model.keys.iter().filter(|(_, key)| stands(key.expires_at));
        let stored: Vec<_> = stored.map(|(scope, row)| (scope, row.identity.clone(), row.expires_at)).collect();
        let expected: Vec<_> =
            expected.map(|(scope, key)| (scope, identity(key.n), key.expires_at.map(UnixMillis))).collect();
        assert_eq!(stored, expected);
    }

    fn agree_on_holds(&self) {
        let mut resolved = BTreeSet::new();
        for posting in self.world.postings.values().filter(|posting| posting.kind.resolves_hold()) {
            assert!(resolved.insert(posting.reservation.clone()), "invariant 1: {posting:?}");
        }
        assert_eq!(self.world.holds.len(), self.model.holds.len());
        for (n, hold) in &self.model.holds {
            let reservation = identity(*n).reservation;
            let stored = &self.world.holds[&reservation];
            let expected = match (hold.open, hold.released) {
                (true, _) => HoldState::Open,
                (false, true) => HoldState::Released,
                (false, false) => HoldState::Settled,
            };
            assert_eq!((stored.state, stored.terms.hold.get()), (expected, hold.amount));
            let of_hold = |kind| {
                let of_kind =
                    |posting: &&Posting| posting.kind == kind && posting.reservation.as_ref() == Some(&reservation);
                self.world.postings.values().filter(of_kind).map(|posting| posting.amount.get()).sum::<u64>()
            };
            assert_eq!(of_hold(PostingKind::Hold), hold.amount, "invariant 8: an admission holds once");
            assert!(of_hold(PostingKind::Settle) <= hold.amount, "invariant 2: what costs more is an overage");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 400, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants 1, 2, 8, 10 and 11, after every step of any history of admissions, deliveries and repetitions.
    #[test]
    fn any_history_keeps_the_books(steps in prop::collection::vec(step(), 1..80)) {
        let mut books = Books::new();
        for step in &steps {
            books.take(step);
        }
        books.world.check_audit();
    }

    /// Invariant 11: which way deliveries overtake each other does not change where the books end.
    #[test]
    fn order_of_deliveries_does_not_matter(
        amounts in prop::collection::vec((0_u64..30, prop::option::of(1_u64..9)), 3),
        order in prop::collection::vec(any::<prop::sample::Index>(), 30),
    ) {
        let mut in_order = Books::new();
        let mut shuffled = Books::new();
        let mut deliveries = Vec::new();
        for (n, (amount, overage)) in (0_u8..).zip(&amounts) {
            in_order.admit(n, 20, None, false);
            shuffled.admit(n, 20, None, false);
            deliveries.push((n, posting(n, PostingKind::Settle, *amount, ReasonCode::CompletedExact)));
            deliveries.extend(overage.map(|more| (n, posting(n, PostingKind::Overage, more, ReasonCode::CompletedExact))));
        }
        for (n, posting) in &deliveries {
            in_order.send(*n, posting.clone());
        }
        for index in order {
            let (n, posting) = index.get(&deliveries);
            shuffled.send(*n, posting.clone());
        }
        // Delivery goes on until everything is acknowledged: an overage may have to wait for its settlement.
        for _ in 0..2 {
            for (n, posting) in &deliveries {
                shuffled.send(*n, posting.clone());
            }
        }
        shuffled.agree();
        shuffled.world.check_audit();
        prop_assert_eq!(shuffled.world.tenant.balances, in_order.world.tenant.balances);
        prop_assert_eq!(shuffled.world.periods, in_order.world.periods);
        prop_assert_eq!(shuffled.world.holds, in_order.world.holds);
        prop_assert_eq!(shuffled.world.postings, in_order.world.postings);
    }
}
