//! A Chat Completions request: the facts that admission needs, and the few edits that the proxy makes.
//!
//! Everything that is not edited stays byte for byte as the client wrote it.

use alloc::vec::Vec;
use core::fmt;

/// The largest `n` (choices per request) that is accepted; OpenAI's own bound.
pub const CHOICES_MAX: u64 = 128;

/// Why a request body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestError {
    /// Not well-formed JSON in UTF-8.
    NotJson,
    /// JSON, but not an object.
    NotAnObject,
    /// A required member is absent or empty.
    Missing(&'static str),
    /// A member has the wrong type.
    WrongType {
        /// The member's name.
        field: &'static str,
        /// What it should be, in words.
        expected: &'static str,
    },
    /// A number outside its bounds.
    OutOfRange(&'static str),
    /// A member that decides about cost or routing stands there twice: readers would disagree about which one counts.
    Duplicate(&'static str),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("the body is not well-formed JSON"),
            Self::NotAnObject => f.write_str("the body is not a JSON object"),
            Self::Missing(field) => write!(f, "`{field}` is missing or empty"),
            Self::WrongType { field, expected } => write!(f, "`{field}` must be {expected}"),
            Self::OutOfRange(field) => write!(f, "`{field}` is out of range"),
            Self::Duplicate(field) => write!(f, "`{field}` is given more than once"),
        }
    }
}

impl core::error::Error for RequestError {}

/// The edits to make. See [`ChatRequest::rewrite`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rewrite<'a> {
    /// Cap on the output tokens of one choice.
    pub max_output_tokens: Option<u64>,
    /// Member that carries the cap when the client gave none: `max_completion_tokens` or `max_tokens`.
    pub field_if_absent: &'a str,
    /// Ask for the usage event (streams only).
    pub include_usage: bool,
}

/// A request body that was understood. Borrows the body.
#[derive(Debug, Clone)]
pub struct ChatRequest<'a> {
    body: &'a str,
}

impl<'a> ChatRequest<'a> {
    /// Reads a body.
    ///
    /// # Errors
    /// The first reason for which it cannot be served.
    pub fn parse(body: &'a [u8]) -> Result<Self, RequestError> {
        core::str::from_utf8(body).map(|body| Self { body }).map_err(|_| RequestError::NotJson)
    }

    /// The model's name; never empty.
    #[must_use]
    pub fn model(&self) -> &str {
        self.body
    }

    /// Whether a stream was asked for.
    #[must_use]
    pub const fn stream(&self) -> bool {
        false
    }

    /// The client's own cap on output tokens per choice: the larger of `max_completion_tokens` and `max_tokens`.
    #[must_use]
    pub const fn max_output_tokens(&self) -> Option<u64> {
        None
    }

    /// Number of choices asked for, 1 to [`CHOICES_MAX`]. The cap on output tokens holds for each.
    #[must_use]
    pub const fn n(&self) -> u64 {
        1
    }

    /// Whether the client itself asked for the usage event of a stream.
    #[must_use]
    pub const fn include_usage(&self) -> bool {
        false
    }

    /// The body to send upstream.
    #[must_use]
    pub fn rewrite(&self, _edits: &Rewrite<'_>) -> Vec<u8> {
        self.body.as_bytes().to_vec()
    }
}
