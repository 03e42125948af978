//! Background operations of the Responses API. A request with `background: true` starts one: it goes on when its socket
//! is gone, by the timing of its model's keys (`headers_ms`, `first_ms`, `interval_ms`).
//!
//! | call | answer |
//! |---|---|
//! | `GET /v1/responses/{id}` | the operation as it stands |
//! | `GET /v1/responses/{id}?stream=true&starting_after=N` | the events behind number N, those that are still to come too |
//! | `POST /v1/responses/{id}/cancel` | stops it, once; answers with it as it stands |
//!
//! All three stand in the log, under the tag of the operation's model, as `lookup`, `resume` and `cancel`.

use std::collections::HashMap;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use serde_json::Value;
use tokio::sync::Notify;
use tokio::time::Instant;

use crate::api::Api;
use crate::behaviour::{Behaviour, OnCancel};
use crate::connection::{Connection, Gone, Note};
use crate::generate::{self, Events, responses};
use crate::http::Head;
use crate::log::{End, Entry, Received, RequestLog};
use crate::plan::Reply;
use crate::play;
use crate::refusal::Refusal;

const PREFIX: &str = "/v1/responses/";

/// All operations of a simulator, by id.
#[derive(Debug, Default)]
pub(crate) struct Jobs {
    all: Mutex<HashMap<String, Arc<Job>>>,
}

/// One operation.
#[derive(Debug)]
pub(crate) struct Job {
    id: String,
    model: String,
    behaviour: Behaviour,
    /// All that it will ever say, unless it is cancelled.
    events: Events,
    started: Instant,
    state: Mutex<State>,
    cancelled: Notify,
}

#[derive(Debug, Default)]
struct State {
    cancelled_at: Option<Instant>,
    lookups: usize,
    resumes: usize,
    cancels: usize,
}

/// What is asked about an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Question {
    LookUp,
    Resume { after: Option<u64> },
    Cancel,
}

impl Question {
    const fn name(self) -> &'static str {
        match self {
            Self::LookUp => "lookup",
            Self::Resume { .. } => "resume",
            Self::Cancel => "cancel",
        }
    }
}

impl Jobs {
    /// Starts an operation. The same submission again is the same operation; whether it is new.
    pub(crate) fn start(&self, model: &str, behaviour: &Behaviour) -> (Arc<Job>, bool) {
        let id = generate::operation_id(Api::Responses, model);
        let mut new = false;
        let job = || {
            new = true;
            let mut events = responses::stream(behaviour, model, true);
            if behaviour.endless {
                events.ends.truncate(usable(behaviour));
                events.bytes.truncate(events.ends.last().copied().unwrap_or(0));
            }
            Arc::new(Job {
                id: id.clone(),
                model: model.to_owned(),
                behaviour: behaviour.clone(),
                events,
                started: Instant::now(),
                state: Mutex::default(),
                cancelled: Notify::new(),
            })
        };
        let job = Arc::clone(self.lock().entry(id.clone()).or_insert_with(job));
        (job, new)
    }

    fn get(&self, id: &str) -> Option<Arc<Job>> {
        self.lock().get(id).cloned()
    }

    fn lock(&self) -> MutexGuard<'_, HashMap<String, Arc<Job>>> {
        self.all.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The events of one that never ends: up to its last word.
fn usable(behaviour: &Behaviour) -> usize {
    usize::try_from(behaviour.tokens).unwrap_or(usize::MAX).saturating_add(4)
}

impl Job {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// When an event is there, by its number.
    fn due(&self, event: usize) -> Instant {
        let before = self.behaviour.headers_ms.saturating_add(self.behaviour.first_ms);
        let interval = self.behaviour.interval_ms.saturating_mul(event as u64);
        self.started + Duration::from_millis(before.saturating_add(interval))
    }

    fn has(&self, event: usize, state: &State) -> bool {
        let due = self.due(event);
        due <= Instant::now() && state.cancelled_at.is_none_or(|at| due <= at)
    }

    /// The word for how it stands.
    fn status(&self) -> &'static str {
        let state = self.lock();
        let last = self.events.ends.len().saturating_sub(1);
        if !self.behaviour.endless && self.has(last, &state) {
            let failed = self.behaviour.error_after.is_some();
            return if failed { "failed" } else { responses::ended_as(&self.behaviour) };
        }
        if state.cancelled_at.is_some_and(|at| at <= Instant::now()) {
            return "cancelled";
        }
        if self.has(0, &state) { "in_progress" } else { "queued" }
    }

    /// The operation as it stands.
    fn object(&self) -> Value {
        let status = self.status();
        let ended = matches!(status, "completed" | "incomplete");
        let standing = if ended { responses::Status::Ended } else { responses::Status::InProgress };
        let mut object = responses::object(&self.behaviour, &self.model, standing, true);
        object["status"] = status.into();
        if status == "failed" {
            object["error"] = serde_json::json!({"code": "server_error", "message": "The job failed."});
        }
        object
    }

    /// Stops it, after a time, unless it has ended or was stopped before.
    fn cancel(&self, after_ms: u64) {
        let mut state = self.lock();
        state.cancelled_at = state.cancelled_at.or(Some(Instant::now() + Duration::from_millis(after_ms)));
        drop(state);
        self.cancelled.notify_waiters();
    }

    pub(crate) fn id(&self) -> &str {
        &self.id
    }

    /// Waits until it has ended; the word for how.
    pub(crate) async fn ended(&self) -> &'static str {
        let last = self.events.ends.len().saturating_sub(1);
        let by_itself = async {
            if self.behaviour.endless {
                std::future::pending::<()>().await;
            }
            tokio::time::sleep_until(self.due(last)).await;
        };
        tokio::select! {
            () = by_itself => {}
            () = self.stopped() => {}
        }
        // A job that was stopped a moment after its end has ended by itself.
        tokio::time::sleep(Duration::from_millis(1)).await;
        self.status()
    }

    /// Waits until it is stopped.
    pub(crate) async fn stopped(&self) {
        loop {
            let changed = self.cancelled.notified();
            let at = self.lock().cancelled_at;
            match at {
                Some(at) => return tokio::time::sleep_until(at).await,
                None => changed.await,
            }
        }
    }

    fn next(&self, question: Question) -> Reply {
        let mut state = self.lock();
        let (plan, count) = match question {
            Question::LookUp => (&self.behaviour.lookups, &mut state.lookups),
            Question::Resume { .. } => (&self.behaviour.resumes, &mut state.resumes),
            Question::Cancel => (&self.behaviour.cancels, &mut state.cancels),
        };
        let nth = *count;
        *count += 1;
        plan.reply(nth)
    }
}

/// The question of a request, and the id that it is about.
fn question(head: &Head) -> Option<(&str, Question)> {
    let rest = head.path.strip_prefix(PREFIX)?;
    match (head.method.as_str(), rest.split_once('/')) {
        ("GET", None) if head.query("stream") == Some("true") => {
            Some((rest, Question::Resume { after: head.query("starting_after").and_then(|after| after.parse().ok()) }))
        }
        ("GET", None) => Some((rest, Question::LookUp)),
        ("POST", Some((id, "cancel"))) => Some((id, Question::Cancel)),
        _ => None,
    }
}

/// Whether a request is about an operation.
pub(crate) fn is_about_a_job(head: &Head) -> bool {
    question(head).is_some()
}

/// Answers a question about an operation. Gives the connection back if it can take another request.
pub(crate) async fn answer(
    connection: Connection,
    number: u64,
    jobs: &Jobs,
    log: &RequestLog,
    head: &Head,
    received: Received,
) -> Option<Connection> {
    let (id, question) = question(head)?;
    let job = jobs.get(id);
    let model = job.as_ref().map(|job| job.model.clone());
    let entry = log.add(Received {
        connection: number,
        api: question.name(),
        tag: model.as_deref().and_then(crate::behaviour::tag).map(str::to_owned),
        model,
        stream: matches!(question, Question::Resume { .. }),
        ..received
    });
    let Some(job) = job else {
        let missing = Refusal::not_found(format!("Response with id '{id}' not found."), None);
        return whole(connection, &entry, head, missing.status, &[], missing.body(Api::Responses)).await;
    };
    match job.next(question) {
        Reply::Status { status, retry_after } => {
            let headers: Vec<_> = retry_after.map(|later| ("retry-after", later.header())).into_iter().collect();
            let body = Refusal::for_status(status).body(Api::Responses);
            whole(connection, &entry, head, status, &headers, body).await
        }
        Reply::Drop => dropped(connection, &entry),
        Reply::Silent => silent(connection, &entry).await,
        reply => match question {
            Question::LookUp => object(connection, &entry, head, &job).await,
            Question::Resume { after } => {
                // As the provider says it of one without a stream to give.
                stream(connection, &entry, head, &job, after, &reply).await
            }
            Question::Cancel => cancel(connection, &entry, head, &job).await,
        },
    }
}

async fn cancel(connection: Connection, entry: &Entry, head: &Head, job: &Job) -> Option<Connection> {
    match job.behaviour.cancel {
        OnCancel::Stops => job.cancel(0),
        OnCancel::Slow => job.cancel(job.behaviour.cancel_ms),
        OnCancel::Lost => {
            job.cancel(0);
            return dropped(connection, entry);
        }
        OnCancel::Void => return dropped(connection, entry),
        OnCancel::Refused => {
            let refusal = Refusal::for_status(403);
            return whole(connection, entry, head, refusal.status, &[], refusal.body(Api::Responses)).await;
        }
    }
    object(connection, entry, head, job).await
}

fn dropped(connection: Connection, entry: &Entry) -> Option<Connection> {
    entry.progress().set_end(End::Reset);
    connection.reset();
    None
}

async fn silent(mut connection: Connection, entry: &Entry) -> Option<Connection> {
    connection.gone().await;
    entry.progress().set_end(End::ClientClosed);
    None
}

async fn object(connection: Connection, entry: &Entry, head: &Head, job: &Job) -> Option<Connection> {
    let body = format!("{:#}\n", job.object()).into_bytes();
    whole(connection, entry, head, 200, &[], body).await
}

/// An answer in one piece.
async fn whole(
    mut connection: Connection,
    entry: &Entry,
    head: &Head,
    status: u16,
    headers: &[(&'static str, String)],
    body: Vec<u8>,
) -> Option<Connection> {
    let mut all = vec![("content-type", "application/json".to_owned())];
    all.extend_from_slice(headers);
    let framing = play::head(status, &all, Some(body.len()), head.close);
    entry.progress().bytes_total = body.len();
    let note = Note { status: Some(status), end: None };
    let sent = async {
        connection.write_framing(framing.as_bytes(), entry, note).await?;
        connection.write_body(&body, false, entry, Note { status: None, end: Some(End::Complete) }).await
    };
    kept(sent.await, entry)?;
    if head.close {
        connection.finish().await;
        return None;
    }
    Some(connection)
}

/// Nothing when the client went before the end.
fn kept(sent: Result<(), Gone>, entry: &Entry) -> Option<()> {
    if sent.is_err() {
        let mut progress = entry.progress();
        if !progress.is_over() {
            progress.set_end(End::ClientClosed);
        }
    }
    sent.ok()
}

/// The events behind a number, as they come.
async fn stream(
    mut connection: Connection,
    entry: &Entry,
    head: &Head,
    job: &Job,
    after: Option<u64>,
    reply: &Reply,
) -> Option<Connection> {
    let first = after.map_or(0, |after| usize::try_from(after).unwrap_or(usize::MAX).saturating_add(1));
    let headers = [("content-type", "text/event-stream; charset=utf-8".to_owned())];
    let framing = play::head(200, &headers, None, head.close);
    let sent = async {
        let note = Note { status: Some(200), end: None };
        connection.write_framing(framing.as_bytes(), entry, note).await?;
        let all = job.events.ends.len();
        let last = if *reply == Reply::Cut { all.min(first.saturating_add(1)) } else { all };
        for event in first..last {
            tokio::select! {
                () = job.stopped() => {}
                waited = connection.pause_until(job.due(event)) => waited?,
            }
            if !job.has(event, &job.lock()) {
                break;
            }
            let start = if event == 0 { 0 } else { job.events.ends[event - 1] };
            let mut piece = job.events.bytes[start..job.events.ends[event]].to_vec();
            if *reply == Reply::Other {
                // Another answer, from its first byte on.
                piece.splice(0..0, *b"id: other\n");
            }
            connection.write_body(&piece, true, entry, Note::default()).await?;
        }
        if job.behaviour.endless && *reply != Reply::Cut {
            tokio::select! {
                () = job.stopped() => {}
                () = connection.gone() => return Err(Gone),
            }
        }
        connection.write_framing(b"0\r\n\r\n", entry, Note { status: None, end: Some(End::Complete) }).await
    };
    kept(sent.await, entry)?;
    if head.close {
        connection.finish().await;
        return None;
    }
    Some(connection)
}
