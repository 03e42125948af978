//! The tenant still holds what this reservation has resolved, and nothing is on its way: a row was lost on one side or the
//! other. What was authored is sent again; ids make a repeat harmless (invariants 6 and 7).
//!
//! | found | then |
//! |---|---|
//! | the resolving posting is on its way | it stays on its way |
//! | it was acknowledged, and the tenant holds all the same | all that was authored is sent again, in order |
//! | its row is gone, and nothing was posted since | it is made again from the state, which has all of it |
//! | another row is gone, or something was posted since | put aside, for an operator |
//! | the tenant refused it for good | it stays put aside: sending it again changes nothing |

use super::command::{Reply, Transition};
use super::conclude::Total;
use super::outbox::{Delivery, Parcel, RefusedDelivery, delivery};
use super::record::Heard;
use super::{Aggregate, Reservation, Tombstone};
use crate::ledger::{Posting, ReasonCode};
use crate::money::Micros;
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;

/// The stable name of what has no row any more.
const ROW_LOST: &str = "outbox_row_lost";

/// Postings in the order in which a tenant takes them: as they were decided, and of one moment the resolution first.
fn in_order(postings: &[Posting]) -> Vec<&Posting> {
    let mut ordered: Vec<&Posting> = postings.iter().collect();
    ordered.sort_by_key(|posting| (posting.decided_at, !posting.kind.resolves_hold(), posting.id.as_str()));
    ordered
}

fn has(postings: &[Posting], id: &str) -> bool {
    postings.iter().any(|posting| posting.id == id)
}

/// What is on its way and has no row: nothing can be sent of it.
fn rowless(deliveries: &[Delivery], rows: &[Posting]) -> Vec<String> {
    let lost = |delivery: &&Delivery| delivery.parcel == Parcel::Posting && !has(rows, &delivery.posting_id);
    deliveries.iter().filter(lost).map(|delivery| delivery.posting_id.clone()).collect()
}

impl Tombstone {
    pub(super) fn redeliver(&self, rows: &[Posting], now: UnixMillis) -> Transition {
        let release = super::apply::tombstone_release(self);
        let made_again = !has(rows, &release.id);
        let underway = self.deliveries.iter().any(|delivery| delivery.posting_id == release.id);
        let refused = self.refused_deliveries.iter().any(|refused| refused.posting_id == release.id);
        if refused || (underway && !made_again) {
            return Transition::unchanged(Reply::Done);
        }
        let next = Self { deliveries: alloc::vec![delivery(&release, now)], ..self.clone() };
        let transition = Transition::to(Aggregate::Tombstone(Box::new(next)), Reply::Done);
        let mut transition = transition.with_history(now, "hold_open", "sent_again", 0);
        transition.postings.extend(made_again.then_some(release));
        transition
    }
}

impl Reservation {
    /// `rows` are the postings that the outbox has.
    pub(super) fn redeliver(&self, rows: &[Posting], now: UnixMillis) -> Transition {
        let lost = rowless(&self.deliveries, rows);
        let resolving = self.resolution.as_ref().map(|resolution| resolution.posting_id.clone());
        let underway = |id: &str| self.deliveries.iter().any(|delivery| delivery.posting_id == id);
        let refused = |id: &str| self.refused_deliveries.iter().any(|refused| refused.posting_id == id);
        let again = resolving.is_some_and(|id| !refused(&id) && (!underway(&id) || lost.contains(&id)));
        if lost.is_empty() && !again {
            return Transition::unchanged(Reply::Done);
        }
        let epoch = self.attempt.epoch();
        let made_again = if again { self.made_again(rows) } else { Vec::new() };
        let mut next = self.clone();
        let mut evidence = Vec::new();
        // What cannot be made again is put aside, and named.
        for posting_id in lost.into_iter().filter(|id| !has(&made_again, id)) {
            evidence.extend(next.hear_of(&posting_id, Heard::Refused(ROW_LOST), now));
            next.refused_deliveries.push(RefusedDelivery { posting_id, refusal: ROW_LOST.into(), at: now });
            next.ask_for_review(ReasonCode::PostingRefused, now);
        }
        next.deliveries
            .retain(|delivery| !next.refused_deliveries.iter().any(|it| it.posting_id == delivery.posting_id));
        if again {
            let all: Vec<Posting> = rows.iter().chain(&made_again).cloned().collect();
            let sendable = in_order(&all).into_iter().filter(|posting| !refused(&posting.id));
            let others = next.deliveries.iter().filter(|delivery| delivery.parcel != Parcel::Posting).cloned();
            next.deliveries = sendable.map(|posting| delivery(posting, now)).chain(others).collect();
            next.acknowledged_at = None;
        }
        let outcome = if again { "sent_again" } else { ROW_LOST };
        let mut transition = next.changed(Reply::Done).with_history(now, "hold_open", outcome, epoch);
        transition.postings = made_again;
        transition.evidence = evidence;
        transition
    }

    /// The postings that ended the hold, made again from the state where it still says what they were.
    fn made_again(&self, rows: &[Posting]) -> Vec<Posting> {
        let (Some(resolution), Some(reason), Some(ended_at)) = (&self.resolution, self.reason, self.ended_at) else {
            return Vec::new();
        };
        if has(rows, &resolution.posting_id) || self.settlement_version > 0 {
            return Vec::new();
        }
        let Ok(total) = self.total() else { return Vec::new() };
        let total = Total { usage: self.usage, cost: self.cost.unwrap_or(Micros::ZERO), ..total };
        let postings = self.resolving_postings(&total, reason, ended_at);
        if has(&postings, &resolution.posting_id) { postings } else { Vec::new() }
    }
}
