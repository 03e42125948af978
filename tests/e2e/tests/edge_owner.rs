//! Routes whose generations the edge drives itself: simple, close to the user, and as safe for the money.

use holdfast_e2e::http::Socketing;
use holdfast_e2e::sse::assert_broken;
use holdfast_e2e::{
    Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, now_ms,
    price_micros, unique,
};
use serde_json::Value;

fn world(name: &str, route: Route) -> (World, Client) {
    world_with(Options::new(name), route)
}

fn world_with(options: Options, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route.edge_owned().quick_recovery().with("total_ms", 25_000));
    let world = World::start(&options.tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

#[test]
fn streams_and_completes() {
    let (world, client) = world("edge owner", Route::new("quick").detach());
    for asks in [false, true] {
        let plain = Chat::stream("gen?tokens=40&interval_ms=5&text=multibyte&split=11").tag(&unique("stream"));
        let chat = if asks { plain.with_usage() } else { plain };
        let (mut exchange, id) = client.begin(&chat);
        let expected = world.simulator.expected(&chat);
        assert_bytes!(exchange.finish().clean(), expected);
        let settled = client.wait_until_settled(&id);
        assert_eq!(settled["owner"], "edge", "{settled}");
        assert_completed(&settled, 12, 40);
        assert_bytes!(client.read_all_from(&id, 0), expected);
        assert_bytes!(client.read_all_from(&id, 777), &expected[777..]);
    }
    let chat = Chat::complete("gen?tokens=40").tag(&unique("complete"));
    let reply = client.chat(&chat).expect(200);
    assert_bytes!(reply.body, world.simulator.expected(&chat));
    let id = reply.required("x-generation-id");
    assert_completed(&client.wait_until_settled(id), 12, 40);
    assert_bytes!(client.result(id).expect(200).body, reply.body);
    assert_eq!(client.wait_until_nothing_is_held().spent, 3 * price_micros(12, 40));
}

#[test]
fn detach_is_carried_to_the_end_after_the_client_left() {
    let (world, client) = world("edge owner, detach", Route::new("quick").detach());
    for k in [0, 1, 1_234] {
        let tag = unique("detach");
        let chat = Chat::stream("gen?tokens=100&interval_ms=15").tag(&tag);
        let expected = world.simulator.expected(&chat);
        let (mut exchange, id) = client.begin(&chat);
        assert_bytes!(exchange.read(k), &expected[..k]);
        assert_eq!(world.simulator.only(&tag).end(), "open", "it left in mid-stream");
        exchange.abandon();
        world.simulator.assert_sent_everything(&tag);
        let settled = client.wait_until_settled(&id);
        assert_completed(&settled, 12, 100);
        assert_eq!(settled["on_disconnect"], "detach", "{settled}");
        assert_bytes!(client.read_all_from(&id, k), &expected[k..], "k = {k}");
        assert_bytes!(client.read_all_from(&id, 0), expected);
    }
    client.wait_until_nothing_is_held();
}

#[test]
fn cancel_closes_the_provider_when_the_client_leaves() {
    let (world, client) = world("edge owner, cancel", Route::new("quick").cancel());
    let tag = unique("cancel");
    let chat = Chat::stream("gen?tokens=400&interval_ms=20").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.read(1_000), &expected[..1_000]);
    let left_at = now_ms();
    exchange.abandon();
    let entry = world.simulator.once_closed(&tag);
    assert_eq!(entry.end(), "client_closed", "{}", entry.brief());
    let took = entry.closed_at_ms().expect("closed").saturating_sub(left_at);
    assert!(took <= 1_000, "closed after {took} ms");
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "cancelled", "{settled}");
    assert_estimated(&settled);
    assert!(assert_broken(&client.read_all_from(&id, 0), &expected).prefix_len >= 1_000);
    client.wait_until_nothing_is_held();
}

#[test]
fn a_cancel_by_name_reaches_the_driver() {
    let (world, client) = world("edge owner, cancel by name", Route::new("quick").detach());
    let tag = unique("by-name");
    let chat = Chat::stream("gen?tokens=400&interval_ms=20").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut got = exchange.read(1_000);
    let first = client.cancel(&id).expect(202);
    assert_bytes!(client.cancel(&id).body, first.body);
    got.extend(exchange.finish().clean());
    assert_broken(&got, &expected);
    assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed");
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "cancelled", "{settled}");
    assert_estimated(&settled);
    assert_bytes!(client.read_all_from(&id, 0), got, "the client got what is stored");
    client.wait_until_nothing_is_held();
}

#[test]
fn a_killed_driver_is_found_by_its_lease() {
    let (world, client) = world("edge owner, killed", Route::new("quick").detach());
    let tag = unique("killed");
    let chat = Chat::stream("gen?tokens=400&interval_ms=10").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(9_000);
    world.kill();
    world.restart();
    let balance = client.wait_until_nothing_is_held();
    let settled = client.generation(&id);
    assert_eq!(settled["lifecycle"], "failed", "{settled}");
    assert_eq!(assert_estimated(&settled), balance.spent);
    assert_broken(&client.read_all_from(&id, 0), &expected);
    assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
}

#[test]
fn the_same_key_twice_is_one_call() {
    let (world, client) = world("edge owner, idempotency", Route::new("quick").detach());
    let (tag, key) = (unique("twice"), unique("key"));
    let chat = Chat::stream("gen?tokens=10").tag(&tag).idempotency_key(&key);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.finish().clean(), expected);
    assert_completed(&client.wait_until_settled(&id), 12, 10);
    let (mut exchange, again) = client.begin(&chat);
    assert_eq!(again, id);
    assert_bytes!(exchange.finish().clean(), expected, "replayed from the log");
    assert_eq!(world.simulator.log(&tag).len(), 1);
}

#[test]
fn an_answer_in_one_piece_may_be_larger_than_what_a_slow_client_lets_wait() {
    let route = Route::new("quick").detach().with("max_output_tokens", 500_000);
    let (world, client) = world("edge owner, large", route);
    let chat = Chat::complete("gen?tokens=400000").tag(&unique("large"));
    let expected = world.simulator.expected(&chat);
    assert!(expected.len() > 3 << 19, "{} bytes", expected.len());
    // It reads the head and goes on when everything is over: however slow it is, nothing more comes that could wait.
    let mut exchange = client.open_with(&chat, Socketing { receive_buffer_bytes: Some(4_096) });
    let id = exchange.head().required("x-generation-id").to_owned();
    assert_completed(&client.wait_until_settled(&id), 12, 400_000);
    assert!(exchange.finish().clean() == expected, "the whole answer");
}

#[test]
fn a_driver_that_lost_its_generation_ends_its_clients_stream_in_band() {
    let options = Options::new("edge owner, fenced").with_test_hooks();
    let (world, client) = world_with(options, Route::new("quick").detach());
    let tag = unique("fenced");
    let chat = Chat::stream("gen?tokens=1500&interval_ms=10").tag(&tag);
    let chat = chat.header("x-holdfast-test-failpoint", "mute-edge-driver");
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    let got = exchange.finish().clean();
    let broken = assert_broken(&got, &expected);
    assert_eq!(broken.code, "upstream_interrupted");
    assert!(broken.prefix_len > 0, "the client had its bytes until then");
    assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed", "the driver has stopped");
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "failed", "{settled}");
    assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
    client.wait_until_nothing_is_held();
}

/// Its client has nothing yet, so it gets what every reader gets: the stored end, not an outage, which SDKs would repeat. After
/// a cancel that would be a second call.
#[test]
fn a_driver_that_lost_its_generation_before_the_head_hands_on_the_stored_end() {
    let options = Options::new("edge owner, fenced before the head").with_test_hooks();
    let (world, client) = world_with(options, Route::new("quick").detach());
    for (cancelled, status, code) in [(false, 502, "upstream_interrupted"), (true, 409, "generation_cancelled")] {
        let (tag, key) = (unique("headless"), unique("key"));
        let chat = Chat::stream("gen?tokens=5&headers_ms=30000").tag(&tag).idempotency_key(&key);
        let mut exchange = client.open(&chat.header("x-holdfast-test-failpoint", "mute-edge-driver"));
        world.simulator.only(&tag);
        let id = client.id_by_idempotency_key(&key);
        if cancelled {
            client.cancel(&id).expect(202);
        }
        let (head, body) = (exchange.head(), exchange.finish().clean());
        let error: Value = serde_json::from_slice(&body).expect("an envelope");
        assert_eq!((head.status, &error["error"]["code"]), (status, &code.into()), "{error}");
        assert_eq!(head.header("x-generation-id"), Some(id.as_str()));
        assert_eq!(head.header("x-should-retry"), cancelled.then_some("false"), "{head:?}");
        assert_eq!(head.header("retry-after"), None, "{head:?}");
        let settled = client.wait_until_settled(&id);
        assert_eq!(settled["lifecycle"], if cancelled { "cancelled" } else { "failed" }, "{settled}");
        let stored = client.result(&id).expect(status);
        assert_bytes!(stored.body, body, "the client got what is stored");
        assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
    }
    client.wait_until_nothing_is_held();
}

#[test]
fn a_driver_whose_batches_are_rare_keeps_its_lease() {
    let options = Options::new("edge owner, rare batches").limit("batch_ms", 10_000).limit("batch_bytes", 10_000_000);
    let (world, client) = world_with(options, Route::new("quick").detach());
    // Four seconds: more than two leases.
    let chat = Chat::stream("gen?tokens=200&interval_ms=20").tag(&unique("rare"));
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.finish().clean(), expected);
    assert_completed(&client.wait_until_settled(&id), 12, 200);
}
