//! Meter of OpenAI Responses.
//!
//! Every event names its type, twice: as the event's name and in its data. All but a handful can be told from the name to
//! have nothing but content; of those, only the `sequence_number` is looked for. It cannot be faked by generated text:
//! inside a JSON string its quotes are escaped, and such events hold no object that a caller or a model names members in.

use alloc::boxed::Box;
use alloc::string::String;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::openai_usage::Counted;
use super::{
    Continuation, EndClass, InBandError, MeterReport, StreamMeter, body_class, members, object, text,
    unstructured_error,
};
use crate::sse::Event;
use crate::usage::{Usage, UsageRejection, required_count, token_count};

const COMPLETED: &str = "response.completed";
const FAILED: &str = "response.failed";
const INCOMPLETE: &str = "response.incomplete";
const CANCELLED: &str = "response.cancelled";
const ERROR: &str = "error";

/// Larger numbers are not believed: JSON readers lose them.
const SEQUENCE_NUMBER_MAX: u64 = 1 << 53;

/// Meter of one stream.
#[derive(Debug)]
pub struct OpenAiResponses {
    report: MeterReport,
    done: bool,
    sequence_number: Finder<'static>,
}

/// The members of an event that are read.
#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    sequence_number: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// The members of a response object that are read.
#[derive(Deserialize)]
struct Response<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    status: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    incomplete_details: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl Default for OpenAiResponses {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenAiResponses {
    /// A meter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self { report: MeterReport::default(), done: false, sequence_number: Finder::new(b"\"sequence_number\"") }
    }

    /// Takes the number of an event that is not parsed.
    fn find_sequence_number(&mut self, data: &[u8]) {
        let behind = self.sequence_number.find(data).and_then(|at| {
            data.get(at.saturating_add(self.sequence_number.needle().len())..)?.trim_ascii_start().strip_prefix(b":")
        });
        let Some(value) = behind.map(<[u8]>::trim_ascii_start) else { return };
        let end = value.iter().position(|byte| !byte.is_ascii_digit()).unwrap_or(value.len());
        let plain = value.get(end).is_none_or(|byte| matches!(byte, b',' | b'}' | b' ' | b'\n' | b'\r' | b'\t'));
        let digits = value.get(..end).and_then(|digits| core::str::from_utf8(digits).ok()).filter(|_| plain);
        self.note_sequence_number(digits);
    }

    /// Numbers only grow; one that does not is no place to read on from. The first of a stream that is taken up again must
    /// be the next one.
    fn note_sequence_number(&mut self, digits: Option<&str>) {
        let number = digits.and_then(|digits| digits.parse::<u64>().ok()).filter(|n| *n <= SEQUENCE_NUMBER_MAX);
        if let (Continuation::Open, Some(number)) = (self.report.continuation, number) {
            let next = self.report.sequence_number.map_or(number, |last| last.saturating_add(1));
            self.report.continuation = if number == next { Continuation::Follows } else { Continuation::Differs };
        }
        self.report.sequence_number = self.report.sequence_number.max(number);
    }

    fn note_response_id(&mut self, id: Option<&RawValue>) {
        self.report.note_operation_id(id);
        let taken_up = self.report.continuation != Continuation::NotAsked;
        if taken_up && id.and_then(text).is_some_and(|id| self.report.operation_id.as_ref() != Some(&id)) {
            self.report.continuation = Continuation::Differs;
        }
    }

    fn note_event(&mut self, view: &View<'_>, data: &[u8]) {
        self.note_sequence_number(view.sequence_number.map(RawValue::get));
        let response = view.response.and_then(|response| members::<Response<'_>>(response.get().as_bytes()));
        let kind = view.kind.and_then(text).unwrap_or_default();
        if let Some(response) = &response {
            self.note_response_id(response.id);
        }
        if self.report.continuation == Continuation::Differs {
            return;
        }
        match kind.as_str() {
            COMPLETED | INCOMPLETE => {
                self.done = true;
                self.report.finish_reason = Some(finish_of(&kind, response.as_ref()));
            }
            FAILED | CANCELLED => {
                self.report.finish_reason = Some(kind.clone());
                self.report.note_error(Some(failure_of(&kind, response.as_ref())));
            }
            ERROR => self.report.note_error(Some(error_event(view, data))),
            _ => return,
        }
        if let Some(usage) = response.and_then(|response| response.usage) {
            self.report.note_usage(read_usage(usage));
        }
    }
}

impl StreamMeter for OpenAiResponses {
    /// After the terminal, clients read nothing more, and neither does the meter.
    fn observe(&mut self, event: &Event<'_>) -> bool {
        if !self.report.count(event) || self.done {
            return false;
        }
        if event.name.ends_with(b".delta") {
            self.find_sequence_number(event.data);
            return false;
        }
        match members::<View<'_>>(event.data) {
            Some(view) => self.note_event(&view, event.data),
            None if event.name == ERROR.as_bytes() => self.report.note_error(Some(unstructured_error(event.data))),
            None => {}
        }
        false
    }

    /// Without a number all of it is repeated, and compared byte by byte.
    fn take_up(&mut self) {
        if self.report.sequence_number.is_some() {
            self.report.continuation = Continuation::Open;
        }
    }

    fn report(&self) -> &MeterReport {
        &self.report
    }

    fn is_done(&self) -> bool {
        self.done
    }

    fn into_report(self: Box<Self>) -> MeterReport {
        self.report
    }
}

/// Reads the answer to a request without `stream`: a response object. One that has failed or was cancelled is an error,
/// one that is still under way is not whole.
#[must_use]
pub fn openai_responses_body(body: &[u8]) -> (MeterReport, EndClass) {
    let mut report = MeterReport::default();
    let mut running = false;
    if let Some(response) = members::<Response<'_>>(body) {
        report.note_operation_id(response.id);
        let status = response.status.and_then(text).unwrap_or_default();
        match status.as_str() {
            "queued" | "in_progress" => running = true,
            "completed" => report.finish_reason = Some(COMPLETED.into()),
            "incomplete" => report.finish_reason = Some(finish_of(INCOMPLETE, Some(&response))),
            "failed" | "cancelled" => {
                let kind = if status == "failed" { FAILED } else { CANCELLED };
                report.finish_reason = Some(kind.into());
                report.note_error(Some(failure_of(kind, Some(&response))));
            }
            _ => report.note_error(response.error.and_then(InBandError::read)),
        }
        if let Some(usage) = response.usage {
            report.note_usage(read_usage(usage));
        }
    }
    let class = if running { EndClass::Incomplete } else { body_class(&report, body) };
    (report, class)
}

/// The reason of an incomplete response, else the type of the event.
fn finish_of(kind: &str, response: Option<&Response<'_>>) -> String {
    #[derive(Deserialize)]
    struct Details<'a> {
        #[serde(borrow)]
        reason: Option<&'a RawValue>,
    }
    let details = response.and_then(|response| response.incomplete_details);
    let reason = details.and_then(|details| members::<Details<'_>>(details.get().as_bytes())?.reason);
    let reason = reason.filter(|_| kind == INCOMPLETE).and_then(text).filter(|reason| !reason.is_empty());
    super::shortened(reason.as_deref().unwrap_or(kind), super::WORD_MAX_BYTES)
}

fn failure_of(kind: &str, response: Option<&Response<'_>>) -> InBandError {
    let error = response.and_then(|response| response.error).and_then(InBandError::read);
    error.unwrap_or_else(|| InBandError::new(kind, "the provider reported that the response has ended without success"))
}

/// `code` and `message` stand beside the type; some gateways nest them.
fn error_event(view: &View<'_>, data: &[u8]) -> InBandError {
    #[derive(Deserialize)]
    struct Flat<'a> {
        #[serde(borrow)]
        code: Option<&'a RawValue>,
        #[serde(borrow)]
        message: Option<&'a RawValue>,
    }
    if let Some(nested) = view.error.and_then(InBandError::read) {
        return nested;
    }
    let Some(flat) = members::<Flat<'_>>(data) else { return unstructured_error(data) };
    let code = flat.code.and_then(super::word);
    let message = flat.message.and_then(text);
    InBandError::new(code.as_deref().unwrap_or(ERROR), message.as_deref().unwrap_or("no message"))
}

/// Reads a usage object: the counts, and the output as reported. As in Chat Completions, the billable output is
/// `total_tokens − input_tokens` where that is larger than `output_tokens`.
///
/// # Errors
/// The first reason for which it is not accepted.
pub fn read_usage(usage: &RawValue) -> Result<(Usage, u64), UsageRejection> {
    #[derive(Deserialize)]
    struct UsageView<'a> {
        #[serde(borrow)]
        input_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        output_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        total_tokens: Option<&'a RawValue>,
        #[serde(borrow)]
        input_tokens_details: Option<&'a RawValue>,
        #[serde(borrow)]
        output_tokens_details: Option<&'a RawValue>,
    }
    let view: UsageView<'_> = object(usage)?;
    let input = required_count(view.input_tokens, "input_tokens")?;
    let reported = required_count(view.output_tokens, "output_tokens")?;
    let total = token_count(view.total_tokens, "total_tokens")?.unwrap_or(0);
    let (of_input, of_output) = (view.input_tokens_details, view.output_tokens_details);
    Counted { input, reported, total, of_input, of_output, cached_beside: None }.usage()
}
