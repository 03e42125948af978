//! What comes outside of the stream: late, twice, out of order, about an older attempt, from a driver that was fenced.
//! One input token costs one micro-USD, one output token two; the hold is 2,100.

use super::world::*;
use holdfast_core::evidence::Disposition;
use holdfast_core::finding::Source;
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnExpiry, OnInterruption, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{
    Command, Operation, Report, ResolvedAs, Signal, SourceEnd, Subject, UpstreamEnd, late_signal,
};

const COMPLETED: Report = ended_as(Outcome::Completed, None);

fn completed(input_tokens: u64, output_tokens: u64) -> Report {
    ended_as(Outcome::Completed, Some(usage(input_tokens, output_tokens)))
}

fn of(source: Source, subject: Subject, report: Report) -> Signal {
    Signal { event_id: None, source, subject, report, observed_at: START }
}

/// A callback about the first operation.
fn news(event_id: &str, report: Report) -> Signal {
    callback(event_id, OPERATION, report)
}

fn keeps() -> Terms {
    with(CALLBACK)
}

fn releases() -> Terms {
    Terms { on_expiry: Some(OnExpiry::Release), ..keeps() }
}

/// Two attempts: the first was lost and is past, the second works as `op-2`. The clock stands 9 s after the start.
fn retried(terms: &Terms) -> World {
    let retry = Terms { on_interruption: OnInterruption::Retry, ..terms.clone() };
    let mut world = World::searching(&retry);
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done+extend");
    world.take(&Command::HoldExtended { epoch: 3, attempt: attempt_id(2) }).unwrap();
    world.take(&Command::Submit { epoch: 3 }).unwrap();
    world.take(&respond(3)).unwrap();
    world.take(&Command::Identify { epoch: 3, operation_id: "op-2".into() }).unwrap();
    world
}

fn ended_world(terms: &Terms, end_of_it: UpstreamEnd) -> World {
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

/// Design 7: completion of a fenced driver is refused as a write, recorded, and heard as evidence. In the stead of its
/// bytes: what it knows of the usage.
#[test]
fn the_end_of_a_driver_that_was_fenced() {
    let mut world = World::lost(&terms());
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(world.books(), [("settle", 612)]);
    let zombie = end(1, complete(10, 20));
    assert_eq!(world.refused_and_heard(&zombie), "corrected");
    assert_eq!(world.books(), [("settle", 612), ("correction", 50 - 612)]);
    assert_eq!(world.states(), ("failed", "completed", "committed"), "the first terminal lifecycle stands");
    assert_eq!(world.refused_and_heard(&zombie), "corrected=", "its event is known");
    assert_eq!(world.signals[0].signal.source, Source::Stream);
    assert_eq!(world.outcomes()[world.outcomes().len() - 2..], ["stale_epoch", "stale_epoch"], "both are recorded");
}

/// While the outcome is searched, the fenced driver's completion ends the search.
#[test]
fn a_fenced_driver_ends_the_search() {
    let mut world = World::lost(&Terms { observation_ms: 5_000, ..terms() });
    assert_eq!(world.refused_and_heard(&end(1, complete(10, 20))), "processed+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>completed+close");
    assert_eq!((world.books(), world.live().reason), (vec![("settle", 50)], Some(ReasonCode::CompletedExact)));
}

/// An end that saw no outcome tells nothing; nor does any other refused write.
#[test]
fn what_a_refused_write_tells() {
    let mut world = World::lost(&terms());
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    let told = |command: &Command| {
        let refusal = world.ask(command).unwrap_err();
        late_signal(command, &refusal, world.now).map(|signal| signal.report)
    };
    let finished =
        |source| UpstreamEnd { finish_reason: Some("stop".into()), usage: Some(usage(1, 2)), ..ended(source) };
    for (end_of_it, expected) in [
        (complete(10, 20), Some(completed(10, 20))),
        (UpstreamEnd { usage: None, ..complete(0, 0) }, Some(COMPLETED)),
        (finished(SourceEnd::Body(EndClass::InBandError)), Some(ended_as(Outcome::Failed, Some(usage(1, 2))))),
        (ended(SourceEnd::Body(EndClass::InBandError)), Some(ended_as(Outcome::Failed, None))),
        (ended(SourceEnd::Body(EndClass::Incomplete)), None),
        (ended(SourceEnd::Body(EndClass::CutInsideEvent)), None),
        (ended(SourceEnd::Aborted), None),
        (ended(SourceEnd::Lost), None),
        (ended(SourceEnd::TooLarge), None),
        (ended(SourceEnd::NoResponse { provably_unsent: false }), None),
    ] {
        assert_eq!(told(&end(1, end_of_it.clone())), expected, "{end_of_it:?}");
        assert_eq!(told(&end(2, end_of_it.clone())), expected, "after the end: {end_of_it:?}");
    }
    assert_eq!(told(&Command::Append { epoch: 1, bytes: 9 }), None);
    assert_eq!(told(&reconcile(1, complete(10, 20))), None, "who resolves reads the log; it is no witness");
}

/// The whole answer of a fenced driver may be a refusal: under a status that is no success, a whole body is no completion
/// (design 4, "Failures by phase": an upstream 4xx releases, a 5xx says nothing).
#[test]
fn a_fenced_drivers_refused_request_is_no_completion() {
    for (status, envelope) in [(400, true), (429, true), (429, false), (302, false), (500, true), (503, false)] {
        let answer = UpstreamEnd { head: Some(head(status)), error_envelope: envelope, usage: None, ..complete(0, 0) };
        let mut world = World::lost(&terms());
        let refusal = world.take(&end(1, answer.clone())).unwrap_err();
        let told = late_signal(&end(1, answer), &refusal, world.now).map(|signal| signal.report);
        let completed = matches!(told, Some(Report::Ended { outcome: Outcome::Completed, .. }));
        assert!(!completed, "{status} {envelope}: {told:?}");
    }
}

/// The strength of what is known does not sink: two equals that differ are a dispute, whatever a weaker one added between
/// them (design 6, "equal ranks that differ ⇒ disputed").
#[test]
fn usage_of_a_weaker_source_does_not_weaken_the_outcome() {
    let mut world = World::searching(&with(CANCEL_AND_STATUS));
    assert_eq!(world.hear(lookup(2, COMPLETED)), "processed+evidence");
    assert_eq!(world.refused_and_heard(&end(1, complete(10, 20))), "processed+evidence", "it adds the usage");
    assert_eq!(world.live().attempt.reported.unwrap().usage, Some(usage(10, 20)));
    assert_eq!(world.hear(news("e-1", ended_as(Outcome::Failed, None))), "quarantined+evidence", "against the lookup");
    assert!(world.live().attempt.conflict);
}

/// Our own count is nobody's statement (design 6): it bounds a cost, ends nothing, and is never exact (design 4).
#[test]
fn our_own_count_is_no_statement() {
    let counted = of(Source::OwnCount, Subject::Epoch { epoch: 1 }, completed(1, 1));
    let mut world = World::processing(&terms());
    world.hear(counted.clone());
    assert_eq!(world.say(&end(1, ended(SourceEnd::Body(EndClass::Incomplete)))), "done>failed+close");
    assert_eq!(world.books(), [("settle", 612)], "the bound, as without it");
    let mut released = World::expired(&releases());
    released.hear(counted);
    assert_eq!(released.books(), [("release", 2_100)]);
}

/// Something that was never sent is said to have done something: recorded, for review, and believed by nobody. What is
/// proved stays proved, and it ends (invariants 5 and 7).
#[test]
fn a_word_about_what_was_never_sent() {
    for report in [COMPLETED, completed(10, 20), ended_as(Outcome::Failed, None), ended_as(Outcome::Cancelled, None)] {
        let mut driven = World::prepared(&terms());
        assert_eq!(driven.hear(lookup(1, report)), "quarantined", "{report:?}");
        assert_eq!(driven.at(9_000).say(&wake(false)), "done>detached+evidence");
        assert_eq!(driven.say(&reconcile(2, ended(SourceEnd::Lost))), "done>failed+close", "{report:?}");
        assert_eq!((driven.states(), driven.books()), (("failed", "prepared", "released"), vec![("release", 2_100)]));
    }
    let mut entombed = World::new();
    entombed.take(&never_started(1, &terms())).unwrap();
    assert_eq!(entombed.hear(news("e-1", completed(10, 20))), "quarantined=");
    assert_eq!((entombed.signals.len(), entombed.books()), (1, vec![("release", 2_100)]));
    assert_eq!(entombed.hear(news("e-1", completed(10, 20))), "quarantined=");
    assert_eq!(entombed.signals.len(), 1);
    assert_eq!(World::new().hear(news("e-1", COMPLETED)), "!not_found");
}

/// The hold of two attempts is kept because the second is of unknown outcome. What becomes known of the first is
/// attributed to it; it decides nothing about the second (the table's row "end of an older attempt, the hold is kept").
#[test]
fn a_late_word_about_an_older_attempt_leaves_the_hold_kept() {
    for (report, first) in [
        (completed(10, 20), usage(10, 20)),
        (ended_as(Outcome::Failed, None), usage(100, 1_000)),
        (ended_as(Outcome::Failed, Some(usage(3, 0))), usage(3, 0)),
    ] {
        let mut world = retried(&Terms { on_expiry: Some(OnExpiry::Quarantine), ..keeps() });
        world.at(20_000).take(&wake(false)).unwrap();
        world.take(&Command::ExtensionRefused { epoch: 5 }).unwrap();
        while !world.lifecycle().is_terminal() {
            let said = world.say(&reconcile(4, ended(SourceEnd::Lost)));
            if said == "done+extend" {
                world.take(&Command::ExtensionRefused { epoch: 5 }).unwrap();
            }
        }
        assert_eq!(world.states(), ("expired", "unknown", "expired"));
        assert_eq!(world.hear(lookup(1, report)), "processed", "{report:?}");
        assert_eq!((world.states(), world.books()), (("expired", "unknown", "expired"), vec![]), "{report:?}");
        assert_eq!(world.live().past_attempts[0].accounted.unwrap().metered.usage(), &first);
        // The second becomes known: both are settled.
        assert_eq!(world.hear(callback("e-2", "op-2", completed(1, 1))), "processed");
        assert_eq!(world.states(), ("expired", "completed", "committed"));
        assert_eq!(world.live().cost, Some(micros(first.input_tokens + 2 * first.output_tokens + 3)), "{report:?}");
    }
}

/// Two equals that differ about a running attempt: readers get the end that came, the hold waits for an operator.
#[test]
fn a_conflict_about_a_driven_attempt_is_disputed_at_its_end() {
    let mut world = World::identified(&keeps());
    world.hear(news("e-1", completed(10, 20)));
    assert_eq!(world.hear(news("e-2", completed(10, 21))), "quarantined");
    assert_eq!(world.say(&end(1, complete(10, 20))), "done>completed+close");
    assert_eq!(world.states(), ("completed", "completed", "disputed"));
    assert_eq!((world.books(), world.live().cost), (vec![], None));
    assert_eq!(world.operate("a-1", Operation::Finalize { usage: usage(10, 21) }), "operated");
    assert_eq!((world.states(), world.books()), (("completed", "completed", "committed"), vec![("settle", 52)]));
}

/// Late evidence that conflicts turns a kept hold into a disputed one; a conflict after a settlement only asks for review.
#[test]
fn a_late_conflict() {
    let mut kept = World::searching(&keeps());
    kept.hear(news("e-1", COMPLETED));
    kept.hear(news("e-2", ended_as(Outcome::Failed, None)));
    kept.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(kept.states(), ("expired", "unknown", "disputed"));
    let mut settled = ended_world(&terms(), complete(10, 20));
    assert_eq!(settled.hear(lookup(1, completed(10, 30))), "corrected");
    assert_eq!(settled.hear(news("e-1", completed(10, 31))), "quarantined");
    assert_eq!(settled.books(), [("settle", 50), ("correction", 20)]);
    assert_eq!(settled.states(), ("completed", "completed", "committed"));
    assert_eq!(settled.live().review.unwrap().reason, ReasonCode::EvidenceConflict);
}

/// Usage beyond any price is nothing to settle by (invariant 7): the bound is taken, or the hold stays as it is.
#[test]
fn usage_beyond_any_price() {
    let absurd = ended_as(Outcome::Completed, Some(usage(u64::MAX, u64::MAX)));
    let mut searched = World::searching(&keeps());
    searched.hear(news("e-1", absurd));
    assert_eq!(searched.say(&reconcile(2, ended(SourceEnd::Lost))), "done>completed+close");
    assert_eq!(
        (searched.books(), searched.live().reason),
        (vec![("settle", 2_100)], Some(ReasonCode::CompletedWithoutUsage))
    );
    let mut released = World::expired(&releases());
    assert_eq!(released.hear(news("e-1", absurd)), "quarantined");
    assert_eq!(released.books(), [("release", 2_100)]);
}

/// A report while the driver works is kept for its end: a broken stream of a completed operation is a completion.
#[test]
fn what_was_reported_stands_above_how_the_socket_ended() {
    for (report, expected, books) in [
        (completed(10, 20), ("completed", "completed", "committed"), vec![("settle", 50)]),
        (
            ended_as(Outcome::Incomplete, Some(usage(10, 20))),
            ("completed", "incomplete", "committed"),
            vec![("settle", 50)],
        ),
        (ended_as(Outcome::Failed, None), ("failed", "failed", "released"), vec![("release", 2_100)]),
        (ended_as(Outcome::Failed, Some(usage(10, 0))), ("failed", "failed", "committed"), vec![("settle", 10)]),
        (
            ended_as(Outcome::Cancelled, Some(usage(10, 1))),
            ("cancelled", "cancelled", "committed"),
            vec![("settle", 12)],
        ),
    ] {
        for source in [SourceEnd::Body(EndClass::CutInsideEvent), SourceEnd::Aborted, SourceEnd::TooLarge] {
            let mut world = World::identified(&keeps());
            world.hear(news("e-1", report));
            world.take(&end(1, ended(source))).unwrap();
            assert_eq!((world.states(), world.books()), (expected, books.clone()), "{report:?} {source:?}");
        }
    }
}

/// As above, but the second attempt was never sent: the hold is kept for the first alone, and what becomes known of it
/// settles.
#[test]
fn a_late_word_about_the_only_attempt_that_was_sent() {
    let retry = Terms { on_interruption: OnInterruption::Retry, ..keeps() };
    let mut world = World::searching(&retry);
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    world.take(&Command::HoldExtended { epoch: 3, attempt: attempt_id(2) }).unwrap();
    world.at(18_000).take(&wake(false)).unwrap();
    assert_eq!(world.say(&reconcile(4, ended(SourceEnd::Lost))), "done+extend");
    world.take(&Command::ExtensionRefused { epoch: 5 }).unwrap();
    assert_eq!(world.say(&reconcile(4, ended(SourceEnd::Lost))), "done>expired+close");
    assert_eq!(world.states(), ("expired", "prepared", "expired"));
    assert_eq!(world.hear(news("e-1", completed(10, 20))), "processed");
    assert_eq!((world.states(), world.books()), (("expired", "prepared", "committed"), vec![("settle", 50)]));
}
