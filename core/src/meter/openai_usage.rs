//! What the two usage objects of OpenAI have in common: the same counts under other names.

use serde::Deserialize;
use serde_json::value::RawValue;

use super::object;
use crate::usage::{Usage, UsageRejection, token_count};

/// The counts as they were written, and the details that stand beside them.
pub(super) struct Counted<'a> {
    pub(super) input: u64,
    /// Output, as the provider wrote it.
    pub(super) reported: u64,
    pub(super) total: u64,
    pub(super) of_input: Option<&'a RawValue>,
    pub(super) of_output: Option<&'a RawValue>,
    /// The cached input where the details do not name it, and the name of that member.
    pub(super) cached_beside: Option<(&'a RawValue, &'static str)>,
}

#[derive(Deserialize, Default)]
struct Details<'a> {
    #[serde(borrow)]
    cached_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    cache_write_tokens: Option<&'a RawValue>,
    #[serde(borrow)]
    reasoning_tokens: Option<&'a RawValue>,
}

impl Counted<'_> {
    /// The usage, and the output as reported. Billable output is what the total has above the input, where that is more
    /// than was reported: xAI counts reasoning outside of it.
    ///
    /// # Errors
    /// The first reason for which it is not accepted.
    pub(super) fn usage(&self) -> Result<(Usage, u64), UsageRejection> {
        let output = self.reported.max(self.total.saturating_sub(self.input));
        if self.input == 0 && output == 0 {
            return Err(UsageRejection::AllZero);
        }
        let (of_input, of_output) = (details(self.of_input)?, details(self.of_output)?);
        let cached = match (token_count(of_input.cached_tokens, "cached_tokens")?, self.cached_beside) {
            (Some(cached), _) => cached,
            (None, Some((cached, name))) => token_count(Some(cached), name)?.unwrap_or(0),
            (None, None) => 0,
        };
        let written = token_count(of_input.cache_write_tokens, "cache_write_tokens")?.unwrap_or(0);
        if cached > self.input {
            return Err(UsageRejection::Inconsistent("cached_tokens"));
        }
        if written > self.input {
            return Err(UsageRejection::Inconsistent("cache_write_tokens"));
        }
        let counts = Usage {
            input_tokens: self.input,
            output_tokens: output,
            cached_input_tokens: cached,
            cache_write_tokens: written,
            reasoning_tokens: token_count(of_output.reasoning_tokens, "reasoning_tokens")?.unwrap_or(0),
        };
        Ok((counts, self.reported))
    }
}

fn details(value: Option<&RawValue>) -> Result<Details<'_>, UsageRejection> {
    value.map_or_else(|| Ok(Details::default()), object)
}
