//! What a provider calls back: that an operation has ended, and how. Verified before it is read, see
//! [`crate::signature`].
//!
//! The payload is thin, as OpenAI sends it: the event's id and type, and the id of the operation. It tells no usage.
//!
//! ```text
//! {"id":"evt_1","object":"event","created_at":1750861210,"type":"response.completed","data":{"id":"resp_123"}}
//! ```

use crate::finding::Source;
use crate::meter::members;
use crate::reconcile::Outcome;
use crate::reservation::{Report, Signal, Subject};
use crate::time::UnixMillis;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use core::fmt;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// Largest body that is read, in bytes. Standard Webhooks asks senders to stay below 20 kB.
pub const BODY_MAX_BYTES: u64 = 64 << 10;

/// Longest id that is accepted, in bytes.
const ID_MAX_BYTES: usize = 256;

/// An operation has ended, as its provider calls back.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CallbackEvent {
    /// The event's own id, the same on every repetition.
    pub event_id: String,
    /// The provider's id of the operation.
    pub operation_id: String,
    /// What the operation came to.
    pub outcome: Outcome,
}

/// The body is no event.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedCallback;

impl fmt::Display for MalformedCallback {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a callback is a JSON object with `id`, `type` and `data.id`")
    }
}

impl core::error::Error for MalformedCallback {}

/// Read first: what is no event of ours may have any form.
#[derive(Deserialize)]
struct Kind<'a> {
    #[serde(borrow)]
    r#type: Cow<'a, str>,
}

#[derive(Deserialize)]
struct Payload<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    data: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Data<'a> {
    #[serde(borrow)]
    id: Option<Cow<'a, str>>,
}

/// Reads the body of a verified callback. `message_id` is the id of its envelope, for an event without one of its own.
/// `None` for an event that is about no operation of ours: it is taken, and changes nothing.
///
/// # Errors
/// [`MalformedCallback`].
pub fn read(message_id: &str, body: &[u8]) -> Result<Option<CallbackEvent>, MalformedCallback> {
    let Kind { r#type } = members(body).ok_or(MalformedCallback)?;
    let outcome = match &*r#type {
        "response.completed" => Outcome::Completed,
        "response.incomplete" => Outcome::Incomplete,
        "response.failed" => Outcome::Failed,
        "response.cancelled" => Outcome::Cancelled,
        _ => return Ok(None),
    };
    let Payload { id, data } = members(body).ok_or(MalformedCallback)?;
    let data: Option<Data<'_>> = data.and_then(|data| members(data.get().as_bytes()));
    let event_id = id.as_deref().unwrap_or(message_id);
    let operation_id = data.as_ref().and_then(|data| data.id.as_deref()).ok_or(MalformedCallback)?;
    if ![event_id, operation_id].into_iter().all(is_id) {
        return Err(MalformedCallback);
    }
    Ok(Some(CallbackEvent { event_id: event_id.into(), operation_id: operation_id.into(), outcome }))
}

fn is_id(text: &str) -> bool {
    (1..=ID_MAX_BYTES).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_graphic())
}

impl CallbackEvent {
    /// The signal that it is to the operation's generation, heard at `observed_at`.
    #[must_use]
    pub fn signal(&self, observed_at: UnixMillis) -> Signal {
        Signal {
            event_id: Some(format!("callback:{}", self.event_id)),
            source: Source::Callback,
            subject: Subject::Operation { operation_id: self.operation_id.clone() },
            report: Report::Ended { outcome: self.outcome, usage: None },
            observed_at,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_text(body: &str) -> Result<Option<(String, String, Outcome)>, MalformedCallback> {
        read("wh_1", body.as_bytes()).map(|event| event.map(|it| (it.event_id, it.operation_id, it.outcome)))
    }

    #[test]
    fn events_of_the_documented_types() {
        for (kind, outcome) in [
            ("response.completed", Outcome::Completed),
            ("response.incomplete", Outcome::Incomplete),
            ("response.failed", Outcome::Failed),
            ("response.cancelled", Outcome::Cancelled),
        ] {
            let body = format!(r#"{{"id":"evt_1","object":"event","type":"{kind}","data":{{"id":"resp_1"}}}}"#);
            assert_eq!(read_text(&body), Ok(Some(("evt_1".into(), "resp_1".into(), outcome))));
            let nameless = format!(r#"{{"type":"{kind}","data":{{"id":"resp_1"}}}}"#);
            assert_eq!(read_text(&nameless), Ok(Some(("wh_1".into(), "resp_1".into(), outcome))));
        }
    }

    #[test]
    fn what_is_not_about_an_operation_is_taken_and_passed_over() {
        for body in [
            r#"{"id":"evt_1","type":"batch.completed","data":{"id":"batch_1"}}"#,
            r#"{"type":"response.started"}"#,
            r#"{"id":"e1","type":"batch.completed","data":5}"#,
            r#"{"id":5,"type":"batch.completed","data":[1]}"#,
            r#"{"type":"fine_tuning.job.failed","data":{"id":7}}"#,
            r#"{"type":"realtime.call.incoming","data":{"call_id":"x"}}"#,
        ] {
            assert_eq!(read_text(body), Ok(None), "{body}");
        }
    }

    #[test]
    fn what_is_no_event_is_refused() {
        let long = format!(r#"{{"type":"response.completed","data":{{"id":"{}"}}}}"#, "x".repeat(257));
        for body in [
            "",
            "null",
            "[]",
            r#"{"data":{"id":"resp_1"}}"#,
            r#"["evt_1","response.completed",["resp_1"]]"#,
            r#"{"type":"response.completed","data":["resp_1"]}"#,
            r#"{"type":"response.completed","data":{"id":7}}"#,
            r#"{"id":5,"type":"response.completed","data":{"id":"resp_1"}}"#,
            r#"{"type":"response.completed"}"#,
            r#"{"type":"response.completed","data":{}}"#,
            r#"{"type":"response.completed","data":{"id":""}}"#,
            r#"{"type":"response.completed","data":{"id":"a b"}}"#,
            r#"{"type":"response.completed","id":"a\nb","data":{"id":"resp_1"}}"#,
            &long,
        ] {
            assert_eq!(read_text(body), Err(MalformedCallback), "{body}");
        }
    }

    /// The id names its kind: a callback is never taken for the end of a driver.
    #[test]
    fn the_signal_of_an_event() {
        let event =
            CallbackEvent { event_id: "evt_1".into(), operation_id: "resp_1".into(), outcome: Outcome::Completed };
        let signal = event.signal(UnixMillis(7));
        assert_eq!((signal.event_id.as_deref(), signal.source), (Some("callback:evt_1"), Source::Callback));
        assert_eq!(signal.subject, Subject::Operation { operation_id: "resp_1".into() });
        assert_eq!(signal.report, Report::Ended { outcome: Outcome::Completed, usage: None });
        assert_eq!(signal.observed_at, UnixMillis(7));
    }
}
