//! The tenant as configured. Settings change with a deploy alone, and a deploy makes a new object: they are read once.

use crate::settings;
use holdfast_core::config::{Limits, Provider, TenantConfig};
use holdfast_core::ids::TenantId;
use holdfast_core::key::KeyDigest;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::key_is_valid;
use std::cell::OnceCell;
use worker::Env;

/// The tenant with the providers that its routes name.
#[derive(Debug)]
pub(super) struct Account {
    pub(super) config: TenantConfig,
    pub(super) providers: Vec<Provider>,
}

/// What was read so far. Limits stand alone: what a tenant holds is settled even after it was removed.
#[derive(Debug)]
pub(super) struct Settings {
    object_name: Option<String>,
    account: OnceCell<Account>,
    limits: OnceCell<Limits>,
}

impl Settings {
    pub(super) fn new(object_name: Option<String>) -> Self {
        Self { object_name, account: OnceCell::new(), limits: OnceCell::new() }
    }

    /// The tenant, if the key is one of its keys.
    pub(super) fn account(&self, env: &Env, key: &KeyDigest) -> Result<&Account, Refusal> {
        let account = self.configured(env)?;
        if key_is_valid(&account.config, key) { Ok(account) } else { Err(Refusal::InvalidKey) }
    }

    /// The tenant, for a call of its own generations, which have no key.
    pub(super) fn configured(&self, env: &Env) -> Result<&Account, Refusal> {
        if let Some(account) = self.account.get() {
            return Ok(account);
        }
        let account = self.read_account(env)?;
        Ok(self.account.get_or_init(|| account))
    }

    /// The bounds.
    pub(super) fn limits(&self, env: &Env) -> Result<&Limits, Refusal> {
        if let Some(limits) = self.limits.get() {
            return Ok(limits);
        }
        let limits = settings::limits(env)?;
        Ok(self.limits.get_or_init(|| limits))
    }

    fn read_account(&self, env: &Env) -> Result<Account, Refusal> {
        let nameless = || Refusal::Unavailable { what: "the tenant object has no name".into() };
        let name = self.object_name.as_deref().ok_or_else(nameless)?;
        let id = TenantId::parse(name).map_err(|_| Refusal::InvalidKey)?;
        let providers = settings::providers(env)?;
        let config = settings::tenant(env, &providers, &id)?;
        Ok(Account { config, providers })
    }
}
