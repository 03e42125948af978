//! What a provider is asked about an operation that runs there, and what its answers mean (wire formats, section 1).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

use holdfast_core::dialect::Dialect;
use holdfast_core::intake::{Intake, IntakeOptions};
use holdfast_core::operation::{
    Answer, AnswerBody, Differs, FinalForm, NotTold, OPERATION_ID_MAX_BYTES, ResumePoint, ResumeScan, Splice,
    cancel_path, is_operation_id, look_up_path, read_cancel, read_final_form, read_look_up, resume_is_refused,
    resume_path,
};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{CancelAnswer, Report};
use holdfast_core::usage::Usage;
use proptest::prelude::*;

const PATH: &str = "/v1/responses";
const ID: &str = "resp_1";
const BACKGROUND: Dialect = Dialect::OpenaiResponses;

/// An id comes from outside: nothing that would change a path enters one.
#[test]
fn ids_that_may_enter_a_path() {
    let longest = "a".repeat(OPERATION_ID_MAX_BYTES);
    for id in ["resp_1", "resp-A_9", "0", &longest] {
        assert!(is_operation_id(id), "{id}");
    }
    let longer = "a".repeat(OPERATION_ID_MAX_BYTES + 1);
    for id in ["", ".", "..", "a/b", "a?b", "a#b", "a%2e", "a b", "a\n", "é", "a:b", "a@b", "a\\b", &longer] {
        assert!(!is_operation_id(id), "{id}");
        assert_eq!(look_up_path(BACKGROUND, PATH, id), None);
        assert_eq!(cancel_path(BACKGROUND, PATH, id), None);
        assert_eq!(resume_path(BACKGROUND, PATH, id, Some(1)), None);
    }
}

#[test]
fn paths() {
    assert_eq!(look_up_path(BACKGROUND, PATH, ID).unwrap(), "/v1/responses/resp_1");
    assert_eq!(cancel_path(BACKGROUND, PATH, ID).unwrap(), "/v1/responses/resp_1/cancel");
    assert_eq!(
        resume_path(BACKGROUND, PATH, ID, Some(7)).unwrap(),
        "/v1/responses/resp_1?stream=true&starting_after=7&include_obfuscation=false"
    );
    assert_eq!(
        resume_path(BACKGROUND, PATH, ID, None).unwrap(),
        "/v1/responses/resp_1?stream=true&include_obfuscation=false"
    );
    for dialect in [Dialect::OpenaiChat, Dialect::AnthropicMessages, Dialect::Gemini, Dialect::Opaque] {
        assert_eq!(look_up_path(dialect, PATH, ID), None, "{dialect:?}");
    }
}

const fn answer(status: u16, body: &[u8]) -> Answer<'_> {
    Answer { status, retry_after_ms: Some(7_000), body }
}

fn state(status: &str) -> Vec<u8> {
    format!(r#"{{"id":"resp_1","object":"response","status":"{status}","output":[{{"status":"x"}}]}}"#).into_bytes()
}

#[test]
fn lookups() {
    let read = |status, body: &[u8]| read_look_up(BACKGROUND, ID, &answer(status, body));
    let ended = |outcome| Ok(Report::Ended { outcome, usage: None });
    for (word, expected) in [
        ("queued", Ok(Report::Processing)),
        ("in_progress", Ok(Report::Processing)),
        ("completed", ended(Outcome::Completed)),
        ("incomplete", ended(Outcome::Incomplete)),
        ("failed", ended(Outcome::Failed)),
        ("cancelled", ended(Outcome::Cancelled)),
        ("somehow", Err(NotTold { retry_after_ms: None })),
    ] {
        assert_eq!(read(200, &state(word)), expected, "{word}");
    }
    for body in ["", "[]", "{}", r#"{"status":"completed"}"#, r#"{"id":"resp_2","status":"completed"}"#] {
        assert_eq!(read(200, body.as_bytes()), Err(NotTold { retry_after_ms: None }), "{body}");
    }
    assert_eq!(read(404, b"{}"), Ok(Report::Unknown), "not found says nothing about what it did");
    for status in [301, 400, 401, 403, 429, 500, 503] {
        assert_eq!(read(status, &state("completed")), Err(NotTold { retry_after_ms: Some(7_000) }), "{status}");
    }
}

/// Seed 1, "Cancellation Requested Is Not Cancellation Confirmed": the state of the operation decides.
#[test]
fn answers_to_a_cancel() {
    let read = |status, body: &[u8]| read_cancel(BACKGROUND, ID, &answer(status, body));
    let ended = |outcome| Some(Report::Ended { outcome, usage: None });
    for (word, expected) in [
        ("cancelled", (CancelAnswer::Confirmed { usage: None }, None)),
        ("queued", (CancelAnswer::Accepted, None)),
        ("in_progress", (CancelAnswer::Accepted, None)),
        ("completed", (CancelAnswer::TooLate, ended(Outcome::Completed))),
        ("incomplete", (CancelAnswer::TooLate, ended(Outcome::Incomplete))),
        ("failed", (CancelAnswer::TooLate, ended(Outcome::Failed))),
        ("somehow", (CancelAnswer::Accepted, None)),
    ] {
        assert_eq!(read(200, &state(word)), expected, "{word}");
    }
    assert_eq!(read(202, b""), (CancelAnswer::Accepted, None));
    for (status, expected) in [
        (400, CancelAnswer::TooLate),
        (409, CancelAnswer::TooLate),
        (401, CancelAnswer::Refused),
        (403, CancelAnswer::Refused),
        (404, CancelAnswer::Refused),
        (301, CancelAnswer::Refused),
        (429, CancelAnswer::Failed { retry_after_ms: Some(7_000) }),
        (503, CancelAnswer::Failed { retry_after_ms: Some(7_000) }),
    ] {
        assert_eq!(read(status, &state("cancelled")), (expected, None), "{status}");
    }
}

/// Design 6: "store the result". Any answer that brings the final form does, whatever was asked for.
#[test]
fn final_forms() {
    let read = |status, body: &[u8]| read_final_form(BACKGROUND, ID, &answer(status, body));
    let form = |outcome, without_output| Some(FinalForm { outcome, without_output });
    for (word, expected) in [
        ("queued", None),
        ("in_progress", None),
        ("completed", form(Outcome::Completed, false)),
        ("incomplete", form(Outcome::Incomplete, false)),
        ("failed", form(Outcome::Failed, false)),
        ("cancelled", form(Outcome::Cancelled, false)),
        ("somehow", None),
    ] {
        assert_eq!(read(200, &state(word)), expected, "{word}");
    }
    for (rest, without_output) in [(r#","output":[]"#, true), (r#","output":null"#, false), ("", false)] {
        let body = format!(r#"{{"id":"resp_1","status":"cancelled"{rest}}}"#);
        assert_eq!(read(202, body.as_bytes()), form(Outcome::Cancelled, without_output), "{rest}");
    }
    assert_eq!(read(200, br#"{"id":"resp_2","status":"completed"}"#), None, "another operation");
    for status in [301, 400, 404, 500] {
        assert_eq!(read(status, &state("completed")), None, "{status}");
    }
}

/// An answer that is larger than what is kept tells the same: what it came to, and what it used.
#[test]
fn the_excerpt_of_a_large_answer_tells_the_same() {
    let text = r#"word \"id\": {"#.repeat(700_000);
    let usage = r#"{"input_tokens":12,"output_tokens":34,"output_tokens_details":{"reasoning_tokens":5}}"#;
    let large = format!(
        r#"{{"id":"resp_1","output":[{{"id":"msg_1","status":"failed","text":"{text}"}}],"usage":{usage},"status":"completed"}}"#
    );
    assert!(large.len() > 9 << 20);
    let mut body = AnswerBody::new(1_000_000);
    large.as_bytes().chunks(65_536).for_each(|piece| body.push(piece));
    let excerpt = body.excerpt();
    let told = |body: &[u8]| read_look_up(BACKGROUND, ID, &answer(200, body));
    let usage = Usage { input_tokens: 12, output_tokens: 34, reasoning_tokens: 5, ..Usage::default() };
    assert_eq!(told(&excerpt), Ok(Report::Ended { outcome: Outcome::Completed, usage: Some(usage) }));
    assert_eq!(told(&excerpt), told(large.as_bytes()));
    assert_eq!(read_final_form(BACKGROUND, ID, &answer(200, &excerpt)).unwrap().outcome, Outcome::Completed);
    assert!(body.is_too_large() && body.into_pieces().is_empty());
    // One that broke off tells nothing.
    let mut cut = AnswerBody::new(1_000_000);
    cut.push(&large.as_bytes()[..large.len() - 1]);
    assert_eq!(told(&cut.excerpt()), Err(NotTold { retry_after_ms: None }));
}

#[test]
fn refusals_to_go_on() {
    for (status, refused) in
        [(200, true), (302, true), (400, true), (404, true), (408, false), (429, false), (500, false), (503, false)]
    {
        assert_eq!(resume_is_refused(status), refused, "{status}");
    }
}

fn event(number: Option<u64>, text: &str) -> String {
    let number = number.map_or_else(String::new, |number| format!(r#","sequence_number":{number}"#));
    format!("event: e\ndata: {{\"type\":\"e\"{number},\"delta\":\"{text}\"}}\n\n")
}

fn point(stored: &str) -> ResumePoint {
    let mut scan = ResumeScan::new(1_000);
    scan.push(stored.as_bytes());
    scan.point()
}

#[test]
fn where_a_stream_is_taken_up() {
    let (first, second) = (event(Some(0), "a"), event(Some(5), "b"));
    let (plain, comment) = (event(None, "c"), ": hello\n\n");
    let half = second.get(..10).unwrap();
    let end = first.len() as u64;
    for (stored, starting_after, compare_from) in [
        (String::new(), None, 0),
        (first.clone(), Some(0), end),
        (format!("{first}{second}"), Some(5), end + second.len() as u64),
        (format!("{first}{}", half), Some(0), end),
        (half.to_owned(), None, 0),
        // Nobody repeats comments.
        (format!("{first}{comment}"), Some(0), end + comment.len() as u64),
        (format!("{first}{comment}{}", half), Some(0), end + comment.len() as u64),
        // Events without a number may come again: then they must be the same.
        (format!("{first}{plain}"), Some(0), end),
        (format!("{plain}{first}"), Some(0), end + plain.len() as u64),
        (plain.clone(), None, 0),
        // A number that does not grow is none to start after.
        (format!("{second}{first}"), Some(5), second.len() as u64),
        // An event that is too large to be read has no number.
        (format!("{first}{}", event(Some(9), &"x".repeat(2_000))), Some(0), end),
    ] {
        assert_eq!(point(&stored), ResumePoint { starting_after, compare_from }, "{stored}");
    }
}

#[test]
fn what_differs_is_never_spliced() {
    let mut splice = Splice::new(b"abcdef".to_vec());
    assert_eq!(splice.take(b"abc".to_vec()), Ok(vec![]));
    assert_eq!(splice.take(b"defgh".to_vec()), Ok(b"gh".to_vec()));
    assert_eq!(splice.take(b"xyz".to_vec()), Ok(b"xyz".to_vec()));
    for (first, then) in [("x", ""), ("abcx", ""), ("abc", "deX"), ("abcdeXgh", "")] {
        let mut splice = Splice::new(b"abcdef".to_vec());
        let met = splice.take(first.into()).and_then(|_| splice.take(then.into()));
        assert_eq!(met, Err(Differs), "{first} {then}");
    }
}

proptest! {
    /// Invariant 9 and design 7: cut anywhere, taken up behind the last whole stored event, and read in any pieces, a stream is the same
    /// as if nothing had happened; and so is what was learnt from it.
    #[test]
    fn cut_anywhere_and_taken_up_it_is_the_same(
        parts in prop::collection::vec((0_u8..6, "[a-z]{0,40}"), 1..12),
        cut in any::<prop::sample::Index>(),
        piece in 1_usize..40,
    ) {
        let mut number = 0;
        let events: Vec<(Option<u64>, String)> = parts
            .iter()
            .map(|(kind, text)| match kind {
                0 => (None, event(None, text)),
                _ => {
                    number += u64::from(*kind);
                    (Some(number), event(Some(number), text))
                }
            })
            .collect();
        let whole: String = events.iter().map(|(_, text)| text.as_str()).collect();
        let cut = cut.index(whole.len() + 1);
        let stored = &whole.as_bytes()[..cut];

        let mut scan = ResumeScan::new(1_000);
        stored.chunks(piece).for_each(|piece| scan.push(piece));
        let ResumePoint { starting_after, compare_from } = scan.point();
        // The provider gives every event behind that number, those without one where they stood.
        let from = starting_after.map_or(0, |after| {
            events.iter().position(|(number, _)| *number == Some(after)).map_or(0, |at| at + 1)
        });
        let rest: String = events[from..].iter().map(|(_, text)| text.as_str()).collect();

        let options = IntakeOptions { dialect: BACKGROUND, streaming: true, strip_usage: false, event_max_bytes: 1_000 };
        let mut intake = Intake::new(options);
        stored.chunks(piece).for_each(|piece| intake.replay(piece));
        let mut splice = Splice::new(stored[usize::try_from(compare_from).unwrap()..].to_vec());
        let mut log = stored.to_vec();
        for piece in rest.as_bytes().chunks(piece) {
            log.extend(intake.push(splice.take(piece.to_vec()).unwrap()));
        }
        let end = intake.finish();
        log.extend(&end.tail);
        prop_assert_eq!(String::from_utf8(log).unwrap(), whole.clone());

        let mut direct = Intake::new(options);
        let _released = direct.push(whole.into_bytes());
        let direct = direct.finish();
        prop_assert_eq!((end.report, end.class), (direct.report, direct.class));
    }
}
