//! What is told, and the bytes of it. Thin: ids, states and amounts, so that the receiver asks the API for the rest.
//! Never a prompt, an output or a key.

use super::delivery::{Delivery, Schedule};
use super::endpoint::Endpoint;
use crate::ids::{GenerationId, ReservationId};
use crate::ledger::ReasonCode;
use crate::money::Micros;
use crate::reservation::{Lifecycle, Settlement};
use crate::time::UnixMillis;
use crate::usage::Usage;
use alloc::boxed::Box;
use alloc::string::String;
use serde::{Deserialize, Serialize, Serializer};

/// A body stays below this: receivers may refuse more (Standard Webhooks).
pub const BODY_MAX_BYTES: usize = 20_000;

/// What happened.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
pub enum EventType {
    /// The provider completed.
    #[serde(rename = "generation.finished")]
    Finished,
    /// It failed, or was never started.
    #[serde(rename = "generation.failed")]
    Failed,
    /// It was stopped.
    #[serde(rename = "generation.cancelled")]
    Cancelled,
    /// The deadline was reached with an open outcome; the route's rule for that was applied.
    #[serde(rename = "generation.expired")]
    Expired,
    /// After the end the provider's outcome came to light: a kept hold was settled, a charge corrected, or an operator
    /// is asked to look.
    #[serde(rename = "generation.late_completion")]
    LateCompletion,
    /// The evidence conflicts, or an operator is called: the hold is kept until one decides.
    #[serde(rename = "generation.disputed")]
    Disputed,
    /// Sent on demand, to see whether it arrives. It is about no generation.
    #[serde(rename = "webhook.test")]
    #[cfg_attr(feature = "schema", schemars(skip))]
    Test,
}

impl EventType {
    /// Every type that is told about a generation.
    pub const OF_GENERATIONS: [Self; 6] =
        [Self::Finished, Self::Failed, Self::Cancelled, Self::Expired, Self::LateCompletion, Self::Disputed];

    /// The name on the wire.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Finished => "generation.finished",
            Self::Failed => "generation.failed",
            Self::Cancelled => "generation.cancelled",
            Self::Expired => "generation.expired",
            Self::LateCompletion => "generation.late_completion",
            Self::Disputed => "generation.disputed",
            Self::Test => "webhook.test",
        }
    }

    /// The last part of the name: ids have no dot.
    #[must_use]
    pub const fn short(self) -> &'static str {
        match self {
            Self::Finished => "finished",
            Self::Failed => "failed",
            Self::Cancelled => "cancelled",
            Self::Expired => "expired",
            Self::LateCompletion => "late_completion",
            Self::Disputed => "disputed",
            Self::Test => "test",
        }
    }
}

/// What is told: the same bytes on every attempt, for ever. Its author makes them, so that whoever carries, stores and
/// sends them reads nothing of it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Notice {
    /// `evt_…`: names the event. Whoever delivers it twice delivers the same; the `webhook-id` of every attempt.
    pub id: String,
    /// What happened.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When.
    pub at: UnixMillis,
    /// JSON, below [`BODY_MAX_BYTES`]: `type`, `timestamp`, `data`.
    pub body: String,
}

/// The state of a generation when something happened to it: the `data` of a body.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct About<'a> {
    /// The generation.
    pub generation_id: &'a GenerationId,
    /// Its hold.
    pub reservation_id: &'a ReservationId,
    /// The route that took it. Of a long name the beginning is told: [`ROUTE_MAX_CHARS`].
    #[serde(serialize_with = "beginning")]
    pub route: &'a str,
    /// Where the work is.
    pub lifecycle: Lifecycle,
    /// State of the hold.
    pub settlement: Settlement,
    /// Why.
    pub reason: ReasonCode,
    /// What is charged, all postings together; nothing yet while the hold is kept.
    pub cost_micros: Option<Micros>,
    /// The charge is an upper bound, not the provider's own count.
    pub estimated: bool,
    /// The usage it is charged by.
    pub usage: Option<Usage>,
    /// An operator is asked to look, for this reason.
    pub review: Option<ReasonCode>,
}

/// Characters of a route's name that are told.
pub const ROUTE_MAX_CHARS: usize = 128;

fn beginning<S: Serializer>(name: &str, serializer: S) -> Result<S::Ok, S::Error> {
    let end = name.char_indices().nth(ROUTE_MAX_CHARS).map_or(name.len(), |(end, _)| end);
    serializer.serialize_str(name.get(..end).unwrap_or_default())
}

/// The `data` of a test.
#[derive(Serialize)]
struct Test<'a> {
    tenant: &'a str,
}

#[derive(Serialize)]
struct Body<T> {
    #[serde(rename = "type")]
    kind: &'static str,
    timestamp: String,
    data: T,
}

impl Notice {
    /// What is told about a generation.
    #[must_use]
    pub fn of(id: String, kind: EventType, at: UnixMillis, about: &About<'_>) -> Self {
        Self::new(id, kind, at, about)
    }

    /// An event that says nothing but that it arrives. `random` makes its id.
    #[must_use]
    pub fn test(random: &str, tenant: &str, at: UnixMillis) -> Self {
        Self::new(alloc::format!("evt_{random}_test"), EventType::Test, at, Test { tenant })
    }

    fn new<T: Serialize>(id: String, kind: EventType, at: UnixMillis, data: T) -> Self {
        let body = Body { kind: kind.as_str(), timestamp: at.to_iso_8601(), data };
        // Plain data always serializes; an empty body would still be signed and counted.
        Self { id, kind, at, body: serde_json::to_string(&body).unwrap_or_default() }
    }
}

/// How many events of the tenant are stored, as far as it matters.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Crowd {
    /// As many are on their way as may be.
    pub pending_is_full: bool,
    /// And as many dead letters are kept as that may have become.
    pub dead_is_full: bool,
}

/// What is made of an event that is told.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Recorded {
    /// Nobody wants it.
    Unwanted,
    /// It is stored.
    Stored(Box<(Notice, Delivery)>),
    /// It is counted and not stored: there is room neither among the pending nor among the dead.
    Dropped,
}

/// What is made of an event that is told. For an endpoint that is disabled, and where too many are on their way, it is a
/// dead letter from the start: not sent, not lost. Where there are too many of those as well it is counted.
#[must_use]
pub fn record(
    notice: Notice,
    endpoint: Option<&Endpoint>,
    crowd: Crowd,
    schedule: &Schedule,
    now: UnixMillis,
) -> Recorded {
    let Some(endpoint) = endpoint.filter(|endpoint| endpoint.wants(notice.kind)) else { return Recorded::Unwanted };
    let delivery = Delivery::new(&notice.id, schedule, now);
    let delivery = match (endpoint.is_active(), crowd.pending_is_full) {
        (true, false) => delivery,
        _ if crowd.dead_is_full => return Recorded::Dropped,
        (false, _) => delivery.disabled(now),
        (true, true) => delivery.crowded_out(now),
    };
    Recorded::Stored(Box::new((notice, delivery)))
}
