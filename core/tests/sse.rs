//! The event stream scanner: the rules of the standard, whatever the cuts.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

mod support;

use holdfast_core::sse::Scanner;
use proptest::prelude::*;
use support::{Seen, chunks, scan};

const MAX: usize = 1 << 20;

/// The standard's algorithm over the whole input, written plainly.
fn by_the_book(source: &[u8], event_max_bytes: usize) -> (Vec<Seen>, bool) {
    let mut events = Vec::new();
    let mut at = if source.starts_with(b"\xEF\xBB\xBF") { 3 } else { 0 };
    let (mut start, mut fields) = (at, false);
    let mut data: Option<Vec<u8>> = None;
    let mut seen = Seen::default();
    while let Some(length) = source[at..].iter().position(|&byte| byte == b'\n' || byte == b'\r') {
        let line = &source[at..at + length];
        at += length + if source[at + length..].starts_with(b"\r\n") { 2 } else { 1 };
        if line.is_empty() {
            if let Some(data) = data.take() {
                let (from, to) = (start as u64, at as u64);
                let event = if at - start > event_max_bytes {
                    Seen { oversize: true, ..Seen::default() }
                } else {
                    Seen { data, ..seen }
                };
                events.push(Seen { start: from, end: to, ..event });
            }
            (start, fields, seen) = (at, false, Seen::default());
            continue;
        }
        if line[0] == b':' {
            if !fields {
                start = at;
            }
            continue;
        }
        fields = true;
        let colon = line.iter().position(|&byte| byte == b':');
        let name = &line[..colon.unwrap_or(line.len())];
        let mut value = colon.map_or(&[][..], |colon| &line[colon + 1..]);
        value = value.strip_prefix(b" ").unwrap_or(value);
        match name {
            b"data" => match &mut data {
                Some(data) => {
                    data.push(b'\n');
                    data.extend_from_slice(value);
                }
                None => data = Some(value.to_vec()),
            },
            b"event" => seen.name = value.to_vec(),
            b"id" if !value.contains(&0) => seen.id = Some(value.to_vec()),
            b"retry" if value.iter().all(u8::is_ascii_digit) => {
                seen.retry_ms = std::str::from_utf8(value).unwrap().parse().ok().or(seen.retry_ms);
            }
            _ => {}
        }
    }
    let partial_line = at < source.len() && source[at] != b':';
    (events, fields || partial_line)
}

fn data_of(source: &[u8]) -> Vec<String> {
    let (seen, _) = scan([source], MAX);
    seen.into_iter().map(|event| String::from_utf8(event.data).unwrap()).collect()
}

#[test]
fn the_examples_of_the_standard() {
    assert_eq!(data_of(b"data: YHOO\ndata: +2\ndata: 10\n\n"), ["YHOO\n+2\n10"]);
    let stream = b": test stream\n\ndata: first event\nid: 1\n\ndata:second event\nid\n\ndata:  third event\n\n";
    let (seen, end) = scan([stream.as_slice()], MAX);
    let ids: Vec<_> = seen.iter().map(|event| event.id.as_deref()).collect();
    assert_eq!(ids, [Some(b"1".as_slice()), Some(b"".as_slice()), None]);
    assert_eq!(seen[2].data, b" third event");
    assert!(!end.inside_event && !end.needs_blank_line);
    assert_eq!(data_of(b"data\n\ndata\ndata\n\ndata:"), ["", "\n"]);
    assert_eq!(data_of(b"data:test\n\ndata: test\n\n"), ["test", "test"]);
}

#[test]
fn every_line_ending_and_its_mixtures() {
    for ending in ["\n", "\r", "\r\n"] {
        let stream = format!("event: a{ending}data: x{ending}data: y{ending}{ending}data: z{ending}{ending}");
        assert_eq!(data_of(stream.as_bytes()), ["x\ny", "z"], "{ending:?}");
    }
    assert_eq!(data_of(b"data: a\r\n\rdata: b\n\r\ndata: c\r\r\ndata: d\r\n\n"), ["a", "b", "c", "d"]);
}

#[test]
fn offsets_do_not_depend_on_where_a_line_ending_was_cut() {
    let stream = b"data: a\r\n\r\ndata: b\r\n\r\n";
    let (whole, _) = scan([stream.as_slice()], MAX);
    assert_eq!((whole[0].end, whole[1].start, whole[1].end), (11, 11, 22));
    for cut in 0..=stream.len() {
        let (head, tail) = stream.split_at(cut);
        assert_eq!(scan([head, tail], MAX).0, whole, "{cut}");
    }
}

#[test]
fn a_last_event_without_blank_line_is_not_dispatched() {
    for (stream, inside, needs_blank) in [
        ("data: a\n\ndata: b", true, true),
        ("data: a\n\ndata: b\n", true, true),
        ("data: a\n\ndata: b\r", true, true),
        ("data: a\n\nda", true, true),
        ("data: a\n\n: comm", false, true),
        ("data: a\n\n: comment\n", false, false),
        ("data: a\n\n\n", false, false),
        ("data: a\r\r", false, false),
        ("data: a\r\n\r", false, false),
    ] {
        let (seen, end) = scan([stream.as_bytes()], MAX);
        assert_eq!(seen.len(), 1, "{stream:?}");
        assert_eq!((end.inside_event, end.needs_blank_line), (inside, needs_blank), "{stream:?}");
    }
    assert!(!scan([b"".as_slice()], MAX).1.needs_blank_line);
}

#[test]
fn byte_order_mark_only_at_the_start() {
    let stream = b"\xEF\xBB\xBFdata: a\n\n\xEF\xBB\xBFdata: b\n\n";
    for size in 1..=stream.len() {
        let (seen, _) = scan(chunks(stream, &[size]), MAX);
        assert_eq!(seen.len(), 1, "cut every {size}: the second mark makes an unknown field");
        assert_eq!((seen[0].start, seen[0].data.as_slice()), (3, b"a".as_slice()));
    }
}

#[test]
fn fields_that_are_not_to_be_taken() {
    let stream = b"id: a\0b\nretry: 12x\nretry: 30\nretry:\nfoo: bar\nDATA: no\n data: no\ndata: yes\n\n";
    let (seen, _) = scan([stream.as_slice()], MAX);
    assert_eq!((seen[0].id.clone(), seen[0].retry_ms, seen[0].data.as_slice()), (None, Some(30), b"yes".as_slice()));
    assert_eq!(data_of(b"event: only\nid: 3\n\ndata: a\n\n"), ["a"], "without data nothing is dispatched");
    assert_eq!(scan([b"event: only\n\ndata: a\n\n".as_slice()], MAX).0[0].name, b"");
}

#[test]
fn an_oversize_event_is_reported_and_the_stream_goes_on() {
    let long = format!("data: a\n\nevent: big\nid: 9\ndata: {}\n\ndata: b\n\n", "x".repeat(10_000_000));
    for size in [1 << 14, 999_983, long.len()] {
        let (seen, end) = scan(chunks(long.as_bytes(), &[size]), MAX);
        assert_eq!(seen.len(), 3);
        let big = &seen[1];
        assert!(big.oversize && big.data.is_empty() && big.name.is_empty() && big.id.is_none());
        assert_eq!((big.start, big.end), (9, long.len() as u64 - 9));
        assert_eq!((seen[2].data.as_slice(), seen[2].oversize), (b"b".as_slice(), false));
        assert!(!end.inside_event);
    }
}

#[test]
fn contents_of_one_chunk_are_borrowed_from_it() {
    let chunk = b"event: e\ndata: borrowed\n\n".to_vec();
    let range = chunk.as_ptr_range();
    let mut count = 0;
    Scanner::new(MAX).push(&chunk, |event| {
        count += 1;
        assert!(range.contains(&event.data.as_ptr()) && range.contains(&event.name.as_ptr()));
    });
    assert_eq!(count, 1);
}

#[test]
fn boundaries_lie_between_events_and_behind_comments() {
    let mut scanner = Scanner::new(MAX);
    let mut expect = |text: &str, boundary: u64, at_boundary: bool| {
        scanner.push(text.as_bytes(), |_| {});
        assert_eq!((scanner.boundary(), scanner.at_boundary()), (boundary, at_boundary), "{text:?}");
    };
    expect("", 0, true);
    expect(": ping\n", 7, true);
    expect("data: a\n", 7, false);
    expect(": inside\n", 7, false);
    expect("\n", 25, true);
    expect("\r", 25, false);
    expect("\n", 27, true);
    expect(": half", 27, false);
}

fn token() -> impl Strategy<Value = Vec<u8>> {
    let words: Vec<&[u8]> = vec![
        b"data",
        b"data:",
        b"data: ",
        b"event",
        b"event: ",
        b"id",
        b"id:",
        b"retry: 12",
        b":",
        b" ",
        b"x",
        b"{\"a\":1}",
        b"\n",
        b"\n\n",
        b"\r",
        b"\r\n",
        b"\r\n\r\n",
        b"\r\r",
        b"\n\r",
        b"\xEF\xBB\xBF",
        b"\xEF",
        b"\0",
        b"\xC3",
        b"\xA9",
    ];
    prop_oneof![
        30 => prop::sample::select(words).prop_map(<[u8]>::to_vec),
        1 => prop::collection::vec(any::<u8>(), 0..6),
    ]
}

fn source() -> impl Strategy<Value = Vec<u8>> {
    prop::collection::vec(token(), 0..40).prop_map(|tokens| tokens.concat())
}

/// Chunk sizes that are used in turn; empty chunks among them, but not alone.
fn sizes() -> impl Strategy<Value = Vec<usize>> {
    (prop::collection::vec(0..9_usize, 0..7), 1..9_usize).prop_map(|(mut sizes, last)| {
        sizes.push(last);
        sizes
    })
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(4_000))]

    #[test]
    fn any_cut_of_any_source_gives_what_the_standard_says(
        source in source(),
        sizes in sizes(),
        bound in prop_oneof![Just(MAX), 0..40_usize],
    ) {
        let (expected, inside) = by_the_book(&source, bound);
        let (seen, end) = scan(chunks(&source, &sizes), bound);
        prop_assert_eq!(&seen, &expected);
        prop_assert_eq!(end.inside_event, inside);
        let (bytewise, bytewise_end) = scan(chunks(&source, &[1]), bound);
        prop_assert_eq!(bytewise, expected);
        prop_assert_eq!(bytewise_end, end);
    }

    #[test]
    fn a_blank_line_is_asked_for_exactly_when_it_is_needed(source in source()) {
        let (before, end) = scan([source.as_slice()], MAX);
        let glue: &[u8] = if end.needs_blank_line { holdfast_core::sse::BLANK_LINE } else { b"" };
        let appended = [&source, glue, b"event: error\ndata: e\n\n"].concat();
        let (after, _) = scan([appended.as_slice()], MAX);
        let last = after.last().unwrap();
        prop_assert_eq!((last.name.as_slice(), last.data.as_slice()), (b"error".as_slice(), b"e".as_slice()));
        prop_assert!(after.len() > before.len());
    }
}

/// A byte order mark that arrives alone does not count towards the bound of the first event.
#[test]
fn a_mark_cut_off_from_its_line_is_not_part_of_the_event() {
    let source = b"\xEF\xBB\xBFdata: \xEF\xBB\xBF\r\n\n";
    let (whole, _) = scan([source.as_slice()], 12);
    let (bytewise, _) = scan(chunks(source, &[1]), 12);
    assert_eq!(whole, bytewise);
    assert!(whole.iter().all(|event| !event.oversize));
}
