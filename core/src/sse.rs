//! Incremental scanner of server-sent events, after the WHATWG rules
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>).
//!
//! It looks at bytes and never alters them: any chunk boundary, any mixture of LF, CRLF and CR, a leading byte order mark,
//! comments, several data lines, fields without a colon. Results do not depend on where the chunks were cut.
//!
//! A CR that is the last byte of a chunk may be the first half of a CRLF, so its line ends only with the next byte (or with
//! the end): an event's end offset always lies behind its whole line ending.

/// What must be written before a further event when a stream broke inside an event.
pub const BLANK_LINE: &[u8] = b"\n\n";

/// One complete event: its data lines and the blank line behind them have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event<'a> {
    /// Offset of its first byte in the source: behind the blank line or comment before it.
    pub start: u64,
    /// Offset behind its blank line.
    pub end: u64,
    /// Value of its last `event` field; empty means `message`. Bytes as received: UTF-8 is not checked.
    pub name: &'a [u8],
    /// Its data lines joined by LF. Bytes as received: UTF-8 is not checked. Empty if `oversize`.
    pub data: &'a [u8],
    /// Value of its own `id` field, unless that contains a NUL.
    pub id: Option<&'a [u8]>,
    /// Value of its own `retry` field in milliseconds.
    pub retry_ms: Option<u64>,
    /// Longer than the scanner's bound: offsets are right, contents were not kept.
    pub oversize: bool,
}

/// Where the source stood when it ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ScanEnd {
    /// Fields of an event, or a part of one, were left without their blank line; they are not dispatched.
    pub inside_event: bool,
    /// [`BLANK_LINE`] is needed before anything else may be appended. Also true within a comment line.
    pub needs_blank_line: bool,
}
