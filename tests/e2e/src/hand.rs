//! A provider by hand: it says whatever a test wants, also what no provider and no simulator should.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::{Ipv4Addr, TcpListener, TcpStream};
use std::sync::Arc;
use std::thread;

/// A request as it came.
#[derive(Clone, Debug)]
pub struct Asked {
    /// Method, a space, and the target.
    pub line: String,
    /// The body.
    pub body: String,
}

/// A provider that answers each connection once, by a function, and closes it.
#[derive(Debug)]
pub struct HandProvider {
    origin: String,
}

impl HandProvider {
    /// Serves until the process ends.
    ///
    /// # Panics
    /// When no port is free.
    #[must_use]
    pub fn start(answer: impl Fn(&Asked) -> Vec<u8> + Send + Sync + 'static) -> Self {
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).expect("a free port");
        let origin = format!("http://{}", listener.local_addr().expect("an address"));
        let answer = Arc::new(answer);
        thread::spawn(move || {
            for socket in listener.incoming().flatten() {
                let answer = Arc::clone(&answer);
                thread::spawn(move || {
                    // Who asked may be gone: that is no matter of the provider's.
                    let _ = serve(socket, &*answer);
                });
            }
        });
        Self { origin }
    }

    /// Where it is reached.
    #[must_use]
    pub fn origin(&self) -> &str {
        &self.origin
    }
}

fn serve(mut socket: TcpStream, answer: &dyn Fn(&Asked) -> Vec<u8>) -> std::io::Result<()> {
    let mut reader = BufReader::new(socket.try_clone()?);
    let mut first = String::new();
    reader.read_line(&mut first)?;
    let mut length = 0;
    loop {
        let mut header = String::new();
        reader.read_line(&mut header)?;
        let Some((name, value)) = header.trim().split_once(':') else { break };
        if name.eq_ignore_ascii_case("content-length") {
            length = value.trim().parse().unwrap_or(0);
        }
    }
    let mut body = vec![0; length];
    reader.read_exact(&mut body)?;
    let line = first.rsplit_once(' ').map_or(first.as_str(), |(line, _)| line).to_owned();
    let asked = Asked { line, body: String::from_utf8_lossy(&body).into_owned() };
    socket.write_all(&answer(&asked))
}

/// A stream of events that ends as it should.
#[must_use]
pub fn whole_stream(events: &str) -> Vec<u8> {
    [broken_stream(events), b"0\r\n\r\n".to_vec()].concat()
}

/// A stream of events whose connection is lost behind them.
#[must_use]
pub fn broken_stream(events: &str) -> Vec<u8> {
    let head = "HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n";
    format!("{head}{:x}\r\n{events}\r\n", events.len()).into_bytes()
}
