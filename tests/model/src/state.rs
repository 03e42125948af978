//! What the checker explores: stored rows, what only lives in memory, what is on its way, and what the world outside
//! really did. Two states are the same when all of that is the same; how they were reached is forgotten.

use crate::config::{Config, Faults, Requests};
use holdfast_core::audit::AuditRow;
use holdfast_core::evidence::Disposition;
use holdfast_core::ids::ReservationId;
use holdfast_core::ledger::Posting;
use holdfast_core::money::Micros;
use holdfast_core::reservation::{ActionRow, Aggregate, CancelAnswer, LogFacts, Report};
use holdfast_core::tenant::{Admitted, Hold, IdempotencyRow, PeriodState, TenantState};
use holdfast_core::time::UnixMillis;
use std::collections::{BTreeMap, BTreeSet};
use std::fmt;
use std::sync::Arc;

/// The world at one moment.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct State {
    /// Which of the configured variants it is: route and provider.
    pub variant: usize,
    /// The clock of both objects.
    pub now: UnixMillis,
    /// Long jumps of the clock that are left.
    pub jumps: u8,
    /// Faults that are left.
    pub faults: Faults,
    /// The TenantObject.
    pub tenant: Tenant,
    /// One per request, with the object, edge, client and provider that belong to it.
    pub generations: Vec<Generation>,
    /// Rules that a step broke and that the rows alone do not show.
    pub broken: BTreeSet<&'static str>,
}

/// The TenantObject: rows, its alarm, and what it remembers of the alarm.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Tenant {
    /// Rows.
    pub rows: Arc<TenantRows>,
    /// The platform's alarm.
    pub alarm: Option<UnixMillis>,
    /// What memory holds of it.
    pub armed: Armed,
}

/// What the TenantObject remembers of its alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Armed {
    /// The object was loaded anew.
    Unknown,
    /// Nothing is armed.
    Never,
    /// Armed for then.
    At(UnixMillis),
}

/// Rows of the tenant.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct TenantRows {
    /// Its own row.
    pub tenant: TenantState,
    /// Budget periods by key.
    pub periods: BTreeMap<String, PeriodState>,
    /// Holds by reservation.
    pub holds: BTreeMap<ReservationId, Hold>,
    /// Postings in the order in which they were applied.
    pub postings: Vec<Posting>,
    /// The audit chain.
    pub audit: Vec<AuditRow>,
    /// Idempotency keys by scope.
    pub keys: BTreeMap<String, IdempotencyRow>,
}

/// One request and all that belongs to it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Generation {
    /// The ReservationObject.
    pub object: Object,
    /// The Worker that serves the request.
    pub edge: Edge,
    /// Who made it.
    pub client: Client,
    /// What the provider really does for the attempt of now.
    pub provider: Provider,
    /// What it did, and may still do, for the attempts before.
    pub earlier: Vec<Provider>,
    /// Callbacks that the provider has sent: each may arrive at any time, and any number of times.
    pub callbacks: BTreeSet<Callback>,
    /// Actions that an operator may still take.
    pub operator: u8,
    /// Messages on their way to the tenant. Each may be delivered late, twice or never.
    pub messages: BTreeSet<Message>,
    /// The first answer to Admit, to compare with.
    pub first_admitted: Option<Arc<Admitted>>,
}

/// The ReservationObject: rows, alarm, and an incarnation if one is loaded.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Object {
    /// The state row.
    pub aggregate: Arc<Aggregate>,
    /// The chunk log.
    pub log: Vec<Piece>,
    /// When the last batch was stored.
    pub last_append_at: Option<UnixMillis>,
    /// Every posting that was authored.
    pub outbox: Vec<Arc<Posting>>,
    /// How each event was handled, by its id.
    pub signals: BTreeMap<String, Disposition>,
    /// The operator's actions.
    pub actions: Vec<Arc<ActionRow>>,
    /// Release records and what was learnt after them, by the hash that names them.
    pub evidence: Vec<Arc<str>>,
    /// The platform's alarm.
    pub alarm: Option<UnixMillis>,
    /// What lives only as long as the incarnation.
    pub memory: Option<Memory>,
}

/// What a restart of the object takes.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Memory {
    /// The driver, where the object owns it.
    pub driver: Option<Driver>,
    /// The driver at the edge that began an epoch, by its request's number.
    pub edge_driver: Option<(usize, u32)>,
    /// A reader is attached.
    pub reader: bool,
    /// The client of the driver at the edge counts as a reader.
    pub edge_client: bool,
    /// A delivery is on its way.
    pub sending: Option<Sending>,
    /// The provider is asked what became of an operation.
    pub lookup: Option<Question<Report>>,
    /// The provider is asked to cancel one.
    pub cancelling: Option<Question<CancelAnswer>>,
    /// The tenant is asked to extend the hold; its answer is whether it did.
    pub extending: Option<Question<bool>>,
    /// The provider is asked for the rest of a stream.
    pub resuming: Option<Resuming>,
    /// When the provider was last heard.
    pub received_at: Option<UnixMillis>,
    /// What the alarm is set to, as far as is known.
    pub armed: Option<UnixMillis>,
    /// Whether the alarm was asked for since the load.
    pub alarm_known: bool,
}

/// What is delivered to the tenant.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Message {
    /// A posting.
    Settle {
        /// Its row of the outbox.
        row: u8,
    },
    /// Whether the work goes on without a reader.
    Place {
        /// The number of the word.
        number: u32,
        /// What was so when it was sent.
        taken: bool,
    },
}

/// A delivery that waits for its receipt, and those behind it in the same round.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Sending {
    /// What is on its way.
    pub message: Message,
    /// The rows of the outbox that follow: bit `n` is row `n`.
    pub rest: u8,
    /// The tenant's answer, on its way back.
    pub answer: Option<Settled>,
}

/// What a tenant answers to a posting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Settled {
    /// Applied, now or before.
    Applied,
    /// Refused for good, with the refusal's name.
    Refused(&'static str),
    /// No answer, or one that says nothing for good.
    Failed,
}

/// Something that the object asked somebody else, who has not answered yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Question<Answer> {
    /// The epoch that asks (of an extension: the one that is planned).
    pub epoch: u32,
    /// The attempt that it is about.
    pub attempt: u8,
    /// The answer, on its way back.
    pub answer: Option<Answer>,
}

/// A try to take a stream up again, of which nothing has come yet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Resuming {
    /// The epoch that tries.
    pub epoch: u32,
    /// The attempt whose stream it is.
    pub attempt: u8,
    /// How many content pieces were stored when the rest was asked for.
    pub from: u8,
}

/// A driver, wherever it lives, with what it has received and not stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Driver {
    /// The epoch that it drives.
    pub epoch: u32,
    /// The attempt that it drives, from zero.
    pub attempt: u8,
    /// The provider's headers came.
    pub answered: bool,
    /// The headers wait for the first batch.
    pub response_waits: bool,
    /// The next content piece that it hears.
    pub hears: u8,
    /// Delivered to readers, not stored (or, at the edge, not known to be stored).
    pub unstored: Vec<Piece>,
    /// At the edge: pieces that the object has confirmed.
    pub confirmed: usize,
    /// It was told to stop.
    pub told: bool,
    /// The source has ended so; the end is to be written.
    pub outcome: Option<Outcome>,
}

/// What a stored or delivered piece of the answer is. Its length is [`crate::world::length_of`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Piece {
    /// Content of the stream.
    Content {
        /// The how-many-th.
        n: u8,
        /// Its length; as many tokens are in it.
        bytes: u16,
    },
    /// The provider's terminal event.
    Terminal(Reported),
    /// An answer in one piece: a plain answer, or an error of the provider.
    Body,
    /// An error that the object appended, of so many bytes.
    Error(u64),
}

/// The usage in a provider's terminal event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Reported {
    /// What was streamed.
    Streamed,
    /// More than was streamed, and more than the hold.
    AboveHold,
    /// None.
    Missing,
    /// More than was streamed: the work went on after its socket was gone.
    Unseen,
}

/// How the source of a driver ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// The provider's terminal event or a whole plain answer.
    Complete(Reported),
    /// The stream broke without terminal event.
    Interrupted,
    /// The provider reported an error inside the stream.
    ErrorInBand,
    /// The provider refused (429 with its envelope).
    Refused,
    /// The provider failed (500 with its envelope).
    Failed,
    /// A gateway failed (502 without envelope).
    Gateway,
    /// The connection was never made.
    Unsent,
    /// The request was sent and no answer came.
    NoAnswer,
    /// We closed the socket, as told.
    Aborted,
}

/// The Worker that serves the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Edge {
    /// No request yet.
    #[default]
    Idle,
    /// Admit was sent and its answer did not come: it is sent once more, with the same ids.
    AdmitUnanswered,
    /// Admitted, under this generation (another one's where the idempotency key joins): Start is on its way.
    Admitted {
        /// Which generation is started.
        target: usize,
    },
    /// It drives.
    Driving(Driver),
    /// Its driver has sent its end; the message may come again.
    Ended(Driver),
    /// Nothing more comes from it.
    Done,
}

/// Who made the request.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Client {
    /// Whether it is connected: to the edge that drives, or to the object.
    pub connected: bool,
    /// What it had read when it was last cut off. While it is connected: what it waits behind, if it waits.
    pub got: Vec<Piece>,
    /// Disconnects that are left.
    pub disconnects: u8,
    /// Returns that are left.
    pub returns: u8,
    /// Cancels that are left.
    pub cancels: u8,
}

/// What the provider really does. Nobody in the system sees this.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub struct Provider {
    /// Calls that were made.
    pub dispatches: u8,
    /// What became of the call.
    pub fate: Fate,
    /// Content pieces that were sent.
    pub sent: u8,
}

/// What became of the provider's work.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum Fate {
    /// Never called.
    #[default]
    Idle,
    /// It runs, or ran until its socket was closed: nobody tells.
    Running,
    /// The call did not reach it.
    NotReached,
    /// It refused or failed, and bills nothing.
    Unbilled,
    /// It completed with this usage.
    Completed(Reported),
    /// It stopped when it was asked to, and tells its usage or not.
    Cancelled(Reported),
}

/// A callback of the provider.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Callback {
    /// The attempt that it is about.
    pub attempt: u8,
    /// What it says.
    pub said: Said,
}

/// What a callback says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Said {
    /// That the operation runs.
    Runs,
    /// What became of the operation.
    Truth,
    /// Something else than what became of it, with the same right.
    Contradiction,
}

impl Client {
    /// It reads no more. What it was given stays with it; one that waited for more than there is has what it had.
    pub(crate) fn stops_reading(&mut self, visible: Vec<Piece>) {
        if crate::world::length_of(&self.got) <= crate::world::length_of(&visible) {
            self.got = visible;
        }
    }
}

impl Object {
    /// What the log says to the rules.
    #[must_use]
    pub fn facts(&self) -> LogFacts {
        LogFacts {
            length: crate::world::length_of(&self.log),
            // Policy `auto` is not part of the model.
            content_bytes: None,
            last_append_at: self.last_append_at,
            received_at: self.memory.as_ref().and_then(|memory| memory.received_at),
        }
    }

    /// The postings that wait for their receipt.
    #[must_use]
    pub fn undelivered(&self) -> Vec<&str> {
        self.aggregate.deliveries().iter().map(|delivery| delivery.posting_id.as_str()).collect()
    }

    /// Whether the lifecycle is terminal.
    #[must_use]
    pub fn is_over(&self) -> bool {
        self.aggregate.live().is_some_and(|live| live.lifecycle.is_terminal())
    }
}

impl Driver {
    /// A driver that has just called the provider.
    #[must_use]
    pub const fn new(epoch: u32, attempt: u8) -> Self {
        Self {
            epoch,
            attempt,
            answered: false,
            response_waits: false,
            hears: 0,
            unstored: Vec::new(),
            confirmed: 0,
            told: false,
            outcome: None,
        }
    }

    /// A driver that has taken a stream up again: its head is stored, and it hears what follows the stored pieces.
    #[must_use]
    pub fn resumed(Resuming { epoch, attempt, from }: Resuming) -> Self {
        Self { answered: true, hears: from, ..Self::new(epoch, attempt) }
    }

    /// Whether the provider's terminal has come.
    #[must_use]
    pub fn has_terminal(&self) -> bool {
        matches!(self.outcome, Some(Outcome::Complete(_)))
    }
}

impl Generation {
    /// What the provider does for an attempt, by its number from zero.
    #[must_use]
    pub fn operation(&self, attempt: u8) -> Option<&Provider> {
        let attempt = usize::from(attempt);
        if attempt == self.earlier.len() { Some(&self.provider) } else { self.earlier.get(attempt) }
    }

    /// The same, to change it.
    pub fn operation_mut(&mut self, attempt: u8) -> Option<&mut Provider> {
        let attempt = usize::from(attempt);
        if attempt == self.earlier.len() { Some(&mut self.provider) } else { self.earlier.get_mut(attempt) }
    }

    /// What the provider does for each attempt, the first one first.
    pub fn operations(&self) -> impl Iterator<Item = &Provider> {
        self.earlier.iter().chain(std::iter::once(&self.provider))
    }

    /// The number of the attempt of now.
    #[must_use]
    pub fn attempt(&self) -> u8 {
        u8::try_from(self.earlier.len()).unwrap_or(u8::MAX)
    }

    /// The driver of the attempt of now, wherever it lives, as long as it holds its socket to the provider. A zombie of an
    /// earlier attempt hears no more than it has heard, and so does one beside a driver that has taken its stream up.
    #[must_use]
    pub fn driver(&self) -> Option<&Driver> {
        let here = self.object.memory.as_ref().and_then(|memory| memory.driver.as_ref());
        here.or(match &self.edge {
            Edge::Driving(driver) if self.earlier.is_empty() => Some(driver),
            _ => None,
        })
    }

    /// The same, to change it.
    pub fn driver_mut(&mut self) -> Option<&mut Driver> {
        let here = self.object.memory.as_mut().and_then(|memory| memory.driver.as_mut());
        here.or(match &mut self.edge {
            Edge::Driving(driver) if self.earlier.is_empty() => Some(driver),
            _ => None,
        })
    }
}

impl State {
    /// Nothing has happened yet.
    #[must_use]
    pub fn initial(config: &Config, variant: usize) -> Self {
        let route = &config.variants[variant];
        let requests = if route.requests == Requests::One { 1 } else { 2 };
        let client = Client {
            disconnects: route.disconnects,
            returns: route.returns,
            cancels: route.cancels,
            ..Client::default()
        };
        Self {
            variant,
            now: crate::world::START,
            jumps: config.jumps + route.more_jumps,
            faults: config.faults.of(route),
            tenant: Tenant { rows: Arc::default(), alarm: None, armed: Armed::Unknown },
            generations: vec![
                Generation { client, operator: route.operator_actions, ..Generation::default() };
                requests
            ],
            broken: BTreeSet::new(),
        }
    }
}

/// The state in one line: time, hold, and per request what is stored and what lives.
impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ms", self.now.since(crate::world::START))?;
        for hold in self.tenant.rows.holds.values() {
            write!(f, ", hold {:?}", hold.state)?;
        }
        self.generations.iter().try_for_each(|generation| write!(f, " | {generation}"))
    }
}

impl fmt::Display for Generation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let object = &self.object;
        match &*object.aggregate {
            Aggregate::Vacant => f.write_str("vacant")?,
            Aggregate::Tombstone(_) => f.write_str("tombstone")?,
            Aggregate::Live(live) => {
                let (attempt, cost) = (&live.attempt, live.cost.map(Micros::get));
                let (lifecycle, settlement, upstream) = (live.lifecycle, live.settlement, attempt.upstream);
                write!(f, "{lifecycle:?} {settlement:?} {upstream:?}, epoch {}", attempt.epoch())?;
                cost.map_or(Ok(()), |cost| write!(f, ", cost {cost}"))?;
            }
        }
        write!(f, ", log {} B, provider {:?} sent {}", object.facts().length, self.provider.fate, self.provider.sent)?;
        let driver = self.driver().map_or(String::new(), |driver| format!(", driver of epoch {}", driver.epoch));
        let undelivered = object.undelivered().len();
        let alarm = object.alarm.map_or("no alarm".into(), |at| format!("alarm {} ms", at.since(crate::world::START)));
        write!(f, "{driver}, {undelivered} undelivered, {alarm}")
    }
}
