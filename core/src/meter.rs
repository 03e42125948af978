//! Meters: what a provider's answer says about itself — operation id, finish reason, usage, errors, its end.

pub mod openai_chat;

use alloc::string::String;

use serde::{Deserialize, Serialize};

use crate::usage::Usage;

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
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct InBandError {
    /// The error's `code`, or else its `type` or `status`, or else `error`. At most 128 bytes.
    pub code: String,
    /// The provider's words, at most 1 KiB.
    pub message: String,
}

/// What has been learnt from an answer so far.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
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
    /// The last usage report was refused (see [`crate::usage::UsageRejection`]). `usage` then holds an earlier report, or
    /// the larger counts if the report was lower than an earlier one: not exact.
    pub usage_rejected: bool,
    /// The failure that the provider reported after its 200, if any.
    pub in_band_error: Option<InBandError>,
    /// Events seen, oversize ones included; 0 for a plain body.
    pub events: u64,
    /// Events (or one body) above the size bound: relayed, not read.
    pub oversize_events: u64,
}
