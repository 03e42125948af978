//! The price of one disconnect, and the decision that follows from it.

use super::{Artifact, PerMille, ReAskRate};
use crate::money::{Micros, MoneyError};
use crate::pricing::ModelPrice;
use crate::usage::Usage;
use serde::{Deserialize, Serialize};

/// Version of the rules below, stored with every decision. It rises when the same inputs may lead elsewhere.
pub const RULES_VERSION: u32 = 1;

/// From this many samples on the measured rate counts (design 5).
pub const SAMPLES_MIN: u32 = 30;

const MS_PER_MINUTE: u128 = 60_000;

/// What happens to the generation whose last reader is gone.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Choice {
    /// It is aborted after the grace time.
    Cancel,
    /// It goes on to its end, within the caps.
    Detach,
}

/// The rule that decided, in the order of the module's table.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AutoRule {
    /// None of the three properties holds: cancel.
    NoneHolds,
    /// The result would have no home: cancel.
    NoHome,
    /// Short and cheap to ask for again: cancel.
    ShortAndReproducible,
    /// A cost is no amount of money that can be written: cancel.
    AmountOutOfRange,
    /// All three properties hold: detach.
    AllHold,
    /// The measured re-ask rate was used: the cheaper one.
    Measured,
    /// Too few samples; the route's prior was used: the cheaper one.
    Prior,
    /// Too few samples and no prior: cancel.
    NoEstimate,
}

/// What a user's time is worth, where the tenant has said so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct UserTime {
    /// Value of one minute of a user.
    pub minute_micros: Micros,
    /// Time that a user loses who has to ask again, in milliseconds.
    pub lost_ms: u64,
}

/// What is known at the moment of the disconnect. Everything that a rule uses, and nothing else.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AutoInputs {
    /// What the route makes.
    pub artifact: Artifact,
    /// Input tokens: charged already, and again with every further run.
    pub input_tokens: u64,
    /// Output tokens of a whole run. Where there is no better expectation, the limit sent upstream: too high a number
    /// makes finishing look dear, which errs towards cancelling.
    pub expected_output_tokens: u64,
    /// Output tokens so far. Above the expectation nothing counts as left, and a whole run is as long as this one.
    pub produced_output_tokens: u64,
    /// The pinned price.
    pub price: ModelPrice,
    /// How often users of this route asked again, as measured.
    pub measured: ReAskRate,
    /// How often they do by the route's own word, for the time without enough samples.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_per_mille: Option<PerMille>,
    /// The users' time, where the tenant values it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_time: Option<UserTime>,
}

/// A decision of policy `auto` with all that led to it. It is stored as evidence; [`Self::is_reproduced`] decides again.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AutoDecision {
    /// Version of the rules.
    pub rules_version: u32,
    /// What follows.
    pub choice: Choice,
    /// The rule that decided.
    pub why: AutoRule,
    /// The re-ask rate behind `cost_of_cancelling`: measured, or the prior; absent where there is neither.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rate_per_mille: Option<PerMille>,
    /// Remaining output at its price. Absent when out of range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_to_finish: Option<Micros>,
    /// Re-ask rate × (price of a whole run + value of the time lost). Absent without a rate and when out of range.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cost_of_cancelling: Option<Micros>,
    /// What it was decided from.
    pub inputs: AutoInputs,
}

/// The two sides, each rounded up once to whole micro-USD. The decision compares these very numbers, so that whoever
/// reads the record sees the comparison that was made.
#[derive(Clone, Copy)]
struct Costs {
    to_finish: Micros,
    of_cancelling: Option<Micros>,
}

impl Costs {
    fn cheaper(self) -> Choice {
        match self.of_cancelling {
            Some(of_cancelling) if self.to_finish < of_cancelling => Choice::Detach,
            _ => Choice::Cancel,
        }
    }
}

impl AutoInputs {
    /// Decides, by the first rule of the module's table that applies. There is always a decision.
    #[must_use]
    pub fn decide(self) -> AutoDecision {
        let rate = self.rate();
        let costs = self.costs(rate).ok();
        let why = self.rule(costs.is_some());
        let choice = match (why, costs) {
            (AutoRule::AllHold, _) => Choice::Detach,
            (AutoRule::Measured | AutoRule::Prior, Some(costs)) => costs.cheaper(),
            _ => Choice::Cancel,
        };
        AutoDecision {
            rules_version: RULES_VERSION,
            choice,
            why,
            rate_per_mille: rate,
            cost_to_finish: self.cost_to_finish().ok(),
            cost_of_cancelling: costs.and_then(|costs| costs.of_cancelling),
            inputs: self,
        }
    }

    /// What a whole run costs, input included.
    ///
    /// # Errors
    /// [`MoneyError`] when out of range.
    pub fn cost_of_run(&self) -> Result<Micros, MoneyError> {
        let output_tokens = self.expected_output_tokens.max(self.produced_output_tokens);
        self.price.cost(&Usage { input_tokens: self.input_tokens, output_tokens, ..Usage::default() })
    }

    /// What the output costs that is still to come: all that cancelling saves.
    ///
    /// # Errors
    /// [`MoneyError`] when out of range.
    pub fn cost_to_finish(&self) -> Result<Micros, MoneyError> {
        let output_tokens = self.expected_output_tokens.saturating_sub(self.produced_output_tokens);
        self.price.cost(&Usage { output_tokens, ..Usage::default() })
    }

    fn rule(&self, costs_in_range: bool) -> AutoRule {
        if self.artifact.none_holds() {
            AutoRule::NoneHolds
        } else if self.artifact.has_home == Some(false) {
            AutoRule::NoHome
        } else if self.artifact.is_short_and_reproducible() {
            AutoRule::ShortAndReproducible
        } else if !costs_in_range {
            AutoRule::AmountOutOfRange
        } else if self.artifact.all_hold() {
            AutoRule::AllHold
        } else if self.is_measured() {
            AutoRule::Measured
        } else if self.prior_per_mille.is_some() {
            AutoRule::Prior
        } else {
            AutoRule::NoEstimate
        }
    }

    fn is_measured(&self) -> bool {
        self.measured.samples >= SAMPLES_MIN
    }

    fn rate(&self) -> Option<PerMille> {
        if self.is_measured() { Some(self.measured.rate_per_mille) } else { self.prior_per_mille }
    }

    fn costs(&self, rate: Option<PerMille>) -> Result<Costs, MoneyError> {
        let (to_finish, run) = (self.cost_to_finish()?, self.cost_of_run()?);
        let of_cancelling = rate.map(|rate| self.cost_of_cancelling(rate, run)).transpose()?;
        Ok(Costs { to_finish, of_cancelling })
    }

    fn cost_of_cancelling(&self, rate: PerMille, run: Micros) -> Result<Micros, MoneyError> {
        let time = self.user_time.unwrap_or(UserTime { minute_micros: Micros::ZERO, lost_ms: 0 });
        let run_share = u128::from(run.get()).checked_mul(MS_PER_MINUTE);
        let time_share = u128::from(time.minute_micros.get()).checked_mul(u128::from(time.lost_ms));
        let whole = run_share.zip(time_share).and_then(|(run, time)| run.checked_add(time));
        let expected = whole.and_then(|whole| whole.checked_mul(u128::from(rate.get())));
        let micros = expected.ok_or(MoneyError)?.div_ceil(MS_PER_MINUTE.saturating_mul(1_000));
        u64::try_from(micros).map_err(|_| MoneyError).and_then(Micros::new)
    }
}

impl AutoDecision {
    /// Whether the same inputs lead to the same decision under the rules of today.
    #[must_use]
    pub fn is_reproduced(&self) -> bool {
        self.inputs.clone().decide() == *self
    }
}
