//! Signed callbacks at the end of background jobs: once or often, early, late, forged or never.

mod common;

use std::time::Instant;

use base64ct::{Base64, Encoding};
use common::{PATIENCE, Sim};
use hmac::{Hmac, KeyInit, Mac};
use serde_json::{Value, json};
use sha2::Sha256;

const SECRET: &str = "whsec_RdvaYFYUXuIFuEbvZHwMfYFhUf7aMYjYcmM24+Aj40c=";

/// Calls back to a receiver of its own.
fn sim(answers: &str) -> Sim {
    let sim = Sim::start();
    let url = format!("{}/__hook/callbacks?answers={answers}", sim.simulator.origin());
    sim.simulator.call_back_to(&url, SECRET);
    sim
}

fn create(sim: &Sim, model: &str) -> common::Client {
    let mut client = sim.connect();
    let body = json!({"model": model, "input": "Hi", "stream": true, "background": true}).to_string();
    let length = body.len();
    let head = format!("POST /v1/responses HTTP/1.1\r\nhost: x\r\nauthorization: Bearer k\r\ncontent-length: {length}");
    client.send(format!("{head}\r\n\r\n{body}").as_bytes());
    client
}

fn messages(sim: &Sim, count: usize) -> Vec<Value> {
    let started = Instant::now();
    loop {
        let messages = sim.simulator.hooks("callbacks");
        if messages.len() >= count {
            return messages;
        }
        assert!(started.elapsed() < PATIENCE, "{} of {count}", messages.len());
        std::thread::yield_now();
    }
}

fn event(message: &Value) -> Value {
    serde_json::from_str(message["body"].as_str().unwrap()).unwrap()
}

fn is_signed(message: &Value) -> bool {
    let header = |name: &str| message["headers"][name].as_str().unwrap().to_owned();
    let (id, at, body) = (header("webhook-id"), header("webhook-timestamp"), message["body"].as_str().unwrap());
    let key = Base64::decode_vec(SECRET.strip_prefix("whsec_").unwrap()).unwrap();
    let mut mac = Hmac::<Sha256>::new_from_slice(&key).unwrap();
    mac.update(format!("{id}.{at}.{body}").as_bytes());
    header("webhook-signature") == format!("v1,{}", Base64::encode_string(&mac.finalize().into_bytes()))
}

#[test]
fn a_job_calls_back_when_it_has_ended() {
    let sim = sim("500,200");
    let mut client = create(&sim, "gen?tokens=3&tag=at-end&callbacks=2");
    let stream = client.answer().text();
    let [first, second, third] = &messages(&sim, 3)[..] else { panic!("a failure is repeated, and then the event") };
    assert_eq!((event(first), event(second)), (event(third), event(third)), "the same event");
    let event = event(first);
    assert_eq!(event["type"], "response.completed");
    assert!(stream.contains(event["data"]["id"].as_str().unwrap()), "{event}");
    assert!([first, second, third].into_iter().all(is_signed));
    assert_eq!(first["headers"]["webhook-id"], third["headers"]["webhook-id"]);
}

#[test]
fn how_it_ended_is_told() {
    for (keys, kind) in [
        ("error_after=2", "response.failed"),
        ("finish=length", "response.incomplete"),
        ("callback=early", "response.completed"),
    ] {
        let sim = sim("200");
        let _client = create(&sim, &format!("gen?tokens=3&{keys}"));
        assert_eq!(event(&messages(&sim, 1)[0])["type"], kind, "{keys}");
    }
}

#[test]
fn an_early_one_comes_before_the_answer() {
    let sim = sim("200");
    let mut client = create(&sim, "gen?tokens=3&interval_ms=5&callback=early&tag=early");
    client.answer();
    let received_at = messages(&sim, 1)[0]["received_at_ms"].as_u64().unwrap();
    let asked = sim.entry("early");
    assert!(received_at <= asked["received_at_ms"].as_u64().unwrap() + 1, "{received_at}: {asked}");
}

#[test]
fn one_may_be_forged_or_lost() {
    let forged = sim("401");
    create(&forged, "gen?tokens=3&callback=forged").answer();
    assert!(!is_signed(&messages(&forged, 1)[0]));
    let lost = sim("200");
    create(&lost, "gen?tokens=3&callback=lost").answer();
    create(&lost, "gen?tokens=3&tag=other").answer();
    assert_eq!(messages(&lost, 1).len(), 1, "that of the other");
}
