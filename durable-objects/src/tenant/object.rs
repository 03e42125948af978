//! The platform's side of the TenantObject.
#![allow(missing_docs, reason = "the object macro generates undocumented items")]

use super::{Failure, Tenant};
use crate::rpc;
use holdfast_core::wire::{TenantCall, TenantReply};
use std::panic::AssertUnwindSafe;
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};

/// One tenant. Its name is the tenant's id. The rules are in [`holdfast_core::tenant`].
#[durable_object(alarm)]
pub struct TenantObject {
    // After a panic in one call the others go on. What they share in memory are caches, each written in one step; the
    // rows of the call that panicked were rolled back.
    tenant: AssertUnwindSafe<Tenant>,
}

impl DurableObject for TenantObject {
    fn new(state: State, env: Env) -> Self {
        Self { tenant: AssertUnwindSafe(Tenant::new(&state, env)) }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let (call, _) = rpc::read_call::<TenantCall>(&mut request).await?;
        let page = rpc::page_of(&request);
        match self.tenant.answer(call, page).await {
            Ok(reply) => rpc::reply(&reply),
            Err(Failure::Refused(refusal)) => rpc::reply(&TenantReply::Refused { refusal }),
            Err(Failure::Broken(error)) => Err(error),
        }
    }

    /// Never fails: a platform that sees an alarm fail six times forgets it.
    async fn alarm(&self) -> Result<Response> {
        if let Err(error) = self.tenant.sweep().await {
            worker::console_error!("tenant sweep failed: {error}");
        }
        Response::empty()
    }
}
