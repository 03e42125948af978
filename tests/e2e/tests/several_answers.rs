//! Several answers to one request, of which one has ended and another is cut: each was found by an attack.

use holdfast_e2e::config::by_hand;
use holdfast_e2e::hand::{HandProvider, broken_stream};
use holdfast_e2e::{Api, Chat, Options, Route, Tenant, World, assert_estimated};
use serde_json::{Value, json};

const LONG: usize = 4_000;

/// A provider that sends these events and is cut; a request for two answers. Returns what the client got, and the
/// generation.
fn cut(name: &str, api: Api, events: &[Value]) -> (String, Value) {
    let stream: String = events.iter().map(|event| format!("data: {event}\n\n")).collect();
    let provider = HandProvider::start(move |_| broken_stream(&stream));
    let route = Route::new("r").by(&by_hand(api.dialect())).detach();
    let tenant = Tenant::new("acme").route(route);
    let world = World::start(&Options::new(name).tenant(&tenant).by_hand(&provider));
    let client = world.client(&tenant);
    let chat = Chat::of(api, "gpt-5", true);
    let chat = match api {
        Api::Gemini => chat.field("generationConfig", json!({ "candidateCount": 2 })),
        _ => chat.field("n", 2),
    };
    let (mut exchange, id) = client.begin(&chat);
    let received = String::from_utf8(exchange.finish().bytes).expect("UTF-8");
    (received, client.wait_until_settled(&id))
}

fn assert_cut(received: &str, generation: &Value) {
    assert!(received.contains("upstream_interrupted"), "no error at the end: {received}");
    assert_eq!(generation["reason"], "upstream_interrupted", "{generation}");
    assert_estimated(generation);
    let output = generation["usage"]["output_tokens"].as_u64().expect("a count");
    assert!(output >= LONG as u64, "{output} for {LONG} bytes: {generation}");
}

fn choice(index: u32, text: &str, ended: bool) -> Value {
    let reason = if ended { json!("stop") } else { Value::Null };
    json!({ "id": "c", "choices": [{ "index": index, "delta": { "content": text }, "finish_reason": reason }] })
}

fn candidate(index: u32, text: &str, ended: bool) -> Value {
    let mut candidate = json!({ "index": index, "content": { "role": "model", "parts": [{ "text": text }] } });
    if ended {
        candidate["finishReason"] = "STOP".into();
    }
    json!({ "candidates": [candidate] })
}

/// Some providers tell the usage so far with every event: it is terminal when all have ended.
#[test]
fn usage_at_the_end_of_one_choice_is_not_terminal() {
    let mut ended = choice(0, "a", true);
    ended["usage"] = json!({ "prompt_tokens": 5, "completion_tokens": 1 });
    let (received, generation) = cut("choices", Api::Chat, &[ended, choice(1, &"b".repeat(LONG), false)]);
    assert_cut(&received, &generation);
}

#[test]
fn usage_at_the_end_of_one_candidate_is_not_terminal() {
    let usage = |output: u64| json!({ "promptTokenCount": 5, "candidatesTokenCount": output });
    let mut both = [candidate(0, "a", false), candidate(1, "b", false), candidate(0, "a", true)];
    for (event, output) in both.iter_mut().zip(1_u64..) {
        event["usageMetadata"] = usage(output);
    }
    let events = [both.as_slice(), &[candidate(1, &"b".repeat(LONG), false)]].concat();
    let (received, generation) = cut("candidates", Api::Gemini, &events);
    assert_cut(&received, &generation);
}

/// One that has not begun has not ended.
#[test]
fn a_candidate_that_begins_late_is_waited_for() {
    let mut ended = candidate(0, "a", true);
    ended["usageMetadata"] = json!({ "promptTokenCount": 5, "candidatesTokenCount": 1 });
    let (received, generation) = cut("late candidate", Api::Gemini, &[ended, candidate(1, &"b".repeat(LONG), false)]);
    assert_cut(&received, &generation);
}
