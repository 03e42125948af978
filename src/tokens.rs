//! `/v1/tokens`: mints browser tokens, lists them, ends one. The tenant's object decides what a token says; the edge, which
//! has the key, signs.

use crate::caller::Bearer;
use crate::error::EdgeError;
use crate::query::{GivenTwice, parameter};
use crate::{ask, body, respond};
use holdfast_core::ids::TokenId;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{TenantCall, TenantReply, TokensCall};
use holdfast_objects::settings;
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;
use worker::{Env, Request, Response};

/// Tokens of one page, where nothing else is asked for.
const PAGE: u32 = 50;
/// Tokens of one page at most.
const PAGE_MAX: u32 = 100;

/// The one answer that holds a token.
#[derive(Serialize)]
struct Minted {
    id: TokenId,
    token: String,
    expires_at: UnixMillis,
}

/// Mints a token for the holder of a key, of any role.
///
/// # Errors
/// 400, 401, 403 with a token, 404 for a generation that is not the tenant's, 408, 413, 415, 503.
pub(crate) async fn mint(mut request: Request, env: &Env) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, &request)?;
    let key = bearer.require_key(env).await?;
    let body = body::read_json(&mut request, &settings::limits(env)?).await?;
    let request = String::from_utf8(body).map_err(|_| EdgeError::invalid("it is not UTF-8"))?;
    let id = TokenId::from_random(Uuid::new_v4().into_bytes());
    let call = TenantCall::MintToken { key, id: id.clone(), request };
    match bearer.ask(env, &call).await? {
        TenantReply::Granted(granted) => {
            let token = settings::token_key(env)?.mint(&granted);
            respond::created(&Minted { id, token, expires_at: granted.expires_at })
        }
        _ => Err(ask::unexpected().into()),
    }
}

/// `GET /v1/tokens?before=ID&limit=N`: what was minted, the latest first. A key that is no admin's sees its own.
///
/// # Errors
/// 400, 401, 403 with a token, 503.
pub(crate) async fn list(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, request)?;
    let _key = bearer.require_key(env).await?;
    let url = request.url()?;
    let query =
        |name| parameter(&url, name).map_err(|GivenTwice| EdgeError::invalid(format!("`{name}` is given twice")));
    let before = query("before")?.map(|id| TokenId::parse(&id)).transpose().map_err(|_| EdgeError::InvalidCursor)?;
    let limit = match query("limit")? {
        Some(text) => text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)),
        None => Some(PAGE),
    };
    let limit = limit.ok_or_else(|| EdgeError::invalid(format!("`limit` must be from 1 to {PAGE_MAX}")))?;
    respond::ok(&act(&bearer, env, TokensCall::List { before, limit }).await?)
}

/// `DELETE /v1/tokens/{id}`: from the next request on, the token is not accepted. A token may end itself.
///
/// # Errors
/// 401, 404 for one that is not the caller's, 503.
pub(crate) async fn revoke(request: &Request, env: &Env, id: &str) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, request)?;
    respond::ok(&act(&bearer, env, TokensCall::Revoke { id: id.into() }).await?)
}

/// The document that the tenant's object answers with.
async fn act(bearer: &Bearer, env: &Env, action: TokensCall) -> Result<Box<RawValue>, EdgeError> {
    match bearer.ask(env, &TenantCall::Tokens { key: bearer.credential.clone(), action }).await? {
        TenantReply::Tokens { document } => RawValue::from_string(document).map_err(|_| EdgeError::Internal),
        _ => Err(ask::unexpected().into()),
    }
}
