//! Bounds that are reached have a named error, and leave nothing held.

use std::io::{Read, Write};
use std::net::TcpStream;

use holdfast_e2e::sse::assert_broken;
use holdfast_e2e::{
    Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, unique, wait_for,
};

fn start(name: &str, route: Route, limit: &str, value: u64) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route);
    let world = World::start(&Options::new(name).tenant(&tenant).limit(limit, value));
    let client = world.client(&tenant);
    (world, client)
}

#[test]
fn an_answer_over_its_bound_is_cut_off() {
    for (owner, route) in [("object", Route::new("r")), ("edge", Route::new("r").edge_owned().with("total_ms", 20_000))]
    {
        let (world, client) = start(&format!("answer bound, {owner}"), route.detach(), "generation_max_bytes", 6_000);
        let tag = unique("large");
        let chat = Chat::stream("gen?tokens=500&interval_ms=3").tag(&tag);
        let expected = world.simulator.expected(&chat);
        let (mut exchange, id) = client.begin(&chat);
        let got = exchange.finish().clean();
        let broken = assert_broken(&got, &expected);
        assert!(broken.prefix_len <= 6_000 && broken.prefix_len > 3_000, "{broken:?}");
        assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed");
        let settled = client.wait_until_settled(&id);
        assert_eq!(settled["lifecycle"], "failed", "{settled}");
        assert_eq!(settled["reason"], "output_too_large", "{settled}");
        assert_estimated(&settled);
        assert_bytes!(client.read_all_from(&id, 0), got);
        client.wait_until_nothing_is_held();
    }
}

#[test]
fn one_reader_too_many_is_refused_and_disturbs_nobody() {
    let (world, client) = start("readers bound", Route::new("r").detach(), "readers_max", 3);
    let chat = Chat::stream("gen?tokens=80&interval_ms=15").tag(&unique("readers"));
    let expected = world.simulator.expected(&chat);
    let (mut first, id) = client.begin(&chat);
    let mut others = [client.read_from(&id, 0), client.read_from(&id, 100)];
    for other in &mut others {
        assert_eq!(other.head().status, 200);
    }
    client.get(&format!("/v1/generations/{id}/stream?offset=0")).assert_problem(429, "too_many_readers");
    let [from_start, from_100] = others;
    from_100.abandon();
    wait_for("room for a reader", || {
        let mut again = client.read_from(&id, 7);
        match again.head().status {
            200 => {
                assert_bytes!(again.finish().clean(), &expected[7..]);
                Ok(())
            }
            status => Err(status.to_string()),
        }
    });
    let mut from_start = from_start;
    assert_bytes!(from_start.finish().clean(), expected);
    assert_bytes!(first.finish().clean(), expected);
    assert_completed(&client.wait_until_settled(&id), 12, 80);
}

#[test]
fn past_retention_the_output_is_gone_and_the_record_stays() {
    let (world, client) = start("retention", Route::new("r").detach().with("retention_s", 1), "readers_max", 64);
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=5").idempotency_key("kept"));
    exchange.finish().clean();
    let before = client.wait_until_settled(&id);
    wait_for("output that is deleted", || {
        let reply = client.get(&format!("/v1/generations/{id}/stream?offset=0"));
        if reply.status == 410 { Ok(()) } else { Err(format!("{} after {before}", reply.status)) }
    });
    client.result(&id).assert_problem(410, "content_deleted");
    client.get(&format!("/v1/generations/{id}/stream")).assert_problem(410, "content_deleted");
    let after = client.generation(&id);
    assert_completed(&after, 12, 5);
    assert_eq!(after["log"]["length"], before["log"]["length"], "{after}");
    world.kill();
    world.restart();
    for offset in [0, 3, 99_999] {
        let gone = client.get(&format!("/v1/generations/{id}/stream?offset={offset}"));
        gone.assert_problem(410, "content_deleted");
    }
    assert_completed(&client.generation(&id), 12, 5);
}

#[test]
fn a_partial_that_is_not_kept_is_gone_and_paid() {
    let (world, client) = start("partial", Route::new("r").cancel().with("keep_partial", false), "readers_max", 64);
    let tag = unique("partial");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=300&interval_ms=15").tag(&tag));
    exchange.read(900);
    exchange.abandon();
    assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed");
    let settled = client.wait_until_settled(&id);
    assert_eq!(settled["lifecycle"], "cancelled", "{settled}");
    assert_estimated(&settled);
    client.result(&id).assert_problem(410, "content_deleted");
}

/// Sends these bytes and closes the connection, or reads the whole answer if `wait` is set.
fn raw(client: &Client, bytes: &[u8], wait: bool) -> String {
    let mut stream = TcpStream::connect(("127.0.0.1", client.port())).expect("a connection");
    stream.write_all(bytes).expect("bytes are taken");
    let mut answer = String::new();
    if wait {
        // The server may reset a connection whose request it has refused; what came before counts.
        let _ = stream.read_to_string(&mut answer);
    }
    answer
}

fn head(client: &Client, framing: &str) -> String {
    format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer {}\r\n\
         Content-Type: application/json\r\nConnection: close\r\n{framing}\r\n\r\n",
        client.key()
    )
}

#[test]
fn a_request_that_breaks_off_in_its_body_leaves_nothing_held() {
    let (world, client) = start("broken body", Route::new("r").detach(), "body_max_bytes", 4_096);
    let tag = unique("broken");
    let body = format!("{{\"model\":\"gen?tag={tag}\",\"messages\":[{{\"role\":\"user\",\"content\":\"hi\"}}]}}");
    let chunk = format!("{:x}\r\n{body}\r\n", body.len());
    for (framing, sent) in [
        ("Content-Length: 500".to_owned(), body.as_str()),
        (format!("Content-Length: {}", body.len() + 1), body.as_str()),
        ("Transfer-Encoding: chunked".to_owned(), chunk.as_str()),
        ("Transfer-Encoding: chunked".to_owned(), &chunk[..chunk.len() / 2]),
        ("Content-Length: 10".to_owned(), ""),
    ] {
        raw(&client, format!("{}{sent}", head(&client, &framing)).as_bytes(), false);
    }
    // A request that comes after them is served, so they have been seen.
    client.chat(&Chat::stream("gen?tokens=3")).expect(200);
    world.simulator.assert_never_called(&tag);
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, holdfast_e2e::price_micros(12, 3), "{balance:?}");
}

#[test]
fn a_chunked_body_is_bounded_too() {
    let (world, client) = start("chunked body", Route::new("r").detach(), "body_max_bytes", 4_096);
    let tag = unique("chunked");
    let body = |padding: usize| {
        let content = "x".repeat(padding);
        let body =
            format!("{{\"model\":\"gen?tag={tag}\",\"messages\":[{{\"role\":\"user\",\"content\":\"{content}\"}}]}}");
        format!("{}{:x}\r\n{body}\r\n0\r\n\r\n", head(&client, "Transfer-Encoding: chunked"), body.len())
    };
    let refused = raw(&client, body(20_000).as_bytes(), true);
    assert!(refused.starts_with("HTTP/1.1 413") && refused.contains("body_too_large"), "{refused}");
    world.simulator.assert_never_called(&tag);
    assert_eq!(client.balance().slots, 0);
    let taken = raw(&client, body(100).as_bytes(), true);
    assert!(taken.starts_with("HTTP/1.1 200"), "{taken}");
    client.wait_until_nothing_is_held();
}

#[test]
fn odd_idempotency_keys_are_refused_or_work() {
    let (_world, client) = start("odd keys", Route::new("r").detach(), "readers_max", 64);
    let long = "k".repeat(5_000);
    for key in ["\"", "\"\"", "a b", "\"a b\"", "ключ", "a,b", "%41", &long] {
        let chat = Chat::complete("gen?tokens=3").idempotency_key(key);
        let (first, second) = (client.chat(&chat), client.chat(&chat));
        assert_eq!(first.status, second.status, "{key}");
        if first.status == 200 {
            assert_eq!(first.required("x-generation-id"), second.required("x-generation-id"), "{key}");
        } else {
            first.assert_envelope(400, "invalid_idempotency_key");
        }
    }
    client.wait_until_nothing_is_held();
}
