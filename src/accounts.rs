//! Keys of a tenant: `/v1/keys` with a key of role `admin`, and the same below `/admin/tenants/{id}` for the operator.

use crate::body;
use crate::caller::Caller;
use crate::error::EdgeError;
use crate::{ask, respond};
use holdfast_core::ids::TenantId;
use holdfast_core::key::{ClientKey, KeyDigest};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::{Authority, KeyView, NewKey, Replaced, Role};
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{AccountCall, TenantCall, TenantReply};
use holdfast_objects::settings;
use serde::{Deserialize, Serialize};
use uuid::Uuid;
use worker::{Env, Request, Response};

/// Who acts on which tenant.
#[derive(Clone, Debug)]
pub(crate) struct Actor {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// By which right.
    pub(crate) authority: Authority,
}

impl Actor {
    /// The tenant of the key that the request shows.
    ///
    /// # Errors
    /// 401.
    pub(crate) fn of_key(request: &Request, env: &Env) -> Result<Self, EdgeError> {
        let Caller { tenant, key } = Caller::of(env, request.headers())?;
        Ok(Self { tenant, authority: Authority::Key { digest: key } })
    }

    /// Acts on the account.
    ///
    /// # Errors
    /// What the tenant refuses.
    pub(crate) async fn act(&self, env: &Env, action: AccountCall) -> Result<TenantReply, EdgeError> {
        let call = TenantCall::Account { authority: self.authority.clone(), action };
        Ok(ask::tenant(env, &self.tenant, &call).await?)
    }
}

/// A list of things.
#[derive(Serialize)]
struct List<T> {
    object: &'static str,
    data: Vec<T>,
}

/// A key that was just issued. The one answer that ever holds it.
#[derive(Serialize)]
struct Issued {
    object: &'static str,
    #[serde(skip_serializing_if = "Option::is_none")]
    key: Option<String>,
    #[serde(flatten)]
    view: KeyView,
}

/// What is asked for in a new key.
#[derive(Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub(crate) struct KeyRequest {
    role: Role,
    label: Option<String>,
    expires_at: Option<UnixMillis>,
    /// The key that it replaces, which then ends after `overlap_ms`.
    replaces: Option<String>,
    overlap_ms: u64,
    /// Operator only: the digest of a key that was made elsewhere (`npm run key`).
    digest: Option<String>,
}

impl KeyRequest {
    /// Refuses a key that would be made here, for an answer that shows no secret: nobody would ever see it.
    ///
    /// # Errors
    /// 400 without a digest, or with one that is none.
    pub(crate) fn check_made_elsewhere(&self) -> Result<(), EdgeError> {
        let digest = self.digest.as_deref().ok_or_else(|| {
            EdgeError::invalid("each of `keys` needs its `digest` (`npm run key`): a key that is made here is shown once, by the answer to POST …/keys")
        })?;
        read_digest(digest).map(|_| ())
    }
}

fn read_digest(text: &str) -> Result<KeyDigest, EdgeError> {
    KeyDigest::parse(text).ok_or_else(|| EdgeError::invalid("`digest` must be 64 lower-case hex digits"))
}

/// `GET …/keys`.
///
/// # Errors
/// 401, 403, 404.
pub(crate) async fn list_keys(actor: &Actor, env: &Env) -> Result<Response, EdgeError> {
    match actor.act(env, AccountCall::ListKeys).await? {
        TenantReply::Keys { keys } => respond::ok(&List { object: "list", data: keys }),
        _ => Err(ask::unexpected().into()),
    }
}

/// `POST …/keys`: makes a key and shows it once.
///
/// # Errors
/// 400, 401, 403, 404, 409.
pub(crate) async fn issue_key(actor: &Actor, mut request: Request, env: &Env) -> Result<Response, EdgeError> {
    let wanted: KeyRequest = parse(&read(&mut request, env).await?)?;
    issue(actor, env, wanted).await
}

/// Makes a key, or enters one that was made elsewhere.
///
/// # Errors
/// As [`issue_key`].
pub(crate) async fn issue(actor: &Actor, env: &Env, wanted: KeyRequest) -> Result<Response, EdgeError> {
    let (secret, digest) = match wanted.digest {
        Some(digest) if actor.authority == Authority::Operator => (None, read_digest(&digest)?),
        Some(_) => return Err(Refusal::RoleRequired.into()),
        None => {
            let secret = ClientKey::mint(&actor.tenant, Uuid::new_v4().into_bytes());
            let digest = settings::digest(env, &secret)?;
            (Some(secret.reveal()), digest)
        }
    };
    let key = NewKey {
        id: format!("key_{}", Uuid::new_v4().simple()),
        role: wanted.role,
        digest,
        label: wanted.label,
        expires_at: wanted.expires_at,
        replaces: wanted.replaces.map(|id| Replaced { id, overlap_ms: wanted.overlap_ms }),
    };
    match actor.act(env, AccountCall::IssueKey { key }).await? {
        TenantReply::Keys { keys } => {
            let view = keys.into_iter().next().ok_or_else(ask::unexpected)?;
            respond::created(&Issued { object: "key", key: secret, view })
        }
        _ => Err(ask::unexpected().into()),
    }
}

/// `DELETE …/keys/{id}`: from the next request on, the key is not accepted.
///
/// # Errors
/// 401, 403, 404.
pub(crate) async fn revoke_key(actor: &Actor, env: &Env, id: &str) -> Result<Response, EdgeError> {
    match actor.act(env, AccountCall::RevokeKey { id: id.into() }).await? {
        TenantReply::Keys { keys } => {
            let view = keys.into_iter().next().ok_or_else(ask::unexpected)?;
            respond::ok(&Issued { object: "key", key: None, view })
        }
        _ => Err(ask::unexpected().into()),
    }
}

/// A JSON body within the bounds of every other.
///
/// # Errors
/// 400, 408, 413, 415.
pub(crate) async fn read(request: &mut Request, env: &Env) -> Result<Vec<u8>, EdgeError> {
    body::read_json(request, &settings::limits(env)?).await
}

/// Reads a JSON document strictly.
///
/// # Errors
/// 400 that says what is wrong with it, and where.
pub(crate) fn parse<'a, T: Deserialize<'a>>(body: &'a [u8]) -> Result<T, EdgeError> {
    serde_json::from_slice(body).map_err(|error| EdgeError::invalid(error.to_string()))
}
