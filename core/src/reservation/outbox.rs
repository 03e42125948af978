//! What is on its way to the tenant: postings, what is told of a change that has none, and the names of operations. At
//! least once, until it is acknowledged or refused for good.

use super::attempt::Attempt;
use super::record::Heard;
use super::{Aggregate, Reply, Reservation, Tombstone, Transition};
use crate::deadline::backoff_ms;
use crate::ledger::{Posting, ReasonCode};
use crate::time::UnixMillis;
use crate::webhook::Notice;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Parcel {
    /// A posting, with what is told about it.
    #[default]
    Posting,
    /// What is told of a change that has no posting.
    Notice,
    /// The provider's name of an operation, so that a callback finds its generation. It has no row: the state has it.
    Operation,
    /// Whether the work goes on without a reader; its body is the aggregate's own [`super::Place`].
    Place,
}

impl Parcel {
    const fn is_posting(&self) -> bool {
        matches!(self, Self::Posting)
    }
}

/// A parcel that the tenant has not acknowledged yet. The body of a posting or notice is the outbox row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Delivery {
    /// Which posting; of another parcel its own id.
    pub posting_id: String,
    /// Which kind.
    #[serde(default, skip_serializing_if = "Parcel::is_posting")]
    pub parcel: Parcel,
    /// Deliveries that failed.
    pub attempts: u32,
    /// When it is tried again.
    pub next_at: UnixMillis,
}

/// A posting that the tenant refused for good. It is kept and shown to an operator; nothing unresolved is deleted.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RefusedDelivery {
    /// Which posting.
    pub posting_id: String,
    /// The refusal's stable name.
    pub refusal: String,
    /// When it was refused.
    pub at: UnixMillis,
}

/// The first delivery of a posting: at once.
pub(super) fn delivery(posting: &Posting, now: UnixMillis) -> Delivery {
    Delivery { posting_id: posting.id.clone(), parcel: Parcel::Posting, attempts: 0, next_at: now }
}

/// The first delivery of a notice: at once.
pub(super) fn notice_delivery(notice: &Notice, now: UnixMillis) -> Delivery {
    Delivery { posting_id: notice.id.clone(), parcel: Parcel::Notice, attempts: 0, next_at: now }
}

impl Transition {
    /// Puts the name of an operation on its way, once it is known and the provider calls back about it.
    pub(super) fn with_operation(self, before: &Aggregate, now: UnixMillis) -> Self {
        let named_before = |attempt: &Attempt| {
            before.live().is_some_and(|live| live.attempts().any(|it| it.id == attempt.id && it.operation_id.is_some()))
        };
        self.map_live(|live| {
            let Some(posting_id) = live.operation_parcel(&live.attempt) else { return };
            if !named_before(&live.attempt) {
                live.deliveries.push(Delivery { posting_id, parcel: Parcel::Operation, attempts: 0, next_at: now });
            }
        })
    }
}

fn parcel_of(deliveries: &[Delivery], id: &str) -> Option<Parcel> {
    deliveries.iter().find(|delivery| delivery.posting_id == id).map(|delivery| delivery.parcel)
}

fn without(deliveries: &[Delivery], posting_id: &str) -> Vec<Delivery> {
    deliveries.iter().filter(|delivery| delivery.posting_id != posting_id).cloned().collect()
}

fn postponed(deliveries: &[Delivery], posting_id: &str, now: UnixMillis) -> Vec<Delivery> {
    let later = |delivery: &Delivery| {
        if delivery.posting_id != posting_id {
            return delivery.clone();
        }
        let next_at = now.plus(backoff_ms(delivery.attempts));
        Delivery { attempts: delivery.attempts.saturating_add(1), next_at, ..delivery.clone() }
    };
    deliveries.iter().map(later).collect()
}

fn refused(posting_id: &str, refusal: &str, now: UnixMillis) -> RefusedDelivery {
    RefusedDelivery { posting_id: posting_id.into(), refusal: refusal.into(), at: now }
}

impl Tombstone {
    pub(super) fn acknowledge(&self, posting_id: &str, heard: Heard<'_>, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.deliveries = without(&self.deliveries, posting_id);
        if next.deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        let evidence = next.hear_of(posting_id, heard, now);
        Transition { evidence, ..Transition::to(Aggregate::Tombstone(Box::new(next)), Reply::Done) }
    }

    pub(super) fn delivery_failed(&self, posting_id: &str, now: UnixMillis) -> Transition {
        self.delivering(postponed(&self.deliveries, posting_id, now))
    }

    pub(super) fn delivery_refused(&self, posting_id: &str, refusal: &str, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.deliveries = without(&self.deliveries, posting_id);
        if next.deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        next.refused_deliveries.push(refused(posting_id, refusal, now));
        let evidence = next.hear_of(posting_id, Heard::Refused(refusal), now);
        let transition = Transition::to(Aggregate::Tombstone(Box::new(next)), Reply::Done);
        Transition { evidence, ..transition }.with_history(now, "delivery_refused", refusal, 0)
    }

    fn delivering(&self, deliveries: Vec<Delivery>) -> Transition {
        if deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        Transition::to(Aggregate::Tombstone(Box::new(Self { deliveries, ..self.clone() })), Reply::Done)
    }
}

impl Reservation {
    /// The parcel that names the operation of an attempt, where the provider calls back and has named it.
    fn operation_parcel(&self, attempt: &Attempt) -> Option<String> {
        let named = attempt.operation_id.is_some() && self.terms.capabilities.callback;
        named.then(|| format!("{}:{}:operation", self.identity.reservation, attempt.first_epoch))
    }

    /// The operation that a parcel of [`Parcel::Operation`] names.
    #[must_use]
    pub fn operation_of(&self, parcel_id: &str) -> Option<&str> {
        let attempt = self.attempts().find(|attempt| self.operation_parcel(attempt).as_deref() == Some(parcel_id))?;
        attempt.operation_id.as_deref()
    }

    pub(super) fn acknowledge(&self, posting_id: &str, heard: Heard<'_>, now: UnixMillis) -> Transition {
        let deliveries = without(&self.deliveries, posting_id);
        if deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        // Settled is what has its postings applied: nothing else settles, and what was refused for good has not arrived.
        let acknowledged_at = if parcel_of(&self.deliveries, posting_id) != Some(Parcel::Posting) {
            self.acknowledged_at
        } else {
            let arrived = !deliveries.iter().any(|delivery| delivery.parcel == Parcel::Posting);
            (arrived && self.refused_deliveries.is_empty()).then_some(now)
        };
        let mut next = Self { deliveries, acknowledged_at, ..self.clone() };
        let evidence = next.hear_of(posting_id, heard, now);
        Transition { evidence, ..next.changed(Reply::Done) }
    }

    pub(super) fn delivery_failed(&self, posting_id: &str, now: UnixMillis) -> Transition {
        let deliveries = postponed(&self.deliveries, posting_id, now);
        if deliveries == self.deliveries {
            // Acknowledged meanwhile: a late failure brings nothing back.
            return Transition::unchanged(Reply::Done);
        }
        Self { deliveries, ..self.clone() }.changed(Reply::Done)
    }

    /// The ledger and this reservation disagree: the posting is put aside, and an operator is asked to look.
    pub(super) fn delivery_refused(&self, posting_id: &str, refusal: &str, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.deliveries = without(&self.deliveries, posting_id);
        if next.deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        match parcel_of(&self.deliveries, posting_id) {
            Some(Parcel::Place) => return next.place_refused(refusal, now),
            // Nobody's balance depends on it.
            Some(Parcel::Notice | Parcel::Operation) => {}
            Some(Parcel::Posting) | None => {
                next.refused_deliveries.push(refused(posting_id, refusal, now));
                next.ask_for_review(ReasonCode::PostingRefused, now);
            }
        }
        let evidence = next.hear_of(posting_id, Heard::Refused(refusal), now);
        let transition = Transition { evidence, ..next.changed(Reply::Done) };
        transition.with_history(now, "delivery_refused", refusal, self.attempt.epoch())
    }
}
