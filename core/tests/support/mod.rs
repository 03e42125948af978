//! Helpers of the stream tests.

use holdfast_core::sse::{ScanEnd, Scanner};

/// An event with its own copies, to compare across cuts.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Seen {
    pub(crate) start: u64,
    pub(crate) end: u64,
    pub(crate) name: Vec<u8>,
    pub(crate) data: Vec<u8>,
    pub(crate) id: Option<Vec<u8>>,
    pub(crate) retry_ms: Option<u64>,
    pub(crate) oversize: bool,
}

/// Cuts the source after each of the sizes in turn, over and over; size 0 makes an empty chunk.
pub(crate) fn chunks<'a>(source: &'a [u8], sizes: &[usize]) -> Vec<&'a [u8]> {
    let mut chunks = Vec::new();
    let mut rest = source;
    let mut sizes = sizes.iter().cycle();
    while !rest.is_empty() {
        let size = sizes.next().copied().unwrap_or(rest.len()).min(rest.len());
        let (chunk, tail) = rest.split_at(size);
        chunks.push(chunk);
        rest = tail;
    }
    chunks
}

/// Scans a source in chunks.
pub(crate) fn scan<'a>(chunks: impl IntoIterator<Item = &'a [u8]>, event_max_bytes: usize) -> (Vec<Seen>, ScanEnd) {
    let mut seen = Vec::new();
    let mut see = |event: holdfast_core::sse::Event<'_>| {
        seen.push(Seen {
            start: event.start,
            end: event.end,
            name: event.name.to_vec(),
            data: event.data.to_vec(),
            id: event.id.map(<[u8]>::to_vec),
            retry_ms: event.retry_ms,
            oversize: event.oversize,
        });
    };
    let mut scanner = Scanner::new(event_max_bytes);
    for chunk in chunks {
        scanner.push(chunk, &mut see);
    }
    let end = scanner.finish(&mut see);
    (seen, end)
}
