//! Which tokens were minted: a record for whoever must answer for them, and the place where one is ended before its time.
//!
//! The latest ones of a tenant are kept, until a day after they ended; one that was revoked at least until its own end. A
//! token that is not among them any more ends with its key or by itself, within the hour.

use super::{Claims, Credential, May};
use crate::ids::{GenerationId, TokenId};
use crate::refusal::Refusal;
use crate::tenant::account::Role;
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// So many of the latest are kept.
pub const MINTED_MAX: u32 = 10_000;

/// For so long after its end a token is kept, in milliseconds.
pub const MINTED_KEPT_MS: u64 = 86_400_000;

/// A token as stored. What it says is no secret; its signature is not here.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Minted {
    /// What it says.
    pub claims: Claims,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<UnixMillis>,
}

/// Who acts on tokens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum By<'a> {
    /// A key, by its id and role.
    Key(&'a str, Role),
    /// A token: it may end itself.
    Token(&'a TokenId),
}

impl By<'_> {
    /// Whether the token exists for it: a key of role `admin` has all of its tenant, any other those that it minted, a
    /// token itself.
    #[must_use]
    pub fn has(&self, token: &Claims) -> bool {
        match self {
            Self::Key(_, Role::Admin) => true,
            Self::Key(key, Role::Client) => token.key == **key,
            Self::Token(id) => token.id == **id,
        }
    }
}

impl Minted {
    /// A token that was minted just now.
    #[must_use]
    pub const fn new(claims: Claims) -> Self {
        Self { claims, revoked_at: None }
    }

    /// The token after it was revoked. The first time stands.
    #[must_use]
    pub fn revoked(self, now: UnixMillis) -> Self {
        Self { revoked_at: self.revoked_at.or(Some(now)), ..self }
    }
}

/// Whether a credential stands, as far as tokens are concerned. `minted` is the stored row of its token.
///
/// # Errors
/// [`Refusal::InvalidKey`] for a token that was revoked, as for a key.
pub fn check_minted(asks: &Credential, minted: Option<&Minted>) -> Result<(), Refusal> {
    let revoked = asks.token().and(minted).is_some_and(|minted| minted.revoked_at.is_some());
    if revoked { Err(Refusal::InvalidKey) } else { Ok(()) }
}

/// A token as the API shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenView<'a> {
    /// `token`.
    pub object: &'static str,
    /// Its name.
    pub id: &'a TokenId,
    /// The key that minted it.
    pub key_id: &'a str,
    /// What it allows.
    pub may: May,
    /// Its routes; all when empty.
    pub routes: &'a [String],
    /// Its origins; all that the tenant allows when empty.
    pub origins: &'a [String],
    /// The only generation that exists for it.
    pub generation_id: Option<&'a GenerationId>,
    /// When it was minted.
    pub issued_at: UnixMillis,
    /// When it ends.
    pub expires_at: UnixMillis,
    /// When it was revoked.
    pub revoked_at: Option<UnixMillis>,
}

impl<'a> From<&'a Minted> for TokenView<'a> {
    fn from(Minted { claims, revoked_at }: &'a Minted) -> Self {
        Self {
            object: "token",
            id: &claims.id,
            key_id: &claims.key,
            may: claims.may,
            routes: &claims.routes,
            origins: &claims.origins,
            generation_id: claims.generation.as_ref(),
            issued_at: claims.issued_at,
            expires_at: claims.expires_at,
            revoked_at: *revoked_at,
        }
    }
}

/// A page of tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct TokenPage<'a> {
    /// `list`.
    pub object: &'static str,
    /// The latest first.
    pub data: Vec<TokenView<'a>>,
    /// There are more behind them.
    pub has_more: bool,
}
