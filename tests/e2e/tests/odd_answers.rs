//! Answers that no provider should give, and readers that no client should be: each was found by an attack.

use holdfast_e2e::config::by_hand;
use holdfast_e2e::hand::HandProvider;
use holdfast_e2e::sse::assert_broken;
use holdfast_e2e::{
    Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, unique,
};

fn start(name: &str, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route);
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn owners() -> [(&'static str, Route); 2] {
    [("object", Route::new("r").detach()), ("edge", Route::new("r").detach().edge_owned().with("total_ms", 20_000))]
}

/// A redirect is not followed by anybody: not by the way out, not between edge and object, not by the client.
#[test]
fn a_redirect_is_a_bad_gateway_and_is_released() {
    for (owner, route) in owners() {
        let (world, client) = start(&format!("redirect, {owner}"), route);
        for status in [301, 302, 307, 308] {
            for complete in [true, false] {
                let model = format!("gen?status={status}&location=http://127.0.0.1:9/");
                let tag = unique("redirect");
                let chat = if complete { Chat::complete(&model) } else { Chat::stream(&model) }.tag(&tag);
                let reply = client.chat(&chat);
                reply.assert_envelope(502, "upstream_failed");
                let id = reply.required("x-generation-id").to_string();
                let settled = client.wait_until_settled(&id);
                assert_eq!(settled["reason"], "provider_refused", "{settled}");
                assert_eq!(settled["settlement"], "released", "{settled}");
                assert_bytes!(client.result(&id).body, reply.body);
                assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
            }
        }
        assert_eq!(client.wait_until_nothing_is_held().spent, 0);
    }
}

/// A reader that names bytes which were never there is told at once: it would hold a place, and nobody would see it leave.
#[test]
fn a_reader_beyond_a_running_log_is_refused_at_once() {
    let (world, client) = start("beyond", Route::new("r").detach());
    let chat = Chat::stream("gen?tokens=120&interval_ms=15").tag(&unique("beyond"));
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(600);
    for _ in 0..70 {
        let beyond = client.get(&format!("/v1/generations/{id}/stream?offset=99999999"));
        beyond.assert_problem(409, "beyond_end");
        assert!(beyond.json()["log_length"].as_u64() >= Some(600), "{}", beyond.text());
    }
    assert_eq!(client.generation(&id)["connection"]["readers"], 1);
    assert_bytes!(client.read_all_from(&id, 100), &expected[100..]);
}

/// What says that it is compressed and is not can be read by nobody (fault 25): no answer, charged by its bound.
#[test]
fn an_answer_that_is_not_compressed_as_it_says_is_a_bad_gateway() {
    let provider = HandProvider::start(|_| {
        let head =
            "HTTP/1.1 200 OK\r\nContent-Type: application/json\r\nContent-Encoding: gzip\r\nContent-Length: 2\r\n\r\n";
        [head.as_bytes(), b"{}"].concat()
    });
    for (owner, route) in owners() {
        let tenant = Tenant::new("acme").route(route.by(&by_hand("openai-chat")));
        let world = World::start(&Options::new(&format!("not gzip, {owner}")).tenant(&tenant).by_hand(&provider));
        let client = world.client(&tenant);
        let reply = client.chat(&Chat::complete("gpt-5"));
        assert_eq!(reply.status, 502, "{}", reply.text());
        assert_estimated(&client.wait_until_settled(reply.required("x-generation-id")));
        client.wait_until_nothing_is_held();
    }
}

/// Silence means that no byte comes, not that no event is whole: half an event and half a plain answer are signs of life.
#[test]
fn an_event_or_an_answer_that_comes_slowly_is_not_silence() {
    for (owner, route) in owners() {
        let (world, client) = start(&format!("slow event, {owner}"), route.with("idle_ms", 1_000));
        let slow = Chat::stream("gen?tokens=1&split=20&gap_ms=180").tag(&unique("slow"));
        let (mut exchange, id) = client.begin(&slow);
        assert_bytes!(exchange.finish().clean(), world.simulator.expected(&slow));
        assert_completed(&client.wait_until_settled(&id), 12, 1);

        let plain = Chat::complete("gen?tokens=3&split=60&gap_ms=200").tag(&unique("plain"));
        let reply = client.chat(&plain).expect(200);
        assert_bytes!(reply.body, world.simulator.expected(&plain));
    }
}

/// What is not kept is deleted; the reader who is there still hears how it ended.
#[test]
fn a_reader_hears_of_a_cancel_that_keeps_nothing() {
    let (world, client) = start("nothing kept", Route::new("r").cancel().with("keep_partial", false));
    let chat = Chat::stream("gen?tokens=400&interval_ms=10").tag(&unique("nothing"));
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut got = exchange.read(900);
    client.cancel(&id).expect(202);
    got.extend(exchange.finish().clean());
    let broken = assert_broken(&got, &expected);
    assert!(broken.prefix_len >= 900, "{broken:?}");
    client.result(&id).assert_problem(410, "content_deleted");
}

/// A retry under the same key after the provider's 429 reaches the provider: nothing was executed under it.
#[test]
fn a_key_whose_request_was_refused_may_try_again() {
    let (world, client) = start("refused key", Route::new("r").detach());
    let tag = unique("refused");
    let chat = Chat::stream("gen?status=429&retry_after=1").tag(&tag).idempotency_key("again");
    for calls in 1..=3 {
        let reply = client.chat(&chat).expect(429);
        assert_eq!(reply.header("retry-after"), Some("1"));
        client.wait_until_settled(reply.required("x-generation-id"));
        assert_eq!(world.simulator.log(&tag).len(), calls);
    }
    assert_eq!(client.wait_until_nothing_is_held().spent, 0);
}
