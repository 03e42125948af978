//! What one stored change is judged by: the state before it, the command, and all that it makes.

use crate::probes::Probe;
use crate::properties as p;
use crate::state::Edge;
use crate::step::Step;
use holdfast_core::evidence::{Disposition, EvidenceRecord};
use holdfast_core::finding::Source;
use holdfast_core::ledger::{Direction, PostingKind, ReasonCode};
use holdfast_core::reservation::{
    AbortCause, Aggregate, Command, EvidenceRow, Lifecycle, Reservation, ResolvedAs, Settlement, Transition,
};
use holdfast_core::usage::Metered;

impl Step<'_> {
    /// Everything that can be said of a change before it is stored.
    pub(crate) fn check_transition(&mut self, g: usize, command: &Command, transition: &Transition) {
        if self.draining {
            return;
        }
        let aggregate = self.aggregate(g);
        let outbox = &self.object(g).outbox;
        let twice = transition.postings.iter().any(|posting| outbox.iter().any(|row| row.id == posting.id));
        self.check(!twice, p::ONE_SETTLEMENT);
        self.check_records(g, &aggregate, command, transition);
        let Some(before) = aggregate.live() else { return };
        self.check_fence(before, command, transition);
        self.check_release(g, before, command, transition);
        self.check_signals(command, transition);
        if let Some(after) = transition.state.as_ref().and_then(Aggregate::live) {
            self.check_terminal(before, after);
            self.note_change(before, after, command, transition);
        }
    }

    /// A write of an older epoch changes nothing, a change counts once, and epochs only grow (invariant 9).
    fn check_fence(&mut self, before: &Reservation, command: &Command, transition: &Transition) {
        let names = command.epoch().filter(|_| command.is_drivers() || matches!(command, Command::Reconcile { .. }));
        let owns = names.is_none_or(|epoch| epoch == before.attempt.epoch());
        let grows =
            transition.state.as_ref().and_then(Aggregate::live).is_none_or(|after| {
                after.version == before.version + 1 && after.attempt.epoch() >= before.attempt.epoch()
            });
        self.check(owns && grows, p::GROWS);
    }

    /// What no driver's end decides is decided behind a fence: nobody drives the epoch that owns (invariant 4).
    fn check_release(&mut self, g: usize, before: &Reservation, command: &Command, transition: &Transition) {
        let ends = transition.state.as_ref().and_then(Aggregate::live).is_some_and(|after| {
            before.settlement != after.settlement && !matches!(command, Command::End { .. } | Command::Signal { .. })
        });
        if !ends {
            return;
        }
        let generation = &self.state.generations[g];
        let here = generation.object.memory.as_ref().and_then(|memory| memory.driver.as_ref());
        let at_edge = if let Edge::Driving(driver) = &generation.edge { Some(driver) } else { None };
        let epoch = before.attempt.epoch();
        let driven = here.into_iter().chain(at_edge).any(|driver| driver.epoch == epoch);
        let fenced = before.lifecycle.is_terminal() || before.reconciliation.is_some();
        self.check(fenced && !driven, p::LIVE);
    }

    /// The first terminal state stands, and so does the posting that ended the hold: only a compensation follows, and
    /// what is kept is settled once (invariant 3).
    fn check_terminal(&mut self, before: &Reservation, after: &Reservation) {
        let stands = !before.lifecycle.is_terminal()
            || ((after.lifecycle == before.lifecycle || after.lifecycle == Lifecycle::Compensated)
                && after.reason == before.reason
                && after.ended_at == before.ended_at);
        let resolved = before.resolution.is_none()
            || (after.resolution == before.resolution && after.settlement == before.settlement);
        let kept = before.settlement == Settlement::Pending || after.settlement != Settlement::Pending;
        self.check(stands && resolved && kept, p::TERMINAL);
    }

    /// Each signal has a row of its own, and its disposition says what was done (invariant 5).
    fn check_signals(&mut self, command: &Command, transition: &Transition) {
        let Command::Signal { signal, seen } = command else { return };
        if seen.is_some() {
            return self.check(transition.writes_nothing() && transition.effects.is_empty(), p::REPLAY);
        }
        let [row] = transition.signals.as_slice() else { return self.check(false, p::RECORDED) };
        let corrects = |kind| matches!(kind, PostingKind::LateSettlement | PostingKind::Correction);
        let corrected = transition.postings.iter().any(|posting| corrects(posting.kind));
        let fits = match row.disposition {
            Disposition::CorrectiveActionInitiated => corrected,
            Disposition::ProcessedWithoutDuplicateEffects => !corrected,
            Disposition::Ignored | Disposition::Quarantined => transition.postings.is_empty(),
        };
        let names = row.posting_ids.iter().eq(transition.postings.iter().map(|posting| &posting.id));
        self.check(row.signal == **signal && fits && names, p::RECORDED);
    }

    /// Whatever ends or keeps an overdue hold has its record in the same change, and so has what comes after one. Each
    /// verifies, and names the one before.
    fn check_records(&mut self, g: usize, before: &Aggregate, command: &Command, transition: &Transition) {
        let live = before.live();
        let after = transition.state.as_ref().and_then(Aggregate::live);
        let entombed = *before == Aggregate::Vacant && matches!(transition.state, Some(Aggregate::Tombstone(_)));
        let decided = match (live, after, command) {
            (Some(before), Some(after), Command::Reconcile { .. } | Command::Operate { .. }) => {
                before.settlement != after.settlement
            }
            _ => false,
        };
        let releases = transition.evidence.iter().filter(|row| matches!(row, EvidenceRow::Release(_))).count();
        self.check(releases == usize::from(entombed || decided), p::EVIDENCE);
        let previous = live.and_then(|live| live.record_hash.as_deref());
        let late = previous.is_some() && !transition.signals.is_empty();
        let completed = transition.evidence.iter().filter(|row| matches!(row, EvidenceRow::Effects(_))).count();
        self.check(transition.evidence.len() == releases + usize::from(late) + completed, p::EVIDENCE);
        for row in &transition.evidence {
            let (whole, follows) = match row {
                EvidenceRow::Release(record) => (record.verify().is_ok(), record.follows(previous)),
                EvidenceRow::LateSignal(record) => {
                    (record.verify().is_ok(), Some(record.release_record.as_str()) == previous)
                }
                // It follows the record that it completes, whatever was recorded since.
                EvidenceRow::Effects(record) => {
                    let stored = self.object(g).evidence.iter().any(|kept| **kept == *record.completes);
                    (record.verify().is_ok() && stored, record.follows(Some(&record.completes)))
                }
            };
            let kept = previous.is_none_or(|hash| self.object(g).evidence.iter().any(|kept| **kept == *hash));
            self.check(whole && follows && kept, p::EVIDENCE);
            self.hit_if(matches!(row, EvidenceRow::LateSignal(_)), Probe::LateSignalRecorded);
        }
    }

    fn note_change(&self, before: &Reservation, after: &Reservation, command: &Command, transition: &Transition) {
        if !before.lifecycle.is_terminal() && after.lifecycle.is_terminal() {
            self.note_end(after, command);
        }
        self.note_resumption(before, after, command);
        let kinds = |kind| transition.postings.iter().any(|posting| posting.kind == kind);
        let operator = matches!(command, Command::Operate { .. });
        self.hit_if(kinds(PostingKind::HoldReduced), Probe::Reduced);
        self.hit_if(transition.postings.iter().any(|posting| posting.frees_slot), Probe::SlotFreed);
        self.hit_if(after.lifecycle == Lifecycle::Compensated, Probe::Compensated);
        self.hit_if(operator && kinds(PostingKind::Correction), Probe::OperatorCorrected);
        let disputed = before.settlement != Settlement::Disputed && after.settlement == Settlement::Disputed;
        self.hit_if(disputed && after.attempt.conflict, Probe::DisputedByConflict);
        self.hit_if(disputed && after.reason == Some(ReasonCode::Escalated), Probe::Escalated);
        self.hit_if(
            before.settlement.holds() && before.lifecycle.is_terminal() && operator && !after.settlement.holds(),
            Probe::OperatorEnded,
        );
        let Command::Signal { signal, .. } = command else { return };
        let by_operator = before
            .resolution
            .as_ref()
            .is_some_and(|resolution| resolution.by == ResolvedAs::Operator && resolution.kind == PostingKind::Release);
        let settled = before.settlement == Settlement::Expired && !after.settlement.holds();
        self.hit_if(settled, Probe::QuarantinedThenSettled);
        self.hit_if(kinds(PostingKind::LateSettlement), Probe::SettledLate);
        self.hit_if(kinds(PostingKind::Correction) && signal.source == Source::Stream, Probe::ZombieCorrected);
        self.hit_if(kinds(PostingKind::Correction) && by_operator, Probe::ReleasedThenCorrected);
        let watched = before.lifecycle.is_terminal() && before.reconciliation.is_some();
        self.hit_if(watched && kinds(PostingKind::LateSettlement), Probe::WatchFound);
        let refunds = transition.postings.iter().any(|posting| posting.direction == Direction::Refund);
        self.hit_if(refunds, Probe::Refunded);
        let older = before.past_attempts.iter().zip(&after.past_attempts).any(|(before, after)| before != after);
        self.hit_if(older, Probe::OlderAttemptTold);
    }

    fn note_end(&self, live: &Reservation, command: &Command) {
        let overage = live.cost.is_some_and(|cost| cost > live.hold());
        let cancelled = live.lifecycle == Lifecycle::Cancelled;
        let completed = live.lifecycle == Lifecycle::Completed;
        let reconciled = matches!(command, Command::Reconcile { .. });
        self.hit_if(matches!(live.usage, Some(Metered::Exact(_))), Probe::SettledExact);
        self.hit_if(matches!(live.usage, Some(Metered::AtLeast(_))), Probe::SettledEstimated);
        self.hit_if(overage, Probe::Overage);
        self.hit_if(live.settlement == Settlement::Released, Probe::Released);
        self.hit_if(reconciled && completed && live.attempt.reported.is_none(), Probe::FoundComplete);
        self.hit_if(live.cancellation.is_some() && completed, Probe::CancelLost);
        self.hit_if(cancelled && live.attempt.abort == Some(AbortCause::Request), Probe::CancelConfirmed);
        self.hit_if(live.reason == Some(ReasonCode::CancelConfirmed), Probe::ProviderConfirmed);
        self.hit_if(live.attempt.cancel.is_some() && completed, Probe::CompletionWon);
        self.hit_if(completed && live.attempt.reported.is_some(), Probe::CompletedByReport);
        let summed = completed && live.past_attempts.iter().any(|attempt| attempt.accounted.is_some());
        self.hit_if(summed, Probe::RetrySummed);
        self.hit_if(live.settlement == Settlement::Expired, Probe::Quarantined);
        self.hit_if(live.reason == Some(ReasonCode::ExpiredEstimated), Probe::ExpiredEstimated);
        let at_once = live.terms.grace_ms == 0;
        let by_policy = cancelled && live.attempt.abort == Some(AbortCause::Disconnect);
        self.hit_if(by_policy, if at_once { Probe::CancelledAtOnce } else { Probe::GraceAbort });
        let timed_out = matches!(
            live.reason,
            Some(ReasonCode::TotalTimeout | ReasonCode::IdleTimeout | ReasonCode::FirstByteTimeout)
        );
        self.hit_if(timed_out, Probe::TimedOut);
    }
}
