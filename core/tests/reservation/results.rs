//! A result that was learnt outside of the stream (design 6, row "no cancel, status": "look up with backoff within limits;
//! store the result"; seed 1, "Choosing a Policy for Inference-Serving Reservations"): what of it is kept, and when it is read.

use super::signals::*;
use super::world::*;
use holdfast_core::meter::EndClass;
use holdfast_core::operation::FinalForm;
use holdfast_core::policy::Terms;
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Command, Operation, Report, SourceEnd, ToldResult, UpstreamEnd};
use holdfast_core::view::{GenerationView, LiveFacts, ResultView};

const MAX_BYTES: u64 = 1_000;

fn told_of(operation_id: &str, outcome: Outcome, without_output: bool, length: u64) -> Command {
    let form = FinalForm { outcome, without_output };
    Command::ResultTold { operation_id: operation_id.into(), form, length, max_bytes: MAX_BYTES }
}

fn told(outcome: Outcome) -> Command {
    told_of(OPERATION, outcome, false, 700)
}

/// A lookup that the search asked for was answered: the result, and then the word.
fn looked_up(world: &mut World, report: Report) {
    let Report::Ended { outcome, .. } = report else { panic!("{report:?}") };
    assert_eq!(world.say(&told(outcome)), "done+keep");
    assert_eq!(world.hear(lookup(2, report)), "processed+evidence");
}

fn readable(world: &World) -> Option<u64> {
    world.live().result_to_read().map(|result| result.length)
}

/// The table of the module's documentation.
#[test]
fn what_is_kept() {
    let keeps_none = Terms { keep_partial: false, ..with(STATUS) };
    for (terms, outcome, without_output, said) in [
        (with(STATUS), Outcome::Completed, false, "done+keep"),
        (with(STATUS), Outcome::Completed, true, "done+keep"),
        (with(STATUS), Outcome::Incomplete, false, "done+keep"),
        (with(STATUS), Outcome::Cancelled, false, "done+keep"),
        (with(STATUS), Outcome::Cancelled, true, "done="),
        (with(STATUS), Outcome::Failed, false, "done="),
        (keeps_none.clone(), Outcome::Completed, false, "done+keep"),
        (keeps_none, Outcome::Cancelled, false, "done="),
    ] {
        let mut world = World::searching(&terms);
        let command = told_of(OPERATION, outcome, without_output, 700);
        assert_eq!(world.say(&command), said, "{outcome:?} {without_output} {}", terms.keep_partial);
        assert_eq!(world.say(&command), "done=", "the first one stands");
        assert_eq!(world.states().2, "pending", "content moves no money");
        assert_eq!(readable(&world), None, "it is read after the end");
    }
}

/// Each state that a result can come in.
#[test]
fn when_it_is_kept() {
    let late = |settles: Report| {
        let mut world = World::expired(&with(STATUS));
        assert!(world.hear(lookup(2, settles)).starts_with("processed"));
        world
    };
    let past_retention = {
        let mut world = World::expired(&with(STATUS));
        let retention_ms = world.live().terms.retention_s * 1_000;
        let ended_at = world.live().ended_at.unwrap();
        world.now = ended_at.plus(retention_ms);
        assert_eq!(world.say(&wake(false)), "done+delete");
        world
    };
    for (name, mut world, said) in [
        ("not named yet", World::processing(&with(STATUS)), "done="),
        ("driven", World::identified(&with(STATUS)), "done+keep"),
        ("searched", World::searching(&with(STATUS)), "done+keep"),
        ("quarantined", World::expired(&with(STATUS)), "done+keep"),
        ("released by expiry", World::expired(&Terms { on_expiry: releases().on_expiry, ..with(STATUS) }), "done+keep"),
        ("settled by a late word", late(completed(10, 20)), "done+keep"),
        ("answered", ended_world(&with(STATUS), complete(10, 20)), "done="),
        (
            "failed in its stream",
            ended_world(&with(STATUS), ended(SourceEnd::Body(EndClass::InBandError))),
            "done+keep",
        ),
        ("another attempt owns", retried(&with(STATUS)), "done="),
        ("past retention", past_retention, "done="),
    ] {
        let before = world.postings.len();
        assert_eq!(world.say(&told(Outcome::Completed)), said, "{name}");
        assert_eq!(world.postings.len(), before, "{name}");
        let readable_now = said == "done+keep" && world.lifecycle().is_terminal();
        assert_eq!(readable(&world).is_some(), readable_now, "{name}");
    }
    for mut world in [World::new(), World::prepared(&with(STATUS))] {
        assert!(["!not_found", "done="].contains(&world.say(&told(Outcome::Completed)).as_str()));
    }
    let mut another = World::searching(&with(STATUS));
    assert_eq!(another.say(&told_of("op-9", Outcome::Completed, false, 700)), "done=");
}

/// The row "no cancel, status": it is settled as what it is, and what was paid for is there.
#[test]
fn a_lookup_brings_the_result() {
    let mut world = World::searching(&with(STATUS));
    looked_up(&mut world, completed(10, 20));
    let transition = world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(world.states(), ("completed", "completed", "committed"));
    assert_eq!(world.books(), [("settle", 50)]);
    let result = ToldResult { outcome: Outcome::Completed, length: 700, told_at: world.now, kept: true };
    assert_eq!(world.live().result_to_read(), Some(result));
    // The stream is no clean one, and says where the rest is: events between are missing.
    let terminal = String::from_utf8(transition.terminal().unwrap().to_vec()).unwrap();
    let place = format!("/v1/generations/{}/result", world.live().identity.generation);
    assert!(terminal.contains("upstream_interrupted") && terminal.contains(&place), "{terminal}");
    let view = GenerationView::of(&world.aggregate, &world.log, &LiveFacts::default()).unwrap();
    let ToldResult { outcome, length, told_at, kept } = result;
    assert_eq!(view.result, Some(ResultView { outcome, length, told_at, kept }));
}

/// Too large: settled by its usage all the same, and nobody is sent to what is not there.
#[test]
fn one_that_is_too_large_settles_all_the_same() {
    for (length, kept) in [(MAX_BYTES, true), (MAX_BYTES + 1, false)] {
        let mut world = World::searching(&with(STATUS));
        let said = world.say(&told_of(OPERATION, Outcome::Completed, false, length));
        assert_eq!(said, if kept { "done+keep" } else { "done" });
        assert_eq!(world.outcomes().last(), Some(&if kept { "kept" } else { "too_large" }));
        assert_eq!(world.say(&told(Outcome::Completed)), "done=");
        assert_eq!(world.hear(lookup(2, completed(10, 20))), "processed+evidence");
        let transition = world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!((world.states().0, world.books()), ("completed", vec![("settle", 50)]));
        assert_eq!(readable(&world).is_some(), kept);
        let terminal = String::from_utf8(transition.terminal().unwrap().to_vec()).unwrap();
        assert_eq!(terminal.contains("/result"), kept, "{terminal}");
        let view = GenerationView::of(&world.aggregate, &world.log, &LiveFacts::default()).unwrap();
        assert_eq!(view.result.map(|result| (result.length, result.kept)), Some((length, kept)));
    }
}

/// A stream that comes to its end after all is the answer: readers have it byte for byte.
#[test]
fn a_whole_log_needs_no_result() {
    let mut world = World::identified(&with(CANCEL_AND_STATUS));
    world.take(&Command::Cancel).unwrap();
    assert_eq!(world.say(&told(Outcome::Completed)), "done+keep");
    assert_eq!(world.say(&end(1, complete(10, 20))), "done>completed+close+forget");
    assert_eq!((readable(&world), world.live().result), (None, None));
    assert_eq!(world.say(&told(Outcome::Completed)), "done=");
    // Its terminal is in the log that a lost driver left.
    let mut lost = World::searching(&with(STATUS));
    assert_eq!(lost.say(&told(Outcome::Completed)), "done+keep");
    assert_eq!(lost.say(&reconcile(2, complete(10, 20))), "done>completed+close+forget");
    assert_eq!(readable(&lost), None);
}

/// What deletes content deletes the result: retention, and the end of a cancelled one that is not to be kept.
#[test]
fn it_is_deleted_with_the_content() {
    let mut world = World::searching(&with(STATUS));
    looked_up(&mut world, completed(10, 20));
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    let kept_until = world.live().ended_at.unwrap().plus(world.live().terms.retention_s * 1_000);
    assert!(world.next_wake() <= Some(kept_until));
    world.now = kept_until;
    assert_eq!(world.say(&wake(false)), "done+delete");
    assert_eq!(readable(&world), None);
    let view = GenerationView::of(&world.aggregate, &world.log, &LiveFacts::default()).unwrap();
    assert!(view.log.deleted && view.result.is_some_and(|result| !result.kept));

    let terms = Terms { keep_partial: false, ..with(CANCEL_AND_STATUS) };
    let mut cancelled = World::searching(&terms);
    // An incomplete result, and then a stronger word: it was cancelled.
    assert_eq!(cancelled.say(&told(Outcome::Incomplete)), "done+keep");
    assert_eq!(cancelled.hear(lookup(2, ended_as(Outcome::Cancelled, None))), "processed+evidence");
    assert_eq!(cancelled.say(&reconcile(2, ended(SourceEnd::Lost))), "done>cancelled+close+delete");
    assert_eq!(readable(&cancelled), None);
}

/// After an expiry that keeps the hold, and after an operator has decided about it, the result is still worth having.
#[test]
fn a_late_one_is_kept_whatever_the_money_came_to() {
    let mut quarantined = World::expired(&with(STATUS));
    assert_eq!(quarantined.say(&told(Outcome::Completed)), "done+keep");
    assert_eq!(quarantined.hear(lookup(2, completed(10, 20))), "processed");
    assert_eq!(quarantined.states(), ("expired", "completed", "committed"));
    assert_eq!(readable(&quarantined), Some(700));

    let mut operated = World::expired(&with(STATUS));
    operated.operate("a-1", Operation::Release);
    assert_eq!(operated.say(&told(Outcome::Completed)), "done+keep");
    assert_eq!(readable(&operated), Some(700));

    // Two equals that differ: for an operator, and the provider's own answer is there for the client.
    let mut disputed = World::searching(&with(STATUS));
    assert_eq!(disputed.hear(news("e-1", ended_as(Outcome::Failed, None))), "processed+evidence");
    assert_eq!(disputed.say(&told(Outcome::Completed)), "done+keep");
    assert_eq!(disputed.hear(lookup(2, completed(10, 20))), "quarantined+evidence");
    disputed.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!((disputed.states().2, readable(&disputed)), ("disputed", Some(700)));
}

/// A cancel whose answer brings partial output: kept with what the log has.
#[test]
fn a_cancelled_one_with_output() {
    let mut world = World::searching(&with(CANCEL_AND_STATUS));
    looked_up(&mut world, ended_as(Outcome::Cancelled, Some(usage(10, 5))));
    let transition = world.take(&reconcile(2, UpstreamEnd { content_bytes: 40, ..ended(SourceEnd::Lost) })).unwrap();
    assert_eq!((world.states().0, world.books()), ("cancelled", vec![("settle", 20)]));
    assert_eq!(readable(&world), Some(700));
    let terminal = String::from_utf8(transition.terminal().unwrap().to_vec()).unwrap();
    assert!(!terminal.contains("/result"), "nothing completed: {terminal}");
}

/// Rows of an earlier version have neither member.
#[test]
fn rows_of_an_earlier_version_open() {
    let world = World::expired(&with(STATUS));
    let mut row = serde_json::to_value(&world.aggregate).unwrap();
    assert_eq!(row.as_object_mut().unwrap().remove("answered"), Some(false.into()));
    assert!(row.get("result").is_none());
    let opened: holdfast_core::reservation::Aggregate = serde_json::from_value(row).unwrap();
    assert_eq!(opened, world.aggregate);
}
