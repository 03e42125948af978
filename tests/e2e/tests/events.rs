//! The stream as an `EventSource` reads it: every event carries the offset after it, and the last one tells the end.

use holdfast_e2e::sse::{Event, event_ends, events, whole_events};
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, unique};
use serde_json::{Value, json};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn read(client: &Client, id: &str, last: Option<&str>) -> Vec<Event> {
    let mut reader = client.read_events(id, last);
    let head = reader.head();
    assert_eq!(head.status, 200, "{head:?}");
    assert!(head.required("content-type").starts_with("text/event-stream"), "{head:?}");
    assert_eq!(
        head.header("cache-control").map(|value| value.contains("no-store") || value.contains("no-cache")),
        Some(true)
    );
    events(&reader.finish().clean())
}

/// What an `EventSource` must see of these bytes after an offset: each data, with the offset after it.
fn expected_events(bytes: &[u8], after: usize) -> Vec<Event> {
    let all = whole_events(bytes).into_iter().zip(event_ends(bytes));
    let rest = all.filter(|(_, end)| *end > after);
    rest.map(|(event, end)| Event { id: Some(end.to_string()), ..events(event).remove(0) }).collect()
}

fn end_event(length: usize) -> (String, Value) {
    (length.to_string(), json!({ "lifecycle": "completed", "log_length": length }))
}

/// Compares what was read with what must come, the closing event included. Several upstream events may come as one
/// only if nothing is lost, so data is compared event by event.
fn assert_events(got: &[Event], bytes: &[u8], after: usize) {
    let (end, before) = got.split_last().expect("events");
    assert_eq!(before, expected_events(bytes, after), "after {after}");
    assert_eq!(end.name, "holdfast.end");
    let data: Value = serde_json::from_str(&end.data).expect("JSON");
    assert_eq!((end.id.clone().expect("an id"), data), end_event(bytes.len()));
}

#[test]
fn events_carry_the_offset_after_them() {
    let (world, client) = world("events");
    for model in ["gen?tokens=20", "gen?tokens=20&text=multibyte&split=5", "recording/crlf?split=9"] {
        let chat = Chat::stream(model).tag(&unique("events"));
        let bytes = world.simulator.expected(&chat);
        let (mut exchange, id) = client.begin(&chat);
        exchange.finish().clean();
        client.wait_until_settled(&id);
        assert_events(&read(&client, &id, None), &bytes, 0);
        for after in event_ends(&bytes).into_iter().step_by(5) {
            assert_events(&read(&client, &id, Some(&after.to_string())), &bytes, after);
        }
        let by_query = client.get(&format!("/v1/generations/{id}/stream?last_event_id={}", event_ends(&bytes)[4]));
        assert_events(&events(&by_query.expect(200).body), &bytes, event_ends(&bytes)[4]);
        let at_the_end = read(&client, &id, Some(&bytes.len().to_string()));
        assert_eq!(at_the_end.len(), 1, "only the end: {at_the_end:?}");
    }
}

#[test]
fn a_running_generation_is_followed_and_resumed() {
    let (world, client) = world("live events");
    let tag = unique("live");
    let chat = Chat::stream("gen?tokens=60&interval_ms=15").tag(&tag);
    let bytes = world.simulator.expected(&chat);
    let ends = event_ends(&bytes);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(ends[5]);

    // A tab that follows from the start, is closed inside an event, and comes back with the last id it had.
    let mut first = client.read_events(&id, None);
    assert_eq!(first.head().status, 200);
    let seen = events(&first.read(ends[12] + 90));
    first.abandon();
    assert_eq!(world.simulator.only(&tag).end(), "open", "it was in mid-stream");
    let last = seen.last().and_then(|event| event.id.clone()).expect("a last event id");
    let after: usize = last.parse().expect("an offset");
    assert_eq!(seen, expected_events(&bytes[..after], 0));
    assert_events(&read(&client, &id, Some(&last)), &bytes, after);
    exchange.finish().clean();
}

#[test]
fn an_answer_in_one_piece_comes_as_an_event_too() {
    let (world, client) = world("one piece");
    let chat = Chat::complete("gen?tokens=20").tag(&unique("piece"));
    let bytes = world.simulator.expected(&chat);
    let reply = client.chat(&chat).expect(200);
    let id = reply.required("x-generation-id");
    client.wait_until_settled(id);
    let got = read(&client, id, None);
    let (end, before) = got.split_last().expect("events");
    let joined = before.iter().map(|event| event.data.as_str()).collect::<String>();
    let whole: Value = serde_json::from_slice(&bytes).expect("JSON");
    assert_eq!(serde_json::from_str::<Value>(&joined).expect("JSON"), whole);
    assert_eq!(end.name, "holdfast.end");
    assert_eq!(end.id, Some(bytes.len().to_string()));
}
