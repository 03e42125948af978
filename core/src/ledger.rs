//! Immutable ledger movements and the balances they make. A resolution is a new posting that names its hold; nothing
//! is ever edited. The posting id makes a repeated delivery harmless.
//!
//! Four things that are easily confused are four types (seed 2: "a reservation represents held capacity, credit, or
//! budget. A usage event records measured consumption. An invoice line expresses a billable amount. A ledger entry
//! records a financial movement"):
//!
//! | type | says |
//! |---|---|
//! | [`crate::reservation::Reservation`] | what is held, and for what |
//! | [`UsageRecord`] | what one attempt consumed, as measured, and who measured it |
//! | [`InvoiceLine`] | what is billed, at which price, and on which usage records it stands |
//! | [`LedgerEntry`] | what one [`Posting`] moved, and the balances after it |

mod balances;
mod entry;
mod invoice;
mod receipt;
mod usage_record;
mod usage_sums;

pub use balances::Balances;
pub use entry::LedgerEntry;
pub use invoice::InvoiceLine;
pub use receipt::Receipt;
pub use usage_record::{Observed, UsageRecord, usage_record_id};
pub use usage_sums::{ChargedAs, GROUPS_MAX, GroupBy, GroupKey, GroupSum, SumError, UsageGroup, UsageSums};

use crate::ids::{GenerationId, ReservationId};
use crate::money::Micros;
use crate::time::UnixMillis;
use crate::usage::{Metered, Usage};
use crate::webhook::Notice;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What a posting moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum PostingKind {
    /// Credit given by the operator: `granted` grows.
    Grant,
    /// Credit set aside for one reservation: `held` grows, and a slot is taken.
    Hold,
    /// The hold ends, its cost is spent: `held` falls by all that is still held, `spent` grows by the amount.
    Settle,
    /// The hold ends without cost: `held` falls by all that is still held.
    Release,
    /// A cost above the hold, beside its `Settle`: `spent` grows.
    Overage,
    /// A further attempt was allowed: `held` grows. Authored by the tenant itself.
    HoldExtended,
    /// A part of an expired hold is given back, or its slot, or both: `held` falls by the amount. The hold stays open.
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

    /// Every kind.
    pub const ALL: [Self; 10] = [
        Self::Grant,
        Self::Hold,
        Self::Settle,
        Self::Release,
        Self::Overage,
        Self::HoldExtended,
        Self::HoldReduced,
        Self::LateSettlement,
        Self::Correction,
        Self::Compensation,
    ];

    /// The kind of that name.
    #[must_use]
    pub fn parse(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|kind| kind.as_str() == name)
    }

    /// Whether it ends the hold. At most one such posting exists per reservation (invariant 1).
    #[must_use]
    pub const fn resolves_hold(self) -> bool {
        matches!(self, Self::Settle | Self::Release)
    }

    /// Whether it changes what is spent. Each such posting has one invoice line.
    #[must_use]
    pub const fn bills(self) -> bool {
        match self {
            Self::Settle | Self::Overage | Self::LateSettlement | Self::Correction | Self::Compensation => true,
            Self::Grant | Self::Hold | Self::HoldExtended | Self::HoldReduced | Self::Release => false,
        }
    }

    /// Whether it must name the posting that it corrects, compensates or makes up for.
    #[must_use]
    pub const fn refers(self) -> bool {
        matches!(self, Self::LateSettlement | Self::Correction | Self::Compensation)
    }

    /// Whether it may go either way; every other kind has one.
    #[must_use]
    pub const fn has_direction(self) -> bool {
        matches!(self, Self::Correction | Self::Compensation)
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
    /// The last reader left, the work would have gone on, and the tenant's cap of such generations was reached: the
    /// socket was closed.
    DetachedExceeded,
}

impl ReasonCode {
    /// Whether a release for this reason leaves open what ran: the deadline or an operator ended the hold, no evidence
    /// did. The same call is then not repeated by itself (invariant 12).
    #[must_use]
    pub const fn leaves_outcome_open(self) -> bool {
        matches!(
            self,
            Self::ExpiredWatching
                | Self::ExpiredReleased
                | Self::Escalated
                | Self::EvidenceConflict
                | Self::OperatorDecision
        )
    }
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
    /// The amount: granted, held, given back or spent. For `release` what its author takes to be held: what is held in
    /// fact may be more, by an extension whose answer was lost, and all of it is returned.
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
    /// The measured consumption it stands on. It travels with the posting, so neither is ever known without the other.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub usage_records: Vec<UsageRecord>,
    /// What its transition tells the tenant, see [`crate::webhook`]. It travels with the posting and is no part of it:
    /// what is applied, compared and kept is without it.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub notices: Vec<Notice>,
    /// Why.
    pub reason: ReasonCode,
    /// When it was decided, by the clock of the object that decided.
    pub decided_at: UnixMillis,
    /// The part of `usage` that is an upper bound, where the rest was counted by the provider: some attempts told their
    /// usage, others did not. Absent where all of it is of one quality.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub estimated_usage: Option<Usage>,
}

impl Posting {
    /// A posting that belongs to no reservation, and has no more to it than these.
    #[must_use]
    pub const fn new(
        id: String,
        kind: PostingKind,
        amount: Micros,
        reason: ReasonCode,
        decided_at: UnixMillis,
    ) -> Self {
        Self {
            id,
            kind,
            reservation: None,
            generation: None,
            amount,
            usage: None,
            price_version: None,
            direction: Direction::Charge,
            refers_to: None,
            frees_slot: false,
            usage_records: Vec::new(),
            notices: Vec::new(),
            reason,
            decided_at,
            estimated_usage: None,
        }
    }

    /// The movement alone.
    #[must_use]
    pub fn without_notices(&self) -> Self {
        Self { notices: Vec::new(), ..self.clone() }
    }

    /// What no posting of a reservation may be, whatever the state of its hold; the reason in stable words.
    #[must_use]
    pub fn contradiction(&self) -> Option<&'static str> {
        let foreign = |record: &UsageRecord| Some(&record.reservation) != self.reservation.as_ref();
        if matches!(self.kind, PostingKind::Grant | PostingKind::Hold | PostingKind::HoldExtended) {
            Some("authored by the tenant alone")
        } else if self.direction == Direction::Refund && !self.kind.has_direction() {
            Some("refund of a kind that only charges")
        } else if self.frees_slot && self.kind != PostingKind::HoldReduced {
            Some("frees_slot of a kind that keeps or ends the hold")
        } else if self.kind.refers() && self.refers_to.is_none() {
            Some("without refers_to")
        } else if self.usage_records.iter().any(foreign) {
            Some("usage of another reservation")
        } else {
            None
        }
    }
}

/// The id of a posting. Unique: the same movement delivered twice has the same id.
#[must_use]
pub fn posting_id(reservation: &ReservationId, epoch: u32, kind: PostingKind, settlement_version: u32) -> String {
    format!("{reservation}:{epoch}:{}:{settlement_version}", kind.as_str())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn posting_ids_name_what_they_resolve() {
        let reservation = ReservationId::from_random([1; 16]);
        assert_eq!(
            posting_id(&reservation, 1, PostingKind::Settle, 1),
            "res_01010101010101010101010101010101:1:settle:1"
        );
    }

    #[test]
    fn kinds_have_their_names() {
        for kind in PostingKind::ALL {
            assert_eq!(PostingKind::parse(kind.as_str()), Some(kind));
            assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{}\"", kind.as_str()));
        }
        assert_eq!(PostingKind::parse("Settle"), None);
    }

    /// Audit rows hash these bytes: members that a posting does not have leave no trace in them.
    #[test]
    fn bytes_of_a_posting_are_pinned() {
        let amount = Micros::new(5).unwrap();
        let posting =
            Posting::new("config:grant:5".into(), PostingKind::Grant, amount, ReasonCode::Granted, UnixMillis(1));
        let bytes = r#"{"id":"config:grant:5","kind":"grant","amount":5,"reason":"granted","decided_at":1}"#;
        assert_eq!(serde_json::to_string(&posting).unwrap(), bytes);
        assert_eq!(serde_json::from_str::<Posting>(bytes).unwrap(), posting);
    }
}
