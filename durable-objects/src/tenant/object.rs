//! The TenantObject.
#![allow(missing_docs, reason = "the object macro generates undocumented items")]

use super::Failure;
use super::account::Settings;
use super::store::Store;
use super::wake::Wake;
use crate::{clock, rpc};
use holdfast_core::wire::{TenantCall, TenantReply};
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};

/// One tenant. Its name is the tenant's id. The rules are in [`holdfast_core::tenant`].
#[durable_object(alarm)]
pub struct TenantObject {
    pub(super) env: Env,
    pub(super) store: Store,
    pub(super) settings: Settings,
    pub(super) wake: Wake,
}

impl DurableObject for TenantObject {
    fn new(state: State, env: Env) -> Self {
        let settings = Settings::new(state.id().name());
        Self { env, store: Store::new(state.storage()), settings, wake: Wake::new(state.storage()) }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let (call, _) = rpc::read_call::<TenantCall>(&mut request).await?;
        match self.answer(call).await {
            Ok(reply) => rpc::reply(&reply),
            Err(Failure::Refused(refusal)) => rpc::reply(&TenantReply::Refused { refusal }),
            Err(Failure::Broken(error)) => Err(error),
        }
    }

    /// Never fails: a platform that sees an alarm fail six times forgets it.
    async fn alarm(&self) -> Result<Response> {
        if let Err(error) = self.sweep().await {
            worker::console_error!("tenant sweep failed: {error}");
        }
        Response::empty()
    }
}

impl TenantObject {
    async fn answer(&self, call: TenantCall) -> core::result::Result<TenantReply, Failure> {
        // Before anything is read or written: a guessed tenant name or key leaves no trace.
        self.check_key(&call)?;
        self.wake.load().await?;
        // From here to the armed alarm nothing waits, so rows and alarm are stored together.
        let answer = self.apply(call, clock::now());
        if let Some(due) = self.store.earliest_due()? {
            self.wake.no_later_than(due, clock::now()).await?;
        }
        answer
    }
}
