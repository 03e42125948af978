//! Calls that are repeated after an answer of a gateway: each was found by an attack.

use std::sync::atomic::{AtomicUsize, Ordering};

use holdfast_e2e::config::by_hand;
use holdfast_e2e::hand::HandProvider;
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_estimated, wait_for_within};
use serde_json::json;
use std::sync::Arc;
use std::time::Duration;

/// A provider whose gateway answers the first `times` calls, and the calls so far.
fn behind_a_gateway(times: usize, headers: &'static str) -> (HandProvider, Arc<AtomicUsize>) {
    let calls = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&calls);
    let provider = HandProvider::start(move |_| {
        let nth = counted.fetch_add(1, Ordering::SeqCst);
        let (status, kind, body) = if nth < times {
            ("503 Service Unavailable", "text/plain", "no healthy upstream".to_owned())
        } else {
            ("200 OK", "application/json", answer())
        };
        let length = body.len();
        let head = format!("HTTP/1.1 {status}\r\nContent-Type: {kind}\r\n{headers}Content-Length: {length}\r\n\r\n");
        (head + &body).into_bytes()
    });
    (provider, calls)
}

fn answer() -> String {
    let choice = json!({ "index": 0, "message": { "role": "assistant", "content": "hi" }, "finish_reason": "stop" });
    json!({ "id": "c", "choices": [choice], "usage": { "prompt_tokens": 5, "completion_tokens": 1 } }).to_string()
}

fn world(name: &str, provider: &HandProvider, total_ms: u64) -> (World, Client) {
    let route = Route::new("r").by(&by_hand("openai-chat")).detach().quick_recovery();
    let route = route.with("on_interruption", "retry").with("total_ms", total_ms);
    let tenant = Tenant::new("acme").route(route.with("first_byte_ms", total_ms.min(5_000)));
    let world = World::start(&Options::new(name).tenant(&tenant).by_hand(provider));
    let client = world.client(&tenant);
    (world, client)
}

/// Fault 13: what is not handed on is not kept either. The client has the answer that is read on, and nothing before it.
#[test]
fn an_answer_that_is_repeated_leaves_nothing_in_the_log() {
    for times in [1, 2] {
        let (provider, calls) = behind_a_gateway(times, "");
        let (_world, client) = world("behind a gateway", &provider, 60_000);
        let reply = client.chat(&Chat::complete("gpt-5"));
        assert_eq!((reply.status, reply.text()), (200, answer()), "after {times}");
        assert_eq!(calls.load(Ordering::SeqCst), times + 1);
        let id = reply.required("x-generation-id").to_owned();
        assert_eq!(client.wait_until_settled(&id)["lifecycle"], "completed");
        assert_eq!(client.result(&id).text(), answer());
    }
}

/// The last of three answers is handed on as it came.
#[test]
fn the_last_answer_of_a_gateway_is_handed_on_alone() {
    let (provider, calls) = behind_a_gateway(9, "");
    let (_world, client) = world("a gateway alone", &provider, 60_000);
    let reply = client.chat(&Chat::complete("gpt-5"));
    assert_eq!((reply.status, reply.text()), (503, "no healthy upstream".to_owned()));
    assert_eq!(calls.load(Ordering::SeqCst), 3, "three attempts");
    assert_estimated(&client.wait_until_settled(reply.required("x-generation-id")));
}

/// A wish to be asked again after the route's time is over is no reason to keep the client, its hold and its slot.
#[test]
fn a_wish_beyond_the_total_time_ends_it() {
    let (provider, _calls) = behind_a_gateway(9, "Retry-After: 200\r\n");
    let (_world, client) = world("beyond the total", &provider, 3_000);
    let chat = Chat::complete("gpt-5").idempotency_key("beyond");
    let mut exchange = client.open(&chat);
    wait_for_within(Duration::from_secs(15), "the end of the hold", || match client.balance() {
        balance if balance.held == 0 && balance.spent > 0 => Ok(()),
        balance => Err(format!("{balance:?}")),
    });
    assert_eq!(exchange.head().status, 503);
}

/// Nothing runs between two attempts: who cancels then has cancelled.
#[test]
fn a_cancel_between_two_attempts_ends_it_at_once() {
    let (provider, calls) = behind_a_gateway(9, "Retry-After: 100\r\n");
    let (_world, client) = world("between", &provider, 600_000);
    let _exchange = client.open(&Chat::complete("gpt-5").idempotency_key("between"));
    wait_for_within(Duration::from_secs(10), "the first answer", || match calls.load(Ordering::SeqCst) {
        0 => Err("no call".to_owned()),
        _ => Ok(()),
    });
    let id = client.id_by_idempotency_key("between");
    wait_for_within(Duration::from_secs(10), "the wait for the next attempt", || {
        let state = client.generation(&id)["upstream"]["state"].clone();
        if state == "unknown" { Ok(()) } else { Err(state.to_string()) }
    });
    client.cancel(&id).expect(202);
    wait_for_within(Duration::from_secs(10), "the end of the hold", || match client.balance() {
        balance if balance.held == 0 => Ok(()),
        balance => Err(format!("{balance:?}")),
    });
    assert_eq!(client.generation(&id)["lifecycle"], "cancelled");
}

/// What a gateway has said about a request for the background is no part of its answer: the outcome is open.
#[test]
fn an_answer_that_leaves_the_outcome_open_is_not_handed_on_in_part() {
    let (provider, _calls) = behind_a_gateway(9, "");
    let route = Route::new("r").background(&by_hand("openai-responses")).detach();
    let route = route.with("lease_ms", 1_000).with("observation_ms", 500).with("total_ms", 20_000);
    let tenant = Tenant::new("acme").route(route.with("on_expiry", json!({ "credit": "settle_estimate" })));
    let world = World::start(&Options::new("open").tenant(&tenant).by_hand(&provider));
    let reply = world.client(&tenant).chat(&holdfast_e2e::jobs::job("gpt-5", "open"));
    let whole = serde_json::from_str::<serde_json::Value>(&reply.text()).is_ok();
    assert!(whole || reply.text() == "no healthy upstream", "{} {}", reply.status, reply.text());
}
