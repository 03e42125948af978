//! Cancel: requested, sent, confirmed, completion wins, unknown; by phase and by what the provider can do (seed 1,
//! "Cancellation Requested Is Not Cancellation Confirmed" and its capability matrix; design 6).

use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::policy::Terms;
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{CancelAnswer, CancelOutcome, CancelRequest, Command, Effect, Report, SourceEnd};

const NONE: Capabilities = Capabilities { cancel: false, ..CANCEL };
const REQUESTED: &str = "requested>cancellation_requested";

fn answered(epoch: u32, answer: CancelAnswer) -> Command {
    Command::CancelAnswered { epoch, answer }
}

/// Cancelled while its driver works and has named the operation; then the driver stopped as told. Epoch 2 searches, and
/// the provider has not answered.
fn asked(capabilities: Capabilities) -> World {
    let mut world = World::identified(&Terms { observation_ms: 60_000, ..with(capabilities) });
    world.take(&Command::Cancel).unwrap();
    world.at(100).take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert_eq!(world.epoch(), 2);
    world
}

/// Seed 1: cancellation by operation phase, and the four rows of the capability matrix. What a cancel does at once, and
/// whether the provider is asked as soon as its operation has a name.
#[test]
fn what_a_cancel_does_by_phase_and_capability() {
    for (capabilities, asks) in
        [(NONE, false), (CALLBACK, false), (STATUS, false), (CANCEL, true), (CANCEL_AND_STATUS, true)]
    {
        let terms = Terms { observation_ms: 60_000, ..with(capabilities) };
        let ask = if asks { "+ask_cancel" } else { "" };
        let stop = format!("{REQUESTED}+abort");
        let mut unnamed = World::submitted(&terms);
        let named = |mut world: World| {
            world.take(&identify(1)).unwrap();
            world
        };
        for (phase, world, expected) in [
            ("prepared", World::prepared(&terms), stop.clone()),
            ("submitted, no name", World::submitted(&terms), stop.clone()),
            ("submitted", named(World::submitted(&terms)), format!("{stop}{ask}")),
            ("processing", World::identified(&terms), format!("{stop}{ask}")),
            ("searched", World::searching(&terms), format!("{stop}{ask}")),
            ("searched, no name", World::lost(&terms), stop.clone()),
        ] {
            let mut world = world;
            assert_eq!(world.say(&Command::Cancel), expected, "{phase}, {capabilities:?}");
            assert_eq!(world.live().attempt.cancel.is_some(), expected.ends_with("+ask_cancel"));
            assert_eq!(world.say(&Command::Cancel), "requested=", "the first one stands");
            assert_eq!(world.live().cancellation.unwrap().outcome, None, "requested is not confirmed");
        }
        // A name that comes later: the request follows it, once.
        unnamed.take(&Command::Cancel).unwrap();
        assert_eq!(unnamed.say(&identify(1)), format!("stop{ask}"), "{capabilities:?}");
        assert_eq!(unnamed.say(&identify(1)), "stop=");
        // A name that comes with the end.
        let mut at_the_end = World::submitted(&terms);
        at_the_end.take(&Command::Cancel).unwrap();
        let stopped = holdfast_core::reservation::UpstreamEnd {
            operation_id: Some(OPERATION.into()),
            ..ended(SourceEnd::Aborted)
        };
        let said = at_the_end.say(&end(1, stopped));
        assert_eq!(said.contains("+ask_cancel"), asks, "{said}");
    }
}

/// Seed 1's three outcomes, by row of the capability matrix. The socket alone: closing it is the confirmation. Otherwise
/// it confirms nothing: somebody has to say so, or the outcome stays unknown and bounded.
#[test]
fn what_a_cancel_comes_to() {
    let mut socket = World::identified(&terms());
    socket.take(&Command::Cancel).unwrap();
    assert_eq!(socket.say(&end(1, ended(SourceEnd::Aborted))), "done>cancelled+close");
    assert_eq!(socket.live().cancellation.unwrap().outcome, Some(CancelOutcome::Confirmed));
    assert_eq!(socket.live().reason, Some(ReasonCode::CancelledByRequest));
    for capabilities in [STATUS, CANCEL, CANCEL_AND_STATUS, CALLBACK] {
        let confirmed = ended_as(Outcome::Cancelled, Some(usage(10, 2)));
        for (report, lifecycle, outcome, books) in [
            (Some(confirmed), "cancelled", CancelOutcome::Confirmed, vec![("settle", 14)]),
            (
                Some(ended_as(Outcome::Completed, Some(usage(10, 20)))),
                "completed",
                CancelOutcome::CompletionWon,
                vec![("settle", 50)],
            ),
            (Some(ended_as(Outcome::Failed, None)), "failed", CancelOutcome::Unknown, vec![("release", 2_100)]),
            (None, "expired", CancelOutcome::Unknown, vec![]),
        ] {
            let mut world = asked(capabilities);
            assert_eq!(world.states(), ("cancellation_requested", "unknown", "pending"), "{capabilities:?}");
            match report {
                Some(report) => drop(world.hear(callback("e-1", OPERATION, report))),
                None => drop(world.at(60_100)),
            }
            world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
            assert_eq!((world.states().0, world.books()), (lifecycle, books), "{capabilities:?} {report:?}");
            let cancellation = world.live().cancellation.unwrap();
            assert_eq!((cancellation.requested_at, cancellation.outcome), (START, Some(outcome)));
        }
    }
    // Completion wins while the driver still works.
    let mut won = World::identified(&with(CANCEL));
    won.take(&Command::Cancel).unwrap();
    assert_eq!(won.say(&end(1, complete(10, 20))), "done>completed+close");
    assert_eq!(won.live().cancellation.unwrap().outcome, Some(CancelOutcome::CompletionWon));
}

/// Every answer, by its documented meaning: only one that confirms ends anything (seed 1).
#[test]
fn every_answer_of_the_provider() {
    use CancelAnswer as A;
    let confirmed = A::Confirmed { usage: Some(usage(10, 2)) };
    for (answer, said, word, after) in [
        (A::Accepted, "done", "cancel_accepted", ("cancellation_requested", "unknown", "pending")),
        (A::Refused, "done", "cancel_refused", ("cancellation_requested", "unknown", "pending")),
        (A::TooLate, "done+evidence", "cancel_too_late", ("cancellation_requested", "unknown", "pending")),
        (
            A::Failed { retry_after_ms: Some(5_000) },
            "done",
            "cancel_failed",
            ("cancellation_requested", "unknown", "pending"),
        ),
        (confirmed, "done+evidence", "cancel_confirmed", ("cancelled", "cancelled", "committed")),
        (A::Confirmed { usage: None }, "done+evidence", "cancel_confirmed", ("cancelled", "cancelled", "committed")),
    ] {
        let mut world = asked(CANCEL_AND_STATUS);
        assert_eq!(world.say(&answered(2, answer)), said, "{answer:?}");
        assert_eq!(world.outcomes().last(), Some(&word));
        assert_eq!(world.live().attempt.cancel, Some(CancelRequest { sent_at: START, answer: Some(answer) }));
        assert_eq!(world.say(&answered(2, answer)), "done=", "the same answer again: {answer:?}");
        world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!(world.states(), after, "{answer:?}");
    }
    let mut world = asked(CANCEL_AND_STATUS);
    world.take(&answered(2, confirmed)).unwrap();
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!((world.books(), world.live().reason), (vec![("settle", 14)], Some(ReasonCode::CancelConfirmed)));
}

/// A request that failed is made again when the search wakes; one that was answered, or waits for its answer, is not.
#[test]
fn a_failed_request_is_made_again() {
    for (answer, again) in [
        (Some(CancelAnswer::Failed { retry_after_ms: None }), true),
        (Some(CancelAnswer::Accepted), false),
        (Some(CancelAnswer::Refused), false),
        (Some(CancelAnswer::TooLate), false),
        (None, false),
    ] {
        let mut world = asked(CANCEL);
        if let Some(answer) = answer {
            world.take(&answered(2, answer)).unwrap();
        }
        world.now = world.next_wake().unwrap();
        let transition = world.take(&wake(false)).unwrap();
        let request = Effect::RequestCancel { epoch: 2, operation_id: OPERATION.into() };
        assert_eq!(transition.effects.contains(&request), again, "{answer:?}");
        if again {
            let sent_at = world.now;
            assert_eq!(world.live().attempt.cancel, Some(CancelRequest { sent_at, answer: None }), "a new question");
        }
    }
}

/// The provider may wish to be asked later.
#[test]
fn a_failed_request_prolongs_the_wait() {
    let mut world = asked(CANCEL_AND_STATUS);
    world.take(&answered(2, CancelAnswer::Failed { retry_after_ms: Some(30_000) })).unwrap();
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    let wait = world.live().reconciliation.unwrap().next_at.since(world.now);
    assert!((30_000..37_500).contains(&wait), "{wait}");
}

/// The socket is closed and the provider is asked in the same moment, so its answer comes after the driver has stopped,
/// under the epoch that asked. It is the answer about this attempt all the same (seed 1, "a synchronous cancellation
/// response whose documented semantics confirm termination").
#[test]
fn an_answer_that_comes_after_the_driver_stopped() {
    let confirmed = CancelAnswer::Confirmed { usage: Some(usage(10, 2)) };
    let mut world = asked(CANCEL);
    assert_eq!(world.say(&answered(1, confirmed)), "done+evidence", "the epoch that asked");
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!((world.states(), world.books()), (("cancelled", "cancelled", "committed"), vec![("settle", 14)]));
    let mut failed = asked(CANCEL);
    assert_eq!(failed.say(&answered(1, CancelAnswer::Failed { retry_after_ms: None })), "done");
    failed.now = failed.next_wake().unwrap();
    assert_eq!(failed.say(&wake(false)), "done+ask_cancel+evidence", "and it is asked again");
}

/// A confirmation that comes after the deadline is evidence like any other: it leaves a row, and settles the hold that is
/// still kept (invariant 5; the table of `signal.rs`).
#[test]
fn a_confirmation_after_the_deadline() {
    let mut world = asked(CANCEL);
    world.at(60_100).take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(world.states(), ("expired", "unknown", "expired"));
    let _said = world.say(&answered(2, CancelAnswer::Confirmed { usage: Some(usage(10, 2)) }));
    assert_eq!(world.signals.len(), 1, "invariant 5");
    assert_eq!((world.states(), world.books()), (("expired", "cancelled", "committed"), vec![("settle", 14)]));
}

/// A confirmation of what is known already is an answer like any other: stored, and the same again writes nothing
/// (invariant 8).
#[test]
fn a_confirmation_of_what_is_known() {
    let mut world = asked(CANCEL_AND_STATUS);
    world.hear(callback("e-1", OPERATION, ended_as(Outcome::Cancelled, None)));
    let confirmed = answered(2, CancelAnswer::Confirmed { usage: None });
    world.take(&confirmed).unwrap();
    assert!(world.live().attempt.cancel.unwrap().answer.is_some(), "the answer is stored");
    let again = world.ask(&confirmed).unwrap();
    assert!(again.writes_nothing(), "{:?} {:?}", again.signals, again.history);
}

/// An answer to a question that nobody asked is refused, and recorded.
#[test]
fn an_answer_needs_a_question() {
    for mut world in [World::identified(&with(CANCEL)), World::searching(&Terms { observation_ms: 9, ..with(CANCEL) })]
    {
        let epoch = world.epoch();
        assert_eq!(world.say(&answered(epoch, CancelAnswer::Confirmed { usage: None })), "!wrong_state");
        assert_eq!(world.say(&answered(epoch + 1, CancelAnswer::Accepted)), "!stale_epoch");
        assert_eq!(world.outcomes()[world.outcomes().len() - 2..], ["wrong_state", "stale_epoch"]);
    }
}

/// Policy `cancel` and the time limits pull the same levers as a request; the reason of the end is their own.
#[test]
fn every_stop_asks_the_provider() {
    let able = |terms: Terms| Terms { capabilities: CANCEL, observation_ms: 60_000, lease_ms: 90_000, ..terms };
    let mut left = World::identified(&able(cancels(0)));
    assert_eq!(left.say(&readers(0)), "stop>cancellation_requested+abort+ask_cancel");
    let mut grace = World::identified(&able(cancels(500)));
    grace.take(&readers(0)).unwrap();
    assert_eq!(grace.at(500).say(&wake(true)), "stop>cancellation_requested+abort+ask_cancel");
    let mut idle = World::identified(&able(terms()));
    assert_eq!(idle.at(3_000).say(&wake(true)), "stop+abort+ask_cancel");
    for world in [&mut left, &mut grace, &mut idle] {
        world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
        world.take(&answered(2, CancelAnswer::Confirmed { usage: Some(usage(1, 0)) })).unwrap();
        world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!((world.states().0, world.books()), ("cancelled", vec![("settle", 1)]));
    }
    // Behind a stop, a request of somebody is recorded; the provider was asked already.
    let mut behind = World::identified(&able(terms()));
    behind.at(3_000).take(&wake(true)).unwrap();
    assert_eq!(behind.say(&Command::Cancel), "requested>cancellation_requested");
}

/// What is being stopped is looked up, not repeated: a retry would undo the wish (invariant 12).
#[test]
fn a_cancelled_attempt_is_not_repeated() {
    let retry = Terms {
        on_interruption: holdfast_core::policy::OnInterruption::Retry,
        observation_ms: 0,
        ..with(CANCEL_AND_STATUS)
    };
    let mut world = World::identified(&retry);
    world.take(&Command::Cancel).unwrap();
    world.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>expired+close");
    let mut runs = World::searching(&Terms { observation_ms: 60_000, ..retry });
    runs.take(&Command::Cancel).unwrap();
    runs.hear(lookup(2, Report::Processing));
    assert_eq!(runs.operate("a-1", holdfast_core::reservation::Operation::Retry), "!wrong_state");
}
