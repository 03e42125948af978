//! The door: which command goes to which transition. Refusals come first, in the order in which each function lists
//! them; a refused command changes nothing.

use super::command::{Command, HistoryRow, Reply, ResolvedBy, Transition};
use super::conclude::{SourceEnd, UpstreamEnd, is_success, terminal_usage};
use super::drive::start;
use super::outbox::delivery;
use super::record::Heard;
use super::signal::{Report, Signal, SignalRow, Subject};
use super::{Aggregate, Lifecycle, LogFacts, Reservation, Settlement, Tombstone, machine};
use crate::evidence::Disposition;
use crate::finding::Source;
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use crate::meter::EndClass;
use crate::policy::{Owner, Terms};
use crate::reconcile::Outcome;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;

impl Aggregate {
    /// Applies a command. `log` is what the chunk log says, `heartbeat_ms` how often a running driver shows life.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for a command to a generation that was never started; [`Refusal::NeverStarted`] for one
    /// that was resolved before its start, [`Refusal::CancelledUnstarted`] for its Start where a cancel did that; [`Refusal::IdentityConflict`]; [`Refusal::StaleEpoch`];
    /// [`Refusal::WrongState`] when the first terminal state would be overwritten; those of
    /// [`super::operate`] for an operator's action.
    pub fn apply(
        &self,
        command: &Command,
        log: &LogFacts,
        heartbeat_ms: u64,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        let transition = match self {
            Self::Vacant => apply_vacant(command, now)?,
            Self::Tombstone(tombstone) => tombstone.apply(command, now)?,
            Self::Live(live) => {
                let transition = live.apply(command, log, heartbeat_ms, now)?;
                if let Some(Self::Live(next)) = &transition.state {
                    machine::guard(live, next)?;
                }
                transition
            }
        };
        Ok(transition.placed(self, now).announced(self, now).with_operation(self, now).recorded())
    }
}

fn apply_vacant(command: &Command, now: UnixMillis) -> Result<Transition, Refusal> {
    match command {
        Command::Start { identity, attempt, terms } => Ok(start(identity, attempt, terms, now)),
        Command::ResolveNeverStarted { identity, attempt, terms, admitted_at, by } => {
            Ok(entomb(identity, attempt, terms, *admitted_at, *by, now))
        }
        _ => Err(Refusal::NotFound),
    }
}

/// A hold without a generation is resolved: the release is authored here, and a late Start will be refused.
fn entomb(
    identity: &Identity,
    attempt: &AttemptId,
    terms: &Terms,
    admitted_at: UnixMillis,
    by: ResolvedBy,
    now: UnixMillis,
) -> Transition {
    let mut tombstone = Tombstone {
        identity: identity.clone(),
        attempt: attempt.clone(),
        terms: terms.clone(),
        resolved_at: now,
        by,
        open_records: Vec::new(),
        deliveries: Vec::new(),
        refused_deliveries: Vec::new(),
    };
    let posting = tombstone_release(&tombstone);
    tombstone.deliveries = vec![delivery(&posting, now)];
    let mut transition = Transition::to(Aggregate::Tombstone(Box::new(tombstone.clone())), Reply::Done).with_history(
        now,
        "resolve_never_started",
        "released",
        0,
    );
    transition.evidence.push(tombstone.record(&posting, admitted_at, now));
    transition.postings.push(posting);
    transition
}

/// The release of a hold that was never used.
pub(super) fn tombstone_release(tombstone: &Tombstone) -> Posting {
    let Tombstone { identity, terms, resolved_at, .. } = tombstone;
    let id = posting_id(&identity.reservation, 0, PostingKind::Release, 1);
    Posting {
        reservation: Some(identity.reservation.clone()),
        generation: Some(identity.generation.clone()),
        price_version: Some(terms.price_version.clone()),
        ..Posting::new(id, PostingKind::Release, terms.hold, ReasonCode::NeverStarted, *resolved_at)
    }
}

impl Tombstone {
    fn apply(&self, command: &Command, now: UnixMillis) -> Result<Transition, Refusal> {
        match command {
            Command::ResolveNeverStarted { .. } | Command::Wake { .. } => Ok(Transition::unchanged(Reply::Done)),
            Command::HoldOpen { postings } => Ok(self.redeliver(postings, now)),
            Command::Applied { receipt } => Ok(self.acknowledge(&receipt.posting_id, Heard::Applied(receipt), now)),
            Command::Acknowledge { posting_id } => Ok(self.acknowledge(posting_id, Heard::Taken, now)),
            Command::DeliveryFailed { posting_id } => Ok(self.delivery_failed(posting_id, now)),
            Command::DeliveryRefused { posting_id, refusal } => Ok(self.delivery_refused(posting_id, refusal, now)),
            Command::Signal { seen: Some(disposition), .. } => Ok(Transition::unchanged(Reply::Signal(*disposition))),
            Command::Signal { signal, seen: None } => Ok(record_signal(signal, now)),
            Command::Start { .. } if self.by == ResolvedBy::Cancel => Err(Refusal::CancelledUnstarted),
            _ => Err(Refusal::NeverStarted),
        }
    }
}

/// Something that never ran is said to have done something: recorded, for review (invariant 5).
fn record_signal(signal: &Signal, now: UnixMillis) -> Transition {
    let disposition = Disposition::Quarantined;
    Transition::unchanged(Reply::Signal(disposition)).with_signal(SignalRow {
        signal: signal.clone(),
        at: now,
        epoch: 0,
        lifecycle: Lifecycle::Failed,
        settlement: Settlement::Released,
        disposition,
        posting_ids: Vec::new(),
    })
}

impl Reservation {
    fn apply(
        &self,
        command: &Command,
        log: &LogFacts,
        heartbeat_ms: u64,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        match command {
            Command::Start { identity, .. } if self.identity != *identity => Err(Refusal::IdentityConflict),
            // Asked about or started again: it lives, and nothing is released (invariant 4).
            Command::Start { .. } | Command::ResolveNeverStarted { .. } => {
                Ok(Transition::unchanged(Reply::AlreadyStarted))
            }
            Command::Submit { epoch } => self.submit(*epoch, now),
            Command::Respond { epoch, head } => self.respond(*epoch, head.as_ref(), now),
            Command::Identify { epoch, operation_id } => self.identify(*epoch, operation_id, now),
            Command::Append { epoch, bytes } => self.append(*epoch, *bytes, log, heartbeat_ms, now),
            Command::Readers { attached, furthest_offset } => Ok(self.readers(*attached, *furthest_offset, log, now)),
            Command::Cancel => Ok(self.cancel(now)),
            Command::CancelAnswered { epoch, answer } => self.cancel_answered(*epoch, *answer, log, now),
            Command::End { epoch, end } => self.end(*epoch, end, log, now),
            Command::Reconcile { epoch, end } => self.reconcile(*epoch, end, log, now),
            Command::Signal { seen: Some(disposition), .. } => Ok(Transition::unchanged(Reply::Signal(*disposition))),
            Command::Signal { signal, seen: None } => {
                Ok(self.signal(signal, log, now).map_live(|live| live.note_answer(signal)))
            }
            Command::ResultTold { operation_id, form, length, max_bytes } => {
                Ok(self.result_told(operation_id, *form, *length, *max_bytes, now))
            }
            Command::LookUpFailed { epoch, retry_after_ms } => self.look_up_failed(*epoch, *retry_after_ms, now),
            Command::Resumed { epoch } => self.resumed(*epoch, now),
            Command::ResumeFailed { epoch, refused, retry_after_ms } => {
                self.resume_failed(*epoch, *refused, *retry_after_ms, log, now)
            }
            Command::HoldExtended { epoch, attempt } => self.hold_extended(*epoch, attempt, now),
            Command::ExtensionRefused { epoch } => self.extension_refused(*epoch, now),
            Command::Operate { action, recorded } => self.operate(action, recorded.as_deref(), log, now),
            Command::Wake { driver_alive } => Ok(self.wake(*driver_alive, log, heartbeat_ms, now)),
            Command::HoldOpen { postings } => Ok(self.redeliver(postings, now)),
            Command::Applied { receipt } => Ok(self.acknowledge(&receipt.posting_id, Heard::Applied(receipt), now)),
            Command::Acknowledge { posting_id } => Ok(self.acknowledge(posting_id, Heard::Taken, now)),
            Command::ReadTold => Ok(self.read_told()),
            Command::DeliveryFailed { posting_id } => Ok(self.delivery_failed(posting_id, now)),
            Command::DeliveryRefused { posting_id, refusal } => Ok(self.delivery_refused(posting_id, refusal, now)),
        }
    }

    /// A lookup of the owning attempt was answered. What it said is the signal's own matter.
    fn note_answer(&mut self, signal: &Signal) {
        let owning = match &signal.subject {
            Subject::Epoch { epoch } => self.attempt.had_epoch(*epoch),
            Subject::Operation { operation_id } => self.attempt.operation_id.as_ref() == Some(operation_id),
        };
        if let Some(search) = self.reconciliation.as_mut().filter(|_| owning && signal.source == Source::Lookup) {
            search.lookups_answered = search.lookups_answered.saturating_add(1);
        }
    }

    /// Compares rows with `now`; a wake-up decides nothing by itself.
    fn wake(&self, driver_alive: bool, log: &LogFacts, heartbeat_ms: u64, now: UnixMillis) -> Transition {
        match (self.lifecycle.is_terminal(), self.reconciliation) {
            (true, watch) => {
                let kept = self.wake_after_the_end(now);
                match watch {
                    Some(watch) if kept.state.is_none() => self.wake_watch(watch, now),
                    _ => kept,
                }
            }
            (false, Some(search)) => self.wake_search(search, log, now),
            (false, None) => self.wake_driven(driver_alive, log, heartbeat_ms, now),
        }
    }

    fn wake_driven(&self, driver_alive: bool, log: &LogFacts, heartbeat_ms: u64, now: UnixMillis) -> Transition {
        // A lease of the edge is not kept by a driver here.
        let drives_here = driver_alive && self.attempt.lease.owner == Owner::Object;
        if !drives_here && self.lease_expires_at(log) <= now {
            return self.take_over(log, now);
        }
        let driven = drives_here || self.attempt.lease.owner == Owner::Edge;
        let overdue = self.overdue(log, driven, now).filter(|_| self.attempt.abort.is_none());
        if let Some(cause) = overdue {
            let mut next = self.clone();
            if drives_here {
                next.attempt.lease = next.attempt.lease.renewed(now);
            }
            return next.abort(cause, now, "wake");
        }
        if self.attempt.name_by.is_some_and(|at| at <= now) {
            return self.stop_unnamed(drives_here, now);
        }
        if let Some(asked) = self.ask_again(drives_here, now) {
            return asked;
        }
        if drives_here && self.lease_is_short(log, heartbeat_ms, now) {
            return self.renewed(now, Reply::Done);
        }
        Transition::unchanged(Reply::Done)
    }

    fn wake_after_the_end(&self, now: UnixMillis) -> Transition {
        let retention_ms = self.terms.retention_s.saturating_mul(1_000);
        let over = self.ended_at.is_some_and(|at| at.plus(retention_ms) <= now);
        if !over || self.content_deleted {
            return Transition::unchanged(Reply::Done);
        }
        let mut next = self.clone();
        next.content_deleted = true;
        next.changed(Reply::Done)
            .with_history(now, "wake", "content_deleted", self.attempt.epoch())
            .with_effect(super::Effect::DeleteContent)
    }
}

/// The history row of a refused write of an older epoch or of one that came after the end: it is recorded, not
/// forgotten (invariant 5).
#[must_use]
pub fn refused_row(command: &Command, refusal: &Refusal, now: UnixMillis) -> Option<HistoryRow> {
    let epoch = command.epoch()?;
    let recorded = matches!(refusal, Refusal::StaleEpoch { .. } | Refusal::WrongState { .. });
    recorded.then(|| HistoryRow {
        at: now,
        command: command.name().into(),
        outcome: String::from(refusal.code()),
        epoch,
    })
}

/// What the refused end of a fenced or late driver still tells: its bytes change nothing, what it saw of the outcome is
/// evidence like any other (invariant 5). `None` when it tells nothing.
#[must_use]
pub fn late_signal(command: &Command, refusal: &Refusal, now: UnixMillis) -> Option<Signal> {
    let Command::End { epoch, end } = command else { return None };
    if !matches!(refusal, Refusal::StaleEpoch { .. } | Refusal::WrongState { .. }) {
        return None;
    }
    let outcome = outcome_of(end)?;
    Some(Signal {
        event_id: Some(format!("driver-end:{epoch}")),
        source: Source::Stream,
        subject: Subject::Epoch { epoch: *epoch },
        report: Report::Ended { outcome, usage: terminal_usage(end) },
        observed_at: now,
    })
}

/// A refusal or an error in the provider's own envelope is no completion, however whole its body is.
fn outcome_of(end: &UpstreamEnd) -> Option<Outcome> {
    let answered = end.head.as_ref().is_none_or(|head| is_success(head.status)) && !end.error_envelope;
    match end.source {
        _ if !answered => None,
        SourceEnd::Body(EndClass::Complete) => Some(Outcome::Completed),
        SourceEnd::Body(EndClass::InBandError) => Some(Outcome::Failed),
        _ => None,
    }
}
