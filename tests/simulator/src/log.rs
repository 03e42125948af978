//! The request log: what came in, what was written, how it ended.

use std::collections::VecDeque;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{SystemTime, UNIX_EPOCH};

use serde_json::{Map, Value, json};

/// How an exchange stands or ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum End {
    /// Still being answered.
    Open,
    /// The whole body and its terminator were written.
    Complete,
    /// The client closed (or half-closed) the socket before the end.
    ClientClosed,
    /// The simulator reset the connection.
    Reset,
    /// The simulator sent a FIN in the middle of the body.
    Fin,
    /// The simulator ended the body early and cleanly.
    Cut,
    /// The simulator has stopped sending and keeps the socket.
    Stalled,
}

impl End {
    fn name(self) -> &'static str {
        match self {
            Self::Open => "open",
            Self::Complete => "complete",
            Self::ClientClosed => "client_closed",
            Self::Reset => "reset",
            Self::Fin => "fin",
            Self::Cut => "cut",
            Self::Stalled => "stalled",
        }
    }

    fn is_final(self) -> bool {
        !matches!(self, Self::Open | Self::Stalled)
    }
}

/// The part of an entry that is known when the request has been read.
#[derive(Debug)]
pub(crate) struct Received {
    pub(crate) connection: u64,
    pub(crate) api: &'static str,
    pub(crate) path: String,
    pub(crate) query: Vec<(String, String)>,
    pub(crate) model: Option<String>,
    pub(crate) tag: Option<String>,
    pub(crate) stream: bool,
    /// The header that the API's key came in, and the digest of its value.
    pub(crate) credential: Option<(&'static str, String)>,
    pub(crate) headers: Map<String, Value>,
    pub(crate) body: Value,
}

/// The part of an entry that changes while the answer is written.
#[derive(Debug)]
pub(crate) struct Progress {
    /// The status sent, once its head is out.
    pub(crate) status: Option<u16>,
    pub(crate) bytes_total: usize,
    pub(crate) bytes_sent: usize,
    end: End,
    closed_at_ms: Option<u64>,
}

impl Progress {
    /// Notes how the exchange stands; the time is kept when it is over.
    pub(crate) fn set_end(&mut self, end: End) {
        self.end = end;
        if end.is_final() {
            self.closed_at_ms = Some(now_ms());
        }
    }

    /// Whether an exchange that was under way is now known to be over.
    pub(crate) fn is_over(&self) -> bool {
        self.end.is_final()
    }
}

/// One logged request.
///
/// Whoever writes to the socket holds the lock of `progress` while it writes and
/// counts, so no reader of the log can see a byte at the client before it is counted.
#[derive(Debug)]
pub(crate) struct Entry {
    received: Received,
    received_at_ms: u64,
    progress: Mutex<Progress>,
}

impl Entry {
    pub(crate) fn progress(&self) -> MutexGuard<'_, Progress> {
        self.progress.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn to_json(&self, n: usize) -> Value {
        let received = &self.received;
        let progress = self.progress();
        json!({
            "n": n,
            "connection": received.connection,
            "api": received.api,
            "path": received.path,
            "query": received.query,
            "model": received.model,
            "tag": received.tag,
            "stream": received.stream,
            "authorization_present": received.credential.is_some(),
            "authorization_sha256": received.credential.as_ref().map(|(_, digest)| digest),
            "credential_header": received.credential.as_ref().map(|(header, _)| header),
            "headers": received.headers,
            "body": received.body,
            "received_at_ms": self.received_at_ms,
            "status": progress.status,
            "bytes_total": progress.bytes_total,
            "bytes_sent": progress.bytes_sent,
            "closed_at_ms": progress.closed_at_ms,
            "end": progress.end.name(),
        })
    }
}

#[derive(Debug)]
struct Entries {
    /// How many were dropped from the front: entry `i` has the number `dropped + i + 1`.
    dropped: usize,
    kept: VecDeque<Arc<Entry>>,
}

/// The log of a simulator, bounded to the newest entries.
#[derive(Debug)]
pub(crate) struct RequestLog {
    max: usize,
    entries: Mutex<Entries>,
}

impl RequestLog {
    pub(crate) fn new(max: usize) -> Self {
        Self { max: max.max(1), entries: Mutex::new(Entries { dropped: 0, kept: VecDeque::new() }) }
    }

    pub(crate) fn add(&self, received: Received) -> Arc<Entry> {
        let entry = Arc::new(Entry {
            received,
            received_at_ms: now_ms(),
            progress: Mutex::new(Progress {
                status: None,
                bytes_total: 0,
                bytes_sent: 0,
                end: End::Open,
                closed_at_ms: None,
            }),
        });
        let mut entries = self.lock();
        if entries.kept.len() == self.max {
            entries.kept.pop_front();
            entries.dropped += 1;
        }
        entries.kept.push_back(Arc::clone(&entry));
        entry
    }

    pub(crate) fn entries(&self, tag: Option<&str>) -> Vec<Value> {
        let entries = self.lock();
        let first = entries.dropped + 1;
        let kept: Vec<(usize, Arc<Entry>)> = (first..)
            .zip(&entries.kept)
            .filter(|(_, entry)| tag.is_none() || entry.received.tag.as_deref() == tag)
            .map(|(n, entry)| (n, Arc::clone(entry)))
            .collect();
        drop(entries);
        kept.iter().map(|(n, entry)| entry.to_json(*n)).collect()
    }

    /// Empties the log; numbers start at 1 again.
    pub(crate) fn clear(&self) {
        let mut entries = self.lock();
        entries.dropped = 0;
        entries.kept.clear();
    }

    fn lock(&self) -> MutexGuard<'_, Entries> {
        self.entries.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Milliseconds since the Unix epoch.
pub(crate) fn now_ms() -> u64 {
    SystemTime::now().duration_since(UNIX_EPOCH).map_or(0, |since| u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
