//! Meter of OpenAI Chat Completions and its relatives (Azure, Groq, DeepSeek, Mistral, xAI, Moonshot, vLLM, …).
//!
//! Most events carry a few characters of content and nothing to learn. They are recognised by the absence of a few marker
//! words and are not parsed. A marker cannot be faked by generated text: inside a JSON string its quotes are escaped.

use alloc::boxed::Box;
use alloc::vec::Vec;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::choices::Choices;
use super::openai_usage::Counted;
use super::{
    EndClass, InBandError, MeterReport, StreamMeter, body_class, has_value, members, object, unstructured_error,
};
use crate::sse::Event;
use crate::usage::{Usage, UsageRejection, required_count, token_count};

const DONE: &[u8] = b"[DONE]";

/// Meter of one stream.
#[derive(Debug)]
pub struct OpenAiChat {
    report: MeterReport,
    choices: Choices,
    done: bool,
    markers: Markers,
}

#[derive(Debug)]
struct Markers {
    id: Finder<'static>,
    finish_reason: Finder<'static>,
    usage: Finder<'static>,
    error: Finder<'static>,
}

/// The members that are read, as they stand.
#[derive(Deserialize)]
struct Chunk<'a> {
    #[serde(borrow)]
    id: Option<&'a RawValue>,
    #[serde(borrow)]
    choices: Option<&'a RawValue>,
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
    #[serde(borrow)]
    x_groq: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Choice<'a> {
    #[serde(borrow)]
    index: Option<&'a RawValue>,
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    /// Moonshot reports usage here.
    #[serde(borrow)]
    usage: Option<&'a RawValue>,
}

impl Default for OpenAiChat {
    fn default() -> Self {
        Self::new()
    }
}

impl OpenAiChat {
    /// A meter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        Self { report: MeterReport::default(), choices: Choices::default(), done: false, markers: Markers::new() }
    }

    fn note_unreadable(&mut self, data: &[u8], error_event: bool) {
        if error_event {
            self.report.note_error(Some(unstructured_error(data)));
        }
        if has_value(&self.markers.usage, data) {
            self.report.note_usage(Err(UsageRejection::Malformed));
        }
    }
}

impl StreamMeter for OpenAiChat {
    /// Reads one event. True if it carries nothing but usage: its `choices` is an empty array and its `usage` an object.
    ///
    /// After `[DONE]`, clients read nothing more, and neither does the meter: later events are counted, but no usage and
    /// no error of theirs changes what was learnt.
    fn observe(&mut self, event: &Event<'_>) -> bool {
        if !self.report.count(event) || self.done {
            return false;
        }
        let data = event.data;
        if data.trim_ascii() == DONE {
            self.done = true;
            return false;
        }
        let error_event = event.name == b"error";
        // Once a choice has ended, it counts whether another goes on.
        let marked = self.choices.any_has_ended() || self.markers.any(data, self.report.operation_id.is_none());
        if !error_event && !marked {
            return false;
        }
        let Some(chunk) = members::<Chunk<'_>>(data) else {
            self.note_unreadable(data, error_event);
            return false;
        };
        let error = chunk.error.and_then(InBandError::read);
        let usage_only = error.is_none() && chunk.is_usage_only();
        self.report.note_error(error.or_else(|| error_event.then(|| unstructured_error(data))));
        note_chunk(&mut self.report, &mut self.choices, &chunk);
        usage_only
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

impl Markers {
    fn new() -> Self {
        Self {
            id: Finder::new(b"\"id\""),
            finish_reason: Finder::new(b"\"finish_reason\""),
            usage: Finder::new(b"\"usage\""),
            error: Finder::new(b"\"error\""),
        }
    }

    fn any(&self, data: &[u8], wants_id: bool) -> bool {
        has_value(&self.usage, data)
            || has_value(&self.finish_reason, data)
            || has_value(&self.error, data)
            || (wants_id && has_value(&self.id, data))
    }
}

/// Reads the answer to a request without `stream`: its report, and whether the document is whole and a success.
#[must_use]
pub fn openai_chat_body(body: &[u8]) -> (MeterReport, EndClass) {
    let mut report = MeterReport::default();
    match members::<Chunk<'_>>(body) {
        Some(answer) => {
            report.note_error(answer.error.and_then(InBandError::read));
            note_chunk(&mut report, &mut Choices::default(), &answer);
        }
        None => report.usage_rejected = has_value(&Markers::new().usage, body),
    }
    let class = body_class(&report, body);
    (report, class)
}

impl Chunk<'_> {
    fn is_usage_only(&self) -> bool {
        let no_choices = self.choices.is_some_and(|choices| choices.get().bytes().all(|b| b"[] \t\r\n".contains(&b)));
        no_choices && self.usage.is_some_and(|usage| usage.get().starts_with('{'))
    }
}

fn note_chunk(report: &mut MeterReport, state: &mut Choices, chunk: &Chunk<'_>) {
    report.note_operation_id(chunk.id);
    let choices: Vec<Choice<'_>> =
        chunk.choices.and_then(|choices| serde_json::from_str(choices.get()).ok()).unwrap_or_default();
    for choice in &choices {
        state.note(choice.index, choice.finish_reason.is_some());
        report.note_finish_reason(choice.finish_reason);
    }
    report.keep_finish_reason_of(*state);
    let usage = chunk.usage.or_else(|| chunk.x_groq.and_then(groq_usage));
    if let Some(usage) = usage.or_else(|| choices.iter().find_map(|choice| choice.usage)) {
        report.note_usage(read_usage(usage));
    }
}

fn groq_usage(x_groq: &RawValue) -> Option<&RawValue> {
    #[derive(Deserialize)]
    struct Groq<'a> {
        #[serde(borrow)]
        usage: Option<&'a RawValue>,
    }
    members::<Groq<'_>>(x_groq.get().as_bytes())?.usage
}

/// Reads a usage object: the counts, and the output as reported.
///
/// Billable output is `total_tokens − prompt_tokens` where that is larger than `completion_tokens`: xAI counts reasoning
/// outside `completion_tokens`.
///
/// # Errors
/// The first reason for which it is not accepted.
pub fn read_usage(usage: &RawValue) -> Result<(Usage, u64), UsageRejection> {
    let view: UsageView<'_> = object(usage)?;
    let input = required_count(view.prompt_tokens, "prompt_tokens")?;
    let total = token_count(view.total_tokens, "total_tokens")?;
    // Embeddings have no output: their usage does not name it, and its total is the input.
    let reported = match (token_count(view.completion_tokens, "completion_tokens")?, total) {
        (None, Some(total)) if total == input => 0,
        (reported, _) => reported.ok_or(UsageRejection::Missing("completion_tokens"))?,
    };
    let (of_input, of_output) = (view.prompt_tokens_details, view.completion_tokens_details);
    let cached_beside = view.prompt_cache_hit_tokens.map(|hits| (hits, "prompt_cache_hit_tokens"));
    Counted { input, reported, total: total.unwrap_or(0), of_input, of_output, cached_beside }.usage()
}

#[derive(Deserialize)]
struct UsageView<'a> {
    #[serde(borrow)]
    prompt_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    total_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_tokens_details: Option<&'a RawValue>,
    #[serde(borrow)]
    completion_tokens_details: Option<&'a RawValue>,
    /// DeepSeek's own name, beside the details.
    #[serde(borrow)]
    prompt_cache_hit_tokens: Option<&'a RawValue>,
}
