//! The meter of Chat Completions: what an answer says about itself. Those of the other dialects: `dialect_meters`.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

use holdfast_core::dialect::Dialect;
use holdfast_core::meter::openai_chat::OpenAiChat;
use holdfast_core::meter::{EndClass, MeterReport, StreamMeter, openai_chat_body, stream_meter};
use holdfast_core::sse::Scanner;
use holdfast_core::usage::{TOKENS_MAX, Usage};

fn meter(stream: &str) -> Box<OpenAiChat> {
    let mut meter = Box::new(OpenAiChat::new());
    Scanner::new(1 << 20).push(stream.as_bytes(), |event| {
        meter.observe(&event);
    });
    meter
}

/// The report of a stream with one event per line.
fn report(lines: &[&str]) -> MeterReport {
    let stream: String = lines.iter().map(|line| format!("data: {line}\n\n")).collect();
    meter(&stream).into_report()
}

fn usage(text: &str) -> MeterReport {
    report(&[&format!(r#"{{"id":"c1","choices":[],"usage":{text}}}"#)])
}

fn counts(input: u64, output: u64) -> Usage {
    Usage { input_tokens: input, output_tokens: output, ..Usage::default() }
}

#[test]
fn operation_id_is_the_first_that_is_not_empty() {
    let seen = report(&[
        r#"{"id":"","choices":[]}"#,
        r#"{"id":null,"choices":[{"delta":{"tool_calls":[{"id":"call_1"}]}}]}"#,
        r#"{"id":7}"#,
        r#"{"choices":[],"id":"chatcmpl-1"}"#,
        r#"{"id":"chatcmpl-2"}"#,
    ]);
    assert_eq!(seen.operation_id.as_deref(), Some("chatcmpl-1"));
    assert_eq!(seen.events, 5);
    assert_eq!(report(&[&format!(r#"{{"id":"{}"}}"#, "x".repeat(300))]).operation_id, None);
}

#[test]
fn finish_reason_is_read_with_and_without_spaces() {
    assert_eq!(report(&[r#"{"choices":[{"delta":{},"finish_reason":"stop"}]}"#]).finish_reason.unwrap(), "stop");
    let spaced = r#"{"choices": [{"delta": {}, "finish_reason" : "length"}]}"#;
    assert_eq!(report(&[spaced, r#"{"choices":[{"finish_reason":null}]}"#]).finish_reason.unwrap(), "length");
    let quoted = r#"{"choices":[{"delta":{"content":"\"finish_reason\":\"stop\""},"finish_reason":null}]}"#;
    assert_eq!(report(&[quoted]).finish_reason, None);
}

#[test]
fn usage_is_found_wherever_providers_put_it() {
    let numbers = r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}"#;
    for event in [
        format!(r#"{{"choices":[],"usage":{numbers}}}"#),
        format!(r#"{{"usage": {numbers} }}"#),
        format!(r#"{{"choices":[{{"delta":{{}},"finish_reason":"stop"}}],"usage":{numbers}}}"#),
        format!(r#"{{"choices":[{{"delta":{{}}}}],"x_groq":{{"id":"r","usage":{numbers}}}}}"#),
        format!(r#"{{"choices":[{{"index":0,"delta":{{}},"usage":{numbers}}}]}}"#),
        format!(r#"{{"choices":[{{"delta":{{"content":"usage"}}}}],"usage":{numbers}}}"#),
    ] {
        let seen = report(&[&event, r#"{"choices":[],"usage":null}"#]);
        assert_eq!((seen.usage, seen.usage_rejected), (Some(counts(9, 2)), false), "{event}");
    }
    assert_eq!(report(&[r#"{"choices":[{"delta":{"content":"\"usage\":{"}}],"usage":null}"#]).usage, None);
}

#[test]
fn parts_of_usage_are_read() {
    let seen = usage(
        r#"{"prompt_tokens":9,"completion_tokens":5,"total_tokens":14,
            "prompt_tokens_details":{"cached_tokens":4,"cache_write_tokens":2},"completion_tokens_details":{"reasoning_tokens":3}}"#
            .replace('\n', " ")
            .as_str(),
    );
    let expected =
        Usage { input_tokens: 9, output_tokens: 5, cached_input_tokens: 4, cache_write_tokens: 2, reasoning_tokens: 3 };
    assert_eq!(seen.usage, Some(expected));
    let deepseek =
        usage(r#"{"prompt_tokens":9,"completion_tokens":5,"prompt_tokens_details":null,"prompt_cache_hit_tokens":8}"#);
    assert_eq!(deepseek.usage.unwrap().cached_input_tokens, 8);
}

#[test]
fn reasoning_outside_completion_tokens_is_billed() {
    let seen = usage(
        r#"{"prompt_tokens":12,"completion_tokens":2,"total_tokens":354,"completion_tokens_details":{"reasoning_tokens":340}}"#,
    );
    assert_eq!(seen.usage.unwrap().output_tokens, 342);
    assert_eq!(seen.reported_output_tokens, Some(2));
    let smaller = usage(r#"{"prompt_tokens":12,"completion_tokens":7,"total_tokens":5}"#);
    assert_eq!(smaller.usage, Some(counts(12, 7)));
}

#[test]
fn unusable_usage_is_refused_and_flagged() {
    for text in [
        r#"{"completion_tokens":2}"#,
        r#"{"prompt_tokens":9}"#,
        r#"{"prompt_tokens":null,"completion_tokens":2}"#,
        r#"{"prompt_tokens":-9,"completion_tokens":2}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2.0}"#,
        r#"{"prompt_tokens":9,"completion_tokens":1e3}"#,
        r#"{"prompt_tokens":9,"completion_tokens":1e999}"#,
        r#"{"prompt_tokens":9,"completion_tokens":9223372036854775808}"#,
        r#"{"prompt_tokens":9,"completion_tokens":9007199254740993}"#,
        r#"{"prompt_tokens":9,"completion_tokens":400000000000000}"#,
        r#"{"prompt_tokens":9,"completion_tokens":"2"}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2,"total_tokens":-1}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2,"completion_tokens":200}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":10}}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":{"cached_tokens":-1}}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2,"completion_tokens_details":{"reasoning_tokens":0.5}}"#,
        r#"{"prompt_tokens":9,"completion_tokens":2,"prompt_tokens_details":[1,2]}"#,
        r#"{"prompt_tokens":0,"completion_tokens":0,"total_tokens":0}"#,
        r#"[9,2,11,null,null,null]"#,
        r#""lots""#,
        "17",
        "{}",
    ] {
        let seen = usage(text);
        assert_eq!((seen.usage, seen.usage_rejected), (None, true), "{text}");
        let good = r#"{"usage":{"prompt_tokens":1,"completion_tokens":1}}"#;
        let bad = format!(r#"{{"usage":{text}}}"#);
        let after = report(&[good, &bad]);
        assert_eq!((after.usage, after.usage_rejected), (Some(counts(1, 1)), true), "{text}");
        let before = report(&[&bad, good]);
        assert_eq!((before.usage, before.usage_rejected), (Some(counts(1, 1)), false), "{text}");
    }
}

#[test]
fn counts_that_no_request_has_are_refused() {
    let above = TOKENS_MAX + 1;
    let most = usage(&format!(r#"{{"prompt_tokens":{TOKENS_MAX},"completion_tokens":{TOKENS_MAX}}}"#));
    assert_eq!((most.usage, most.usage_rejected), (Some(counts(TOKENS_MAX, TOKENS_MAX)), false));
    let derived = usage(&format!(r#"{{"prompt_tokens":0,"completion_tokens":1,"total_tokens":{TOKENS_MAX}}}"#));
    assert_eq!((derived.usage, derived.usage_rejected), (Some(counts(0, TOKENS_MAX)), false));
    for text in [
        format!(r#"{{"prompt_tokens":{above},"completion_tokens":2}}"#),
        format!(r#"{{"prompt_tokens":9,"completion_tokens":{above}}}"#),
        format!(r#"{{"prompt_tokens":9,"completion_tokens":2,"total_tokens":{above}}}"#),
        format!(
            r#"{{"prompt_tokens":9,"completion_tokens":2,"completion_tokens_details":{{"reasoning_tokens":{above}}}}}"#
        ),
    ] {
        let seen = usage(&text);
        assert_eq!((seen.usage, seen.usage_rejected), (None, true), "{text}");
    }
}

#[test]
fn nothing_behind_the_terminal_is_learnt() {
    let exact = r#"{"id":"c1","choices":[{"finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":8}}"#;
    let learnt = report(&[exact, "[DONE]"]);
    assert_eq!((learnt.usage, learnt.usage_rejected), (Some(counts(9, 8)), false));
    for late in [
        r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":1}}"#,
        r#"data: {"choices":[],"usage":{"prompt_tokens":9,"completion_tokens":99}}"#,
        r#"data: {"choices":[],"usage":{"prompt_tokens":-1}}"#,
        r#"data: {"choices":[],"usage":{"prompt_tokens":"#,
        r#"data: {"error":{"message":"late","code":"c"}}"#,
        "event: error\ndata: late",
        "event: error\ndata: {\"usage\":",
        r#"data: {"id":"c2","choices":[{"finish_reason":"length"}]}"#,
        "data: [DONE]",
    ] {
        let seen = meter(&format!("data: {exact}\n\ndata: [DONE]\n\n{late}\n\n"));
        assert!(seen.is_done(), "{late}");
        assert_eq!(seen.into_report(), MeterReport { events: 3, ..learnt.clone() }, "{late}");
        // The same event before the terminal does count, so the cases above can fail.
        let before = meter(&format!("data: {exact}\n\n{late}\n\ndata: [DONE]\n\n")).into_report();
        assert_eq!(late == "data: [DONE]", before == MeterReport { events: 3, ..learnt.clone() }, "{late}");
    }
    let bare = report(&["[DONE]", exact]);
    assert_eq!((bare.usage, bare.finish_reason, bare.operation_id), (None, None, None));
}

#[test]
fn an_unreadable_event_with_usage_is_flagged() {
    assert!(report(&[r#"{"choices":[],"usage":{"prompt_tokens":9,"#]).usage_rejected);
    assert!(!report(&["not json at all", r#"{"choices":[],"usage":null"#]).usage_rejected);
    // Invalid UTF-8 is nobody's business in a member that is not read, and makes one that is read unreadable.
    for (event, usage, rejected) in [
        (
            b"data: {\"x\":\"\xFF\xC3\",\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n".as_slice(),
            Some(counts(9, 1)),
            false,
        ),
        (
            b"data: {\"id\":\"\xFF\xC3\",\"usage\":{\"prompt_tokens\":9,\"completion_tokens\":1}}\n\n".as_slice(),
            None,
            true,
        ),
    ] {
        let mut meter = OpenAiChat::new();
        Scanner::new(1 << 20).push(event, |event| assert!(!meter.observe(&event)));
        assert_eq!((meter.report().usage, meter.report().usage_rejected), (usage, rejected));
    }
}

#[test]
fn the_last_usage_wins_but_counts_never_go_down() {
    let at =
        |input: u64, output: u64| format!(r#"{{"usage":{{"prompt_tokens":{input},"completion_tokens":{output}}}}}"#);
    let growing = report(&[&at(9, 1), &at(9, 2), &at(9, 2)]);
    assert_eq!((growing.usage, growing.usage_rejected), (Some(counts(9, 2)), false));
    let shrinking = report(&[&at(9, 5), &at(10, 2)]);
    assert_eq!((shrinking.usage, shrinking.usage_rejected), (Some(counts(10, 5)), true));
    let recovered = report(&[&at(9, 5), &at(9, 2), &at(9, 6)]);
    assert_eq!((recovered.usage, recovered.usage_rejected), (Some(counts(9, 6)), false));
}

#[test]
fn an_error_after_200_is_a_failure() {
    for (event, code, message) in [
        (
            r#"data: {"error":{"message":"boom","type":"server_error","code":"overloaded","param":null}}"#,
            "overloaded",
            "boom",
        ),
        (r#"data: {"error":{"message":"boom","type":"server_error","code":null}}"#, "server_error", "boom"),
        (
            r#"data: {"id":"g","error":{"code":502,"message":"boom"},"choices":[{"finish_reason":"error"}]}"#,
            "502",
            "boom",
        ),
        (r#"data: {"error":"boom"}"#, "error", "boom"),
        (r#"data: {"error" : {"status":"UNAVAILABLE","message":"boom"}}"#, "UNAVAILABLE", "boom"),
        ("event: error\ndata: boom", "error", "boom"),
        ("event: error\ndata: {\"message\":\"boom\"}", "error", "{\"message\":\"boom\"}"),
    ] {
        let seen = meter(&format!("{event}\n\ndata: [DONE]\n\n")).into_report().in_band_error.unwrap();
        assert_eq!((seen.code.as_str(), seen.message.as_str()), (code, message), "{event}");
    }
    let long = report(&[&format!(r#"{{"error":{{"message":"{}"}}}}"#, "é".repeat(2_000))]).in_band_error.unwrap();
    assert_eq!(long.message, "é".repeat(512));
    for harmless in [
        r#"data: {"error":null,"choices":[]}"#,
        r#"data: {"choices":[{"delta":{"content":"\"error\":{"}}]}"#,
        r#"data: {"choices":[{"delta":{},"content_filter_result":{"error":{"code":"x"}}}]}"#,
        "data: [DONE]\n\ndata: {\"error\":{\"message\":\"late\"}}",
    ] {
        assert_eq!(meter(&format!("{harmless}\n\n")).report().in_band_error, None, "{harmless}");
    }
}

#[test]
fn usage_only_events_are_told_from_others() {
    let numbers = r#"{"prompt_tokens":9,"completion_tokens":2}"#;
    for (event, expected) in [
        (format!(r#"{{"id":"c","choices":[],"usage":{numbers}}}"#), true),
        (format!(r#"{{"choices": [ ] , "usage" : {numbers}}}"#), true),
        (String::from(r#"{"choices":[],"usage":{"prompt_tokens":-1}}"#), true),
        (format!(r#"{{"usage":{numbers}}}"#), false),
        (format!(r#"{{"choices":null,"usage":{numbers}}}"#), false),
        (format!(r#"{{"choices":[{{"delta":{{}}}}],"usage":{numbers}}}"#), false),
        (String::from(r#"{"choices":[],"usage":null}"#), false),
        (String::from(r#"{"choices":[],"usage":5}"#), false),
        (format!(r#"{{"choices":[],"usage":{numbers},"error":{{"message":"x"}}}}"#), false),
    ] {
        let mut meter = OpenAiChat::new();
        let mut seen = None;
        Scanner::new(1 << 20).push(format!("data: {event}\n\n").as_bytes(), |found| seen = Some(meter.observe(&found)));
        assert_eq!(seen, Some(expected), "{event}");
    }
}

#[test]
fn plain_bodies() {
    let body = r#" {"id":"chatcmpl-1","object":"chat.completion","choices":[{"index":0,"message":{"role":"assistant","content":"Hi"},
        "finish_reason":"stop"}],"usage":{"prompt_tokens":9,"completion_tokens":2,"total_tokens":11}} "#;
    let (seen, class) = openai_chat_body(body.as_bytes());
    assert_eq!(class, EndClass::Complete);
    assert_eq!((seen.operation_id.as_deref(), seen.finish_reason.as_deref()), (Some("chatcmpl-1"), Some("stop")));
    assert_eq!((seen.usage, seen.events), (Some(counts(9, 2)), 0));
    for cut in 0..body.trim_end().len() {
        let (partial, class) = openai_chat_body(&body.as_bytes()[..cut]);
        assert_eq!((class, partial.usage), (EndClass::Incomplete, None), "{cut}");
    }
    let (failed, class) = openai_chat_body(br#"{"error":{"message":"no","code":"bad"}}"#);
    assert_eq!((class, failed.in_band_error.unwrap().code.as_str()), (EndClass::InBandError, "bad"));
    let (twice, class) = openai_chat_body(br#"{"usage":{"prompt_tokens":1,"completion_tokens":1},"usage":null}"#);
    assert_eq!((class, twice.usage_rejected, twice.usage), (EndClass::Complete, true, None));
    assert_eq!(openai_chat_body(&[b'['; 200_000]).1, EndClass::Incomplete);
    let deep = [vec![b'['; 200_000], vec![b']'; 200_000]].concat();
    assert_eq!(openai_chat_body(&deep).1, EndClass::Complete);
}

#[test]
fn ends_of_the_other_dialects() {
    let watch = |dialect, stream: &str| {
        let mut meter = stream_meter(dialect);
        Scanner::new(1 << 20).push(stream.as_bytes(), |event| {
            meter.observe(&event);
        });
        (meter.is_done(), meter.into_report().in_band_error.map(|error| (error.code, error.message)))
    };
    let error = |code: &str, message: &str| Some((String::from(code), String::from(message)));
    let responses = Dialect::OpenaiResponses;
    assert_eq!(
        watch(responses, "event: response.completed\ndata: {\"type\":\"response.completed\"}\n\n"),
        (true, None)
    );
    assert_eq!(watch(responses, "data: {\"type\":\"response.incomplete\"}\n\n"), (true, None));
    assert_eq!(
        watch(responses, "event: response.output_text.delta\ndata: {\"delta\":\"response.completed\"}\n\n"),
        (false, None)
    );
    let failed = "event: response.failed\ndata: {\"type\":\"response.failed\",\"response\":{\"error\":{\"code\":\"server_error\",\"message\":\"m\"}}}\n\n";
    assert_eq!(watch(responses, failed), (false, error("server_error", "m")));
    let top = "event: error\ndata: {\"type\":\"error\",\"code\":\"rate_limit_exceeded\",\"message\":\"m\"}\n\n";
    assert_eq!(watch(responses, top), (false, error("rate_limit_exceeded", "m")));
    let anthropic = Dialect::AnthropicMessages;
    assert_eq!(watch(anthropic, "event: message_stop\ndata: {\"type\":\"message_stop\"}\n\n"), (true, None));
    let overloaded =
        "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"m\"}}\n\n";
    assert_eq!(watch(anthropic, overloaded), (false, error("overloaded_error", "m")));
    let gemini = Dialect::Gemini;
    assert_eq!(watch(gemini, "data: {\"candidates\":[{\"content\":{}}]}\n\n"), (false, None));
    assert_eq!(watch(gemini, "data: {\"candidates\":[{\"finishReason\":\"STOP\"}]}\n\n"), (true, None));
    assert_eq!(watch(gemini, "data: {\"promptFeedback\":{\"blockReason\":\"SAFETY\"}}\n\n"), (true, None));
    assert_eq!(watch(gemini, "data: {\"error\":{\"code\":503,\"message\":\"m\"}}\n\n"), (false, error("503", "m")));
}
