//! What request headers say, parsed strictly.

use crate::error::EdgeError;
use holdfast_core::economics::Workload;
use holdfast_core::policy::OnDisconnect;
use holdfast_core::request::forward::{FORWARDED, FORWARDED_VALUE_MAX_BYTES};
use std::collections::BTreeMap;
use worker::Headers;

/// So many `x-…` headers take part in routing; further ones, in the order of their names, do not.
const ROUTING_HEADERS_MAX: usize = 32;
/// A longer value takes no part in routing.
const ROUTING_VALUE_MAX_BYTES: usize = 256;
/// Headers that carry keys: they go nowhere.
const KEY_HEADERS: [&str; 2] = ["x-api-key", "x-goog-api-key"];

const IDEMPOTENCY_KEY_MAX_BYTES: usize = 255;

/// The value of a header; several of one name are joined by the platform.
pub(crate) fn header(headers: &Headers, name: &str) -> Option<String> {
    // `get` fails only for a name that is not a header name.
    headers.get(name).ok().flatten()
}

/// The headers that choose how a proxied request is treated.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct RequestOptions {
    /// `Idempotency-Key`.
    pub(crate) idempotency_key: Option<String>,
    /// `Holdfast-On-Disconnect`.
    pub(crate) on_disconnect: Option<OnDisconnect>,
    /// `Holdfast-Workload`.
    pub(crate) workload: Option<Workload>,
    /// `x-…` headers that routes may match.
    pub(crate) routing: BTreeMap<String, String>,
    /// The client's own headers that the provider may get.
    pub(crate) forward: BTreeMap<String, String>,
}

impl RequestOptions {
    /// Reads them.
    ///
    /// # Errors
    /// [`EdgeError::InvalidIdempotencyKey`], [`EdgeError::InvalidRequest`].
    pub(crate) fn of(headers: &Headers) -> Result<Self, EdgeError> {
        Ok(Self {
            idempotency_key: header(headers, "idempotency-key").as_deref().map(idempotency_key).transpose()?,
            on_disconnect: header(headers, "holdfast-on-disconnect").as_deref().map(on_disconnect).transpose()?,
            workload: header(headers, "holdfast-workload").as_deref().map(workload).transpose()?,
            routing: routing_headers(headers.entries()),
            forward: forwarded_headers(|name| header(headers, name)),
        })
    }
}

/// The token of an `Authorization` header of the scheme `Bearer`.
pub(crate) fn bearer(authorization: &str) -> Option<&str> {
    let (scheme, token) = authorization.split_once(' ')?;
    scheme.eq_ignore_ascii_case("bearer").then(|| token.trim())
}

/// Whether a `Content-Type` is JSON, with or without parameters.
pub(crate) fn is_json(content_type: &str) -> bool {
    let essence = content_type.split(';').next().unwrap_or_default();
    essence.trim().eq_ignore_ascii_case("application/json")
}

/// Reads an idempotency key: a string as structured fields write it (RFC 9651), or bare as most clients do. Both
/// spellings of one key are one key.
///
/// # Errors
/// [`EdgeError::InvalidIdempotencyKey`] when it is not 1 to 255 visible ASCII characters.
pub(crate) fn idempotency_key(text: &str) -> Result<String, EdgeError> {
    let key = match text.strip_prefix('"') {
        Some(quoted) => unquote(quoted).ok_or(EdgeError::InvalidIdempotencyKey)?,
        None => text.to_owned(),
    };
    let visible = key.bytes().all(|byte| byte.is_ascii_graphic());
    let length = 1..=IDEMPOTENCY_KEY_MAX_BYTES;
    if visible && length.contains(&key.len()) { Ok(key) } else { Err(EdgeError::InvalidIdempotencyKey) }
}

/// The rest of a quoted string after its opening quote; `None` unless the closing quote is the last character.
fn unquote(quoted: &str) -> Option<String> {
    let mut text = String::with_capacity(quoted.len());
    let mut characters = quoted.chars();
    loop {
        match characters.next()? {
            '"' => return characters.next().is_none().then_some(text),
            '\\' => text.push(characters.next().filter(|next| matches!(next, '"' | '\\'))?),
            character => text.push(character),
        }
    }
}

fn on_disconnect(text: &str) -> Result<OnDisconnect, EdgeError> {
    match text {
        "cancel" => Ok(OnDisconnect::Cancel),
        "detach" => Ok(OnDisconnect::Detach),
        "auto" => Ok(OnDisconnect::Auto),
        _ => Err(EdgeError::invalid("Holdfast-On-Disconnect must be `cancel`, `detach` or `auto`")),
    }
}

fn workload(text: &str) -> Result<Workload, EdgeError> {
    match text {
        "chat" => Ok(Workload::Chat),
        "batch" => Ok(Workload::Batch),
        "agentic" => Ok(Workload::Agentic),
        _ => Err(EdgeError::invalid("Holdfast-Workload must be `chat`, `batch` or `agentic`")),
    }
}

fn routing_headers(entries: impl Iterator<Item = (String, String)>) -> BTreeMap<String, String> {
    let headers: BTreeMap<String, String> =
        entries.filter(|(name, value)| takes_part_in_routing(name, value)).collect();
    headers.into_iter().take(ROUTING_HEADERS_MAX).collect()
}

fn forwarded_headers(find: impl Fn(&str) -> Option<String>) -> BTreeMap<String, String> {
    let found = FORWARDED.into_iter().filter_map(|name| Some((name.to_owned(), find(name)?)));
    found.filter(|(_, value)| value.len() <= FORWARDED_VALUE_MAX_BYTES).collect()
}

fn takes_part_in_routing(name: &str, value: &str) -> bool {
    name.starts_with("x-") && !KEY_HEADERS.contains(&name) && value.len() <= ROUTING_VALUE_MAX_BYTES
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn idempotency_keys_quoted_or_not() {
        let longest = "k".repeat(255);
        for (text, key) in [
            ("8e03978e-40d5-43dd-bc93-6894a57f9324", "8e03978e-40d5-43dd-bc93-6894a57f9324"),
            (r#""8e03""#, "8e03"),
            (r#""a\"b\\c""#, r#"a"b\c"#),
            (r#"a"b"#, r#"a"b"#),
            (longest.as_str(), longest.as_str()),
        ] {
            assert_eq!(idempotency_key(text), Ok(key.to_owned()), "{text}");
        }
        let too_long = "k".repeat(256);
        for bad in [
            "",
            r#""""#,
            r#"""#,
            r#""a"#,
            r#""a"b"#,
            r#""a";p=1"#,
            r#""a\b""#,
            "a b",
            r#""a b""#,
            "é",
            "a\u{7f}",
            &too_long,
        ] {
            assert_eq!(idempotency_key(bad), Err(EdgeError::InvalidIdempotencyKey), "{bad}");
        }
    }

    #[test]
    fn bearer_tokens() {
        assert_eq!(bearer("Bearer abc"), Some("abc"));
        assert_eq!(bearer("bearer  abc"), Some("abc"));
        for other in ["", "abc", "Basic abc", "Bearerabc"] {
            assert_eq!(bearer(other), None, "{other}");
        }
    }

    #[test]
    fn json_with_parameters_is_json() {
        assert!(is_json("application/json"));
        assert!(is_json("Application/JSON ; charset=utf-8"));
        for other in ["", "text/plain", "application/jsonl", "application/problem+json"] {
            assert!(!is_json(other), "{other}");
        }
    }

    #[test]
    fn policies() {
        assert_eq!(on_disconnect("detach"), Ok(OnDisconnect::Detach));
        assert_eq!(on_disconnect("cancel"), Ok(OnDisconnect::Cancel));
        assert_eq!(on_disconnect("auto"), Ok(OnDisconnect::Auto));
        assert_eq!(on_disconnect("perhaps").unwrap_err().code(), "invalid_request");
        assert!(on_disconnect("").is_err());
    }

    #[test]
    fn workloads() {
        for (text, expected) in [("chat", Workload::Chat), ("batch", Workload::Batch), ("agentic", Workload::Agentic)] {
            assert_eq!(workload(text), Ok(expected));
        }
        for other in ["", "Chat", "report"] {
            assert_eq!(workload(other).unwrap_err().code(), "invalid_request", "{other}");
        }
    }

    #[test]
    fn routing_headers_are_few_short_and_no_keys() {
        let pair = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let long = "v".repeat(257);
        let found = routing_headers(
            [
                pair("authorization", "Bearer k"),
                pair("cf-connecting-ip", "::1"),
                pair("x-api-key", "k"),
                pair("x-goog-api-key", "k"),
                pair("x-long", &long),
                pair("x-workload", "report"),
            ]
            .into_iter(),
        );
        assert_eq!(found, BTreeMap::from([pair("x-workload", "report")]));
        let many = (0..40).map(|n| (format!("x-{n:02}"), String::new()));
        let kept = routing_headers(many.rev());
        assert_eq!((kept.len(), kept.keys().next_back().map(String::as_str)), (32, Some("x-31")));
    }
}
