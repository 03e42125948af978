//! The few request headers that a client may send on to a provider: which version of an API it speaks, and which of its
//! beta features it wants. Keys, cookies and whatever else a client sends stay here.

use crate::dialect::Dialect;
use alloc::collections::BTreeMap;
use alloc::string::String;

/// A longer value is not sent on.
pub const FORWARDED_VALUE_MAX_BYTES: usize = 1_024;

/// The names that may be sent on, by any dialect.
pub const FORWARDED: [&str; 3] = ["anthropic-beta", "anthropic-version", "openai-beta"];

/// Whether a provider of the dialect gets the header: a name that the dialect knows, with a value of visible ASCII.
#[must_use]
pub fn may_be_forwarded(dialect: Dialect, name: &str, value: &str) -> bool {
    let known = match dialect {
        Dialect::AnthropicMessages => matches!(name, "anthropic-beta" | "anthropic-version"),
        Dialect::OpenaiChat | Dialect::OpenaiResponses => name == "openai-beta",
        Dialect::Gemini | Dialect::Opaque => false,
    };
    let plain = value.bytes().all(|byte| byte == b' ' || byte.is_ascii_graphic());
    known && plain && !value.is_empty() && value.len() <= FORWARDED_VALUE_MAX_BYTES
}

/// Those of a client's headers that a provider of the dialect gets.
#[must_use]
pub fn forwarded(dialect: Dialect, headers: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let known = headers.iter().filter(|(name, value)| may_be_forwarded(dialect, name, value));
    known.map(|(name, value)| (name.clone(), value.clone())).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_dialect_gets_what_it_knows() {
        let long = "v".repeat(FORWARDED_VALUE_MAX_BYTES + 1);
        for (dialect, name, value, goes) in [
            (Dialect::AnthropicMessages, "anthropic-version", "2023-06-01", true),
            (Dialect::AnthropicMessages, "anthropic-beta", "a-1, b-2", true),
            (Dialect::AnthropicMessages, "openai-beta", "x", false),
            (Dialect::AnthropicMessages, "x-api-key", "x", false),
            (Dialect::AnthropicMessages, "anthropic-beta", "a\r\nx: y", false),
            (Dialect::AnthropicMessages, "anthropic-beta", "é", false),
            (Dialect::AnthropicMessages, "anthropic-beta", "", false),
            (Dialect::AnthropicMessages, "anthropic-beta", &long, false),
            (Dialect::OpenaiChat, "openai-beta", "assistants=v2", true),
            (Dialect::OpenaiResponses, "openai-beta", "x", true),
            (Dialect::OpenaiResponses, "anthropic-beta", "x", false),
            (Dialect::Gemini, "openai-beta", "x", false),
            (Dialect::Opaque, "anthropic-version", "x", false),
        ] {
            assert_eq!(may_be_forwarded(dialect, name, value), goes, "{dialect:?} {name} {value:?}");
        }
    }
}
