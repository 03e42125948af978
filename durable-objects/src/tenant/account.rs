//! Who may call, and under which configuration. Account and keys are read from storage at every call, so that a
//! revocation counts at once; the parsed configuration is kept for as long as its version stands.

use super::{Failure, Tenant};
use crate::settings;
use crate::sql;
use holdfast_core::config::{Limits, Provider, TenantConfig};
use holdfast_core::ids::TenantId;
use holdfast_core::key::KeyDigest;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::{
    Account, AccountView, ApiKey, Authority, Role, authenticate, create, grant, grant_posting_id, issue_key,
    revoke_key, views,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{AccountCall, TenantReply};
use std::cell::{OnceCell, RefCell};
use std::rc::Rc;
use worker::Env;

/// What was read so far. Settings change with a deploy alone, and a deploy makes a new object.
#[derive(Debug)]
pub(super) struct Settings {
    object_name: Option<String>,
    providers: OnceCell<Vec<Provider>>,
    limits: OnceCell<Limits>,
    config: RefCell<Option<(u64, Rc<TenantConfig>)>>,
}

impl Settings {
    pub(super) fn new(object_name: Option<String>) -> Self {
        Self { object_name, providers: OnceCell::new(), limits: OnceCell::new(), config: RefCell::default() }
    }

    /// The bounds.
    pub(super) fn limits(&self, env: &Env) -> Result<&Limits, Refusal> {
        if let Some(limits) = self.limits.get() {
            return Ok(limits);
        }
        let limits = settings::limits(env)?;
        Ok(self.limits.get_or_init(|| limits))
    }

    /// The operator's providers.
    pub(super) fn providers(&self, env: &Env) -> Result<&[Provider], Refusal> {
        if let Some(providers) = self.providers.get() {
            return Ok(providers);
        }
        let providers = settings::providers(env)?;
        Ok(self.providers.get_or_init(|| providers))
    }

    /// The parsed configuration, if it is the one of this version.
    pub(super) fn kept_config(&self, version: u64) -> Option<Rc<TenantConfig>> {
        let kept = self.config.borrow().clone();
        kept.filter(|(of, _)| *of == version).map(|(_, config)| config)
    }

    /// Keeps the parsed configuration of a version.
    pub(super) fn keep_config(&self, version: u64, config: TenantConfig) -> Rc<TenantConfig> {
        let config = Rc::new(config);
        self.config.replace(Some((version, config.clone())));
        config
    }

    /// The tenant that this object is, by its name.
    pub(super) fn tenant_id(&self) -> Result<TenantId, Refusal> {
        let nameless = || Refusal::Unavailable { what: "the tenant object has no name".into() };
        let name = self.object_name.as_deref().ok_or_else(nameless)?;
        TenantId::parse(name).map_err(|_| Refusal::InvalidKey)
    }
}

impl Tenant {
    /// The key behind a digest, if it may act in `role`. Nothing is written for a guessed tenant name or key.
    pub(super) fn authenticate(&self, digest: &KeyDigest, role: Role, now: UnixMillis) -> Result<ApiKey, Failure> {
        let account = self.account()?;
        let key = if account.is_some() { self.store.api_key(digest)? } else { None };
        Ok(authenticate(account.as_ref(), key.as_ref(), role, now)?.clone())
    }

    /// The account, if the tenant was created.
    pub(super) fn account(&self) -> Result<Option<Account>, Failure> {
        if !self.store.exists()? {
            return Ok(None);
        }
        Ok(self.store.account()?)
    }

    /// Acts on the account.
    pub(super) fn act(
        &self,
        authority: &Authority,
        action: AccountCall,
        now: UnixMillis,
    ) -> Result<TenantReply, Failure> {
        let by_operator = match authority {
            Authority::Operator => true,
            Authority::Key { digest } => {
                self.authenticate(digest, Role::Admin, now)?;
                false
            }
        };
        let operators_own =
            matches!(action, AccountCall::Create | AccountCall::SetStatus { .. } | AccountCall::Grant { .. });
        if operators_own && !by_operator {
            return Err(Refusal::RoleRequired.into());
        }
        if matches!(action, AccountCall::Create) {
            return self.create_account(now);
        }
        let account = self.account()?.ok_or(Refusal::UnknownTenant)?;
        self.act_on(account, action, now)
    }

    fn create_account(&self, now: UnixMillis) -> Result<TenantReply, Failure> {
        let id = self.settings.tenant_id()?;
        self.store.create()?;
        let (account, new) = create(self.store.account()?.as_ref(), &id, now);
        if new {
            self.store.store_account(&account)?;
        }
        self.shown(&account)
    }

    fn act_on(&self, account: Account, action: AccountCall, now: UnixMillis) -> Result<TenantReply, Failure> {
        match action {
            AccountCall::Create | AccountCall::Show => self.shown(&account),
            AccountCall::SetStatus { status } => {
                let account = Account { status, ..account };
                self.store.store_account(&account)?;
                self.shown(&account)
            }
            AccountCall::Grant { grant_id, amount } => {
                let same_id = self.store.posting(&grant_posting_id(&grant_id))?;
                if let Some(rows) = grant(&self.store.tenant()?, same_id.as_ref(), &grant_id, amount, now)? {
                    self.store.store_posted(rows)?;
                }
                self.shown(&account)
            }
            AccountCall::IssueKey { key } => {
                let rows = issue_key(&self.store.api_keys()?, &key, now)?;
                let issued = views(core::slice::from_ref(&rows.key));
                self.store.store_keys(core::iter::once(rows.key).chain(rows.replaced).collect())?;
                Ok(TenantReply::Keys { keys: issued })
            }
            AccountCall::ListKeys => Ok(TenantReply::Keys { keys: views(&self.store.api_keys()?) }),
            AccountCall::RevokeKey { id } => {
                let revoked = revoke_key(&self.store.api_keys()?, &id, now)?;
                let keys = views(core::slice::from_ref(&revoked));
                self.store.store_keys(vec![revoked])?;
                Ok(TenantReply::Keys { keys })
            }
            AccountCall::PutConfig { document, condition } => self.put_config(account, &document, &condition, now),
            AccountCall::ShowConfig { version } => self.show_config(&account, version),
            AccountCall::ListConfigs { before, limit } => self.list_configs(before, limit),
            AccountCall::CheckConfig { document, request } => self.check_config(&account, document, request.as_deref()),
        }
    }

    fn shown(&self, account: &Account) -> Result<TenantReply, Failure> {
        Ok(TenantReply::Account(Box::new(AccountView::of(account, &self.store.tenant()?))))
    }
}

/// Rows of the account.
impl super::store::Store {
    fn account(&self) -> worker::Result<Option<Account>> {
        sql::first_json(self.sql(), "SELECT json FROM account", vec![])
    }

    fn store_account(&self, account: &Account) -> worker::Result<()> {
        let statement =
            "INSERT INTO account (one, json) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET json = excluded.json";
        sql::run(self.sql(), statement, vec![sql::json(account)?]).map(|_| ())
    }

    fn api_key(&self, digest: &KeyDigest) -> worker::Result<Option<ApiKey>> {
        sql::first_json(self.sql(), "SELECT json FROM api_key WHERE digest = ?", vec![digest.0.as_str().into()])
    }

    fn api_keys(&self) -> worker::Result<Vec<ApiKey>> {
        sql::all_json(self.sql(), "SELECT json FROM api_key ORDER BY created_at, id", vec![])
    }

    fn store_keys(&self, keys: Vec<ApiKey>) -> worker::Result<()> {
        self.transaction(move |sql| {
            keys.iter().try_for_each(|key| {
                let statement = "INSERT INTO api_key (id, digest, created_at, json) VALUES (?, ?, ?, ?)
                    ON CONFLICT (id) DO UPDATE SET json = excluded.json";
                let parameters = vec![
                    key.id.as_str().into(),
                    key.digest.0.as_str().into(),
                    sql::time(key.created_at)?,
                    sql::json(key)?,
                ];
                sql::run(sql, statement, parameters).map(|_| ())
            })
        })
    }
}
