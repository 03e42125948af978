//! A provider's protocol for an operation that runs in the background there: where it is asked, and what its answers mean.
//!
//! | question | call | answer |
//! |---|---|---|
//! | what became of it? | `GET …/{id}` | [`read_look_up`] |
//! | stop it | `POST …/{id}/cancel` | [`read_cancel`] |
//! | the rest of its stream | `GET …/{id}?stream=true&starting_after=N` | [`resume_is_refused`], [`ResumePoint`], [`Splice`] |
//!
//! The path is that of the request that began it. An id comes from the provider, and still is checked before it enters a
//! path: see [`is_operation_id`].

mod body;

pub use body::AnswerBody;

use crate::dialect::Dialect;
use crate::meter::{members, read_body};
use crate::reconcile::Outcome;
use crate::reservation::{CancelAnswer, Report};
use crate::sse::{Event, Scanner};
use crate::usage::Usage;
use alloc::borrow::Cow;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use serde::de::IgnoredAny;

/// Longest id that enters a path, in bytes.
pub const OPERATION_ID_MAX_BYTES: usize = 128;

/// More repeated bytes than these are not compared: the stream is not taken up then.
pub const SPLICE_MAX_BYTES: u64 = 4 << 20;

/// Whether an id may enter a path: letters, digits, `_` and `-` of ASCII, and not too many.
#[must_use]
pub fn is_operation_id(id: &str) -> bool {
    let plain = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'_' | b'-');
    (1..=OPERATION_ID_MAX_BYTES).contains(&id.len()) && id.bytes().all(plain)
}

/// Path and query by which an operation is looked up. `path` is that of the request which began it. `None` where the
/// dialect has no such call, or the id is none that may enter a path.
#[must_use]
pub fn look_up_path(dialect: Dialect, path: &str, id: &str) -> Option<String> {
    (dialect.has_background() && is_operation_id(id)).then(|| format!("{path}/{id}"))
}

/// Path by which a cancel is asked for. See [`look_up_path`].
#[must_use]
pub fn cancel_path(dialect: Dialect, path: &str, id: &str) -> Option<String> {
    look_up_path(dialect, path, id).map(|path| format!("{path}/cancel"))
}

/// Path and query that give the rest of the stream. Without `starting_after` that is all of it. See [`look_up_path`].
#[must_use]
pub fn resume_path(dialect: Dialect, path: &str, id: &str, starting_after: Option<u64>) -> Option<String> {
    let path = look_up_path(dialect, path, id)?;
    let after = starting_after.map_or_else(String::new, |number| format!("&starting_after={number}"));
    // Padding would differ from what is stored.
    Some(format!("{path}?stream=true{after}&include_obfuscation=false"))
}

/// A whole answer of a provider about an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Answer<'a> {
    /// HTTP status.
    pub status: u16,
    /// `Retry-After`, in milliseconds from its arrival.
    pub retry_after_ms: Option<u64>,
    /// The body, or what [`AnswerBody::excerpt`] has of it.
    pub body: &'a [u8],
}

/// The provider said nothing about the operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NotTold {
    /// When it wishes to be asked again, in milliseconds.
    pub retry_after_ms: Option<u64>,
}

#[derive(Deserialize)]
struct Operation<'a> {
    #[serde(borrow)]
    id: Cow<'a, str>,
    #[serde(borrow)]
    status: Cow<'a, str>,
}

/// What a lookup's answer says about the operation `id`. Not found says nothing about what it did.
///
/// # Errors
/// [`NotTold`] for any other failure, and for an answer that is not understood or is about another operation.
pub fn read_look_up(dialect: Dialect, id: &str, answer: &Answer<'_>) -> Result<Report, NotTold> {
    match answer.status {
        200 => read_state(dialect, id, answer.body).ok_or(NotTold { retry_after_ms: None }),
        404 => Ok(Report::Unknown),
        _ => Err(NotTold { retry_after_ms: answer.retry_after_ms }),
    }
}

/// What the answer to a cancel says; and, where it brings the final operation that was no cancelled one, what that came
/// to. The operation's own state decides, not that the request was taken.
#[must_use]
pub fn read_cancel(dialect: Dialect, id: &str, answer: &Answer<'_>) -> (CancelAnswer, Option<Report>) {
    match answer.status {
        200..=299 => match read_state(dialect, id, answer.body) {
            Some(Report::Ended { outcome: Outcome::Cancelled, usage }) => (CancelAnswer::Confirmed { usage }, None),
            Some(ended @ Report::Ended { .. }) => (CancelAnswer::TooLate, Some(ended)),
            Some(Report::Processing | Report::Unknown) | None => (CancelAnswer::Accepted, None),
        },
        // It has ended, or its phase cannot be cancelled.
        400 | 409 => (CancelAnswer::TooLate, None),
        408 | 425 | 429 | 500..=599 => (CancelAnswer::Failed { retry_after_ms: answer.retry_after_ms }, None),
        _ => (CancelAnswer::Refused, None),
    }
}

/// The final form of an operation, as an answer to a lookup or to a cancel brings it: it has the output.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct FinalForm {
    /// What the operation came to.
    pub outcome: Outcome,
    /// It says that there is no output.
    pub without_output: bool,
}

/// The final form of the operation `id`, if the answer is one.
#[must_use]
pub fn read_final_form(dialect: Dialect, id: &str, answer: &Answer<'_>) -> Option<FinalForm> {
    #[derive(Deserialize)]
    struct Output {
        output: Option<Vec<IgnoredAny>>,
    }
    if !matches!(answer.status, 200..=299) {
        return None;
    }
    let Some(Report::Ended { outcome, .. }) = read_state(dialect, id, answer.body) else { return None };
    let output = members::<Output>(answer.body).and_then(|form| form.output);
    Some(FinalForm { outcome, without_output: output.is_some_and(|output| output.is_empty()) })
}

/// Whether a provider that does not send the stream on will never do so: too old, not known, not allowed. Anything else
/// may be better later.
#[must_use]
pub const fn resume_is_refused(status: u16) -> bool {
    matches!(status, 200..=499) && !matches!(status, 408 | 425 | 429)
}

fn read_state(dialect: Dialect, id: &str, body: &[u8]) -> Option<Report> {
    let operation: Operation<'_> = members(body)?;
    if operation.id != id {
        return None;
    }
    let outcome = match operation.status.as_ref() {
        "queued" | "in_progress" => return Some(Report::Processing),
        "completed" => Outcome::Completed,
        "incomplete" => Outcome::Incomplete,
        "failed" => Outcome::Failed,
        "cancelled" => Outcome::Cancelled,
        _ => return None,
    };
    Some(Report::Ended { outcome, usage: usage_of(dialect, body) })
}

/// The usage in an operation's final form: it is that of a plain answer.
fn usage_of(dialect: Dialect, body: &[u8]) -> Option<Usage> {
    let (report, _) = read_body(dialect, body);
    report.usage.filter(|_| !report.usage_rejected)
}

/// Where a stored stream is taken up.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ResumePoint {
    /// The number of the last whole stored event; `None`: from its beginning.
    pub starting_after: Option<u64>,
    /// From here on the provider repeats what is stored: it is compared, and not stored again.
    pub compare_from: u64,
}

/// Finds the [`ResumePoint`] of a stored stream.
#[derive(Debug)]
pub struct ResumeScan {
    scanner: Scanner,
    cursor: Cursor,
}

#[derive(Debug, Default)]
struct Cursor {
    number: Option<u64>,
    /// Offset behind that event.
    end: u64,
    /// Events without a usable number came after it: the provider may give them again.
    others: bool,
}

impl ResumeScan {
    /// At the start of a stream. Events above `event_max_bytes` are not read: they count as without a number.
    #[must_use]
    pub fn new(event_max_bytes: usize) -> Self {
        Self { scanner: Scanner::new(event_max_bytes), cursor: Cursor::default() }
    }

    /// Takes the next stored bytes.
    pub fn push(&mut self, bytes: &[u8]) {
        let cursor = &mut self.cursor;
        self.scanner.push(bytes, |event| cursor.observe(&event));
    }

    /// The point. What stands between the last numbered event and the end of whole events is compared only where it is
    /// more than comments: those are nobody's to repeat.
    #[must_use]
    pub fn point(&self) -> ResumePoint {
        let Cursor { number, end, others } = self.cursor;
        let compare_from = if others { end } else { self.scanner.boundary().max(end) };
        ResumePoint { starting_after: number, compare_from }
    }
}

impl Cursor {
    fn observe(&mut self, event: &Event<'_>) {
        #[derive(Deserialize)]
        struct Numbered {
            sequence_number: u64,
        }
        let read: Option<Numbered> = serde_json::from_slice(event.data).ok();
        match read.map(|numbered| numbered.sequence_number) {
            Some(number) if self.number.is_none_or(|last| number > last) => {
                *self = Self { number: Some(number), end: event.end, others: false };
            }
            _ => self.others = true,
        }
    }
}

/// The provider's bytes differ from the stored ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Differs;

/// Compares what a provider repeats with what is stored, and lets through what is new.
#[derive(Clone, Debug, Default)]
pub struct Splice {
    stored: Vec<u8>,
    seen: usize,
}

impl Splice {
    /// Expects these stored bytes first.
    #[must_use]
    pub const fn new(stored: Vec<u8>) -> Self {
        Self { stored, seen: 0 }
    }

    /// Takes the next bytes; gives those that are new.
    ///
    /// # Errors
    /// [`Differs`] at the first byte that is another one than the stored.
    pub fn take(&mut self, mut bytes: Vec<u8>) -> Result<Vec<u8>, Differs> {
        let expected = self.stored.get(self.seen..).unwrap_or_default();
        if expected.is_empty() {
            return Ok(bytes);
        }
        let repeated = expected.len().min(bytes.len());
        if bytes.get(..repeated) != expected.get(..repeated) {
            return Err(Differs);
        }
        self.seen = self.seen.saturating_add(repeated);
        bytes.drain(..repeated);
        Ok(bytes)
    }
}
