//! Undisturbed answers: generated, recorded, refused.

mod common;

use common::{BodyEnd, Sim, payloads};
use holdfast_simulator::Config;
use serde_json::{Value, json};

fn chunks(text: &str) -> Vec<Value> {
    let all = payloads(text);
    let (done, chunks) = all.split_last().unwrap();
    assert_eq!(*done, "[DONE]");
    chunks.iter().map(|data| serde_json::from_str(data).unwrap()).collect()
}

#[test]
fn a_generated_stream_has_role_content_finish_and_done() {
    let sim = Sim::start();
    let answer = sim.streamed("gpt-4o?tokens=3&tag=a");
    assert_eq!((answer.status, answer.end), (200, BodyEnd::Clean));
    assert_eq!(answer.header("content-type"), Some("text/event-stream; charset=utf-8"));
    // One HTTP chunk per event.
    assert_eq!(answer.chunks.len(), 6);
    assert!(answer.chunks.iter().all(|chunk| chunk.ends_with(b"\n\n")));
    let text = answer.text();
    let chunks = chunks(&text);
    assert_eq!(chunks[0]["choices"][0]["delta"], json!({"role": "assistant", "content": ""}));
    assert_eq!(chunks[4]["choices"][0]["finish_reason"], "stop");
    for chunk in &chunks {
        assert_eq!(chunk["object"], "chat.completion.chunk");
        assert_eq!(chunk["model"], "gpt-4o");
        assert_eq!(chunk["id"], chunks[0]["id"]);
        assert_eq!(chunk.get("usage"), None);
    }
    assert!(chunks[0]["id"].as_str().unwrap().starts_with("chatcmpl-sim"));
    assert_eq!(answer.body(), sim.expected("gpt-4o?tokens=3&tag=a", ""));
    let other = sim.streamed("gpt-4o?tokens=3&tag=b").text();
    assert!(!other.contains(chunks[0]["id"].as_str().unwrap()));
}

#[test]
fn usage_is_sent_if_asked_for() {
    let sim = Sim::start();
    let model = "gen?tokens=4&prompt_tokens=30&cached_tokens=10&reasoning_tokens=2";
    let answer = sim.ask(model, true, true).answer();
    assert_eq!(answer.body(), sim.expected(model, "&include_usage=true"));
    let text = answer.text();
    let chunks = chunks(&text);
    let (last, others) = chunks.split_last().unwrap();
    assert!(others.iter().all(|chunk| chunk["usage"].is_null() && chunk.get("usage").is_some()));
    assert_eq!(last["choices"], json!([]));
    let usage = &last["usage"];
    assert_eq!(usage["prompt_tokens"], 30);
    assert_eq!(usage["completion_tokens"], 4);
    assert_eq!(usage["total_tokens"], 34);
    assert_eq!(usage["prompt_tokens_details"]["cached_tokens"], 10);
    assert_eq!(usage["completion_tokens_details"]["reasoning_tokens"], 2);
    let reported = sim.ask("gen?tokens=4&completion_tokens=99", true, true).answer();
    assert!(reported.text().contains("\"completion_tokens\":99"));
}

#[test]
fn usage_none_never_sends_it() {
    let sim = Sim::start();
    let streamed = sim.ask("gen?usage=none", true, true).answer();
    assert!(streamed.text().contains("\"usage\":null"));
    assert!(!streamed.text().contains("prompt_tokens"));
    let whole = sim.ask("gen?usage=none", false, false).answer();
    assert_eq!(whole.json().get("usage"), None);
    let recorded = sim.streamed("recording/tool-calls?usage=none");
    assert!(!recorded.text().contains("prompt_tokens"));
    assert_eq!(chunks(&recorded.text()).last().unwrap()["choices"][0]["finish_reason"], "tool_calls");
}

#[test]
fn tokens_text_and_finish() {
    let sim = Sim::start();
    assert_eq!(sim.streamed("gen").chunks.len(), 23);
    assert_eq!(sim.streamed("sim-x?tokens=0").chunks.len(), 3);
    assert!(sim.streamed("gen").text().is_ascii());
    assert!(!sim.streamed("gen?text=multibyte&tokens=40").text().is_ascii());
    let cut_short = sim.streamed("gen?finish=length").text();
    assert_eq!(chunks(&cut_short).last().unwrap()["choices"][0]["finish_reason"], "length");
}

#[test]
fn an_error_event_ends_the_stream_without_done() {
    let sim = Sim::start();
    let answer = sim.streamed("gen?error_after=2");
    assert_eq!(answer.end, BodyEnd::Clean);
    let text = answer.text();
    let data = payloads(&text);
    assert_eq!(data.len(), 4);
    let error: Value = serde_json::from_str(data[3]).unwrap();
    assert_eq!(error["error"]["type"], "server_error");
}

#[test]
fn an_answer_in_one_piece() {
    let sim = Sim::start();
    let answer = sim.ask("gen?tokens=5", false, false).answer();
    assert_eq!(answer.header("content-type"), Some("application/json"));
    assert_eq!(answer.body(), sim.expected("gen?tokens=5", "&stream=false"));
    let json = answer.json();
    assert_eq!(json["object"], "chat.completion");
    assert_eq!(json["usage"]["completion_tokens"], 5);
    let text = json["choices"][0]["message"]["content"].as_str().unwrap();
    assert_eq!(text.split(' ').count(), 5);
}

#[test]
fn built_in_recordings_are_replayed_byte_for_byte() {
    let sim = Sim::start();
    let files: [(&str, &[u8]); 3] = [
        ("crlf", include_bytes!("../recordings/crlf.sse")),
        ("multibyte", include_bytes!("../recordings/multibyte.sse")),
        ("tool-calls", include_bytes!("../recordings/tool-calls.sse")),
    ];
    for (name, bytes) in files {
        let model = format!("recording/{name}");
        let answer = sim.streamed(&model);
        assert_eq!(answer.body(), bytes, "{name}");
        assert_eq!(sim.expected(&model, ""), bytes, "{name}");
        let blank_line: &[u8] = if name == "crlf" { b"\r\n\r\n" } else { b"\n\n" };
        assert!(answer.chunks.iter().all(|chunk| chunk.ends_with(blank_line)), "{name}");
        let whole = sim.ask(&model, false, false).answer().json();
        assert!(whole["usage"]["total_tokens"].is_u64(), "{name}");
    }
    let whole = sim.ask("recording/multibyte", false, false).answer().json();
    let text = whole["choices"][0]["message"]["content"].as_str().unwrap().to_owned();
    assert!(text.starts_with("Grüße aus 東京"), "{text}");
}

#[test]
fn a_folder_adds_recordings() {
    let folder = std::env::temp_dir().join(format!("simulator-recordings-{}", std::process::id()));
    std::fs::create_dir_all(&folder).unwrap();
    std::fs::write(folder.join("own--x.1.sse"), "data: {\"a\":1}\n\ndata: tail").unwrap();
    std::fs::write(folder.join("notes.txt"), "no recording").unwrap();
    let sim = Sim::with(Config { recordings: Some(folder.clone()), ..Config::default() });
    std::fs::remove_dir_all(&folder).unwrap();
    assert_eq!(sim.streamed("recording/own--x.1").body(), b"data: {\"a\":1}\n\ndata: tail");
    assert_eq!(sim.streamed("recording/crlf").status, 200);
    assert_eq!(sim.streamed("recording/notes").status, 404);
    assert_eq!(sim.streamed("recording/../notes.txt").status, 404);
    let whole = sim.ask("recording/own--x.1", false, false).answer();
    assert_eq!(whole.status, 400);
    let mut client = sim.connect();
    client.send(b"GET /v1/models HTTP/1.1\r\nauthorization: Bearer k\r\n\r\n");
    let models = client.answer().json();
    let ids: Vec<&str> = models["data"].as_array().unwrap().iter().map(|model| model["id"].as_str().unwrap()).collect();
    assert!(ids.contains(&"gen") && ids.contains(&"recording/own--x.1"), "{ids:?}");
}

#[test]
fn errors_have_the_providers_form() {
    let sim = Sim::start();
    let limited = sim.streamed("gen?status=429&retry_after=7");
    assert_eq!(limited.status, 429);
    assert_eq!(limited.header("retry-after"), Some("7"));
    assert_eq!(limited.header("content-type"), Some("application/json"));
    assert_eq!(limited.json()["error"]["code"], "rate_limit_exceeded");
    assert_eq!(limited.body(), sim.expected("gen?status=429&retry_after=7", ""));
    assert_eq!(sim.streamed("gen?status=500").json()["error"]["type"], "server_error");
    let moved = sim.streamed("gen?status=307&location=http://127.0.0.1:9/");
    assert_eq!((moved.status, moved.header("location")), (307, Some("http://127.0.0.1:9/")));
    let typo = sim.streamed("gen?tokns=3");
    assert_eq!(typo.status, 400);
    assert!(typo.json()["error"]["message"].as_str().unwrap().contains("tokns=3"));
    assert_eq!(sim.streamed("claude").json()["error"]["code"], "model_not_found");
    let lost = sim.get("/v1/nothing");
    assert_eq!((lost.status, &lost.json()["error"]["code"]), (404, &json!("unknown_url")));
    assert_eq!(sim.get("/v1/chat/completions").status, 405);
    assert_eq!(sim.get("/__expected?model=gen&tokens=3").status, 400);
    assert_eq!(sim.get("/__expected?model=gen&stream=yes").status, 400);
    assert_eq!(sim.get("/__expected").status, 400);
}

#[test]
fn a_key_is_needed() {
    let sim = Sim::start();
    for headers in ["", "authorization: Bearer \r\n", "authorization: Basic abc\r\n", "x-api-key: k\r\n"] {
        let mut client = sim.connect();
        client.post(r#"{"model":"gen?tag=nokey","messages":[]}"#, headers);
        let answer = client.answer();
        assert_eq!(answer.status, 401, "{headers}");
        assert_eq!(answer.json()["error"]["code"], "invalid_api_key");
    }
    let entries = sim.simulator.log(Some("nokey"));
    let statuses: Vec<&Value> = entries.iter().map(|entry| &entry["status"]).collect();
    assert_eq!(statuses, [401, 401, 401, 401]);
    assert_eq!(sim.get("/v1/models").status, 401);
}

#[test]
fn bad_bodies_are_refused() {
    let sim = Sim::start();
    for body in ["", "nonsense", "[]", r#"{"messages":[]}"#, r#"{"model":"gen"}"#] {
        let mut client = sim.connect();
        client.post(body, "authorization: Bearer k\r\n");
        assert_eq!(client.answer().status, 400, "{body}");
    }
    let mut client = sim.connect();
    client.send(b"NOT HTTP\r\n\r\n");
    assert_eq!(client.answer().status, 400);
}

#[test]
fn one_connection_serves_many_requests() {
    let sim = Sim::start();
    let mut client = sim.connect();
    for round in 0..3 {
        client.ask("gen?tag=kept", round % 2 == 0, false);
        let answer = client.answer();
        assert_eq!((answer.status, answer.end), (200, BodyEnd::Clean));
        assert_eq!(answer.header("connection"), Some("keep-alive"));
    }
    // Two requests in one packet are answered in turn.
    let request = "GET /__expected?model=gen HTTP/1.1\r\n\r\n".repeat(2);
    client.send(request.as_bytes());
    assert_eq!(client.answer().body(), client.answer().body());
    let entries = sim.simulator.log(Some("kept"));
    assert_eq!(entries.len(), 3);
    assert!(entries.iter().all(|entry| entry["connection"] == entries[0]["connection"]));
}

#[test]
fn the_client_may_ask_to_close() {
    let sim = Sim::start();
    let mut client = sim.connect();
    client.post(
        r#"{"model":"gen?tag=c","messages":[],"stream":true}"#,
        "authorization: Bearer k\r\nconnection: close\r\n",
    );
    let answer = client.answer();
    assert_eq!((answer.header("connection"), answer.end), (Some("close"), BodyEnd::Clean));
    assert_eq!(client.head().unwrap_err(), BodyEnd::Fin);
    assert_eq!(sim.entry("c")["end"], "complete");
}

#[test]
fn chunked_requests_and_expect_continue_are_understood() {
    let sim = Sim::start();
    let body = r#"{"model":"gen?tokens=1","messages":[]}"#;
    let (first, second) = body.split_at(10);
    let mut client = sim.connect();
    client.send(b"POST /v1/chat/completions HTTP/1.1\r\nauthorization: bearer k\r\ntransfer-encoding: chunked\r\nexpect: 100-continue\r\n\r\n");
    assert_eq!(client.head().unwrap().0, 100);
    client.send(format!("a\r\n{first}\r\n").as_bytes());
    client.send(format!("{:x}\r\n{second}\r\n0\r\n\r\n", second.len()).as_bytes());
    assert_eq!(client.answer().json()["object"], "chat.completion");
}

#[test]
fn stamped_tokens_say_when_they_were_sent() {
    let sim = Sim::start();
    let model = "gen?tokens=3&interval_ms=20&stamp=1";
    let answer = sim.streamed(model);
    let expected = sim.expected(model, "");
    let text = answer.text();
    let stamps: Vec<u64> = chunks(&text)
        .iter()
        .filter_map(|chunk| chunk["choices"][0]["delta"]["content"].as_str())
        .filter(|content| !content.is_empty())
        .map(|content| content.trim_start().strip_prefix('t').unwrap().parse().unwrap())
        .collect();
    assert_eq!(stamps.len(), 3);
    // Two intervals of 20 ms; a timer may fire a little early but never by half.
    assert!(stamps.is_sorted() && stamps[2] - stamps[0] >= 20_000, "{stamps:?}");
    // But for the digits of the stamps, the body is the expected one.
    let masked = stamps.iter().fold(text, |text, stamp| text.replace(&format!("{stamp:016}"), &"0".repeat(16)));
    assert_eq!(masked.as_bytes(), expected);
}
