//! Accepts connections and routes requests.

use std::sync::Arc;

use serde_json::{Map, Value, json};
use sha2::{Digest, Sha256};
use tokio::net::{TcpListener, TcpStream};
use tokio::task::JoinSet;

use crate::api::Api;
use crate::behaviour::{self, Behaviour};
use crate::callbacks::Callbacks;
use crate::connection::{Connection, Gone, NoRequest};
use crate::hooks::{self, Hooks};
use crate::http::Head;
use crate::jobs::{self, Jobs};
use crate::log::{End, Received, RequestLog};
use crate::play;
use crate::recordings::Recordings;
use crate::refusal::Refusal;
use crate::script::{Ask, Script};

/// What all connections of a simulator share.
#[derive(Debug)]
pub(crate) struct Shared {
    pub(crate) recordings: Recordings,
    pub(crate) log: RequestLog,
    pub(crate) hooks: Hooks,
    pub(crate) jobs: Jobs,
    pub(crate) callbacks: Callbacks,
}

/// Serves until the task is aborted; its connections then end with it.
pub(crate) async fn accept_loop(listener: TcpListener, shared: Arc<Shared>) {
    let mut connections = JoinSet::new();
    let mut number = 0;
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                number += 1;
                let connection = serve(stream, number, Arc::clone(&shared));
                connections.spawn(connection);
            }
            Err(error) => {
                // Out of descriptors, most likely: give connections time to end.
                eprintln!("holdfast-simulator: accept: {error}");
                tokio::time::sleep(std::time::Duration::from_millis(50)).await;
            }
        }
        while connections.try_join_next().is_some() {}
    }
}

async fn serve(stream: TcpStream, number: u64, shared: Arc<Shared>) {
    if stream.set_nodelay(true).is_err() {
        return;
    }
    let mut connection = Connection::new(stream);
    loop {
        let (head, body) = match connection.read_request().await {
            Ok(request) => request,
            Err(NoRequest::Gone) => return,
            Err(NoRequest::Bad(bad)) => {
                let answer = Answer::refusal(&Refusal::invalid(bad.0));
                if answer.send(&mut connection, true).await.is_ok() {
                    connection.finish().await;
                }
                return;
            }
        };
        let api = Api::at(&head.path).filter(|_| head.method == "POST");
        let next = if let Some(api) = api {
            ask(api, connection, number, &shared, &head, &body).await
        } else if jobs::is_about_a_job(&head) {
            about_a_job(connection, number, &shared, &head).await
        } else if head.method == "POST" && head.path.starts_with(hooks::PREFIX) {
            hooks::receive(connection, &shared.hooks, &head, logged_headers(&head), &body).await
        } else {
            other(connection, &shared, &head).await
        };
        match next {
            Some(same) => connection = same,
            None => return,
        }
    }
}

/// An answer that is neither logged nor disturbed.
struct Answer {
    status: u16,
    headers: Vec<(&'static str, String)>,
    body: Vec<u8>,
}

impl Answer {
    fn json(value: &Value) -> Self {
        Self {
            status: 200,
            headers: vec![("content-type", "application/json".to_owned())],
            body: value.to_string().into_bytes(),
        }
    }

    fn refusal(refusal: &Refusal) -> Self {
        Self {
            status: refusal.status,
            headers: vec![("content-type", "application/json".to_owned())],
            body: refusal.body(Api::Chat),
        }
    }

    async fn send(self, connection: &mut Connection, close: bool) -> Result<(), Gone> {
        let head = play::head(self.status, &self.headers, Some(self.body.len()), close);
        let mut bytes = head.into_bytes();
        bytes.extend_from_slice(&self.body);
        connection.write_plain(&bytes).await
    }
}

async fn other(mut connection: Connection, shared: &Shared, head: &Head) -> Option<Connection> {
    let answer = route(shared, head).unwrap_or_else(|refusal| Answer::refusal(&refusal));
    answer.send(&mut connection, head.close).await.ok()?;
    if head.close {
        connection.finish().await;
        return None;
    }
    Some(connection)
}

/// Paths that are no API and take other methods.
const OTHER_PATHS: [&str; 3] = ["/__log", "/__expected", "/v1/models"];

fn route(shared: &Shared, head: &Head) -> Result<Answer, Refusal> {
    match (head.method.as_str(), head.path.as_str()) {
        ("GET", "/__log") => Ok(Answer::json(&shared.log.entries(head.query("tag")).into())),
        ("DELETE", "/__log") => {
            shared.log.clear();
            Ok(Answer::json(&json!({"cleared": true})))
        }
        ("GET", "/__hooks") => Ok(Answer::json(&shared.hooks.received(head.query("name").unwrap_or("")).into())),
        ("GET", "/__expected") => expected(shared, head),
        ("GET", "/v1/models") => {
            Api::Chat.check_credential(head)?;
            Ok(Answer::json(&models(shared)))
        }
        (_, path) if OTHER_PATHS.contains(&path) || Api::at(path).is_some() => Err(Refusal {
            status: 405,
            message: format!("Not allowed to {} on {}.", head.method, head.path),
            kind: "invalid_request_error",
            code: Some("method_not_supported"),
        }),
        (method, path) => Err(Refusal::not_found(format!("Invalid URL ({method} {path})"), Some("unknown_url"))),
    }
}

fn models(shared: &Shared) -> Value {
    let recordings = shared.recordings.names().map(|name| format!("recording/{name}"));
    let data: Vec<Value> = std::iter::once("gen".to_owned())
        .chain(recordings)
        .map(|id| json!({"id": id, "object": "model", "created": 0, "owned_by": "simulator"}))
        .collect();
    json!({"object": "list", "data": data})
}

/// The body bytes that a request would get. With `faults=false` the whole body, as
/// if nothing went wrong on the way.
fn expected(shared: &Shared, head: &Head) -> Result<Answer, Refusal> {
    const KEYS: [&str; 6] = ["api", "model", "include_usage", "stream", "faults", "background"];
    if let Some((key, _)) = head.query.iter().find(|(key, _)| !KEYS.contains(&key.as_str())) {
        return Err(Refusal::invalid(format!("unknown query key {key}: is the model name percent-encoded?")));
    }
    let flag = |name: &str, default: bool| match head.query(name) {
        None => Ok(default),
        Some("true") => Ok(true),
        Some("false") => Ok(false),
        Some(_) => Err(Refusal::invalid(format!("{name} must be true or false"))),
    };
    let model = head.query("model").ok_or_else(|| Refusal::invalid("model is missing"))?;
    let api =
        Api::named(head.query("api").unwrap_or("chat")).ok_or_else(|| Refusal::invalid("there is no such api"))?;
    let (stream, include_usage) = (flag("stream", true)? && api != Api::Embeddings, flag("include_usage", false)?);
    let ask = Ask { api, model, stream, include_usage, base64: false, background: flag("background", false)? };
    let script = Script::new(ask, &Behaviour::parse(model)?, &shared.recordings)?;
    let body = if flag("faults", true)? { script.sent() } else { &script.events.bytes };
    Ok(Answer {
        status: 200,
        headers: vec![("content-type", "application/octet-stream".to_owned())],
        body: body.to_vec(),
    })
}

async fn about_a_job(connection: Connection, number: u64, shared: &Shared, head: &Head) -> Option<Connection> {
    let received = Received {
        connection: number,
        api: "",
        path: head.path.clone(),
        query: head.query.clone(),
        tag: None,
        model: None,
        stream: false,
        credential: Api::Responses.credential(head).map(|(header, value)| (header, sha256(value))),
        headers: logged_headers(head),
        body: Value::Null,
    };
    jobs::answer(connection, number, &shared.jobs, &shared.log, head, received).await
}

async fn ask(
    api: Api,
    connection: Connection,
    number: u64,
    shared: &Shared,
    head: &Head,
    body: &[u8],
) -> Option<Connection> {
    let body: Result<Value, _> = serde_json::from_slice(body).map_err(|_| String::from_utf8_lossy(body).into_owned());
    let script = script(api, shared, head, body.as_ref().ok()).unwrap_or_else(|refusal| Script::refusal(api, &refusal));
    let body = body.unwrap_or_else(Value::from);
    let model = api.model(head, &body);
    let job = model.as_deref().filter(|_| api == Api::Responses && body["background"] == true && script.status == 200);
    let job = match job.and_then(|model| Some((model, Behaviour::parse(model).ok()?))) {
        Some((model, behaviour)) => {
            let (job, new) = shared.jobs.start(model, &behaviour);
            if new {
                shared.callbacks.of(&job, &behaviour).await;
            }
            Some(job)
        }
        None => None,
    };
    let entry = shared.log.add(Received {
        connection: number,
        api: api.name(),
        path: head.path.clone(),
        query: head.query.clone(),
        tag: model.as_deref().and_then(behaviour::tag).map(str::to_owned),
        model,
        stream: api.asks_for_stream(head, &body),
        credential: api.credential(head).map(|(header, value)| (header, sha256(value))),
        headers: logged_headers(head),
        body,
    });
    let Some(job) = job else { return play::play(connection, &script, &entry, head.close).await };
    tokio::select! {
        next = play::play(connection, &script, &entry, head.close) => next,
        // Its stream breaks off where it was stopped.
        () = job.stopped() => {
            entry.progress().set_end(End::Fin);
            None
        }
    }
}

/// Requests of a tag so far that ask for an answer, and not about an operation.
fn submissions(shared: &Shared, tag: &str) -> usize {
    let about_a_job = |entry: &&Value| matches!(entry["api"].as_str(), Some("lookup" | "resume" | "cancel"));
    shared.log.entries(Some(tag)).iter().filter(|entry| !about_a_job(entry)).count()
}

fn script(api: Api, shared: &Shared, head: &Head, body: Option<&Value>) -> Result<Script, Refusal> {
    api.check_credential(head)?;
    let body = body
        .filter(|body| body.is_object())
        .ok_or_else(|| Refusal::invalid("We could not parse the JSON body of your request."))?;
    let model = api.model(head, body).ok_or_else(|| Refusal::invalid("you must provide a model parameter"))?;
    api.check(head, body)?;
    let earlier = behaviour::tag(&model).map_or(0, |tag| submissions(shared, tag));
    let behaviour = Behaviour::parse(&model)?.at(earlier);
    let ask = Ask {
        api,
        model: &model,
        stream: api.asks_for_stream(head, body),
        include_usage: body["stream_options"]["include_usage"] == true,
        base64: body["encoding_format"] == "base64",
        background: body["background"] == true,
    };
    Script::new(ask, &behaviour, &shared.recordings)
}

/// Headers that carry keys.
const CREDENTIAL_HEADERS: [&str; 3] = ["authorization", "x-api-key", "x-goog-api-key"];

/// The log holds no credentials: of the one that counts its digest.
fn logged_headers(head: &Head) -> Map<String, Value> {
    let mut headers = Map::new();
    for (name, value) in &head.headers {
        if CREDENTIAL_HEADERS.contains(&name.as_str()) {
            continue;
        }
        let joined = match headers.get(name).and_then(Value::as_str) {
            Some(before) => format!("{before}, {value}"),
            None => value.clone(),
        };
        headers.insert(name.clone(), joined.into());
    }
    headers
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}
