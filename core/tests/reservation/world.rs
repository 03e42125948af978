//! One generation's rows in memory, kept as the object keeps them: load, apply, store, perform.

use super::arrows;
use holdfast_core::capability::Capabilities;
use holdfast_core::dialect::Dialect;
use holdfast_core::evidence::Disposition;
use holdfast_core::finding::Source;
use holdfast_core::ids::{AttemptId, GenerationId, Identity, ReservationId, TenantId};
use holdfast_core::ledger::Posting;
use holdfast_core::meter::EndClass;
use holdfast_core::money::Micros;
use holdfast_core::policy::{OnDisconnect, OnInterruption, Owner, SlotOnExpiry, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reconcile::Outcome;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    ActionRow, Aggregate, Command, Delivery, Effect, EvidenceRow, HistoryRow, Lifecycle, LogFacts, Operation,
    OperatorAction, Reply, Report, Reservation, ResolvedBy, ResponseHead, Signal, SignalRow, SourceEnd, Subject,
    Transition, UpstreamEnd, late_signal, refused_row,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::Usage;
use holdfast_core::webhook::Notice;
use std::collections::BTreeSet;

pub(crate) const START: UnixMillis = UnixMillis(1_795_996_800_000);
pub(crate) const HEARTBEAT_MS: u64 = 1_000;
/// 100 input tokens at one micro-USD and 1,000 output tokens at two.
pub(crate) const HOLD: u64 = 2_100;

pub(crate) fn micros(n: u64) -> Micros {
    Micros::new(n).unwrap()
}

pub(crate) fn identity(n: u8) -> Identity {
    Identity {
        tenant: TenantId::parse("t").unwrap(),
        generation: GenerationId::from_random([n; 16]),
        reservation: ReservationId::from_random([n; 16]),
    }
}

pub(crate) fn terms() -> Terms {
    Terms {
        config_version: 1,
        route: "r".into(),
        provider: "p".into(),
        dialect: Dialect::OpenaiChat,
        path: "/v1/chat/completions".into(),
        model: "m".into(),
        streaming: true,
        owner: Owner::Object,
        on_disconnect: OnDisconnect::Detach,
        grace_ms: 0,
        keep_partial: true,
        lease_ms: 9_000,
        first_byte_ms: 2_000,
        idle_ms: 3_000,
        total_ms: 20_000,
        observation_ms: 0,
        retention_s: 60,
        strip_usage: false,
        max_output_tokens: 1_000,
        input_bound_tokens: 100,
        output_bound_tokens: 1_000,
        price: ModelPrice {
            model: "m".into(),
            input_micros_per_million: 1_000_000,
            output_micros_per_million: 2_000_000,
            cached_input_micros_per_million: None,
            cache_write_micros_per_million: None,
            reasoning_micros_per_million: None,
            hidden_output: false,
        },
        price_version: "v1".into(),
        hold: micros(HOLD),
        capabilities: Capabilities::default(),
        on_expiry: None,
        slot_on_expiry: SlotOnExpiry::default(),
        on_interruption: OnInterruption::default(),
        escalate_above: None,
        watch_ms: 0,
        expected_ms: None,
        workload: Default::default(),
        auto: None,
        forward: std::collections::BTreeMap::new(),
        background: false,
    }
}

pub(crate) fn cancels(grace_ms: u64) -> Terms {
    Terms { on_disconnect: OnDisconnect::Cancel, grace_ms, ..terms() }
}

pub(crate) fn start(n: u8, terms: &Terms) -> Command {
    Command::Start { identity: identity(n), attempt: AttemptId::from_random([n; 16]), terms: Box::new(terms.clone()) }
}

pub(crate) fn never_started(n: u8, terms: &Terms) -> Command {
    Command::ResolveNeverStarted {
        identity: identity(n),
        attempt: AttemptId::from_random([n; 16]),
        terms: Box::new(terms.clone()),
        admitted_at: START,
        by: ResolvedBy::Sweep,
    }
}

pub(crate) fn head(status: u16) -> ResponseHead {
    ResponseHead { status, headers: vec![("content-type".into(), "text/event-stream".into())] }
}

pub(crate) fn respond(epoch: u32) -> Command {
    Command::Respond { epoch, head: Some(head(200)) }
}

pub(crate) const fn readers(attached: u32) -> Command {
    Command::Readers { attached, furthest_offset: 0 }
}

pub(crate) const fn wake(driver_alive: bool) -> Command {
    Command::Wake { driver_alive }
}

pub(crate) fn usage(input_tokens: u64, output_tokens: u64) -> Usage {
    Usage { input_tokens, output_tokens, ..Usage::default() }
}

pub(crate) const fn ended(source: SourceEnd) -> UpstreamEnd {
    UpstreamEnd::by(source)
}

/// The provider's terminal with exact usage: it costs `input + 2 × output`.
pub(crate) fn complete(input_tokens: u64, output_tokens: u64) -> UpstreamEnd {
    UpstreamEnd { usage: Some(usage(input_tokens, output_tokens)), ..ended(SourceEnd::Body(EndClass::Complete)) }
}

pub(crate) fn end(epoch: u32, end: UpstreamEnd) -> Command {
    Command::End { epoch, end: Box::new(end) }
}

/// The stored log was read: what it says about an attempt whose driver is gone.
pub(crate) fn reconcile(epoch: u32, end: UpstreamEnd) -> Command {
    Command::Reconcile { epoch, end: Box::new(end) }
}

/// The provider's name of the first attempt's operation.
pub(crate) const OPERATION: &str = "op-1";

pub(crate) const CANCEL: Capabilities =
    Capabilities { cancel: true, status: false, resume: false, callback: false, idempotency_key: false };
pub(crate) const STATUS: Capabilities = Capabilities { cancel: false, status: true, ..CANCEL };
pub(crate) const CANCEL_AND_STATUS: Capabilities = Capabilities { status: true, ..CANCEL };
pub(crate) const CALLBACK: Capabilities = Capabilities { cancel: false, callback: true, ..CANCEL };

pub(crate) fn with(capabilities: Capabilities) -> Terms {
    Terms { capabilities, ..terms() }
}

pub(crate) fn identify(epoch: u32) -> Command {
    Command::Identify { epoch, operation_id: OPERATION.into() }
}

pub(crate) fn attempt_id(n: u8) -> AttemptId {
    AttemptId::from_random([n; 16])
}

pub(crate) const fn ended_as(outcome: Outcome, usage: Option<Usage>) -> Report {
    Report::Ended { outcome, usage }
}

/// The answer of a lookup that this epoch asked for.
pub(crate) fn lookup(epoch: u32, report: Report) -> Signal {
    Signal { event_id: None, source: Source::Lookup, subject: Subject::Epoch { epoch }, report, observed_at: START }
}

/// A verified callback about an operation.
pub(crate) fn callback(event_id: &str, operation_id: &str, report: Report) -> Signal {
    Signal {
        event_id: Some(event_id.into()),
        source: Source::Callback,
        subject: Subject::Operation { operation_id: operation_id.into() },
        report,
        observed_at: START,
    }
}

pub(crate) fn signal_seen(signal: Signal, seen: Option<Disposition>) -> Command {
    Command::Signal { signal: Box::new(signal), seen }
}

pub(crate) fn action(id: &str, operation: Operation) -> OperatorAction {
    OperatorAction {
        id: id.into(),
        actor: "op@example".into(),
        channel: "console".into(),
        reason_code: "checked_with_provider".into(),
        justification: "The provider's support says so.".into(),
        expected_version: None,
        operation,
    }
}

/// What a command did, in a few words: the reply, `=` when no row of state was written, `>` the new lifecycle, `+` an
/// effect; or `!` the refusal.
pub(crate) fn said(before: &Aggregate, result: &Result<Transition, Refusal>) -> String {
    let transition = match result {
        Ok(transition) => transition,
        Err(refusal) => return format!("!{}", refusal.code()),
    };
    let mut words = String::from(match transition.reply {
        Reply::Done => "done",
        Reply::Started { .. } => "started",
        Reply::AlreadyStarted => "again",
        Reply::Continue => "continue",
        Reply::Stop => "stop",
        Reply::Cancellation(Some(_)) => "requested",
        Reply::Cancellation(None) => "none",
        Reply::Signal(Disposition::Ignored) => "ignored",
        Reply::Signal(Disposition::ProcessedWithoutDuplicateEffects) => "processed",
        Reply::Signal(Disposition::Quarantined) => "quarantined",
        Reply::Signal(Disposition::CorrectiveActionInitiated) => "corrected",
        Reply::Operated(_) => "operated",
    });
    match &transition.state {
        None => words.push('='),
        Some(after) => {
            let lifecycle = |aggregate: &Aggregate| aggregate.live().map(|live| live.lifecycle);
            if let Some(now) = lifecycle(after).filter(|now| Some(*now) != lifecycle(before)) {
                words += ">";
                words += now.as_str();
            }
        }
    }
    for effect in &transition.effects {
        words += match effect {
            Effect::AbortUpstream { .. } => "+abort",
            Effect::CloseLog { .. } => "+close",
            Effect::CollectEvidence { .. } => "+evidence",
            Effect::KeepResult => "+keep",
            Effect::ForgetResult => "+forget",
            Effect::DeleteContent => "+delete",
            Effect::RequestCancel { .. } => "+ask_cancel",
            Effect::LookUp { .. } => "+look_up",
            Effect::ExtendHold { .. } => "+extend",
            Effect::Resume { .. } => "+resume",
        };
    }
    words
}

/// A generation's rows, and the time.
#[derive(Clone, Debug, Default)]
pub(crate) struct World {
    pub(crate) aggregate: Aggregate,
    pub(crate) log: LogFacts,
    pub(crate) now: UnixMillis,
    pub(crate) postings: Vec<Posting>,
    /// What was told, with a posting or without.
    pub(crate) notices: Vec<Notice>,
    pub(crate) history: Vec<HistoryRow>,
    pub(crate) signals: Vec<SignalRow>,
    pub(crate) actions: Vec<ActionRow>,
    pub(crate) evidence: Vec<EvidenceRow>,
    /// Changes of state that were seen, by machine: `lifecycle active → detached`.
    pub(crate) arrows: BTreeSet<String>,
}

impl World {
    pub(crate) fn new() -> Self {
        Self { now: START, ..Self::default() }
    }

    /// Started under `terms`, nothing sent.
    pub(crate) fn prepared(terms: &Terms) -> Self {
        let mut world = Self::new();
        world.take(&start(1, terms)).unwrap();
        world
    }

    /// The provider was called.
    pub(crate) fn submitted(terms: &Terms) -> Self {
        let mut world = Self::prepared(terms);
        world.take(&Command::Submit { epoch: 1 }).unwrap();
        world
    }

    /// The provider has answered.
    pub(crate) fn processing(terms: &Terms) -> Self {
        let mut world = Self::submitted(terms);
        world.take(&respond(1)).unwrap();
        world
    }

    /// The driver was lost and its lease is over. The clock stands at the end of the lease.
    pub(crate) fn lost(terms: &Terms) -> Self {
        let mut world = Self::submitted(terms);
        world.at(terms.lease_ms).take(&wake(false)).unwrap();
        world
    }

    /// The provider has answered and named its operation; the tenant knows the name, where it needs it.
    pub(crate) fn identified(terms: &Terms) -> Self {
        let mut world = Self::processing(terms);
        world.take(&identify(1)).unwrap();
        for Delivery { posting_id, .. } in world.live().deliveries.clone() {
            world.take(&Command::Acknowledge { posting_id }).unwrap();
        }
        world
    }

    /// As [`Self::identified`], and then the driver was lost and fenced: epoch 2 searches. The clock stands at the end
    /// of the lease.
    pub(crate) fn searching(terms: &Terms) -> Self {
        let mut world = Self::identified(terms);
        world.at(terms.lease_ms).take(&wake(false)).unwrap();
        world
    }

    /// As [`Self::searching`], with the evidence read and nothing found: what the rules say at the deadline.
    pub(crate) fn expired(terms: &Terms) -> Self {
        let mut world = Self::searching(terms);
        world.at(terms.lease_ms + terms.observation_ms).take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
        world
    }

    /// Moves the clock to `ms` after the start.
    pub(crate) fn at(&mut self, ms: u64) -> &mut Self {
        self.now = START.plus(ms);
        self
    }

    pub(crate) fn live(&self) -> &Reservation {
        self.aggregate.live().expect("started")
    }

    pub(crate) fn lifecycle(&self) -> Lifecycle {
        self.live().lifecycle
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.aggregate.live().map_or(1, |live| live.attempt.epoch())
    }

    /// Applies a command without storing anything.
    pub(crate) fn ask(&self, command: &Command) -> Result<Transition, Refusal> {
        self.aggregate.apply(command, &self.log, HEARTBEAT_MS, self.now)
    }

    /// Applies a command and stores its rows, or the record of its refusal.
    pub(crate) fn take(&mut self, command: &Command) -> Result<Transition, Refusal> {
        let transition = match self.ask(command) {
            Ok(transition) => transition,
            Err(refusal) => {
                self.history.extend(refused_row(command, &refusal, self.now));
                return Err(refusal);
            }
        };
        if let (Some(before), Some(Aggregate::Live(after))) = (self.aggregate.live(), &transition.state) {
            assert_eq!(after.version, before.version + 1, "invariant 9: each stored change counts once");
        }
        if let Command::Append { bytes, .. } = command
            && *bytes > 0
        {
            self.log =
                LogFacts { length: self.log.length + bytes, last_append_at: Some(self.now), ..LogFacts::default() };
        }
        // What is appended at close is part of the log.
        for effect in &transition.effects {
            if let Effect::CloseLog { terminal } = effect {
                self.log.length += u64::try_from(terminal.len()).unwrap();
            }
        }
        if let Some(state) = &transition.state {
            if let (Some(before), Aggregate::Live(after)) = (self.aggregate.live(), state) {
                self.arrows.extend(arrows::seen(before, after));
            }
            self.aggregate = state.clone();
        }
        self.signals.extend(transition.signals.iter().cloned());
        self.actions.extend(transition.actions.iter().cloned());
        self.evidence.extend(transition.evidence.iter().cloned());
        self.history.extend(transition.history.iter().cloned());
        self.notices.extend(transition.postings.iter().flat_map(|posting| posting.notices.iter().cloned()));
        self.notices.extend(transition.notices.iter().cloned());
        self.postings.extend(transition.postings.iter().cloned());
        Ok(transition)
    }

    /// Applies a command, stores its rows, and says what it did.
    pub(crate) fn say(&mut self, command: &Command) -> String {
        let before = self.aggregate.clone();
        let result = self.take(command);
        said(&before, &result)
    }

    /// A signal as the shell gives it: with what was made of the same event before.
    pub(crate) fn of_signal(&self, signal: &Signal) -> Command {
        let row = self.signals.iter().find(|row| signal.event_id.is_some() && row.signal.event_id == signal.event_id);
        signal_seen(signal.clone(), row.map(|row| row.disposition))
    }

    /// Hears a signal, and says what it did.
    pub(crate) fn hear(&mut self, signal: Signal) -> String {
        let command = self.of_signal(&signal);
        self.say(&command)
    }

    /// An action as the shell gives it: with the row of the same id.
    pub(crate) fn of_action(&self, action: &OperatorAction) -> Command {
        let recorded = self.actions.iter().find(|row| row.action.id == action.id);
        Command::Operate { action: Box::new(action.clone()), recorded: recorded.cloned().map(Box::new) }
    }

    /// An operator acts; says what it did.
    pub(crate) fn operate(&mut self, id: &str, operation: Operation) -> String {
        let command = self.of_action(&action(id, operation));
        self.say(&command)
    }

    /// A command that comes again, with what the shell finds recorded of it.
    pub(crate) fn given_again(&self, command: &Command) -> Command {
        match command {
            Command::Signal { signal, .. } => self.of_signal(signal),
            Command::Operate { action, .. } => self.of_action(action),
            other => other.clone(),
        }
    }

    /// A command that must be refused, and what it still tells: as the shell does with a fenced driver's end.
    pub(crate) fn refused_and_heard(&mut self, command: &Command) -> String {
        let refusal = self.take(command).unwrap_err();
        let late = late_signal(command, &refusal, self.now).expect("it tells something");
        self.hear(late)
    }

    /// The postings as kind, amount (negative: a refund) and what they refer to.
    pub(crate) fn books(&self) -> Vec<(&'static str, i64)> {
        self.postings
            .iter()
            .map(|posting| {
                let amount = i64::try_from(posting.amount.get()).unwrap();
                let sign = if posting.direction.is_charge() { 1 } else { -1 };
                (posting.kind.as_str(), sign * amount)
            })
            .collect()
    }

    /// Lifecycle, upstream of the owning attempt, settlement.
    pub(crate) fn states(&self) -> (&'static str, &'static str, &'static str) {
        let live = self.live();
        (live.lifecycle.as_str(), live.attempt.upstream.as_str(), live.settlement.as_str())
    }

    pub(crate) fn next_wake(&self) -> Option<UnixMillis> {
        self.aggregate.next_wake(&self.log, self.now, HEARTBEAT_MS)
    }

    /// Milliseconds after the start of the next wake-up.
    pub(crate) fn next_wake_ms(&self) -> Option<u64> {
        self.next_wake().map(|at| at.since(START))
    }

    pub(crate) fn outcomes(&self) -> Vec<&str> {
        self.history.iter().map(|row| row.outcome.as_str()).collect()
    }
}
