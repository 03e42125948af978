//! Calls to a ReservationObject, and its answers.

use crate::evidence::Disposition;
use crate::ids::{AttemptId, Identity};
use crate::policy::Terms;
use crate::refusal::Refusal;
use crate::reservation::{Cancellation, ResolvedBy, ResponseHead, Signal, UpstreamEnd};
use crate::tenant::Admitted;
use crate::tenant::books::ReservationBooks;
use crate::view::GenerationView;
use alloc::boxed::Box;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// How a reader wants the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "form", rename_all = "snake_case")]
pub enum StreamForm {
    /// The bytes from `offset` as the first client would have got them.
    Raw {
        /// Where to start.
        offset: u64,
    },
    /// Server-sent events, each with an `id` that is the offset after it.
    Events {
        /// Where to start: the last id that was seen, or 0.
        after: u64,
    },
}

/// The provider's headers came.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Responded {
    /// Given when the answer is a stream: readers may follow it already.
    pub head: Option<ResponseHead>,
}

/// A call to a ReservationObject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum GenerationCall {
    /// Start and follow; a started one is followed from 0. The frame carries the upstream request body.
    Start {
        /// Tenant, generation, reservation.
        identity: Identity,
        /// The first attempt.
        attempt: AttemptId,
        /// What it was admitted under.
        terms: Box<Terms>,
    },
    /// Start for a driver at the edge: the intent is stored, the caller dispatches.
    Begin {
        /// Tenant, generation, reservation.
        identity: Identity,
        /// The first attempt.
        attempt: AttemptId,
        /// What it was admitted under.
        terms: Box<Terms>,
        /// A name that the driver gives itself, new for each generation: its repeated Begin is recognised.
        driver: String,
    },
    /// The edge's driver appends the frame's bytes; an empty frame is a heartbeat.
    Append {
        /// The attempt's epoch.
        epoch: u32,
        /// Where the bytes belong: a repeated append of the same bytes is answered, not stored again.
        offset: u64,
        /// The provider's headers came since the last append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<Responded>,
        /// Whether the provider sent anything since the last append, stored or not.
        #[serde(default)]
        received: bool,
        /// Whether the edge's client is still there.
        client_attached: bool,
        /// Furthest byte that the client was given.
        furthest_offset: u64,
    },
    /// The edge's driver ended; the frame carries the last bytes.
    Finish {
        /// The attempt's epoch.
        epoch: u32,
        /// Where the last bytes belong.
        offset: u64,
        /// The provider's headers came since the last append.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        response: Option<Responded>,
        /// What was observed.
        end: Box<UpstreamEnd>,
    },
    /// The generation as the API shows it.
    Status,
    /// Attach a reader.
    Stream {
        /// How it wants the log.
        #[serde(flatten)]
        form: StreamForm,
    },
    /// The stored answer, if the log is closed.
    Result,
    /// Somebody asks for cancellation.
    Cancel,
    /// What does the reservation say about its hold?
    Books,
    /// What became of this hold? One that was never started never will be.
    Resolve {
        /// What it was admitted under.
        admitted: Box<Admitted>,
        /// Who asks.
        #[serde(default)]
        by: ResolvedBy,
    },
    /// A provider called back. Idempotent by the event's id.
    Signal {
        /// What it said.
        signal: Box<Signal>,
    },
}

/// The answer of a ReservationObject, where it is not the client's answer itself.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum GenerationReply {
    /// The caller drives this epoch.
    Begun {
        /// The epoch.
        epoch: u32,
    },
    /// It was started before: follow its log.
    AlreadyStarted,
    /// The driver goes on.
    Continue,
    /// The driver stops and finishes as aborted.
    Stop,
    /// The last bytes as they are stored after the caller's own: the error in the client's dialect, or nothing.
    Finished {
        /// The head that readers get.
        head: Option<ResponseHead>,
        /// Text of the terminal.
        terminal: String,
    },
    /// The generation.
    Generation(Box<GenerationView>),
    /// The generation runs: there is no result yet.
    Running,
    /// The recorded cancel; `None` when it had ended without one.
    Cancellation {
        /// The first request.
        cancellation: Option<Cancellation>,
    },
    /// What the reservation says about its hold.
    Books(Box<ReservationBooks>),
    /// The hold is resolved or its generation lives.
    Resolved,
    /// The signal was handled, now or before.
    Signalled {
        /// How.
        disposition: Disposition,
    },
    /// The reader's cursor lies beyond the end of the log.
    BeyondEnd {
        /// Where the log ends.
        log_length: u64,
    },
    /// The event form starts only between two events; this cursor was never an `id`.
    InvalidCursor,
    /// The stored output was deleted.
    ContentDeleted,
    /// Refused; nothing changed.
    Refused {
        /// Why.
        refusal: Refusal,
    },
}
