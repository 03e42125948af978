//! Rows of a tenant. Writes belong into one transaction per transition; reads never invent a row.

use super::runs::insert_run;
use super::schema;
use crate::sql::{self, Row};
use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::{InvoiceLine, LedgerEntry, Posting, UsageRecord};
use holdfast_core::tenant::{
    AdmissionRows, Hold, IdempotencyRow, KeyAfter, PeriodState, PostedRows, SettlementRows, TenantState,
};
use holdfast_core::time::UnixMillis;
use std::cell::Cell;
use worker::{Error, Result, SqlStorage, SqlStorageValue, Storage};

/// Reads and writes of one tenant.
#[derive(Debug)]
pub(super) struct Store {
    storage: Storage,
    sql: SqlStorage,
    ready: Cell<bool>,
}

impl Store {
    pub(super) fn new(storage: Storage) -> Self {
        Self { sql: storage.sql(), storage, ready: Cell::new(false) }
    }

    /// Whether there is anything to read. Writes nothing for a tenant that was never used.
    pub(super) fn exists(&self) -> Result<bool> {
        if !self.ready.get() && schema::exists(&self.sql)? {
            self.create()?;
        }
        Ok(self.ready.get())
    }

    /// Makes the tables, if they are not there.
    pub(super) fn create(&self) -> Result<()> {
        if !self.ready.get() {
            schema::migrate(&self.storage)?;
            self.ready.set(true);
        }
        Ok(())
    }

    pub(super) fn tenant(&self) -> Result<TenantState> {
        sql::first_json(&self.sql, "SELECT json FROM tenant", vec![])?.ok_or_else(|| missing("tenant"))
    }

    /// `None` when nothing was admitted in the period yet.
    pub(super) fn period(&self, key: &str) -> Result<Option<PeriodState>> {
        sql::first_json(&self.sql, "SELECT json FROM period WHERE key = ?", vec![key.into()])
    }

    pub(super) fn hold(&self, reservation: &ReservationId) -> Result<Option<Hold>> {
        sql::first_json(&self.sql, "SELECT json FROM hold WHERE reservation = ?", vec![reservation.as_str().into()])
    }

    pub(super) fn hold_of(&self, generation: &GenerationId) -> Result<Option<Hold>> {
        sql::first_json(&self.sql, "SELECT json FROM hold WHERE generation = ?", vec![generation.as_str().into()])
    }

    /// The oldest open holds.
    pub(super) fn open_holds(&self, limit: u32) -> Result<Vec<Hold>> {
        let query = "SELECT json FROM hold WHERE state = 'open' ORDER BY admitted_at, reservation LIMIT ?";
        self.holds(query, vec![i64::from(limit).into()])
    }

    /// The open holds that are due, the most overdue first.
    pub(super) fn overdue(&self, now: UnixMillis, limit: u32) -> Result<Vec<Hold>> {
        let query = "SELECT json FROM hold WHERE state = 'open' AND due_at <= ? ORDER BY due_at LIMIT ?";
        self.holds(query, vec![sql::time(now)?, i64::from(limit).into()])
    }

    fn holds(&self, query: &str, parameters: Row) -> Result<Vec<Hold>> {
        sql::all_json(&self.sql, query, parameters)
    }

    /// When something is due next: an open hold, or an event for the webhook.
    pub(super) fn earliest_due(&self) -> Result<Option<UnixMillis>> {
        if !self.exists()? {
            return Ok(None);
        }
        let query = "SELECT due_at FROM hold WHERE state = 'open' ORDER BY due_at LIMIT 1";
        let row = sql::first(&self.sql, query, vec![])?;
        let hold = sql::as_int(row.as_ref().and_then(|row| row.first()))?.map(UnixMillis);
        Ok([hold, self.next_event_at()?].into_iter().flatten().min())
    }

    /// How many slots the open holds of a route have.
    pub(super) fn slots_of_route(&self, route: &str) -> Result<u32> {
        let query =
            "SELECT COUNT(*) FROM hold WHERE state = 'open' AND slot = 1 AND json_extract(json, '$.terms.route') = ?";
        let row = sql::first(&self.sql, query, vec![route.into()])?;
        let slots = sql::as_int(row.as_ref().and_then(|row| row.first()))?.unwrap_or_default();
        Ok(u32::try_from(slots).unwrap_or(u32::MAX))
    }

    pub(super) fn posting(&self, id: &str) -> Result<Option<Posting>> {
        sql::first_json(&self.sql, "SELECT json FROM posting WHERE id = ?", vec![id.into()])
    }

    /// What a posting did when it was applied.
    pub(super) fn entry(&self, posting_id: &str) -> Result<Option<LedgerEntry>> {
        let query =
            "SELECT entry.json FROM posting JOIN ledger_entry AS entry ON entry.seq = posting.seq WHERE posting.id = ?";
        sql::first_json(&self.sql, query, vec![posting_id.into()])
    }

    pub(super) fn idempotency(&self, scope: &str) -> Result<Option<IdempotencyRow>> {
        sql::first_json(&self.sql, "SELECT json FROM idempotency WHERE scope = ?", vec![scope.into()])
    }

    /// The standing row of an idempotency key on any path; the latest admission, if there are several.
    pub(super) fn idempotency_on_any_path(&self, key: &str, now: UnixMillis) -> Result<Option<IdempotencyRow>> {
        let query = "
            SELECT idempotency.json FROM idempotency JOIN hold USING (generation)
            WHERE key = ? AND (expires_at IS NULL OR expires_at > ?)
            ORDER BY admitted_at DESC, scope LIMIT 1";
        sql::first_json(&self.sql, query, vec![key.into(), sql::time(now)?])
    }

    /// Removes idempotency keys that stand no longer.
    pub(super) fn forget_expired(&self, now: UnixMillis, limit: u32) -> Result<()> {
        let statement = "
            DELETE FROM idempotency WHERE scope IN (
                SELECT scope FROM idempotency WHERE expires_at IS NOT NULL AND expires_at <= ?
                ORDER BY expires_at LIMIT ?)";
        sql::run(&self.sql, statement, vec![sql::time(now)?, i64::from(limit).into()])?;
        Ok(())
    }

    /// Stores a posting that belongs to no hold.
    pub(super) fn store_posted(&self, rows: PostedRows) -> Result<()> {
        self.transaction(move |sql| write_posted(sql, &rows))
    }

    /// Stores a new hold.
    pub(super) fn store_admission(&self, rows: AdmissionRows) -> Result<()> {
        self.transaction(move |sql| {
            write_posted(sql, &rows.posted)?;
            insert_hold(sql, &rows.hold)?;
            write_period(sql, &rows.period)?;
            rows.run.iter().try_for_each(|row| insert_run(sql, row))?;
            rows.idempotency.iter().try_for_each(|row| write_idempotency(sql, row))
        })
    }

    /// Stores what a posting on a hold does.
    pub(super) fn store_settlement(&self, rows: SettlementRows) -> Result<()> {
        self.transaction(move |sql| {
            write_posted(sql, &rows.posted)?;
            let seq = rows.posted.entry.seq;
            rows.invoice_line.iter().try_for_each(|line| insert_invoice_line(sql, seq, line))?;
            update_hold(sql, &rows.hold)?;
            write_period(sql, &rows.period)?;
            match (&rows.idempotency, &rows.hold.idempotency_scope) {
                (KeyAfter::Expires(row), _) => write_idempotency(sql, row),
                (KeyAfter::Freed, Some(scope)) => delete_idempotency(sql, scope),
                (KeyAfter::Freed, None) | (KeyAfter::Unchanged, _) => Ok(()),
            }
        })
    }

    /// Stores what changed of a hold without a posting: when it is looked into again, or its place.
    pub(super) fn store_hold(&self, hold: Hold) -> Result<()> {
        self.transaction(move |sql| update_hold(sql, &hold))
    }

    /// How many generations go on without a reader.
    pub(super) fn detached(&self) -> Result<u32> {
        let row = sql::first(&self.sql, "SELECT COUNT(*) FROM hold WHERE detached = 1", vec![])?;
        let detached = sql::as_int(row.as_ref().and_then(|row| row.first()))?.unwrap_or_default();
        Ok(u32::try_from(detached).unwrap_or(u32::MAX))
    }

    pub(super) fn sql(&self) -> &SqlStorage {
        &self.sql
    }

    pub(super) fn transaction(&self, body: impl FnOnce(&SqlStorage) -> Result<()> + 'static) -> Result<()> {
        let sql = self.sql.clone();
        sql::transaction(&self.storage, move || body(&sql))
    }
}

fn missing(what: &str) -> Error {
    Error::from(format!("{what} is missing"))
}

/// Posting with its usage records, entry, audit row and tenant. A posting id, a second resolution of a hold or an audit
/// number that exists already fails the transaction.
fn write_posted(sql: &SqlStorage, rows: &PostedRows) -> Result<()> {
    let PostedRows { posting, entry, audit, tenant } = rows;
    let reservation = posting.reservation.as_ref().map(|reservation| reservation.as_str().to_owned());
    sql::run(
        sql,
        "INSERT INTO posting (id, reservation, kind, amount_micros, seq, json) VALUES (?, ?, ?, ?, ?, ?)",
        vec![
            posting.id.as_str().into(),
            reservation.into(),
            posting.kind.as_str().into(),
            sql::micros(posting.amount)?,
            sql::int(entry.seq)?,
            sql::json(posting)?,
        ],
    )?;
    insert_entry(sql, entry)?;
    sql::run(
        sql,
        "INSERT INTO audit (seq, json, hash) VALUES (?, ?, ?)",
        vec![sql::int(audit.seq)?, sql::json(audit)?, audit.hash.as_str().into()],
    )?;
    sql::run(sql, "UPDATE tenant SET json = ?", vec![sql::json(tenant)?])?;
    posting.usage_records.iter().try_for_each(|record| insert_usage_record(sql, record))
}

fn insert_entry(sql: &SqlStorage, entry: &LedgerEntry) -> Result<()> {
    sql::run(
        sql,
        "INSERT INTO ledger_entry (seq, posting, granted_micros, held_micros, spent_micros, json)
         VALUES (?, ?, ?, ?, ?, ?)",
        vec![
            sql::int(entry.seq)?,
            entry.posting_id.as_str().into(),
            sql::signed_micros(entry.granted)?,
            sql::signed_micros(entry.held)?,
            sql::signed_micros(entry.spent)?,
            sql::json(entry)?,
        ],
    )?;
    Ok(())
}

/// An observation that was told before stands as it was told first.
fn insert_usage_record(sql: &SqlStorage, record: &UsageRecord) -> Result<()> {
    sql::run(
        sql,
        "INSERT OR IGNORE INTO usage_record (id, reservation, attempt, observed_at, json) VALUES (?, ?, ?, ?, ?)",
        vec![
            record.id.as_str().into(),
            record.reservation.as_str().into(),
            record.attempt.as_str().into(),
            sql::time(record.observed_at)?,
            sql::json(record)?,
        ],
    )?;
    Ok(())
}

fn insert_invoice_line(sql: &SqlStorage, seq: u64, line: &InvoiceLine) -> Result<()> {
    sql::run(
        sql,
        "INSERT INTO invoice_line (posting, reservation, period, amount_micros, seq, json) VALUES (?, ?, ?, ?, ?, ?)",
        vec![
            line.posting_id.as_str().into(),
            line.reservation.as_str().into(),
            line.period.as_str().into(),
            sql::signed_micros(line.amount)?,
            sql::int(seq)?,
            sql::json(line)?,
        ],
    )?;
    Ok(())
}

fn insert_hold(sql: &SqlStorage, hold: &Hold) -> Result<()> {
    sql::run(
        sql,
        "INSERT INTO hold (reservation, generation, state, admitted_at, due_at, hold_micros, slot, detached, json)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
        vec![
            hold.identity.reservation.as_str().into(),
            hold.identity.generation.as_str().into(),
            hold.state.as_str().into(),
            sql::time(hold.admitted_at)?,
            sql::time(hold.due_at)?,
            sql::micros(hold.held())?,
            sql::int(u64::from(hold.has_slot()))?,
            sql::int(u64::from(hold.is_detached()))?,
            sql::json(hold)?,
        ],
    )?;
    Ok(())
}

fn update_hold(sql: &SqlStorage, hold: &Hold) -> Result<()> {
    let written = sql::run(
        sql,
        "UPDATE hold SET state = ?, due_at = ?, hold_micros = ?, slot = ?, detached = ?, json = ? WHERE reservation = ?",
        vec![
            hold.state.as_str().into(),
            sql::time(hold.due_at)?,
            sql::micros(hold.held())?,
            sql::int(u64::from(hold.has_slot()))?,
            sql::int(u64::from(hold.is_detached()))?,
            sql::json(hold)?,
            hold.identity.reservation.as_str().into(),
        ],
    )?;
    if written == 0 { Err(missing("hold")) } else { Ok(()) }
}

fn write_period(sql: &SqlStorage, period: &PeriodState) -> Result<()> {
    let statement = "INSERT INTO period (key, json) VALUES (?, ?) ON CONFLICT (key) DO UPDATE SET json = excluded.json";
    sql::run(sql, statement, vec![period.key.as_str().into(), sql::json(period)?])?;
    Ok(())
}

/// A key that stands no longer is taken over by the generation that used it anew.
fn write_idempotency(sql: &SqlStorage, row: &IdempotencyRow) -> Result<()> {
    let expires_at = row.expires_at.map_or(Ok(SqlStorageValue::Null), sql::time)?;
    sql::run(
        sql,
        "INSERT OR REPLACE INTO idempotency (scope, key, generation, expires_at, json) VALUES (?, ?, ?, ?, ?)",
        vec![
            row.scope.as_str().into(),
            row.key().into(),
            row.identity.generation.as_str().into(),
            expires_at,
            sql::json(row)?,
        ],
    )?;
    Ok(())
}

fn delete_idempotency(sql: &SqlStorage, scope: &str) -> Result<()> {
    sql::run(sql, "DELETE FROM idempotency WHERE scope = ?", vec![scope.into()])?;
    Ok(())
}
