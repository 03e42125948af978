//! One connection, with one stream at a time.

use std::io::ErrorKind;
use std::net::SocketAddr;

use tokio::net::TcpStream;

use crate::chunked::Chunked;
use crate::clock::now_us;
use crate::expected::{Check, Expected, excerpt};

const READ_BYTES: usize = 64 * 1024;
const HEAD_MAX_BYTES: usize = 64 * 1024;
const HEADERS_MAX: usize = 64;

/// What was seen of one stream. Times in microseconds.
#[derive(Debug)]
pub(crate) struct Sample {
    pub(crate) ttft_us: u64,
    /// From the provider's write to the arrival here, token by token.
    pub(crate) latencies_us: Vec<u64>,
}

/// A connection to the server.
#[derive(Debug)]
pub(crate) struct Connection {
    stream: TcpStream,
    scratch: Box<[u8]>,
}

impl Connection {
    pub(crate) async fn open(address: SocketAddr) -> Result<Self, String> {
        let stream = TcpStream::connect(address).await.map_err(|error| format!("{address}: {error}"))?;
        stream.set_nodelay(true).map_err(|error| error.to_string())?;
        Ok(Self { stream, scratch: vec![0; READ_BYTES].into_boxed_slice() })
    }

    /// Sends a request and reads its answer to the last byte.
    pub(crate) async fn exchange(&mut self, request: &[u8], expected: &Expected) -> Result<Sample, String> {
        let started_us = now_us();
        self.write(request).await?;
        let mut rest = self.read_head().await?;
        let mut body = Body::new(expected);
        loop {
            if !rest.is_empty() && body.push(&rest)? {
                break;
            }
            let count = self.read_some().await?;
            rest.clear();
            rest.extend_from_slice(&self.scratch[..count]);
        }
        body.check.whole(&body.bytes)?;
        let first_us = body.first_us.ok_or("an empty body")?;
        Ok(Sample { ttft_us: first_us.saturating_sub(started_us), latencies_us: body.latencies_us })
    }

    async fn write(&self, mut bytes: &[u8]) -> Result<(), String> {
        while !bytes.is_empty() {
            self.stream.writable().await.map_err(|error| error.to_string())?;
            match self.stream.try_write(bytes) {
                Ok(count) => bytes = &bytes[count..],
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("writing the request: {error}")),
            }
        }
        Ok(())
    }

    /// Waits for bytes; there is at least one.
    async fn read_some(&mut self) -> Result<usize, String> {
        loop {
            self.stream.readable().await.map_err(|error| error.to_string())?;
            match self.stream.try_read(&mut self.scratch) {
                Ok(0) => return Err("the server closed the connection before the end of the answer".to_owned()),
                Ok(count) => return Ok(count),
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                Err(error) => return Err(format!("reading the answer: {error}")),
            }
        }
    }

    /// Reads the head of a good streamed answer; returns what came behind it.
    async fn read_head(&mut self) -> Result<Vec<u8>, String> {
        let mut input = Vec::new();
        loop {
            let count = self.read_some().await?;
            input.extend_from_slice(&self.scratch[..count]);
            if let Some(length) = head_length(&input)? {
                return Ok(input.split_off(length));
            }
            if input.len() > HEAD_MAX_BYTES {
                return Err("the head of the answer does not end".to_owned());
            }
        }
    }
}

/// The length of the head, if it is whole. An answer that is not a chunked event stream is an error.
fn head_length(input: &[u8]) -> Result<Option<usize>, String> {
    let mut headers = [httparse::EMPTY_HEADER; HEADERS_MAX];
    let mut head = httparse::Response::new(&mut headers);
    let httparse::Status::Complete(length) = head.parse(input).map_err(|error| format!("the head: {error}"))? else {
        return Ok(None);
    };
    let has = |name: &str, value: &str| {
        let same = |header: &&httparse::Header<'_>| header.name.eq_ignore_ascii_case(name);
        head.headers.iter().find(same).is_some_and(|header| header.value.starts_with(value.as_bytes()))
    };
    if head.code == Some(200) && has("transfer-encoding", "chunked") && has("content-type", "text/event-stream") {
        return Ok(Some(length));
    }
    Err(format!("not a streamed answer: {}", excerpt(input)))
}

/// The body of one answer so far.
struct Body<'a> {
    chunked: Chunked,
    bytes: Vec<u8>,
    check: Check<'a>,
    first_us: Option<u64>,
    latencies_us: Vec<u64>,
}

impl<'a> Body<'a> {
    fn new(expected: &'a Expected) -> Self {
        Self {
            chunked: Chunked::default(),
            bytes: Vec::with_capacity(expected.len()),
            check: Check::new(expected),
            first_us: None,
            latencies_us: Vec::with_capacity(expected.tokens()),
        }
    }

    /// Takes bytes off the socket, as of now. Says whether the answer has ended.
    fn push(&mut self, input: &[u8]) -> Result<bool, String> {
        let now_us = now_us();
        let end = self.chunked.push(input, &mut self.bytes)?;
        if !self.bytes.is_empty() {
            self.first_us.get_or_insert(now_us);
        }
        let latencies_us = &mut self.latencies_us;
        self.check.read_stamps(&mut self.bytes, |stamp_us| latencies_us.push(now_us.saturating_sub(stamp_us)))?;
        match end {
            Some(used) if used < input.len() => Err(format!("bytes behind the answer: {}", excerpt(&input[used..]))),
            end => Ok(end.is_some()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEAD: &[u8] =
        b"HTTP/1.1 200 OK\r\nContent-Type: text/event-stream; charset=utf-8\r\nTransfer-Encoding: chunked\r\n\r\n";

    #[test]
    fn heads() {
        assert_eq!(head_length(HEAD), Ok(Some(HEAD.len())));
        assert_eq!(head_length(&HEAD[..40]), Ok(None));
        let other = |from: &str, to: &str| String::from_utf8_lossy(HEAD).replace(from, to).into_bytes();
        for head in [other("200 OK", "429 No"), other("chunked", "gzip"), other("text/event-stream", "text/html")] {
            assert!(head_length(&head).is_err());
        }
    }
}
