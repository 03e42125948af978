//! A small HTTP/1.1 client on a plain socket. It reads exactly as many body bytes as it is asked for, so a test can
//! leave at byte *k*, stop reading, or see whether a body ended cleanly or was cut.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, SocketAddr, TcpStream};
use std::time::Duration;

use socket2::{Domain, Socket, Type};

/// How long a read may wait for the next byte before the test fails.
pub const READ_PATIENCE: Duration = Duration::from_secs(20);

/// A request to be written to a socket.
#[derive(Clone, Debug)]
pub struct Request {
    /// `GET`, `POST`, …
    pub method: &'static str,
    /// Path and query.
    pub target: String,
    /// Further headers; `Host` and `Content-Length` are added.
    pub headers: Vec<(String, String)>,
    /// The body; empty for none.
    pub body: Vec<u8>,
}

impl Request {
    /// A request without body.
    #[must_use]
    pub fn new(method: &'static str, target: impl Into<String>) -> Self {
        Self { method, target: target.into(), headers: Vec::new(), body: Vec::new() }
    }

    /// Adds a header.
    #[must_use]
    pub fn header(mut self, name: &str, value: &str) -> Self {
        self.headers.push((name.to_owned(), value.to_owned()));
        self
    }

    /// Sets a JSON body.
    #[must_use]
    pub fn json(mut self, document: &serde_json::Value) -> Self {
        self.body = document.to_string().into_bytes();
        self.header("Content-Type", "application/json")
    }

    fn to_bytes(&self, port: u16) -> Vec<u8> {
        let mut text = format!("{} {} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\n", self.method, self.target);
        for (name, value) in &self.headers {
            text.push_str(&format!("{name}: {value}\r\n"));
        }
        if self.method != "GET" {
            text.push_str(&format!("Content-Length: {}\r\n", self.body.len()));
        }
        text.push_str("\r\n");
        let mut bytes = text.into_bytes();
        bytes.extend_from_slice(&self.body);
        bytes
    }
}

/// Status line and headers of an answer.
#[derive(Clone, Debug)]
pub struct Head {
    /// Status code.
    pub status: u16,
    /// Headers in order, names in lower case.
    pub headers: Vec<(String, String)>,
}

impl Head {
    /// The first header of that name (lower case).
    #[must_use]
    pub fn header(&self, name: &str) -> Option<&str> {
        self.headers.iter().find(|(held, _)| held == name).map(|(_, value)| value.as_str())
    }

    /// The header, which must be there.
    ///
    /// # Panics
    /// When it is not.
    #[must_use]
    pub fn required(&self, name: &str) -> &str {
        self.header(name).unwrap_or_else(|| panic!("no header {name} in {self:?}"))
    }
}

/// How a body ended.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum BodyEnd {
    /// By its length or by the last chunk: the receiver knows that it has everything.
    Clean,
    /// The connection ended before the body did.
    Cut(String),
}

/// A body read to its end.
#[derive(Clone, Debug)]
pub struct Body {
    /// What came, from where the reading started.
    pub bytes: Vec<u8>,
    /// How it ended.
    pub end: BodyEnd,
}

impl Body {
    /// The bytes of a body that ended cleanly.
    ///
    /// # Panics
    /// When it was cut.
    pub fn clean(self) -> Vec<u8> {
        let shown = String::from_utf8_lossy(&self.bytes);
        assert_eq!(self.end, BodyEnd::Clean, "body cut after {} bytes: {shown}", self.bytes.len());
        self.bytes
    }
}

/// Options of a socket.
#[derive(Clone, Copy, Debug, Default)]
pub struct Socketing {
    /// Size of the receive buffer; a small one makes a client that does not read felt soon.
    pub receive_buffer_bytes: Option<usize>,
}

#[derive(Clone, Copy, Debug)]
enum Framing {
    /// Bytes left of the body.
    Length(usize),
    /// The size line of the first chunk comes next.
    FirstChunk,
    /// Bytes left in this chunk.
    Chunk(usize),
    /// The line end of a chunk, and then a size line, come next.
    NextChunk,
    UntilClose,
    Ended,
}

/// One request on one connection. Dropping it closes the socket, with whatever was not read.
#[derive(Debug)]
pub struct Exchange {
    stream: TcpStream,
    unread: Vec<u8>,
    head: Option<Head>,
    framing: Framing,
    /// Body bytes handed out so far.
    consumed: usize,
}

impl Exchange {
    /// Connects to a loopback port and sends the request whole.
    ///
    /// # Panics
    /// When the server does not accept it.
    #[must_use]
    pub fn send(port: u16, request: &Request) -> Self {
        Self::send_with(port, request, Socketing::default())
    }

    /// [`Exchange::send`] with options of the socket.
    ///
    /// # Panics
    /// When the server does not accept it.
    #[must_use]
    pub fn send_with(port: u16, request: &Request, socketing: Socketing) -> Self {
        Self::try_send(port, request, socketing).unwrap_or_else(|error| panic!("request to port {port}: {error}"))
    }

    /// [`Exchange::send_with`] to a server that may be gone.
    ///
    /// # Errors
    /// The server did not take the request.
    pub fn try_send(port: u16, request: &Request, socketing: Socketing) -> std::io::Result<Self> {
        let mut stream = connect(port, socketing)?;
        stream.set_nodelay(true)?;
        stream.set_read_timeout(Some(READ_PATIENCE))?;
        stream.write_all(&request.to_bytes(port))?;
        Ok(Self { stream, unread: Vec::new(), head: None, framing: Framing::Ended, consumed: 0 })
    }

    /// Waits for the head. Repeated calls return the same one.
    ///
    /// # Panics
    /// When the connection ends first.
    pub fn head(&mut self) -> Head {
        self.try_head().unwrap_or_else(|reason| panic!("no answer: {reason}"))
    }

    /// Waits for the head; `Err` says why there is none.
    ///
    /// # Errors
    /// The connection ended before a head came.
    pub fn try_head(&mut self) -> Result<Head, String> {
        if let Some(head) = &self.head {
            return Ok(head.clone());
        }
        let end = loop {
            if let Some(at) = find(&self.unread, b"\r\n\r\n") {
                break at;
            }
            self.fill()?;
        };
        let text = String::from_utf8(self.unread.drain(..end + 4).collect()).expect("a head in UTF-8");
        let head = parse_head(&text);
        self.framing = framing_of(&head);
        self.head = Some(head.clone());
        Ok(head)
    }

    /// Reads exactly `count` body bytes.
    ///
    /// # Panics
    /// When the body ends before.
    pub fn read(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            match self.read_some(count - bytes.len()) {
                Ok(some) => bytes.extend_from_slice(&some),
                Err(end) => panic!("body ended ({end:?}) after {} of {count} bytes", bytes.len()),
            }
        }
        bytes
    }

    /// Reads `count` body bytes, or as many as there are.
    pub fn read_up_to(&mut self, count: usize) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(count);
        while bytes.len() < count {
            match self.read_some(count - bytes.len()) {
                Ok(some) => bytes.extend_from_slice(&some),
                Err(_) => break,
            }
        }
        bytes
    }

    /// Reads the body to its end.
    pub fn finish(&mut self) -> Body {
        let mut bytes = Vec::new();
        loop {
            match self.read_some(usize::MAX) {
                Ok(some) => bytes.extend_from_slice(&some),
                Err(end) => return Body { bytes, end },
            }
        }
    }

    /// Body bytes handed out so far.
    #[must_use]
    pub fn consumed(&self) -> usize {
        self.consumed
    }

    /// Closes the connection now. What was not read is lost, as with a browser tab that is closed.
    pub fn abandon(self) {
        drop(self);
    }

    /// Between 1 and `limit` body bytes, or how the body ended.
    fn read_some(&mut self, limit: usize) -> Result<Vec<u8>, BodyEnd> {
        self.head();
        let available = match self.framing {
            Framing::Ended | Framing::Length(0) => return Err(BodyEnd::Clean),
            Framing::Length(left) | Framing::Chunk(left) => left,
            Framing::UntilClose => usize::MAX,
            Framing::FirstChunk | Framing::NextChunk => match self.chunk_size()? {
                0 => return Err(BodyEnd::Clean),
                size => size,
            },
        };
        if self.unread.is_empty() {
            match self.fill() {
                Ok(()) => {}
                Err(_) if matches!(self.framing, Framing::UntilClose) => return Err(BodyEnd::Clean),
                Err(reason) => return Err(BodyEnd::Cut(reason)),
            }
        }
        let take = limit.min(available).min(self.unread.len());
        let bytes: Vec<u8> = self.unread.drain(..take).collect();
        self.consumed += take;
        match self.framing {
            Framing::Length(left) => self.framing = Framing::Length(left - take),
            // The line end that closes a chunk is looked at with the next chunk only, so that reading exactly k
            // bytes never waits for what follows them.
            Framing::Chunk(left) if take == left => self.framing = Framing::NextChunk,
            Framing::Chunk(left) => self.framing = Framing::Chunk(left - take),
            Framing::FirstChunk | Framing::NextChunk | Framing::UntilClose | Framing::Ended => {}
        }
        Ok(bytes)
    }

    fn chunk_size(&mut self) -> Result<usize, BodyEnd> {
        if matches!(self.framing, Framing::NextChunk) {
            assert_eq!(self.line()?, "", "a line end closes a chunk");
            self.framing = Framing::FirstChunk;
        }
        let line = self.line()?;
        let digits = line.split(';').next().unwrap_or_default().trim();
        let size = usize::from_str_radix(digits, 16).unwrap_or_else(|_| panic!("chunk size {line:?}"));
        if size == 0 {
            assert_eq!(self.line()?, "", "trailers are not expected");
            self.framing = Framing::Ended;
        } else {
            self.framing = Framing::Chunk(size);
        }
        Ok(size)
    }

    fn line(&mut self) -> Result<String, BodyEnd> {
        loop {
            if let Some(at) = find(&self.unread, b"\r\n") {
                let line = String::from_utf8_lossy(&self.unread[..at]).into_owned();
                self.unread.drain(..at + 2);
                return Ok(line);
            }
            self.fill().map_err(BodyEnd::Cut)?;
        }
    }

    fn fill(&mut self) -> Result<(), String> {
        let mut block = [0_u8; 16 * 1024];
        match self.stream.read(&mut block) {
            Ok(0) => Err("the server closed the connection".to_owned()),
            Ok(count) => {
                self.unread.extend_from_slice(&block[..count]);
                Ok(())
            }
            Err(error) if matches!(error.kind(), ErrorKind::WouldBlock | ErrorKind::TimedOut) => {
                panic!("no byte for {READ_PATIENCE:?}, after {} body bytes", self.consumed)
            }
            Err(error) => Err(error.to_string()),
        }
    }
}

fn connect(port: u16, socketing: Socketing) -> std::io::Result<TcpStream> {
    let socket = Socket::new(Domain::IPV4, Type::STREAM, None)?;
    if let Some(size) = socketing.receive_buffer_bytes {
        socket.set_recv_buffer_size(size)?;
    }
    socket.connect(&SocketAddr::from((Ipv4Addr::LOCALHOST, port)).into())?;
    Ok(socket.into())
}

fn find(haystack: &[u8], needle: &[u8]) -> Option<usize> {
    haystack.windows(needle.len()).position(|window| window == needle)
}

fn parse_head(text: &str) -> Head {
    let mut lines = text.trim_end().split("\r\n");
    let status_line = lines.next().unwrap_or_default();
    let status = status_line.split(' ').nth(1).and_then(|code| code.parse().ok());
    let headers = lines
        .map(|line| line.split_once(':').unwrap_or_else(|| panic!("header line {line:?}")))
        .map(|(name, value)| (name.trim().to_ascii_lowercase(), value.trim().to_owned()))
        .collect();
    Head { status: status.unwrap_or_else(|| panic!("status line {status_line:?}")), headers }
}

fn framing_of(head: &Head) -> Framing {
    if matches!(head.status, 100..=199 | 204 | 304) {
        return Framing::Ended;
    }
    if head.header("transfer-encoding").is_some_and(|value| value.eq_ignore_ascii_case("chunked")) {
        return Framing::FirstChunk;
    }
    match head.header("content-length") {
        Some(length) => Framing::Length(length.parse().expect("a content length in digits")),
        None => Framing::UntilClose,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Chat, Simulator, unique};

    /// A stream of the simulator, without an edge between.
    fn direct(simulator: &Simulator, model: &str) -> (Exchange, Vec<u8>, String) {
        let tag = unique("direct");
        let chat = Chat::stream(model).tag(&tag).with_usage();
        let exchange = simulator.direct().open(&chat);
        (exchange, simulator.sent_for(&chat), tag)
    }

    #[test]
    fn it_reads_exactly_what_it_is_asked_for_and_the_provider_sees_it_leave() {
        let simulator = Simulator::start(None);
        let (mut exchange, sent, tag) = direct(&simulator, "gen?tokens=200&interval_ms=5&split=7");
        assert_eq!(exchange.read(0), b"");
        assert_eq!(exchange.read(100), &sent[..100]);
        assert_eq!(exchange.read(33), &sent[100..133]);
        assert_eq!(exchange.consumed(), 133);
        exchange.abandon();
        assert_eq!(simulator.once_closed(&tag).end(), "client_closed");
    }

    #[test]
    fn it_tells_a_clean_end_from_a_cut() {
        let simulator = Simulator::start(None);
        let (mut whole, sent, tag) = direct(&simulator, "gen?tokens=20&cut=1,2,500");
        assert_eq!(whole.finish().clean(), sent);
        simulator.assert_sent_everything(&tag);
        for (fault, clean) in [("end_at", true), ("fin_at", false), ("reset_at", false)] {
            let (mut exchange, sent, _) = direct(&simulator, &format!("gen?tokens=20&{fault}=777"));
            let body = exchange.finish();
            assert_eq!(body.bytes, &sent[..777], "{fault}");
            assert_eq!(body.end == BodyEnd::Clean, clean, "{fault}: {:?}", body.end);
        }
    }
}
