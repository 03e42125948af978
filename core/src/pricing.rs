//! What usage costs. Prices are pinned at admission by version; a cost is rounded up once, at settlement.

use crate::glob::glob_matches;
use crate::money::{Micros, MoneyError};
use crate::usage::Usage;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Price of one model, in micro-USD per million tokens (the same number as USD per token × 10^12).
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ModelPrice {
    /// Model name or glob (`*` matches any run of characters). First match wins.
    pub model: String,
    /// Input tokens.
    pub input_micros_per_million: u64,
    /// Output tokens, reasoning included.
    pub output_micros_per_million: u64,
    /// Input tokens that the provider read from its cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_micros_per_million: Option<u64>,
    /// The provider bills output that it does not stream (reasoning): content bytes are then no upper bound,
    /// and a settlement without exact usage takes the whole hold.
    #[serde(default)]
    pub hidden_output: bool,
}

/// A provider's prices under one version name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct PriceList {
    /// Name of this version, stored with every settlement.
    pub version: String,
    /// Prices by model; first match wins.
    pub models: Vec<ModelPrice>,
}

impl PriceList {
    /// The price of `model`, if the list has one.
    #[must_use]
    pub fn price_of(&self, model: &str) -> Option<&ModelPrice> {
        self.models.iter().find(|price| glob_matches(&price.model, model))
    }
}

impl ModelPrice {
    /// The cost of `usage`, rounded up once to whole micro-USD.
    ///
    /// Cached input is part of `input_tokens` and is priced at its own tier where there is one.
    ///
    /// # Errors
    /// [`MoneyError`] when the amount is out of range.
    pub fn cost(&self, usage: &Usage) -> Result<Micros, MoneyError> {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let fresh = usage.input_tokens.saturating_sub(cached);
        let cached_price = self.cached_input_micros_per_million.unwrap_or(self.input_micros_per_million);
        let parts = [
            (fresh, self.input_micros_per_million),
            (cached, cached_price),
            (usage.output_tokens, self.output_micros_per_million),
        ];
        let millionths = parts.iter().try_fold(0_u128, |sum, (tokens, price)| {
            u128::from(*tokens).checked_mul(u128::from(*price)).and_then(|part| sum.checked_add(part))
        });
        let micros = millionths.ok_or(MoneyError)?.div_ceil(1_000_000);
        u64::try_from(micros).map_err(|_| MoneyError).and_then(Micros::new)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn price() -> ModelPrice {
        ModelPrice {
            model: "m".into(),
            input_micros_per_million: 3_000_000,
            output_micros_per_million: 15_000_000,
            cached_input_micros_per_million: Some(300_000),
            hidden_output: false,
        }
    }

    fn usage(input: u64, output: u64, cached: u64) -> Usage {
        Usage { input_tokens: input, output_tokens: output, cached_input_tokens: cached, ..Usage::default() }
    }

    /// Seed 4: 12,000 in and 7,000 out at $3 and $15 per million cost $0.036 + $0.105 = $0.141.
    #[test]
    fn long_form_example_of_the_seed() {
        assert_eq!(price().cost(&usage(12_000, 7_000, 0)), Micros::new(141_000));
    }

    #[test]
    fn rounds_up_once() {
        let cheap = ModelPrice { input_micros_per_million: 1, output_micros_per_million: 1, ..price() };
        assert_eq!(cheap.cost(&usage(1, 1, 0)), Micros::new(1), "two fractions make one micro, not two");
        assert_eq!(cheap.cost(&usage(0, 0, 0)), Micros::new(0));
    }

    #[test]
    fn cached_input_has_its_tier_and_never_exceeds_input() {
        assert_eq!(price().cost(&usage(1_000, 0, 400)), Micros::new(600 * 3 + 120));
        assert_eq!(price().cost(&usage(10, 0, 1_000)), Micros::new(3));
    }

    #[test]
    fn overflow_is_an_error() {
        assert_eq!(price().cost(&usage(u64::MAX, u64::MAX, 0)), Err(MoneyError));
    }
}
