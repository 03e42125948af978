//! The record of a release (seed 3; design 9), built in the very transition that ends or keeps an overdue hold: it is
//! stored with the rows that it describes, and cannot be forgotten.

mod facts;
mod open;
mod tombstone;

pub(in crate::reservation) use open::Heard;
pub use open::{OpenEffect, OpenRecord};

use super::command::{Effect, Transition};
use super::operate::OperatorAction;
use super::signal::SignalRow;
use super::{Aggregate, LogFacts, Report, Reservation, Subject};
use crate::evidence::{
    Activity, ActivityKind, Classification, DeliveryMetadata, Effect as Made, EffectKind, EffectsRecord,
    EvidenceRecord, ExpectedSignal, LateSignalRecord, LifecycleTiming, MatchResult, Outcome, Reconciliation,
    RecordGovernance, ReleaseAuthority, ReleaseEffects, ReleaseMode, ReleaseRecord, ReservationIdentity,
    ReservationState, ResourceScope, RetentionClass, SCHEMA_VERSION, SignalType, StateTransition, StateVersion,
    TimeSource, Timed, Window,
};
use crate::finding::{Finding, Source};
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Posting, PostingKind, ReasonCode};
use crate::money::Micros;
use crate::policy::Terms;
use crate::reconcile::{Decision, Evidence};
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// The service that decides by rule.
const SERVICE: &str = "reservation_object";

/// One row of evidence.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum EvidenceRow {
    /// A hold was ended or kept otherwise than by its driver's end.
    Release(Box<ReleaseRecord>),
    /// Something arrived after that.
    LateSignal(Box<LateSignalRecord>),
    /// The effects that one of these left open are known.
    Effects(Box<EffectsRecord>),
}

impl EvidenceRow {
    /// The kind, as rows name it.
    #[must_use]
    pub const fn kind(&self) -> &'static str {
        match self {
            Self::Release(_) => "release",
            Self::LateSignal(_) => "late_signal",
            Self::Effects(_) => "effects",
        }
    }

    /// The integrity reference.
    #[must_use]
    pub fn hash(&self) -> &str {
        &self.governance().integrity_reference
    }

    /// When it was written.
    #[must_use]
    pub const fn created_at(&self) -> UnixMillis {
        self.governance().record_created_at.at
    }

    /// The canonical bytes to store.
    #[must_use]
    pub fn to_stored(&self) -> Vec<u8> {
        match self {
            Self::Release(record) => record.to_stored(),
            Self::LateSignal(record) => record.to_stored(),
            Self::Effects(record) => record.to_stored(),
        }
    }

    const fn governance(&self) -> &RecordGovernance {
        match self {
            Self::Release(record) => &record.record_governance,
            Self::LateSignal(record) => &record.record_governance,
            Self::Effects(record) => &record.record_governance,
        }
    }

    const fn effects(&self) -> &ReleaseEffects {
        match self {
            Self::Release(record) => &record.release_effects,
            Self::LateSignal(record) => &record.effects,
            Self::Effects(record) => &record.effects,
        }
    }

    /// The record with further effects, sealed.
    fn sealed_with(self, more: Vec<Made>) -> Self {
        match self {
            Self::Release(mut record) => {
                record.release_effects = record.release_effects.and(more);
                Self::Release(Box::new(record.sealed()))
            }
            Self::LateSignal(mut record) => {
                record.effects = record.effects.and(more);
                Self::LateSignal(Box::new(record.sealed()))
            }
            Self::Effects(record) => Self::Effects(Box::new(record.sealed())),
        }
    }
}

/// What a hold is ended or kept by, where no driver's end did it.
#[derive(Clone, Copy, Debug)]
pub(in crate::reservation) enum Basis<'a> {
    /// A rule of reconciliation, from the evidence that it was given.
    Rule {
        /// What it says.
        decision: &'a Decision,
        /// What it was given.
        evidence: &'a Evidence,
    },
    /// An operator.
    Operator(&'a OperatorAction),
}

impl Basis<'_> {
    pub(in crate::reservation) const fn reason(&self) -> ReasonCode {
        match self {
            Self::Rule { decision, .. } => decision.reason,
            Self::Operator(_) => ReasonCode::OperatorDecision,
        }
    }
}

impl Reservation {
    /// Adds the record of what `transition` does with the hold of this reservation. It is sealed when all else is known
    /// of the transition.
    pub(in crate::reservation) fn with_record(
        &self,
        mut transition: Transition,
        basis: Basis<'_>,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Transition {
        let after = transition.state.as_ref().and_then(Aggregate::live).unwrap_or(self);
        // For an operator the log is not read: what is known without it is recorded.
        let (seen, log_read) = match basis {
            Basis::Rule { evidence, .. } => (evidence.clone(), true),
            Basis::Operator(_) => (self.evidence(None, log, now), false),
        };
        let record = ReleaseRecord {
            reservation_identity: self.identity_group(log_read, now),
            lifecycle_timing: self.timing_group(&transition.postings, log, now),
            state_transition: self.transition_group(after),
            decision_policy: self.policy_group(basis, &seen, now),
            expected_signal: self.signal_group(log_read, &seen, now),
            delivery_metadata: self.delivery_group(),
            release_authority: self.authority_group(basis),
            release_effects: ReleaseEffects::new(self.effects_of(&transition, after, log, now), Vec::new()),
            reconciliation: Reconciliation::nothing_late(),
            record_governance: governance(
                classification(basis),
                retention(&transition.postings),
                self.record_hash.as_deref(),
                now,
            ),
        };
        transition.evidence.push(EvidenceRow::Release(Box::new(record)));
        transition
    }

    fn identity_group(&self, log_read: bool, now: UnixMillis) -> ReservationIdentity {
        let attempts = self.attempts().map(|attempt| attempt.id.clone()).collect();
        let operation = self.attempt.operation_id.clone();
        let operation = Finding::of_or(operation, self.not_observed(log_read, now));
        identity_group(&self.identity, &self.terms, self.hold(), attempts, operation)
    }

    fn timing_group(&self, postings: &[Posting], log: &LogFacts, now: UnixMillis) -> LifecycleTiming {
        let expected = self.terms.expected_ms.map(|ms| Timed::by_reservation(self.created_at.plus(ms)));
        let expires_at = self.reconciliation.map_or_else(|| self.lease_expired_at(log), |search| search.deadline);
        LifecycleTiming {
            created_at: Timed::by_reservation(self.created_at),
            expected_completion_at: Finding::of_or(expected, Finding::NotApplicable),
            expires_at: Timed::by_reservation(expires_at),
            last_activity_at: Finding::of(self.last_activity(log)),
            decision_at: Timed::by_reservation(now),
            released_at: released_at(postings),
        }
    }

    /// What the decision took into account as the last sign of the work.
    fn last_activity(&self, log: &LogFacts) -> Activity {
        let attempt = &self.attempt;
        let resumed_at = attempt.resumption.and_then(|resumption| resumption.resumed_at);
        // Whoever shows life in another way renews with it: of one moment, the way counts, and stands behind.
        let seen = [
            (ActivityKind::Heartbeat, self.owner_renewed_at()),
            (ActivityKind::Prepared, attempt.prepared_at),
            (ActivityKind::Admitted, Some(self.created_at)),
            (ActivityKind::Submitted, attempt.submitted_at),
            (ActivityKind::ProviderBytes, attempt.responded_at),
            (ActivityKind::ProviderBytes, resumed_at),
            (ActivityKind::ProviderBytes, log.received_at),
            (ActivityKind::AppendedBatch, self.last_output_at(log)),
            (ActivityKind::StatusLookup, attempt.running_at),
        ];
        let latest = seen.into_iter().filter_map(|(kind, at)| at.map(|at| (kind, at)));
        let (kind, at) = latest
            .fold((ActivityKind::Admitted, self.created_at), |best, next| if next.1 >= best.1 { next } else { best });
        Activity { kind, at, source: TimeSource::ReservationObjectClock }
    }

    fn transition_group(&self, after: &Self) -> StateTransition {
        // The search began by fencing: the epoch before it is the one that held the lease.
        let lease = self.attempt.epoch().saturating_sub(u32::from(self.reconciliation.is_some()));
        StateTransition {
            state_before: Finding::of(state_of(self)),
            state_after: state_of(after),
            state_version: StateVersion { before: self.version, after: after.version },
            lease_generation: Finding::of(lease),
            fencing_token: Finding::of(after.attempt.epoch()),
        }
    }

    fn signal_group(&self, log_read: bool, seen: &Evidence, now: UnixMillis) -> ExpectedSignal {
        // What an operator states is no signal.
        let observed = seen.completion.observed().is_some_and(|seen| seen.source != Source::Operator);
        ExpectedSignal {
            signal_type: SignalType::Completion,
            contract_version: Finding::of(self.terms.dialect.name().into()),
            receiver: SERVICE.into(),
            correlation_key: self.attempt.operation_id.clone().unwrap_or_else(|| self.attempt.id.as_str().into()),
            observation_window: Window {
                from: Timed::by_reservation(self.created_at),
                until: Timed::by_reservation(now),
            },
            stores_searched: self.stores_searched(log_read),
            matching_criteria: "terminal event, lookup or callback of this operation".into(),
            match_result: match_result(observed),
        }
    }

    fn delivery_group(&self) -> DeliveryMetadata {
        let lookups = Some(self.lookups()).filter(|lookups| *lookups > 0);
        DeliveryMetadata {
            attempt_count: Finding::of_or(lookups, Finding::NotApplicable),
            response_status: Finding::of_or(self.head.as_ref().map(|head| head.status), Finding::NotApplicable),
            ..DeliveryMetadata::not_applicable()
        }
    }

    fn authority_group(&self, basis: Basis<'_>) -> ReleaseAuthority {
        let reason_code = basis.reason();
        match basis {
            Basis::Rule { .. } => ReleaseAuthority {
                release_mode: ReleaseMode::Automatic {
                    execution: format!("{}:{}:{}", self.identity.reservation, self.attempt.epoch(), self.version),
                },
                service_or_actor: SERVICE.into(),
                reason_code,
            },
            Basis::Operator(action) => ReleaseAuthority {
                release_mode: ReleaseMode::Manual {
                    channel: action.channel.clone(),
                    operator_justification: action.justification.clone(),
                },
                service_or_actor: action.actor.clone(),
                reason_code,
            },
        }
    }

    fn effects_of(&self, transition: &Transition, after: &Self, log: &LogFacts, now: UnixMillis) -> Vec<Made> {
        let mut made = effects_of_postings(&transition.postings, self.hold());
        for effect in &transition.effects {
            made.extend(match effect {
                Effect::AbortUpstream { .. } => {
                    Some(pending(EffectKind::AbortRequested { attempt_id: self.attempt.id.clone() }))
                }
                Effect::RequestCancel { operation_id, .. } => {
                    Some(pending(EffectKind::CancelRequested { provider_operation_id: operation_id.clone() }))
                }
                Effect::DeleteContent => Some(done(EffectKind::ContentDeleted { bytes: self.content_bytes(log) }, now)),
                _ => None,
            });
        }
        let watch = after.reconciliation.filter(|_| after.lifecycle.is_terminal());
        let watch = watch.map(|watch| EffectKind::WatchScheduled { until: Timed::by_reservation(watch.deadline) });
        made.extend(watch.map(|kind| done(kind, now)));
        made
    }

    /// What a signal adds to the record of the release that came before it.
    pub(in crate::reservation) fn late_signal_record(
        &self,
        row: &SignalRow,
        postings: &[Posting],
    ) -> Option<EvidenceRow> {
        let release_record = self.record_hash.clone().filter(|_| self.lifecycle.is_terminal())?;
        let signal = &row.signal;
        let correlation_key = match &signal.subject {
            Subject::Epoch { epoch } => format!("{}:{epoch}", self.identity.reservation),
            Subject::Operation { operation_id } => operation_id.clone(),
        };
        let corrective = row.posting_ids.first().cloned();
        let record = LateSignalRecord {
            release_record: release_record.clone(),
            reservation_id: self.identity.reservation.clone(),
            tenant_ref: self.identity.tenant.clone(),
            signal_type: match signal.report {
                Report::Processing => SignalType::Heartbeat,
                Report::Ended { .. } | Report::Unknown => SignalType::Completion,
            },
            correlation_key,
            observed_at: Timed { at: signal.observed_at, source: time_source(signal.source) },
            state_found: state_of(self),
            state_version: self.version,
            lease_generation: match signal.subject {
                Subject::Epoch { epoch } => Finding::of(epoch),
                Subject::Operation { .. } => Finding::NotApplicable,
            },
            delivery_metadata: DeliveryMetadata {
                event_id: Finding::of_or(signal.event_id.clone(), Finding::NotApplicable),
                ..DeliveryMetadata::not_applicable()
            },
            reconciliation: Reconciliation {
                late_signal_observed: true,
                late_signal_id: Finding::of_or(signal.event_id.clone(), Finding::NotApplicable),
                disposition: Finding::of(row.disposition),
                corrective_action_ref: Finding::of_or(corrective, Finding::NotApplicable),
            },
            effects: ReleaseEffects::new(effects_of_postings(postings, self.hold()), Vec::new()),
            record_governance: governance(
                Classification::OperationalMetadata,
                retention(postings),
                Some(&release_record),
                row.at,
            ),
        };
        Some(EvidenceRow::LateSignal(Box::new(record)))
    }
}

fn identity_group(
    identity: &Identity,
    terms: &Terms,
    credit: Micros,
    attempt_ids: Vec<AttemptId>,
    provider_operation_id: Finding<String>,
) -> ReservationIdentity {
    ReservationIdentity {
        reservation_id: identity.reservation.clone(),
        tenant_ref: identity.tenant.clone(),
        generation: identity.generation.clone(),
        resource_scope: ResourceScope {
            credit,
            slots: 1,
            route: terms.route.clone(),
            provider: terms.provider.clone(),
        },
        attempt_ids,
        provider_operation_id,
        workflow_id: Finding::NotApplicable,
        trace_id: Finding::NotAvailable { why: "not_stored".into() },
    }
}

const fn state_of(reservation: &Reservation) -> ReservationState {
    ReservationState { lifecycle: reservation.lifecycle, settlement: reservation.settlement }
}

const fn match_result(observed: bool) -> MatchResult {
    if observed { MatchResult::Observed } else { MatchResult::NotObservedInNamedStoresDuringWindow }
}

const fn classification(basis: Basis<'_>) -> Classification {
    match basis {
        Basis::Rule { .. } => Classification::OperationalMetadata,
        Basis::Operator(_) => Classification::OperatorStatement,
    }
}

const fn retention(postings: &[Posting]) -> RetentionClass {
    if postings.is_empty() { RetentionClass::Operational } else { RetentionClass::Ledger }
}

/// A decision is no effect: the credit is available once the tenant has acknowledged the posting.
fn released_at(postings: &[Posting]) -> Finding<Timed> {
    if postings.is_empty() {
        Finding::NotApplicable
    } else {
        Finding::NotAvailable { why: "awaiting_acknowledgement".into() }
    }
}

const fn time_source(source: Source) -> TimeSource {
    match source {
        Source::Callback => TimeSource::EdgeClock,
        Source::Operator | Source::Lookup | Source::Stream | Source::OwnCount => TimeSource::ReservationObjectClock,
    }
}

fn governance(
    classification: Classification,
    retention_class: RetentionClass,
    previous: Option<&str>,
    now: UnixMillis,
) -> RecordGovernance {
    RecordGovernance {
        record_created_at: Timed::by_reservation(now),
        schema_version: SCHEMA_VERSION,
        classification,
        retention_class,
        previous_record: Finding::of_or(previous.map(String::from), Finding::NotApplicable),
        integrity_reference: String::new(),
    }
}

const fn pending(what: EffectKind) -> Made {
    Made { what, outcome: Outcome::Pending }
}

const fn done(what: EffectKind, now: UnixMillis) -> Made {
    Made { what, outcome: Outcome::Done { done_at: Timed::by_reservation(now) } }
}

/// What each posting gives back, and the posting itself: all of it happens when the tenant applies it.
fn effects_of_postings(postings: &[Posting], hold: Micros) -> Vec<Made> {
    let mut made = Vec::new();
    for posting in postings {
        let returned = match posting.kind {
            PostingKind::Release => Some(hold),
            PostingKind::Settle => Some(hold.saturating_minus(posting.amount)),
            PostingKind::HoldReduced => Some(posting.amount),
            _ => None,
        };
        made.extend(returned.map(|amount| pending(EffectKind::CreditReturned { amount })));
        if posting.kind.resolves_hold() || posting.frees_slot {
            made.push(pending(EffectKind::SlotReturned));
        }
        made.push(pending(EffectKind::PostingAuthored { posting_id: posting.id.clone() }));
    }
    made
}
