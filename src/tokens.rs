//! `POST /v1/tokens`: mints a browser token. The tenant's object decides what it says; the edge, which has the key, signs.

use crate::caller::Bearer;
use crate::error::EdgeError;
use crate::{ask, body, respond};
use holdfast_core::ids::TokenId;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{TenantCall, TenantReply};
use holdfast_objects::settings;
use serde::Serialize;
use uuid::Uuid;
use worker::{Env, Request, Response};

/// The one answer that holds a token.
#[derive(Serialize)]
struct Minted {
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
    let call = TenantCall::MintToken { key, id, request };
    match bearer.ask(env, &call).await? {
        TenantReply::Granted(granted) => {
            let token = settings::token_key(env)?.mint(&granted);
            respond::created(&Minted { token, expires_at: granted.expires_at })
        }
        _ => Err(ask::unexpected().into()),
    }
}
