//! The postings that a reservation authors. It alone ends its hold; the tenant's side applies what is authored here.

use super::{Reservation, Resolution, ResolvedAs};
use crate::ledger::{Direction, Posting, PostingKind, ReasonCode, posting_id};
use crate::money::Micros;
use crate::time::UnixMillis;
use crate::usage::Metered;

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
        Posting {
            id: posting_id(&self.identity.reservation, self.attempt.epoch(), kind, version),
            kind,
            reservation: Some(self.identity.reservation.clone()),
            generation: Some(self.identity.generation.clone()),
            amount,
            usage,
            price_version: Some(self.terms.price_version.clone()),
            direction: Direction::Charge,
            refers_to: None,
            frees_slot: false,
            reason,
            decided_at,
        }
    }

    /// Remembers the posting that ends the hold: what comes later refers to it.
    pub(super) fn note_resolution(&mut self, postings: &[Posting], by: ResolvedAs) {
        let resolving = postings.iter().find(|posting| posting.kind.resolves_hold());
        if let Some(posting) = resolving {
            self.resolution = Some(Resolution { posting_id: posting.id.clone(), kind: posting.kind, by });
        }
    }

    /// A posting after the resolution, that brings what is charged to `cost`. `None` when it is that already: the same
    /// effect is never had twice.
    ///
    /// After a release by expiry the first charge is a late settlement; everything else corrects (design 7).
    pub(super) fn adjusting_posting(
        &self,
        cost: Micros,
        usage: Option<Metered>,
        reason: ReasonCode,
        now: UnixMillis,
    ) -> Option<Posting> {
        let resolution = self.resolution.as_ref()?;
        let charged = self.cost.unwrap_or(Micros::ZERO);
        let (direction, amount) = match cost.cmp(&charged) {
            core::cmp::Ordering::Equal => return None,
            core::cmp::Ordering::Greater => (Direction::Charge, cost.saturating_minus(charged)),
            core::cmp::Ordering::Less => (Direction::Refund, charged.saturating_minus(cost)),
        };
        let first_after_expiry = resolution.kind == PostingKind::Release
            && resolution.by == ResolvedAs::Expiry
            && self.settlement_version == 0;
        let kind = if first_after_expiry { PostingKind::LateSettlement } else { PostingKind::Correction };
        let refers_to = Some(resolution.posting_id.clone());
        Some(Posting { direction, refers_to, ..self.posting(kind, amount, usage, reason, now) })
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
