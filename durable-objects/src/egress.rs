//! The only place that calls out: a provider, or a tenant's webhook. A provider's origin comes from the operator's table, headers are built from an
//! allow-list, redirects are not followed.

use crate::clock;
use futures::future::{Either, select};
use holdfast_core::config::{Provider, origin_is_allowed};
use holdfast_core::key::ProviderKey;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::ResponseHead;
use holdfast_core::signature;
use holdfast_core::webhook::{Answer, Reach, check_url, retry_after_ms};
use std::pin::pin;
use wasm_bindgen::JsValue;
use worker::js_sys::Uint8Array;
use worker::{
    AbortController, AbortSignal, Error, Fetch, Headers, Method, Request, RequestInit, RequestRedirect, Response,
    Result, Url,
};

/// Response headers that reach the client. Everything else (cookies, organisation ids, hop-by-hop) stays here.
const RESPONSE_HEADERS: [&str; 4] = ["content-type", "retry-after", "x-request-id", "openai-processing-ms"];
/// Allowed by their beginning.
const RESPONSE_HEADER_PREFIX: &str = "x-ratelimit-";

/// How this service names itself.
const USER_AGENT: &str = concat!("holdfast/", env!("CARGO_PKG_VERSION"));

/// No answer came from the provider.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum CallError {
    /// The request never left: something is missing on our side.
    NotSent(String),
    /// The connection failed. The platform does not tell a refused connection from one that broke after the request
    /// was sent, so whether it was sent is unknown.
    Unknown(String),
}

impl CallError {
    fn not_sent(error: Error) -> Self {
        Self::NotSent(error.to_string())
    }
}

impl From<Refusal> for CallError {
    /// A setting is missing.
    fn from(refusal: Refusal) -> Self {
        Self::NotSent(refusal.message())
    }
}

/// Calls the provider. The answer's body has not been read yet.
///
/// # Errors
/// See [`CallError`].
pub async fn call(
    provider: &Provider,
    key: &ProviderKey,
    path: &str,
    body: &[u8],
    streaming: bool,
    signal: &AbortSignal,
) -> core::result::Result<Response, CallError> {
    let request = request(provider, key, path, body, streaming).map_err(CallError::not_sent)?;
    Fetch::Request(request).send_with_signal(signal).await.map_err(|error| CallError::Unknown(error.to_string()))
}

fn request(provider: &Provider, key: &ProviderKey, path: &str, body: &[u8], streaming: bool) -> Result<Request> {
    let url = target(provider, path)?;
    let headers = Headers::new();
    headers.set("authorization", &key.bearer())?;
    headers.set("content-type", "application/json")?;
    headers.set("accept", if streaming { "text/event-stream" } else { "application/json" })?;
    // Compressed streams are held back until a block is full.
    headers.set("accept-encoding", "identity")?;
    headers.set("user-agent", USER_AGENT)?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_headers(headers)
        .with_redirect(RequestRedirect::Manual)
        .with_body(Some(JsValue::from(Uint8Array::from(body))));
    Request::new_with_init(url.as_str(), &init)
}

fn target(provider: &Provider, path: &str) -> Result<Url> {
    let url = Url::parse(&format!("{}{path}", provider.origin))?;
    let stays = url.origin() == Url::parse(&provider.origin)?.origin() && path.starts_with('/');
    if stays && origin_is_allowed(&provider.origin) { Ok(url) } else { Err(Error::from("target leaves its origin")) }
}

/// An event for a tenant's webhook, ready to be sent.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Letter {
    /// Where to; checked here once more.
    pub url: String,
    /// What may be called from here.
    pub reach: Reach,
    /// The event's id.
    pub id: String,
    /// Seconds since the Unix epoch, of this attempt.
    pub timestamp_s: u64,
    /// The value of the signature header; without one nothing is sent.
    pub signatures: Option<String>,
    /// The body, byte for byte.
    pub body: String,
    /// How long the answer's head may take.
    pub timeout_ms: u64,
}

/// Sends an event. Of the answer the head alone counts: its body is never read, and a redirect is not followed.
pub async fn deliver(letter: &Letter) -> Answer {
    if let Err(fault) = check_url(&letter.url, letter.reach) {
        return Answer::UrlRefused { fault };
    }
    let Some(signatures) = &letter.signatures else { return Answer::NoSecret };
    let Ok(request) = letter_request(letter, signatures) else { return Answer::Unreachable };
    let controller = AbortController::default();
    let signal = controller.signal();
    let fetch = Fetch::Request(request);
    let sent = pin!(fetch.send_with_signal(&signal));
    let answer = match select(sent, pin!(clock::sleep_ms(letter.timeout_ms))).await {
        Either::Left((Ok(response), _)) => {
            let wish = response.headers().get("retry-after").ok().flatten();
            let retry_after_ms = wish.and_then(|value| retry_after_ms(&value, clock::now()));
            Answer::Status { status: response.status_code(), retry_after_ms }
        }
        Either::Left((Err(_), _)) => Answer::Unreachable,
        Either::Right(_) => Answer::TimedOut,
    };
    // Whatever of it is still on its way is not wanted.
    controller.abort();
    answer
}

fn letter_request(letter: &Letter, signatures: &str) -> Result<Request> {
    let headers = Headers::new();
    headers.set("content-type", "application/json")?;
    headers.set("user-agent", USER_AGENT)?;
    headers.set(signature::ID_HEADER, &letter.id)?;
    headers.set(signature::TIMESTAMP_HEADER, &letter.timestamp_s.to_string())?;
    headers.set(signature::SIGNATURE_HEADER, signatures)?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_headers(headers)
        .with_redirect(RequestRedirect::Manual)
        .with_body(Some(JsValue::from(Uint8Array::from(letter.body.as_bytes()))));
    Request::new_with_init(&letter.url, &init)
}

/// Status and allowed headers of an answer.
#[must_use]
pub fn head_of(response: &Response) -> ResponseHead {
    let allowed = |name: &str| RESPONSE_HEADERS.contains(&name) || name.starts_with(RESPONSE_HEADER_PREFIX);
    let headers = response.headers().entries().filter(|(name, _)| allowed(name)).collect();
    ResponseHead { status: response.status_code(), headers }
}

/// Whether the answer is a stream of server-sent events.
#[must_use]
pub fn is_event_stream(head: &ResponseHead) -> bool {
    let event_stream = |value: &str| value.trim_start().to_ascii_lowercase().starts_with("text/event-stream");
    (200..300).contains(&head.status)
        // These have no body.
        && !matches!(head.status, 204 | 205)
        && head.headers.iter().any(|(name, value)| name == "content-type" && event_stream(value))
}
