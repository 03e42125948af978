//! The intake: from the provider's chunks to the bytes that the log and all readers get.
//!
//! Bytes are never changed. Two things happen to them: the bytes of an event stream are released at event boundaries,
//! since a reader can do nothing with half an event; and an event that carries nothing but usage can be left out.

use alloc::boxed::Box;
use alloc::vec::Vec;
use core::mem;
use core::ops::Range;

use crate::dialect::Dialect;
use crate::meter::document::DocumentTracker;
use crate::meter::{EndClass, MeterReport, StreamMeter, read_body, stream_meter};
use crate::sse::{Event, ScanEnd, Scanner};

/// An unfinished event above this is released as it is.
pub const HELD_MAX_BYTES: usize = 16 * 1024;

/// A plain body above this is relayed, but not kept to be read at its end: its usage stays unknown.
pub const BODY_READ_MAX_BYTES: usize = 8 * 1024 * 1024;

/// How an answer is to be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct IntakeOptions {
    /// Whose rules the answer follows.
    pub dialect: Dialect,
    /// The answer is a stream of server-sent events (by its content type, not by the wish of the request).
    pub streaming: bool,
    /// Remove the event that carries nothing but usage: the proxy asked for it, the client did not.
    pub strip_usage: bool,
    /// Events above this many bytes are relayed but not read.
    pub event_max_bytes: usize,
}

/// What is left when the answer has ended.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct IntakeEnd {
    /// The last bytes to release: of an event that was cut, as they came.
    pub tail: Vec<u8>,
    /// How the answer ended, as far as its bytes tell. For an opaque answer every end between events is complete.
    pub class: EndClass,
    /// All that was learnt.
    pub report: MeterReport,
    /// [`crate::sse::BLANK_LINE`] must stand before an appended error event, provided that `tail` was released.
    pub terminal_prefix: bool,
    /// The last event that was removed, raw: evidence of the usage that `report` tells.
    pub stripped_usage: Option<Vec<u8>>,
    /// How many of the tail's last bytes belong to an unfinished event or comment.
    partial_bytes: usize,
    /// Earlier bytes of that unfinished event were released already.
    partial_released: bool,
}

/// Takes in one answer.
#[derive(Debug)]
pub struct Intake {
    kind: Kind,
}

#[derive(Debug)]
enum Kind {
    Events(EventIntake),
    Body(BodyIntake),
}

impl Intake {
    /// An intake at the start of an answer's body.
    #[must_use]
    pub fn new(options: IntakeOptions) -> Self {
        let kind = if options.streaming {
            Kind::Events(EventIntake::new(options))
        } else {
            Kind::Body(BodyIntake::new(options.dialect))
        };
        Self { kind }
    }

    /// Takes one chunk in and returns the bytes that may go to log and readers now; may be empty. A chunk that starts and
    /// ends between events comes back without a copy.
    #[must_use]
    pub fn push(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        match &mut self.kind {
            Kind::Events(events) => events.push(chunk),
            Kind::Body(body) => {
                body.push(&chunk);
                chunk
            }
        }
    }

    /// Reads bytes that were released before, by another intake of the same answer: what it learnt is learnt again. All of
    /// it must be stored, and come before anything else.
    pub fn replay(&mut self, stored: &[u8]) {
        match &mut self.kind {
            Kind::Events(events) => events.replay(stored),
            Kind::Body(body) => body.push(stored),
        }
    }

    /// What was replayed is all that is stored; from here on comes what is sent of a stream that is taken up again. See
    /// [`MeterReport::continuation`].
    pub fn take_up(&mut self) {
        if let Kind::Events(events) = &mut self.kind {
            events.meter.take_up();
        }
    }

    /// What has been learnt so far. Of a plain body nothing is known before its end.
    #[must_use]
    pub fn report(&self) -> &MeterReport {
        match &self.kind {
            Kind::Events(events) => events.meter.report(),
            Kind::Body(body) => &body.report,
        }
    }

    /// The stream's terminal or an in-band error has been seen: a good moment to flush. Never true for a plain body.
    #[must_use]
    pub fn has_terminal(&self) -> bool {
        match &self.kind {
            Kind::Events(events) => events.meter.is_done() || events.meter.report().in_band_error.is_some(),
            Kind::Body(_) => false,
        }
    }

    /// Ends the answer: EOF, error or abort alike.
    #[must_use]
    pub fn finish(self) -> IntakeEnd {
        match self.kind {
            Kind::Events(events) => events.finish(),
            Kind::Body(body) => body.finish(),
        }
    }
}

impl IntakeEnd {
    /// Drops the unfinished event from `tail`, so that no client parses half an event before it reads the error. Earlier
    /// bytes of it may have been released already: `terminal_prefix` then stays true.
    pub fn drop_partial(&mut self) {
        let kept = self.tail.len().saturating_sub(mem::take(&mut self.partial_bytes));
        self.tail.truncate(kept);
        self.terminal_prefix &= self.partial_released;
    }
}

#[derive(Debug)]
struct EventIntake {
    opaque: bool,
    strip_usage: bool,
    scanner: Scanner,
    meter: Box<dyn StreamMeter>,
    /// Bytes that are not released yet, and the source offset of the first.
    held: Vec<u8>,
    held_from: u64,
    stripped_usage: Option<Vec<u8>>,
}

/// Source offsets of the events to leave out, in their order.
type Cuts = Vec<Range<u64>>;

impl EventIntake {
    fn new(options: IntakeOptions) -> Self {
        Self {
            opaque: options.dialect == Dialect::Opaque,
            strip_usage: options.strip_usage,
            scanner: Scanner::new(options.event_max_bytes),
            meter: stream_meter(options.dialect),
            held: Vec::new(),
            held_from: 0,
            stripped_usage: None,
        }
    }

    fn push(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        let mut cuts = Cuts::new();
        let (meter, strip, held_from) = (&mut *self.meter, self.strip_usage, self.held_from);
        self.scanner.push(&chunk, |event| observe(meter, &event, strip, held_from, &mut cuts));
        if self.held.is_empty() {
            self.held = chunk;
        } else {
            self.held.extend_from_slice(&chunk);
        }
        self.release(self.scanner.boundary(), &cuts)
    }

    fn replay(&mut self, stored: &[u8]) {
        let meter = &mut self.meter;
        self.scanner.push(stored, |event| {
            meter.observe(&event);
        });
        self.held_from = self.scanner.offset();
    }

    fn finish(mut self) -> IntakeEnd {
        let mut cuts = Cuts::new();
        let (meter, strip, held_from) = (&mut *self.meter, self.strip_usage, self.held_from);
        let scanner = mem::replace(&mut self.scanner, Scanner::new(0));
        let end_of_source = scanner.offset();
        let mut boundary = scanner.boundary();
        let end = scanner.finish(|event| observe(meter, &event, strip, held_from, &mut cuts));
        if !end.needs_blank_line {
            boundary = end_of_source;
        }
        let mut tail = self.release(boundary, &cuts);
        let partial_bytes = self.held.len();
        tail.append(&mut self.held);
        IntakeEnd {
            tail,
            class: self.class(end),
            terminal_prefix: end.needs_blank_line,
            partial_bytes,
            partial_released: self.held_from > boundary,
            stripped_usage: self.stripped_usage,
            report: self.meter.into_report(),
        }
    }

    fn class(&self, end: ScanEnd) -> EndClass {
        if self.meter.report().in_band_error.is_some() {
            EndClass::InBandError
        } else if self.meter.is_done() {
            EndClass::Complete
        } else if end.inside_event {
            EndClass::CutInsideEvent
        } else if self.opaque {
            EndClass::Complete
        } else {
            EndClass::Incomplete
        }
    }

    /// Takes out of `held` what may go: all up to the boundary, or everything when too much would stay.
    fn release(&mut self, boundary: u64, cuts: &Cuts) -> Vec<u8> {
        let whole = usize::try_from(boundary.saturating_sub(self.held_from)).unwrap_or(usize::MAX).min(self.held.len());
        let stays = self.held.len().saturating_sub(whole);
        let goes = if stays > HELD_MAX_BYTES { self.held.len() } else { whole };
        if goes == 0 {
            return Vec::new();
        }
        let rest = if goes == self.held.len() { Vec::new() } else { self.held.split_off(goes) };
        let released = mem::replace(&mut self.held, rest);
        let released = if cuts.is_empty() { released } else { self.without(&released, cuts) };
        self.held_from = self.held_from.saturating_add(goes as u64);
        released
    }

    /// What is released without the events to leave out; keeps the last of them. One pass, however many there are.
    fn without(&mut self, released: &[u8], cuts: &Cuts) -> Vec<u8> {
        let mut kept = Vec::with_capacity(released.len());
        let mut copied = 0;
        let mut last = None;
        for cut in cuts.iter().filter_map(|cut| self.in_held(cut)) {
            if let (Some(before), Some(event)) = (released.get(copied..cut.start), released.get(cut.clone())) {
                kept.extend_from_slice(before);
                copied = cut.end;
                last = Some(event);
            }
        }
        kept.extend_from_slice(released.get(copied..).unwrap_or_default());
        if let Some(event) = last {
            self.stripped_usage = Some(event.to_vec());
        }
        kept
    }

    /// Where source offsets lie in the held bytes.
    fn in_held(&self, cut: &Range<u64>) -> Option<Range<usize>> {
        let start = usize::try_from(cut.start.checked_sub(self.held_from)?).ok()?;
        let end = usize::try_from(cut.end.checked_sub(self.held_from)?).ok()?;
        Some(start..end)
    }
}

/// Lets the meter read an event, and notes it for removal if it is to go and none of it has been released.
fn observe(meter: &mut dyn StreamMeter, event: &Event<'_>, strip: bool, held_from: u64, cuts: &mut Cuts) {
    if meter.observe(event) && strip && event.start >= held_from {
        cuts.push(event.start..event.end);
    }
}

#[derive(Debug)]
struct BodyIntake {
    dialect: Dialect,
    report: MeterReport,
    collected: Vec<u8>,
    /// Set once the body is too large to keep.
    tracker: Option<DocumentTracker>,
}

impl BodyIntake {
    fn new(dialect: Dialect) -> Self {
        Self { dialect, report: MeterReport::default(), collected: Vec::new(), tracker: None }
    }

    fn push(&mut self, chunk: &[u8]) {
        if self.dialect == Dialect::Opaque {
            return;
        }
        if self.tracker.is_none() && self.collected.len().saturating_add(chunk.len()) > BODY_READ_MAX_BYTES {
            let mut tracker = DocumentTracker::default();
            tracker.push(&mem::take(&mut self.collected));
            self.tracker = Some(tracker);
            self.report.oversize_events = 1;
        }
        match &mut self.tracker {
            Some(tracker) => tracker.push(chunk),
            None => self.collected.extend_from_slice(chunk),
        }
    }

    fn finish(self) -> IntakeEnd {
        let (report, class) = match self.tracker {
            Some(tracker) if tracker.is_whole() => (self.report, EndClass::Complete),
            Some(_) => (self.report, EndClass::Incomplete),
            None => read_body(self.dialect, &self.collected),
        };
        IntakeEnd {
            tail: Vec::new(),
            class,
            report,
            terminal_prefix: false,
            stripped_usage: None,
            partial_bytes: 0,
            partial_released: false,
        }
    }
}
