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
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
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
}

/// One immutable ledger movement.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
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
            PostingKind::Overage => next.spent = self.spent.plus(amount)?,
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
