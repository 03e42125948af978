//! `GET /v1/balance`: what a tenant has, holds and has spent.

use crate::ask;
use crate::caller::Bearer;
use crate::error::EdgeError;
use crate::respond;
use holdfast_core::wire::{TenantCall, TenantReply};
use worker::{Env, Request, Response};

/// Answers with balances and open holds.
///
/// # Errors
/// 401, 403, 503.
pub(crate) async fn show(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, request)?;
    let call = TenantCall::Balance { key: bearer.require_key(env).await? };
    match bearer.ask(env, &call).await? {
        TenantReply::Balance(balance) => respond::ok(&balance),
        _ => Err(ask::unexpected().into()),
    }
}
