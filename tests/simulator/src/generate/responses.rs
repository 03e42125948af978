//! Responses: events with a type and a sequence number, or one response object.

use serde_json::{Value, json};

use super::{CREATED, Events, SERVER_ERROR, operation_id, pieces, text, whole};
use crate::api::Api;
use crate::behaviour::Behaviour;

/// How a response stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Status {
    InProgress,
    Ended,
}

/// Writes events and counts them.
struct Writer {
    events: Events,
    sequence_number: u64,
}

impl Writer {
    /// `members` is JSON without its braces.
    fn event(&mut self, kind: &str, members: &str) {
        let number = self.sequence_number.to_string();
        self.sequence_number += 1;
        let start = ["event: ", kind, "\ndata: {\"type\":\"", kind, "\",\"sequence_number\":", &number, ","];
        self.events.push(&[&start.concat(), members, "}\n\n"]);
    }

    fn response(&mut self, kind: &str, response: &Value) {
        self.event(kind, &format!("\"response\":{response}"));
    }
}

/// A streamed answer, from `response.created` to the terminal event.
pub(crate) fn stream(behaviour: &Behaviour, model: &str, background: bool) -> Events {
    let mut writer = Writer { events: Events::default(), sequence_number: 0 };
    let begun = object(behaviour, model, Status::InProgress, background);
    writer.response("response.created", &begun);
    writer.response("response.in_progress", &begun);
    let item = item_id(model);
    let place = format!(r#""item_id":"{item}","output_index":0,"content_index":0"#);
    let added = json!({"id": item, "type": "message", "status": "in_progress", "role": "assistant", "content": []});
    writer.event("response.output_item.added", &format!(r#""output_index":0,"item":{added}"#));
    let part = |text: &str| json!({"type": "output_text", "text": text, "annotations": [], "logprobs": []});
    writer.event("response.content_part.added", &format!(r#"{place},"part":{}"#, part("")));
    for (position, piece) in (0_u64..).zip(pieces(behaviour)) {
        if behaviour.error_after == Some(position) {
            return interrupted(writer);
        }
        writer.event("response.output_text.delta", &[&place, r#","delta":"#, &piece, r#","logprobs":[]"#].concat());
    }
    if behaviour.error_after == Some(behaviour.tokens) {
        return interrupted(writer);
    }
    let text = text(behaviour);
    let quoted = Value::from(text.as_str());
    writer.event("response.output_text.done", &format!(r#"{place},"text":{quoted},"logprobs":[]"#));
    writer.event("response.content_part.done", &format!(r#"{place},"part":{}"#, part(&text)));
    let ended = object(behaviour, model, Status::Ended, background);
    writer.event("response.output_item.done", &format!(r#""output_index":0,"item":{}"#, ended["output"][0]));
    let kind = if ended["status"] == "completed" { "response.completed" } else { "response.incomplete" };
    writer.response(kind, &ended);
    writer.events
}

fn interrupted(mut writer: Writer) -> Events {
    writer.event("error", &format!(r#""code":"server_error","message":"{SERVER_ERROR}","param":null"#));
    writer.events
}

/// An answer in one piece.
pub(crate) fn document(behaviour: &Behaviour, model: &str, background: bool) -> Events {
    whole(&object(behaviour, model, Status::Ended, background))
}

/// The response object. An ended one is completed unless its finish reason says otherwise.
pub(crate) fn object(behaviour: &Behaviour, model: &str, status: Status, background: bool) -> Value {
    let ended = status == Status::Ended;
    let incomplete = match behaviour.finish.as_str() {
        _ if !ended => None,
        "stop" => None,
        "length" => Some("max_output_tokens"),
        other => Some(other),
    };
    let word = match (ended, incomplete) {
        (false, _) => "in_progress",
        (true, None) => "completed",
        (true, Some(_)) => "incomplete",
    };
    let mut response = json!({
        "id": operation_id(Api::Responses, model),
        "object": "response",
        "created_at": CREATED,
        "status": word,
        "background": background,
        "completed_at": null,
        "error": null,
        "incomplete_details": incomplete.map(|reason| json!({"reason": reason})),
        "instructions": null,
        "metadata": {},
        "model": behaviour.name,
        "output": [],
        "parallel_tool_calls": true,
        "store": true,
        "temperature": 1.0,
        "tool_choice": "auto",
        "tools": [],
        "top_p": 1.0,
        "usage": null,
    });
    if !ended {
        return response;
    }
    if incomplete.is_none() {
        response["completed_at"] = (CREATED + 3).into();
    }
    response["output"] = json!([{
        "id": item_id(model), "type": "message", "status": word, "role": "assistant",
        "content": [{"type": "output_text", "text": text(behaviour), "annotations": [], "logprobs": []}],
    }]);
    if behaviour.usage {
        response["usage"] = usage(behaviour);
    }
    response
}

/// The word for one that has ended.
pub(crate) fn ended_as(behaviour: &Behaviour) -> &'static str {
    if behaviour.finish == "stop" { "completed" } else { "incomplete" }
}

fn item_id(model: &str) -> String {
    operation_id(Api::Responses, model).replace("resp_", "msg_")
}

fn usage(behaviour: &Behaviour) -> Value {
    let output_tokens = behaviour.output_tokens();
    json!({
        "input_tokens": behaviour.prompt_tokens,
        "input_tokens_details": {
            "cached_tokens": behaviour.cached_tokens, "cache_write_tokens": behaviour.cache_write_tokens,
        },
        "output_tokens": output_tokens,
        "output_tokens_details": {"reasoning_tokens": behaviour.reasoning_tokens},
        "total_tokens": behaviour.prompt_tokens.saturating_add(output_tokens),
    })
}
