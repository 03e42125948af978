//! Meter of Gemini: `streamGenerateContent?alt=sse` and `generateContent`.
//!
//! Events have no names and no terminal of their own: an answer ends when every candidate has a `finishReason`, or with a
//! `blockReason` for the prompt. `usageMetadata` repeats and the last one counts, if it came with the end or behind it: the event
//! that ends an answer carries one, and an earlier count is a floor. Nearly every event carries usage and is parsed for it.

use alloc::boxed::Box;
use alloc::vec::Vec;

use memchr::memmem::Finder;
use serde::Deserialize;
use serde_json::value::RawValue;

use super::choices::Choices;
use super::{EndClass, InBandError, MeterReport, StreamMeter, body_class, has_value, members, object};
use crate::sse::Event;
use crate::usage::{Usage, UsageRejection, required_count, token_count};

/// Meter of one stream.
#[derive(Debug)]
pub struct Gemini {
    report: MeterReport,
    candidates: Choices,
    blocked: bool,
    markers: Markers,
}

#[derive(Debug)]
struct Markers {
    id: Finder<'static>,
    usage: Finder<'static>,
    finish_reason: Finder<'static>,
    block_reason: Finder<'static>,
    error: Finder<'static>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Chunk<'a> {
    #[serde(borrow)]
    response_id: Option<&'a RawValue>,
    #[serde(borrow)]
    candidates: Option<&'a RawValue>,
    #[serde(borrow)]
    prompt_feedback: Option<&'a RawValue>,
    #[serde(borrow)]
    usage_metadata: Option<&'a RawValue>,
    #[serde(borrow)]
    error: Option<&'a RawValue>,
}

#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
struct Candidate<'a> {
    #[serde(borrow)]
    finish_reason: Option<&'a RawValue>,
    #[serde(borrow)]
    index: Option<&'a RawValue>,
}

impl Default for Gemini {
    fn default() -> Self {
        Self::new()
    }
}

impl Gemini {
    /// A meter at the start of a stream.
    #[must_use]
    pub fn new() -> Self {
        let markers = Markers {
            id: Finder::new(b"\"responseId\""),
            usage: Finder::new(b"\"usageMetadata\""),
            finish_reason: Finder::new(b"\"finishReason\""),
            block_reason: Finder::new(b"\"blockReason\""),
            error: Finder::new(b"\"error\""),
        };
        Self { report: MeterReport::default(), candidates: Choices::default(), blocked: false, markers }
    }

    fn note(&mut self, chunk: &Chunk<'_>) {
        let ended_before = self.is_done();
        self.blocked |= note_chunk(&mut self.report, &mut self.candidates, chunk);
        if self.is_done() && !ended_before && chunk.usage_metadata.is_none() {
            self.report.note_end_without_usage();
        }
    }

    /// Whether there is something to learn besides that a candidate goes on. Once one has ended, that is something too.
    fn is_interesting(&self, data: &[u8]) -> bool {
        let markers = &self.markers;
        let wants_id = self.report.operation_id.is_none();
        self.candidates.any_has_ended()
            || (wants_id && has_value(&markers.id, data))
            || has_value(&markers.usage, data)
            || has_value(&markers.finish_reason, data)
            || has_value(&markers.block_reason, data)
            || has_value(&markers.error, data)
    }
}

impl StreamMeter for Gemini {
    fn observe(&mut self, event: &Event<'_>) -> bool {
        if !self.report.count(event) || !self.is_interesting(event.data) {
            return false;
        }
        match members::<Chunk<'_>>(event.data) {
            Some(chunk) => self.note(&chunk),
            None if has_value(&self.markers.usage, event.data) => {
                self.report.replace_usage(Err(UsageRejection::Malformed));
            }
            None => {}
        }
        false
    }

    fn report(&self) -> &MeterReport {
        &self.report
    }

    fn is_done(&self) -> bool {
        self.blocked || self.candidates.have_ended()
    }

    fn into_report(self: Box<Self>) -> MeterReport {
        self.report
    }
}

/// Reads the answer to `generateContent`.
#[must_use]
pub fn gemini_body(body: &[u8]) -> (MeterReport, EndClass) {
    let mut report = MeterReport::default();
    if let Some(chunk) = members::<Chunk<'_>>(body) {
        note_chunk(&mut report, &mut Choices::default(), &chunk);
    }
    let class = body_class(&report, body);
    (report, class)
}

/// Takes what an event or a whole answer says. True if it says that the prompt was blocked.
fn note_chunk(report: &mut MeterReport, state: &mut Choices, chunk: &Chunk<'_>) -> bool {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct Feedback<'a> {
        #[serde(borrow)]
        block_reason: Option<&'a RawValue>,
    }
    report.note_operation_id(chunk.response_id);
    report.note_error(chunk.error.and_then(InBandError::read));
    let candidates: Vec<Candidate<'_>> =
        chunk.candidates.and_then(|list| serde_json::from_str(list.get()).ok()).unwrap_or_default();
    for candidate in &candidates {
        state.note(candidate.index, candidate.finish_reason.is_some());
        report.note_finish_reason(candidate.finish_reason);
    }
    report.keep_finish_reason_of(*state);
    let feedback = chunk.prompt_feedback.and_then(|feedback| members::<Feedback<'_>>(feedback.get().as_bytes()));
    let reason = feedback.and_then(|feedback| feedback.block_reason);
    report.note_finish_reason(reason);
    if let Some(usage) = chunk.usage_metadata {
        report.replace_usage(read_usage(usage));
    }
    reason.is_some()
}

/// Reads a usage object: the counts, and the output as reported.
///
/// Thoughts stand beside the candidates and are billed as output; the prompts of tools stand beside the prompt and are
/// billed as input. What the total has above all that is output.
///
/// # Errors
/// The first reason for which it is not accepted.
pub fn read_usage(usage: &RawValue) -> Result<(Usage, u64), UsageRejection> {
    #[derive(Deserialize)]
    #[serde(rename_all = "camelCase")]
    struct UsageView<'a> {
        #[serde(borrow)]
        prompt_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        tool_use_prompt_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        cached_content_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        candidates_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        thoughts_token_count: Option<&'a RawValue>,
        #[serde(borrow)]
        total_token_count: Option<&'a RawValue>,
    }
    let view: UsageView<'_> = object(usage)?;
    // Counts of zero are left out.
    let count = |value, field| token_count(value, field).map(Option::unwrap_or_default);
    let prompt = required_count(view.prompt_token_count, "promptTokenCount")?;
    let input = prompt.saturating_add(count(view.tool_use_prompt_token_count, "toolUsePromptTokenCount")?);
    let thoughts = count(view.thoughts_token_count, "thoughtsTokenCount")?;
    let reported = count(view.candidates_token_count, "candidatesTokenCount")?.saturating_add(thoughts);
    let total = count(view.total_token_count, "totalTokenCount")?;
    let output = reported.max(total.saturating_sub(input));
    if input == 0 && output == 0 {
        return Err(UsageRejection::AllZero);
    }
    let cached = count(view.cached_content_token_count, "cachedContentTokenCount")?;
    if cached > input {
        return Err(UsageRejection::Inconsistent("cachedContentTokenCount"));
    }
    let counts = Usage {
        input_tokens: input,
        output_tokens: output,
        cached_input_tokens: cached,
        cache_write_tokens: 0,
        reasoning_tokens: thoughts,
    };
    Ok((counts, reported))
}
