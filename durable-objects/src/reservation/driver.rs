//! The driver: calls the provider and feeds the log. It runs in `state.wait_until`, with the alarm as its heartbeat.

use super::generation::{Driver, Generation};
use crate::egress::CallError;
use crate::pump::{self, AbortHandle, PumpLog, PumpOptions, Verdict};
use crate::settings;
use holdfast_core::config::Provider;
use holdfast_core::ids::AttemptId;
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Command, Reply, ResponseHead, UpstreamEnd};
use holdfast_core::wire::Responded;
use std::future::{Future, ready};
use std::rc::Rc;
use worker::Response;

/// The pump's log in this object: the chunk log beside it.
pub(super) struct ObjectLog {
    pub(super) generation: Rc<Generation>,
    pub(super) epoch: u32,
}

impl PumpLog for ObjectLog {
    fn respond(&self, head: Option<ResponseHead>) {
        self.generation.responded(Responded { head });
    }

    fn received(&self) {
        self.generation.received();
    }

    /// Where the operation outlives its socket its name is stored at once, before more is released: after a loss nothing
    /// can be asked without it. Elsewhere the end brings it.
    fn identified(&self, operation_id: String) {
        let outlives =
            |aggregate: &Aggregate| aggregate.live().is_some_and(|live| live.terms.capabilities.outlives_socket());
        if !self.generation.with_aggregate(outlives) {
            return;
        }
        let stored = self.generation.store_response(self.epoch);
        let identify = Command::Identify { epoch: self.epoch, operation_id };
        if let Err(refusal) = stored.and_then(|()| self.generation.apply(&identify)) {
            // A fenced driver hears it with its next batch; after a failed write the end brings the name again.
            worker::console_error!("the operation's name was not stored: {refusal}");
        }
    }

    fn deliver(&self, bytes: Vec<u8>) {
        self.generation.log.borrow_mut().deliver(bytes);
        self.generation.progress.notify();
    }

    fn unstored_bytes(&self) -> u64 {
        self.generation.log.borrow().unstored_bytes()
    }

    fn has_unstored(&self) -> bool {
        self.unstored_bytes() > 0 || self.generation.response.borrow().is_some()
    }

    fn flush(&self) -> impl Future<Output = Verdict> + 'static {
        let stored = self.generation.store_response(self.epoch);
        let bytes = self.unstored_bytes();
        let append = || self.generation.apply(&Command::Append { epoch: self.epoch, bytes });
        ready(verdict_of(stored.and_then(|()| append())))
    }

    async fn finish(&self, end: &UpstreamEnd, last_bytes: &[u8]) -> bool {
        let Err(refusal) = self.generation.end(self.epoch, end.clone(), last_bytes.to_vec()) else { return true };
        // Recorded by the aggregate where it matters.
        worker::console_error!("the end was refused: {refusal}");
        !matches!(refusal, Refusal::Unavailable { .. })
    }
}

/// A storage error is not final: the batch stays in memory and is tried again.
fn verdict_of(applied: Result<Reply, Refusal>) -> Verdict {
    match applied {
        Ok(Reply::Stop) => Verdict::Stop,
        Ok(_) | Err(Refusal::Unavailable { .. }) => Verdict::Continue,
        Err(_) => Verdict::Fenced,
    }
}

impl Generation {
    /// Starts the driver of an epoch. It is known to this object before anything awaits.
    pub(super) fn start_driver(self: &Rc<Self>, epoch: u32, body: Vec<u8>) {
        let abort = Rc::new(AbortHandle::new());
        *self.driver.borrow_mut() = Some(Driver { epoch, abort: abort.clone() });
        let submitted = self.apply(&Command::Submit { epoch });
        let generation = self.clone();
        self.state.wait_until(async move {
            // Nothing is sent unless the intent is stored.
            match submitted {
                Ok(Reply::Continue) => generation.drive(epoch, &body, &abort).await,
                other => worker::console_error!("not submitted: {other:?}"),
            }
            generation.forget_driver(epoch);
        });
    }

    /// The driver of an epoch is gone. Another one may be there already.
    pub(super) fn forget_driver(&self, epoch: u32) {
        self.driver.borrow_mut().take_if(|driver| driver.epoch == epoch);
    }

    async fn drive(self: &Rc<Self>, epoch: u32, body: &[u8], abort: &AbortHandle) {
        let live =
            self.with_aggregate(|aggregate| aggregate.live().map(|live| (live.terms.clone(), live.attempt.id.clone())));
        let Some((terms, attempt)) = live else { return };
        // The alarm shows life; the pump does not have to.
        let options = PumpOptions::new(&terms, self.limits(), None);
        let log = ObjectLog { generation: self.clone(), epoch };
        pump::run(&log, call(self, &terms, &attempt, body, abort), abort, options).await;
    }
}

async fn call(
    generation: &Generation,
    terms: &Terms,
    attempt: &AttemptId,
    body: &[u8],
    abort: &AbortHandle,
) -> Result<Response, CallError> {
    let provider = &provider_of(generation, terms)?;
    pump::call_provider(&generation.env, provider, terms, attempt, body, abort).await
}

/// The provider that a generation was admitted for.
pub(super) fn provider_of(generation: &Generation, terms: &Terms) -> Result<Provider, CallError> {
    let providers = settings::providers(&generation.env)?;
    let provider = providers.into_iter().find(|provider| provider.name == terms.provider);
    provider.ok_or_else(|| CallError::NotSent("the provider is not configured any more".into()))
}
