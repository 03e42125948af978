//! Questions to the objects. A question without an answer is put once more, to a new stub: an object that was just
//! moved or reset answers then, and every call of the contract may be repeated.

use crate::error::EdgeError;
use holdfast_core::ids::{Identity, TenantId};
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::wire::{DirectoryCall, DirectoryReply, GenerationCall, GenerationReply, TenantCall, TenantReply};
use holdfast_objects::rpc::{self, Answer};
use worker::{Env, Response};

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

/// The answer to a call that attaches a reader: the client's own, or why there is none. Whoever attaches one asks here:
/// each reply that the object gives to a reader has an error of its own, and is no outage.
///
/// # Errors
/// What the generation told instead; [`Refusal::Unavailable`] for a reply that no reader is given.
pub(crate) fn for_client(answer: Answer) -> Result<Response, EdgeError> {
    match answer {
        Answer::ForClient(response) => Ok(response),
        Answer::Reply(GenerationReply::Running) => Err(EdgeError::Running),
        Answer::Reply(GenerationReply::BeyondEnd { log_length }) => Err(EdgeError::BeyondEnd { log_length }),
        Answer::Reply(GenerationReply::InvalidCursor) => Err(EdgeError::InvalidCursor),
        Answer::Reply(GenerationReply::ContentDeleted) => Err(EdgeError::ContentDeleted),
        Answer::Reply(GenerationReply::Refused { refusal }) => Err(refusal.into()),
        // All of them are named: whoever adds a reply decides whether a reader is given it.
        Answer::Reply(
            GenerationReply::Begun { .. }
            | GenerationReply::AlreadyStarted
            | GenerationReply::Continue
            | GenerationReply::Stop
            | GenerationReply::Finished { .. }
            | GenerationReply::Generation(_)
            | GenerationReply::Cancellation { .. }
            | GenerationReply::Books(_)
            | GenerationReply::Resolved
            | GenerationReply::Signalled { .. },
        ) => Err(unexpected().into()),
    }
}

/// The object answered something else than was asked: its version differs too much.
pub(crate) fn unexpected() -> Refusal {
    Refusal::Unavailable { what: "an object gave an answer that this version does not know".into() }
}
