//! Why a command was refused. A refusal changes nothing and leaves nothing held. Codes are stable: they are part of
//! the API. The edge alone turns them into status codes.

use crate::dialect::Dialect;
use alloc::string::{String, ToString};
use core::fmt;
use serde::{Deserialize, Serialize};

/// The stable name of [`Refusal::DetachedExceeded`], by which a reservation knows it.
pub const DETACHED_EXCEEDED: &str = "detached_exceeded";

/// A refused command. Within one door the variants stand in the order in which they are checked.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "refusal", rename_all = "snake_case")]
pub enum Refusal {
    /// The key is unknown, revoked or malformed.
    InvalidKey,
    /// The browser token counted once, and counts no more.
    TokenExpired,
    /// The page that asks was loaded from an origin that the tenant, or the token, does not allow.
    OriginNotAllowed,
    /// What was asked for takes a key, or a token with other limits.
    TokenNotAllowed,
    /// The token is limited to other routes.
    RouteNotAllowed,
    /// No token can be minted as it was asked for.
    InvalidTokenRequest {
        /// What is wrong, for the caller.
        fault: String,
    },
    /// The key may not do this: it takes one of role `admin`.
    RoleRequired,
    /// The tenant is suspended: nothing new runs.
    Suspended,
    /// No such tenant.
    UnknownTenant,
    /// The id or the digest belongs to another key of this tenant.
    KeyExists,
    /// The tenant has as many keys as it may have.
    TooManyKeys {
        /// How many.
        limit: usize,
    },
    /// A setting cannot be.
    InvalidSetting {
        /// Which and why.
        what: String,
    },
    /// The same generation id came with another request.
    IdentityConflict,
    /// The idempotency key was used with another body (RFC draft idempotency-key-header: 422).
    IdempotencyKeyReused,
    /// No route of the tenant takes this request.
    NoRoute,
    /// The route of the request goes to a provider that does not speak the dialect of the request's path.
    DialectMismatch {
        /// The dialect of the path.
        path: Dialect,
        /// The dialect that the provider speaks.
        provider: Dialect,
    },
    /// The provider's price list has no price for the model: its worst case cannot be held.
    ModelNotPriced {
        /// The model as the client named it.
        model: String,
    },
    /// The route does not let a request choose its disconnect policy.
    OverrideNotAllowed,
    /// The worst case is above what is available, or above what the period still allows.
    BudgetExhausted,
    /// Every slot is in use.
    ConcurrencyExceeded {
        /// The tenant's limit.
        limit: u32,
    },
    /// No such generation for this tenant.
    NotFound,
    /// The generation was resolved before it was started: it will never run.
    NeverStarted,
    /// It was cancelled before it was started. Unlike [`Refusal::NeverStarted`] it is not to be tried again.
    CancelledUnstarted,
    /// A write names an attempt that no longer owns. It changed nothing and was recorded.
    StaleEpoch {
        /// The epoch that owns now.
        current: u32,
    },
    /// The reservation's state does not allow this.
    WrongState {
        /// The state it is in.
        state: String,
    },
    /// An operator's action needs an id, an actor, a reason and a justification.
    JustificationRequired,
    /// The same action id came with another action.
    ActionConflict,
    /// The state has changed since it was looked at.
    VersionConflict {
        /// The version it has now.
        current: u64,
    },
    /// There is no such version of the configuration.
    UnknownConfigVersion,
    /// What is changed must be named by `If-Match` (RFC 6585: 428): two writers could otherwise undo each other.
    PreconditionRequired,
    /// It is not what `If-Match` names any more (RFC 9110: 412).
    PreconditionFailed,
    /// Only a dead letter is sent again.
    NotReplayable {
        /// The state that the delivery is in.
        state: String,
    },
    /// As many readers are attached as are allowed.
    TooManyReaders,
    /// The same posting id came with other content.
    PostingConflict,
    /// The hold was already resolved by another posting.
    AlreadyResolved,
    /// A posting overtook the one that it follows: it is applied when that one has come.
    NotResolvedYet,
    /// As many generations go on without a reader as may: `detached_max` of the configuration.
    DetachedExceeded {
        /// The tenant's limit.
        limit: u32,
    },
    /// An amount is out of range.
    AmountOutOfRange,
    /// The operator's settings cannot be served from. The reason is for the operator: it is logged and `/healthz` has it.
    Misconfigured {
        /// Where and why, without secrets.
        what: String,
    },
    /// A part of the system could not be reached; nothing was held.
    Unavailable {
        /// What was missing, without secrets.
        what: String,
    },
}

impl Refusal {
    /// The stable name.
    #[must_use]
    pub const fn code(&self) -> &'static str {
        match self {
            Self::InvalidKey => "invalid_api_key",
            Self::TokenExpired => "token_expired",
            Self::OriginNotAllowed => "origin_not_allowed",
            Self::TokenNotAllowed => "token_not_allowed",
            Self::RouteNotAllowed => "route_not_allowed",
            Self::InvalidTokenRequest { .. } => "invalid_token_request",
            Self::RoleRequired => "role_required",
            Self::Suspended => "tenant_suspended",
            Self::UnknownTenant => "unknown_tenant",
            Self::KeyExists => "key_exists",
            Self::TooManyKeys { .. } => "too_many_keys",
            Self::InvalidSetting { .. } => "invalid_setting",
            Self::IdentityConflict => "identity_conflict",
            Self::IdempotencyKeyReused => "idempotency_key_reused",
            Self::NoRoute => "no_route",
            Self::DialectMismatch { .. } => "dialect_mismatch",
            Self::ModelNotPriced { .. } => "model_not_priced",
            Self::OverrideNotAllowed => "override_not_allowed",
            Self::BudgetExhausted => "budget_exhausted",
            Self::ConcurrencyExceeded { .. } => "concurrency_exceeded",
            Self::NotFound => "not_found",
            Self::NeverStarted => "never_started",
            Self::CancelledUnstarted => "generation_cancelled",
            Self::StaleEpoch { .. } => "stale_epoch",
            Self::WrongState { .. } => "wrong_state",
            Self::JustificationRequired => "justification_required",
            Self::ActionConflict => "action_conflict",
            Self::VersionConflict { .. } => "version_conflict",
            Self::UnknownConfigVersion => "unknown_config_version",
            Self::PreconditionRequired => "precondition_required",
            Self::PreconditionFailed => "precondition_failed",
            Self::NotReplayable { .. } => "not_replayable",
            Self::TooManyReaders => "too_many_readers",
            Self::PostingConflict => "posting_conflict",
            Self::AlreadyResolved => "already_resolved",
            Self::NotResolvedYet => "not_resolved_yet",
            Self::DetachedExceeded { .. } => DETACHED_EXCEEDED,
            Self::AmountOutOfRange => "amount_out_of_range",
            Self::Misconfigured { .. } => "misconfigured",
            Self::Unavailable { .. } => "unavailable",
        }
    }

    /// Whether the same request may succeed later.
    #[must_use]
    pub const fn retryable(&self) -> bool {
        matches!(
            self,
            Self::ConcurrencyExceeded { .. }
                | Self::NeverStarted
                | Self::TooManyReaders
                | Self::NotResolvedYet
                | Self::Unavailable { .. }
        )
    }

    /// Whether a tenant that refused a posting for this reason will never apply it: its hold and its content decide,
    /// and neither changes any more. Delivering it again is of no use; somebody has to look at it. Everything else is
    /// delivered again: a posting that overtook another, an object that could not be reached or is not configured, and
    /// any answer that no posting should get.
    #[must_use]
    pub const fn is_permanent_for_posting(&self) -> bool {
        match self {
            // A hold is placed in the same object, before its reservation exists: it does not come later.
            Self::NotFound
            | Self::PostingConflict
            | Self::WrongState { .. }
            | Self::AlreadyResolved
            // Of no posting; the answer to a word about a place stands.
            | Self::DetachedExceeded { .. }
            | Self::AmountOutOfRange => true,
            Self::InvalidKey
            | Self::TokenExpired
            | Self::OriginNotAllowed
            | Self::TokenNotAllowed
            | Self::RouteNotAllowed
            | Self::InvalidTokenRequest { .. }
            | Self::RoleRequired
            | Self::Suspended
            | Self::UnknownTenant
            | Self::KeyExists
            | Self::TooManyKeys { .. }
            | Self::InvalidSetting { .. }
            | Self::IdentityConflict
            | Self::IdempotencyKeyReused
            | Self::NoRoute
            | Self::DialectMismatch { .. }
            | Self::ModelNotPriced { .. }
            | Self::OverrideNotAllowed
            | Self::BudgetExhausted
            | Self::ConcurrencyExceeded { .. }
            | Self::NeverStarted
            | Self::CancelledUnstarted
            | Self::StaleEpoch { .. }
            | Self::JustificationRequired
            | Self::ActionConflict
            | Self::VersionConflict { .. }
            | Self::UnknownConfigVersion
            | Self::PreconditionRequired
            | Self::PreconditionFailed
            | Self::NotReplayable { .. }
            | Self::TooManyReaders
            | Self::NotResolvedYet
            | Self::Misconfigured { .. }
            | Self::Unavailable { .. } => false,
        }
    }

    /// One sentence for the caller.
    #[must_use]
    pub fn message(&self) -> String {
        match self {
            Self::InvalidKey => "The API key is missing, malformed, unknown or revoked.".to_string(),
            Self::TokenExpired => "The token has expired; have a new one minted.".to_string(),
            Self::OriginNotAllowed => "Pages of this origin may not use this API.".to_string(),
            Self::TokenNotAllowed => "The token does not allow this.".to_string(),
            Self::RouteNotAllowed => "The token does not allow this route.".to_string(),
            Self::InvalidTokenRequest { fault } => alloc::format!("No such token can be minted: {fault}."),
            Self::RoleRequired => "This takes a key of role `admin`.".to_string(),
            Self::Suspended => "This tenant is suspended: nothing new is run.".to_string(),
            Self::UnknownTenant => "No such tenant.".to_string(),
            Self::KeyExists => "This key, or another under the same id, exists already.".to_string(),
            Self::TooManyKeys { limit } => alloc::format!("This tenant has {limit} keys, as many as it may have."),
            Self::InvalidSetting { what } => alloc::format!("This cannot be set: {what}."),
            Self::IdentityConflict => "This generation id belongs to another request.".to_string(),
            Self::IdempotencyKeyReused => "This Idempotency-Key was used with another request body.".to_string(),
            Self::NoRoute => "No route of this tenant takes this request.".to_string(),
            Self::DialectMismatch { path, provider } => alloc::format!(
                "This path is for clients of `{}`, and the route of this request goes to a provider of `{}`.",
                path.name(),
                provider.name()
            ),
            Self::ModelNotPriced { model } => {
                alloc::format!("Model `{model}` has no price at this route's provider, so its cost cannot be held.")
            }
            Self::OverrideNotAllowed => "This route does not accept Holdfast-On-Disconnect.".to_string(),
            Self::BudgetExhausted => {
                "The worst case of this request is above the credit that is available.".to_string()
            }
            Self::ConcurrencyExceeded { limit } => {
                alloc::format!("All {limit} concurrency slots are in use.")
            }
            Self::NotFound => "Nothing of that id exists.".to_string(),
            Self::NeverStarted => {
                "This generation was resolved before it was started; send the request again.".to_string()
            }
            Self::CancelledUnstarted => "This generation was cancelled before it was started.".to_string(),
            Self::StaleEpoch { current } => alloc::format!("Another attempt owns this generation (epoch {current})."),
            Self::WrongState { state } => alloc::format!("The generation is `{state}`."),
            Self::JustificationRequired => {
                "An operator's action needs an id, an actor, a reason code and a justification.".to_string()
            }
            Self::ActionConflict => "This action id was used for another action.".to_string(),
            Self::VersionConflict { current } => {
                alloc::format!("The reservation has changed since it was looked at; it is at version {current}.")
            }
            Self::UnknownConfigVersion => "There is no such version of the configuration.".to_string(),
            Self::PreconditionRequired => {
                "If-Match must name what is changed: read it first and send its ETag.".to_string()
            }
            Self::PreconditionFailed => {
                "It has changed since it was read: read it again and send its new ETag in If-Match.".to_string()
            }
            Self::NotReplayable { state } => {
                alloc::format!("This delivery is `{state}`; only a dead letter is sent again.")
            }
            Self::TooManyReaders => "Too many readers are attached to this generation.".to_string(),
            Self::PostingConflict => "This posting id was used with other content.".to_string(),
            Self::AlreadyResolved => "The hold is already resolved.".to_string(),
            Self::NotResolvedYet => "The posting that this one follows has not come yet.".to_string(),
            Self::DetachedExceeded { limit } => alloc::format!("{limit} generations go on without a reader already."),
            Self::AmountOutOfRange => "An amount is out of range.".to_string(),
            Self::Misconfigured { .. } => "The service is not configured correctly.".to_string(),
            Self::Unavailable { what } => alloc::format!("Temporarily unavailable: {what}."),
        }
    }
}

impl fmt::Display for Refusal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.code())
    }
}

impl From<crate::money::MoneyError> for Refusal {
    fn from(_: crate::money::MoneyError) -> Self {
        Self::AmountOutOfRange
    }
}
