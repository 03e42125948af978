//! `GET /v1/balance`: what a tenant has, holds and has spent.

use crate::ask;
use crate::caller::Caller;
use crate::error::EdgeError;
use crate::respond;
use holdfast_core::wire::{TenantCall, TenantReply};
use worker::{Env, Request, Response};

/// Answers with balances and open holds.
///
/// # Errors
/// 401, 503.
pub(crate) async fn show(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let caller = Caller::of(env, request.headers())?;
    match ask::tenant(env, &caller.tenant, &TenantCall::Balance { key: caller.key }).await? {
        TenantReply::Balance(balance) => respond::ok(&balance),
        _ => Err(ask::unexpected().into()),
    }
}
