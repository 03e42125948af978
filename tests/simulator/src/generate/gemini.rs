//! Gemini: data-only events whose usage repeats and grows, or one document.

use serde_json::{Value, json};

use super::{Events, SERVER_ERROR, operation_id, pieces, text, whole};
use crate::api::Api;
use crate::behaviour::Behaviour;

/// A streamed answer. The last event has the finish reason and no text.
pub(crate) fn stream(behaviour: &Behaviour, model: &str) -> Events {
    let mut events = Events::default();
    let end = format!(
        r#","modelVersion":{},"responseId":"{}"}}"#,
        Value::from(behaviour.name.as_str()),
        operation_id(Api::Gemini, model)
    );
    for (position, piece) in (0_u64..).zip(pieces(behaviour)) {
        if behaviour.error_after == Some(position) {
            return interrupted(events);
        }
        let content = r#"data: {"candidates":[{"content":{"parts":[{"text":"#;
        let usage = if behaviour.usage {
            format!(r#","usageMetadata":{}"#, usage(behaviour, Some(position + 1)))
        } else {
            String::new()
        };
        events.push(&[content, &piece, r#"}],"role":"model"},"index":0}]"#, &usage, &end, "\n\n"]);
    }
    if behaviour.error_after == Some(behaviour.tokens) {
        return interrupted(events);
    }
    let finish = Value::from(finish_reason(behaviour));
    let usage = if behaviour.usage { format!(r#","usageMetadata":{}"#, usage(behaviour, None)) } else { String::new() };
    let last = format!(r#"data: {{"candidates":[{{"finishReason":{finish},"index":0}}]{usage}"#);
    events.push(&[&last, &end, "\n\n"]);
    events
}

fn interrupted(mut events: Events) -> Events {
    let error = json!({"error": {"code": 503, "message": SERVER_ERROR, "status": "UNAVAILABLE"}});
    events.push(&["data: ", &error.to_string(), "\n\n"]);
    events
}

/// An answer in one piece.
pub(crate) fn document(behaviour: &Behaviour, model: &str) -> Events {
    let content = json!({"parts": [{"text": text(behaviour)}], "role": "model"});
    let mut answer = json!({
        "candidates": [{"content": content, "finishReason": finish_reason(behaviour), "index": 0}],
        "modelVersion": behaviour.name,
        "responseId": operation_id(Api::Gemini, model),
    });
    if behaviour.usage {
        answer["usageMetadata"] = usage(behaviour, None);
    }
    whole(&answer)
}

/// The usage after so many tokens, or at the end. Thoughts stand beside the candidates.
fn usage(behaviour: &Behaviour, tokens: Option<u64>) -> Value {
    let all = behaviour.output_tokens().saturating_sub(behaviour.reasoning_tokens);
    let candidates = tokens.map_or(all, |tokens| tokens.min(all));
    let mut usage = json!({
        "promptTokenCount": behaviour.prompt_tokens,
        "candidatesTokenCount": candidates,
        "totalTokenCount": behaviour.prompt_tokens + candidates + behaviour.reasoning_tokens,
    });
    if behaviour.cached_tokens > 0 {
        usage["cachedContentTokenCount"] = behaviour.cached_tokens.into();
    }
    if behaviour.reasoning_tokens > 0 {
        usage["thoughtsTokenCount"] = behaviour.reasoning_tokens.into();
    }
    usage
}

fn finish_reason(behaviour: &Behaviour) -> &str {
    match behaviour.finish.as_str() {
        "stop" => "STOP",
        "length" => "MAX_TOKENS",
        other => other,
    }
}
