//! The chunk log as readers see it: stored rows, and behind them the bytes that are still on their way to the disk.
//! A reader never waits for the disk, and the disk never waits for a reader.

use super::store::Store;
use bytes::Bytes;
use holdfast_core::reservation::LogFacts;
use std::collections::VecDeque;
use worker::Result;
use worker::js_sys::Uint8Array;

/// Stored bytes that stay in memory for readers close to the end.
const RECENT_BYTES: u64 = 128 << 10;
/// Most that one read takes.
const READ_BYTES: usize = 64 << 10;
/// Rows that one read of older bytes takes.
const READ_ROWS: u64 = 4;

/// Bytes in memory, and where they begin.
#[derive(Debug)]
struct Segment {
    start: u64,
    bytes: Bytes,
}

impl Segment {
    fn end(&self) -> u64 {
        self.start.saturating_add(self.bytes.len() as u64)
    }
}

/// The log of one generation.
#[derive(Debug, Default)]
pub(super) struct Log {
    /// What is stored.
    stored: LogFacts,
    /// Where the segments begin.
    tail_start: u64,
    segments: VecDeque<Segment>,
    /// Where the segments end.
    end: u64,
}

impl Log {
    pub(super) fn new(stored: LogFacts) -> Self {
        Self { stored, tail_start: stored.length, segments: VecDeque::new(), end: stored.length }
    }

    pub(super) fn facts(&self) -> LogFacts {
        self.stored
    }

    /// Bytes delivered, stored or not.
    pub(super) fn length(&self) -> u64 {
        self.end
    }

    pub(super) fn unstored_bytes(&self) -> u64 {
        self.end.saturating_sub(self.stored.length)
    }

    /// Adds bytes that readers may have now.
    pub(super) fn deliver(&mut self, bytes: Vec<u8>) {
        if !bytes.is_empty() {
            let segment = Segment { start: self.end, bytes: Bytes::from(bytes) };
            self.end = segment.end();
            self.segments.push_back(segment);
        }
    }

    /// Whether everything from `offset` on is in memory.
    pub(super) fn recalls(&self, offset: u64) -> bool {
        offset >= self.tail_start
    }

    /// The bytes that are not stored yet, in one piece.
    pub(super) fn unstored(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(usize::try_from(self.unstored_bytes()).unwrap_or_default());
        self.visit(self.stored.length, usize::MAX, |piece| bytes.extend_from_slice(piece));
        bytes
    }

    /// Everything delivered so far is stored.
    pub(super) fn mark_stored(&mut self, facts: LogFacts) {
        self.stored = facts;
        while let Some(first) = self.segments.front() {
            let after = first.end();
            if self.end.saturating_sub(after) < RECENT_BYTES || after > self.stored.length {
                break;
            }
            self.tail_start = after;
            self.segments.pop_front();
        }
    }

    /// The next bytes from `cursor`, copied once, straight for the client; `None` when there are none yet.
    pub(super) fn read(&self, store: &Store, cursor: u64) -> Result<Option<Uint8Array>> {
        if cursor >= self.end {
            return Ok(None);
        }
        if cursor < self.tail_start {
            return self.read_stored(store, cursor).map(|bytes| Some(Uint8Array::from(bytes.as_slice())));
        }
        let mut length = 0_usize;
        self.visit(cursor, READ_BYTES, |piece| length = length.saturating_add(piece.len()));
        let array = Uint8Array::new_with_length(u32::try_from(length).unwrap_or_default());
        let mut at = 0_u32;
        self.visit(cursor, READ_BYTES, |piece| {
            let end = at.saturating_add(u32::try_from(piece.len()).unwrap_or_default());
            array.subarray(at, end).copy_from(piece);
            at = end;
        });
        Ok(Some(array))
    }

    /// The next bytes from `cursor` as they are, for rules that look into them.
    pub(super) fn read_bytes(&self, store: &Store, cursor: u64) -> Result<Option<Vec<u8>>> {
        if cursor >= self.end {
            return Ok(None);
        }
        if cursor < self.tail_start {
            return self.read_stored(store, cursor).map(Some);
        }
        let mut bytes = Vec::new();
        self.visit(cursor, READ_BYTES, |piece| bytes.extend_from_slice(piece));
        Ok(Some(bytes))
    }

    fn read_stored(&self, store: &Store, cursor: u64) -> Result<Vec<u8>> {
        let mut bytes = Vec::new();
        for (start, mut chunk) in store.chunks_from(cursor, READ_ROWS)? {
            let skip = usize::try_from(cursor.saturating_sub(start)).unwrap_or(usize::MAX).min(chunk.len());
            if bytes.is_empty() && skip == 0 {
                bytes = chunk;
            } else {
                chunk.drain(..skip);
                bytes.append(&mut chunk);
            }
        }
        if bytes.is_empty() {
            return Err(worker::Error::from("the log has a hole"));
        }
        Ok(bytes)
    }

    /// Visits the in-memory pieces from `cursor` on, at most `limit` bytes but never less than one piece.
    fn visit(&self, cursor: u64, limit: usize, mut visit: impl FnMut(&[u8])) {
        let mut taken = 0_usize;
        let first = self.segments.partition_point(|segment| segment.end() <= cursor);
        for segment in self.segments.range(first..) {
            let skip = usize::try_from(cursor.saturating_sub(segment.start)).unwrap_or(usize::MAX);
            let Some(piece) = segment.bytes.get(skip..) else { continue };
            if taken > 0 && taken.saturating_add(piece.len()) > limit {
                return;
            }
            taken = taken.saturating_add(piece.len());
            visit(piece);
        }
    }
}
