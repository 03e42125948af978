//! What a request asks: the text by which two requests are found to ask the same.

use super::{Endpoint, GenerationRequest};
use alloc::string::String;
use alloc::vec::Vec;
use serde::Deserialize;
use serde_json::value::RawValue;

/// Longest text that is looked at, in bytes: of a longer one its two ends, since a long prompt has its document in front
/// and its question behind, or the other way round. It bounds the time that a signature takes.
pub const QUESTION_MAX_BYTES: usize = 4 << 10;

/// How APIs name the model's own turns.
const ASSISTANT: [&str; 2] = [r#""assistant""#, r#""model""#];
/// The same in every request of a product: they would make all questions alike.
const INSTRUCTIONS: [&str; 2] = [r#""system""#, r#""developer""#];

#[derive(Deserialize)]
struct Message<'a> {
    #[serde(borrow)]
    role: Option<&'a RawValue>,
    #[serde(borrow)]
    content: Option<&'a RawValue>,
    /// Gemini's content.
    #[serde(borrow)]
    parts: Option<&'a RawValue>,
}

#[derive(Deserialize)]
struct Part {
    text: Option<String>,
}

#[derive(Deserialize)]
#[serde(untagged)]
enum Content {
    Text(String),
    Parts(Vec<Part>),
}

impl Message<'_> {
    fn has_role(&self, roles: &[&str]) -> bool {
        self.role.is_some_and(|found| roles.contains(&found.get()))
    }

    fn text(&self) -> String {
        let content = self.content.or(self.parts);
        match content.and_then(|content| serde_json::from_str(content.get()).ok()) {
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                parts.into_iter().filter_map(|part| part.text).collect::<Vec<_>>().join("\n")
            }
            None => String::new(),
        }
    }
}

impl GenerationRequest<'_> {
    /// What is new in this turn: the text of the messages behind the last answer of the assistant, without instructions.
    /// The turns before it are sent again with every turn and would make all turns look alike. An answer that the client
    /// has begun itself (a prefill) is no turn.
    ///
    /// Empty where there is no text, or none that this version understands: then nothing is found to be the same.
    #[must_use]
    pub fn question(&self) -> String {
        let member = match self.endpoint {
            Endpoint::ChatCompletions | Endpoint::Messages => "messages",
            Endpoint::Completions => "prompt",
            Endpoint::Responses => "input",
            Endpoint::GenerateContent | Endpoint::StreamGenerateContent => "contents",
            // Nobody asks twice for a vector.
            Endpoint::Embeddings => return String::new(),
        };
        let asked = self.members.get(member).map(RawValue::get).unwrap_or_default();
        let plain = matches!(self.endpoint, Endpoint::Completions | Endpoint::Responses);
        if let Some(text) = serde_json::from_str::<String>(asked).ok().filter(|_| plain) {
            return both_ends(&text);
        }
        let messages: Vec<Message<'_>> = serde_json::from_str(asked).unwrap_or_default();
        let prefill = |message: &&Message<'_>| message.has_role(&ASSISTANT);
        let turn = messages.iter().rev().skip_while(prefill).take_while(|message| !message.has_role(&ASSISTANT));
        let mut texts: Vec<String> = turn
            .filter(|message| !message.has_role(&INSTRUCTIONS))
            .map(Message::text)
            .filter(|text| !text.is_empty())
            .collect();
        texts.reverse();
        both_ends(&texts.join("\n"))
    }
}

fn both_ends(text: &str) -> String {
    let half = QUESTION_MAX_BYTES / 2;
    if text.len() <= QUESTION_MAX_BYTES {
        return text.into();
    }
    let head = text.get(..text.floor_char_boundary(half)).unwrap_or_default();
    let tail = text.get(text.ceil_char_boundary(text.len().saturating_sub(half))..).unwrap_or_default();
    [head, " ", tail].concat()
}
