//! What is generated: the words of an answer, and the answers in the form of each API.

pub(crate) mod chat;
pub(crate) mod embeddings;
pub(crate) mod gemini;
pub(crate) mod messages;
pub(crate) mod responses;

use serde_json::Value;

use crate::api::Api;
use crate::behaviour::Behaviour;
use crate::script::Ask;
use crate::stamp;

/// A fixed creation time, so that bodies depend on nothing but the request.
const CREATED: u64 = 1_790_000_000;

const WORDS: &[&str] = &[
    "the", "river", "keeps", "its", "own", "time", "and", "every", "bridge", "holds", "what", "passes", "over", "it",
    "until", "morning", "light", "comes", "back", "again",
];

/// Two to four byte characters, joined and combining ones, and what JSON must escape.
const MULTIBYTE_WORDS: &[&str] = &[
    "é",
    "grüße",
    "Ω",
    "日本語",
    "한국어",
    "👋",
    "👨‍👩‍👧",
    "e\u{301}",
    "🇸🇪",
    "\n",
    "\"quoted\"",
    "\\",
    "नमस्ते",
    "\u{1F680}",
    "€",
    "\u{2028}",
    "العربية",
    "\t",
    "𝒳",
    "plain",
];

/// Body bytes with the offsets at which their events end.
#[derive(Debug, Default, Clone, PartialEq, Eq)]
pub(crate) struct Events {
    pub(crate) bytes: Vec<u8>,
    pub(crate) ends: Vec<usize>,
}

impl Events {
    /// One event, which is the whole body.
    pub(crate) fn single(bytes: Vec<u8>) -> Self {
        let ends = vec![bytes.len()];
        Self { bytes, ends }
    }

    pub(crate) fn push(&mut self, parts: &[&str]) {
        for part in parts {
            self.bytes.extend_from_slice(part.as_bytes());
        }
        self.ends.push(self.bytes.len());
    }
}

/// The answer to a request: a stream of events, or one document.
pub(crate) fn answer(ask: Ask<'_>, behaviour: &Behaviour) -> Events {
    let (model, stream) = (ask.model, ask.stream);
    match ask.api {
        Api::Chat | Api::Completions if stream => chat::stream(ask.api, behaviour, model, ask.include_usage),
        Api::Chat | Api::Completions => chat::completion(ask.api, behaviour, model),
        Api::Embeddings => embeddings::list(behaviour, ask.base64),
        Api::Responses if stream => responses::stream(behaviour, model, ask.background),
        Api::Responses => responses::document(behaviour, model, ask.background),
        Api::Messages if stream => messages::stream(behaviour, model),
        Api::Messages => messages::document(behaviour, model),
        Api::Gemini if stream => gemini::stream(behaviour, model),
        Api::Gemini => gemini::document(behaviour, model),
    }
}

/// The id of an answer: a pure function of the model name, and different for different ones.
pub(crate) fn operation_id(api: Api, model: &str) -> String {
    format!("{}sim{:016x}", api.id_prefix(), hash(model))
}

/// FNV-1a with a final mix, because its high bits alone are weak on short inputs.
fn hash(text: &str) -> u64 {
    let fnv = text
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |state, byte| (state ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    let mixed = (fnv ^ (fnv >> 32)).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    mixed ^ (mixed >> 29)
}

/// The words of an answer, by number. They depend on the name before the `?` alone, so
/// that adding a fault to a model moves no byte offset.
fn tokens(behaviour: &Behaviour) -> impl Iterator<Item = usize> + use<> {
    let count = words(behaviour).len() as u64;
    let mut state = hash(&behaviour.name);
    (0..behaviour.tokens).map(move |_| {
        // The multiplier and increment are Knuth's, for the 64 bit generator of MMIX.
        state = state.wrapping_mul(6_364_136_223_846_793_005);
        state = state.wrapping_add(1_442_695_040_888_963_407);
        usize::try_from((state >> 33) % count).unwrap_or(0)
    })
}

fn words(behaviour: &Behaviour) -> &'static [&'static str] {
    if behaviour.stamp {
        &[stamp::PLACEHOLDER]
    } else if behaviour.multibyte {
        MULTIBYTE_WORDS
    } else {
        WORDS
    }
}

/// The text of an answer in pieces as JSON strings, quotes included: a word each, with a space in front but for the first.
fn pieces(behaviour: &Behaviour) -> impl Iterator<Item = String> + use<> {
    let words = words(behaviour);
    tokens(behaviour).enumerate().map(move |(position, word)| {
        let space = if position == 0 { "" } else { " " };
        Value::from([space, words[word]].concat()).to_string()
    })
}

/// The whole text of an answer.
fn text(behaviour: &Behaviour) -> String {
    let words = words(behaviour);
    tokens(behaviour).map(|word| words[word]).collect::<Vec<_>>().join(" ")
}

/// An answer in one piece.
fn whole(answer: &Value) -> Events {
    Events::single(format!("{answer:#}\n").into_bytes())
}

/// What a provider says when it gives up in the middle of an answer.
const SERVER_ERROR: &str = "The server had an error while processing your request. Sorry about that!";
