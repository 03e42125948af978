//! The provider: what it sends for a model, and what it saw of a request.

use std::path::Path;
use std::sync::OnceLock;

use holdfast_simulator::Config;
use serde_json::Value;
use tokio::runtime::{Builder, Runtime};

use crate::client::Client;
use crate::sse::without_usage_chunk;
use crate::{Api, Chat, wait_for};

/// A simulator that runs in this process and stops when dropped.
#[derive(Debug)]
pub struct Simulator {
    running: holdfast_simulator::Simulator,
    http: Client,
}

impl Simulator {
    /// Starts one on a free loopback port, with the recordings of a folder beside its own.
    ///
    /// # Panics
    /// When it cannot listen or cannot read the folder.
    #[must_use]
    pub fn start(recordings: Option<&Path>) -> Self {
        let config = Config { recordings: recordings.map(Path::to_owned), ..Config::default() };
        let started = runtime().block_on(holdfast_simulator::Simulator::start(config));
        let running = started.unwrap_or_else(|error| panic!("the simulator does not start: {error}"));
        let http = Client::new(running.addr().port(), "sk-direct");
        Self { running, http }
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn origin(&self) -> String {
        self.running.origin()
    }

    /// Its background jobs call back there from now on, signed with that secret.
    pub fn call_back_to(&self, url: &str, secret: &str) {
        self.running.call_back_to(url, secret);
    }

    /// A client that talks to the provider directly, as if there were no edge.
    #[must_use]
    pub fn direct(&self) -> &Client {
        &self.http
    }

    /// The body that a client of the edge must get for this request: the provider's bytes, without the usage chunk
    /// that the edge asked for if the client did not.
    #[must_use]
    pub fn expected(&self, chat: &Chat) -> Vec<u8> {
        let sent = self.sent_for(chat);
        let asked_for_it = matches!(chat.api(), Api::Chat | Api::Completions) && !chat.asks_for_usage();
        if chat.is_stream() && asked_for_it { without_usage_chunk(&sent) } else { sent }
    }

    /// The body that the provider sends to the edge for this request, as if no fault that the model names happened.
    #[must_use]
    pub fn sent_for(&self, chat: &Chat) -> Vec<u8> {
        let stream = chat.is_stream();
        let model = percent_encoded(chat.model());
        let api = chat.api().name();
        let target = format!("/__expected?api={api}&model={model}&stream={stream}&include_usage={stream}&faults=false");
        self.http.get(&target).expect(200).body
    }

    /// What the provider saw of the requests with that tag, oldest first.
    #[must_use]
    pub fn log(&self, tag: &str) -> Vec<LogEntry> {
        self.running.log(Some(tag)).into_iter().map(LogEntry).collect()
    }

    /// What came to the webhook receiver of that name.
    #[must_use]
    pub fn hooks(&self, name: &str) -> Vec<Value> {
        self.running.hooks(name)
    }

    /// The only request with that tag, once it has come.
    pub fn only(&self, tag: &str) -> LogEntry {
        wait_for("one request at the provider", || only_of(self.log(tag)))
    }

    /// The only request with that tag, once the provider has sent at least so many body bytes.
    pub fn once_sent(&self, tag: &str, bytes: u64) -> LogEntry {
        wait_for("bytes sent by the provider", || {
            let entry = only_of(self.log(tag))?;
            if entry.bytes_sent() >= bytes { Ok(entry) } else { Err(entry.brief()) }
        })
    }

    /// The only request with that tag, once its socket is closed.
    pub fn once_closed(&self, tag: &str) -> LogEntry {
        wait_for("the end of the request at the provider", || {
            let entry = only_of(self.log(tag))?;
            if entry.closed_at_ms().is_some() { Ok(entry) } else { Err(entry.brief()) }
        })
    }

    /// Asserts that the provider was called once for that tag and sent everything.
    ///
    /// # Panics
    /// When it did not.
    pub fn assert_sent_everything(&self, tag: &str) {
        let entry = self.once_closed(tag);
        assert_eq!(entry.end(), "complete", "{}", entry.brief());
        assert_eq!(entry.bytes_sent(), entry.bytes_total(), "{}", entry.brief());
    }

    /// Asserts that the provider was never called for that tag.
    ///
    /// # Panics
    /// When it was.
    pub fn assert_never_called(&self, tag: &str) {
        let log = self.log(tag);
        assert!(log.is_empty(), "the provider was called: {}", log[0].brief());
    }
}

/// One request, as the provider saw it.
#[derive(Clone, Debug)]
pub struct LogEntry(Value);

impl LogEntry {
    /// How it stands: `open`, `complete`, `client_closed`, `reset`, `fin`, `cut` or `stalled`.
    ///
    /// # Panics
    /// Never: the simulator always says.
    #[must_use]
    pub fn end(&self) -> &str {
        self.0["end"].as_str().expect("an entry says how it stands")
    }

    /// Body bytes that it would send.
    #[must_use]
    pub fn bytes_total(&self) -> u64 {
        self.number("bytes_total")
    }

    /// Body bytes sent so far.
    #[must_use]
    pub fn bytes_sent(&self) -> u64 {
        self.number("bytes_sent")
    }

    /// When the request had been read.
    #[must_use]
    pub fn received_at_ms(&self) -> u64 {
        self.number("received_at_ms")
    }

    /// When it ended, if it has.
    #[must_use]
    pub fn closed_at_ms(&self) -> Option<u64> {
        self.0["closed_at_ms"].as_u64()
    }

    /// The request's body.
    #[must_use]
    pub fn body(&self) -> &Value {
        &self.0["body"]
    }

    /// The request's headers, names in lower case.
    #[must_use]
    pub fn headers(&self) -> &Value {
        &self.0["headers"]
    }

    /// Any field.
    #[must_use]
    pub fn field(&self, name: &str) -> &Value {
        &self.0[name]
    }

    /// The entry without its body, for messages.
    #[must_use]
    pub fn brief(&self) -> String {
        let part = |name: &str| format!("{name} {}", self.0[name]);
        ["model", "status", "bytes_sent", "bytes_total", "end"].map(part).join(", ")
    }

    fn number(&self, name: &str) -> u64 {
        self.0[name].as_u64().unwrap_or_else(|| panic!("no {name} in {}", self.brief()))
    }
}

fn only_of(mut log: Vec<LogEntry>) -> Result<LogEntry, String> {
    assert!(log.len() < 2, "the provider was called {} times: {}", log.len(), log[0].brief());
    log.pop().ok_or_else(|| "no request".to_owned())
}

fn runtime() -> &'static Runtime {
    static RUNTIME: OnceLock<Runtime> = OnceLock::new();
    RUNTIME.get_or_init(|| Builder::new_multi_thread().worker_threads(1).enable_all().build().expect("a tokio runtime"))
}

/// A query value: everything but letters and digits is escaped.
#[must_use]
pub fn percent_encoded(text: &str) -> String {
    let escape = |byte: u8| match byte {
        b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' => char::from(byte).to_string(),
        _ => format!("%{byte:02X}"),
    };
    text.bytes().map(escape).collect()
}
