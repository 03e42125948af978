//! The other APIs, each at its own path: the same behaviours in their own form.

mod common;

use common::{Answer, BodyEnd, Sim};
use serde_json::{Value, json};

/// Path, header of the key, body.
fn request(api: &str, model: &str, stream: bool) -> (String, &'static str, Value) {
    let messages = json!([{"role": "user", "content": "Hi"}]);
    let encoded: String = form_urlencoded::byte_serialize(model.as_bytes()).collect();
    let bearer = "authorization: Bearer k\r\n";
    match api {
        "completions" => ("/v1/completions".into(), bearer, json!({"model": model, "prompt": "Hi", "stream": stream})),
        "embeddings" => ("/v1/embeddings".into(), bearer, json!({"model": model, "input": "Hi"})),
        "responses" => ("/v1/responses".into(), bearer, json!({"model": model, "input": "Hi", "stream": stream})),
        "messages" => (
            "/v1/messages".into(),
            "x-api-key: k\r\nanthropic-version: 2023-06-01\r\n",
            json!({"model": model, "max_tokens": 9, "messages": messages, "stream": stream}),
        ),
        _ => {
            let action = if stream { "streamGenerateContent?alt=sse" } else { "generateContent" };
            (
                format!("/v1beta/models/{encoded}:{action}"),
                "x-goog-api-key: k\r\n",
                json!({"contents": [{"parts": [{"text": "Hi"}]}]}),
            )
        }
    }
}

fn post(sim: &Sim, path: &str, headers: &str, body: &Value) -> Answer {
    let body = body.to_string();
    let mut client = sim.connect();
    client.send(
        format!("POST {path} HTTP/1.1\r\nhost: x\r\n{headers}content-length: {}\r\n\r\n{body}", body.len()).as_bytes(),
    );
    client.answer()
}

fn ask(sim: &Sim, api: &str, model: &str, stream: bool) -> Answer {
    let (path, headers, body) = request(api, model, stream);
    post(sim, &path, headers, &body)
}

/// The data of each event.
fn data(answer: &Answer) -> Vec<Value> {
    let text = answer.text();
    let lines = text.lines().filter_map(|line| line.strip_prefix("data: "));
    lines.filter(|line| *line != "[DONE]").map(|line| serde_json::from_str(line).unwrap()).collect()
}

const STREAMING: [&str; 4] = ["completions", "responses", "messages", "gemini"];

#[test]
fn streams_and_documents_are_what_is_announced() {
    let sim = Sim::start();
    for api in STREAMING {
        for stream in [true, false] {
            let model = format!("gen?tokens=6&text=multibyte&tag={api}-{stream}");
            let answer = ask(&sim, api, &model, stream);
            assert_eq!((answer.status, answer.end), (200, BodyEnd::Clean), "{api}");
            assert_eq!(answer.body(), sim.expected(&model, &format!("&api={api}&stream={stream}")), "{api}");
            let entry = sim.entry(&format!("{api}-{stream}"));
            assert_eq!((&entry["api"], &entry["stream"]), (&json!(api), &json!(stream)));
        }
    }
    let vector = ask(&sim, "embeddings", "gen?prompt_tokens=9", false).json();
    assert_eq!(vector["usage"], json!({"prompt_tokens": 9, "total_tokens": 9}));
    assert!(vector["data"][0]["embedding"].is_array());
    let (path, headers, mut body) = request("embeddings", "gen", false);
    body["encoding_format"] = "base64".into();
    assert!(post(&sim, &path, headers, &body).json()["data"][0]["embedding"].is_string());
}

#[test]
fn usage_stands_where_each_api_has_it() {
    let sim = Sim::start();
    let model = "gen?tokens=9&prompt_tokens=30&cached_tokens=10&cache_write_tokens=5&reasoning_tokens=4";
    let last = |api: &str| data(&ask(&sim, api, model, true)).pop().unwrap();
    let responses = last("responses");
    assert_eq!(responses["type"], "response.completed");
    let usage = &responses["response"]["usage"];
    assert_eq!(
        (&usage["input_tokens"], &usage["output_tokens"], &usage["total_tokens"]),
        (&json!(30), &json!(9), &json!(39))
    );
    let events = data(&ask(&sim, "messages", model, true));
    let start = &events[0]["message"]["usage"];
    assert_eq!((&start["input_tokens"], &start["output_tokens"]), (&json!(15), &json!(1)), "a placeholder");
    assert_eq!((&start["cache_read_input_tokens"], &start["cache_creation_input_tokens"]), (&json!(10), &json!(5)));
    assert_eq!(events[events.len() - 2]["usage"], json!({"output_tokens": 9}));
    let gemini = last("gemini");
    assert_eq!(gemini["candidates"][0]["finishReason"], "STOP");
    assert_eq!(gemini["usageMetadata"]["candidatesTokenCount"], 5);
    assert_eq!(gemini["usageMetadata"]["thoughtsTokenCount"], 4);
    assert_eq!(gemini["usageMetadata"]["totalTokenCount"], 39);
}

#[test]
fn sequence_numbers_have_no_gaps() {
    let sim = Sim::start();
    let events = data(&ask(&sim, "responses", "gen?tokens=3", true));
    for (position, event) in events.iter().enumerate() {
        assert_eq!(event["sequence_number"], position, "{event}");
    }
}

#[test]
fn errors_come_in_the_envelope_of_the_api() {
    let sim = Sim::start();
    for api in ["completions", "embeddings", "responses", "messages", "gemini"] {
        let error = ask(&sim, api, "gen?status=429&retry_after=3", false);
        assert_eq!((error.status, error.header("retry-after")), (429, Some("3")), "{api}");
        let body = error.json();
        let (path, _, request) = request(api, "gen", false);
        assert_eq!(post(&sim, &path, "", &request).status, 401, "{api}: no key");
        match api {
            "messages" => {
                assert_eq!((&body["type"], &body["error"]["type"]), (&json!("error"), &json!("rate_limit_error")))
            }
            "gemini" => assert_eq!(
                (&body["error"]["code"], &body["error"]["status"]),
                (&json!(429), &json!("RESOURCE_EXHAUSTED"))
            ),
            _ => assert_eq!(body["error"]["code"], "rate_limit_exceeded", "{api}"),
        }
    }
    for (api, last) in [
        ("completions", "server_error"),
        ("responses", "server_error"),
        ("messages", "overloaded_error"),
        ("gemini", "UNAVAILABLE"),
    ] {
        let answer = ask(&sim, api, "gen?tokens=5&error_after=2", true);
        assert_eq!((answer.status, answer.end), (200, BodyEnd::Clean), "{api}");
        assert!(answer.text().trim_end().rsplit("data: ").next().unwrap().contains(last), "{api}");
    }
}

#[test]
fn recordings_of_every_dialect_are_replayed() {
    let sim = Sim::start();
    for (api, name) in
        [("responses", "responses-reasoning"), ("messages", "messages-tools"), ("gemini", "gemini-thoughts")]
    {
        let model = format!("recording/{name}");
        let answer = ask(&sim, api, &model, true);
        assert_eq!(answer.body(), sim.expected(&model, &format!("&api={api}")), "{api}");
        assert!(answer.chunks.len() > 3, "{api}: an HTTP chunk for each event");
    }
    let whole = ask(&sim, "responses", "recording/responses-reasoning", false).json();
    assert_eq!((&whole["status"], &whole["usage"]["total_tokens"]), (&json!("completed"), &json!(163)));
    assert_eq!(ask(&sim, "gemini", "recording/gemini-thoughts", false).status, 400);
}
