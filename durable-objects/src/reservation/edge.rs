//! The object's side of a driver at the edge: it begins, appends, finishes. Each call may be repeated; each names its
//! epoch, and a fenced driver changes nothing.

use super::generation::{Generation, storage_failed};
use crate::clock;
use holdfast_core::ids::{AttemptId, Identity};
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Reply, UpstreamEnd};
use holdfast_core::wire::{GenerationReply, Responded};
use std::rc::Rc;

/// What a driver at the edge tells about its client.
#[derive(Clone, Copy, Debug)]
pub(super) struct EdgeClient {
    /// Whether it is still there.
    pub(super) attached: bool,
    /// Furthest byte that it was given.
    pub(super) furthest_offset: u64,
}

/// What a driver at the edge heard from the provider since its last append.
#[derive(Clone, Debug)]
pub(super) struct Heard {
    /// Its headers.
    pub(super) response: Option<Responded>,
    /// Anything at all.
    pub(super) received: bool,
}

impl Generation {
    /// Starts the generation with a driver at the edge: the intent is durable when the reply leaves. The same driver may
    /// ask again, should the reply be lost, as long as it owns; any other finds it started.
    pub(super) fn edge_begin(
        self: &Rc<Self>,
        identity: Identity,
        attempt: AttemptId,
        terms: Box<Terms>,
        driver: String,
    ) -> Result<GenerationReply, Refusal> {
        match self.apply(&Command::Start { identity, attempt, terms })? {
            Reply::Started { epoch } => {
                self.apply(&Command::Submit { epoch })?;
                self.edge_driver.replace(Some((driver, epoch)));
                self.edge_client_attached();
                Ok(GenerationReply::Begun { epoch })
            }
            _ => Ok(match &*self.edge_driver.borrow() {
                Some((begun_by, epoch)) if *begun_by == driver && self.is_owned_by(*epoch) => {
                    GenerationReply::Begun { epoch: *epoch }
                }
                _ => GenerationReply::AlreadyStarted,
            }),
        }
    }

    /// Takes a batch in; an empty one is a heartbeat. The reply is the verdict.
    pub(super) fn edge_append(
        self: &Rc<Self>,
        epoch: u32,
        offset: u64,
        heard: Heard,
        bytes: &[u8],
        client: EdgeClient,
    ) -> Result<GenerationReply, Refusal> {
        let new = self.new_bytes(offset, bytes)?.to_vec();
        let command = Command::Append { epoch, bytes: new.len() as u64 };
        self.allow(&command)?;
        if heard.received {
            self.received();
        }
        heard.response.into_iter().for_each(|response| self.responded(response));
        self.log.borrow_mut().deliver(new);
        self.progress.notify();
        self.edge_progress(client);
        self.store_response(epoch)?;
        let mut verdict = self.apply(&command)?;
        if !client.attached && self.edge_client_left() {
            // The policy may have decided just now.
            verdict = self.apply(&Command::Append { epoch, bytes: 0 })?;
        }
        Ok(if verdict == Reply::Stop { GenerationReply::Stop } else { GenerationReply::Continue })
    }

    /// The end. A repeated one gets the same answer: what the log has behind the driver's own bytes.
    pub(super) fn edge_finish(
        self: &Rc<Self>,
        epoch: u32,
        offset: u64,
        response: Option<Responded>,
        end: UpstreamEnd,
        last_bytes: &[u8],
    ) -> Result<GenerationReply, Refusal> {
        let terminal = if self.ended_at_epoch(epoch) {
            let own_end = offset.saturating_add(last_bytes.len() as u64);
            self.read_to_end(own_end).map_err(|error| storage_failed(&error))?
        } else {
            let new = self.new_bytes(offset, last_bytes)?.to_vec();
            // Refused as the end that it is: what a fenced driver saw of the outcome is evidence.
            self.allow(&Command::End { epoch, end: Box::new(end.clone()) })?;
            response.into_iter().for_each(|response| self.responded(response));
            self.end(epoch, end, new)?
        };
        self.edge_client_left();
        let terminal = String::from_utf8_lossy(&terminal).into_owned();
        Ok(GenerationReply::Finished { head: self.head(), terminal })
    }

    /// Whether a driver of this epoch may still call the provider (invariant 12).
    fn is_owned_by(&self, epoch: u32) -> bool {
        self.with_aggregate(|aggregate| {
            aggregate.live().is_some_and(|live| live.attempt.epoch() == epoch && !live.lifecycle.is_terminal())
        })
    }

    /// Asked before anything is taken in: a fenced driver adds neither a head nor a byte.
    fn allow(self: &Rc<Self>, command: &Command) -> Result<(), Refusal> {
        let now = clock::now();
        let facts = self.facts();
        let allowed = self.with_aggregate(|aggregate| aggregate.apply(command, &facts, 0, now));
        allowed.map(|_| ()).inspect_err(|refusal| self.record_refused(command, refusal, now))
    }

    /// The part of a repeated append that is not in the log yet.
    fn new_bytes<'a>(&self, offset: u64, bytes: &'a [u8]) -> Result<&'a [u8], Refusal> {
        let length = self.log.borrow().length();
        let known = length.checked_sub(offset).and_then(|known| usize::try_from(known).ok());
        known
            .map(|known| bytes.get(known..).unwrap_or_default())
            .ok_or_else(|| Refusal::WrongState { state: format!("at offset {length}") })
    }
}
