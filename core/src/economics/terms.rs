//! What is pinned at admission, so that a disconnect can be priced without asking anybody.

use super::{Artifact, AutoInputs, PerMille, ReAskRate, UserTime};
use crate::pricing::ModelPrice;
use serde::{Deserialize, Serialize};

/// Bytes of text that count as one token where no provider has counted: about what English prose has. It is an estimate
/// and decides between two policies; what is held and charged is made from bounds and counts, never from this.
pub const BYTES_PER_TOKEN: u64 = 4;

/// Tokens of so many bytes of text, estimated: see [`BYTES_PER_TOKEN`].
#[must_use]
pub const fn estimated_tokens(bytes: u64) -> u64 {
    bytes.div_ceil(BYTES_PER_TOKEN)
}

/// Where the length of a whole run is taken from.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ExpectedFrom {
    /// The mean over the route's completed runs, never above the request's own limit.
    Measured,
    /// Too few runs have completed: the limit sent upstream, over all choices. No run is longer; so finishing looks dear,
    /// which errs towards cancelling.
    OutputLimit,
}

/// What a decision needs that is known at admission. A later measurement or configuration does not reach it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AutoTerms {
    /// What the route makes.
    #[serde(default)]
    pub artifact: Artifact,
    /// How often users of the route asked again, as measured at admission.
    #[serde(default)]
    pub measured: ReAskRate,
    /// How often they do by the route's own word.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prior_per_mille: Option<PerMille>,
    /// The users' time, where the tenant values it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_time: Option<UserTime>,
    /// Input tokens, estimated from the size of the request body: see [`estimated_tokens`]. The hold has the bound.
    pub input_tokens: u64,
    /// Output tokens of a whole run.
    pub expected_output_tokens: u64,
    /// Where that number is from.
    pub expected_from: ExpectedFrom,
}

impl AutoTerms {
    /// The inputs of a decision at the moment when so many output tokens were produced.
    #[must_use]
    pub fn inputs(&self, price: &ModelPrice, produced_output_tokens: u64) -> AutoInputs {
        AutoInputs {
            artifact: self.artifact,
            input_tokens: self.input_tokens,
            expected_output_tokens: self.expected_output_tokens,
            produced_output_tokens,
            price: price.clone(),
            measured: self.measured,
            prior_per_mille: self.prior_per_mille,
            user_time: self.user_time,
        }
    }
}
