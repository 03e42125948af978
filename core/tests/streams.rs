//! Streams recorded from real providers: what is learnt from them does not depend on the cuts.
#![allow(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

mod support;

use std::io::Write;
use std::path::PathBuf;

use holdfast_core::dialect::Dialect;
use holdfast_core::intake::{Intake, IntakeEnd, IntakeOptions};
use holdfast_core::meter::{ContentCounter, EndClass};
use serde::Deserialize;
use serde_json::Value;
use support::{chunks, scan};

#[derive(Deserialize)]
struct Recording {
    file: String,
    dialect: Dialect,
    events: u64,
    bytes: usize,
    provider_operation_id: String,
    finish: String,
    usage: Option<RecordedUsage>,
}

#[derive(Deserialize)]
struct RecordedUsage {
    input: u64,
    output: u64,
    billable_output: Option<u64>,
}

/// The recordings with their bytes; none, with a loud word, where they are not at hand.
fn recordings() -> Vec<(Recording, Vec<u8>)> {
    let folder = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../shared/streams");
    let Ok(index) = std::fs::read(folder.join("index.json")) else {
        // A passing test's `eprintln!` is kept from view; a skip must be seen.
        let words = format!("SKIPPED: no recorded streams in {}: this test has checked NOTHING", folder.display());
        let mut past_capture = std::io::stderr();
        writeln!(past_capture, "{words}").unwrap();
        return Vec::new();
    };
    let index: Vec<Recording> = serde_json::from_slice(&index).unwrap();
    assert!(index.iter().any(|recording| recording.dialect == Dialect::OpenaiChat));
    index
        .into_iter()
        .map(|recording| {
            let bytes = std::fs::read(folder.join(&recording.file)).unwrap();
            assert_eq!(bytes.len(), recording.bytes, "{}", recording.file);
            (recording, bytes)
        })
        .collect()
}

fn chat_recordings() -> Vec<(Recording, Vec<u8>)> {
    let mut all = recordings();
    all.retain(|(recording, _)| recording.dialect == Dialect::OpenaiChat);
    all
}

fn take_in(recording: &Recording, source: &[u8], sizes: &[usize], strip_usage: bool) -> (Vec<u8>, IntakeEnd) {
    let options = IntakeOptions { dialect: recording.dialect, streaming: true, strip_usage, event_max_bytes: 1 << 20 };
    let mut intake = Intake::new(options);
    let mut released = Vec::new();
    for chunk in chunks(source, sizes) {
        released.extend(intake.push(chunk.to_vec()));
    }
    let end = intake.finish();
    released.extend_from_slice(&end.tail);
    (released, end)
}

/// What the index says of a stream, read by the rules of its dialect.
fn check(recording: &Recording, end: &IntakeEnd, how: &str) {
    let name = &recording.file;
    let report = &end.report;
    let failed = recording.finish == "response.failed";
    assert_eq!(end.class, if failed { EndClass::InBandError } else { EndClass::Complete }, "{name} {how}");
    assert_eq!(report.events, recording.events, "{name} {how}");
    assert_eq!(report.operation_id.as_deref(), Some(recording.provider_operation_id.as_str()), "{name} {how}");
    assert_eq!(report.finish_reason.as_deref(), Some(recording.finish.as_str()), "{name} {how}");
    assert_eq!(report.in_band_error.is_some(), failed, "{name} {how}");
    assert!(!report.usage_rejected && report.oversize_events == 0, "{name} {how}");
    let counts = report.usage.map(|usage| {
        // The index has Anthropic's word: cache reads and writes stand beside `input_tokens`.
        let beside = if recording.dialect == Dialect::AnthropicMessages {
            usage.cached_input_tokens + usage.cache_write_tokens
        } else {
            0
        };
        (usage.input_tokens - beside, usage.output_tokens)
    });
    let expected = recording.usage.as_ref();
    assert_eq!(
        counts,
        expected.map(|expected| (expected.input, expected.billable_output.unwrap_or(expected.output))),
        "{name} {how}"
    );
    assert_eq!(report.reported_output_tokens, expected.map(|expected| expected.output), "{name} {how}");
}

#[test]
fn streams_tell_id_finish_and_usage_whatever_the_cut() {
    for (recording, source) in recordings() {
        for sizes in [&[usize::MAX][..], &[1], &[1, 2, 3, 5, 7, 11, 13], &[0, 509, 3], &[4_096], &[65_536]] {
            let (released, end) = take_in(&recording, &source, sizes, false);
            assert!(released == source, "{}: bytes changed with {sizes:?}", recording.file);
            check(&recording, &end, &format!("{sizes:?}"));
        }
    }
}

/// The first two and the last four events: all that matters stands there.
fn shortened(recording: &mut Recording, source: &[u8]) -> Vec<u8> {
    let (events, _) = scan([source], 1 << 20);
    if events.len() <= 6 {
        return source.to_vec();
    }
    recording.events = 6;
    let (head, tail) = (events[1].end as usize, events[events.len() - 4].start as usize);
    [&source[..head], &source[tail..]].concat()
}

#[test]
fn every_single_cut_of_the_shortened_streams() {
    for (mut recording, source) in recordings() {
        let source = shortened(&mut recording, &source);
        // Terminal events that repeat a long answer are cut less densely.
        for cut in (0..=source.len()).step_by(source.len() / 4_096 + 1) {
            let (released, end) = take_in(&recording, &source, &[cut, source.len()], false);
            assert!(released == source);
            check(&recording, &end, &format!("cut at {cut}"));
        }
    }
}

#[test]
fn streams_with_other_line_endings_tell_the_same() {
    for (recording, source) in recordings() {
        for ending in ["\r\n", "\r"] {
            let source = String::from_utf8(source.clone()).unwrap().replace('\n', ending).into_bytes();
            for sizes in [&[usize::MAX][..], &[1], &[5, 64, 1_001]] {
                let (released, end) = take_in(&recording, &source, sizes, false);
                assert!(released == source);
                check(&recording, &end, &format!("{ending:?} {sizes:?}"));
            }
        }
    }
}

#[test]
fn stripping_takes_the_usage_event_and_nothing_else() {
    for (recording, source) in chat_recordings() {
        let mut expected = source.clone();
        let mut usage_events = 0;
        for event in scan([source.as_slice()], 1 << 20).0.iter().rev() {
            let value: Value = serde_json::from_slice(&event.data).unwrap_or_default();
            if value["usage"].is_object() && value["choices"].as_array().is_some_and(Vec::is_empty) {
                usage_events += 1;
                expected.drain(event.start as usize..event.end as usize);
            }
        }
        assert!(usage_events <= 1);
        for sizes in [&[usize::MAX][..], &[1], &[300, 17]] {
            let (released, end) = take_in(&recording, &source, sizes, true);
            assert!(released == expected, "{} {sizes:?}", recording.file);
            assert_eq!(end.stripped_usage.is_some(), usage_events == 1);
            check(&recording, &end, &format!("stripped, {sizes:?}"));
        }
    }
}

#[test]
fn a_stream_that_ends_early_is_never_complete() {
    for (recording, source) in recordings() {
        // A CR alone ends a line too: without the last LF of a CRLF nothing is missing.
        let length = source.len() - usize::from(source.ends_with(b"\r\n"));
        let step = (source.len() / 50).max(1);
        for cut in (0..length).step_by(step).chain(length - 20..length) {
            let (released, end) = take_in(&recording, &source[..cut], &[usize::MAX], false);
            assert!(released == source[..cut]);
            assert_ne!(end.class, EndClass::Complete, "{} {cut}", recording.file);
        }
    }
}

/// Bytes of all generated strings, by parsing.
fn generated_bytes(value: &Value) -> u64 {
    match value {
        Value::String(text) => text.len() as u64,
        Value::Array(items) => items.iter().map(generated_bytes).sum(),
        Value::Object(members) => {
            let framing = ["role", "id", "type"];
            members.iter().filter(|(key, _)| !framing.contains(&key.as_str())).map(|(_, v)| generated_bytes(v)).sum()
        }
        _ => 0,
    }
}

#[test]
fn content_bytes_are_those_of_the_deltas() {
    for (recording, source) in chat_recordings() {
        let mut expected = 0;
        let mut counter = ContentCounter::for_events(recording.dialect);
        for event in scan([source.as_slice()], 1 << 20).0 {
            let value: Value = serde_json::from_slice(&event.data).unwrap_or_default();
            for choice in value["choices"].as_array().into_iter().flatten() {
                expected += generated_bytes(&choice["delta"]);
            }
            counter.push(&source[event.start as usize..event.end as usize]);
            assert_eq!(counter.total(), expected, "{}", recording.file);
        }
        assert!(expected > 0);
        let mut bytewise = ContentCounter::for_events(recording.dialect);
        source.chunks(1).for_each(|byte| bytewise.push(byte));
        assert_eq!(bytewise.total(), expected, "{}", recording.file);
        // Visible text: never fewer bytes than tokens.
        let usage = recording.usage.as_ref().unwrap();
        if recording.file.contains("openai-text") || recording.file.contains("groq") {
            assert!(expected >= usage.output, "{}", recording.file);
        }
    }
}

/// Models emit at most one token per byte of visible output, in every dialect. What is hidden cannot be seen: thoughts of
/// Gemini, and what OpenAI's own tools run behind the answer.
#[test]
fn content_bytes_bound_the_visible_output() {
    for (recording, source) in recordings() {
        let (_, end) = take_in(&recording, &source, &[usize::MAX], false);
        let Some(usage) = end.report.usage else { continue };
        let mut counter = ContentCounter::for_events(recording.dialect);
        source.chunks(997).for_each(|piece| counter.push(piece));
        let visible = usage.output_tokens - usage.reasoning_tokens;
        let bound = counter.total() + holdfast_core::reservation::IN_FLIGHT_TOKENS;
        assert!(bound >= visible, "{}: {bound} < {visible}", recording.file);
        // A bound that is far off would charge far too much.
        assert!(counter.total() < source.len() as u64, "{}", recording.file);
    }
}

/// Where a client of the provider could read on: every whole event of a stream brings it further.
#[test]
fn sequence_numbers_are_those_of_the_last_whole_event() {
    let mut numbered = 0;
    for (recording, source) in recordings() {
        let mut expected = None;
        let events = scan([source.as_slice()], 1 << 20).0;
        for (position, event) in events.iter().enumerate() {
            let value: Value = serde_json::from_slice(&event.data).unwrap_or_default();
            expected = expected.max(value["sequence_number"].as_u64());
            if position % (events.len() / 32 + 1) == 0 || position + 1 == events.len() {
                let (_, end) = take_in(&recording, &source[..event.end as usize], &[usize::MAX], false);
                assert_eq!(end.report.sequence_number, expected, "{} at {}", recording.file, event.end);
                numbered += u32::from(expected.is_some());
            }
        }
        assert!(expected.is_none() || recording.dialect == Dialect::OpenaiResponses, "{}", recording.file);
    }
    assert!(numbered > 0 || recordings().is_empty());
}
