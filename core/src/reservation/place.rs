//! A place among the tenant's detached generations (design 5: `detach` goes on "within caps: time, output tokens, and
//! detached generations per tenant").
//!
//! The tenant counts places and has the cap; the reservation knows when it needs one: while its work goes on without a
//! reader, by decision of its policy. One that waits for the end of its grace needs none, and neither does one that never
//! lost its last reader: that costs no call. The word goes through the outbox like a posting. It says what is so now and
//! has a number that grows with each change, so a word that comes late or twice changes nothing. A posting that ends the
//! hold ends the place with it.

use super::command::{Reply, Transition};
use super::outbox::{Delivery, Parcel};
use super::{AbortCause, Aggregate, Lifecycle, Reservation};
use crate::ids::Identity;
use crate::refusal::DETACHED_EXCEEDED;
use crate::time::UnixMillis;
use alloc::format;
use serde::{Deserialize, Serialize};

/// Whether a place is taken, and the number of the word that said so.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Place {
    /// Grows with each change; 0 before the first.
    pub number: u32,
    /// Taken, as far as it is known here; or free.
    pub taken: bool,
}

impl Place {
    /// Whether there never was one.
    #[must_use]
    pub const fn is_untouched(&self) -> bool {
        self.number == 0
    }
}

/// What a reservation tells its tenant: its work goes on without a reader, or does so no longer.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Detached {
    /// Whose hold.
    pub identity: Identity,
    /// What is so now.
    pub place: Place,
}

fn delivery_of(place: Place, now: UnixMillis) -> Delivery {
    Delivery { posting_id: format!("place:{}", place.number), parcel: Parcel::Place, attempts: 0, next_at: now }
}

impl Transition {
    /// Sees to the place of what the transition leads to.
    pub(super) fn placed(self, before: &Aggregate, now: UnixMillis) -> Self {
        let disconnects = before.live().map_or(0, |live| live.disconnects);
        self.map_live(|live| live.keep_place(live.disconnects > disconnects, now))
    }
}

impl Reservation {
    /// Whether the work goes on to its end though nobody reads. What died with its driver does not.
    fn goes_on_alone(&self) -> bool {
        let lives = self.reconciliation.is_none() || self.terms.capabilities.outlives_socket();
        self.lifecycle == Lifecycle::Detached && lives && self.attempt.abort.is_none() && !self.stops_without_readers()
    }

    /// `left`: the last reader left just now. Readers that were lost with their driver did not leave: they may be back at
    /// any moment, and take no place.
    fn keep_place(&mut self, left: bool, now: UnixMillis) {
        let taken = self.goes_on_alone() && (left || self.place.taken);
        let (changed, over) = (taken != self.place.taken, self.resolution.is_some());
        if changed || over {
            self.deliveries.retain(|delivery| delivery.parcel != Parcel::Place);
        }
        if changed {
            self.place = Place { number: self.place.number.saturating_add(1), taken };
            self.deliveries.extend((!over).then(|| delivery_of(self.place, now)));
        }
    }

    /// What the tenant is told of the place.
    #[must_use]
    pub fn detached(&self) -> Detached {
        Detached { identity: self.identity.clone(), place: self.place }
    }

    /// The tenant gives no place. Over its cap the work is stopped, unless a reader came back meanwhile; a tenant that
    /// does not know the hold counts it nowhere. `self` has the delivery no more.
    pub(super) fn place_refused(self, refusal: &str, now: UnixMillis) -> Transition {
        if refusal == DETACHED_EXCEEDED && self.goes_on_alone() {
            return self.abort(AbortCause::DetachedMax, now, "delivery_refused");
        }
        let epoch = self.attempt.epoch();
        self.changed(Reply::Done).with_history(now, "delivery_refused", refusal, epoch)
    }
}
