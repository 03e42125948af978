//! Meter of Anthropic Messages.
//!
//! Usage comes in two places. `message_start` has the input, and a placeholder for the output that is never priced;
//! `message_delta` has cumulative counts, and only with the first of them the usage is known. A delta that names no input
//! stands on an earlier event that did; without one there is no usage. Cache reads and writes stand beside `input_tokens`,
//! not in them.

use alloc::boxed::Box;

use serde::Deserialize;
use serde_json::value::RawValue;

use super::{EndClass, InBandError, MeterReport, StreamMeter, body_class, members, object, text, unstructured_error};
use crate::sse::Event;
use crate::usage::{TOKENS_MAX, Usage, UsageRejection, required_count, token_count};

/// Names of events that carry content or nothing at all.
const UNINTERESTING: [&[u8]; 4] = [b"content_block_delta", b"content_block_start", b"content_block_stop", b"ping"];

/// Meter of one stream.
#[derive(Debug, Default)]
pub struct AnthropicMessages {
    report: MeterReport,
    done: bool,
    /// The input, once an event has told it.
    input: Option<Input>,
}

/// Input tokens, by how they are billed.
#[derive(Debug, Default, Clone, Copy)]
struct Input {
    /// Neither read from the cache nor written to it.
    plain: u64,
    cache_read: u64,
    cache_write: u64,
}

impl Input {
    const fn total(self) -> u64 {
        self.plain.saturating_add(self.cache_read).saturating_add(self.cache_write)
    }
}

/// The members of an event, or of a plain answer, that are read.
#[derive(Deserialize)]
struct View<'a> {
    #[serde(borrow, rename = "type")]
    kind: Option<&'a RawValue>,
    #[serde(borrow)]
    message: Option<&'a RawValue>,
    #[serde(borrow)]
    delta: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

/// A message object, and a `delta` of one.
#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    stop_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl AnthropicMessages {
    /// A meter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    fn note_event(&mut self, view: &View<'_>, data: &[u8]) {
        let kind = view.kind.and_then(text).unwrap_or_default();
        match kind.as_str() {
            "message_start" => self.note_start(view),
            "message_delta" => self.note_delta(view),
            "message_stop" => self.done = true,
            "error" => {
                let error = view.error.and_then(InBandError::read);
                self.report.note_error(Some(error.unwrap_or_else(|| unstructured_error(data))));
            }
            _ => {}
        }
    }

    /// An input that is missing, zero or cannot be read leaves the usage open until a later event tells it: no request has
    /// an empty prompt.
    fn note_start(&mut self, view: &View<'_>) {
        let Some(message) = view.message.and_then(|message| members::<Message<'_>>(message.get().as_bytes())) else {
            return;
        };
        self.report.note_operation_id(message.id);
        match message.usage.map(|usage| UsageView::read(usage).and_then(|view| view.input(None))) {
            Some(Ok(input)) if input.total() > 0 => self.input = Some(input),
            Some(Err(_)) => self.report.usage_rejected = true,
            Some(Ok(_)) | None => {}
        }
    }

    fn note_delta(&mut self, view: &View<'_>) {
        let delta = view.delta.and_then(|delta| members::<Message<'_>>(delta.get().as_bytes()));
        let stop_reason = delta.and_then(|delta| delta.stop_reason);
        self.report.note_finish_reason(stop_reason);
        match view.usage.map(|usage| read_usage_after(usage, self.input)) {
            Some(Ok((input, usage, output))) => {
                self.input = Some(input);
                self.report.note_usage(Ok((usage, output)));
            }
            Some(Err(rejection)) => self.report.note_usage(Err(rejection)),
            // What was counted before the end is no total.
            None if stop_reason.and_then(text).is_some() => self.report.note_end_without_usage(),
            None => {}
        }
    }
}

impl StreamMeter for AnthropicMessages {
    /// After the terminal, clients read nothing more, and neither does the meter.
    fn observe(&mut self, event: &Event<'_>) -> bool {
        if !self.report.count(event) || self.done || UNINTERESTING.contains(&event.name) {
            return false;
        }
        match members::<View<'_>>(event.data) {
            Some(view) => self.note_event(&view, event.data),
            None if event.name == b"error" => self.report.note_error(Some(unstructured_error(event.data))),
            None => {}
        }
        false
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

/// Reads the answer to a request without `stream`: a message, whose usage is no placeholder, or an error.
#[must_use]
pub fn anthropic_messages_body(body: &[u8]) -> (MeterReport, EndClass) {
    let mut report = MeterReport::default();
    if let Some(view) = members::<View<'_>>(body) {
        report.note_error(view.error.and_then(InBandError::read));
    }
    if let Some(message) = members::<Message<'_>>(body) {
        report.note_operation_id(message.id);
        report.note_finish_reason(message.stop_reason);
        if let Some(usage) = message.usage {
            report.note_usage(read_usage(usage));
        }
    }
    let class = body_class(&report, body);
    (report, class)
}

#[derive(Deserialize)]
struct UsageView<'a> {
    #[serde(borrow)]
    input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    output_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_read_input_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_creation_input_tokens: Option<&'a RawValue>,
}

impl<'a> UsageView<'a> {
    fn read(usage: &'a RawValue) -> Result<Self, UsageRejection> {
        object(usage)
    }

    /// The input, with what an earlier event told of it where this one says nothing, or less: counts are cumulative.
    /// Without an earlier one it must be named.
    fn input(&self, earlier: Option<Input>) -> Result<Input, UsageRejection> {
        if earlier.is_none() {
            required_count(self.input_tokens, "input_tokens")?;
        }
        let earlier = earlier.unwrap_or_default();
        let count = |value, field, earlier: u64| token_count(value, field).map(|count| count.unwrap_or(0).max(earlier));
        Ok(Input {
            plain: count(self.input_tokens, "input_tokens", earlier.plain)?,
            cache_read: count(self.cache_read_input_tokens, "cache_read_input_tokens", earlier.cache_read)?,
            cache_write: count(self.cache_creation_input_tokens, "cache_creation_input_tokens", earlier.cache_write)?,
        })
    }
}

/// Reads a whole usage object, as a plain answer has it: the counts, and the output as reported.
///
/// # Errors
/// The first reason for which it is not accepted.
pub fn read_usage(usage: &RawValue) -> Result<(Usage, u64), UsageRejection> {
    read_usage_after(usage, None).map(|(_, usage, output)| (usage, output))
}

fn read_usage_after(usage: &RawValue, earlier: Option<Input>) -> Result<(Input, Usage, u64), UsageRejection> {
    let view = UsageView::read(usage)?;
    let output = required_count(view.output_tokens, "output_tokens")?;
    let input = view.input(earlier)?;
    let total = input.total();
    if total > TOKENS_MAX {
        return Err(UsageRejection::TooLarge("input_tokens"));
    }
    if total == 0 && output == 0 {
        return Err(UsageRejection::AllZero);
    }
    let counts = Usage {
        input_tokens: total,
        output_tokens: output,
        cached_input_tokens: input.cache_read,
        cache_write_tokens: input.cache_write,
        reasoning_tokens: 0,
    };
    Ok((input, counts, output))
}
