//! A webhook receiver: `POST /__hook/NAME?answers=500,200`. The n-th request to a name gets the n-th answer, and those
//! beyond the list the last. `GET /__hooks?name=NAME` tells what came.
//!
//! | answer | what the receiver does |
//! |---|---|
//! | `200` | answers with that status |
//! | `429:7` | the same, with `Retry-After: 7` |
//! | `200@3000` | the same, after 3,000 ms |
//! | `200!reset` | sends the head, and resets the connection instead of the body |
//! | `200!stall` | sends the head, and never the body |
//! | `302` | redirects to `/__hook/NAME-followed` |
//! | `drop` | resets the connection instead of answering |
//! | `silent` | never answers |

use std::collections::BTreeMap;
use std::sync::{Mutex, MutexGuard, PoisonError};

use serde_json::{Map, Value, json};

use crate::connection::{Connection, Gone};
use crate::http::Head;
use crate::log::now_ms;
use crate::refusal::Refusal;

/// Below it lies every receiver.
pub(crate) const PREFIX: &str = "/__hook/";

/// What happens after the head of an answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum After {
    Complete,
    Reset,
    Stall,
}

/// One answer of a receiver.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answer {
    Drop,
    Silent,
    Status { status: u16, retry_after_s: Option<u64>, delay_ms: u64, after: After },
}

/// What came to all receivers, by name.
#[derive(Debug, Default)]
pub(crate) struct Hooks {
    received: Mutex<BTreeMap<String, Vec<Value>>>,
}

impl Hooks {
    /// What came to one receiver, oldest first.
    pub(crate) fn received(&self, name: &str) -> Vec<Value> {
        self.lock().get(name).cloned().unwrap_or_default()
    }

    /// Notes a request, and returns how many came before it.
    fn add(&self, name: &str, headers: Map<String, Value>, body: &[u8]) -> usize {
        let mut received = self.lock();
        let requests = received.entry(name.to_owned()).or_default();
        let body = String::from_utf8_lossy(body);
        requests.push(json!({ "received_at_ms": now_ms(), "headers": headers, "body": body }));
        requests.len() - 1
    }

    fn lock(&self) -> MutexGuard<'_, BTreeMap<String, Vec<Value>>> {
        self.received.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn parse(text: &str) -> Result<Answer, Refusal> {
    let unknown = || Refusal::invalid(format!("unknown answer {text}"));
    match text {
        "drop" => return Ok(Answer::Drop),
        "silent" => return Ok(Answer::Silent),
        _ => {}
    }
    let (rest, after) = match text.split_once('!') {
        None => (text, After::Complete),
        Some((rest, "reset")) => (rest, After::Reset),
        Some((rest, "stall")) => (rest, After::Stall),
        Some(_) => return Err(unknown()),
    };
    let (rest, delay_ms) = match rest.split_once('@') {
        None => (rest, 0),
        Some((rest, delay)) => (rest, delay.parse().map_err(|_| unknown())?),
    };
    let (status, retry_after_s) = match rest.split_once(':') {
        None => (rest, None),
        Some((status, seconds)) => (status, Some(seconds.parse().map_err(|_| unknown())?)),
    };
    let status = status.parse().map_err(|_| unknown())?;
    Ok(Answer::Status { status, retry_after_s, delay_ms, after })
}

fn answers(list: Option<&str>) -> Result<Vec<Answer>, Refusal> {
    list.unwrap_or("200").split(',').map(parse).collect()
}

/// Receives one request. Returns the connection, where it may be used again.
pub(crate) async fn receive(
    connection: Connection,
    hooks: &Hooks,
    head: &Head,
    headers: Map<String, Value>,
    body: &[u8],
) -> Option<Connection> {
    let name = head.path.trim_start_matches(PREFIX);
    let before = hooks.add(name, headers, body);
    let answer = answers(head.query("answers"))
        .map(|answers| answers.get(before).or(answers.last()).copied().unwrap_or(Answer::Silent));
    let refused = Answer::Status { status: 400, retry_after_s: None, delay_ms: 0, after: After::Complete };
    match answer.unwrap_or(refused) {
        Answer::Drop => {
            connection.reset();
            None
        }
        Answer::Silent => {
            let mut connection = connection;
            connection.gone().await;
            None
        }
        Answer::Status { status, retry_after_s, delay_ms, after } => {
            respond(connection, name, status, retry_after_s, delay_ms, after).await.ok().flatten()
        }
    }
}

async fn respond(
    mut connection: Connection,
    name: &str,
    status: u16,
    retry_after_s: Option<u64>,
    delay_ms: u64,
    after: After,
) -> Result<Option<Connection>, Gone> {
    connection.pause_ms(delay_ms).await?;
    let length = if after == After::Complete { 2 } else { 1_000 };
    let mut text = format!("HTTP/1.1 {status} Answered\r\ncontent-type: text/plain\r\ncontent-length: {length}\r\n");
    if let Some(seconds) = retry_after_s {
        text.push_str(&format!("retry-after: {seconds}\r\n"));
    }
    if (300..400).contains(&status) {
        text.push_str(&format!("location: {PREFIX}{name}-followed\r\n"));
    }
    text.push_str("\r\nok");
    connection.write_plain(text.as_bytes()).await?;
    match after {
        After::Complete => return Ok(Some(connection)),
        After::Reset => {
            connection.delivered().await?;
            connection.reset();
        }
        After::Stall => connection.gone().await,
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn answers_are_read_strictly() {
        let plain = |status| Answer::Status { status, retry_after_s: None, delay_ms: 0, after: After::Complete };
        assert_eq!(answers(None).unwrap(), [plain(200)]);
        assert_eq!(answers(Some("500,drop,silent")).unwrap(), [plain(500), Answer::Drop, Answer::Silent]);
        let all = Answer::Status { status: 503, retry_after_s: Some(7), delay_ms: 30, after: After::Stall };
        assert_eq!(answers(Some("503:7@30!stall")).unwrap(), [all]);
        for bad in ["", "x", "200!", "200@", "429:", "200,,200"] {
            assert!(answers(Some(bad)).is_err(), "{bad}");
        }
    }
}
