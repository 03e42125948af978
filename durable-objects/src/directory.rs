//! The list of tenants of a deployment: one object, for the operator and for the sweep.
#![allow(missing_docs, reason = "the object macro generates undocumented items")]

use crate::rpc;
use crate::sql;
use holdfast_core::ids::TenantId;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{DirectoryCall, DirectoryEntry, DirectoryReply};
use std::panic::AssertUnwindSafe;
use worker::{DurableObject, Env, Error, Request, Response, Result, SqlStorage, State, durable_object};

/// The one object's name.
pub(crate) const NAME: &str = "tenants";

const TABLES: &str = "
    CREATE TABLE IF NOT EXISTS tenant (
        id TEXT PRIMARY KEY,
        created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// How far the sweep has come: a tenant's id, or nothing at the beginning.
const SWEEP_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS sweep (one INTEGER PRIMARY KEY CHECK (one = 1), tenant TEXT NOT NULL) STRICT";

/// All tenants by id. It decides nothing: an entry without a tenant behind it is harmless.
#[durable_object]
pub struct DirectoryObject {
    sql: AssertUnwindSafe<SqlStorage>,
}

impl DurableObject for DirectoryObject {
    fn new(state: State, _env: Env) -> Self {
        Self { sql: AssertUnwindSafe(state.storage().sql()) }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let (call, _) = rpc::read_call::<DirectoryCall>(&mut request).await?;
        rpc::reply(&self.answer(call)?)
    }
}

impl DirectoryObject {
    fn answer(&self, call: DirectoryCall) -> Result<DirectoryReply> {
        match call {
            DirectoryCall::Add { tenant, created_at } => self.add(&tenant, created_at),
            DirectoryCall::List { after, limit } => self.list(after.as_ref(), limit),
            DirectoryCall::SweepNext { limit } => self.list(self.swept_to()?.as_ref(), limit),
            DirectoryCall::SweptTo { tenant } => self.note_swept(tenant.as_ref()),
        }
    }

    /// The first entry of a tenant stands.
    fn add(&self, tenant: &TenantId, created_at: UnixMillis) -> Result<DirectoryReply> {
        sql::run(&self.sql, TABLES, vec![])?;
        let statement = "INSERT INTO tenant (id, created_at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING";
        sql::run(&self.sql, statement, vec![tenant.as_str().into(), sql::time(created_at)?])?;
        Ok(DirectoryReply::Added)
    }

    /// Where the walk of the sweep stands.
    fn swept_to(&self) -> Result<Option<TenantId>> {
        if !sql::has_table(&self.sql, "sweep")? {
            return Ok(None);
        }
        let row = sql::first(&self.sql, "SELECT tenant FROM sweep", vec![])?;
        let id = row.map(|row| sql::as_text(row.into_iter().next())).transpose()?;
        // Nothing at the beginning.
        Ok(id.and_then(|id| TenantId::parse(&id).ok()))
    }

    fn note_swept(&self, tenant: Option<&TenantId>) -> Result<DirectoryReply> {
        sql::run(&self.sql, SWEEP_TABLE, vec![])?;
        let statement = "INSERT INTO sweep (one, tenant) VALUES (1, ?)
            ON CONFLICT (one) DO UPDATE SET tenant = excluded.tenant";
        sql::run(&self.sql, statement, vec![tenant.map_or("", TenantId::as_str).into()])?;
        Ok(DirectoryReply::Noted)
    }

    fn list(&self, after: Option<&TenantId>, limit: u32) -> Result<DirectoryReply> {
        if !sql::has_table(&self.sql, "tenant")? {
            return Ok(DirectoryReply::Tenants { tenants: Vec::new() });
        }
        let query = "SELECT id, created_at FROM tenant WHERE id > ? ORDER BY id LIMIT ?";
        let parameters = vec![after.map_or("", TenantId::as_str).into(), i64::from(limit).into()];
        let rows = sql::rows(&self.sql, query, parameters)?;
        let tenants = rows.into_iter().map(|row| entry(&row)).collect::<Result<_>>()?;
        Ok(DirectoryReply::Tenants { tenants })
    }
}

fn entry(row: &sql::Row) -> Result<DirectoryEntry> {
    let id = TenantId::parse(&sql::as_text(row.first().cloned())?).map_err(|_| Error::from("a tenant's id"))?;
    let created_at = sql::as_int(row.get(1))?.unwrap_or_default();
    Ok(DirectoryEntry { id, created_at: UnixMillis(created_at) })
}
