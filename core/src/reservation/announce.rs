//! What a transition tells the tenant. The reservation is the author, since it alone knows the order of things; the
//! tenant's side knows whether anybody listens.
//!
//! | transition | told |
//! |---|---|
//! | the lifecycle becomes `completed` | `generation.finished` |
//! | … `failed`, or it was never started | `generation.failed` |
//! | … `cancelled` | `generation.cancelled` |
//! | … `expired` | `generation.expired` |
//! | the hold becomes `disputed`, with the end or after it | `generation.disputed`, besides the event of the end |
//! | after the end a signal settles a kept hold or corrects a charge, or is put aside for review | `generation.late_completion` |
//! | anything else, an operator's decision after the end among it | nothing |
//!
//! An event travels with the last posting of its transition, so that it costs no call of its own and the ledger has what
//! it speaks of. Where a hold is kept there is no posting: then it travels by itself.

use super::command::Transition;
use super::outbox::notice_delivery;
use super::signal::{Report, SignalRow};
use super::{Aggregate, Lifecycle, Reservation, Settlement, Tombstone};
use crate::evidence::Disposition;
use crate::ids::Identity;
use crate::ledger::ReasonCode;
use crate::money::Micros;
use crate::time::UnixMillis;
use crate::webhook::event::{About, EventType, Notice};
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

impl Transition {
    /// Adds what is told about the change from `before`.
    pub(super) fn announced(mut self, before: &Aggregate, now: UnixMillis) -> Self {
        let notices = match (&self.state, before) {
            (Some(Aggregate::Live(after)), Aggregate::Live(before)) => {
                let told = told(before, after, &self.signals);
                told.into_iter().map(|kind| after.notice(kind, now)).collect()
            }
            (Some(Aggregate::Tombstone(after)), Aggregate::Vacant) => alloc::vec![after.notice(now)],
            _ => Vec::new(),
        };
        if let Some(posting) = self.postings.last_mut() {
            posting.notices = notices;
            return self;
        }
        let deliveries = notices.iter().map(|notice| notice_delivery(notice, now));
        self = self.map_live(|live| live.deliveries.extend(deliveries));
        self.notices = notices;
        self
    }
}

/// What is told of a change, in order.
fn told(before: &Reservation, after: &Reservation, signals: &[SignalRow]) -> Vec<EventType> {
    let disputed = before.settlement != Settlement::Disputed && after.settlement == Settlement::Disputed;
    let first = if before.lifecycle.is_terminal() {
        let late = signals.iter().any(|row| before.is_late_completion(row));
        (late && !disputed).then_some(EventType::LateCompletion)
    } else {
        match after.lifecycle {
            Lifecycle::Completed => Some(EventType::Finished),
            Lifecycle::Failed => Some(EventType::Failed),
            Lifecycle::Cancelled => Some(EventType::Cancelled),
            Lifecycle::Expired => Some(EventType::Expired),
            _ => None,
        }
    };
    first.into_iter().chain(disputed.then_some(EventType::Disputed)).collect()
}

impl Reservation {
    /// An end that was reported after the end, of an operation that is known here, and is not merely noted.
    fn is_late_completion(&self, row: &SignalRow) -> bool {
        matches!(row.signal.report, Report::Ended { .. })
            && self.knows(&row.signal.subject)
            && (!row.posting_ids.is_empty() || row.disposition == Disposition::Quarantined)
    }

    fn notice(&self, kind: EventType, now: UnixMillis) -> Notice {
        let review = self.review.map(|review| review.reason);
        let reason = match kind {
            EventType::LateCompletion => Some(ReasonCode::LateCompletion),
            EventType::Disputed => review.or(self.reason),
            _ => self.reason,
        };
        let about = About {
            lifecycle: self.lifecycle,
            settlement: self.settlement,
            reason: reason.unwrap_or(ReasonCode::OutcomeOpen),
            cost_micros: self.cost,
            estimated: self.usage.is_some_and(|usage| !usage.is_exact()),
            usage: self.usage.map(|usage| *usage.usage()),
            review,
            ..about(&self.identity, &self.terms.route)
        };
        Notice::of(notice_id(&self.identity, self.version, kind), kind, now, &about)
    }
}

impl Tombstone {
    fn notice(&self, now: UnixMillis) -> Notice {
        let kind = EventType::Failed;
        Notice::of(notice_id(&self.identity, 0, kind), kind, now, &about(&self.identity, &self.terms.route))
    }
}

/// What is told of a generation that never ran.
const fn about<'a>(identity: &'a Identity, route: &'a str) -> About<'a> {
    About {
        generation_id: &identity.generation,
        reservation_id: &identity.reservation,
        route,
        lifecycle: Lifecycle::Failed,
        settlement: Settlement::Released,
        reason: ReasonCode::NeverStarted,
        cost_micros: Some(Micros::ZERO),
        estimated: false,
        usage: None,
        review: None,
    }
}

/// Each stored change has a version of its own, so the same event always has the same id and no other has it.
fn notice_id(identity: &Identity, version: u64, kind: EventType) -> String {
    let hex = identity.reservation.as_str().trim_start_matches("res_");
    format!("evt_{hex}_{version}_{}", kind.short())
}
