//! Which members of a body decide about cost or routing, by API.

use super::Endpoint;
use alloc::vec::Vec;
use serde_json::value::RawValue;

/// Where Gemini keeps the settings of a generation.
pub(super) const GENERATION_CONFIG: &str = "generationConfig";

/// The members of one API.
pub(super) struct Form {
    /// What is read strictly: once, and in one spelling.
    pub(super) decisive: &'static [&'static str],
    /// Caps on the output tokens of one answer.
    pub(super) caps: &'static [&'static str],
    /// The cap that is inserted where the client gave none; the provider's own setting decides where absent.
    pub(super) cap_if_absent: Option<&'static str>,
    /// How many answers are made of one prompt; the largest counts.
    pub(super) choices: &'static [&'static str],
    /// The member that may hold several prompts.
    pub(super) prompts: Option<&'static str>,
    /// The object that holds caps and choices, in its two spellings: both are understood by the provider.
    pub(super) config: Option<[&'static str; 2]>,
    /// Whether there is `stream_options.include_usage`.
    pub(super) stream_options: bool,
}

const PLAIN: Form = Form {
    decisive: &["model", "stream"],
    caps: &[],
    cap_if_absent: None,
    choices: &[],
    prompts: None,
    config: None,
    stream_options: false,
};

const CHAT: Form = Form {
    decisive: &["model", "stream", "max_completion_tokens", "max_tokens", "n", "stream_options"],
    caps: &["max_completion_tokens", "max_tokens"],
    choices: &["n"],
    stream_options: true,
    ..PLAIN
};

/// `best_of` answers are made and billed, however few of them are shown; and each prompt of a list gets its own.
const COMPLETIONS: Form = Form {
    decisive: &["model", "stream", "max_tokens", "n", "best_of", "prompt", "stream_options"],
    caps: &["max_tokens"],
    cap_if_absent: Some("max_tokens"),
    choices: &["n", "best_of"],
    prompts: Some("prompt"),
    stream_options: true,
    ..PLAIN
};

const RESPONSES: Form = Form {
    decisive: &["model", "stream", "max_output_tokens", "background", "store", "stream_options"],
    caps: &["max_output_tokens"],
    cap_if_absent: Some("max_output_tokens"),
    ..PLAIN
};

const MESSAGES: Form = Form {
    decisive: &["model", "stream", "max_tokens"],
    caps: &["max_tokens"],
    cap_if_absent: Some("max_tokens"),
    ..PLAIN
};

/// Protobuf's JSON takes a member under both its names.
const GEMINI: Form = Form {
    decisive: &["model", GENERATION_CONFIG, "generation_config"],
    caps: &["maxOutputTokens", "max_output_tokens"],
    cap_if_absent: Some("maxOutputTokens"),
    choices: &["candidateCount", "candidate_count"],
    config: Some([GENERATION_CONFIG, "generation_config"]),
    ..PLAIN
};

impl Endpoint {
    pub(super) const fn form(self) -> &'static Form {
        match self {
            Self::ChatCompletions => &CHAT,
            Self::Completions => &COMPLETIONS,
            Self::Embeddings => &PLAIN,
            Self::Responses => &RESPONSES,
            Self::Messages => &MESSAGES,
            Self::GenerateContent | Self::StreamGenerateContent => &GEMINI,
        }
    }
}

/// How many prompts a `prompt` holds: a list of texts or of token lists holds as many as it has; a list of tokens is one.
pub(super) fn prompts(raw: &RawValue) -> u64 {
    let items: Vec<&RawValue> = serde_json::from_str(raw.get()).unwrap_or_default();
    let several = items.iter().filter(|item| item.get().starts_with(['"', '['])).count();
    u64::try_from(several).unwrap_or(u64::MAX).max(1)
}
