//! Load, apply, store, arm, effects. Storage first, memory second; nothing between load and store awaits.

use super::log::Log;
use super::readers::Readers;
use super::store::{Append, Beside, CHUNK_MAX_BYTES, RequestRow, ResultRows, Store};
use crate::clock;
use crate::notify::Notify;
use crate::pump::AbortHandle;
use crate::settings;
use futures::FutureExt;
use holdfast_core::config::Limits;
use holdfast_core::dialect::Dialect;
use holdfast_core::intake::{Intake, IntakeOptions};
use holdfast_core::meter::{ContentCounter, EndClass};
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    Aggregate, Command, Effect, Lifecycle, LogFacts, Reply, ResponseHead, Signal, SourceEnd, Transition, UpstreamEnd,
    late_signal, refused_row,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::view::{GenerationView, LiveFacts};
use holdfast_core::wire::Responded;
use std::borrow::Cow;
use std::cell::{Cell, RefCell};
use std::rc::Rc;
use worker::js_sys::Date;
use worker::wasm_bindgen::JsValue;
use worker::{Env, Result, ScheduledTime, State};

/// The driver that runs in this incarnation.
#[derive(Clone, Debug)]
pub(super) struct Driver {
    pub(super) epoch: u32,
    pub(super) abort: Rc<AbortHandle>,
}

/// One generation in memory: what is stored, and what only lives here.
pub(super) struct Generation {
    pub(super) state: Rc<State>,
    pub(super) env: Env,
    pub(super) store: Store,
    pub(super) log: RefCell<Log>,
    pub(super) readers: RefCell<Readers>,
    pub(super) driver: RefCell<Option<Driver>>,
    /// Bytes were delivered or the state changed.
    pub(super) progress: Notify,
    pub(super) delivering: Cell<bool>,
    /// The tenant is being asked for a further attempt's hold.
    pub(super) extending: Cell<bool>,
    /// The request of a generation that is about to start, where it may have to be sent again.
    pub(super) request: RefCell<Option<Vec<u8>>>,
    /// The result that is being told.
    pub(super) result: RefCell<Vec<Vec<u8>>>,
    received_at: Cell<Option<UnixMillis>>,
    /// Counted while a disconnect is decided.
    content_bytes: Cell<Option<u64>>,
    /// The tenant is being told that the result was read.
    pub(super) telling_read: Cell<bool>,
    /// The driver at the edge that began an epoch, by the name it gave itself.
    pub(super) edge_driver: RefCell<Option<(String, u32)>>,
    /// The provider's headers, on their way to the disk with the first batch.
    pub(super) response: RefCell<Option<Responded>>,
    aggregate: RefCell<Aggregate>,
    limits: Limits,
    armed: Cell<Option<UnixMillis>>,
    alarm_known: Cell<bool>,
}

pub(super) fn storage_failed(error: &worker::Error) -> Refusal {
    worker::console_error!("storage: {error}");
    Refusal::Unavailable { what: "the generation's storage failed".into() }
}

impl Generation {
    pub(super) fn load(state: Rc<State>, env: Env) -> core::result::Result<Self, Refusal> {
        let limits = settings::limits(&env)?;
        let store = Store::new(state.storage());
        let (aggregate, facts) = store.load().map_err(|error| storage_failed(&error))?;
        Ok(Self {
            state,
            env,
            store,
            log: RefCell::new(Log::new(facts)),
            readers: RefCell::default(),
            driver: RefCell::default(),
            progress: Notify::default(),
            delivering: Cell::new(false),
            extending: Cell::new(false),
            request: RefCell::default(),
            result: RefCell::default(),
            received_at: Cell::new(None),
            content_bytes: Cell::new(None),
            telling_read: Cell::new(false),
            edge_driver: RefCell::default(),
            response: RefCell::default(),
            aggregate: RefCell::new(aggregate),
            limits,
            armed: Cell::new(None),
            alarm_known: Cell::new(false),
        })
    }

    /// The provider sent something just now.
    pub(super) fn received(&self) {
        self.received_at.set(Some(clock::now()));
    }

    /// What the log says, and when the provider was last heard.
    pub(super) fn facts(&self) -> LogFacts {
        let (received_at, content_bytes) = (self.received_at.get(), self.content_bytes.get());
        LogFacts { received_at, content_bytes, ..self.log.borrow().facts() }
    }

    pub(super) fn limits(&self) -> &Limits {
        &self.limits
    }

    /// Looks at the aggregate. Nothing may await inside.
    pub(super) fn with_aggregate<T>(&self, look: impl FnOnce(&Aggregate) -> T) -> T {
        look(&self.aggregate.borrow())
    }

    /// The answer's head, stored or on its way.
    pub(super) fn head(&self) -> Option<ResponseHead> {
        let facts = self.facts();
        let stored =
            self.with_aggregate(|aggregate| aggregate.live().and_then(|live| live.head_for_readers(&facts).cloned()));
        stored.or_else(|| self.response.borrow().as_ref().and_then(|response| response.head.clone()))
    }

    /// The provider's headers came: readers have them at once, the disk gets them with the first batch. A crash in
    /// between takes both.
    pub(super) fn responded(&self, response: Responded) {
        *self.response.borrow_mut() = Some(response);
        self.progress.notify();
    }

    /// Stores the provider's headers, if they wait, in the same storage turn as what follows.
    pub(super) fn store_response(self: &Rc<Self>, epoch: u32) -> core::result::Result<(), Refusal> {
        let Some(Responded { head }) = self.response.borrow().clone() else { return Ok(()) };
        self.apply(&Command::Respond { epoch, head })?;
        self.response.borrow_mut().take();
        Ok(())
    }

    /// Whether the log is closed.
    pub(super) fn is_closed(&self) -> core::result::Result<bool, Refusal> {
        self.with_aggregate(|aggregate| match aggregate {
            Aggregate::Vacant => Err(Refusal::NotFound),
            Aggregate::Tombstone(_) => Err(Refusal::NeverStarted),
            Aggregate::Live(live) => Ok(live.lifecycle.is_terminal()),
        })
    }

    /// Whether the attempt of this epoch was the one that ended.
    pub(super) fn ended_at_epoch(&self, epoch: u32) -> bool {
        self.with_aggregate(|aggregate| {
            aggregate.live().is_some_and(|live| live.lifecycle.is_terminal() && live.attempt.epoch() == epoch)
        })
    }

    pub(super) fn view(&self) -> Option<GenerationView> {
        let log = self.log.borrow();
        let readers = self.readers.borrow();
        let live = LiveFacts {
            readers: readers.attached(),
            furthest_offset: readers.furthest_offset(),
            unstored_bytes: log.unstored_bytes(),
        };
        self.with_aggregate(|aggregate| GenerationView::of(&self.with_response(aggregate), &log.facts(), &live))
    }

    /// The aggregate as it will be once the provider's headers are stored.
    fn with_response<'a>(&self, aggregate: &'a Aggregate) -> Cow<'a, Aggregate> {
        let response = self.response.borrow().clone();
        let shown = response.zip(aggregate.live()).and_then(|(Responded { head }, live)| {
            let command = Command::Respond { epoch: live.attempt.epoch(), head };
            aggregate.apply(&command, &LogFacts::default(), 0, clock::now()).ok()?.state
        });
        shown.map_or(Cow::Borrowed(aggregate), Cow::Owned)
    }

    /// Applies a command that brings no bytes.
    pub(super) fn apply(self: &Rc<Self>, command: &Command) -> core::result::Result<Reply, Refusal> {
        self.apply_with(command, Vec::new()).map(|transition| transition.reply)
    }

    /// Applies a command: stores all that it makes in one transaction, arms the alarm, then performs the effects.
    /// `last_bytes` go to the log with [`Command::End`].
    fn apply_with(
        self: &Rc<Self>,
        command: &Command,
        last_bytes: Vec<u8>,
    ) -> core::result::Result<Transition, Refusal> {
        let now = clock::now();
        let facts = self.facts();
        let applied = self.aggregate.borrow().apply(command, &facts, self.limits.heartbeat_ms, now);
        let transition = applied.inspect_err(|refusal| self.record_refused(command, refusal, now))?;
        self.commit(command, &transition, last_bytes, now).map_err(|error| storage_failed(&error))?;
        self.arm(now);
        if transition.state.is_some() {
            self.progress.notify();
        }
        transition.effects.iter().for_each(|effect| self.perform(effect));
        let due = transition.state.is_some() && self.with_aggregate(|it| it.due_deliveries(now).next().is_some());
        if due && !self.delivering.get() {
            self.start_deliveries();
        }
        Ok(transition)
    }

    /// A refused write of a fenced or late driver is recorded; what it saw of the outcome is evidence like any other.
    pub(super) fn record_refused(self: &Rc<Self>, command: &Command, refusal: &Refusal, now: UnixMillis) {
        if let Some(row) = refused_row(command, refusal, now)
            && let Err(error) = self.store.write_history(&row)
        {
            worker::console_error!("history: {error}");
        }
        if let Some(signal) = late_signal(command, refusal, now)
            && let Err(refusal) = self.take_signal(signal)
        {
            worker::console_error!("late signal: {}", refusal.message());
        }
    }

    /// Handles what was said outside of the stream, once per event.
    pub(super) fn take_signal(self: &Rc<Self>, signal: Signal) -> core::result::Result<Reply, Refusal> {
        let seen = match &signal.event_id {
            Some(id) => self.store.disposition_of(id).map_err(|error| storage_failed(&error))?,
            None => None,
        };
        self.apply(&Command::Signal { signal: Box::new(signal), seen })
    }

    fn commit(&self, command: &Command, transition: &Transition, last_bytes: Vec<u8>, now: UnixMillis) -> Result<()> {
        let terminal = transition.terminal();
        let followed = self.with_aggregate(|aggregate| aggregate.live().is_some_and(|live| live.head.is_some()));
        let (epoch, mut closing) = match command {
            Command::Append { epoch, .. } => (Some(*epoch), Vec::new()),
            Command::End { epoch, .. } | Command::Reconcile { epoch, .. } if terminal.is_some() || followed => {
                (Some(*epoch), last_bytes)
            }
            // An answer in one piece that is not the generation's is nobody's.
            Command::End { epoch, .. } | Command::Reconcile { epoch, .. } => (Some(*epoch), Vec::new()),
            _ => (None, Vec::new()),
        };
        closing.extend_from_slice(terminal.unwrap_or_default());
        let append = epoch.map(|epoch| self.batch(epoch, &closing)).filter(|append| !append.bytes.is_empty());
        let delete_content = transition.effects.contains(&Effect::DeleteContent);
        let batch_alone = transition.writes_nothing() && !delete_content;
        let stored = append.is_some();
        let request = self.request_row(command, transition);
        let result = self.result_rows(transition);
        match append {
            None if batch_alone => return Ok(()),
            Some(append) if batch_alone && append.bytes.len() <= CHUNK_MAX_BYTES => {
                self.store.commit_batch(append, now)?;
            }
            append => {
                let first_write = matches!(*self.aggregate.borrow(), Aggregate::Vacant);
                let beside = Beside { append, delete_content, request, result };
                self.store.commit(transition, first_write, beside, now)?;
            }
        }
        let mut log = self.log.borrow_mut();
        log.deliver(closing);
        if stored {
            let length = log.length();
            log.mark_stored(LogFacts { length, last_append_at: Some(now), ..LogFacts::default() });
        }
        if let Some(state) = &transition.state {
            *self.aggregate.borrow_mut() = state.clone();
        }
        Ok(())
    }

    /// A request is kept from its start to its end, where it may have to be sent again.
    fn request_row(&self, command: &Command, transition: &Transition) -> RequestRow {
        let closes = transition.terminal().is_some();
        match command {
            Command::Start { .. } => self.request.take().map_or(RequestRow::Stays, RequestRow::Store),
            _ if closes && self.with_aggregate(|it| it.live().is_some_and(|live| live.terms.may_repeat())) => {
                RequestRow::Forget
            }
            _ => RequestRow::Stays,
        }
    }

    fn result_rows(&self, transition: &Transition) -> ResultRows {
        if transition.effects.contains(&Effect::KeepResult) {
            ResultRows::Store(self.result.take())
        } else if transition.effects.contains(&Effect::ForgetResult) {
            ResultRows::Forget
        } else {
            ResultRows::Stay
        }
    }

    /// What is delivered and not stored yet, with `closing` behind it.
    fn batch(&self, epoch: u32, closing: &[u8]) -> Append {
        let log = self.log.borrow();
        let mut bytes = log.unstored();
        bytes.extend_from_slice(closing);
        Append { offset: log.facts().length, epoch, bytes }
    }

    fn perform(self: &Rc<Self>, effect: &Effect) {
        match effect {
            Effect::AbortUpstream { epoch } => {
                let driver = self.driver.borrow().clone();
                if let Some(driver) = driver.filter(|driver| driver.epoch == *epoch) {
                    driver.abort.abort();
                }
            }
            Effect::CollectEvidence { epoch } => self.resolve_lost(*epoch),
            // Done with the commit.
            Effect::CloseLog { .. } | Effect::KeepResult | Effect::ForgetResult | Effect::DeleteContent => {}
            Effect::RequestCancel { epoch, operation_id } => self.request_cancel(*epoch, operation_id.clone()),
            Effect::LookUp { epoch, operation_id } => self.look_up(*epoch, operation_id.clone()),
            Effect::Resume { epoch, operation_id } => self.take_up(*epoch, operation_id),
            Effect::ExtendHold { epoch, amount } => self.extend_hold(*epoch, *amount),
        }
    }

    /// Ends an attempt. Returns the bytes that were appended at close.
    pub(super) fn end(
        self: &Rc<Self>,
        epoch: u32,
        end: UpstreamEnd,
        last_bytes: Vec<u8>,
    ) -> core::result::Result<Vec<u8>, Refusal> {
        self.store_response(epoch)?;
        self.conclude(|end| Command::End { epoch, end }, end, last_bytes)
    }

    /// Ends an attempt by the command that `command` makes of what was observed.
    fn conclude(
        self: &Rc<Self>,
        command: impl FnOnce(Box<UpstreamEnd>) -> Command,
        mut end: UpstreamEnd,
        last_bytes: Vec<u8>,
    ) -> core::result::Result<Vec<u8>, Refusal> {
        let terminal_usage = end.usage.is_some() && end.source == SourceEnd::Body(EndClass::Complete);
        if !terminal_usage {
            end.content_bytes = self.count_content(&last_bytes).map_err(|error| storage_failed(&error))?;
        }
        let transition = self.apply_with(&command(Box::new(end)), last_bytes)?;
        Ok(transition.terminal().unwrap_or_default().to_vec())
    }

    /// Content bytes in the log and in the last bytes: the basis of an estimate.
    fn count_content(&self, last_bytes: &[u8]) -> Result<u64> {
        let dialect = self.with_aggregate(|aggregate| aggregate.live().map(|live| live.terms.dialect));
        let mut counter = ContentCounter::for_events(dialect.unwrap_or(Dialect::Opaque));
        self.scan_log(0, |bytes| counter.push(&bytes))?;
        counter.push(last_bytes);
        Ok(counter.total())
    }

    /// Applies the last reader's leaving with what the provider has produced so far: counted here, once, and never while
    /// bytes come. An answer that is not a stream has nothing in the log before it is whole.
    pub(super) fn apply_disconnect(self: &Rc<Self>, command: &Command) -> core::result::Result<Reply, Refusal> {
        let priced = self.with_aggregate(|aggregate| {
            aggregate.live().is_some_and(|live| live.lifecycle == Lifecycle::Active && live.terms.auto.is_some())
        });
        if priced {
            let counted = self.count_content(&[]).inspect_err(|error| worker::console_error!("content: {error}"));
            self.content_bytes.set(counted.ok());
        }
        let applied = self.apply(command);
        self.content_bytes.set(None);
        applied
    }

    /// Visits the log from `cursor` to its end, piece by piece.
    pub(super) fn scan_log(&self, mut cursor: u64, mut visit: impl FnMut(Vec<u8>)) -> Result<()> {
        let log = self.log.borrow();
        while let Some(bytes) = log.read_bytes(&self.store, cursor)? {
            cursor = cursor.saturating_add(bytes.len() as u64);
            visit(bytes);
        }
        Ok(())
    }

    /// The driver is lost: what was stored is the evidence. A terminal event in the log is completion.
    pub(super) fn resolve_lost(self: &Rc<Self>, epoch: u32) {
        let resolved = self
            .evidence_of_log()
            .map_err(|error| storage_failed(&error))
            .and_then(|end| self.conclude(|end| Command::Reconcile { epoch, end }, end, Vec::new()));
        if let Err(refusal) = resolved {
            worker::console_error!("resolving a lost driver: {}", refusal.message());
        }
    }

    fn evidence_of_log(&self) -> Result<UpstreamEnd> {
        let (dialect, responded) = self
            .with_aggregate(|aggregate| aggregate.live().map(|live| (live.terms.dialect, live.head.is_some())).unzip());
        let streaming = responded.unwrap_or_default();
        let event_max_bytes = usize::try_from(self.limits.event_max_bytes).unwrap_or(usize::MAX);
        let dialect = dialect.unwrap_or(Dialect::Opaque);
        let mut intake = Intake::new(IntakeOptions { dialect, streaming, strip_usage: false, event_max_bytes });
        self.scan_log(0, |bytes| drop(intake.push(bytes)))?;
        let rest = intake.finish();
        let whole = streaming && matches!(rest.class, EndClass::Complete | EndClass::InBandError);
        Ok(UpstreamEnd {
            operation_id: rest.report.operation_id,
            finish_reason: rest.report.finish_reason,
            usage: rest.report.usage.filter(|_| !rest.report.usage_rejected),
            unseen_bytes_max: self.limits.batch_bytes,
            cut_inside_event: streaming && rest.terminal_prefix,
            ..UpstreamEnd::by(if whole { SourceEnd::Body(rest.class) } else { SourceEnd::Lost })
        })
    }

    /// Compares what is due with now. Harmless at any time.
    pub(super) fn wake(self: &Rc<Self>) {
        let driver_alive = self.driver.borrow().is_some();
        if self.with_aggregate(|aggregate| matches!(aggregate, Aggregate::Vacant)) {
            return;
        }
        if let Err(refusal) = self.apply(&Command::Wake { driver_alive }) {
            worker::console_error!("wake: {}", refusal.message());
        }
    }

    /// The alarm: re-arm first, then bounded work.
    pub(super) async fn on_alarm(self: &Rc<Self>) {
        self.armed.set(None);
        self.alarm_known.set(true);
        self.arm(clock::now());
        self.wake();
        self.drop_stalled_readers();
        self.deliver_postings().await;
    }

    /// A poke from outside, by somebody who knows that the tenant still holds: whatever is remembered of the alarm, it is
    /// set anew; whatever became of rows, what was authored is on its way afterwards.
    pub(super) async fn poked(self: &Rc<Self>) {
        let remembered = self.remembered_alarm().await;
        let now = clock::now();
        if let Some(at) = self.next_alarm(now) {
            // The time that the object remembers already is no change, and would not reach the scheduler that lost it.
            self.set_alarm(if Some(at) == remembered { at.plus(1) } else { at });
        }
        self.repair_outbox();
        self.start_deliveries();
    }

    /// After a load the armed time is asked for once; a lost alarm is set again.
    pub(super) async fn repair_alarm(&self) {
        if !self.alarm_known.replace(true) {
            self.armed.set(self.remembered_alarm().await);
            self.arm(clock::now());
        }
    }

    /// The alarm as the object's own storage has it. The platform's scheduler may have lost it all the same.
    async fn remembered_alarm(&self) -> Option<UnixMillis> {
        let at = self.store.storage().get_alarm().await.ok().flatten();
        at.and_then(|at| u64::try_from(at).ok()).map(UnixMillis)
    }

    /// When the alarm has to ring next. What is due now is acted on now; the alarm is for the case that this goes wrong.
    fn next_alarm(&self, now: UnixMillis) -> Option<UnixMillis> {
        let facts = self.facts();
        let at = self.with_aggregate(|aggregate| aggregate.next_wake(&facts, now, self.limits.heartbeat_ms))?;
        Some(if at <= now { now.plus(self.limits.heartbeat_ms) } else { at })
    }

    /// Arms the alarm in the same storage turn as the rows. An alarm that is set for earlier stays: an early wake-up
    /// is harmless and cheaper than a row.
    pub(super) fn arm(&self, now: UnixMillis) {
        let Some(at) = self.next_alarm(now) else { return };
        // At the end of a generation the next wake-up is far away: then the early one is not worth its invocation.
        let idle = at.since(now) > self.limits.heartbeat_ms.saturating_mul(2);
        let early_enough = self.armed.get().is_some_and(|armed| armed <= at && armed > now && !idle);
        if !early_enough && self.armed.get() != Some(at) {
            self.set_alarm(at);
        }
    }

    fn set_alarm(&self, at: UnixMillis) {
        self.armed.set(Some(at));
        #[expect(clippy::cast_precision_loss, reason = "milliseconds since 1970 are far below 2^53")]
        let time = ScheduledTime::new(Date::new(&JsValue::from_f64(at.0 as f64)));
        // The first poll makes the call; its row is committed with the rows of this turn.
        if let Some(Err(error)) = self.store.storage().set_alarm(time).now_or_never() {
            worker::console_error!("alarm: {error}");
        }
    }
}
