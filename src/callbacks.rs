//! `POST /v1/callbacks/{tenant}/{provider}`: a provider says that an operation has ended. No key: the signature is the
//! proof, by the secret that the operator has agreed on with the provider (Standard Webhooks, see
//! [`holdfast_core::signature`]).
//!
//! A callback is acknowledged once its effect is stored: in its generation, or parked with the tenant until the operation
//! is named there. Whoever is not told so sends it again, and the same event has one effect.

use crate::error::EdgeError;
use crate::request_headers::header;
use crate::{ask, body, respond};
use holdfast_core::callback::{self, BODY_MAX_BYTES, CallbackEvent};
use holdfast_core::config::Provider;
use holdfast_core::evidence::Disposition;
use holdfast_core::ids::{Identity, TenantId};
use holdfast_core::refusal::Refusal;
use holdfast_core::signature::{ID_HEADER, SIGNATURE_HEADER, SignedHeaders, TIMESTAMP_HEADER, verify};
use holdfast_core::wire::{GenerationCall, GenerationReply, OperationCall, OperationReply, TenantCall, TenantReply};
use holdfast_objects::rpc::Answer;
use holdfast_objects::{clock, settings};
use serde::Serialize;
use worker::{Env, Request, Response};

/// What became of a callback.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize)]
#[serde(rename_all = "snake_case")]
enum Taken {
    /// Its generation has handled it, now or before.
    Handled,
    /// Its operation is not known yet: it waits.
    Parked,
    /// It is about no operation of ours.
    PassedOver,
}

#[derive(Serialize)]
struct Receipt {
    object: &'static str,
    status: Taken,
    #[serde(skip_serializing_if = "Option::is_none")]
    disposition: Option<Disposition>,
}

/// Takes a callback. A provider without a secret, an unknown one and an unknown tenant have no callbacks: the same 404.
///
/// # Errors
/// 404; 401 for a signature that does not fit; 400 for a body that is no event; 413; 503 when it could not be stored.
pub(crate) async fn take(tenant: &str, provider: &str, mut request: Request, env: &Env) -> Result<Response, EdgeError> {
    let providers = settings::providers(env)?;
    let provider = providers.iter().find(|known| known.name == provider).ok_or(EdgeError::UnknownPath)?;
    let tenant = TenantId::parse(tenant).map_err(|_| EdgeError::UnknownPath)?;
    let body = verified(&mut request, provider, env).await?;
    let message_id = header(request.headers(), ID_HEADER).unwrap_or_default();
    let event = callback::read(&message_id, &body).map_err(|error| EdgeError::invalid(error.to_string()))?;
    let Some(event) = event else { return receipt(Taken::PassedOver, None) };
    match owner(env, &tenant, provider, &event).await? {
        None => receipt(Taken::Parked, None),
        Some(identity) => receipt(Taken::Handled, Some(signal(env, &identity, &event).await?)),
    }
}

/// The body as it came, if it was signed by the provider and not too long ago.
async fn verified(request: &mut Request, provider: &Provider, env: &Env) -> Result<Vec<u8>, EdgeError> {
    let secrets = settings::callback_secrets(env, provider)?.ok_or(EdgeError::UnknownPath)?;
    let limits = settings::limits(env)?;
    let body = body::read_raw(request, BODY_MAX_BYTES, limits.body_ms).await?;
    let of = |name| header(request.headers(), name).unwrap_or_default();
    let (id, timestamp, signatures) = (of(ID_HEADER), of(TIMESTAMP_HEADER), of(SIGNATURE_HEADER));
    let headers = SignedHeaders { id: &id, timestamp: &timestamp, signatures: &signatures };
    verify(&secrets, &headers, &body, clock::now()).map_err(|error| {
        worker::console_warn!("callback of {}: {error}", provider.name);
        EdgeError::NotSigned
    })?;
    Ok(body)
}

/// The generation of the operation; `None` when the callback was parked.
async fn owner(
    env: &Env,
    tenant: &TenantId,
    provider: &Provider,
    event: &CallbackEvent,
) -> Result<Option<Identity>, EdgeError> {
    let action = OperationCall::Called { event: event.clone() };
    match ask::tenant(env, tenant, &TenantCall::Operation { provider: provider.name.clone(), action }).await {
        Ok(TenantReply::Operation(OperationReply { identity, .. })) => Ok(identity),
        Ok(_) => Err(ask::unexpected().into()),
        Err(Refusal::UnknownTenant) => Err(EdgeError::UnknownPath),
        Err(refusal) => Err(refusal.into()),
    }
}

async fn signal(env: &Env, identity: &Identity, event: &CallbackEvent) -> Result<Disposition, Refusal> {
    let call = GenerationCall::Signal { signal: Box::new(event.signal(clock::now())) };
    match ask::generation(env, identity, &call, &[]).await? {
        Answer::Reply(GenerationReply::Signalled { disposition }) => Ok(disposition),
        _ => Err(ask::unexpected()),
    }
}

fn receipt(status: Taken, disposition: Option<Disposition>) -> Result<Response, EdgeError> {
    respond::ok(&Receipt { object: "callback", status, disposition })
}
