//! Token usage: what a provider reported, and how far it can be trusted.
//!
//! Numbers are taken strictly. A count that is missing, negative, fractional or too large is refused with a
//! [`UsageRejection`], never rounded or guessed: money is computed from these values.

use core::fmt;

use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// The largest token count that is accepted for one operation: a hundred million.
///
/// The largest context windows hold some ten million tokens and answers are far shorter, so a count above this is no count
/// of a real request. Taken as exact, it would charge a tenant without end and post amounts that no balance can carry; so
/// it is refused, and the operation settles as an estimate within its hold.
pub const TOKENS_MAX: u64 = 100_000_000;

/// Token counts of one upstream operation, in tokens.
///
/// `output_tokens` is what is billed as output, reasoning included. `cached_input_tokens` and `cache_write_tokens` are
/// parts of `input_tokens`; `reasoning_tokens` is a part of `output_tokens`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default, Serialize, Deserialize)]
pub struct Usage {
    /// All input tokens.
    pub input_tokens: u64,
    /// All billable output tokens.
    pub output_tokens: u64,
    /// Input tokens that were read from the provider's prompt cache.
    #[serde(default)]
    pub cached_input_tokens: u64,
    /// Input tokens that were written to the provider's prompt cache.
    #[serde(default)]
    pub cache_write_tokens: u64,
    /// Output tokens that the model spent on reasoning, visible or not.
    #[serde(default)]
    pub reasoning_tokens: u64,
}

impl Usage {
    /// The sum of two attempts of one reservation.
    ///
    /// # Errors
    /// [`UsageRejection::TooLarge`], naming the count, when one leaves its range.
    pub fn plus(&self, other: &Self) -> Result<Self, UsageRejection> {
        let sum = |a: u64, b: u64, field| a.checked_add(b).ok_or(UsageRejection::TooLarge(field));
        Ok(Self {
            input_tokens: sum(self.input_tokens, other.input_tokens, "input_tokens")?,
            output_tokens: sum(self.output_tokens, other.output_tokens, "output_tokens")?,
            cached_input_tokens: sum(self.cached_input_tokens, other.cached_input_tokens, "cached_input_tokens")?,
            cache_write_tokens: sum(self.cache_write_tokens, other.cache_write_tokens, "cache_write_tokens")?,
            reasoning_tokens: sum(self.reasoning_tokens, other.reasoning_tokens, "reasoning_tokens")?,
        })
    }

    /// What is left of a sum without one of its parts.
    #[must_use]
    pub const fn minus(&self, part: &Self) -> Self {
        Self {
            input_tokens: self.input_tokens.saturating_sub(part.input_tokens),
            output_tokens: self.output_tokens.saturating_sub(part.output_tokens),
            cached_input_tokens: self.cached_input_tokens.saturating_sub(part.cached_input_tokens),
            cache_write_tokens: self.cache_write_tokens.saturating_sub(part.cache_write_tokens),
            reasoning_tokens: self.reasoning_tokens.saturating_sub(part.reasoning_tokens),
        }
    }
}

/// Usage together with its quality as evidence.
///
/// In JSON the quality is the member `kind` beside the counts: `{"kind":"exact","input_tokens":…}`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "kind", rename_all = "snake_case")]
pub enum Metered {
    /// The provider's own terminal usage. Only this may refund below the hold.
    Exact(Usage),
    /// An upper bound made from what was seen: input bound, output content bytes and a margin. It settles as estimated,
    /// never above the hold.
    AtLeast(Usage),
}

impl Metered {
    /// The counts, whatever their quality.
    #[must_use]
    pub const fn usage(&self) -> &Usage {
        match self {
            Self::Exact(usage) | Self::AtLeast(usage) => usage,
        }
    }

    /// Whether the counts are the provider's own terminal usage.
    #[must_use]
    pub const fn is_exact(&self) -> bool {
        matches!(self, Self::Exact(_))
    }

    /// The sum of two attempts of one reservation: exact only if both are. One bound makes the whole a bound. It tells
    /// how much was used, and is no base of a price: each attempt is priced by its own quality.
    ///
    /// # Errors
    /// As [`Usage::plus`].
    pub fn plus(&self, other: &Self) -> Result<Self, UsageRejection> {
        let sum = self.usage().plus(other.usage())?;
        Ok(if self.is_exact() && other.is_exact() { Self::Exact(sum) } else { Self::AtLeast(sum) })
    }

    /// The sum over all attempts of one reservation (design 4: "settlement sums all attempts"). No attempt used
    /// nothing, exactly.
    ///
    /// # Errors
    /// As [`Usage::plus`].
    pub fn sum<'a>(attempts: impl IntoIterator<Item = &'a Self>) -> Result<Self, UsageRejection> {
        attempts.into_iter().try_fold(Self::Exact(Usage::default()), |sum, attempt| sum.plus(attempt))
    }
}

/// Why a provider's usage object was not accepted. The field is the provider's member name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum UsageRejection {
    /// Not a JSON object, not JSON, or a member twice.
    Malformed,
    /// A required count is absent or null.
    Missing(&'static str),
    /// A count is not written as an integer: fraction, exponent, string, boolean or structure.
    NotAnInteger(&'static str),
    /// A count is below zero.
    Negative(&'static str),
    /// A count is above [`TOKENS_MAX`].
    TooLarge(&'static str),
    /// A part is larger than its whole (cached input above input).
    Inconsistent(&'static str),
    /// Neither input nor output: a placeholder, since no request has an empty prompt and an empty answer.
    AllZero,
    /// A count is lower than in an earlier report of the same stream; usage is cumulative and only grows.
    Decreased,
}

impl fmt::Display for UsageRejection {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Malformed => f.write_str("usage is not a well-formed object"),
            Self::Missing(field) => write!(f, "usage lacks {field}"),
            Self::NotAnInteger(field) => write!(f, "usage {field} is not an integer"),
            Self::Negative(field) => write!(f, "usage {field} is negative"),
            Self::TooLarge(field) => write!(f, "usage {field} is above {TOKENS_MAX}"),
            Self::Inconsistent(field) => write!(f, "usage {field} is larger than its whole"),
            Self::AllZero => f.write_str("usage reports no tokens at all"),
            Self::Decreased => f.write_str("usage is lower than an earlier report"),
        }
    }
}

impl core::error::Error for UsageRejection {}

/// Reads one count strictly from its JSON text; `None` when it is absent or null.
///
/// # Errors
/// The typed reason, naming `field`.
pub fn token_count(value: Option<&RawValue>, field: &'static str) -> Result<Option<u64>, UsageRejection> {
    let Some(text) = value.map(RawValue::get) else {
        return Ok(None);
    };
    if text == "null" {
        return Ok(None);
    }
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(UsageRejection::NotAnInteger(field));
    }
    if digits.len() != text.len() {
        return Err(UsageRejection::Negative(field));
    }
    match digits.parse::<u64>() {
        Ok(count) if count <= TOKENS_MAX => Ok(Some(count)),
        _ => Err(UsageRejection::TooLarge(field)),
    }
}

/// Like [`token_count`], for a count that must be there.
///
/// # Errors
/// The typed reason, naming `field`; [`UsageRejection::Missing`] when it is absent or null.
pub fn required_count(value: Option<&RawValue>, field: &'static str) -> Result<u64, UsageRejection> {
    token_count(value, field)?.ok_or(UsageRejection::Missing(field))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Option<u64>, UsageRejection> {
        let raw: &RawValue = serde_json::from_str(text).unwrap();
        token_count(Some(raw), "n")
    }

    #[test]
    fn counts_are_integers_that_one_operation_can_have() {
        assert_eq!(read("0"), Ok(Some(0)));
        assert_eq!(read("100000000"), Ok(Some(TOKENS_MAX)));
        assert_eq!(read("null"), Ok(None));
        assert_eq!(token_count(None, "n"), Ok(None));
        let refused = [
            ("100000001", UsageRejection::TooLarge("n")),
            ("400000000000000", UsageRejection::TooLarge("n")),
            ("9223372036854775808", UsageRejection::TooLarge("n")),
            ("99999999999999999999999999", UsageRejection::TooLarge("n")),
            ("-1", UsageRejection::Negative("n")),
            ("-0", UsageRejection::Negative("n")),
            ("1.0", UsageRejection::NotAnInteger("n")),
            ("-1.5", UsageRejection::NotAnInteger("n")),
            ("1e3", UsageRejection::NotAnInteger("n")),
            ("1e999", UsageRejection::NotAnInteger("n")),
            ("\"7\"", UsageRejection::NotAnInteger("n")),
            ("true", UsageRejection::NotAnInteger("n")),
            ("[1]", UsageRejection::NotAnInteger("n")),
        ];
        for (text, reason) in refused {
            assert_eq!(read(text), Err(reason), "{text}");
        }
        assert_eq!(required_count(None, "n"), Err(UsageRejection::Missing("n")));
    }

    #[test]
    fn quality_is_written_beside_the_counts() {
        let usage = Usage { input_tokens: 3, output_tokens: 4, ..Usage::default() };
        let text = serde_json::to_string(&Metered::AtLeast(usage)).unwrap();
        assert!(text.starts_with(r#"{"kind":"at_least","input_tokens":3,"output_tokens":4,"#), "{text}");
        assert_eq!(serde_json::from_str::<Metered>(&text).unwrap(), Metered::AtLeast(usage));
        assert!(Metered::Exact(usage).is_exact());
    }
    /// Design 4: "settlement sums all attempts"; one estimate makes the sum an estimate.
    #[test]
    fn attempts_are_summed_and_keep_the_weakest_quality() {
        let usage = |n| Usage {
            input_tokens: n,
            output_tokens: 2 * n,
            cached_input_tokens: 3 * n,
            cache_write_tokens: 4 * n,
            reasoning_tokens: 5 * n,
        };
        let (exact, bound) = (Metered::Exact(usage(1)), Metered::AtLeast(usage(10)));
        for (attempts, sum) in [
            (&[][..], Metered::Exact(usage(0))),
            (&[exact], Metered::Exact(usage(1))),
            (&[exact, exact], Metered::Exact(usage(2))),
            (&[exact, bound], Metered::AtLeast(usage(11))),
            (&[bound, exact, exact], Metered::AtLeast(usage(12))),
        ] {
            assert_eq!(Metered::sum(attempts), Ok(sum));
        }
        let most = Metered::AtLeast(Usage { output_tokens: u64::MAX, ..Usage::default() });
        assert_eq!(Metered::sum(&[most, exact]), Err(UsageRejection::TooLarge("output_tokens")));
    }
}
