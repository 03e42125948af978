//! A simulator in this process, and a client that speaks to it over a raw socket.
#![allow(dead_code, unreachable_pub, reason = "each test file uses a part of it")]

use std::io::{ErrorKind, Read, Write};
use std::net::{Shutdown, TcpStream};
use std::time::{Duration, Instant};

use holdfast_simulator::{Config, Simulator};
use serde_json::{Value, json};
use tokio::runtime::Runtime;

/// Far beyond what any step takes.
pub const PATIENCE: Duration = Duration::from_secs(10);

pub struct Sim {
    pub simulator: Simulator,
    runtime: Runtime,
}

impl Sim {
    pub fn start() -> Self {
        Self::with(Config::default())
    }

    pub fn with(config: Config) -> Self {
        let runtime = Runtime::new().unwrap();
        let simulator = runtime.block_on(Simulator::start(config)).unwrap();
        Self { simulator, runtime }
    }

    pub fn connect(&self) -> Client {
        let stream = TcpStream::connect(self.simulator.addr()).unwrap();
        stream.set_read_timeout(Some(PATIENCE)).unwrap();
        stream.set_nodelay(true).unwrap();
        Client { stream, input: Vec::new() }
    }

    /// Sends a request for a model on a connection of its own.
    pub fn ask(&self, model: &str, stream: bool, include_usage: bool) -> Client {
        let mut client = self.connect();
        client.ask(model, stream, include_usage);
        client
    }

    /// The whole answer to a streamed request.
    pub fn streamed(&self, model: &str) -> Answer {
        self.ask(model, true, false).answer()
    }

    /// `/__expected` for a model, with further query pairs.
    pub fn expected(&self, model: &str, query: &str) -> Vec<u8> {
        let model: String = form_urlencoded::byte_serialize(model.as_bytes()).collect();
        let answer = self.get(&format!("/__expected?model={model}{query}"));
        assert_eq!(answer.status, 200, "{}", answer.text());
        answer.body()
    }

    pub fn get(&self, target: &str) -> Answer {
        let mut client = self.connect();
        client.send(format!("GET {target} HTTP/1.1\r\nhost: x\r\n\r\n").as_bytes());
        client.answer()
    }

    /// The log entry of the only request with this tag.
    pub fn entry(&self, tag: &str) -> Value {
        let mut entries = self.simulator.log(Some(tag));
        assert_eq!(entries.len(), 1, "requests tagged {tag}");
        entries.remove(0)
    }

    /// Waits until the only request with this tag has come to `end`.
    pub fn entry_at(&self, tag: &str, end: &str) -> Value {
        self.entry_when(tag, |entry| entry["end"] == end)
    }

    pub fn entry_when(&self, tag: &str, wanted: impl Fn(&Value) -> bool) -> Value {
        let started = Instant::now();
        loop {
            let entries = self.simulator.log(Some(tag));
            if let Some(entry) = entries.first().filter(|entry| wanted(entry)) {
                return entry.clone();
            }
            assert!(started.elapsed() < PATIENCE, "{tag}: {entries:?}");
            std::thread::sleep(Duration::from_millis(1));
        }
    }
}

/// How a body ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum BodyEnd {
    /// With the last chunk, or with the announced length.
    Clean,
    /// The peer's FIN came first.
    Fin,
    /// The peer reset the connection.
    Reset,
    /// Nothing came for the time given.
    Silence,
}

#[derive(Debug)]
pub struct Answer {
    pub status: u16,
    pub headers: Vec<(String, String)>,
    /// The HTTP chunks, or the one body.
    pub chunks: Vec<Vec<u8>>,
    pub end: BodyEnd,
}

impl Answer {
    pub fn body(&self) -> Vec<u8> {
        self.chunks.concat()
    }

    pub fn text(&self) -> String {
        String::from_utf8(self.body()).unwrap()
    }

    pub fn json(&self) -> Value {
        serde_json::from_slice(&self.body()).unwrap()
    }

    pub fn header(&self, name: &str) -> Option<&str> {
        let header = self.headers.iter().find(|(key, _)| key == name);
        header.map(|(_, value)| value.as_str())
    }

    pub fn sizes(&self) -> Vec<usize> {
        self.chunks.iter().map(Vec::len).collect()
    }
}

pub struct Client {
    pub stream: TcpStream,
    input: Vec<u8>,
}

impl Client {
    pub fn send(&mut self, bytes: &[u8]) {
        self.stream.write_all(bytes).unwrap();
    }

    pub fn ask(&mut self, model: &str, stream: bool, include_usage: bool) {
        let mut body = json!({"model": model, "messages": [{"role": "user", "content": "Hi"}], "stream": stream});
        if include_usage {
            body["stream_options"] = json!({"include_usage": true});
        }
        self.post(&body.to_string(), "authorization: Bearer test-key\r\n");
    }

    pub fn post(&mut self, body: &str, headers: &str) {
        let length = body.len();
        self.send(
            format!("POST /v1/chat/completions HTTP/1.1\r\nhost: x\r\n{headers}content-length: {length}\r\n\r\n{body}")
                .as_bytes(),
        );
    }

    /// Reads more, or says how the connection ended.
    fn more(&mut self) -> Result<(), BodyEnd> {
        let mut buffer = [0; 65536];
        match self.stream.read(&mut buffer) {
            Ok(0) => Err(BodyEnd::Fin),
            Ok(count) => {
                self.input.extend_from_slice(&buffer[..count]);
                Ok(())
            }
            Err(error) if error.kind() == ErrorKind::ConnectionReset => Err(BodyEnd::Reset),
            Err(error) if error.kind() == ErrorKind::WouldBlock => Err(BodyEnd::Silence),
            Err(error) => panic!("{error}"),
        }
    }

    fn line(&mut self) -> Result<String, BodyEnd> {
        loop {
            if let Some(end) = self.input.windows(2).position(|pair| pair == b"\r\n") {
                let line: Vec<u8> = self.input.drain(..end + 2).collect();
                return Ok(String::from_utf8(line[..end].to_vec()).unwrap());
            }
            self.more()?;
        }
    }

    pub fn head(&mut self) -> Result<(u16, Vec<(String, String)>), BodyEnd> {
        let first = self.line()?;
        let status = first.split(' ').nth(1).unwrap().parse().unwrap();
        let mut headers = Vec::new();
        loop {
            let line = self.line()?;
            let Some((name, value)) = line.split_once(": ") else {
                return Ok((status, headers));
            };
            headers.push((name.to_owned(), value.to_owned()));
        }
    }

    /// Takes up to `length` bytes into `data`.
    fn take(&mut self, length: usize, data: &mut Vec<u8>) -> Result<(), BodyEnd> {
        let wanted = data.len() + length;
        loop {
            let count = self.input.len().min(wanted - data.len());
            data.extend(self.input.drain(..count));
            if data.len() == wanted {
                return Ok(());
            }
            self.more()?;
        }
    }

    /// One chunk; empty for the last one. Bytes of an unfinished one are kept.
    pub fn chunk(&mut self, chunks: &mut Vec<Vec<u8>>) -> Result<bool, BodyEnd> {
        let size = usize::from_str_radix(&self.line()?, 16).unwrap();
        let mut data = Vec::new();
        let result = self.take(size, &mut data);
        if size > 0 {
            chunks.push(data);
        }
        result?;
        assert_eq!(self.line()?, "");
        Ok(size > 0)
    }

    fn body(&mut self, answer: &mut Answer) -> Result<(), BodyEnd> {
        match answer.header("content-length") {
            Some(length) => {
                let length = length.parse().unwrap();
                let mut data = Vec::new();
                let result = self.take(length, &mut data);
                answer.chunks.push(data);
                result
            }
            None => {
                assert_eq!(answer.header("transfer-encoding"), Some("chunked"));
                while self.chunk(&mut answer.chunks)? {}
                Ok(())
            }
        }
    }

    pub fn answer(&mut self) -> Answer {
        let (status, headers) = self.head().expect("a head");
        let mut answer = Answer { status, headers, chunks: Vec::new(), end: BodyEnd::Clean };
        if let Err(end) = self.body(&mut answer) {
            answer.end = end;
        }
        answer
    }

    pub fn close(self) {
        self.stream.shutdown(Shutdown::Both).unwrap();
    }
}

/// The `data:` payloads of an SSE text with LF line ends.
pub fn payloads(text: &str) -> Vec<&str> {
    let blocks = text.strip_suffix("\n\n").unwrap().split("\n\n");
    blocks.map(|block| block.strip_prefix("data: ").unwrap()).collect()
}
