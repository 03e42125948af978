//! The contract between the edge and the objects, and between the objects. Calls are frames; a test pins their bytes,
//! since Worker and objects of two versions talk to each other during a deploy.
//!
//! A frame is the length of the JSON part (4 bytes, big endian), the JSON part, and raw bytes (a request body, a batch
//! of output) that are never wrapped in JSON.

use crate::ids::{AttemptId, GenerationId, Identity};
use crate::key::KeyDigest;
use crate::ledger::Posting;
use crate::policy::Terms;
use crate::refusal::Refusal;
use crate::reservation::{Cancellation, ResolvedBy, ResponseHead, UpstreamEnd};
use crate::tenant::{Admit, Admitted, Extend};
use crate::view::{BalanceView, GenerationView};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Content type of a reply. An answer of any other type is the client's answer and passes through the edge untouched.
pub const REPLY_CONTENT_TYPE: &str = "application/vnd.holdfast.reply+json";

/// A call to a TenantObject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum TenantCall {
    /// May this request run? Idempotent by generation id.
    Admit(Box<Admit>),
    /// Is this key valid, and is this generation admitted?
    Authenticate {
        /// The caller's key.
        key: KeyDigest,
        /// A generation that the caller names.
        generation: Option<GenerationId>,
    },
    /// Which generation runs or ran under this idempotency key, on any path?
    FindByIdempotencyKey {
        /// The caller's key.
        key: KeyDigest,
        /// The idempotency key.
        idempotency_key: String,
    },
    /// Balances and open holds.
    Balance {
        /// The caller's key.
        key: KeyDigest,
    },
    /// Postings of one reservation, in order. Idempotent by posting id.
    Settle {
        /// The postings.
        postings: Vec<Posting>,
    },
    /// A further attempt is planned: may its hold be extended? Idempotent by reservation and epoch.
    Extend(Box<Extend>),
}

/// The answer of a TenantObject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum TenantReply {
    /// The request may run, or joins one that does.
    Admitted(Box<Admitted>),
    /// The key is valid.
    Authenticated {
        /// What the named generation was admitted under, if it is this tenant's.
        admitted: Option<Box<Admitted>>,
    },
    /// The generation under an idempotency key, if there is one.
    Found {
        /// Which.
        generation: Option<GenerationId>,
    },
    /// Balances and open holds.
    Balance(Box<BalanceView>),
    /// Every posting is applied, now or before.
    Settled,
    /// The hold is extended by the amount asked for, now or before.
    Extended,
    /// Refused; nothing changed.
    Refused {
        /// Why.
        refusal: Refusal,
    },
}

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
    /// What became of this hold? One that was never started never will be.
    Resolve {
        /// What it was admitted under.
        admitted: Box<Admitted>,
        /// Who asks.
        #[serde(default)]
        by: ResolvedBy,
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
    /// The hold is resolved or its generation lives.
    Resolved,
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

/// The frame is malformed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MalformedFrame(pub String);

/// Packs a call with its raw bytes.
///
/// # Errors
/// [`MalformedFrame`] when the call does not serialize or is above 4 GiB.
pub fn encode<T: Serialize>(call: &T, raw: &[u8]) -> Result<Vec<u8>, MalformedFrame> {
    let json = serde_json::to_vec(call).map_err(|error| MalformedFrame(alloc::format!("{error}")))?;
    let length = u32::try_from(json.len()).map_err(|_| MalformedFrame("too long".into()))?;
    let mut frame = Vec::with_capacity(json.len().saturating_add(raw.len()).saturating_add(4));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&json);
    frame.extend_from_slice(raw);
    Ok(frame)
}

/// Unpacks a call and its raw bytes.
///
/// # Errors
/// [`MalformedFrame`] when the frame is cut or its JSON is not a known call.
pub fn decode<T: DeserializeOwned>(mut frame: Vec<u8>) -> Result<(T, Vec<u8>), MalformedFrame> {
    let cut = || MalformedFrame("cut".into());
    let length = frame.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(cut)?;
    let end = usize::try_from(length).ok().and_then(|length| length.checked_add(4)).ok_or_else(cut)?;
    let json = frame.get(4..end).ok_or_else(cut)?;
    let call = serde_json::from_slice(json).map_err(|error| MalformedFrame(alloc::format!("{error}")))?;
    frame.drain(..end);
    Ok((call, frame))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Objects and Workers of two versions talk during a deploy: these bytes may gain members, never lose or change them.
    #[test]
    fn bytes_are_pinned() {
        let call = GenerationCall::Append {
            epoch: 1,
            offset: 7,
            response: None,
            received: true,
            client_attached: true,
            furthest_offset: 5,
        };
        let frame = encode(&call, b"data").unwrap();
        assert_eq!(
            frame,
            b"\0\0\0\x61{\"call\":\"append\",\"epoch\":1,\"offset\":7,\"received\":true,\"client_attached\":true,\"furthest_offset\":5}data"
        );
        assert_eq!(decode::<GenerationCall>(frame), Ok((call, b"data".to_vec())));
        let stream = GenerationCall::Stream { form: StreamForm::Raw { offset: 3 } };
        assert_eq!(serde_json::to_string(&stream).unwrap(), r#"{"call":"stream","form":"raw","offset":3}"#);
        assert_eq!(
            serde_json::from_str::<GenerationCall>(r#"{"call":"stream","form":"raw","offset":3}"#).unwrap(),
            stream
        );
        let refused = TenantReply::Refused { refusal: Refusal::ConcurrencyExceeded { limit: 2 } };
        assert_eq!(
            serde_json::to_string(&refused).unwrap(),
            r#"{"reply":"refused","refusal":{"refusal":"concurrency_exceeded","limit":2}}"#
        );
        let settle = TenantCall::Settle { postings: Vec::new() };
        assert_eq!(serde_json::to_string(&settle).unwrap(), r#"{"call":"settle","postings":[]}"#);
        let identity = r#"{"tenant":"t","generation":"gen_01010101010101010101010101010101","reservation":"res_02020202020202020202020202020202"}"#;
        let bytes = alloc::format!(r#"{{"call":"extend","identity":{identity},"epoch":2,"amount":7}}"#);
        let extend = serde_json::from_str::<TenantCall>(&bytes).unwrap();
        assert!(matches!(&extend, TenantCall::Extend(extend) if extend.epoch == 2));
        assert_eq!(serde_json::to_string(&extend).unwrap(), bytes);
        assert_eq!(serde_json::to_string(&TenantReply::Extended).unwrap(), r#"{"reply":"extended"}"#);
    }

    #[test]
    fn cut_frames_are_refused() {
        let frame = encode(&GenerationCall::Status, b"").unwrap();
        for cut in 0..frame.len() {
            assert!(decode::<GenerationCall>(frame.iter().copied().take(cut).collect()).is_err(), "{cut}");
        }
        assert!(decode::<GenerationCall>(b"\xff\xff\xff\xff{}".to_vec()).is_err());
    }
}
