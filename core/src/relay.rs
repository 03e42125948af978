//! The event form of a stored stream: each upstream event again, with an `id` that is the log offset after it, so that
//! a plain `EventSource` resumes by `Last-Event-ID`.

use crate::sse::{Event, Scanner};
use alloc::format;
use alloc::vec::Vec;

/// Turns log bytes into events with ids.
#[derive(Debug)]
pub struct Relay {
    scanner: Scanner,
    start: u64,
}

impl Relay {
    /// A relay of the log from `start` on; `start` lies between two events. Of an event above `event_max_bytes` only
    /// the id is passed on: the raw form has its bytes.
    #[must_use]
    pub const fn new(start: u64, event_max_bytes: usize) -> Self {
        Self { scanner: Scanner::new(event_max_bytes), start }
    }

    /// Takes the next log bytes; appends the events that they complete to `out`.
    pub fn push(&mut self, bytes: &[u8], out: &mut Vec<u8>) {
        let start = self.start;
        self.scanner.push(bytes, |event| write_event(&event, start, out));
    }

    /// The last event of a closed log: how the generation ended, and where the log ends.
    #[must_use]
    pub fn end(lifecycle: &str, log_length: u64) -> Vec<u8> {
        format!(
            "event: holdfast.end\nid: {log_length}\ndata: {{\"lifecycle\":\"{lifecycle}\",\"log_length\":{log_length}}}\n\n"
        )
        .into_bytes()
    }

    /// The whole of an answer that is not a stream, as one event.
    #[must_use]
    pub fn body(bytes: &[u8]) -> Vec<u8> {
        let mut out = Vec::with_capacity(bytes.len().saturating_add(64));
        out.extend_from_slice(b"event: holdfast.body\n");
        write_data_and_id(bytes, bytes.len() as u64, &mut out);
        out
    }
}

fn write_event(event: &Event<'_>, start: u64, out: &mut Vec<u8>) {
    if !event.name.is_empty() {
        out.extend_from_slice(b"event: ");
        out.extend_from_slice(event.name);
        out.push(b'\n');
    }
    write_data_and_id(event.data, start.saturating_add(event.end), out);
}

fn write_data_and_id(data: &[u8], id: u64, out: &mut Vec<u8>) {
    // A bare CR ends a line too: data never brings its own field lines.
    for line in data.split(|byte| *byte == b'\n' || *byte == b'\r') {
        out.extend_from_slice(b"data: ");
        out.extend_from_slice(line);
        out.push(b'\n');
    }
    out.extend_from_slice(format!("id: {id}\n\n").as_bytes());
}

/// Whether a cursor lies between two events, given the log bytes just before it (at most four are looked at).
#[must_use]
pub fn is_event_boundary(before: &[u8]) -> bool {
    before.is_empty()
        || [b"\n\n".as_slice(), b"\r\r", b"\r\n\r\n", b"\n\r\n", b"\r\n\r", b"\n\r"]
            .iter()
            .any(|end| before.ends_with(end))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_are_the_offsets_after_each_event() {
        let log = b"data: a\n\n: ping\n\nevent: x\r\ndata: b\r\ndata: c\r\n\r\ndata: [DONE]\n\n";
        for cut in 0..log.len() {
            let mut relay = Relay::new(100, 1 << 20);
            let mut out = Vec::new();
            let (left, right) = log.split_at(cut);
            relay.push(left, &mut out);
            relay.push(right, &mut out);
            assert_eq!(
                String::from_utf8(out).unwrap(),
                "data: a\nid: 109\n\nevent: x\ndata: b\ndata: c\nid: 147\n\ndata: [DONE]\nid: 161\n\n",
                "cut at {cut}"
            );
        }
    }

    /// Found by attack: twenty readers of one 31 MB event took a gigabyte.
    #[test]
    fn an_event_over_the_bound_passes_its_id_alone() {
        let mut relay = Relay::new(0, 20);
        let mut out = Vec::new();
        relay.push(b"data: 0123456789012345678901234567890\n\ndata: a\n\n", &mut out);
        assert_eq!(out, b"data: \nid: 39\n\ndata: a\nid: 48\n\n");
    }

    #[test]
    fn boundaries() {
        for good in [b"".as_slice(), b"a\n\n", b"a\r\n\r\n", b"a\r\r"] {
            assert!(is_event_boundary(good));
        }
        for bad in [b"a".as_slice(), b"a\n", b"a\r\n"] {
            assert!(!is_event_boundary(bad));
        }
    }

    #[test]
    fn a_body_cannot_forge_fields() {
        assert_eq!(Relay::body(b"x\rid: 9\ny"), b"event: holdfast.body\ndata: x\ndata: id: 9\ndata: y\nid: 9\n\n");
    }
}
