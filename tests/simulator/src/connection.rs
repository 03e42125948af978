//! One client connection: counted writes, and a reading side that is never asleep.

use std::io::ErrorKind;
use std::net::Shutdown;
use std::os::fd::AsRawFd;
use std::time::Duration;

use socket2::SockRef;
use tokio::io::Interest;
use tokio::net::TcpStream;
use tokio::time::Instant;

use crate::http::{self, BadRequest, BodyLength, Head};
use crate::log::{End, Entry};

const READ_BYTES: usize = 16 * 1024;
/// More unread input than any request can have.
const INPUT_MAX_BYTES: usize = 2 * http::BODY_MAX_BYTES;
/// After so many writes in a row other tasks get their turn.
const WRITES_PER_TURN: u32 = 64;
/// How long a closing socket waits for the client's FIN.
const CLOSE_WAIT: Duration = Duration::from_secs(5);
/// Loopback hands data over at once but may acknowledge it up to 40 ms later.
const ACK_WAIT: Duration = Duration::from_millis(5);

/// The client has closed its side, or the socket has failed.
#[derive(Debug)]
pub(crate) struct Gone;

/// Why no request was read.
#[derive(Debug)]
pub(crate) enum NoRequest {
    Gone,
    Bad(BadRequest),
}

impl From<Gone> for NoRequest {
    fn from(_: Gone) -> Self {
        Self::Gone
    }
}

impl From<BadRequest> for NoRequest {
    fn from(bad: BadRequest) -> Self {
        Self::Bad(bad)
    }
}

/// What a finished write means for the log.
#[derive(Debug, Default, Clone, Copy)]
pub(crate) struct Note {
    pub(crate) status: Option<u16>,
    pub(crate) end: Option<End>,
}

/// A client connection.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    /// What the client has sent and nobody has parsed yet.
    input: Vec<u8>,
    scratch: Box<[u8]>,
    /// What is being written: `lead` bytes of framing, `payload` body bytes, more framing.
    frame: Vec<u8>,
    lead: usize,
    payload: usize,
    writes: u32,
}

impl Connection {
    pub(crate) fn new(stream: TcpStream) -> Self {
        Self {
            stream,
            input: Vec::new(),
            scratch: vec![0; READ_BYTES].into_boxed_slice(),
            frame: Vec::new(),
            lead: 0,
            payload: 0,
            writes: 0,
        }
    }

    /// Reads a whole request.
    pub(crate) async fn read_request(&mut self) -> Result<(Head, Vec<u8>), NoRequest> {
        let head = loop {
            if let Some((head, length)) = http::parse_head(&self.input)? {
                self.input.drain(..length);
                break head;
            }
            self.more_input().await?;
        };
        if head.expects_continue {
            self.write_plain(b"HTTP/1.1 100 Continue\r\n\r\n").await?;
        }
        let body = match head.body_length {
            BodyLength::Fixed(length) => {
                while self.input.len() < length {
                    self.more_input().await?;
                }
                let rest = self.input.split_off(length);
                std::mem::replace(&mut self.input, rest)
            }
            BodyLength::Chunked => {
                let mut body = Vec::new();
                while !http::take_chunks(&mut self.input, &mut body)? {
                    self.more_input().await?;
                }
                body
            }
        };
        Ok((head, body))
    }

    /// Takes what has arrived, without waiting. Costs no system call if nothing has.
    fn take_input(&mut self) -> Result<(), Gone> {
        loop {
            match self.stream.try_read(&mut self.scratch) {
                Ok(0) => return Err(Gone),
                Ok(count) => self.input.extend_from_slice(&self.scratch[..count]),
                Err(error) if error.kind() == ErrorKind::WouldBlock => return Ok(()),
                Err(_) => return Err(Gone),
            }
            if self.input.len() > INPUT_MAX_BYTES {
                return Err(Gone);
            }
        }
    }

    async fn more_input(&mut self) -> Result<(), Gone> {
        self.stream.readable().await.map_err(|_| Gone)?;
        self.take_input()
    }

    /// Returns once the client is gone; keeps reading until then.
    pub(crate) async fn gone(&mut self) {
        while self.more_input().await.is_ok() {}
    }

    /// Waits, unless the client goes first.
    pub(crate) async fn pause_until(&mut self, due: Instant) -> Result<(), Gone> {
        if due <= Instant::now() {
            return Ok(());
        }
        tokio::select! {
            () = tokio::time::sleep_until(due) => Ok(()),
            () = self.gone() => Err(Gone),
        }
    }

    /// Waits for a number of milliseconds, unless the client goes first.
    pub(crate) async fn pause_ms(&mut self, ms: u64) -> Result<(), Gone> {
        if ms == 0 {
            return Ok(());
        }
        self.pause_until(Instant::now() + Duration::from_millis(ms)).await
    }

    /// Writes bytes that are no logged body.
    pub(crate) async fn write_plain(&mut self, bytes: &[u8]) -> Result<(), Gone> {
        self.set_frame(bytes, &[], &[]);
        self.write_frame(None, Note::default()).await
    }

    /// Writes framing bytes of a logged answer, such as its head.
    pub(crate) async fn write_framing(&mut self, bytes: &[u8], entry: &Entry, note: Note) -> Result<(), Gone> {
        self.set_frame(bytes, &[], &[]);
        self.write_frame(Some(entry), note).await
    }

    /// Writes a piece of a logged body, as a chunk of its own if `chunked`.
    pub(crate) async fn write_body(
        &mut self,
        piece: &[u8],
        chunked: bool,
        entry: &Entry,
        note: Note,
    ) -> Result<(), Gone> {
        if chunked {
            let mut size = [0; 18];
            let start = chunk_size(piece.len(), &mut size);
            self.set_frame(&size[start..], piece, b"\r\n");
        } else {
            self.set_frame(&[], piece, &[]);
        }
        self.write_frame(Some(entry), note).await
    }

    fn set_frame(&mut self, lead: &[u8], payload: &[u8], trail: &[u8]) {
        self.frame.clear();
        self.frame.extend_from_slice(lead);
        self.frame.extend_from_slice(payload);
        self.frame.extend_from_slice(trail);
        self.lead = lead.len();
        self.payload = payload.len();
    }

    async fn write_frame(&mut self, entry: Option<&Entry>, note: Note) -> Result<(), Gone> {
        let mut offset = 0;
        while offset < self.frame.len() {
            self.take_input()?;
            match self.try_write(offset, entry, note) {
                Ok(count) => offset += count,
                Err(error) if error.kind() == ErrorKind::WouldBlock => {
                    let either = Interest::READABLE | Interest::WRITABLE;
                    self.stream.ready(either).await.map_err(|_| Gone)?;
                }
                Err(_) => return Err(Gone),
            }
        }
        self.writes += 1;
        if self.writes.is_multiple_of(WRITES_PER_TURN) {
            self.writes = 0;
            tokio::task::yield_now().await;
        }
        Ok(())
    }

    /// Writes and counts under the entry's lock, see [`Entry`].
    fn try_write(&self, offset: usize, entry: Option<&Entry>, note: Note) -> std::io::Result<usize> {
        let mut progress = entry.map(Entry::progress);
        let count = self.stream.try_write(&self.frame[offset..])?;
        if let Some(progress) = progress.as_deref_mut() {
            let end = offset + count;
            let before = |position: usize| position.saturating_sub(self.lead).min(self.payload);
            progress.bytes_sent += before(end) - before(offset);
            if note.status.is_some() {
                progress.status = note.status;
            }
            if let Some(state) = note.end.filter(|_| end == self.frame.len()) {
                progress.set_end(state);
            }
        }
        Ok(count)
    }

    /// Closes with a FIN, and waits a while for the client's, because closing a
    /// socket with unread input would send a reset instead.
    pub(crate) async fn finish(mut self) {
        if SockRef::from(&self.stream).shutdown(Shutdown::Write).is_ok() {
            // Whether the client closed or the time is up, the socket goes now.
            let _ = tokio::time::timeout(CLOSE_WAIT, self.gone()).await;
        }
    }

    /// Waits until the peer's kernel has all that was written: a reset throws
    /// away what is still in the send queue.
    pub(crate) async fn delivered(&mut self) -> Result<(), Gone> {
        let started = Instant::now();
        while queued_bytes(&self.stream, Queue::Unacknowledged) > 0 {
            let all_sent = queued_bytes(&self.stream, Queue::Unsent) == 0;
            if all_sent && started.elapsed() >= ACK_WAIT {
                break;
            }
            self.pause_ms(1).await?;
        }
        Ok(())
    }

    /// Closes with a reset.
    pub(crate) fn reset(self) {
        // Should the option fail, the close is a FIN, which the tests of resets would notice.
        let _ = SockRef::from(&self.stream).set_linger(Some(Duration::ZERO));
    }
}

/// Puts a chunk's size line at the end of `buffer` and returns where it starts.
fn chunk_size(length: usize, buffer: &mut [u8; 18]) -> usize {
    let mut start = buffer.len() - 2;
    buffer[start..].copy_from_slice(b"\r\n");
    let mut rest = length;
    loop {
        start -= 1;
        buffer[start] = b"0123456789abcdef"[rest & 15];
        rest >>= 4;
        if rest == 0 {
            return start;
        }
    }
}

#[derive(Clone, Copy)]
enum Queue {
    Unacknowledged,
    Unsent,
}

/// How many bytes a queue of the socket holds; 0 where the system cannot say.
#[cfg(target_os = "linux")]
#[expect(unsafe_code, reason = "no safe interface offers these two ioctls")]
fn queued_bytes(stream: &TcpStream, queue: Queue) -> usize {
    // From linux/sockios.h; libc does not have it.
    const SIOCOUTQNSD: libc::Ioctl = 0x894B;
    let request = match queue {
        Queue::Unacknowledged => libc::TIOCOUTQ,
        Queue::Unsent => SIOCOUTQNSD,
    };
    let mut count: libc::c_int = 0;
    // SAFETY: the descriptor is open as long as `stream` is borrowed, and both
    // requests write one int to the address given.
    let result = unsafe { libc::ioctl(stream.as_raw_fd(), request, &raw mut count) };
    if result == 0 { usize::try_from(count).unwrap_or(0) } else { 0 }
}

#[cfg(not(target_os = "linux"))]
fn queued_bytes(_: &TcpStream, _: Queue) -> usize {
    0
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn chunk_sizes_are_hexadecimal() {
        for length in [0, 1, 9, 15, 16, 255, 4096, 1_000_000, usize::MAX] {
            let mut buffer = [0; 18];
            let start = chunk_size(length, &mut buffer);
            assert_eq!(&buffer[start..], format!("{length:x}\r\n").as_bytes());
        }
    }
}
