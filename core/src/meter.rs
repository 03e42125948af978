//! Meters: what a provider's answer says about itself — operation id, finish reason, usage, errors, its end.

pub mod anthropic_messages;
mod choices;
mod content;
pub(crate) mod document;
pub mod gemini;
pub mod openai_chat;
pub mod openai_responses;
mod openai_usage;

use alloc::borrow::ToOwned;
use alloc::boxed::Box;
use alloc::string::{String, ToString};

use core::fmt;

use memchr::memmem::Finder;
use serde::de::IgnoredAny;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

pub use content::ContentCounter;
pub use openai_chat::openai_chat_body;

use crate::dialect::Dialect;
use crate::sse::Event;
use crate::usage::{Usage, UsageRejection};

/// Longer operation ids are not believed.
const OPERATION_ID_MAX_BYTES: usize = 256;
const WORD_MAX_BYTES: usize = 128;
const MESSAGE_MAX_BYTES: usize = 1024;

/// How an answer ended, as far as its bytes tell. EOF alone is never success.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EndClass {
    /// The dialect's terminal was seen (`[DONE]`; for a plain body: one whole JSON document).
    Complete,
    /// EOF at an event boundary, but no terminal (for a plain body: the document is not whole).
    Incomplete,
    /// EOF inside an event.
    CutInsideEvent,
    /// The provider reported a failure after its 200.
    InBandError,
}

/// A failure that the provider reported within its answer.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InBandError {
    /// The error's `code`, or else its `type` or `status`, or else `error`. At most 128 bytes.
    pub code: String,
    /// The provider's words, at most 1 KiB.
    pub message: String,
}

/// Reads the events of one stream.
pub trait StreamMeter: fmt::Debug {
    /// Reads one event. True if it carries nothing but usage, so that it can be left out for a client that did not ask.
    fn observe(&mut self, event: &Event<'_>) -> bool;

    /// What has been learnt so far.
    fn report(&self) -> &MeterReport;

    /// The dialect's terminal has been seen.
    fn is_done(&self) -> bool;

    /// From here on the events are those of a stream that is taken up again behind what was observed so far.
    fn take_up(&mut self) {}

    /// All that was learnt.
    fn into_report(self: Box<Self>) -> MeterReport;
}

/// A meter at the start of a stream. An opaque stream is counted, never read, and has no terminal.
#[must_use]
pub fn stream_meter(dialect: Dialect) -> Box<dyn StreamMeter> {
    match dialect {
        Dialect::OpenaiChat => Box::new(openai_chat::OpenAiChat::new()),
        Dialect::OpenaiResponses => Box::new(openai_responses::OpenAiResponses::new()),
        Dialect::AnthropicMessages => Box::new(anthropic_messages::AnthropicMessages::new()),
        Dialect::Gemini => Box::new(gemini::Gemini::new()),
        Dialect::Opaque => Box::new(Unread::default()),
    }
}

/// Reads a plain answer: its report, and whether the document is whole and a success. An opaque one is never read, and
/// always whole.
#[must_use]
pub fn read_body(dialect: Dialect, body: &[u8]) -> (MeterReport, EndClass) {
    match dialect {
        Dialect::OpenaiChat => openai_chat_body(body),
        Dialect::OpenaiResponses => openai_responses::openai_responses_body(body),
        Dialect::AnthropicMessages => anthropic_messages::anthropic_messages_body(body),
        Dialect::Gemini => gemini::gemini_body(body),
        Dialect::Opaque => (MeterReport::default(), EndClass::Complete),
    }
}

/// The meter of a stream whose meaning is not known.
#[derive(Debug, Default)]
struct Unread(MeterReport);

impl StreamMeter for Unread {
    fn observe(&mut self, event: &Event<'_>) -> bool {
        self.0.count(event);
        false
    }

    fn report(&self) -> &MeterReport {
        &self.0
    }

    fn is_done(&self) -> bool {
        false
    }

    fn into_report(self: Box<Self>) -> MeterReport {
        self.0
    }
}

/// Whether what a provider sends of a stream that is taken up again follows what is stored of it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub enum Continuation {
    /// The stream was not taken up again, or its dialect has nothing to tell it by.
    #[default]
    NotAsked,
    /// No event has shown it yet.
    Open,
    /// The next number came.
    Follows,
    /// Another number came, or the events of another operation.
    Differs,
}

/// What has been learnt from an answer so far.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct MeterReport {
    /// The provider's id of the operation: the first that is not empty.
    pub operation_id: Option<String>,
    /// Why the model stopped, in the provider's word; the last one seen.
    pub finish_reason: Option<String>,
    /// The last usage report that was accepted.
    pub usage: Option<Usage>,
    /// Output tokens as the provider wrote them, where `usage.output_tokens` may be larger: xAI counts reasoning outside
    /// `completion_tokens`.
    pub reported_output_tokens: Option<u64>,
    /// The last usage report was refused (see [`crate::usage::UsageRejection`]), or was made in mid-stream by a dialect
    /// that tells it with the end. `usage` then holds an earlier report, or the larger counts if the report was lower than
    /// an earlier one: not exact.
    pub usage_rejected: bool,
    /// The failure that the provider reported after its 200, if any.
    pub in_band_error: Option<InBandError>,
    /// Events seen, oversize ones included; 0 for a plain body.
    pub events: u64,
    /// Events (or one body) above the size bound: relayed, not read.
    pub oversize_events: u64,
    /// The last `sequence_number` of the stream that could be read: where the provider can read on from. Only
    /// `openai-responses` has them.
    pub sequence_number: Option<u64>,
    /// Of a stream that is taken up again.
    pub continuation: Continuation,
}

impl MeterReport {
    /// Takes a usage report: the last one wins, and a count never goes down.
    fn note_usage(&mut self, reported: Result<(Usage, u64), UsageRejection>) {
        let accepted = reported.and_then(|(usage, output)| match self.usage {
            Some(earlier) if earlier.input_tokens > usage.input_tokens => Err(UsageRejection::Decreased),
            Some(earlier) if earlier.output_tokens > usage.output_tokens => Err(UsageRejection::Decreased),
            _ => Ok((usage, output)),
        });
        self.usage_rejected = accepted.is_err();
        match accepted {
            Ok((usage, output)) => {
                self.usage = Some(usage);
                self.reported_output_tokens = Some(output);
            }
            Err(UsageRejection::Decreased) => {
                if let (Some(earlier), Ok((later, _))) = (self.usage, reported) {
                    self.usage = Some(larger_counts(earlier, later));
                }
            }
            Err(_) => {}
        }
    }

    /// Takes a usage report of a dialect whose reports are cumulative and whose last one counts, even a lower one.
    fn replace_usage(&mut self, reported: Result<(Usage, u64), UsageRejection>) {
        self.usage_rejected = reported.is_err();
        if let Ok((usage, output)) = reported {
            self.usage = Some(usage);
            self.reported_output_tokens = Some(output);
        }
    }

    /// The answer has ended by an event without usage: what was counted before it is a count in mid-stream, until a later
    /// report says otherwise.
    fn note_end_without_usage(&mut self) {
        self.usage_rejected |= self.usage.is_some();
    }

    fn note_operation_id(&mut self, id: Option<&RawValue>) {
        if self.operation_id.is_none() {
            self.operation_id = id.and_then(text).filter(|id| !id.is_empty() && id.len() <= OPERATION_ID_MAX_BYTES);
        }
    }

    fn note_finish_reason(&mut self, reason: Option<&RawValue>) {
        if let Some(reason) = reason.and_then(text).filter(|reason| !reason.is_empty()) {
            self.finish_reason = Some(shortened(&reason, WORD_MAX_BYTES));
        }
    }

    /// An answer has no reason for its end while one of its choices goes on: what was counted until then is no total.
    fn keep_finish_reason_of(&mut self, choices: choices::Choices) {
        if choices.any_goes_on() {
            self.finish_reason = None;
        }
    }

    /// Counts an event; false if it is too large to be read.
    fn count(&mut self, event: &Event<'_>) -> bool {
        self.events = self.events.saturating_add(1);
        if event.oversize {
            self.oversize_events = self.oversize_events.saturating_add(1);
        }
        !event.oversize
    }

    /// Keeps the first failure.
    fn note_error(&mut self, error: Option<InBandError>) {
        if self.in_band_error.is_none() {
            self.in_band_error = error;
        }
    }
}

impl InBandError {
    /// Reads an `error` member: an object with `code`, `type`, `status` and `message`, or a string. `None` where the
    /// member says that there is no error.
    fn read(error: &RawValue) -> Option<Self> {
        #[derive(Deserialize)]
        struct View<'a> {
            #[serde(borrow)]
            code: Option<&'a RawValue>,
            #[serde(borrow, rename = "type")]
            kind: Option<&'a RawValue>,
            #[serde(borrow)]
            status: Option<&'a RawValue>,
            #[serde(borrow)]
            message: Option<&'a RawValue>,
        }
        if matches!(error.get(), "null" | "false" | "\"\"") {
            return None;
        }
        let Some(view) = members::<View<'_>>(error.get().as_bytes()) else {
            let message = text(error).unwrap_or_else(|| error.get().to_owned());
            return Some(Self::new("error", &message));
        };
        let word = [view.code, view.kind, view.status].into_iter().flatten().find_map(word);
        let message = view.message.and_then(text).unwrap_or_else(|| error.get().to_owned());
        Some(Self::new(word.as_deref().unwrap_or("error"), &message))
    }

    fn new(code: &str, message: &str) -> Self {
        Self { code: shortened(code, WORD_MAX_BYTES), message: shortened(message, MESSAGE_MAX_BYTES) }
    }
}

fn larger_counts(a: Usage, b: Usage) -> Usage {
    Usage {
        input_tokens: a.input_tokens.max(b.input_tokens),
        output_tokens: a.output_tokens.max(b.output_tokens),
        cached_input_tokens: a.cached_input_tokens.max(b.cached_input_tokens),
        cache_write_tokens: a.cache_write_tokens.max(b.cache_write_tokens),
        reasoning_tokens: a.reasoning_tokens.max(b.reasoning_tokens),
    }
}

/// Reads members of a JSON object. Derived structs would also read an array, member by member.
pub(crate) fn members<'a, T: Deserialize<'a>>(json: &'a [u8]) -> Option<T> {
    if json.trim_ascii_start().starts_with(b"{") { serde_json::from_slice(json).ok() } else { None }
}

/// Whether the marker stands there as a key whose value is not null.
fn has_value(marker: &Finder<'_>, data: &[u8]) -> bool {
    let mut rest = data;
    while let Some(at) = marker.find(rest) {
        rest = rest.get(at.saturating_add(marker.needle().len())..).unwrap_or_default();
        if let Some(value) = rest.trim_ascii_start().strip_prefix(b":")
            && !value.trim_ascii_start().starts_with(b"null")
        {
            return true;
        }
    }
    false
}

/// A usage object, or a part of one.
fn object<'a, T: Deserialize<'a>>(value: &'a RawValue) -> Result<T, UsageRejection> {
    members(value.get().as_bytes()).ok_or(UsageRejection::Malformed)
}

/// An error event whose data is no object that tells more.
fn unstructured_error(data: &[u8]) -> InBandError {
    InBandError::new("error", &String::from_utf8_lossy(data))
}

/// How a plain body ended: with an error of its own, whole, or not.
fn body_class(report: &MeterReport, body: &[u8]) -> EndClass {
    if report.in_band_error.is_some() {
        EndClass::InBandError
    } else if serde_json::from_slice::<IgnoredAny>(body).is_ok() {
        EndClass::Complete
    } else {
        EndClass::Incomplete
    }
}

/// The value of a JSON string.
fn text(value: &RawValue) -> Option<String> {
    serde_json::from_str(value.get()).ok()
}

/// A JSON string that is not empty, or an integer (OpenRouter and Google write numbers as codes).
fn word(value: &RawValue) -> Option<String> {
    match value.get() {
        raw if raw.starts_with('"') => text(value).filter(|word| !word.is_empty()),
        raw => raw.parse::<i64>().ok().map(|number| number.to_string()),
    }
}

fn shortened(text: &str, max_bytes: usize) -> String {
    let mut end = max_bytes.min(text.len());
    while !text.is_char_boundary(end) {
        end = end.saturating_sub(1);
    }
    text.get(..end).unwrap_or_default().to_owned()
}
