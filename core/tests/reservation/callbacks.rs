//! Callbacks: the name of an operation on its way to the tenant, and what a thin payload makes of each state (faults 27 to
//! 30; design 7).

use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::economics::Workload;
use holdfast_core::evidence::Disposition;
use holdfast_core::policy::{OnExpiry, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Command, Delivery, Effect, Parcel, SourceEnd, UpstreamEnd};

/// Calls back, and can be asked.
const ALL: Capabilities = Capabilities { callback: true, ..CANCEL_AND_STATUS };

const DONE: holdfast_core::reservation::Report = ended_as(Outcome::Completed, None);

fn called(event_id: &str) -> holdfast_core::reservation::Signal {
    callback(event_id, OPERATION, DONE)
}

fn parcels(world: &World) -> Vec<(String, Parcel)> {
    let deliveries = world.live().deliveries.iter();
    deliveries.map(|Delivery { posting_id, parcel, .. }| (posting_id.clone(), *parcel)).collect()
}

/// As soon as the provider has named it, and only where it calls back; once for each attempt.
#[test]
fn an_operation_is_named_to_the_tenant() {
    let mut world = World::processing(&with(CALLBACK));
    assert_eq!(parcels(&world), []);
    world.take(&identify(1)).unwrap();
    let id = format!("{}:1:operation", identity(1).reservation);
    assert_eq!(parcels(&world), [(id.clone(), Parcel::Operation)]);
    assert_eq!((world.live().operation_of(&id), world.live().operation_of("x")), (Some(OPERATION), None));
    assert_eq!(world.next_wake_ms(), Some(0), "it is due, whatever the driver does");
    world.take(&identify(1)).unwrap();
    assert_eq!(parcels(&world).len(), 1, "named again, it is named once");
    world.take(&Command::Acknowledge { posting_id: id.clone() }).unwrap();
    world.take(&Command::Append { epoch: 1, bytes: 0 }).unwrap();
    assert_eq!(parcels(&world), [], "acknowledged, it is not sent again");
    for unable in [Capabilities::default(), CANCEL_AND_STATUS] {
        assert_eq!(parcels(&World::identified(&with(unable))), [], "nobody calls back");
    }
    // Known only at the end: a callback may still come.
    let mut late = World::processing(&with(CALLBACK));
    late.take(&end(1, UpstreamEnd { operation_id: Some(OPERATION.into()), ..complete(10, 20) })).unwrap();
    assert_eq!(parcels(&late).last(), Some(&(id, Parcel::Operation)));
}

/// The parcel moves no money: it neither makes nor delays a settlement, and its refusal is nobody's review.
#[test]
fn the_name_of_an_operation_settles_nothing() {
    let mut world = World::processing(&with(CALLBACK));
    world.take(&identify(1)).unwrap();
    let name = parcels(&world)[0].0.clone();
    world.take(&end(1, complete(10, 20))).unwrap();
    let settle = world.postings[0].id.clone();
    world.take(&Command::Acknowledge { posting_id: settle }).unwrap();
    assert!(world.live().acknowledged_at.is_some(), "settled, though the name is on its way");
    let acknowledged_at = world.live().acknowledged_at;
    world.at(70).take(&Command::DeliveryRefused { posting_id: name, refusal: "posting_conflict".into() }).unwrap();
    assert_eq!((world.live().acknowledged_at, world.live().review), (acknowledged_at, None));
    assert!(world.live().refused_deliveries.is_empty() && world.live().deliveries.is_empty());
}

/// A callback tells no usage. While the outcome is searched the provider is asked for it, until it tells or the deadline
/// comes; only then an upper bound is charged.
#[test]
fn the_usage_of_a_completion_is_asked_for() {
    let searched = Terms { observation_ms: 60_000, ..with(ALL) };
    let mut world = World::searching(&searched);
    assert_eq!(world.hear(called("evt_1")), "processed+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done", "not concluded yet");
    let mut asked = 0;
    for _ in 0..3 {
        world.now = world.next_wake().unwrap();
        assert_eq!(world.take(&wake(false)).unwrap().effects.len(), 1);
        asked += 1;
        assert_eq!(world.live().reconciliation.unwrap().lookups, asked, "it counts, and the pauses grow");
        world.take(&Command::LookUpFailed { epoch: 2, retry_after_ms: None }).unwrap();
        assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done");
    }
    let mut told = world.clone();
    told.hear(lookup(2, ended_as(Outcome::Completed, Some(usage(10, 20)))));
    assert_eq!(told.say(&reconcile(2, ended(SourceEnd::Lost))), "done>completed+close");
    assert_eq!(told.books(), [("settle", 50)]);
    // Nobody tells: at the deadline the callback's word ends it, at a bound.
    world.at(9_000 + 60_000);
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>completed+close");
    assert_eq!(world.books(), [("settle", HOLD.try_into().unwrap())]);
    // Where it cannot be asked, its word is all there is: at once.
    let mut mute = World::searching(&Terms { observation_ms: 60_000, ..with(CALLBACK) });
    mute.hear(called("evt_1"));
    assert_eq!(mute.say(&reconcile(2, ended(SourceEnd::Lost))), "done>completed+close");
    // A failure of which nothing was seen is charged for nothing, and nothing is asked; else it is.
    for (content_bytes, said) in [(0, "done>failed+close"), (7, "done")] {
        let mut failed = World::searching(&searched);
        failed.hear(callback("evt_1", OPERATION, ended_as(Outcome::Failed, None)));
        let seen = UpstreamEnd { content_bytes, ..ended(SourceEnd::Lost) };
        assert_eq!(failed.say(&reconcile(2, seen)), said, "{content_bytes}");
    }
}

/// The boundary cases of design 7, for a thin callback: before the end it waits for the driver; at a kept hold it settles;
/// after a release it is for review until the usage is known, which settles late; after a settlement by a bound the usage
/// corrects. The same event again changes nothing, in any state.
#[test]
fn a_callback_at_every_boundary() {
    let kept = Terms { observation_ms: 1_000, ..with(ALL) };
    let released = Terms { on_expiry: Some(OnExpiry::Release), ..kept.clone() };
    let estimated = Terms { on_expiry: Some(OnExpiry::SettleEstimate), ..kept.clone() };
    let full = i64::try_from(HOLD).unwrap();
    for (what, terms, heard, books, after) in [
        ("kept", kept, "processed", vec![("settle", full)], vec![("settle", full), ("correction", 50 - full)]),
        (
            "released",
            released,
            "quarantined",
            vec![("release", full)],
            vec![("release", full), ("late_settlement", 50)],
        ),
        (
            "estimated",
            estimated,
            "processed",
            vec![("settle", full)],
            vec![("settle", full), ("correction", 50 - full)],
        ),
    ] {
        let mut world = World::expired(&terms);
        let state = world.states().0;
        assert_eq!(world.hear(called("evt_1")), heard, "{what}");
        assert_eq!((world.books(), world.states().0), (books, state), "{what}: the terminal state stays");
        let before = world.aggregate.clone();
        world.hear(called("evt_1"));
        world.hear(called("evt_2"));
        assert_eq!(world.live().usage, before.live().unwrap().usage, "{what}: the effect was had");
        // The provider is asked for the usage.
        world.now = world.next_wake().unwrap().max(world.now);
        for _ in 0..3 {
            let effects = world.take(&wake(false)).unwrap().effects;
            if effects.contains(&Effect::LookUp { epoch: 2, operation_id: OPERATION.into() }) {
                break;
            }
            world.now = world.next_wake().unwrap().max(world.now.plus(1));
        }
        world.hear(lookup(2, ended_as(Outcome::Completed, Some(usage(10, 20)))));
        assert_eq!(world.books(), after, "{what}");
        assert_eq!((world.states().0, world.live().reconciliation), (state, None), "{what}: nothing more is asked");
    }
    let mut running = World::identified(&with(ALL));
    assert_eq!(running.hear(called("evt_1")), "processed");
    assert_eq!(running.states().0, "active", "its driver works");
    running.take(&end(1, complete(10, 20))).unwrap();
    assert_eq!(running.books(), [("settle", 50)], "the stream's own usage");
    assert_eq!(running.hear(called("evt_2")), "processed=", "it is known, with more than it says");
    assert_eq!(running.live().reconciliation, None, "the usage is known: nobody is asked");
}

/// Design 5: agentic work completes late only through review.
#[test]
fn agentic_work_completes_late_only_through_review() {
    for on_expiry in [None, Some(OnExpiry::Release), Some(OnExpiry::SettleEstimate)] {
        let workload = Workload::Agentic;
        let mut world = World::expired(&Terms { on_expiry, workload, observation_ms: 1_000, ..with(CALLBACK) });
        let (states, books) = (world.states(), world.books());
        let stays = |world: &World| (world.states().0, world.states().2);
        let told = ended_as(Outcome::Completed, Some(usage(10, 20)));
        assert_eq!(world.hear(callback("evt_1", OPERATION, told)), "quarantined", "{on_expiry:?}");
        assert_eq!((stays(&world), world.books()), ((states.0, states.2), books), "{on_expiry:?}");
        assert!(world.live().review.is_some(), "{on_expiry:?}");
        assert_eq!(world.signals.last().unwrap().disposition, Disposition::Quarantined);
    }
}
