//! Chat Completions: a stream of chat.completion.chunk events or one chat.completion; and the older Completions, which
//! have `text` where those have messages.

use serde_json::{Value, json};

use super::{CREATED, Events, SERVER_ERROR, operation_id, text, tokens, whole, words};
use crate::api::Api;
use crate::behaviour::Behaviour;

/// The usage object that the answer reports.
fn usage(behaviour: &Behaviour) -> Value {
    let completion_tokens = behaviour.output_tokens();
    json!({
        "prompt_tokens": behaviour.prompt_tokens,
        "completion_tokens": completion_tokens,
        "total_tokens": behaviour.prompt_tokens.saturating_add(completion_tokens),
        "prompt_tokens_details": {
            "cached_tokens": behaviour.cached_tokens, "cache_write_tokens": behaviour.cache_write_tokens,
        },
        "completion_tokens_details": {
            "reasoning_tokens": behaviour.reasoning_tokens,
            "accepted_prediction_tokens": 0, "rejected_prediction_tokens": 0,
        },
    })
}

/// A streamed answer: role chunk, content chunks, finish chunk, the usage chunk if
/// asked for, `[DONE]`.
pub(crate) fn stream(api: Api, behaviour: &Behaviour, model: &str, include_usage: bool) -> Events {
    let head = format!(
        r#"data: {{"id":"{}","object":"{}","created":{CREATED},"model":{},"choices":["#,
        operation_id(api, model),
        if api == Api::Chat { "chat.completion.chunk" } else { "text_completion" },
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
    let (content, content_end, end) = if api == Api::Chat {
        let role = r#"{"index":0,"delta":{"role":"assistant","content":""},"logprobs":null,"finish_reason":null}"#;
        events.push(&[&head, role, tail]);
        (r#"{"index":0,"delta":{"content":""#, r#"},"logprobs":null,"finish_reason":null}"#, r#""delta":{}"#)
    } else {
        (r#"{"index":0,"text":""#, r#","logprobs":null,"finish_reason":null}"#, r#""text":"""#)
    };
    let mut space = "";
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
    let finish =
        format!(r#"{{"index":0,{end},"logprobs":null,"finish_reason":{}}}"#, Value::from(behaviour.finish.as_str()));
    events.push(&[&head, &finish, tail]);
    if include_usage && behaviour.usage {
        let usage = format!("],\"usage\":{}}}\n\n", usage(behaviour));
        events.push(&[&head, &usage]);
    }
    events.push(&["data: [DONE]\n\n"]);
    events
}

fn interrupted(mut events: Events) -> Events {
    let end = "\",\"type\":\"server_error\",\"param\":null,\"code\":null}}\n\n";
    events.push(&["data: {\"error\":{\"message\":\"", SERVER_ERROR, end]);
    events
}

/// An answer in one piece.
pub(crate) fn completion(api: Api, behaviour: &Behaviour, model: &str) -> Events {
    let text = text(behaviour);
    let mut choice = json!({"index": 0, "logprobs": null, "finish_reason": behaviour.finish});
    if api == Api::Chat {
        choice["message"] = json!({"role": "assistant", "content": text, "refusal": null});
    } else {
        choice["text"] = text.into();
    }
    let mut answer = json!({
        "id": operation_id(api, model),
        "object": if api == Api::Chat { "chat.completion" } else { "text_completion" },
        "created": CREATED,
        "model": behaviour.name,
        "choices": [choice],
    });
    if behaviour.usage {
        answer["usage"] = usage(behaviour);
    }
    whole(&answer)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_stream_has_the_wire_form() {
        let behaviour = Behaviour::parse("gen?tokens=2&tag=x").unwrap();
        let events = stream(Api::Chat, &behaviour, "gen?tokens=2&tag=x", true);
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
        let streamed = String::from_utf8(stream(Api::Chat, &behaviour, model, false).bytes).unwrap();
        let mut text = String::new();
        for block in streamed.split_terminator("\n\n") {
            let data = block.strip_prefix("data: ").unwrap();
            if data != "[DONE]" {
                let chunk: Value = serde_json::from_str(data).unwrap();
                assert!(chunk.get("usage").is_none());
                text += chunk["choices"][0]["delta"]["content"].as_str().unwrap_or("");
            }
        }
        let whole: Value = serde_json::from_slice(&completion(Api::Chat, &behaviour, model).bytes).unwrap();
        assert_eq!(whole["choices"][0]["message"]["content"], text);
        assert!(text.chars().any(|c| c.len_utf8() == 4));
    }
}
