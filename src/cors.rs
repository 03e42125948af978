//! Pages of other origins. None may use this API unless the tenant allows its origin, and browsers are told so.
//!
//! | request | answer |
//! |---|---|
//! | preflight | the same for every page: it carries no key, so nothing is known about whom it is for. It opens nothing: the request that follows is checked |
//! | no `Origin`, or the deployment's own | as if there were no such rules |
//! | an `Origin` that the tenant allows | served, and the page may read the answer |
//! | any other `Origin` | refused before anything is held, and the page may not read why |
//!
//! An error that comes before that check (a malformed body, say) costs the page one more question to the tenant: only if
//! its key and its origin are accepted may it read the error. So may the page of a token that has ended, if the token
//! named its origin.
//!
//! The tenant's object checks the origin right after the key, in the hop that every request makes anyway. Hiding the
//! answer would not be enough: the request would have been served, and paid.
//!
//! Origins are named one by one, never `*`, and `Access-Control-Allow-Credentials` is never sent: there are no cookies.

use crate::error::EdgeError;
use crate::request_headers::header;
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use worker::{Headers, Request, Response, Url};

/// What a page may send besides what browsers always let it send. Routes match any `x-…` header.
const ALLOWED_HEADERS: [&str; 13] = [
    "anthropic-beta",
    "anthropic-dangerous-direct-browser-access",
    "anthropic-version",
    "authorization",
    "content-type",
    "holdfast-on-disconnect",
    "holdfast-workload",
    "idempotency-key",
    "if-match",
    "if-none-match",
    "last-event-id",
    "openai-beta",
    "traceparent",
];
/// So many asked-for names are looked at: SDKs send about a dozen.
const ASKED_HEADERS_MAX: usize = 64;
/// A longer name is not allowed.
const HEADER_NAME_MAX_BYTES: usize = 64;
const ALLOWED_METHODS: &str = "GET, POST, PUT, DELETE";
/// What a page may read besides the body.
const EXPOSED_HEADERS: &str = "x-generation-id, x-reservation-id, location, etag, retry-after, retry-after-ms, \
    x-should-retry, x-request-id, request-id";
/// How long a browser remembers a preflight, in seconds; Chromium caps it here. The answer is always the same.
const MAX_AGE_S: &str = "7200";

/// Where the page that asks was loaded from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Page {
    /// It does not say, or from this deployment itself: a program, or a page of ours.
    Own,
    /// From elsewhere.
    Of(Origin),
    /// From a place without a name: a sandboxed frame, a local file, an application's own scheme.
    Nameless,
}

impl Page {
    /// Reads `Origin`.
    pub(crate) fn of(request: &Request) -> Self {
        let origin = header(request.headers(), "origin");
        origin.map_or(Self::Own, |origin| Self::named(&origin, own_origin(request).as_ref()))
    }

    fn named(origin: &str, own: Option<&Origin>) -> Self {
        match Origin::parse(origin) {
            Ok(origin) if Some(&origin) == own => Self::Own,
            Ok(origin) => Self::Of(origin),
            Err(_) => Self::Nameless,
        }
    }

    /// The origin that the tenant has to allow, if there is one.
    ///
    /// # Errors
    /// [`Refusal::OriginNotAllowed`] for a place without a name: no tenant can have allowed it.
    pub(crate) fn foreign(self) -> Result<Option<Origin>, Refusal> {
        match self {
            Self::Own => Ok(None),
            Self::Of(origin) => Ok(Some(origin)),
            Self::Nameless => Err(Refusal::OriginNotAllowed),
        }
    }
}

/// The deployment's own origin, as the request was addressed.
pub(crate) fn own_origin(request: &Request) -> Option<Origin> {
    request.url().ok().and_then(|url| origin_of(&url))
}

fn origin_of(url: &Url) -> Option<Origin> {
    Origin::parse(&url.origin().ascii_serialization()).ok()
}

/// The headers of the answer to a preflight; `None` if the request is none.
pub(crate) fn preflight(method: &str, headers: &Headers) -> Option<Vec<(&'static str, String)>> {
    let asks = method == "OPTIONS" && header(headers, "access-control-request-method").is_some();
    let origin = header(headers, "origin").filter(|_| asks).and_then(|origin| Origin::parse(&origin).ok())?;
    let asked = header(headers, "access-control-request-headers").unwrap_or_default();
    Some(vec![
        ("access-control-allow-origin", origin.into()),
        ("access-control-allow-methods", ALLOWED_METHODS.into()),
        ("access-control-allow-headers", allowed_headers(&asked)),
        ("access-control-max-age", MAX_AGE_S.into()),
        ("vary", "Origin, Access-Control-Request-Method, Access-Control-Request-Headers".into()),
    ])
}

/// Of the header names that a preflight asks for, those that may be sent.
fn allowed_headers(asked: &str) -> String {
    let names = asked.split(',').map(str::trim).take(ASKED_HEADERS_MAX);
    names.filter(|name| may_be_sent(name)).collect::<Vec<_>>().join(", ")
}

fn may_be_sent(name: &str) -> bool {
    let plain = name.bytes().all(|byte| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-');
    let of_routes = name.strip_prefix("x-").is_some_and(|rest| !rest.is_empty());
    plain && name.len() <= HEADER_NAME_MAX_BYTES && (of_routes || ALLOWED_HEADERS.contains(&name))
}

/// Whether the tenant's object had allowed the origin before this error: then the page may read it. Only what is known to
/// come after that check is named.
const fn comes_after_the_check(error: &EdgeError) -> bool {
    match error {
        EdgeError::Refused(refusal) => matches!(
            refusal,
            Refusal::InvalidTokenRequest { .. }
                | Refusal::RouteNotAllowed
                | Refusal::TokenNotAllowed
                | Refusal::IdentityConflict
                | Refusal::IdempotencyKeyReused
                | Refusal::Suspended
                | Refusal::NoRoute
                | Refusal::DialectMismatch { .. }
                | Refusal::ModelNotPriced { .. }
                | Refusal::OverrideNotAllowed
                | Refusal::BudgetExhausted
                | Refusal::ConcurrencyExceeded { .. }
                | Refusal::NotFound
                | Refusal::NeverStarted
                | Refusal::CancelledUnstarted
                | Refusal::TooManyReaders
        ),
        EdgeError::Unserved { .. }
        | EdgeError::Running
        | EdgeError::BeyondEnd { .. }
        | EdgeError::InvalidCursor
        | EdgeError::ContentDeleted => true,
        _ => false,
    }
}

/// Whether the page may read an answer of an endpoint that checks a tenant's key or token: an answer that is no error
/// has passed the check.
pub(crate) fn may_read(answer: &Result<Response, EdgeError>) -> bool {
    answer.as_ref().map_or_else(comes_after_the_check, |_| true)
}

/// Marks an answer to a page: which origin may read it, if any, and that the answer depends on it.
pub(crate) fn mark(response: Response, reader: Option<&Origin>) -> Response {
    match marked_headers(response.headers(), reader) {
        Ok(headers) => response.with_headers(headers),
        Err(error) => {
            // Unmarked, no other page can read it.
            worker::console_error!("the answer was not marked for its page: {error}");
            response
        }
    }
}

/// A copy: the headers of an object's answer cannot be changed.
fn marked_headers(headers: &Headers, reader: Option<&Origin>) -> worker::Result<Headers> {
    let copy = Headers::new();
    for (name, value) in headers.entries() {
        copy.append(&name, &value)?;
    }
    copy.append("vary", "Origin")?;
    if let Some(origin) = reader {
        copy.set("access-control-allow-origin", origin.as_str())?;
        copy.set("access-control-expose-headers", EXPOSED_HEADERS)?;
    }
    Ok(copy)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn origin(text: &str) -> Origin {
        Origin::parse(text).unwrap()
    }

    #[test]
    fn pages() {
        let own = origin("https://edge.example");
        for (text, page) in [
            ("https://edge.example", Page::Own),
            ("http://edge.example", Page::Of(origin("http://edge.example"))),
            ("https://edge.example:8443", Page::Of(origin("https://edge.example:8443"))),
            ("https://app.example", Page::Of(origin("https://app.example"))),
            ("null", Page::Nameless),
            ("", Page::Nameless),
            ("*", Page::Nameless),
            ("capacitor://localhost", Page::Nameless),
            ("https://app.example, https://edge.example", Page::Nameless),
        ] {
            assert_eq!(Page::named(text, Some(&own)), page, "{text}");
        }
        assert_eq!(Page::named("https://edge.example", None), Page::Of(own));
        assert_eq!(Page::Nameless.foreign(), Err(Refusal::OriginNotAllowed));
        assert_eq!(Page::Own.foreign(), Ok(None));
    }

    #[test]
    fn the_own_origin_is_written_as_browsers_write_it() {
        for (url, own) in [
            ("https://edge.example/v1/tokens?x=1", "https://edge.example"),
            ("https://edge.example:443/", "https://edge.example"),
            ("http://127.0.0.1:8787/v1/tokens", "http://127.0.0.1:8787"),
            ("http://[::1]:8787/", "http://[::1]:8787"),
        ] {
            assert_eq!(origin_of(&Url::parse(url).unwrap()), Some(origin(own)), "{url}");
        }
    }

    #[test]
    fn a_preflight_allows_what_this_api_takes() {
        for (asked, allowed) in [
            ("", ""),
            ("authorization,content-type", "authorization, content-type"),
            ("authorization, idempotency-key, x-stainless-os", "authorization, idempotency-key, x-stainless-os"),
            ("cookie,authorization,x-", "authorization"),
            ("x-api-key,X-Workload,x_y", "x-api-key"),
            ("*", ""),
            ("x-a\r\nb: c", ""),
        ] {
            assert_eq!(allowed_headers(asked), allowed, "{asked:?}");
        }
        let many: Vec<String> = (0..100).map(|n| format!("x-{n}")).collect();
        assert_eq!(allowed_headers(&many.join(",")).split(", ").count(), ASKED_HEADERS_MAX);
        assert_eq!(allowed_headers(&format!("x-{}", "a".repeat(63))), "");
    }

    /// What comes before the tenant's object has seen the origin, or may come before, is for no other page.
    #[test]
    fn errors_that_a_page_may_read() {
        let unavailable = Refusal::Unavailable { what: String::new() };
        for (error, readable) in [
            (EdgeError::Refused(Refusal::InvalidKey), false),
            (EdgeError::Refused(Refusal::TokenExpired), false),
            (EdgeError::Refused(Refusal::OriginNotAllowed), false),
            (EdgeError::Refused(unavailable), false),
            (EdgeError::UnknownPath, false),
            (EdgeError::BodyTooLarge { max_bytes: 1 }, false),
            (EdgeError::Internal, false),
            (EdgeError::Refused(Refusal::RouteNotAllowed), true),
            (EdgeError::Refused(Refusal::TokenNotAllowed), true),
            (EdgeError::Refused(Refusal::NotFound), true),
            (EdgeError::Refused(Refusal::BudgetExhausted), true),
            (EdgeError::Refused(Refusal::ConcurrencyExceeded { limit: 1 }), true),
            (EdgeError::Running, true),
            (EdgeError::BeyondEnd { log_length: 1 }, true),
        ] {
            assert_eq!(comes_after_the_check(&error), readable, "{error:?}");
        }
    }
}
