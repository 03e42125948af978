//! Who asks. The edge turns away what cannot be a key; whether it is one, and what it may do, the tenant's object says.

use crate::ask;
use crate::request_headers::{bearer, header};
use holdfast_core::ids::{GenerationId, TenantId};
use holdfast_core::key::{ClientKey, KeyDigest};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Admitted;
use holdfast_core::wire::{TenantCall, TenantReply};
use holdfast_objects::settings;
use worker::{Env, Headers};

/// A key that is well formed: the tenant that it names and the digest that the tenant's object looks for.
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The digest of the key; the key itself goes no further.
    pub(crate) key: KeyDigest,
}

impl Caller {
    /// Reads the key from `Authorization: Bearer` or `x-api-key`; the first that is given counts. Its checksum turns
    /// guesses and typos away without a hop.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`] when it is missing or malformed; [`Refusal::Misconfigured`] without the pepper.
    pub(crate) fn of(env: &Env, headers: &Headers) -> Result<Self, Refusal> {
        let authorization = header(headers, "authorization");
        let key = match authorization.as_deref().and_then(bearer) {
            Some(token) => ClientKey::parse(token),
            None => header(headers, "x-api-key").as_deref().and_then(ClientKey::parse),
        };
        let key = key.ok_or(Refusal::InvalidKey)?;
        Ok(Self { tenant: key.tenant().clone(), key: settings::digest(env, &key)? })
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
