//! The ends of the dialects whose usage is not read: their terminal events and in-band errors.
//!
//! Without usage such an answer settles as at least, by its bound.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{EndClass, InBandError, MeterReport, body_class, members, text};
use crate::dialect::Dialect;
use crate::sse::Event;

/// Watches one stream for its end.
#[derive(Debug)]
pub struct Terminals {
    dialect: Dialect,
    report: MeterReport,
    done: bool,
}

/// The members that tell an end from the rest, over all dialects.
#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
    #[serde(borrow)]
    response: Option<&'a RawValue>,
    #[serde(borrow)]
    candidates: Option<&'a RawValue>,
    #[serde(borrow, rename = "promptFeedback")]
    prompt_feedback: Option<&'a RawValue>,
}

impl Terminals {
    /// A watch at the start of a stream.
    #[must_use]
    pub fn new(dialect: Dialect) -> Self {
        Self { dialect, report: MeterReport::default(), done: false }
    }

    /// What has been learnt so far: counts and an error, no usage.
    #[must_use]
    pub const fn report(&self) -> &MeterReport {
        &self.report
    }

    /// All that was learnt.
    #[must_use]
    pub fn into_report(self) -> MeterReport {
        self.report
    }

    /// The dialect's terminal event has been seen. An opaque stream has none.
    #[must_use]
    pub const fn is_done(&self) -> bool {
        self.done
    }

    /// Reads one event.
    pub fn observe(&mut self, event: &Event<'_>) {
        if !self.report.count(event) {
            return;
        }
        match self.dialect {
            Dialect::OpenaiResponses | Dialect::AnthropicMessages => self.observe_typed(event),
            Dialect::Gemini => self.observe_gemini(event.data),
            Dialect::OpenaiChat | Dialect::Opaque => {}
        }
    }

    /// Events of these dialects carry their type as name, and again in the data.
    fn observe_typed(&mut self, event: &Event<'_>) {
        let may_end = [b"message_stop".as_slice(), b"error", b"response.completed", b"response.incomplete"];
        if !event.name.is_empty() && !may_end.contains(&event.name) && event.name != b"response.failed" {
            return;
        }
        let Some(view) = members::<View<'_>>(event.data) else {
            return;
        };
        match view.kind.and_then(text).as_deref() {
            Some("message_stop" | "response.completed" | "response.incomplete") => self.done = true,
            Some("response.failed") => self.report.note_error(Some(failed_response(&view))),
            Some("error") => self.report.note_error(Some(error_event(&view, event.data))),
            _ => {}
        }
    }

    fn observe_gemini(&mut self, data: &[u8]) {
        #[derive(Deserialize)]
        #[serde(rename_all = "camelCase")]
        struct End<'a> {
            #[serde(borrow)]
            finish_reason: Option<&'a RawValue>,
            #[serde(borrow)]
            block_reason: Option<&'a RawValue>,
        }
        let Some(view) = members::<View<'_>>(data) else {
            return;
        };
        self.report.note_error(view.error.and_then(InBandError::read));
        let candidates: alloc::vec::Vec<End<'_>> =
            view.candidates.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
        for candidate in &candidates {
            self.done |= candidate.finish_reason.is_some();
            self.report.note_finish_reason(candidate.finish_reason);
        }
        let feedback = view.prompt_feedback.and_then(|feedback| serde_json::from_str::<End<'_>>(feedback.get()).ok());
        self.done |= feedback.is_some_and(|feedback| feedback.block_reason.is_some());
    }
}

/// Reads a plain body of these dialects: an error, and whether the document is whole.
#[must_use]
pub fn body(dialect: Dialect, body: &[u8]) -> (MeterReport, EndClass) {
    let mut report = MeterReport::default();
    if dialect == Dialect::Opaque {
        return (report, EndClass::Complete);
    }
    if let Some(view) = members::<View<'_>>(body) {
        report.note_error(view.error.and_then(InBandError::read));
    }
    let class = body_class(&report, body);
    (report, class)
}

fn failed_response(view: &View<'_>) -> InBandError {
    #[derive(Deserialize)]
    struct Response<'a> {
        #[serde(borrow)]
        error: Option<&'a RawValue>,
    }
    let response = view.response.and_then(|response| serde_json::from_str::<Response<'_>>(response.get()).ok());
    response
        .and_then(|response| response.error)
        .and_then(InBandError::read)
        .unwrap_or_else(|| InBandError::new("response.failed", "the provider reported a failed response"))
}

/// Anthropic nests the error, OpenAI Responses writes `code` and `message` beside the type.
fn error_event(view: &View<'_>, data: &[u8]) -> InBandError {
    let own = || serde_json::from_slice::<&RawValue>(data).ok().and_then(InBandError::read);
    view.error.and_then(InBandError::read).or_else(own).unwrap_or_else(|| InBandError::new("error", "unknown"))
}
