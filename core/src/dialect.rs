//! The wire dialects and the errors that Holdfast itself writes in them.

use crate::capability::Capabilities;
use alloc::string::String;
use alloc::vec::Vec;

use serde::{Deserialize, Serialize};
use serde_json::json;

/// The wire form that a route speaks, towards the provider and the client alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Dialect {
    /// OpenAI Chat Completions, and what is compatible with it.
    #[serde(rename = "openai-chat")]
    OpenaiChat,
    /// OpenAI Responses.
    #[serde(rename = "openai-responses")]
    OpenaiResponses,
    /// Anthropic Messages.
    AnthropicMessages,
    /// Gemini `generateContent` and `streamGenerateContent?alt=sse`.
    Gemini,
    /// Bytes whose meaning is not known: relayed and stored, never metered.
    Opaque,
}

impl Dialect {
    /// The name as configuration and stored rows write it.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::OpenaiChat => "openai-chat",
            Self::OpenaiResponses => "openai-responses",
            Self::AnthropicMessages => "anthropic-messages",
            Self::Gemini => "gemini",
            Self::Opaque => "opaque",
        }
    }

    /// What can be done with an operation that runs in the background at the provider (design 6): `openai-responses` has
    /// a protocol for all of it. Of the other dialects the socket is the only lever.
    #[must_use]
    pub const fn capabilities(self) -> Capabilities {
        let able = self.has_background();
        Capabilities { cancel: able, status: able, resume: able, callback: able, idempotency_key: able }
    }

    /// Whether an operation of the dialect can run in the background at the provider, and outlive its socket.
    #[must_use]
    pub const fn has_background(self) -> bool {
        matches!(self, Self::OpenaiResponses)
    }
}

/// The event that ends a broken stream in-band, blank line included, in the form that the dialect's own clients raise
/// as an error. It never contains a success terminal.
///
/// If the stream broke inside an event, [`crate::sse::BLANK_LINE`] goes before it.
#[must_use]
pub fn error_terminal(dialect: Dialect, code: &str, message: &str) -> Vec<u8> {
    let (name, data) = match dialect {
        Dialect::OpenaiChat => (None, openai_error("server_error", code, message)),
        Dialect::OpenaiResponses => (Some("error"), responses_error(code, message)),
        Dialect::AnthropicMessages => (Some("error"), anthropic_error("api_error", code, message)),
        Dialect::Gemini => (None, gemini_error(503, "UNAVAILABLE", code, message)),
        Dialect::Opaque => (Some("error"), openai_error("server_error", code, message)),
    };
    let mut event = Vec::with_capacity(data.len().saturating_add(24));
    if let Some(name) = name {
        event.extend_from_slice(b"event: ");
        event.extend_from_slice(name.as_bytes());
        event.push(b'\n');
    }
    event.extend_from_slice(b"data: ");
    event.extend_from_slice(data.as_bytes());
    event.extend_from_slice(b"\n\n");
    event
}

/// The JSON body of an error answer, for errors before any byte of a stream was sent.
///
/// `code` is Holdfast's stable error name. The dialect's own type or status word follows from `http_status`.
#[must_use]
pub fn error_envelope(dialect: Dialect, http_status: u16, code: &str, message: &str) -> Vec<u8> {
    let body = match dialect {
        Dialect::OpenaiChat | Dialect::OpenaiResponses | Dialect::Opaque => {
            openai_error(openai_type(http_status), code, message)
        }
        Dialect::AnthropicMessages => anthropic_error(anthropic_type(http_status), code, message),
        Dialect::Gemini => gemini_error(http_status, google_status(http_status), code, message),
    };
    body.into_bytes()
}

/// Written by hand so that the members keep the order in which OpenAI writes them.
fn openai_error(kind: &str, code: &str, message: &str) -> String {
    let (message, kind, code) = (json!(message), json!(kind), json!(code));
    alloc::format!(r#"{{"error":{{"message":{message},"type":{kind},"code":{code},"param":null}}}}"#)
}

/// No `sequence_number`: it is unknown here, and clients keep the last usable one. The official SDKs hand an `error` event
/// on like any other and raise only where it has a member `error`, so it has one.
fn responses_error(code: &str, message: &str) -> String {
    let error = openai_error("server_error", code, message);
    let nested = error.strip_prefix('{').unwrap_or_default();
    let (message, code) = (json!(message), json!(code));
    alloc::format!(r#"{{"type":"error","code":{code},"message":{message},"param":null,{nested}"#)
}

fn anthropic_error(kind: &str, code: &str, message: &str) -> String {
    let (message, kind, code) = (json!(message), json!(kind), json!(code));
    alloc::format!(r#"{{"type":"error","error":{{"type":{kind},"message":{message},"code":{code}}}}}"#)
}

fn gemini_error(http_status: u16, status: &str, code: &str, message: &str) -> String {
    let (message, status, code) = (json!(message), json!(status), json!(code));
    alloc::format!(
        r#"{{"error":{{"code":{http_status},"message":{message},"status":{status},"details":[{{"@type":"type.googleapis.com/google.rpc.ErrorInfo","reason":{code},"domain":"holdfast.dev"}}]}}}}"#
    )
}

const fn openai_type(http_status: u16) -> &'static str {
    match http_status {
        402 => "insufficient_quota",
        429 => "rate_limit_error",
        500..=599 => "server_error",
        _ => "invalid_request_error",
    }
}

const fn anthropic_type(http_status: u16) -> &'static str {
    match http_status {
        401 => "authentication_error",
        402 => "billing_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        504 => "timeout_error",
        503 | 529 => "overloaded_error",
        500..=599 => "api_error",
        _ => "invalid_request_error",
    }
}

const fn google_status(http_status: u16) -> &'static str {
    match http_status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        409 => "ABORTED",
        402 | 429 => "RESOURCE_EXHAUSTED",
        502 | 503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500..=599 => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::Value;

    const ALL: [Dialect; 5] =
        [Dialect::OpenaiChat, Dialect::OpenaiResponses, Dialect::AnthropicMessages, Dialect::Gemini, Dialect::Opaque];
    /// Text that would break a frame or a JSON string if it were not escaped.
    const NASTY: &str = "a \"quote\"\n\ndata: [DONE]\r\n\\ \u{2028} é";

    #[test]
    fn names_round_trip_through_serde() {
        for dialect in ALL {
            let text = serde_json::to_string(&dialect).unwrap();
            assert_eq!(text, alloc::format!("\"{}\"", dialect.name()));
            assert_eq!(serde_json::from_str::<Dialect>(&text).unwrap(), dialect);
        }
    }

    #[test]
    fn chat_terminal_is_written_as_documented() {
        assert_eq!(
            error_terminal(Dialect::OpenaiChat, "upstream_interrupted", "cut"),
            b"data: {\"error\":{\"message\":\"cut\",\"type\":\"server_error\",\"code\":\"upstream_interrupted\",\"param\":null}}\n\n"
        );
    }

    #[test]
    fn a_terminal_is_one_event_whatever_the_message() {
        for dialect in ALL {
            let text = String::from_utf8(error_terminal(dialect, "upstream_interrupted", NASTY)).unwrap();
            let body = text.strip_suffix("\n\n").unwrap();
            let mut lines = body.split('\n').collect::<Vec<_>>();
            let data = lines.pop().unwrap().strip_prefix("data: ").unwrap();
            assert!(lines.is_empty() || lines == ["event: error"], "{text}");
            let value: Value = serde_json::from_str(data).unwrap();
            let error = value.get("error").unwrap_or(&value);
            assert_eq!(error["message"], NASTY, "{dialect:?}");
        }
    }

    #[test]
    fn envelopes_follow_the_dialect() {
        let read = |dialect, status| -> Value {
            serde_json::from_slice(&error_envelope(dialect, status, "some_code", NASTY)).unwrap()
        };
        let openai = read(Dialect::OpenaiChat, 401);
        assert_eq!(openai["error"]["type"], "invalid_request_error");
        assert_eq!(openai["error"]["code"], "some_code");
        assert!(openai["error"]["param"].is_null());
        assert_eq!(read(Dialect::OpenaiChat, 502)["error"]["type"], "server_error");
        let anthropic = read(Dialect::AnthropicMessages, 429);
        assert_eq!((&anthropic["type"], &anthropic["error"]["type"]), (&json!("error"), &json!("rate_limit_error")));
        let gemini = read(Dialect::Gemini, 404);
        assert_eq!((&gemini["error"]["code"], &gemini["error"]["status"]), (&json!(404), &json!("NOT_FOUND")));
        assert_eq!(gemini["error"]["details"][0]["reason"], "some_code");
    }
}
