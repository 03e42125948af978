//! The Worker that serves the request: it admits, starts, and where the route says so it drives. It may die at any point,
//! its messages may come late or twice, the answers to them may not come.

use super::provider::end_of;
use crate::HoldfastModel;
use crate::bug::Bug;
use crate::config::Fault;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::{Driver, Edge, Outcome, Piece, State};
use crate::step::Step;
use crate::world::{self, length_of};
use holdfast_core::policy::{OnDisconnect, Owner};
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Command, ConnectionState, Reply, UpstreamEnd, late_signal};
use std::sync::Arc;

/// What the edge does, or what its messages do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Admit arrives. When the reply is lost, it is sent once more with the same ids; then the edge gives up.
    Admits {
        /// Which request.
        g: usize,
        /// The reply does not come.
        reply_lost: bool,
    },
    /// A copy of Admit arrives late.
    AdmitComesAgain {
        /// Which request.
        g: usize,
    },
    /// The edge dies: between Admit and Start, or while it drives.
    Dies {
        /// Which request.
        g: usize,
    },
    /// Start (or Begin) arrives, in time or late.
    StartArrives {
        /// Which request.
        g: usize,
        /// The reply does not come (an edge that wants to drive asks again).
        reply_lost: bool,
    },
    /// Start arrives, and the object dies before the driver has submitted.
    StartIsCutShort {
        /// Which request.
        g: usize,
    },
    /// A copy of Start arrives late.
    StartComesAgain {
        /// Which request.
        g: usize,
    },
    /// A batch or a heartbeat arrives.
    Appends {
        /// Which request.
        g: usize,
        /// The reply does not come: the same batch is sent again.
        reply_lost: bool,
    },
    /// The end arrives.
    Finishes {
        /// Which request.
        g: usize,
    },
    /// The end arrives again.
    FinishComesAgain {
        /// Which request.
        g: usize,
    },
}

pub(crate) fn actions(model: &HoldfastModel, state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    let faults = &state.faults;
    let drives = model.config.variants[state.variant].owner == Owner::Edge;
    match &generation.edge {
        Edge::Idle | Edge::AdmitUnanswered => {
            may(Action::Admits { g, reply_lost: false });
            if faults.allow(Fault::Loss) {
                may(Action::Admits { g, reply_lost: true });
            }
        }
        Edge::Admitted { .. } => {
            may(Action::StartArrives { g, reply_lost: false });
            if faults.allow(Fault::Loss) && drives {
                may(Action::StartArrives { g, reply_lost: true });
            }
            if faults.allow(Fault::Crash) {
                may(Action::Dies { g });
                if !drives {
                    may(Action::StartIsCutShort { g });
                }
            }
        }
        Edge::Driving(driver) => {
            if driver.told || driver.outcome.is_some() {
                may(Action::Finishes { g });
            }
            if !driver.told {
                may(Action::Appends { g, reply_lost: false });
                if faults.allow(Fault::Loss) {
                    may(Action::Appends { g, reply_lost: true });
                }
            }
            if faults.allow(Fault::Crash) {
                may(Action::Dies { g });
            }
        }
        Edge::Ended(_) | Edge::Done => {}
    }
    if faults.allow(Fault::Duplicate) && generation.first_admitted.is_some() {
        may(Action::AdmitComesAgain { g });
        if !matches!(generation.edge, Edge::Admitted { .. } | Edge::AdmitUnanswered) {
            may(Action::StartComesAgain { g });
        }
        if matches!(generation.edge, Edge::Ended(_)) {
            may(Action::FinishComesAgain { g });
        }
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Admits { g, reply_lost } => step.edge_admits(g, reply_lost),
        Action::AdmitComesAgain { g } => {
            step.state.faults.spend(Fault::Duplicate);
            // The copy's answer reaches nobody.
            let _: Result<usize, Refusal> = step.admit_again(g);
        }
        Action::Dies { g } => {
            step.state.faults.spend(Fault::Crash);
            step.edge_dies(g);
        }
        Action::StartArrives { g, reply_lost } => {
            step.spend_if(reply_lost, Fault::Loss);
            if step.variant().owner == Owner::Edge { step.begin(g, reply_lost) } else { step.start_object(g) }
        }
        Action::StartIsCutShort { g } => {
            step.state.faults.spend(Fault::Crash);
            step.start_is_cut_short(g);
        }
        Action::StartComesAgain { g } => {
            step.state.faults.spend(Fault::Duplicate);
            step.start_again(g);
        }
        Action::Appends { g, reply_lost } => {
            step.spend_if(reply_lost, Fault::Loss);
            step.edge_appends(g, reply_lost);
        }
        Action::Finishes { g } => step.edge_finishes(g),
        Action::FinishComesAgain { g } => {
            step.state.faults.spend(Fault::Duplicate);
            step.finish_again(g);
        }
    }
}

impl Step<'_> {
    fn edge_admits(&mut self, g: usize, reply_lost: bool) {
        let again = self.state.generations[g].first_admitted.is_some();
        if again && self.bug(Bug::SecondHoldAfterLostReply) {
            let mut call = world::admission(self.variant(), g);
            call.identity = world::identity(100 + g);
            let _: Result<_, Refusal> = self.admit(&call);
            return;
        }
        let admitted = self.admit_again(g);
        let retried = matches!(self.state.generations[g].edge, Edge::AdmitUnanswered);
        if reply_lost {
            self.state.faults.spend(Fault::Loss);
        }
        self.generation(g).edge = match admitted {
            _ if reply_lost && retried => Edge::Done,
            _ if reply_lost => Edge::AdmitUnanswered,
            Ok(target) => Edge::Admitted { target },
            Err(_) => Edge::Done,
        };
    }

    /// Admit, first or repeated: the hold is placed once, and the answer is always the first one (invariant 8).
    fn admit_again(&mut self, g: usize) -> Result<usize, Refusal> {
        let before = self.state.tenant.rows.clone();
        let call = world::admission(self.variant(), g);
        let answer = self.admit(&call);
        let first = self.state.generations[g].first_admitted.clone();
        let admitted = match answer {
            Ok(admitted) => admitted,
            Err(refusal) => {
                self.check(first.is_none(), p::REPLAY);
                self.hit_if(matches!(refusal, Refusal::ConcurrencyExceeded { .. }), Probe::SlotRefused);
                return Err(refusal);
            }
        };
        self.hit_if(admitted.joined && first.is_none(), Probe::AdmitJoined);
        let own = admitted.identity == self.model.identities[g];
        if let Some(first) = first.filter(|_| own) {
            let same = *first == admitted && *before == *self.state.tenant.rows;
            self.check(same, p::REPLAY);
            self.hit_if(same, Probe::AdmitRepeated);
        }
        let target = self.model.identities.iter().position(|identity| *identity == admitted.identity);
        let target = target.unwrap_or(g);
        self.generation(target).first_admitted.get_or_insert_with(|| Arc::new(admitted));
        Ok(target)
    }

    fn edge_dies(&mut self, g: usize) {
        let generation = self.generation(g);
        let before_headers = match &generation.edge {
            Edge::Driving(driver) => {
                let lost_early = !driver.answered && !driver.told;
                if generation.client.connected && generation.client.got.is_empty() {
                    generation.client.got = generation.visible_to_edge_client(driver);
                }
                generation.client.connected = false;
                lost_early
            }
            _ => false,
        };
        generation.edge = Edge::Done;
        self.hit_if(before_headers, Probe::LostBeforeHeaders);
    }

    /// The terms that Start carries: those of the hold.
    fn start_of(&mut self, g: usize) -> (usize, Arc<holdfast_core::tenant::Admitted>) {
        let generation = &self.state.generations[g];
        let target = if let Edge::Admitted { target } = generation.edge { target } else { g };
        let admitted = self.state.generations[target].first_admitted.clone();
        let admitted = admitted.expect("Start follows Admit");
        (target, admitted)
    }

    fn start_object(&mut self, g: usize) {
        let (target, admitted) = self.start_of(g);
        self.call(target);
        let reply = self.start(target, admitted.identity.clone(), admitted.attempt.clone(), admitted.terms.clone());
        self.generation(g).edge = Edge::Done;
        match reply {
            Ok(Reply::Started { epoch }) => self.start_driver(target, epoch),
            Ok(_) if self.bug(Bug::DoubleDispatch) => self.provider_is_called(target),
            Ok(_) => {}
            Err(_) => return,
        }
        self.generation(target).client.connected = true;
        self.memory(target).reader = true;
        self.readers_changed(target);
    }

    fn start_is_cut_short(&mut self, g: usize) {
        let (target, admitted) = self.start_of(g);
        self.call(target);
        let reply = self.start(target, admitted.identity.clone(), admitted.attempt.clone(), admitted.terms.clone());
        if matches!(reply, Ok(Reply::Started { .. })) && self.bug(Bug::FetchBeforeSubmit) {
            self.provider_is_called(target);
        }
        self.generation(g).edge = Edge::Done;
        self.restart_object(target);
    }

    fn start_again(&mut self, g: usize) {
        let (target, admitted) = self.start_of(g);
        self.call(target);
        let reply = self.start(target, admitted.identity.clone(), admitted.attempt.clone(), admitted.terms.clone());
        // Whoever sent it is gone: a generation that is started now runs without a reader.
        match reply {
            Ok(Reply::Started { epoch }) if self.variant().owner == Owner::Object => self.start_driver(target, epoch),
            Ok(Reply::Started { epoch }) => {
                let submitted = self.apply(target, &Command::Submit { epoch });
                self.check(submitted.is_ok(), p::ONE_DISPATCH);
            }
            Ok(_) if self.bug(Bug::DoubleDispatch) => self.provider_is_called(target),
            _ => {}
        }
    }

    /// Start for a driver at the edge. The same driver may ask again; any other finds it started.
    fn begin(&mut self, g: usize, reply_lost: bool) {
        let (target, admitted) = self.start_of(g);
        self.call(target);
        let reply = self.start(target, admitted.identity.clone(), admitted.attempt.clone(), admitted.terms.clone());
        let begun = match reply {
            Ok(Reply::Started { epoch }) => {
                let submitted = self.apply(target, &Command::Submit { epoch });
                self.check(submitted == Ok(Reply::Continue), p::ONE_DISPATCH);
                let memory = self.memory(target);
                memory.edge_driver = Some((g, epoch));
                memory.edge_client = true;
                self.readers_changed(target);
                Some(epoch)
            }
            Ok(_) => {
                let begun = self.memory(target).edge_driver.filter(|(by, _)| *by == g).map(|(_, epoch)| epoch);
                begun.filter(|epoch| self.owns(target, *epoch) || self.bug(Bug::BegunByZombie))
            }
            Err(_) => {
                self.generation(g).edge = Edge::Done;
                return;
            }
        };
        if reply_lost {
            return;
        }
        match begun {
            Some(epoch) => {
                let owns = self.owns(target, epoch);
                self.check(owns, p::ONE_DISPATCH);
                self.provider_is_called(target);
                self.generation(g).client.connected = true;
                self.generation(g).edge = Edge::Driving(Driver::new(epoch, 0));
            }
            // Somebody else drives, or nobody knows who: the log is followed.
            None => {
                self.generation(g).edge = Edge::Done;
                self.generation(target).client.connected = true;
                self.memory(target).reader = true;
                self.readers_changed(target);
            }
        }
    }

    fn edge_appends(&mut self, g: usize, reply_lost: bool) {
        let Edge::Driving(mut driver) = self.state.generations[g].edge.clone() else { return };
        let attached = self.edge_client_is_there(g);
        let verdict = self.edge_append(g, &driver, attached);
        if reply_lost {
            return;
        }
        match verdict {
            Ok(reply) => {
                driver.told |= reply == Reply::Stop;
                driver.response_waits = false;
                driver.confirmed += driver.unstored.len();
                driver.unstored.clear();
                self.generation(g).edge = Edge::Driving(driver);
            }
            // Fenced: the socket is closed, and nothing more is written.
            Err(_) => self.edge_is_fenced(g),
        }
    }

    fn edge_is_fenced(&mut self, g: usize) {
        let generation = self.generation(g);
        if generation.client.connected
            && let Edge::Driving(driver) = &generation.edge
        {
            generation.client.got = generation.visible_to_edge_client(driver);
            generation.client.connected = false;
        }
        generation.edge = Edge::Done;
    }

    /// The client of the edge's answer; one that came back reads at the object.
    fn edge_client_is_there(&self, g: usize) -> bool {
        let generation = &self.state.generations[g];
        generation.client.connected && generation.object.memory.as_ref().is_none_or(|memory| !memory.reader)
    }

    /// The object takes a batch in. The reply is the verdict.
    fn edge_append(&mut self, g: usize, driver: &Driver, attached: bool) -> Result<Reply, Refusal> {
        self.call(g);
        let epoch = driver.epoch;
        let new = self.new_pieces(g, driver)?;
        let command = Command::Append { epoch, bytes: length_of(&new) };
        self.allow(g, &command)?;
        if driver.response_waits || !driver.unstored.is_empty() {
            let now = self.now();
            self.memory(g).received_at = Some(now);
        }
        if attached && !self.memory(g).edge_client {
            // A restarted object learns by it that there is one.
            self.memory(g).edge_client = true;
            self.readers_changed(g);
        }
        if driver.response_waits {
            self.store_response(g, epoch)?;
        }
        let mut verdict = self.write(g, &command, new)?.reply;
        if !attached && self.edge_client_left(g) {
            verdict = self.apply(g, &Command::Append { epoch, bytes: 0 })?;
        }
        self.check_policy(g, attached, &verdict);
        Ok(verdict)
    }

    /// A client that is gone under the policy `cancel` without grace: the driver is told so with this very answer.
    fn check_policy(&mut self, g: usize, attached: bool, verdict: &Reply) {
        let stops = self.variant().on_disconnect == OnDisconnect::Cancel && self.variant().grace_ticks == 0;
        let reads_here = self.memory(g).reader;
        self.check(attached || !stops || reads_here || *verdict == Reply::Stop, p::POLICY);
    }

    /// Whether the client's leaving is news.
    fn edge_client_left(&mut self, g: usize) -> bool {
        let was_there = std::mem::take(&mut self.memory(g).edge_client);
        if self.bug(Bug::EdgeClientForgotten) && !was_there {
            return false;
        }
        // Memory does not decide: it may be that of a restarted object.
        let aggregate = self.aggregate(g);
        let known = aggregate.live().is_none_or(|live| live.connection.state == ConnectionState::Disconnected);
        let left = !known && !self.memory(g).reader;
        if left {
            self.readers_changed(g);
        }
        left
    }

    /// The part of a repeated batch that is not in the log yet.
    fn new_pieces(&mut self, g: usize, driver: &Driver) -> Result<Vec<Piece>, Refusal> {
        let stored = self.state.generations[g].object.log.len();
        let Some(known) = stored.checked_sub(driver.confirmed) else {
            return Err(Refusal::WrongState { state: "at another offset".into() });
        };
        self.hit_if(known > 0 && !driver.unstored.is_empty(), Probe::BatchRepeated);
        let known = if self.bug(Bug::BatchStoredTwice) { 0 } else { known };
        Ok(driver.unstored.iter().skip(known).copied().collect())
    }

    fn edge_finishes(&mut self, g: usize) {
        let Edge::Driving(driver) = self.state.generations[g].edge.clone() else { return };
        let outcome = driver.outcome.unwrap_or(Outcome::Aborted);
        let (end, last) = end_of(self, g, &driver, outcome);
        let finished = self.edge_finish(g, &driver, end, last);
        let generation = self.generation(g);
        if generation.client.connected && generation.object.memory.as_ref().is_none_or(|memory| !memory.reader) {
            // It has the rest of the log with the answer, or what it had when its driver lost the generation.
            let fenced = finished.is_err();
            generation.client.got = if fenced {
                generation.visible_to_edge_client(&driver)
            } else {
                generation.visible_to_object_readers()
            };
            generation.client.connected = false;
        }
        self.generation(g).edge = Edge::Ended(driver);
    }

    /// The object's side of the end. A repeated one gets the same answer: what the log has behind the driver's pieces.
    fn edge_finish(&mut self, g: usize, driver: &Driver, end: UpstreamEnd, last: Vec<Piece>) -> Result<(), Refusal> {
        self.call(g);
        let epoch = driver.epoch;
        let aggregate = self.aggregate(g);
        let ended_here =
            aggregate.live().is_some_and(|live| live.lifecycle.is_terminal() && live.attempt.epoch() == epoch);
        if !ended_here || self.bug(Bug::OverwriteTerminal) {
            let asked = if self.bug(Bug::EndRecordedAsAppend) {
                Command::Append { epoch, bytes: 0 }
            } else {
                Command::End { epoch, end: Box::new(end.clone()) }
            };
            if let Err(refusal) = self.allow_end(g, &asked) {
                // What the refused end saw of the outcome is kept, however it was asked about.
                let end = Command::End { epoch, end: Box::new(end) };
                let told = late_signal(&end, &refusal, self.now()).and_then(|signal| signal.event_id);
                self.check(told.is_none_or(|id| self.object(g).signals.contains_key(&id)), p::RECORDED);
                return Err(refusal);
            }
            let mut pieces = self.new_pieces(g, driver)?;
            pieces.extend(last);
            self.end(g, epoch, end, driver.response_waits, pieces)?;
        }
        self.edge_client_left(g);
        Ok(())
    }

    fn allow_end(&mut self, g: usize, asked: &Command) -> Result<(), Refusal> {
        if self.bug(Bug::OverwriteTerminal) { Ok(()) } else { self.allow(g, asked) }
    }

    fn finish_again(&mut self, g: usize) {
        let Edge::Ended(driver) = self.state.generations[g].edge.clone() else { return };
        let outcome = driver.outcome.unwrap_or(Outcome::Aborted);
        let (end, last) = end_of(self, g, &driver, outcome);
        let before = self.state.generations[g].object.clone();
        let was_over = before.is_over();
        let answer = self.edge_finish(g, &driver, end, last);
        if was_over {
            let after = &self.state.generations[g].object;
            let same = Aggregate::clone(&before.aggregate) == *after.aggregate && before.log == after.log;
            self.check(same, p::REPLAY);
            self.hit_if(answer.is_ok(), Probe::FinishRepeated);
        }
    }
}
