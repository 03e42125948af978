//! Cancel or detach: the price of a disconnect, for routes whose policy is `auto` (seed 4, "What actually decides it";
//! design 5).
//!
//! The question is what it costs not to have the answer, beside what it costs to finish it. [`AutoInputs::decide`] takes
//! what is known at the moment of the disconnect and returns an [`AutoDecision`] that keeps every input, so that anybody
//! can decide again and come to the same end.
//!
//! # Which rule decides
//!
//! The first that applies. Seed 4 holds the three properties of an artifact to be more reliable than the arithmetic, so
//! they come first wherever they speak with one voice.
//!
//! | rule | when | choice |
//! |---|---|---|
//! | `none_holds` | short, without a home, cheap to ask for again | cancel |
//! | `no_home` | no home for the result: "the same as no answer with a bill attached" | cancel |
//! | `short_and_reproducible` | short and cheap to ask for again, whatever its home | cancel |
//! | `amount_out_of_range` | a cost cannot be written in [`Micros`](crate::money::Micros) | cancel |
//! | `all_hold` | long, with a home, not cheap to ask for again | detach |
//! | `measured` | at least [`SAMPLES_MIN`] samples of the re-ask rate | the cheaper one; equal ⇒ cancel |
//! | `prior` | fewer samples, and the route has a prior | the cheaper one; equal ⇒ cancel |
//! | `no_estimate` | fewer samples and no prior | cancel |
//!
//! Seed 4 sends mixed cases to "whichever of the first and third dominates". Where those two agree that the answer is
//! cheap there is nothing to weigh, and the third rule cancels. Where they differ, or one of the three is not known, the
//! arithmetic weighs them: the first as the user's lost time, the third as the price of the second run. A home that is
//! not known does not cancel: whether readers find their way back is what the re-ask rate measures.

mod decide;
mod fingerprint;
mod re_ask;

pub use decide::{AutoDecision, AutoInputs, AutoRule, Choice, RULES_VERSION, SAMPLES_MIN, UserTime};
pub use fingerprint::{Fingerprint, MINIMA, MalformedFingerprint, NEAR_IDENTICAL_PER_MILLE, fingerprint};
pub use re_ask::{Departure, RE_ASK_WINDOW_MS, ReAskRate, Run, re_ask_rate};

use core::fmt;
use serde::{Deserialize, Serialize};

/// A share in thousandths, from 0 to 1000.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u16", into = "u16")]
pub struct PerMille(u16);

/// A share above the whole.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct AboveWhole;

impl fmt::Display for AboveWhole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a share is at most 1000 per mille")
    }
}

impl PerMille {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The whole.
    pub const WHOLE: Self = Self(1_000);

    /// A share in thousandths.
    ///
    /// # Errors
    /// [`AboveWhole`] above 1000.
    pub const fn new(thousandths: u16) -> Result<Self, AboveWhole> {
        if thousandths <= Self::WHOLE.0 { Ok(Self(thousandths)) } else { Err(AboveWhole) }
    }

    /// The number of thousandths.
    #[must_use]
    pub const fn get(self) -> u16 {
        self.0
    }

    /// `part` of `whole`, rounded down; zero of nothing. A part above its whole counts as the whole.
    #[must_use]
    pub(crate) fn of(part: u32, whole: u32) -> Self {
        let thousandths = u64::from(part.min(whole)).saturating_mul(1_000).checked_div(u64::from(whole));
        Self(thousandths.and_then(|share| u16::try_from(share).ok()).unwrap_or_default())
    }
}

impl TryFrom<u16> for PerMille {
    type Error = AboveWhole;
    fn try_from(thousandths: u16) -> Result<Self, AboveWhole> {
        Self::new(thousandths)
    }
}

impl From<PerMille> for u16 {
    fn from(share: PerMille) -> Self {
        share.0
    }
}

/// What a route makes, by the three properties of seed 4. Absent: not known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Artifact {
    /// First property: it takes long enough that a user will look away from it.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub long: Option<bool>,
    /// Second property: the output has a home in the product that is not the streaming view.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub has_home: Option<bool>,
    /// The user can cheaply make it again by asking again. The third property holds when this is *false*.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub reproducible: Option<bool>,
}

impl Artifact {
    /// Seed 4: "When all three hold, detach."
    #[must_use]
    pub fn all_hold(self) -> bool {
        self == Self { long: Some(true), has_home: Some(true), reproducible: Some(false) }
    }

    /// Seed 4: "When none holds, cancel." What is not known is not known to fail.
    #[must_use]
    pub fn none_holds(self) -> bool {
        self.has_home == Some(false) && self.is_short_and_reproducible()
    }

    /// The first and the third property are both known to fail.
    #[must_use]
    pub fn is_short_and_reproducible(self) -> bool {
        self.long == Some(false) && self.reproducible == Some(true)
    }

    /// This description with `long` taken from how long such a generation normally takes, where the route has not said.
    #[must_use]
    pub fn or_expected(self, workload: Workload, expected_ms: Option<u64>) -> Self {
        let expected = expected_ms.map(|ms| ms >= workload.long_from_ms());
        Self { long: self.long.or(expected), ..self }
    }
}

/// What kind of work a route does: presets for what the route does not say itself (design 5). Seed 1: a disconnected chat
/// request "may call for a different cancellation threshold than a long-running batch job", and agentic work needs
/// attention to effects outside.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Workload {
    /// Somebody reads along.
    #[default]
    Chat,
    /// Nobody reads along; the result is useful whenever it is there.
    Batch,
    /// A step of a program that acts by its answers: a call may have effects outside.
    Agentic,
}

impl Workload {
    /// From which expected duration on a user looks away, in milliseconds. Half a minute where somebody reads along, well
    /// between seed 4's two examples (seven seconds are watched, ninety are not); zero for batch, which nobody watches.
    #[must_use]
    pub const fn long_from_ms(self) -> u64 {
        match self {
            Self::Chat | Self::Agentic => 30_000,
            Self::Batch => 0,
        }
    }

    /// Whether a call may be repeated without anybody asking, where the route allows that. Never for agentic work: the
    /// first call may have had effects.
    #[must_use]
    pub const fn may_repeat(self) -> bool {
        !matches!(self, Self::Agentic)
    }

    /// Whether a completion after the end takes effect only after somebody has looked at it.
    #[must_use]
    pub const fn late_needs_review(self) -> bool {
        matches!(self, Self::Agentic)
    }
}
