//! How often users of a route come back for an answer that they left: measured over its recent runs.

use super::{Fingerprint, PerMille};
use crate::time::UnixMillis;
use alloc::collections::BTreeSet;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Within this time after a disconnect a near-identical prompt of the same client is the same question again (seed 4: "two
/// generations with near-identical prompts inside ten minutes"). Ten minutes later to the millisecond is too late.
pub const RE_ASK_WINDOW_MS: u64 = 600_000;

/// How the last reader's departure ended a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "departure", rename_all = "snake_case")]
pub enum Departure {
    /// The run was cancelled for it.
    Cancelled {
        /// When the last reader was gone.
        disconnected_at: UnixMillis,
    },
    /// The run went on to its end.
    Detached {
        /// When it ended: from then on the whole result could be read.
        finished_at: UnixMillis,
        /// Whether anybody read it after the disconnect.
        read_later: bool,
    },
}

/// One recent run of a route. It keeps no prompt and no name.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Run {
    /// Keyed hash of who asked.
    pub client: String,
    /// Keyed signature of the prompt.
    pub fingerprint: Fingerprint,
    /// When it was admitted.
    pub started_at: UnixMillis,
    /// How it ended for want of a reader; absent where a reader stayed. Such a run is no sample, but may be a repetition.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departure: Option<Departure>,
}

/// How often users came back, and from how many departures this is known.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReAskRate {
    /// Share of the departures after which the answer was wanted again, rounded down.
    pub rate_per_mille: PerMille,
    /// Departures that were counted.
    pub samples: u32,
}

impl Run {
    /// Whether `later` is the same question again after this run was cancelled. A client may ask again before the
    /// disconnect of its first run is noticed, so what counts is that it *started* later.
    fn is_asked_again_by(&self, later: &Self) -> bool {
        let Some(Departure::Cancelled { disconnected_at }) = self.departure else { return false };
        self.started_at < later.started_at
            && later.started_at.since(disconnected_at) < RE_ASK_WINDOW_MS
            && self.client == later.client
            && self.fingerprint.is_near_identical(&later.fingerprint)
    }
}

/// The re-ask rate of the route whose recent `runs` these are, in any order, as known at `now` (design 5).
///
/// After a cancelled run a new generation of the same client with a near-identical prompt counts, within
/// [`RE_ASK_WINDOW_MS`] of the disconnect; each generation counts for one cancelled run, the latest before it. After a
/// detached run a later read of the result counts. Either becomes a sample [`RE_ASK_WINDOW_MS`] after the disconnect or
/// the end, not before: counting the returns at once and the stay-aways later would show too high a rate.
///
/// The work grows with the square of the number of runs: callers pass a bounded number.
#[must_use]
pub fn re_ask_rate(runs: &[Run], now: UnixMillis) -> ReAskRate {
    let asked_again: BTreeSet<usize> = runs.iter().filter_map(|later| latest_asked_again_by(runs, later)).collect();
    let samples = runs.iter().enumerate().filter_map(|(index, run)| match run.departure? {
        Departure::Cancelled { disconnected_at } => is_over(disconnected_at, now).then(|| asked_again.contains(&index)),
        Departure::Detached { finished_at, read_later } => is_over(finished_at, now).then_some(read_later),
    });
    let (returns, samples) = samples.fold((0_u32, 0_u32), |(returns, samples), returned| {
        (returns.saturating_add(u32::from(returned)), samples.saturating_add(1))
    });
    ReAskRate { rate_per_mille: PerMille::of(returns, samples), samples }
}

fn is_over(since: UnixMillis, now: UnixMillis) -> bool {
    now.since(since) >= RE_ASK_WINDOW_MS
}

fn latest_asked_again_by(runs: &[Run], later: &Run) -> Option<usize> {
    let candidates = runs.iter().enumerate().filter(|(_, run)| run.is_asked_again_by(later));
    candidates.max_by_key(|(index, run)| (run.started_at, *index)).map(|(index, _)| index)
}
