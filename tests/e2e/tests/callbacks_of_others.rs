//! Signed callbacks that are none of ours, or none at all: each was found by an attack.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use holdfast_e2e::callback::Callback;
use holdfast_e2e::config::{CALLING_PROVIDER, by_hand};
use holdfast_e2e::hand::{HandProvider, broken_stream};
use holdfast_e2e::jobs::job;
use holdfast_e2e::{Client, Options, Route, Tenant, World, price_micros, unique, wait_for, wait_for_within};
use serde_json::json;

fn door(name: &str) -> (World, Client) {
    let world = World::start(&Options::new(name).tenant(&Tenant::new("acme").route(Route::new("r"))));
    let client = world.client_with_key("nobody");
    (world, client)
}

fn with(body: &str) -> Callback {
    Callback::new("acme", CALLING_PROVIDER, "evt_1", "completed", "resp_1").body(body)
}

/// What an event of another kind has in it is nobody's business here: refused, its sender would send it for three days.
#[test]
fn events_of_other_kinds_are_passed_over_whatever_they_hold() {
    let (_world, client) = door("other kinds");
    for body in [
        r#"{"id":"evt_1","type":"batch.completed","data":5}"#,
        r#"{"id":"evt_1","type":"batch.completed","data":"batch_1"}"#,
        r#"{"id":"evt_1","type":"batch.completed","data":[{"id":"batch_1"}]}"#,
        r#"{"id":"evt_1","type":"batch.completed","data":{"id":7}}"#,
        r#"{"id":1,"type":"batch.completed","data":{"id":"batch_1"}}"#,
    ] {
        assert_eq!(with(body).taken(&client), ("passed_over".into(), None), "{body}");
    }
}

/// An event is an object: a list of its values is none.
#[test]
fn a_list_is_no_event() {
    let (_world, client) = door("lists");
    for body in [
        r#"["evt_1","response.completed",["resp_1"]]"#,
        r#"["evt_1","response.completed",{"id":"resp_1"}]"#,
        r#"{"id":"evt_1","type":"response.completed","data":["resp_1"]}"#,
    ] {
        with(body).send(&client).assert_problem(400, "invalid_request");
    }
}

/// A failure is told by a callback, and what it used by the provider, once it is asked: it costs that, and not the whole
/// hold.
fn failure_is_asked_about(name: &str, observation_ms: u64, settlement: &str) {
    let told = Arc::new(AtomicBool::new(false));
    let tells = Arc::clone(&told);
    let provider = HandProvider::start(move |asked| {
        if asked.line == "POST /v1/responses" {
            let response = json!({ "id": "resp_1", "status": "in_progress" });
            let begun = json!({ "type": "response.created", "sequence_number": 0, "response": response });
            let word = json!({ "type": "response.output_text.delta", "sequence_number": 1, "delta": "a" });
            return broken_stream(&format!(
                "event: response.created\ndata: {begun}\n\nevent: response.output_text.delta\ndata: {word}\n\n"
            ));
        }
        if asked.line != "GET /v1/responses/resp_1" || !tells.load(Ordering::SeqCst) {
            return b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n".to_vec();
        }
        let usage = json!({ "input_tokens": 5, "output_tokens": 7 });
        let body = json!({ "id": "resp_1", "status": "failed", "error": { "code": "x" }, "usage": usage }).to_string();
        format!("HTTP/1.1 200 OK\r\nContent-Length: {}\r\n\r\n{body}", body.len()).into_bytes()
    });
    let calling = by_hand("openai-responses");
    let route = Route::new("r").background(&calling).detach().with("lease_ms", 1_000);
    let tenant = Tenant::new("acme").route(route.with("observation_ms", observation_ms));
    let world = World::start(&Options::new(name).tenant(&tenant).limit("batch_ms", 50).by_hand(&provider));
    let client = world.client(&tenant);
    let (_exchange, id) = client.begin(&job("gpt-5", &unique(name)));
    wait_for("an open outcome", || {
        let generation = client.generation(&id);
        let open = generation["upstream"]["state"] == "unknown" && generation["settlement"] == settlement;
        if open { Ok(()) } else { Err(generation.to_string()) }
    });
    told.store(true, Ordering::SeqCst);
    let failed = Callback::new("acme", &calling, "evt_1", "failed", "resp_1");
    assert_eq!(failed.taken(&world.client_with_key("nobody")).0, "handled");
    wait_for_within(Duration::from_secs(15), "the cost of what it used", || {
        let generation = client.generation(&id);
        let exact = generation["cost"]["settled_micros"] == price_micros(5, 7);
        if exact { Ok(()) } else { Err(generation.to_string()) }
    });
}

#[test]
fn a_failure_that_is_called_back_in_time_is_asked_about() {
    failure_is_asked_about("failed in time", 30_000, "pending");
}

#[test]
fn a_failure_that_is_called_back_late_is_asked_about() {
    failure_is_asked_about("failed late", 300, "expired");
}
