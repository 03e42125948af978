//! Everything that can go wrong at the edge, before it is turned into a response.

use holdfast_core::ids::Identity;
use holdfast_core::refusal::Refusal;
use holdfast_core::request::RequestError;
use std::borrow::Cow;

/// Why a request was not served. Messages never hold keys, prompts or ids of other tenants.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum EdgeError {
    /// No such path.
    UnknownPath,
    /// The path is there, the method is not.
    MethodNotAllowed {
        /// The method that is.
        allow: &'static [&'static str],
    },
    /// The body is not plain `application/json`.
    UnsupportedMediaType {
        /// What is wrong with it.
        fault: &'static str,
    },
    /// The body is larger than it may be.
    BodyTooLarge {
        /// The bound.
        max_bytes: u64,
    },
    /// The body was not whole in time.
    RequestTimeout {
        /// The time it had.
        body_ms: u64,
    },
    /// The body, a header or the query cannot be served.
    InvalidRequest {
        /// What is wrong with it.
        fault: Cow<'static, str>,
    },
    /// `Idempotency-Key` is not one.
    InvalidIdempotencyKey,
    /// The place to read from is not an offset.
    InvalidCursor,
    /// A callback that its provider has not signed, or not just now.
    NotSigned,
    /// The tenant's document cannot be served from.
    InvalidConfig {
        /// How many errors it has.
        count: u64,
        /// All of them, a JSON list.
        errors: String,
        /// What works, and hardly as it was meant: a JSON list.
        warnings: String,
    },
    /// Refused by the rules, or a part of the system is missing.
    Refused(Refusal),
    /// Admitted, and not served. What is still held is resolved by the generation, or by the tenant's sweep if it never
    /// started.
    Unserved {
        /// What happened.
        error: Box<Self>,
        /// What it may be looked up by.
        identity: Box<Identity>,
    },
    /// The generation runs: there is no result yet.
    Running,
    /// The reader's cursor lies beyond the end of the log.
    BeyondEnd {
        /// Where the log ends.
        log_length: u64,
    },
    /// The stored output was deleted.
    ContentDeleted,
    /// This deployment cannot serve, for a reason that only the operator's probe is told.
    Unhealthy {
        /// Where and why.
        reason: String,
    },
    /// A fault of Holdfast itself.
    Internal,
}

impl EdgeError {
    /// A fault of the request, in words.
    pub(crate) fn invalid(fault: impl Into<Cow<'static, str>>) -> Self {
        Self::InvalidRequest { fault: fault.into() }
    }

    /// The stable name; part of the API.
    pub(crate) fn code(&self) -> &'static str {
        match self {
            Self::UnknownPath => "unknown_path",
            Self::MethodNotAllowed { .. } => "method_not_allowed",
            Self::UnsupportedMediaType { .. } => "unsupported_media_type",
            Self::BodyTooLarge { .. } => "body_too_large",
            Self::RequestTimeout { .. } => "request_timeout",
            Self::InvalidRequest { .. } => "invalid_request",
            Self::InvalidIdempotencyKey => "invalid_idempotency_key",
            Self::InvalidCursor => "invalid_cursor",
            Self::NotSigned => "invalid_signature",
            Self::InvalidConfig { .. } => "invalid_config",
            Self::Refused(refusal) => refusal.code(),
            Self::Unserved { error, .. } => error.code(),
            Self::Running => "running",
            Self::BeyondEnd { .. } => "beyond_end",
            Self::ContentDeleted => "content_deleted",
            Self::Unhealthy { .. } => "misconfigured",
            Self::Internal => "internal_error",
        }
    }

    /// Whether the same request may succeed later.
    pub(crate) fn retryable(&self) -> bool {
        match self {
            Self::Refused(refusal) => refusal.retryable(),
            Self::Unserved { error, .. } => error.retryable(),
            Self::Running | Self::RequestTimeout { .. } => true,
            _ => false,
        }
    }

    /// One sentence for the caller.
    pub(crate) fn message(&self) -> String {
        match self {
            Self::UnknownPath => "There is nothing at this path.".into(),
            Self::MethodNotAllowed { allow } => format!("This path takes {} only.", allow.join(" and ")),
            Self::UnsupportedMediaType { fault } => format!("The body must be plain application/json: {fault}."),
            Self::BodyTooLarge { max_bytes } => format!("The body is larger than {max_bytes} bytes."),
            Self::RequestTimeout { body_ms } => format!("The body was not whole within {body_ms} ms."),
            Self::InvalidRequest { fault } => format!("The request cannot be served: {fault}."),
            Self::InvalidIdempotencyKey => {
                "Idempotency-Key must be 1 to 255 visible ASCII characters, quoted or not.".into()
            }
            Self::InvalidCursor => {
                "The offset or last event id must be one whole decimal number, as it was given in an answer.".into()
            }
            Self::NotSigned => {
                "The callback is not signed with the secret of this provider, or its timestamp is not of now.".into()
            }
            Self::InvalidConfig { count: 1, .. } => "The configuration has an error; nothing was changed.".into(),
            Self::InvalidConfig { count, .. } => {
                format!("The configuration has {count} errors; nothing was changed.")
            }
            Self::Refused(refusal) => refusal.message(),
            Self::Unserved { error, .. } => error.message(),
            Self::Running => "The generation is not at its end yet.".into(),
            Self::BeyondEnd { log_length } => format!("The log ends at byte {log_length}, before this offset."),
            Self::ContentDeleted => "The stored output of this generation was deleted.".into(),
            Self::Unhealthy { reason } => format!("Settings: {reason}."),
            Self::Internal => "Something broke inside Holdfast.".into(),
        }
    }
}

impl From<Refusal> for EdgeError {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<RequestError> for EdgeError {
    fn from(error: RequestError) -> Self {
        Self::invalid(error.to_string())
    }
}

impl From<worker::Error> for EdgeError {
    /// An error of the platform where none is expected.
    fn from(error: worker::Error) -> Self {
        worker::console_error!("unexpected platform error: {error}");
        Self::Internal
    }
}
