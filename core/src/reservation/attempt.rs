//! Attempts and their leases: who may write, and until when.
//!
//! A lease names its owner and its epoch, not merely a time (seed 2, "Use bounded leases for worker ownership"): a
//! renewal of an older epoch is refused and recorded. Whether it has expired is a function of rows and of now, never of
//! an alarm.

use super::cancel::CancelRequest;
use super::machine::upstream::UpstreamState;
use super::resume::Resumption;
use crate::finding::Source;
use crate::ids::AttemptId;
use crate::policy::{Owner, Terms};
use crate::reconcile::Outcome;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use crate::usage::{Metered, Usage};
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Who may write for an attempt, and since when.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// Where the driver runs.
    pub owner: Owner,
    /// Fences the writes of older attempts and drivers: 1, 2, …
    pub epoch: u32,
    /// Last renewal that was written for its own sake. An append renews too, by its own row.
    pub renewed_at: UnixMillis,
    /// Last such renewal of the owner that this epoch fenced: what its loss was judged by. None while the owner of this
    /// epoch shows life itself.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub fenced_owner_renewed_at: Option<UnixMillis>,
}

impl Lease {
    /// When the owner counts as lost. A stored batch is a sign of life like any other.
    #[must_use]
    pub fn expires_at(&self, last_append_at: Option<UnixMillis>, lease_ms: u64) -> UnixMillis {
        last_append_at.map_or(self.renewed_at, |at| at.max(self.renewed_at)).plus(lease_ms)
    }

    /// The last renewal by an owner: of this epoch, or of the one that it fenced.
    #[must_use]
    pub fn owner_renewed_at(&self) -> UnixMillis {
        self.fenced_owner_renewed_at.unwrap_or(self.renewed_at)
    }

    /// Refuses whoever is not the owner of now.
    ///
    /// # Errors
    /// [`Refusal::StaleEpoch`] for any other epoch, older or made up.
    pub const fn allow(&self, epoch: u32) -> Result<(), Refusal> {
        if epoch == self.epoch { Ok(()) } else { Err(Refusal::StaleEpoch { current: self.epoch }) }
    }

    /// The lease after a sign of life. Time never goes back, even where a clock does.
    #[must_use]
    pub fn renewed(self, now: UnixMillis) -> Self {
        Self { renewed_at: self.renewed_at.max(now), fenced_owner_renewed_at: None, ..self }
    }

    /// The lease of a new epoch: from here on, what the old one writes is refused.
    #[must_use]
    pub fn taken_over(self, now: UnixMillis) -> Self {
        let fenced_owner_renewed_at = Some(self.owner_renewed_at());
        Self { epoch: self.epoch.saturating_add(1), fenced_owner_renewed_at, ..self.renewed(now) }
    }
}

/// Why the driver is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortCause {
    /// Somebody asked.
    Request,
    /// Policy `cancel` after the last reader left.
    Disconnect,
    /// No first byte in time.
    FirstByteTimeout,
    /// No further byte in time.
    IdleTimeout,
    /// The whole took too long.
    TotalTimeout,
    /// Its last reader left, and the tenant has as many generations without a reader as it may have.
    DetachedMax,
    /// The answer was larger than allowed, and goes on at the provider.
    TooLarge,
}

impl AbortCause {
    /// The name in the history.
    pub(super) const fn outcome(self) -> &'static str {
        match self {
            Self::Request => "abort_request",
            Self::Disconnect => "abort_disconnect",
            Self::FirstByteTimeout => "abort_first_byte_timeout",
            Self::IdleTimeout => "abort_idle_timeout",
            Self::TotalTimeout => "abort_total_timeout",
            Self::DetachedMax => "abort_detached_max",
            Self::TooLarge => "abort_too_large",
        }
    }
}

/// What is known with authority of what the attempt came to: of each part the strongest that was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reported {
    /// What it came to.
    pub outcome: Outcome,
    /// Who said that.
    pub source: Source,
    /// Its terminal usage, if anybody told.
    pub usage: Option<Usage>,
    /// Who told the usage.
    pub usage_source: Source,
}

impl Reported {
    /// One statement of one source.
    #[must_use]
    pub const fn by(source: Source, outcome: Outcome, usage: Option<Usage>) -> Self {
        Self { outcome, source, usage, usage_source: source }
    }
}

/// The usage that an attempt is accounted with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Accounted {
    /// The counts and their quality.
    pub metered: Metered,
    /// Where they come from.
    pub source: Source,
}

/// One execution upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Its own id: a retry is never mistaken for the original execution.
    pub id: AttemptId,
    /// The first epoch of this attempt; the lease's epoch is the one of now.
    pub first_epoch: u32,
    /// What the provider does.
    pub upstream: UpstreamState,
    /// When it was prepared; the first one with the reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub prepared_at: Option<UnixMillis>,
    /// When it was submitted.
    pub submitted_at: Option<UnixMillis>,
    /// When the provider's headers came.
    pub responded_at: Option<UnixMillis>,
    /// The provider's own id for it.
    pub operation_id: Option<String>,
    /// Why the provider stopped.
    pub finish_reason: Option<String>,
    /// Who may write.
    pub lease: Lease,
    /// The driver was told to stop; the first cause stands.
    pub abort: Option<AbortCause>,
    /// The provider was asked to cancel it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cancel: Option<CancelRequest>,
    /// What a lookup, a callback or a fenced driver said about it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reported: Option<Reported>,
    /// When the provider last said that it runs; nothing since has said otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub running_at: Option<UnixMillis>,
    /// Two statements of the same rank differ: no rule decides about it any more.
    #[serde(default)]
    pub conflict: bool,
    /// What it is settled by.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub accounted: Option<Accounted>,
    /// How its stream was taken up again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumption: Option<Resumption>,
    /// It is to be stopped and has no name yet: its driver reads on until the provider names it, until then at the latest.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name_by: Option<UnixMillis>,
}

impl Attempt {
    /// A new attempt: intent, and nothing sent.
    #[must_use]
    pub fn prepared(id: AttemptId, epoch: u32, terms: &Terms, now: UnixMillis) -> Self {
        Self {
            id,
            first_epoch: epoch,
            upstream: UpstreamState::Prepared,
            prepared_at: Some(now),
            submitted_at: None,
            responded_at: None,
            operation_id: None,
            finish_reason: None,
            lease: Lease { owner: terms.owner, epoch, renewed_at: now, fenced_owner_renewed_at: None },
            abort: None,
            cancel: None,
            reported: None,
            running_at: None,
            conflict: false,
            accounted: None,
            resumption: None,
            name_by: None,
        }
    }

    /// The epoch that owns.
    #[must_use]
    pub const fn epoch(&self) -> u32 {
        self.lease.epoch
    }

    /// Whether a driver of this epoch worked for this attempt.
    #[must_use]
    pub const fn had_epoch(&self, epoch: u32) -> bool {
        self.first_epoch <= epoch && epoch <= self.lease.epoch
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: UnixMillis = UnixMillis(1_000);

    fn lease() -> Lease {
        Lease { owner: Owner::Object, epoch: 3, renewed_at: AT, fenced_owner_renewed_at: None }
    }

    /// Seed 2, "Use bounded leases for worker ownership": a renewal of an old attempt is rejected.
    #[test]
    fn only_the_epoch_of_now_may_write() {
        for (epoch, allowed) in [(0, false), (2, false), (3, true), (4, false), (u32::MAX, false)] {
            assert_eq!(lease().allow(epoch).is_ok(), allowed, "{epoch}");
        }
        assert_eq!(lease().allow(2), Err(Refusal::StaleEpoch { current: 3 }));
    }

    #[test]
    fn a_lease_ends_after_the_last_sign_of_life_of_any_kind() {
        for (append, expires_at) in [(None, 1_500), (Some(900), 1_500), (Some(1_000), 1_500), (Some(1_400), 1_900)] {
            assert_eq!(lease().expires_at(append.map(UnixMillis), 500), UnixMillis(expires_at), "{append:?}");
        }
    }

    #[test]
    fn renewal_keeps_the_epoch_and_never_goes_back() {
        assert_eq!(lease().renewed(UnixMillis(1_200)), Lease { renewed_at: UnixMillis(1_200), ..lease() });
        assert_eq!(lease().renewed(UnixMillis(800)), lease(), "a clock that steps back shortens no lease");
    }

    #[test]
    fn a_take_over_fences_the_old_owner() {
        let next = lease().taken_over(UnixMillis(9_000));
        let fenced_owner_renewed_at = Some(AT);
        assert_eq!(next, Lease { epoch: 4, renewed_at: UnixMillis(9_000), fenced_owner_renewed_at, ..lease() });
        assert!(next.allow(3).is_err() && next.allow(4).is_ok());
        assert_eq!((next.owner_renewed_at(), lease().owner_renewed_at()), (AT, AT), "the loss was judged by it");
        let driven_again = next.renewed(UnixMillis(9_500));
        assert_eq!(driven_again.owner_renewed_at(), UnixMillis(9_500));
        assert_eq!(next.taken_over(UnixMillis(9_900)).owner_renewed_at(), AT, "nobody drove in between");
    }

    #[test]
    fn an_attempt_knows_its_epochs() {
        let mut attempt = Attempt {
            id: AttemptId::from_random([1; 16]),
            first_epoch: 2,
            upstream: UpstreamState::Prepared,
            prepared_at: None,
            submitted_at: None,
            responded_at: None,
            operation_id: None,
            finish_reason: None,
            lease: lease(),
            abort: None,
            cancel: None,
            reported: None,
            running_at: None,
            conflict: false,
            accounted: None,
            resumption: None,
            name_by: None,
        };
        assert_eq!([1, 2, 3, 4].map(|epoch| attempt.had_epoch(epoch)), [false, true, true, false]);
        attempt.lease.epoch = 4;
        assert_eq!((attempt.epoch(), attempt.had_epoch(4)), (4, true));
    }
}
