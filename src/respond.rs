//! Answers. The only place that names status codes.

use crate::error::EdgeError;
use holdfast_core::dialect::{Dialect, error_envelope};
use holdfast_core::ids::Identity;
use holdfast_core::refusal::Refusal;
use serde::Serialize;
use serde_json::value::RawValue;
use worker::{Headers, Response};

/// When to try again after a refusal that may pass, in seconds. Slots come free within seconds; SDKs back off by
/// themselves from here.
const RETRY_AFTER_S: &str = "1";

const JSON: &str = "application/json";
const JSON_LINES: &str = "application/x-ndjson";
const PROBLEM_JSON: &str = "application/problem+json";

/// How an error is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ErrorForm {
    /// RFC 9457, on Holdfast's own routes.
    Problem,
    /// The provider's own envelope, on proxied routes, so that SDKs raise what they should.
    Envelope(Dialect),
}

/// An answer as plain data.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

/// Answers 200 with a JSON document.
///
/// # Errors
/// [`EdgeError::Internal`] when it does not serialize.
pub(crate) fn ok<T: Serialize>(document: &T) -> Result<Response, EdgeError> {
    json(200, document)
}

/// Answers 201 with a JSON document: it was made.
///
/// # Errors
/// [`EdgeError::Internal`] when it does not serialize.
pub(crate) fn created<T: Serialize>(document: &T) -> Result<Response, EdgeError> {
    json(201, document)
}

/// Answers 200 with a JSON document that is written already.
pub(crate) fn written(text: String) -> Response {
    into_response(Answer { status: 200, headers: vec![("content-type", JSON.into())], body: text.into_bytes() })
}

/// Answers 202 with a JSON document: it was recorded and is not done yet.
///
/// # Errors
/// [`EdgeError::Internal`] when it does not serialize.
pub(crate) fn accepted<T: Serialize>(document: &T) -> Result<Response, EdgeError> {
    json(202, document)
}

/// Answers 200 with a version of a stored JSON document. Its bytes are what the entity tag stands for.
pub(crate) fn document(document: String, etag: String, version: u64) -> Response {
    let headers = vec![("content-type", JSON.into()), ("etag", etag), ("holdfast-config-version", version.to_string())];
    into_response(Answer { status: 200, headers, body: document.into_bytes() })
}

/// Answers 200 with documents, one a line. Where to read on stands in the headers: a line is nothing but a document.
pub(crate) fn json_lines(body: String, has_more: bool, next: &str) -> Response {
    let headers = vec![
        ("content-type", JSON_LINES.into()),
        ("holdfast-has-more", has_more.to_string()),
        ("holdfast-next", next.into()),
    ];
    into_response(Answer { status: 200, headers, body: body.into_bytes() })
}

/// Answers 204: there is nothing but headers.
pub(crate) fn no_content(headers: &[(&'static str, String)]) -> Response {
    Response::builder().with_status(204).with_headers(header_map(headers)).empty()
}

/// Answers with an error.
pub(crate) fn error(form: ErrorForm, error: &EdgeError) -> Response {
    into_response(error_answer(form, error))
}

fn json<T: Serialize>(status: u16, document: &T) -> Result<Response, EdgeError> {
    let body = serde_json::to_vec(document).map_err(|_| EdgeError::Internal)?;
    Ok(into_response(Answer { status, headers: vec![("content-type", JSON.into())], body }))
}

fn error_answer(form: ErrorForm, error: &EdgeError) -> Answer {
    let status = status_of(error);
    let (content_type, body) = match form {
        ErrorForm::Problem => (PROBLEM_JSON, problem(status, error)),
        ErrorForm::Envelope(dialect) => (JSON, error_envelope(dialect, status, error.code(), &error.message())),
    };
    let mut headers = vec![("content-type", content_type.to_owned())];
    headers.extend(extra_headers(status, error));
    Answer { status, headers, body }
}

fn status_of(error: &EdgeError) -> u16 {
    match error {
        EdgeError::Running => 202,
        EdgeError::InvalidRequest { .. } | EdgeError::InvalidIdempotencyKey | EdgeError::InvalidCursor => 400,
        EdgeError::NotSigned => 401,
        EdgeError::UnknownPath => 404,
        EdgeError::MethodNotAllowed { .. } => 405,
        EdgeError::RequestTimeout { .. } => 408,
        EdgeError::BeyondEnd { .. } => 409,
        EdgeError::ContentDeleted => 410,
        EdgeError::BodyTooLarge { .. } => 413,
        EdgeError::UnsupportedMediaType { .. } => 415,
        EdgeError::InvalidConfig { .. } => 422,
        EdgeError::Refused(refusal) => status_of_refusal(refusal),
        EdgeError::Unserved { error, .. } => status_of(error),
        EdgeError::Unhealthy { .. } => 503,
        EdgeError::Internal => 500,
    }
}

const fn status_of_refusal(refusal: &Refusal) -> u16 {
    match refusal {
        Refusal::DialectMismatch { .. }
        | Refusal::ModelNotPriced { .. }
        | Refusal::OverrideNotAllowed
        | Refusal::InvalidTokenRequest { .. }
        | Refusal::JustificationRequired
        | Refusal::InvalidSetting { .. }
        | Refusal::AmountOutOfRange => 400,
        Refusal::InvalidKey | Refusal::TokenExpired => 401,
        Refusal::BudgetExhausted => 402,
        Refusal::OriginNotAllowed
        | Refusal::RoleRequired
        | Refusal::RouteNotAllowed
        | Refusal::Suspended
        | Refusal::TokenNotAllowed => 403,
        Refusal::NoRoute | Refusal::NotFound | Refusal::UnknownTenant | Refusal::UnknownConfigVersion => 404,
        Refusal::IdentityConflict
        | Refusal::NeverStarted
        | Refusal::CancelledUnstarted
        | Refusal::StaleEpoch { .. }
        | Refusal::WrongState { .. }
        | Refusal::ActionConflict
        | Refusal::KeyExists
        | Refusal::TooManyKeys { .. }
        | Refusal::VersionConflict { .. }
        | Refusal::NotReplayable { .. }
        | Refusal::PostingConflict
        | Refusal::AlreadyResolved
        | Refusal::NotResolvedYet => 409,
        Refusal::PreconditionFailed => 412,
        Refusal::IdempotencyKeyReused => 422,
        Refusal::PreconditionRequired => 428,
        Refusal::ConcurrencyExceeded { .. } | Refusal::DetachedExceeded { .. } | Refusal::TooManyReaders => 429,
        Refusal::Misconfigured { .. } | Refusal::Unavailable { .. } => 503,
    }
}

fn extra_headers(status: u16, error: &EdgeError) -> Vec<(&'static str, String)> {
    let mut headers = Vec::new();
    if matches!(status, 202 | 429 | 503) && error.retryable() {
        headers.push(("retry-after", RETRY_AFTER_S.to_owned()));
    }
    match error {
        EdgeError::Refused(Refusal::InvalidKey | Refusal::TokenExpired) => {
            headers.push(("www-authenticate", "Bearer".into()))
        }
        // Official SDKs repeat a 409 by themselves, unless it says so.
        EdgeError::Refused(Refusal::CancelledUnstarted) => headers.push(("x-should-retry", "false".into())),
        // RFC 9110, 15.5.9: the rest of the body may still be on its way, so the connection is of no more use.
        EdgeError::RequestTimeout { .. } => headers.push(("connection", "close".into())),
        EdgeError::MethodNotAllowed { allow } => headers.push(("allow", allow.join(", "))),
        EdgeError::Unserved { error, identity } => {
            headers = extra_headers(status, error);
            headers.extend(identity_headers(identity));
        }
        _ => {}
    }
    headers
}

/// What a client finds its generation by.
fn identity_headers(identity: &Identity) -> [(&'static str, String); 3] {
    [
        ("x-generation-id", identity.generation.to_string()),
        ("x-reservation-id", identity.reservation.to_string()),
        ("location", format!("/v1/generations/{}", identity.generation)),
    ]
}

/// A problem document (RFC 9457). It has no `instance` and echoes nothing of the request, so unknown and foreign ids
/// get the same bytes.
#[derive(Serialize)]
struct Problem<'a> {
    r#type: String,
    title: String,
    status: u16,
    detail: String,
    code: &'a str,
    retryable: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    log_length: Option<u64>,
    #[serde(skip_serializing_if = "Option::is_none")]
    errors: Option<&'a RawValue>,
    #[serde(skip_serializing_if = "Option::is_none")]
    warnings: Option<&'a RawValue>,
}

fn problem(status: u16, error: &EdgeError) -> Vec<u8> {
    let code = error.code();
    let [errors, warnings] = match error {
        // What the object has written is JSON.
        EdgeError::InvalidConfig { errors, warnings, .. } => {
            [errors, warnings].map(|text| serde_json::from_str(text).ok())
        }
        _ => [None, None],
    };
    let document = Problem {
        r#type: format!("https://holdfast.dev/problems/{code}"),
        title: title(code),
        status,
        detail: error.message(),
        code,
        retryable: error.retryable(),
        log_length: match error {
            EdgeError::BeyondEnd { log_length } => Some(*log_length),
            _ => None,
        },
        errors,
        warnings,
    };
    // Text and numbers always serialize.
    serde_json::to_vec(&document).unwrap_or_default()
}

/// `not_found` becomes `Not found`.
fn title(code: &str) -> String {
    let words = code.replace('_', " ").replace("api", "API");
    let mut letters = words.chars();
    letters.next().map(|first| first.to_ascii_uppercase()).into_iter().chain(letters).collect()
}

fn into_response(answer: Answer) -> Response {
    let headers = header_map(&answer.headers);
    Response::builder().with_status(answer.status).with_headers(headers).fixed(answer.body)
}

fn header_map(of_answer: &[(&'static str, String)]) -> Headers {
    let headers = Headers::new();
    let own = [("cache-control", "no-store".to_owned()), ("x-content-type-options", "nosniff".to_owned())];
    for (name, value) in of_answer.iter().chain(&own) {
        if let Err(error) = headers.set(name, value) {
            worker::console_error!("header {name} was left out: {error}");
        }
    }
    headers
}

#[cfg(test)]
mod tests {
    use super::*;
    use holdfast_core::ids::{GenerationId, ReservationId, TenantId};

    fn text(error: &EdgeError) -> String {
        String::from_utf8(error_answer(ErrorForm::Problem, error).body).unwrap()
    }

    fn header<'a>(answer: &'a Answer, name: &str) -> Option<&'a str> {
        answer.headers.iter().find(|(found, _)| *found == name).map(|(_, value)| value.as_str())
    }

    #[test]
    fn problems_are_written_as_documented() {
        assert_eq!(
            text(&Refusal::NotFound.into()),
            r#"{"type":"https://holdfast.dev/problems/not_found","title":"Not found","status":404,"detail":"Nothing of that id exists.","code":"not_found","retryable":false}"#
        );
        assert_eq!(
            text(&EdgeError::BeyondEnd { log_length: 7 }),
            r#"{"type":"https://holdfast.dev/problems/beyond_end","title":"Beyond end","status":409,"detail":"The log ends at byte 7, before this offset.","code":"beyond_end","retryable":false,"log_length":7}"#
        );
        assert_eq!(title("invalid_api_key"), "Invalid API key");
    }

    #[test]
    fn refusals_that_may_pass_say_when_to_try_again() {
        let concurrency = EdgeError::from(Refusal::ConcurrencyExceeded { limit: 3 });
        let unavailable = EdgeError::from(Refusal::Unavailable { what: "x".into() });
        for (error, status) in [(concurrency, 429), (unavailable, 503), (EdgeError::Running, 202)] {
            for form in [ErrorForm::Problem, ErrorForm::Envelope(Dialect::OpenaiChat)] {
                let answer = error_answer(form, &error);
                assert_eq!((answer.status, header(&answer, "retry-after")), (status, Some("1")));
            }
            assert!(error.retryable());
        }
        let exhausted = error_answer(ErrorForm::Problem, &Refusal::BudgetExhausted.into());
        assert_eq!(header(&exhausted, "retry-after"), None);
    }

    #[test]
    fn a_body_that_took_too_long_may_be_sent_again() {
        let error = EdgeError::RequestTimeout { body_ms: 15_000 };
        let answer = error_answer(ErrorForm::Envelope(Dialect::OpenaiChat), &error);
        assert_eq!((answer.status, header(&answer, "connection")), (408, Some("close")));
        assert!(error.retryable());
    }

    #[test]
    fn proxied_routes_answer_in_the_dialect() {
        let answer = error_answer(ErrorForm::Envelope(Dialect::OpenaiChat), &Refusal::InvalidKey.into());
        assert_eq!((answer.status, header(&answer, "content-type")), (401, Some("application/json")));
        assert_eq!(header(&answer, "www-authenticate"), Some("Bearer"));
        let body: serde_json::Value = serde_json::from_slice(&answer.body).unwrap();
        assert_eq!(body["error"]["code"], "invalid_api_key");
        assert_eq!(body["error"]["param"], serde_json::Value::Null);
    }

    #[test]
    fn what_was_admitted_can_be_looked_up() {
        let generation = GenerationId::from_random([1; 16]);
        let identity = Identity {
            tenant: TenantId::parse("acme").unwrap(),
            generation: generation.clone(),
            reservation: ReservationId::from_random([2; 16]),
        };
        let unreachable = Refusal::Unavailable { what: "the generation object could not be reached".into() };
        for (error, status, code, retry_after) in [
            (EdgeError::from(unreachable), 503, "unavailable", Some("1")),
            (EdgeError::ContentDeleted, 410, "content_deleted", None),
            (Refusal::NeverStarted.into(), 409, "never_started", None),
            (Refusal::CancelledUnstarted.into(), 409, "generation_cancelled", None),
        ] {
            let error = EdgeError::Unserved { error: Box::new(error), identity: Box::new(identity.clone()) };
            for dialect in [Dialect::OpenaiChat, Dialect::AnthropicMessages, Dialect::Gemini] {
                let answer = error_answer(ErrorForm::Envelope(dialect), &error);
                assert_eq!((answer.status, header(&answer, "x-generation-id")), (status, Some(generation.as_str())));
                assert_eq!(header(&answer, "location"), Some(format!("/v1/generations/{generation}").as_str()));
                assert_eq!(header(&answer, "retry-after"), retry_after, "{code}");
                // Nobody runs by himself what was cancelled.
                let never = (code == "generation_cancelled").then_some("false");
                assert_eq!(header(&answer, "x-should-retry"), never, "{code}");
                assert!(String::from_utf8(answer.body).unwrap().contains(&format!("\"{code}\"")), "{code}");
            }
        }
    }
}
