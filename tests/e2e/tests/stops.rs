//! Stopping what outlives its socket: before it has a name, when the request to cancel is lost, and when its answer grew
//! too large. Seed 1, "Cancellation Requested Is Not Cancellation Confirmed"; seed 2, the control loop.

use std::time::Duration;

use holdfast_e2e::config::BACKGROUND;
use holdfast_e2e::jobs::{asked, assert_broken, expected, job, once_asked, states, world};
use holdfast_e2e::wait::wait_for_within;
use holdfast_e2e::{Client, LogEntry, Options, Route, Tenant, World, assert_bytes, now_ms, unique};
use serde_json::{Value, json};

/// It can be cancelled, and not looked up.
const CANCEL_ALONE: &str = "cancel-alone";

/// Longer than a request to cancel of which nothing is heard is waited for, and a name that does not come.
const LONG: Duration = Duration::from_secs(40);

fn route(provider: &str) -> Route {
    Route::new("r").background(provider).detach().with("observation_ms", 60_000)
}

fn times(world: &World, tag: &str, what: &str) -> usize {
    asked(&world.simulator, tag, what).len()
}

fn settled_within(client: &Client, id: &str, limit: Duration) -> Value {
    wait_for_within(limit, "a settled generation", || {
        let generation = client.generation(id);
        if generation["settled"] == true { Ok(generation) } else { Err(generation.to_string()) }
    })
}

fn assert_confirmed(settled: &Value) {
    assert_eq!(states(settled), ("cancelled".into(), "cancelled".into(), "committed".into()), "{settled}");
    assert_eq!(settled["reason"], "cancel_confirmed");
}

/// Its socket is all that brings the name: it stays open until then, and the provider is asked by the name.
#[test]
fn a_cancel_before_the_name_stops_it_at_the_provider() {
    let (world, client) = world("cancel before the name", route(BACKGROUND));
    let (tag, key) = (unique("unnamed"), unique("key"));
    // The head comes first, or with the event that names it.
    for (keys, tag) in [("headers_ms=1500", format!("{tag}-head")), ("first_ms=1500", format!("{tag}-event"))] {
        let key = format!("{key}-{tag}");
        let chat = job(&format!("gen?tokens=3000&interval_ms=8&{keys}"), &tag).idempotency_key(&key);
        let mut exchange = client.open(&chat);
        let sent_at = world.simulator.only(&tag).received_at_ms();
        let id = client.id_by_idempotency_key(&key);
        client.cancel(&id).expect(202);
        assert!(now_ms() < sent_at + 1_400, "too late for this test: it has a name by now");
        let open = client.generation(&id);
        assert_eq!(open["lifecycle"], "cancellation_requested", "{open}");
        assert_eq!(open["upstream"]["operation_id"], Value::Null, "{open}");
        let cancels = once_asked(&world.simulator, &tag, "cancel", 1);
        assert!(cancels[0].received_at_ms() >= sent_at + 1_400, "asked by the name");
        let body = exchange.finish().clean();
        let settled = client.wait_until_settled(&id);
        assert_confirmed(&settled);
        assert!(settled["upstream"]["operation_id"].is_string(), "{settled}");
        assert_broken(&body, &expected(&world.simulator, &chat));
        assert_eq!((times(&world, &tag, "cancel"), times(&world, &tag, "responses")), (1, 1));
    }
    client.wait_until_nothing_is_held();
}

/// A time limit is a stop like any other.
#[test]
fn a_first_byte_that_is_late_brings_the_name() {
    let (world, client) = world("late first byte", route(BACKGROUND).with("first_byte_ms", 300));
    let (tag, key) = (unique("late"), unique("key"));
    let chat = job("gen?tokens=3000&interval_ms=8&headers_ms=1500", &tag).idempotency_key(&key);
    let mut exchange = client.open(&chat);
    let id = client.id_by_idempotency_key(&key);
    once_asked(&world.simulator, &tag, "cancel", 1);
    exchange.finish();
    assert_confirmed(&client.wait_until_settled(&id));
}

/// A name that does not come is not waited for without end: then the socket is closed, and the route's word counts.
#[test]
fn a_name_that_never_comes_is_not_waited_for() {
    let expiry = json!({ "credit": "settle_estimate" });
    let route = route(BACKGROUND).with("first_byte_ms", 500).with("observation_ms", 300).with("on_expiry", expiry);
    let (world, client) = world("never named", route);
    let (tag, key) = (unique("never"), unique("key"));
    let mut exchange = client.open(&job("gen?tokens=5&headers_ms=600000", &tag).idempotency_key(&key));
    world.simulator.only(&tag);
    let id = client.id_by_idempotency_key(&key);
    let asked_at = now_ms();
    client.cancel(&id).expect(202);
    let settled = settled_within(&client, &id, LONG);
    assert_eq!(states(&settled), ("expired".into(), "unknown".into(), "committed".into()), "{settled}");
    let closed_at = world.simulator.once_closed(&tag).closed_at_ms().expect("closed");
    let waited_ms = closed_at.saturating_sub(asked_at);
    assert!((9_500..20_000).contains(&waited_ms), "{waited_ms} ms");
    exchange.finish();
    assert_eq!(world.simulator.log(&tag).len(), 1, "nobody could be asked");
    client.wait_until_nothing_is_held();
}

/// The server dies while it waits for the name: nothing is waited for any more.
#[test]
fn killed_while_it_waits_for_the_name() {
    let expiry = json!({ "credit": "settle_estimate" });
    let (world, client) =
        world("killed, to be named", route(BACKGROUND).with("observation_ms", 300).with("on_expiry", expiry));
    let (tag, key) = (unique("killed"), unique("key"));
    let exchange = client.open(&job("gen?tokens=5&headers_ms=30000", &tag).idempotency_key(&key));
    world.simulator.only(&tag);
    let id = client.id_by_idempotency_key(&key);
    client.cancel(&id).expect(202);
    world.kill();
    drop(exchange);
    world.restart();
    let settled = client.wait_until_settled(&id);
    assert_eq!(states(&settled), ("expired".into(), "unknown".into(), "committed".into()), "{settled}");
    assert_eq!(world.simulator.log(&tag).len(), 1, "nothing is sent a second time, nothing is asked");
}

/// The server dies after it has stored that the provider is asked, and before anything is heard: it is asked again.
#[test]
fn a_cancel_that_died_with_the_server_is_asked_again() {
    std::thread::scope(|scope| {
        for provider in [BACKGROUND, CANCEL_ALONE] {
            scope.spawn(move || {
                let (world, client) = world(&format!("killed in a cancel, {provider}"), route(provider));
                let tag = unique("lost");
                let (mut exchange, id) = client.begin(&job("gen?tokens=9000&interval_ms=8&cancels=silent", &tag));
                exchange.read(2_000);
                client.cancel(&id).expect(202);
                once_asked(&world.simulator, &tag, "cancel", 1);
                world.kill();
                drop(exchange);
                world.restart();
                let settled = settled_within(&client, &id, LONG);
                assert_confirmed(&settled);
                assert_eq!(times(&world, &tag, "cancel"), 2, "asked again, once");
                assert_eq!((times(&world, &tag, "resume"), times(&world, &tag, "responses")), (0, 1));
            });
        }
    });
}

/// One that failed is asked again soon, and when the provider wishes; also where nothing else can be asked.
#[test]
fn a_cancel_that_failed_is_asked_again_soon() {
    let (world, client) = world("cancel failed", route(CANCEL_ALONE));
    let tag = unique("busy");
    let (mut exchange, id) = client.begin(&job("gen?tokens=9000&interval_ms=8&cancels=503:3,drop", &tag));
    exchange.read(2_000);
    client.cancel(&id).expect(202);
    let at = once_asked(&world.simulator, &tag, "cancel", 3);
    let at: Vec<u64> = at.iter().map(LogEntry::received_at_ms).collect();
    assert!((3_000..6_000).contains(&(at[1] - at[0])), "{at:?}");
    assert!((2_000..5_000).contains(&(at[2] - at[1])), "{at:?}");
    exchange.finish();
    assert_confirmed(&client.wait_until_settled(&id));
    assert_eq!(times(&world, &tag, "cancel"), 3);
}

/// What grew larger than allowed goes on at the provider: it is stopped there, and ends under its name.
#[test]
fn what_grew_too_large_is_stopped_at_the_provider() {
    let tenant = Tenant::new("acme").route(route(BACKGROUND).with("lease_ms", 1_000));
    let options = Options::new("too large, in the background").tenant(&tenant).limit("generation_max_bytes", 20_000);
    let world = World::start(&options);
    let client = world.client(&tenant);
    let tag = unique("large");
    let chat = job("gen?tokens=3000&interval_ms=4", &tag);
    let (mut exchange, id) = client.begin(&chat);
    let body = exchange.finish().clean();
    let part = assert_broken(&body, &expected(&world.simulator, &chat));
    assert!(part <= 20_000 && part > 10_000, "{part}");
    assert!(String::from_utf8_lossy(&body[part..]).contains("output_too_large"));
    let settled = client.wait_until_settled(&id);
    assert_eq!(states(&settled), ("failed".into(), "cancelled".into(), "committed".into()), "{settled}");
    assert_eq!(settled["reason"], "output_too_large", "{settled}");
    assert_eq!((times(&world, &tag, "cancel"), times(&world, &tag, "resume")), (1, 0));
    assert_bytes!(client.read_all_from(&id, 0), body);
    client.wait_until_nothing_is_held();
}
