//! A stream that broke, or whose driver was lost, is taken up again (design 7; seed 2, "Use bounded leases for worker
//! ownership"): the same attempt, the same log, a new epoch.

use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnInterruption, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{CancelAnswer, Command, Effect, RESUMES_MAX, SourceEnd, UpstreamEnd};

const ALL: Capabilities =
    Capabilities { cancel: true, status: true, resume: true, callback: true, idempotency_key: true };
const RESUME: Capabilities = Capabilities { cancel: false, status: false, callback: false, ..ALL };

/// Under terms that leave time for it.
fn able(capabilities: Capabilities) -> Terms {
    Terms { observation_ms: 60_000, total_ms: 600_000, ..with(capabilities) }
}

const fn resumed(epoch: u32) -> Command {
    Command::Resumed { epoch }
}

const fn failed(epoch: u32) -> Command {
    Command::ResumeFailed { epoch, refused: false, retry_after_ms: None }
}

const fn refused(epoch: u32) -> Command {
    Command::ResumeFailed { epoch, refused: true, retry_after_ms: None }
}

fn append(epoch: u32, bytes: u64) -> Command {
    Command::Append { epoch, bytes }
}

fn broken() -> UpstreamEnd {
    ended(SourceEnd::Body(EndClass::Incomplete))
}

/// Identified, with a stored batch.
fn streaming(terms: &Terms) -> World {
    let mut world = World::identified(terms);
    world.take(&append(1, 100)).unwrap();
    world
}

/// Invariant 9: the lost driver's epoch is fenced, and the next one drives on in the same attempt and settles once.
#[test]
fn a_lost_driver_is_driven_on_and_fenced() {
    let mut world = streaming(&able(ALL));
    let attempt = world.live().attempt.id.clone();
    assert_eq!(world.at(9_000).say(&wake(false)), "done>detached+resume");
    assert_eq!(world.states(), ("detached", "unknown", "pending"));
    for zombie in [append(1, 5), identify(1), end(1, broken())] {
        assert_eq!(world.say(&zombie), "!stale_epoch", "{zombie:?}");
    }
    assert_eq!(world.say(&resumed(1)), "!stale_epoch");
    assert_eq!(world.say(&resumed(2)), "continue");
    assert_eq!(world.say(&resumed(2)), "continue=", "asked twice, driven once");
    assert_eq!(world.states(), ("detached", "processing", "pending"));
    assert_eq!(world.say(&readers(1)), "done>active");
    assert_eq!(world.say(&append(2, 50)), "continue=");
    assert_eq!(world.say(&end(2, complete(40, 60))), "done>completed+close");
    assert_eq!((world.live().attempt.id.clone(), world.live().past_attempts.len()), (attempt, 0));
    assert_eq!(world.books(), [("settle", 160)]);
    assert_eq!(world.live().lost_from, None, "no byte was lost");
}

/// A socket that merely broke is taken up at once, by a new epoch: whatever it still brings belongs to the old one.
#[test]
fn a_broken_socket_is_taken_up_at_once() {
    for class in [EndClass::Incomplete, EndClass::CutInsideEvent] {
        let mut world = streaming(&able(ALL));
        assert_eq!(world.say(&end(1, ended(SourceEnd::Body(class)))), "done+resume", "{class:?}");
        assert_eq!(world.lifecycle().as_str(), "active", "its readers wait");
        assert_eq!(world.say(&resumed(2)), "continue");
        assert_eq!(world.say(&end(2, complete(40, 60))), "done>completed+close");
        assert_eq!(world.books(), [("settle", 160)]);
    }
}

/// What there must be: a provider that can, a name to ask by, a stream that has begun, and nobody who wants it stopped.
#[test]
fn what_can_be_taken_up() {
    let lost = |mut world: World| world.at(9_000).say(&wake(false));
    let unable = able(Capabilities { resume: false, ..ALL });
    assert_eq!(lost(streaming(&unable)), "done>detached+evidence");
    assert_eq!(lost(World::processing(&able(RESUME))), "done>detached", "it has no name yet");
    let mut headless = World::submitted(&able(RESUME));
    headless.take(&identify(1)).unwrap();
    assert_eq!(lost(headless), "done>detached", "its answer is no stream");
    let mut cancelled = streaming(&able(RESUME));
    cancelled.take(&Command::Cancel).unwrap();
    assert_eq!(lost(cancelled), "done");
    let mut late = streaming(&Terms { total_ms: 9_000, ..able(RESUME) });
    assert!(late.live().may_resume(START.plus(8_999)) && !late.live().may_resume(START.plus(9_000)));
    assert_eq!(late.at(9_000).say(&wake(false)), "done>detached", "its time is over");
    let mut large = streaming(&able(RESUME));
    assert_eq!(large.say(&end(1, ended(SourceEnd::TooLarge))), "done", "it would be too large again");
    assert!(!large.live().may_resume(large.now));
}

/// A reader that has seen more than is stored waits as long as the stream may still be taken up.
#[test]
fn readers_beyond_the_log_wait_while_it_may_be_taken_up() {
    let mut world = streaming(&able(ALL));
    let waits = |world: &World| world.live().may_resume(world.now);
    assert!(waits(&world), "driven");
    world.at(9_000).take(&wake(false)).unwrap();
    assert!(waits(&world), "lost");
    world.take(&failed(2)).unwrap();
    assert!(waits(&world), "tried again later");
    world.take(&refused(2)).unwrap();
    assert!(!waits(&world), "given up");
}

/// Tries without a new byte are counted, with growing pauses; a byte starts the count anew.
#[test]
fn tries_are_bounded_and_a_byte_renews_them() {
    let mut world = streaming(&able(ALL));
    world.at(9_000).take(&wake(false)).unwrap();
    let mut pauses = Vec::new();
    for _ in 1..RESUMES_MAX {
        assert_eq!(world.say(&failed(2)), "done");
        let at = world.next_wake().unwrap();
        pauses.push(at.since(world.now));
        assert_eq!(world.say(&wake(false)), "done=", "not before its time");
        world.now = at;
        assert_eq!(world.say(&wake(false)), "done+resume");
    }
    for (pause, base) in pauses.iter().zip([1_000, 2_000, 4_000, 8_000]) {
        assert!((base..base * 5 / 4).contains(pause), "{pauses:?}");
    }
    world.say(&resumed(2));
    world.say(&append(2, 1));
    assert_eq!(world.say(&end(2, broken())), "done+resume", "a new byte: tried at once");
    world.say(&resumed(3));
    assert_eq!(world.say(&end(3, broken())), "done", "no new byte: tried after a pause");

    for _ in 1..RESUMES_MAX {
        world.now = world.next_wake().unwrap();
        assert_eq!(world.say(&wake(false)), "done+resume");
        let epoch = world.epoch();
        world.say(&failed(epoch));
    }
    world.now = world.next_wake().unwrap();
    assert_eq!(world.say(&wake(false)), "done+evidence", "often enough: the search goes on as before");
    assert!(!world.live().may_resume(world.now));
}

/// Nothing was heard of a try: it is made again.
#[test]
fn a_try_that_is_lost_is_made_again() {
    let mut world = streaming(&able(ALL));
    world.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(world.next_wake_ms(), Some(29_000));
    let asked = Effect::Resume { epoch: 2, operation_id: OPERATION.into() };
    assert_eq!(world.at(29_000).take(&wake(false)).unwrap().effects, [asked]);
}

/// `Retry-After` prolongs the pause, within bounds.
#[test]
fn the_provider_may_wish_for_a_later_try() {
    for (wish, least, most) in [(0, 1_000, 1_250), (30_000, 30_000, 37_500), (u64::MAX, 240_000, 300_000)] {
        let mut world = streaming(&able(ALL));
        world.at(9_000).take(&wake(false)).unwrap();
        world.take(&Command::ResumeFailed { epoch: 2, refused: false, retry_after_ms: Some(wish) }).unwrap();
        let pause = world.next_wake().unwrap().since(world.now);
        assert!((least..=most).contains(&pause), "{wish}: {pause}");
    }
}

/// Refused: the provider is asked what came of it, and the hold is settled by its word. Readers have the part.
#[test]
fn what_is_refused_is_settled_by_lookup() {
    let mut world = streaming(&able(ALL));
    world.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(world.say(&refused(2)), "done+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done");
    world.now = world.next_wake().unwrap();
    assert_eq!(world.say(&wake(false)), "done+look_up");
    assert_eq!(world.hear(lookup(2, ended_as(Outcome::Completed, Some(usage(40, 60))))), "processed+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>completed+close");
    assert_eq!(world.books(), [("settle", 160)]);
    assert_eq!(world.live().lost_from, Some(100), "what a client saw behind it is in no log");
}

/// The time of observation begins where the tries end.
#[test]
fn the_search_has_its_whole_time_after_the_tries() {
    let mut world = streaming(&Terms { observation_ms: 5_000, ..able(RESUME) });
    world.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(world.at(20_000).say(&refused(2)), "done+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done");
    assert_eq!(world.next_wake_ms(), Some(25_000));
    assert_eq!(world.at(25_000).say(&wake(false)), "done+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>expired+close");
}

/// Bytes that differ from the stored ones are never spliced: the attempt counts as interrupted, and is not tried again.
#[test]
fn other_bytes_end_the_driver() {
    let mut world = streaming(&able(ALL));
    world.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(world.say(&failed(3)), "!stale_epoch");
    world.take(&resumed(2)).unwrap();
    assert_eq!(world.say(&failed(2)), "!wrong_state", "it goes on");
    assert_eq!(world.say(&refused(2)), "done+evidence");
    assert_eq!(world.epoch(), 3);
    assert_eq!(world.say(&append(2, 10)), "!stale_epoch");
    assert_eq!(world.states().1, "unknown");
    assert!(!world.live().may_resume(world.now));
}

/// What somebody says meanwhile is kept, and the stream still comes first: readers get the rest.
#[test]
fn a_word_about_the_outcome_waits_for_the_stream() {
    let mut world = streaming(&able(ALL));
    world.at(9_000).take(&wake(false)).unwrap();
    let done = ended_as(Outcome::Completed, Some(usage(40, 60)));
    assert_eq!(world.hear(callback("e-1", OPERATION, done)), "processed");
    assert_eq!(world.say(&resumed(2)), "continue");
    assert_eq!(world.say(&append(2, 10)), "continue=");
    assert_eq!(world.say(&end(2, broken())), "done+resume", "known, and readers still lack the rest");
    assert_eq!(world.say(&resumed(3)), "continue");
    assert_eq!(world.say(&end(3, complete(40, 60))), "done>completed+close");
    assert_eq!(world.books(), [("settle", 160)]);
}

/// A cancel while it is tried stops the try, asks the provider, and is verified.
#[test]
fn a_cancel_stops_the_tries() {
    let mut world = streaming(&able(ALL));
    world.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(world.say(&Command::Cancel), "requested>cancellation_requested+abort+ask_cancel+evidence");
    assert_eq!(world.say(&resumed(2)), "stop+evidence");
    assert_eq!(world.say(&failed(2)), "done+evidence");
    let ended = ended_as(Outcome::Cancelled, Some(usage(40, 5)));
    assert_eq!(world.hear(lookup(2, ended)), "processed+evidence");
    assert_eq!(world.say(&reconcile(2, super::world::ended(SourceEnd::Lost))), "done>cancelled+close");
    assert_eq!(world.books(), [("settle", 50)]);
}

/// Nothing runs in the pause between two tries, however long the provider wished it to be: a cancel is looked into at
/// once, and has its time of observation, also where the provider does not answer it.
#[test]
fn a_cancel_in_the_pause_does_not_wait_for_its_end() {
    let mut world = streaming(&Terms { observation_ms: 5_000, ..able(Capabilities { cancel: true, ..RESUME }) });
    world.at(9_000).take(&wake(false)).unwrap();
    world.take(&Command::ResumeFailed { epoch: 2, refused: false, retry_after_ms: Some(200_000) }).unwrap();
    assert_eq!(world.at(20_000).say(&Command::Cancel), "requested>cancellation_requested+abort+ask_cancel+evidence");
    let unanswered = CancelAnswer::Failed { retry_after_ms: None };
    world.take(&Command::CancelAnswered { epoch: 2, answer: unanswered }).unwrap();
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done");
    world.now = world.next_wake().unwrap();
    assert!(world.now < START.plus(21_500), "asked again before the deadline: {:?}", world.now);
    assert_eq!(world.say(&wake(false)), "done+ask_cancel");
    assert_eq!(world.next_wake_ms(), Some(25_000));
    assert_eq!(world.at(25_000).say(&wake(false)), "done+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>expired+close");
}

/// A stream that was taken up may end, by a cancel that the provider confirmed, before it brought again what the lost
/// driver took: a reader of that starts again where the stored bytes end, and not inside of the error that stands there
/// now (invariant 9).
#[test]
fn bytes_that_were_not_brought_again_are_lost() {
    let terms = able(ALL);
    for (what, last, lost_from) in [
        ("stopped, and the provider has said what it came to", ended(SourceEnd::Aborted), Some(100)),
        ("broken off, after somebody has said so", broken(), Some(100)),
        ("completed: whatever a client has is a part of it", complete(40, 60), None),
    ] {
        let mut world = streaming(&terms);
        world.at(9_000).take(&wake(false)).unwrap();
        world.take(&resumed(2)).unwrap();
        world.take(&Command::Cancel).unwrap();
        let confirmed = CancelAnswer::Confirmed { usage: Some(usage(40, 5)) };
        world.take(&Command::CancelAnswered { epoch: 2, answer: confirmed }).unwrap();
        world.take(&end(2, last)).unwrap();
        assert!(world.live().lifecycle.is_terminal(), "{what}");
        assert_eq!(world.live().lost_from, lost_from, "{what}");
        // It had 60 bytes more than is stored; the log has an error of ours there now.
        let beyond = world.live().cursor_beyond(160, 100 + 142);
        assert_eq!(beyond, lost_from, "{what}");
    }
}

/// The silence before the stream went on is not its own.
#[test]
fn silence_is_counted_from_where_the_stream_went_on() {
    let mut world = streaming(&Terms { idle_ms: 3_000, ..able(ALL) });
    world.at(9_000).take(&wake(false)).unwrap();
    world.at(10_000).take(&resumed(2)).unwrap();
    assert_eq!(world.at(12_999).say(&wake(true)), "done=");
    assert_eq!(world.at(13_000).say(&wake(true)), "stop+abort+ask_cancel");
}

/// A resumable attempt is not repeated while it may be taken up, whatever the route says (invariant 12); nor afterwards,
/// where anything of its answer is stored.
#[test]
fn a_retry_waits_until_nothing_can_be_taken_up() {
    let retries = Terms { on_interruption: OnInterruption::Retry, observation_ms: 0, ..able(RESUME) };
    for (stored, said) in [(false, "done+extend"), (true, "done>expired+close")] {
        let mut world = streaming(&retries);
        if !stored {
            world.log.length = 0;
        }
        assert_eq!(world.at(9_000).say(&wake(false)), "done>detached+resume");
        assert_eq!(world.say(&refused(2)), "done+evidence");
        assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), said);
        if !stored {
            world.take(&Command::HoldExtended { epoch: 3, attempt: attempt_id(2) }).unwrap();
            assert_eq!(world.live().lost_from, Some(0), "what the lost driver had shown is in no log");
        }
    }
}
