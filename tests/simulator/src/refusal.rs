//! Errors, in the envelope of each API.

use serde_json::json;

use crate::api::Api;

/// An error answer of the provider.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Refusal {
    pub(crate) status: u16,
    pub(crate) message: String,
    pub(crate) kind: &'static str,
    pub(crate) code: Option<&'static str>,
}

impl Refusal {
    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self { status: 400, message: message.into(), kind: "invalid_request_error", code: None }
    }

    pub(crate) fn not_found(message: impl Into<String>, code: Option<&'static str>) -> Self {
        Self { status: 404, message: message.into(), kind: "invalid_request_error", code }
    }

    /// What the real API says with `status`, in its own words where they are known.
    pub(crate) fn for_status(status: u16) -> Self {
        let (kind, code, message) = match status {
            401 => ("invalid_request_error", Some("invalid_api_key"), "Incorrect API key provided."),
            403 => (
                "invalid_request_error",
                Some("unsupported_country_region_territory"),
                "Country, region, or territory not supported",
            ),
            404 => (
                "invalid_request_error",
                Some("model_not_found"),
                "The model does not exist or you do not have access to it.",
            ),
            429 => {
                ("requests", Some("rate_limit_exceeded"), "Rate limit reached for requests. Please try again later.")
            }
            503 => ("server_error", None, "The engine is currently overloaded, please try again later"),
            500.. => ("server_error", None, "The server had an error while processing your request. Sorry about that!"),
            _ => ("invalid_request_error", None, "The request could not be served."),
        };
        Self { status, message: message.to_owned(), kind, code }
    }

    /// The JSON body.
    pub(crate) fn body(&self, api: Api) -> Vec<u8> {
        let value = match api {
            Api::Messages => json!({
                "type": "error", "request_id": "req_simulated",
                "error": {"type": anthropic_type(self.status), "message": self.message},
            }),
            Api::Gemini => json!({"error": {
                "code": self.status, "message": self.message, "status": google_status(self.status),
            }}),
            _ => json!({"error": {
                "message": self.message, "type": self.kind, "param": null, "code": self.code,
            }}),
        };
        format!("{value:#}\n").into_bytes()
    }
}

const fn anthropic_type(status: u16) -> &'static str {
    match status {
        401 => "authentication_error",
        403 => "permission_error",
        404 => "not_found_error",
        413 => "request_too_large",
        429 => "rate_limit_error",
        503 | 529 => "overloaded_error",
        500.. => "api_error",
        _ => "invalid_request_error",
    }
}

const fn google_status(status: u16) -> &'static str {
    match status {
        401 => "UNAUTHENTICATED",
        403 => "PERMISSION_DENIED",
        404 => "NOT_FOUND",
        429 => "RESOURCE_EXHAUSTED",
        503 => "UNAVAILABLE",
        504 => "DEADLINE_EXCEEDED",
        500.. => "INTERNAL",
        _ => "INVALID_ARGUMENT",
    }
}
