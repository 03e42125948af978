//! The pump: from the provider's answer to a log. One piece of code for both owners of the driver: in the object it
//! writes to the chunk log next to it, at the edge to the client and, by calls, to the object.
//!
//! It reads as fast as bytes come and never waits for a reader. Bytes are delivered to readers at once and stored in
//! batches: by size, by time, or at the terminal event.

use crate::clock::sleep_ms;
use crate::egress::{self, CallError, Outgoing, head_of, is_event_stream};
use crate::notify::Notify;
use crate::settings;
use futures::future::{Either, LocalBoxFuture, select};
use futures::{FutureExt, StreamExt, pin_mut};
use holdfast_core::config::{Limits, Provider};
use holdfast_core::ids::AttemptId;
use holdfast_core::intake::{Intake, IntakeEnd, IntakeOptions};
use holdfast_core::meter::{Continuation, EndClass, MeterReport};
use holdfast_core::operation::{Differs, Splice};
use holdfast_core::policy::Terms;
use holdfast_core::reservation::{ResponseHead, SourceEnd, UpstreamEnd, is_error_envelope, is_passable, is_success};
use std::cell::RefCell;
use std::future::{Future, poll_fn};
use std::task::{Context, Poll};
use worker::{AbortController, AbortSignal, ByteStream, Env, Response};

/// The first batch is stored at the latest after so long.
const FIRST_BATCH_MS: u64 = 100;

/// Pauses before an end that could not be stored is told again. After the last one, the lease finds what is left.
const FINISH_PAUSES_MS: [u64; 4] = [50, 250, 1_000, 4_000];

/// Whether the driver goes on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Go on.
    Continue,
    /// Stop: close the socket and finish as aborted.
    Stop,
    /// Another driver owns, or the generation has ended: close the socket and write nothing more.
    Fenced,
}

/// Where a pump writes.
pub trait PumpLog {
    /// The provider's headers came; `head` is given when readers may follow the body already. Never waits: they are
    /// stored with the first batch.
    fn respond(&self, head: Option<ResponseHead>);
    /// The provider sent something, though it may not be released yet.
    fn received(&self);
    /// The provider named its operation: told once, before the bytes that name it are delivered.
    fn identified(&self, operation_id: String);
    /// Bytes that readers may have now. Never waits.
    fn deliver(&self, bytes: Vec<u8>);
    /// Bytes delivered and not stored yet.
    fn unstored_bytes(&self) -> u64;
    /// Whether there is anything to store: bytes, or the provider's headers.
    fn has_unstored(&self) -> bool;
    /// Stores what was delivered; with nothing to store it is a heartbeat.
    fn flush(&self) -> impl Future<Output = Verdict> + 'static;
    /// The end: stores the last bytes, closes and settles in one step. Whether it was taken, or refused for good: false
    /// when the log cannot be written right now.
    fn finish(&self, end: &UpstreamEnd, last_bytes: &[u8]) -> impl Future<Output = bool>;
}

/// Stops a driver from outside: closes the socket at once.
#[derive(Debug, Default)]
pub struct AbortHandle {
    controller: RefCell<Option<AbortController>>,
    aborted: Notify,
}

impl AbortHandle {
    /// A handle whose signal goes with the provider call.
    #[must_use]
    pub fn new() -> Self {
        Self { controller: RefCell::new(Some(AbortController::default())), aborted: Notify::default() }
    }

    /// The signal for the provider call; `None` once aborted.
    pub fn signal(&self) -> Option<AbortSignal> {
        self.controller.borrow().as_ref().map(AbortController::signal)
    }

    /// Aborts. Repeating it does nothing.
    pub fn abort(&self) {
        if let Some(controller) = self.controller.borrow_mut().take() {
            controller.abort();
            self.aborted.notify();
        }
    }

    fn is_aborted(&self) -> bool {
        self.controller.borrow().is_none()
    }

    async fn aborted(&self) {
        self.aborted.changed_since(0).await;
    }
}

/// How a pump works.
#[derive(Clone, Copy, Debug)]
pub struct PumpOptions {
    /// A batch is stored when it has so many bytes.
    pub batch_bytes: u64,
    /// A batch is stored at the latest after so long.
    pub batch_ms: u64,
    /// Without bytes, [`PumpLog::flush`] is called so often; `None` where an alarm shows life instead.
    pub heartbeat_ms: Option<u64>,
    /// Largest answer.
    pub answer_max_bytes: u64,
    intake: IntakeOptions,
}

impl PumpOptions {
    /// The options for a generation.
    #[must_use]
    pub fn new(terms: &Terms, limits: &Limits, heartbeat_ms: Option<u64>) -> Self {
        Self {
            batch_bytes: limits.batch_bytes,
            batch_ms: limits.batch_ms,
            heartbeat_ms,
            answer_max_bytes: limits.generation_max_bytes,
            intake: IntakeOptions {
                dialect: terms.dialect,
                streaming: true,
                strip_usage: terms.strip_usage,
                event_max_bytes: usize::try_from(limits.event_max_bytes).unwrap_or(usize::MAX),
            },
        }
    }
}

/// The provider call of an attempt, whoever owns its driver.
///
/// # Errors
/// See [`CallError`]; a secret that is not set is [`CallError::NotSent`].
pub async fn call_provider(
    env: &Env,
    provider: &Provider,
    terms: &Terms,
    attempt: &AttemptId,
    body: &[u8],
    abort: &AbortHandle,
) -> Result<Response, CallError> {
    let key = settings::provider_key(env, provider)?;
    let signal = abort.signal().ok_or_else(|| CallError::NotSent("aborted".into()))?;
    let outgoing = Outgoing {
        provider,
        key: &key,
        path: &terms.path,
        body,
        streaming: terms.streaming,
        idempotency_key: terms.capabilities.idempotency_key.then(|| attempt.as_str()),
        forward: &terms.forward,
    };
    egress::call(&outgoing, &signal).await
}

/// Drives one attempt to its end: `call` is the provider call, made with the signal of `abort`.
pub async fn run<L: PumpLog>(
    log: &L,
    call: impl Future<Output = Result<Response, CallError>>,
    abort: &AbortHandle,
    options: PumpOptions,
) {
    pin_mut!(call);
    let heartbeats = heartbeats(log, options);
    pin_mut!(heartbeats);
    let answered = {
        let stopped = select(abort.aborted().boxed_local(), &mut heartbeats);
        pin_mut!(stopped);
        match select(call, stopped).await {
            Either::Left((answered, _)) => Ok(answered),
            Either::Right((Either::Left(_), _)) => Err(Verdict::Stop),
            Either::Right((Either::Right((verdict, _)), _)) => Err(verdict),
        }
    };
    match answered {
        Err(Verdict::Fenced) => abort.abort(),
        Err(_) => {
            abort.abort();
            finish(log, &UpstreamEnd::by(SourceEnd::Aborted), &[]).await;
        }
        Ok(Err(_)) if abort.is_aborted() => finish(log, &UpstreamEnd::by(SourceEnd::Aborted), &[]).await,
        Ok(Err(error)) => {
            worker::console_error!("no answer from the provider: {error:?}");
            let provably_unsent = matches!(error, CallError::NotSent(_));
            finish(log, &UpstreamEnd::by(SourceEnd::NoResponse { provably_unsent }), &[]).await;
        }
        Ok(Ok(response)) => take_in(log, response, abort, options).await,
    }
}

/// Shows life until the log says stop; never ends where no heartbeat is wanted.
async fn heartbeats<L: PumpLog>(log: &L, options: PumpOptions) -> Verdict {
    let Some(heartbeat_ms) = options.heartbeat_ms else { return std::future::pending().await };
    loop {
        sleep_ms(heartbeat_ms).await;
        let verdict = log.flush().await;
        if verdict != Verdict::Continue {
            return verdict;
        }
    }
}

async fn take_in<L: PumpLog>(log: &L, response: Response, abort: &AbortHandle, options: PumpOptions) {
    let head = head_of(&response);
    let streaming = is_event_stream(&head);
    log.respond(streaming.then(|| head.clone()));
    let intake = Intake::new(IntakeOptions { streaming, ..options.intake });
    let exchange = Exchange {
        log,
        abort,
        options,
        streaming,
        collected: Vec::new(),
        received_bytes: 0,
        identified: false,
        splice: Splice::default(),
        unproved: Vec::new(),
    };
    // With nothing to compare, nothing differs.
    let _never = exchange.take(response, intake, Some(head)).await;
}

/// A stream that is taken up again: what its log has already.
#[derive(Debug)]
pub struct TakenUp {
    /// Has read all of it.
    pub intake: Intake,
    /// Compares what the provider repeats.
    pub splice: Splice,
    /// Length of the log, in bytes.
    pub length: u64,
}

impl TakenUp {
    /// Of an empty log.
    #[must_use]
    pub fn new(options: PumpOptions) -> Self {
        Self { intake: Intake::new(options.intake), splice: Splice::default(), length: 0 }
    }
}

/// Drives an attempt on, with the rest of its stream.
///
/// # Errors
/// [`Differs`] when what comes does not follow what is stored: other bytes than those are repeated, another event comes
/// next, or it turns out to be of another operation. Nothing more of it is delivered then, and the end is not told.
pub async fn resume<L: PumpLog>(
    log: &L,
    response: Response,
    taken_up: TakenUp,
    abort: &AbortHandle,
    options: PumpOptions,
) -> Result<(), Differs> {
    let TakenUp { mut intake, splice, length } = taken_up;
    intake.take_up();
    let exchange = Exchange {
        log,
        abort,
        options,
        streaming: true,
        collected: Vec::new(),
        received_bytes: length,
        identified: true,
        splice,
        unproved: Vec::new(),
    };
    exchange.take(response, intake, None).await
}

/// What was observed must not be lost to a write that fails once: it may be exact usage.
async fn finish<L: PumpLog>(log: &L, end: &UpstreamEnd, last_bytes: &[u8]) {
    for pause_ms in FINISH_PAUSES_MS {
        if log.finish(end, last_bytes).await {
            return;
        }
        sleep_ms(pause_ms).await;
    }
    log.finish(end, last_bytes).await;
}

/// What was observed of a stream, and its last bytes. Half an event is left out: to a client it is broken JSON, on which
/// it would fail before it sees our error. It counts in an estimate.
fn end_of_stream(source: SourceEnd, head: Option<ResponseHead>, mut rest: IntakeEnd) -> (UpstreamEnd, Vec<u8>) {
    let dropped = if rest.class == EndClass::Complete { 0 } else { rest.tail.len() as u64 };
    if dropped > 0 {
        rest.drop_partial();
    }
    let end = UpstreamEnd {
        head,
        unseen_bytes_max: dropped,
        cut_inside_event: rest.terminal_prefix,
        ..reported(source, rest.report)
    };
    (end, rest.tail)
}

/// What was observed of a plain answer, and its bytes. One that is not whole, or cannot be passed on, is not stored: its
/// readers get an error instead, and its status alone is told.
fn end_of_body(
    broke_off: bool,
    source: SourceEnd,
    head: &ResponseHead,
    rest: IntakeEnd,
    mut body: Vec<u8>,
) -> (UpstreamEnd, Vec<u8>) {
    body.extend(rest.tail);
    let error_envelope = is_error_envelope(&body);
    let whole = rest.class == EndClass::Complete && is_success(head.status);
    let ended_by_itself = matches!(source, SourceEnd::Body(_));
    let passable = !broke_off && is_passable(head.status, error_envelope);
    let kept = ended_by_itself && (whole || passable);
    if !kept {
        body.clear();
    }
    let told = kept || (ended_by_itself && !is_success(head.status));
    let head = told.then(|| head.clone());
    (UpstreamEnd { error_envelope, head, broke_off: broke_off && !kept, ..reported(source, rest.report) }, body)
}

fn reported(source: SourceEnd, report: MeterReport) -> UpstreamEnd {
    UpstreamEnd {
        operation_id: report.operation_id,
        finish_reason: report.finish_reason,
        usage: report.usage.filter(|_| !report.usage_rejected),
        ..UpstreamEnd::by(source)
    }
}

struct Exchange<'a, L> {
    log: &'a L,
    abort: &'a AbortHandle,
    options: PumpOptions,
    streaming: bool,
    /// The body of an answer that is not a stream: it is released whole, or not at all.
    collected: Vec<u8>,
    received_bytes: u64,
    identified: bool,
    /// What the provider repeats of a stream that is taken up again.
    splice: Splice,
    /// What came of it before an event has shown that it follows what is stored.
    unproved: Vec<u8>,
}

/// Why copying stopped.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Stopped {
    BodyEnded,
    /// The connection was lost before the body's end.
    BodyBroke,
    TooLarge,
    Differs,
    Told(Verdict),
}

/// Polls the batch that is being stored; never ready while none is.
fn poll_stored(flushing: &mut Option<LocalBoxFuture<'static, Verdict>>, context: &mut Context<'_>) -> Poll<Verdict> {
    flushing.as_mut().map_or(Poll::Pending, |flushing| flushing.poll_unpin(context))
}

impl<L: PumpLog> Exchange<'_, L> {
    /// Takes an answer's body in, and tells its end.
    async fn take(
        mut self,
        mut response: Response,
        mut intake: Intake,
        head: Option<ResponseHead>,
    ) -> Result<(), Differs> {
        let stopped = match response.stream() {
            Ok(body) => self.copy(body, &mut intake).await,
            // No body to read: an answer with its head alone.
            Err(_) => Stopped::BodyEnded,
        };
        let aborted = !matches!(stopped, Stopped::BodyEnded | Stopped::BodyBroke) || self.abort.is_aborted();
        self.abort.abort();
        match stopped {
            Stopped::Told(Verdict::Fenced) => return Ok(()),
            Stopped::Differs => return Err(Differs),
            _ => {}
        }
        let rest = intake.finish();
        if rest.report.continuation == Continuation::Differs {
            return Err(Differs);
        }
        self.release_proved(Vec::new());
        // Completion wins against an abort that came too late.
        let source = match stopped {
            _ if rest.class == EndClass::Complete => SourceEnd::Body(rest.class),
            Stopped::TooLarge => SourceEnd::TooLarge,
            _ if aborted => SourceEnd::Aborted,
            _ => SourceEnd::Body(rest.class),
        };
        let (end, last_bytes) = match &head {
            Some(head) if !self.streaming => {
                end_of_body(stopped == Stopped::BodyBroke, source, head, rest, self.collected)
            }
            _ => end_of_stream(source, head, rest),
        };
        finish(self.log, &end, &last_bytes).await;
        Ok(())
    }

    /// Copies the body until it ends or breaks, grows too large, or the log says stop.
    async fn copy(&mut self, mut body: ByteStream, intake: &mut Intake) -> Stopped {
        let aborted = self.abort.aborted().fuse();
        pin_mut!(aborted);
        // The first batch is stored early: it brings the provider's headers.
        let mut timer = timer(Some(self.options.batch_ms.min(FIRST_BATCH_MS)));
        let mut flushing: Option<LocalBoxFuture<'static, Verdict>> = None;
        loop {
            futures::select_biased! {
                () = aborted => return Stopped::Told(Verdict::Stop),
                verdict = poll_fn(|context| poll_stored(&mut flushing, context)).fuse() => {
                    flushing = None;
                    if verdict != Verdict::Continue { return Stopped::Told(verdict); }
                },
                chunk = body.next().fuse() => {
                    let chunk = match chunk {
                        Some(Ok(chunk)) => chunk,
                        Some(Err(_)) => return Stopped::BodyBroke,
                        None => return Stopped::BodyEnded,
                    };
                    let was_empty = !self.log.has_unstored();
                    self.log.received();
                    self.received_bytes = self.received_bytes.saturating_add(chunk.len() as u64);
                    if self.received_bytes > self.options.answer_max_bytes { return Stopped::TooLarge; }
                    let Ok(chunk) = self.splice.take(chunk) else { return Stopped::Differs };
                    let released = intake.push(chunk);
                    self.identify(intake);
                    match intake.report().continuation {
                        Continuation::Differs => return Stopped::Differs,
                        Continuation::Open => self.unproved.extend(released),
                        Continuation::NotAsked | Continuation::Follows => self.release_proved(released),
                    }
                    let unstored = self.log.unstored_bytes();
                    if was_empty && unstored > 0 { timer = self.next_timer(); }
                    let full = unstored >= self.options.batch_bytes || intake.has_terminal();
                    if full && unstored > 0 && flushing.is_none() { flushing = Some(self.log.flush().boxed_local()); }
                },
                () = timer => {
                    if flushing.is_none() { flushing = Some(self.log.flush().boxed_local()); }
                    timer = self.next_timer();
                },
            }
        }
    }

    fn identify(&mut self, intake: &Intake) {
        if self.identified {
            return;
        }
        if let Some(operation_id) = &intake.report().operation_id {
            self.identified = true;
            self.log.identified(operation_id.clone());
        }
    }

    fn release_proved(&mut self, bytes: Vec<u8>) {
        if !self.unproved.is_empty() {
            let unproved = std::mem::take(&mut self.unproved);
            self.release(unproved);
        }
        self.release(bytes);
    }

    fn release(&mut self, bytes: Vec<u8>) {
        if !self.streaming {
            self.collected.extend(bytes);
        } else if !bytes.is_empty() {
            self.log.deliver(bytes);
        }
    }

    /// The next moment to store: after `batch_ms` while something waits, else at the next heartbeat, else never.
    fn next_timer(&self) -> Timer {
        let wait_ms = if self.log.has_unstored() { Some(self.options.batch_ms) } else { self.options.heartbeat_ms };
        timer(wait_ms)
    }
}

type Timer = futures::future::Fuse<LocalBoxFuture<'static, ()>>;

fn timer(wait_ms: Option<u64>) -> Timer {
    match wait_ms {
        Some(ms) => sleep_ms(ms).boxed_local().fuse(),
        None => std::future::pending().boxed_local().fuse(),
    }
}
