//! What the API shows of a generation, of a tenant's balance and of its books. Pure projections of the aggregates.

mod balance;
mod books;
mod page;

pub use balance::{BalanceView, CheckView, Consistency, HoldView, OpenTotals, RouteSlots};
pub use books::{BalancesView, GenerationSummary, InvoiceLineView, LedgerCheckView, LedgerEntryView, UsageRecordView};
pub use page::{Cursor, List, MalformedCursor, Page};

use crate::ids::{AttemptId, GenerationId, ReservationId};
use crate::ledger::ReasonCode;
use crate::money::Micros;
use crate::policy::{OnDisconnect, Owner, Terms};
use crate::reconcile::Outcome;
use crate::reservation::{
    Aggregate, Assessment, Attempt, ConnectionState, Lifecycle, LogFacts, Reservation, Settlement, ToldResult,
    Tombstone, UpstreamState,
};
use crate::tenant::Admitted;
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::boxed::Box;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Who reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ConnectionView {
    /// Connected, disconnected or reconnected.
    pub state: ConnectionState,
    /// Readers attached now.
    pub readers: u32,
    /// Furthest byte given to any reader.
    pub furthest_offset: u64,
}

/// What the provider does.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpstreamView {
    /// State of the attempt.
    pub state: UpstreamState,
    /// Which attempt.
    pub epoch: u32,
    /// Its id.
    pub attempt_id: AttemptId,
    /// The provider's id for it.
    pub operation_id: Option<String>,
    /// Why the provider stopped.
    pub finish_reason: Option<String>,
    /// HTTP status that readers get, once the provider has answered.
    pub status: Option<u16>,
}

/// What is held and charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CostView {
    /// The hold.
    pub hold_micros: Micros,
    /// What was charged, once it is settled.
    pub settled_micros: Option<Micros>,
    /// The charge is an upper bound, not the provider's own count.
    pub estimated: bool,
}

/// The chunk log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LogView {
    /// Bytes, those on their way to the disk included.
    pub length: u64,
    /// Nothing will be added.
    pub closed: bool,
    /// Past retention, or not kept.
    pub deleted: bool,
}

/// A result that was learnt outside of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResultView {
    /// What the provider says that its operation came to.
    pub outcome: Outcome,
    /// Bytes.
    pub length: u64,
    /// When it was learnt.
    pub told_at: UnixMillis,
    /// It can be read. One above the bound, or past its retention, cannot.
    pub kept: bool,
}

/// A generation as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GenerationView {
    /// Its id.
    pub id: GenerationId,
    /// `generation`.
    pub object: String,
    /// Its hold.
    pub reservation_id: ReservationId,
    /// When it was started (or resolved, if it never was).
    pub created_at: UnixMillis,
    /// Route.
    pub route: String,
    /// Provider.
    pub provider: String,
    /// Model as the client named it.
    pub model: String,
    /// Who reads from the provider.
    pub owner: Owner,
    /// What a disconnect does.
    pub on_disconnect: OnDisconnect,
    /// What the last disconnect was found to cost, and what policy `auto` makes of it; absent without one. Its amounts and
    /// tokens are estimates: nothing is charged by them.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub auto: Option<Box<Assessment>>,
    /// First machine: the client side.
    pub connection: ConnectionView,
    /// Second machine: the provider.
    pub upstream: UpstreamView,
    /// Third machine: the reservation.
    pub lifecycle: Lifecycle,
    /// State of the hold.
    pub settlement: Settlement,
    /// The tenant has acknowledged the settlement.
    pub settled: bool,
    /// Usage that it is settled by.
    pub usage: Option<Metered>,
    /// Hold and charge.
    pub cost: CostView,
    /// The chunk log.
    pub log: LogView,
    /// Why it ended as it did.
    pub reason: Option<ReasonCode>,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
    /// The provider's final response, where a lookup brought it and the log has no whole answer; absent otherwise.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ResultView>,
}

/// What only the running object knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LiveFacts {
    /// Readers attached now.
    pub readers: u32,
    /// Furthest byte given to any reader.
    pub furthest_offset: u64,
    /// Bytes received and not yet stored.
    pub unstored_bytes: u64,
}

impl GenerationView {
    /// The view of what an object stores; `None` when it is vacant.
    #[must_use]
    pub fn of(aggregate: &Aggregate, log: &LogFacts, live: &LiveFacts) -> Option<Self> {
        match aggregate {
            Aggregate::Vacant => None,
            Aggregate::Tombstone(tombstone) => Some(Self::of_tombstone(tombstone)),
            Aggregate::Live(reservation) => Some(Self::of_reservation(reservation, log, live)),
        }
    }

    /// The view of a generation that was admitted and not started yet.
    #[must_use]
    pub fn of_admitted(admitted: &Admitted) -> Self {
        Self::base(&admitted.identity, &admitted.attempt, &admitted.terms, admitted.admitted_at)
    }

    fn base(identity: &crate::ids::Identity, attempt: &AttemptId, terms: &Terms, created_at: UnixMillis) -> Self {
        Self {
            id: identity.generation.clone(),
            object: "generation".into(),
            reservation_id: identity.reservation.clone(),
            created_at,
            route: terms.route.clone(),
            provider: terms.provider.clone(),
            model: terms.model.clone(),
            owner: terms.owner,
            on_disconnect: terms.on_disconnect,
            auto: None,
            connection: ConnectionView { state: ConnectionState::Connected, readers: 0, furthest_offset: 0 },
            upstream: UpstreamView {
                state: UpstreamState::Prepared,
                epoch: 1,
                attempt_id: attempt.clone(),
                operation_id: None,
                finish_reason: None,
                status: None,
            },
            lifecycle: Lifecycle::Active,
            settlement: Settlement::Pending,
            settled: false,
            usage: None,
            cost: CostView { hold_micros: terms.hold, settled_micros: None, estimated: false },
            log: LogView { length: 0, closed: false, deleted: false },
            reason: None,
            ended_at: None,
            result: None,
        }
    }

    fn of_tombstone(tombstone: &Tombstone) -> Self {
        let base = Self::base(&tombstone.identity, &tombstone.attempt, &tombstone.terms, tombstone.resolved_at);
        Self {
            connection: ConnectionView { state: ConnectionState::Disconnected, ..base.connection },
            lifecycle: Lifecycle::Failed,
            settlement: Settlement::Released,
            settled: tombstone.deliveries.is_empty(),
            cost: CostView { settled_micros: Some(Micros::ZERO), ..base.cost },
            log: LogView { closed: true, ..base.log },
            reason: Some(ReasonCode::NeverStarted),
            ended_at: Some(tombstone.resolved_at),
            ..base
        }
    }

    fn of_reservation(reservation: &Reservation, log: &LogFacts, live: &LiveFacts) -> Self {
        let terminal = reservation.lifecycle.is_terminal();
        let Attempt { id, lease, upstream, operation_id, finish_reason, responded_at, .. } = &reservation.attempt;
        let base = Self::base(&reservation.identity, id, &reservation.terms, reservation.created_at);
        let stored = &reservation.connection;
        let state = match (live.readers, stored.state) {
            (0, ConnectionState::Connected | ConnectionState::Reconnected) if terminal => ConnectionState::Disconnected,
            (1.., ConnectionState::Disconnected) => ConnectionState::Reconnected,
            (_, state) => state,
        };
        Self {
            connection: ConnectionView {
                state,
                readers: live.readers,
                furthest_offset: stored.furthest_offset.max(live.furthest_offset),
            },
            upstream: UpstreamView {
                state: *upstream,
                epoch: lease.epoch,
                operation_id: operation_id.clone(),
                finish_reason: finish_reason.clone(),
                status: reservation.head.as_ref().filter(|_| responded_at.is_some()).map(|head| head.status),
                ..base.upstream
            },
            lifecycle: reservation.lifecycle,
            settlement: reservation.settlement,
            settled: reservation.acknowledged_at.is_some(),
            usage: reservation.usage,
            cost: CostView {
                hold_micros: reservation.hold(),
                settled_micros: reservation.cost,
                estimated: reservation.usage.is_some_and(|usage| !usage.is_exact()),
            },
            log: LogView {
                length: log.length.saturating_add(live.unstored_bytes),
                closed: terminal,
                deleted: reservation.content_deleted,
            },
            auto: reservation.assessment.clone(),
            reason: reservation.reason,
            ended_at: reservation.ended_at,
            result: reservation.result.map(|ToldResult { outcome, length, told_at, kept }| ResultView {
                outcome,
                length,
                told_at,
                kept: kept && !reservation.content_deleted,
            }),
            ..base
        }
    }
}
