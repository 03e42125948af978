//! Random histories, kept by the rules and by the [`Model`], which must agree after every step.

use super::detached::told;
use super::model::{DAY_LIMIT, DETACHED_MAX, GRANT, KEY_LIFE_MS, Model, SLOTS};
use super::world::{PATH, START, World, config, id_of, identity, micros, posting, request};
use holdfast_core::ledger::{Balances, Direction, Posting, PostingKind, ReasonCode};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::Status;
use holdfast_core::tenant::{Extend, HoldState};
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;
use proptest::sample::Index;

/// One step of a history.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Admit {
        n: u8,
        body: u64,
        key: Option<u8>,
        other_path: bool,
    },
    Extend {
        n: u8,
        epoch: u32,
        amount: u64,
    },
    /// The work of a reservation goes on without a reader, or no longer.
    Detach {
        n: u8,
        number: u32,
        taken: bool,
    },
    Send(Draft),
    /// An earlier posting is delivered again, at any distance.
    Again {
        which: Index,
    },
    /// A posting of an earlier id comes with another content.
    Forged {
        which: Index,
    },
    Wait {
        ms: u64,
    },
    Forget,
    RaiseGrant {
        by: u64,
    },
    /// The operator suspends the tenant, or lets it run again.
    Suspend {
        suspended: bool,
    },
}

/// A posting of a reservation, before it is known what there is to refer to.
#[derive(Clone, Debug)]
pub(crate) struct Draft {
    n: u8,
    kind: PostingKind,
    version: u32,
    amount: u64,
    refund: bool,
    frees_slot: bool,
    refers: Refers,
    reason: ReasonCode,
}

#[derive(Clone, Debug)]
enum Refers {
    Nothing,
    /// To the settlement or the release of the hold, whichever there is.
    Resolution,
    /// To any posting that was ever sent, applied or not.
    Any(Index),
    /// To the hold.
    Hold,
}

fn draft() -> impl Strategy<Value = Draft> {
    use PostingKind as K;
    let kind = prop_oneof![
        6 => Just(K::Settle),
        5 => Just(K::Release),
        4 => Just(K::HoldReduced),
        3 => Just(K::Overage),
        4 => Just(K::LateSettlement),
        5 => Just(K::Correction),
        3 => Just(K::Compensation),
        1 => prop::sample::select(vec![K::Grant, K::Hold, K::HoldExtended]),
    ];
    let refers = prop_oneof![
        6 => Just(Refers::Resolution),
        2 => any::<Index>().prop_map(Refers::Any),
        1 => Just(Refers::Hold),
        1 => Just(Refers::Nothing),
    ];
    let reason = prop::sample::select(vec![
        ReasonCode::CompletedExact,
        ReasonCode::ProviderRefused,
        ReasonCode::NeverStarted,
        ReasonCode::ExpiredReleased,
    ]);
    let flags = (any::<bool>(), any::<bool>(), 0_u8..20);
    (0_u8..7, kind, 1_u32..4, 0_u64..60, flags, refers, reason).prop_map(
        |(n, kind, version, amount, (refund, frees_slot, odd), refers, reason)| Draft {
            n,
            kind,
            version,
            amount,
            // Now and then a member that its kind must not have.
            refund: refund && (matches!(kind, K::Correction | K::Compensation) || odd == 0),
            frees_slot: frees_slot && (kind == K::HoldReduced || odd == 1),
            refers,
            reason,
        },
    )
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let n = 0_u8..7;
    prop_oneof![
        8 => (n.clone(), prop::sample::select(vec![20_u64, 40, 90]), prop::option::of(0_u8..2), any::<bool>())
            .prop_map(|(n, body, key, other_path)| Step::Admit { n, body, key, other_path }),
        4 => (n.clone(), 1_u32..5, any::<bool>())
            .prop_map(|(n, number, taken)| Step::Detach { n, number, taken }),
        2 => (n, 2_u32..4, 0_u64..40).prop_map(|(n, epoch, amount)| Step::Extend { n, epoch, amount }),
        14 => draft().prop_map(Step::Send),
        3 => any::<Index>().prop_map(|which| Step::Again { which }),
        1 => any::<Index>().prop_map(|which| Step::Forged { which }),
        2 => prop::sample::select(vec![1_u64, 1_000, KEY_LIFE_MS, 86_400_000]).prop_map(|ms| Step::Wait { ms }),
        1 => Just(Step::Forget),
        1 => (1_u64..100).prop_map(|by| Step::RaiseGrant { by }),
        1 => prop::sample::select(vec![true, false, false]).prop_map(|suspended| Step::Suspend { suspended }),
    ]
}

/// The balances over all postings, by the rule of the object's own check: no entry is looked at.
fn recomputed(world: &World) -> Balances {
    use PostingKind as K;
    let ended = |posting: &Posting| {
        world.postings.values().any(|other| other.kind.resolves_hold() && other.reservation == posting.reservation)
    };
    let sum = |wanted: &dyn Fn(&Posting) -> i64| {
        let of = |posting: &Posting| wanted(posting) * i64::try_from(posting.amount.get()).unwrap();
        micros(u64::try_from(world.postings.values().map(of).sum::<i64>()).unwrap())
    };
    Balances {
        granted: sum(&|posting| i64::from(posting.kind == K::Grant)),
        held: sum(&|posting| match posting.kind {
            K::Hold | K::HoldExtended if !ended(posting) => 1,
            K::HoldReduced if !ended(posting) => -1,
            _ => 0,
        }),
        spent: sum(&|posting| match (posting.kind, posting.direction) {
            (K::Settle | K::Overage | K::LateSettlement, _) => 1,
            (K::Correction | K::Compensation, Direction::Charge) => 1,
            (K::Correction | K::Compensation, Direction::Refund) => -1,
            _ => 0,
        }),
    }
}

/// Both books side by side.
pub(crate) struct Books {
    pub(crate) world: World,
    model: Model,
    now: UnixMillis,
    /// Every posting that was ever sent, applied or refused.
    sent: Vec<(u8, Posting)>,
}

impl Books {
    pub(crate) fn new() -> Self {
        let mut world =
            World::new(config(GRANT, DAY_LIMIT, SLOTS, r#"{"name":"r","provider":"p","max_output_tokens":10}"#));
        world.limits.idempotency_ms = KEY_LIFE_MS;
        world.config.detached_max = Some(DETACHED_MAX);
        Self { world, model: Model::of_credit(GRANT), now: START, sent: Vec::new() }
    }

    pub(crate) fn take(&mut self, step: &Step) {
        match step {
            Step::Admit { n, body, key, other_path } => self.admit(*n, *body, *key, *other_path),
            Step::Extend { n, epoch, amount } => self.extend(*n, *epoch, *amount),
            Step::Detach { n, number, taken } => self.detach(*n, *number, *taken),
            Step::Send(draft) => {
                let posting = self.posting(draft);
                self.send(draft.n, posting);
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
                let id = format!("grant of {}", self.model.granted);
                assert_eq!(self.world.grant(&id, micros(*by)), Ok(true));
            }
            Step::Suspend { suspended } => {
                self.model.suspended = *suspended;
                self.world.account.status = if *suspended { Status::Suspended } else { Status::Active };
            }
        }
        self.agree();
    }

    fn posting(&self, draft: &Draft) -> Posting {
        let n = draft.n;
        let refers_to = match &draft.refers {
            Refers::Nothing => None,
            Refers::Hold => Some(id_of(n, PostingKind::Hold, 1)),
            Refers::Any(which) if !self.sent.is_empty() => Some(which.get(&self.sent).1.id.clone()),
            Refers::Any(_) | Refers::Resolution => {
                let resolves = |posting: &&Posting| {
                    posting.kind.resolves_hold() && posting.reservation.as_ref() == Some(&identity(n).reservation)
                };
                let resolution = self.world.postings.values().find(resolves).map(|posting| posting.id.clone());
                Some(resolution.unwrap_or_else(|| id_of(n, PostingKind::Settle, 1)))
            }
        };
        Posting {
            id: id_of(n, draft.kind, draft.version),
            direction: if draft.refund { Direction::Refund } else { Direction::Charge },
            refers_to,
            frees_slot: draft.frees_slot,
            ..posting(n, draft.kind, draft.amount, draft.reason)
        }
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

    fn detach(&mut self, n: u8, number: u32, taken: bool) {
        let before = self.world.clone();
        let expected = self.model.detach(n, number, taken);
        let said = self.world.detach(&told(n, number, taken));
        self.compare(&before, said, expected);
    }

    fn extend(&mut self, n: u8, epoch: u32, amount: u64) {
        let before = self.world.clone();
        let expected = self.model.extend(n, epoch, amount);
        let request = Extend { identity: identity(n), epoch, amount: micros(amount) };
        let said = self.world.extend(&request, self.now);
        self.compare(&before, said, &expected);
    }

    fn send(&mut self, n: u8, posting: Posting) {
        let before = self.world.clone();
        let expected = self.model.settle(&posting, n, self.now);
        let said = self.world.settle(&posting, self.now);
        self.compare(&before, said, &expected);
        self.sent.push((n, posting));
    }

    fn compare(&self, before: &World, said: Result<bool, Refusal>, expected: &str) {
        let said = match said {
            Ok(true) => "applied".into(),
            Ok(false) => "applied before".into(),
            Err(refusal) => refusal.code().to_string(),
        };
        assert_eq!(said, expected);
        if said != "applied" {
            assert_eq!(self.world, *before, "invariant 8: a repeated and a refused posting change nothing");
        }
    }

    fn agree(&self) {
        let Self { world, model, .. } = self;
        let balances = world.tenant.balances;
        let numbers = (balances.granted.get(), balances.held.get(), balances.spent.get());
        assert_eq!(numbers, (model.granted, model.held(), model.spent()), "invariant 11");
        assert_eq!(balances, recomputed(world), "invariant 11: over the postings alone");
        if model.within_holds() {
            let parts = balances.available().get() + balances.held.get() + balances.spent.get();
            assert_eq!(parts, model.granted, "where no cost is above its hold, credit is available, held or spent");
        }
        assert_eq!(world.tenant.slots_in_use as usize, model.slots(), "invariant 11: each slot is freed once");
        assert!(world.tenant.slots_in_use <= SLOTS, "invariant 11");
        assert_eq!(world.detached(), model.detached());
        assert!(world.detached() <= DETACHED_MAX);
        for period in world.periods.values() {
            assert_eq!((period.held.get(), period.spent.get()), model.of_day(&period.key));
        }
        self.agree_on_holds();
        self.agree_on_entries();
        self.agree_on_lines();
        self.agree_on_keys();
    }

    fn agree_on_holds(&self) {
        let (world, model) = (&self.world, &self.model);
        assert_eq!(world.holds.len(), model.holds.len());
        for (n, admitted) in &model.holds {
            let reservation = identity(*n).reservation;
            let hold = &world.holds[&reservation];
            let state = match model.ended(*n) {
                None => HoldState::Open,
                Some(PostingKind::Settle) => HoldState::Settled,
                Some(_) => HoldState::Released,
            };
            assert_eq!((hold.state, hold.terms.hold.get()), (state, admitted.amount));
            assert_eq!((hold.held().get(), hold.has_slot()), (model.held_by(*n), model.has_slot(*n)));
            assert_eq!(hold.charged.get(), model.charged(*n));
            let of_kind = |kind| -> Vec<u64> {
                let of_hold = |posting: &&Posting| posting.reservation.as_ref() == Some(&reservation);
                let of_hold = world.postings.values().filter(of_hold);
                of_hold.filter(|posting| posting.kind == kind).map(|posting| posting.amount.get()).collect()
            };
            assert_eq!(of_kind(PostingKind::Hold), [admitted.amount], "invariant 8: an admission holds once");
            let (settled, released) = (of_kind(PostingKind::Settle), of_kind(PostingKind::Release));
            assert!(settled.len() + released.len() <= 1, "invariant 1");
            assert!(settled.iter().sum::<u64>() <= model.reserved(*n), "invariant 2: what costs more is an overage");
        }
    }

    /// Entries sum to the balances, of the tenant and of each hold.
    fn agree_on_entries(&self) {
        let mut sums = (0, 0, 0);
        for entry in &self.world.entries {
            sums = (sums.0 + entry.granted.get(), sums.1 + entry.held.get(), sums.2 + entry.spent.get());
            let after = (entry.after.granted, entry.after.held, entry.after.spent);
            let signed = |amount: holdfast_core::money::Micros| i64::try_from(amount.get()).unwrap();
            assert_eq!(sums, (signed(after.0), signed(after.1), signed(after.2)), "{entry:?}");
        }
        assert_eq!(self.world.entries.last().unwrap().after, self.world.tenant.balances);
        for n in self.model.holds.keys() {
            let reservation = identity(*n).reservation;
            let of_hold = self.world.entries.iter().filter(|entry| entry.reservation.as_ref() == Some(&reservation));
            let (held, spent) =
                of_hold.fold((0, 0), |sums, entry| (sums.0 + entry.held.get(), sums.1 + entry.spent.get()));
            let expected = (self.model.held_by(*n), self.model.charged(*n));
            assert_eq!((held.unsigned_abs(), spent.unsigned_abs()), expected);
        }
    }

    /// Lines sum to what is spent, in all and by period; each posting that bills has one.
    fn agree_on_lines(&self) {
        let world = &self.world;
        let billed = |period: &str| {
            let of_period = world.lines.values().filter(|line| line.period == period);
            of_period.map(|line| line.amount.get()).sum::<i64>()
        };
        for period in world.periods.values() {
            assert_eq!(billed(&period.key), i64::try_from(period.spent.get()).unwrap());
        }
        let total: i64 = world.lines.values().map(|line| line.amount.get()).sum();
        assert_eq!(total, i64::try_from(world.tenant.balances.spent.get()).unwrap());
        let billing = world.postings.values().filter(|posting| posting.kind.bills()).map(|posting| &posting.id);
        assert!(billing.eq(world.lines.keys()));
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
}

/// What a reservation of 30 sends, in order: reduced by 10, then settled with an overage that is taken back in part, or
/// released by expiry and settled late.
fn deliveries(n: u8, spent: u64, reduced: bool, released: bool) -> Vec<Posting> {
    use PostingKind as K;
    let exact = |kind, amount| posting(n, kind, amount, ReasonCode::CompletedExact);
    let refers = |to: K, posting: Posting| Posting { refers_to: Some(id_of(n, to, 1)), ..posting };
    let back = |posting: Posting| Posting { direction: Direction::Refund, ..posting };
    let mut sent = Vec::new();
    if reduced {
        sent.push(Posting {
            frees_slot: spent.is_multiple_of(2),
            ..posting(n, K::HoldReduced, 10, ReasonCode::ExpiredReduced)
        });
    }
    if released {
        sent.push(posting(n, K::Release, 20, ReasonCode::ExpiredWatching));
        sent.push(refers(K::Release, posting(n, K::LateSettlement, spent + 25, ReasonCode::LateCompletion)));
        sent.push(refers(K::LateSettlement, back(exact(K::Correction, spent + 5))));
    } else {
        sent.push(exact(K::Settle, spent));
        sent.push(exact(K::Overage, 7));
        sent.push(refers(K::Overage, back(exact(K::Compensation, 7))));
        sent.push(refers(K::Compensation, exact(K::Correction, 3)));
    }
    sent
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 500, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariants 1, 2, 8, 10 and 11, after every step of any history of admissions, extensions, postings of every kind
    /// and repetitions.
    #[test]
    fn any_history_keeps_the_books(steps in prop::collection::vec(step(), 1..100)) {
        let mut books = Books::new();
        for step in &steps {
            books.take(step);
        }
        books.world.check_audit();
    }

    /// Invariant 11: which way deliveries overtake each other does not change where the books end. What overtook the
    /// posting that it follows is refused until that one has come; a reduction that was overtaken by the resolution is
    /// refused for good, and nothing is missing: the resolution ended all that was held.
    #[test]
    fn order_of_deliveries_does_not_matter(
        reservations in prop::collection::vec((0_u64..=20, any::<bool>(), any::<bool>()), 3),
        order in prop::collection::vec(any::<Index>(), 40),
    ) {
        let mut in_order = Books::new();
        let mut shuffled = Books::new();
        let mut sent = Vec::new();
        for (n, (spent, reduced, released)) in (0_u8..).zip(&reservations) {
            in_order.admit(n, 20, None, false);
            shuffled.admit(n, 20, None, false);
            sent.extend(deliveries(n, *spent, *reduced, *released).into_iter().map(|posting| (n, posting)));
        }
        for (n, posting) in &sent {
            in_order.send(*n, posting.clone());
            prop_assert!(in_order.world.postings.contains_key(&posting.id), "{posting:?}");
        }
        for index in order {
            let (n, posting) = index.get(&sent);
            shuffled.send(*n, posting.clone());
            shuffled.agree();
        }
        // Delivery goes on until everything is acknowledged or refused for good: one round in order is enough.
        for (n, posting) in &sent {
            shuffled.send(*n, posting.clone());
            let refused = shuffled.world.settle(posting, shuffled.now).err();
            prop_assert!(refused.is_none_or(|refusal| refusal.is_permanent_for_posting()));
        }
        shuffled.agree();
        shuffled.world.check_audit();
        let state = |world: &World| {
            let holds = world.holds.values().map(|hold| (hold.state, hold.charged, hold.held()));
            holds.collect::<Vec<_>>()
        };
        prop_assert_eq!(shuffled.world.tenant.balances, in_order.world.tenant.balances);
        prop_assert_eq!(shuffled.world.tenant.slots_in_use, 0);
        prop_assert_eq!(&shuffled.world.periods, &in_order.world.periods);
        prop_assert_eq!(&shuffled.world.lines, &in_order.world.lines);
        prop_assert_eq!(state(&shuffled.world), state(&in_order.world));
    }
}
