//! What a provider says outside of the stream, and when: twice, out of order, too late (seed 2, "Define a late-event
//! policy"; seed 3, "Reconcile late completion signals without duplicating side effects"; design 7).
//!
//! Every signal leaves a row with a disposition, whatever it changes (invariant 5). Two questions are asked of each: was
//! this event handled before (by its id)? And has its effect been had already, by whatever way (by what is accounted)?
//!
//! | found | then | disposition |
//! |---|---|---|
//! | the same event id | the recorded answer | as recorded |
//! | no attempt of that operation | recorded, for review | `quarantined` |
//! | an end of an attempt that was never sent | recorded, for review | `quarantined` |
//! | still processing, after the end or of an older attempt | recorded | `ignored` |
//! | still processing, while its outcome is searched or watched | noted; the search goes on | `processed_without_duplicate_effects` |
//! | a weaker source than what is known | recorded | `ignored` |
//! | the same as what is known | recorded | `processed_without_duplicate_effects` |
//! | as strong as what is known, and different | disputed: no rule prefers one of two equals | `quarantined` |
//! | end of an older attempt, the hold is kept | attributed to that attempt | `processed_without_duplicate_effects` |
//! | end of the owning attempt, its driver works | kept for the driver's end | `processed_without_duplicate_effects` |
//! | end of the owning attempt, its outcome is searched | concluded from it | `processed_without_duplicate_effects` |
//! | end, the hold is kept beyond its deadline | `settle` or `release`; the terminal state stays | `processed_without_duplicate_effects` |
//! | end, the hold is disputed | recorded for the operator | `quarantined` |
//! | end with usage, after a release by expiry | `late_settlement` | `corrective_action_initiated` |
//! | end with usage that costs something else, after any other resolution | `correction` | `corrective_action_initiated` |
//! | failure without usage, nothing of it seen, charged for by a bound | the bound is given back: `correction` | `corrective_action_initiated` |
//! | failure without usage, nothing of it seen, not charged for | nothing is to be charged | `processed_without_duplicate_effects` |
//! | any other end without usage, after a settlement | what is charged stands | `processed_without_duplicate_effects` |
//! | any other end without usage, after a release | cannot be priced: for review | `quarantined` |
//! | end after the end, of agentic work | for review, whatever it would change | `quarantined` |
//! | news after a compensation | recorded | `ignored` |
//!
//! A callback tells that the work is done, and not what it used. Where the provider can be asked it is asked for the usage:
//! during the search before anything is concluded, after the end for a while; the answer is a signal of its own.

use super::attempt::{Accounted, Attempt, Reported};
use super::command::{Effect, Reply, Transition};
use super::{Lifecycle, LogFacts, Reservation, ResolvedAs, Settlement, UpstreamState};
use crate::evidence::Disposition;
use crate::finding::Source;
use crate::ledger::{Posting, ReasonCode};
use crate::money::MoneyError;
use crate::reconcile::{Outcome, Preference, prefer};
use crate::time::UnixMillis;
use crate::usage::{Metered, Usage};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// How long the provider is asked for the usage of what it called back as done after the end: about as long as it keeps it.
const LATE_USAGE_MS: u64 = 600_000;

/// Which operation a signal is about.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Subject {
    /// The attempt that this epoch worked for.
    Epoch {
        /// Which.
        epoch: u32,
    },
    /// The attempt with this operation at the provider.
    Operation {
        /// The provider's id.
        operation_id: String,
    },
}

/// What is said about it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "report", rename_all = "snake_case")]
pub enum Report {
    /// It is queued or runs.
    Processing,
    /// It has ended.
    Ended {
        /// What it came to.
        outcome: Outcome,
        /// Its terminal usage, if it told.
        usage: Option<Usage>,
    },
    /// The provider knows no such operation. That says nothing about what it did.
    Unknown,
}

/// One statement of a provider, or of a driver that no longer owns.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Signal {
    /// The event's own id, unique at the provider; a lookup has none.
    pub event_id: Option<String>,
    /// Who speaks.
    pub source: Source,
    /// About what.
    pub subject: Subject,
    /// What.
    pub report: Report,
    /// When it was observed, by the clock of whoever received it.
    pub observed_at: UnixMillis,
}

/// The row of a signal. Never deleted: what was observed stays explainable.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SignalRow {
    /// The signal.
    pub signal: Signal,
    /// When it was handled.
    pub at: UnixMillis,
    /// The epoch that owned then.
    pub epoch: u32,
    /// The state that it found.
    pub lifecycle: Lifecycle,
    /// The state of the hold that it found.
    pub settlement: Settlement,
    /// How it was handled.
    pub disposition: Disposition,
    /// The postings that it made.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub posting_ids: Vec<String>,
}

/// Place of an attempt among the attempts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Which {
    Owning,
    Past(usize),
}

/// What becomes of a report, compared with what is known.
enum News {
    /// Something is known now that was not, or was said by somebody weaker.
    Accepted(Reported),
    /// Nothing is new but that somebody stronger says it too.
    Confirmed(Reported),
    /// What is known says the same, or is stronger.
    Known(Disposition),
    /// As strong as what is known, and different.
    Conflict,
}

impl Reservation {
    /// Handles a signal that has not been handled before.
    pub(super) fn signal(&self, signal: &Signal, log: &LogFacts, now: UnixMillis) -> Transition {
        let Some(which) = self.which(&signal.subject) else {
            return self.for_review(signal, now);
        };
        match signal.report {
            // Our own count bounds a cost; it is nobody's statement (design 6).
            _ if signal.source == Source::OwnCount => self.only_recorded(signal, Disposition::Ignored, now),
            Report::Processing | Report::Unknown => self.still_open(signal, which, now),
            // What was never sent cannot have ended: what is proved stays proved.
            Report::Ended { .. } if self.attempt_at(which).submitted_at.is_none() => self.for_review(signal, now),
            Report::Ended { outcome, usage } => {
                let said = Reported::by(signal.source, outcome, usage);
                match news(self.attempt_at(which), said) {
                    News::Known(disposition) => self.only_recorded(signal, disposition, now),
                    News::Conflict => self.conflicting(signal, which, now),
                    News::Confirmed(reported) => self.confirmed(signal, which, reported, now),
                    News::Accepted(reported) => self.accepted(signal, which, reported, log, now),
                }
            }
        }
    }

    /// Whether there is an attempt of that operation.
    pub(super) fn knows(&self, subject: &Subject) -> bool {
        self.which(subject).is_some()
    }

    fn which(&self, subject: &Subject) -> Option<Which> {
        let fits = |attempt: &Attempt| match subject {
            Subject::Epoch { epoch } => attempt.had_epoch(*epoch),
            Subject::Operation { operation_id } => attempt.operation_id.as_ref() == Some(operation_id),
        };
        if fits(&self.attempt) {
            return Some(Which::Owning);
        }
        self.past_attempts.iter().position(fits).map(Which::Past)
    }

    fn attempt_at(&self, which: Which) -> &Attempt {
        match which {
            Which::Owning => &self.attempt,
            Which::Past(index) => self.past_attempts.get(index).unwrap_or(&self.attempt),
        }
    }

    fn attempt_at_mut(&mut self, which: Which) -> &mut Attempt {
        match which {
            Which::Owning => &mut self.attempt,
            Which::Past(index) => self.past_attempts.get_mut(index).unwrap_or(&mut self.attempt),
        }
    }

    /// An older `processing` never replaces a newer end.
    fn still_open(&self, signal: &Signal, which: Which, now: UnixMillis) -> Transition {
        let watching = self.reconciliation.is_some();
        if which != Which::Owning || (self.lifecycle.is_terminal() && !watching) || self.attempt.reported.is_some() {
            return self.only_recorded(signal, Disposition::Ignored, now);
        }
        let disposition = Disposition::ProcessedWithoutDuplicateEffects;
        let mut next = self.clone();
        next.attempt.running_at = (signal.report == Report::Processing).then_some(now);
        let effect = next.look_again(now);
        let mut transition = next.changed(Reply::Signal(disposition));
        transition.effects.extend(effect);
        self.with_row(transition, signal, disposition, now)
    }

    /// The answer of a lookup, or a sign that there is one to be had: the evidence is looked at again.
    pub(super) fn look_again(&mut self, now: UnixMillis) -> Option<Effect> {
        let epoch = self.attempt.epoch();
        let searching = !self.lifecycle.is_terminal();
        let resumes = self.may_resume(now);
        let reconciliation = self.reconciliation.as_mut()?;
        // What the stream still brings comes before what follows from anybody's word.
        if !searching || resumes {
            return None;
        }
        reconciliation.look_up = false;
        reconciliation.next_at = now;
        Some(Effect::CollectEvidence { epoch })
    }

    /// Somebody stronger says what is known: from now on it stands on that word, and nothing else follows.
    fn confirmed(&self, signal: &Signal, which: Which, reported: Reported, now: UnixMillis) -> Transition {
        let disposition = Disposition::ProcessedWithoutDuplicateEffects;
        let mut next = self.clone();
        next.attempt_at_mut(which).reported = Some(reported);
        self.with_row(next.changed(Reply::Signal(disposition)), signal, disposition, now)
    }

    /// A report that stands from now on, and what follows from it.
    fn accepted(
        &self,
        signal: &Signal,
        which: Which,
        reported: Reported,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Transition {
        let mut next = self.clone();
        let exact = reported.usage.filter(|usage| self.terms.price.cost(usage).is_ok());
        // A failure of which nothing was seen is charged for nothing. An attempt that another one followed showed nothing.
        let unseen = which != Which::Owning || self.showed_nothing(log);
        let unused = reported.outcome == Outcome::Failed && reported.usage.is_none() && unseen;
        let attempt = next.attempt_at_mut(which);
        attempt.reported = Some(reported);
        attempt.running_at = None;
        if which != Which::Owning || self.lifecycle.is_terminal() {
            attempt.upstream = upstream_of(attempt.upstream, reported.outcome);
            if let Some(usage) = exact {
                attempt.accounted = Some(Accounted { metered: Metered::Exact(usage), source: reported.usage_source });
            } else if unused {
                attempt.accounted = None;
            }
        }
        if !self.lifecycle.is_terminal() {
            let effect = if which == Which::Owning { next.look_again(now) } else { None };
            let disposition = Disposition::ProcessedWithoutDuplicateEffects;
            let mut transition = next.changed(Reply::Signal(disposition));
            transition.effects.extend(effect);
            return self.with_row(transition, signal, disposition, now);
        }
        let handled = match (self.lifecycle, self.settlement) {
            (Lifecycle::Compensated, _) => Ok((Disposition::Ignored, Vec::new())),
            // What an agent has done meanwhile, no rule knows (design 5): it completes late only through review.
            _ if self.terms.workload.late_needs_review() => {
                next.attempt_at_mut(which).accounted = self.attempt_at(which).accounted;
                next.ask_for_review(ReasonCode::LateCompletion, now);
                Ok((Disposition::Quarantined, Vec::new()))
            }
            (_, Settlement::Disputed | Settlement::Pending) => {
                next.ask_for_review(ReasonCode::LateCompletion, now);
                Ok((Disposition::Quarantined, Vec::new()))
            }
            // What becomes known of an older attempt decides nothing about the one that the hold is kept for, if that one
            // was sent.
            (_, Settlement::Expired)
                if which != Which::Owning && self.attempt.submitted_at.is_some() && self.attempt.reported.is_none() =>
            {
                Ok((Disposition::ProcessedWithoutDuplicateEffects, Vec::new()))
            }
            (_, Settlement::Expired) => next.settle_late(now),
            (_, Settlement::Committed | Settlement::Released) if exact.is_some() || unused => {
                next.adjust(which, ReasonCode::LateCompletion, now)
            }
            (_, Settlement::Committed) => Ok((Disposition::ProcessedWithoutDuplicateEffects, Vec::new())),
            (_, Settlement::Released) => {
                next.ask_for_review(ReasonCode::LateCompletion, now);
                Ok((Disposition::Quarantined, Vec::new()))
            }
        };
        // An amount beyond all range is nothing to settle by itself.
        let (disposition, postings) = handled.unwrap_or_else(|MoneyError| {
            next.ask_for_review(ReasonCode::LateCompletion, now);
            (Disposition::Quarantined, Vec::new())
        });
        if signal.source == Source::Callback && which == Which::Owning && exact.is_none() {
            next.ask_for_late_usage(reported.outcome, log, now);
        }
        let mut transition = next.changed(Reply::Signal(disposition));
        transition.postings = postings;
        self.with_row(transition, signal, disposition, now)
    }

    /// No output of the owning attempt was seen, after its end.
    const fn showed_nothing(&self, log: &LogFacts) -> bool {
        self.nothing_seen || log.length == 0
    }

    /// A callback tells no usage: after the end the provider is asked for it for a while, where it can be asked.
    /// A failure of which nothing was seen is charged for nothing.
    fn ask_for_late_usage(&mut self, outcome: Outcome, log: &LogFacts, now: UnixMillis) {
        let used =
            (outcome != Outcome::Failed || !self.showed_nothing(log)) && self.lifecycle != Lifecycle::Compensated;
        if used && self.can_be_asked() && self.reconciliation.is_none() {
            self.watch_for(LATE_USAGE_MS, now);
        }
    }

    /// The hold was kept beyond its deadline: what is known now settles it. The terminal state stays (invariant 3).
    fn settle_late(&mut self, now: UnixMillis) -> Result<(Disposition, Vec<Posting>), MoneyError> {
        let total = self.total()?;
        let postings = self.resolving_postings(&total, ReasonCode::LateCompletion, now);
        self.settlement = total.settlement();
        self.usage = total.usage;
        self.cost = Some(total.cost);
        self.reconciliation = None;
        // Nobody is asked any more about what the hold was kept for.
        self.review = self.review.filter(|review| Some(review.reason) != self.reason);
        self.note_resolution(&postings, ResolvedAs::Observed);
        self.deliver(&postings, now);
        Ok((Disposition::ProcessedWithoutDuplicateEffects, postings))
    }

    /// The hold was resolved before: what is charged is brought to what is known now, by a new posting.
    pub(super) fn adjust(
        &mut self,
        which: Which,
        reason: ReasonCode,
        now: UnixMillis,
    ) -> Result<(Disposition, Vec<Posting>), MoneyError> {
        self.reconciliation = None;
        let total = self.total()?;
        let posting = self.adjusting_posting(&total, self.attempt_at(which), reason, now);
        self.usage = total.usage;
        self.cost = Some(total.cost);
        let Some(posting) = posting else {
            return Ok((Disposition::ProcessedWithoutDuplicateEffects, Vec::new()));
        };
        let postings = alloc::vec![posting];
        self.settlement_version = self.settlement_version.saturating_add(1);
        self.deliver(&postings, now);
        Ok((Disposition::CorrectiveActionInitiated, postings))
    }

    /// Two equals differ: nothing is decided by a rule any more.
    fn conflicting(&self, signal: &Signal, which: Which, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.attempt_at_mut(which).conflict = true;
        next.ask_for_review(ReasonCode::EvidenceConflict, now);
        let mut effect = None;
        if !self.lifecycle.is_terminal() {
            effect = next.look_again(now);
        } else if self.settlement == Settlement::Expired {
            next.settlement = Settlement::Disputed;
        }
        let mut transition = next.changed(Reply::Signal(Disposition::Quarantined));
        transition.effects.extend(effect);
        self.with_row(transition, signal, Disposition::Quarantined, now)
    }

    fn for_review(&self, signal: &Signal, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.ask_for_review(ReasonCode::LateCompletion, now);
        let transition = next.changed(Reply::Signal(Disposition::Quarantined));
        self.with_row(transition, signal, Disposition::Quarantined, now)
    }

    fn only_recorded(&self, signal: &Signal, disposition: Disposition, now: UnixMillis) -> Transition {
        self.with_row(Transition::unchanged(Reply::Signal(disposition)), signal, disposition, now)
    }

    /// The row of the signal, and what it adds to the record of a release.
    fn with_row(
        &self,
        mut transition: Transition,
        signal: &Signal,
        disposition: Disposition,
        now: UnixMillis,
    ) -> Transition {
        let posting_ids: Vec<String> = transition.postings.iter().map(|posting| posting.id.clone()).collect();
        let row = SignalRow {
            signal: signal.clone(),
            at: now,
            epoch: self.attempt.epoch(),
            lifecycle: self.lifecycle,
            settlement: self.settlement,
            disposition,
            posting_ids,
        };
        transition.evidence.extend(self.late_signal_record(&row, &transition.postings));
        transition.with_signal(row)
    }

    /// Puts postings on their way.
    pub(super) fn deliver(&mut self, postings: &[Posting], now: UnixMillis) {
        self.deliveries.extend(postings.iter().map(|posting| super::outbox::delivery(posting, now)));
        if !postings.is_empty() {
            self.acknowledged_at = None;
        }
    }
}

/// Compares a report with what is known of the attempt: outcome with outcome, usage with usage, each by who says it.
fn news(attempt: &Attempt, said: Reported) -> News {
    let Some(known) = known(attempt) else { return News::Accepted(said) };
    let by_outcome = prefer((known.source, &known.outcome), (said.source, &said.outcome));
    if by_outcome == Preference::First && known.outcome != said.outcome {
        return News::Known(Disposition::Ignored);
    }
    let by_usage = match (known.usage, said.usage) {
        (_, None) => Preference::First,
        (None, Some(_)) => Preference::Second,
        (Some(before), Some(usage)) => prefer((known.usage_source, &before), (said.usage_source, &usage)),
    };
    if [by_outcome, by_usage].contains(&Preference::Conflict) {
        return News::Conflict;
    }
    let mut merged = known;
    if by_outcome == Preference::Second {
        merged = Reported { outcome: said.outcome, source: said.source, ..merged };
    }
    if by_usage == Preference::Second {
        merged = Reported { usage: said.usage, usage_source: said.usage_source, ..merged };
    }
    let same = (merged.outcome, merged.usage) == (known.outcome, known.usage);
    let weaker_usage = said.usage.is_some() && by_usage == Preference::First && said.usage != known.usage;
    match (same, merged == known) {
        (false, _) => News::Accepted(merged),
        (true, false) => News::Confirmed(merged),
        (true, true) if weaker_usage => News::Known(Disposition::Ignored),
        (true, true) => News::Known(Disposition::ProcessedWithoutDuplicateEffects),
    }
}

/// What is known with authority: what was reported, or what the stream told at its end. Our own count is no statement of
/// anybody: whatever a provider says is news to it.
fn known(attempt: &Attempt) -> Option<Reported> {
    if attempt.reported.is_some() {
        return attempt.reported;
    }
    let outcome = match attempt.upstream {
        UpstreamState::Completed => Outcome::Completed,
        UpstreamState::Failed => Outcome::Failed,
        _ => return None,
    };
    match attempt.accounted {
        Some(Accounted { metered: Metered::Exact(usage), source }) => {
            Some(Reported { usage: Some(usage), usage_source: source, ..Reported::by(Source::Stream, outcome, None) })
        }
        _ => Some(Reported::by(Source::Stream, outcome, None)),
    }
}

/// The state of an attempt after a report: an end that was observed stays (invariant 3).
const fn upstream_of(before: UpstreamState, outcome: Outcome) -> UpstreamState {
    match (before, outcome) {
        (UpstreamState::Unknown, Outcome::Completed) => UpstreamState::Completed,
        (UpstreamState::Unknown, Outcome::Incomplete) => UpstreamState::Incomplete,
        (UpstreamState::Unknown, Outcome::Failed) => UpstreamState::Failed,
        (UpstreamState::Unknown, Outcome::Cancelled) => UpstreamState::Cancelled,
        (before, _) => before,
    }
}
