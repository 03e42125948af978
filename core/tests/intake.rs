//! The intake: which bytes are released, when, and what is said of the end.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

mod support;

use holdfast_core::dialect::{Dialect, error_terminal};
use holdfast_core::intake::{BODY_READ_MAX_BYTES, HELD_MAX_BYTES, Intake, IntakeEnd, IntakeOptions};
use holdfast_core::meter::EndClass;
use holdfast_core::sse::BLANK_LINE;
use holdfast_core::usage::Usage;
use proptest::prelude::*;
use support::{chunks, scan};

const OPTIONS: IntakeOptions =
    IntakeOptions { dialect: Dialect::OpenaiChat, streaming: true, strip_usage: false, event_max_bytes: 1 << 20 };
const STRIP: IntakeOptions = IntakeOptions { strip_usage: true, ..OPTIONS };

const USAGE: &str =
    "data: {\"id\":\"c1\",\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2,\"total_tokens\":11}}";
const STREAM: &str = "\u{FEFF}data: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\"Hé中\"},\"finish_reason\":null}],\"usage\":null}\n\n: ping\n\ndata: {\"id\":\"c1\",\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}\r\n\r\n";

fn run<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, options: IntakeOptions) -> (Vec<u8>, IntakeEnd) {
    let mut intake = Intake::new(options);
    let mut released = Vec::new();
    for chunk in chunks {
        released.extend(intake.push(chunk.to_vec()));
    }
    let end = intake.finish();
    released.extend_from_slice(&end.tail);
    (released, end)
}

#[test]
fn whole_events_come_back_without_a_copy() {
    let mut intake = Intake::new(STRIP);
    for _ in 0..3 {
        let chunk = STREAM.as_bytes().to_vec();
        let place = chunk.as_ptr();
        let released = intake.push(chunk);
        assert_eq!((released.as_ptr(), released.as_slice()), (place, STREAM.as_bytes()));
    }
}

#[test]
fn half_events_wait_for_their_other_half() {
    let mut intake = Intake::new(OPTIONS);
    assert_eq!(intake.push(b"data: a\n\ndata: b".to_vec()), b"data: a\n\n");
    assert_eq!(intake.push(b"b\n".to_vec()), b"");
    assert_eq!(intake.push(b"\n: ping\n: pi".to_vec()), b"data: bb\n\n: ping\n");
    let end = intake.finish();
    assert_eq!((end.tail.as_slice(), end.class, end.terminal_prefix), (b": pi".as_slice(), EndClass::Incomplete, true));
}

#[test]
fn a_large_partial_is_released_as_it_is_and_not_stripped() {
    let padding = "x".repeat(HELD_MAX_BYTES);
    let event = format!("{},\"padding\":\"{padding}\"}}\n\n", USAGE.strip_suffix('}').unwrap());
    let (head, tail) = event.split_at(HELD_MAX_BYTES + 1);
    let mut intake = Intake::new(STRIP);
    assert_eq!(intake.push(head.as_bytes().to_vec()), head.as_bytes());
    assert_eq!(intake.push(tail.as_bytes().to_vec()), tail.as_bytes());
    let end = intake.finish();
    assert_eq!((end.stripped_usage, end.report.usage.unwrap().input_tokens), (None, 9));
    // Held as a whole, the same event is stripped.
    assert_eq!(run([event.as_bytes()], STRIP).0, b"");
}

#[test]
fn at_every_cut_the_usage_event_alone_is_missing() {
    for ending in ["\n\n", "\r\n\r\n", "\r\r"] {
        let usage = format!("{USAGE}{ending}");
        let done = format!("data: [DONE]{ending}");
        let source = [STREAM, &usage, &done].concat();
        let expected = [STREAM, &done].concat();
        for cut in 0..=source.len() {
            let (head, tail) = source.as_bytes().split_at(cut);
            let (released, end) = run([head, tail], STRIP);
            assert_eq!(released, expected.as_bytes(), "{ending:?} {cut}");
            assert_eq!(end.stripped_usage.as_deref(), Some(usage.as_bytes()));
            assert_eq!((end.class, end.terminal_prefix), (EndClass::Complete, false));
            assert_eq!(end.report.usage, Some(Usage { input_tokens: 9, output_tokens: 2, ..Usage::default() }));
            assert_eq!(end.report.finish_reason.as_deref(), Some("stop"));
            assert_eq!(run([head, tail], OPTIONS).0, source.as_bytes());
        }
        assert_eq!(run(chunks(source.as_bytes(), &[1]), STRIP).0, expected.as_bytes());
    }
}

#[test]
fn the_end_is_told_at_every_byte() {
    let source = [STREAM, USAGE, "\n\ndata: [DONE]\n\n"].concat();
    for length in 0..=source.len() {
        let part = &source.as_bytes()[..length];
        let (events, scanned) = scan([part], 1 << 20);
        let (released, end) = run(chunks(part, &[7, 1, 30]), OPTIONS);
        assert_eq!(released, part);
        let expected = match (length == source.len(), scanned.inside_event) {
            (true, _) => EndClass::Complete,
            (_, true) => EndClass::CutInsideEvent,
            _ => EndClass::Incomplete,
        };
        assert_eq!(end.class, expected, "{length}");
        assert_eq!(end.report.events, events.len() as u64);

        // Whatever the cut: with the prefix, the error is an event of its own for every reader.
        let error = error_terminal(Dialect::OpenaiChat, "upstream_interrupted", "cut");
        let glue = if end.terminal_prefix { BLANK_LINE } else { b"" };
        let (seen, _) = scan([[part, glue, error.as_slice()].concat().as_slice()], 1 << 20);
        assert!(seen.last().unwrap().data.starts_with(b"{\"error\":"), "{length}");

        // And with the partial event dropped, readers see the whole events and the error.
        let mut shorter = end.clone();
        shorter.drop_partial();
        let kept = length - (end.tail.len() - shorter.tail.len());
        assert!(!shorter.terminal_prefix);
        let (seen, _) = scan([[&part[..kept], error.as_slice()].concat().as_slice()], 1 << 20);
        assert_eq!(seen.len(), events.len() + 1, "{length}");
        assert_eq!(seen[..events.len()], events);
    }
}

#[test]
fn a_dropped_partial_that_was_released_in_part_still_needs_its_blank_line() {
    let mut intake = Intake::new(OPTIONS);
    let start = format!("data: {}", "x".repeat(HELD_MAX_BYTES));
    assert_eq!(intake.push(start.clone().into_bytes()), start.as_bytes());
    assert_eq!(intake.push(b"more".to_vec()), b"");
    let mut end = intake.finish();
    assert_eq!((end.tail.as_slice(), end.class), (b"more".as_slice(), EndClass::CutInsideEvent));
    end.drop_partial();
    assert_eq!((end.tail.as_slice(), end.terminal_prefix), (b"".as_slice(), true));
}

#[test]
fn terminal_and_failure_are_known_while_the_stream_runs() {
    let mut intake = Intake::new(OPTIONS);
    let _ = intake.push(STREAM.as_bytes().to_vec());
    assert!(!intake.has_terminal());
    assert_eq!(intake.report().operation_id.as_deref(), Some("c1"));
    let _ = intake.push(b"data: [DONE]\n".to_vec());
    assert!(!intake.has_terminal());
    let _ = intake.push(b"\n".to_vec());
    assert!(intake.has_terminal());

    let mut failing = Intake::new(OPTIONS);
    let _ = failing.push(b"data: {\"error\":{\"message\":\"m\",\"code\":\"c\"}}\n\ndata: [DONE]\n\n".to_vec());
    assert!(failing.has_terminal());
    let end = failing.finish();
    assert_eq!((end.class, end.report.in_band_error.unwrap().code.as_str()), (EndClass::InBandError, "c"));
}

#[test]
fn what_follows_the_terminal_is_relayed_and_ignored() {
    let exact = [STREAM, USAGE, "\n\ndata: [DONE]\n\n"].concat();
    let late_usage = "data: {\"choices\":[],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n";
    let late_error = "data: {\"error\":{\"message\":\"late\"}}\n\nevent: error\ndata: late\n\n";
    let source = [&exact, late_usage, late_error].concat();
    let expected = [STREAM, "data: [DONE]\n\n", late_usage, late_error].concat();
    let learnt = run([exact.as_bytes()], STRIP).1;
    for size in [1, 64, source.len()] {
        let (released, end) = run(chunks(source.as_bytes(), &[size]), STRIP);
        assert_eq!(released, expected.as_bytes());
        assert_eq!((end.class, &end.stripped_usage), (EndClass::Complete, &learnt.stripped_usage));
        assert_eq!((end.report.usage, end.report.usage_rejected), (learnt.report.usage, false));
        assert_eq!((end.report.in_band_error, end.report.events), (None, learnt.report.events + 3));
    }
}

#[test]
fn an_oversize_event_passes_and_is_counted() {
    let options = IntakeOptions { event_max_bytes: 80, ..STRIP };
    let long = format!("data: {}\n\n", "y".repeat(500));
    let source = [STREAM, &long, USAGE, "\n\ndata: [DONE]\n\n"].concat();
    let (released, end) = run(chunks(source.as_bytes(), &[33]), options);
    assert_eq!(released, source.as_bytes(), "the usage event is above the bound too: it is not read and stays");
    assert_eq!((end.class, end.report.oversize_events, end.report.usage), (EndClass::Complete, 3, None));
}

#[test]
fn plain_bodies_pass_and_are_read_at_the_end() {
    let options = IntakeOptions { streaming: false, ..STRIP };
    let body = b"{\"id\":\"c1\",\"choices\":[{\"message\":{\"content\":\"data: \\n\\n\"},\"finish_reason\":\"stop\"}],\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":2}}";
    for cut in 0..=body.len() {
        let (released, end) = run([&body[..cut]], options);
        assert_eq!(released, &body[..cut]);
        let whole = cut == body.len();
        assert_eq!(end.class, if whole { EndClass::Complete } else { EndClass::Incomplete });
        assert_eq!(end.report.usage.is_some(), whole);
    }
    let gemini = IntakeOptions { dialect: Dialect::Gemini, ..options };
    assert_eq!(
        run([b"{\"error\":{\"code\":400,\"message\":\"m\"}}".as_slice()], gemini).1.class,
        EndClass::InBandError
    );
    let opaque = IntakeOptions { dialect: Dialect::Opaque, ..options };
    assert_eq!(run([b"anything".as_slice()], opaque).1.class, EndClass::Complete);
}

#[test]
fn a_body_above_the_bound_is_told_whole_or_cut_without_being_kept() {
    let options = IntakeOptions { streaming: false, ..OPTIONS };
    let body = format!("{{\"content\":\"{}\"}}", "z".repeat(BODY_READ_MAX_BYTES));
    let (released, end) = run(chunks(body.as_bytes(), &[3 << 20]), options);
    assert_eq!(released.len(), body.len());
    assert_eq!((end.class, end.report.oversize_events), (EndClass::Complete, 1));
    assert_eq!(run([&body.as_bytes()[..body.len() - 1]], options).1.class, EndClass::Incomplete);
}

#[test]
fn an_opaque_stream_has_no_terminal_of_its_own() {
    let options = IntakeOptions { dialect: Dialect::Opaque, ..STRIP };
    let source = [USAGE, "\n\n"].concat();
    let (released, end) = run([source.as_bytes()], options);
    assert_eq!((released.as_slice(), end.class, end.report.events), (source.as_bytes(), EndClass::Complete, 1));
    assert_eq!(run([b"data: a".as_slice()], options).1.class, EndClass::CutInsideEvent);
}

fn block() -> impl Strategy<Value = Vec<u8>> {
    let blocks: Vec<&[u8]> = vec![
        b"data: {\"id\":\"c1\",\"choices\":[{\"delta\":{\"content\":\"\xC3\xA9\"},\"finish_reason\":null}],\"usage\":null}",
        b"data: {\"choices\":[{\"delta\":{},\"finish_reason\":\"stop\"}]}",
        b"data: \xFF\xFE", b": comment", b"event: x", b"data: a\ndata: b", b"data: [DONE]", b"retry: 10", b"id: 7",
    ];
    prop::sample::select(blocks).prop_map(<[u8]>::to_vec)
}

fn ending() -> impl Strategy<Value = &'static [u8]> {
    let endings: Vec<&[u8]> = vec![b"\n\n", b"\r\n\r\n", b"\r\r", b"\n\r\n", b"\r\n\n", b"\n", b"\r\n\r", b""];
    prop::sample::select(endings)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(2_000))]

    #[test]
    fn released_bytes_are_the_source_without_usage_events(
        blocks in prop::collection::vec((block(), ending(), prop::bool::weighted(0.2)), 0..12),
        tail in prop::collection::vec(any::<u8>(), 0..6),
        sizes in prop::collection::vec(0..60_usize, 1..6),
    ) {
        prop_assume!(sizes.iter().any(|&size| size > 0));
        let mut source = Vec::new();
        for (block, ending, usage) in blocks {
            source.extend_from_slice(&block);
            source.extend_from_slice(ending);
            if usage {
                source.extend_from_slice(b"\n\n");
                source.extend_from_slice(USAGE.as_bytes());
                source.extend_from_slice(b"\r\n\r\n");
            }
        }
        source.extend_from_slice(&tail);
        let (plain, plain_end) = run(chunks(&source, &sizes), OPTIONS);
        prop_assert_eq!(&plain, &source);

        let mut expected = source.clone();
        let (events, _) = scan([source.as_slice()], 1 << 20);
        let before_done = events.iter().take_while(|event| event.data.trim_ascii() != b"[DONE]").count();
        for event in events[..before_done].iter().rev().filter(|event| event.data == USAGE.as_bytes()[6..]) {
            expected.drain(event.start as usize..event.end as usize);
        }
        let (stripped, end) = run(chunks(&source, &sizes), STRIP);
        prop_assert_eq!(&stripped, &expected);
        prop_assert_eq!(&end.report, &plain_end.report);
        prop_assert_eq!(end.class, plain_end.class);
        let (at_once, whole_end) = run([source.as_slice()], STRIP);
        prop_assert_eq!(at_once, expected);
        prop_assert_eq!((whole_end.report, whole_end.stripped_usage), (end.report, end.stripped_usage));
    }
}
