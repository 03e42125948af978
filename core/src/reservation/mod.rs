//! The reservation aggregate: one generation from start to settlement.
//!
//! Three machines are kept apart (seed 1): the client side, what the provider does for an attempt, and the reservation
//! with its hold; see [`machine`]. A disconnect is a fact about sockets; what follows is the route's policy. A cancel is
//! somebody's request; what follows is evidence.
//!
//! [`Aggregate::apply`] is the only way from one state to the next.
//!
//! | question | module |
//! |---|---|
//! | which states, which arrows? | [`machine`] |
//! | who may write, until when? | [`attempt`] |
//! | what can be asked, what comes of it? | [`command`] |
//! | cancel: requested, sent, confirmed, lost, unknown | [`cancel`] |
//! | how did the driver end? | [`conclude`] |
//! | the driver is gone: what now? | `resolve`, by the rules of [`crate::reconcile`] |
//! | a further attempt: when, and what it needs | `repeat` |
//! | what the tenant lost, or never got | `redeliver` |
//! | can its stream be taken up again? | [`resume`] |
//! | its result was learnt outside of the stream | [`result`] |
//! | what came late, twice or out of order | [`signal`] |
//! | what an operator may do | [`operate`] |
//! | the last reader is gone: what now? | `disconnect`, by the rules of [`crate::economics`] |
//! | what a run tells about its route | `run_end` |
//! | how many may go on without readers? | `place` |
//! | when is something due? | `deadlines` |
//! | the record of a release | `record` |
//! | what the tenant is told | `announce` |

mod announce;
mod apply;
pub mod attempt;
pub mod cancel;
pub mod command;
pub mod conclude;
mod cursor;
mod deadlines;
mod disconnect;
mod drive;
pub mod machine;
pub mod operate;
mod outbox;
mod place;
mod posting;
mod record;
mod redeliver;
mod repeat;
mod resolve;
pub mod result;
pub mod resume;
mod run_end;
pub mod signal;

pub use apply::{late_signal, refused_row};
pub use attempt::{AbortCause, Accounted, Attempt, Lease, Reported};
pub use cancel::{CancelAnswer, CancelOutcome, CancelRequest, Cancellation};
pub use command::{Command, Effect, HistoryRow, Reply, ResolvedBy, Transition};
pub use conclude::{Conclusion, IN_FLIGHT_TOKENS, SourceEnd, UpstreamEnd, is_error_envelope, is_passable, is_success};
pub use disconnect::Assessment;
pub use machine::connection::{Connection, ConnectionState};
pub use machine::lifecycle::Lifecycle;
pub use machine::settlement::Settlement;
pub use machine::upstream::UpstreamState;
pub use operate::{ActionRow, Operation, OperatorAction};
pub use outbox::{Delivery, Parcel, RefusedDelivery};
pub use place::{Detached, Place};
pub use record::{EvidenceRow, OpenEffect, OpenRecord};
pub use result::ToldResult;
pub use resume::{RESUMES_MAX, Resumption};
pub use run_end::RunEnd;
pub use signal::{Report, Signal, SignalRow, Subject};

use crate::ids::{AttemptId, Identity};
use crate::ledger::{PostingKind, ReasonCode};
use crate::money::Micros;
use crate::policy::Terms;
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Status and allowed headers of the answer, stored so that it can be replayed.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ResponseHead {
    /// HTTP status.
    pub status: u16,
    /// Header names (lower case) and values.
    pub headers: Vec<(String, String)>,
}

/// The search for the outcome of an attempt whose driver is gone, or (after an expiry) the watch for a late one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Reconciliation {
    /// When it began.
    pub since: UnixMillis,
    /// When the route's rule for an open outcome applies, or the watch ends.
    pub deadline: UnixMillis,
    /// When it is looked at next.
    pub next_at: UnixMillis,
    /// The provider is asked then, before anything is decided.
    #[serde(default)]
    pub look_up: bool,
    /// Lookups so far.
    pub lookups: u32,
    /// Those that the provider answered: only these have searched anything.
    #[serde(default)]
    pub lookups_answered: u32,
    /// When the provider wishes to be asked again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retry_after_ms: Option<u64>,
    /// A further attempt is decided and waits for its hold.
    #[serde(default)]
    pub extending: bool,
    /// The tenant did not extend the hold.
    #[serde(default)]
    pub extension_refused: bool,
    /// It began because the driver was lost: what that one had shown is not known.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub driver_lost: bool,
    /// How often the tenant was asked to extend it.
    #[serde(default)]
    pub extension_asks: u32,
}

/// Who ended the hold: it decides what a later signal makes of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedAs {
    /// By what was observed.
    Observed,
    /// By the route's rule for an open outcome.
    Expiry,
    /// By an operator.
    Operator,
}

/// The posting that ended the hold.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resolution {
    /// Its id.
    pub posting_id: String,
    /// Settle or release.
    pub kind: PostingKind,
    /// On whose word.
    pub by: ResolvedAs,
}

/// An operator is asked to look.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Review {
    /// Since when it is asked for.
    pub since: UnixMillis,
    /// Why.
    pub reason: ReasonCode,
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
    /// How often the last reader left.
    #[serde(default)]
    pub disconnects: u32,
    /// What the last of these times was found to cost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub assessment: Option<Box<Assessment>>,
    /// Output tokens that readers were given, once it has ended; see [`RunEnd`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delivered_output_tokens: Option<u64>,
    /// The tenant knows that the result was read after the end.
    #[serde(default)]
    pub read_told: bool,
    /// The attempt that owns.
    pub attempt: Attempt,
    /// Attempts before it, the first one first.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub past_attempts: Vec<Attempt>,
    /// Answer head, once it is decided.
    pub head: Option<ResponseHead>,
    /// A recorded cancel.
    pub cancellation: Option<Cancellation>,
    /// When it was started.
    pub created_at: UnixMillis,
    /// The search for an outcome that is not known.
    pub reconciliation: Option<Reconciliation>,
    /// When it ended.
    pub ended_at: Option<UnixMillis>,
    /// Where the provider's bytes end that are surely in the log, if a driver was lost: a client may have seen bytes behind
    /// it that no log has. 0 where the call was repeated after that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lost_from: Option<u64>,
    /// Why it ended as it did.
    pub reason: Option<ReasonCode>,
    /// The usage it is settled by, over all attempts.
    pub usage: Option<Metered>,
    /// What is charged, all postings together.
    pub cost: Option<Micros>,
    /// By how much the hold was extended for further attempts.
    #[serde(default)]
    pub extended: Micros,
    /// By how much an expired hold was reduced.
    #[serde(default)]
    pub reduced: Micros,
    /// The posting that ended the hold.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolution: Option<Resolution>,
    /// Postings so far that followed the resolution.
    #[serde(default)]
    pub settlement_version: u32,
    /// An operator is asked to look.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub review: Option<Review>,
    /// Integrity reference of the last release record: what follows refers to it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub record_hash: Option<String>,
    /// Records whose effects are on their way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_records: Vec<OpenRecord>,
    /// Postings and notices on their way.
    pub deliveries: Vec<Delivery>,
    /// Postings that the tenant refused for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_deliveries: Vec<RefusedDelivery>,
    /// When the tenant acknowledged the last of them.
    pub acknowledged_at: Option<UnixMillis>,
    /// Stored output was deleted.
    pub content_deleted: bool,
    /// Its place among the tenant's detached generations.
    #[serde(default, skip_serializing_if = "Place::is_untouched")]
    pub place: Place,
    /// It ended without any output of the owning attempt. The length of the log does not tell: what was appended at close
    /// is in it.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub nothing_seen: bool,
    /// The log has the whole answer: the stream's terminal is in it, and it completed.
    #[serde(default)]
    pub answered: bool,
    /// A result that was told outside of the stream.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub result: Option<ToldResult>,
}

impl Reservation {
    /// What is held for it while the hold is open: as admitted, extended and reduced.
    #[must_use]
    pub fn hold(&self) -> Micros {
        self.terms.hold.plus(self.extended).unwrap_or(Micros::MAX).saturating_minus(self.reduced)
    }

    /// Every attempt, the owning one last.
    pub fn attempts(&self) -> impl Iterator<Item = &Attempt> {
        self.past_attempts.iter().chain(core::iter::once(&self.attempt))
    }

    /// The stored successor of a change.
    pub(crate) fn changed(mut self, reply: Reply) -> Transition {
        self.version = self.version.saturating_add(1);
        Transition::to(Aggregate::Live(Box::new(self)), reply)
    }

    /// The first reason stands. Only what a hold is kept for gives way: it is over with the hold, and another reason is not.
    fn ask_for_review(&mut self, reason: ReasonCode, now: UnixMillis) {
        let gives_way = |review: &Review| self.settlement == Settlement::Expired && Some(review.reason) == self.reason;
        self.review = Some(match self.review {
            None => Review { since: now, reason },
            Some(review) if gives_way(&review) => Review { reason, ..review },
            Some(review) => review,
        });
    }
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
    /// Who found it.
    #[serde(default)]
    pub by: ResolvedBy,
    /// Its record, while the effects are on their way.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub open_records: Vec<OpenRecord>,
    /// The release on its way, with what is told about it.
    pub deliveries: Vec<Delivery>,
    /// Postings that the tenant refused for good.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub refused_deliveries: Vec<RefusedDelivery>,
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

impl Aggregate {
    /// The postings that are due for delivery. One that waits holds those behind it back: none overtakes another, since
    /// a later one may end the hold that an earlier one still changes.
    pub fn due_deliveries(&self, now: UnixMillis) -> impl Iterator<Item = &Delivery> {
        self.deliveries().iter().take_while(move |delivery| delivery.next_at <= now)
    }

    /// The postings on their way, in the order in which they were authored.
    #[must_use]
    pub fn deliveries(&self) -> &[Delivery] {
        match self {
            Self::Vacant => &[],
            Self::Tombstone(tombstone) => &tombstone.deliveries,
            Self::Live(reservation) => &reservation.deliveries,
        }
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
    /// Content bytes that the provider has produced, where they were counted: at the moment when the last reader leaves,
    /// and never while bytes come.
    pub content_bytes: Option<u64>,
}
