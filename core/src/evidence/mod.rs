//! The record of a release: what was expected, where it was looked for, who decided by which rule, and what became of each
//! effect (seed 3, "Illustrative audit record for a stale-reservation release"; design 9).
//!
//! A record says what was *observed*. That something was not observed in the named stores during the window is no proof
//! that it was never sent, and no word here claims it. What does not apply, what could not be read and what was searched
//! in vain are three different [`Finding`]s.
//!
//! Records hold ids, hashes, counts, amounts, states and times: no prompt, no output, no key and no personal data. Free
//! text appears in one place, the justification that an operator wrote.
//!
//! # Canonical encoding
//!
//! The JSON of the record as serde writes it: members in the order in which they are declared, no white space, with
//! `integrity_reference` as the empty string. The integrity reference is the SHA-256, in lower-case hex, of a domain tag
//! and these bytes, each with its length before it ([`sha256_hex`]). The hash of the record before is a member like
//! any other, so records of one reservation form a chain. What is stored is the same JSON with the reference filled in;
//! [`EvidenceRecord::from_stored`] takes nothing else, so that an added member or a changed space shows too.
//!
//! Records are only ever appended. What arrives after a release makes a [`LateSignalRecord`] that names the release by
//! its hash; when the effects that a record left open are known, an [`EffectsRecord`] names that record. A member that a later schema adds must be left out of the JSON where it is absent, or the hashes of older
//! records would change.

mod effects;
mod follow_up;
mod groups;

pub use effects::{Effect, EffectKind, Outcome, ReleaseEffects};
pub use follow_up::EffectsRecord;
pub use groups::{
    Activity, ActivityKind, Classification, DecisionPolicy, DeliveryMetadata, Disposition, ExpectedSignal, Fact,
    FactValue, LifecycleTiming, MatchResult, QueueStatus, Reconciliation, RecordGovernance, ReleaseAuthority,
    ReleaseMode, ReservationIdentity, ReservationState, ResourceScope, RetentionClass, SignalType, StateTransition,
    StateVersion, TimeSource, Timed, Window,
};

use crate::finding::Finding;
use crate::ids::{ReservationId, TenantId};
use crate::key::sha256_hex;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Version of the schema below.
pub const SCHEMA_VERSION: u32 = 1;

/// Why a record is not accepted as evidence.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Flaw {
    /// The stored bytes are no such record.
    Unreadable,
    /// The stored bytes are not those that a record writes: a member was added, or the form was changed.
    NotCanonical,
    /// The integrity reference is not that of the content.
    Altered,
    /// Effects stand in a wrong list, or `partial_failures` does not name those that are not done.
    EffectsContradict,
    /// A late signal without disposition, or a disposition without late signal.
    ReconciliationContradicts,
}

impl fmt::Display for Flaw {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unreadable => "not a record of this kind",
            Self::NotCanonical => "not in the canonical form",
            Self::Altered => "content and integrity reference differ",
            Self::EffectsContradict => "effects and partial failures contradict each other",
            Self::ReconciliationContradicts => "late signal and disposition contradict each other",
        })
    }
}

impl core::error::Error for Flaw {}

/// What the records of this module have in common.
pub trait EvidenceRecord: Clone + Serialize + DeserializeOwned {
    /// Separates the hashes of this kind of record from every other use of SHA-256.
    const DOMAIN: &'static [u8];

    /// The tenth field group.
    fn record_governance(&self) -> &RecordGovernance;

    /// The tenth field group, to be sealed.
    fn record_governance_mut(&mut self) -> &mut RecordGovernance;

    /// What in the record contradicts itself, whatever its hash.
    fn contradiction(&self) -> Option<Flaw>;

    /// The bytes under the hash: the record with an empty integrity reference, in the canonical encoding.
    #[must_use]
    fn canonical_bytes(&self) -> Vec<u8> {
        let mut open = self.clone();
        open.record_governance_mut().integrity_reference.clear();
        open.to_stored()
    }

    /// The hash of the content: what the integrity reference must be, and what other records call this one by.
    #[must_use]
    fn hash(&self) -> String {
        sha256_hex(&[Self::DOMAIN, &self.canonical_bytes()])
    }

    /// The record with its integrity reference.
    #[must_use]
    fn sealed(mut self) -> Self {
        self.record_governance_mut().integrity_reference = self.hash();
        self
    }

    /// Whether the record is unaltered and does not contradict itself.
    ///
    /// # Errors
    /// [`Flaw::Altered`] first, then what [`Self::contradiction`] finds.
    fn verify(&self) -> Result<(), Flaw> {
        if self.record_governance().integrity_reference != self.hash() {
            return Err(Flaw::Altered);
        }
        self.contradiction().map_or(Ok(()), Err)
    }

    /// Whether the record names `previous` as the one before it; `None` for the first.
    #[must_use]
    fn follows(&self, previous: Option<&str>) -> bool {
        match (&self.record_governance().previous_record, previous) {
            (Finding::Observed { value }, Some(hash)) => value == hash,
            (Finding::NotApplicable, None) => true,
            _ => false,
        }
    }

    /// The bytes to store.
    #[must_use]
    fn to_stored(&self) -> Vec<u8> {
        // Plain data under string names: there is nothing here that JSON cannot hold.
        serde_json::to_vec(self).unwrap_or_default()
    }

    /// Reads stored bytes and verifies them.
    ///
    /// # Errors
    /// [`Flaw::Unreadable`], [`Flaw::NotCanonical`], then those of [`Self::verify`].
    fn from_stored(bytes: &[u8]) -> Result<Self, Flaw> {
        let record: Self = serde_json::from_slice(bytes).map_err(|_| Flaw::Unreadable)?;
        if record.to_stored() != bytes {
            return Err(Flaw::NotCanonical);
        }
        record.verify().map(|()| record)
    }
}

/// The record of one release, in the ten field groups of seed 3.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReleaseRecord {
    /// Which hold, of whom, over what.
    pub reservation_identity: ReservationIdentity,
    /// When it became stale, when that was decided, and when it took effect.
    pub lifecycle_timing: LifecycleTiming,
    /// What changed, from which version to which.
    pub state_transition: StateTransition,
    /// By which rules, and from which facts.
    pub decision_policy: DecisionPolicy,
    /// What was expected, and where it was looked for.
    pub expected_signal: ExpectedSignal,
    /// What is known of the signal's way.
    pub delivery_metadata: DeliveryMetadata,
    /// Who is responsible.
    pub release_authority: ReleaseAuthority,
    /// What became of each effect.
    pub release_effects: ReleaseEffects,
    /// Whether something had arrived late when this was written.
    pub reconciliation: Reconciliation,
    /// The record itself.
    pub record_governance: RecordGovernance,
}

impl EvidenceRecord for ReleaseRecord {
    const DOMAIN: &'static [u8] = b"holdfast/release/1";

    fn record_governance(&self) -> &RecordGovernance {
        &self.record_governance
    }

    fn record_governance_mut(&mut self) -> &mut RecordGovernance {
        &mut self.record_governance
    }

    fn contradiction(&self) -> Option<Flaw> {
        contradiction(&self.release_effects, &self.reconciliation)
    }
}

/// What arrived after a release, and what was done about it; also where that was nothing (seed 3, "Reconcile late
/// completion signals without duplicating side effects").
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LateSignalRecord {
    /// Hash of the release record that it comes after.
    pub release_record: String,
    /// The reservation.
    pub reservation_id: ReservationId,
    /// Who pays for it.
    pub tenant_ref: TenantId,
    /// What arrived.
    pub signal_type: SignalType,
    /// By which id it was tied to the reservation.
    pub correlation_key: String,
    /// When it was observed.
    pub observed_at: Timed,
    /// The state in which it found the reservation.
    pub state_found: ReservationState,
    /// The version of that state.
    pub state_version: u64,
    /// The epoch of the attempt that the signal speaks of.
    pub lease_generation: Finding<u32>,
    /// What is known of its way.
    pub delivery_metadata: DeliveryMetadata,
    /// How it was handled.
    pub reconciliation: Reconciliation,
    /// What became of each effect of handling it.
    pub effects: ReleaseEffects,
    /// The record itself.
    pub record_governance: RecordGovernance,
}

impl LateSignalRecord {
    /// Whether it comes after `release`: same reservation, same tenant, and the hash of that very record.
    #[must_use]
    pub fn refers_to(&self, release: &ReleaseRecord) -> bool {
        self.release_record == release.hash()
            && self.reservation_id == release.reservation_identity.reservation_id
            && self.tenant_ref == release.reservation_identity.tenant_ref
    }
}

impl EvidenceRecord for LateSignalRecord {
    const DOMAIN: &'static [u8] = b"holdfast/late-signal/1";

    fn record_governance(&self) -> &RecordGovernance {
        &self.record_governance
    }

    fn record_governance_mut(&mut self) -> &mut RecordGovernance {
        &mut self.record_governance
    }

    fn contradiction(&self) -> Option<Flaw> {
        let without_signal = !self.reconciliation.late_signal_observed;
        contradiction(&self.effects, &self.reconciliation)
            .or_else(|| without_signal.then_some(Flaw::ReconciliationContradicts))
    }
}

fn contradiction(effects: &ReleaseEffects, reconciliation: &Reconciliation) -> Option<Flaw> {
    if !effects.is_consistent() {
        Some(Flaw::EffectsContradict)
    } else if reconciliation.late_signal_observed != reconciliation.disposition.observed().is_some() {
        Some(Flaw::ReconciliationContradicts)
    } else {
        None
    }
}
