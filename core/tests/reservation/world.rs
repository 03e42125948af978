//! One generation's rows in memory, kept as the object keeps them: load, apply, store, perform.

use holdfast_core::capability::Capabilities;
use holdfast_core::dialect::Dialect;
use holdfast_core::evidence::Disposition;
use holdfast_core::ids::{AttemptId, GenerationId, Identity, ReservationId, TenantId};
use holdfast_core::ledger::Posting;
use holdfast_core::meter::EndClass;
use holdfast_core::money::Micros;
use holdfast_core::policy::{OnDisconnect, OnInterruption, Owner, SlotOnExpiry, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{
    Aggregate, Command, Effect, HistoryRow, Lifecycle, LogFacts, Reply, Reservation, ResolvedBy, ResponseHead,
    SourceEnd, Transition, UpstreamEnd, refused_row,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::Usage;

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
            Effect::DeleteContent => "+delete",
            Effect::RequestCancel { .. } => "+ask_cancel",
            Effect::LookUp { .. } => "+look_up",
            Effect::ExtendHold { .. } => "+extend",
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
    pub(crate) history: Vec<HistoryRow>,
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
            self.log = LogFacts { length: self.log.length + bytes, last_append_at: Some(self.now), received_at: None };
        }
        if let Some(state) = &transition.state {
            self.aggregate = state.clone();
        }
        self.history.extend(transition.history.iter().cloned());
        self.postings.extend(transition.postings.iter().cloned());
        Ok(transition)
    }

    /// Applies a command, stores its rows, and says what it did.
    pub(crate) fn say(&mut self, command: &Command) -> String {
        let before = self.aggregate.clone();
        let result = self.take(command);
        said(&before, &result)
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
