//! What an operator may do, in which state; in which order it is refused; and that it happens once (seed 1: "Manual
//! actions should use the same guarded state transitions as automated reconciliation").

use super::world::*;
use holdfast_core::ledger::{Direction, PostingKind, ReasonCode};
use holdfast_core::money::Micros;
use holdfast_core::policy::{OnExpiry, OnInterruption, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    Command, Lifecycle, Operation, OperatorAction, Reply, ResolvedAs, Settlement, SourceEnd,
};

const FINALIZE: Operation = Operation::Finalize { usage: USAGE };
const CORRECT: Operation = Operation::Correct { usage: USAGE };
const COMPENSATE: Operation = Operation::Compensate { amount: Micros::ZERO, direction: Direction::Charge };
const USAGE: holdfast_core::usage::Usage = holdfast_core::usage::Usage {
    input_tokens: 10,
    output_tokens: 20,
    cached_input_tokens: 0,
    cache_write_tokens: 0,
    reasoning_tokens: 0,
};

fn patient() -> Terms {
    Terms { observation_ms: 60_000, ..with(CALLBACK) }
}

fn retries() -> Terms {
    Terms { on_interruption: OnInterruption::Retry, ..patient() }
}

fn states() -> Vec<(&'static str, World)> {
    let after = |mut world: World, command: Command| {
        world.take(&command).unwrap();
        world
    };
    let on_expiry = |chosen| Terms { on_expiry: Some(chosen), ..with(CALLBACK) };
    vec![
        ("vacant", World::new()),
        ("tombstone", after(World::new(), never_started(1, &terms()))),
        ("prepared", World::prepared(&terms())),
        ("driven", World::identified(&patient())),
        ("cancelling", after(World::identified(&patient()), Command::Cancel)),
        ("searching", World::searching(&patient())),
        ("repeatable", World::searching(&retries())),
        ("extending", {
            let mut world = World::searching(&retries());
            world.at(69_000).take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
            world
        }),
        ("unsent", after(World::prepared(&patient()).at(9_000).clone(), wake(false))),
        ("kept", World::expired(&with(CALLBACK))),
        ("disputed", World::expired(&on_expiry(OnExpiry::Escalate))),
        ("watched", World::expired(&Terms { watch_ms: 9_000, ..on_expiry(OnExpiry::ExpireAndWatch) })),
        ("committed", after(World::identified(&terms()), end(1, complete(1, 1)))),
        ("released", World::expired(&on_expiry(OnExpiry::Release))),
        ("compensated", {
            let mut world = after(World::identified(&terms()), end(1, complete(1, 1)));
            world.operate("a-0", COMPENSATE);
            world
        }),
    ]
}

/// The table of the module's documentation, in every state (seed 1, "after an operator has already resolved"; seed 2, the
/// actions of the control loop). `X` stands for `operated>expired+close`, `-` for a refusal by the state.
const TABLE: &str = "
           | vacant     | tombstone      | prepared | driven | cancelling | searching | repeatable      | extending | unsent | kept     | disputed | watched  | committed | released | compensated
release    | !not_found | !never_started | -        | -      | -          | X         | X               | -         | X      | operated | operated | -        | -         | -        | -
finalize   | !not_found | !never_started | -        | -      | -          | X         | X               | -         | X      | operated | operated | -        | -         | -        | -
defer      | !not_found | !never_started | -        | -      | -          | operated  | operated        | -         | operated | -      | -        | -        | -         | -        | -
retry      | !not_found | !never_started | -        | -      | -          | -         | operated+extend | -         | -      | -        | -        | -        | -         | -        | -
quarantine | !not_found | !never_started | -        | -      | -          | X         | X               | -         | X      | -        | -        | -        | -         | -        | -
escalate   | !not_found | !never_started | -        | -      | -          | X         | X               | -         | X      | operated | -        | -        | -         | -        | -
correct    | !not_found | !never_started | -        | -      | -          | -         | -               | -         | -      | -        | -        | operated | operated  | operated | -
compensate | !not_found | !never_started | -        | -      | -          | -         | -               | -         | -      | -        | -        | operated>compensated | operated>compensated | operated>compensated | -
";

fn operation(name: &str) -> Operation {
    match name {
        "release" => Operation::Release,
        "finalize" => FINALIZE,
        "defer" => Operation::Defer { until: START.plus(500_000) },
        "retry" => Operation::Retry,
        "quarantine" => Operation::Quarantine,
        "escalate" => Operation::Escalate,
        "correct" => CORRECT,
        "compensate" => COMPENSATE,
        other => panic!("{other}"),
    }
}

#[test]
fn every_operation_in_every_state() {
    let cells = |line: &'static str| line.split('|').map(str::trim).collect::<Vec<_>>();
    let mut lines = TABLE.trim_matches('\n').lines();
    let columns = cells(lines.next().unwrap());
    let states = states();
    assert_eq!(columns[1..], states.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for row in lines.map(cells) {
        for ((state, world), cell) in states.iter().zip(&row[1..]) {
            let expected = cell.replace('X', "operated>expired+close");
            let expected = if expected == "-" { "!wrong_state" } else { &expected };
            let (mut world, before) = (world.clone(), world.clone());
            let said = world.operate("a-1", operation(row[0]));
            if said != expected {
                wrong.push(format!("{} in {state}: {said}, not {expected}", row[0]));
            }
            if said.starts_with('!') {
                assert_eq!((&world.aggregate, world.actions.len()), (&before.aggregate, before.actions.len()));
                continue;
            }
            check_row(&before, &world, &format!("{} in {state}", row[0]));
            // Repeated under the same id it has the recorded answer, and writes nothing.
            let repeated = world.of_action(&action("a-1", operation(row[0])));
            let again = world.ask(&repeated).unwrap();
            assert!(again.writes_nothing() && again.effects.is_empty());
            assert_eq!(again.reply, Reply::Operated(Box::new(world.actions.last().unwrap().clone())));
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// The row of an action says what it found and what it made (design 9, authority).
fn check_row(before: &World, after: &World, at: &str) {
    let row = after.actions.last().unwrap();
    let (was, is) = (before.live(), after.live());
    assert_eq!((row.at, row.version_before, is.version), (after.now, was.version, was.version + 1), "{at}");
    assert_eq!((row.lifecycle_before, row.lifecycle_after), (was.lifecycle, is.lifecycle), "{at}");
    assert_eq!((row.settlement_before, row.settlement_after), (was.settlement, is.settlement), "{at}");
    let made: Vec<_> = after.postings[before.postings.len()..].iter().map(|posting| posting.id.clone()).collect();
    assert_eq!(row.posting_ids, made, "{at}");
    assert_eq!(after.outcomes().last(), Some(&row.action.operation.name()), "{at}");
}

/// What each makes of the hold. The usage that the operator states costs 50.
#[test]
fn what_each_makes() {
    let world = |name: &str| states().into_iter().find(|(state, _)| *state == name).unwrap().1;
    for (state, name, states, books) in [
        ("searching", "release", ("expired", "unknown", "released"), vec![("release", 2_100)]),
        ("searching", "finalize", ("expired", "unknown", "committed"), vec![("settle", 50)]),
        ("searching", "quarantine", ("expired", "unknown", "expired"), vec![]),
        ("searching", "escalate", ("expired", "unknown", "disputed"), vec![]),
        ("kept", "release", ("expired", "unknown", "released"), vec![("release", 2_100)]),
        ("kept", "finalize", ("expired", "unknown", "committed"), vec![("settle", 50)]),
        ("kept", "escalate", ("expired", "unknown", "disputed"), vec![]),
        ("disputed", "release", ("expired", "unknown", "released"), vec![("release", 2_100)]),
        ("disputed", "finalize", ("expired", "unknown", "committed"), vec![("settle", 50)]),
        ("committed", "correct", ("completed", "completed", "committed"), vec![("settle", 3), ("correction", 47)]),
        ("unsent", "release", ("expired", "prepared", "released"), vec![("release", 2_100)]),
        ("unsent", "quarantine", ("expired", "prepared", "expired"), vec![]),
        ("unsent", "escalate", ("expired", "prepared", "disputed"), vec![]),
    ] {
        let mut world = world(state);
        world.operate("a-1", operation(name));
        assert_eq!((world.states(), world.books()), (states, books), "{name} in {state}");
        let live = world.live();
        let by = live.resolution.as_ref().filter(|_| state != "committed").map(|resolution| resolution.by);
        assert_eq!(by, (!live.settlement.holds() && state != "committed").then_some(ResolvedAs::Operator));
        // Who has decided is not asked any more.
        assert_eq!(live.review.is_some(), live.settlement.holds(), "{name} in {state}");
        for posting in &world.postings {
            let operators = posting.kind != PostingKind::Settle || state != "committed";
            assert!(!operators || posting.reason == ReasonCode::OperatorDecision, "{name} in {state}: {posting:?}");
        }
    }
}

/// The table of the module: `correct` makes `correction`, after an expiry too. A late settlement is what a late signal
/// makes.
#[test]
fn an_operators_correction_is_a_correction() {
    let mut world = World::expired(&Terms { on_expiry: Some(OnExpiry::Release), ..with(CALLBACK) });
    assert_eq!(world.operate("a-1", CORRECT), "operated");
    let [release, correction] = world.postings.as_slice() else { panic!("{:?}", world.postings) };
    assert_eq!((correction.kind, correction.amount), (PostingKind::Correction, micros(50)));
    assert_eq!(correction.refers_to.as_ref(), Some(&release.id));
    assert_eq!(correction.reason, ReasonCode::OperatorDecision);
}

/// Refusals have one order: another action under the id, no justification, an older version, the state, the amount.
#[test]
fn refusals_in_their_order() {
    let mut world = World::identified(&terms());
    world.take(&end(1, complete(1, 1))).unwrap();
    let version = world.live().version;
    let absurd = Operation::Correct { usage: usage(u64::MAX, u64::MAX) };
    let recorded = action("a-1", Operation::Correct { usage: usage(1, 1) });
    world.take(&world.of_action(&recorded)).unwrap();
    let bad = OperatorAction {
        justification: "  ".into(),
        expected_version: Some(version),
        ..action("a-1", Operation::Release)
    };
    let ask = |action: &OperatorAction| world.ask(&world.of_action(action)).map(|_| ());
    assert_eq!(ask(&bad), Err(Refusal::ActionConflict));
    let bad = OperatorAction { id: "a-2".into(), ..bad };
    assert_eq!(ask(&bad), Err(Refusal::JustificationRequired));
    let bad = OperatorAction { justification: "Because.".into(), ..bad };
    assert_eq!(ask(&bad), Err(Refusal::VersionConflict { current: version + 1 }));
    let bad = OperatorAction { expected_version: Some(version + 1), ..bad };
    assert_eq!(ask(&bad), Err(Refusal::WrongState { state: "completed".into() }));
    let bad = OperatorAction { operation: absurd, ..bad };
    assert_eq!(ask(&bad), Err(Refusal::AmountOutOfRange));
    let good = OperatorAction { operation: Operation::Correct { usage: usage(1, 2) }, ..bad };
    assert_eq!(ask(&good), Ok(()));
    // The same action under the same id has its answer, whatever has become of the version.
    assert_eq!(ask(&recorded), Ok(()));
    for changed in [
        OperatorAction { actor: "somebody else".into(), ..recorded.clone() },
        OperatorAction { justification: "Another.".into(), ..recorded.clone() },
        OperatorAction { operation: Operation::Correct { usage: usage(1, 3) }, ..recorded.clone() },
    ] {
        assert_eq!(ask(&changed), Err(Refusal::ActionConflict), "invariant 8: other content under the same id");
    }
}

/// Who, why and in which words must be there (seed 3, "Manual release"); the channel alone may be empty.
#[test]
fn a_justification_is_required() {
    let world = World::searching(&patient());
    let whole = action("a-1", Operation::Release);
    let refused = |action: OperatorAction| world.ask(&world.of_action(&action)) == Err(Refusal::JustificationRequired);
    for empty in ["", " ", "\t\n"] {
        assert!(refused(OperatorAction { id: empty.into(), ..whole.clone() }), "id {empty:?}");
        assert!(refused(OperatorAction { actor: empty.into(), ..whole.clone() }), "actor {empty:?}");
        assert!(refused(OperatorAction { reason_code: empty.into(), ..whole.clone() }), "reason {empty:?}");
        assert!(refused(OperatorAction { justification: empty.into(), ..whole.clone() }), "why {empty:?}");
    }
    assert!(!refused(OperatorAction { channel: String::new(), ..whole }));
}

/// An amount that cannot be is refused, and nothing has happened.
#[test]
fn amounts_out_of_range() {
    let absurd = usage(u64::MAX, 1);
    let mut ended_world = World::identified(&terms());
    ended_world.take(&end(1, complete(10, 20))).unwrap();
    let compensate = |amount: u64, direction| Operation::Compensate { amount: micros(amount), direction };
    for (world, operation) in [
        (World::searching(&patient()), Operation::Finalize { usage: absurd }),
        (World::expired(&with(CALLBACK)), Operation::Finalize { usage: absurd }),
        (ended_world.clone(), Operation::Correct { usage: absurd }),
        (ended_world.clone(), compensate(51, Direction::Refund)),
        (ended_world.clone(), Operation::Compensate { amount: Micros::MAX, direction: Direction::Charge }),
    ] {
        let refused = world.ask(&world.of_action(&action("a-1", operation.clone())));
        assert_eq!(refused, Err(Refusal::AmountOutOfRange), "{operation:?}");
    }
    assert_eq!(ended_world.operate("a-1", compensate(50, Direction::Refund)), "operated>compensated");
    assert_eq!(ended_world.live().cost, Some(Micros::ZERO));
}

/// Two operators correct the same charge. With the version that they looked at, the second one is told; without it, the
/// same usage moves nothing and another one moves the difference.
#[test]
fn two_operators_correct() {
    let mut world = World::identified(&terms());
    world.take(&end(1, complete(10, 20))).unwrap();
    let seen = Some(world.live().version);
    let correct = |id: &str, output: u64, expected_version| OperatorAction {
        expected_version,
        ..action(id, Operation::Correct { usage: usage(10, output) })
    };
    let take = |world: &mut World, action: &OperatorAction| world.say(&world.of_action(action));
    assert_eq!(take(&mut world, &correct("a-1", 30, seen)), "operated");
    assert_eq!(take(&mut world, &correct("a-2", 40, seen)), "!version_conflict");
    assert_eq!(take(&mut world, &correct("a-2", 30, None)), "operated", "the same, by somebody else");
    assert_eq!(world.books(), [("settle", 50), ("correction", 20)]);
    assert_eq!(take(&mut world, &correct("a-3", 5, None)), "operated");
    assert_eq!(world.books(), [("settle", 50), ("correction", 20), ("correction", -50)]);
    assert_eq!((world.live().cost, world.actions.len()), (Some(micros(20)), 3));
    assert_eq!(world.actions[1].posting_ids, Vec::<String>::new());
}

/// Nothing outranks an operator (design 6): what a provider says afterwards is recorded, and moves nothing.
#[test]
fn a_provider_does_not_undo_an_operators_correction() {
    let mut world = World::identified(&terms());
    world.take(&end(1, complete(10, 20))).unwrap();
    world.operate("a-1", Operation::Correct { usage: usage(10, 30) });
    let said = world.hear(lookup(1, ended_as(Outcome::Completed, Some(usage(10, 20)))));
    assert_eq!((said.as_str(), world.live().cost), ("ignored=", Some(micros(70))));
}

/// Seed 1, "after an operator has already resolved the reservation manually", from both sides.
#[test]
fn an_operators_release_and_a_completion() {
    let completion = || callback("e-1", OPERATION, ended_as(Outcome::Completed, Some(usage(10, 20))));
    // The release first: the completion corrects it, and refers to it.
    let mut first = World::searching(&patient());
    first.operate("a-1", Operation::Release);
    assert_eq!(first.hear(completion()), "corrected");
    assert_eq!(first.books(), [("release", 2_100), ("correction", 50)]);
    assert_eq!(first.states(), ("expired", "completed", "released"));
    // The completion first, and the operator looked at the state before it.
    let mut second = World::searching(&patient());
    let seen = second.live().version;
    second.hear(completion());
    let stale = OperatorAction { expected_version: Some(seen), ..action("a-1", Operation::Release) };
    assert_eq!(second.say(&second.of_action(&stale)), "!version_conflict");
    second.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(second.operate("a-2", Operation::Release), "!wrong_state");
    assert_eq!(second.books(), [("settle", 50)], "invariant 1");
    // A driver that lives is not released under its hands (invariant 4).
    let mut driven = World::identified(&patient());
    assert_eq!(driven.operate("a-1", Operation::Release), "!wrong_state");
    // The evidence that was being collected comes after the release.
    let mut third = World::searching(&patient());
    third.operate("a-1", Operation::Release);
    assert_eq!(third.say(&reconcile(2, complete(10, 20))), "!wrong_state");
    assert_eq!(third.books(), [("release", 2_100)]);
}

/// `compensated` (seed 1): a new business action, once; the outcome before it stays on record, and refers to it.
#[test]
fn a_compensation_happens_once() {
    for (amount, direction, signed, cost) in
        [(7, Direction::Refund, -7, 43), (7, Direction::Charge, 7, 57), (0, Direction::Refund, 0, 50)]
    {
        let mut world = World::identified(&terms());
        world.at(70).take(&end(1, complete(10, 20))).unwrap();
        let (reason, ended_at) = (world.live().reason, world.live().ended_at);
        let compensate = Operation::Compensate { amount: micros(amount), direction };
        assert_eq!(world.at(90).operate("a-1", compensate.clone()), "operated>compensated");
        assert_eq!(world.books(), [("settle", 50), ("compensation", signed)]);
        let posting = &world.postings[1];
        assert_eq!(
            (posting.reason, &posting.refers_to),
            (ReasonCode::OperatorCompensation, &Some(world.postings[0].id.clone()))
        );
        let live = world.live();
        assert_eq!((live.cost, live.settlement), (Some(micros(cost)), Settlement::Committed));
        assert_eq!((live.reason, live.ended_at), (reason, ended_at), "what was before stays on record");
        assert_eq!(world.operate("a-1", compensate.clone()), "operated=", "repeated");
        assert_eq!(world.operate("a-2", compensate), "!wrong_state", "once");
        assert_eq!(world.operate("a-3", CORRECT), "!wrong_state");
        assert_eq!((world.postings.len(), world.lifecycle()), (2, Lifecycle::Compensated));
        assert_eq!(world.operate("a-4", Operation::Release), "!wrong_state");
    }
}

/// `defer` moves the deadline: until then only evidence ends the hold, and at it the rules decide.
#[test]
fn a_deferred_search() {
    let mut world = World::searching(&patient());
    let until = START.plus(500_000);
    assert_eq!(world.at(60_000).operate("a-1", Operation::Defer { until }), "operated");
    assert_eq!(world.live().reconciliation.unwrap().deadline, until);
    assert_eq!(world.next_wake(), Some(until));
    world.at(499_999).take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert!(!world.lifecycle().is_terminal());
    world.at(500_000).take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(world.states(), ("expired", "unknown", "expired"));
    // A time that is over defers to the next moment: no alarm in the past.
    let mut past = World::searching(&patient());
    past.at(60_000).operate("a-1", Operation::Defer { until: START });
    assert_eq!(past.next_wake_ms(), Some(60_001));
}

/// The bound of an attempt is an upper bound, whoever decides: an operator who keeps or repeats it states no usage, so
/// what the log has of it counts (design 4, "the content bytes seen + a margin"). What readers have of one answer is not
/// gone on with by another (invariant 9): then nothing is repeated.
#[test]
fn an_operators_decision_forgets_no_output() {
    let after_output = |terms: &Terms| {
        let mut world = World::identified(terms);
        world.take(&Command::Append { epoch: 1, bytes: 900 }).unwrap();
        world.at(9_000).take(&wake(false)).unwrap();
        world
    };
    // The log of 900 bytes has some 700 of content: the rules would keep 100 + (700 + 256) × 2 for it.
    let socket_only = Terms { observation_ms: 60_000, ..terms() };
    let mut kept = after_output(&socket_only);
    kept.operate("a-1", Operation::Quarantine);
    kept.hear(lookup(2, ended_as(Outcome::Completed, None)));
    assert!(kept.live().cost.unwrap() >= micros(100 + 2 * 956), "{:?}", kept.books());
    let repeatable = Terms { on_interruption: OnInterruption::Retry, ..socket_only };
    assert_eq!(after_output(&repeatable).operate("a-1", Operation::Retry), "!wrong_state");
    let mut repeated = World::searching(&repeatable);
    assert_eq!(repeated.operate("a-1", Operation::Retry), "operated+extend");
    let accounted = repeated.live().attempt.accounted.unwrap().metered;
    assert!(accounted.usage().output_tokens >= 956, "{accounted:?}");
}
