//! Who may act with which token, and from which page. A token falls with the key that minted it, or by itself; origins are
//! those of the configuration that new requests are admitted under.

use super::answers::FORGET_MAX;
use super::{Failure, Tenant};
use crate::sql;
use holdfast_core::ids::TokenId;
use holdfast_core::key::KeyDigest;
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::{ApiKey, Role, authenticate};
use holdfast_core::time::UnixMillis;
use holdfast_core::token::{
    By, Claims, Credential, GrantContext, MINTED_KEPT_MS, MINTED_MAX, Minted, TokenPage, TokenRequest, TokenView,
    check_minted, grant,
};
use holdfast_core::wire::{TenantReply, TokensCall};
use worker::{Error, SqlStorageValue};

impl Tenant {
    /// Refuses a key that is not accepted, and a token whose key is not.
    pub(super) fn check_credential(&self, asks: &Credential, now: UnixMillis) -> Result<(), Failure> {
        match asks {
            Credential::Key(digest) => self.authenticate(digest, Role::Client, now).map(|_| ()),
            Credential::Token(token) => {
                let account = self.account()?;
                let key = if account.is_some() { self.store.api_key_of_id(&token.key)? } else { None };
                let _key = authenticate(account.as_ref(), key.as_ref(), Role::Client, now)?;
                Ok(check_minted(asks, self.store.minted(token.id.as_str())?.as_ref())?)
            }
        }
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
        let granted = grant(&context, &request, id, now)?;
        let claims: Claims = serde_json::from_str(&granted.claims).map_err(Error::from)?;
        self.store.store_minted(Minted::new(claims), now)?;
        Ok(TenantReply::Granted(granted))
    }

    /// Lists tokens, or ends one. What a caller does not have does not exist for it.
    pub(super) fn act_on_tokens(
        &self,
        asks: &Credential,
        action: TokensCall,
        now: UnixMillis,
    ) -> Result<TenantReply, Failure> {
        let key = match asks {
            Credential::Key(digest) => Some(self.authenticate(digest, Role::Client, now)?),
            Credential::Token(_) => None,
        };
        let by = match (&key, asks.token()) {
            (Some(key), _) => By::Key(&key.id, key.role),
            (None, Some(token)) => By::Token(&token.id),
            (None, None) => return Err(Refusal::InvalidKey.into()),
        };
        let document = match action {
            TokensCall::List { before, limit } => {
                let _keys_alone = asks.require_key()?;
                let key = if let By::Key(id, Role::Client) = by { Some(id) } else { None };
                let mut tokens = self.store.minted_before(before.as_ref(), key, limit.saturating_add(1))?;
                let has_more = tokens.len() > limit as usize;
                tokens.truncate(limit as usize);
                let data = tokens.iter().map(TokenView::from).collect();
                serde_json::to_string(&TokenPage { object: "list", data, has_more })
            }
            TokensCall::Revoke { id } => {
                let minted = self.store.minted(&id)?.filter(|minted| by.has(&minted.claims));
                let revoked = minted.ok_or(Refusal::NotFound)?.revoked(now);
                self.store.store_revoked(&revoked)?;
                serde_json::to_string(&TokenView::from(&revoked))
            }
        };
        Ok(TenantReply::Tokens { document: document.map_err(Error::from)? })
    }
}

impl super::store::Store {
    fn api_key_of_id(&self, id: &str) -> worker::Result<Option<ApiKey>> {
        sql::first_json(self.sql(), "SELECT json FROM api_key WHERE id = ?", vec![id.into()])
    }

    fn minted(&self, id: &str) -> worker::Result<Option<Minted>> {
        sql::first_json(self.sql(), "SELECT json FROM token WHERE id = ?", vec![id.into()])
    }

    /// The latest before a token, of one key or of all.
    fn minted_before(&self, before: Option<&TokenId>, key: Option<&str>, limit: u32) -> worker::Result<Vec<Minted>> {
        let query = "SELECT json FROM token
            WHERE (?1 IS NULL OR seq < (SELECT seq FROM token WHERE id = ?1))
            AND (?2 IS NULL OR json_extract(json, '$.claims.key') = ?2) ORDER BY seq DESC LIMIT ?3";
        let text = |text: Option<&str>| text.map_or(SqlStorageValue::Null, SqlStorageValue::from);
        sql::all_json(self.sql(), query, vec![text(before.map(TokenId::as_str)), text(key), i64::from(limit).into()])
    }

    /// Stores a token, and forgets old ones: a revoked one not before its end.
    fn store_minted(&self, minted: Minted, now: UnixMillis) -> worker::Result<()> {
        self.transaction(move |sql| {
            let statement = "INSERT INTO token (id, expires_at, revoked, json) VALUES (?, ?, 0, ?)";
            let expires_at = sql::time(minted.claims.expires_at)?;
            sql::run(sql, statement, vec![minted.claims.id.as_str().into(), expires_at, sql::json(&minted)?])?;
            let over = "DELETE FROM token WHERE seq <= (SELECT MAX(seq) FROM token) - ? AND (revoked = 0 OR expires_at <= ?)";
            sql::run(sql, over, vec![i64::from(MINTED_MAX).into(), sql::time(now)?])?;
            let oldest = sql::time(UnixMillis(now.0.saturating_sub(MINTED_KEPT_MS)))?;
            let ended = "DELETE FROM token WHERE seq IN (SELECT seq FROM token WHERE expires_at <= ? ORDER BY expires_at LIMIT ?)";
            sql::run(sql, ended, vec![oldest, i64::from(FORGET_MAX).into()]).map(|_| ())
        })
    }

    fn store_revoked(&self, minted: &Minted) -> worker::Result<()> {
        let parameters = vec![sql::json(minted)?, minted.claims.id.as_str().into()];
        sql::run(self.sql(), "UPDATE token SET revoked = 1, json = ? WHERE id = ?", parameters).map(|_| ())
    }
}
