//! An open hold against what its reservation says of itself.

use super::difference::signed;
use super::{Difference, Said, What};
use crate::money::Micros;
use crate::reservation::{Aggregate, Reservation, Tombstone};
use crate::tenant::Hold;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How a reservation stands, in the words of a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum BookedState {
    /// Never started, or not yet: it has nothing to say.
    Vacant,
    /// Its hold is kept.
    Open,
    /// Its hold ended by a settlement.
    Settled,
    /// Its hold ended by a release.
    Released,
}

impl BookedState {
    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Vacant => "vacant",
            Self::Open => "open",
            Self::Settled => "settled",
            Self::Released => "released",
        }
    }
}

/// What a reservation says about its hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReservationBooks {
    /// How it stands.
    pub state: BookedState,
    /// What it takes to be held while it is open; nothing otherwise.
    pub held: Micros,
    /// What it takes to be charged.
    pub charged: Micros,
    /// Postings on their way, or an extension whose answer has not come: the two agree once it has.
    pub underway: bool,
    /// Postings that the tenant refused for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused: Vec<String>,
}

impl ReservationBooks {
    /// What a stored aggregate says.
    #[must_use]
    pub fn of(aggregate: &Aggregate) -> Self {
        match aggregate {
            Aggregate::Vacant => Self::vacant(),
            Aggregate::Tombstone(tombstone) => Self::of_tombstone(tombstone),
            Aggregate::Live(live) => Self::of_reservation(live),
        }
    }

    /// What an object that stores nothing says.
    #[must_use]
    pub const fn vacant() -> Self {
        Self {
            state: BookedState::Vacant,
            held: Micros::ZERO,
            charged: Micros::ZERO,
            underway: false,
            refused: Vec::new(),
        }
    }

    fn of_tombstone(tombstone: &Tombstone) -> Self {
        let Tombstone { deliveries, refused_deliveries, .. } = tombstone;
        Self {
            state: BookedState::Released,
            underway: !deliveries.is_empty(),
            refused: refused_deliveries.iter().map(|refused| refused.posting_id.clone()).collect(),
            ..Self::vacant()
        }
    }

    fn of_reservation(live: &Reservation) -> Self {
        let state = match &live.resolution {
            None => BookedState::Open,
            Some(resolution) if resolution.kind == crate::ledger::PostingKind::Settle => BookedState::Settled,
            Some(_) => BookedState::Released,
        };
        let extending = live.reconciliation.is_some_and(|search| search.extending);
        Self {
            state,
            held: if state == BookedState::Open { live.hold() } else { Micros::ZERO },
            charged: live.cost.unwrap_or(Micros::ZERO),
            underway: extending || !live.deliveries.is_empty(),
            refused: live.refused_deliveries.iter().map(|refused| refused.posting_id.clone()).collect(),
        }
    }

    /// What an open hold and its reservation say differently. What is underway is no difference: it is on its way to
    /// agree. An object that is vacant has nothing to say; the sweep resolves it.
    #[must_use]
    pub fn compare(&self, hold: &Hold) -> Asked {
        let mut found = Vec::new();
        for id in &self.refused {
            found.push(Difference::new(What::ReservationPosting, id.as_str(), Said::Nothing).in_row(id));
        }
        let settles = !self.underway && self.state != BookedState::Vacant;
        if settles && self.state != BookedState::Open {
            found.push(Difference::new(What::ReservationState, hold.state.as_str(), self.state.as_str()));
        }
        if settles && self.state == BookedState::Open {
            let pairs =
                [(What::ReservationHeld, hold.held(), self.held), (What::ReservationCost, hold.charged, self.charged)];
            for (what, expected, told) in pairs.into_iter().filter(|(_, expected, told)| expected != told) {
                found.push(Difference::new(what, signed(expected), signed(told)));
            }
        }
        let differences = found.into_iter().map(|difference| difference.of_hold(hold)).collect();
        Asked { differences, underway: self.underway }
    }
}

/// What came of asking a reservation.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Asked {
    /// What does not agree.
    pub differences: Vec<Difference>,
    /// Postings are on their way.
    pub underway: bool,
}
