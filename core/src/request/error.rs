//! Why a request body was refused.

use core::fmt;

/// Why a request body was refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
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
    /// A string above its bound.
    TooLong {
        /// The member's name.
        field: &'static str,
        /// Its bound, in bytes of UTF-8.
        max_bytes: usize,
    },
    /// A string with control characters.
    ControlCharacter(&'static str),
    /// A member that decides about cost or routing stands there twice: readers would disagree about which one counts.
    Duplicate(&'static str),
    /// A member whose name differs from such a member's only in case: servers that match names without case would read
    /// it, past the caps that were put on the exact name.
    Ambiguous(&'static str),
    /// A member that is served for streams only.
    NeedsStream(&'static str),
}

impl fmt::Display for RequestError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotJson => f.write_str("the body is not well-formed JSON"),
            Self::NotAnObject => f.write_str("the body is not a JSON object"),
            Self::Missing(field) => write!(f, "`{field}` is missing or empty"),
            Self::WrongType { field, expected } => write!(f, "`{field}` must be {expected}"),
            Self::OutOfRange(field) => write!(f, "`{field}` is out of range"),
            Self::TooLong { field, max_bytes } => write!(f, "`{field}` is longer than {max_bytes} bytes"),
            Self::ControlCharacter(field) => write!(f, "`{field}` contains control characters"),
            Self::Duplicate(field) => write!(f, "`{field}` is given more than once"),
            Self::NeedsStream(field) => write!(f, "`{field}` is served for streams only: set `stream` to true"),
            Self::Ambiguous(field) => write!(f, "a member differs from `{field}` only in case: write it as `{field}`"),
        }
    }
}

impl core::error::Error for RequestError {}
