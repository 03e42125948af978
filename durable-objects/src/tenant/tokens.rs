//! Who may act with which token, and from which page. A token stands and falls with the key that minted it; origins are
//! those of the configuration that new requests are admitted under.

use super::{Failure, Tenant};
use crate::sql;
use holdfast_core::ids::TokenId;
use holdfast_core::key::KeyDigest;
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::{ApiKey, Role, authenticate};
use holdfast_core::time::UnixMillis;
use holdfast_core::token::{Credential, GrantContext, TokenRequest, grant};
use holdfast_core::wire::TenantReply;

impl Tenant {
    /// Refuses a key that is not accepted, and a token whose key is not.
    pub(super) fn check_credential(&self, asks: &Credential, now: UnixMillis) -> Result<(), Failure> {
        match asks {
            Credential::Key(digest) => self.authenticate(digest, Role::Client, now)?,
            Credential::Token(token) => {
                let account = self.account()?;
                let key = if account.is_some() { self.store.api_key_of_id(&token.key)? } else { None };
                authenticate(account.as_ref(), key.as_ref(), Role::Client, now)?.clone()
            }
        };
        Ok(())
    }

    /// Refuses a page of another origin that the tenant does not allow.
    pub(super) fn check_page(&self, page: Option<&Origin>) -> Result<(), Failure> {
        let Some(origin) = page else { return Ok(()) };
        let account = self.account()?.ok_or(Refusal::OriginNotAllowed)?;
        let config = self.config(&account)?;
        if origin.is_among(&config.allowed_origins) { Ok(()) } else { Err(Refusal::OriginNotAllowed.into()) }
    }

    /// Decides what a new token says.
    pub(super) fn mint_token(
        &self,
        digest: &KeyDigest,
        id: TokenId,
        request: &str,
        now: UnixMillis,
    ) -> Result<TenantReply, Failure> {
        let key = self.authenticate(digest, Role::Client, now)?;
        let account = self.account()?.ok_or(Refusal::InvalidKey)?;
        let config = self.config(&account)?;
        let routes: Vec<&str> = config.routes.iter().map(|route| route.name.as_str()).collect();
        let request = TokenRequest::parse(request)?;
        let generation_exists = match request.named_generation() {
            Ok(Some(generation)) => self.store.hold_of(&generation)?.is_some(),
            Ok(None) | Err(_) => false,
        };
        let context = GrantContext {
            tenant: &account.id,
            key: &key.id,
            key_expires_at: key.expires_at,
            routes: &routes,
            allowed_origins: &config.allowed_origins,
            generation_exists,
        };
        Ok(TenantReply::Granted(grant(&context, &request, id, now)?))
    }
}

impl super::store::Store {
    fn api_key_of_id(&self, id: &str) -> worker::Result<Option<ApiKey>> {
        sql::first_json(self.sql(), "SELECT json FROM api_key WHERE id = ?", vec![id.into()])
    }
}
