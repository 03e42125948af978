//! The postings that a reservation authors. It alone ends its hold; the tenant's side applies what is authored here.

use super::attempt::{Accounted, Attempt};
use super::conclude::Total;
use super::{Reservation, Resolution, ResolvedAs};
use crate::ledger::{Direction, Observed, Posting, PostingKind, ReasonCode, UsageRecord, posting_id};
use crate::money::Micros;
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::vec;
use alloc::vec::Vec;

impl Reservation {
    pub(super) fn posting(
        &self,
        kind: PostingKind,
        amount: Micros,
        usage: Option<Metered>,
        reason: ReasonCode,
        decided_at: UnixMillis,
    ) -> Posting {
        // Only what may happen more than once counts its versions; a settlement is the first and only one.
        let version = if kind.resolves_hold() { 1 } else { self.settlement_version.saturating_add(1) };
        let id = posting_id(&self.identity.reservation, self.attempt.epoch(), kind, version);
        Posting {
            reservation: Some(self.identity.reservation.clone()),
            generation: Some(self.identity.generation.clone()),
            usage,
            price_version: Some(self.terms.price_version.clone()),
            ..Posting::new(id, kind, amount, reason, decided_at)
        }
    }

    /// What the given attempts are accounted with, to travel with the posting that stands on it. An attempt that is
    /// accounted anew after the resolution makes a further record.
    pub(super) fn usage_records<'a>(
        &self,
        attempts: impl Iterator<Item = &'a Attempt>,
        now: UnixMillis,
    ) -> Vec<UsageRecord> {
        let record = |attempt: &Attempt| {
            let Accounted { metered, source } = attempt.accounted?;
            let observed = Observed {
                source,
                version: self.settlement_version.saturating_add(1),
                epoch: attempt.epoch(),
                usage: metered,
                operation_id: attempt.operation_id.clone(),
                at: now,
            };
            Some(UsageRecord::of(&self.identity, &self.terms, &attempt.id, observed))
        };
        attempts.filter_map(record).collect()
    }

    /// The postings that end the hold: a settlement with what is above it, or a release. The usage behind a settlement
    /// travels with it.
    pub(super) fn resolving_postings(&self, total: &Total, reason: ReasonCode, now: UnixMillis) -> Vec<Posting> {
        let hold = self.hold();
        let Total { usage, estimated: estimated_usage, cost } = *total;
        if usage.is_none() {
            return vec![self.posting(PostingKind::Release, hold, None, reason, now)];
        }
        let usage_records = self.usage_records(self.attempts(), now);
        let settle = self.posting(PostingKind::Settle, cost.min(hold), usage, reason, now);
        let mut postings = vec![Posting { usage_records: usage_records.clone(), estimated_usage, ..settle }];
        if cost > hold {
            let above = cost.saturating_minus(hold);
            // It stands on the same consumption: its invoice line names it too.
            let overage = self.posting(PostingKind::Overage, above, usage, reason, now);
            postings.push(Posting { usage_records, estimated_usage, ..overage });
        }
        postings
    }

    /// Remembers the posting that ends the hold: what comes later refers to it.
    pub(super) fn note_resolution(&mut self, postings: &[Posting], by: ResolvedAs) {
        let resolving = postings.iter().find(|posting| posting.kind.resolves_hold());
        if let Some(posting) = resolving {
            self.resolution = Some(Resolution { posting_id: posting.id.clone(), kind: posting.kind, by });
        }
    }

    /// A posting after the resolution, that brings what is charged to the cost of `total`. `None` when it is that already: the same
    /// effect is never had twice.
    ///
    /// `changed` is the attempt that is accounted anew. After a release by expiry the first charge by a late signal is a
    /// late settlement; everything else corrects (design 7).
    pub(super) fn adjusting_posting(
        &self,
        total: &Total,
        changed: &Attempt,
        reason: ReasonCode,
        now: UnixMillis,
    ) -> Option<Posting> {
        let resolution = self.resolution.as_ref()?;
        let Total { usage, estimated: estimated_usage, cost } = *total;
        let charged = self.cost.unwrap_or(Micros::ZERO);
        let (direction, amount) = match cost.cmp(&charged) {
            core::cmp::Ordering::Equal => return None,
            core::cmp::Ordering::Greater => (Direction::Charge, cost.saturating_minus(charged)),
            core::cmp::Ordering::Less => (Direction::Refund, charged.saturating_minus(cost)),
        };
        let first_after_expiry = reason == ReasonCode::LateCompletion
            && resolution.kind == PostingKind::Release
            && resolution.by == ResolvedAs::Expiry
            && self.settlement_version == 0;
        let kind = if first_after_expiry { PostingKind::LateSettlement } else { PostingKind::Correction };
        let refers_to = Some(resolution.posting_id.clone());
        let usage_records = self.usage_records(core::iter::once(changed), now);
        let posting = self.posting(kind, amount, usage, reason, now);
        Some(Posting { direction, refers_to, usage_records, estimated_usage, ..posting })
    }

    /// The reduction of an expired hold, of its slot, or of both; `None` when neither changes.
    pub(super) fn reducing_posting(
        &self,
        amount: Micros,
        frees_slot: bool,
        reason: ReasonCode,
        now: UnixMillis,
    ) -> Option<Posting> {
        let changes = frees_slot || amount > Micros::ZERO;
        changes.then(|| Posting { frees_slot, ..self.posting(PostingKind::HoldReduced, amount, None, reason, now) })
    }
}
