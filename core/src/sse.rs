//! Incremental scanner of server-sent events, after the WHATWG rules
//! (<https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation>).
//!
//! It looks at bytes and never alters them: any chunk boundary, any mixture of LF, CRLF and CR, a leading byte order mark,
//! comments, several data lines, fields without a colon. Results do not depend on where the chunks were cut.
//!
//! A CR that is the last byte of a chunk may be the first half of a CRLF, so its line ends only with the next byte (or with
//! [`Scanner::finish`]): an event's end offset always lies behind its whole line ending.

use alloc::vec::Vec;
use core::mem;

use memchr::{memchr, memchr2};

/// What must be written before a further event when a stream broke inside an event.
pub const BLANK_LINE: &[u8] = b"\n\n";

const BYTE_ORDER_MARK: &[u8] = b"\xEF\xBB\xBF";

/// So much of a line is enough to see whether it is a data line: a byte order mark, `data`, a colon and a spare byte.
const LINE_PREFIX_BYTES: usize = 9;

/// Buffers that one large event has grown beyond this are given back.
const RECYCLED_CAPACITY_MAX: usize = 64 * 1024;

/// One complete event: its data lines and the blank line behind them have been seen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct ScanEnd {
    /// Fields of an event, or a part of one, were left without their blank line; they are not dispatched.
    pub inside_event: bool,
    /// [`BLANK_LINE`] is needed before anything else may be appended. Also true within a comment line.
    pub needs_blank_line: bool,
}

/// Incremental scanner of one event stream. Feed it every chunk in order, then call [`Scanner::finish`].
#[derive(Debug)]
pub struct Scanner {
    event_max_bytes: u64,
    offset: u64,
    boundary: u64,
    /// The unfinished line of earlier chunks; only its first bytes where `line_open` outruns it.
    line: Vec<u8>,
    line_open: bool,
    /// The line's CR was the last byte so far: a LF that follows belongs to it.
    cr_pending: bool,
    first_line: bool,
    has_fields: bool,
    has_data: bool,
    oversize: bool,
    /// Data lines of earlier chunks, joined; meaningful only if `data_kept`.
    data: Vec<u8>,
    data_kept: bool,
    name: Vec<u8>,
    id: Option<Vec<u8>>,
    retry_ms: Option<u64>,
}

/// Fields of the current event that lie in the current chunk and need no copy.
#[derive(Default)]
struct Borrowed<'c> {
    data: Option<&'c [u8]>,
    name: Option<&'c [u8]>,
    id: Option<&'c [u8]>,
}

enum Field {
    Data,
    Event,
    Id,
    Retry,
    Unknown,
}

impl Scanner {
    /// A scanner at the start of a stream. An event above `event_max_bytes` (raw, blank line included) is reported as
    /// oversize and its contents are not kept; the stream goes on.
    #[must_use]
    pub const fn new(event_max_bytes: usize) -> Self {
        Self {
            event_max_bytes: event_max_bytes as u64,
            offset: 0,
            boundary: 0,
            line: Vec::new(),
            line_open: false,
            cr_pending: false,
            first_line: true,
            has_fields: false,
            has_data: false,
            oversize: false,
            data: Vec::new(),
            data_kept: false,
            name: Vec::new(),
            id: None,
            retry_ms: None,
        }
    }

    /// Bytes taken so far.
    #[must_use]
    pub const fn offset(&self) -> u64 {
        self.offset
    }

    /// The last offset at which the source stood between events: behind a blank line, or behind a comment that is not
    /// within an event. A reader that starts there sees whole events only.
    #[must_use]
    pub const fn boundary(&self) -> u64 {
        self.boundary
    }

    /// Whether the source stands between events now.
    #[must_use]
    pub const fn at_boundary(&self) -> bool {
        self.boundary == self.offset
    }

    /// Takes the next chunk and reports each event that it completes.
    pub fn push(&mut self, chunk: &[u8], mut on_event: impl FnMut(Event<'_>)) {
        let mut borrowed = Borrowed::default();
        let mut rest = self.resolve_cr(chunk, &mut borrowed, &mut on_event);
        while let Some(at) = memchr2(b'\n', b'\r', rest) {
            let (line, ending) = rest.split_at_checked(at).unwrap_or((rest, &[]));
            let width = match ending {
                [b'\r'] => {
                    self.keep(line);
                    self.cr_pending = true;
                    self.offset = self.offset.saturating_add(rest.len() as u64);
                    rest = &[];
                    break;
                }
                [b'\r', b'\n', ..] => 2,
                _ => 1,
            };
            self.offset = self.offset.saturating_add(at.saturating_add(width) as u64);
            if self.line_open {
                self.keep(line);
                self.end_kept_line(&mut borrowed, &mut on_event);
            } else {
                self.end_line(line, &mut borrowed, &mut on_event);
            }
            rest = ending.get(width..).unwrap_or_default();
        }
        self.keep(rest);
        self.offset = self.offset.saturating_add(rest.len() as u64);
        self.keep_fields(borrowed);
    }

    /// Ends the stream. Reports at most one event: one whose last line ended with a CR that was the last byte.
    pub fn finish(mut self, mut on_event: impl FnMut(Event<'_>)) -> ScanEnd {
        if self.cr_pending {
            self.end_kept_line(&mut Borrowed::default(), &mut on_event);
        }
        let in_line = self.line_open && !self.in_comment() && !self.without_mark(&self.line).is_empty();
        ScanEnd { inside_event: self.has_fields || in_line, needs_blank_line: self.has_fields || self.line_open }
    }

    /// Ends the line whose CR closed the last chunk, with the LF that may follow.
    fn resolve_cr<'c>(
        &mut self,
        chunk: &'c [u8],
        borrowed: &mut Borrowed<'c>,
        on_event: &mut impl FnMut(Event<'_>),
    ) -> &'c [u8] {
        let rest = match chunk {
            [b'\n', rest @ ..] if self.cr_pending => {
                self.offset = self.offset.saturating_add(1);
                rest
            }
            [_, ..] if self.cr_pending => chunk,
            _ => return chunk,
        };
        self.end_kept_line(borrowed, on_event);
        rest
    }

    /// Ends the line that was collected over several chunks.
    fn end_kept_line(&mut self, borrowed: &mut Borrowed<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        let line = mem::take(&mut self.line);
        self.line_open = false;
        self.cr_pending = false;
        // The fields of a kept line must not outlive it, so they are kept at once.
        let mut own = Borrowed { data: None, name: borrowed.name, id: borrowed.id };
        if let Some(data) = borrowed.data.take() {
            self.keep_data(data);
        }
        self.end_line(&line, &mut own, on_event);
        self.keep_fields(own);
        *borrowed = Borrowed::default();
        self.line = line;
        recycle(&mut self.line);
    }

    fn end_line<'c>(&mut self, line: &'c [u8], borrowed: &mut Borrowed<'c>, on_event: &mut impl FnMut(Event<'_>)) {
        let mut text = line;
        if self.first_line {
            text = self.without_mark(line);
            self.first_line = false;
            self.boundary = line.len().saturating_sub(text.len()) as u64;
        }
        match text {
            [] => self.end_event(mem::take(borrowed), on_event),
            [b':', ..] if self.has_fields => {}
            [b':', ..] => self.boundary = self.offset,
            _ => self.take_field(text, borrowed),
        }
    }

    fn take_field<'c>(&mut self, line: &'c [u8], borrowed: &mut Borrowed<'c>) {
        self.has_fields = true;
        let (field, value) = split_field(line);
        if matches!(field, Field::Data) {
            self.has_data = true;
        }
        if self.oversize {
            return;
        }
        match field {
            Field::Data if self.data_kept || borrowed.data.is_some() => {
                if let Some(first) = borrowed.data.take() {
                    self.keep_data(first);
                }
                self.keep_data(value);
            }
            Field::Data => borrowed.data = Some(value),
            Field::Event => borrowed.name = Some(value),
            Field::Id if memchr(0, value).is_none() => borrowed.id = Some(value),
            Field::Retry => self.retry_ms = milliseconds(value).or(self.retry_ms),
            Field::Id | Field::Unknown => {}
        }
    }

    fn end_event(&mut self, borrowed: Borrowed<'_>, on_event: &mut impl FnMut(Event<'_>)) {
        let oversize = self.oversize || self.pending_bytes() > self.event_max_bytes;
        if self.has_data {
            let event = Event { start: self.boundary, end: self.offset, oversize, ..Event::EMPTY };
            on_event(if oversize {
                event
            } else {
                Event {
                    name: borrowed.name.unwrap_or(&self.name),
                    data: borrowed.data.unwrap_or(if self.data_kept { &self.data } else { &[] }),
                    id: borrowed.id.or(self.id.as_deref()),
                    retry_ms: self.retry_ms,
                    ..event
                }
            });
        }
        self.boundary = self.offset;
        if self.has_fields {
            self.has_fields = false;
            self.has_data = false;
            self.oversize = false;
            self.drop_contents();
        }
    }

    fn drop_contents(&mut self) {
        recycle(&mut self.data);
        recycle(&mut self.name);
        self.data_kept = false;
        self.id = None;
        self.retry_ms = None;
    }

    /// Keeps what an unfinished event has in a chunk that goes away; gives it up when it is above the bound.
    fn keep_fields(&mut self, borrowed: Borrowed<'_>) {
        let unfinished = self.has_fields || (self.line_open && !self.in_comment());
        if !self.oversize && unfinished && self.pending_bytes() > self.event_max_bytes {
            self.oversize = true;
            self.drop_contents();
            self.line.truncate(LINE_PREFIX_BYTES);
            self.line.shrink_to_fit();
        }
        if self.oversize {
            return;
        }
        if let Some(data) = borrowed.data {
            self.keep_data(data);
        }
        if let Some(name) = borrowed.name {
            self.name.clear();
            self.name.extend_from_slice(name);
        }
        if let Some(id) = borrowed.id {
            self.id = Some(id.to_vec());
        }
    }

    fn keep_data(&mut self, value: &[u8]) {
        if self.data_kept {
            self.data.push(b'\n');
        }
        self.data.extend_from_slice(value);
        self.data_kept = true;
    }

    /// Keeps a part of an unfinished line: all of it, or as much as is needed to name it.
    fn keep(&mut self, part: &[u8]) {
        if part.is_empty() {
            return;
        }
        let prefix_only = self.oversize || (self.line_open && self.in_comment());
        self.line_open = true;
        let room = if prefix_only { LINE_PREFIX_BYTES.saturating_sub(self.line.len()) } else { part.len() };
        self.line.extend_from_slice(part.get(..room).unwrap_or(part));
    }

    fn in_comment(&self) -> bool {
        self.without_mark(&self.line).first() == Some(&b':')
    }

    fn without_mark<'l>(&self, line: &'l [u8]) -> &'l [u8] {
        if self.first_line { line.strip_prefix(BYTE_ORDER_MARK).unwrap_or(line) } else { line }
    }

    /// Bytes of the unfinished event. A byte order mark belongs to none.
    fn pending_bytes(&self) -> u64 {
        let mark = self.line.len().saturating_sub(self.without_mark(&self.line).len()) as u64;
        self.offset.saturating_sub(self.boundary).saturating_sub(mark)
    }
}

impl Event<'_> {
    const EMPTY: Self = Self { start: 0, end: 0, name: &[], data: &[], id: None, retry_ms: None, oversize: false };
}

fn split_field(line: &[u8]) -> (Field, &[u8]) {
    if let Some(value) = line.strip_prefix(b"data:") {
        return (Field::Data, without_space(value));
    }
    let (name, value) = match memchr(b':', line).and_then(|at| line.split_at_checked(at)) {
        Some((name, value)) => (name, without_space(value.strip_prefix(b":").unwrap_or(value))),
        None => (line, [].as_slice()),
    };
    let field = match name {
        b"data" => Field::Data,
        b"event" => Field::Event,
        b"id" => Field::Id,
        b"retry" => Field::Retry,
        _ => Field::Unknown,
    };
    (field, value)
}

fn without_space(value: &[u8]) -> &[u8] {
    value.strip_prefix(b" ").unwrap_or(value)
}

fn milliseconds(value: &[u8]) -> Option<u64> {
    let text = core::str::from_utf8(value).ok()?;
    if text.bytes().all(|byte| byte.is_ascii_digit()) { text.parse().ok() } else { None }
}

fn recycle(buffer: &mut Vec<u8>) {
    buffer.clear();
    buffer.shrink_to(RECYCLED_CAPACITY_MAX);
}
