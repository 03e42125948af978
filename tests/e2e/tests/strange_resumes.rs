//! Streams that are taken up again at a provider that does not send the rest of what it began: each was found by an attack.

use std::time::Duration;

use holdfast_e2e::config::by_hand;
use holdfast_e2e::hand::{HandProvider, broken_stream, whole_stream};
use holdfast_e2e::jobs::job;
use holdfast_e2e::{Client, Options, Route, Tenant, World, unique, wait_for, wait_for_within};
use serde_json::{Value, json};

const ID: &str = "resp_1";

fn event(number: u64, kind: &str, more: &Value) -> String {
    let mut data = json!({ "type": kind, "sequence_number": number });
    for (name, value) in more.as_object().expect("members") {
        data[name] = value.clone();
    }
    format!("event: {kind}\ndata: {data}\n\n")
}

fn created(number: u64, id: &str) -> String {
    event(number, "response.created", &json!({ "response": { "id": id, "status": "in_progress" } }))
}

fn word(number: u64) -> String {
    event(number, "response.output_text.delta", &json!({ "delta": format!("w{number} ") }))
}

fn completed(number: u64, id: &str) -> String {
    let usage = json!({ "input_tokens": 5, "output_tokens": 10 });
    event(number, "response.completed", &json!({ "response": { "id": id, "status": "completed", "usage": usage } }))
}

/// The provider's stream breaks behind its third event; asked for the rest, it sends `rest`, and it answers no lookup.
/// Returns what the client got, and the generation.
fn taken_up(name: &str, rest: String) -> (String, Value) {
    let provider = HandProvider::start(move |asked| match asked.line.as_str() {
        "POST /v1/responses" => broken_stream(&[created(0, ID), word(1), word(2)].concat()),
        line if line.contains("stream=true") => whole_stream(&rest),
        _ => b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec(),
    });
    let route = Route::new("r").background(&by_hand("openai-responses")).detach();
    let route = route.with("lease_ms", 1_000).with("observation_ms", 500).with("total_ms", 20_000);
    let tenant = Tenant::new("acme").route(route.with("on_expiry", json!({ "credit": "settle_estimate" })));
    let world = World::start(&Options::new(name).tenant(&tenant).limit("batch_ms", 50).by_hand(&provider));
    let client = world.client(&tenant);
    let (mut exchange, id) = client.begin(&job("gpt-5", &unique(name)));
    let received = String::from_utf8(exchange.finish().bytes).expect("UTF-8");
    (received, client.wait_until_settled(&id))
}

fn assert_interrupted(received: &str, generation: &Value) {
    let begun = [created(0, ID), word(1), word(2)].concat();
    let rest = received.strip_prefix(&begun).unwrap_or_else(|| panic!("not the beginning: {received}"));
    assert!(rest.starts_with("event: error\n"), "spliced: {rest}");
    assert_ne!(generation["lifecycle"], "completed", "{generation}");
    assert_eq!(generation["usage"]["kind"], "at_least", "{generation}");
}

/// What came before all of it is nothing to compare: the rest is known by its numbers (invariant 9: each byte once).
#[test]
fn a_provider_that_begins_again_is_not_spliced() {
    let all = [created(0, ID), word(1), word(2), word(3), completed(4, ID)].concat();
    let (received, generation) = taken_up("begins again", all);
    assert_interrupted(&received, &generation);
}

#[test]
fn a_provider_that_leaves_events_out_is_not_spliced() {
    let (received, generation) = taken_up("leaves out", [word(7), completed(8, ID)].concat());
    assert_interrupted(&received, &generation);
}

/// Another operation's end and usage are no evidence of ours.
#[test]
fn the_stream_of_another_operation_is_not_spliced() {
    let (received, generation) = taken_up("another", [word(3), completed(4, "resp_2")].concat());
    assert_interrupted(&received, &generation);
}

/// A provider whose stream breaks, and that wishes to be asked for the rest after 200 s. Its cancels fail.
fn wishes_to_be_asked_later(name: &str) -> (World, Client, String) {
    let provider = HandProvider::start(|asked| {
        if asked.line == "POST /v1/responses" {
            return broken_stream(&[created(0, ID), word(1), word(2)].concat());
        }
        b"HTTP/1.1 503 Service Unavailable\r\nRetry-After: 200\r\nContent-Length: 0\r\n\r\n".to_vec()
    });
    let route = Route::new("r").background(&by_hand("openai-responses")).detach();
    let route = route.with("lease_ms", 1_000).with("observation_ms", 500).with("total_ms", 4_000);
    let tenant = Tenant::new("acme").route(route.with("on_expiry", json!({ "credit": "settle_estimate" })));
    let world = World::start(&Options::new(name).tenant(&tenant).limit("batch_ms", 50).by_hand(&provider));
    let client = world.client(&tenant);
    let (mut exchange, id) = client.begin(&job("gpt-5", &unique(name)));
    exchange.read(created(0, ID).len());
    wait_for("a broken stream", || {
        let state = client.generation(&id)["upstream"]["state"].clone();
        if state == "unknown" { Ok(()) } else { Err(state.to_string()) }
    });
    (world, client, id)
}

fn assert_ends_soon(client: &Client, id: &str) {
    wait_for_within(Duration::from_secs(15), "the end", || match client.generation(id) {
        generation if generation["settled"] == true => Ok(()),
        generation => Err(generation.to_string()),
    });
}

/// The stream is taken up within `total_ms` only: a later wish is none that is waited for.
#[test]
fn a_wish_to_resume_beyond_the_total_time_is_not_waited_for() {
    let (_world, client, id) = wishes_to_be_asked_later("wish to resume");
    assert_ends_soon(&client, &id);
}

/// Who wants it stopped does not wait for a stream that nobody wants any more.
#[test]
fn a_cancel_ends_the_wait_for_a_resume() {
    let (_world, client, id) = wishes_to_be_asked_later("cancel a wait");
    client.cancel(&id).expect(202);
    assert_ends_soon(&client, &id);
}
