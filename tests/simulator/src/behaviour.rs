//! The keys of a model name, `NAME?key=value&key=value`.
//!
//! NAME is `gen`, or anything that starts with `sim` or `gpt` (a generated
//! stream), or `recording/FILE` (a recorded one). Offsets count bytes of the
//! HTTP body as sent (compressed ones with `gzip=1`), without chunk framing.
//! An unknown key is an error 400: a typo in a test must not go unnoticed.
//!
//! | key | meaning (default) |
//! |---|---|
//! | `tokens` | number of content chunks (20) |
//! | `text=multibyte` | tokens with multi-byte characters and JSON escapes |
//! | `stamp=1` | every token is `t` and the monotonic clock in µs (16 digits) at its write; not with `text`, `split`, `cut`, `gzip` |
//! | `finish` | finish reason in the words of Chat Completions (`stop`); the other APIs say it in theirs |
//! | `prompt_tokens` (12), `completion_tokens` (= `tokens`), `cached_tokens` (0), `cache_write_tokens` (0), `reasoning_tokens` (0) | the reported usage, in the form of the API: parts of the prompt and of the completion, wherever the API writes them |
//! | `usage=none` | never reports usage, asked for or not |
//! | `error_after=n` | after n content chunks the API's error event in the stream, then a clean end without a terminal |
//! | `headers_ms` | delay before the head (0) |
//! | `first_ms` | delay between the head and the first body byte (0) |
//! | `interval_ms` | time between two events (0). An answer that is not streamed is delayed by `interval_ms` × `tokens` instead |
//! | `status` | answers this status with the API's error JSON |
//! | `retry_after`, `location` | the headers of that name |
//! | `split=n` | n bytes per write and HTTP chunk, regardless of events |
//! | `cut=k,k2,…` | writes and HTTP chunks end at these offsets, regardless of events |
//! | `coalesce=n` | n events per write and HTTP chunk (1) |
//! | `gap_ms` | pause between two writes, so that the peer sees them apart (0) |
//! | `gzip=1` | `Content-Encoding: gzip`, flushed after each event, although not asked for |
//! | `drop=1` | resets the connection instead of sending a head |
//! | `reset_at=k` | RST once exactly k body bytes have reached the peer's kernel |
//! | `fin_at=k` | FIN after k bytes, without the chunk terminator |
//! | `end_at=k` | clean chunked end after k bytes |
//! | `stall_at=k` | sends nothing more after k bytes, keeps the socket; with `stall_ms` goes on after that time |
//! | `times=n` | the first n requests of this tag go wrong as the other keys say; from then on none of `headers_ms`, `first_ms`, `error_after`, `status`, `retry_after`, `drop` and the `…_at` acts |
//! | `cancel` | of a background job: `stops` (default); `slow`: stops after `cancel_ms` (1000); `lost`: stops, and no answer comes; `void`: neither; `refused`: 403, and goes on |
//! | `lookups`, `resumes`, `cancels` | of a background job: planned answers to those questions, see [`crate::plan`]; an honest one to `cancels` is as `cancel` says |
//! | `callback`, `callbacks`, `callback_ms` | of a background job: what is called back at its end, see [`crate::callbacks`] |
//! | `endless=1` | a background job never ends: nothing comes after its last word |
//! | `tag` | free label for the log |
//!
//! If several of the faults that end an answer are given, the smallest offset
//! acts (at equal ones: reset, fin, end, stall). One beyond the end never acts;
//! one equal to the length acts before the chunk terminator.

use crate::plan::Plan;
use crate::refusal::Refusal;

/// More would make bodies of hundreds of megabytes.
const TOKENS_MAX: u64 = 1_000_000;

/// Where the body comes from.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Source {
    /// A generated answer.
    Generated,
    /// A recording, by its name without `.sse`.
    Recording(String),
}

/// A parsed model name. Times are in milliseconds, offsets in body bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
#[expect(missing_docs, reason = "each field is the key of that name, see the module's table")]
pub struct Behaviour {
    /// The part before `?`, which is the model that the answer names.
    pub name: String,
    pub source: Source,
    pub tokens: u64,
    pub multibyte: bool,
    pub stamp: bool,
    pub finish: String,
    pub prompt_tokens: u64,
    pub completion_tokens: Option<u64>,
    pub cached_tokens: u64,
    pub cache_write_tokens: u64,
    pub reasoning_tokens: u64,
    pub usage: bool,
    pub error_after: Option<u64>,
    pub headers_ms: u64,
    pub first_ms: u64,
    pub interval_ms: u64,
    pub status: Option<u16>,
    pub retry_after: Option<String>,
    pub location: Option<String>,
    pub split: Option<usize>,
    pub cut: Vec<usize>,
    pub coalesce: usize,
    pub gap_ms: u64,
    pub gzip: bool,
    pub drop: bool,
    pub reset_at: Option<usize>,
    pub fin_at: Option<usize>,
    pub end_at: Option<usize>,
    pub stall_at: Option<usize>,
    pub stall_ms: Option<u64>,
    pub times: Option<usize>,
    pub cancel: OnCancel,
    pub cancel_ms: u64,
    pub lookups: Plan,
    pub resumes: Plan,
    pub cancels: Plan,
    pub endless: bool,
    pub callback: OnEnd,
    pub callbacks: usize,
    pub callback_ms: u64,
}

/// What is called back about a background job.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the word of that name, see `crate::callbacks`")]
pub enum OnEnd {
    AtEnd,
    Early,
    Forged,
    Lost,
}

/// What a background job does when it is to be cancelled.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[expect(missing_docs, reason = "each is the word of that name, see the module's table")]
pub enum OnCancel {
    Stops,
    Slow,
    Lost,
    Void,
    Refused,
}

impl Behaviour {
    fn named(name: &str, source: Source) -> Self {
        Self {
            name: name.to_owned(),
            source,
            tokens: 20,
            multibyte: false,
            stamp: false,
            finish: "stop".to_owned(),
            prompt_tokens: 12,
            completion_tokens: None,
            cached_tokens: 0,
            cache_write_tokens: 0,
            reasoning_tokens: 0,
            usage: true,
            error_after: None,
            headers_ms: 0,
            first_ms: 0,
            interval_ms: 0,
            status: None,
            retry_after: None,
            location: None,
            split: None,
            cut: Vec::new(),
            coalesce: 1,
            gap_ms: 0,
            gzip: false,
            drop: false,
            reset_at: None,
            fin_at: None,
            end_at: None,
            stall_at: None,
            stall_ms: None,
            times: None,
            cancel: OnCancel::Stops,
            cancel_ms: 1_000,
            lookups: Plan::default(),
            resumes: Plan::default(),
            cancels: Plan::default(),
            endless: false,
            callback: OnEnd::AtEnd,
            callbacks: 1,
            callback_ms: 0,
        }
    }

    /// What the request does before which the tag was seen `earlier` times.
    pub(crate) fn at(self, earlier: usize) -> Self {
        if self.times.is_none_or(|times| earlier < times) {
            return self;
        }
        Self {
            headers_ms: 0,
            first_ms: 0,
            error_after: None,
            status: None,
            retry_after: None,
            drop: false,
            reset_at: None,
            fin_at: None,
            end_at: None,
            stall_at: None,
            ..self
        }
    }

    /// Reads a model name.
    pub(crate) fn parse(model: &str) -> Result<Self, Refusal> {
        let (name, keys) = model.split_once('?').unwrap_or((model, ""));
        let mut behaviour = Self::named(name, source_of(name)?);
        let mut seen = Vec::new();
        for pair in keys.split('&').filter(|pair| !pair.is_empty()) {
            let (key, value) =
                pair.split_once('=').ok_or_else(|| Refusal::invalid(format!("{pair:?} is not key=value")))?;
            if seen.contains(&key) {
                return Err(Refusal::invalid(format!("key {key} is given twice")));
            }
            seen.push(key);
            behaviour
                .set(key, value)
                .ok_or_else(|| Refusal::invalid(format!("unknown key or bad value: {key}={value}")))?;
        }
        behaviour.check_stamp()?;
        Ok(behaviour)
    }

    /// The output tokens that the usage reports, reasoning included.
    pub(crate) fn output_tokens(&self) -> u64 {
        self.completion_tokens.unwrap_or(self.tokens)
    }

    /// A stamp must be written at once, in a token of its own.
    fn check_stamp(&self) -> Result<(), Refusal> {
        let generated = self.source == Source::Generated && !self.multibyte;
        if !self.stamp || (generated && self.split.is_none() && self.cut.is_empty() && !self.gzip) {
            return Ok(());
        }
        Err(Refusal::invalid("stamp needs a generated stream without text, split, cut and gzip".to_owned()))
    }

    fn set(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "tokens" => self.tokens = number(value).filter(|n| *n <= TOKENS_MAX)?,
            "text" => self.multibyte = one_of(value, &[("multibyte", true), ("ascii", false)])?,
            "stamp" => self.stamp = one_of(value, &[("1", true), ("0", false)])?,
            "finish" => self.finish = value.to_owned(),
            "prompt_tokens" => self.prompt_tokens = number(value)?,
            "completion_tokens" => self.completion_tokens = Some(number(value)?),
            "cache_write_tokens" => self.cache_write_tokens = number(value)?,
            "cached_tokens" => self.cached_tokens = number(value)?,
            "reasoning_tokens" => self.reasoning_tokens = number(value)?,
            "usage" => self.usage = one_of(value, &[("none", false)])?,
            "error_after" => self.error_after = Some(number(value)?),
            "headers_ms" => self.headers_ms = number(value)?,
            "first_ms" => self.first_ms = number(value)?,
            "interval_ms" => self.interval_ms = number(value)?,
            "gap_ms" => self.gap_ms = number(value)?,
            "stall_ms" => self.stall_ms = Some(number(value)?),
            "times" => self.times = Some(number(value)?),
            "status" => self.status = Some(status(value)?),
            "retry_after" => self.retry_after = Some(header_value(value)?),
            "location" => self.location = Some(header_value(value)?),
            "callback" => self.callback = on_end(value)?,
            "callbacks" => self.callbacks = number(value)?,
            "callback_ms" => self.callback_ms = number(value)?,
            "cancel" => self.cancel = on_cancel(value)?,
            "cancel_ms" => self.cancel_ms = number(value)?,
            "lookups" => self.lookups = Plan::parse(value)?,
            "resumes" => self.resumes = Plan::parse(value)?,
            "cancels" => self.cancels = Plan::parse(value)?,
            "endless" => self.endless = one_of(value, &[("1", true), ("0", false)])?,
            // Only the log cares, see `tag`.
            "tag" => {}
            _ => return self.set_bytes(key, value),
        }
        Some(())
    }

    fn set_bytes(&mut self, key: &str, value: &str) -> Option<()> {
        match key {
            "split" => self.split = Some(number(value).filter(|n| *n > 0)?),
            "cut" => self.cut = value.split(',').map(number).collect::<Option<_>>()?,
            "coalesce" => self.coalesce = number(value).filter(|n| *n > 0)?,
            "gzip" => self.gzip = one_of(value, &[("1", true), ("0", false)])?,
            "drop" => self.drop = one_of(value, &[("1", true), ("0", false)])?,
            "reset_at" => self.reset_at = Some(number(value)?),
            "fin_at" => self.fin_at = Some(number(value)?),
            "end_at" => self.end_at = Some(number(value)?),
            "stall_at" => self.stall_at = Some(number(value)?),
            _ => return None,
        }
        Some(())
    }
}

/// The tag of a model name, even of one that is otherwise refused.
pub(crate) fn tag(model: &str) -> Option<&str> {
    let (_, keys) = model.split_once('?')?;
    keys.split('&').find_map(|pair| pair.strip_prefix("tag="))
}

fn source_of(name: &str) -> Result<Source, Refusal> {
    if let Some(file) = name.strip_prefix("recording/") {
        return Ok(Source::Recording(file.to_owned()));
    }
    if name == "gen" || name.starts_with("sim") || name.starts_with("gpt") {
        return Ok(Source::Generated);
    }
    Err(Refusal::not_found(
        format!("The model `{name}` does not exist or you do not have access to it."),
        Some("model_not_found"),
    ))
}

fn number<N: TryFrom<u64>>(value: &str) -> Option<N> {
    let digits = !value.is_empty() && value.bytes().all(|byte| byte.is_ascii_digit());
    let number: u64 = digits.then(|| value.parse().ok())??;
    N::try_from(number).ok()
}

fn status(value: &str) -> Option<u16> {
    number(value).filter(|status| *status == 200 || (300..=599).contains(status))
}

fn on_end(value: &str) -> Option<OnEnd> {
    let words = [("at_end", OnEnd::AtEnd), ("early", OnEnd::Early), ("forged", OnEnd::Forged), ("lost", OnEnd::Lost)];
    words.into_iter().find(|(word, _)| *word == value).map(|(_, meaning)| meaning)
}

fn on_cancel(value: &str) -> Option<OnCancel> {
    match value {
        "stops" => Some(OnCancel::Stops),
        "slow" => Some(OnCancel::Slow),
        "lost" => Some(OnCancel::Lost),
        "void" => Some(OnCancel::Void),
        "refused" => Some(OnCancel::Refused),
        _ => None,
    }
}

fn header_value(value: &str) -> Option<String> {
    let printable = value.bytes().all(|byte| (b' '..=b'~').contains(&byte));
    printable.then(|| value.to_owned())
}

fn one_of(value: &str, choices: &[(&str, bool)]) -> Option<bool> {
    choices.iter().find(|(name, _)| *name == value).map(|(_, meaning)| *meaning)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plain_name_has_the_defaults() {
        let behaviour = Behaviour::parse("gpt-4o-mini").unwrap();
        assert_eq!(behaviour, Behaviour::named("gpt-4o-mini", Source::Generated));
        assert_eq!(behaviour.tokens, 20);
    }

    #[test]
    fn keys_are_read() {
        let behaviour = Behaviour::parse("gen?tokens=3&cut=5,9&reset_at=40&split=7&tag=a b&usage=none").unwrap();
        assert_eq!(behaviour.tokens, 3);
        assert_eq!(behaviour.cut, vec![5, 9]);
        assert_eq!(behaviour.reset_at, Some(40));
        assert_eq!(behaviour.split, Some(7));
        assert_eq!(tag("gen?tokens=3&tag=a b&usage=none"), Some("a b"));
        assert!(!behaviour.usage);
    }

    #[test]
    fn what_goes_wrong_some_times() {
        let behaviour = Behaviour::parse("gen?tokens=3&times=2&drop=1&headers_ms=9&interval_ms=4").unwrap();
        for earlier in [0, 1] {
            assert_eq!(behaviour.clone().at(earlier), behaviour);
        }
        let later = behaviour.at(2);
        assert_eq!((later.drop, later.headers_ms, later.interval_ms, later.tokens), (false, 0, 4, 3));
        let always = Behaviour::parse("gen?drop=1").unwrap();
        assert!(always.at(1_000).drop);
    }

    #[test]
    fn mistakes_are_refused() {
        for model in [
            "gen?token=3",
            "gen?tokens=-1",
            "gen?tokens=+1",
            "gen?tokens=1000001",
            "gen?tokens",
            "gen?split=0",
            "gen?cut=",
            "gen?cut=1,,2",
            "gen?tokens=1&tokens=1",
            "gen?status=100",
            "gen?usage=some",
            "gen?stamp=yes",
            "gen?stamp=1&split=9",
            "gen?stamp=1&cut=9",
            "gen?stamp=1&gzip=1",
            "gen?stamp=1&text=multibyte",
            "recording/crlf?stamp=1",
        ] {
            assert_eq!(Behaviour::parse(model).unwrap_err().status, 400, "{model}");
        }
        assert_eq!(Behaviour::parse("claude").unwrap_err().status, 404);
        assert_eq!(Behaviour::parse("general").unwrap_err().status, 404);
    }
}
