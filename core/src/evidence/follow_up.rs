//! What became of the effects that an earlier record left open.

use super::effects::ReleaseEffects;
use super::groups::{RecordGovernance, Timed};
use super::{EvidenceRecord, Flaw};
use crate::finding::Finding;
use crate::ids::{ReservationId, TenantId};
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// Completes a record whose effects were on their way when it was written (seed 3: "Recording both the decision and
/// execution outcome prevents an issued command from being mistaken for a completed release"). The earlier record stays
/// as it is.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EffectsRecord {
    /// Hash of the record whose effects these are: of a release, or of a late signal.
    pub completes: String,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Who pays for it.
    pub tenant_ref: TenantId,
    /// When what was held became available again. Not applicable where nothing was given back, not available where that
    /// was refused.
    pub released_at: Finding<Timed>,
    /// All effects of that record, each with what became of it.
    pub effects: ReleaseEffects,
    /// The record itself.
    pub record_governance: RecordGovernance,
}

impl EvidenceRecord for EffectsRecord {
    const DOMAIN: &'static [u8] = b"holdfast/effects/1";

    fn record_governance(&self) -> &RecordGovernance {
        &self.record_governance
    }

    fn record_governance_mut(&mut self) -> &mut RecordGovernance {
        &mut self.record_governance
    }

    fn contradiction(&self) -> Option<Flaw> {
        (!self.effects.is_consistent()).then_some(Flaw::EffectsContradict)
    }
}
