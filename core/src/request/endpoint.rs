//! The paths that are served to SDKs, and what each of them is.
//!
//! | path | dialect | model and stream |
//! |---|---|---|
//! | `/v1/chat/completions` | `openai-chat` | in the body |
//! | `/v1/completions` | `openai-chat` | in the body |
//! | `/v1/embeddings` | `openai-chat` | in the body; never a stream |
//! | `/v1/responses` | `openai-responses` | in the body |
//! | `/v1/messages` | `anthropic-messages` | in the body |
//! | `/v1beta/models/{model}:generateContent` | `gemini` | in the path; no stream |
//! | `/v1beta/models/{model}:streamGenerateContent` | `gemini` | in the path; a stream, with `alt=sse` |

use crate::dialect::Dialect;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;

/// A path that is served.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Endpoint {
    /// OpenAI Chat Completions.
    ChatCompletions,
    /// OpenAI's older Completions.
    Completions,
    /// OpenAI embeddings: held and settled, never streamed, and without output.
    Embeddings,
    /// OpenAI Responses.
    Responses,
    /// Anthropic Messages.
    Messages,
    /// Gemini, an answer in one piece.
    GenerateContent,
    /// Gemini, a stream of server-sent events.
    StreamGenerateContent,
}

const GEMINI_PREFIX: &str = "/v1beta/models/";
const GENERATE: &str = "generateContent";
const STREAM_GENERATE: &str = "streamGenerateContent";

impl Endpoint {
    /// All of them.
    pub const ALL: [Self; 7] = [
        Self::ChatCompletions,
        Self::Completions,
        Self::Embeddings,
        Self::Responses,
        Self::Messages,
        Self::GenerateContent,
        Self::StreamGenerateContent,
    ];

    /// The path as routes match it: that of Gemini has `{model}` in the place of the model's name.
    #[must_use]
    pub const fn pattern(self) -> &'static str {
        match self {
            Self::ChatCompletions => "/v1/chat/completions",
            Self::Completions => "/v1/completions",
            Self::Embeddings => "/v1/embeddings",
            Self::Responses => "/v1/responses",
            Self::Messages => "/v1/messages",
            Self::GenerateContent => "/v1beta/models/{model}:generateContent",
            Self::StreamGenerateContent => "/v1beta/models/{model}:streamGenerateContent",
        }
    }

    /// What is served at a request's path, a query left out.
    #[must_use]
    pub fn at(path: &str) -> Option<Self> {
        let path = path.split('?').next().unwrap_or_default();
        if let Some(rest) = path.strip_prefix(GEMINI_PREFIX) {
            let names_one = |model: &str| !model.is_empty() && !model.contains('/');
            let (_, action) = rest.rsplit_once(':').filter(|(model, _)| names_one(model))?;
            return match action {
                GENERATE => Some(Self::GenerateContent),
                STREAM_GENERATE => Some(Self::StreamGenerateContent),
                _ => None,
            };
        }
        Self::ALL.into_iter().find(|endpoint| endpoint.pattern() == path)
    }

    /// The path that routes match for a request's path; the path itself where nothing is served.
    #[must_use]
    pub fn pattern_of(path: &str) -> &str {
        match Self::at(path) {
            Some(endpoint) => endpoint.pattern(),
            None => path,
        }
    }

    /// The dialect that its clients speak.
    #[must_use]
    pub const fn dialect(self) -> Dialect {
        match self {
            Self::ChatCompletions | Self::Completions | Self::Embeddings => Dialect::OpenaiChat,
            Self::Responses => Dialect::OpenaiResponses,
            Self::Messages => Dialect::AnthropicMessages,
            Self::GenerateContent | Self::StreamGenerateContent => Dialect::Gemini,
        }
    }

    /// Whether a provider of this dialect can serve it: one that speaks the path's own, or one whose answers are not read.
    #[must_use]
    pub fn is_spoken_by(self, dialect: Dialect) -> bool {
        dialect == self.dialect() || dialect == Dialect::Opaque
    }

    /// Whether output tokens are made.
    #[must_use]
    pub const fn has_output(self) -> bool {
        !matches!(self, Self::Embeddings)
    }

    /// Whether the path alone says that the answer is a stream, or is none.
    #[must_use]
    pub const fn streams_by_path(self) -> Option<bool> {
        match self {
            Self::GenerateContent => Some(false),
            Self::StreamGenerateContent => Some(true),
            _ => None,
        }
    }

    /// Whether a stream tells its usage only to who asks for it, in an event of its own.
    #[must_use]
    pub const fn has_usage_event(self) -> bool {
        matches!(self, Self::ChatCompletions | Self::Completions)
    }

    /// The model that the path names, decoded; `None` where the body names it. A name that is no UTF-8 is an empty one.
    #[must_use]
    pub fn model_in(self, path: &str) -> Option<String> {
        let rest = path.split('?').next()?.strip_prefix(GEMINI_PREFIX)?;
        let (model, _) = rest.rsplit_once(':')?;
        self.streams_by_path().map(|_| percent_decoded(model).unwrap_or_default())
    }

    /// The path of a request for this model, here and at the provider: written in one way, whatever way the client wrote
    /// it in, so that one request has one path.
    #[must_use]
    pub fn path_for(self, model: &str) -> String {
        match self {
            Self::GenerateContent => format!("{GEMINI_PREFIX}{}:{GENERATE}", percent_encoded(model)),
            Self::StreamGenerateContent => format!("{GEMINI_PREFIX}{}:{STREAM_GENERATE}", percent_encoded(model)),
            _ => self.pattern().into(),
        }
    }

    /// What is asked for at the provider: the path, and the query that makes a stream one of server-sent events. Nothing
    /// of the client's own query is in it, keys least of all.
    #[must_use]
    pub fn target(path: &str) -> String {
        match Self::at(path) {
            Some(Self::StreamGenerateContent) => format!("{path}?alt=sse"),
            _ => path.into(),
        }
    }
}

fn percent_decoded(text: &str) -> Option<String> {
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let Some((first, tail)) = rest.split_first() {
        rest = tail;
        if *first != b'%' {
            bytes.push(*first);
            continue;
        }
        let (digits, behind) = tail.split_at_checked(2)?;
        let digits = core::str::from_utf8(digits).ok().filter(|digits| !digits.starts_with('+'))?;
        bytes.push(u8::from_str_radix(digits, 16).ok()?);
        rest = behind;
    }
    String::from_utf8(bytes).ok()
}

/// Everything but what a path segment may hold unescaped without doubt.
fn percent_encoded(text: &str) -> String {
    text.bytes().fold(String::with_capacity(text.len()), |mut encoded, byte| {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => encoded.push(char::from(byte)),
            _ => encoded.push_str(&format!("%{byte:02X}")),
        }
        encoded
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths_are_told_apart() {
        for endpoint in Endpoint::ALL {
            let path = endpoint.path_for("a b/c?d");
            assert_eq!(Endpoint::at(&path), Some(endpoint), "{path}");
            assert_eq!(Endpoint::at(&Endpoint::target(&path)), Some(endpoint), "{path}");
            assert_eq!(Endpoint::pattern_of(&path), endpoint.pattern());
            let model = endpoint.streams_by_path().map(|_| String::from("a b/c?d"));
            assert_eq!(endpoint.model_in(&path), model, "{path}");
        }
        for other in [
            "/v1/chat/completions/",
            "/v1/models",
            "/v1beta/models",
            "/v1beta/models/m",
            "/v1beta/models/:generateContent",
            "/v1beta/models/m:countTokens",
            "/v1beta/models/a/b:generateContent",
            "/v1beta/tunedModels/m:generateContent",
            "",
        ] {
            assert_eq!(Endpoint::at(other), None, "{other}");
            assert_eq!(Endpoint::pattern_of(other), other);
        }
    }

    #[test]
    fn one_model_has_one_path() {
        let endpoint = Endpoint::StreamGenerateContent;
        for spelling in ["gemini-2.5-pro", "gemini%2D2.5-pro", "gemini%2d2.5%2dpro"] {
            let path = format!("/v1beta/models/{spelling}:streamGenerateContent?alt=sse&key=k");
            let model = endpoint.model_in(&path).unwrap();
            assert_eq!(endpoint.path_for(&model), "/v1beta/models/gemini-2.5-pro:streamGenerateContent");
        }
        assert_eq!(endpoint.model_in("/v1beta/models/%zz:streamGenerateContent").as_deref(), Some(""));
        assert_eq!(endpoint.model_in("/v1beta/models/%+1:streamGenerateContent").as_deref(), Some(""));
        assert_eq!(endpoint.model_in("/v1beta/models/%ff:streamGenerateContent").as_deref(), Some(""));
        assert_eq!(endpoint.path_for("../x"), "/v1beta/models/..%2Fx:streamGenerateContent");
    }

    #[test]
    fn a_stream_of_gemini_is_asked_for_as_events() {
        assert_eq!(
            Endpoint::target("/v1beta/models/m:streamGenerateContent"),
            "/v1beta/models/m:streamGenerateContent?alt=sse"
        );
        assert_eq!(Endpoint::target("/v1beta/models/m:generateContent"), "/v1beta/models/m:generateContent");
        assert_eq!(Endpoint::target("/v1/messages"), "/v1/messages");
    }
}
