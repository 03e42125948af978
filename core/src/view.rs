//! What the API shows of a generation and of a tenant's balance. Pure projections of the aggregates.

use crate::ids::{AttemptId, GenerationId, ReservationId};
use crate::ledger::{Balances, ReasonCode};
use crate::money::Micros;
use crate::policy::{OnDisconnect, Owner, Terms};
use crate::reservation::{
    Aggregate, Attempt, ConnectionState, Lifecycle, LogFacts, Reservation, Settlement, Tombstone, UpstreamState,
};
use crate::tenant::{Admitted, Hold, TenantState};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::string::String;
use alloc::vec::Vec;
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
            reason: reservation.reason,
            ended_at: reservation.ended_at,
            ..base
        }
    }
}

/// An open hold as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HoldView {
    /// Its reservation.
    pub reservation_id: ReservationId,
    /// Its generation.
    pub generation_id: GenerationId,
    /// What is held now.
    pub hold_micros: Micros,
    /// When it was admitted.
    pub admitted_at: UnixMillis,
    /// When it is looked into, if it is still open.
    pub due_at: UnixMillis,
}

/// Whether the balances agree with the postings and the holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckView {
    /// They agree.
    pub consistent: bool,
}

/// A tenant's balance as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BalanceView {
    /// `balance`.
    pub object: String,
    /// Credit given.
    pub granted_micros: Micros,
    /// Credit set aside.
    pub held_micros: Micros,
    /// Credit spent.
    pub spent_micros: Micros,
    /// What may still be held.
    pub available_micros: Micros,
    /// Open holds that have not given their slot back.
    pub slots_in_use: u32,
    /// The open holds, oldest first, at most a hundred.
    pub holds: Vec<HoldView>,
    /// Recomputed from postings and holds.
    pub check: CheckView,
}

impl BalanceView {
    /// The view of a tenant. `recomputed` are the balances over all postings, `open` the open holds, `slots` those that
    /// have their slot, `open_sum` the total that is held (invariant 11).
    #[must_use]
    pub fn of(tenant: &TenantState, recomputed: &Balances, open: &[Hold], slots: u64, open_sum: Micros) -> Self {
        let consistent = tenant.balances == *recomputed
            && tenant.balances.held == open_sum
            && u64::from(tenant.slots_in_use) == slots;
        Self {
            object: "balance".into(),
            granted_micros: tenant.balances.granted,
            held_micros: tenant.balances.held,
            spent_micros: tenant.balances.spent,
            available_micros: tenant.balances.available(),
            slots_in_use: tenant.slots_in_use,
            holds: open
                .iter()
                .map(|hold| HoldView {
                    reservation_id: hold.identity.reservation.clone(),
                    generation_id: hold.identity.generation.clone(),
                    hold_micros: hold.held(),
                    admitted_at: hold.admitted_at,
                    due_at: hold.due_at,
                })
                .collect(),
            check: CheckView { consistent },
        }
    }
}
