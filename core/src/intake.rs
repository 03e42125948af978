//! The intake: from the provider's chunks to the bytes that the log and all readers get.

use alloc::vec::Vec;

use crate::dialect::Dialect;
use crate::meter::{EndClass, MeterReport};

/// How an answer is to be taken in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct IntakeEnd {
    /// The last bytes to release: of an event that was cut, as they came.
    pub tail: Vec<u8>,
    /// How the answer ended.
    pub class: EndClass,
    /// All that was learnt.
    pub report: MeterReport,
    /// [`crate::sse::BLANK_LINE`] must stand before an appended error event, provided that `tail` was released.
    pub terminal_prefix: bool,
}

/// Takes in one answer.
#[derive(Debug)]
pub struct Intake {
    options: IntakeOptions,
    report: MeterReport,
}

impl Intake {
    /// An intake at the start of an answer's body.
    #[must_use]
    pub fn new(options: IntakeOptions) -> Self {
        Self { options, report: MeterReport::default() }
    }

    /// Takes one chunk in and returns the bytes that may go to log and readers now; may be empty.
    #[must_use]
    pub fn push(&mut self, chunk: Vec<u8>) -> Vec<u8> {
        let _ = self.options;
        chunk
    }

    /// What has been learnt so far.
    #[must_use]
    pub const fn report(&self) -> &MeterReport {
        &self.report
    }

    /// The stream's terminal or an in-band error has been seen: a good moment to flush.
    #[must_use]
    pub const fn has_terminal(&self) -> bool {
        false
    }

    /// Ends the answer: EOF, error or abort alike.
    #[must_use]
    pub fn finish(self) -> IntakeEnd {
        IntakeEnd { tail: Vec::new(), class: EndClass::Incomplete, report: self.report, terminal_prefix: false }
    }
}
