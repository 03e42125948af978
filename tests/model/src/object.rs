//! The ReservationObject as its shell works: load, apply, store, arm the alarm, perform the effects, reply. Storage
//! first, memory second; a restart takes the memory alone.

use crate::bug::Bug;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Driver, Object, Piece, Sending};
use crate::step::Step;
use crate::world::{content_of, head_of, length_of, usage_of};
use holdfast_core::ids::{AttemptId, Identity};
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use holdfast_core::meter::EndClass;
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    AbortCause, Aggregate, Command, Delivery, Effect, Lifecycle, Reply, Reservation, ResponseHead, Settlement,
    SourceEnd, Transition, UpstreamEnd, UpstreamState, refused_row,
};
use holdfast_core::usage::Metered;
use std::sync::Arc;

/// The epoch that a driver's write names.
const fn epoch_of(command: &Command) -> Option<u32> {
    match command {
        Command::Submit { epoch }
        | Command::Respond { epoch, .. }
        | Command::Append { epoch, .. }
        | Command::End { epoch, .. } => Some(*epoch),
        _ => None,
    }
}

pub(crate) fn head(status: u16) -> ResponseHead {
    ResponseHead { status, headers: Vec::new() }
}

impl Step<'_> {
    fn object(&self, g: usize) -> &Object {
        &self.state.generations[g].object
    }

    pub(crate) fn aggregate(&self, g: usize) -> Arc<Aggregate> {
        self.object(g).aggregate.clone()
    }

    /// What every request to the object begins with: load, repair of the alarm, and whatever is due.
    pub(crate) fn call(&mut self, g: usize) {
        let alarm = self.object(g).alarm;
        let memory = self.memory(g);
        if !std::mem::replace(&mut memory.alarm_known, true) {
            memory.armed = alarm;
            self.arm(g);
        }
        self.wake(g);
    }

    /// Compares what is due with now. Harmless at any time.
    pub(crate) fn wake(&mut self, g: usize) {
        if matches!(*self.object(g).aggregate, Aggregate::Vacant) {
            return;
        }
        if self.bug(Bug::ReleaseOnExpiry) && self.lease_is_over(g) {
            return self.release(g, ReasonCode::DriverLost);
        }
        let driver_alive = self.memory(g).driver.is_some();
        let epoch = self.object(g).aggregate.live().map(|live| live.attempt.epoch);
        let woken = self.apply(g, &Command::Wake { driver_alive });
        let after = self.object(g).aggregate.live().map(|live| live.attempt.epoch);
        self.hit_if(woken.is_ok() && after != epoch, Probe::TakeOver);
    }

    /// The alarm: re-arm first, then bounded work.
    pub(crate) fn ring(&mut self, g: usize) {
        self.deaf = self.bug(Bug::AlarmGivesUp);
        let memory = self.memory(g);
        (memory.armed, memory.alarm_known) = (None, true);
        self.arm(g);
        self.wake(g);
        self.deliver(g);
        self.deaf = false;
    }

    /// Arms the alarm in the same storage turn as the rows. One that is set for earlier stays.
    fn arm(&mut self, g: usize) {
        let (now, heartbeat_ms) = (self.now(), self.setting().limits.heartbeat_ms);
        let object = self.object(g);
        let Some(at) = object.aggregate.next_wake(&object.facts(), now, heartbeat_ms) else { return };
        let at = if at <= now { now.plus(heartbeat_ms) } else { at };
        let idle = at.since(now) > heartbeat_ms.saturating_mul(2);
        let armed = self.memory(g).armed;
        let early_enough = armed.is_some_and(|armed| armed <= at && armed > now && !idle);
        if early_enough || armed == Some(at) || self.deaf {
            return;
        }
        self.memory(g).armed = Some(at);
        self.generation(g).object.alarm = Some(at);
    }

    /// Applies a command that brings no bytes.
    pub(crate) fn apply(&mut self, g: usize, command: &Command) -> Result<Reply, Refusal> {
        self.write(g, command, Vec::new()).map(|transition| transition.reply)
    }

    /// Applies a command: stores all that it makes in one transaction, arms the alarm, then performs the effects.
    /// `pieces` go to the log with an append or an end.
    pub(crate) fn write(&mut self, g: usize, command: &Command, pieces: Vec<Piece>) -> Result<Transition, Refusal> {
        let (now, heartbeat_ms) = (self.now(), self.setting().limits.heartbeat_ms);
        let facts = self.object(g).facts();
        let before = self.distorted_state(g, command);
        let distorted = self.distorted_command(g, command);
        let applied = before.apply(distorted.as_ref().unwrap_or(command), &facts, heartbeat_ms, now);
        let transition = match applied {
            Ok(transition) => transition,
            Err(refusal) => {
                self.record_refused(command, &refusal);
                return Err(refusal);
            }
        };
        self.check_fence(g, command, &transition);
        self.commit(g, command, &transition, pieces);
        self.arm(g);
        for effect in &transition.effects {
            self.perform(g, effect);
        }
        Ok(transition)
    }

    /// A write of an older epoch changes nothing, a change counts once, and epochs only grow (invariant 9).
    fn check_fence(&mut self, g: usize, command: &Command, transition: &Transition) {
        let Some(before) = self.aggregate(g).live().cloned() else { return };
        let owns = epoch_of(command).is_none_or(|epoch| epoch == before.attempt.epoch);
        let grows = transition
            .state
            .as_ref()
            .and_then(Aggregate::live)
            .is_none_or(|after| after.version == before.version + 1 && after.attempt.epoch >= before.attempt.epoch);
        self.check(owns && grows, p::GROWS);
    }

    /// The record of a refused write. Every completion that a driver brings must leave one (invariant 5).
    pub(crate) fn record_refused(&mut self, command: &Command, refusal: &Refusal) {
        let row = refused_row(command, refusal, self.now()).filter(|_| !self.bug(Bug::DropLate));
        let stale = row.is_some() && matches!(refusal, Refusal::StaleEpoch { .. });
        self.hit_if(stale, Probe::StaleRefused);
        if matches!(command, Command::End { .. }) {
            self.hit_if(row.is_some(), Probe::LateEndRefused);
            self.check(row.is_some_and(|row| row.command == "end"), p::RECORDED);
        }
    }

    fn commit(&mut self, g: usize, command: &Command, transition: &Transition, mut pieces: Vec<Piece>) {
        let now = self.now();
        for effect in &transition.effects {
            if let Effect::CloseLog { terminal } = effect
                && !terminal.is_empty()
            {
                pieces.push(Piece::Error(terminal.len() as u64));
            }
        }
        let twice =
            transition.postings.iter().any(|posting| self.object(g).outbox.iter().any(|row| row.id == posting.id));
        self.check(!twice, p::ONE_SETTLEMENT);
        let object = &mut self.generation(g).object;
        if matches!(command, Command::Append { .. } | Command::End { .. }) && !pieces.is_empty() {
            object.log.extend(pieces);
            object.last_append_at = Some(now);
        }
        if let Some(state) = &transition.state {
            object.aggregate = Arc::new(state.clone());
        }
        object.outbox.extend(transition.postings.iter().cloned().map(Arc::new));
        if let Command::End { .. } = command {
            self.note_end(g);
        }
    }

    fn note_end(&mut self, g: usize) {
        let aggregate = self.aggregate(g);
        let Some(live) = aggregate.live() else { return };
        let first = crate::state::FirstEnd {
            lifecycle: live.lifecycle,
            settlement: live.settlement,
            reason: live.reason,
            cost: live.cost,
        };
        self.generation(g).first_end.get_or_insert(first);
        let overage = live.cost.is_some_and(|cost| cost > live.terms.hold);
        let cancelled = live.lifecycle == Lifecycle::Cancelled;
        self.hit_if(matches!(live.usage, Some(Metered::Exact(_))), Probe::SettledExact);
        self.hit_if(matches!(live.usage, Some(Metered::AtLeast(_))), Probe::SettledEstimated);
        self.hit_if(overage, Probe::Overage);
        self.hit_if(live.settlement == Settlement::Released, Probe::Released);
        self.hit_if(live.attempt.epoch > 1 && live.lifecycle == Lifecycle::Completed, Probe::FoundComplete);
        self.hit_if(live.cancellation.is_some() && live.lifecycle == Lifecycle::Completed, Probe::CancelLost);
        self.hit_if(cancelled && live.attempt.abort == Some(AbortCause::Request), Probe::CancelConfirmed);
        let at_once = live.terms.grace_ms == 0;
        let by_policy = cancelled && live.attempt.abort == Some(AbortCause::Disconnect);
        self.hit_if(by_policy, if at_once { Probe::CancelledAtOnce } else { Probe::GraceAbort });
        let timed_out = matches!(
            live.reason,
            Some(ReasonCode::TotalTimeout | ReasonCode::IdleTimeout | ReasonCode::FirstByteTimeout)
        );
        self.hit_if(timed_out, Probe::TimedOut);
    }

    fn perform(&mut self, g: usize, effect: &Effect) {
        match effect {
            Effect::AbortUpstream { epoch } => {
                if let Some(driver) = self.memory(g).driver.as_mut().filter(|driver| driver.epoch == *epoch) {
                    driver.told = true;
                }
                if self.bug(Bug::ReleaseOnAbort) {
                    self.release(g, ReasonCode::CancelledByRequest);
                }
            }
            Effect::CollectEvidence { epoch } => {
                let end = self.evidence_of_log(g);
                // The aggregate records a refusal; the next wake-up tries again.
                let _: Result<_, Refusal> = self.end(g, *epoch, end, false, Vec::new());
            }
            Effect::CloseLog { .. } | Effect::DeleteContent => {}
        }
    }

    /// The driver is lost: what was stored is the evidence. A terminal event in the log is completion.
    fn evidence_of_log(&self, g: usize) -> UpstreamEnd {
        let object = self.object(g);
        let streaming = object.aggregate.live().is_some_and(|live| live.head.is_some());
        let terminal = object.log.iter().find_map(|piece| match piece {
            Piece::Terminal(reported) if streaming => Some(*reported),
            _ => None,
        });
        let source = if terminal.is_some() { SourceEnd::Body(EndClass::Complete) } else { SourceEnd::Lost };
        UpstreamEnd {
            usage: terminal.and_then(|reported| usage_of(reported, content_of(&object.log))),
            unseen_bytes_max: self.setting().limits.batch_bytes,
            ..UpstreamEnd::by(source)
        }
    }

    /// Ends an attempt: the headers if they wait, then outcome, last pieces and posting in one step.
    pub(crate) fn end(
        &mut self,
        g: usize,
        epoch: u32,
        mut end: UpstreamEnd,
        response_waits: bool,
        last: Vec<Piece>,
    ) -> Result<(), Refusal> {
        if response_waits {
            self.apply(g, &Command::Respond { epoch, head: head_of(self.variant().streaming) })?;
        }
        let terminal_usage = end.usage.is_some() && end.source == SourceEnd::Body(EndClass::Complete);
        if !terminal_usage {
            end.content_bytes = content_of(&self.object(g).log) + content_of(&last);
        }
        self.write(g, &Command::End { epoch, end: Box::new(end) }, last)?;
        self.deliver(g);
        Ok(())
    }

    /// Sends what is due, one delivery at a time.
    pub(crate) fn deliver(&mut self, g: usize) {
        if self.memory(g).sending.is_some() {
            return;
        }
        let now = self.now();
        let object = self.object(g);
        let mut rows = 0_u8;
        for delivery in object.aggregate.due_deliveries(now) {
            let row = object.outbox.iter().position(|posting| posting.id == delivery.posting_id);
            rows |= row.map_or(0, |row| 1 << row);
        }
        if rows == 0 {
            return;
        }
        self.generation(g).settles.insert(rows);
        if self.bug(Bug::NoOutbox) {
            return self.acknowledge(g, rows, true);
        }
        self.memory(g).sending = Some(Sending { rows, settled: None });
    }

    /// The receipt, or its absence.
    pub(crate) fn acknowledge(&mut self, g: usize, rows: u8, settled: bool) {
        let ids: Vec<String> = self.postings(g, rows).into_iter().map(|posting| posting.id).collect();
        for posting_id in ids {
            let command =
                if settled { Command::Acknowledge { posting_id } } else { Command::DeliveryFailed { posting_id } };
            // Both are taken in every state that has an outbox.
            let taken = self.apply(g, &command);
            self.check(taken.is_ok(), p::COST_IS_KEPT);
        }
    }

    /// Rows of the outbox.
    pub(crate) fn postings(&self, g: usize, rows: u8) -> Vec<Posting> {
        let outbox = self.object(g).outbox.iter().enumerate();
        outbox.filter(|(row, _)| rows & (1 << row) != 0).map(|(_, posting)| (**posting).clone()).collect()
    }

    /// Starts the driver of an epoch: `submitted` is stored, then the provider is called.
    pub(crate) fn start_driver(&mut self, g: usize, epoch: u32) {
        self.memory(g).driver = Some(Driver::new(epoch));
        if self.apply(g, &Command::Submit { epoch }) == Ok(Reply::Continue) {
            self.generation(g).provider.call();
        } else {
            self.memory(g).driver = None;
        }
    }

    /// Start, up to the reply.
    pub(crate) fn start(
        &mut self,
        g: usize,
        identity: Identity,
        attempt: AttemptId,
        terms: Terms,
    ) -> Result<Reply, Refusal> {
        let before = self.aggregate(g);
        let reply = self.apply(g, &Command::Start { identity, attempt, terms: Box::new(terms) });
        if before.live().is_some() {
            let same = *before == *self.aggregate(g) && reply == Ok(Reply::AlreadyStarted);
            self.check(same, p::REPLAY);
            self.hit_if(same, Probe::StartRepeated);
        }
        let refused = matches!(reply, Err(Refusal::NeverStarted));
        self.hit_if(refused, Probe::LateStartRefused);
        reply
    }

    /// The number of readers changed.
    pub(crate) fn readers_changed(&mut self, g: usize) {
        let memory = self.memory(g);
        let attached = u32::from(memory.reader) + u32::from(memory.edge_client);
        let before = self.aggregate(g);
        let Some(live) = before.live() else { return };
        let waits = live.lifecycle == Lifecycle::Detached && live.terms.grace_ms > 0 && live.attempt.abort.is_none();
        let taken = self.apply(g, &Command::Readers { attached, furthest_offset: 0 });
        self.check(taken.is_ok(), p::POLICY);
        self.hit_if(waits && attached > 0, Probe::GraceKept);
    }

    /// Asks the object to stop the work.
    pub(crate) fn cancel(&mut self, g: usize) {
        self.call(g);
        let before = self.aggregate(g);
        let answer = self.apply(g, &Command::Cancel);
        let Some(first) = before.live().and_then(|live| live.cancellation) else { return };
        self.hit(Probe::CancelRepeated);
        let same = answer == Ok(Reply::Cancellation(Some(first))) && *before == *self.aggregate(g);
        self.check(same, p::REPLAY);
    }

    /// The object dies with all that lives in it; rows and alarm stay.
    pub(crate) fn restart_object(&mut self, g: usize) {
        let generation = self.generation(g);
        let visible = generation.visible_to_object_readers();
        let Some(memory) = generation.object.memory.take() else { return };
        let client_here = memory.reader && generation.client.connected;
        if client_here {
            generation.client.got = visible;
            generation.client.connected = false;
        }
        let lost_early = memory.driver.as_ref().is_some_and(|driver| !driver.answered && !driver.told);
        self.hit_if(lost_early, Probe::LostBeforeHeaders);
    }

    fn lease_is_over(&self, g: usize) -> bool {
        let object = self.object(g);
        let over =
            |live: &Reservation| !live.lifecycle.is_terminal() && live.lease_expires_at(&object.facts()) <= self.now();
        object.aggregate.live().is_some_and(over)
    }

    /// What a broken rule does: a release that no evidence supports.
    fn release(&mut self, g: usize, reason: ReasonCode) {
        let now = self.now();
        let aggregate = self.aggregate(g);
        let Some(live) = aggregate.live() else { return };
        let posting = Posting {
            id: posting_id(&live.identity.reservation, live.attempt.epoch, PostingKind::Release, 1),
            kind: PostingKind::Release,
            reservation: Some(live.identity.reservation.clone()),
            generation: Some(live.identity.generation.clone()),
            amount: live.terms.hold,
            usage: None,
            price_version: None,
            direction: Default::default(),
            refers_to: None,
            frees_slot: false,
            reason,
            decided_at: now,
        };
        let mut next = live.clone();
        next.lifecycle = Lifecycle::Failed;
        next.settlement = Settlement::Released;
        next.ended_at = Some(now);
        next.deliveries.push(Delivery { posting_id: posting.id.clone(), attempts: 0, next_at: now });
        let object = &mut self.generation(g).object;
        object.aggregate = Arc::new(Aggregate::Live(Box::new(next)));
        object.outbox.push(Arc::new(posting));
        self.arm(g);
    }

    /// The state that a command is applied to; another one only where a rule is broken on purpose.
    fn distorted_state(&self, g: usize, command: &Command) -> Arc<Aggregate> {
        let aggregate = self.aggregate(g);
        let is_end = matches!(command, Command::End { .. });
        match &*aggregate {
            Aggregate::Tombstone(_)
                if self.bug(Bug::StartIgnoresTombstone) && matches!(command, Command::Start { .. }) =>
            {
                Arc::new(Aggregate::Vacant)
            }
            Aggregate::Live(live) if self.bug(Bug::OverwriteTerminal) && is_end && live.lifecycle.is_terminal() => {
                let mut open = live.clone();
                (open.lifecycle, open.settlement) = (Lifecycle::Active, Settlement::Pending);
                Arc::new(Aggregate::Live(open))
            }
            Aggregate::Live(live)
                if self.bug(Bug::CancelRecordedAgain)
                    && *command == Command::Cancel
                    && !live.lifecycle.is_terminal() =>
            {
                let mut open = live.clone();
                open.cancellation = None;
                Arc::new(Aggregate::Live(open))
            }
            _ => aggregate,
        }
    }

    /// The command that is applied, where a rule is broken on purpose.
    fn distorted_command(&self, g: usize, command: &Command) -> Option<Command> {
        let aggregate = self.aggregate(g);
        let live = aggregate.live()?;
        let owns = live.attempt.epoch;
        let mut distorted = command.clone();
        match &mut distorted {
            Command::Append { epoch, .. } | Command::End { epoch, .. } | Command::Respond { epoch, .. }
                if self.bug(Bug::StaleEpochAccepted) =>
            {
                *epoch = owns;
            }
            Command::End { end, .. } if self.bug(Bug::SettleBelowBound) => {
                (end.content_bytes, end.unseen_bytes_max) = (0, 0);
            }
            _ => return None,
        }
        Some(distorted)
    }
}

impl crate::state::Provider {
    /// The call goes out.
    pub(crate) fn call(&mut self) {
        self.dispatches += 1;
        self.fate = crate::state::Fate::Running;
    }
}

impl crate::state::Generation {
    /// What a reader at the object has been given: the log and what the object's driver has not stored yet.
    pub(crate) fn visible_to_object_readers(&self) -> Vec<Piece> {
        let mut pieces = self.object.log.clone();
        let driver = self.object.memory.as_ref().and_then(|memory| memory.driver.as_ref());
        pieces.extend(driver.into_iter().flat_map(|driver| driver.unstored.iter().copied()));
        pieces
    }

    /// What the client of a driver at the edge has been given.
    pub(crate) fn visible_to_edge_client(&self, driver: &Driver) -> Vec<Piece> {
        let confirmed = self.object.log.iter().take(driver.confirmed);
        confirmed.chain(&driver.unstored).copied().collect()
    }

    /// Length of the log as a reader finds it.
    pub(crate) fn visible_length(&self) -> u64 {
        length_of(&self.visible_to_object_readers())
    }
}

/// Whether the attempt was submitted.
pub(crate) fn was_submitted(live: &Reservation) -> bool {
    live.attempt.upstream != UpstreamState::Prepared && live.attempt.submitted_at.is_some()
}
