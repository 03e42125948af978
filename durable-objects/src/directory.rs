//! The list of tenants of a deployment: one object, for the operator and for the sweep.
#![allow(missing_docs, reason = "the object macro generates undocumented items")]

use crate::{rpc, schema, sql};
use holdfast_core::ids::TenantId;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{DirectoryCall, DirectoryEntry, DirectoryReply};
use std::cell::Cell;
use std::panic::AssertUnwindSafe;
use worker::{DurableObject, Env, Error, Request, Response, Result, SqlStorage, State, Storage, durable_object};

/// The one object's name.
pub(crate) const NAME: &str = "tenants";

const MIGRATIONS: &[&str] = &[TENANTS, VERSION];

/// Who there is. Version 1 made each table when it was first needed, and stored no version.
const TENANTS: &str = "
    CREATE TABLE IF NOT EXISTS tenant (
        id TEXT PRIMARY KEY,
        created_at INTEGER NOT NULL
    ) STRICT, WITHOUT ROWID;
";

/// The version of the tables, and how far the sweep has come: a tenant's id, or nothing at the beginning.
const VERSION: &str = "
    CREATE TABLE schema (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        version INTEGER NOT NULL
    ) STRICT;
    CREATE TABLE IF NOT EXISTS sweep (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        tenant TEXT NOT NULL
    ) STRICT;
";

/// All tenants by id. It decides nothing: an entry without a tenant behind it is harmless.
#[durable_object]
pub struct DirectoryObject {
    directory: AssertUnwindSafe<Directory>,
}

impl DurableObject for DirectoryObject {
    fn new(state: State, _env: Env) -> Self {
        let storage = state.storage();
        Self { directory: AssertUnwindSafe(Directory { sql: storage.sql(), storage, ready: Cell::new(false) }) }
    }

    async fn fetch(&self, mut request: Request) -> Result<Response> {
        let (call, _) = rpc::read_call::<DirectoryCall>(&mut request).await?;
        rpc::reply(&self.directory.answer(call)?)
    }
}

/// The rows, and whether their tables are of this version.
#[derive(Debug)]
struct Directory {
    storage: Storage,
    sql: SqlStorage,
    ready: Cell<bool>,
}

impl Directory {
    /// Whether there is anything to read. Writes nothing where nothing was ever stored.
    fn exists(&self) -> Result<bool> {
        if !self.ready.get() && self.has_any_table()? {
            self.create()?;
        }
        Ok(self.ready.get())
    }

    fn has_any_table(&self) -> Result<bool> {
        Ok(sql::has_table(&self.sql, "schema")?
            || sql::has_table(&self.sql, "tenant")?
            || sql::has_table(&self.sql, "sweep")?)
    }

    /// Brings the tables up to this version, from whatever there is.
    fn create(&self) -> Result<()> {
        if self.ready.get() {
            return Ok(());
        }
        let from = self.version()?;
        let pending = schema::pending(MIGRATIONS, from, "directory")?;
        if !pending.is_empty() {
            let sql = self.sql.clone();
            sql::transaction(&self.storage, move || {
                pending.iter().try_for_each(|migration| sql::run(&sql, migration, vec![]).map(|_| ()))?;
                let version = sql::int(u64::try_from(MIGRATIONS.len()).unwrap_or_default())?;
                let statement = "INSERT OR REPLACE INTO schema (one, version) VALUES (1, ?)";
                sql::run(&sql, statement, vec![version]).map(|_| ())
            })?;
        }
        self.ready.set(true);
        Ok(())
    }

    fn version(&self) -> Result<usize> {
        if sql::has_table(&self.sql, "schema")? {
            return schema::version(&self.sql, "directory");
        }
        Ok(usize::from(sql::has_table(&self.sql, "tenant")?))
    }

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
        self.create()?;
        let statement = "INSERT INTO tenant (id, created_at) VALUES (?, ?) ON CONFLICT (id) DO NOTHING";
        sql::run(&self.sql, statement, vec![tenant.as_str().into(), sql::time(created_at)?])?;
        Ok(DirectoryReply::Added)
    }

    /// Where the walk of the sweep stands.
    fn swept_to(&self) -> Result<Option<TenantId>> {
        if !self.exists()? {
            return Ok(None);
        }
        let row = sql::first(&self.sql, "SELECT tenant FROM sweep", vec![])?;
        let id = row.map(|row| sql::as_text(row.into_iter().next())).transpose()?;
        // Nothing at the beginning.
        Ok(id.and_then(|id| TenantId::parse(&id).ok()))
    }

    fn note_swept(&self, tenant: Option<&TenantId>) -> Result<DirectoryReply> {
        self.create()?;
        let statement = "INSERT INTO sweep (one, tenant) VALUES (1, ?)
            ON CONFLICT (one) DO UPDATE SET tenant = excluded.tenant";
        sql::run(&self.sql, statement, vec![tenant.map_or("", TenantId::as_str).into()])?;
        Ok(DirectoryReply::Noted)
    }

    fn list(&self, after: Option<&TenantId>, limit: u32) -> Result<DirectoryReply> {
        if !self.exists()? {
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
