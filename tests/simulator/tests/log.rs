//! The request log, above all how it sees clients go.

mod common;

use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use common::{BodyEnd, Sim};
use holdfast_simulator::Config;
use serde_json::{Value, json};
use socket2::SockRef;

fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    u64::try_from(since.as_millis()).unwrap()
}

#[test]
fn an_entry_tells_the_request() {
    let sim = Sim::start();
    let before = now_ms();
    let mut client = sim.connect();
    let body = json!({"model": "gen?tag=t", "messages": [], "stream": true, "seed": 7});
    client.post(&body.to_string(), "Authorization: Bearer secret-key\r\nX-Two: a\r\nx-two: b\r\n");
    let answer = client.answer();
    let entry = sim.entry("t");
    assert_eq!(entry["n"], 1);
    assert_eq!(entry["model"], "gen?tag=t");
    assert_eq!(entry["tag"], "t");
    assert_eq!(entry["stream"], true);
    assert_eq!(entry["body"], body);
    assert_eq!(entry["headers"]["x-two"], "a, b");
    assert_eq!(entry["authorization_present"], true);
    assert!(!entry.to_string().contains("secret-key"));
    // SHA-256 of "Bearer secret-key".
    let digest = "0062d6e1c6b28daffdb4ddbbdd2adf1c71194263148b6eb6ce37de46ca353c48";
    assert_eq!(entry["authorization_sha256"], digest);
    assert_eq!(entry["status"], 200);
    assert_eq!(entry["end"], "complete");
    assert_eq!(entry["bytes_total"], answer.body().len());
    assert_eq!(entry["bytes_sent"], answer.body().len());
    let received = entry["received_at_ms"].as_u64().unwrap();
    let closed = entry["closed_at_ms"].as_u64().unwrap();
    assert!(before <= received && received <= closed && closed <= now_ms());
}

#[test]
fn the_log_is_read_filtered_and_cleared_over_http() {
    let sim = Sim::start();
    for tag in ["a bc", "x", "x"] {
        sim.streamed(&format!("gen?tag={tag}"));
    }
    let tags = |target: &str| -> Vec<Value> {
        let entries = sim.get(target).json();
        entries.as_array().unwrap().iter().map(|entry| entry["tag"].clone()).collect()
    };
    assert_eq!(tags("/__log"), ["a bc", "x", "x"]);
    assert_eq!(tags("/__log?tag=x"), ["x", "x"]);
    assert_eq!(tags("/__log?tag=a%20bc"), ["a bc"]);
    assert_eq!(tags("/__log?tag=none"), Vec::<Value>::new());
    let mut client = sim.connect();
    client.send(b"DELETE /__log HTTP/1.1\r\n\r\n");
    assert_eq!(client.answer().status, 200);
    assert!(tags("/__log").is_empty());
    sim.streamed("gen?tag=again");
    assert_eq!(sim.entry("again")["n"], 1);
}

#[test]
fn the_log_keeps_the_newest() {
    let sim = Sim::with(Config { log_max: 2, ..Config::default() });
    for tag in ["a", "b", "c"] {
        sim.streamed(&format!("gen?tag={tag}"));
    }
    let entries = sim.simulator.log(None);
    assert_eq!(entries.len(), 2);
    assert_eq!((&entries[0]["n"], &entries[0]["tag"]), (&json!(2), &json!("b")));
}

/// What the client has read must be in the log at that moment, not a little later.
#[test]
fn the_log_is_never_behind_the_client() {
    let sim = Sim::start();
    let mut client = sim.connect();
    for round in 0..200 {
        let tag = format!("r{round}");
        client.ask(&format!("gen?tokens=2&tag={tag}"), round % 2 == 0, false);
        let answer = client.answer();
        let entry = sim.entry(&tag);
        assert_eq!(entry["end"], "complete");
        assert_eq!(entry["bytes_sent"], answer.body().len());
    }
}

/// A client that closes at any moment is noticed at once, not at the next write.
#[test]
fn a_client_that_goes_is_noticed_while_waiting() {
    let sim = Sim::start();
    let promptly = Duration::from_secs(2);
    for (tag, keys, bytes_are_sent) in [
        ("headers", "headers_ms=600000", false),
        ("first", "first_ms=600000", false),
        ("interval", "interval_ms=600000", true),
        ("gap", "gap_ms=600000", true),
        ("stall", "stall_at=10", true),
        ("pause", "stall_at=10&stall_ms=600000", true),
    ] {
        let mut client = sim.ask(&format!("gen?{keys}&tag={tag}"), true, false);
        let mut chunks = Vec::new();
        if tag != "headers" {
            client.head().unwrap();
        }
        if bytes_are_sent {
            client.chunk(&mut chunks).unwrap();
        }
        let open = sim.entry_when(tag, |_| true);
        assert!(open["closed_at_ms"].is_null(), "{open}");
        assert_eq!(open["status"].is_null(), tag == "headers", "{open}");
        assert_eq!(open["end"], if tag == "stall" { "stalled" } else { "open" });
        let closing = Instant::now();
        client.close();
        let entry = sim.entry_at(tag, "client_closed");
        assert!(closing.elapsed() < promptly, "{tag}");
        assert_eq!(entry["bytes_sent"], chunks.concat().len(), "{tag}");
        assert!(entry["bytes_total"].as_u64() > entry["bytes_sent"].as_u64(), "{tag}");
        assert!(entry["closed_at_ms"].is_u64(), "{tag}");
    }
}

#[test]
fn a_client_that_resets_is_noticed() {
    let sim = Sim::start();
    let mut client = sim.ask("gen?interval_ms=600000&tag=rst", true, false);
    client.head().unwrap();
    SockRef::from(&client.stream).set_linger(Some(Duration::ZERO)).unwrap();
    drop(client);
    sim.entry_at("rst", "client_closed");
}

#[test]
fn a_client_that_goes_while_a_write_is_blocked_is_noticed() {
    let sim = Sim::start();
    let client = sim.ask("gen?tokens=200000&tag=blocked", true, false);
    // Unread, the stream fills the buffers of both sides and stays there.
    let mut sent = 0;
    let mut steady = 0;
    while steady < 20 {
        std::thread::sleep(Duration::from_millis(5));
        let now = sim.entry_when("blocked", |_| true)["bytes_sent"].as_u64().unwrap();
        steady = if now == sent && now > 0 { steady + 1 } else { 0 };
        sent = now;
    }
    drop(client);
    let entry = sim.entry_at("blocked", "client_closed");
    let finally = entry["bytes_sent"].as_u64().unwrap();
    assert!(finally >= sent && finally < entry["bytes_total"].as_u64().unwrap());
}

#[test]
fn counts_are_exact_across_partial_writes() {
    let sim = Sim::start();
    let at = 20_000_003_usize;
    let model = format!("gen?tokens=200000&coalesce=7000&stall_at={at}&tag=partial");
    let mut client = sim.ask(&model, true, false);
    sim.entry_when("partial", |entry| entry["bytes_sent"].as_u64().unwrap() > 100_000);
    client.stream.set_read_timeout(Some(Duration::from_secs(2))).unwrap();
    let answer = client.answer();
    assert_eq!((answer.body().len(), answer.end), (at, BodyEnd::Silence));
    assert_eq!(sim.entry("partial")["bytes_sent"], at);
}
