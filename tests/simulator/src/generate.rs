//! Generated answers: a stream of chat.completion.chunk events or one chat.completion.

use serde_json::{Value, json};

use crate::behaviour::Behaviour;
use crate::stamp;

/// A fixed creation time, so that bodies depend on nothing but the request.
const CREATED: u64 = 1_790_000_000;

const WORDS: &[&str] = &[
    "the", "river", "keeps", "its", "own", "time", "and", "every", "bridge", "holds", "what", "passes", "over", "it",
    "until", "morning", "light", "comes", "back", "again",
];

/// Two to four byte characters, joined and combining ones, and what JSON must escape.
const MULTIBYTE_WORDS: &[&str] = &[
    "é",
    "grüße",
    "Ω",
    "日本語",
    "한국어",
    "👋",
    "👨‍👩‍👧",
    "e\u{301}",
    "🇸🇪",
    "\n",
    "\"quoted\"",
    "\\",
    "नमस्ते",
    "\u{1F680}",
    "€",
    "\u{2028}",
    "العربية",
    "\t",
    "𝒳",
    "plain",
];

/// Body bytes with the offsets at which their events end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Events {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
}

impl Events {
    /// One event, which is the whole body.
    pub(crate) fn single(bytes: Vec<u8>) -> Self {
        let ends = vec![bytes.len()];
        Self { bytes, ends }
    }

    pub(crate) fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.ends.push(self.bytes.len());
    }
}

/// The id of an answer: a pure function of the model name, and different for different ones.
pub(crate) fn operation_id(model: &str) -> String {
    format!("chatcmpl-sim{:016x}", hash(model))
}

/// FNV-1a with a final mix, because its high bits alone are weak on short inputs.
fn hash(text: &str) -> u64 {
    let fnv = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The words of an answer, by number. They depend on the name before the `?` alone, so
/// that adding a fault to a model moves no byte offset.
fn tokens(behaviour: &Behaviour) -> impl Iterator<Item = usize> + use<> {
    let count = words(behaviour).len() as u64;
    let mut state = hash(&behaviour.name);
    (0..behaviour.tokens).map(move |_| {
        // The multiplier and increment are Knuth's, for the 64 bit generator of MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((state >> 33) % count).unwrap_or(0)
    })
}

fn words(behaviour: &Behaviour) -> &'static [&'static str] {
    if behaviour.stamp {
        &[stamp::PLACEHOLDER]
    } else if behaviour.multibyte {
        MULTIBYTE_WORDS
    } else {
        WORDS
    }
}

/// The usage object that the answer reports.
fn usage(behaviour: &Behaviour) -> Value {
    let completion_tokens = behaviour.completion_tokens.unwrap_or(behaviour.tokens);
    json!({
        "prompt_tokens": behaviour.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": behaviour.prompt_tokens.saturating_add(completion_tokens),
        "prompt_tokens_details": {
            "cached_tokens": behaviour.cached_tokens, "cache_write_tokens": 0,
        },
        "completion_tokens_details": {
            "reasoning_tokens": behaviour.reasoning_tokens,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

/// A streamed answer: role chunk, content chunks, finish chunk, the usage chunk if
/// asked for, `[DONE]`.
pub(crate) fn stream(behaviour: &Behaviour, model: &str, include_usage: bool) -> Events {
    let head = format!(
        r#"data: {{"id":"{}","object":"chat.completion.chunk","created":{CREATED},"model":{},"choices":["#,
        operation_id(model),
        Value::from(behaviour.name.as_str()),
    );
    let tail = if include_usage { "],\"usage\":null}\n\n" } else { "]}\n\n" };
    // The text in front of a word is a space but for the first one.
    let escaped: Vec<String> = words(behaviour)
        .iter()
        .map(|word| Value::from(*word).to_string())
        .map(|quoted| quoted[1..].to_owned())
        .collect();

    let mut events = Events::default();
    let role = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#;
    events.push(&[&head, role, tail]);
    let mut space = "";
    let content = r#"{"index":0,"delta":{"content":""#;
    let content_end = r#"},"logprobs":null,"finish_reason":null}"#;
    for (position, word) in (0_u64..).zip(tokens(behaviour)) {
        if behaviour.error_after == Some(position) {
            return interrupted(events);
        }
        events.push(&[&head, content, space, &escaped[word], content_end, tail]);
        space = " ";
    }
    if behaviour.error_after == Some(behaviour.tokens) {
        return interrupted(events);
    }
    let finish = format!(
        r#"{{"index":0,"delta":{{}},"logprobs":null,"finish_reason":{}}}"#,
        Value::from(behaviour.finish.as_str())
    );
    events.push(&[&head, &finish, tail]);
    if include_usage && behaviour.usage {
        let usage = format!("],\"usage\":{}}}\n\n", usage(behaviour));
        events.push(&[&head, &usage]);
    }
    events.push(&["data: [DONE]\n\n"]);
    events
}

fn interrupted(mut events: Events) -> Events {
    events.push(&["data: {\"error\":{\"message\":\"The server had an error while processing your request. Sorry about that!\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n"]);
    events
}

/// An answer in one piece.
pub(crate) fn completion(behaviour: &Behaviour, model: &str) -> Events {
    let words = words(behaviour);
    let text: Vec<&str> = tokens(behaviour).map(|word| words[word]).collect();
    let mut answer = json!({
        "id": operation_id(model),
        "object": "chat.completion",
        "created": CREATED,
        "model": behaviour.name,
        "choices": [{
            "index": 0,
            "message": {"role": "assistant", "content": text.join(" "), "refusal": null},
            "logprobs": null,
            "finish_reason": behaviour.finish,
        }],
    });
    if behaviour.usage {
        answer["usage"] = usage(behaviour);
    }
    Events::single(format!("{answer:#}\n").into_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_has_the_wire_form() {
        let behaviour = Behaviour::parse("gen?tokens=2&tag=x").unwrap();
        let events = stream(&behaviour, "gen?tokens=2&tag=x", true);
        let text = String::from_utf8(events.bytes.clone()).unwrap();
        let blocks: Vec<&str> = text.split_terminator("\n\n").collect();
        assert_eq!(blocks.len(), 6);
        assert_eq!(events.ends.len(), 6);
        assert_eq!(blocks[5], "data: [DONE]");
        let chunks: Vec<Value> = blocks[..5]
            .iter()
            .map(|block| serde_json::from_str(block.strip_prefix("data: ").unwrap()).unwrap())
            .collect();
        assert_eq!(chunks[0]["choices"][0]["delta"]["role"], "assistant");
        let second = chunks[2]["choices"][0]["delta"]["content"].as_str().unwrap();
        assert!(second.starts_with(' '), "{second:?}");
        assert_eq!(chunks[3]["choices"][0]["finish_reason"], "stop");
        assert_eq!(chunks[4]["choices"], json!([]));
        assert_eq!(chunks[4]["usage"]["total_tokens"], 14);
        assert!(chunks[..4].iter().all(|chunk| chunk["usage"].is_null()));
        assert!(chunks.iter().all(|chunk| chunk["model"] == "gen"));
    }

    #[test]
    fn streamed_and_whole_text_agree() {
        let model = "gen?tokens=50&text=multibyte";
        let behaviour = Behaviour::parse(model).unwrap();
        let streamed = String::from_utf8(stream(&behaviour, model, false).bytes).unwrap();
        let mut text = String::new();
        for block in streamed.split_terminator("\n\n") {
            let data = block.strip_prefix("data: ").unwrap();
            if data != "[DONE]" {
                let chunk: Value = serde_json::from_str(data).unwrap();
                assert!(chunk.get("usage").is_none());
                text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or("");
            }
        }
        let whole: Value = serde_json::from_slice(&completion(&behaviour, model).bytes).unwrap();
        assert_eq!(whole["choices"][0]["message"]["content"], text);
        assert!(text.chars().any(|c| c.len_utf8() == 4));
    }
}
