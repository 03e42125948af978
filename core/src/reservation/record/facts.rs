//! What a decision evaluated, from the very evidence that the rules were given.

use super::Basis;
use crate::evidence::{DecisionPolicy, Fact, FactValue, Timed};
use crate::finding::Finding;
use crate::reconcile::{DriverEvidence, Evidence, RULES_VERSION};
use crate::reservation::{LogFacts, Reservation};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::string::ToString;
use alloc::vec;
use alloc::vec::Vec;
use serde::Serialize;

impl Reservation {
    pub(super) fn policy_group(&self, basis: Basis<'_>, seen: &Evidence, now: UnixMillis) -> DecisionPolicy {
        let (rules_version, decided_by) = match basis {
            Basis::Rule { decision, .. } => (
                decision.rules_version.clone(),
                vec![
                    fact("candidate", word(&decision.candidate)),
                    fact("pattern", word(&decision.pattern)),
                    fact("rule", FactValue::Count(u64::from(decision.rule))),
                ],
            ),
            Basis::Operator(action) => (
                RULES_VERSION.into(),
                vec![
                    fact("operation", FactValue::Word(action.operation.name().into())),
                    fact("action", FactValue::Word(action.id.clone())),
                    fact("operator_reason", FactValue::Word(action.reason_code.clone())),
                ],
            ),
        };
        DecisionPolicy {
            policy_id: self.terms.route.clone(),
            policy_version: Finding::of(self.terms.config_version.to_string()),
            rules_version,
            stale_threshold_ms: self.terms.lease_ms,
            evaluated_facts: decided_by.into_iter().chain(self.facts(seen, now)).collect(),
        }
    }

    /// The values that were evaluated, as they were, in the order in which the rules ask.
    fn facts(&self, seen: &Evidence, now: UnixMillis) -> Vec<Fact> {
        let Evidence { lease, owner, execution, usage, completion, ledger, conflict } = seen;
        let search = self.reconciliation;
        let time = |at: UnixMillis| FactValue::Time(Timed::by_reservation(at));
        let count = |n: u32| FactValue::Count(u64::from(n));
        let tokens = |pick: fn(&Metered) -> u64| finding(usage, |seen| FactValue::Count(pick(&seen.metered)));
        vec![
            fact("conflict", FactValue::Flag(*conflict)),
            fact("driver_fenced", FactValue::Flag(owner.driver == DriverEvidence::Fenced)),
            fact("newer_attempt_owns", FactValue::Flag(owner.newer_attempt_owns)),
            fact("last_sign_at", time(owner.last_sign_at)),
            fact("lease_expires_at", time(lease.expires_at)),
            fact("ledger", word(ledger)),
            found("completion", finding(completion, |seen| word(&seen.outcome))),
            found("completion_by", finding(completion, |seen| word(&seen.source))),
            found("usage_exact", finding(usage, |seen| FactValue::Flag(seen.metered.is_exact()))),
            found("usage_by", finding(usage, |seen| word(&seen.source))),
            found("usage_input_tokens", tokens(|metered| metered.usage().input_tokens)),
            found("usage_output_tokens", tokens(|metered| metered.usage().output_tokens)),
            found("phase", finding(execution, |seen| word(&seen.phase))),
            found("phase_by", finding(execution, |seen| word(&seen.source))),
            fact("upstream", FactValue::Word(self.attempt.upstream.as_str().into())),
            fact("attempts", FactValue::Count(self.attempts().count() as u64)),
            fact("age_ms", FactValue::Ms(now.since(self.created_at))),
            fact_maybe("deadline", search.map(|search| time(search.deadline))),
            fact_maybe("lookups", search.map(|_| count(self.lookups()))),
            fact_maybe("lookups_answered", search.map(|search| count(search.lookups_answered))),
            fact("on_interruption", word(&self.terms.on_interruption)),
            fact("hold", FactValue::Micros(self.hold())),
            fact_maybe("escalate_above", self.terms.escalate_above.map(FactValue::Micros)),
            fact_maybe("on_expiry", self.terms.on_expiry.map(|chosen| word(&chosen))),
            fact("outlives_socket", FactValue::Flag(self.terms.capabilities.outlives_socket())),
        ]
    }

    /// Lookups that were sent: nothing is asked about an operation without a name.
    pub(super) fn lookups(&self) -> u32 {
        self.reconciliation.filter(|_| self.attempt.operation_id.is_some()).map_or(0, |search| search.lookups)
    }

    /// When a driver last renewed the lease; `None` where a newer epoch has overwritten it.
    pub(super) fn owner_renewed_at(&self) -> Option<UnixMillis> {
        let lease = &self.attempt.lease;
        let own = (lease.epoch == self.attempt.first_epoch).then_some(lease.renewed_at);
        lease.fenced_owner_renewed_at.or(own)
    }

    /// When output was last stored: what closes the log is our own.
    pub(in crate::reservation) fn last_output_at(&self, log: &LogFacts) -> Option<UnixMillis> {
        log.last_append_at.filter(|at| self.ended_at.is_none_or(|ended_at| *at < ended_at))
    }

    /// When the lease of the last driver was, or is, over.
    pub(in crate::reservation) fn lease_expired_at(&self, log: &LogFacts) -> UnixMillis {
        self.last_sign_at(log).plus(self.terms.lease_ms)
    }

    /// The last sign of life of the last driver: a stored batch, or a renewal.
    pub(in crate::reservation) fn last_sign_at(&self, log: &LogFacts) -> UnixMillis {
        let renewed_at = self.attempt.lease.owner_renewed_at();
        self.last_output_at(log).map_or(renewed_at, |at| at.max(renewed_at))
    }
}

pub(super) fn fact(name: &str, value: FactValue) -> Fact {
    found(name, Finding::of(value))
}

/// A fact that the route or the state may not have.
fn fact_maybe(name: &str, value: Option<FactValue>) -> Fact {
    found(name, Finding::of_or(value, Finding::NotApplicable))
}

fn found(name: &str, value: Finding<FactValue>) -> Fact {
    Fact { name: name.into(), value }
}

/// A part of what was found; the absence of the whole is that of the part.
fn finding<T>(whole: &Finding<T>, part: impl FnOnce(&T) -> FactValue) -> Finding<FactValue> {
    match whole {
        Finding::Observed { value } => Finding::of(part(value)),
        Finding::NotApplicable => Finding::NotApplicable,
        Finding::NotAvailable { why } => Finding::NotAvailable { why: why.clone() },
        Finding::SearchedNotObserved { stores, from, until } => {
            Finding::SearchedNotObserved { stores: stores.clone(), from: *from, until: *until }
        }
    }
}

/// The stable word of a state, a class or a rule: as serde writes it.
pub(super) fn word<T: Serialize>(value: &T) -> FactValue {
    let text = serde_json::to_string(value).unwrap_or_default();
    FactValue::Word(text.trim_matches('"').into())
}
