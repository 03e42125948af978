//! A reader that stops reading does not slow the provider down: the generation ends as fast as without it.

use std::time::Duration;

use holdfast_e2e::http::{BodyEnd, Exchange, Socketing};
use holdfast_e2e::{
    Chat, Client, LogEntry, Options, Route, Tenant, World, assert_completed, assert_estimated, unique, wait_for_within,
};

/// About 10 MB, far more than the sockets between take.
const LONG: &str = "gen?tokens=60000&coalesce=40";

const SMALL_BUFFER: Socketing = Socketing { receive_buffer_bytes: Some(4_096) };

fn world(name: &str, reader_stall_ms: u64) -> (World, Client) {
    world_with(name, reader_stall_ms, Route::new("chat").detach())
}

fn world_with(name: &str, reader_stall_ms: u64, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route.with("max_output_tokens", 70_000));
    let options = Options::new(name).tenant(&tenant).limit("reader_stall_ms", reader_stall_ms).alone();
    let world = World::start(&options);
    let client = world.client(&tenant);
    (world, client)
}

/// Opens a stream, reads a little, and reads no more.
fn stalled(client: &Client, chat: &Chat) -> (Exchange, String) {
    let mut exchange = client.open_with(chat, SMALL_BUFFER);
    let id = exchange.head().required("x-generation-id").to_owned();
    exchange.read(2_000);
    (exchange, id)
}

fn once_complete(world: &World, tag: &str) -> LogEntry {
    let entry = wait_for_within(Duration::from_secs(40), "the end at the provider", || {
        let log = world.simulator.log(tag);
        let entry = log.into_iter().next().ok_or("no request")?;
        if entry.closed_at_ms().is_some() { Ok(entry) } else { Err(entry.brief()) }
    });
    assert_eq!(entry.end(), "complete", "{}", entry.brief());
    entry
}

/// From the call of the provider until the generation is at its end, stored and settled.
fn took_ms(world: &World, client: &Client, id: &str, tag: &str) -> u64 {
    let called_at = once_complete(world, tag).received_at_ms();
    let settled = client.wait_until_settled(id);
    assert_completed(&settled, 12, 60_000);
    settled["ended_at"].as_u64().expect("a time") - called_at
}

#[test]
fn the_generation_ends_as_fast_as_without_it() {
    // The bound at which a stalled reader is dropped is far away: dropping it is not what keeps the provider going.
    let (world, client) = world("as fast", 60_000);
    let mut took = Vec::new();
    for _ in 0..2 {
        let tag = unique("healthy");
        let chat = Chat::stream(LONG).tag(&tag).with_usage();
        let (mut exchange, id) = client.begin(&chat);
        assert_eq!(exchange.finish().clean().len(), world.simulator.expected(&chat).len());
        took.push(took_ms(&world, &client, &id, &tag));
    }
    let healthy_ms = *took.iter().max().expect("two runs");

    let tag = unique("stalled");
    let chat = Chat::stream(LONG).tag(&tag).with_usage();
    let (mut exchange, id) = stalled(&client, &chat);
    let stalled_ms = took_ms(&world, &client, &id, &tag);
    println!("healthy {took:?} ms, stalled {stalled_ms} ms");
    assert!(stalled_ms <= healthy_ms * 3 / 2 + 300, "{stalled_ms} ms for {took:?} ms");
    // It was never dropped: when it reads again it gets everything.
    let expected = world.simulator.expected(&chat);
    assert!(exchange.finish().clean() == expected[2_000..], "the rest, in order");
}

#[test]
fn readers_beside_it_are_not_disturbed() {
    let (world, client) = world("beside it", 60_000);
    let tag = unique("beside");
    let chat = Chat::stream(LONG).tag(&tag).with_usage();
    let (exchange, id) = stalled(&client, &chat);
    let all = client.read_all_from(&id, 0);
    assert!(all == world.simulator.expected(&chat), "{} bytes", all.len());
    once_complete(&world, &tag);
    assert_completed(&client.wait_until_settled(&id), 12, 60_000);
    drop(exchange);
}

#[test]
fn a_reader_over_its_bound_is_dropped_and_can_come_back() {
    let (world, client) = world("over its bound", 700);
    let tag = unique("dropped");
    let chat = Chat::stream(LONG).tag(&tag).with_usage();
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = stalled(&client, &chat);
    once_complete(&world, &tag);
    wait_for_within(Duration::from_secs(10), "no reader", || {
        let state = client.generation(&id);
        if state["connection"]["readers"] == 0 { Ok(()) } else { Err(state["connection"].to_string()) }
    });
    assert_completed(&client.wait_until_settled(&id), 12, 60_000);

    let body = exchange.finish();
    let got = exchange.consumed();
    assert!(got < expected.len(), "it was dropped before it had everything");
    assert!(expected[2_000..].starts_with(&body.bytes), "what it has is a prefix");
    assert!(matches!(body.end, BodyEnd::Cut(_)), "and it can tell that something is missing: {:?}", body.end);
    assert!(client.read_all_from(&id, got) == expected[got..], "the rest is there when it comes back");
}

#[test]
fn a_last_reader_over_its_bound_counts_as_gone() {
    let (world, client) = world_with("stalled and cancelled", 700, Route::new("chat").cancel());
    let tag = unique("gone");
    // The provider goes quiet after nine megabytes; the reader stopped long before.
    let chat = Chat::stream(&format!("{LONG}&stall_at=9000000")).tag(&tag);
    let (exchange, id) = stalled(&client, &chat);
    let entry = world.simulator.once_closed(&tag);
    assert_eq!(entry.end(), "client_closed", "{}", entry.brief());
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "cancelled", "{settled}");
    assert_estimated(&settled);
    drop(exchange);
}
