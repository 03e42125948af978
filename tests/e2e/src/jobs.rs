//! Operations in the background of the provider: requests for them, and what the provider was asked about them.

use serde_json::Value;

use crate::chat::{Api, Chat};
use crate::client::Client;
use crate::config::{Route, Tenant};
use crate::simulator::{LogEntry, Simulator, percent_encoded};
use crate::world::{Options, World};
use crate::{assert_bytes, wait_for};

/// A streaming request that a route may switch to the background.
#[must_use]
pub fn job(model: &str, tag: &str) -> Chat {
    Chat::of(Api::Responses, model, true).tag(tag)
}

/// The body that a client must get, whatever happens on the way.
#[must_use]
pub fn expected(simulator: &Simulator, job: &Chat) -> Vec<u8> {
    let model = percent_encoded(job.model());
    let target = format!("/__expected?api=responses&model={model}&background=true&faults=false");
    simulator.direct().get(&target).expect(200).body
}

/// The final form of an ended operation, as the provider gives it to whoever asks. The question stands in its log.
///
/// # Panics
/// When the generation has no operation, or the provider does not know it.
#[must_use]
pub fn final_response(simulator: &Simulator, generation: &Value) -> Vec<u8> {
    let operation = generation["upstream"]["operation_id"].as_str().unwrap_or_else(|| panic!("none: {generation}"));
    simulator.direct().get(&format!("/v1/responses/{operation}")).expect(200).body
}

/// Asserts that the result of a generation is the provider's final response, byte for byte, and that its view says so.
///
/// # Panics
/// When it is something else.
pub fn assert_looked_up(world: &World, client: &Client, generation: &Value) {
    let id = generation["id"].as_str().expect("an id");
    let response = final_response(&world.simulator, generation);
    let result = client.result(id).expect(200);
    assert_eq!(result.required("content-type"), "application/json");
    assert_bytes!(result.body, response, "{generation}");
    let told = &generation["result"];
    assert_eq!((&told["kept"], &told["length"]), (&true.into(), &response.len().into()), "{generation}");
    let response: Value = serde_json::from_slice(&response).expect("JSON");
    assert_eq!(told["outcome"], response["status"], "{generation}");
    assert!(response["output"][0]["content"][0]["text"].as_str().is_some_and(|text| !text.is_empty()), "{response}");
}

/// What the provider was asked: `responses` to begin, `lookup`, `resume`, `cancel`; oldest first.
#[must_use]
pub fn asked(simulator: &Simulator, tag: &str, what: &str) -> Vec<LogEntry> {
    simulator.log(tag).into_iter().filter(|entry| entry.field("api") == what).collect()
}

/// Waits until the provider was asked so often.
pub fn once_asked(simulator: &Simulator, tag: &str, what: &str, times: usize) -> Vec<LogEntry> {
    wait_for("a question to the provider", || {
        let found = asked(simulator, tag, what);
        if found.len() >= times { Ok(found) } else { Err(format!("{} times {what}", found.len())) }
    })
}

/// A world with one tenant whose route goes to the background, with small batches.
#[must_use]
pub fn world(name: &str, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route.with("lease_ms", 1_000));
    let options = Options::new(name).tenant(&tenant).limit("batch_bytes", 2_048).limit("batch_ms", 50);
    let world = World::start(&options);
    let client = world.client(&tenant);
    (world, client)
}

/// The history's word for what became of a cancellation, with the states beside it.
#[must_use]
pub fn states(generation: &Value) -> (String, String, String) {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    (text(&generation["lifecycle"]), text(&generation["upstream"]["state"]), text(&generation["settlement"]))
}

/// Asserts that a stream is a part of what the provider would have sent, and the error of the Responses API; returns the
/// length of the part.
///
/// # Panics
/// When it is something else.
pub fn assert_broken(received: &[u8], expected: &[u8]) -> usize {
    let text = String::from_utf8_lossy(received);
    let at = text.rfind("event: error\ndata: ").unwrap_or_else(|| panic!("no error at the end: {text}"));
    let before = received.get(..at).unwrap_or_default();
    assert!(before.ends_with(b"\n\n"), "the error begins inside an event");
    let part = before.iter().zip(expected).take_while(|(got, sent)| got == sent).count();
    let added = before.get(part..).unwrap_or_default();
    assert!(added.len() <= 2 && added.iter().all(|byte| *byte == b'\n'), "not a part of it: {text}");
    assert!(!text.contains("response.completed"), "it says that it is done");
    part
}
