//! What an operator may do: the same guarded transitions as the rules, with actor, reason and justification (seed 1:
//! "Manual actions should use the same guarded state transitions as automated reconciliation").
//!
//! | operation | allowed while | makes |
//! |---|---|---|
//! | `release` | the hold is kept and no attempt may live | `release` |
//! | `finalize` | the hold is kept and no attempt may live | `settle` by the usage that the operator states |
//! | `defer` | the outcome is searched | a later deadline |
//! | `retry` | the outcome is searched, the route allows a repeat, and nothing of the answer is stored | a further attempt |
//! | `quarantine` | the outcome is searched | `expired`, the hold kept |
//! | `escalate` | the outcome is searched, or the hold is kept beyond its deadline | `disputed`, the hold kept |
//! | `correct` | the hold is resolved | `correction` to the cost of the stated usage |
//! | `compensate` | the hold is resolved, and not compensated yet | `compensation`; the lifecycle is `compensated` |
//!
//! Refusals, in this order: [`Refusal::ActionConflict`] (the id was used for another action),
//! [`Refusal::JustificationRequired`], [`Refusal::VersionConflict`] (the operator looked at an older state),
//! [`Refusal::WrongState`], [`Refusal::AmountOutOfRange`]. A repeated action has the recorded answer.

use super::attempt::{Accounted, Reported};
use super::command::{Reply, Transition};
use super::conclude::{NOT_READ, SourceEnd, UpstreamEnd, verdict};
use super::record::Basis;
use super::resolve::Kept;
use super::signal::Which;
use super::{Lifecycle, LogFacts, Reservation, ResolvedAs, Settlement};
use crate::finding::Source;
use crate::ledger::{Direction, Posting, PostingKind, ReasonCode};
use crate::money::Micros;
use crate::policy::OnInterruption;
use crate::reconcile::Outcome;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use crate::usage::{Metered, Usage};
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What is to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "operation", rename_all = "snake_case")]
pub enum Operation {
    /// Give the hold back.
    Release,
    /// Settle by this usage of the owning attempt.
    Finalize {
        /// Stated on the operator's word.
        usage: Usage,
    },
    /// Decide later.
    Defer {
        /// When.
        until: UnixMillis,
    },
    /// Start a further attempt.
    Retry,
    /// Keep the hold until somebody decides.
    Quarantine,
    /// Keep the hold, disputed.
    Escalate,
    /// Bring what is charged to the cost of this usage of the owning attempt.
    Correct {
        /// Stated on the operator's word.
        usage: Usage,
    },
    /// Compensate an effect that cannot be undone.
    Compensate {
        /// How much.
        amount: Micros,
        /// Which way.
        direction: Direction,
    },
}

impl Operation {
    /// The name in rows.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Release => "release",
            Self::Finalize { .. } => "finalize",
            Self::Defer { .. } => "defer",
            Self::Retry => "retry",
            Self::Quarantine => "quarantine",
            Self::Escalate => "escalate",
            Self::Correct { .. } => "correct",
            Self::Compensate { .. } => "compensate",
        }
    }
}

/// An action of an operator: who, by which channel, why.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OperatorAction {
    /// Names the action: repeated under the same id it has the recorded answer.
    pub id: String,
    /// Who.
    pub actor: String,
    /// By which channel.
    pub channel: String,
    /// Why, in a stable word.
    pub reason_code: String,
    /// Why, in a sentence. Required.
    pub justification: String,
    /// The state that the operator looked at; any when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expected_version: Option<u64>,
    /// What is to be done.
    #[serde(flatten)]
    pub operation: Operation,
}

/// The row of an action.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ActionRow {
    /// The action.
    pub action: OperatorAction,
    /// When.
    pub at: UnixMillis,
    /// Version before; the one after is one higher.
    pub version_before: u64,
    /// Lifecycle before.
    pub lifecycle_before: Lifecycle,
    /// Lifecycle after.
    pub lifecycle_after: Lifecycle,
    /// State of the hold before.
    pub settlement_before: Settlement,
    /// State of the hold after.
    pub settlement_after: Settlement,
    /// The postings that it made.
    pub posting_ids: Vec<String>,
}

impl Reservation {
    pub(super) fn operate(
        &self,
        action: &OperatorAction,
        recorded: Option<&ActionRow>,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        if let Some(row) = recorded {
            let same = row.action == *action;
            let answer = || Transition::unchanged(Reply::Operated(Box::new(row.clone())));
            return if same { Ok(answer()) } else { Err(Refusal::ActionConflict) };
        }
        if [&action.id, &action.actor, &action.reason_code, &action.justification]
            .iter()
            .any(|text| text.trim().is_empty())
        {
            return Err(Refusal::JustificationRequired);
        }
        if action.expected_version.is_some_and(|expected| expected != self.version) {
            return Err(Refusal::VersionConflict { current: self.version });
        }
        let transition = self.perform(action, log, now)?;
        Ok(self.with_action(transition, action, now))
    }

    fn perform(&self, action: &OperatorAction, log: &LogFacts, now: UnixMillis) -> Result<Transition, Refusal> {
        let by_operator = Basis::Operator(action);
        let end = UpstreamEnd { content_bytes: NOT_READ, ..UpstreamEnd::by(SourceEnd::Lost) };
        match &action.operation {
            Operation::Release => {
                self.require(self.settlement.holds() && self.nothing_lives())?;
                self.settle_by_operator(None, by_operator, &end, log, now)
            }
            Operation::Finalize { usage } => {
                self.require(self.settlement.holds() && self.nothing_lives())?;
                self.settle_by_operator(Some(*usage), by_operator, &end, log, now)
            }
            Operation::Defer { until } => {
                self.require(self.is_searching())?;
                Ok(self.put_off(*until, now))
            }
            Operation::Retry => {
                let allowed = self.is_searching() && self.terms.on_interruption == OnInterruption::Retry;
                let left = self.past_attempts.len() < crate::policy::ATTEMPTS_MAX.saturating_sub(1) as usize;
                // What readers have of one answer, another cannot go on (invariant 9).
                self.require(allowed && left && self.attempt.abort.is_none() && log.length == 0)?;
                Ok(self.plan_retry(&end, now))
            }
            Operation::Quarantine => {
                self.require(self.is_searching())?;
                self.keep(by_operator, &end, Kept { reduce: false, disputed: false }, log, now)
            }
            Operation::Escalate => self.escalate(by_operator, &end, log, now),
            Operation::Correct { usage } => {
                self.require(self.is_resolved() && self.lifecycle != Lifecycle::Compensated)?;
                self.correct(*usage, now)
            }
            Operation::Compensate { amount, direction } => {
                self.require(self.is_resolved() && self.lifecycle != Lifecycle::Compensated)?;
                self.compensate(*amount, *direction, now)
            }
        }
    }

    fn require(&self, allowed: bool) -> Result<(), Refusal> {
        let state = || self.lifecycle.as_str().to_string();
        if allowed { Ok(()) } else { Err(Refusal::WrongState { state: state() }) }
    }

    /// No driver may write: the last one was fenced, or the generation has ended (invariant 4).
    const fn nothing_lives(&self) -> bool {
        self.lifecycle.is_terminal() || self.is_searching()
    }

    const fn is_searching(&self) -> bool {
        match self.reconciliation {
            Some(search) => !self.lifecycle.is_terminal() && !search.extending,
            None => false,
        }
    }

    const fn is_resolved(&self) -> bool {
        matches!(self.settlement, Settlement::Committed | Settlement::Released)
    }

    /// Ends a hold that is kept: by the usage stated, or without a charge.
    fn settle_by_operator(
        &self,
        usage: Option<Usage>,
        basis: Basis<'_>,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        let reason = ReasonCode::OperatorDecision;
        let mut decided = self.clone();
        if let Some(usage) = usage {
            let source = Source::Operator;
            self.terms.price.cost(&usage)?;
            decided.attempt.reported = Some(Reported::by(source, Outcome::Completed, Some(usage)));
            decided.attempt.accounted = Some(Accounted { metered: Metered::Exact(usage), source });
        }
        if !self.lifecycle.is_terminal() {
            let verdict = verdict(Lifecycle::Expired, self.open_upstream(), reason, usage.is_some());
            let transition = decided.ended_as(verdict, ResolvedAs::Operator, end, log, now)?;
            return Ok(self.with_record(transition, basis, log, now));
        }
        if usage.is_none() {
            decided.account_for_nothing();
        }
        let total = decided.total()?;
        let postings = decided.resolving_postings(&total, reason, now);
        decided.settlement = total.settlement();
        decided.usage = total.usage;
        decided.cost = Some(total.cost);
        decided.reconciliation = None;
        decided.review = None;
        decided.note_resolution(&postings, ResolvedAs::Operator);
        decided.deliver(&postings, now);
        let mut transition = decided.changed(Reply::Done);
        transition.postings = postings;
        Ok(self.with_record(transition, basis, log, now))
    }

    fn put_off(&self, until: UnixMillis, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        if let Some(search) = &mut next.reconciliation {
            search.deadline = until;
            search.next_at = until.max(now.plus(1));
        }
        next.changed(Reply::Done)
    }

    fn escalate(
        &self,
        basis: Basis<'_>,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        if self.is_searching() {
            return self.keep(basis, end, Kept { reduce: false, disputed: true }, log, now);
        }
        self.require(self.settlement == Settlement::Expired)?;
        let mut next = self.clone();
        next.settlement = Settlement::Disputed;
        next.ask_for_review(ReasonCode::Escalated, now);
        Ok(self.with_record(next.changed(Reply::Done), basis, log, now))
    }

    fn correct(&self, usage: Usage, now: UnixMillis) -> Result<Transition, Refusal> {
        let mut next = self.clone();
        let source = Source::Operator;
        next.attempt.reported = Some(Reported::by(source, Outcome::Completed, Some(usage)));
        next.attempt.accounted = Some(Accounted { metered: Metered::Exact(usage), source });
        next.attempt.conflict = false;
        next.review = None;
        let (_, postings) = next.adjust(Which::Owning, ReasonCode::OperatorDecision, now)?;
        let mut transition = next.changed(Reply::Done);
        transition.postings = postings;
        Ok(transition)
    }

    /// A new business action: the outcome before it stays on record, and so does what it cost.
    fn compensate(&self, amount: Micros, direction: Direction, now: UnixMillis) -> Result<Transition, Refusal> {
        let charged = self.cost.unwrap_or(Micros::ZERO);
        let cost = match direction {
            Direction::Charge => charged.plus(amount)?,
            Direction::Refund => charged.minus(amount)?,
        };
        let mut next = self.clone();
        next.lifecycle = Lifecycle::Compensated;
        next.cost = Some(cost);
        next.review = None;
        let refers_to = self.resolution.as_ref().map(|resolution| resolution.posting_id.clone());
        let posting = Posting {
            direction,
            refers_to,
            ..self.posting(PostingKind::Compensation, amount, None, ReasonCode::OperatorCompensation, now)
        };
        let postings = vec![posting];
        next.settlement_version = self.settlement_version.saturating_add(1);
        next.deliver(&postings, now);
        let mut transition = next.changed(Reply::Done);
        transition.postings = postings;
        Ok(transition)
    }

    /// The row of the action, in the same transition as what it did.
    fn with_action(&self, mut transition: Transition, action: &OperatorAction, now: UnixMillis) -> Transition {
        let after = transition.state.as_ref().and_then(super::Aggregate::live).unwrap_or(self);
        let row = ActionRow {
            action: action.clone(),
            at: now,
            version_before: self.version,
            lifecycle_before: self.lifecycle,
            lifecycle_after: after.lifecycle,
            settlement_before: self.settlement,
            settlement_after: after.settlement,
            posting_ids: transition.postings.iter().map(|posting| posting.id.clone()).collect(),
        };
        transition.reply = Reply::Operated(Box::new(row.clone()));
        transition.actions.push(row);
        transition.with_history(now, "operate", action.operation.name(), self.attempt.epoch())
    }
}
