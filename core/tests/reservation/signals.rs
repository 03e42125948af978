//! What comes outside of the stream: late, twice, out of order, about an older attempt, from a driver that was fenced.
//! One input token costs one micro-USD, one output token two; the hold is 2,100.

use super::world::*;
use holdfast_core::evidence::Disposition;
use holdfast_core::finding::Source;
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnExpiry, OnInterruption, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Command, Operation, Report, ResolvedAs, Signal, SourceEnd, Subject, UpstreamEnd};

pub(crate) const COMPLETED: Report = ended_as(Outcome::Completed, None);

pub(crate) fn completed(input_tokens: u64, output_tokens: u64) -> Report {
    ended_as(Outcome::Completed, Some(usage(input_tokens, output_tokens)))
}

pub(crate) fn of(source: Source, subject: Subject, report: Report) -> Signal {
    Signal { event_id: None, source, subject, report, observed_at: START }
}

/// A callback about the first operation.
pub(crate) fn news(event_id: &str, report: Report) -> Signal {
    callback(event_id, OPERATION, report)
}

pub(crate) fn keeps() -> Terms {
    with(CALLBACK)
}

fn settles() -> Terms {
    Terms { on_expiry: Some(OnExpiry::SettleEstimate), ..keeps() }
}

pub(crate) fn releases() -> Terms {
    Terms { on_expiry: Some(OnExpiry::Release), ..keeps() }
}

/// Two attempts: the first was lost and is past, the second works as `op-2`. The clock stands 9 s after the start.
pub(crate) fn retried(terms: &Terms) -> World {
    let retry = Terms { on_interruption: OnInterruption::Retry, ..terms.clone() };
    let mut world = World::searching(&retry);
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done+extend");
    world.take(&Command::HoldExtended { epoch: 3, attempt: attempt_id(2) }).unwrap();
    world.take(&Command::Submit { epoch: 3 }).unwrap();
    world.take(&respond(3)).unwrap();
    world.take(&Command::Identify { epoch: 3, operation_id: "op-2".into() }).unwrap();
    world
}

pub(crate) fn ended_world(terms: &Terms, end_of_it: UpstreamEnd) -> World {
    let mut world = World::identified(terms);
    world.take(&end(1, end_of_it)).unwrap();
    world
}

fn operated(operation: Operation) -> World {
    let mut world = World::searching(&keeps());
    assert_eq!(world.operate("a-1", operation), "operated>expired+close");
    world
}

/// The table of the module's documentation, and seed 3's dispositions ("Reconcile late completion signals without
/// duplicating side effects"), one case or more for each row: what is found, what is said, what follows for the books.
#[test]
fn every_row_of_the_table() {
    let stream = |report| of(Source::Stream, Subject::Epoch { epoch: 1 }, report);
    let estimated = || ended_world(&terms(), ended(SourceEnd::Body(EndClass::CutInsideEvent)));
    let exact = || ended_world(&terms(), complete(10, 20));
    let conflicting = || {
        let mut world = World::searching(&keeps());
        world.hear(news("e-1", completed(10, 20)));
        world.hear(news("e-2", completed(10, 21)));
        assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>expired+close");
        world
    };
    let compensated = || {
        let mut world = exact();
        world.operate("a-1", Operation::Compensate { amount: micros(5), direction: Default::default() });
        world
    };
    let by_route = |terms: &Terms, content_bytes: u64| {
        let mut world = World::searching(terms);
        world.take(&reconcile(2, UpstreamEnd { content_bytes, ..ended(SourceEnd::Lost) })).unwrap();
        assert!(world.log.length > 0, "an error was appended at close");
        world
    };
    let heard = |mut world: World, signal: Signal| {
        world.hear(signal);
        world
    };
    let failed = ended_as(Outcome::Failed, None);
    let cancelled = ended_as(Outcome::Cancelled, None);
    type Row = (&'static str, World, Signal, &'static str, Vec<(&'static str, i64)>);
    let rows: Vec<Row> = vec![
        // No attempt of that operation.
        ("unknown, running", World::identified(&keeps()), callback("e", "x", COMPLETED), "quarantined", vec![]),
        ("unknown, ended", exact(), callback("e", "x", COMPLETED), "quarantined", vec![]),
        ("unknown epoch", exact(), lookup(9, COMPLETED), "quarantined", vec![]),
        // Still processing, after the end or of an older attempt.
        ("runs, after the end", exact(), lookup(1, Report::Processing), "ignored=", vec![]),
        ("unknown to it, after the end", exact(), lookup(1, Report::Unknown), "ignored=", vec![]),
        ("runs, older attempt", retried(&terms()), lookup(1, Report::Processing), "ignored=", vec![]),
        ("runs, kept", World::expired(&keeps()), lookup(2, Report::Processing), "ignored=", vec![]),
        // Still processing.
        ("runs, driven", World::identified(&keeps()), lookup(1, Report::Processing), "processed", vec![]),
        (
            "runs, searched",
            World::searching(&with(STATUS)),
            lookup(2, Report::Processing),
            "processed+evidence",
            vec![],
        ),
        // An older `processing` never replaces a newer end (seed 1).
        (
            "runs, behind the end",
            heard(World::searching(&keeps()), news("e", COMPLETED)),
            lookup(2, Report::Processing),
            "ignored=",
            vec![],
        ),
        // A weaker source than what is known.
        (
            "weaker, other usage",
            heard(World::identified(&keeps()), news("e", completed(10, 20))),
            stream(completed(10, 21)),
            "ignored=",
            vec![],
        ),
        (
            "weaker, other outcome",
            heard(World::identified(&keeps()), news("e", failed)),
            stream(COMPLETED),
            "ignored=",
            vec![],
        ),
        // The same as what is known.
        (
            "same, twice",
            heard(World::identified(&keeps()), news("e", completed(10, 20))),
            lookup(1, completed(10, 20)),
            "processed=",
            vec![],
        ),
        ("same, settled", exact(), lookup(1, completed(10, 20)), "processed", vec![]),
        (
            "same by a weaker one",
            heard(World::identified(&keeps()), news("e", completed(10, 20))),
            stream(completed(10, 20)),
            "processed=",
            vec![],
        ),
        (
            "same without usage",
            heard(World::identified(&keeps()), news("e", completed(10, 20))),
            lookup(1, COMPLETED),
            "processed=",
            vec![],
        ),
        // As strong as what is known, and different.
        (
            "differs, driven",
            heard(World::identified(&keeps()), news("e", completed(10, 20))),
            lookup(1, completed(10, 21)),
            "quarantined",
            vec![],
        ),
        (
            "differs, searched",
            heard(World::searching(&keeps()), news("e", failed)),
            lookup(2, COMPLETED),
            "quarantined+evidence",
            vec![],
        ),
        ("differs, settled", exact(), stream(completed(10, 21)), "quarantined", vec![]),
        // End of an older attempt, the hold is kept.
        ("older attempt, owned", retried(&terms()), lookup(2, completed(10, 20)), "processed", vec![]),
        ("older attempt by its operation", retried(&terms()), news("e", completed(10, 20)), "processed", vec![]),
        // End of the owning attempt, its driver works.
        ("driven", World::identified(&keeps()), news("e", completed(10, 20)), "processed", vec![]),
        // End of the owning attempt, its outcome is searched.
        ("searched", World::searching(&keeps()), news("e", completed(10, 20)), "processed+evidence", vec![]),
        // End, the hold is kept beyond its deadline.
        ("kept, completed", World::expired(&keeps()), news("e", completed(10, 20)), "processed", vec![("settle", 50)]),
        (
            "kept, above",
            World::expired(&keeps()),
            news("e", completed(100, 1_100)),
            "processed",
            vec![("settle", 2_100), ("overage", 200)],
        ),
        ("kept, no usage", World::expired(&keeps()), news("e", COMPLETED), "processed", vec![("settle", 2_100)]),
        ("kept, failed", World::expired(&keeps()), news("e", failed), "processed", vec![("release", 2_100)]),
        ("kept, cancelled", World::expired(&keeps()), news("e", cancelled), "processed", vec![("settle", 2_100)]),
        // End, the hold is disputed.
        (
            "disputed",
            conflicting(),
            of(Source::Operator, Subject::Epoch { epoch: 2 }, completed(10, 22)),
            "quarantined",
            vec![],
        ),
        // End with usage, after a release by expiry.
        (
            "released by expiry",
            World::expired(&releases()),
            news("e", completed(10, 20)),
            "corrected",
            vec![("late_settlement", 50)],
        ),
        (
            "released by expiry, failed",
            World::expired(&releases()),
            news("e", ended_as(Outcome::Failed, Some(usage(7, 0)))),
            "corrected",
            vec![("late_settlement", 7)],
        ),
        // End with usage that costs something else, after any other resolution.
        ("estimated, less", estimated(), lookup(1, completed(10, 20)), "corrected", vec![("correction", 50 - 612)]),
        (
            "estimated, more",
            estimated(),
            lookup(1, completed(100, 700)),
            "corrected",
            vec![("correction", 1_500 - 612)],
        ),
        ("estimated, the same cost", estimated(), lookup(1, completed(100, 256)), "processed", vec![]),
        ("exact, by a stronger one", exact(), lookup(1, completed(10, 30)), "corrected", vec![("correction", 20)]),
        ("exact, above the hold", exact(), lookup(1, completed(100, 1_100)), "corrected", vec![("correction", 2_250)]),
        (
            "released by an operator",
            operated(Operation::Release),
            news("e", completed(10, 20)),
            "corrected",
            vec![("correction", 50)],
        ),
        // A failure without usage costs nothing if nothing of it is stored.
        ("estimated, failed", by_route(&settles(), 0), news("e", failed), "corrected", vec![("correction", -2_100)]),
        ("released, failed", by_route(&releases(), 0), news("e", failed), "processed", vec![]),
        ("estimated, failed, partly stored", by_route(&settles(), 7), news("e", failed), "processed", vec![]),
        ("released, failed, partly stored", by_route(&releases(), 7), news("e", failed), "quarantined", vec![]),
        // End without usage, after a release: it cannot be priced. After a settlement nothing changes.
        ("released, no usage", World::expired(&releases()), news("e", COMPLETED), "quarantined", vec![]),
        (
            "released by an operator, no usage",
            operated(Operation::Release),
            news("e", COMPLETED),
            "quarantined",
            vec![],
        ),
        ("estimated, no usage", estimated(), lookup(1, COMPLETED), "processed", vec![]),
        // Anything after a compensation.
        ("compensated", compensated(), lookup(1, completed(10, 30)), "ignored", vec![]),
    ];
    let mut wrong = Vec::new();
    for (name, mut world, signal, expected, books) in rows {
        let (before, had, at) = (world.live().clone(), world.books().len(), world.signals.len());
        let said = world.hear(signal.clone());
        if said != expected {
            wrong.push(format!("{name}: {said}, not {expected}"));
        }
        if world.books()[had..] != books {
            wrong.push(format!("{name}: {:?}, not {books:?}", &world.books()[had..]));
        }
        // Invariant 5: one row, with the state that was found and what was made.
        let [row] = &world.signals[at..] else { panic!("{name}: one row") };
        let made: Vec<_> = world.postings[had..].iter().map(|posting| posting.id.clone()).collect();
        assert_eq!((&row.signal, row.at, row.epoch), (&signal, world.now, before.attempt.epoch()), "{name}");
        assert_eq!((row.lifecycle, row.settlement, &row.posting_ids), (before.lifecycle, before.settlement, &made));
        // Invariant 3: the terminal state stays.
        if before.lifecycle.is_terminal() {
            let first = (before.lifecycle, before.reason, before.ended_at);
            assert_eq!((world.lifecycle(), world.live().reason, world.live().ended_at), first, "{name}");
        }
        // Whoever cannot decide calls somebody who can.
        let quarantined = row.disposition == Disposition::Quarantined;
        assert!(!quarantined || world.live().review.is_some(), "{name}: for review");
        // The same event again has the recorded answer, and no row of its own.
        let again = World { signals: world.signals.clone(), ..world.clone() };
        let repeated = again.ask(&signal_seen(signal, Some(row.disposition))).unwrap();
        assert!(repeated.writes_nothing() && repeated.effects.is_empty(), "{name}");
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Seed 2, "Define a late-event policy": the four races.
#[test]
fn the_four_races() {
    // Equivalent settlement already occurred: an idempotent no-op.
    let mut settled = ended_world(&terms(), complete(10, 20));
    let books = settled.books();
    assert_eq!(settled.hear(lookup(1, completed(10, 20))), "processed");
    assert_eq!((settled.books(), settled.live().cost), (books, Some(micros(50))));
    // Release won, but valid usage later appears: a correction that refers to it, no rewritten history.
    let mut released = World::expired(&releases());
    let release = released.postings[0].clone();
    assert_eq!((release.kind, release.amount), (PostingKind::Release, micros(HOLD)));
    released.hear(news("e-1", completed(10, 20)));
    assert_eq!(released.postings[0], release);
    assert_eq!(released.postings[1].refers_to, Some(release.id));
    assert_eq!(released.states(), ("expired", "completed", "released"));
    // A newer attempt owns: attributed to the old one; the new one goes on.
    let mut retried = retried(&terms());
    assert_eq!(retried.hear(lookup(1, completed(10, 20))), "processed");
    assert_eq!(retried.say(&Command::Append { epoch: 3, bytes: 5 }), "continue=");
    assert_eq!(retried.live().past_attempts[0].accounted.unwrap().metered.usage(), &usage(10, 20));
    assert_eq!((retried.live().attempt.reported, retried.books()), (None, vec![]));
    // Evidence remains inconsistent: quarantined, and an operator is called.
    let mut inconsistent = World::searching(&keeps());
    inconsistent.hear(news("e-1", completed(10, 20)));
    inconsistent.hear(news("e-2", ended_as(Outcome::Failed, None)));
    assert_eq!(inconsistent.say(&reconcile(2, ended(SourceEnd::Lost))), "done>expired+close");
    assert_eq!(inconsistent.live().settlement.as_str(), "disputed");
    assert_eq!(inconsistent.live().review.unwrap().reason, ReasonCode::EvidenceConflict);
    assert_eq!(inconsistent.books(), []);
}

/// Seed 1, "Plan for late completion": a completion just before expiry, just after, and after an operator has resolved
/// it. During a retry: see `retry.rs`.
#[test]
fn the_boundary_of_the_deadline() {
    let observed = Terms { observation_ms: 5_000, ..releases() };
    let deadline = 9_000 + 5_000;
    for (at, expected, books) in [
        (deadline - 1, ("completed", "completed", "committed"), vec![("settle", 50)]),
        (deadline, ("completed", "completed", "committed"), vec![("settle", 50)]),
        (deadline + 60_000, ("completed", "completed", "committed"), vec![("settle", 50)]),
    ] {
        // Nobody has looked yet: the deadline proves nothing, and the completion is there when it is looked at.
        let mut before = World::searching(&observed);
        assert_eq!(before.at(at).hear(news("e-1", completed(10, 20))), "processed+evidence");
        before.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!((before.states(), before.books()), (expected, books), "{at}");
    }
    for later in [0, 1, 3_600_000] {
        let mut after = World::expired(&observed);
        assert_eq!(after.live().reason, Some(ReasonCode::ExpiredReleased));
        after.at(deadline + later).hear(news("e-1", completed(10, 20)));
        assert_eq!(after.books(), [("release", 2_100), ("late_settlement", 50)]);
        assert_eq!(after.states(), ("expired", "completed", "released"));
        assert_eq!((after.live().cost, after.live().reason), (Some(micros(50)), Some(ReasonCode::ExpiredReleased)));
    }
    let mut operators = operated(Operation::Release);
    assert_eq!(operators.live().resolution.as_ref().unwrap().by, ResolvedAs::Operator);
    operators.hear(news("e-1", completed(10, 20)));
    assert_eq!(operators.books(), [("release", 2_100), ("correction", 50)], "after an operator: a correction");
    assert_eq!(operators.postings[1].refers_to, Some(operators.postings[0].id.clone()));
}

/// Seed 2, "Use stable identities and idempotency keys": two questions. The same event, and the same effect under another
/// event id, neither of which moves any money.
#[test]
fn deduplicated_by_event_and_by_effect() {
    let mut world = World::expired(&releases());
    assert_eq!(world.hear(news("e-1", completed(10, 20))), "corrected");
    let (state, books) = (world.aggregate.clone(), world.books());
    assert_eq!(world.hear(news("e-1", completed(10, 20))), "corrected=", "the recorded answer");
    assert_eq!(world.hear(news("e-1", completed(99, 99))), "corrected=", "whatever the repetition says");
    assert_eq!((world.signals.len(), &world.aggregate), (1, &state));
    assert_eq!(world.hear(news("e-2", completed(10, 20))), "processed=", "the same effect under another id");
    assert_eq!(world.hear(lookup(2, completed(10, 20))), "processed=", "and by another way");
    assert_eq!((world.books(), world.signals.len()), (books, 3));
}

/// Design 4, "Exact usage that arrives later makes a correction": to the micro-USD, in both directions.
#[test]
fn exact_usage_after_an_estimate() {
    for (input, output) in [(0, 1), (1, 0), (10, 20), (100, 255), (100, 256), (100, 257), (100, 1_000), (100, 1_001)] {
        let mut world = ended_world(&terms(), ended(SourceEnd::Body(EndClass::Incomplete)));
        assert_eq!(world.books(), [("settle", 100 + 2 * 256)]);
        world.hear(lookup(1, completed(input, output)));
        let cost = input + 2 * output;
        let moved: i64 = world.books().iter().map(|(_, amount)| amount).sum();
        assert_eq!((moved, world.live().cost), (cost.try_into().unwrap(), Some(micros(cost))), "{input} {output}");
        let corrections = &world.postings[1..];
        assert_eq!(corrections.len(), usize::from(cost != 612));
        for correction in corrections {
            assert_eq!((correction.kind, correction.reason), (PostingKind::Correction, ReasonCode::LateCompletion));
            assert_eq!(correction.refers_to, Some(world.postings[0].id.clone()));
            assert_eq!(correction.id, format!("{}:1:correction:1", identity(1).reservation));
        }
        let on_the_way: Vec<_> = world.live().deliveries.iter().map(|delivery| delivery.posting_id.clone()).collect();
        assert_eq!(on_the_way, world.postings.iter().map(|posting| posting.id.clone()).collect::<Vec<_>>());
    }
}

/// Design 7: after a release by expiry `late_settlement`, and what differs from that later is a `correction`; each has an
/// id of its own and refers to the release.
#[test]
fn a_late_settlement_is_corrected() {
    let mut world = World::expired(&releases());
    world.hear(of(Source::Stream, Subject::Epoch { epoch: 1 }, completed(10, 20)));
    assert_eq!(world.hear(lookup(2, completed(10, 40))), "corrected", "a stronger source");
    assert_eq!(world.hear(of(Source::Operator, Subject::Epoch { epoch: 2 }, completed(5, 5))), "corrected");
    assert_eq!(
        world.books(),
        [("release", 2_100), ("late_settlement", 50), ("correction", 40), ("correction", 15 - 90)]
    );
    let release = Some(world.postings[0].id.clone());
    assert!(world.postings[1..].iter().all(|posting| posting.refers_to == release));
    let ids: Vec<_> = world.postings.iter().map(|posting| posting.id.rsplit_once(':').unwrap().1).collect();
    assert_eq!(ids, ["1", "1", "2", "3"], "the version counts what followed the resolution");
    assert_eq!((world.live().cost, world.live().settlement.as_str()), (Some(micros(15)), "released"));
}
