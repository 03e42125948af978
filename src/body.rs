//! The body of a request, bounded in size and time.

use crate::error::EdgeError;
use crate::request_headers::{header, is_json};
use futures::StreamExt;
use holdfast_core::config::Limits;
use holdfast_objects::clock::within;
use worker::{ByteStream, Headers, Request};

/// So many bytes above the bound are still read, and thrown away: a client that writes its whole body before it reads
/// gets the refusal instead of a reset connection.
const DRAINED_MAX_BYTES: u64 = 8 << 20;

/// At most so much room is made for a length that was only declared: it costs the client nothing.
const DECLARED_ROOM_MAX_BYTES: u64 = 64 << 10;

/// Reads a JSON body of at most `body_max_bytes` within `body_ms`. The declared length is checked first, the real one
/// while reading.
///
/// # Errors
/// [`EdgeError::UnsupportedMediaType`], [`EdgeError::BodyTooLarge`], [`EdgeError::InvalidRequest`] when it breaks off,
/// [`EdgeError::RequestTimeout`] when it is not whole in time.
pub(crate) async fn read_json(request: &mut Request, limits: &Limits) -> Result<Vec<u8>, EdgeError> {
    require_plain_json(request.headers())?;
    read_raw(request, limits.body_max_bytes, limits.body_ms).await
}

/// Reads a body of any kind, with bounds of its own.
///
/// # Errors
/// As [`read_json`], but for its kind.
pub(crate) async fn read_raw(request: &mut Request, max_bytes: u64, body_ms: u64) -> Result<Vec<u8>, EdgeError> {
    let mut bounded = Bounded::new(max_bytes);
    let declared = header(request.headers(), "content-length").and_then(|text| text.parse().ok());
    bounded.expect(declared.unwrap_or(0))?;
    // A request without a body has no stream.
    let Ok(chunks) = request.stream() else { return Ok(Vec::new()) };
    within(body_ms, collect(chunks, bounded)).await.unwrap_or(Err(EdgeError::RequestTimeout { body_ms }))
}

async fn collect(mut chunks: ByteStream, mut bounded: Bounded) -> Result<Vec<u8>, EdgeError> {
    while let Some(chunk) = chunks.next().await {
        let chunk = chunk.map_err(|_| EdgeError::invalid("the body broke off"))?;
        bounded.push(&chunk)?;
    }
    bounded.finish()
}

fn require_plain_json(headers: &Headers) -> Result<(), EdgeError> {
    if !header(headers, "content-type").as_deref().is_some_and(is_json) {
        return Err(EdgeError::UnsupportedMediaType { fault: "Content-Type says otherwise" });
    }
    match header(headers, "content-encoding") {
        Some(encoding) if !encoding.eq_ignore_ascii_case("identity") => {
            Err(EdgeError::UnsupportedMediaType { fault: "Content-Encoding is set" })
        }
        _ => Ok(()),
    }
}

/// Collects up to a bound, then only counts, then gives up.
#[derive(Debug)]
struct Bounded {
    bytes: Vec<u8>,
    seen: u64,
    max_bytes: u64,
}

impl Bounded {
    const fn new(max_bytes: u64) -> Self {
        Self { bytes: Vec::new(), seen: 0, max_bytes }
    }

    const fn too_large(&self) -> EdgeError {
        EdgeError::BodyTooLarge { max_bytes: self.max_bytes }
    }

    /// Makes some room for a declared length, or refuses at once one that is not worth draining.
    fn expect(&mut self, declared: u64) -> Result<(), EdgeError> {
        if declared > self.max_bytes.saturating_add(DRAINED_MAX_BYTES) {
            return Err(self.too_large());
        }
        let room = if declared <= self.max_bytes { declared.min(DECLARED_ROOM_MAX_BYTES) } else { 0 };
        self.bytes.reserve(usize::try_from(room).unwrap_or(0));
        Ok(())
    }

    fn push(&mut self, chunk: &[u8]) -> Result<(), EdgeError> {
        self.seen = self.seen.saturating_add(u64::try_from(chunk.len()).unwrap_or(u64::MAX));
        if self.seen <= self.max_bytes {
            self.bytes.extend_from_slice(chunk);
            return Ok(());
        }
        self.bytes = Vec::new();
        if self.seen > self.max_bytes.saturating_add(DRAINED_MAX_BYTES) { Err(self.too_large()) } else { Ok(()) }
    }

    fn finish(self) -> Result<Vec<u8>, EdgeError> {
        if self.seen > self.max_bytes { Err(self.too_large()) } else { Ok(self.bytes) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn up_to_the_bound() {
        let mut bounded = Bounded::new(4);
        assert_eq!(bounded.expect(4), Ok(()));
        assert_eq!(bounded.push(b"abc"), Ok(()));
        assert_eq!(bounded.push(b"d"), Ok(()));
        assert_eq!(bounded.finish(), Ok(b"abcd".to_vec()));
    }

    #[test]
    fn a_declared_length_alone_takes_little_room() {
        let mut bounded = Bounded::new(1 << 20);
        assert_eq!(bounded.expect(1 << 20), Ok(()));
        assert!(bounded.bytes.capacity() <= 64 << 10, "{}", bounded.bytes.capacity());
    }

    #[test]
    fn above_it_nothing_is_kept_and_the_rest_is_drained() {
        let mut bounded = Bounded::new(4);
        assert_eq!(bounded.push(b"abcd"), Ok(()));
        assert_eq!(bounded.push(b"e"), Ok(()));
        assert_eq!(bounded.bytes.capacity(), 0);
        assert_eq!(bounded.finish(), Err(EdgeError::BodyTooLarge { max_bytes: 4 }));
    }

    #[test]
    fn draining_is_bounded_too() {
        let mut bounded = Bounded::new(4);
        assert_eq!(bounded.expect(5 + DRAINED_MAX_BYTES), Err(EdgeError::BodyTooLarge { max_bytes: 4 }));
        let chunk = vec![b'x'; 1 << 20];
        let refused_at = (1..=10).find(|_| bounded.push(&chunk).is_err());
        assert_eq!(refused_at, Some(9));
    }
}
