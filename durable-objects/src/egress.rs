//! The only place that calls out: a provider, or a tenant's webhook. A provider's origin comes from the operator's table,
//! headers are built from an allow-list, redirects are not followed.

use crate::clock;
use futures::StreamExt;
use holdfast_core::config::{Provider, origin_is_allowed};
use holdfast_core::dialect::Dialect;
use holdfast_core::key::ProviderKey;
use holdfast_core::operation::AnswerBody;
use holdfast_core::refusal::Refusal;
use holdfast_core::request::forward::may_be_forwarded;
use holdfast_core::reservation::ResponseHead;
use holdfast_core::signature;
use holdfast_core::webhook::{Answer, Reach, check_url, retry_after_ms};
use std::collections::BTreeMap;
use wasm_bindgen::JsValue;
use worker::js_sys::Uint8Array;
use worker::{
    AbortController, AbortSignal, Error, Fetch, Headers, Method, Request, RequestInit, RequestRedirect, Response,
    Result, Url,
};

/// Response headers that reach the client: what SDKs read. Everything else (cookies, organisation ids, hop-by-hop) stays
/// here.
const RESPONSE_HEADERS: [&str; 7] = [
    "content-type",
    "retry-after",
    "retry-after-ms",
    "x-should-retry",
    "request-id",
    "x-request-id",
    "openai-processing-ms",
];
/// Allowed by their beginning.
const RESPONSE_HEADER_PREFIXES: [&str; 2] = ["x-ratelimit-", "anthropic-ratelimit-"];

/// The version of the Messages API that is asked for where the client names none.
const ANTHROPIC_VERSION: (&str, &str) = ("anthropic-version", "2023-06-01");

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
    /// Nothing came within the time that there was.
    pub(crate) fn late() -> Self {
        Self::Unknown("no answer in time".into())
    }

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

/// A request to a provider.
#[derive(Clone, Copy, Debug)]
pub struct Outgoing<'a> {
    /// Who is called.
    pub provider: &'a Provider,
    /// The key that it knows us by.
    pub key: &'a ProviderKey,
    /// Path, and the query if there is one.
    pub path: &'a str,
    /// The body.
    pub body: &'a [u8],
    /// Whether a stream is asked for.
    pub streaming: bool,
    /// The `Idempotency-Key`, for a provider that knows repeated submissions by it.
    pub idempotency_key: Option<&'a str>,
    /// The client's own headers that go with it: see [`holdfast_core::request::forward`].
    pub forward: &'a BTreeMap<String, String>,
}

/// Calls the provider. The answer's body has not been read yet.
///
/// # Errors
/// See [`CallError`].
pub async fn call(outgoing: &Outgoing<'_>, signal: &AbortSignal) -> core::result::Result<Response, CallError> {
    send(request(outgoing), signal).await
}

async fn send(request: Result<Request>, signal: &AbortSignal) -> core::result::Result<Response, CallError> {
    let request = request.map_err(CallError::not_sent)?;
    Fetch::Request(request).send_with_signal(signal).await.map_err(|error| CallError::Unknown(error.to_string()))
}

fn request(outgoing: &Outgoing<'_>) -> Result<Request> {
    let url = target(outgoing.provider, outgoing.path)?;
    let headers = headers(outgoing.provider, outgoing.key, outgoing.forward)?;
    headers.set("content-type", "application/json")?;
    headers.set("accept", if outgoing.streaming { "text/event-stream" } else { "application/json" })?;
    if let Some(key) = outgoing.idempotency_key {
        headers.set("idempotency-key", key)?;
    }
    let mut init = RequestInit::new();
    init.with_method(Method::Post)
        .with_headers(headers)
        .with_redirect(RequestRedirect::Manual)
        .with_body(Some(JsValue::from(Uint8Array::from(outgoing.body))));
    Request::new_with_init(url.as_str(), &init)
}

/// What every request to a provider carries: our key as its dialect wants it, and the client's own headers that it may
/// have. Nothing of what the client sent reaches it otherwise.
fn headers(provider: &Provider, key: &ProviderKey, forward: &BTreeMap<String, String>) -> Result<Headers> {
    let headers = Headers::new();
    if provider.dialect == Dialect::AnthropicMessages {
        headers.set(ANTHROPIC_VERSION.0, ANTHROPIC_VERSION.1)?;
    }
    for (name, value) in forward.iter().filter(|(name, value)| may_be_forwarded(provider.dialect, name, value)) {
        headers.set(name, value)?;
    }
    let (name, value) = key.header(provider.dialect);
    headers.set(name, &value)?;
    // Compressed streams are held back until a block is full.
    headers.set("accept-encoding", "identity")?;
    headers.set("user-agent", USER_AGENT)?;
    Ok(headers)
}

/// A question to a provider about one of its operations: see [`holdfast_core::operation`].
#[derive(Clone, Copy, Debug)]
pub struct Question<'a> {
    /// Who is asked.
    pub provider: &'a Provider,
    /// The key that it knows us by.
    pub key: &'a ProviderKey,
    /// Path and query.
    pub path: &'a str,
    /// The client's own headers that went with the operation's request.
    pub forward: &'a BTreeMap<String, String>,
}

/// An answer. Its body is what came of it: one that broke off, or was not there in time, is no whole one.
#[derive(Debug)]
pub struct Told {
    /// HTTP status.
    pub status: u16,
    /// `Retry-After`, in milliseconds from now.
    pub retry_after_ms: Option<u64>,
    /// The body.
    pub body: AnswerBody,
}

/// Asks for the rest of an operation's stream. The answer's body has not been read yet.
///
/// # Errors
/// See [`CallError`].
pub async fn resume(question: &Question<'_>, signal: &AbortSignal) -> core::result::Result<Response, CallError> {
    send(asking(question, Method::Get, "text/event-stream"), signal).await
}

/// Asks for a whole answer: what became of an operation (`GET`), or for it to be cancelled (`POST`). A body above
/// `body_max_bytes` is read and not kept.
///
/// # Errors
/// [`CallError`] when no status came within `timeout_ms`. Whatever becomes of the body then, the provider has answered.
pub async fn ask(
    question: &Question<'_>,
    method: Method,
    timeout_ms: u64,
    body_max_bytes: u64,
) -> core::result::Result<Told, CallError> {
    let controller = AbortController::default();
    let signal = controller.signal();
    let give_up_at = clock::now().plus(timeout_ms);
    let answered = clock::within(timeout_ms, send(asking(question, method, "application/json"), &signal)).await;
    let told = match answered.unwrap_or_else(|| Err(CallError::late())) {
        Ok(mut response) => {
            let mut body = AnswerBody::new(body_max_bytes);
            let left_ms = give_up_at.since(clock::now());
            match clock::within(left_ms, read_into(&mut body, &mut response)).await {
                Some(Ok(())) => {}
                Some(Err(error)) => worker::console_error!("an answer broke off: {error}"),
                None => worker::console_error!("an answer was not there in time"),
            }
            Ok(Told { status: response.status_code(), retry_after_ms: wish_of(&response), body })
        }
        Err(error) => Err(error),
    };
    // Whatever of it is still on its way is not wanted.
    controller.abort();
    told
}

async fn read_into(body: &mut AnswerBody, response: &mut Response) -> Result<()> {
    let Ok(mut chunks) = response.stream() else { return Ok(()) };
    while let Some(chunk) = chunks.next().await {
        body.push(&chunk?);
    }
    Ok(())
}

fn asking(question: &Question<'_>, method: Method, accept: &str) -> Result<Request> {
    let url = target(question.provider, question.path)?;
    let headers = headers(question.provider, question.key, question.forward)?;
    headers.set("accept", accept)?;
    let mut init = RequestInit::new();
    init.with_method(method).with_headers(headers).with_redirect(RequestRedirect::Manual);
    Request::new_with_init(url.as_str(), &init)
}

/// When the provider wishes to be asked again, in milliseconds from now.
#[must_use]
pub fn wish_of(response: &Response) -> Option<u64> {
    let wish = response.headers().get("retry-after").ok().flatten();
    wish.and_then(|value| retry_after_ms(&value, clock::now()))
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
    let answer = match clock::within(letter.timeout_ms, fetch.send_with_signal(&signal)).await {
        Some(Ok(response)) => Answer::Status { status: response.status_code(), retry_after_ms: wish_of(&response) },
        Some(Err(_)) => Answer::Unreachable,
        None => Answer::TimedOut,
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
    let by_beginning = |name: &str| RESPONSE_HEADER_PREFIXES.iter().any(|prefix| name.starts_with(prefix));
    let allowed = |name: &str| RESPONSE_HEADERS.contains(&name) || by_beginning(name);
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
