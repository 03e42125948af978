//! What a check reads, and where it rests between two steps.

use super::super::store::Store;
use super::pages::{ids_of, json_of, seq_of, text_at};
use crate::sql::{self, Row};
use holdfast_core::ids::ReservationId;
use holdfast_core::ledger::InvoiceLine;
use holdfast_core::money::Micros;
use holdfast_core::tenant::books::{
    ChainRow, Check, Difference, HoldColumns, HoldRows, Home, KeptLine, KeptPosting, Said, StoredPosting, Verified,
    What,
};
use holdfast_core::tenant::{Hold, PeriodState};
use holdfast_core::view::{OpenTotals, RouteSlots};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use worker::{Error, Result, SqlStorageValue};

/// Name of the row with the ledger as far as it was verified.
const VERIFIED: &str = "verified";
/// Name of the row with the check that was begun last.
const CHECK: &str = "check";
/// Name of the row with the first number that has an invoice line, if it bills.
const LINES_FROM: &str = "lines_from";

/// A check with its number.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub(super) struct Run {
    /// When it was begun, or one more than the number before it.
    pub(super) number: u64,
    /// How far it is.
    pub(super) check: Check,
}

/// A hold with all that is its own, or the name of what cannot be read.
pub(super) type ReadHold = core::result::Result<HoldRows, Difference>;

impl Store {
    pub(super) fn verified(&self) -> Result<Verified> {
        Ok(self.books_row(VERIFIED)?.unwrap_or_default())
    }

    pub(super) fn store_verified(&self, verified: &Verified) -> Result<()> {
        self.store_books_row(VERIFIED, verified)
    }

    pub(super) fn run(&self) -> Result<Option<Run>> {
        self.books_row(CHECK)
    }

    pub(super) fn store_run(&self, run: &Run) -> Result<()> {
        self.store_books_row(CHECK, run)
    }

    fn books_row<T: DeserializeOwned>(&self, name: &str) -> Result<Option<T>> {
        sql::first_json(self.sql(), "SELECT json FROM books WHERE name = ?", vec![name.into()])
    }

    fn store_books_row<T: Serialize>(&self, name: &str, row: &T) -> Result<()> {
        let statement =
            "INSERT INTO books (name, json) VALUES (?, ?) ON CONFLICT (name) DO UPDATE SET json = excluded.json";
        sql::run(self.sql(), statement, vec![name.into(), sql::json(row)?]).map(|_| ())
    }

    /// The last number that anything is stored under.
    pub(super) fn chain_length(&self) -> Result<u64> {
        let row = sql::first(self.sql(), "SELECT MAX(seq) FROM audit", vec![])?;
        let audit = sql::as_int(row.as_ref().and_then(|row| row.first()))?.unwrap_or_default();
        Ok(audit.max(self.last_seq()?))
    }

    /// What is stored under the numbers after `after`, up to `upto`, at most `limit`: every number has its row, and what
    /// is missing is missing in it.
    pub(super) fn chain_rows(&self, after: u64, upto: u64, limit: u64) -> Result<Vec<ChainRow>> {
        let end = upto.min(after.saturating_add(limit));
        let query = "
            WITH RECURSIVE number (seq) AS (SELECT ?1 WHERE ?1 <= ?2 UNION ALL SELECT seq + 1 FROM number WHERE seq < ?2)
            SELECT number.seq, audit.json, entry.json, entry.granted_micros, entry.held_micros, entry.spent_micros,
                   posting.json, posting.seq
            FROM number
            LEFT JOIN audit ON audit.seq = number.seq
            LEFT JOIN ledger_entry AS entry ON entry.seq = number.seq
            LEFT JOIN posting ON posting.id = COALESCE(json_extract(audit.json, '$.posting_id'), entry.posting)
            ORDER BY number.seq";
        let rows = sql::rows(self.sql(), query, vec![sql::int(after.saturating_add(1))?, sql::int(end)?])?;
        rows.iter().map(chain_row).collect()
    }

    /// The next holds by the id of their reservation, and the last of them.
    pub(super) fn next_holds(
        &self,
        after: Option<&ReservationId>,
        limit: u32,
    ) -> Result<(Vec<ReadHold>, Option<ReservationId>)> {
        let query = "SELECT reservation FROM hold WHERE reservation > ? ORDER BY reservation LIMIT ?";
        let after = after.map_or("", ReservationId::as_str);
        let ids = self.reservations(query, vec![after.into(), i64::from(limit).into()])?;
        let rows = self.holds_of(&ids)?;
        Ok((rows, ids.last().cloned()))
    }

    /// The holds that these numbers belong to.
    pub(super) fn holds_touched(&self, rows: &[ChainRow]) -> Result<Vec<ReadHold>> {
        let mut ids: Vec<_> =
            rows.iter().filter_map(|row| row.entry.as_ref().and_then(|entry| entry.reservation.clone())).collect();
        ids.sort();
        ids.dedup();
        self.holds_of(&ids)
    }

    fn reservations(&self, query: &str, parameters: Row) -> Result<Vec<ReservationId>> {
        let parse = |row: Row| {
            let id = text_at(&row, 0).and_then(|text| ReservationId::parse(text).ok());
            id.ok_or_else(|| Error::from("a hold without a reservation"))
        };
        sql::rows(self.sql(), query, parameters)?.into_iter().map(parse).collect()
    }

    fn holds_of(&self, ids: &[ReservationId]) -> Result<Vec<ReadHold>> {
        let lines_from: u64 = self.books_row(LINES_FROM)?.unwrap_or(1);
        ids.iter().filter_map(|id| self.hold_rows(id, lines_from).transpose()).collect()
    }

    /// A hold with all that is its own; none where there is no such hold.
    fn hold_rows(&self, reservation: &ReservationId, lines_from: u64) -> Result<Option<ReadHold>> {
        let query = "SELECT json, state, hold_micros, slot FROM hold WHERE reservation = ?";
        let Some(row) = sql::first(self.sql(), query, vec![reservation.as_str().into()])? else { return Ok(None) };
        let read = || -> Result<HoldRows> {
            let hold: Hold = json_of(&row, 0)?;
            let columns = HoldColumns {
                state: text_at(&row, 1).unwrap_or_default().into(),
                held: signed_at(&row, 2),
                slot: signed_at(&row, 3) == 1,
            };
            let postings = self.kept_postings(reservation)?;
            let lines = self.kept_lines(reservation)?;
            let ids = "SELECT id FROM usage_record WHERE reservation = ?";
            let ids = sql::rows(self.sql(), ids, vec![reservation.as_str().into()])?;
            let usage_records = ids.iter().filter_map(|row| text_at(row, 0).map(str::to_owned)).collect();
            Ok(HoldRows { hold, columns, postings, lines, usage_records, lines_from })
        };
        let unreadable = |error: Error| {
            worker::console_error!("rows of {reservation}: {error}");
            let difference = Difference::new(What::Unreadable, Said::Nothing, error.to_string().as_str());
            Difference { reservation_id: Some(reservation.clone()), ..difference }
        };
        Ok(Some(read().map_err(unreadable)))
    }

    fn kept_postings(&self, reservation: &ReservationId) -> Result<Vec<KeptPosting>> {
        let query = "
            SELECT posting.seq, posting.json, entry.json
            FROM posting LEFT JOIN ledger_entry AS entry ON entry.seq = posting.seq
            WHERE posting.id > ?1 AND posting.id < ?2 AND posting.reservation = ?3 ORDER BY posting.seq";
        let (first, end) = ids_of(reservation);
        let rows = sql::rows(self.sql(), query, vec![first.into(), end.into(), reservation.as_str().into()])?;
        let kept = |row: &Row| {
            let entry = text_at(row, 2).map(serde_json::from_str).transpose()?;
            // One without a number counts as the first: the chain names it.
            let seq = sql::as_int(row.first())?.unwrap_or_default();
            Ok(KeptPosting { seq, posting: json_of(row, 1)?, entry })
        };
        rows.iter().map(kept).collect()
    }

    fn kept_lines(&self, reservation: &ReservationId) -> Result<Vec<KeptLine>> {
        let query = "
            SELECT COALESCE(seq, 0), json, amount_micros FROM invoice_line
            WHERE posting > ?1 AND posting < ?2 AND reservation = ?3 ORDER BY seq";
        let (first, end) = ids_of(reservation);
        let rows = sql::rows(self.sql(), query, vec![first.into(), end.into(), reservation.as_str().into()])?;
        let kept = |row: &Row| {
            let line: InvoiceLine = json_of(row, 1)?;
            Ok(KeptLine { seq: seq_of(row)?, line, amount: signed_at(row, 2) })
        };
        rows.iter().map(kept).collect()
    }

    /// The ids of the next rows of a table that belong to no hold, and the last id that was looked at.
    pub(super) fn strays(&self, home: Home, after: Option<&str>, limit: u32) -> Result<(Vec<String>, Option<String>)> {
        let query = match home {
            Home::Postings => STRAY_POSTINGS,
            Home::Lines => STRAY_LINES,
            Home::UsageRecords => STRAY_RECORDS,
        };
        let rows = sql::rows(self.sql(), query, vec![after.unwrap_or_default().into(), i64::from(limit).into()])?;
        let id = |row: &Row| text_at(row, 0).unwrap_or_default().to_owned();
        let strays = rows.iter().filter(|row| signed_at(row, 1) == 1).map(id).collect();
        Ok((strays, rows.last().map(id)))
    }

    /// Every budget period.
    pub(super) fn periods(&self) -> Result<Vec<PeriodState>> {
        sql::all_json(self.sql(), "SELECT json FROM period ORDER BY key", vec![])
    }

    /// The next open holds by the id of their reservation.
    pub(super) fn next_open_holds(&self, after: Option<&ReservationId>, limit: u32) -> Result<Vec<Hold>> {
        let query = "SELECT json FROM hold WHERE state = 'open' AND reservation > ? ORDER BY reservation LIMIT ?";
        let after = after.map_or("", ReservationId::as_str);
        sql::all_json(self.sql(), query, vec![after.into(), i64::from(limit).into()])
    }

    /// Sums over the open holds, by their columns.
    pub(super) fn open_totals(&self) -> Result<OpenTotals> {
        let query = "
            SELECT json_extract(json, '$.terms.route') AS route, SUM(slot), SUM(hold_micros)
            FROM hold WHERE state = 'open' GROUP BY route ORDER BY route";
        let mut totals = OpenTotals { detached: self.detached()?, ..OpenTotals::default() };
        for row in &sql::rows(self.sql(), query, vec![])? {
            let slots_in_use = sql::as_int(row.get(1))?.unwrap_or_default();
            let held_micros = amount(row.get(2))?;
            totals.slots = totals.slots.saturating_add(slots_in_use);
            totals.held = totals.held.plus(held_micros).map_err(|error| Error::from(error.to_string()))?;
            let route = text_at(row, 0).unwrap_or_default().to_owned();
            totals.routes.push(RouteSlots { route, slots_in_use, held_micros });
        }
        Ok(totals)
    }
}

const STRAY_POSTINGS: &str = "
    SELECT id, reservation IS NOT NULL AND NOT EXISTS (SELECT 1 FROM hold WHERE hold.reservation = posting.reservation)
    FROM posting WHERE id > ? ORDER BY id LIMIT ?";

const STRAY_LINES: &str = "
    SELECT posting, NOT EXISTS (SELECT 1 FROM hold WHERE hold.reservation = invoice_line.reservation)
    FROM invoice_line WHERE posting > ? ORDER BY posting LIMIT ?";

const STRAY_RECORDS: &str = "
    SELECT id, NOT EXISTS (SELECT 1 FROM hold WHERE hold.reservation = usage_record.reservation)
    FROM usage_record WHERE id > ? ORDER BY id LIMIT ?";

/// What is stored under a number. A row that cannot be read is as good as none.
fn chain_row(row: &Row) -> Result<ChainRow> {
    let moved = [3, 4, 5].map(|column| row.get(column).is_some_and(|value| *value != SqlStorageValue::Null));
    let columns = moved.iter().all(|there| *there).then(|| (signed_at(row, 3), signed_at(row, 4), signed_at(row, 5)));
    let posting = text_at(row, 6).map(str::to_owned);
    let seq = sql::as_int(row.get(7))?;
    Ok(ChainRow {
        seq: seq_of(row)?,
        audit: json_of(row, 1).ok(),
        entry: json_of(row, 2).ok(),
        columns,
        posting: posting.map(|text| StoredPosting { text, seq }),
    })
}

fn signed_at(row: &Row, column: usize) -> i64 {
    match row.get(column) {
        Some(SqlStorageValue::Integer(value)) => *value,
        _ => 0,
    }
}

fn amount(value: Option<&SqlStorageValue>) -> Result<Micros> {
    Micros::new(sql::as_int(value)?.unwrap_or_default()).map_err(|error| Error::from(error.to_string()))
}
