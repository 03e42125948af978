//! A call that got no answer is repeated where the route says that it may be: before the first byte only, in one layer,
//! three attempts at most, each held for. Everything else is called once.

use holdfast_e2e::sse::{assert_broken, event_ends};
use holdfast_e2e::wait::let_time_pass_until;
use holdfast_e2e::{
    Chat, Client, Options, Route, Seed, Tenant, World, assert_bytes, assert_completed, assert_estimated, now_ms,
    price_micros, unique,
};
use serde_json::Value;

fn route() -> Route {
    Route::new("r").detach().quick_recovery().with("on_interruption", "retry")
}

fn world(name: &str, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route);
    let world = World::start(&Options::new(name).tenant(&tenant).limit("batch_ms", 100));
    let client = world.client(&tenant);
    (world, client)
}

/// The attempts behind a settlement, by their ids.
fn attempts(client: &Client, generation: &Value) -> usize {
    let id = generation["id"].as_str().expect("an id");
    let records = client.get(&format!("/v1/usage/records?generation={id}")).expect(200).json();
    let ids =
        records["data"].as_array().unwrap_or_else(|| panic!("{records}")).iter().map(|it| it["attempt_id"].clone());
    let mut ids: Vec<String> = ids.map(|id| id.to_string()).collect();
    ids.sort();
    ids.dedup();
    ids.len()
}

/// Faults 11, 12 and 16: the connection is reset before the head. The client waits and gets the whole answer of the second
/// attempt; both are settled, the first by a bound.
#[test]
fn a_call_without_an_answer_is_repeated() {
    for streamed in [true, false] {
        let (world, client) = world("repeated", route());
        let tag = unique("reset");
        let model = "gen?tokens=5&drop=1&times=1";
        let chat = if streamed { Chat::stream(model) } else { Chat::complete(model) }.tag(&tag);
        let reply = client.chat(&chat).expect(200);
        assert_bytes!(reply.body, world.simulator.expected(&chat));
        assert_eq!(world.simulator.log(&tag).len(), 2, "one repeat");
        let settled = client.wait_until_settled(reply.required("x-generation-id"));
        assert_eq!(settled["lifecycle"], "completed", "{settled}");
        let charged = assert_estimated(&settled);
        assert!(charged > price_micros(12, 5), "what the first attempt may have used is part of it: {settled}");
        assert_eq!(attempts(&client, &settled), 2, "{settled}");
        let balance = client.wait_until_nothing_is_held();
        assert_eq!(balance.spent, charged);
        // Nothing of the request is kept once it cannot be sent again.
        let id = reply.required("x-generation-id").to_owned();
        world.kill();
        assert_eq!(world.count_in_generation(&id, "SELECT COUNT(*) FROM request"), 0);
    }
}

/// Fault 12 without the route's word: an unknown outcome is never repeated blindly.
#[test]
fn without_the_routes_word_nothing_is_repeated() {
    let (world, client) = world("not repeated", Route::new("r").detach().quick_recovery());
    let tag = unique("once");
    let reply = client.chat(&Chat::stream("gen?tokens=5&drop=1").tag(&tag));
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert_eq!(world.simulator.log(&tag).len(), 1);
    assert_estimated(&client.wait_until_settled(reply.required("x-generation-id")));
}

/// The budget: three attempts, then the client is told; all of them are part of the settlement, and never above the hold.
#[test]
fn the_budget_ends() {
    let (world, client) = world("budget", route());
    let tag = unique("budget");
    let reply = client.chat(&Chat::stream("gen?tokens=5&drop=1").tag(&tag));
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert_eq!(world.simulator.log(&tag).len(), 3, "three attempts");
    let settled = client.wait_until_settled(reply.required("x-generation-id"));
    assert_eq!(settled["lifecycle"], "failed", "{settled}");
    let charged = assert_estimated(&settled);
    assert_eq!(client.wait_until_nothing_is_held().spent, charged);
    assert_eq!(attempts(&client, &settled), 3, "{settled}");
}

/// Faults 13 and 14, and "one layer": what the provider itself answers goes to the client with its `Retry-After`, and is
/// not repeated here.
#[test]
fn the_providers_own_answer_is_not_repeated() {
    let (world, client) = world("answers", route());
    for status in [400, 429, 500, 503] {
        let tag = unique("status");
        let chat = Chat::stream(&format!("gen?status={status}&retry_after=7")).tag(&tag);
        let reply = client.chat(&chat);
        assert_eq!((reply.status, reply.header("retry-after")), (status, Some("7")), "{}", reply.text());
        assert_eq!(world.simulator.log(&tag).len(), 1, "{status}");
        client.wait_until_settled(reply.required("x-generation-id"));
    }
    client.wait_until_nothing_is_held();
}

/// Fault 15 and 17: after the first byte nothing is repeated, whatever the route says.
#[test]
fn after_the_first_byte_nothing_is_repeated() {
    let (world, client) = world("begun", route());
    let tag = unique("begun");
    let chat = Chat::stream("gen?tokens=50&interval_ms=2&reset_at=3000").tag(&tag);
    let expected = world.simulator.sent_for(&chat);
    let (mut exchange, id) = client.begin(&chat);
    assert_broken(&exchange.finish().clean(), &expected);
    assert_eq!(world.simulator.log(&tag).len(), 1);
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "failed", "{settled}");
}

/// The tenant cannot pay for a further attempt: it is refused, nothing is sent, and what the first may have used is charged.
#[test]
fn a_further_attempt_must_be_paid_for() {
    // One worst case of 2,000 tokens fits; two do not.
    let tenant = Tenant::new("acme").route(route()).with("grant_micros", 20_000_u64);
    let world = World::start(&Options::new("poor").tenant(&tenant));
    let client = world.client(&tenant);
    let tag = unique("poor");
    let reply = client.chat(&Chat::stream("gen?tokens=5&drop=1&times=1").tag(&tag));
    assert_eq!(reply.status, 502, "{}", reply.text());
    assert_eq!(world.simulator.log(&tag).len(), 1);
    let settled = client.wait_until_settled(reply.required("x-generation-id"));
    assert_estimated(&settled);
    client.wait_until_nothing_is_held();
}

/// Faults 32 and 43: the object is killed while the provider has not answered. Nobody helps: the alarm finds the lost driver,
/// the call is repeated, and a client that comes back has the whole answer.
#[test]
fn a_lost_driver_is_repeated_before_the_first_byte() {
    let (world, client) = world("lost", route());
    let (tag, key) = (unique("lost"), unique("key"));
    let chat = Chat::stream("gen?tokens=5&headers_ms=30000&times=1").tag(&tag).idempotency_key(&key);
    let exchange = client.open(&chat);
    world.simulator.only(&tag);
    world.kill();
    drop(exchange);
    world.restart();
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(world.simulator.log(&tag).len(), 2, "the call was repeated");
    let id = client.id_by_idempotency_key(&key);
    let settled = client.generation(&id);
    assert_eq!(settled["lifecycle"], "completed", "{settled}");
    assert_eq!(assert_estimated(&settled), balance.spent);
    assert_bytes!(client.read_all_from(&id, 0), world.simulator.expected(&chat));
    assert_bytes!(client.chat(&chat).expect(200).body, world.simulator.expected(&chat), "joined by its key");
    assert_eq!(world.simulator.log(&tag).len(), 2);
}

/// The same kill after the first byte was stored: it fails, and is called once.
#[test]
fn a_lost_driver_is_not_repeated_after_the_first_byte() {
    let (world, client) = world("lost later", route());
    let tag = unique("later");
    let chat = Chat::stream("gen?tokens=400&interval_ms=10").tag(&tag);
    let ends = event_ends(&world.simulator.expected(&chat));
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(ends[60]);
    world.kill();
    world.restart();
    client.wait_until_nothing_is_held();
    let settled = client.generation(&id);
    assert_eq!(settled["lifecycle"], "failed", "{settled}");
    assert_eq!(world.simulator.log(&tag).len(), 1);
}

/// Faults 32 to 34: a kill at any moment of a generation that is repeated twice. Whatever it meets (a pause, the extension,
/// the new attempt), it ends, three calls at most, and the books agree.
#[test]
fn killed_at_any_moment_of_a_repeat() {
    let (world, client) = world("any moment", route());
    let mut seed = Seed::named("killed at any moment of a repeat");
    for _ in 0..5 {
        let (tag, key) = (unique("any"), unique("key"));
        let chat = Chat::stream("gen?tokens=5&drop=1&times=2").tag(&tag).idempotency_key(&key);
        let exchange = client.open(&chat);
        let_time_pass_until(now_ms() + seed.between(1, 3_500) as u64);
        world.kill();
        drop(exchange);
        world.restart();
        client.wait_until_nothing_is_held();
        let calls = world.simulator.log(&tag).len();
        assert!(calls <= 3, "{calls} calls");
        for found in client.by_idempotency_key(&key) {
            // The receipt may have been lost with the server: it comes again.
            let found = client.wait_until_settled(found["id"].as_str().expect("an id"));
            let lifecycle = found["lifecycle"].as_str();
            assert!(matches!(lifecycle, Some("completed" | "failed")), "{found}");
            if lifecycle == Some("completed") {
                let id = found["id"].as_str().expect("an id");
                assert_bytes!(client.read_all_from(id, 0), world.simulator.expected(&chat));
            }
        }
    }
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!(check["consistent"], true, "{check}");
    let tag = unique("works");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3").tag(&tag));
    exchange.finish();
    assert_completed(&client.wait_until_settled(&id), 12, 3);
}
