//! Requests to a provider: the facts that admission needs, and the few edits that the proxy makes.
//!
//! Everything that is not edited stays byte for byte as the client wrote it. What differs from API to API stands in
//! [`endpoint`] and in the table of its members.

mod background;
pub mod endpoint;
mod error;
mod form;
pub mod forward;
mod members;
mod question;

pub use endpoint::Endpoint;
pub use error::RequestError;
pub use question::QUESTION_MAX_BYTES;

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::ops::Range;

use crate::policy::Background;
use form::Form;
use members::{Members, boolean, integer, is_null};
use serde_json::value::RawValue;

/// The largest number of choices per request that is accepted; OpenAI's own bound.
pub const CHOICES_MAX: u64 = 128;

/// The longest model name that is accepted, in bytes of UTF-8. Names are stored with every generation; the longest real
/// ones (a fine-tuned model, a path in a model hub) take about half of it.
pub const MODEL_MAX_BYTES: usize = 256;

const MODEL: &str = "model";
const STREAM: &str = "stream";
const STREAM_OPTIONS: &str = "stream_options";
const INCLUDE_USAGE: &str = "include_usage";

/// The edits to make. See [`GenerationRequest::rewrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Rewrite<'a> {
    /// Cap on the output tokens of one choice.
    pub max_output_tokens: Option<u64>,
    /// Chat Completions: the member that carries the cap when the client gave none, `max_completion_tokens` or
    /// `max_tokens`. The other APIs have one name for it.
    pub field_if_absent: &'a str,
    /// Ask for the usage event (streams of Chat Completions and Completions only).
    pub include_usage: bool,
    /// Run it in the background at its provider (streams of Responses only).
    pub background: bool,
}

/// A request that was understood. Borrows the body.
#[derive(Debug, Clone)]
pub struct GenerationRequest<'a> {
    endpoint: Endpoint,
    body: &'a str,
    members: Members<'a>,
    /// Where the cap and the number of choices stand: the members of the body, or of an object in it.
    config: Config<'a>,
    model: String,
    stream: bool,
    max_output_tokens: Option<u64>,
    choices: u64,
    stream_options: StreamOptions<'a>,
    background: Background,
}

/// Gemini's `generationConfig`; the other APIs have its members in the body itself.
#[derive(Debug, Clone)]
enum Config<'a> {
    Body,
    Absent,
    Null(&'a RawValue),
    Object { raw: &'a RawValue, members: Members<'a> },
}

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

impl<'a> GenerationRequest<'a> {
    /// Reads the body of a request to `endpoint`. `model` is the one that the path names, where it names one.
    ///
    /// # Errors
    /// The first reason for which it cannot be served, in this order: form of the document, duplicates and ambiguous names,
    /// model, `stream`, `stream_options`, `store`, `background`, token caps, choices.
    pub fn parse(endpoint: Endpoint, model: Option<&str>, body: &'a [u8]) -> Result<Self, RequestError> {
        let body = core::str::from_utf8(body).map_err(|_| RequestError::NotJson)?;
        let members = Members::read(body)?;
        let form = endpoint.form();
        for field in form.decisive {
            members.refuse_doubt(field)?;
        }
        let config = Config::read(form, &members)?;
        let model = match model {
            Some(in_path) => same_model(in_path, members.get(MODEL))?,
            None => read_model(members.get(MODEL))?,
        };
        let stream = read_stream(endpoint, &members)?;
        let stream_options =
            if form.stream_options { StreamOptions::read(members.get(STREAM_OPTIONS))? } else { StreamOptions::Absent };
        let background = background::read(endpoint, &members, stream)?;
        let mut request = Self {
            endpoint,
            body,
            members,
            config,
            model,
            stream,
            max_output_tokens: None,
            choices: 1,
            stream_options,
            background,
        };
        request.max_output_tokens = request.largest(form.caps)?;
        request.choices = request.read_choices(form)?;
        Ok(request)
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

    /// The client's own cap on output tokens per choice: the largest that it gave.
    #[must_use]
    pub const fn max_output_tokens(&self) -> Option<u64> {
        self.max_output_tokens
    }

    /// Number of answers that are made, at least 1: choices or candidates, for each of several prompts. The cap on output
    /// tokens holds for each.
    #[must_use]
    pub const fn choices(&self) -> u64 {
        self.choices
    }

    /// Whether the client itself asked for the usage event of a stream.
    #[must_use]
    pub fn include_usage(&self) -> bool {
        self.stream && self.stream_options.include_usage()
    }

    /// The body to send upstream: token caps lowered where they are above the route's, inserted where the client gave
    /// none, the usage event asked for, and the background where it is wanted. All other bytes are the client's, and without an edit the body is returned as
    /// it came.
    #[must_use]
    pub fn rewrite(&self, edits: &Rewrite<'_>) -> Vec<u8> {
        let mut changes = Vec::new();
        let mut added = Vec::new();
        let form = self.endpoint.form();
        if let (Some(cap), true) = (edits.max_output_tokens, self.endpoint.has_output()) {
            let if_absent = form.cap_if_absent.unwrap_or(edits.field_if_absent);
            self.cap_output(cap, if_absent, &mut changes, &mut added);
        }
        if edits.include_usage && self.stream && form.stream_options {
            self.ask_for_usage(&mut changes, &mut added);
        }
        if edits.background && self.background != Background::Never {
            self.run_in_background(&mut changes, &mut added);
        }
        let end = self.body.trim_end().len().saturating_sub(1);
        let empty = self.members.is_empty();
        let comma = |position: usize| if empty && position == 0 { "" } else { "," };
        let added = added.into_iter().enumerate();
        changes.extend(added.map(|(at, member)| Edit { range: end..end, text: format!("{}{member}", comma(at)) }));
        changes.sort_by_key(|edit| edit.range.start);
        apply(self.body, &changes)
    }

    /// A member of the body, or of the object that holds the generation's settings.
    fn setting(&self, name: &str) -> Option<&'a RawValue> {
        match &self.config {
            Config::Body => self.members.get(name),
            Config::Object { members, .. } => members.get(name),
            Config::Absent | Config::Null(_) => None,
        }
    }

    /// The largest of the given numbers; all of them are checked.
    fn largest(&self, names: &[&'static str]) -> Result<Option<u64>, RequestError> {
        names.iter().try_fold(None, |largest: Option<u64>, name| Ok(largest.max(integer(self.setting(name), name)?)))
    }

    fn read_choices(&self, form: &Form) -> Result<u64, RequestError> {
        let choices = self.largest(form.choices)?.unwrap_or(1);
        let field = form.choices.first().copied().unwrap_or_default();
        if choices > CHOICES_MAX {
            return Err(RequestError::OutOfRange(field));
        }
        let prompts = form.prompts.and_then(|name| self.members.get(name)).map_or(1, form::prompts);
        Ok(choices.saturating_mul(prompts))
    }

    fn cap_output(&self, cap: u64, if_absent: &str, changes: &mut Vec<Edit>, added: &mut Vec<String>) {
        let mut given = false;
        let own = self.endpoint.form().caps.iter().copied();
        let names = own.clone().chain(core::iter::once(if_absent).filter(|name| !own.clone().any(|own| own == *name)));
        for raw in names.filter_map(|name| self.setting(name)).filter(|raw| !is_null(raw)) {
            given = true;
            if !raw.get().parse::<u64>().is_ok_and(|tokens| tokens <= cap) {
                changes.extend(self.edit(raw, format!("{cap}")));
            }
        }
        if given {
            return;
        }
        let member = format!("{}:{cap}", serde_json::Value::from(if_absent));
        match (&self.config, self.setting(if_absent)) {
            (_, Some(null)) => changes.extend(self.edit(null, format!("{cap}"))),
            (Config::Body, None) => added.push(member),
            (Config::Absent, None) => added.push(format!(r#""{}":{{{member}}}"#, form::GENERATION_CONFIG)),
            (Config::Null(raw), None) => changes.extend(self.edit(raw, format!("{{{member}}}"))),
            (Config::Object { raw, members }, None) => {
                changes.extend(self.add_inside(raw, members.is_empty(), &member))
            }
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
                changes.extend(self.add_inside(raw, *is_empty, &format!(r#""{INCLUDE_USAGE}":true"#)));
            }
        }
    }

    /// A further member at the end of an object of the body.
    fn add_inside(&self, object: &RawValue, is_empty: bool, member: &str) -> Option<Edit> {
        let comma = if is_empty { "" } else { "," };
        let end = self.range(object)?.end.saturating_sub(1);
        Some(Edit { range: end..end, text: format!("{comma}{member}") })
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

impl<'a> Config<'a> {
    fn read(form: &Form, body: &Members<'a>) -> Result<Self, RequestError> {
        let [name, other_name] = match form.config {
            Some(names) => names,
            None => return Ok(Self::Body),
        };
        let raw = match (body.get(name), body.get(other_name)) {
            (Some(_), Some(_)) => return Err(RequestError::Duplicate(name)),
            (Some(raw), None) | (None, Some(raw)) => raw,
            (None, None) => return Ok(Self::Absent),
        };
        if is_null(raw) {
            return Ok(Self::Null(raw));
        }
        let members =
            Members::read(raw.get()).map_err(|_| RequestError::WrongType { field: name, expected: "an object" })?;
        for field in form.caps.iter().chain(form.choices) {
            members.refuse_doubt(field)?;
        }
        let several = |names: &[&str]| names.iter().filter(|name| members.get(name).is_some()).count() > 1;
        let twice = [form.caps, form.choices].into_iter().find(|names| several(names)).and_then(<[_]>::first);
        match twice {
            Some(field) => Err(RequestError::Duplicate(field)),
            None => Ok(Self::Object { raw, members }),
        }
    }
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
        Ok(Self::Object { raw, is_empty: members.is_empty(), include_usage })
    }

    fn include_usage(&self) -> bool {
        matches!(self, Self::Object { include_usage: Some(raw), .. } if raw.get() == "true")
    }
}

fn read_stream(endpoint: Endpoint, members: &Members<'_>) -> Result<bool, RequestError> {
    if let Some(by_path) = endpoint.streams_by_path() {
        return Ok(by_path);
    }
    let stream = boolean(members.get(STREAM), STREAM)?.unwrap_or(false);
    if stream && !endpoint.has_output() {
        return Err(RequestError::WrongType {
            field: STREAM,
            expected: "absent or false: embeddings are not streamed",
        });
    }
    Ok(stream)
}

/// The model of the path; a body may name it again, but no other one.
fn same_model(in_path: &str, in_body: Option<&RawValue>) -> Result<String, RequestError> {
    check_model(in_path)?;
    let again = match in_body.filter(|raw| !is_null(raw)) {
        Some(_) => Some(read_model(in_body)?),
        None => None,
    };
    let same = again.is_none_or(|again| again.strip_prefix("models/").unwrap_or(&again) == in_path);
    if same { Ok(in_path.into()) } else { Err(RequestError::Ambiguous(MODEL)) }
}

fn check_model(model: &str) -> Result<(), RequestError> {
    if model.is_empty() {
        Err(RequestError::Missing(MODEL))
    } else if model.len() > MODEL_MAX_BYTES {
        Err(RequestError::TooLong { field: MODEL, max_bytes: MODEL_MAX_BYTES })
    } else if model.chars().any(char::is_control) {
        Err(RequestError::ControlCharacter(MODEL))
    } else {
        Ok(())
    }
}

fn read_model(value: Option<&RawValue>) -> Result<String, RequestError> {
    let Some(raw) = value.filter(|raw| !is_null(raw)) else {
        return Err(RequestError::Missing(MODEL));
    };
    match serde_json::from_str::<String>(raw.get()) {
        Ok(model) => check_model(&model).map(|()| model),
        Err(_) => Err(RequestError::WrongType { field: MODEL, expected: "a string" }),
    }
}
