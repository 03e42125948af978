//! The tenant's document: every version is kept; the parsed current one is kept in memory for as long as it stands.

use super::webhooks::reach;
use super::{Failure, Tenant};
use crate::sql;
use holdfast_core::config::{
    Condition, ConfigEntry, ConfigVersion, Operator, Reading, TenantConfig, TrialRequest, check_config, put,
    read_config,
};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::Account;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::TenantReply;
use serde::Serialize;
use std::rc::Rc;
use worker::{Error, Result, SqlStorageValue};

type Answer = std::result::Result<TenantReply, Failure>;

impl Tenant {
    /// The configuration that new requests are admitted under.
    pub(super) fn config(&self, account: &Account) -> std::result::Result<Rc<TenantConfig>, Failure> {
        if let Some(config) = self.settings.kept_config(account.config_version) {
            return Ok(config);
        }
        // It was checked when it was put; rules that came later do not reach it.
        let config = serde_json::from_str(&self.current_config(account)?.document).map_err(Error::from)?;
        Ok(self.settings.keep_config(account.config_version, config))
    }

    /// What of the operator's a document is checked against.
    fn operator(&self) -> std::result::Result<Operator<'_>, Refusal> {
        let (providers, limits) = (self.settings.providers(&self.env)?, self.settings.limits(&self.env)?);
        Ok(Operator { providers, limits, reach: reach(&self.env) })
    }

    fn current_config(&self, account: &Account) -> Result<ConfigVersion> {
        if account.config_version == 0 {
            return Ok(ConfigVersion::none(account.created_at));
        }
        let missing = || Error::from("the current configuration is missing");
        self.store.config_version(account.config_version)?.ok_or_else(missing)
    }

    pub(super) fn put_config(&self, account: Account, text: &str, condition: &Condition, now: UnixMillis) -> Answer {
        let Reading { errors, warnings, accepted } = read_config(text, &self.operator()?);
        let Some(accepted) = accepted else {
            let count = u64::try_from(errors.len()).unwrap_or(u64::MAX);
            return Ok(TenantReply::ConfigRefused { count, errors: written(&errors)?, warnings: written(&warnings)? });
        };
        let current = self.current_config(&account)?;
        let version = put(&current, condition, &accepted, now)?;
        let entry = version.entry();
        if version.version != current.version {
            self.store.store_config(Account { config_version: version.version, ..account }, version)?;
        }
        Ok(TenantReply::ConfigPut { entry, warnings: written(&warnings)? })
    }

    pub(super) fn show_config(&self, account: &Account, version: Option<u64>) -> Answer {
        let shown = match version {
            None => self.current_config(account)?,
            Some(version) => self.store.config_version(version)?.ok_or(Refusal::UnknownConfigVersion)?,
        };
        Ok(TenantReply::Config(Box::new(shown)))
    }

    pub(super) fn list_configs(&self, before: Option<u64>, limit: u32) -> Answer {
        Ok(TenantReply::Configs { entries: self.store.config_entries(before, limit)? })
    }

    pub(super) fn check_config(&self, account: &Account, document: Option<String>, request: Option<&str>) -> Answer {
        let request: Option<TrialRequest> = request.map(serde_json::from_str).transpose().map_err(not_a_request)?;
        request.as_ref().map_or(Ok(()), TrialRequest::check)?;
        let document = match document {
            Some(document) => document,
            None => self.current_config(account)?.document,
        };
        let check = check_config(&document, request.as_ref(), &self.operator()?);
        Ok(TenantReply::ConfigChecked { check: written(&check)? })
    }
}

fn not_a_request(error: serde_json::Error) -> Refusal {
    Refusal::InvalidSetting { what: format!("`request`: {error}") }
}

fn written<T: Serialize>(document: &T) -> Result<String> {
    serde_json::to_string(document).map_err(Error::from)
}

/// Rows of the configuration.
impl super::store::Store {
    fn config_version(&self, version: u64) -> Result<Option<ConfigVersion>> {
        let query = "SELECT version, at, etag, json FROM config WHERE version = ?";
        let Some(row) = sql::first(self.sql(), query, vec![sql::int(version)?])? else { return Ok(None) };
        let ConfigEntry { version, at, etag } = entry(&row)?;
        Ok(Some(ConfigVersion { version, at, etag, document: sql::as_text(row.get(3).cloned())? }))
    }

    fn config_entries(&self, before: Option<u64>, limit: u32) -> Result<Vec<ConfigEntry>> {
        let query = "SELECT version, at, etag FROM config WHERE version < ? ORDER BY version DESC LIMIT ?";
        let before = sql::int(before.unwrap_or(MAX_VERSION).min(MAX_VERSION))?;
        let rows = sql::rows(self.sql(), query, vec![before, i64::from(limit).into()])?;
        rows.iter().map(|row| entry(row)).collect()
    }

    fn store_config(&self, account: Account, config: ConfigVersion) -> Result<()> {
        self.transaction(move |sql| {
            let parameters = vec![
                sql::int(config.version)?,
                sql::time(config.at)?,
                config.etag.as_str().into(),
                config.document.as_str().into(),
            ];
            sql::run(sql, "INSERT INTO config (version, at, etag, json) VALUES (?, ?, ?, ?)", parameters)?;
            sql::run(sql, "UPDATE account SET json = ?", vec![sql::json(&account)?]).map(|_| ())
        })
    }
}

/// Above it a number does not survive JavaScript, which lies between here and SQLite.
const MAX_VERSION: u64 = (1 << 53) - 1;

fn entry(row: &[SqlStorageValue]) -> Result<ConfigEntry> {
    let missing = || Error::from("a configuration without its version");
    let version = sql::as_int(row.first())?.ok_or_else(missing)?;
    let at = sql::as_int(row.get(1))?.map(UnixMillis).ok_or_else(missing)?;
    Ok(ConfigEntry { version, at, etag: sql::as_text(row.get(2).cloned())? })
}
