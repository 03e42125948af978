//! Rows of a tenant. Writes belong into one transaction per transition; reads never invent a row.

use super::schema;
use crate::sql::{self, Row};
use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::{Balances, InvoiceLine, LedgerEntry, Posting, UsageRecord};
use holdfast_core::money::Micros;
use holdfast_core::tenant::{
    AdmissionRows, Hold, HoldState, IdempotencyRow, KeyAfter, PeriodState, PostedRows, SettlementRows, TenantState,
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
        let parse = |row: Row| match row.first() {
            Some(SqlStorageValue::String(text)) => Ok(serde_json::from_str(text)?),
            _ => Err(Error::from("expected JSON text")),
        };
        sql::rows(&self.sql, query, parameters)?.into_iter().map(parse).collect()
    }

    /// When the next open hold is due.
    pub(super) fn earliest_due(&self) -> Result<Option<UnixMillis>> {
        if !self.exists()? {
            return Ok(None);
        }
        let query = "SELECT due_at FROM hold WHERE state = 'open' ORDER BY due_at LIMIT 1";
        let row = sql::first(&self.sql, query, vec![])?;
        Ok(sql::as_int(row.as_ref().and_then(|row| row.first()))?.map(UnixMillis))
    }

    /// How many open holds have their slot, and what all open holds hold.
    pub(super) fn open_totals(&self) -> Result<(u64, Micros)> {
        let query = "SELECT SUM(slot), SUM(hold_micros) FROM hold WHERE state = 'open'";
        let row = sql::first(&self.sql, query, vec![])?.ok_or_else(|| missing("sum of holds"))?;
        Ok((sql::as_int(row.first())?.unwrap_or_default(), amount(row.get(1))?))
    }

    /// The balances over all postings: every row is read. Made from the postings alone, not from what their entries say
    /// they moved. A resolution ends its hold whatever was held, so only the holds without one are summed.
    pub(super) fn recomputed_balances(&self) -> Result<Balances> {
        let query = "
            SELECT SUM(CASE WHEN kind = 'grant' THEN amount_micros END),
                   SUM(CASE WHEN kind IN ('hold', 'hold_extended', 'hold_reduced') AND NOT EXISTS (
                       SELECT 1 FROM posting AS resolution
                       WHERE resolution.reservation = posting.reservation AND resolution.kind IN ('settle', 'release')
                   ) THEN CASE kind WHEN 'hold_reduced' THEN -amount_micros ELSE amount_micros END END),
                   SUM(CASE WHEN kind IN ('settle', 'overage', 'late_settlement') THEN amount_micros
                            WHEN kind IN ('correction', 'compensation') THEN
                                CASE WHEN json_extract(json, '$.direction') IS 'refund'
                                     THEN -amount_micros ELSE amount_micros END
                       END)
            FROM posting";
        let row = sql::first(&self.sql, query, vec![])?.ok_or_else(|| missing("sum of postings"))?;
        Ok(Balances { granted: amount(row.first())?, held: amount(row.get(1))?, spent: amount(row.get(2))? })
    }

    pub(super) fn posting(&self, id: &str) -> Result<Option<Posting>> {
        sql::first_json(&self.sql, "SELECT json FROM posting WHERE id = ?", vec![id.into()])
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
            rows.idempotency.iter().try_for_each(|row| write_idempotency(sql, row))
        })
    }

    /// Stores what a posting on a hold does.
    pub(super) fn store_settlement(&self, rows: SettlementRows) -> Result<()> {
        self.transaction(move |sql| {
            write_posted(sql, &rows.posted)?;
            rows.invoice_line.iter().try_for_each(|line| insert_invoice_line(sql, line))?;
            update_hold(sql, &rows.hold)?;
            write_period(sql, &rows.period)?;
            match (&rows.idempotency, &rows.hold.idempotency_scope) {
                (KeyAfter::Expires(row), _) => write_idempotency(sql, row),
                (KeyAfter::Freed, Some(scope)) => delete_idempotency(sql, scope),
                (KeyAfter::Freed, None) | (KeyAfter::Unchanged, _) => Ok(()),
            }
        })
    }

    /// Stores when a hold is looked into again.
    pub(super) fn store_due(&self, hold: Hold) -> Result<()> {
        self.transaction(move |sql| update_hold(sql, &hold))
    }

    fn transaction(&self, body: impl FnOnce(&SqlStorage) -> Result<()> + 'static) -> Result<()> {
        let sql = self.sql.clone();
        sql::transaction(&self.storage, move || body(&sql))
    }
}

fn missing(what: &str) -> Error {
    Error::from(format!("{what} is missing"))
}

fn amount(value: Option<&SqlStorageValue>) -> Result<Micros> {
    Micros::new(sql::as_int(value)?.unwrap_or_default()).map_err(|error| Error::from(error.to_string()))
}

const fn state_name(state: HoldState) -> &'static str {
    match state {
        HoldState::Open => "open",
        HoldState::Settled => "settled",
        HoldState::Released => "released",
    }
}

/// Posting with its usage records, entry, audit row and tenant. A posting id, a second resolution of a hold or an audit
/// number that exists already fails the transaction.
fn write_posted(sql: &SqlStorage, rows: &PostedRows) -> Result<()> {
    let PostedRows { posting, entry, audit, tenant } = rows;
    let reservation = posting.reservation.as_ref().map(|reservation| reservation.as_str().to_owned());
    sql::run(
        sql,
        "INSERT INTO posting (id, reservation, kind, amount_micros, json) VALUES (?, ?, ?, ?, ?)",
        vec![
            posting.id.as_str().into(),
            reservation.into(),
            posting.kind.as_str().into(),
            sql::micros(posting.amount)?,
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

fn insert_invoice_line(sql: &SqlStorage, line: &InvoiceLine) -> Result<()> {
    sql::run(
        sql,
        "INSERT INTO invoice_line (posting, reservation, period, amount_micros, json) VALUES (?, ?, ?, ?, ?)",
        vec![
            line.posting_id.as_str().into(),
            line.reservation.as_str().into(),
            line.period.as_str().into(),
            sql::signed_micros(line.amount)?,
            sql::json(line)?,
        ],
    )?;
    Ok(())
}

fn insert_hold(sql: &SqlStorage, hold: &Hold) -> Result<()> {
    sql::run(
        sql,
        "INSERT INTO hold (reservation, generation, state, admitted_at, due_at, hold_micros, slot, json)
         VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
        vec![
            hold.identity.reservation.as_str().into(),
            hold.identity.generation.as_str().into(),
            state_name(hold.state).into(),
            sql::time(hold.admitted_at)?,
            sql::time(hold.due_at)?,
            sql::micros(hold.held())?,
            sql::int(u64::from(hold.has_slot()))?,
            sql::json(hold)?,
        ],
    )?;
    Ok(())
}

fn update_hold(sql: &SqlStorage, hold: &Hold) -> Result<()> {
    let written = sql::run(
        sql,
        "UPDATE hold SET state = ?, due_at = ?, hold_micros = ?, slot = ?, json = ? WHERE reservation = ?",
        vec![
            state_name(hold.state).into(),
            sql::time(hold.due_at)?,
            sql::micros(hold.held())?,
            sql::int(u64::from(hold.has_slot()))?,
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
