//! The reservation aggregate: one generation from start to settlement.
//!
//! Three machines are kept apart (seed 1): the [`Connection`] (who reads), the [`UpstreamState`] of the attempt (what
//! the provider does) and the [`Lifecycle`] of the reservation with its [`Settlement`] (what is held). A disconnect is
//! a fact about sockets; what follows is the route's policy. A cancel is somebody's request; what follows is evidence.
//!
//! [`Aggregate::apply`] is the only way from one state to the next.
//!
//! | lifecycle | means | leaves by |
//! |---|---|---|
//! | `active` | a reader is attached, work is pending or running | last reader gone → `detached`; cancel → `cancellation_requested`; end |
//! | `detached` | the last reader is gone, the outcome is open | reader back → `active`; grace over → `cancellation_requested`; end |
//! | `cancellation_requested` | the socket is being closed | end: `cancelled`, or `completed` if completion won the race |
//! | `completed`, `cancelled`, `failed` | terminal; the posting is authored | never |

mod apply;
mod conclude;
mod cursor;
mod deadlines;

pub use apply::refused_row;
pub use conclude::{Conclusion, IN_FLIGHT_TOKENS, SourceEnd, UpstreamEnd, is_error_envelope, is_passable, is_success};

use crate::ids::{AttemptId, Identity};
use crate::ledger::{Posting, ReasonCode};
use crate::money::Micros;
use crate::policy::{Owner, Terms};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Lifecycle of the reservation (seed 1).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Lifecycle {
    /// A reader is attached.
    Active,
    /// The last reader is gone, the outcome is open.
    Detached,
    /// The work is being stopped.
    CancellationRequested,
    /// Completion was reported.
    Completed,
    /// The work was stopped.
    Cancelled,
    /// The work failed, or its outcome could not be learnt.
    Failed,
}

impl Lifecycle {
    /// Whether nothing leads out of it.
    #[must_use]
    pub const fn is_terminal(self) -> bool {
        matches!(self, Self::Completed | Self::Cancelled | Self::Failed)
    }

    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Active => "active",
            Self::Detached => "detached",
            Self::CancellationRequested => "cancellation_requested",
            Self::Completed => "completed",
            Self::Cancelled => "cancelled",
            Self::Failed => "failed",
        }
    }
}

/// State of the hold (seed 2).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Settlement {
    /// Credit and slot are held.
    Pending,
    /// Settled by usage, exact or estimated.
    Committed,
    /// Returned: the work made no charge.
    Released,
}

/// What the provider does, for one attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UpstreamState {
    /// Intent stored; provably nothing sent.
    Prepared,
    /// Stored before the provider is called: from here on something may have been sent.
    Submitted,
    /// The provider has answered with headers.
    Processing,
    /// Terminal event seen.
    Completed,
    /// Ended without terminal event.
    Incomplete,
    /// The provider reported failure.
    Failed,
    /// We closed the only lever there is: the socket.
    Cancelled,
    /// The driver was lost; what the provider did is not known.
    Unknown,
}

/// Who reads, as far as it was last stored.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Connection {
    /// Whether the last reader is gone, and whether one came back.
    pub state: ConnectionState,
    /// Furthest byte that any reader was given.
    pub furthest_offset: u64,
    /// When the last reader left, if none is attached.
    pub disconnected_at: Option<UnixMillis>,
}

/// State of the client side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ConnectionState {
    /// At least one reader, and never none.
    #[default]
    Connected,
    /// No reader.
    Disconnected,
    /// A reader after there was none.
    Reconnected,
}

/// Who may write for an attempt, and since when. It expires as a function of rows and time, never of an alarm.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Lease {
    /// Where the driver runs.
    pub owner: Owner,
    /// Last renewal that was written for its own sake. An append renews too, by its own row.
    pub renewed_at: UnixMillis,
}

/// Status and allowed headers of the answer, stored so that it can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResponseHead {
    /// HTTP status.
    pub status: u16,
    /// Header names (lower case) and values.
    pub headers: Vec<(String, String)>,
}

/// Why the driver is told to stop.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum AbortCause {
    /// Somebody asked.
    Request,
    /// Policy `cancel` after the last reader left.
    Disconnect,
    /// No first byte in time.
    FirstByteTimeout,
    /// No further byte in time.
    IdleTimeout,
    /// The whole took too long.
    TotalTimeout,
}

/// One execution upstream.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// Its own id.
    pub id: AttemptId,
    /// 1, 2, …: fences the writes of older attempts and drivers.
    pub epoch: u32,
    /// What the provider does.
    pub upstream: UpstreamState,
    /// When it was submitted.
    pub submitted_at: Option<UnixMillis>,
    /// When the provider's headers came.
    pub responded_at: Option<UnixMillis>,
    /// The provider's own id for it.
    pub operation_id: Option<String>,
    /// Why the provider stopped.
    pub finish_reason: Option<String>,
    /// Who may write.
    pub lease: Lease,
    /// The driver was told to stop; the first cause stands.
    pub abort: Option<AbortCause>,
}

/// A recorded request to cancel. The first one stands; a repeated one gets the same answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Cancellation {
    /// When it was asked for.
    pub requested_at: UnixMillis,
}

/// A posting that the tenant has not acknowledged yet. Its body is the outbox row.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Delivery {
    /// Which posting.
    pub posting_id: String,
    /// Deliveries that failed.
    pub attempts: u32,
    /// When it is tried again.
    pub next_at: UnixMillis,
}

/// A generation that was started.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reservation {
    /// Counts the stored changes.
    pub version: u64,
    /// Tenant, generation, reservation.
    pub identity: Identity,
    /// What it was admitted under.
    pub terms: Terms,
    /// Lifecycle of the reservation.
    pub lifecycle: Lifecycle,
    /// State of the hold.
    pub settlement: Settlement,
    /// The client side.
    pub connection: Connection,
    /// The attempt that owns.
    pub attempt: Attempt,
    /// Answer head, once it is decided.
    pub head: Option<ResponseHead>,
    /// A recorded cancel.
    pub cancellation: Option<Cancellation>,
    /// When it was started.
    pub created_at: UnixMillis,
    /// When a lost driver's attempt is resolved.
    pub reconcile_at: Option<UnixMillis>,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
    /// Where the provider's bytes end, if the driver was lost: a client may have seen bytes behind it that no log has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_from: Option<u64>,
    /// Why it ended as it did.
    pub reason: Option<ReasonCode>,
    /// The usage it was settled by.
    pub usage: Option<Metered>,
    /// What was charged, overage included.
    pub cost: Option<Micros>,
    /// Postings on their way.
    pub deliveries: Vec<Delivery>,
    /// When the tenant acknowledged the last of them.
    pub acknowledged_at: Option<UnixMillis>,
    /// Stored output was deleted.
    pub content_deleted: bool,
}

/// A generation that was resolved before it was started: it will never run.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Tombstone {
    /// Tenant, generation, reservation.
    pub identity: Identity,
    /// The attempt that never was.
    pub attempt: AttemptId,
    /// What it was admitted under.
    pub terms: Terms,
    /// When it was resolved.
    pub resolved_at: UnixMillis,
    /// The release on its way.
    pub deliveries: Vec<Delivery>,
}

/// What a ReservationObject stores in its one state row.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "aggregate", rename_all = "snake_case")]
pub enum Aggregate {
    /// Nothing: never started, or not yet.
    #[default]
    Vacant,
    /// Resolved before it was started.
    Tombstone(Box<Tombstone>),
    /// Started.
    Live(Box<Reservation>),
}

/// What the chunk log says: it is stored beside the state and renews the lease by itself.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct LogFacts {
    /// Bytes stored.
    pub length: u64,
    /// When the last batch was stored.
    pub last_append_at: Option<UnixMillis>,
    /// When the provider last sent anything, as far as the running driver knows: half an event or half a plain answer
    /// is received, and not stored yet.
    pub received_at: Option<UnixMillis>,
}

/// A command to the aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Start the generation, or find that it was started.
    Start {
        /// Tenant, generation, reservation.
        identity: Identity,
        /// The first attempt.
        attempt: AttemptId,
        /// What it was admitted under.
        terms: Box<Terms>,
    },
    /// The provider is about to be called.
    Submit {
        /// The attempt's epoch.
        epoch: u32,
    },
    /// The provider's headers came. `head` is given when the answer is a stream that readers may follow already.
    Respond {
        /// The attempt's epoch.
        epoch: u32,
        /// Status and headers for the readers.
        head: Option<ResponseHead>,
    },
    /// A batch is about to be stored, or (empty) the driver shows life.
    Append {
        /// The attempt's epoch.
        epoch: u32,
        /// Size of the batch.
        bytes: u64,
    },
    /// The number of attached readers changed.
    Readers {
        /// How many there are now.
        attached: u32,
        /// Furthest byte given to any of them.
        furthest_offset: u64,
    },
    /// Somebody asks for cancellation.
    Cancel,
    /// The upstream ended, or a lost driver's attempt is resolved.
    End {
        /// The attempt's epoch.
        epoch: u32,
        /// What was observed.
        end: Box<UpstreamEnd>,
    },
    /// An alarm, or any request that finds something due.
    Wake {
        /// The driver runs in this very incarnation of the object.
        driver_alive: bool,
    },
    /// The tenant finds a hold whose generation it has not heard of.
    ResolveNeverStarted {
        /// Tenant, generation, reservation.
        identity: Identity,
        /// The attempt that was planned.
        attempt: AttemptId,
        /// What it was admitted under.
        terms: Box<Terms>,
    },
    /// The tenant has applied a posting.
    Acknowledge {
        /// Which.
        posting_id: String,
    },
    /// A delivery failed.
    DeliveryFailed {
        /// Which.
        posting_id: String,
    },
}

impl Command {
    /// The name in the history.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Submit { .. } => "submit",
            Self::Respond { .. } => "respond",
            Self::Append { .. } => "append",
            Self::Readers { .. } => "readers",
            Self::Cancel => "cancel",
            Self::End { .. } => "end",
            Self::Wake { .. } => "wake",
            Self::ResolveNeverStarted { .. } => "resolve_never_started",
            Self::Acknowledge { .. } => "acknowledge",
            Self::DeliveryFailed { .. } => "delivery_failed",
        }
    }
}

/// What the shell does after it has stored the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Stop the driver of this epoch.
    AbortUpstream {
        /// Which driver.
        epoch: u32,
    },
    /// Append these bytes to the log, in the same transaction, and close it.
    CloseLog {
        /// The error in the client's dialect, or nothing.
        terminal: Vec<u8>,
    },
    /// Read the stored log and come back with [`Command::End`].
    CollectEvidence {
        /// The epoch that resolves.
        epoch: u32,
    },
    /// Delete the stored output.
    DeleteContent,
}

/// One row of the transition history.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HistoryRow {
    /// When.
    pub at: UnixMillis,
    /// Which command.
    pub command: String,
    /// What it found or did: a state, a reason, a refusal.
    pub outcome: String,
    /// The epoch that the command named or that owns.
    pub epoch: u32,
}

/// The answer of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Done, or it was done before.
    Done,
    /// Started now: the caller (or the object) drives this epoch.
    Started {
        /// The epoch to drive.
        epoch: u32,
    },
    /// Started earlier: attach a reader.
    AlreadyStarted,
    /// The driver goes on.
    Continue,
    /// The driver stops; it ends with [`SourceEnd::Aborted`].
    Stop,
    /// The recorded answer to a cancel; `None` when the generation had already ended without one.
    Cancellation(Option<Cancellation>),
}

/// What one command makes: rows to store in one transaction, then effects, then the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The new state, or `None` when the state row stays as it is.
    pub state: Option<Aggregate>,
    /// Rows for the history.
    pub history: Vec<HistoryRow>,
    /// Rows for the outbox.
    pub postings: Vec<Posting>,
    /// What to do afterwards.
    pub effects: Vec<Effect>,
    /// The answer.
    pub reply: Reply,
}

impl Aggregate {
    /// The postings that are due for delivery.
    pub fn due_deliveries(&self, now: UnixMillis) -> impl Iterator<Item = &Delivery> {
        let deliveries: &[Delivery] = match self {
            Self::Vacant => &[],
            Self::Tombstone(tombstone) => &tombstone.deliveries,
            Self::Live(reservation) => &reservation.deliveries,
        };
        deliveries.iter().filter(move |delivery| delivery.next_at <= now)
    }

    /// The started generation, if there is one.
    #[must_use]
    pub fn live(&self) -> Option<&Reservation> {
        match self {
            Self::Live(reservation) => Some(reservation),
            Self::Vacant | Self::Tombstone(_) => None,
        }
    }
}
