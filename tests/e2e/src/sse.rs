//! Reading event streams, and the only two ends that a stream may have: the provider's own, or an error in band.

use serde_json::Value;

/// The error that ends a broken stream, and what came before it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broken {
    /// How many bytes before it are the provider's.
    pub prefix_len: usize,
    /// Its `code`.
    pub code: String,
}

/// Asserts that a stream ends with an error in band, after a prefix of what the provider would have sent. A blank
/// line comes first if the cut was inside an event, and nothing in it says `[DONE]`.
///
/// # Panics
/// When it ends in another way.
pub fn assert_broken(body: &[u8], expected: &[u8]) -> Broken {
    let text = String::from_utf8_lossy(body);
    assert!(!text.contains("[DONE]"), "a broken stream never says that it is done: {text}");
    let start = rfind(body, b"data: {\"error\"").unwrap_or_else(|| panic!("no error at the end: {text}"));
    let (before, tail) = body.split_at(start);
    assert!(before.is_empty() || before.ends_with(b"\n\n"), "the error begins inside an event: {text}");
    let prefix_len = before.iter().zip(expected).take_while(|(got, sent)| got == sent).count();
    let added = &before[prefix_len..];
    assert!(added.len() <= 2 && added.iter().all(|byte| *byte == b'\n'), "not a prefix: {text}");
    let code = error_code_of(tail);
    Broken { prefix_len, code }
}

fn error_code_of(event: &[u8]) -> String {
    let text = String::from_utf8_lossy(event);
    let json = text.strip_prefix("data: ").and_then(|rest| rest.strip_suffix("\n\n"));
    let json = json.unwrap_or_else(|| panic!("not one whole event: {text:?}"));
    let event: Value = serde_json::from_str(json).unwrap_or_else(|error| panic!("{error}: {json}"));
    let error = &event["error"];
    assert_eq!(error["type"], "server_error", "{error}");
    assert_eq!(error.get("param"), Some(&Value::Null), "{error}");
    assert!(error["message"].as_str().is_some_and(|text| !text.is_empty()), "{error}");
    error["code"].as_str().unwrap_or_else(|| panic!("no code in {error}")).to_owned()
}

fn rfind(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).rposition(|window| window == needle)
}

/// The provider's stream without the chunk that carries nothing but usage.
#[must_use]
pub fn without_usage_chunk(stream: &[u8]) -> Vec<u8> {
    let kept = whole_events(stream).into_iter().filter(|event| !is_usage_chunk(event));
    kept.flatten().copied().collect()
}

fn is_usage_chunk(event: &[u8]) -> bool {
    let text = String::from_utf8_lossy(event);
    let data = text.trim_end().strip_prefix("data:").unwrap_or_default();
    let Ok(chunk) = serde_json::from_str::<Value>(data) else { return false };
    chunk["choices"].as_array().is_some_and(Vec::is_empty) && chunk["usage"].is_object()
}

/// The stream's events as they are on the wire, each with its blank line. A part of an event at the end counts as one.
#[must_use]
pub fn whole_events(stream: &[u8]) -> Vec<&[u8]> {
    let mut events = Vec::new();
    let mut rest = stream;
    while !rest.is_empty() {
        let (event, after) = rest.split_at(event_length(rest));
        events.push(event);
        rest = after;
    }
    events
}

/// Length of the first event with the blank line that ends it; lines end with LF, CRLF or CR.
fn event_length(stream: &[u8]) -> usize {
    let mut line_begins = true;
    let mut at = 0;
    while at < stream.len() {
        let ends = match stream[at] {
            b'\r' if stream.get(at + 1) == Some(&b'\n') => 2,
            b'\r' | b'\n' => 1,
            _ => 0,
        };
        at += ends.max(1);
        if ends > 0 && line_begins {
            return at;
        }
        line_begins = ends > 0;
    }
    at
}

/// The offset after each event.
#[must_use]
pub fn event_ends(stream: &[u8]) -> Vec<usize> {
    let lengths = whole_events(stream).into_iter().map(<[u8]>::len);
    lengths
        .scan(0, |end, length| {
            *end += length;
            Some(*end)
        })
        .collect()
}

/// How many of the stream's events within `bytes` carry content: what a provider bills as output, in the simulator.
#[must_use]
pub fn tokens_within(stream: &[u8], bytes: usize) -> u64 {
    let content = |event: &&[u8]| {
        let text = String::from_utf8_lossy(event);
        let data = text.trim_end().strip_prefix("data:").unwrap_or_default();
        let chunk: Value = serde_json::from_str(data).unwrap_or_default();
        chunk["choices"][0]["delta"]["content"].as_str().is_some_and(|text| !text.is_empty())
    };
    whole_events(&stream[..bytes.min(stream.len())]).into_iter().filter(content).count() as u64
}

/// An event as an `EventSource` sees it.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Event {
    /// The event's name; empty for `message`.
    pub name: String,
    /// Its data, lines joined by LF.
    pub data: String,
    /// The last event id after it.
    pub id: Option<String>,
}

/// Reads a stream as the HTML standard says: fields, comments, dispatch at blank lines; an event that no blank line
/// ends is dropped, and the last id stays in force.
///
/// # Panics
/// When it is not UTF-8.
#[must_use]
pub fn events(stream: &[u8]) -> Vec<Event> {
    let text = std::str::from_utf8(stream).expect("an event stream in UTF-8");
    let mut events = Vec::new();
    let mut last_id = None;
    let (mut name, mut data) = (String::new(), Vec::new());
    for line in text.replace("\r\n", "\n").replace('\r', "\n").split('\n') {
        if line.is_empty() {
            if !data.is_empty() {
                events.push(Event { name: name.clone(), data: data.join("\n"), id: last_id.clone() });
            }
            name.clear();
            data.clear();
            continue;
        }
        let (field, value) = line.split_once(':').unwrap_or((line, ""));
        let value = value.strip_prefix(' ').unwrap_or(value);
        match field {
            "event" => name = value.to_owned(),
            "data" => data.push(value.to_owned()),
            "id" => last_id = Some(value.to_owned()),
            _ => {}
        }
    }
    events
}

#[cfg(test)]
mod tests {
    use super::*;

    const ERROR: &str =
        "data: {\"error\":{\"message\":\"cut\",\"type\":\"server_error\",\"code\":\"c\",\"param\":null}}\n\n";

    #[test]
    fn a_broken_end_is_recognised() {
        let expected = b"data: one\n\ndata: two\n\n";
        let after = |prefix: &str| assert_broken(format!("{prefix}{ERROR}").as_bytes(), expected).prefix_len;
        assert_eq!(after(""), 0);
        assert_eq!(after("data: one\n\n"), 11);
        assert_eq!(after("data: one\n\ndata: t\n\n"), 18);
    }

    #[test]
    fn other_ends_are_not_taken_for_broken_ones() {
        let expected = b"data: one\n\n";
        for body in ["data: one\n\n", "data: o", &format!("data: one{ERROR}"), &format!("data: 1\n\n{ERROR}")] {
            let check = std::panic::catch_unwind(|| assert_broken(body.as_bytes(), expected));
            assert!(check.is_err(), "{body}");
        }
    }

    #[test]
    fn events_are_read_as_the_standard_says() {
        let read = events(b"id: 7\nevent: x\ndata: a\ndata:b\n\n: comment\n\ndata: c\n\ndata: never ended");
        assert_eq!(read.len(), 2);
        assert_eq!((read[0].name.as_str(), read[0].data.as_str()), ("x", "a\nb"));
        assert_eq!((read[1].data.as_str(), read[1].id.as_deref()), ("c", Some("7")));
    }

    #[test]
    fn events_end_at_blank_lines_of_any_kind() {
        assert_eq!(
            event_ends(b"data: a\n\ndata: b\r\n\r\ndata: c\r\rdata: d\n: e\r\n\ndata: f\n"),
            [9, 20, 29, 43, 51]
        );
    }

    #[test]
    fn the_usage_chunk_is_found() {
        let usage = "data: {\"choices\":[],\"usage\":{\"total_tokens\":3}}\n\n";
        let filter = "data: {\"choices\":[],\"prompt_filter_results\":[]}\n\n";
        let stream = format!("{filter}{usage}data: [DONE]\n\n");
        assert_eq!(without_usage_chunk(stream.as_bytes()), format!("{filter}data: [DONE]\n\n").into_bytes());
    }
}
