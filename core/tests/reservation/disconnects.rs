//! Readers that leave and come back, and what becomes of the work (design 2 and 5).

use super::world::*;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::Terms;
use holdfast_core::reservation::{
    AbortCause, CancelOutcome, Command, ConnectionState, Effect, Lifecycle, Settlement, SourceEnd, UpstreamState,
};

#[test]
fn detach_goes_on_to_the_end() {
    let mut world = World::processing(&terms());
    assert_eq!(world.at(10).say(&readers(0)), "done>detached");
    assert_eq!(world.at(500).say(&Command::Append { epoch: 1, bytes: 9 }), "continue=");
    assert_eq!(world.at(700).say(&wake(true)), "done=");
    assert_eq!(world.at(900).say(&end(1, complete(10, 20))), "done>completed+close");
    assert_eq!(world.outcomes(), ["disconnected", "completed"]);
    assert_eq!(world.live().settlement, Settlement::Committed);
}

#[test]
fn cancel_without_grace_stops_at_once() {
    let mut world = World::processing(&cancels(0));
    let transition = world.at(10).take(&readers(0)).unwrap();
    assert_eq!(transition.effects, [Effect::AbortUpstream { epoch: 1 }]);
    assert_eq!(world.lifecycle(), Lifecycle::CancellationRequested);
    assert_eq!(world.live().settlement, Settlement::Pending, "requested is not confirmed");
    assert_eq!(world.outcomes(), ["disconnected", "abort_disconnect"]);
    assert_eq!(world.live().cancellation, None, "nobody asked for it");
    assert_eq!(world.say(&Command::Append { epoch: 1, bytes: 3 }), "stop=");
    assert_eq!(world.say(&end(1, ended(SourceEnd::Aborted))), "done>cancelled+close");
    assert_eq!(world.live().reason, Some(ReasonCode::CancelledOnDisconnect));
}

/// Only the last reader's leaving is a disconnect.
#[test]
fn a_disconnect_is_the_last_reader() {
    let mut world = World::processing(&cancels(0));
    for attached in [1, 3, 2, 1] {
        assert_eq!(world.say(&readers(attached)), "done=");
    }
    assert_eq!(world.say(&readers(0)), "stop>cancellation_requested+abort");
    assert_eq!(world.say(&readers(0)), "done=", "repeated");
}

#[test]
fn a_reader_back_in_grace_makes_it_active_again() {
    let mut world = World::processing(&cancels(500));
    assert_eq!(world.at(10).say(&readers(0)), "done>detached");
    assert_eq!(world.live().connection.disconnected_at, Some(world.now));
    assert_eq!(world.at(400).say(&readers(1)), "done>active");
    assert_eq!(world.live().connection.state, ConnectionState::Reconnected);
    assert_eq!(world.live().connection.disconnected_at, None);
    assert_eq!(world.at(600).say(&wake(true)), "done=");
    // The next absence has its own grace.
    world.at(700).take(&readers(0)).unwrap();
    assert_eq!(world.at(1_199).say(&wake(true)), "done=");
    assert_eq!(world.at(1_200).say(&wake(true)), "stop>cancellation_requested+abort");
}

/// A reader that comes back after the stop follows the end; the stop stands.
#[test]
fn a_reader_back_after_the_stop_does_not_undo_it() {
    let mut world = World::processing(&cancels(0));
    world.take(&readers(0)).unwrap();
    assert_eq!(world.say(&readers(1)), "done");
    assert_eq!(world.lifecycle(), Lifecycle::CancellationRequested);
    assert_eq!(world.live().attempt.abort, Some(AbortCause::Disconnect));
    assert_eq!(world.say(&Command::Append { epoch: 1, bytes: 0 }), "stop=");
}

#[test]
fn a_cancel_in_grace_is_somebodys_request() {
    let mut world = World::processing(&cancels(500));
    world.take(&readers(0)).unwrap();
    assert_eq!(world.at(10).say(&Command::Cancel), "requested>cancellation_requested+abort");
    assert_eq!(world.at(600).say(&wake(true)), "done=", "the grace is over, and there is nothing more to stop");
    world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert_eq!(world.live().reason, Some(ReasonCode::CancelledByRequest));
}

/// The driver was told to stop by a timeout; a reader that leaves then is not the reason (the first cause stands).
#[test]
fn a_disconnect_behind_a_timeout_does_not_change_the_cause() {
    for grace_ms in [0, 500] {
        let mut world = World::processing(&cancels(grace_ms));
        assert_eq!(world.at(3_000).say(&wake(true)), "stop+abort");
        assert_eq!(world.say(&readers(0)), "done>detached");
        assert_eq!(world.at(3_600).say(&wake(true)), "done=");
        world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
        assert_eq!((world.lifecycle(), world.live().reason), (Lifecycle::Failed, Some(ReasonCode::IdleTimeout)));
    }
}

/// The three outcomes after a cancel (seed 1): confirmed, completion won, unknown.
#[test]
fn three_outcomes_of_a_cancel() {
    let cancelled = || {
        let mut world = World::processing(&terms());
        world.take(&Command::Cancel).unwrap();
        world
    };
    let mut confirmed = cancelled();
    confirmed.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert_eq!((confirmed.lifecycle(), confirmed.live().settlement), (Lifecycle::Cancelled, Settlement::Committed));
    let mut won = cancelled();
    won.take(&end(1, complete(10, 20))).unwrap();
    assert_eq!((won.lifecycle(), won.live().cost), (Lifecycle::Completed, Some(micros(50))));
    // Its driver was told to stop and was lost with its socket, the only lever there is: it is stopped.
    let mut lost = cancelled();
    assert_eq!(lost.at(9_000).say(&wake(false)), "done+evidence");
    assert_eq!(lost.lifecycle(), Lifecycle::CancellationRequested, "still only requested");
    assert_eq!(lost.say(&reconcile(2, ended(SourceEnd::Lost))), "done>cancelled+close");
    assert_eq!((lost.live().reason, lost.books()), (Some(ReasonCode::CancelledByRequest), vec![("settle", 612)]));
    // Where the work outlives its socket, and nobody says what it came to, the outcome is unknown.
    let mut unknown = World::processing(&with(CALLBACK));
    unknown.take(&Command::Cancel).unwrap();
    assert_eq!(unknown.say(&end(1, ended(SourceEnd::Aborted))), "done+evidence", "a closed socket confirms nothing");
    assert_eq!(unknown.lifecycle(), Lifecycle::CancellationRequested, "still only requested");
    assert_eq!(unknown.say(&reconcile(2, ended(SourceEnd::Lost))), "done>expired+close");
    assert_eq!((unknown.live().settlement, unknown.books()), (Settlement::Expired, vec![]));
    let outcomes = [confirmed, won, lost, unknown].map(|world| world.live().cancellation.unwrap().outcome.unwrap());
    use CancelOutcome::{CompletionWon, Confirmed, Unknown};
    assert_eq!(outcomes, [Confirmed, CompletionWon, Confirmed, Unknown]);
}

/// A cancel while the outcome is watched is recorded and fences nothing new; the evidence decides.
#[test]
fn a_cancel_after_the_take_over_waits_for_the_evidence() {
    let mut world = World::lost(&Terms { observation_ms: 5_000, ..terms() });
    let transition = world.take(&Command::Cancel).unwrap();
    assert_eq!(transition.effects, [Effect::AbortUpstream { epoch: 2 }]);
    assert_eq!(world.live().attempt.upstream, UpstreamState::Unknown);
    assert_eq!(world.at(14_000).say(&wake(false)), "done+evidence");
    assert_eq!(world.say(&end(1, complete(1, 1))), "!stale_epoch", "the lost driver's word comes too late");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>cancelled+close");
    assert_eq!(world.postings.len(), 1, "invariant 1");
}

/// A lost driver's readers are gone with it; the work is not cancelled for that.
#[test]
fn a_take_over_detaches() {
    let mut world = World::lost(&Terms { observation_ms: 5_000, ..cancels(0) });
    assert_eq!(world.lifecycle(), Lifecycle::Detached);
    assert_eq!(world.live().connection.state, ConnectionState::Disconnected);
    assert_eq!(world.live().connection.disconnected_at, Some(world.now));
    assert_eq!(world.live().attempt.abort, None);
    assert_eq!(world.at(10_000).say(&readers(1)), "done>active", "a reader waits for the outcome");
    assert_eq!(world.at(14_000).say(&wake(false)), "done+evidence");
}

/// A reader that had left before the driver was lost left then.
#[test]
fn a_take_over_keeps_the_time_of_an_earlier_disconnect() {
    let mut world = World::processing(&terms());
    world.at(100).take(&readers(0)).unwrap();
    let left_at = world.now;
    assert_eq!(world.at(9_000).say(&wake(false)), "done+evidence");
    assert_eq!(world.live().connection.disconnected_at, Some(left_at));
}

/// `keep_partial = false`: the output of a cancelled generation goes at the end, any other stays for its retention.
#[test]
fn a_partial_that_is_not_kept_goes_at_the_end() {
    let terms = Terms { keep_partial: false, ..cancels(0) };
    let mut cancelled = World::processing(&terms);
    cancelled.take(&readers(0)).unwrap();
    assert_eq!(cancelled.say(&end(1, ended(SourceEnd::Aborted))), "done>cancelled+close+delete");
    assert!(cancelled.live().content_deleted);
    assert_eq!(cancelled.at(60_000).say(&wake(false)), "done=", "it is not deleted twice");
    for (source, said) in [
        (complete(10, 20), "done>completed+close"),
        (ended(SourceEnd::Body(EndClass::Incomplete)), "done>failed+close"),
    ] {
        let mut kept = World::processing(&terms);
        kept.take(&readers(0)).unwrap();
        assert_eq!(kept.say(&end(1, source)), said);
        assert!(!kept.live().content_deleted);
    }
}

/// Who reads says nothing about what is held (seed 1): after the end it changes nothing.
#[test]
fn readers_after_the_end_change_nothing() {
    let mut world = World::processing(&cancels(0));
    world.take(&end(1, complete(10, 20))).unwrap();
    let before = world.aggregate.clone();
    for attached in [0, 1, 0] {
        assert_eq!(world.say(&Command::Readers { attached, furthest_offset: 99 }), "done=");
    }
    assert_eq!(world.aggregate, before);
}

#[test]
fn the_furthest_offset_only_grows() {
    let mut world = World::processing(&terms());
    for (attached, furthest_offset, stored) in [(0, 10, 10), (1, 5, 10), (0, 12, 12)] {
        world.take(&Command::Readers { attached, furthest_offset }).unwrap();
        assert_eq!(world.live().connection.furthest_offset, stored, "invariant 9");
    }
}
