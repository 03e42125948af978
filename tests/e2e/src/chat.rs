//! One request of a client of any API.

pub use holdfast_simulator::Api;
use serde_json::{Value, json};

use crate::http::Request;
use crate::simulator::percent_encoded;

/// The header that its SDKs send the key in, and what stands before the key.
const fn key_header(api: Api) -> (&'static str, &'static str) {
    match api {
        Api::Messages => ("x-api-key", ""),
        Api::Gemini => ("x-goog-api-key", ""),
        _ => ("Authorization", "Bearer "),
    }
}

fn target(api: Api, model: &str, stream: bool) -> String {
    match api {
        Api::Chat => "/v1/chat/completions".to_owned(),
        Api::Gemini if stream => {
            format!("/v1beta/models/{}:streamGenerateContent?alt=sse", percent_encoded(model))
        }
        Api::Gemini => format!("/v1beta/models/{}:generateContent", percent_encoded(model)),
        other => format!("/v1/{}", other.name()),
    }
}

fn body(api: Api, text: &str) -> Value {
    let messages = json!([{ "role": "user", "content": text }]);
    match api {
        Api::Chat => json!({ "messages": messages }),
        Api::Completions => json!({ "prompt": text }),
        Api::Embeddings | Api::Responses => json!({ "input": text }),
        Api::Messages => json!({ "max_tokens": 1_000, "messages": messages }),
        Api::Gemini => json!({ "contents": [{ "role": "user", "parts": [{ "text": text }] }] }),
    }
}

/// A request under construction.
#[derive(Clone, Debug)]
pub struct Chat {
    api: Api,
    stream: bool,
    model: String,
    body: Value,
    headers: Vec<(String, String)>,
}

impl Chat {
    /// A streaming request for a model of the simulator, for example `gen?tokens=5`.
    #[must_use]
    pub fn stream(model: &str) -> Self {
        Self::of(Api::Chat, model, true)
    }

    /// A request for one JSON answer.
    #[must_use]
    pub fn complete(model: &str) -> Self {
        Self::of(Api::Chat, model, false)
    }

    /// A request of any API.
    #[must_use]
    pub fn of(api: Api, model: &str, stream: bool) -> Self {
        let mut body = body(api, "Say something about holding fast.");
        if api != Api::Gemini {
            body["model"] = model.into();
            if stream {
                body["stream"] = Value::Bool(true);
            }
        }
        Self { api, stream, model: model.to_owned(), body, headers: Vec::new() }
    }

    /// The API that it is for.
    #[must_use]
    pub const fn api(&self) -> Api {
        self.api
    }

    /// Marks the request in the simulator's log.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        let sign = if self.model.contains('?') { '&' } else { '?' };
        self.model = format!("{}{sign}tag={tag}", self.model);
        if self.api != Api::Gemini {
            self.body["model"] = Value::String(self.model.clone());
        }
        self
    }

    /// Asks for the usage chunk, as a client may.
    #[must_use]
    pub fn with_usage(self) -> Self {
        self.field("stream_options", json!({ "include_usage": true }))
    }

    /// Sets any field of the body.
    #[must_use]
    pub fn field(mut self, name: &str, value: impl Into<Value>) -> Self {
        self.body[name] = value.into();
        self
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Adds an idempotency key.
    #[must_use]
    pub fn idempotency_key(self, key: &str) -> Self {
        self.header("Idempotency-Key", key)
    }

    /// Asks for a policy, for this request only.
    #[must_use]
    pub fn on_disconnect(self, policy: &str) -> Self {
        self.header("Holdfast-On-Disconnect", policy)
    }

    /// The model's name, with the tag.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether a stream is asked for.
    #[must_use]
    pub fn is_stream(&self) -> bool {
        self.stream
    }

    /// Whether the usage chunk is asked for.
    #[must_use]
    pub fn asks_for_usage(&self) -> bool {
        self.body["stream_options"]["include_usage"] == Value::Bool(true)
    }

    /// The request on the wire, with the key where the API's SDKs send it.
    #[must_use]
    pub fn request(&self, key: &str) -> Request {
        let (name, before) = key_header(self.api);
        let mut request = Request::new("POST", target(self.api, &self.model, self.stream))
            .header(name, &format!("{before}{key}"))
            .header("Content-Type", "application/json");
        request.headers.extend(self.headers.iter().cloned());
        request.body = self.body.to_string().into_bytes();
        request
    }
}
