//! Recorded streams: built-in ones, those of a folder, and what is derived from them.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde_json::{Map, Value, json};

use crate::generate::Events;

const BUILT_IN: &[(&str, &[u8])] = &[
    ("crlf", include_bytes!("../recordings/crlf.sse")),
    ("heartbeats", include_bytes!("../recordings/heartbeats.sse")),
    ("gemini-thoughts", include_bytes!("../recordings/gemini-thoughts.sse")),
    ("messages-tools", include_bytes!("../recordings/messages-tools.sse")),
    ("multibyte", include_bytes!("../recordings/multibyte.sse")),
    ("responses-reasoning", include_bytes!("../recordings/responses-reasoning.sse")),
    ("tool-calls", include_bytes!("../recordings/tool-calls.sse")),
];

/// All recordings by name, without `.sse`.
#[derive(Debug)]
pub(crate) struct Recordings(BTreeMap<String, Arc<[u8]>>);

impl Recordings {
    /// The built-in recordings and the `*.sse` files of a folder.
    pub(crate) fn load(folder: Option<&Path>) -> std::io::Result<Self> {
        let mut all: BTreeMap<String, Arc<[u8]>> =
            BUILT_IN.iter().map(|(name, bytes)| ((*name).to_owned(), Arc::from(*bytes))).collect();
        let Some(folder) = folder else {
            return Ok(Self(all));
        };
        for file in std::fs::read_dir(folder)? {
            let path = file?.path();
            let name = path.file_name().and_then(|name| name.to_str());
            if let Some(name) = name.and_then(|name| name.strip_suffix(".sse")) {
                all.insert(name.to_owned(), std::fs::read(&path)?.into());
            }
        }
        Ok(Self(all))
    }

    pub(crate) fn get(&self, name: &str) -> Option<&[u8]> {
        self.0.get(name).map(AsRef::as_ref)
    }

    pub(crate) fn names(&self) -> impl Iterator<Item = &str> {
        self.0.keys().map(String::as_str)
    }
}

/// The length of the first event of `bytes`, blank line included. Line ends may be
/// LF, CRLF or CR. Bytes after the last blank line count as an event.
fn event_length(bytes: &[u8]) -> usize {
    let mut position = 0;
    let mut line_is_empty = true;
    while let Some(byte) = bytes.get(position) {
        position += 1;
        if *byte == b'\r' && bytes.get(position) == Some(&b'\n') {
            position += 1;
        } else if !matches!(byte, b'\r' | b'\n') {
            line_is_empty = false;
            continue;
        }
        if line_is_empty {
            return position;
        }
        line_is_empty = true;
    }
    position
}

fn split_events(mut bytes: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    while !bytes.is_empty() {
        let (event, rest) = bytes.split_at(event_length(bytes));
        events.push(event);
        bytes = rest;
    }
    events
}

/// The JSON of an event's `data:` line; `None` for `[DONE]` and comments.
fn event_json(event: &[u8]) -> Option<Value> {
    let text = std::str::from_utf8(event).ok()?;
    let data: Vec<&str> = text.split(['\r', '\n']).filter_map(|line| line.strip_prefix("data:")).collect();
    serde_json::from_str(&data.join("\n")).ok()
}

/// The recording as it is, or without any usage in it.
pub(crate) fn stream(recording: &[u8], with_usage: bool) -> Events {
    let mut events = Events::default();
    for event in split_events(recording) {
        let stripped = if with_usage { Stripped::Same } else { strip_usage(event) };
        match stripped {
            Stripped::Same => events.bytes.extend_from_slice(event),
            Stripped::Changed(bytes) => events.bytes.extend_from_slice(&bytes),
            Stripped::Dropped => continue,
        }
        events.ends.push(events.bytes.len());
    }
    events
}

enum Stripped {
    Same,
    Changed(Vec<u8>),
    Dropped,
}

fn strip_usage(event: &[u8]) -> Stripped {
    let Some(mut chunk) = event_json(event) else {
        return Stripped::Same;
    };
    let reports = |value: &Value| value.get("usage").is_some_and(Value::is_object);
    let groq_reports = chunk.get("x_groq").is_some_and(reports);
    if !reports(&chunk) && !groq_reports {
        return Stripped::Same;
    }
    if chunk["choices"].as_array().is_some_and(Vec::is_empty) {
        return Stripped::Dropped;
    }
    if reports(&chunk) {
        chunk["usage"] = Value::Null;
    }
    if groq_reports {
        chunk["x_groq"]["usage"] = Value::Null;
    }
    let content = event.iter().rposition(|byte| !matches!(byte, b'\r' | b'\n'));
    let mut bytes = format!("data: {chunk}").into_bytes();
    bytes.extend_from_slice(&event[content.map_or(0, |last| last + 1)..]);
    Stripped::Changed(bytes)
}

/// The recorded stream as one chat.completion, or as the response object that it ends with; `None` if it is neither.
pub(crate) fn completion(recording: &[u8], with_usage: bool) -> Option<Events> {
    if let Some(response) = split_events(recording).last().and_then(|event| event_json(event)?.get("response").cloned())
    {
        return Some(Events::single(format!("{response:#}\n").into_bytes()));
    }
    let mut whole = Assembly::default();
    for event in split_events(recording) {
        if let Some(chunk) = event_json(event) {
            whole.add(&chunk);
        }
    }
    let answer = whole.finish(with_usage)?;
    Some(Events::single(format!("{answer:#}\n").into_bytes()))
}

/// Collects the first choice of a stream's chunks.
#[derive(Default)]
struct Assembly {
    /// Id, creation time and model, from the first chunk that has an id.
    head: Option<(Value, Value, Value)>,
    /// `content`, `reasoning_content`, …: the text of each string in the deltas.
    texts: BTreeMap<String, String>,
    tool_calls: BTreeMap<u64, ToolCall>,
    finish_reason: Value,
    usage: Value,
}

#[derive(Default)]
struct ToolCall {
    id: Value,
    name: String,
    arguments: String,
}

impl Assembly {
    fn add(&mut self, chunk: &Value) {
        let named = chunk["id"].as_str().is_some_and(|id| !id.is_empty());
        if self.head.is_none() && named && chunk["choices"].is_array() {
            let field = |name: &str| chunk[name].clone();
            self.head = Some((field("id"), field("created"), field("model")));
        }
        if chunk["usage"].is_object() {
            self.usage = chunk["usage"].clone();
        }
        let choice = &chunk["choices"][0];
        if choice["finish_reason"].is_string() {
            self.finish_reason = choice["finish_reason"].clone();
        }
        for (key, value) in choice["delta"].as_object().into_iter().flatten() {
            if let Some(text) = value.as_str().filter(|_| key != "role") {
                self.texts.entry(key.clone()).or_default().push_str(text);
            }
        }
        for part in choice["delta"]["tool_calls"].as_array().into_iter().flatten() {
            self.add_tool_call(part);
        }
    }

    fn add_tool_call(&mut self, part: &Value) {
        let call = self.tool_calls.entry(part["index"].as_u64().unwrap_or(0)).or_default();
        if part["id"].is_string() {
            call.id = part["id"].clone();
        }
        call.name += part["function"]["name"].as_str().unwrap_or("");
        call.arguments += part["function"]["arguments"].as_str().unwrap_or("");
    }

    fn finish(self, with_usage: bool) -> Option<Value> {
        let (id, created, model) = self.head?;
        let mut message = Map::new();
        message.insert("role".to_owned(), "assistant".into());
        message.insert("content".to_owned(), Value::Null);
        message.insert("refusal".to_owned(), Value::Null);
        for (key, text) in self.texts {
            message.insert(key, text.into());
        }
        if !self.tool_calls.is_empty() {
            let calls: Vec<Value> = self.tool_calls.into_values().map(ToolCall::json).collect();
            message.insert("tool_calls".to_owned(), calls.into());
        }
        let mut answer = json!({
            "id": id, "object": "chat.completion", "created": created, "model": model,
            "choices": [{
                "index": 0, "message": message, "logprobs": null,
                "finish_reason": self.finish_reason,
            }],
        });
        if with_usage && self.usage.is_object() {
            answer["usage"] = self.usage;
        }
        Some(answer)
    }
}

impl ToolCall {
    fn json(self) -> Value {
        json!({
            "id": self.id, "type": "function",
            "function": {"name": self.name, "arguments": self.arguments},
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_end_at_blank_lines_of_any_kind() {
        let events = split_events(b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\r\n\ndata: e\n");
        let expected: Vec<&[u8]> =
            vec![b"data: a\n\n", b"data: b\r\n\r\n", b"data: c\r\r", b"data: d\r\n\n", b"data: e\n"];
        assert_eq!(events, expected);
    }

    #[test]
    fn built_in_recordings_are_what_they_claim() {
        let recordings = Recordings::load(None).unwrap();
        let bytes = |name| recordings.get(name).unwrap();
        for (name, _) in BUILT_IN {
            let events = stream(bytes(name), true);
            assert_eq!(events.bytes, bytes(name));
            assert!(events.ends.len() > 3, "{name}");
        }
        let crlf = bytes("crlf");
        let line_ends = crlf.iter().filter(|byte| **byte == b'\n').count();
        assert!(line_ends > 10);
        assert_eq!(crlf.windows(2).filter(|pair| pair == b"\r\n").count(), line_ends);
        let text = std::str::from_utf8(bytes("multibyte")).unwrap();
        assert!(text.chars().any(|c| c.len_utf8() == 4) && text.chars().any(|c| c.len_utf8() == 3));
    }

    #[test]
    fn tool_calls_are_assembled() {
        let recordings = Recordings::load(None).unwrap();
        let events = completion(recordings.get("tool-calls").unwrap(), true).unwrap();
        let answer: Value = serde_json::from_slice(&events.bytes).unwrap();
        let calls = answer["choices"][0]["message"]["tool_calls"].as_array().unwrap();
        assert_eq!(calls.len(), 2);
        for call in calls {
            let arguments = call["function"]["arguments"].as_str().unwrap();
            assert!(serde_json::from_str::<Value>(arguments).unwrap().is_object());
        }
        assert_eq!(answer["choices"][0]["finish_reason"], "tool_calls");
        assert!(answer["usage"]["completion_tokens"].is_u64());
    }

    #[test]
    fn usage_can_be_taken_out() {
        let recording = b"data: {\"id\":\"a\",\"choices\":[{\"index\":0}],\"usage\":{\"n\":1},\"x_groq\":{\"usage\":{\"n\":1}}}\r\n\r\ndata: {\"id\":\"a\",\"choices\":[],\"usage\":{\"n\":1}}\r\n\r\ndata: [DONE]\r\n\r\n";
        let events = stream(recording, false);
        let text = String::from_utf8(events.bytes).unwrap();
        assert_eq!(text.matches("\r\n\r\n").count(), 2);
        assert!(!text.contains("\"n\""));
        assert_eq!(events.ends.len(), 2);
    }
}
