//! What the object asks a provider about an operation that runs there: what became of it, to stop it, for the rest of its
//! stream. Each question has a time limit, and goes through the provider's breaker; each answer comes back as a command.
//! What they mean is decided by [`holdfast_core::operation`].

use super::driver::{ObjectLog, provider_of};
use super::generation::{Driver, Generation};
use super::result::Heard;
use crate::breakers;
use crate::clock::{self, within};
use crate::egress::{self, CallError, Question, Told, head_of, is_event_stream};
use crate::pump::{self, AbortHandle, PumpOptions, TakenUp};
use crate::settings;
use holdfast_core::breaker::is_outage;
use holdfast_core::dialect::Dialect;
use holdfast_core::finding::Source;
use holdfast_core::operation::{
    NotTold, ResumeScan, SPLICE_MAX_BYTES, Splice, cancel_path, look_up_path, read_cancel, read_look_up,
    resume_is_refused, resume_path,
};
use holdfast_core::policy::Terms;
use holdfast_core::reservation::{Aggregate, CancelAnswer, Command, Reply, Report, Signal, Subject};
use std::rc::Rc;
use worker::{Method, Response, Result};

/// Longest wait for an answer, and for the head of a stream: less than the patience of the rules.
const ANSWER_MS: u64 = 10_000;

/// Where a question about an operation is put; `None` where its dialect has no such question.
type PathOf = fn(Dialect, &str, &str) -> Option<String>;

/// Why a stream does not go on.
struct NotResumed {
    refused: bool,
    retry_after_ms: Option<u64>,
}

impl NotResumed {
    const REFUSED: Self = Self { refused: true, retry_after_ms: None };
}

impl Generation {
    /// Asks what became of an operation.
    pub(super) fn look_up(self: &Rc<Self>, epoch: u32, operation_id: String) {
        let generation = self.clone();
        self.state.wait_until(async move {
            let told = generation.ask(Method::Get, look_up_path, &operation_id).await;
            let read = told.and_then(|heard| {
                let report = read_look_up(heard.dialect, &operation_id, &heard.answer())?;
                // One that could not be stored is asked for again.
                generation.keep_result(&operation_id, heard)?;
                Ok(report)
            });
            match read {
                Ok(report) => generation.looked_up(operation_id, report),
                Err(NotTold { retry_after_ms }) => {
                    generation.tell(&Command::LookUpFailed { epoch, retry_after_ms });
                }
            }
        });
    }

    /// Asks for an operation to be cancelled.
    pub(super) fn request_cancel(self: &Rc<Self>, epoch: u32, operation_id: String) {
        let generation = self.clone();
        self.state.wait_until(async move {
            let told = generation.ask(Method::Post, cancel_path, &operation_id).await;
            let read = told.and_then(|heard| {
                let read = read_cancel(heard.dialect, &operation_id, &heard.answer());
                generation.keep_result(&operation_id, heard)?;
                Ok(read)
            });
            let (answer, ended) =
                read.unwrap_or_else(|NotTold { retry_after_ms }| (CancelAnswer::Failed { retry_after_ms }, None));
            generation.tell(&Command::CancelAnswered { epoch, answer });
            // The final operation came with it.
            if let Some(report) = ended {
                generation.looked_up(operation_id, report);
            }
        });
    }

    fn looked_up(self: &Rc<Self>, operation_id: String, report: Report) {
        let signal = Signal {
            event_id: None,
            source: Source::Lookup,
            subject: Subject::Operation { operation_id },
            report,
            observed_at: clock::now(),
        };
        if let Err(refusal) = self.take_signal(signal) {
            worker::console_error!("lookup: {}", refusal.message());
        }
    }

    /// Applies what was told. A refusal is recorded where it matters.
    pub(super) fn tell(self: &Rc<Self>, command: &Command) -> Option<Reply> {
        let applied = self.apply(command);
        applied.inspect_err(|refusal| worker::console_error!("{}: {}", command.name(), refusal.message())).ok()
    }

    fn terms(&self) -> Option<Terms> {
        self.with_aggregate(|aggregate| aggregate.live().map(|live| live.terms.clone()))
    }

    /// One question with a whole answer, within its bounds.
    async fn ask(&self, method: Method, path_of: PathOf, operation_id: &str) -> core::result::Result<Heard, NotTold> {
        let terms = self.terms().ok_or(NotTold { retry_after_ms: None })?;
        let path = path_of(terms.dialect, &terms.path, operation_id).ok_or(NotTold { retry_after_ms: None })?;
        breakers::ask(&terms.provider).map_err(|left_ms| NotTold { retry_after_ms: Some(left_ms) })?;
        let told = async {
            let provider = provider_of(self, &terms)?;
            let key = settings::provider_key(&self.env, &provider)?;
            let question = Question { provider: &provider, key: &key, path: &path, forward: &terms.forward };
            egress::ask(&question, method, ANSWER_MS, self.limits().generation_max_bytes).await
        };
        let told: core::result::Result<Told, CallError> = told.await;
        breakers::note(&terms.provider, told.as_ref().is_ok_and(|told| !is_outage(told.status)));
        told.map(|told| Heard::of(&terms, told)).map_err(|error| {
            worker::console_error!("the provider was asked about an operation: {error:?}");
            NotTold { retry_after_ms: None }
        })
    }

    /// Takes the stream of a lost driver up again, where its stored events end. A try that is under way goes on.
    pub(super) fn take_up(self: &Rc<Self>, epoch: u32, operation_id: &str) {
        if self.driver.borrow().as_ref().is_some_and(|driver| driver.epoch == epoch) {
            return;
        }
        // The client of a fenced driver at the edge reads nothing more there.
        self.forget_edge_client();
        // Those that came back since the driver was lost, and those that went with an object that was restarted meanwhile:
        // the state knows of neither. What is to stop without readers is not taken up.
        self.readers_changed();
        let wanted = |aggregate: &Aggregate| aggregate.live().is_some_and(|live| live.may_resume(clock::now()));
        if !self.with_aggregate(wanted) {
            return;
        }
        let Some(terms) = self.terms() else { return };
        let options = PumpOptions::new(&terms, self.limits(), None);
        let (taken_up, starting_after) = match self.stored_stream(options) {
            Ok(Some(stored)) => stored,
            Ok(None) => return self.not_resumed(epoch, &NotResumed::REFUSED),
            Err(error) => {
                worker::console_error!("the stored stream cannot be read: {error}");
                return self.not_resumed(epoch, &NotResumed { refused: false, retry_after_ms: None });
            }
        };
        // All of it is stored: there is nothing to ask for.
        if taken_up.intake.has_terminal() {
            return self.resolve_lost(epoch);
        }
        let Some(path) = resume_path(terms.dialect, &terms.path, operation_id, starting_after) else {
            return self.not_resumed(epoch, &NotResumed::REFUSED);
        };
        let abort = Rc::new(AbortHandle::new());
        *self.driver.borrow_mut() = Some(Driver { epoch, abort: abort.clone() });
        let generation = self.clone();
        self.state.wait_until(async move {
            let answered = generation.call_for_the_rest(&terms, &path, &abort).await;
            let failed = match answered {
                Ok(response) => generation.drive_on(epoch, response, taken_up, &abort, options).await,
                Err(failed) => Err(failed),
            };
            abort.abort();
            // Before the answer is told: it may begin another try.
            generation.forget_driver(epoch);
            if let Err(failed) = failed {
                generation.not_resumed(epoch, &failed);
            }
        });
    }

    async fn drive_on(
        self: &Rc<Self>,
        epoch: u32,
        response: Response,
        taken_up: TakenUp,
        abort: &AbortHandle,
        options: PumpOptions,
    ) -> core::result::Result<(), NotResumed> {
        if self.tell(&Command::Resumed { epoch }) != Some(Reply::Continue) {
            return Ok(());
        }
        let log = ObjectLog { generation: self.clone(), epoch };
        pump::resume(&log, response, taken_up, abort, options).await.map_err(|_| {
            worker::console_error!("the provider's stream differs from what is stored of it");
            NotResumed::REFUSED
        })
    }

    fn not_resumed(self: &Rc<Self>, epoch: u32, failed: &NotResumed) {
        let NotResumed { refused, retry_after_ms } = *failed;
        self.tell(&Command::ResumeFailed { epoch, refused, retry_after_ms });
    }

    /// What the log has of the stream, and the number of its last whole event. `None` when too much would have to be
    /// compared.
    fn stored_stream(&self, options: PumpOptions) -> Result<Option<(TakenUp, Option<u64>)>> {
        let mut taken_up = TakenUp::new(options);
        let event_max_bytes = usize::try_from(self.limits().event_max_bytes).unwrap_or(usize::MAX);
        let mut scan = ResumeScan::new(event_max_bytes);
        self.scan_log(0, |bytes| {
            taken_up.length = taken_up.length.saturating_add(bytes.len() as u64);
            taken_up.intake.replay(&bytes);
            scan.push(&bytes);
        })?;
        let point = scan.point();
        if taken_up.length.saturating_sub(point.compare_from) > SPLICE_MAX_BYTES {
            return Ok(None);
        }
        taken_up.splice = Splice::new(self.read_to_end(point.compare_from)?);
        Ok(Some((taken_up, point.starting_after)))
    }

    /// The provider's answer to the request for the rest, if it is a stream.
    async fn call_for_the_rest(
        &self,
        terms: &Terms,
        path: &str,
        abort: &AbortHandle,
    ) -> core::result::Result<Response, NotResumed> {
        let failed = |retry_after_ms| NotResumed { refused: false, retry_after_ms };
        breakers::ask(&terms.provider).map_err(|left_ms| failed(Some(left_ms)))?;
        let called = within(ANSWER_MS, async {
            let provider = provider_of(self, terms)?;
            let key = settings::provider_key(&self.env, &provider)?;
            let signal = abort.signal().ok_or_else(|| CallError::NotSent("aborted".into()))?;
            let question = Question { provider: &provider, key: &key, path, forward: &terms.forward };
            egress::resume(&question, &signal).await
        });
        let called = called.await.unwrap_or_else(|| Err(CallError::late()));
        breakers::note(&terms.provider, called.as_ref().is_ok_and(|response| !is_outage(response.status_code())));
        match called {
            Ok(response) if response.status_code() == 200 && is_event_stream(&head_of(&response)) => Ok(response),
            Ok(response) => Err(NotResumed {
                refused: resume_is_refused(response.status_code()),
                retry_after_ms: egress::wish_of(&response),
            }),
            Err(error) => {
                worker::console_error!("the rest of a stream was asked for: {error:?}");
                Err(failed(None))
            }
        }
    }
}
