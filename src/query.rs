//! What the query of a request says, parsed strictly.

use crate::error::EdgeError;
use holdfast_core::wire::StreamForm;
use std::collections::BTreeMap;
use worker::Url;

/// Above it a number does not survive JavaScript.
const OFFSET_MAX: u64 = (1 << 53) - 1;

/// The value of a query parameter; `Err` when it is given more than once.
pub(crate) fn parameter(url: &Url, name: &str) -> Result<Option<String>, GivenTwice> {
    let mut values = url.query_pairs().filter(|(found, _)| found == name).map(|(_, value)| value.into_owned());
    let first = values.next();
    if values.next().is_some() { Err(GivenTwice) } else { Ok(first) }
}

/// A query parameter is given more than once: readers would disagree about which one counts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct GivenTwice;

/// The parameters of a query, each known and given once.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Query(BTreeMap<String, String>);

impl Query {
    /// Reads the query. A name that is not in `names` is refused: a misspelt filter would let everything through.
    ///
    /// # Errors
    /// [`EdgeError::InvalidRequest`].
    pub(crate) fn of(url: &Url, names: &[&str]) -> Result<Self, EdgeError> {
        let mut found = BTreeMap::new();
        for (name, value) in url.query_pairs() {
            if !names.contains(&name.as_ref()) {
                return Err(EdgeError::invalid(format!("the query may have {}, and nothing else", names.join(", "))));
            }
            if found.insert(name.clone().into_owned(), value.into_owned()).is_some() {
                return Err(EdgeError::invalid(format!("`{name}` is given more than once")));
            }
        }
        Ok(Self(found))
    }

    /// The value of a parameter.
    pub(crate) fn get(&self, name: &str) -> Option<&str> {
        self.0.get(name).map(String::as_str)
    }

    /// The value of a parameter that is a whole number.
    ///
    /// # Errors
    /// [`EdgeError::InvalidRequest`].
    pub(crate) fn number(&self, name: &str) -> Result<Option<u64>, EdgeError> {
        let wrong = |_| EdgeError::invalid(format!("`{name}` must be one whole decimal number"));
        self.get(name).map(|text| cursor(text).map_err(wrong)).transpose()
    }
}

/// How and from where a reader wants the log. `?offset=` asks for the raw bytes. Otherwise events are sent, after
/// `Last-Event-ID` (which a reconnecting `EventSource` sends, newer than its URL) or `?last_event_id=`.
///
/// # Errors
/// [`EdgeError::InvalidCursor`].
pub(crate) fn stream_form(url: &Url, last_event_id: Option<String>) -> Result<StreamForm, EdgeError> {
    let parameter = |name| parameter(url, name).map_err(|GivenTwice| EdgeError::InvalidCursor);
    if let Some(offset) = parameter("offset")? {
        return Ok(StreamForm::Raw { offset: cursor(&offset)? });
    }
    let last = match last_event_id {
        Some(last) => Some(last),
        None => parameter("last_event_id")?,
    };
    Ok(StreamForm::Events { after: last.as_deref().map_or(Ok(0), cursor)? })
}

/// A decimal number without sign, spaces or leading zeros.
fn cursor(text: &str) -> Result<u64, EdgeError> {
    let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let canonical = digits && (text == "0" || !text.starts_with('0'));
    let number = text.parse().ok().filter(|number| canonical && *number <= OFFSET_MAX);
    number.ok_or(EdgeError::InvalidCursor)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn form(query: &str, last_event_id: Option<&str>) -> Result<StreamForm, EdgeError> {
        let url = Url::parse(&format!("https://edge.example/v1/generations/gen_1/stream{query}")).unwrap();
        stream_form(&url, last_event_id.map(str::to_owned))
    }

    #[test]
    fn forms_and_places() {
        let events = |after| Ok(StreamForm::Events { after });
        let raw = |offset| Ok(StreamForm::Raw { offset });
        for (query, header, expected) in [
            ("", None, events(0)),
            ("?other=1", None, events(0)),
            ("?offset=0", None, raw(0)),
            ("?offset=9007199254740991", None, raw(OFFSET_MAX)),
            ("?offset=5", Some("7"), raw(5)),
            ("?last_event_id=5", None, events(5)),
            ("?last_event_id=5", Some("7"), events(7)),
            ("", Some("7"), events(7)),
        ] {
            assert_eq!(form(query, header), expected, "{query} {header:?}");
        }
    }

    #[test]
    fn queries_have_known_names_once_each() {
        let read = |text: &str| Query::of(&Url::parse(&format!("https://e.example/?{text}")).unwrap(), &["a", "b"]);
        let query = read("b=2&a=x%20y").unwrap();
        assert_eq!((query.get("a"), query.get("b"), query.get("c")), (Some("x y"), Some("2"), None));
        assert_eq!((query.number("b"), query.number("c")), (Ok(Some(2)), Ok(None)));
        assert!(query.number("a").is_err());
        for bad in ["a=1&a=1", "c=1", "A=1", "a=1&"] {
            assert_eq!(read(bad).is_ok(), bad == "a=1&", "{bad}");
        }
    }

    #[test]
    fn bad_cursors() {
        for bad in [
            "",
            "-1",
            "+1",
            "01",
            "00",
            "1.0",
            "1e3",
            " 1",
            "1 ",
            "0x1",
            "a",
            "9007199254740992",
            "99999999999999999999",
        ] {
            assert_eq!(cursor(bad), Err(EdgeError::InvalidCursor), "{bad:?}");
        }
        for bad in
            ["?offset=", "?offset=1&offset=1", "?last_event_id=x", "?last_event_id=1&last_event_id=2", "?offset=%2B1"]
        {
            assert_eq!(form(bad, None), Err(EdgeError::InvalidCursor), "{bad}");
        }
        assert_eq!(form("", Some("")), Err(EdgeError::InvalidCursor));
    }
}
