//! A provider on a real loopback socket, with the APIs of OpenAI, Anthropic and Google (see `api`).
//!
//! The model name of a request says how the provider behaves:
//! `NAME?key=value&key=value` (see [`behaviour`]). The body bytes are a pure
//! function of the API, the model name, `stream` and `stream_options.include_usage`, so
//! that a test can ask `GET /__expected` what a client must receive, and
//! `GET /__log` what was really written to the socket and how it ended. (With
//! `stamp=1` the digits of the stamps are not: `GET /__expected` has zeros there.)
//!
//! Beside it stands a webhook receiver, `POST /__hook/NAME`, whose answers the URL chooses.
//!
//! Everything is hand-written over a TCP socket because the faults of interest
//! (resets, missing chunk terminators, chosen write boundaries) are below what
//! an HTTP library lets one do.

mod api;
pub mod behaviour;
mod callbacks;
mod connection;
mod generate;
mod hooks;
mod http;
mod jobs;
mod log;
pub mod plan;
mod play;
mod recordings;
mod refusal;
mod script;
mod server;
mod stamp;

use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;
use std::sync::Arc;

use tokio::net::TcpListener;
use tokio::task::JoinHandle;

pub use crate::api::Api;
use crate::callbacks::Callbacks;
use crate::hooks::Hooks;
use crate::jobs::Jobs;
use crate::log::RequestLog;
use crate::recordings::Recordings;
use crate::server::Shared;

/// How to start a simulator.
#[derive(Debug, Clone)]
pub struct Config {
    /// Port on 127.0.0.1; 0 lets the system choose.
    pub port: u16,
    /// A folder with further `*.sse` recordings, read once at the start. Its
    /// files win over built-in ones of the same name.
    pub recordings: Option<PathBuf>,
    /// How many requests the log keeps; the oldest ones go first.
    pub log_max: usize,
}

impl Default for Config {
    fn default() -> Self {
        Self { port: 0, recordings: None, log_max: 20_000 }
    }
}

/// A running simulator. It stops, with all its connections, when dropped.
#[derive(Debug)]
pub struct Simulator {
    address: SocketAddr,
    shared: Arc<Shared>,
    task: JoinHandle<()>,
}

impl Simulator {
    /// Binds 127.0.0.1 and serves from tasks of the current tokio runtime.
    ///
    /// # Errors
    /// When the port is taken or the recordings folder cannot be read.
    pub async fn start(config: Config) -> std::io::Result<Self> {
        let recordings = Recordings::load(config.recordings.as_deref())?;
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, config.port)).await?;
        let address = listener.local_addr()?;
        let shared = Arc::new(Shared {
            recordings,
            log: RequestLog::new(config.log_max),
            hooks: Hooks::default(),
            jobs: Jobs::default(),
            callbacks: Callbacks::default(),
        });
        let task = tokio::spawn(server::accept_loop(listener, Arc::clone(&shared)));
        Ok(Self { address, shared, task })
    }

    /// The address it listens on.
    #[must_use]
    pub fn addr(&self) -> SocketAddr {
        self.address
    }

    /// `http://127.0.0.1:PORT`.
    #[must_use]
    pub fn origin(&self) -> String {
        format!("http://{}", self.address)
    }

    /// What `GET /__log` would answer now, oldest request first; with `tag`
    /// only the requests whose model carries that tag.
    #[must_use]
    pub fn log(&self, tag: Option<&str>) -> Vec<serde_json::Value> {
        self.shared.log.entries(tag)
    }

    /// Calls back about background jobs from now on: to `url` (`http://HOST:PORT/PATH`), signed with `secret` (`whsec_…`).
    ///
    /// # Panics
    /// When one of them is malformed.
    pub fn call_back_to(&self, url: &str, secret: &str) {
        assert!(self.shared.callbacks.aim(url, secret).is_some(), "{url} or its secret is malformed");
    }

    /// What came to the webhook receiver of that name (`/__hook/NAME`), oldest first: `received_at_ms`, `headers`, `body`.
    #[must_use]
    pub fn hooks(&self, name: &str) -> Vec<serde_json::Value> {
        self.shared.hooks.received(name)
    }

    /// Runs until the task that accepts connections ends.
    pub async fn wait(mut self) {
        // A join error means that the task panicked or was aborted: it has ended all the same.
        let _ = (&mut self.task).await;
    }
}

impl Drop for Simulator {
    fn drop(&mut self) {
        self.task.abort();
    }
}
