//! Chat requests: which are served, and what is changed in them. Those of the other APIs: `api_requests`.
#![allow(clippy::unwrap_used, clippy::arithmetic_side_effects, reason = "a test fails by panicking")]

use holdfast_core::request::{Endpoint, GenerationRequest, MODEL_MAX_BYTES, QUESTION_MAX_BYTES, RequestError, Rewrite};
use proptest::prelude::*;
use serde_json::{Value, json};

fn parsed(body: &[u8]) -> Result<GenerationRequest<'_>, RequestError> {
    GenerationRequest::parse(Endpoint::ChatCompletions, None, body)
}

const NOTHING: Rewrite<'_> = Rewrite {
    max_output_tokens: None,
    field_if_absent: "max_completion_tokens",
    include_usage: false,
    background: false,
};

fn refusal(body: &str) -> RequestError {
    parsed(body.as_bytes()).map(|_| ()).unwrap_err()
}

fn rewritten(body: &str, edits: &Rewrite<'_>) -> String {
    String::from_utf8(parsed(body.as_bytes()).unwrap().rewrite(edits)).unwrap()
}

fn capped(body: &str, cap: u64) -> String {
    rewritten(body, &Rewrite { max_output_tokens: Some(cap), ..NOTHING })
}

fn with_usage(body: &str) -> String {
    rewritten(body, &Rewrite { include_usage: true, ..NOTHING })
}

#[test]
fn facts_are_read() {
    let body = r#"{"max_tokens":10,"model":"gpt\u002d4","stream":true,"max_completion_tokens":20,"n":3,"stream_options":{"include_usage":true}}"#;
    let request = parsed(body.as_bytes()).unwrap();
    assert_eq!((request.model(), request.stream(), request.choices()), ("gpt-4", true, 3));
    assert_eq!((request.max_output_tokens(), request.include_usage()), (Some(20), true));

    let plain = parsed(br#"{"model":"m","stream":null,"n":null,"max_tokens":null,"stream_options":null}"#).unwrap();
    assert_eq!(
        (plain.stream(), plain.choices(), plain.max_output_tokens(), plain.include_usage()),
        (false, 1, None, false)
    );

    let not_streamed = parsed(br#"{"model":"m","stream_options":{"include_usage":true}}"#).unwrap();
    assert!(!not_streamed.include_usage());
}

#[test]
fn what_cannot_be_served_is_refused_with_its_reason() {
    use RequestError::{Duplicate, Missing, NotAnObject, NotJson, OutOfRange};
    let wrong = |field, expected| RequestError::WrongType { field, expected };
    let integer = |field| wrong(field, "an integer");
    for (body, reason) in [
        ("", NotJson),
        ("{", NotJson),
        (r#"{"model":"m"} x"#, NotJson),
        (r#"{"model":"m",}"#, NotJson),
        (r#"{"model":"m","x":01}"#, NotJson),
        ("[]", NotAnObject),
        ("null", NotAnObject),
        (r#""model""#, NotAnObject),
        ("{}", Missing("model")),
        (r#"{"model":""}"#, Missing("model")),
        (r#"{"model":null}"#, Missing("model")),
        (r#"{"model":7}"#, wrong("model", "a string")),
        (r#"{"model":["m"]}"#, wrong("model", "a string")),
        (r#"{"model":"m","stream":"true"}"#, wrong("stream", "a boolean")),
        (r#"{"model":"m","stream":1}"#, wrong("stream", "a boolean")),
        (r#"{"model":"m","max_tokens":"5"}"#, integer("max_tokens")),
        (r#"{"model":"m","max_tokens":5.0}"#, integer("max_tokens")),
        (r#"{"model":"m","max_completion_tokens":1e3}"#, integer("max_completion_tokens")),
        (r#"{"model":"m","max_completion_tokens":0}"#, OutOfRange("max_completion_tokens")),
        (r#"{"model":"m","max_tokens":-1}"#, OutOfRange("max_tokens")),
        (r#"{"model":"m","max_tokens":9007199254740993}"#, OutOfRange("max_tokens")),
        (r#"{"model":"m","max_tokens":99999999999999999999}"#, OutOfRange("max_tokens")),
        (r#"{"model":"m","n":0}"#, OutOfRange("n")),
        (r#"{"model":"m","n":129}"#, OutOfRange("n")),
        (r#"{"model":"m","n":true}"#, integer("n")),
        (r#"{"model":"m","stream_options":true}"#, wrong("stream_options", "an object")),
        (r#"{"model":"m","stream_options":[1]}"#, wrong("stream_options", "an object")),
        (r#"{"model":"m","stream_options":{"include_usage":1}}"#, wrong("include_usage", "a boolean")),
        (r#"{"model":"m","model":"m"}"#, Duplicate("model")),
        (r#"{"model":"m","mod\u0065l":"n"}"#, Duplicate("model")),
        (r#"{"model":"m","stream":true,"stream":false}"#, Duplicate("stream")),
        (r#"{"model":"m","max_tokens":1,"max_tokens":1}"#, Duplicate("max_tokens")),
        (r#"{"model":"m","max_completion_tokens":1,"max_completion_tokens":null}"#, Duplicate("max_completion_tokens")),
        (r#"{"model":"m","n":1,"n":128}"#, Duplicate("n")),
        (r#"{"model":"m","stream_options":{},"stream_options":{}}"#, Duplicate("stream_options")),
        (r#"{"model":"m","stream_options":{"include_usage":true,"include_usage":false}}"#, Duplicate("include_usage")),
    ] {
        assert_eq!(refusal(body), reason, "{body}");
    }
    assert_eq!(parsed(b"{\"model\":\"\xFF\"}").unwrap_err(), NotJson);
    assert_eq!(parsed(b"\xEF\xBB\xBF{\"model\":\"m\"}").unwrap_err(), NotJson);
}

#[test]
fn a_model_name_is_short_and_printable() {
    let body = |model: &str| json!({ "model": model }).to_string();
    for longest in ["m".repeat(MODEL_MAX_BYTES), "é".repeat(MODEL_MAX_BYTES / 2)] {
        assert_eq!(parsed(body(&longest).as_bytes()).unwrap().model(), longest);
    }
    let too_long = RequestError::TooLong { field: "model", max_bytes: 256 };
    for model in ["m".repeat(MODEL_MAX_BYTES + 1), "é".repeat(MODEL_MAX_BYTES / 2 + 1), "m".repeat(900_000)] {
        assert_eq!(refusal(&body(&model)), too_long);
    }
    assert_eq!(too_long.to_string(), "`model` is longer than 256 bytes");
    for control in ['\0', '\n', '\r', '\t', '\u{1B}', '\u{7F}', '\u{85}', '\u{9F}'] {
        assert_eq!(refusal(&body(&format!("gpt{control}4"))), RequestError::ControlCharacter("model"), "{control:?}");
    }
    assert_eq!(RequestError::ControlCharacter("model").to_string(), "`model` contains control characters");
    let unusual = "org/模型 v1:free@2?x=1";
    assert_eq!(parsed(body(unusual).as_bytes()).unwrap().model(), unusual);
}

#[test]
fn names_that_differ_in_case_alone_are_refused() {
    for (member, exact) in [
        (r#""Max_Tokens":900"#, "max_tokens"),
        (r#""MAX_TOKENS":null"#, "max_tokens"),
        (r#""Max_Completion_Tokens":900"#, "max_completion_tokens"),
        (r#""N":128"#, "n"),
        (r#""\u004e":128"#, "n"),
        (r#""STREAM":true"#, "stream"),
        (r#""Model":"dear""#, "model"),
        (r#""Stream_Options":{"include_usage":false}"#, "stream_options"),
        (r#""stream_options":{"include_usage":true,"Include_Usage":false}"#, "include_usage"),
        ("\"\u{17F}tream\":true", "stream"),
        ("\"max_to\u{212A}ens\":900", "max_tokens"),
        ("\"max_complet\u{131}on_tokens\":900", "max_completion_tokens"),
    ] {
        let ambiguous = RequestError::Ambiguous(exact);
        assert_eq!(refusal(&format!(r#"{{"model":"m",{member}}}"#)), ambiguous, "{member}");
        assert_eq!(refusal(&format!(r#"{{{member},"model":"m","x":1}}"#)), ambiguous, "{member}");
    }
    assert_eq!(refusal(r#"{"MODEL":"m"}"#), RequestError::Ambiguous("model"));
    assert_eq!(refusal(r#"{"model":"m","n":1,"N":1}"#), RequestError::Ambiguous("n"));
    assert_eq!(RequestError::Ambiguous("n").to_string(), "a member differs from `n` only in case: write it as `n`");
    let others = r#"{"model":"m","Temperature":1,"NN":2,"max-tokens":3,"Max_Token":4,"modell":5,"metadata":{"Model":"x","N":7},"ñ":8}"#;
    assert_eq!(rewritten(others, &NOTHING), others);
}

#[test]
fn nesting_costs_no_stack() {
    const DEPTH: usize = 400_000;
    assert_eq!(refusal(&"[".repeat(DEPTH)), RequestError::NotAnObject);
    assert_eq!(refusal(&format!("{{\"model\":\"m\",\"x\":{}", "[{\"a\":".repeat(DEPTH))), RequestError::NotJson);
    let deep = format!("{{\"model\":\"m\",\"x\":{}{}}}", "[".repeat(DEPTH), "]".repeat(DEPTH));
    assert_eq!(rewritten(&deep, &NOTHING), deep);
}

#[test]
fn without_a_reason_nothing_is_touched() {
    let body = "\n{ \"model\" : \"m\",\"tools\":[ {\"b\":1.50,\"a\":\"\\u00e9\"} ], \"x\":1,\"x\":2e5, \"stream\":true,\
                \"stream_options\": {\"include_usage\" :true},\"max_tokens\":5 }\r\n ";
    assert_eq!(rewritten(body, &NOTHING), body);
    assert_eq!(with_usage(body), body);
    assert_eq!(capped(body, 5), body);
    assert_eq!(capped(body, 4), body.replace("\"max_tokens\":5", "\"max_tokens\":4"));
}

#[test]
fn caps_are_lowered_never_raised_and_set_when_absent() {
    for (body, expected) in [
        (r#"{"model":"m","max_tokens":900}"#, r#"{"model":"m","max_tokens":100}"#),
        (r#"{"max_completion_tokens":900,"model":"m"}"#, r#"{"max_completion_tokens":100,"model":"m"}"#),
        (
            r#"{"model":"m","max_tokens":900,"max_completion_tokens":7}"#,
            r#"{"model":"m","max_tokens":100,"max_completion_tokens":7}"#,
        ),
        (
            r#"{"model":"m","max_tokens":101,"max_completion_tokens": 9007199254740992 }"#,
            r#"{"model":"m","max_tokens":100,"max_completion_tokens": 100 }"#,
        ),
        (r#"{"model":"m"}"#, r#"{"model":"m","max_completion_tokens":100}"#),
        ("{\"model\":\"m\" }\n", "{\"model\":\"m\" ,\"max_completion_tokens\":100}\n"),
        (r#"{"model":"m","max_completion_tokens":null}"#, r#"{"model":"m","max_completion_tokens":100}"#),
        (r#"{"model":"m","max_tokens":null}"#, r#"{"model":"m","max_tokens":null,"max_completion_tokens":100}"#),
        (
            r#"{"model":"m","max_tokens":null,"max_completion_tokens":3}"#,
            r#"{"model":"m","max_tokens":null,"max_completion_tokens":3}"#,
        ),
        (r#"{"model":"m","max\u005ftokens":900}"#, r#"{"model":"m","max\u005ftokens":100}"#),
    ] {
        assert_eq!(capped(body, 100), expected, "{body}");
    }
    let other = Rewrite { max_output_tokens: Some(100), field_if_absent: "max_output_tokens", ..NOTHING };
    assert_eq!(rewritten(r#"{"model":"m"}"#, &other), r#"{"model":"m","max_output_tokens":100}"#);
    assert_eq!(
        rewritten(r#"{"model":"m","max_output_tokens":900}"#, &other),
        r#"{"model":"m","max_output_tokens":100}"#
    );
}

#[test]
fn usage_is_asked_for_beside_the_other_stream_options() {
    for (body, expected) in [
        (r#"{"model":"m","stream":true}"#, r#"{"model":"m","stream":true,"stream_options":{"include_usage":true}}"#),
        (
            r#"{"model":"m","stream_options":null,"stream":true}"#,
            r#"{"model":"m","stream_options":{"include_usage":true},"stream":true}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{ }}"#,
            r#"{"model":"m","stream":true,"stream_options":{ "include_usage":true}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{"include_obfuscation":false}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_obfuscation":false,"include_usage":true}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":false,"x":[]}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"include_usage":true,"x":[]}}"#,
        ),
        (
            r#"{"model":"m","stream":true,"stream_options":{"x":1,"include_usage":null}}"#,
            r#"{"model":"m","stream":true,"stream_options":{"x":1,"include_usage":true}}"#,
        ),
        (r#"{"model":"m"}"#, r#"{"model":"m"}"#),
        (r#"{"model":"m","stream":false}"#, r#"{"model":"m","stream":false}"#),
    ] {
        assert_eq!(with_usage(body), expected, "{body}");
    }
    let all = Rewrite { max_output_tokens: Some(9), field_if_absent: "max_tokens", include_usage: true, ..NOTHING };
    assert_eq!(
        rewritten(r#"{"stream":true,"model":"m"}"#, &all),
        r#"{"stream":true,"model":"m","max_tokens":9,"stream_options":{"include_usage":true}}"#
    );
}

fn member() -> impl Strategy<Value = (&'static str, Value)> {
    prop_oneof![
        (Just("max_tokens"), prop_oneof![Just(Value::Null), (1..300_u64).prop_map(Value::from)]),
        (Just("max_completion_tokens"), prop_oneof![Just(Value::Null), (1..300_u64).prop_map(Value::from)]),
        (Just("stream"), prop_oneof![Just(Value::Null), any::<bool>().prop_map(Value::from)]),
        (
            Just("stream_options"),
            prop_oneof![
                Just(Value::Null),
                Just(json!({})),
                any::<bool>().prop_map(|on| json!({"include_usage": on, "other": "é\"{"})),
                Just(json!({"other": [1, {"include_usage": false}]})),
            ]
        ),
        (Just("messages"), Just(json!([{"role": "user", "content": "max_tokens\": 5, \\\" é"}]))),
        (Just("temperature"), Just(json!(0.5))),
    ]
}

proptest! {
    #[test]
    fn a_rewrite_changes_what_it_should_and_nothing_else(
        members in prop::collection::btree_map("[a-f]{8}", member(), 0..8),
        cap in prop::option::of(1..300_u64),
        include_usage in any::<bool>(),
        spaced in any::<bool>(),
        field in prop::sample::select(vec!["max_tokens", "max_completion_tokens"]),
    ) {
        let mut before = serde_json::Map::new();
        for (name, value) in members.into_values() {
            before.insert(name.to_owned(), value);
        }
        before.insert("model".to_owned(), json!("gpt"));
        let body = if spaced { serde_json::to_vec_pretty(&before) } else { serde_json::to_vec(&before) }.unwrap();
        let request = parsed(&body).unwrap();
        let edits = Rewrite { max_output_tokens: cap, field_if_absent: field, include_usage, ..NOTHING };
        let after_bytes = request.rewrite(&edits);
        let after: serde_json::Map<String, Value> = serde_json::from_slice(&after_bytes).unwrap();

        let mut expected = before.clone();
        if let Some(cap) = cap {
            let mut given = false;
            for name in ["max_tokens", "max_completion_tokens"] {
                if let Some(number) = before.get(name).and_then(Value::as_u64) {
                    given = true;
                    expected.insert(name.to_owned(), json!(number.min(cap)));
                }
            }
            if !given {
                expected.insert(field.to_owned(), json!(cap));
            }
        }
        if include_usage && before.get("stream") == Some(&json!(true)) {
            let mut options = before.get("stream_options").and_then(Value::as_object).cloned().unwrap_or_default();
            options.insert("include_usage".to_owned(), json!(true));
            expected.insert("stream_options".to_owned(), Value::Object(options));
        }
        prop_assert_eq!(&after, &expected);
        if after == before {
            prop_assert_eq!(&after_bytes, &body);
        }
        // What was written needs no second edit.
        let again = parsed(&after_bytes).unwrap();
        prop_assert_eq!(again.rewrite(&edits), after_bytes.clone());
        if let Some(cap) = cap {
            prop_assert!(again.max_output_tokens().unwrap() <= cap);
        }
    }

    #[test]
    fn no_bytes_make_it_panic(body in prop::collection::vec(any::<u8>(), 0..60), text in "[{}\\[\\]\",:a-z0-9\\\\ ]{0,40}") {
        let _ = parsed(&body);
        if let Ok(request) = parsed(text.as_bytes()) {
            let _ = request.rewrite(&Rewrite { max_output_tokens: Some(1), include_usage: true, ..NOTHING });
        }
    }
}

fn question(messages: &Value) -> String {
    let body = json!({ "model": "m", "messages": messages }).to_string();
    parsed(body.as_bytes()).unwrap().question()
}

/// Design 5: "a near-identical prompt". What counts is what is new in this turn.
#[test]
fn the_question_is_what_is_new_in_this_turn() {
    let says = |role: &str, content: Value| json!({ "role": role, "content": content });
    let user = |text: &str| says("user", json!(text));
    let assistant = says("assistant", json!("An answer."));
    for (what, messages, expected) in [
        ("one message", json!([user("One?")]), "One?"),
        ("instructions are no question", json!([says("system", json!("Be kind.")), user("One?")]), "One?"),
        ("nor those of a developer", json!([says("developer", json!("Be kind.")), user("One?")]), "One?"),
        ("earlier turns do not count", json!([user("One?"), assistant, user("Two?")]), "Two?"),
        ("several messages are one turn", json!([assistant, user("Two?"), user("Three?")]), "Two?\nThree?"),
        ("a step of an agent", json!([user("One?"), assistant, says("tool", json!("42"))]), "42"),
        ("a prefill is no turn", json!([user("One?"), assistant, user("Two?"), assistant]), "Two?"),
        (
            "parts",
            json!([says(
                "user",
                json!([{"type":"text","text":"See"},{"type":"image_url","image_url":{}},{"type":"text","text":"this"}])
            )]),
            "See\nthis",
        ),
        ("escapes", json!([user("\"é\"\n\u{1F680}")]), "\"é\"\n\u{1F680}"),
        ("no content", json!([says("user", Value::Null), json!({"role":"user"})]), ""),
        ("no list", json!("One?"), ""),
        ("no messages", Value::Null, ""),
        ("no objects", json!(["One?"]), ""),
        ("an answer alone", json!([assistant]), ""),
        ("content of another form", json!([says("user", json!(7)), user("Two?")]), "Two?"),
    ] {
        assert_eq!(question(&messages), expected, "{what}");
    }
    assert_eq!(parsed(br#"{"model":"m"}"#).unwrap().question(), "");
}

/// A long prompt keeps both its ends: the document in front and the question behind, or the other way round.
#[test]
fn a_long_question_keeps_both_ends() {
    let exact = "é".repeat(QUESTION_MAX_BYTES / 2);
    assert_eq!(question(&json!([{ "role": "user", "content": exact }])), exact);
    let long = format!("first {} last", "é".repeat(QUESTION_MAX_BYTES));
    let kept = question(&json!([{ "role": "user", "content": long }]));
    assert!(kept.starts_with("first é") && kept.ends_with("é last"), "both ends");
    assert!(kept.len() <= QUESTION_MAX_BYTES + 1 && kept.len() > QUESTION_MAX_BYTES - 4, "{}", kept.len());
}
