//! What the API shows, state by state.

use super::world::*;
use holdfast_core::ids::AttemptId;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::policy::Terms;
use holdfast_core::reservation::{
    Command, ConnectionState, Lifecycle, LogFacts, Settlement, SourceEnd, UpstreamEnd, UpstreamState,
};
use holdfast_core::tenant::Admitted;
use holdfast_core::usage::Metered;
use holdfast_core::view::{GenerationView, LiveFacts};

const NOBODY: LiveFacts = LiveFacts { readers: 0, furthest_offset: 0, unstored_bytes: 0 };

fn view(world: &World, live: &LiveFacts) -> GenerationView {
    GenerationView::of(&world.aggregate, &world.log, live).expect("started or resolved")
}

fn acknowledge_all(world: &mut World) {
    let ids: Vec<_> = world.live().deliveries.iter().map(|delivery| delivery.posting_id.clone()).collect();
    for posting_id in ids {
        world.take(&Command::Acknowledge { posting_id }).unwrap();
    }
}

#[test]
fn a_vacant_object_shows_nothing() {
    assert_eq!(GenerationView::of(&World::new().aggregate, &LogFacts::default(), &NOBODY), None);
}

/// Accepted and not started: pending, not a 404 (design 10). The start shows the same, but for its time.
#[test]
fn an_admitted_generation_is_pending() {
    let admitted = Admitted {
        identity: identity(1),
        attempt: AttemptId::from_random([1; 16]),
        terms: terms(),
        joined: false,
        admitted_at: START,
    };
    let pending = GenerationView::of_admitted(&admitted);
    assert_eq!((pending.lifecycle, pending.settlement), (Lifecycle::Active, Settlement::Pending));
    assert_eq!((pending.upstream.state, pending.upstream.epoch), (UpstreamState::Prepared, 1));
    assert_eq!((pending.log.length, pending.log.closed), (0, false));
    assert_eq!(pending, view(&World::prepared(&terms()), &NOBODY));
}

#[test]
fn a_running_generation() {
    let mut world = World::processing(&terms());
    world.take(&Command::Append { epoch: 1, bytes: 50 }).unwrap();
    let seen = view(&world, &LiveFacts { readers: 2, furthest_offset: 40, unstored_bytes: 7 });
    assert_eq!((seen.connection.state, seen.connection.readers), (ConnectionState::Connected, 2));
    assert_eq!(seen.connection.furthest_offset, 40);
    assert_eq!((seen.log.length, seen.log.closed, seen.log.deleted), (57, false, false));
    assert_eq!((seen.upstream.state, seen.upstream.status), (UpstreamState::Processing, Some(200)));
    assert_eq!((seen.cost.hold_micros, seen.cost.settled_micros), (micros(HOLD), None));
    assert_eq!((seen.settled, seen.usage, seen.reason, seen.ended_at), (false, None, None, None));
}

/// The three machines are shown apart (design 2).
#[test]
fn the_client_side_is_shown_by_itself() {
    let mut world = World::processing(&cancels(500));
    world.take(&Command::Readers { attached: 0, furthest_offset: 30 }).unwrap();
    let seen = view(&world, &NOBODY);
    assert_eq!((seen.connection.state, seen.lifecycle), (ConnectionState::Disconnected, Lifecycle::Detached));
    assert_eq!(seen.connection.furthest_offset, 30);
    assert_eq!(seen.upstream.state, UpstreamState::Processing);
    let back = view(&world, &LiveFacts { readers: 1, furthest_offset: 10, unstored_bytes: 0 });
    assert_eq!(back.connection.state, ConnectionState::Reconnected, "attached, and its row on the way");
    assert_eq!(back.connection.furthest_offset, 30, "invariant 9");
    world.take(&readers(1)).unwrap();
    assert_eq!(view(&world, &NOBODY).connection.state, ConnectionState::Reconnected);
    world.take(&Command::Cancel).unwrap();
    let stopping = view(&world, &NOBODY);
    assert_eq!((stopping.lifecycle, stopping.settlement), (Lifecycle::CancellationRequested, Settlement::Pending));
    assert_eq!((stopping.upstream.state, stopping.log.closed), (UpstreamState::Processing, false));
}

#[test]
fn a_completed_generation() {
    let mut world = World::processing(&terms());
    world.at(10).take(&end(1, complete(10, 20))).unwrap();
    let seen = view(&world, &NOBODY);
    assert_eq!((seen.lifecycle, seen.settlement), (Lifecycle::Completed, Settlement::Committed));
    assert_eq!(seen.connection.state, ConnectionState::Disconnected, "an ended one has no connection left");
    assert_eq!((seen.cost.settled_micros, seen.cost.estimated), (Some(micros(50)), false));
    assert_eq!(seen.usage, Some(Metered::Exact(usage(10, 20))));
    assert_eq!((seen.reason, seen.ended_at), (Some(ReasonCode::CompletedExact), Some(world.now)));
    assert!(seen.log.closed && !seen.log.deleted && !seen.settled);
    acknowledge_all(&mut world);
    assert!(view(&world, &NOBODY).settled);
    world.at(60_010).take(&wake(false)).unwrap();
    assert!(view(&world, &NOBODY).log.deleted);
}

#[test]
fn an_overage_is_part_of_the_cost() {
    let mut world = World::processing(&terms());
    world.take(&end(1, complete(500, 5_000))).unwrap();
    assert_eq!(view(&world, &NOBODY).cost.settled_micros, Some(micros(10_500)));
}

#[test]
fn a_cancelled_generation_is_estimated() {
    let mut world = World::processing(&Terms { keep_partial: false, ..terms() });
    world.take(&Command::Cancel).unwrap();
    world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    let seen = view(&world, &NOBODY);
    assert_eq!((seen.lifecycle, seen.upstream.state), (Lifecycle::Cancelled, UpstreamState::Cancelled));
    assert_eq!((seen.cost.settled_micros, seen.cost.estimated), (Some(micros(100 + 2 * 256)), true));
    assert!(seen.log.deleted, "the route does not keep it");
}

#[test]
fn a_failed_generation_is_released_or_estimated() {
    let mut refused = World::submitted(&terms());
    let answer = UpstreamEnd { head: Some(head(429)), ..complete(0, 0) };
    refused.take(&end(1, UpstreamEnd { usage: None, ..answer })).unwrap();
    let seen = view(&refused, &NOBODY);
    assert_eq!((seen.lifecycle, seen.settlement), (Lifecycle::Failed, Settlement::Released));
    assert_eq!((seen.upstream.status, seen.cost.settled_micros), (Some(429), Some(micros(0))));
    assert_eq!((seen.usage, seen.cost.estimated), (None, false));
    let mut lost = World::lost(&terms());
    assert_eq!(view(&lost, &NOBODY).upstream.state, UpstreamState::Unknown);
    lost.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    let seen = view(&lost, &NOBODY);
    assert_eq!((seen.lifecycle, seen.reason), (Lifecycle::Failed, Some(ReasonCode::DriverLost)));
    assert_eq!((seen.upstream.epoch, seen.upstream.status), (2, None), "the provider never answered");
    assert!(seen.cost.estimated);
}

#[test]
fn a_generation_that_never_started() {
    let mut world = World::new();
    world.at(70).take(&never_started(1, &terms())).unwrap();
    let seen = view(&world, &NOBODY);
    assert_eq!((seen.lifecycle, seen.settlement), (Lifecycle::Failed, Settlement::Released));
    assert_eq!((seen.upstream.state, seen.upstream.epoch), (UpstreamState::Prepared, 1));
    assert_eq!((seen.reason, seen.ended_at), (Some(ReasonCode::NeverStarted), Some(world.now)));
    assert_eq!((seen.cost.settled_micros, seen.log.closed, seen.settled), (Some(micros(0)), true, false));
    let posting_id = world.postings[0].id.clone();
    world.take(&Command::Acknowledge { posting_id }).unwrap();
    assert!(view(&world, &NOBODY).settled);
}

/// The JSON of the API: names and order are part of the contract.
#[test]
fn the_json_of_a_view_is_pinned() {
    let mut world = World::processing(&terms());
    world.at(5).take(&Command::Append { epoch: 1, bytes: 64 }).unwrap();
    world.at(6).take(&Command::Readers { attached: 0, furthest_offset: 64 }).unwrap();
    let answer =
        UpstreamEnd { operation_id: Some("chatcmpl-1".into()), finish_reason: Some("stop".into()), ..complete(10, 20) };
    world.at(9).take(&end(1, answer)).unwrap();
    acknowledge_all(&mut world);
    let json = serde_json::to_string_pretty(&view(&world, &NOBODY)).unwrap();
    assert_eq!(json, SNAPSHOT.trim());
    assert_eq!(serde_json::from_str::<GenerationView>(&json).unwrap(), view(&world, &NOBODY));
}

const SNAPSHOT: &str = r#"
{
  "id": "gen_01010101010101010101010101010101",
  "object": "generation",
  "reservation_id": "res_01010101010101010101010101010101",
  "created_at": 1795996800000,
  "route": "r",
  "provider": "p",
  "model": "m",
  "owner": "object",
  "on_disconnect": "detach",
  "connection": {
    "state": "disconnected",
    "readers": 0,
    "furthest_offset": 64
  },
  "upstream": {
    "state": "completed",
    "epoch": 1,
    "attempt_id": "att_01010101010101010101010101010101",
    "operation_id": "chatcmpl-1",
    "finish_reason": "stop",
    "status": 200
  },
  "lifecycle": "completed",
  "settlement": "committed",
  "settled": true,
  "usage": {
    "kind": "exact",
    "input_tokens": 10,
    "output_tokens": 20,
    "cached_input_tokens": 0,
    "cache_write_tokens": 0,
    "reasoning_tokens": 0
  },
  "cost": {
    "hold_micros": 2100,
    "settled_micros": 50,
    "estimated": false
  },
  "log": {
    "length": 64,
    "closed": true,
    "deleted": false
  },
  "reason": "completed_exact",
  "ended_at": 1795996800009
}
"#;
