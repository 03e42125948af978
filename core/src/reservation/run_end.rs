//! What an ended run tells its tenant about the route: who came back, and what was produced for nobody (seed 4, "The shape
//! each policy leaves on a dashboard"). It travels with the postings of the end and moves no money.

use super::command::{Reply, Transition};
use super::{AbortCause, Assessment, ConnectionState, IN_FLIGHT_TOKENS, Lifecycle, LogFacts, Reservation};
use crate::economics::{Choice, Departure};
use crate::ids::GenerationId;
use crate::policy::OnDisconnect;
use crate::time::UnixMillis;
use crate::usage::Metered;
use serde::{Deserialize, Serialize};

/// How a run ended, as its route is measured by it. Counts and times only.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RunEnd {
    /// Which run.
    pub generation: GenerationId,
    /// How it ended.
    pub lifecycle: Lifecycle,
    /// When.
    pub ended_at: UnixMillis,
    /// How often its last reader left.
    #[serde(default)]
    pub disconnects: u32,
    /// How the departure of its readers ended it; absent where a reader stayed, or came back within the grace time, and
    /// where something else ended it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub departure: Option<Departure>,
    /// The last time that its readers left it went on without them.
    #[serde(default)]
    pub went_on: bool,
    /// What that time was found to cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessment: Option<Assessment>,
    /// The usage it is settled by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Metered>,
    /// Output tokens that readers were given, in the measure of `usage`: where that is a bound, so is this. All that was
    /// seen where a reader stayed to the end; otherwise the part of it that lies before the furthest byte that any reader
    /// was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_output_tokens: Option<u64>,
}

impl Reservation {
    /// What the ended run tells; `None` while it runs.
    #[must_use]
    pub fn run_end(&self) -> Option<RunEnd> {
        let ended_at = self.ended_at.filter(|_| self.lifecycle.is_terminal())?;
        Some(RunEnd {
            generation: self.identity.generation.clone(),
            lifecycle: self.lifecycle,
            ended_at,
            disconnects: self.disconnects,
            departure: self.departure(ended_at),
            went_on: self.went_on(),
            assessment: self.assessment.as_deref().cloned(),
            usage: self.usage,
            delivered_output_tokens: self.delivered_output_tokens,
        })
    }

    fn went_on(&self) -> bool {
        let by_assessment = || self.assessment.as_ref().map(|assessment| assessment.decision.choice);
        self.disconnects > 0
            && self.attempt.abort != Some(AbortCause::DetachedMax)
            && match self.terms.on_disconnect {
                OnDisconnect::Cancel => false,
                OnDisconnect::Detach => true,
                OnDisconnect::Auto => by_assessment() == Some(Choice::Detach),
            }
    }

    fn departure(&self, finished_at: UnixMillis) -> Option<Departure> {
        let alone = self.connection.state == ConnectionState::Disconnected;
        match self.lifecycle {
            Lifecycle::Cancelled
                if matches!(self.attempt.abort, Some(AbortCause::Disconnect | AbortCause::DetachedMax)) =>
            {
                // A reader that came back after the stop has taken the time of the disconnect with it.
                let assessed_at = self.assessment.as_ref().map(|assessment| assessment.at);
                let disconnected_at = self.connection.disconnected_at.or(assessed_at).unwrap_or(finished_at);
                Some(Departure::Cancelled { disconnected_at })
            }
            // Nobody read to the end, whatever the policy was about to do; or somebody came back for what went on.
            Lifecycle::Completed if self.disconnects > 0 && (alone || self.went_on()) => {
                Some(Departure::Detached { finished_at, read_later: !alone })
            }
            _ => None,
        }
    }

    /// See [`RunEnd::delivered_output_tokens`]. The last batch may not be stored yet, so the part that was sent is too large
    /// by that at most.
    pub(super) fn delivered(&self, usage: Option<Metered>, log: &LogFacts) -> Option<u64> {
        let seen = match usage? {
            Metered::Exact(usage) => usage.output_tokens,
            Metered::AtLeast(usage) => usage.output_tokens.saturating_sub(IN_FLIGHT_TOKENS),
        };
        if self.connection.state != ConnectionState::Disconnected {
            return Some(seen);
        }
        let sent = self.connection.furthest_offset;
        let part = u128::from(seen).saturating_mul(u128::from(sent)).checked_div(u128::from(log.length.max(sent)));
        Some(part.and_then(|part| u64::try_from(part).ok()).unwrap_or_default())
    }

    /// Whether a read after the end tells something that the tenant does not know: somebody came back for a result that
    /// was made without readers.
    #[must_use]
    pub fn read_is_news(&self) -> bool {
        let unread = |end: RunEnd| matches!(end.departure, Some(Departure::Detached { read_later: false, .. }));
        !self.read_told && self.run_end().is_some_and(unread)
    }

    /// The tenant was told; once is enough.
    pub(super) fn read_told(&self) -> Transition {
        if !self.read_is_news() {
            return Transition::unchanged(Reply::Done);
        }
        let mut next = self.clone();
        next.read_told = true;
        next.changed(Reply::Done)
    }
}
