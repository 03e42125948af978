//! Questions to the objects. A question without an answer is put once more, to a new stub: an object that was just
//! moved or reset answers then, and every call of the contract may be repeated.

use holdfast_core::ids::{Identity, TenantId};
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::wire::{DirectoryCall, DirectoryReply, GenerationCall, GenerationReply, TenantCall, TenantReply};
use holdfast_objects::rpc::{self, Answer};
use worker::Env;

/// Asks a tenant.
///
/// # Errors
/// What the tenant refused; [`Refusal::Unavailable`] when it did not answer.
pub(crate) async fn tenant(env: &Env, tenant: &TenantId, call: &TenantCall) -> Result<TenantReply, Refusal> {
    tenant_for(env, tenant, None, call).await
}

/// Asks a tenant for a page of another origin, which the tenant has to allow.
///
/// # Errors
/// As [`tenant`], and [`Refusal::OriginNotAllowed`].
pub(crate) async fn tenant_for(
    env: &Env,
    tenant: &TenantId,
    page: Option<&Origin>,
    call: &TenantCall,
) -> Result<TenantReply, Refusal> {
    let reply = match rpc::ask_tenant_for(env, tenant, page, call).await {
        Err(Refusal::Unavailable { .. }) => rpc::ask_tenant_for(env, tenant, page, call).await,
        answered => answered,
    };
    match reply? {
        TenantReply::Refused { refusal } => Err(refusal),
        reply => Ok(reply),
    }
}

/// Asks the directory of tenants.
///
/// # Errors
/// [`Refusal::Unavailable`] when it did not answer.
pub(crate) async fn directory(env: &Env, call: &DirectoryCall) -> Result<DirectoryReply, Refusal> {
    match rpc::ask_directory(env, call).await {
        Err(Refusal::Unavailable { .. }) => rpc::ask_directory(env, call).await,
        answered => answered,
    }
}

/// Asks a generation.
///
/// # Errors
/// What the generation refused ([`Refusal::NotFound`] when it was not started yet); [`Refusal::Unavailable`] when it
/// did not answer.
pub(crate) async fn generation(
    env: &Env,
    identity: &Identity,
    call: &GenerationCall,
    raw: &[u8],
) -> Result<Answer, Refusal> {
    let answer = match rpc::ask_generation(env, identity, call, raw).await {
        Err(Refusal::Unavailable { .. }) => rpc::ask_generation(env, identity, call, raw).await,
        answered => answered,
    };
    match answer? {
        Answer::Reply(GenerationReply::Refused { refusal }) => Err(refusal),
        answer => Ok(answer),
    }
}

/// The object answered something else than was asked: its version differs too much.
pub(crate) fn unexpected() -> Refusal {
    Refusal::Unavailable { what: "an object gave an answer that this version does not know".into() }
}
