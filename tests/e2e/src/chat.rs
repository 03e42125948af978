//! One request of an OpenAI client.

use serde_json::{Value, json};

use crate::http::Request;

/// A chat completion request under construction.
#[derive(Clone, Debug)]
pub struct Chat {
    model: String,
    body: Value,
    headers: Vec<(String, String)>,
}

impl Chat {
    /// A streaming request for a model of the simulator, for example `gen?tokens=5`.
    #[must_use]
    pub fn stream(model: &str) -> Self {
        Self::new(model, true)
    }

    /// A request for one JSON answer.
    #[must_use]
    pub fn complete(model: &str) -> Self {
        Self::new(model, false)
    }

    fn new(model: &str, stream: bool) -> Self {
        let messages = json!([{ "role": "user", "content": "Say something about holding fast." }]);
        let mut body = json!({ "model": model, "messages": messages });
        if stream {
            body["stream"] = Value::Bool(true);
        }
        Self { model: model.to_owned(), body, headers: Vec::new() }
    }

    /// Marks the request in the simulator's log.
    #[must_use]
    pub fn tag(mut self, tag: &str) -> Self {
        let sign = if self.model.contains('?') { '&' } else { '?' };
        self.model = format!("{}{sign}tag={tag}", self.model);
        self.body["model"] = Value::String(self.model.clone());
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
        self.body["stream"] == Value::Bool(true)
    }

    /// Whether the usage chunk is asked for.
    #[must_use]
    pub fn asks_for_usage(&self) -> bool {
        self.body["stream_options"]["include_usage"] == Value::Bool(true)
    }

    /// The request on the wire, with a bearer key.
    #[must_use]
    pub fn request(&self, bearer: &str) -> Request {
        let mut request = Request::new("POST", "/v1/chat/completions")
            .header("Authorization", &format!("Bearer {bearer}"))
            .header("Content-Type", "application/json");
        request.headers.extend(self.headers.iter().cloned());
        request.body = self.body.to_string().into_bytes();
        request
    }
}
