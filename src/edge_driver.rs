//! Generations that the edge itself drives (`owner = "edge"`): short ones, close to their one client.
//!
//! The generation's object stores the intent first (`Begin`); then the Worker calls the provider, streams to its client,
//! and appends batches to the object. An append is a heartbeat: progress goes up, the verdict comes down. Everything runs
//! under `ctx.wait_until`, which carries it past the client's leaving for as long as the platform allows.

use crate::ask;
use crate::edge_client::{Client, serve};
use crate::error::EdgeError;
use holdfast_core::config::{Limits, Provider};
use holdfast_core::dialect::error_terminal;
use holdfast_core::ids::{AttemptId, Identity};
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{ResponseHead, UpstreamEnd};
use holdfast_core::tenant::Admitted;
use holdfast_core::wire::{GenerationCall, GenerationReply, Responded, StreamForm};
use holdfast_objects::pump::{self, AbortHandle, PumpLog, PumpOptions, Verdict};
use holdfast_objects::rpc::Answer;
use holdfast_objects::settings;
use std::cell::{Cell, RefCell};
use std::future::Future;
use std::rc::Rc;
use uuid::Uuid;
use worker::{Context, Env, Request, Response};

/// Longest silence of the driver towards its object; a shorter lease or idle time makes it shorter.
const HEARTBEAT_MS: u64 = 5_000;

/// What a client is told whose driver lost the generation.
const INTERRUPTED: &str = "The stream was interrupted here; the generation's record tells how it ended.";

/// Drives an admitted generation and answers its client. `context` carries the work after the client has left;
/// `request` is the client's, with its body read: its signal tells when the client leaves. `upstream_body` goes to
/// `provider`.
///
/// # Errors
/// What the generation's object refuses; [`Refusal::Unavailable`] when it cannot be reached. Nothing was sent then. What
/// [`ask::for_client`] makes of one that was started before.
pub(crate) async fn run(
    env: &Env,
    context: &Context,
    request: &Request,
    provider: &Provider,
    admitted: Admitted,
    upstream_body: Vec<u8>,
) -> Result<Response, EdgeError> {
    let Admitted { identity, attempt, terms, .. } = admitted;
    let limits = settings::limits(env)?;
    let begin = GenerationCall::Begin {
        identity: identity.clone(),
        attempt: attempt.clone(),
        terms: Box::new(terms.clone()),
        driver: Uuid::new_v4().to_string(),
    };
    let epoch = match ask::generation(env, &identity, &begin, &[]).await? {
        Answer::Reply(GenerationReply::Begun { epoch }) => epoch,
        Answer::Reply(GenerationReply::AlreadyStarted) => return follow(env, &identity).await,
        _ => return Err(ask::unexpected().into()),
    };
    let client = Client::new(request);
    let log = EdgeLog(Rc::new(Attempt {
        env: env.clone(),
        identity: identity.clone(),
        epoch,
        client: client.clone(),
        response: RefCell::default(),
        received: Cell::new(false),
        unstored: RefCell::default(),
        stored: Cell::new(0),
        #[cfg(feature = "test-hooks")]
        mute_until: crate::test_hooks::mute_until(request, terms.lease_ms),
    }));
    let abort = Rc::new(AbortHandle::new());
    context.wait_until(watch_client(log.clone(), abort.clone()));
    context.wait_until(drive(log.clone(), abort, provider.clone(), terms, attempt, limits, upstream_body));
    let served = serve(context, &client).await;
    match served.map_err(|error| unanswered(&error.to_string()))? {
        Some(response) => Ok(response),
        None if client.is_gone() => Err(unanswered("the client left").into()),
        // The driver lost its generation: whoever owns it writes the end, also for a client that has nothing yet.
        None => follow(env, &identity).await,
    }
}

fn unanswered(why: &str) -> Refusal {
    Refusal::Unavailable { what: format!("the answer could not be made: {why}") }
}

/// A generation that was started before, or that another owns: its log is followed like any other.
async fn follow(env: &Env, identity: &Identity) -> Result<Response, EdgeError> {
    let call = GenerationCall::Stream { form: StreamForm::Raw { offset: 0 } };
    ask::for_client(ask::generation(env, identity, &call, &[]).await?)
}

/// One attempt that is driven here.
struct Attempt {
    env: Env,
    identity: Identity,
    epoch: u32,
    client: Rc<Client>,
    /// The provider's headers, not yet known to the object.
    response: RefCell<Option<Responded>>,
    /// The provider sent something since the last append.
    received: Cell<bool>,
    /// Delivered to the client, not yet stored by the object.
    unstored: RefCell<Vec<u8>>,
    /// Length of the object's log, as far as it was confirmed.
    stored: Cell<u64>,
    /// Until then the object is out of reach.
    #[cfg(feature = "test-hooks")]
    mute_until: holdfast_core::time::UnixMillis,
}

/// The pump's log at the edge: the client at once, the object in batches.
#[derive(Clone)]
struct EdgeLog(Rc<Attempt>);

impl PumpLog for EdgeLog {
    fn respond(&self, head: Option<ResponseHead>) {
        if let Some(head) = &head {
            self.0.client.respond(self.0.head_for_client(head));
        }
        *self.0.response.borrow_mut() = Some(Responded { head });
    }

    fn received(&self) {
        self.0.received.set(true);
    }

    /// What this owner drives ends with its socket: the end brings the name.
    fn identified(&self, _operation_id: String) {}

    fn deliver(&self, bytes: Vec<u8>) {
        self.0.unstored.borrow_mut().extend_from_slice(&bytes);
        self.0.client.deliver(bytes);
    }

    fn unstored_bytes(&self) -> u64 {
        self.0.unstored.borrow().len() as u64
    }

    fn has_unstored(&self) -> bool {
        self.unstored_bytes() > 0 || self.0.response.borrow().is_some()
    }

    fn flush(&self) -> impl Future<Output = Verdict> + 'static {
        let attempt = self.0.clone();
        async move {
            let batch = attempt.unstored.borrow().clone();
            let length = batch.len();
            let heard = attempt.ask(attempt.append(), &batch).await;
            if heard.is_some() {
                attempt.mark_stored(length);
            }
            heard.unwrap_or(Verdict::Continue)
        }
    }

    async fn finish(&self, end: &UpstreamEnd, last_bytes: &[u8]) -> bool {
        let mut rest = self.0.unstored.borrow().clone();
        rest.extend_from_slice(last_bytes);
        let call = GenerationCall::Finish {
            epoch: self.0.epoch,
            offset: self.0.stored.get(),
            response: self.0.response.borrow().clone(),
            end: Box::new(end.clone()),
        };
        match ask::generation(&self.0.env, &self.0.identity, &call, &rest).await {
            Ok(Answer::Reply(GenerationReply::Finished { head, terminal })) => {
                if let Some(head) = head {
                    self.0.client.respond(self.0.head_for_client(&head));
                }
                let mut rest = last_bytes.to_vec();
                rest.extend(terminal.into_bytes());
                self.0.client.close(rest);
                true
            }
            answer => {
                // Where another driver owns, the client's answer stays open here, and `drive` breaks it off.
                worker::console_error!("the end of an edge generation was not taken: {answer:?}");
                !matches!(answer, Err(Refusal::Unavailable { .. }))
            }
        }
    }
}

impl Attempt {
    fn append(&self) -> GenerationCall {
        GenerationCall::Append {
            epoch: self.epoch,
            offset: self.stored.get(),
            response: self.response.borrow().clone(),
            received: self.received.replace(false),
            client_attached: !self.client.is_gone(),
            furthest_offset: self.client.taken_bytes(),
        }
    }

    fn mark_stored(&self, length: usize) {
        self.response.borrow_mut().take();
        let mut unstored = self.unstored.borrow_mut();
        let stored = length.min(unstored.len());
        unstored.drain(..stored);
        self.stored.set(self.stored.get().saturating_add(length as u64));
    }

    /// The object's verdict; `None` when it is out of reach: then the next batch asks again.
    async fn ask(&self, call: GenerationCall, raw: &[u8]) -> Option<Verdict> {
        #[cfg(feature = "test-hooks")]
        if holdfast_objects::clock::now() < self.mute_until {
            return None;
        }
        match ask::generation(&self.env, &self.identity, &call, raw).await {
            Ok(Answer::Reply(GenerationReply::Stop)) => Some(Verdict::Stop),
            Ok(_) => Some(Verdict::Continue),
            Err(Refusal::Unavailable { .. }) => None,
            Err(_) => Some(Verdict::Fenced),
        }
    }

    /// The head with the names of the generation.
    fn head_for_client(&self, head: &ResponseHead) -> ResponseHead {
        let mut head = head.clone();
        for (name, value) in self.identity.response_headers() {
            head.headers.push((name.into(), value));
        }
        head
    }
}

async fn drive(
    log: EdgeLog,
    abort: Rc<AbortHandle>,
    provider: Provider,
    terms: Terms,
    attempt: AttemptId,
    limits: Limits,
    upstream_body: Vec<u8>,
) {
    let heartbeat_ms = (terms.lease_ms.min(terms.idle_ms) / 3).clamp(1, HEARTBEAT_MS);
    let mut options = PumpOptions::new(&terms, &limits, Some(heartbeat_ms));
    // While bytes come, batches are the only heartbeats.
    options.batch_ms = options.batch_ms.min(heartbeat_ms);
    let call = pump::call_provider(&log.0.env, &provider, &terms, &attempt, &upstream_body, &abort);
    pump::run(&log, call, &abort, options).await;
    // Only a driver that lost its generation leaves the answer open. The error is for this one client, which has bytes
    // that the log may lack; the log has an end of its own, written by whoever owns it, and readers get that one.
    log.0.client.finish(error_terminal(terms.client_dialect(), "upstream_interrupted", INTERRUPTED));
}

/// Tells the object at once that the client has left; stops the driver if that is the policy.
async fn watch_client(log: EdgeLog, abort: Rc<AbortHandle>) {
    if !log.0.client.left_before_the_end().await {
        return;
    }
    // Empty on purpose: a batch may be on its way, and an empty append fits behind it or before it.
    if log.0.ask(log.0.append(), &[]).await == Some(Verdict::Stop) {
        abort.abort();
    }
}
