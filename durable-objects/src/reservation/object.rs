#![allow(missing_docs, reason = "the object macro generates undocumented items")]
//! The platform's entry points.

use super::edge::{EdgeClient, Heard};
use super::generation::Generation;
use crate::rpc::{read_call, reply};
use holdfast_core::evidence::Disposition;
use holdfast_core::ids::{AttemptId, Identity};
use holdfast_core::policy::Terms;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Reply};
use holdfast_core::tenant::Admitted;
use holdfast_core::tenant::books::ReservationBooks;
use holdfast_core::view::GenerationView;
use holdfast_core::wire::{GenerationCall, GenerationReply, StreamForm};
use std::cell::RefCell;
use std::panic::AssertUnwindSafe;
use std::rc::Rc;
use std::time::Duration;
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};

/// When the alarm of a generation that could not be loaded rings again.
const UNREADABLE_RETRY: Duration = Duration::from_secs(60);

/// One generation.
#[durable_object(alarm)]
pub struct ReservationObject {
    state: Rc<State>,
    env: Env,
    /// A panic leaves no half-made change behind: rows are stored in one transaction, and memory follows them.
    generation: AssertUnwindSafe<RefCell<Option<Rc<Generation>>>>,
}

impl DurableObject for ReservationObject {
    fn new(state: State, env: Env) -> Self {
        Self { state: Rc::new(state), env, generation: AssertUnwindSafe(RefCell::default()) }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        #[cfg(feature = "test-hooks")]
        crate::test_hooks::panic_if_asked(&request);
        let (call, raw) = read_call::<GenerationCall>(&mut request).await?;
        match self.answer(call, raw, &request).await {
            Ok(response) => Ok(response),
            Err(refusal) => reply(&GenerationReply::Refused { refusal }),
        }
    }

    async fn alarm(&self) -> Result<Response> {
        // Always Ok: after six errors the platform drops an alarm for ever.
        match self.generation() {
            Ok(generation) => generation.on_alarm().await,
            Err(refusal) => {
                worker::console_error!("alarm: {}", refusal.message());
                self.ring_again().await;
            }
        }
        Response::empty()
    }
}

impl ReservationObject {
    /// What was due still is, once it can be read: by the version that wrote it, or under settings without a fault.
    async fn ring_again(&self) {
        if let Err(error) = self.state.storage().set_alarm(UNREADABLE_RETRY).await {
            worker::console_error!("no alarm is set: {error}");
        }
    }

    /// The loaded generation. A failed load is tried again by the next event, never replaced by a default.
    fn generation(&self) -> core::result::Result<Rc<Generation>, Refusal> {
        if let Some(generation) = &*self.generation.borrow() {
            return Ok(generation.clone());
        }
        let generation = Rc::new(Generation::load(self.state.clone(), self.env.clone())?);
        *self.generation.borrow_mut() = Some(generation.clone());
        Ok(generation)
    }

    async fn answer(
        &self,
        call: GenerationCall,
        raw: Vec<u8>,
        request: &Request,
    ) -> core::result::Result<Response, Refusal> {
        let generation = self.generation()?;
        generation.repair_alarm().await;
        // Any request that finds something due acts on it, should the alarm be late or lost.
        generation.wake();
        let answer = match call {
            GenerationCall::Start { identity, attempt, terms } => {
                return start(&generation, identity, attempt, terms, raw, request).await;
            }
            GenerationCall::Stream { form } => return generation.follow(request, form).await,
            GenerationCall::Result => {
                if !generation.is_closed()? {
                    GenerationReply::Running
                } else if let Some(result) = generation.with_aggregate(|it| it.live()?.result_to_read()) {
                    return generation.read_result(request, result);
                } else {
                    return generation.follow(request, StreamForm::Raw { offset: 0 }).await;
                }
            }
            GenerationCall::Begin { identity, attempt, terms, driver } => {
                generation.edge_begin(identity, attempt, terms, driver)?
            }
            GenerationCall::Append { epoch, offset, response, received, client_attached, furthest_offset } => {
                let client = EdgeClient { attached: client_attached, furthest_offset };
                generation.edge_append(epoch, offset, Heard { response, received }, &raw, client)?
            }
            GenerationCall::Finish { epoch, offset, response, end } => {
                generation.edge_finish(epoch, offset, response, *end, &raw)?
            }
            GenerationCall::Status => status(&generation)?,
            GenerationCall::Books => GenerationReply::Books(Box::new(generation.with_aggregate(ReservationBooks::of))),
            GenerationCall::Cancel => match generation.apply(&Command::Cancel)? {
                Reply::Cancellation(cancellation) => GenerationReply::Cancellation { cancellation },
                _ => GenerationReply::Cancellation { cancellation: None },
            },
            GenerationCall::Resolve { admitted, by } => {
                let Admitted { identity, attempt, terms, admitted_at, .. } = *admitted;
                let terms = Box::new(terms);
                generation.apply(&Command::ResolveNeverStarted { identity, attempt, terms, admitted_at, by })?;
                generation.poked().await;
                GenerationReply::Resolved
            }
            GenerationCall::Signal { signal } => match generation.take_signal(*signal)? {
                Reply::Signal(disposition) => GenerationReply::Signalled { disposition },
                _ => GenerationReply::Signalled { disposition: Disposition::Ignored },
            },
        };
        reply(&answer).map_err(|error| Refusal::Unavailable { what: error.to_string() })
    }
}

/// Starts the generation with a driver in this object, or finds it started; then attaches a reader at 0.
async fn start(
    generation: &Rc<Generation>,
    identity: Identity,
    attempt: AttemptId,
    terms: Box<Terms>,
    body: Vec<u8>,
    request: &Request,
) -> core::result::Result<Response, Refusal> {
    if terms.may_repeat() {
        *generation.request.borrow_mut() = Some(body.clone());
    }
    if let Reply::Started { epoch } = generation.apply(&Command::Start { identity, attempt, terms })? {
        generation.start_driver(epoch, body);
    }
    generation.follow(request, StreamForm::Raw { offset: 0 }).await
}

fn status(generation: &Rc<Generation>) -> core::result::Result<GenerationReply, Refusal> {
    generation.view().map(|view: GenerationView| GenerationReply::Generation(Box::new(view))).ok_or(Refusal::NotFound)
}
