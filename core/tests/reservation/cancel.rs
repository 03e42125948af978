//! Cancel: requested, sent, confirmed, completion wins, unknown; by phase and by what the provider can do (seed 1,
//! "Cancellation Requested Is Not Cancellation Confirmed" and its capability matrix; design 6).

use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::policy::Terms;
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{CancelAnswer, CancelOutcome, CancelRequest, Command, Report, ResolvedBy, SourceEnd};

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
        // Where it outlives its socket its driver brings the name first.
        let waits = if capabilities == NONE { stop.clone() } else { REQUESTED.to_string() };
        let mut unnamed = World::submitted(&terms);
        let named = |mut world: World| {
            world.take(&identify(1)).unwrap();
            world
        };
        for (phase, world, expected) in [
            ("prepared", World::prepared(&terms), stop.clone()),
            ("submitted, no name", World::submitted(&terms), waits.clone()),
            ("processing, no name", World::processing(&terms), waits.clone()),
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
        // A name that comes later: the stop and the request follow it, once.
        unnamed.take(&Command::Cancel).unwrap();
        let abort = if capabilities == NONE { "" } else { "+abort" };
        assert_eq!(unnamed.say(&identify(1)), format!("stop{abort}{ask}"), "{capabilities:?}");
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
        let request = world.live().attempt.cancel.unwrap();
        assert_eq!((request.sent_at, request.answer, request.times), (START, Some(answer), 1));
        let failed = matches!(answer, A::Failed { .. });
        assert_eq!((request.again_at.is_some(), request.due_at().is_some()), (failed, failed), "{answer:?}");
        assert_eq!(world.say(&answered(2, answer)), "done=", "the same answer again: {answer:?}");
        world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!(world.states(), after, "{answer:?}");
    }
    let mut world = asked(CANCEL_AND_STATUS);
    world.take(&answered(2, confirmed)).unwrap();
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!((world.books(), world.live().reason), (vec![("settle", 14)], Some(ReasonCode::CancelConfirmed)));
}

/// A request that failed is made again after a pause, one of which nothing was heard once its time is over: long before
/// the deadline of the search, also where nothing else can be asked. One that was answered is not.
#[test]
fn a_lost_request_is_made_again() {
    for (answer, least, most) in [
        (Some(CancelAnswer::Failed { retry_after_ms: None }), 1_100, 1_350),
        (Some(CancelAnswer::Failed { retry_after_ms: Some(7_000) }), 7_100, 8_850),
        (None, 15_000, 15_000),
        (Some(CancelAnswer::Accepted), 60_100, 60_100),
        (Some(CancelAnswer::Refused), 60_100, 60_100),
        (Some(CancelAnswer::TooLate), 100, 1_100),
    ] {
        let mut world = asked(CANCEL);
        if let Some(answer) = answer {
            world.take(&answered(2, answer)).unwrap();
        }
        let again = world.live().attempt.cancel.unwrap().due_at().is_some();
        assert_eq!(again, most < 60_000 && least > 1_000, "{answer:?}");
        let at = world.next_wake_ms().unwrap();
        assert!((least..=most).contains(&at), "{answer:?}: {at}");
        if !again {
            world.at(60_000);
            assert!(!world.say(&wake(false)).contains("+ask_cancel"), "{answer:?}");
            continue;
        }
        assert_eq!(world.at(at - 1).say(&wake(false)), "done=", "{answer:?}: not before its time");
        assert_eq!(world.at(at).say(&wake(false)), "done+ask_cancel", "{answer:?}: nothing else is due");
        let sent_at = world.now;
        let asked = CancelRequest { sent_at, answer: None, times: 2, again_at: None };
        assert_eq!(world.live().attempt.cancel, Some(asked), "a new question");
        assert_eq!(world.say(&wake(false)), "done=", "asked once");
    }
}

/// The pauses grow, and the deadline ends them.
#[test]
fn a_request_is_made_again_within_limits() {
    let mut world = asked(CANCEL);
    let mut pauses = Vec::new();
    for _ in 0..4 {
        world.take(&answered(2, CancelAnswer::Failed { retry_after_ms: None })).unwrap();
        let at = world.next_wake().unwrap();
        pauses.push(at.since(world.now));
        world.now = at;
        assert_eq!(world.say(&wake(false)), "done+ask_cancel");
    }
    for (pause, base) in pauses.iter().zip([1_000, 2_000, 4_000, 8_000]) {
        assert!((base..base * 5 / 4).contains(pause), "{pauses:?}");
    }
    world.at(60_100).take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(world.states(), ("expired", "unknown", "expired"));
    assert!(!world.at(90_000).say(&wake(false)).contains("+ask_cancel"), "after the end nobody is asked");
}

/// The server died after the intent was stored and before the driver's end was: nobody knows whether the provider was
/// asked, so it is asked again; by the object that comes next, or by the one that takes over.
#[test]
fn a_request_that_died_with_its_sender_is_made_again() {
    let terms = |lease_ms| Terms { lease_ms, total_ms: 600_000, observation_ms: 60_000, ..with(CANCEL) };
    let mut world = World::identified(&terms(90_000));
    world.take(&Command::Cancel).unwrap();
    assert_eq!(world.at(14_999).say(&wake(false)), "done=");
    assert_eq!(world.next_wake_ms(), Some(15_000));
    assert_eq!(world.at(15_000).say(&wake(false)), "done+ask_cancel");
    let mut taken_over = World::identified(&terms(20_000));
    taken_over.take(&Command::Cancel).unwrap();
    assert_eq!(taken_over.at(20_000).say(&wake(false)), "done+ask_cancel");
    let mut early = World::identified(&terms(9_000));
    early.take(&Command::Cancel).unwrap();
    assert_eq!(early.at(9_000).say(&wake(false)), "done", "an answer may be on its way");
    assert_eq!(early.next_wake_ms(), Some(15_000));
}

/// A state that an earlier version stored knows no times: it is asked again as well.
#[test]
fn a_request_of_an_earlier_version_is_made_again() {
    let stored = r#"{"sent_at":1000,"answer":null}"#;
    let request: CancelRequest = serde_json::from_str(stored).unwrap();
    assert_eq!(request.due_at().map(|at| at.0), Some(16_000));
    let failed = r#"{"sent_at":1000,"answer":{"answer":"failed","retry_after_ms":null}}"#;
    let request: CancelRequest = serde_json::from_str(failed).unwrap();
    assert_eq!((request.due_at().map(|at| at.0), request.times), (Some(1_000), 0));
}

/// What is stopped before it has a name is read on until it is named (finding: its socket was closed, and with it went the
/// only handle). Each way to stop it, and who is told what meanwhile.
#[test]
fn a_stop_waits_for_the_name() {
    let able = |terms: Terms| Terms { capabilities: CANCEL_AND_STATUS, observation_ms: 60_000, ..terms };
    let mut left = World::submitted(&able(cancels(0)));
    assert_eq!(left.say(&readers(0)), "done>cancellation_requested");
    let mut late = World::submitted(&able(terms()));
    assert_eq!(late.at(2_000).say(&wake(true)), "done");
    let mut asked = World::submitted(&able(terms()));
    assert_eq!(asked.say(&Command::Cancel), REQUESTED);
    for (world, sent_at) in [(&mut left, 0), (&mut late, 2_000), (&mut asked, 0)] {
        assert_eq!(world.outcomes().last(), Some(&"awaits_name"));
        assert_eq!(world.say(&Command::Append { epoch: 1, bytes: 0 }), "continue=", "the driver reads on");
        assert_eq!(world.say(&respond(1)), "continue");
        assert_eq!(world.at(sent_at + 100).say(&identify(1)), "stop+abort+ask_cancel");
        assert_eq!(world.say(&Command::Append { epoch: 1, bytes: 10 }), "stop=");
        world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
        world.take(&answered(1, CancelAnswer::Confirmed { usage: Some(usage(10, 2)) })).unwrap();
        world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!((world.states().0, world.books()), ("cancelled", vec![("settle", 14)]));
    }
}

/// No name is waited for without end: as long as for the first byte, and ten seconds in any case.
#[test]
fn a_name_that_does_not_come_is_not_waited_for() {
    for (first_byte_ms, at, by) in [(2_000, 500, 10_500), (30_000, 500, 30_000), (90_000, 500, 60_000)] {
        let terms = Terms { first_byte_ms, total_ms: 60_000, lease_ms: 200_000, ..with(CANCEL_AND_STATUS) };
        let mut world = World::submitted(&Terms { observation_ms: 60_000, ..terms });
        world.at(at).take(&Command::Cancel).unwrap();
        assert_eq!(world.at(by - 1).say(&wake(true)), "done=", "{first_byte_ms}");
        assert_eq!(world.next_wake_ms(), Some(by));
        assert_eq!(world.at(by).say(&wake(true)), "stop+abort", "{first_byte_ms}");
        assert_eq!(world.outcomes().last(), Some(&"name_not_told"));
        assert_eq!(world.say(&wake(true)), "done=");
        assert_eq!(world.say(&end(1, ended(SourceEnd::Aborted))), "done");
        assert_eq!(world.live().cancellation.unwrap().outcome, None, "the outcome is open");
    }
    // The time limits wait no longer.
    let mut silent = World::submitted(&Terms { lease_ms: 90_000, observation_ms: 60_000, ..with(CANCEL_AND_STATUS) });
    assert_eq!(silent.at(2_000).say(&wake(true)), "done");
    assert_eq!(silent.at(12_000).say(&wake(true)), "stop+abort");
}

/// Whatever ends the wait: the driver's own end, with the name or without; its loss; a driver at the edge, which hears it
/// with its next append.
#[test]
fn what_ends_the_wait_for_a_name() {
    let terms = Terms { observation_ms: 60_000, ..with(CANCEL_AND_STATUS) };
    let waiting = || {
        let mut world = World::processing(&terms);
        world.take(&Command::Cancel).unwrap();
        world
    };
    let mut ended_itself = waiting();
    assert_eq!(ended_itself.say(&end(1, complete(10, 20))), "done>completed+close", "completion wins");
    let mut broke = waiting();
    assert_eq!(broke.say(&end(1, ended(SourceEnd::NoResponse { provably_unsent: false }))), "done");
    let mut lost = waiting();
    assert_eq!(lost.at(9_000).say(&wake(false)), "done", "nobody reads on");
    for world in [&ended_itself, &broke, &lost] {
        assert_eq!(world.live().attempt.name_by, None);
    }
    let at_edge = Terms { owner: holdfast_core::policy::Owner::Edge, lease_ms: 90_000, ..terms };
    let mut edge = World::submitted(&at_edge);
    edge.take(&Command::Cancel).unwrap();
    assert_eq!(edge.say(&Command::Append { epoch: 1, bytes: 0 }), "continue=");
    assert_eq!(edge.at(10_000).say(&wake(false)), "stop+abort");
    assert_eq!(edge.say(&Command::Append { epoch: 1, bytes: 0 }), "stop=");
}

/// What grew too large goes on at its provider: that is asked to stop, and readers hear why. A completion is settled as
/// what it is.
#[test]
fn what_grew_too_large_is_stopped_at_the_provider() {
    for (answer, states, books, reason) in [
        (
            Some(ended_as(Outcome::Cancelled, Some(usage(10, 500)))),
            ("failed", "cancelled", "committed"),
            vec![("settle", 1_010)],
            ReasonCode::OutputTooLarge,
        ),
        (
            Some(ended_as(Outcome::Cancelled, None)),
            ("failed", "cancelled", "committed"),
            vec![("settle", 2_100)],
            ReasonCode::OutputTooLarge,
        ),
        (
            Some(ended_as(Outcome::Completed, Some(usage(10, 900)))),
            ("completed", "completed", "committed"),
            vec![("settle", 1_810)],
            ReasonCode::CompletedExact,
        ),
        (None, ("expired", "unknown", "expired"), vec![], ReasonCode::ExpiredQuarantined),
    ] {
        let able = Capabilities { resume: true, ..CANCEL_AND_STATUS };
        let mut world = World::identified(&Terms { observation_ms: 60_000, ..with(able) });
        let said = world.say(&end(1, ended(SourceEnd::TooLarge)));
        assert_eq!(said, "done+ask_cancel+evidence", "{answer:?}");
        assert_eq!(world.outcomes().last(), Some(&"abort_too_large"));
        assert!(!world.live().may_resume(world.now), "it would be too large again");
        match answer {
            Some(report) => drop(world.hear(lookup(2, report))),
            None => drop(world.at(60_000)),
        }
        let transition = world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        assert_eq!((world.states(), world.books(), world.live().reason), (states, books, Some(reason)));
        let terminal = String::from_utf8_lossy(transition.terminal().unwrap()).into_owned();
        assert!(terminal.contains("output_too_large"), "{answer:?}: {terminal}");
    }
    // Somebody wanted it stopped before: that stays the cause.
    let mut cancelled = World::identified(&Terms { observation_ms: 60_000, ..with(CANCEL_AND_STATUS) });
    cancelled.take(&Command::Cancel).unwrap();
    assert_eq!(cancelled.say(&end(1, ended(SourceEnd::TooLarge))), "done+evidence");
    assert_eq!(cancelled.live().attempt.abort, Some(holdfast_core::reservation::AbortCause::Request));
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
    assert_eq!(failed.say(&wake(false)), "done+ask_cancel", "and it is asked again");
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

/// A Start that a cancel overtook is told so, and does not invite to be sent again; one that the sweep overtook does.
#[test]
fn a_start_behind_a_cancel_is_not_to_be_tried_again() {
    for (by, refused, retryable) in [
        (ResolvedBy::Cancel, "!generation_cancelled", false),
        (ResolvedBy::Sweep, "!never_started", true),
        (ResolvedBy::Operator, "!never_started", true),
    ] {
        let mut world = World::new();
        let Command::ResolveNeverStarted { identity, attempt, terms, admitted_at, .. } = never_started(1, &terms())
        else {
            panic!("it resolves what never started");
        };
        let start = Command::Start { identity: identity.clone(), attempt: attempt.clone(), terms: terms.clone() };
        world.take(&Command::ResolveNeverStarted { identity, attempt, terms, admitted_at, by }).unwrap();
        assert_eq!(world.say(&start), refused);
        assert_eq!(world.take(&start).unwrap_err().retryable(), retryable, "{by:?}");
        assert_eq!(world.books(), [("release", 2_100)], "{by:?}");
    }
}
