//! Any history of commands, at any times, with repetitions: production and model must say the same, the invariants hold
//! after every step, and once faults stop, a bounded drain ends every generation.

use super::model::{Model, Shown};
use super::world::*;
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnDisconnect, Owner, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    Aggregate, Command, Delivery, Effect, Reservation, SourceEnd, Transition, UpstreamEnd, UpstreamState, refused_row,
};
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;
use proptest::test_runner::RngSeed;
use std::collections::BTreeSet;
use std::hash::{BuildHasher, RandomState};

/// A driver's write names the epoch that owns, the one before, or the one after.
#[derive(Clone, Copy, Debug)]
enum Which {
    Owning,
    Older,
    Newer,
}

#[derive(Clone, Debug)]
enum Step {
    Start,
    Submit(Which),
    Respond(Which),
    Append(Which, u64),
    Readers(u32, u64),
    Cancel,
    End(Which, Box<UpstreamEnd>),
    Wake(bool),
    Resolve,
    Acknowledge(prop::sample::Index),
    Undelivered(prop::sample::Index),
    /// An earlier command comes again, at any distance.
    Again(prop::sample::Index),
    Wait(u64),
    /// Waits for the next wake-up: it comes early, in time or late. Then it comes.
    Alarm {
        early_ms: u64,
        late_ms: u64,
        driver_alive: bool,
    },
    ClockBack(u64),
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![8 => Just(Which::Owning), 2 => Just(Which::Older), 1 => Just(Which::Newer)]
}

fn upstream_end() -> impl Strategy<Value = UpstreamEnd> {
    let source = prop_oneof![
        4 => Just(SourceEnd::Body(EndClass::Complete)),
        1 => Just(SourceEnd::Body(EndClass::Incomplete)),
        1 => Just(SourceEnd::Body(EndClass::CutInsideEvent)),
        1 => Just(SourceEnd::Body(EndClass::InBandError)),
        1 => any::<bool>().prop_map(|provably_unsent| SourceEnd::NoResponse { provably_unsent }),
        1 => Just(SourceEnd::TooLarge),
        3 => Just(SourceEnd::Aborted),
        2 => Just(SourceEnd::Lost),
    ];
    let tokens = prop::sample::select(vec![0_u64, 1, 40, 100, 1_000, 1_001, 9_000, 1 << 53]);
    let counted = prop::option::of((tokens.clone(), tokens));
    (source, counted, any::<bool>(), 0_u64..2_000, any::<bool>()).prop_map(
        |(source, counted, finished, content_bytes, cut_inside_event)| UpstreamEnd {
            usage: counted.map(|(input, output)| usage(input, output)),
            finish_reason: finished.then(|| "stop".into()),
            content_bytes,
            unseen_bytes_max: content_bytes / 3,
            cut_inside_event,
            ..ended(source)
        },
    )
}

fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let wait = prop::sample::select(vec![1_u64, 300, 700, 999, 2_000, 3_000, 5_000, 9_000, 20_000, 60_000]);
    prop_oneof![
        4 => Just(Step::Start),
        5 => which().prop_map(Step::Submit),
        5 => which().prop_map(Step::Respond),
        6 => (which(), prop::sample::select(vec![0_u64, 0, 1, 500])).prop_map(|(which, n)| Step::Append(which, n)),
        6 => (0_u32..3, 0_u64..100).prop_map(|(attached, offset)| Step::Readers(attached, offset)),
        2 => Just(Step::Cancel),
        2 => (which(), upstream_end()).prop_map(|(which, end)| Step::End(which, Box::new(end))),
        4 => any::<bool>().prop_map(Step::Wake),
        1 => Just(Step::Resolve),
        2 => index().prop_map(Step::Acknowledge),
        2 => index().prop_map(Step::Undelivered),
        4 => index().prop_map(Step::Again),
        6 => wait.prop_map(Step::Wait),
        5 => (0_u64..2, prop::sample::select(vec![0_u64, 0, 1, 60_000]), any::<bool>())
            .prop_map(|(early_ms, late_ms, driver_alive)| Step::Alarm { early_ms, late_ms, driver_alive }),
        1 => (1_u64..5_000).prop_map(Step::ClockBack),
    ]
}

prop_compose! {
    fn any_terms()(
        edge in any::<bool>(),
        cancel in any::<bool>(),
        grace_ms in prop::sample::select(vec![0_u64, 700]),
        keep_partial in any::<bool>(),
        lease_ms in prop::sample::select(vec![900_u64, 2_500, 9_000]),
        observation_ms in prop::sample::select(vec![0_u64, 5_000]),
        retention_s in prop::sample::select(vec![0_u64, 60]),
        hold in prop::sample::select(vec![HOLD, 500, 0]),
        streaming in any::<bool>(),
        hidden_output in any::<bool>(),
    ) -> Terms {
        Terms {
            owner: if edge { Owner::Edge } else { Owner::Object },
            on_disconnect: if cancel { OnDisconnect::Cancel } else { OnDisconnect::Detach },
            grace_ms,
            keep_partial,
            lease_ms,
            observation_ms,
            retention_s,
            hold: micros(hold),
            streaming,
            price: ModelPrice { hidden_output, ..terms().price },
            ..terms()
        }
    }
}

/// One generation and what has happened to it.
struct History {
    world: World,
    model: Model,
    terms: Terms,
    sent: Vec<Command>,
    acknowledged: BTreeSet<String>,
    submissions: u32,
    unsent: bool,
}

impl History {
    fn new(terms: Terms) -> Self {
        Self {
            world: World::new(),
            model: Model::default(),
            terms,
            sent: Vec::new(),
            acknowledged: BTreeSet::new(),
            submissions: 0,
            unsent: false,
        }
    }

    fn epoch(&self, which: Which) -> u32 {
        match which {
            Which::Owning => self.world.epoch(),
            Which::Older => self.world.epoch() - 1,
            Which::Newer => self.world.epoch() + 1,
        }
    }

    fn deliveries(&self) -> &[Delivery] {
        match &self.world.aggregate {
            Aggregate::Vacant => &[],
            Aggregate::Tombstone(tombstone) => &tombstone.deliveries,
            Aggregate::Live(live) => &live.deliveries,
        }
    }

    fn posting_id(&self, index: prop::sample::Index) -> String {
        let postings = &self.world.postings;
        if postings.is_empty() { "none".into() } else { index.get(postings).id.clone() }
    }

    fn take_step(&mut self, step: &Step) {
        let command = match step {
            Step::Start => start(1, &self.terms),
            Step::Submit(which) => Command::Submit { epoch: self.epoch(*which) },
            Step::Respond(which) => respond(self.epoch(*which)),
            Step::Append(which, bytes) => Command::Append { epoch: self.epoch(*which), bytes: *bytes },
            Step::Readers(attached, furthest_offset) => {
                Command::Readers { attached: *attached, furthest_offset: *furthest_offset }
            }
            Step::Cancel => Command::Cancel,
            Step::End(which, upstream_end) => end(self.epoch(*which), (**upstream_end).clone()),
            Step::Wake(driver_alive) => wake(*driver_alive),
            Step::Resolve => never_started(1, &self.terms),
            Step::Acknowledge(index) => Command::Acknowledge { posting_id: self.posting_id(*index) },
            Step::Undelivered(index) => Command::DeliveryFailed { posting_id: self.posting_id(*index) },
            Step::Again(_) if self.sent.is_empty() => return,
            Step::Again(index) => index.get(&self.sent).clone(),
            Step::Wait(ms) => return self.world.now = self.world.now.plus(*ms),
            Step::ClockBack(ms) => return self.world.now = UnixMillis(self.world.now.0 - ms),
            Step::Alarm { early_ms, late_ms, driver_alive } => {
                let Some(at) = self.world.next_wake() else { return };
                self.world.now = UnixMillis(at.0 - early_ms).plus(*late_ms);
                wake(*driver_alive)
            }
        };
        let _refusals_are_checked_inside = self.take(&command);
    }

    /// Applies a command; checks it against the model and everything that must hold after it.
    fn take(&mut self, command: &Command) -> Result<Transition, Refusal> {
        let before = self.world.clone();
        let outbox = matches!(command, Command::Acknowledge { .. } | Command::DeliveryFailed { .. });
        let expected = (!outbox).then(|| self.model.take(command, &before.log, before.now.0));
        let result = self.world.take(command);
        if let Some(expected) = expected {
            assert_eq!(said(&before.aggregate, &result), expected, "{command:?} at {}", before.now);
            assert_eq!(Shown::of(&self.world.aggregate), self.model.shown(), "after {command:?}");
        }
        self.note(command, &before, &result);
        self.check_refused(command, &before, &result);
        self.check_repeated(command, &result);
        self.check_progress(&before);
        self.check_books();
        self.sent.push(command.clone());
        result
    }

    fn note(&mut self, command: &Command, before: &World, result: &Result<Transition, Refusal>) {
        let Ok(transition) = result else { return };
        match command {
            Command::Submit { .. } if transition.state.is_some() => {
                let attempt = &before.live().attempt;
                assert_eq!((attempt.upstream, attempt.submitted_at), (UpstreamState::Prepared, None), "invariant 12");
                self.submissions += 1;
                assert_eq!(self.submissions, 1, "invariant 12: at most one dispatch");
            }
            Command::End { end, .. } => self.unsent = end.source == SourceEnd::NoResponse { provably_unsent: true },
            Command::Acknowledge { posting_id } if transition.state.is_some() => {
                self.acknowledged.insert(posting_id.clone());
            }
            _ => {}
        }
    }

    /// Invariant 5: a refused command changes nothing; a stale or late write of a driver leaves one row.
    fn check_refused(&self, command: &Command, before: &World, result: &Result<Transition, Refusal>) {
        let Err(refusal) = result else { return };
        assert_eq!((&self.world.aggregate, self.world.log), (&before.aggregate, before.log), "{refusal:?}");
        assert_eq!(self.world.postings, before.postings);
        let row = refused_row(command, refusal, before.now);
        let recorded = matches!(refusal, Refusal::StaleEpoch { .. } | Refusal::WrongState { .. });
        assert_eq!(row.is_some(), recorded, "{command:?} {refusal:?}");
        assert_eq!(self.world.history.len(), before.history.len() + usize::from(recorded));
    }

    /// Invariant 8: the same command at the same moment has no second effect, and an asker gets the same answer.
    fn check_repeated(&self, command: &Command, result: &Result<Transition, Refusal>) {
        if matches!(command, Command::DeliveryFailed { .. }) {
            return; // A second failure is a second fact.
        }
        match (result, self.world.ask(command)) {
            (_, Ok(again)) => {
                assert_eq!((&again.state, again.postings.len()), (&None, 0), "{command:?} again");
                assert_eq!((again.history.len(), &*again.effects), (0, &[][..]), "{command:?} again");
                let asks = matches!(
                    command,
                    Command::Cancel | Command::Append { .. } | Command::Respond { .. } | Command::Acknowledge { .. }
                );
                if let (Ok(first), true) = (result, asks) {
                    assert_eq!(first.reply, again.reply, "{command:?} again");
                }
            }
            (Ok(_), Err(again)) => {
                let once = matches!(command, Command::Submit { .. } | Command::End { .. });
                assert!(once && matches!(again, Refusal::WrongState { .. }), "{command:?} again: {again:?}");
            }
            (Err(first), Err(again)) => assert_eq!(*first, again),
        }
    }

    /// Invariants 3 and 9: nothing goes back, and the first end stands.
    fn check_progress(&self, before: &World) {
        let Some(earlier) = before.aggregate.live() else { return };
        let now = self.world.live();
        assert!(now.attempt.epoch() >= earlier.attempt.epoch(), "invariant 9");
        assert!(now.version >= earlier.version, "invariant 9");
        assert!(self.world.log.length >= before.log.length, "invariant 9");
        assert!(now.connection.furthest_offset >= earlier.connection.furthest_offset, "invariant 9");
        assert_eq!((&now.identity, &now.terms), (&earlier.identity, &earlier.terms));
        if earlier.cancellation.is_some() {
            assert_eq!(now.cancellation, earlier.cancellation, "the first cancel stands");
        }
        if earlier.attempt.abort.is_some() {
            assert_eq!(now.attempt.abort, earlier.attempt.abort, "the first cause stands");
        }
        if earlier.lifecycle.is_terminal() {
            assert_eq!(outcome(now), outcome(earlier), "invariant 3");
        }
    }

    /// Invariants 1, 2, 4 and 6.
    fn check_books(&self) {
        let postings = &self.world.postings;
        let of = |kind| postings.iter().filter(move |posting| posting.kind == kind);
        let resolved = postings.iter().filter(|posting| posting.kind.resolves_hold()).count();
        assert!(resolved <= 1, "invariant 1: {postings:?}");
        let ids: BTreeSet<_> = postings.iter().map(|posting| posting.id.clone()).collect();
        assert_eq!(ids.len(), postings.len(), "ids are unique");
        let hold = self.terms.hold;
        let mut charged = 0;
        for settle in of(PostingKind::Settle) {
            assert!(settle.amount <= hold, "invariant 2: {settle:?}");
            charged += settle.amount.get();
        }
        for overage in of(PostingKind::Overage) {
            assert!(overage.usage.unwrap().is_exact(), "only an exact count goes above the hold");
            assert_eq!(charged, hold.get(), "invariant 2: above the hold only");
            charged += overage.amount.get();
        }
        for release in of(PostingKind::Release) {
            assert_eq!(release.amount, hold, "invariant 2: {release:?}");
            let sent = self.world.aggregate.live().is_some_and(|live| live.attempt.submitted_at.is_some());
            assert!(!sent || self.unsent && release.reason == ReasonCode::ProviderUnreachable, "invariant 4");
        }
        if let Some(live) = self.world.aggregate.live() {
            assert_eq!(live.lifecycle.is_terminal(), resolved == 1, "an end resolves the hold, and nothing else does");
            assert_eq!(live.cost.map_or(0, |cost| cost.get()), charged, "the cost is what was charged");
            let all_arrived = resolved == 1 && live.deliveries.is_empty();
            assert_eq!(live.acknowledged_at.is_some(), all_arrived);
        }
        let on_the_way: BTreeSet<_> = self.deliveries().iter().map(|delivery| delivery.posting_id.clone()).collect();
        assert!(on_the_way.is_disjoint(&self.acknowledged));
        let known: BTreeSet<_> = on_the_way.union(&self.acknowledged).cloned().collect();
        assert_eq!(known, ids, "invariant 6: each posting is on its way or has arrived");
    }

    /// Invariant 7: faults have stopped. The shell wakes at each deadline, performs the effects and delivers.
    fn drain(&mut self, driver_alive: bool) {
        self.world.log.last_append_at = self.world.log.last_append_at.map(|at| at.min(self.world.now));
        if matches!(self.world.aggregate, Aggregate::Vacant) {
            self.take(&never_started(1, &self.terms.clone())).unwrap();
        }
        // A driver that lives was told before.
        if driver_alive && self.world.aggregate.live().is_some_and(|live| live.attempt.abort.is_some()) {
            let _refused_when_it_had_ended = self.take(&end(self.world.epoch(), ended(SourceEnd::Aborted)));
        }
        let mut wakes = 0;
        while let Some(at) = self.world.next_wake() {
            wakes += 1;
            assert!(wakes <= 150, "no end in sight: {:?}", self.world.aggregate);
            self.world.now = self.world.now.max(at);
            let woken = self.take(&wake(driver_alive)).unwrap();
            let mut worked = woken.state.is_some();
            for effect in &woken.effects {
                let source = match effect {
                    Effect::CollectEvidence { .. } => SourceEnd::Lost,
                    Effect::AbortUpstream { .. } if driver_alive => SourceEnd::Aborted,
                    _ => continue,
                };
                self.take(&end(self.world.epoch(), ended(source))).unwrap();
            }
            let due: Vec<_> = self.world.aggregate.due_deliveries(self.world.now).cloned().collect();
            for Delivery { posting_id, .. } in due {
                self.take(&Command::Acknowledge { posting_id }).unwrap();
                worked = true;
            }
            let next = self.world.next_wake();
            assert!(worked || next.is_none_or(|next| next > at), "an alarm that changes nothing: {next:?}");
        }
        assert!(self.deliveries().is_empty(), "invariant 7: everything has arrived");
        assert_eq!(self.world.postings.iter().filter(|posting| posting.kind.resolves_hold()).count(), 1);
        if let Some(live) = self.world.aggregate.live() {
            assert!(live.lifecycle.is_terminal() && live.content_deleted, "invariant 7: {live:?}");
        }
    }
}

/// What an end decides. It stands; only receipts and the deletion of the content come after it.
fn outcome(live: &Reservation) -> Reservation {
    Reservation { version: 0, deliveries: Vec::new(), acknowledged_at: None, content_deleted: false, ..live.clone() }
}

/// So many cases from a seed that a failure shows: `PROPTEST_RNG_SEED=… cargo test` takes the same ones again.
fn seeded(cases: u32) -> ProptestConfig {
    let mut config = ProptestConfig { cases, failure_persistence: None, ..ProptestConfig::default() };
    if config.rng_seed == RngSeed::Random {
        config.rng_seed = RngSeed::Fixed(RandomState::new().hash_one(0_u8));
    }
    println!("PROPTEST_RNG_SEED={}", config.rng_seed);
    config
}

proptest! {
    #![proptest_config(seeded(1_500))]

    /// Invariants 1 to 6, 8, 9 and 12 after every step; 7 at the end, with a driver that lives and one that does not.
    #[test]
    fn any_history(terms in any_terms(), steps in prop::collection::vec(step(), 1..60), driver_alive in any::<bool>()) {
        let mut history = History::new(terms);
        for step in &steps {
            history.take_step(step);
        }
        history.drain(driver_alive);
    }

    /// As above, for one that has started: most histories then reach the provider, and every kind of end.
    #[test]
    fn any_started_history(
        terms in any_terms(),
        steps in prop::collection::vec(step(), 1..60),
        driver_alive in any::<bool>(),
    ) {
        let mut history = History::new(terms);
        for step in [Step::Start, Step::Submit(Which::Owning), Step::Respond(Which::Owning)].iter().chain(&steps) {
            history.take_step(step);
        }
        history.drain(driver_alive);
    }
}
