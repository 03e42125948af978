//! The record of a hold that was released without a generation.

use super::facts::{fact, word};
use super::{EvidenceRow, SERVICE, effects_of_postings, governance, identity_group, match_result, released_at};
use crate::evidence::{
    Activity, ActivityKind, Classification, DecisionPolicy, DeliveryMetadata, ExpectedSignal, FactValue,
    LifecycleTiming, Reconciliation, ReleaseAuthority, ReleaseEffects, ReleaseMode, ReleaseRecord, ReservationState,
    RetentionClass, SignalType, StateTransition, StateVersion, TimeSource, Timed, Window,
};
use crate::finding::Finding;
use crate::ledger::{Posting, ReasonCode};
use crate::reconcile::RULES_VERSION;
use crate::reservation::{Lifecycle, ResolvedBy, Settlement, Tombstone};
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

impl Tombstone {
    /// Built with the release that it stands for.
    pub(in crate::reservation) fn record(
        &self,
        posting: &Posting,
        admitted_at: UnixMillis,
        now: UnixMillis,
    ) -> EvidenceRow {
        let postings = core::slice::from_ref(posting);
        let admitted = Timed::by_tenant(admitted_at);
        let after = ReservationState { lifecycle: Lifecycle::Failed, settlement: Settlement::Released };
        let record = ReleaseRecord {
            reservation_identity: identity_group(
                &self.identity,
                &self.terms,
                self.terms.hold,
                vec![self.attempt.clone()],
                Finding::NotApplicable,
            ),
            lifecycle_timing: LifecycleTiming {
                created_at: admitted,
                expected_completion_at: Finding::NotApplicable,
                expires_at: Timed::by_reservation(now),
                last_activity_at: Finding::of(Activity {
                    kind: ActivityKind::Admitted,
                    at: admitted_at,
                    source: TimeSource::TenantObjectClock,
                }),
                decision_at: Timed::by_reservation(now),
                released_at: released_at(postings),
            },
            state_transition: StateTransition {
                state_before: Finding::NotApplicable,
                state_after: after,
                state_version: StateVersion { before: 0, after: 1 },
                lease_generation: Finding::NotApplicable,
                fencing_token: Finding::NotApplicable,
            },
            decision_policy: DecisionPolicy {
                policy_id: self.terms.route.clone(),
                policy_version: Finding::of(self.terms.config_version.to_string()),
                rules_version: RULES_VERSION.into(),
                stale_threshold_ms: now.since(admitted_at),
                evaluated_facts: vec![fact("found_by", word(&self.by)), fact("started", FactValue::Flag(false))],
            },
            expected_signal: ExpectedSignal {
                signal_type: SignalType::Start,
                contract_version: Finding::NotApplicable,
                receiver: SERVICE.into(),
                correlation_key: self.identity.generation.as_str().into(),
                observation_window: Window { from: admitted, until: Timed::by_reservation(now) },
                stores_searched: vec!["reservation_object".into()],
                matching_criteria: "a stored start of this generation".into(),
                match_result: match_result(false),
            },
            delivery_metadata: DeliveryMetadata::not_applicable(),
            release_authority: ReleaseAuthority {
                release_mode: ReleaseMode::Recovery {
                    process: String::from(match self.by {
                        ResolvedBy::Sweep => "tenant_sweep",
                        ResolvedBy::Cancel => "cancel_before_start",
                        ResolvedBy::Operator => "operator",
                    }),
                    reference: self.identity.generation.as_str().into(),
                },
                service_or_actor: SERVICE.into(),
                reason_code: ReasonCode::NeverStarted,
            },
            release_effects: ReleaseEffects::new(effects_of_postings(postings, self.terms.hold), Vec::new()),
            reconciliation: Reconciliation::nothing_late(),
            record_governance: governance(Classification::OperationalMetadata, RetentionClass::Ledger, None, now),
        };
        EvidenceRow::Release(Box::new(record))
    }
}
