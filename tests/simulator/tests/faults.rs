//! Every injected fault, as the client's socket and the log see it.

mod common;

use std::io::Read;
use std::time::{Duration, Instant};

use common::{Answer, BodyEnd, PATIENCE, Sim};
use flate2::read::MultiGzDecoder;

/// Asks for a stream and checks the log against what came.
fn faulty(sim: &Sim, keys: &str, end: &str) -> Answer {
    let tag = keys.replace(['&', '='], "_");
    let model = format!("gen?tokens=5&{keys}&tag={tag}");
    let whole = sim.expected(&model, "&faults=false");
    let answer = sim.streamed(&model);
    let entry = sim.entry_at(&tag, end);
    assert_eq!(entry["bytes_total"], whole.len(), "{keys}");
    assert_eq!(entry["bytes_sent"], answer.body().len(), "{keys}");
    assert!(entry["closed_at_ms"].as_u64() >= entry["received_at_ms"].as_u64(), "{keys}");
    assert_eq!(answer.body(), whole[..answer.body().len()], "{keys}");
    assert_eq!(answer.body(), sim.expected(&model, ""), "{keys}");
    answer
}

fn total(sim: &Sim, keys: &str) -> usize {
    sim.expected(&format!("gen?tokens=5&{keys}"), "").len()
}

#[test]
fn reset_at_resets_after_exactly_so_many_bytes() {
    let sim = Sim::start();
    let total = total(&sim, "reset_at=9999");
    for at in [0, 1, 2, 150, 151, total - 1, total] {
        let answer = faulty(&sim, &format!("reset_at={at}"), "reset");
        assert_eq!((answer.body().len(), answer.end), (at, BodyEnd::Reset));
    }
    let answer = faulty(&sim, &format!("reset_at={}", total + 1), "complete");
    assert_eq!(answer.end, BodyEnd::Clean);
}

#[test]
fn a_reset_loses_none_of_a_large_body() {
    let sim = Sim::start();
    let at = 8_000_000;
    let model = format!("gen?tokens=50000&coalesce=500&reset_at={at}&tag=large");
    let mut client = sim.ask(&model, true, false);
    // The send queue is full before anything is read.
    sim.entry_when("large", |entry| entry["bytes_sent"].as_u64().unwrap() > 100_000);
    let answer = client.answer();
    assert_eq!((answer.body().len(), answer.end), (at, BodyEnd::Reset));
    assert_eq!(sim.entry_at("large", "reset")["bytes_sent"], at);
}

#[test]
fn fin_at_leaves_out_the_chunk_terminator() {
    let sim = Sim::start();
    let total = total(&sim, "fin_at=9999");
    for at in [0, 1, 200, total] {
        let answer = faulty(&sim, &format!("fin_at={at}"), "fin");
        assert_eq!((answer.body().len(), answer.end), (at, BodyEnd::Fin));
    }
}

#[test]
fn end_at_ends_cleanly() {
    let sim = Sim::start();
    for at in [0, 1, 200] {
        let answer = faulty(&sim, &format!("end_at={at}"), "cut");
        assert_eq!((answer.body().len(), answer.end), (at, BodyEnd::Clean));
    }
    // The connection stays usable.
    let mut client = sim.ask("gen?end_at=10", true, false);
    assert_eq!(client.answer().body().len(), 10);
    client.ask("gen", true, false);
    assert_eq!(client.answer().end, BodyEnd::Clean);
}

#[test]
fn stall_at_keeps_the_socket() {
    let sim = Sim::start();
    for at in [0, 200] {
        let tag = format!("stall{at}");
        let mut client = sim.ask(&format!("gen?stall_at={at}&tag={tag}"), true, false);
        sim.entry_at(&tag, "stalled");
        client.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
        let answer = client.answer();
        assert_eq!((answer.body().len(), answer.end), (at, BodyEnd::Silence));
        let entry = sim.entry(&tag);
        assert_eq!((&entry["end"], &entry["bytes_sent"]), (&"stalled".into(), &at.into()));
        assert!(entry["closed_at_ms"].is_null());
        client.close();
        let entry = sim.entry_at(&tag, "client_closed");
        assert_eq!(entry["bytes_sent"], at);
        assert!(entry["closed_at_ms"].is_u64());
    }
}

#[test]
fn a_stall_may_be_passing() {
    let sim = Sim::start();
    let started = Instant::now();
    let answer = faulty(&sim, "stall_at=200&stall_ms=150", "complete");
    assert_eq!(answer.end, BodyEnd::Clean);
    assert!(started.elapsed() >= Duration::from_millis(150));
    // The write before the pause ends where it begins.
    assert_eq!(answer.sizes()[0], 200);
}

#[test]
fn drop_resets_before_the_head() {
    let sim = Sim::start();
    let mut client = sim.ask("gen?drop=1&tag=d", true, false);
    assert_eq!(client.head().unwrap_err(), BodyEnd::Reset);
    let entry = sim.entry_at("d", "reset");
    assert!(entry["status"].is_null());
    assert_eq!(entry["bytes_sent"], 0);
    assert!(sim.expected("gen?drop=1", "").is_empty());
}

#[test]
fn split_and_cut_set_the_chunks() {
    let sim = Sim::start();
    let answer = faulty(&sim, "split=7", "complete");
    let (last, others) = answer.chunks.split_last().unwrap();
    assert!(others.iter().all(|chunk| chunk.len() == 7));
    assert!(last.len() <= 7);
    let answer = faulty(&sim, "split=1&text=multibyte", "complete");
    assert!(answer.sizes().iter().all(|size| *size == 1));
    let total = answer.body().len();
    let answer = faulty(&sim, "text=multibyte&cut=3,10,400", "complete");
    assert_eq!(answer.sizes(), [3, 7, 390, total - 400]);
    let answer = faulty(&sim, "coalesce=3", "complete");
    assert_eq!(answer.chunks.len(), 3);
    assert_eq!(answer.chunks[0].windows(2).filter(|pair| pair == b"\n\n").count(), 3);
}

#[test]
fn with_a_gap_the_reader_sees_each_write() {
    let sim = Sim::start();
    let mut client = sim.ask("gen?tokens=1&cut=5,11&gap_ms=40", true, false);
    client.head().unwrap();
    let mut chunks = Vec::new();
    let started = Instant::now();
    for _ in 0..3 {
        assert!(client.chunk(&mut chunks).unwrap());
    }
    assert!(started.elapsed() >= Duration::from_millis(75));
    assert_eq!((chunks[0].len(), chunks[1].len()), (5, 6));
}

#[test]
fn gzip_is_sent_unasked_and_readable_event_by_event() {
    let sim = Sim::start();
    let plain = sim.streamed("gen?tokens=5");
    // Ids differ with the model name, lengths do not.
    let answer = faulty(&sim, "gzip=1", "complete");
    assert_eq!(answer.header("content-encoding"), Some("gzip"));
    assert_eq!(answer.chunks.len(), plain.chunks.len());
    let mut text = String::new();
    MultiGzDecoder::new(&answer.body()[..]).read_to_string(&mut text).unwrap();
    assert_eq!(text.len(), plain.body().len());
    assert!(text.ends_with("data: [DONE]\n\n"));

    let body = answer.body();
    let mut decoder = MultiGzDecoder::new(&body[..answer.chunks[0].len()]);
    let mut first = vec![0; plain.chunks[0].len()];
    decoder.read_exact(&mut first).unwrap();
    assert!(first.ends_with(b"\n\n"));

    let broken = faulty(&sim, "gzip=1&reset_at=100", "reset");
    assert_eq!(broken.body(), sim.expected("gen?tokens=5&gzip=1&reset_at=100&tag=gzip_1_reset_at_100", ""));
    assert_eq!(broken.body().len(), 100);
}

#[test]
fn faults_combine() {
    let sim = Sim::start();
    let answer = faulty(&sim, "split=7&reset_at=100", "reset");
    assert_eq!(answer.body().len(), 100);
    assert_eq!(*answer.sizes().last().unwrap(), 2);
    let answer = faulty(&sim, "interval_ms=5&cut=10,300&fin_at=301", "fin");
    assert_eq!(answer.sizes(), [10, 290, 1]);
    let answer = faulty(&sim, "reset_at=300&fin_at=50", "fin");
    assert_eq!((answer.body().len(), answer.end), (50, BodyEnd::Fin));
    let answer = faulty(&sim, "stall_at=20&stall_ms=20&end_at=40", "cut");
    assert_eq!((answer.body().len(), answer.end), (40, BodyEnd::Clean));
    let answer = faulty(&sim, "status=503&reset_at=20", "reset");
    assert_eq!((answer.status, answer.body().len(), answer.end), (503, 20, BodyEnd::Reset));
}

#[test]
fn answers_in_one_piece_have_the_same_faults() {
    let sim = Sim::start();
    for (keys, end, body_end) in [
        ("reset_at=30", "reset", BodyEnd::Reset),
        ("fin_at=30", "fin", BodyEnd::Fin),
        ("end_at=30", "cut", BodyEnd::Clean),
    ] {
        let model = format!("gen?{keys}&tag={keys}");
        let answer = sim.ask(&model, false, false).answer();
        assert_eq!((answer.body().len(), answer.end), (30, body_end), "{keys}");
        assert_eq!(answer.header("content-length").is_some(), end != "cut", "{keys}");
        let entry = sim.entry_at(keys, end);
        assert_eq!(entry["bytes_sent"], 30, "{keys}");
        assert!(entry["bytes_total"].as_u64().unwrap() > 30, "{keys}");
    }
    let mut client = sim.ask("gen?stall_at=30&tag=s", false, false);
    sim.entry_at("s", "stalled");
    client.stream.set_read_timeout(Some(Duration::from_millis(200))).unwrap();
    let answer = client.answer();
    assert_eq!((answer.body().len(), answer.end), (30, BodyEnd::Silence));
    assert_eq!(sim.entry("s")["end"], "stalled");
}

#[test]
fn delays_are_kept() {
    let sim = Sim::start();
    let started = Instant::now();
    let mut client = sim.ask("gen?tokens=3&headers_ms=80&first_ms=80&interval_ms=30", true, false);
    client.head().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(80));
    let mut chunks = Vec::new();
    client.chunk(&mut chunks).unwrap();
    assert!(started.elapsed() >= Duration::from_millis(160));
    // The first event is out; five more follow at their times.
    while client.chunk(&mut chunks).unwrap() {}
    assert_eq!(chunks.len(), 6);
    assert!(started.elapsed() >= Duration::from_millis(160 + 5 * 30));
    assert!(started.elapsed() < PATIENCE);

    let started = Instant::now();
    sim.ask("gen?tokens=10&interval_ms=15", false, false).head().unwrap();
    assert!(started.elapsed() >= Duration::from_millis(150));
}
