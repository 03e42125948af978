//! The script of an answer: which bytes, in which writes, and how it ends.

use std::io::Write;

use flate2::Compression;
use flate2::write::GzEncoder;

use crate::api::Api;
use crate::behaviour::{Behaviour, Source};
use crate::generate::{self, Events};
use crate::log::End;
use crate::recordings::{self, Recordings};
use crate::refusal::Refusal;
use crate::stamp;

/// What a request asks for, as far as the answer depends on it.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Ask<'a> {
    pub(crate) api: Api,
    pub(crate) model: &'a str,
    pub(crate) stream: bool,
    pub(crate) include_usage: bool,
    /// Embeddings as Base64.
    pub(crate) base64: bool,
    /// In the background: see [`crate::jobs`].
    pub(crate) background: bool,
}

/// An answer, ready to be played.
#[derive(Debug)]
pub(crate) struct Script {
    pub(crate) status: u16,
    /// All but the ones that frame the body.
    pub(crate) headers: Vec<(&'static str, String)>,
    /// Whether the body is sent in chunks rather than with a content-length.
    pub(crate) chunked: bool,
    /// The whole body, as if there were no fault.
    pub(crate) events: Events,
    /// Where the stamps start that are filled in when they are written.
    pub(crate) stamps: Vec<usize>,
    /// Where each write ends, in rising order. The last one ends where sending ends.
    pub(crate) writes: Vec<usize>,
    /// How the answer ends after the last write.
    pub(crate) end: End,
    /// A pause in the middle: at this offset, for so many milliseconds.
    pub(crate) pause: Option<(usize, u64)>,
    pub(crate) headers_ms: u64,
    pub(crate) first_ms: u64,
    pub(crate) interval_ms: u64,
    pub(crate) gap_ms: u64,
    /// Resets the connection instead of sending anything.
    pub(crate) drop: bool,
}

impl Script {
    /// Writes the script for a request.
    pub(crate) fn new(ask: Ask<'_>, behaviour: &Behaviour, recordings: &Recordings) -> Result<Self, Refusal> {
        let status = behaviour.status.unwrap_or(200);
        let streamed = ask.stream && status == 200;
        let mut events = events(ask, behaviour, recordings)?;
        let mut headers = headers(ask, behaviour, streamed);
        if behaviour.gzip {
            events = compress(&events);
            headers.push(("content-encoding", "gzip".to_owned()));
        }
        let total = events.bytes.len();
        let (stop, end) = match behaviour.endless {
            _ if behaviour.drop => (0, End::Reset),
            // An earlier fault acts first.
            true if ask.background => {
                let words = usize::try_from(behaviour.tokens).unwrap_or(usize::MAX).saturating_add(4);
                let last = events.ends.get(words.saturating_sub(1)).copied().unwrap_or(total);
                let (stop, end) = ending(behaviour, total);
                if stop < last { (stop, end) } else { (last, End::Stalled) }
            }
            _ => ending(behaviour, total),
        };
        let pause = behaviour.stall_at.zip(behaviour.stall_ms);
        let generation_ms = match (behaviour.status, streamed) {
            (None, false) => behaviour.interval_ms.saturating_mul(behaviour.tokens),
            _ => 0,
        };
        Ok(Self {
            status,
            headers,
            // Only a chunked body can end early and cleanly.
            chunked: streamed || end == End::Cut,
            writes: write_ends(behaviour, &events, stop, pause.map(|(at, _)| at)),
            stamps: if behaviour.stamp && streamed { stamp::offsets(&events.bytes) } else { Vec::new() },
            events,
            end,
            pause,
            headers_ms: behaviour.headers_ms.saturating_add(generation_ms),
            first_ms: behaviour.first_ms,
            interval_ms: behaviour.interval_ms,
            gap_ms: behaviour.gap_ms,
            drop: behaviour.drop,
        })
    }

    /// The answer to a request that is refused.
    pub(crate) fn refusal(api: Api, refusal: &Refusal) -> Self {
        let events = Events::single(refusal.body(api));
        Self {
            status: refusal.status,
            headers: vec![("content-type", "application/json".to_owned())],
            chunked: false,
            writes: events.ends.clone(),
            stamps: Vec::new(),
            events,
            end: End::Complete,
            pause: None,
            headers_ms: 0,
            first_ms: 0,
            interval_ms: 0,
            gap_ms: 0,
            drop: false,
        }
    }

    /// The body bytes that will be sent, faults considered.
    pub(crate) fn sent(&self) -> &[u8] {
        let length = self.writes.last().copied().unwrap_or(0);
        &self.events.bytes[..length]
    }
}

fn events(ask: Ask<'_>, behaviour: &Behaviour, recordings: &Recordings) -> Result<Events, Refusal> {
    if let Some(status) = behaviour.status.filter(|status| *status != 200) {
        return Ok(Events::single(Refusal::for_status(status).body(ask.api)));
    }
    match &behaviour.source {
        Source::Generated => Ok(generate::answer(ask, behaviour)),
        Source::Recording(name) => {
            let recording = recordings
                .get(name)
                .ok_or_else(|| Refusal::not_found(format!("no recording {name}"), Some("model_not_found")))?;
            if ask.stream {
                return Ok(recordings::stream(recording, behaviour.usage));
            }
            recordings::completion(recording, behaviour.usage)
                .ok_or_else(|| Refusal::invalid(format!("recording {name} can only be streamed")))
        }
    }
}

fn headers(ask: Ask<'_>, behaviour: &Behaviour, streamed: bool) -> Vec<(&'static str, String)> {
    let content_type = if streamed { "text/event-stream; charset=utf-8" } else { "application/json" };
    let id = generate::operation_id(Api::Gemini, ask.model);
    let mut headers = vec![
        ("content-type", content_type.to_owned()),
        ("cache-control", "no-cache".to_owned()),
        ("set-cookie", "__cf_bm=simulated; path=/; HttpOnly; Secure".to_owned()),
    ];
    match ask.api {
        Api::Messages => headers.extend([
            ("request-id", format!("req_{id}")),
            ("anthropic-organization-id", "org-simulated".to_owned()),
            ("anthropic-ratelimit-requests-remaining", "999".to_owned()),
        ]),
        Api::Gemini => headers.push(("server-timing", "gfet4t7; dur=7".to_owned())),
        _ => headers.extend([
            ("openai-version", "2020-10-01".to_owned()),
            ("openai-organization", "org-simulated".to_owned()),
            ("openai-processing-ms", "7".to_owned()),
            ("x-request-id", format!("req_{id}")),
        ]),
    }
    if let Some(value) = &behaviour.retry_after {
        headers.push(("retry-after", value.clone()));
        // What the SDKs of OpenAI and Anthropic read before anything else.
        headers.push(("x-should-retry", "true".to_owned()));
    }
    if let Some(value) = &behaviour.location {
        headers.push(("location", value.clone()));
    }
    headers
}

/// Compresses event by event, so that each one can be read as soon as it arrives.
fn compress(events: &Events) -> Events {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::default());
    let mut ends = Vec::with_capacity(events.ends.len());
    let mut start = 0;
    let written: std::io::Result<Vec<u8>> = (|| {
        for end in &events.ends {
            encoder.write_all(&events.bytes[start..*end])?;
            encoder.flush()?;
            ends.push(encoder.get_ref().len());
            start = *end;
        }
        encoder.finish()
    })();
    let bytes = written.expect("writing to memory does not fail");
    if let Some(last) = ends.last_mut() {
        *last = bytes.len();
    }
    Events { bytes, ends }
}

/// Where sending stops, and how the answer ends there.
fn ending(behaviour: &Behaviour, total: usize) -> (usize, End) {
    let stall_at = behaviour.stall_at.filter(|_| behaviour.stall_ms.is_none());
    [
        (behaviour.reset_at, End::Reset),
        (behaviour.fin_at, End::Fin),
        (behaviour.end_at, End::Cut),
        (stall_at, End::Stalled),
    ]
    .into_iter()
    .filter_map(|(at, end)| at.map(|at| (at, end)))
    .filter(|(at, _)| *at <= total)
    .min_by_key(|(at, _)| *at)
    .unwrap_or((total, End::Complete))
}

fn write_ends(behaviour: &Behaviour, events: &Events, stop: usize, pause: Option<usize>) -> Vec<usize> {
    let mut ends: Vec<usize> = Vec::new();
    if let Some(step) = behaviour.split {
        ends.extend((step..stop).step_by(step));
    }
    ends.extend(&behaviour.cut);
    if behaviour.split.is_none() && behaviour.cut.is_empty() {
        ends.extend(events.ends.chunks(behaviour.coalesce).filter_map(<[usize]>::last));
    }
    ends.extend(pause);
    ends.push(stop);
    ends.retain(|end| *end > 0 && *end <= stop);
    ends.sort_unstable();
    ends.dedup();
    ends
}

#[cfg(test)]
mod tests {
    use super::*;

    fn script(model: &str) -> Script {
        let behaviour = Behaviour::parse(model).unwrap();
        let ask = Ask { api: Api::Chat, model, stream: true, include_usage: false, base64: false, background: false };
        Script::new(ask, &behaviour, &Recordings::load(None).unwrap()).unwrap()
    }

    #[test]
    fn writes_follow_events_or_what_is_asked_for() {
        let plain = script("gen?tokens=4");
        let total = plain.events.bytes.len();
        assert_eq!(plain.writes, plain.events.ends);
        let pairs = script("gen?tokens=4&coalesce=2");
        assert_eq!(pairs.writes.len(), 4);
        assert_eq!(script("gen?tokens=4&split=100").writes[..3], [100, 200, 300]);
        assert_eq!(script("gen?tokens=4&cut=7,3,9999999").writes, vec![3, 7, total]);
        assert_eq!(script("gen?tokens=4&split=100&reset_at=250").writes, vec![100, 200, 250]);
        assert_eq!(script("gen?reset_at=0").writes, Vec::<usize>::new());
    }

    #[test]
    fn the_first_fault_acts() {
        let script_end = |model: &str| (script(model).sent().len(), script(model).end);
        assert_eq!(script_end("gen?fin_at=9&reset_at=10"), (9, End::Fin));
        assert_eq!(script_end("gen?fin_at=9&reset_at=9"), (9, End::Reset));
        assert_eq!(script_end("gen?end_at=9&stall_at=3"), (3, End::Stalled));
        assert_eq!(script_end("gen?end_at=9&stall_at=3&stall_ms=1"), (9, End::Cut));
        let total = script("gen").events.bytes.len();
        assert_eq!(script_end(&format!("gen?fin_at={total}")), (total, End::Fin));
        assert_eq!(script_end(&format!("gen?fin_at={}", total + 1)), (total, End::Complete));
    }
}
