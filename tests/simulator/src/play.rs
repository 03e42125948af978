//! Plays a script on a connection.

use std::fmt::Write;
use std::time::Duration;

use tokio::time::Instant;

use crate::connection::{Connection, Gone, Note};
use crate::http;
use crate::log::{End, Entry};
use crate::script::Script;
use crate::stamp;

/// The head of an answer.
pub(crate) fn head(status: u16, headers: &[(&'static str, String)], length: Option<usize>, close: bool) -> String {
    let mut head = format!("HTTP/1.1 {status} {}\r\n", http::reason(status));
    let mut add = |name: &str, value: &str| {
        write!(head, "{name}: {value}\r\n").expect("writing to a string does not fail");
    };
    for (name, value) in headers {
        add(name, value);
    }
    match length {
        Some(length) => add("content-length", &length.to_string()),
        None => add("transfer-encoding", "chunked"),
    }
    add("connection", if close { "close" } else { "keep-alive" });
    head.push_str("\r\n");
    head
}

/// Sends the answer. Gives the connection back if it can take another request.
pub(crate) async fn play(
    mut connection: Connection,
    script: &Script,
    entry: &Entry,
    close: bool,
) -> Option<Connection> {
    entry.progress().bytes_total = script.events.bytes.len();
    if send(&mut connection, script, entry, close).await.is_err() {
        let mut progress = entry.progress();
        if !progress.is_over() {
            progress.set_end(End::ClientClosed);
        }
        return None;
    }
    match script.end {
        End::Reset => {
            entry.progress().set_end(End::Reset);
            connection.reset();
            None
        }
        End::Fin => {
            entry.progress().set_end(End::Fin);
            connection.finish().await;
            None
        }
        _ if close => {
            connection.finish().await;
            None
        }
        _ => Some(connection),
    }
}

async fn send(connection: &mut Connection, script: &Script, entry: &Entry, close: bool) -> Result<(), Gone> {
    connection.pause_ms(script.headers_ms).await?;
    if script.drop {
        return Ok(());
    }
    let total = script.events.bytes.len();
    let length = (!script.chunked).then_some(total);
    let terminated = script.chunked && matches!(script.end, End::Complete | End::Cut);
    // The end that is reached with the last byte of the head or the body.
    let at_last = match script.end {
        End::Complete if !script.chunked => Some(End::Complete),
        End::Stalled => Some(End::Stalled),
        _ => None,
    };
    let note = Note { status: Some(script.status), end: at_last.filter(|_| script.writes.is_empty()) };
    let head = head(script.status, &script.headers, length, close);
    connection.write_framing(head.as_bytes(), entry, note).await?;
    connection.pause_ms(script.first_ms).await?;
    send_body(connection, script, entry, at_last).await?;
    if terminated {
        let note = Note { status: None, end: Some(script.end) };
        connection.write_framing(b"0\r\n\r\n", entry, note).await?;
    }
    match script.end {
        End::Stalled => {
            connection.gone().await;
            Err(Gone)
        }
        End::Reset => connection.delivered().await,
        _ => Ok(()),
    }
}

async fn send_body(
    connection: &mut Connection,
    script: &Script,
    entry: &Entry,
    at_last: Option<End>,
) -> Result<(), Gone> {
    let interval = Duration::from_millis(script.interval_ms);
    let mut due = Instant::now();
    let mut event = 0;
    let mut position = 0;
    let last = script.writes.last().copied();
    pause_at(connection, script, position).await?;
    for end in script.writes.iter().copied() {
        // A write waits until the last event that it reaches into has its time.
        while script.events.ends[event] < end {
            event += 1;
            due += interval;
        }
        if position > 0 {
            connection.pause_ms(script.gap_ms).await?;
            if script.interval_ms > 0 {
                connection.pause_until(due).await?;
            }
        }
        let note = Note { status: None, end: at_last.filter(|_| last == Some(end)) };
        let piece = &script.events.bytes[position..end];
        if script.stamps.is_empty() {
            connection.write_body(piece, script.chunked, entry, note).await?;
        } else {
            let mut stamped = piece.to_vec();
            stamp::overlay(&mut stamped, position, &script.stamps, stamp::now_us());
            connection.write_body(&stamped, script.chunked, entry, note).await?;
        }
        position = end;
        pause_at(connection, script, position).await?;
    }
    Ok(())
}

async fn pause_at(connection: &mut Connection, script: &Script, position: usize) -> Result<(), Gone> {
    match script.pause {
        Some((at, ms)) if at == position => connection.pause_ms(ms).await,
        _ => Ok(()),
    }
}
