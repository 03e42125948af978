//! Every state with every command: what it answers, whether it writes, where it leads, or why it is refused.

use super::world::*;
use holdfast_core::evidence::Disposition;
use holdfast_core::ledger::Receipt;
use holdfast_core::operation::FinalForm;
use holdfast_core::policy::Terms;
use holdfast_core::reconcile::Outcome;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    AbortCause, CancelAnswer, CancelOutcome, Cancellation, Command, Reply, Report, SourceEnd, UpstreamState,
    refused_row,
};

/// One of each state that rules tell apart. The clock stands 100 ms after the start, or where the state begins.
fn states() -> Vec<(&'static str, World)> {
    let observed = Terms { observation_ms: 5_000, ..terms() };
    let after = |mut world: World, command: Command| {
        world.at(100).take(&command).unwrap();
        world
    };
    vec![
        ("vacant", World::new()),
        ("tombstone", after(World::new(), never_started(1, &terms()))),
        ("prepared", World::prepared(&terms())),
        ("submitted", World::submitted(&terms())),
        ("processing", World::processing(&terms())),
        ("detached", after(World::processing(&terms()), readers(0))),
        ("grace", after(World::processing(&cancels(500)), readers(0))),
        ("cancelling", after(World::processing(&terms()), Command::Cancel)),
        ("unknown", World::lost(&observed)),
        ("completed", after(World::processing(&terms()), end(1, complete(1, 1)))),
        ("cancelled", {
            let world = after(World::processing(&terms()), Command::Cancel);
            after(world, end(1, ended(SourceEnd::Aborted)))
        }),
        ("failed", after(World::submitted(&terms()), end(1, ended(SourceEnd::NoResponse { provably_unsent: true })))),
    ]
}

fn command(name: &str, world: &World) -> Command {
    let epoch = world.epoch();
    match name {
        "start" => start(1, &terms()),
        "start other" => start(2, &terms()),
        "submit" => Command::Submit { epoch },
        "respond" => respond(epoch),
        "append" => Command::Append { epoch, bytes: 7 },
        "heartbeat" => Command::Append { epoch, bytes: 0 },
        "end" => end(epoch, complete(1, 1)),
        "old submit" => Command::Submit { epoch: epoch - 1 },
        "old respond" => respond(epoch - 1),
        "old append" => Command::Append { epoch: epoch - 1, bytes: 7 },
        "old end" => end(epoch - 1, complete(1, 1)),
        "new end" => end(epoch + 1, complete(1, 1)),
        "no reader" => readers(0),
        "reader" => readers(1),
        "cancel" => Command::Cancel,
        "wake alive" => wake(true),
        "wake" => wake(false),
        "resolve" => never_started(1, &terms()),
        "acknowledge" => Command::Acknowledge { posting_id: "unknown".into() },
        "applied" => Command::Applied {
            receipt: Receipt {
                posting_id: "unknown".into(),
                recorded_at: START,
                credit_returned: micros(1),
                slot_returned: true,
            },
        },
        "undelivered" => Command::DeliveryFailed { posting_id: "unknown".into() },
        "refused" => Command::DeliveryRefused { posting_id: "unknown".into(), refusal: "already_resolved".into() },
        "identify" => Command::Identify { epoch, operation_id: "op-1".into() },
        "reconcile" => reconcile(epoch, ended(SourceEnd::Lost)),
        "old reconcile" => reconcile(epoch - 1, ended(SourceEnd::Lost)),
        "cancel accepted" => Command::CancelAnswered { epoch, answer: CancelAnswer::Accepted },
        "runs" => signal_seen(lookup(epoch, Report::Processing), None),
        "unknown signal" => signal_seen(callback("e-1", "no such operation", ended_as(Outcome::Completed, None)), None),
        "seen signal" => {
            let seen = Some(Disposition::CorrectiveActionInitiated);
            signal_seen(callback("e-1", "op-1", ended_as(Outcome::Completed, None)), seen)
        }
        "result" => {
            let form = FinalForm { outcome: Outcome::Completed, without_output: false };
            Command::ResultTold { operation_id: "op-1".into(), form, length: 1, max_bytes: 1 }
        }
        "no answer" => Command::LookUpFailed { epoch, retry_after_ms: None },
        "extended" => Command::HoldExtended { epoch: epoch + 1, attempt: attempt_id(2) },
        "not extended" => Command::ExtensionRefused { epoch: epoch + 1 },
        other => panic!("{other}"),
    }
}

/// Rows are commands, columns are states. A driver's write is checked for existence, then epoch, then state.
/// Sources: design 2 (machines), 4.2 (Start, Resolve), 7 (lease, epoch); seed 1, "A Practical Reservation Lifecycle".
const TABLE: &str = "
                | vacant         | tombstone      | prepared                               | submitted                              | processing                             | detached                               | grace                                  | cancelling           | unknown                                | completed          | cancelled          | failed
start           | started>active | !never_started | again=                                 | again=                                 | again=                                 | again=                                 | again=                                 | again=               | again=                                 | again=             | again=             | again=
start other     | started>active | !never_started | !identity_conflict                     | !identity_conflict                     | !identity_conflict                     | !identity_conflict                     | !identity_conflict                     | !identity_conflict   | !identity_conflict                     | !identity_conflict | !identity_conflict | !identity_conflict
submit          | !not_found     | !never_started | continue                               | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state         | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
respond         | !not_found     | !never_started | !wrong_state                           | continue                               | continue=                              | continue=                              | continue=                              | stop=                | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
identify        | !not_found     | !never_started | !wrong_state                           | continue                               | continue                               | continue                               | continue                               | stop                 | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
append          | !not_found     | !never_started | continue=                              | continue=                              | continue=                              | continue=                              | continue=                              | stop=                | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
heartbeat       | !not_found     | !never_started | continue=                              | continue=                              | continue=                              | continue=                              | continue=                              | stop=                | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
end             | !not_found     | !never_started | done>failed+close                      | done>failed+close                      | done>completed+close                   | done>completed+close                   | done>completed+close                   | done>completed+close | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
reconcile       | !not_found     | !never_started | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state         | done=                                  | !wrong_state       | !wrong_state       | !wrong_state
old submit      | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
old respond     | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
old append      | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
old end         | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
old reconcile   | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
new end         | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
no reader       | !not_found     | !never_started | done>detached                          | done>detached                          | done>detached                          | done=                                  | done=                                  | done                 | done=                                  | done=              | done=              | done=
reader          | !not_found     | !never_started | done=                                  | done=                                  | done=                                  | done>active                            | done>active                            | done=                | done>active                            | done=              | done=              | done=
cancel          | !not_found     | !never_started | requested>cancellation_requested+abort | requested>cancellation_requested+abort | requested>cancellation_requested+abort | requested>cancellation_requested+abort | requested>cancellation_requested+abort | requested=           | requested>cancellation_requested+abort | none=              | requested=         | none=
cancel accepted | !not_found     | !never_started | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state                           | !wrong_state         | !wrong_state                           | !wrong_state       | !wrong_state       | !wrong_state
runs            | !not_found     | quarantined=   | processed                              | processed                              | processed                              | processed                              | processed                              | processed            | processed+evidence                     | ignored=           | ignored=           | ignored=
unknown signal  | !not_found     | quarantined=   | quarantined                            | quarantined                            | quarantined                            | quarantined                            | quarantined                            | quarantined          | quarantined                            | quarantined        | quarantined        | quarantined
seen signal     | !not_found     | corrected=     | corrected=                             | corrected=                             | corrected=                             | corrected=                             | corrected=                             | corrected=           | corrected=                             | corrected=         | corrected=         | corrected=
result          | !not_found     | !never_started | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
no answer       | !not_found     | !never_started | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done+evidence                          | done=              | done=              | done=
extended        | !not_found     | !never_started | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch                           | !stale_epoch         | !stale_epoch                           | !stale_epoch       | !stale_epoch       | !stale_epoch
not extended    | !not_found     | !never_started | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
wake alive      | !not_found     | done=          | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
wake            | !not_found     | done=          | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
resolve         | done           | done=          | again=                                 | again=                                 | again=                                 | again=                                 | again=                                 | again=               | again=                                 | again=             | again=             | again=
acknowledge     | !not_found     | done=          | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
applied         | !not_found     | done=          | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
undelivered     | !not_found     | done=          | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
refused         | !not_found     | done=          | done=                                  | done=                                  | done=                                  | done=                                  | done=                                  | done=                | done=                                  | done=              | done=              | done=
";

fn cells(line: &str) -> Vec<&str> {
    line.split('|').map(str::trim).collect()
}

#[test]
fn every_state_with_every_command() {
    let mut lines = TABLE.trim_matches('\n').lines();
    let columns = cells(lines.next().unwrap());
    let states = states();
    assert_eq!(columns[1..], states.iter().map(|(name, _)| *name).collect::<Vec<_>>());
    let mut wrong = Vec::new();
    for row in lines.map(cells) {
        assert_eq!(row.len(), columns.len(), "{row:?}");
        for ((state, world), expected) in states.iter().zip(&row[1..]) {
            let command = command(row[0], world);
            let result = world.ask(&command);
            let said = said(&world.aggregate, &result);
            if said != *expected {
                wrong.push(format!("{} in {state}: {said}, not {expected}", row[0]));
            }
            // Invariant 5: a write of an older epoch, or one that came too late, leaves a record. The tenant's answer to
            // a request for more is no such write.
            let recorded = result.err().and_then(|refusal| refused_row(&command, &refusal, world.now));
            let must = matches!(*expected, "!stale_epoch" | "!wrong_state") && command.epoch().is_some();
            assert_eq!(recorded.is_some(), must, "{} in {state}", row[0]);
            if let Some(recorded) = recorded {
                assert_eq!(
                    (recorded.at, &*recorded.command, &*recorded.outcome),
                    (world.now, command.name(), expected.trim_start_matches('!'))
                );
            }
        }
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
}

/// Invariant 12: an attempt is submitted once, whatever else happens before or after.
#[test]
fn a_submission_is_never_repeated() {
    for (state, world) in states() {
        let accepted = world.ask(&Command::Submit { epoch: world.epoch() }).is_ok();
        assert_eq!(accepted, state == "prepared", "{state}");
    }
}

/// A cancel that comes before the submission stops it: nothing is sent.
#[test]
fn a_cancel_before_the_submission_stops_it() {
    let mut world = World::prepared(&terms());
    world.take(&Command::Cancel).unwrap();
    assert_eq!(world.say(&Command::Submit { epoch: 1 }), "stop=");
    assert_eq!(world.live().attempt.upstream, UpstreamState::Prepared);
    world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert_eq!(world.postings[0].kind, holdfast_core::ledger::PostingKind::Release, "provably unsent");
}

/// A repeated answer of the provider changes nothing: the head stands and no deadline moves (invariant 8).
#[test]
fn a_repeated_respond_moves_nothing() {
    let mut world = World::processing(&terms());
    let (before, due) = (world.aggregate.clone(), world.next_wake());
    for repeated in [respond(1), Command::Respond { epoch: 1, head: None }] {
        let said = world.at(900).say(&repeated);
        assert_eq!((said.as_str(), &world.aggregate), ("continue=", &before));
    }
    assert_eq!(world.at(0).next_wake(), due);
}

/// An answer without a submission would turn "provably unsent" into a lie; one after a take-over has nobody to drive it.
#[test]
fn an_answer_needs_a_submission() {
    for (mut world, state) in [
        (World::prepared(&terms()), "not submitted"),
        (World::lost(&Terms { observation_ms: 5_000, ..terms() }), "unknown"),
    ] {
        let before = world.aggregate.clone();
        let refused = world.take(&respond(world.epoch()));
        assert_eq!(refused, Err(Refusal::WrongState { state: state.into() }));
        assert_eq!(world.aggregate, before);
        assert_eq!(world.outcomes().last(), Some(&"wrong_state"), "invariant 5");
    }
}

/// A second cancel gets the first one's answer, also after the end (design 2; seed 1, "Cancellation Requested").
#[test]
fn the_first_cancel_stands() {
    let mut world = World::processing(&terms());
    let first = world.at(10).take(&Command::Cancel).unwrap().reply;
    assert_eq!(world.at(20).take(&Command::Cancel).unwrap().reply, first);
    // Completion wins the race.
    assert_eq!(world.at(30).say(&end(1, complete(10, 10))), "done>completed+close");
    let Reply::Cancellation(Some(requested)) = first else { panic!("recorded: {first:?}") };
    assert_eq!(requested, Cancellation { requested_at: START.plus(10), outcome: None });
    // The answer is the recorded one, and now it says what came of it.
    let known = Cancellation { outcome: Some(CancelOutcome::CompletionWon), ..requested };
    assert_eq!(world.at(40).take(&Command::Cancel).unwrap().reply, Reply::Cancellation(Some(known)));
}

/// A cancel behind a timeout is recorded; why the driver was stopped does not change.
#[test]
fn a_cancel_behind_a_timeout_does_not_change_the_cause() {
    let mut world = World::submitted(&terms());
    assert_eq!(world.at(2_000).say(&wake(true)), "stop+abort");
    assert_eq!(world.say(&Command::Cancel), "requested>cancellation_requested");
    assert_eq!(world.live().attempt.abort, Some(AbortCause::FirstByteTimeout));
    assert_eq!(world.outcomes(), ["abort_first_byte_timeout", "already_stopping"]);
}
