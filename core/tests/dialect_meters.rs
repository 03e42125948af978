//! The meters of Responses, Messages and Gemini: what an answer says about itself.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

use holdfast_core::dialect::Dialect;
use holdfast_core::meter::{Continuation, EndClass, MeterReport, StreamMeter, read_body, stream_meter};
use holdfast_core::sse::Scanner;
use holdfast_core::usage::Usage;

fn counts(input: u64, output: u64) -> Usage {
    Usage { input_tokens: input, output_tokens: output, ..Usage::default() }
}

/// The events of a stream, one per line: `name data`, or `- data` without a name.
fn learnt(dialect: Dialect, lines: &[&str]) -> (bool, MeterReport) {
    let event = |line: &&str| {
        let (name, data) = line.split_once(' ').unwrap();
        if name == "-" { format!("data: {data}\n\n") } else { format!("event: {name}\ndata: {data}\n\n") }
    };
    let stream: String = lines.iter().map(event).collect();
    let mut meter = stream_meter(dialect);
    Scanner::new(1 << 20).push(stream.as_bytes(), |event| {
        assert!(!meter.observe(&event), "only Chat Completions has an event of usage");
    });
    (meter.is_done(), meter.into_report())
}

#[test]
fn responses_tell_their_end_their_usage_and_where_to_read_on() {
    let responses = |lines: &[&str]| learnt(Dialect::OpenaiResponses, lines);
    let created =
        r#"response.created {"type":"response.created","sequence_number":0,"response":{"id":"resp_1","usage":null}}"#;
    let delta = r#"response.output_text.delta {"type":"response.output_text.delta","sequence_number":4,"delta":"\"sequence_number\":9","usage":1}"#;
    let completed = r#"response.completed {"type":"response.completed","sequence_number":9,"response":{"id":"resp_2","usage":{"input_tokens":11,"input_tokens_details":{"cached_tokens":3,"cache_write_tokens":2},"output_tokens":2,"output_tokens_details":{"reasoning_tokens":1},"total_tokens":13}}}"#;
    let (done, report) = responses(&[created, delta]);
    assert!(!done);
    assert_eq!((report.operation_id.as_deref(), report.sequence_number, report.usage), (Some("resp_1"), Some(4), None));
    let (done, report) = responses(&[created, delta, completed]);
    assert!(done);
    assert_eq!((report.operation_id.as_deref(), report.sequence_number), (Some("resp_1"), Some(9)));
    assert_eq!(report.finish_reason.as_deref(), Some("response.completed"));
    let usage = report.usage.unwrap();
    assert_eq!((usage.input_tokens, usage.cached_input_tokens, usage.cache_write_tokens), (11, 3, 2));
    assert_eq!((usage.output_tokens, usage.reasoning_tokens), (2, 1));

    let incomplete = |details: &str| {
        let event = format!(
            r#"- {{"type":"response.incomplete","response":{{"incomplete_details":{details},"usage":{{"input_tokens":1,"output_tokens":5,"total_tokens":9}}}}}}"#
        );
        responses(&[&event])
    };
    for (details, reason) in [
        (r#"{"reason":"max_output_tokens"}"#, "max_output_tokens"),
        (r#"{"reason":"something new"}"#, "something new"),
        ("null", "response.incomplete"),
    ] {
        let (done, report) = incomplete(details);
        assert_eq!((done, report.finish_reason.as_deref()), (true, Some(reason)));
        // What the total has above the input is billed as output.
        assert_eq!((report.usage, report.reported_output_tokens), (Some(counts(1, 8)), Some(5)));
    }
}

/// What the provider says in band is a failure, with the usage where it tells one.
#[test]
fn responses_that_fail() {
    let responses = |line: &str| learnt(Dialect::OpenaiResponses, &[line]).1;
    let failed = r#"response.failed {"type":"response.failed","response":{"error":{"code":"server_error","message":"m"},"usage":{"input_tokens":3,"output_tokens":4}}}"#;
    let report = responses(failed);
    assert_eq!(report.in_band_error.unwrap().code, "server_error");
    assert_eq!((report.finish_reason.as_deref(), report.usage), (Some("response.failed"), Some(counts(3, 4))));
    for (event, code, message) in [
        (
            r#"error {"type":"error","code":"rate_limit_exceeded","message":"slow","param":null}"#,
            "rate_limit_exceeded",
            "slow",
        ),
        (r#"error {"type":"error","code":null,"message":"slow"}"#, "error", "slow"),
        (r#"error {"type":"error","error":{"code":"x","message":"nested"}}"#, "x", "nested"),
        ("error plain words", "error", "plain words"),
        (r#"- {"type":"response.cancelled","response":{"status":"cancelled"}}"#, "response.cancelled", ""),
    ] {
        let error = responses(event).in_band_error.unwrap();
        assert_eq!(error.code, code, "{event}");
        assert!(error.message.contains(message), "{event}: {error:?}");
    }
}

/// Numbers that are missing, no numbers, or lower than before leave the last usable one.
#[test]
fn only_usable_sequence_numbers_count() {
    let last = |lines: &[&str]| learnt(Dialect::OpenaiResponses, lines).1.sequence_number;
    let delta = |members: &str| format!(r#"response.output_text.delta {{"delta":"a"{members}}}"#);
    let at = |members: &[&str]| {
        let lines: Vec<String> = members.iter().map(|members| delta(members)).collect();
        last(&lines.iter().map(String::as_str).collect::<Vec<_>>())
    };
    assert_eq!(at(&[""]), None);
    assert_eq!(at(&[r#","sequence_number":7"#, ""]), Some(7));
    assert_eq!(at(&[r#","sequence_number": 7 "#, r#","sequence_number":5"#]), Some(7));
    for unusable in ["null", "\"9\"", "-9", "9.5", "9e3", "9007199254740993", "18446744073709551616"] {
        assert_eq!(
            at(&[r#","sequence_number":1"#, &format!(r#","sequence_number":{unusable}"#)]),
            Some(1),
            "{unusable}"
        );
    }
    // Members that a caller names are not the event's own.
    let nested = r#"- {"type":"response.created","response":{"metadata":{"sequence_number":99}},"sequence_number":2}"#;
    assert_eq!(last(&[nested]), Some(2));
    let tools = r#"response.output_item.done {"item":{"tools":[{"sequence_number":50}]}}"#;
    assert_eq!(last(&[nested, tools]), Some(2));
}

#[test]
fn messages_are_priced_by_their_deltas_alone() {
    let messages = |lines: &[&str]| learnt(Dialect::AnthropicMessages, lines);
    let start = r#"message_start {"type":"message_start","message":{"id":"msg_1","usage":{"input_tokens":25,"cache_creation_input_tokens":100,"cache_read_input_tokens":40,"output_tokens":9}}}"#;
    let text = r#"content_block_delta {"type":"content_block_delta","delta":{"text":"\"message_stop\""}}"#;
    let stop = r#"message_stop {"type":"message_stop"}"#;
    // The placeholder of the start is never a usage, not even of a stream that has ended.
    for lines in [&[start][..], &[start, text], &[start, text, stop]] {
        let (done, report) = messages(lines);
        assert_eq!((done, report.usage, report.operation_id.as_deref()), (lines.len() == 3, None, Some("msg_1")));
    }
    let delta = |usage: &str| {
        format!(r#"message_delta {{"type":"message_delta","delta":{{"stop_reason":"end_turn"}},"usage":{usage}}}"#)
    };
    let whole = |input, read, written, output| Usage {
        input_tokens: input,
        output_tokens: output,
        cached_input_tokens: read,
        cache_write_tokens: written,
        reasoning_tokens: 0,
    };
    for (usage, expected) in [
        (r#"{"output_tokens":15}"#, whole(165, 40, 100, 15)),
        (r#"{"output_tokens":15,"input_tokens":61}"#, whole(201, 40, 100, 15)),
        (r#"{"output_tokens":15,"input_tokens":0,"cache_read_input_tokens":null}"#, whole(165, 40, 100, 15)),
        (r#"{"output_tokens":0}"#, whole(165, 40, 100, 0)),
    ] {
        let (done, report) = messages(&[start, text, &delta(usage), stop]);
        assert!(done, "{usage}");
        assert_eq!((report.usage, report.finish_reason.as_deref()), (Some(expected), Some("end_turn")), "{usage}");
    }
    // Deltas are cumulative: the last one counts, and one that counts backwards is not believed.
    let (_, report) = messages(&[start, &delta(r#"{"output_tokens":15}"#), &delta(r#"{"output_tokens":40}"#)]);
    assert_eq!(report.usage.unwrap().output_tokens, 40);
    let (_, report) = messages(&[start, &delta(r#"{"output_tokens":15}"#), &delta(r#"{"output_tokens":4}"#)]);
    assert!(report.usage_rejected);
    assert_eq!(report.usage.unwrap().output_tokens, 15);
    for bad in [r#"{}"#, r#"{"output_tokens":-1}"#, r#"{"output_tokens":1.5}"#, r#"{"output_tokens":100000001}"#] {
        let (_, report) = messages(&[start, &delta(bad), stop]);
        assert!(report.usage_rejected && report.usage.is_none(), "{bad}");
    }
    // After the end nothing is learnt.
    let (_, report) = messages(&[start, &delta(r#"{"output_tokens":15}"#), stop, &delta(r#"{"output_tokens":99}"#)]);
    assert_eq!(report.usage.unwrap().output_tokens, 15);
    let (done, report) =
        messages(&[r#"error {"type":"error","error":{"type":"overloaded_error","message":"Overloaded"}}"#]);
    assert_eq!((done, report.in_band_error.unwrap().code.as_str()), (false, "overloaded_error"));
}

/// The counts, where they are the provider's last word.
fn exact(report: &MeterReport) -> Option<(u64, u64)> {
    report.usage.filter(|_| !report.usage_rejected).map(|usage| (usage.input_tokens, usage.output_tokens))
}

/// A prompt is never free: where no event has told the input, a count of the output alone is no usage.
#[test]
fn messages_whose_input_nobody_told_have_no_usage() {
    let start = |usage: &str| format!(r#"message_start {{"type":"message_start","message":{{"id":"m"{usage}}}}}"#);
    let delta = |usage: &&str| format!(r#"message_delta {{"type":"message_delta","delta":{{}},"usage":{usage}}}"#);
    let (alone, whole) = (r#"{"output_tokens":15}"#, r#"{"output_tokens":15,"input_tokens":61}"#);
    for (told, deltas, expected) in [
        ("", &[alone][..], None),
        (r#","usage":null"#, &[alone], None),
        (r#","usage":[25]"#, &[alone], None),
        (r#","usage":{"input_tokens":1.5}"#, &[alone], None),
        (r#","usage":{"input_tokens":null,"output_tokens":1}"#, &[alone], None),
        (r#","usage":{"cache_read_input_tokens":40,"output_tokens":1}"#, &[alone], None),
        (r#","usage":{"input_tokens":0,"output_tokens":0}"#, &[alone], None),
        ("", &[alone, alone], None),
        ("", &[whole], Some((61, 15))),
        (r#","usage":{"input_tokens":1.5}"#, &[whole], Some((61, 15))),
        (r#","usage":{"input_tokens":0,"output_tokens":0}"#, &[whole], Some((61, 15))),
        ("", &[alone, whole], Some((61, 15))),
        ("", &[whole, r#"{"output_tokens":20}"#], Some((61, 20))),
        (r#","usage":{"input_tokens":25}"#, &[alone], Some((25, 15))),
        (r#","usage":{"input_tokens":0,"cache_read_input_tokens":40}"#, &[alone], Some((40, 15))),
    ] {
        let lines: Vec<String> = std::iter::once(start(told)).chain(deltas.iter().map(delta)).collect();
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (_, report) = learnt(Dialect::AnthropicMessages, &lines);
        assert_eq!(exact(&report), expected, "{lines:?}");
        assert_eq!(report.usage_rejected, expected.is_none(), "{lines:?}");
    }
    let (_, report) = learnt(Dialect::AnthropicMessages, &[&delta(&alone)]);
    assert!(report.usage_rejected && report.usage.is_none(), "its start was never seen");
    // The end without a count: the one before it was made in mid-stream.
    let start = start(r#","usage":{"input_tokens":25}"#);
    let stop = r#"message_delta {"type":"message_delta","delta":{"stop_reason":"end_turn"}}"#;
    let (_, report) = learnt(Dialect::AnthropicMessages, &[&start, &delta(&alone), stop]);
    assert_eq!((exact(&report), report.usage.map(|usage| usage.output_tokens)), (None, Some(15)));
    let (_, report) = learnt(Dialect::AnthropicMessages, &[&start, &delta(&alone), stop, &delta(&alone)]);
    assert_eq!(exact(&report), Some((25, 15)));
}

/// The event that ends an answer carries its usage. Where it does not, an earlier count was made in mid-stream.
#[test]
fn gemini_counts_before_the_end_are_no_total() {
    let event = |index: u32, finish: &str, usage: &str| {
        format!(r#"- {{"candidates":[{{"index":{index},"content":{{}}{finish}}}]{usage}}}"#)
    };
    let stop = r#","finishReason":"STOP""#;
    let counted = r#","usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2}"#;
    let trailing = r#"- {"usageMetadata":{"promptTokenCount":9,"candidatesTokenCount":2}}"#.to_owned();
    let blocked = r#"- {"promptFeedback":{"blockReason":"SAFETY"}}"#.to_owned();
    for (lines, is_total) in [
        (vec![event(0, "", counted), event(0, stop, counted)], true),
        (vec![event(0, "", counted), event(0, stop, "")], false),
        (vec![event(0, "", counted), event(0, stop, r#","usageMetadata":null"#)], false),
        (vec![event(0, "", counted), blocked], false),
        (vec![event(0, "", counted), event(0, stop, ""), trailing], true),
        (vec![event(0, stop, counted), event(0, "", "")], true),
        (vec![event(0, "", ""), event(0, stop, counted)], true),
        (vec![event(0, stop, counted), event(1, "", ""), event(1, stop, "")], false),
        (vec![event(0, stop, counted), event(1, "", ""), event(1, stop, counted)], true),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (done, report) = learnt(Dialect::Gemini, &lines);
        assert!(done, "{lines:?}");
        assert_eq!(exact(&report), is_total.then_some((9, 2)), "{lines:?}");
        assert!(report.usage.is_some(), "{lines:?}: it stays a floor");
    }
    let (_, report) = learnt(Dialect::Gemini, &[&event(0, stop, "")]);
    assert!(report.usage.is_none() && !report.usage_rejected, "nothing was counted");
}

#[test]
fn gemini_repeats_its_usage_and_the_last_one_counts() {
    let gemini = |lines: &[&str]| learnt(Dialect::Gemini, lines);
    let chunk = |finish: &str, usage: &str| {
        format!(
            r#"- {{"candidates":[{{"content":{{"parts":[{{"text":"\"finishReason\""}}]}}{finish},"index":0}}],"usageMetadata":{usage},"responseId":"r1"}}"#
        )
    };
    let thinking = chunk("", r#"{"promptTokenCount":9,"totalTokenCount":265,"thoughtsTokenCount":256}"#);
    let text =
        chunk("", r#"{"promptTokenCount":9,"candidatesTokenCount":10,"totalTokenCount":275,"thoughtsTokenCount":256}"#);
    let lower = chunk(
        r#","finishReason":"STOP""#,
        r#"{"promptTokenCount":9,"candidatesTokenCount":8,"totalTokenCount":117,"thoughtsTokenCount":100,"cachedContentTokenCount":4}"#,
    );
    let (done, report) = gemini(&[&thinking, &text]);
    assert_eq!((done, report.finish_reason.as_deref(), report.operation_id.as_deref()), (false, None, Some("r1")));
    assert_eq!(report.usage.unwrap().output_tokens, 266);
    let (done, report) = gemini(&[&thinking, &text, &lower]);
    let usage = report.usage.unwrap();
    assert_eq!((done, report.finish_reason.as_deref()), (true, Some("STOP")));
    assert_eq!((usage.output_tokens, usage.reasoning_tokens, usage.cached_input_tokens), (108, 100, 4));
    assert!(!report.usage_rejected);

    // The prompts of tools are input, what else the total has is output.
    let tools = chunk(
        "",
        r#"{"promptTokenCount":9,"toolUsePromptTokenCount":20,"candidatesTokenCount":5,"totalTokenCount":36}"#,
    );
    assert_eq!(gemini(&[&tools]).1.usage, Some(counts(29, 7)));
    for bad in [r#"{}"#, r#"{"promptTokenCount":"9"}"#, r#"{"promptTokenCount":9,"candidatesTokenCount":-1}"#, "[]"] {
        let (_, report) = gemini(&[&text, &chunk("", bad)]);
        assert!(report.usage_rejected, "{bad}");
    }
}

#[test]
fn gemini_ends_when_every_candidate_has() {
    let done = |lines: &[&str]| learnt(Dialect::Gemini, lines).0;
    let (first, second) = (
        r#"- {"candidates":[{"index":0,"finishReason":"STOP"},{"index":1,"content":{}}],"responseId":"r"}"#,
        r#"- {"candidates":[{"index":1,"finishReason":"MAX_TOKENS"}]}"#,
    );
    assert!(!done(&[first]));
    assert!(done(&[first, second]));
    assert!(!done(&[r#"- {"candidates":[{"finishReason":null}]}"#]));
    let (blocked, report) = learnt(
        Dialect::Gemini,
        &[
            r#"- {"promptFeedback":{"blockReason":"SAFETY"},"usageMetadata":{"promptTokenCount":7,"totalTokenCount":7}}"#,
        ],
    );
    assert_eq!((blocked, report.finish_reason.as_deref(), report.usage), (true, Some("SAFETY"), Some(counts(7, 0))));
    let (_, report) = learnt(Dialect::Gemini, &[r#"- {"error":{"code":503,"message":"m","status":"UNAVAILABLE"}}"#]);
    assert_eq!(report.in_band_error.unwrap().code, "503");
}

#[test]
fn plain_bodies_of_the_other_dialects() {
    use EndClass::{Complete, InBandError, Incomplete};
    let usage = |report: &MeterReport| report.usage.map(|usage| (usage.input_tokens, usage.output_tokens));
    for (dialect, body, class, id, finish, tokens) in [
        (
            Dialect::OpenaiResponses,
            r#"{"id":"resp_1","status":"completed","error":null,"usage":{"input_tokens":3,"output_tokens":4}}"#,
            Complete,
            Some("resp_1"),
            Some("response.completed"),
            Some((3, 4)),
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"id":"resp_1","status":"incomplete","incomplete_details":{"reason":"content_filter"},"usage":null}"#,
            Complete,
            Some("resp_1"),
            Some("content_filter"),
            None,
        ),
        (
            Dialect::OpenaiResponses,
            r#"{"id":"resp_1","status":"failed","error":{"code":"server_error"},"usage":{"input_tokens":3,"output_tokens":4}}"#,
            InBandError,
            Some("resp_1"),
            Some("response.failed"),
            Some((3, 4)),
        ),
        (Dialect::OpenaiResponses, r#"{"id":"resp_1","status":"queued"}"#, Incomplete, Some("resp_1"), None, None),
        (Dialect::OpenaiResponses, r#"{"error":{"message":"no"}}"#, InBandError, None, None, None),
        (
            Dialect::AnthropicMessages,
            r#"{"id":"msg_1","type":"message","stop_reason":"end_turn","usage":{"input_tokens":3,"cache_read_input_tokens":2,"output_tokens":4}}"#,
            Complete,
            Some("msg_1"),
            Some("end_turn"),
            Some((5, 4)),
        ),
        (
            Dialect::AnthropicMessages,
            r#"{"id":"msg_1","usage":{"output_tokens":4}}"#,
            Complete,
            Some("msg_1"),
            None,
            None,
        ),
        (
            Dialect::AnthropicMessages,
            r#"{"type":"error","error":{"type":"invalid_request_error","message":"no"}}"#,
            InBandError,
            None,
            None,
            None,
        ),
        (
            Dialect::Gemini,
            r#"{"candidates":[{"finishReason":"STOP"}],"responseId":"r","usageMetadata":{"promptTokenCount":3,"candidatesTokenCount":4,"thoughtsTokenCount":5}}"#,
            Complete,
            Some("r"),
            Some("STOP"),
            Some((3, 9)),
        ),
        (
            Dialect::Gemini,
            r#"{"error":{"code":400,"message":"no","status":"INVALID_ARGUMENT"}}"#,
            InBandError,
            None,
            None,
            None,
        ),
        (
            Dialect::OpenaiChat,
            r#"{"object":"list","data":[],"usage":{"prompt_tokens":8,"total_tokens":8}}"#,
            Complete,
            None,
            None,
            Some((8, 0)),
        ),
        (Dialect::OpenaiChat, r#"{"usage":{"prompt_tokens":8,"total_tokens":9}}"#, Complete, None, None, None),
        (Dialect::Opaque, "not even JSON", Complete, None, None, None),
    ] {
        let (report, found) = read_body(dialect, body.as_bytes());
        assert_eq!(found, class, "{body}");
        assert_eq!((report.operation_id.as_deref(), report.finish_reason.as_deref()), (id, finish), "{body}");
        assert_eq!(usage(&report), tokens, "{body}");
        let cut = read_body(dialect, &body.as_bytes()[..body.len() - 1]);
        assert!(cut.1 == Incomplete || dialect == Dialect::Opaque, "{body}");
    }
}

/// What a stream that is taken up again must show: the next number, of the same operation (design 7: bytes that do not
/// follow what is stored are never spliced).
#[test]
fn a_stream_that_is_taken_up_again_must_go_on_where_it_was() {
    use Continuation::{Differs, Follows, NotAsked, Open};
    let created = r#"{"type":"response.created","sequence_number":0,"response":{"id":"resp_1"}}"#;
    let delta = |number: u64| format!(r#"{{"type":"response.output_text.delta","sequence_number":{number}}}"#);
    let completed = |id: &str, number: u64| {
        let usage = r#"{"input_tokens":1,"output_tokens":5,"total_tokens":6}"#;
        format!(
            r#"{{"type":"response.completed","sequence_number":{number},"response":{{"id":"{id}","usage":{usage}}}}}"#
        )
    };
    let unnumbered = r#"{"type":"keepalive"}"#;
    for (more, continuation) in [
        (vec![], Open),
        (vec![unnumbered.to_owned()], Open),
        (vec![delta(4)], Follows),
        (vec![unnumbered.to_owned(), delta(4), delta(5), completed("resp_1", 6)], Follows),
        (vec![created.to_owned()], Differs),
        (vec![delta(3)], Differs),
        (vec![delta(5)], Differs),
        (vec![delta(4), completed("resp_2", 5)], Differs),
    ] {
        let mut meter = stream_meter(Dialect::OpenaiResponses);
        let observe = |meter: &mut dyn StreamMeter, data: &str| {
            let name = if data.contains(".delta") { "response.output_text.delta" } else { "other" };
            let event = format!("event: {name}\ndata: {data}\n\n");
            Scanner::new(1 << 20).push(event.as_bytes(), |event| assert!(!meter.observe(&event)));
        };
        for data in [created, &delta(3)] {
            observe(&mut *meter, data);
        }
        assert_eq!(meter.report().continuation, NotAsked);
        meter.take_up();
        more.iter().for_each(|data| observe(&mut *meter, data));
        let report = meter.report();
        assert_eq!(report.continuation, continuation, "{more:?}");
        let of_another = more.iter().any(|data| data.contains("resp_2"));
        assert!(!of_another || (report.usage.is_none() && !meter.is_done()), "the usage of another is not ours");
    }
}

/// A provider without numbers repeats everything, and every byte is compared: nothing waits for a proof.
#[test]
fn a_stream_without_numbers_needs_no_proof() {
    let mut meter = stream_meter(Dialect::OpenaiResponses);
    let event = "event: response.created\ndata: {\"type\":\"response.created\",\"response\":{\"id\":\"resp_1\"}}\n\n";
    Scanner::new(1 << 20).push(event.as_bytes(), |event| assert!(!meter.observe(&event)));
    meter.take_up();
    assert_eq!(meter.report().continuation, Continuation::NotAsked);
}

/// Usage that came while one choice had ended and another went on is no total (design 4: only terminal usage is exact).
#[test]
fn an_answer_of_several_choices_has_ended_when_all_have() {
    let candidate = |index: u32, reason: &str| {
        format!(
            r#"- {{"candidates":[{{"index":{index},"content":{{}}{reason}}}],"usageMetadata":{{"promptTokenCount":5,"candidatesTokenCount":1}}}}"#
        )
    };
    let stop = r#","finishReason":"STOP""#;
    let quiet = |index: u32| format!(r#"- {{"candidates":[{{"index":{index},"content":{{"parts":[]}}}}]}}"#);
    let choice = |index: u32, reason: &str| {
        format!(
            r#"- {{"choices":[{{"index":{index},"delta":{{}},"finish_reason":{reason}}}],"usage":{{"prompt_tokens":5,"completion_tokens":1,"total_tokens":6}}}}"#
        )
    };
    let delta =
        |index: u32| format!(r#"- {{"choices":[{{"index":{index},"delta":{{"content":"x"}},"finish_reason":null}}]}}"#);
    for (dialect, lines, finished) in [
        (Dialect::Gemini, vec![candidate(0, stop)], true),
        (Dialect::Gemini, vec![candidate(0, stop), quiet(1)], false),
        (Dialect::Gemini, vec![candidate(0, stop), quiet(1), candidate(1, stop)], true),
        (Dialect::OpenaiChat, vec![delta(0), choice(0, "\"stop\"")], true),
        (Dialect::OpenaiChat, vec![delta(0), choice(0, "\"stop\""), delta(1)], false),
        (Dialect::OpenaiChat, vec![delta(1), choice(0, "\"stop\""), delta(1), choice(1, "\"length\"")], true),
        (Dialect::OpenaiChat, vec![choice(0, "\"stop\""), delta(0)], true),
    ] {
        let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
        let (done, report) = learnt(dialect, &lines);
        assert_eq!(report.finish_reason.is_some(), finished, "{lines:?}");
        assert!(dialect == Dialect::OpenaiChat || done == finished, "{lines:?}");
    }
}
