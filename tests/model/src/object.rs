//! The ReservationObject as its shell works: load, apply, store, arm the alarm, perform the effects, reply. Storage
//! first, memory second; a restart takes the memory alone.

use crate::bug::Bug;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Driver, Object, Piece};
use crate::step::Step;
use crate::world::{content_of, head_of, length_of, operation_id, usage_of};
use holdfast_core::ids::{AttemptId, Identity};
use holdfast_core::ledger::ReasonCode;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    Aggregate, Command, Effect, Lifecycle, Reply, ResponseHead, SourceEnd, Transition, UpstreamEnd,
};
use std::sync::Arc;

pub(crate) fn head(status: u16) -> ResponseHead {
    ResponseHead { status, headers: Vec::new() }
}

impl Step<'_> {
    pub(crate) fn object(&self, g: usize) -> &Object {
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
        if self.bug(Bug::ReleaseUnfenced) && self.lease_is_over(g) {
            return self.release(g, ReasonCode::ExpiredReleased);
        }
        let memory = self.memory(g);
        let driver_alive = memory.driver.is_some() || memory.resuming.is_some();
        let epoch = self.object(g).aggregate.live().map(|live| live.attempt.epoch());
        let woken = self.apply(g, &Command::Wake { driver_alive });
        let after = self.object(g).aggregate.live().map(|live| live.attempt.epoch());
        self.hit_if(woken.is_ok() && after != epoch, Probe::TakeOver);
        // An incarnation whose driver is alive renews its lease; nobody takes over from it (design 7).
        let drives = self.memory(g).driver.as_ref().is_some_and(|driver| driver_alive && Some(driver.epoch) == epoch);
        self.check(!drives || after == epoch, p::LIVE);
    }

    /// The alarm: re-arm first, then bounded work.
    pub(crate) fn ring(&mut self, g: usize) {
        self.deaf = self.bug(Bug::AlarmGivesUp);
        let memory = self.memory(g);
        (memory.armed, memory.alarm_known) = (None, true);
        self.arm(g);
        self.wake(g);
        self.take_words(g, self.now());
        self.deliver(g);
        self.deaf = false;
    }

    /// Arms the alarm in the same storage turn as the rows. One that is set for earlier stays.
    pub(crate) fn arm(&mut self, g: usize) {
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
        let mut transition = match applied {
            Ok(transition) => transition,
            Err(refusal) => {
                self.record_refused(g, command, &refusal);
                return Err(refusal);
            }
        };
        self.distort_transition(&before, &mut transition);
        self.check_transition(g, command, &transition);
        self.commit(g, command, &transition, pieces);
        self.arm(g);
        for effect in &transition.effects {
            self.perform(g, effect);
        }
        if transition.state.is_some() {
            self.take_words(g, now);
            self.deliver_words(g);
        }
        Ok(transition)
    }

    pub(crate) fn commit(&mut self, g: usize, command: &Command, transition: &Transition, mut pieces: Vec<Piece>) {
        let now = self.now();
        for effect in &transition.effects {
            if let Effect::CloseLog { terminal } = effect
                && !terminal.is_empty()
            {
                pieces.push(Piece::Error(terminal.len() as u64));
            }
        }
        let object = &mut self.generation(g).object;
        let brings_bytes = matches!(command, Command::Append { .. } | Command::End { .. } | Command::Reconcile { .. });
        if brings_bytes && !pieces.is_empty() {
            object.log.extend(pieces);
            object.last_append_at = Some(now);
        }
        if let Some(state) = &transition.state {
            object.aggregate = Arc::new(state.clone());
        }
        object.outbox.extend(transition.postings.iter().cloned().map(Arc::new));
        let events = transition.signals.iter().filter_map(|row| Some((row.signal.event_id.clone()?, row.disposition)));
        object.signals.extend(events);
        object.actions.extend(transition.actions.iter().cloned().map(Arc::new));
        object.evidence.extend(transition.evidence.iter().map(|row| Arc::from(row.hash())));
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
            Effect::CollectEvidence { epoch } => self.resolve_lost(g, *epoch),
            Effect::RequestCancel { epoch, operation_id } => self.request_cancel(g, *epoch, operation_id),
            Effect::LookUp { epoch, operation_id } => self.look_up(g, *epoch, operation_id),
            Effect::ExtendHold { epoch, .. } => self.extend_hold(g, *epoch),
            Effect::Resume { epoch, operation_id } => self.take_up(g, *epoch, operation_id),
            // Answers have no output here.
            Effect::CloseLog { .. } | Effect::KeepResult | Effect::ForgetResult | Effect::DeleteContent => {}
        }
    }

    pub(crate) fn resolve_lost(&mut self, g: usize, epoch: u32) {
        let end = self.evidence_of_log(g);
        let command = |end| Command::Reconcile { epoch, end };
        // The aggregate records a refusal; the next wake-up tries again.
        let _: Result<_, Refusal> = self.conclude(g, command, end, Vec::new());
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
        end: UpstreamEnd,
        response_waits: bool,
        last: Vec<Piece>,
    ) -> Result<(), Refusal> {
        if response_waits {
            self.store_response(g, epoch)?;
        }
        self.conclude(g, |end| Command::End { epoch, end }, end, last)
    }

    /// The provider's headers, and the name of its operation where it has one that can be asked about.
    pub(crate) fn store_response(&mut self, g: usize, epoch: u32) -> Result<Reply, Refusal> {
        let variant = self.variant();
        let reply = self.apply(g, &Command::Respond { epoch, head: head_of(variant.streaming) })?;
        if !variant.capabilities.outlives_socket() {
            return Ok(reply);
        }
        let operation_id = operation_id(self.state.generations[g].attempt());
        self.apply(g, &Command::Identify { epoch, operation_id })
    }

    /// Ends an attempt by the command that `command` makes of what was observed.
    fn conclude(
        &mut self,
        g: usize,
        command: impl FnOnce(Box<UpstreamEnd>) -> Command,
        mut end: UpstreamEnd,
        last: Vec<Piece>,
    ) -> Result<(), Refusal> {
        let terminal_usage = end.usage.is_some() && end.source == SourceEnd::Body(EndClass::Complete);
        if !terminal_usage {
            end.content_bytes = content_of(&self.object(g).log) + content_of(&last);
        }
        self.write(g, &command(Box::new(end)), last)?;
        self.deliver(g);
        Ok(())
    }

    /// Starts the driver of an epoch: `submitted` is stored, then the provider is called.
    pub(crate) fn start_driver(&mut self, g: usize, epoch: u32) {
        let attempt = self.state.generations[g].attempt();
        self.memory(g).driver = Some(Driver::new(epoch, attempt));
        if self.apply(g, &Command::Submit { epoch }) == Ok(Reply::Continue) {
            self.provider_is_called(g);
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
            generation.client.stops_reading(visible);
            generation.client.connected = false;
        }
        let lost_early = memory.driver.as_ref().is_some_and(|driver| !driver.answered && !driver.told);
        self.hit_if(lost_early, Probe::LostBeforeHeaders);
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
