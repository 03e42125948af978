//! What a driver does: submit, respond, append, end. Each names its epoch.

use super::command::{Effect, Reply, Transition};
use super::conclude::{Conclusion, Ended, UpstreamEnd};
use super::outbox::delivery;
use super::{
    Aggregate, Attempt, Connection, Lifecycle, LogFacts, Place, Reservation, ResolvedAs, ResponseHead, Settlement,
    SourceEnd, UpstreamState,
};
use crate::ids::{AttemptId, Identity};
use crate::ledger::ReasonCode;
use crate::meter::EndClass;
use crate::money::Micros;
use crate::policy::Terms;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::string::ToString;
use alloc::vec::Vec;

pub(super) fn start(identity: &Identity, attempt: &AttemptId, terms: &Terms, now: UnixMillis) -> Transition {
    let reservation = Reservation {
        version: 1,
        identity: identity.clone(),
        terms: terms.clone(),
        lifecycle: Lifecycle::Active,
        settlement: Settlement::Pending,
        connection: Connection::default(),
        disconnects: 0,
        assessment: None,
        delivered_output_tokens: None,
        read_told: false,
        attempt: Attempt::prepared(attempt.clone(), 1, terms, now),
        past_attempts: Vec::new(),
        head: None,
        cancellation: None,
        created_at: now,
        reconciliation: None,
        ended_at: None,
        lost_from: None,
        reason: None,
        usage: None,
        cost: None,
        extended: Micros::ZERO,
        reduced: Micros::ZERO,
        resolution: None,
        settlement_version: 0,
        review: None,
        record_hash: None,
        open_records: Vec::new(),
        deliveries: Vec::new(),
        refused_deliveries: Vec::new(),
        acknowledged_at: None,
        content_deleted: false,
        place: Place::default(),
        nothing_seen: false,
        answered: false,
        result: None,
    };
    Transition::to(Aggregate::Live(Box::new(reservation)), Reply::Started { epoch: 1 })
}

impl Reservation {
    /// Guards whatever names an epoch: it must own, and the generation must be running (invariants 3 and 9).
    pub(super) fn guard(&self, epoch: u32) -> Result<(), Refusal> {
        self.attempt.lease.allow(epoch)?;
        if self.lifecycle.is_terminal() {
            return Err(Refusal::WrongState { state: self.lifecycle.as_str().to_string() });
        }
        Ok(())
    }

    /// Guards a write of a driver: besides, somebody must drive this epoch. While the outcome is searched nobody does.
    fn guard_driver(&self, epoch: u32) -> Result<(), Refusal> {
        self.guard(epoch)?;
        if self.reconciliation.is_some() {
            return Err(Refusal::WrongState { state: self.attempt.upstream.as_str().to_string() });
        }
        Ok(())
    }

    pub(super) fn submit(&self, epoch: u32, now: UnixMillis) -> Result<Transition, Refusal> {
        self.guard_driver(epoch)?;
        // A second dispatch of the same attempt is never allowed (invariant 12).
        if self.attempt.upstream != UpstreamState::Prepared {
            return Err(Refusal::WrongState { state: "submitted".into() });
        }
        if self.attempt.abort.is_some() {
            return Ok(Transition::unchanged(Reply::Stop));
        }
        let mut next = self.clone();
        next.attempt.upstream = UpstreamState::Submitted;
        next.attempt.submitted_at = Some(now);
        next.attempt.lease = next.attempt.lease.renewed(now);
        Ok(next.changed(Reply::Continue))
    }

    pub(super) fn respond(
        &self,
        epoch: u32,
        head: Option<&ResponseHead>,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.guard_driver(epoch)?;
        match self.attempt.upstream {
            UpstreamState::Submitted => {}
            // The same answer again: the first head stands, and no deadline moves (invariant 8).
            UpstreamState::Processing => return Ok(Transition::unchanged(self.go_on())),
            // Nothing was sent, or nobody drives this epoch: no answer can have come.
            _ => return Err(Refusal::WrongState { state: "not submitted".into() }),
        }
        let mut next = self.clone();
        next.attempt.upstream = UpstreamState::Processing;
        next.attempt.responded_at = Some(now);
        next.attempt.lease = next.attempt.lease.renewed(now);
        next.head = head.cloned();
        Ok(next.changed(self.go_on()))
    }

    /// The provider's id is kept as soon as it is known: without it nothing can be asked after a loss. The first stands.
    pub(super) fn identify(&self, epoch: u32, operation_id: &str, now: UnixMillis) -> Result<Transition, Refusal> {
        self.guard_driver(epoch)?;
        if self.attempt.submitted_at.is_none() {
            return Err(Refusal::WrongState { state: "not submitted".into() });
        }
        if self.attempt.operation_id.is_some() {
            return Ok(Transition::unchanged(self.go_on()));
        }
        let mut next = self.clone();
        next.attempt.operation_id = Some(operation_id.into());
        // Somebody wanted it stopped before it had a name: it is stopped now, and asked for by its name.
        next.attempt.name_by = None;
        let request = next.request_cancel(now);
        let reply = next.go_on();
        let mut transition = next.changed(reply);
        if self.attempt.name_by.is_some() {
            transition.effects.push(Effect::AbortUpstream { epoch });
        }
        transition.effects.extend(request);
        Ok(transition)
    }

    /// A driver that is to bring the name first goes on: a stop waits for it.
    const fn go_on(&self) -> Reply {
        if self.attempt.abort.is_some() && self.attempt.name_by.is_none() { Reply::Stop } else { Reply::Continue }
    }

    /// A stored batch renews the lease by its own row. An empty append renews it only when it would lapse before the
    /// next one: no row without need.
    pub(super) fn append(
        &self,
        epoch: u32,
        bytes: u64,
        log: &LogFacts,
        heartbeat_ms: u64,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.guard_driver(epoch)?;
        if bytes == 0 && self.lease_is_short(log, heartbeat_ms, now) {
            return Ok(self.renewed(now, self.go_on()));
        }
        Ok(Transition::unchanged(self.go_on()))
    }

    pub(super) fn renewed(&self, now: UnixMillis, reply: Reply) -> Transition {
        let mut next = self.clone();
        next.attempt.lease = next.attempt.lease.renewed(now);
        next.changed(reply)
    }

    /// The driver's end: outcome, close and posting in one transition. The first terminal state stands. An end that says
    /// nothing of the outcome, where the operation outlives its socket, is looked into instead.
    pub(super) fn end(
        &self,
        epoch: u32,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.guard_driver(epoch)?;
        if self.end_is_repeated(end, log, now) {
            return Ok(self.repeated(end, now));
        }
        if self.end_leaves_open(end) || self.breaks_off(end, now) {
            return Ok(self.interrupted(end, log, now));
        }
        let conclusion = self.conclude(end, now)?;
        if self.attempt.conflict {
            return Ok(self.disputed(end, conclusion, log, now));
        }
        Ok(self.concluded(end, conclusion, ResolvedAs::Observed, log, now, "end"))
    }

    /// The work has ended, and two equals differ about what it used: readers have their answer, the hold waits for an
    /// operator.
    fn disputed(&self, end: &UpstreamEnd, conclusion: Conclusion, log: &LogFacts, now: UnixMillis) -> Transition {
        let open = Conclusion { settlement: Settlement::Disputed, usage: None, postings: Vec::new(), ..conclusion };
        self.concluded(end, open, ResolvedAs::Observed, log, now, "end").map_live(|live| {
            live.cost = None;
            live.ask_for_review(ReasonCode::EvidenceConflict, now);
        })
    }

    /// Stores a conclusion.
    pub(super) fn concluded(
        &self,
        end: &UpstreamEnd,
        conclusion: Conclusion,
        by: ResolvedAs,
        log: &LogFacts,
        now: UnixMillis,
        command: &str,
    ) -> Transition {
        let Conclusion { ended, settlement, accounted, usage, postings, cost, head, terminal } = conclusion;
        let Ended { lifecycle, upstream, reason } = ended;
        let mut next = self.clone();
        next.lifecycle = lifecycle;
        next.settlement = settlement;
        next.learn(end, now);
        next.attempt.upstream = upstream;
        next.attempt.name_by = None;
        next.account(accounted, reason);
        if settlement == Settlement::Released {
            next.account_for_nothing();
        }
        next.reason = Some(reason);
        next.usage = usage;
        next.cost = Some(cost);
        next.head = head;
        next.ended_at = Some(now);
        next.delivered_output_tokens = next.delivered(usage, log);
        next.reconciliation = None;
        // Where bytes of ours are appended, a client may have seen others behind the stored ones: those that a lost driver
        // took with it, also where its stream was taken up and had not brought them again.
        let taken_up = self.attempt.resumption.is_some_and(|resumption| resumption.resumed_at.is_some());
        let lost = end.source == SourceEnd::Lost || (taken_up && !terminal.is_empty());
        next.lost_from = self.lost_from.into_iter().chain(lost.then_some(log.length)).min();
        next.nothing_seen = end.shows_nothing(log);
        next.close_cancellation();
        let whole = lifecycle == Lifecycle::Completed && end.source == SourceEnd::Body(EndClass::Complete);
        let forget = if whole { next.answer_is_whole() } else { None };
        let delete_partial = lifecycle == Lifecycle::Cancelled && !self.terms.keep_partial;
        next.content_deleted = delete_partial;
        next.note_resolution(&postings, by);
        next.deliveries.extend(postings.iter().map(|posting| delivery(posting, now)));
        let epoch = self.attempt.epoch();
        let mut transition = next.changed(Reply::Done).with_history(now, command, lifecycle.as_str(), epoch);
        transition.postings = postings;
        transition.effects.push(Effect::CloseLog { terminal });
        transition.effects.extend(forget);
        if delete_partial {
            transition.effects.push(Effect::DeleteContent);
        }
        transition
    }

    /// What an end tells about the attempt, whatever follows from it.
    pub(super) fn learn(&mut self, end: &UpstreamEnd, now: UnixMillis) {
        let attempt = &mut self.attempt;
        attempt.operation_id = attempt.operation_id.take().or(end.operation_id.clone());
        attempt.finish_reason = end.finish_reason.clone().or(attempt.finish_reason.take());
        attempt.responded_at = attempt.responded_at.or(end.head.as_ref().map(|_| now));
    }
}
