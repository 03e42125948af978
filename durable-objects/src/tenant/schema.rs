//! Tables of a tenant. Migrations only go forward; one that was deployed never changes.

use crate::sql;
use holdfast_core::tenant::TenantState;
use worker::{Error, Result, SqlStorage, Storage};

const MIGRATIONS: &[&str] = &["
    CREATE TABLE schema (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        version INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE tenant (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE period (
        key TEXT PRIMARY KEY,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE hold (
        reservation TEXT PRIMARY KEY,
        generation TEXT NOT NULL UNIQUE,
        state TEXT NOT NULL,
        admitted_at INTEGER NOT NULL,
        due_at INTEGER NOT NULL,
        hold_micros INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX hold_open ON hold (due_at) WHERE state = 'open';
    CREATE TABLE posting (
        id TEXT PRIMARY KEY,
        reservation TEXT,
        kind TEXT NOT NULL,
        amount_micros INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE UNIQUE INDEX posting_resolution ON posting (reservation) WHERE kind IN ('settle', 'release');
    CREATE TABLE audit (
        seq INTEGER PRIMARY KEY,
        json TEXT NOT NULL,
        hash TEXT NOT NULL
    ) STRICT;
    CREATE TABLE idempotency (
        scope TEXT PRIMARY KEY,
        key TEXT NOT NULL,
        generation TEXT NOT NULL,
        expires_at INTEGER,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX idempotency_key ON idempotency (key);
    CREATE INDEX idempotency_expiry ON idempotency (expires_at) WHERE expires_at IS NOT NULL;
"];

/// Whether the tenant has tables.
pub(super) fn exists(sql: &SqlStorage) -> Result<bool> {
    sql::has_table(sql, "schema")
}

/// Brings the tables up to this version, from whatever there is; a new tenant starts with empty balances.
pub(super) fn migrate(storage: &Storage) -> Result<()> {
    let sql = storage.sql();
    let from = if exists(&sql)? { version(&sql)? } else { 0 };
    let pending = MIGRATIONS.get(from..).ok_or_else(|| Error::from("tenant tables are of a newer version"))?;
    if pending.is_empty() {
        return Ok(());
    }
    sql::transaction(storage, move || {
        for migration in pending {
            sql::run(&sql, migration, vec![])?;
        }
        if from == 0 {
            let empty = sql::json(&TenantState::default())?;
            sql::run(&sql, "INSERT INTO tenant (one, json) VALUES (1, ?)", vec![empty])?;
        }
        let version = sql::int(u64::try_from(MIGRATIONS.len()).unwrap_or_default())?;
        sql::run(&sql, "INSERT OR REPLACE INTO schema (one, version) VALUES (1, ?)", vec![version])?;
        Ok(())
    })
}

fn version(sql: &SqlStorage) -> Result<usize> {
    let row = sql::first(sql, "SELECT version FROM schema", vec![])?;
    let version = sql::as_int(row.as_ref().and_then(|row| row.first()))?;
    version
        .and_then(|version| usize::try_from(version).ok())
        .ok_or_else(|| Error::from("tenant tables have no version"))
}
