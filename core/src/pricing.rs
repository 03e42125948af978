//! What usage costs. Prices are pinned at admission by version; a cost is rounded up once, at settlement.

use crate::glob::glob_matches;
use crate::money::{Micros, MoneyError};
use crate::usage::{Metered, Usage};
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
    /// Output tokens; reasoning too, where it has no price of its own.
    pub output_micros_per_million: u64,
    /// Input tokens that the provider read from its cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cached_input_micros_per_million: Option<u64>,
    /// Input tokens that the provider wrote to its cache; the input price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cache_write_micros_per_million: Option<u64>,
    /// Output tokens spent on reasoning; the output price when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reasoning_micros_per_million: Option<u64>,
    /// The provider bills output that it does not stream (reasoning): content bytes are then no upper bound,
    /// and an attempt without exact usage takes its whole hold.
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

/// What a token is billed as. The counts of a usage report overlap (cached input is input); the tiers do not.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Tier {
    /// Input that was neither read from the cache nor written to it.
    Input,
    /// Input read from the provider's cache.
    CachedInput,
    /// Input written to the provider's cache.
    CacheWrite,
    /// Output that is no reasoning.
    Output,
    /// Output spent on reasoning.
    Reasoning,
}

/// One line of a cost: a quantity at its price, not rounded.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CostPart {
    /// What is billed.
    pub tier: Tier,
    /// How many tokens.
    pub tokens: u64,
    /// Their price in micro-USD per million.
    pub micros_per_million: u64,
    /// Tokens times price: millionths of a micro-USD.
    pub millionths: u64,
}

impl CostPart {
    fn new(tier: Tier, tokens: u64, micros_per_million: u64) -> Result<Self, MoneyError> {
        let millionths = tokens.checked_mul(micros_per_million).ok_or(MoneyError)?;
        Ok(Self { tier, tokens, micros_per_million, millionths })
    }
}

/// Millionths of a micro-USD in one: what costs are summed in, so that a sum is rounded once.
pub const MILLIONTHS: u128 = 1_000_000;

/// The one rounding rule: whatever is charged together is summed in millionths of a micro-USD, and the sum is rounded up.
///
/// # Errors
/// [`MoneyError`] when the amount is out of range.
pub fn rounded_up(millionths: u128) -> Result<Micros, MoneyError> {
    u64::try_from(millionths.div_ceil(MILLIONTHS)).map_err(|_| MoneyError).and_then(Micros::new)
}

/// The sum of parts, in millionths of a micro-USD.
#[must_use]
pub fn millionths_of(parts: &[CostPart]) -> u128 {
    parts.iter().fold(0, |sum, part| sum.saturating_add(u128::from(part.millionths)))
}

impl ModelPrice {
    /// The cost of `usage`, rounded up once to whole micro-USD. Each part of a count is priced at its own tier where
    /// there is one.
    ///
    /// # Errors
    /// [`MoneyError`] when the amount is out of range.
    pub fn cost(&self, usage: &Usage) -> Result<Micros, MoneyError> {
        rounded_up(millionths_of(&self.exact_parts(usage)?))
    }

    /// The most that so many tokens can cost: every token at the dearest tier that it may turn out to be of.
    ///
    /// # Errors
    /// [`MoneyError`] when the amount is out of range.
    pub fn worst_case(&self, input_tokens: u64, output_tokens: u64) -> Result<Micros, MoneyError> {
        rounded_up(millionths_of(&self.bound_parts(input_tokens, output_tokens)?))
    }

    /// The cost of what was metered: exact counts by their tiers, a bound at the worst case.
    ///
    /// # Errors
    /// [`MoneyError`] when the amount is out of range.
    pub fn cost_of(&self, metered: &Metered) -> Result<Micros, MoneyError> {
        rounded_up(millionths_of(&self.cost_parts(metered)?))
    }

    /// The parts of [`Self::cost_of`], those without tokens left out. [`millionths_of`] and [`rounded_up`] make the cost of them.
    ///
    /// # Errors
    /// [`MoneyError`] when a part is out of range.
    pub fn cost_parts(&self, metered: &Metered) -> Result<Vec<CostPart>, MoneyError> {
        match metered {
            Metered::Exact(usage) => self.exact_parts(usage),
            Metered::AtLeast(usage) => self.bound_parts(usage.input_tokens, usage.output_tokens),
        }
    }

    /// Parts never exceed their whole: what a report counts too much is left out.
    fn exact_parts(&self, usage: &Usage) -> Result<Vec<CostPart>, MoneyError> {
        let cached = usage.cached_input_tokens.min(usage.input_tokens);
        let uncached = usage.input_tokens.saturating_sub(cached);
        let written = usage.cache_write_tokens.min(uncached);
        let reasoning = usage.reasoning_tokens.min(usage.output_tokens);
        parts(
            [
                (Tier::Input, uncached.saturating_sub(written)),
                (Tier::CachedInput, cached),
                (Tier::CacheWrite, written),
                (Tier::Output, usage.output_tokens.saturating_sub(reasoning)),
                (Tier::Reasoning, reasoning),
            ]
            .map(|(tier, tokens)| (tier, tokens, self.micros_per_million(tier))),
        )
    }

    fn bound_parts(&self, input_tokens: u64, output_tokens: u64) -> Result<Vec<CostPart>, MoneyError> {
        let input = self.dearest(Tier::Input, &[Tier::CachedInput, Tier::CacheWrite]);
        let output = self.dearest(Tier::Output, &[Tier::Reasoning]);
        parts([(input.0, input_tokens, input.1), (output.0, output_tokens, output.1)])
    }

    /// The dearest tier of a whole and its price; the whole itself where its parts cost no more.
    fn dearest(&self, whole: Tier, tiers: &[Tier]) -> (Tier, u64) {
        let priced = |tier| (tier, self.micros_per_million(tier));
        let dearer = |a: (Tier, u64), b: (Tier, u64)| if b.1 > a.1 { b } else { a };
        tiers.iter().map(|tier| priced(*tier)).fold(priced(whole), dearer)
    }

    /// The price of a tier; that of its whole where it has none of its own.
    #[must_use]
    pub fn micros_per_million(&self, tier: Tier) -> u64 {
        match tier {
            Tier::Input => self.input_micros_per_million,
            Tier::CachedInput => self.cached_input_micros_per_million.unwrap_or(self.input_micros_per_million),
            Tier::CacheWrite => self.cache_write_micros_per_million.unwrap_or(self.input_micros_per_million),
            Tier::Output => self.output_micros_per_million,
            Tier::Reasoning => self.reasoning_micros_per_million.unwrap_or(self.output_micros_per_million),
        }
    }
}

fn parts<const N: usize>(priced: [(Tier, u64, u64); N]) -> Result<Vec<CostPart>, MoneyError> {
    let with_tokens = priced.into_iter().filter(|(_, tokens, _)| *tokens > 0);
    with_tokens.map(|(tier, tokens, price)| CostPart::new(tier, tokens, price)).collect()
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
            cache_write_micros_per_million: None,
            reasoning_micros_per_million: None,
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

    /// Every tier at its own price, and at the price of its whole where it has none. Overlapping counts are split, so a
    /// token is billed once.
    #[test]
    fn tiers() {
        let all = Usage {
            input_tokens: 1_000,
            output_tokens: 500,
            cached_input_tokens: 400,
            cache_write_tokens: 100,
            reasoning_tokens: 300,
        };
        let tiered = ModelPrice {
            cache_write_micros_per_million: Some(3_750_000),
            reasoning_micros_per_million: Some(20_000_000),
            ..price()
        };
        let plain = ModelPrice { cached_input_micros_per_million: None, ..price() };
        let listed = |price: &ModelPrice, usage: Usage| {
            let parts = price.cost_parts(&Metered::Exact(usage)).unwrap();
            assert_eq!(rounded_up(millionths_of(&parts)), price.cost(&usage), "the parts sum to the cost");
            parts.iter().map(|part| (part.tier, part.tokens, part.micros_per_million)).collect::<Vec<_>>()
        };
        assert_eq!(
            listed(&tiered, all),
            [
                (Tier::Input, 500, 3_000_000),
                (Tier::CachedInput, 400, 300_000),
                (Tier::CacheWrite, 100, 3_750_000),
                (Tier::Output, 200, 15_000_000),
                (Tier::Reasoning, 300, 20_000_000),
            ]
        );
        assert_eq!(tiered.cost(&all), Micros::new(1_500 + 120 + 375 + 3_000 + 6_000));
        assert_eq!(plain.cost(&all), Micros::new(1_000 * 3 + 500 * 15), "without tiers, wholes are billed");
        let excess = Usage { cached_input_tokens: 900, cache_write_tokens: 900, reasoning_tokens: 900, ..all };
        assert_eq!(
            listed(&tiered, excess),
            [(Tier::CachedInput, 900, 300_000), (Tier::CacheWrite, 100, 3_750_000), (Tier::Reasoning, 500, 20_000_000),]
        );
    }

    /// A bound is no bound if a token can turn out to be of a dearer tier than it was held for.
    #[test]
    fn a_bound_takes_the_dearest_tier() {
        let dear = ModelPrice {
            cache_write_micros_per_million: Some(3_750_000),
            reasoning_micros_per_million: Some(20_000_000),
            ..price()
        };
        assert_eq!(price().worst_case(1_000, 100), Micros::new(3_000 + 1_500));
        assert_eq!(dear.worst_case(1_000, 100), Micros::new(3_750 + 2_000));
        let bound = Metered::AtLeast(usage(1_000, 100, 1_000));
        assert_eq!(dear.cost_of(&bound), dear.worst_case(1_000, 100), "cached input of a bound was not reported");
        let tiers: Vec<_> = dear.cost_parts(&bound).unwrap().iter().map(|part| (part.tier, part.millionths)).collect();
        assert_eq!(tiers, [(Tier::CacheWrite, 3_750_000_000), (Tier::Reasoning, 2_000_000_000)]);
    }

    #[test]
    fn overflow_is_an_error() {
        for (input, output) in [(u64::MAX, 0), (0, u64::MAX), (7_000_000_000_000, 0), (0, 1_300_000_000_000)] {
            assert_eq!(price().cost(&usage(input, output, 0)), Err(MoneyError), "{input} in, {output} out");
            assert_eq!(price().worst_case(input, output), Err(MoneyError));
        }
        // The sum of parts has more room than a part: only an amount that is out of range is refused.
        assert_eq!(price().worst_case(5_000_000_000_000, 1_000_000_000_000), Micros::new(30_000_000_000_000));
        let most = u128::from(Micros::MAX.get()) * MILLIONTHS;
        assert_eq!((rounded_up(most), rounded_up(most + 1)), (Ok(Micros::MAX), Err(MoneyError)));
        assert_eq!(rounded_up(u128::MAX), Err(MoneyError));
    }
}
