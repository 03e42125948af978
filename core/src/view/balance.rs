//! What the API shows of a tenant's balance.

use crate::ids::{GenerationId, ReservationId};
use crate::money::Micros;
use crate::tenant::books::{Difference, Verified, What};
use crate::tenant::{Hold, TenantState};
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

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

impl HoldView {
    fn of(hold: &Hold) -> Self {
        Self {
            reservation_id: hold.identity.reservation.clone(),
            generation_id: hold.identity.generation.clone(),
            hold_micros: hold.held(),
            admitted_at: hold.admitted_at,
            due_at: hold.due_at,
        }
    }
}

/// What one route holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RouteSlots {
    /// Its name at admission.
    pub route: String,
    /// Open holds of it that have their slot.
    pub slots_in_use: u64,
    /// What they hold, those without a slot included.
    pub held_micros: Micros,
}

/// Sums over the open holds.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct OpenTotals {
    /// Those that have their slot.
    pub slots: u64,
    /// What all of them hold.
    pub held: Micros,
    /// By route.
    pub routes: Vec<RouteSlots>,
    /// Those whose generation goes on without a reader.
    pub detached: u32,
}

/// What the balance was checked against: the ledger as far as it was read, and the open holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Consistency {
    /// The ledger from its beginning, as far as it was read.
    pub verified: Verified,
    /// What did not agree in what was read last.
    pub differences: Vec<Difference>,
}

impl Consistency {
    /// Compares the tenant's row with what was read, once all is read, and with the open holds.
    #[must_use]
    pub fn of(verified: Verified, read: Vec<Difference>, tenant: &TenantState, open: &OpenTotals) -> Self {
        let mut differences = read;
        if verified.head.seq >= tenant.audit.seq {
            differences.extend(verified.agrees_with(&tenant.audit, &tenant.balances));
        }
        if tenant.balances.held != open.held {
            differences.push(Difference::new(What::HeldByPostings, open.held, tenant.balances.held));
        }
        if u64::from(tenant.slots_in_use) != open.slots {
            differences.push(Difference::new(What::SlotsByPostings, open.slots, u64::from(tenant.slots_in_use)));
        }
        Self { verified, differences }
    }
}

/// Whether the balances agree with ledger and holds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CheckView {
    /// Nothing that was looked at differs.
    pub consistent: bool,
    /// How far the ledger was read, from its beginning.
    #[serde(default)]
    pub verified_seq: u64,
    /// How long it is.
    #[serde(default)]
    pub seq: u64,
    /// What differs.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub differences: Vec<Difference>,
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
    /// The same by route, for routes that hold something.
    #[serde(default)]
    pub routes: Vec<RouteSlots>,
    /// The open holds, oldest first, at most a hundred.
    pub holds: Vec<HoldView>,
    /// Compared with ledger and holds.
    pub check: CheckView,
    /// Generations that go on without a reader.
    #[serde(default)]
    pub detached: u32,
}

impl BalanceView {
    /// The view of a tenant. `holds` are the oldest open ones, `open` sums over all of them (invariant 11).
    #[must_use]
    pub fn of(tenant: &TenantState, holds: &[Hold], open: OpenTotals, checked: Consistency) -> Self {
        Self {
            object: "balance".into(),
            granted_micros: tenant.balances.granted,
            held_micros: tenant.balances.held,
            spent_micros: tenant.balances.spent,
            available_micros: tenant.balances.available(),
            slots_in_use: tenant.slots_in_use,
            detached: open.detached,
            routes: open.routes,
            holds: holds.iter().map(HoldView::of).collect(),
            check: CheckView {
                consistent: checked.differences.is_empty(),
                verified_seq: checked.verified.head.seq,
                seq: tenant.audit.seq,
                differences: checked.differences,
            },
        }
    }
}
