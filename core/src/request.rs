//! A Chat Completions request: the facts that admission needs, and the few edits that the proxy makes.
//!
//! Everything that is not edited stays byte for byte as the client wrote it.

pub mod forward;
mod question;

pub use question::QUESTION_MAX_BYTES;

use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use core::ops::Range;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The largest `n` (choices per request) that is accepted; OpenAI's own bound.
pub const CHOICES_MAX: u64 = 128;

/// The longest model name that is accepted, in bytes of UTF-8. Names are stored with every generation; the longest real
/// ones (a fine-tuned model, a path in a model hub) take about half of it.
pub const MODEL_MAX_BYTES: usize = 256;

/// The largest token cap that is understood: 2^53, above which JSON readers lose integers. The route's cap lowers it.
const CAP_MAX_TOKENS: u64 = 1 << 53;

const MODEL: &str = "model";
const STREAM: &str = "stream";
const MAX_COMPLETION_TOKENS: &str = "max_completion_tokens";
const MAX_TOKENS: &str = "max_tokens";
const CHOICES: &str = "n";
const STREAM_OPTIONS: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";

/// The members of the request that decide about cost or routing.
const DECISIVE: [&str; 6] = [MODEL, STREAM, MAX_COMPLETION_TOKENS, MAX_TOKENS, CHOICES, STREAM_OPTIONS];

/// Why a request body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RequestError {
    /// Not well-formed JSON in UTF-8.
    NotJson,
    /// JSON, but not an object.
    NotAnObject,
    /// A required member is absent or empty.
    Missing(&'static str),
    /// A member has the wrong type.
    WrongType {
        /// The member's name.
        field: &'static str,
        /// What it should be, in words.
        expected: &'static str,
    },
    /// A number outside its bounds.
    OutOfRange(&'static str),
    /// A string above its bound.
    TooLong {
        /// The member's name.
        field: &'static str,
        /// Its bound, in bytes of UTF-8.
        max_bytes: usize,
    },
    /// A string with control characters.
    ControlCharacter(&'static str),
    /// A member that decides about cost or routing stands there twice: readers would disagree about which one counts.
    Duplicate(&'static str),
    /// A member whose name differs from such a member's only in case: servers that match names without case would read
    /// it, past the caps that were put on the exact name.
    Ambiguous(&'static str),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("the body is not well-formed JSON"),
            Self::NotAnObject => f.write_str("the body is not a JSON object"),
            Self::Missing(field) => write!(f, "`{field}` is missing or empty"),
            Self::WrongType { field, expected } => write!(f, "`{field}` must be {expected}"),
            Self::OutOfRange(field) => write!(f, "`{field}` is out of range"),
            Self::TooLong { field, max_bytes } => write!(f, "`{field}` is longer than {max_bytes} bytes"),
            Self::ControlCharacter(field) => write!(f, "`{field}` contains control characters"),
            Self::Duplicate(field) => write!(f, "`{field}` is given more than once"),
            Self::Ambiguous(field) => write!(f, "a member differs from `{field}` only in case: write it as `{field}`"),
        }
    }
}

impl core::error::Error for RequestError {}

/// The edits to make. See [`ChatRequest::rewrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rewrite<'a> {
    /// Cap on the output tokens of one choice.
    pub max_output_tokens: Option<u64>,
    /// Member that carries the cap when the client gave none: `max_completion_tokens` or `max_tokens`.
    pub field_if_absent: &'a str,
    /// Ask for the usage event (streams only).
    pub include_usage: bool,
}

/// A request body that was understood. Borrows the body.
#[derive(Debug, Clone)]
pub struct ChatRequest<'a> {
    body: &'a str,
    members: Members<'a>,
    model: String,
    stream: bool,
    max_output_tokens: Option<u64>,
    n: u64,
    stream_options: StreamOptions<'a>,
}

/// Members of an object in their order, values as raw text, duplicates included.
#[derive(Debug, Clone, Default)]
struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

#[derive(Debug, Clone)]
enum StreamOptions<'a> {
    Absent,
    Null(&'a RawValue),
    Object { raw: &'a RawValue, is_empty: bool, include_usage: Option<&'a RawValue> },
}

/// One replacement in the body.
struct Edit {
    range: Range<usize>,
    text: String,
}

impl<'a> ChatRequest<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// The first reason for which it cannot be served, in this order: form of the document, duplicates and ambiguous names,
    /// `model`, `stream`, token caps, `n`, `stream_options`.
    pub fn parse(body: &'a [u8]) -> Result<Self, RequestError> {
        let body = core::str::from_utf8(body).map_err(|_| RequestError::NotJson)?;
        let members = Members::read(body)?;
        for field in DECISIVE {
            members.refuse_doubt(field)?;
        }
        let model = read_model(members.get(MODEL))?;
        let stream = boolean(members.get(STREAM), STREAM)?.unwrap_or(false);
        let caps = [MAX_COMPLETION_TOKENS, MAX_TOKENS].map(|field| integer(members.get(field), field));
        let [newer, older] = caps;
        let max_output_tokens = newer?.max(older?);
        let n = integer(members.get(CHOICES), CHOICES)?.unwrap_or(1);
        if n > CHOICES_MAX {
            return Err(RequestError::OutOfRange(CHOICES));
        }
        let stream_options = StreamOptions::read(members.get(STREAM_OPTIONS))?;
        Ok(Self { body, members, model, stream, max_output_tokens, n, stream_options })
    }

    /// The model's name: 1 to [`MODEL_MAX_BYTES`] bytes, without control characters.
    #[must_use]
    pub fn model(&self) -> &str {
        &self.model
    }

    /// Whether a stream was asked for.
    #[must_use]
    pub const fn stream(&self) -> bool {
        self.stream
    }

    /// The client's own cap on output tokens per choice: the larger of `max_completion_tokens` and `max_tokens`.
    #[must_use]
    pub const fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// Number of choices asked for, 1 to [`CHOICES_MAX`]. The cap on output tokens holds for each.
    #[must_use]
    pub const fn n(&self) -> u64 {
        self.n
    }

    /// Whether the client itself asked for the usage event of a stream.
    #[must_use]
    pub fn include_usage(&self) -> bool {
        self.stream && self.stream_options.include_usage()
    }

    /// The body to send upstream: token caps lowered where they are above the route's, inserted where the client gave
    /// none, and the usage event asked for. All other bytes are the client's, and without an edit the body is returned as
    /// it came.
    #[must_use]
    pub fn rewrite(&self, edits: &Rewrite<'_>) -> Vec<u8> {
        let mut changes = Vec::new();
        let mut added = Vec::new();
        if let Some(cap) = edits.max_output_tokens {
            self.cap_output(cap, edits.field_if_absent, &mut changes, &mut added);
        }
        if edits.include_usage && self.stream {
            self.ask_for_usage(&mut changes, &mut added);
        }
        let end = self.body.trim_end().len().saturating_sub(1);
        changes.extend(added.into_iter().map(|member| Edit { range: end..end, text: format!(",{member}") }));
        changes.sort_by_key(|edit| edit.range.start);
        apply(self.body, &changes)
    }

    fn cap_output(&self, cap: u64, field_if_absent: &str, changes: &mut Vec<Edit>, added: &mut Vec<String>) {
        let mut given = false;
        for (_, raw) in self.members.with_names([MAX_COMPLETION_TOKENS, MAX_TOKENS, field_if_absent]) {
            if is_null(raw) {
                continue;
            }
            given = true;
            if !raw.get().parse::<u64>().is_ok_and(|tokens| tokens <= cap) {
                changes.extend(self.edit(raw, format!("{cap}")));
            }
        }
        if given {
            return;
        }
        match self.members.get(field_if_absent) {
            Some(null) => changes.extend(self.edit(null, format!("{cap}"))),
            None => added.push(format!("{}:{cap}", serde_json::Value::from(field_if_absent))),
        }
    }

    fn ask_for_usage(&self, changes: &mut Vec<Edit>, added: &mut Vec<String>) {
        match &self.stream_options {
            StreamOptions::Absent => added.push(format!(r#""{STREAM_OPTIONS}":{{"{INCLUDE_USAGE}":true}}"#)),
            StreamOptions::Null(raw) => changes.extend(self.edit(raw, format!(r#"{{"{INCLUDE_USAGE}":true}}"#))),
            StreamOptions::Object { include_usage: Some(raw), .. } => {
                if raw.get() != "true" {
                    changes.extend(self.edit(raw, String::from("true")));
                }
            }
            StreamOptions::Object { raw, is_empty, include_usage: None } => {
                let comma = if *is_empty { "" } else { "," };
                let inside = self.range(raw).map(|range| range.end.saturating_sub(1));
                changes.extend(
                    inside.map(|end| Edit { range: end..end, text: format!(r#"{comma}"{INCLUDE_USAGE}":true"#) }),
                );
            }
        }
    }

    fn edit(&self, raw: &RawValue, text: String) -> Option<Edit> {
        self.range(raw).map(|range| Edit { range, text })
    }

    /// Where a raw value, which borrows from the body, lies in it.
    fn range(&self, raw: &RawValue) -> Option<Range<usize>> {
        let start = (raw.get().as_ptr() as usize).checked_sub(self.body.as_ptr() as usize)?;
        let end = start.checked_add(raw.get().len())?;
        if self.body.get(start..end) == Some(raw.get()) { Some(start..end) } else { None }
    }
}

/// Puts the edits, sorted and apart from each other, into the body.
fn apply(body: &str, edits: &[Edit]) -> Vec<u8> {
    let growth = edits.iter().fold(0_usize, |sum, edit| sum.saturating_add(edit.text.len()));
    let mut text = Vec::with_capacity(body.len().saturating_add(growth));
    let mut copied = 0;
    for edit in edits {
        text.extend_from_slice(body.get(copied..edit.range.start).unwrap_or_default().as_bytes());
        text.extend_from_slice(edit.text.as_bytes());
        copied = edit.range.end;
    }
    text.extend_from_slice(body.get(copied..).unwrap_or_default().as_bytes());
    text
}

impl<'a> StreamOptions<'a> {
    fn read(value: Option<&'a RawValue>) -> Result<Self, RequestError> {
        let Some(raw) = value else {
            return Ok(Self::Absent);
        };
        if is_null(raw) {
            return Ok(Self::Null(raw));
        }
        let members = Members::read(raw.get())
            .map_err(|_| RequestError::WrongType { field: STREAM_OPTIONS, expected: "an object" })?;
        members.refuse_doubt(INCLUDE_USAGE)?;
        let include_usage = members.get(INCLUDE_USAGE);
        boolean(include_usage, INCLUDE_USAGE)?;
        Ok(Self::Object { raw, is_empty: members.0.is_empty(), include_usage })
    }

    fn include_usage(&self) -> bool {
        matches!(self, Self::Object { include_usage: Some(raw), .. } if raw.get() == "true")
    }
}

impl<'a> Members<'a> {
    /// Values are skipped, not built: nesting costs neither stack nor memory.
    fn read(text: &'a str) -> Result<Self, RequestError> {
        match serde_json::from_str(text) {
            Ok(members) => Ok(members),
            Err(error) if error.is_data() => Err(RequestError::NotAnObject),
            Err(_) => Err(RequestError::NotJson),
        }
    }

    fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, raw)| *raw)
    }

    fn with_names(&self, names: [&str; 3]) -> impl Iterator<Item = &(Cow<'a, str>, &'a RawValue)> {
        self.0.iter().filter(move |(key, _)| names.contains(&key.as_ref()))
    }

    /// Refuses what readers would take differently: the name twice, or in another case.
    fn refuse_doubt(&self, name: &'static str) -> Result<(), RequestError> {
        if self.0.iter().filter(|(key, _)| key == name).count() > 1 {
            return Err(RequestError::Duplicate(name));
        }
        let ambiguous = self.0.iter().any(|(key, _)| key != name && equals_without_case(key, name));
        if ambiguous { Err(RequestError::Ambiguous(name)) } else { Ok(()) }
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name.0, raw));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// Whether a server that matches names without case could take `key` for `name`, which is in lower-case ASCII.
fn equals_without_case(key: &str, name: &str) -> bool {
    key.chars().map(folded).eq(name.chars())
}

/// Lower case where that is ASCII. Besides the capitals, four letters have an ASCII letter as a simple case partner; Go's
/// JSON decoder, for one, takes `ſ` for `s` and the Kelvin sign for `k`.
const fn folded(letter: char) -> char {
    match letter {
        '\u{017F}' => 's',
        '\u{212A}' => 'k',
        '\u{0130}' | '\u{0131}' => 'i',
        _ => letter.to_ascii_lowercase(),
    }
}

fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

fn read_model(value: Option<&RawValue>) -> Result<String, RequestError> {
    let Some(raw) = value.filter(|raw| !is_null(raw)) else {
        return Err(RequestError::Missing(MODEL));
    };
    match serde_json::from_str::<String>(raw.get()) {
        Ok(model) if model.is_empty() => Err(RequestError::Missing(MODEL)),
        Ok(model) if model.len() > MODEL_MAX_BYTES => {
            Err(RequestError::TooLong { field: MODEL, max_bytes: MODEL_MAX_BYTES })
        }
        Ok(model) if model.chars().any(char::is_control) => Err(RequestError::ControlCharacter(MODEL)),
        Ok(model) => Ok(model),
        Err(_) => Err(RequestError::WrongType { field: MODEL, expected: "a string" }),
    }
}

fn boolean(value: Option<&RawValue>, field: &'static str) -> Result<Option<bool>, RequestError> {
    match value.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(RequestError::WrongType { field, expected: "a boolean" }),
    }
}

/// A positive integer, written as one.
fn integer(value: Option<&RawValue>, field: &'static str) -> Result<Option<u64>, RequestError> {
    let Some(text) = value.map(RawValue::get).filter(|text| *text != "null") else {
        return Ok(None);
    };
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RequestError::WrongType { field, expected: "an integer" });
    }
    match text.parse::<u64>() {
        Ok(number) if (1..=CAP_MAX_TOKENS).contains(&number) => Ok(Some(number)),
        _ => Err(RequestError::OutOfRange(field)),
    }
}
