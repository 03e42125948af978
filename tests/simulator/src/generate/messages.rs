//! Anthropic Messages: typed events, or one message.

use serde_json::{Value, json};

use super::{Events, operation_id, pieces, text, whole};
use crate::api::Api;
use crate::behaviour::Behaviour;

const PING: &str = "event: ping\ndata: {\"type\":\"ping\"}\n\n";
const OVERLOADED: &str =
    "event: error\ndata: {\"type\":\"error\",\"error\":{\"type\":\"overloaded_error\",\"message\":\"Overloaded\"}}\n\n";

/// A streamed answer: `message_start` with a placeholder of the output, one text block, `message_delta` with the usage.
pub(crate) fn stream(behaviour: &Behaviour, model: &str) -> Events {
    let mut events = Events::default();
    let mut usage = input_usage(behaviour);
    usage["output_tokens"] = 1.into();
    let message = message(behaviour, model, Value::Null, json!([]), &usage);
    push(&mut events, &json!({"type": "message_start", "message": message}));
    let block = json!({"type": "text", "text": ""});
    push(&mut events, &json!({"type": "content_block_start", "index": 0, "content_block": block}));
    events.push(&[PING]);
    let delta = "event: content_block_delta\ndata: {\"type\":\"content_block_delta\",\"index\":0,\"delta\":{\"type\":\"text_delta\",\"text\":";
    for (position, piece) in (0_u64..).zip(pieces(behaviour)) {
        if behaviour.error_after == Some(position) {
            events.push(&[OVERLOADED]);
            return events;
        }
        events.push(&[delta, &piece, "}}\n\n"]);
    }
    if behaviour.error_after == Some(behaviour.tokens) {
        events.push(&[OVERLOADED]);
        return events;
    }
    push(&mut events, &json!({"type": "content_block_stop", "index": 0}));
    let stop = json!({"stop_reason": stop_reason(behaviour), "stop_sequence": null});
    let mut end = json!({"type": "message_delta", "delta": stop});
    if behaviour.usage {
        end["usage"] = json!({"output_tokens": behaviour.output_tokens()});
    }
    push(&mut events, &end);
    push(&mut events, &json!({"type": "message_stop"}));
    events
}

/// An answer in one piece.
pub(crate) fn document(behaviour: &Behaviour, model: &str) -> Events {
    let content = json!([{"type": "text", "text": text(behaviour)}]);
    let mut usage = input_usage(behaviour);
    usage["output_tokens"] = behaviour.output_tokens().into();
    let mut message = message(behaviour, model, stop_reason(behaviour).into(), content, &usage);
    if !behaviour.usage
        && let Some(members) = message.as_object_mut()
    {
        members.remove("usage");
    }
    whole(&message)
}

fn push(events: &mut Events, event: &Value) {
    let name = event["type"].as_str().unwrap_or_default();
    events.push(&["event: ", name, "\ndata: ", &event.to_string(), "\n\n"]);
}

fn message(behaviour: &Behaviour, model: &str, stop_reason: Value, content: Value, usage: &Value) -> Value {
    json!({
        "id": operation_id(Api::Messages, model),
        "type": "message",
        "role": "assistant",
        "model": behaviour.name,
        "content": content,
        "stop_reason": stop_reason,
        "stop_sequence": null,
        "usage": usage,
    })
}

/// Cache reads and writes stand beside the input, which does not hold them.
fn input_usage(behaviour: &Behaviour) -> Value {
    let cached = behaviour.cached_tokens.saturating_add(behaviour.cache_write_tokens);
    json!({
        "input_tokens": behaviour.prompt_tokens.saturating_sub(cached),
        "cache_creation_input_tokens": behaviour.cache_write_tokens,
        "cache_read_input_tokens": behaviour.cached_tokens,
    })
}

fn stop_reason(behaviour: &Behaviour) -> &str {
    match behaviour.finish.as_str() {
        "stop" => "end_turn",
        "length" => "max_tokens",
        other => other,
    }
}
