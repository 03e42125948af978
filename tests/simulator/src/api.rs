//! The APIs that are played, each at its own paths.
//!
//! | name | paths | dialect |
//! |---|---|---|
//! | `chat` | `/v1/chat/completions` | `openai-chat` |
//! | `completions` | `/v1/completions` | `openai-chat` |
//! | `embeddings` | `/v1/embeddings` | `openai-chat` |
//! | `responses` | `/v1/responses` | `openai-responses` |
//! | `messages` | `/v1/messages` | `anthropic-messages` |
//! | `gemini` | `/v1beta/models/MODEL:generateContent`, `…:streamGenerateContent?alt=sse`; MODEL percent-encoded | `gemini` |

use crate::http::Head;
use crate::refusal::Refusal;
use serde_json::Value;

const GEMINI_PREFIX: &str = "/v1beta/models/";

/// An API that is played.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Api {
    /// OpenAI Chat Completions.
    Chat,
    /// OpenAI's older Completions.
    Completions,
    /// OpenAI embeddings, which are never streamed.
    Embeddings,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Gemini.
    Gemini,
}

impl Api {
    /// All of them.
    pub const ALL: [Self; 6] =
        [Self::Chat, Self::Completions, Self::Embeddings, Self::Responses, Self::Messages, Self::Gemini];

    /// Those that stream.
    pub const STREAMING: [Self; 5] = [Self::Chat, Self::Completions, Self::Responses, Self::Messages, Self::Gemini];

    /// Its name, as in the table above.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Chat => "chat",
            Self::Completions => "completions",
            Self::Embeddings => "embeddings",
            Self::Responses => "responses",
            Self::Messages => "messages",
            Self::Gemini => "gemini",
        }
    }

    /// Its dialect.
    #[must_use]
    pub const fn dialect(self) -> &'static str {
        match self {
            Self::Chat | Self::Completions | Self::Embeddings => "openai-chat",
            Self::Responses => "openai-responses",
            Self::Messages => "anthropic-messages",
            Self::Gemini => "gemini",
        }
    }

    /// The API of a dialect.
    ///
    /// # Panics
    /// When there is none.
    #[must_use]
    pub fn of_dialect(dialect: &str) -> Self {
        let found = [Self::Chat, Self::Responses, Self::Messages, Self::Gemini]
            .into_iter()
            .find(|api| api.dialect() == dialect);
        found.unwrap_or_else(|| panic!("no API of dialect {dialect}"))
    }

    pub(crate) fn named(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|api| api.name() == name)
    }

    /// The API of a path.
    pub(crate) fn at(path: &str) -> Option<Self> {
        match path {
            "/v1/chat/completions" => Some(Self::Chat),
            "/v1/completions" => Some(Self::Completions),
            "/v1/embeddings" => Some(Self::Embeddings),
            "/v1/responses" => Some(Self::Responses),
            "/v1/messages" => Some(Self::Messages),
            _ => gemini_action(path).map(|_| Self::Gemini),
        }
    }

    /// How ids of its answers begin.
    pub(crate) const fn id_prefix(self) -> &'static str {
        match self {
            Self::Chat => "chatcmpl-",
            Self::Completions => "cmpl-",
            Self::Embeddings | Self::Gemini => "",
            Self::Responses => "resp_",
            Self::Messages => "msg_",
        }
    }

    /// The header that carries a client's key, and the key.
    pub(crate) fn credential(self, head: &Head) -> Option<(&'static str, &str)> {
        let shown = |name: &'static str| head.header(name).map(|value| (name, value));
        match self {
            Self::Messages => shown("x-api-key").or_else(|| shown("authorization")),
            Self::Gemini => shown("x-goog-api-key"),
            _ => shown("authorization"),
        }
    }

    /// Any key will do, but there must be one, where the API wants it.
    pub(crate) fn check_credential(self, head: &Head) -> Result<(), Refusal> {
        let Some((header, value)) = self.credential(head) else { return Err(Refusal::for_status(401)) };
        let shown = match value.split_once(' ') {
            _ if header != "authorization" => !value.is_empty(),
            Some((scheme, key)) => scheme.eq_ignore_ascii_case("bearer") && !key.trim().is_empty(),
            None => false,
        };
        if shown { Ok(()) } else { Err(Refusal::for_status(401)) }
    }

    /// The model that a request names: in its body, or in its path.
    pub(crate) fn model(self, head: &Head, body: &Value) -> Option<String> {
        match self {
            Self::Gemini => gemini_action(&head.path).map(|(model, _)| model),
            _ => body["model"].as_str().map(str::to_owned),
        }
    }

    /// Whether a request asks for a stream.
    pub(crate) fn asks_for_stream(self, head: &Head, body: &Value) -> bool {
        match self {
            Self::Gemini => gemini_action(&head.path).is_some_and(|(_, streams)| streams),
            Self::Embeddings => false,
            _ => body["stream"] == true,
        }
    }

    /// What must be there besides the model.
    pub(crate) fn check(self, head: &Head, body: &Value) -> Result<(), Refusal> {
        let missing = |name: &str| Refusal::invalid(format!("Missing required parameter: '{name}'."));
        match self {
            Self::Chat | Self::Messages if !body["messages"].is_array() => Err(missing("messages")),
            Self::Messages if !body["max_tokens"].is_u64() => Err(missing("max_tokens")),
            Self::Messages if head.header("anthropic-version").is_none() => {
                Err(Refusal::invalid("anthropic-version: header is required"))
            }
            Self::Completions if body["prompt"].is_null() => Err(missing("prompt")),
            Self::Embeddings | Self::Responses if body["input"].is_null() => Err(missing("input")),
            Self::Gemini if !body["contents"].is_array() => Err(missing("contents")),
            Self::Gemini if self.asks_for_stream(head, body) && head.query("alt") != Some("sse") => {
                Err(Refusal::invalid("this simulator streams with alt=sse only"))
            }
            _ => Ok(()),
        }
    }
}

/// Model and action of a Gemini path; true for a stream.
fn gemini_action(path: &str) -> Option<(String, bool)> {
    let (model, action) = path.strip_prefix(GEMINI_PREFIX)?.rsplit_once(':')?;
    let streams = match action {
        "generateContent" => false,
        "streamGenerateContent" => true,
        _ => return None,
    };
    Some((percent_decoded(model), streams))
}

fn percent_decoded(text: &str) -> String {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        let digits = tail.get(..2).and_then(|pair| std::str::from_utf8(pair).ok());
        match digits.filter(|_| *first == b'%').and_then(|pair| u8::from_str_radix(pair, 16).ok()) {
            Some(byte) => {
                bytes.push(byte);
                rest = &tail[2..];
            }
            None => {
                bytes.push(*first);
                rest = tail;
            }
        }
    }
    String::from_utf8_lossy(&bytes).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_have_their_api() {
        for api in Api::ALL {
            assert_eq!(Api::named(api.name()), Some(api));
        }
        assert_eq!(Api::at("/v1/messages"), Some(Api::Messages));
        assert_eq!(Api::at("/v1/messages/count_tokens"), None);
        assert_eq!(Api::at("/v1beta/models/m:streamGenerateContent"), Some(Api::Gemini));
        assert_eq!(Api::at("/v1beta/models/m:countTokens"), None);
        let read = |path| gemini_action(path);
        assert_eq!(
            read("/v1beta/models/gen%3Ftokens%3D3%26tag%3Da:streamGenerateContent"),
            Some(("gen?tokens=3&tag=a".to_owned(), true))
        );
        assert_eq!(read("/v1beta/models/a%2Fb:generateContent"), Some(("a/b".to_owned(), false)));
    }
}
