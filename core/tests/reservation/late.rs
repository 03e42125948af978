//! Who is believed, and what a word is about: drivers that were fenced, older attempts, equals that differ, counts that
//! cannot be. The table itself is in `signals.rs`.

use super::signals::*;
use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::finding::Source;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnExpiry, OnInterruption, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Command, Operation, Report, SourceEnd, Subject, UpstreamEnd, late_signal};

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
        (completed(10, 20), Some(usage(10, 20))),
        (COMPLETED, Some(usage(100, 1_000))),
        (ended_as(Outcome::Failed, None), None),
        (ended_as(Outcome::Failed, Some(usage(3, 0))), Some(usage(3, 0))),
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
        let accounted = world.live().past_attempts[0].accounted.map(|accounted| *accounted.metered.usage());
        assert_eq!(accounted, first, "a failure of which nothing was seen costs nothing");
        // The second becomes known: both are settled.
        assert_eq!(world.hear(callback("e-2", "op-2", completed(1, 1))), "processed");
        assert_eq!(world.states(), ("expired", "completed", "committed"));
        let first = first.map_or(0, |usage| usage.input_tokens + 2 * usage.output_tokens);
        assert_eq!(world.live().cost, Some(micros(first + 3)), "{report:?}");
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
    kept.hear(news("e-1", completed(10, 20)));
    assert_eq!(kept.operate("a-1", Operation::Quarantine), "operated>expired+close");
    assert_eq!(kept.states(), ("expired", "unknown", "expired"));
    assert_eq!(kept.hear(news("e-2", completed(10, 21))), "quarantined");
    assert_eq!((kept.states(), kept.books()), (("expired", "unknown", "disputed"), vec![]));
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

/// A callback tells no usage. Where its provider can be asked, a stream that breaks afterwards settles nothing yet; where it
/// cannot, what the stream had shown is no bound of what the operation went on to use.
#[test]
fn a_callback_without_usage_and_then_a_broken_stream() {
    let asked = Terms { observation_ms: 60_000, ..with(Capabilities { status: true, ..CALLBACK }) };
    let called = |terms: &Terms, outcome| {
        let mut world = World::identified(terms);
        assert_eq!(world.hear(news("e-1", ended_as(outcome, None))), "processed");
        world
    };
    for source in [
        SourceEnd::Body(EndClass::Incomplete),
        SourceEnd::Body(EndClass::CutInsideEvent),
        SourceEnd::Aborted,
        SourceEnd::TooLarge,
        SourceEnd::NoResponse { provably_unsent: false },
    ] {
        for (outcome, content_bytes, state, books) in [
            (Outcome::Completed, 10, "completed", ("settle", 2_100)),
            (Outcome::Incomplete, 10, "completed", ("settle", 2_100)),
            (Outcome::Cancelled, 10, "cancelled", ("settle", 2_100)),
            (Outcome::Failed, 10, "failed", ("settle", 2_100)),
            (Outcome::Failed, 0, "failed", ("release", 2_100)),
        ] {
            let at = format!("{outcome:?} {content_bytes} {source:?}");
            let broken = UpstreamEnd { content_bytes, ..ended(source) };
            let closed = format!("done>{state}+close");
            let mut mute = called(&keeps(), outcome);
            assert_eq!(mute.say(&end(1, broken.clone())), closed, "{at}");
            assert_eq!(mute.books(), [books], "{at}");
            // Whose size made us stop it failed for that, whatever else is said of it.
            let too_large = (outcome, source) == (Outcome::Cancelled, SourceEnd::TooLarge);
            let closed = if too_large { "done>failed+close".into() } else { closed };
            let mut world = called(&asked, outcome);
            if books.0 == "release" {
                assert_eq!(world.say(&end(1, broken)), closed, "{at}: nothing is to be asked");
                continue;
            }
            assert_eq!(world.say(&end(1, broken)), "done+evidence", "{at}");
            let lost = UpstreamEnd { content_bytes, ..ended(SourceEnd::Lost) };
            assert_eq!(world.say(&reconcile(2, lost.clone())), "done", "{at}: it is asked first");
            world.now = world.next_wake().unwrap();
            assert_eq!(world.say(&wake(false)), "done+look_up", "{at}");
            let mut told = world.clone();
            assert_eq!(told.hear(lookup(2, ended_as(outcome, Some(usage(10, 20))))), "processed+evidence");
            assert_eq!(told.say(&reconcile(2, lost.clone())), closed, "{at}");
            assert_eq!(told.books(), [("settle", 50)], "{at}");
            // It does not tell: at the deadline the callback's word ends it, at the bound.
            world.take(&Command::LookUpFailed { epoch: 2, retry_after_ms: None }).unwrap();
            assert_eq!(world.at(60_000).say(&reconcile(2, lost)), closed, "{at}");
            assert_eq!(world.books(), [books], "{at}");
        }
    }
    // A stream that came to its own end has shown all, and one that told its usage has told it.
    for terms in [keeps(), asked] {
        for class in [EndClass::Complete, EndClass::InBandError] {
            let mut world = called(&terms, Outcome::Completed);
            let whole = UpstreamEnd { content_bytes: 10, ..ended(SourceEnd::Body(class)) };
            assert_eq!(world.say(&end(1, whole)), "done>completed+close", "{class:?}");
            assert_eq!(world.books(), [("settle", 632)], "{class:?}");
        }
        let mut world = called(&terms, Outcome::Completed);
        let finish_reason = Some("stop".into());
        let told = UpstreamEnd { finish_reason, source: SourceEnd::Body(EndClass::Incomplete), ..complete(10, 20) };
        assert_eq!(world.say(&end(1, told)), "done>completed+close");
        assert_eq!(world.books(), [("settle", 50)]);
    }
}

/// A failure of which nothing was seen is charged for nothing, whenever it becomes known: an estimate that was charged
/// before is given back, of whichever attempt; and the usage that it turns out to have is charged all the same.
#[test]
fn a_late_failure_gives_the_estimate_back() {
    let failed = ended_as(Outcome::Failed, None);
    let mut world = World::expired(&Terms { on_expiry: Some(OnExpiry::SettleEstimate), ..keeps() });
    assert_eq!(world.books(), [("settle", 2_100)]);
    assert_eq!(world.hear(news("e-1", failed)), "corrected");
    assert_eq!((world.books(), world.live().cost), (vec![("settle", 2_100), ("correction", -2_100)], Some(micros(0))));
    assert_eq!((world.live().usage, world.live().review), (None, None), "nothing is left to be looked at");
    assert_eq!(world.hear(news("e-2", failed)), "processed=", "once");
    assert_eq!(world.hear(lookup(2, ended_as(Outcome::Failed, Some(usage(10, 0))))), "corrected");
    assert_eq!(world.live().cost, Some(micros(10)));
    // One that another attempt followed: of it, nothing was seen.
    let mut second = retried(&terms());
    second.take(&Command::Append { epoch: 3, bytes: 500 }).unwrap();
    second.take(&end(3, complete(10, 20))).unwrap();
    assert_eq!(second.hear(news("e-1", failed)), "corrected");
    assert_eq!(second.books(), [("settle", 612 + 50), ("correction", -612)]);
    let mut meanwhile = retried(&terms());
    assert_eq!(meanwhile.hear(news("e-1", failed)), "processed");
    meanwhile.take(&end(3, complete(10, 20))).unwrap();
    assert_eq!(meanwhile.books(), [("settle", 50)]);
}

/// An operator is asked for as long as there is something to decide: whoever settles a kept hold answers the question that
/// it was kept with, and no other.
#[test]
fn a_review_ends_with_its_reason() {
    let reason = |world: &World| world.live().review.map(|review| review.reason);
    let mut world = World::expired(&keeps());
    assert_eq!(reason(&world), Some(ReasonCode::ExpiredQuarantined));
    let mut asked_more = world.clone();
    assert_eq!(world.hear(news("e-1", completed(10, 20))), "processed");
    assert_eq!((world.books(), reason(&world)), (vec![("settle", 50)], None));
    assert_eq!(asked_more.hear(callback("e-0", "nobody's", COMPLETED)), "quarantined");
    asked_more.hear(news("e-1", completed(10, 20)));
    assert_eq!((asked_more.books(), reason(&asked_more)), (vec![("settle", 50)], Some(ReasonCode::LateCompletion)));
}

/// The second attempt was never sent: the hold is kept for the first alone, and what becomes known of it
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
