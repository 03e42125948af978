//! Who asks. The edge turns a wrong key away before it reads a body; whether a key is valid when something is held is
//! for the tenant's object to say.

use crate::ask;
use crate::request_headers::{bearer, header};
use holdfast_core::config::Provider;
use holdfast_core::ids::{GenerationId, TenantId};
use holdfast_core::key::{ClientKey, KeyDigest};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::{Admitted, key_is_valid};
use holdfast_core::wire::{TenantCall, TenantReply};
use holdfast_objects::settings;
use worker::{Env, Headers};

/// A key that the configuration knows: the tenant that it names and the digest that the tenant checks again.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The digest of the key; the key itself goes no further.
    pub(crate) key: KeyDigest,
}

impl Caller {
    /// Reads the key from `Authorization: Bearer` or `x-api-key`; the first that is given counts. A key that is not
    /// configured is turned away here, so that strangers can neither make objects nor have bodies kept for them.
    ///
    /// The tenant's object stays the authority: it checks the digest again, in the transaction that places a hold.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`] when it is missing, malformed, unknown or names no tenant; [`Refusal::Unavailable`] when
    /// the configuration is broken.
    pub(crate) fn of(env: &Env, providers: &[Provider], headers: &Headers) -> Result<Self, Refusal> {
        let authorization = header(headers, "authorization");
        let key = match authorization.as_deref().and_then(bearer) {
            Some(token) => ClientKey::parse(token),
            None => header(headers, "x-api-key").as_deref().and_then(ClientKey::parse),
        };
        let key = key.ok_or(Refusal::InvalidKey)?;
        let tenant = settings::tenant(env, providers, key.tenant())?;
        let digest = settings::digest(env, &key)?;
        if !key_is_valid(&tenant, &digest) {
            return Err(Refusal::InvalidKey);
        }
        Ok(Self { tenant: tenant.id, key: digest })
    }

    /// Has the key checked, and asks what the named generation was admitted under; `None` when this tenant has none of
    /// that id.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`], [`Refusal::Unavailable`].
    pub(crate) async fn authenticate(
        &self,
        env: &Env,
        generation: Option<GenerationId>,
    ) -> Result<Option<Box<Admitted>>, Refusal> {
        let call = TenantCall::Authenticate { key: self.key.clone(), generation };
        match ask::tenant(env, &self.tenant, &call).await? {
            TenantReply::Authenticated { admitted } => Ok(admitted),
            _ => Err(ask::unexpected()),
        }
    }
}
