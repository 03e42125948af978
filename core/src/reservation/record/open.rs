//! A decision is no effect: what a record's effects came to is known when the tenant has taken what brings them about. Until
//! then they are kept open in the state; then a record of their own completes the earlier one, which stays as it is.

use super::{EvidenceRow, Made, governance};
use crate::evidence::{Classification, EffectKind, EffectsRecord, EvidenceRecord, Outcome, RetentionClass, Timed};
use crate::finding::Finding;
use crate::ids::Identity;
use crate::ledger::{Posting, PostingKind, Receipt};
use crate::reservation::command::Transition;
use crate::reservation::{Aggregate, Reservation, Tombstone};
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The way of a notice: the tenant's object takes it, and tells whoever listens.
const NOTICE_CHANNEL: &str = "tenant";

/// A slot that an earlier posting had given back.
const RETURNED_BEFORE: &str = "returned_before";

/// A record of which not every effect is known yet.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenRecord {
    /// Its hash.
    pub record: String,
    /// Its effects, as far as they are known now.
    pub effects: Vec<OpenEffect>,
}

/// One of its effects.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OpenEffect {
    /// What was to be done, and what is known of it.
    pub effect: Made,
    /// The posting or the notice that brings it about; nothing is heard of the others.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
}

/// What is heard of a delivery.
#[derive(Clone, Copy, Debug)]
pub(in crate::reservation) enum Heard<'a> {
    /// It is applied, and the tenant says when and with which effects.
    Applied(&'a Receipt),
    /// It is taken.
    Taken,
    /// It is refused for good, or lost: nothing comes of it.
    Refused(&'a str),
}

impl OpenEffect {
    fn of(effect: &Made, postings: &[Posting]) -> Self {
        let returns = |posting: &&Posting| posting.kind.resolves_hold() || posting.kind == PostingKind::HoldReduced;
        let by = match &effect.what {
            EffectKind::CreditReturned { .. } | EffectKind::SlotReturned => {
                postings.iter().find(returns).map(|posting| posting.id.clone())
            }
            EffectKind::PostingAuthored { posting_id } => Some(posting_id.clone()),
            // It travels with the last posting, or by itself.
            EffectKind::Notification { message_id, .. } => {
                Some(postings.last().map_or_else(|| message_id.clone(), |posting| posting.id.clone()))
            }
            _ => None,
        };
        Self { effect: effect.clone(), by }
    }

    const fn is_awaited(&self) -> bool {
        self.by.is_some() && matches!(self.effect.outcome, Outcome::Pending)
    }

    fn hear(&mut self, id: &str, heard: Heard<'_>, now: UnixMillis) {
        if !self.is_awaited() || self.by.as_deref() != Some(id) {
            return;
        }
        let what = &mut self.effect.what;
        // The tenant notes what a posting tells also where it refuses the posting.
        let noted = matches!(what, EffectKind::Notification { message_id, .. } if message_id != id);
        self.effect.outcome = match heard {
            Heard::Refused(why) if !noted => Outcome::Failed { why: why.into() },
            Heard::Refused(_) | Heard::Taken => Outcome::Done { done_at: Timed::by_reservation(now) },
            Heard::Applied(receipt) => {
                if let EffectKind::CreditReturned { amount } = what {
                    *amount = receipt.credit_returned;
                }
                if matches!(what, EffectKind::SlotReturned) && !receipt.slot_returned {
                    Outcome::Failed { why: RETURNED_BEFORE.into() }
                } else {
                    Outcome::Done { done_at: Timed::by_tenant(receipt.recorded_at) }
                }
            }
        };
    }
}

impl OpenRecord {
    /// `None` where nothing more will be heard.
    fn of(row: &EvidenceRow, postings: &[Posting]) -> Option<Self> {
        let effects: Vec<OpenEffect> = row.effects().all().map(|effect| OpenEffect::of(effect, postings)).collect();
        let awaited = effects.iter().any(OpenEffect::is_awaited);
        awaited.then(|| Self { record: row.hash().into(), effects })
    }

    fn is_complete(&self) -> bool {
        !self.effects.iter().any(OpenEffect::is_awaited)
    }

    fn released_at(&self) -> Finding<Timed> {
        let returned = |open: &&OpenEffect| matches!(open.effect.what, EffectKind::CreditReturned { .. });
        match self.effects.iter().find(returned).map(|open| &open.effect.outcome) {
            Some(Outcome::Done { done_at }) => Finding::of(*done_at),
            Some(Outcome::Failed { why }) => Finding::NotAvailable { why: why.clone() },
            Some(Outcome::Pending) | None => Finding::NotApplicable,
        }
    }

    fn completed(self, identity: &Identity, now: UnixMillis) -> EvidenceRow {
        let released_at = self.released_at();
        let moves = |open: &OpenEffect| matches!(open.effect.what, EffectKind::PostingAuthored { .. });
        let retention =
            if self.effects.iter().any(moves) { RetentionClass::Ledger } else { RetentionClass::Operational };
        let class = Classification::OperationalMetadata;
        let record_governance = governance(class, retention, Some(&self.record), now);
        let effects = self.effects.into_iter().map(|open| open.effect).collect();
        let record = EffectsRecord {
            completes: self.record,
            reservation_id: identity.reservation.clone(),
            tenant_ref: identity.tenant.clone(),
            released_at,
            effects: crate::evidence::ReleaseEffects::new(effects, Vec::new()),
            record_governance,
        };
        EvidenceRow::Effects(Box::new(record.sealed()))
    }
}

/// Takes in what was heard of a delivery. The records of those that are complete with it.
fn hear(
    open: &mut Vec<OpenRecord>,
    identity: &Identity,
    id: &str,
    heard: Heard<'_>,
    now: UnixMillis,
) -> Vec<EvidenceRow> {
    open.iter_mut().flat_map(|record| &mut record.effects).for_each(|effect| effect.hear(id, heard, now));
    let (complete, left) = core::mem::take(open).into_iter().partition(OpenRecord::is_complete);
    *open = left;
    let complete: Vec<OpenRecord> = complete;
    complete.into_iter().map(|record| record.completed(identity, now)).collect()
}

impl Reservation {
    /// See [`Heard`]; the rows belong to the transition that stores this state.
    pub(in crate::reservation) fn hear_of(&mut self, id: &str, heard: Heard<'_>, now: UnixMillis) -> Vec<EvidenceRow> {
        hear(&mut self.open_records, &self.identity, id, heard, now)
    }
}

impl Tombstone {
    /// See [`Heard`]; the rows belong to the transition that stores this state.
    pub(in crate::reservation) fn hear_of(&mut self, id: &str, heard: Heard<'_>, now: UnixMillis) -> Vec<EvidenceRow> {
        hear(&mut self.open_records, &self.identity, id, heard, now)
    }
}

impl Transition {
    /// Seals the records of a transition, once it is known who is told of it: that is one of their effects. From here on
    /// the effects that are on their way are kept open.
    pub(in crate::reservation) fn recorded(mut self) -> Self {
        for row in core::mem::take(&mut self.evidence) {
            if matches!(row, EvidenceRow::Effects(_)) {
                self.evidence.push(row);
                continue;
            }
            let row = row.sealed_with(self.notifications());
            let open = OpenRecord::of(&row, &self.postings);
            match &mut self.state {
                Some(Aggregate::Live(live)) => {
                    if matches!(row, EvidenceRow::Release(_)) {
                        live.record_hash = Some(row.hash().into());
                    }
                    live.open_records.extend(open);
                }
                Some(Aggregate::Tombstone(tombstone)) => tombstone.open_records.extend(open),
                Some(Aggregate::Vacant) | None => {}
            }
            self.evidence.push(row);
        }
        self
    }

    fn notifications(&self) -> Vec<Made> {
        let told = self.postings.last().map_or(&self.notices, |posting| &posting.notices);
        let notification =
            |id: &String| EffectKind::Notification { channel: NOTICE_CHANNEL.into(), message_id: id.clone() };
        told.iter().map(|notice| Made { what: notification(&notice.id), outcome: Outcome::Pending }).collect()
    }
}
