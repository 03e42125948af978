//! What was deleted, or never kept, and is asked for again. No reader may take it for an outage: SDKs repeat those, and
//! each repeat without a key is another call.

use holdfast_e2e::http::{Exchange, Head};
use holdfast_e2e::sse::{assert_broken, events};
use holdfast_e2e::{
    Chat, Client, Options, Reply, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, unique,
    wait_for,
};
use serde_json::Value;

fn start(name: &str, routes: &[Route]) -> (World, Client) {
    let tenant = routes.iter().cloned().fold(Tenant::new("acme"), Tenant::route);
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn owners() -> [(&'static str, Route); 2] {
    // The edge's driver shows life three times in a lease: so soon it hears of a cancel.
    let edge = Route::new("r").edge_owned().quick_recovery().with("total_ms", 20_000);
    [("object", Route::new("r")), ("edge", edge)]
}

/// The names of the generation stand on the answer: what is left of it can be looked up.
fn assert_names(header: impl Fn(&str) -> Option<String>, generation: &Value) {
    let id = generation["id"].as_str().expect("an id");
    assert_eq!(header("x-generation-id").as_deref(), Some(id));
    assert_eq!(header("x-reservation-id").as_deref(), generation["reservation_id"].as_str());
    assert_eq!(header("location"), Some(format!("/v1/generations/{id}")));
}

/// The request again, under its key: told for good that its output is gone, in the envelope that its SDK raises from.
fn assert_gone(client: &Client, chat: &Chat, generation: &Value) {
    let reply: Reply = client.chat(chat);
    reply.assert_envelope(410, "content_deleted");
    assert_eq!(reply.json()["error"]["type"], "invalid_request_error");
    assert_eq!(reply.header("content-type"), Some("application/json"));
    assert_eq!(reply.header("retry-after"), None, "it never comes back");
    assert_names(|name| reply.header(name).map(str::to_owned), generation);
}

/// "Same key, same body: … replay the finished one" (design 10), and "past retention is a 410 that points to the result or
/// the evidence": also for who repeats the request itself.
#[test]
fn a_key_whose_output_is_past_its_retention_is_told_so() {
    for (owner, route) in owners() {
        let routes = [0, 1].map(|retention_s| {
            let route = route.clone().detach().with("name", format!("kept-{retention_s}-s"));
            route.with("retention_s", retention_s).for_model(if retention_s == 0 { "sim-*" } else { "gen*" })
        });
        let (world, client) = start(&format!("past retention, {owner}"), &routes);
        for chat in [Chat::stream("gen?tokens=5"), Chat::complete("gen?tokens=5"), Chat::complete("sim-x?tokens=5")] {
            let tag = unique("kept");
            let chat = chat.tag(&tag).idempotency_key(&unique("key"));
            let first = client.chat(&chat).expect(200);
            assert_bytes!(first.body, world.simulator.expected(&chat));
            let id = first.required("x-generation-id");
            wait_for("output that is deleted", || {
                let reply = client.result(id);
                if reply.status == 410 { Ok(()) } else { Err(reply.status.to_string()) }
            });
            let settled = client.wait_until_settled(id);
            assert_completed(&settled, 12, 5);
            assert_eq!(settled["log"]["deleted"], true, "{settled}");
            let before = client.balance();
            for _ in 0..2 {
                assert_gone(&client, &chat, &settled);
            }
            world.kill();
            world.restart();
            assert_gone(&client, &chat, &settled);
            assert_eq!(world.simulator.log(&tag).len(), 1, "one call, however often it is asked for");
            assert_eq!(client.balance(), before, "nothing is held or paid for it");
        }
    }
}

/// A client that left a route which keeps no partials, and comes back with its key.
#[test]
fn a_key_whose_partial_was_not_kept_is_told_so() {
    for (owner, route) in owners() {
        let route = route.cancel().with("keep_partial", false);
        let (world, client) = start(&format!("partial not kept, {owner}"), &[route]);
        let tag = unique("partial");
        let chat = Chat::stream("gen?tokens=400&interval_ms=15").tag(&tag).idempotency_key(&unique("key"));
        let (mut exchange, id) = client.begin(&chat);
        exchange.read(900);
        exchange.abandon();
        assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed");
        let settled = client.wait_until_settled(&id);
        assert_eq!((&settled["lifecycle"], &settled["log"]["deleted"]), (&"cancelled".into(), &true.into()));
        let charged = assert_estimated(&settled);
        for _ in 0..2 {
            assert_gone(&client, &chat, &settled);
        }
        assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
        assert_eq!(client.wait_until_nothing_is_held().spent, charged);
    }
}

/// The head and the body of an answer that is no 200.
fn answer(mut exchange: Exchange) -> (Head, Vec<u8>) {
    let head = exchange.head();
    (head, exchange.finish().clean())
}

/// Who waits for the head while a cancel keeps nothing hears how it ended: whoever started it, joined it or reads along.
#[test]
fn who_waits_for_the_head_hears_of_a_cancel_that_keeps_nothing() {
    for (owner, route) in owners() {
        let route = route.detach().with("keep_partial", false);
        let (world, client) = start(&format!("cancelled before the head, {owner}"), &[route]);
        for chat in [Chat::stream("gen?tokens=5&headers_ms=30000"), Chat::complete("gen?tokens=5&headers_ms=30000")] {
            let (tag, key) = (unique("headless"), unique("key"));
            let chat = chat.tag(&tag).idempotency_key(&key);
            let first = client.open(&chat);
            world.simulator.only(&tag);
            let id = client.id_by_idempotency_key(&key);
            let waiting = [first, client.open(&chat), client.read_from(&id, 0)];
            let events_too = client.read_events(&id, None);
            wait_for("four readers", || match client.generation(&id)["connection"]["readers"].as_u64() {
                Some(4) => Ok(()),
                other => Err(format!("{other:?}")),
            });
            client.cancel(&id).expect(202);

            let answers = waiting.map(answer);
            let (_, stored) = &answers[0];
            let error: Value = serde_json::from_slice(stored).expect("an envelope");
            assert_eq!(error["error"]["code"], "generation_cancelled", "{owner}: {error}");
            let generation = client.wait_until_settled(&id);
            for (head, body) in &answers {
                assert_eq!(head.status, 409, "{owner}: {head:?}");
                assert_eq!(head.header("content-type"), Some("application/json"), "{owner}");
                assert_eq!(head.header("x-should-retry"), Some("false"), "{owner}: it is not to be run again");
                assert_names(|name| head.header(name).map(str::to_owned), &generation);
                assert_bytes!(body, stored, "{owner}: the same bytes for everybody");
            }
            let (head, body) = answer(events_too);
            assert_eq!((head.status, head.header("content-type")), (200, Some("text/event-stream")), "{owner}");
            let [event, end] = events(&body).try_into().expect("the body and the end");
            assert_eq!((event.name.as_str(), event.data.as_bytes()), ("holdfast.body", stored.as_slice()), "{owner}");
            assert_eq!(end.name, "holdfast.end", "{owner}");
            assert_eq!(end.data, format!(r#"{{"lifecycle":"cancelled","log_length":{}}}"#, stored.len()), "{owner}");

            // Whoever comes afterwards finds it deleted.
            assert_eq!(generation["lifecycle"], "cancelled", "{generation}");
            assert_eq!(generation["log"]["deleted"], true, "{generation}");
            assert_estimated(&generation);
            client.result(&id).assert_problem(410, "content_deleted");
            assert_gone(&client, &chat, &generation);
            assert_eq!(world.simulator.log(&tag).len(), 1, "{owner}: one call");
        }
        client.wait_until_nothing_is_held();
    }
}

/// The same in mid-stream, for a reader who joined by the key.
#[test]
fn who_joined_hears_of_a_cancel_that_keeps_nothing() {
    for (owner, route) in owners() {
        let (world, client) = start(&format!("joined, {owner}"), &[route.detach().with("keep_partial", false)]);
        let tag = unique("joined");
        let chat = Chat::stream("gen?tokens=400&interval_ms=15").tag(&tag).idempotency_key(&unique("key"));
        let expected = world.simulator.expected(&chat);
        let (mut first, id) = client.begin(&chat);
        let (mut joined, same) = client.begin(&chat);
        assert_eq!(same, id);
        let mut got = [first.read(900), joined.read(900)];
        client.cancel(&id).expect(202);
        got[0].extend(first.finish().clean());
        got[1].extend(joined.finish().clean());
        for bytes in &got {
            let broken = assert_broken(bytes, &expected);
            assert_eq!(broken.code, "generation_cancelled", "{owner}");
        }
        assert_bytes!(&got[1], &got[0], "{owner}: all get the same");
        let settled = client.wait_until_settled(&id);
        assert_gone(&client, &chat, &settled);
        assert_eq!(world.simulator.log(&tag).len(), 1, "{owner}: one call");
    }
}
