//! Requests of every API: which are served, and what is changed in them.
#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

use holdfast_core::policy::Background;
use holdfast_core::request::{Endpoint, GenerationRequest, RequestError, Rewrite};

const NOTHING: Rewrite<'_> = Rewrite {
    max_output_tokens: None,
    field_if_absent: "max_completion_tokens",
    include_usage: false,
    background: false,
};

/// The members of each API that decide about cost: read strictly, capped where they are above the cap, added where they
/// are missing; nothing else changes.
#[test]
fn every_api_is_capped_by_its_own_member() {
    use Endpoint::{Completions, Embeddings, GenerateContent, Messages, Responses, StreamGenerateContent};
    for (endpoint, body, cap, choices, rewritten) in [
        (Completions, r#"{"model":"m","prompt":"a"}"#, None, 1, r#"{"model":"m","prompt":"a","max_tokens":50}"#),
        (
            Completions,
            r#"{"model":"m","prompt":["a","b"],"n":2,"best_of":3,"max_tokens":60}"#,
            Some(60),
            6,
            r#"{"model":"m","prompt":["a","b"],"n":2,"best_of":3,"max_tokens":50}"#,
        ),
        (
            Completions,
            r#"{"model":"m","prompt":[1,2,3],"max_tokens":5}"#,
            Some(5),
            1,
            r#"{"model":"m","prompt":[1,2,3],"max_tokens":5}"#,
        ),
        (
            Completions,
            r#"{"model":"m","prompt":[[1,2],[3]],"max_tokens":5}"#,
            Some(5),
            2,
            r#"{"model":"m","prompt":[[1,2],[3]],"max_tokens":5}"#,
        ),
        (
            Embeddings,
            r#"{"model":"m","input":"a","max_tokens":9}"#,
            None,
            1,
            r#"{"model":"m","input":"a","max_tokens":9}"#,
        ),
        (Responses, r#"{"model":"m","input":"a"}"#, None, 1, r#"{"model":"m","input":"a","max_output_tokens":50}"#),
        (
            Responses,
            r#"{ "model":"m", "max_output_tokens": 99, "max_tokens":98 }"#,
            Some(99),
            1,
            r#"{ "model":"m", "max_output_tokens": 50, "max_tokens":98 }"#,
        ),
        (
            Messages,
            r#"{"max_tokens":1024,"messages":[],"model":"m"}"#,
            Some(1_024),
            1,
            r#"{"max_tokens":50,"messages":[],"model":"m"}"#,
        ),
        (Messages, r#"{"model":"m","max_tokens":null}"#, None, 1, r#"{"model":"m","max_tokens":50}"#),
        (
            GenerateContent,
            r#"{"contents":[]}"#,
            None,
            1,
            r#"{"contents":[],"generationConfig":{"maxOutputTokens":50}}"#,
        ),
        (GenerateContent, "{}", None, 1, r#"{"generationConfig":{"maxOutputTokens":50}}"#),
        (
            StreamGenerateContent,
            r#"{"generationConfig":{"temperature":1,"candidateCount":2}, "contents":[]}"#,
            None,
            2,
            r#"{"generationConfig":{"temperature":1,"candidateCount":2,"maxOutputTokens":50}, "contents":[]}"#,
        ),
        (
            StreamGenerateContent,
            r#"{"generationConfig":{},"model":"models/m"}"#,
            None,
            1,
            r#"{"generationConfig":{"maxOutputTokens":50},"model":"models/m"}"#,
        ),
        (
            StreamGenerateContent,
            r#"{"generationConfig":null,"model":"m"}"#,
            None,
            1,
            r#"{"generationConfig":{"maxOutputTokens":50},"model":"m"}"#,
        ),
        (
            StreamGenerateContent,
            r#"{"generation_config":{"max_output_tokens":70,"candidate_count":3}}"#,
            Some(70),
            3,
            r#"{"generation_config":{"max_output_tokens":50,"candidate_count":3}}"#,
        ),
    ] {
        let model = endpoint.streams_by_path().map(|_| "m");
        let request = GenerationRequest::parse(endpoint, model, body.as_bytes()).unwrap();
        assert_eq!((request.model(), request.max_output_tokens(), request.choices()), ("m", cap, choices), "{body}");
        let edits = Rewrite { max_output_tokens: Some(50), include_usage: true, ..NOTHING };
        assert_eq!(String::from_utf8(request.rewrite(&edits)).unwrap(), rewritten, "{endpoint:?} {body}");
    }
}

#[test]
fn streams_are_asked_for_in_the_body_or_by_the_path() {
    let streams = |endpoint: Endpoint, body: &str| {
        let model = endpoint.streams_by_path().map(|_| "m");
        GenerationRequest::parse(endpoint, model, body.as_bytes()).map(|request| request.stream())
    };
    for endpoint in [Endpoint::Completions, Endpoint::Responses, Endpoint::Messages] {
        assert_eq!(streams(endpoint, r#"{"model":"m","stream":true}"#), Ok(true));
        assert_eq!(streams(endpoint, r#"{"model":"m"}"#), Ok(false));
    }
    assert_eq!(streams(Endpoint::GenerateContent, r#"{"stream":true}"#), Ok(false));
    assert_eq!(streams(Endpoint::StreamGenerateContent, "{}"), Ok(true));
    assert_eq!(streams(Endpoint::Embeddings, r#"{"model":"m","stream":false}"#), Ok(false));
    assert!(streams(Endpoint::Embeddings, r#"{"model":"m","stream":true}"#).is_err());
    // Only Chat Completions and Completions have an event of usage to ask for.
    let edits = Rewrite { include_usage: true, ..NOTHING };
    let asked = |endpoint, body: &'static str| {
        String::from_utf8(GenerationRequest::parse(endpoint, None, body.as_bytes()).unwrap().rewrite(&edits)).unwrap()
    };
    let body = r#"{"model":"m","stream":true}"#;
    assert_eq!(asked(Endpoint::Responses, body), body);
    assert_eq!(asked(Endpoint::Messages, body), body);
    assert!(asked(Endpoint::Completions, body).contains("include_usage"));
}

/// What two readers could read differently is refused in every API.
#[test]
fn doubt_about_a_member_is_refused_in_every_api() {
    use Endpoint::{Completions, GenerateContent, Messages, Responses};
    use RequestError::{Ambiguous, Duplicate, Missing, OutOfRange};
    let reason = |endpoint: Endpoint, body: &str| {
        let model = endpoint.streams_by_path().map(|_| "m");
        GenerationRequest::parse(endpoint, model, body.as_bytes()).map(|_| ()).unwrap_err()
    };
    for (endpoint, body, expected) in [
        (Completions, r#"{"model":"m","best_of":1,"best_of":20}"#, Duplicate("best_of")),
        (Completions, r#"{"model":"m","best_of":129}"#, OutOfRange("n")),
        (Completions, r#"{"model":"m","prompt":"a","Prompt":["a","b"]}"#, Ambiguous("prompt")),
        (Responses, r#"{"model":"m","max_output_tokens":1,"Max_Output_Tokens":9}"#, Ambiguous("max_output_tokens")),
        (Responses, r#"{"model":"m","background":false,"background":true}"#, Duplicate("background")),
        (Responses, r#"{"input":"x"}"#, Missing("model")),
        (Messages, r#"{"model":"m","max_tokens":1,"max_tokens":2}"#, Duplicate("max_tokens")),
        (GenerateContent, r#"{"generationConfig":{},"generation_config":{}}"#, Duplicate("generationConfig")),
        (
            GenerateContent,
            r#"{"generationConfig":{"maxOutputTokens":1,"max_output_tokens":2}}"#,
            Duplicate("maxOutputTokens"),
        ),
        (
            GenerateContent,
            r#"{"generationConfig":{"maxOutputTokens":1,"maxOutputTokens":2}}"#,
            Duplicate("maxOutputTokens"),
        ),
        (
            GenerateContent,
            r#"{"generationConfig":{"candidateCount":1,"candidate_count":2}}"#,
            Duplicate("candidateCount"),
        ),
        (GenerateContent, r#"{"GenerationConfig":{"maxOutputTokens":1}}"#, Ambiguous("generationConfig")),
        (GenerateContent, r#"{"generationConfig":{"candidateCount":0}}"#, OutOfRange("candidateCount")),
        (GenerateContent, r#"{"model":"models/other"}"#, Ambiguous("model")),
        (
            GenerateContent,
            r#"{"generationConfig":[]}"#,
            RequestError::WrongType { field: "generationConfig", expected: "an object" },
        ),
    ] {
        assert_eq!(reason(endpoint, body), expected, "{endpoint:?} {body}");
    }
    assert_eq!(GenerationRequest::parse(GenerateContent, Some(""), b"{}").unwrap_err(), Missing("model"));
}

#[test]
fn the_question_of_every_api() {
    let asks = |endpoint: Endpoint, body: &str| {
        let model = endpoint.streams_by_path().map(|_| "m");
        GenerationRequest::parse(endpoint, model, body.as_bytes()).unwrap().question()
    };
    for (endpoint, body, expected) in [
        (Endpoint::Completions, r#"{"model":"m","prompt":"Once"}"#, "Once"),
        (Endpoint::Embeddings, r#"{"model":"m","input":"Once"}"#, ""),
        (Endpoint::Responses, r#"{"model":"m","input":"Why?"}"#, "Why?"),
        (
            Endpoint::Responses,
            r#"{"model":"m","input":[{"role":"user","content":"One?"},{"role":"assistant","content":"1"},{"role":"user","content":[{"type":"input_text","text":"Two?"}]}]}"#,
            "Two?",
        ),
        (
            Endpoint::Messages,
            r#"{"model":"m","system":"Be kind.","messages":[{"role":"user","content":[{"type":"text","text":"Why?"}]}]}"#,
            "Why?",
        ),
        (
            Endpoint::GenerateContent,
            r#"{"contents":[{"role":"user","parts":[{"text":"One?"}]},{"role":"model","parts":[{"text":"1"}]},{"parts":[{"text":"Two?"}]}]}"#,
            "Two?",
        ),
    ] {
        assert_eq!(asks(endpoint, body), expected, "{endpoint:?}");
    }
}

/// A request can ask for the background itself, leave it to its route, or be none that can run there.
#[test]
fn what_a_request_says_about_the_background() {
    let read = |endpoint, body: &str| {
        GenerationRequest::parse(endpoint, None, body.as_bytes()).map(|request| request.background())
    };
    for (body, expected) in [
        (r#"{"model":"m","stream":true}"#, Ok(Background::Open)),
        (r#"{"model":"m","stream":true,"background":null,"store":null}"#, Ok(Background::Open)),
        (r#"{"model":"m","stream":true,"store":true}"#, Ok(Background::Open)),
        (r#"{"model":"m","stream":true,"store":false}"#, Ok(Background::Never)),
        (r#"{"model":"m","stream":true,"background":false}"#, Ok(Background::Never)),
        (r#"{"model":"m","stream":true,"background":true}"#, Ok(Background::Asked)),
        (r#"{"model":"m","stream":true,"background":true,"store":false}"#, Ok(Background::Asked)),
        (r#"{"model":"m"}"#, Ok(Background::Never)),
        (r#"{"model":"m","background":true}"#, Err(RequestError::NeedsStream("background"))),
        (r#"{"model":"m","stream":false,"background":true}"#, Err(RequestError::NeedsStream("background"))),
        (
            r#"{"model":"m","stream":true,"background":true,"background":false}"#,
            Err(RequestError::Duplicate("background")),
        ),
        (r#"{"model":"m","stream":true,"Background":true}"#, Err(RequestError::Ambiguous("background"))),
        (
            r#"{"model":"m","stream":true,"background":"yes"}"#,
            Err(RequestError::WrongType { field: "background", expected: "a boolean" }),
        ),
        (
            r#"{"model":"m","stream":true,"store":1}"#,
            Err(RequestError::WrongType { field: "store", expected: "a boolean" }),
        ),
    ] {
        assert_eq!(read(Endpoint::Responses, body), expected, "{body}");
    }
    assert_eq!(read(Endpoint::ChatCompletions, r#"{"model":"m","background":true}"#), Ok(Background::Never));
}

/// Switched to the background it is stored, and comes without padding; what the client wrote itself stays.
#[test]
fn switched_to_the_background() {
    let switched = |body: &str| {
        let request = GenerationRequest::parse(Endpoint::Responses, None, body.as_bytes()).unwrap();
        String::from_utf8(request.rewrite(&Rewrite { background: true, ..NOTHING })).unwrap()
    };
    for (body, expected) in [
        (
            r#"{"model":"m","stream":true}"#,
            r#"{"model":"m","stream":true,"background":true,"store":true,"stream_options":{"include_obfuscation":false}}"#,
        ),
        (
            r#"{"background":null,"store":null,"stream_options":null,"model":"m","stream":true}"#,
            r#"{"background":true,"store":true,"stream_options":{"include_obfuscation":false},"model":"m","stream":true}"#,
        ),
        (
            r#"{"store":true,"stream_options":{},"model":"m","stream":true,"background":true}"#,
            r#"{"store":true,"stream_options":{"include_obfuscation":false},"model":"m","stream":true,"background":true}"#,
        ),
        (
            r#"{"model":"m","stream":true,"background":true,"store":false,"stream_options":{"include_obfuscation":true}}"#,
            r#"{"model":"m","stream":true,"background":true,"store":false,"stream_options":{"include_obfuscation":true}}"#,
        ),
        (
            r#"{"stream_options":{"x":1},"model":"m","stream":true}"#,
            r#"{"stream_options":{"x":1,"include_obfuscation":false},"model":"m","stream":true,"background":true,"store":true}"#,
        ),
        // Those that cannot are left as they are.
        (r#"{"model":"m","stream":true,"store":false}"#, r#"{"model":"m","stream":true,"store":false}"#),
        (r#"{"model":"m","stream":true,"background":false}"#, r#"{"model":"m","stream":true,"background":false}"#),
        (r#"{"model":"m"}"#, r#"{"model":"m"}"#),
    ] {
        assert_eq!(switched(body), expected, "{body}");
    }
}
