//! The transitions: one function per command. Refusals come first, in the order in which each function lists them;
//! a refused command changes nothing.

use super::{
    AbortCause, Aggregate, Attempt, Cancellation, Command, Connection, ConnectionState, Delivery, Effect, HistoryRow,
    Lease, Lifecycle, LogFacts, Reply, Reservation, ResponseHead, Settlement, SourceEnd, Tombstone, Transition,
    UpstreamEnd, UpstreamState,
};
use crate::deadline::backoff_ms;
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use crate::policy::{OnDisconnect, Owner, Terms};
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::string::{String, ToString};
use alloc::vec;
use alloc::vec::Vec;

/// When evidence that could not be collected is looked for again: an alarm that stays in the past would fire for ever.
const EVIDENCE_RETRY_MS: u64 = 1_000;

impl Transition {
    fn unchanged(reply: Reply) -> Self {
        Self { state: None, history: Vec::new(), postings: Vec::new(), effects: Vec::new(), reply }
    }

    fn to(state: Aggregate, reply: Reply) -> Self {
        Self { state: Some(state), ..Self::unchanged(reply) }
    }

    fn with_history(mut self, at: UnixMillis, command: &str, outcome: &str, epoch: u32) -> Self {
        self.history.push(HistoryRow { at, command: command.into(), outcome: outcome.into(), epoch });
        self
    }

    fn with_effect(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }
}

impl Aggregate {
    /// Applies a command. `log` is what the chunk log says, `heartbeat_ms` how often a running driver shows life.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] for a command to a generation that was never started; [`Refusal::NeverStarted`] for one
    /// that was resolved before its start; [`Refusal::IdentityConflict`]; [`Refusal::StaleEpoch`];
    /// [`Refusal::WrongState`] when the first terminal state would be overwritten.
    pub fn apply(
        &self,
        command: &Command,
        log: &LogFacts,
        heartbeat_ms: u64,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        match (self, command) {
            (Self::Vacant, Command::Start { identity, attempt, terms }) => Ok(start(identity, attempt, terms, now)),
            (Self::Vacant, Command::ResolveNeverStarted { identity, attempt, terms }) => {
                Ok(entomb(identity, attempt, terms, now))
            }
            (Self::Vacant, _) => Err(Refusal::NotFound),

            (Self::Tombstone(_), Command::ResolveNeverStarted { .. }) => Ok(Transition::unchanged(Reply::Done)),
            (Self::Tombstone(tombstone), Command::Acknowledge { posting_id }) => Ok(tombstone.acknowledge(posting_id)),
            (Self::Tombstone(tombstone), Command::DeliveryFailed { posting_id }) => {
                Ok(tombstone.delivery_failed(posting_id, now))
            }
            (Self::Tombstone(_), Command::Wake { .. }) => Ok(Transition::unchanged(Reply::Done)),
            (Self::Tombstone(_), _) => Err(Refusal::NeverStarted),

            (Self::Live(live), Command::Start { identity, .. }) => {
                if live.identity == *identity {
                    Ok(Transition::unchanged(Reply::AlreadyStarted))
                } else {
                    Err(Refusal::IdentityConflict)
                }
            }
            // The tenant asks about a generation that lives: nothing is released (invariant 4).
            (Self::Live(_), Command::ResolveNeverStarted { .. }) => Ok(Transition::unchanged(Reply::AlreadyStarted)),
            (Self::Live(live), Command::Submit { epoch }) => live.submit(*epoch, now),
            (Self::Live(live), Command::Respond { epoch, head }) => live.respond(*epoch, head.as_ref(), now),
            (Self::Live(live), Command::Append { epoch, bytes }) => live.append(*epoch, *bytes, log, heartbeat_ms, now),
            (Self::Live(live), Command::Readers { attached, furthest_offset }) => {
                Ok(live.readers(*attached, *furthest_offset, now))
            }
            (Self::Live(live), Command::Cancel) => Ok(live.cancel(now)),
            (Self::Live(live), Command::End { epoch, end }) => live.end(*epoch, end, log, now),
            (Self::Live(live), Command::Wake { driver_alive }) => Ok(live.wake(*driver_alive, log, heartbeat_ms, now)),
            (Self::Live(live), Command::Acknowledge { posting_id }) => Ok(live.acknowledge(posting_id, now)),
            (Self::Live(live), Command::DeliveryFailed { posting_id }) => Ok(live.delivery_failed(posting_id, now)),
        }
    }
}

fn start(identity: &Identity, attempt: &AttemptId, terms: &Terms, now: UnixMillis) -> Transition {
    let reservation = Reservation {
        version: 1,
        identity: identity.clone(),
        terms: terms.clone(),
        lifecycle: Lifecycle::Active,
        settlement: Settlement::Pending,
        connection: Connection::default(),
        attempt: Attempt {
            id: attempt.clone(),
            epoch: 1,
            upstream: UpstreamState::Prepared,
            submitted_at: None,
            responded_at: None,
            operation_id: None,
            finish_reason: None,
            lease: Lease { owner: terms.owner, renewed_at: now },
            abort: None,
        },
        head: None,
        cancellation: None,
        created_at: now,
        reconcile_at: None,
        ended_at: None,
        lost_from: None,
        reason: None,
        usage: None,
        cost: None,
        deliveries: Vec::new(),
        acknowledged_at: None,
        content_deleted: false,
    };
    Transition::to(Aggregate::Live(Box::new(reservation)), Reply::Started { epoch: 1 })
}

/// The sweep found a hold without a generation: the release is authored here, and a late Start will be refused.
fn entomb(identity: &Identity, attempt: &AttemptId, terms: &Terms, now: UnixMillis) -> Transition {
    let id = posting_id(&identity.reservation, 0, PostingKind::Release, 1);
    let posting = Posting {
        reservation: Some(identity.reservation.clone()),
        generation: Some(identity.generation.clone()),
        price_version: Some(terms.price_version.clone()),
        ..Posting::new(id, PostingKind::Release, terms.hold, ReasonCode::NeverStarted, now)
    };
    let tombstone = Tombstone {
        identity: identity.clone(),
        attempt: attempt.clone(),
        terms: terms.clone(),
        resolved_at: now,
        deliveries: vec![delivery(&posting, now)],
    };
    let mut transition = Transition::to(Aggregate::Tombstone(Box::new(tombstone)), Reply::Done).with_history(
        now,
        "resolve_never_started",
        "released",
        0,
    );
    transition.postings.push(posting);
    transition
}

fn delivery(posting: &Posting, now: UnixMillis) -> Delivery {
    Delivery { posting_id: posting.id.clone(), attempts: 0, next_at: now }
}

fn without(deliveries: &[Delivery], posting_id: &str) -> Vec<Delivery> {
    deliveries.iter().filter(|delivery| delivery.posting_id != posting_id).cloned().collect()
}

fn postponed(deliveries: &[Delivery], posting_id: &str, now: UnixMillis) -> Vec<Delivery> {
    let later = |delivery: &Delivery| {
        if delivery.posting_id != posting_id {
            return delivery.clone();
        }
        let next_at = now.plus(backoff_ms(delivery.attempts));
        Delivery { attempts: delivery.attempts.saturating_add(1), next_at, ..delivery.clone() }
    };
    deliveries.iter().map(later).collect()
}

impl Tombstone {
    fn acknowledge(&self, posting_id: &str) -> Transition {
        self.delivering(without(&self.deliveries, posting_id))
    }

    fn delivery_failed(&self, posting_id: &str, now: UnixMillis) -> Transition {
        self.delivering(postponed(&self.deliveries, posting_id, now))
    }

    fn delivering(&self, deliveries: Vec<Delivery>) -> Transition {
        if deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        Transition::to(Aggregate::Tombstone(Box::new(Self { deliveries, ..self.clone() })), Reply::Done)
    }
}

impl Reservation {
    /// The stored successor of a change.
    fn changed(mut self, reply: Reply) -> Transition {
        self.version = self.version.saturating_add(1);
        Transition::to(Aggregate::Live(Box::new(self)), reply)
    }

    /// Guards a write of a driver: its epoch must own, and the generation must be running (invariants 3 and 9).
    fn guard(&self, epoch: u32) -> Result<(), Refusal> {
        if epoch != self.attempt.epoch {
            return Err(Refusal::StaleEpoch { current: self.attempt.epoch });
        }
        if self.lifecycle.is_terminal() {
            return Err(Refusal::WrongState { state: self.lifecycle.as_str().to_string() });
        }
        Ok(())
    }

    fn submit(&self, epoch: u32, now: UnixMillis) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
        if self.attempt.upstream != UpstreamState::Prepared {
            // A second dispatch of the same attempt is never allowed (invariant 12).
            return Err(Refusal::WrongState { state: "submitted".into() });
        }
        if self.attempt.abort.is_some() {
            return Ok(Transition::unchanged(Reply::Stop));
        }
        let mut next = self.clone();
        next.attempt.upstream = UpstreamState::Submitted;
        next.attempt.submitted_at = Some(now);
        next.attempt.lease.renewed_at = now;
        Ok(next.changed(Reply::Continue))
    }

    fn respond(&self, epoch: u32, head: Option<&ResponseHead>, now: UnixMillis) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
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
        next.attempt.lease.renewed_at = now;
        next.head = head.cloned();
        Ok(next.changed(self.go_on()))
    }

    fn go_on(&self) -> Reply {
        if self.attempt.abort.is_some() { Reply::Stop } else { Reply::Continue }
    }

    /// A stored batch renews the lease by its own row. An empty append renews it only when it would lapse before the
    /// next one: no row without need.
    fn append(
        &self,
        epoch: u32,
        bytes: u64,
        log: &LogFacts,
        heartbeat_ms: u64,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
        if bytes == 0 && self.lease_is_short(log, heartbeat_ms, now) {
            return Ok(self.renewed(now, self.go_on()));
        }
        Ok(Transition::unchanged(self.go_on()))
    }

    fn lease_is_short(&self, log: &LogFacts, heartbeat_ms: u64, now: UnixMillis) -> bool {
        // Twice the heartbeat, or half a lease if that is longer: so the next one comes in time. At most two thirds of
        // a lease: a renewed one is long enough, and a second wake-up at the same moment writes nothing.
        let lease_ms = self.terms.lease_ms;
        let margin = heartbeat_ms.saturating_mul(2).max(lease_ms / 2).min(lease_ms.saturating_mul(2) / 3);
        self.lease_expires_at(log) <= now.plus(margin)
    }

    fn renewed(&self, now: UnixMillis, reply: Reply) -> Transition {
        let mut next = self.clone();
        next.attempt.lease.renewed_at = now;
        next.changed(reply)
    }

    fn abort(&self, cause: AbortCause, now: UnixMillis, command: &str) -> Transition {
        let mut next = self.clone();
        next.attempt.abort = Some(cause);
        if matches!(cause, AbortCause::Request | AbortCause::Disconnect) {
            next.lifecycle = Lifecycle::CancellationRequested;
        }
        let epoch = self.attempt.epoch;
        let outcome = match cause {
            AbortCause::Request => "abort_request",
            AbortCause::Disconnect => "abort_disconnect",
            AbortCause::FirstByteTimeout => "abort_first_byte_timeout",
            AbortCause::IdleTimeout => "abort_idle_timeout",
            AbortCause::TotalTimeout => "abort_total_timeout",
        };
        next.changed(Reply::Stop)
            .with_history(now, command, outcome, epoch)
            .with_effect(Effect::AbortUpstream { epoch })
    }

    /// A disconnect is a fact about sockets: the moment when the last reader is gone. The policy decides what follows.
    fn readers(&self, attached: u32, furthest_offset: u64, now: UnixMillis) -> Transition {
        if self.lifecycle.is_terminal() {
            return Transition::unchanged(Reply::Done);
        }
        let mut next = self.clone();
        next.connection.furthest_offset = self.connection.furthest_offset.max(furthest_offset);
        let gone = self.connection.state == ConnectionState::Disconnected;
        match (attached == 0, gone) {
            (true, false) => {
                next.connection.state = ConnectionState::Disconnected;
                next.connection.disconnected_at = Some(now);
            }
            (false, true) => {
                next.connection.state = ConnectionState::Reconnected;
                next.connection.disconnected_at = None;
            }
            _ => return Transition::unchanged(Reply::Done),
        }
        let outcome = if attached == 0 { "disconnected" } else { "reconnected" };
        let epoch = self.attempt.epoch;
        match (self.lifecycle, attached) {
            (Lifecycle::Active, 0) => {
                next.lifecycle = Lifecycle::Detached;
                let at_once = next.terms.on_disconnect == OnDisconnect::Cancel && next.terms.grace_ms == 0;
                // A driver that was told to stop is not told again: the first cause stands.
                if at_once && next.attempt.abort.is_none() {
                    let mut transition = next.abort(AbortCause::Disconnect, now, "readers");
                    let row = HistoryRow { at: now, command: "readers".into(), outcome: outcome.into(), epoch };
                    transition.history.insert(0, row);
                    return transition;
                }
            }
            (Lifecycle::Detached, 1..) => next.lifecycle = Lifecycle::Active,
            _ => {}
        }
        next.changed(Reply::Done).with_history(now, "readers", outcome, epoch)
    }

    /// A cancel is recorded as requested; whether it took effect is decided by the end. The first one stands.
    fn cancel(&self, now: UnixMillis) -> Transition {
        if self.cancellation.is_some() || self.lifecycle.is_terminal() {
            return Transition::unchanged(Reply::Cancellation(self.cancellation));
        }
        let cancellation = Some(Cancellation { requested_at: now });
        let mut next = self.clone();
        next.cancellation = cancellation;
        next.lifecycle = Lifecycle::CancellationRequested;
        let mut transition = if self.attempt.abort.is_none() {
            next.abort(AbortCause::Request, now, "cancel")
        } else {
            next.changed(Reply::Done).with_history(now, "cancel", "already_stopping", self.attempt.epoch)
        };
        transition.reply = Reply::Cancellation(cancellation);
        transition
    }

    /// The end: outcome, close and posting in one transition. The first terminal state stands.
    fn end(&self, epoch: u32, end: &UpstreamEnd, log: &LogFacts, now: UnixMillis) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
        let conclusion = self.conclude(end, now)?;
        let mut next = self.clone();
        next.lifecycle = conclusion.lifecycle;
        next.settlement = conclusion.settlement;
        next.attempt.upstream = conclusion.upstream;
        next.attempt.operation_id = end.operation_id.clone().or(next.attempt.operation_id);
        next.attempt.finish_reason.clone_from(&end.finish_reason);
        next.attempt.responded_at = next.attempt.responded_at.or(end.head.as_ref().map(|_| now));
        next.reason = Some(conclusion.reason);
        next.usage = conclusion.usage;
        next.cost = Some(conclusion.cost);
        next.head = conclusion.head;
        next.ended_at = Some(now);
        next.reconcile_at = None;
        next.lost_from = (end.source == SourceEnd::Lost).then_some(log.length);
        let delete_partial = conclusion.lifecycle == Lifecycle::Cancelled && !self.terms.keep_partial;
        next.content_deleted = delete_partial;
        next.deliveries.extend(conclusion.postings.iter().map(|posting| delivery(posting, now)));
        let mut transition = next.changed(Reply::Done).with_history(now, "end", conclusion.lifecycle.as_str(), epoch);
        transition.postings = conclusion.postings;
        transition.effects.push(Effect::CloseLog { terminal: conclusion.terminal });
        if delete_partial {
            transition.effects.push(Effect::DeleteContent);
        }
        Ok(transition)
    }

    /// Compares rows with `now`; a wake-up decides nothing by itself.
    fn wake(&self, driver_alive: bool, log: &LogFacts, heartbeat_ms: u64, now: UnixMillis) -> Transition {
        if self.lifecycle.is_terminal() {
            return self.wake_after_the_end(now);
        }
        if self.attempt.upstream == UpstreamState::Unknown {
            return self.wake_unknown(now);
        }
        // A lease of the edge is not kept by a driver here.
        let drives_here = driver_alive && self.attempt.lease.owner == Owner::Object;
        if !drives_here && self.lease_expires_at(log) <= now {
            return self.take_over(now);
        }
        let overdue = self.overdue(log, now).filter(|_| self.attempt.abort.is_none());
        if let Some(cause) = overdue {
            let mut next = self.clone();
            if drives_here {
                next.attempt.lease.renewed_at = now;
            }
            return next.abort(cause, now, "wake");
        }
        if drives_here && self.lease_is_short(log, heartbeat_ms, now) {
            return self.renewed(now, Reply::Done);
        }
        Transition::unchanged(Reply::Done)
    }

    /// The lease is over and no driver lives: a new epoch fences the old one. The socket was the only lever, and it
    /// died with the driver; after the time of observation the attempt is resolved by what was stored.
    fn take_over(&self, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.attempt.epoch = self.attempt.epoch.saturating_add(1);
        let unsent = self.attempt.submitted_at.is_none();
        next.attempt.upstream = UpstreamState::Unknown;
        next.connection.state = ConnectionState::Disconnected;
        next.connection.disconnected_at = self.connection.disconnected_at.or(Some(now));
        if next.lifecycle == Lifecycle::Active {
            next.lifecycle = Lifecycle::Detached;
        }
        let observation_ms = if unsent { 0 } else { self.terms.observation_ms };
        let (epoch, due) = (next.attempt.epoch, observation_ms == 0);
        next.reconcile_at = Some(now.plus(if due { EVIDENCE_RETRY_MS } else { observation_ms }));
        let transition = next.changed(Reply::Done).with_history(now, "wake", "lease_expired", epoch);
        if due { transition.with_effect(Effect::CollectEvidence { epoch }) } else { transition }
    }

    /// The end of the observation: the evidence is collected, and again later should that fail.
    fn wake_unknown(&self, now: UnixMillis) -> Transition {
        if self.reconcile_at.is_some_and(|at| at > now) {
            return Transition::unchanged(Reply::Done);
        }
        let (mut next, epoch) = (self.clone(), self.attempt.epoch);
        next.reconcile_at = Some(now.plus(EVIDENCE_RETRY_MS));
        next.changed(Reply::Done).with_effect(Effect::CollectEvidence { epoch })
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
            .with_history(now, "wake", "content_deleted", self.attempt.epoch)
            .with_effect(Effect::DeleteContent)
    }

    fn acknowledge(&self, posting_id: &str, now: UnixMillis) -> Transition {
        let deliveries = without(&self.deliveries, posting_id);
        if deliveries == self.deliveries {
            return Transition::unchanged(Reply::Done);
        }
        let acknowledged_at = deliveries.is_empty().then_some(now);
        Self { deliveries, acknowledged_at, ..self.clone() }.changed(Reply::Done)
    }

    fn delivery_failed(&self, posting_id: &str, now: UnixMillis) -> Transition {
        let deliveries = postponed(&self.deliveries, posting_id, now);
        if deliveries == self.deliveries {
            // Acknowledged meanwhile: a late failure brings nothing back.
            return Transition::unchanged(Reply::Done);
        }
        Self { deliveries, ..self.clone() }.changed(Reply::Done)
    }
}

/// The history row of a refused write of an older epoch or of one that came after the end: it is recorded, not
/// forgotten (invariant 5).
#[must_use]
pub fn refused_row(command: &Command, refusal: &Refusal, now: UnixMillis) -> Option<HistoryRow> {
    let epoch = match command {
        Command::Submit { epoch }
        | Command::Respond { epoch, .. }
        | Command::Append { epoch, .. }
        | Command::End { epoch, .. } => *epoch,
        _ => return None,
    };
    let recorded = matches!(refusal, Refusal::StaleEpoch { .. } | Refusal::WrongState { .. });
    recorded.then(|| HistoryRow {
        at: now,
        command: command.name().into(),
        outcome: String::from(refusal.code()),
        epoch,
    })
}
