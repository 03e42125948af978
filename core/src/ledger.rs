//! Immutable ledger movements and the balances they make. A resolution is a new posting that names its hold; nothing
//! is ever edited. The posting id makes a repeated delivery harmless.

use crate::ids::{GenerationId, ReservationId};
use crate::money::{Micros, MoneyError};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What a posting moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostingKind {
    /// Credit given by the operator: `granted` grows.
    Grant,
    /// Credit set aside for one reservation: `held` grows.
    Hold,
    /// The hold ends, its cost is spent: `held` falls by the hold, `spent` grows by the amount.
    Settle,
    /// The hold ends without cost: `held` falls by the hold.
    Release,
    /// A cost above the hold, beside its `Settle`: `spent` grows.
    Overage,
    /// A further attempt was allowed: `held` grows.
    HoldExtended,
    /// A part of an expired hold is given back, or its slot, or both: `held` falls by the amount.
    HoldReduced,
    /// A cost that became known after the hold was released by expiry: `spent` grows. Refers to the release.
    LateSettlement,
    /// Better evidence after the resolution: `spent` grows or falls. Refers to the resolution.
    Correction,
    /// A business action after the end, with its own reason: `spent` falls or grows. Refers to the resolution.
    Compensation,
}

/// Which way a posting after the resolution moves `spent`.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Direction {
    /// The tenant pays more.
    #[default]
    Charge,
    /// The tenant gets back.
    Refund,
}

impl Direction {
    /// Whether it is the direction that a posting has where none is written.
    #[must_use]
    pub const fn is_charge(&self) -> bool {
        matches!(self, Self::Charge)
    }
}

fn is_false(flag: &bool) -> bool {
    !*flag
}

impl PostingKind {
    /// The name in posting ids, rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Grant => "grant",
            Self::Hold => "hold",
            Self::Settle => "settle",
            Self::Release => "release",
            Self::Overage => "overage",
            Self::HoldExtended => "hold_extended",
            Self::HoldReduced => "hold_reduced",
            Self::LateSettlement => "late_settlement",
            Self::Correction => "correction",
            Self::Compensation => "compensation",
        }
    }

    /// Whether it ends the hold. At most one such posting exists per reservation (invariant 1).
    #[must_use]
    pub const fn resolves_hold(self) -> bool {
        matches!(self, Self::Settle | Self::Release)
    }
}

/// Why a reservation took the state it is in. Stable names, part of the API.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ReasonCode {
    /// Credit given by configuration.
    Granted,
    /// Admitted at the worst case.
    Admitted,
    /// The provider reported completion and exact usage.
    CompletedExact,
    /// The provider reported completion but no usable usage.
    CompletedWithoutUsage,
    /// Somebody asked for cancellation and the socket was closed.
    CancelledByRequest,
    /// The last reader left, the policy is `cancel`, and the socket was closed.
    CancelledOnDisconnect,
    /// The provider refused the request (4xx): nothing was executed.
    ProviderRefused,
    /// The provider answered with its own error (5xx with an error envelope): nothing is billed.
    ProviderFailed,
    /// A gateway error before the provider's answer: it may have executed.
    ProviderUnreachable,
    /// The provider reported an error inside the stream.
    ProviderErrorInBand,
    /// The stream ended, or was cut, without its terminal event.
    UpstreamInterrupted,
    /// No first byte in time.
    FirstByteTimeout,
    /// No further byte in time.
    IdleTimeout,
    /// The generation ran longer than it may.
    TotalTimeout,
    /// The output was larger than it may be.
    OutputTooLarge,
    /// The driver was lost with its socket (crash, eviction, deploy).
    DriverLost,
    /// The generation was admitted but never started.
    NeverStarted,
    /// The attempt was prepared and never submitted.
    NeverSubmitted,
    /// The provider confirmed that the operation was cancelled.
    CancelConfirmed,
    /// The provider reported that the operation failed.
    OperationFailed,
    /// The deadline was reached with an open outcome: the route keeps the hold.
    ExpiredQuarantined,
    /// The deadline was reached with an open outcome: the route keeps a smaller hold.
    ExpiredReduced,
    /// The deadline was reached with an open outcome: the route releases and goes on watching.
    ExpiredWatching,
    /// The deadline was reached with an open outcome: the route releases.
    ExpiredReleased,
    /// The deadline was reached with an open outcome: the route settles by estimate.
    ExpiredEstimated,
    /// The deadline was reached with an open outcome: an operator is called.
    Escalated,
    /// Two pieces of evidence of the same rank differ.
    EvidenceConflict,
    /// Nothing is decided yet: the driver shows life, or a newer attempt owns.
    AttemptLive,
    /// Nothing is decided yet: the outcome is open, and there is still time to learn it.
    OutcomeOpen,
    /// Nothing is decided again: the posting that resolves the hold is authored.
    PostingUnderway,
    /// A further attempt extends the hold.
    RetryExtended,
    /// A completion became known after the hold was resolved.
    LateCompletion,
    /// An operator decided.
    OperatorDecision,
    /// An operator compensates an effect that could not be undone.
    OperatorCompensation,
    /// The tenant refuses a posting for good.
    PostingRefused,
}

/// One immutable ledger movement.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Posting {
    /// `{reservation}:{epoch}:{action}:{settlement_version}`; see [`posting_id`].
    pub id: String,
    /// What it moves.
    pub kind: PostingKind,
    /// The reservation it belongs to; none for grants.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation: Option<ReservationId>,
    /// The generation of that reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationId>,
    /// The amount: granted, held, spent, or for `release` the amount returned.
    pub amount: Micros,
    /// The usage behind a settlement.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub usage: Option<Metered>,
    /// Price list version.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub price_version: Option<String>,
    /// Which way a correction or compensation goes.
    #[serde(default, skip_serializing_if = "Direction::is_charge")]
    pub direction: Direction,
    /// The posting that it corrects, compensates or makes up for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub refers_to: Option<String>,
    /// A `hold_reduced` that gives the slot back, the hold being kept.
    #[serde(default, skip_serializing_if = "is_false")]
    pub frees_slot: bool,
    /// Why.
    pub reason: ReasonCode,
    /// When it was decided, by the clock of the object that decided.
    pub decided_at: UnixMillis,
}

/// The id of a posting. Unique: the same movement delivered twice has the same id.
#[must_use]
pub fn posting_id(reservation: &ReservationId, epoch: u32, kind: PostingKind, settlement_version: u32) -> String {
    format!("{reservation}:{epoch}:{}:{settlement_version}", kind.as_str())
}

/// A tenant's balances.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Balances {
    /// Credit given.
    pub granted: Micros,
    /// Credit set aside.
    pub held: Micros,
    /// Credit spent. May exceed `granted` by overages only.
    pub spent: Micros,
}

impl Balances {
    /// `granted − held − spent`, zero when negative.
    #[must_use]
    pub fn available(&self) -> Micros {
        self.granted.saturating_minus(self.held).saturating_minus(self.spent)
    }

    /// The balances after one movement. `hold` is the hold that a resolution ends.
    ///
    /// # Errors
    /// [`MoneyError`] when a balance would leave its range; then nothing may be stored.
    pub fn after(&self, kind: PostingKind, amount: Micros, hold: Micros) -> Result<Self, MoneyError> {
        let mut next = *self;
        match kind {
            PostingKind::Grant => next.granted = self.granted.plus(amount)?,
            PostingKind::Hold => next.held = self.held.plus(amount)?,
            PostingKind::Settle => {
                next.held = self.held.minus(hold)?;
                next.spent = self.spent.plus(amount)?;
            }
            PostingKind::Release => next.held = self.held.minus(hold)?,
            PostingKind::HoldExtended => next.held = self.held.plus(amount)?,
            PostingKind::HoldReduced => next.held = self.held.minus(amount)?,
            PostingKind::Overage | PostingKind::LateSettlement => next.spent = self.spent.plus(amount)?,
            PostingKind::Correction | PostingKind::Compensation => next.spent = self.spent.plus(amount)?,
        }
        Ok(next)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn micros(n: u64) -> Micros {
        Micros::new(n).unwrap()
    }

    #[test]
    fn movements() {
        let start = Balances { granted: micros(100), ..Balances::default() };
        let held = start.after(PostingKind::Hold, micros(30), Micros::ZERO).unwrap();
        assert_eq!((held.held, held.available()), (micros(30), micros(70)));
        let settled = held.after(PostingKind::Settle, micros(12), micros(30)).unwrap();
        assert_eq!((settled.held, settled.spent, settled.available()), (Micros::ZERO, micros(12), micros(88)));
        let released = held.after(PostingKind::Release, micros(30), micros(30)).unwrap();
        assert_eq!(released, start);
        assert!(start.after(PostingKind::Release, micros(1), micros(1)).is_err(), "nothing is held");
    }

    #[test]
    fn posting_ids_name_what_they_resolve() {
        let reservation = ReservationId::from_random([1; 16]);
        assert_eq!(
            posting_id(&reservation, 1, PostingKind::Settle, 1),
            "res_01010101010101010101010101010101:1:settle:1"
        );
    }
}
