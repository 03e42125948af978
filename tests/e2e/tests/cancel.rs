//! `cancel`: the client leaves and the provider's socket is closed; or somebody cancels by name, from anywhere. The
//! partial stays readable and the hold is settled by an upper bound, never released on faith.

use std::sync::Barrier;

use holdfast_e2e::sse::{assert_broken, tokens_within};
use holdfast_e2e::{
    Chat, Client, LogEntry, Options, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, now_ms,
    price_micros, unique, wait_for,
};
use serde_json::Value;

/// How soon the provider must see that nobody wants its answer.
const CLOSED_WITHIN_MS: u64 = 1_000;

const SLOW: &str = "gen?tokens=400&interval_ms=20&prompt_tokens=5";

fn world(name: &str, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route);
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn assert_closed_soon(entry: &LogEntry, since_ms: u64) {
    assert_eq!(entry.end(), "client_closed", "{}", entry.brief());
    let took = entry.closed_at_ms().expect("closed").saturating_sub(since_ms);
    assert!(took <= CLOSED_WITHIN_MS, "closed after {took} ms: {}", entry.brief());
}

/// The partial is there, ends with an error, and is paid for by an upper bound.
fn assert_cancelled_partial(world: &World, client: &Client, chat: &Chat, id: &str, tag: &str, seen: usize) -> Value {
    let settled = client.wait_until_settled(id);
    assert_eq!(settled["lifecycle"], "cancelled", "{settled}");
    assert_eq!(settled["upstream"]["state"], "cancelled", "{settled}");
    assert!(settled["reason"].is_string(), "{settled}");

    let expected = world.simulator.expected(chat);
    let stored = client.read_all_from(id, 0);
    assert_eq!(settled["log"]["length"], stored.len(), "{settled}");
    let broken = assert_broken(&stored, &expected);
    assert!(broken.prefix_len >= seen, "{} bytes kept of {seen} that the client got", broken.prefix_len);
    assert_bytes!(client.read_all_from(id, seen), &stored[seen..], "the rest for a client that got {seen}");
    assert_bytes!(client.result(id).expect(200).body, stored);

    let estimate = assert_estimated(&settled);
    let sent = world.simulator.once_closed(tag).bytes_sent();
    let produced = tokens_within(&expected, usize::try_from(sent).expect("bytes"));
    assert!(produced > 0);
    assert!(estimate >= price_micros(5, produced), "{estimate} µ$ is no upper bound of {produced} tokens: {settled}");
    settled
}

#[test]
fn the_provider_is_closed_when_the_client_leaves() {
    let (world, client) = world("cancel", Route::new("chat").cancel());
    let expected_len = world.simulator.expected(&Chat::stream(SLOW)).len();
    assert!(expected_len > 20_000, "long enough to be left in the middle");
    let mut spent = 0;
    for k in [1, 333, 5_000] {
        let tag = unique("cancel");
        let chat = Chat::stream(SLOW).tag(&tag);
        let (mut exchange, id) = client.begin(&chat);
        exchange.read(k);
        let left_at = now_ms();
        exchange.abandon();
        assert_closed_soon(&world.simulator.once_closed(&tag), left_at);
        let settled = assert_cancelled_partial(&world, &client, &chat, &id, &tag, k);
        assert_eq!(settled["on_disconnect"], "cancel", "{settled}");
        spent += settled["cost"]["settled_micros"].as_u64().expect("settled");
    }
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, spent, "{balance:?}");
}

#[test]
fn cancel_is_what_happens_where_nobody_has_chosen() {
    let (world, client) = world("default policy", Route::new("chat"));
    let tag = unique("default");
    let chat = Chat::stream(SLOW).tag(&tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(700);
    let left_at = now_ms();
    exchange.abandon();
    assert_closed_soon(&world.simulator.once_closed(&tag), left_at);
    assert_cancelled_partial(&world, &client, &chat, &id, &tag, 700);
}

#[test]
fn a_generation_goes_on_while_one_reader_is_left() {
    let (world, client) = world("one reader left", Route::new("chat").cancel());
    let tag = unique("left");
    let chat = Chat::stream("gen?tokens=60&interval_ms=15").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut second = client.read_from(&id, 0);
    assert_eq!(second.head().status, 200);
    exchange.read(400);
    exchange.abandon();
    assert_bytes!(second.finish().clean(), expected);
    world.simulator.assert_sent_everything(&tag);
    assert_completed(&client.wait_until_settled(&id), 12, 60);
}

#[test]
fn within_the_grace_a_reader_may_come_back() {
    let (world, client) = world("grace", Route::new("chat").cancel().with("grace_ms", 1_200));
    let tag = unique("back");
    let chat = Chat::stream("gen?tokens=150&interval_ms=15").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.read(900), &expected[..900]);
    exchange.abandon();
    wait_for("a generation without readers", || {
        let state = client.generation(&id);
        if state["lifecycle"] == "detached" { Ok(()) } else { Err(state.to_string()) }
    });
    assert_bytes!(client.read_all_from(&id, 900), &expected[900..]);
    world.simulator.assert_sent_everything(&tag);
    assert_completed(&client.wait_until_settled(&id), 12, 150);

    let tag = unique("gone");
    let chat = Chat::stream(SLOW).tag(&tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(900);
    let left_at = now_ms();
    exchange.abandon();
    let entry = world.simulator.once_closed(&tag);
    let closed_at = entry.closed_at_ms().expect("closed");
    assert!(closed_at >= left_at + 1_200, "closed {} ms after the client left", closed_at - left_at);
    assert_closed_soon(&entry, left_at + 1_200);
    assert_cancelled_partial(&world, &client, &chat, &id, &tag, 900);
}

#[test]
fn a_cancel_by_name_works_from_another_connection_and_counts_once() {
    let (world, client) = world("cancel by name", Route::new("report").detach());
    let tag = unique("by-name");
    let chat = Chat::stream(SLOW).tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut got = exchange.read(1_000);

    let asked_at = now_ms();
    let first = client.cancel(&id).expect(202);
    let second = client.cancel(&id).expect(202);
    assert_bytes!(first.body, second.body, "the same answer, byte for byte");
    let answer = first.json();
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(answer["object"], "generation.cancellation", "{answer}");
    assert_eq!(answer["effect"], "requested", "{answer}");
    let requested_at = answer["requested_at"].as_u64().expect("a time");
    assert!(requested_at + 1_000 >= asked_at && requested_at <= now_ms() + 1_000, "{answer}");

    assert_closed_soon(&world.simulator.once_closed(&tag), asked_at);
    got.extend(exchange.finish().clean());
    let broken = assert_broken(&got, &expected);
    assert!(broken.prefix_len >= 1_000);
    assert_cancelled_partial(&world, &client, &chat, &id, &tag, 1_000);
    assert_bytes!(client.read_all_from(&id, 0), got, "the client that was there got what is stored");

    let third = client.cancel(&id);
    assert_bytes!(third.body, first.body, "also when it is over: {}", third.text());
    client.wait_until_nothing_is_held();
}

#[test]
fn cancels_at_once_are_one() {
    let (world, client) = world("cancels at once", Route::new("report").detach());
    let tag = unique("at-once");
    let chat = Chat::stream(SLOW).tag(&tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(500);
    exchange.abandon();
    let together = Barrier::new(4);
    let answers: Vec<Vec<u8>> = std::thread::scope(|scope| {
        let callers: Vec<_> = (0..4)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    client.cancel(&id).expect(202).body
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a caller")).collect()
    });
    assert!(answers.iter().all(|answer| answer == &answers[0]), "{answers:?}");
    let settled = assert_cancelled_partial(&world, &client, &chat, &id, &tag, 500);
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(settled["cost"]["settled_micros"], balance.spent, "settled once: {balance:?}");
}

#[test]
fn a_cancel_before_the_providers_head_stops_the_wait() {
    let (world, client) = world("cancel before the head", Route::new("report").detach());
    let (tag, key) = (unique("headless"), unique("key"));
    let chat = Chat::stream("gen?tokens=5&headers_ms=10000").tag(&tag).idempotency_key(&key);
    let mut exchange = client.open(&chat);
    world.simulator.only(&tag);
    let id = client.id_by_idempotency_key(&key);
    let asked_at = now_ms();
    client.cancel(&id).expect(202);
    assert_closed_soon(&world.simulator.once_closed(&tag), asked_at);
    let head = exchange.head();
    let body = exchange.finish().clean();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("\"error\"") && !text.contains("[DONE]"), "{head:?}: {text}");
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "cancelled", "{settled}");
    assert_estimated(&settled);
    client.wait_until_nothing_is_held();
}

#[test]
fn a_cancel_after_the_end_changes_nothing() {
    let (world, client) = world("cancel after the end", Route::new("report").detach());
    let tag = unique("late");
    let chat = Chat::stream("gen?tokens=5").tag(&tag);
    let (mut exchange, id) = client.begin(&chat);
    let got = exchange.finish().clean();
    let before = client.wait_until_settled(&id);
    let answer = client.cancel(&id).expect(200).json();
    assert_eq!(answer["id"], id, "{answer}");
    assert_eq!(answer["object"], "generation.cancellation", "{answer}");
    assert_eq!(answer["effect"], "none", "{answer}");
    assert_eq!(answer.get("requested_at"), Some(&Value::Null), "{answer}");
    assert_eq!(client.generation(&id), before);
    assert_bytes!(client.read_all_from(&id, 0), got);
    world.simulator.assert_sent_everything(&tag);
}
