//! Rows of a page. Filters are part of the query; the numbers that one query looks through are bounded.

use super::super::store::Store;
use super::seek::Window;
use crate::sql::{self, Row};
use holdfast_core::audit::{AuditRow, audit_event};
use holdfast_core::ids::{ReservationId, TenantId};
use holdfast_core::ledger::{InvoiceLine, LedgerEntry, Posting, UsageRecord};
use holdfast_core::tenant::{Hold, HoldState};
use holdfast_core::time::UnixMillis;
use holdfast_core::view::LedgerEntryView;
use holdfast_core::wire::{GenerationFilter, LedgerFilter, Paging, Span};
use serde::de::DeserializeOwned;
use worker::{Error, Result, SqlStorageValue};

/// Numbers that one page looks through for what its filter wants.
const SCANNED_MAX: u64 = 2_000;

/// How far a page has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Read {
    /// The number that was looked at last.
    pub(super) last: u64,
    /// Whether the window goes on behind it.
    pub(super) more: bool,
}

impl Store {
    /// Entries of a window.
    pub(super) fn entries(
        &self,
        window: Window,
        filter: &LedgerFilter,
        limit: u32,
    ) -> Result<(Vec<LedgerEntryView>, Read)> {
        let end = window.upto.min(window.after.saturating_add(SCANNED_MAX));
        let query = "
            SELECT entry.seq, entry.json, posting.json
            FROM ledger_entry AS entry JOIN posting ON posting.id = entry.posting
            WHERE entry.seq > ?1 AND entry.seq <= ?2 AND (?3 IS NULL OR posting.kind = ?3)
              AND json_extract(entry.json, '$.recorded_at') >= ?4 AND json_extract(entry.json, '$.recorded_at') < ?5
            ORDER BY entry.seq LIMIT ?6";
        let (from, until) = bounds(filter.span)?;
        let kind = filter.kind.map(|kind| kind.as_str().to_owned());
        let parameters =
            vec![sql::int(window.after)?, sql::int(end)?, kind.into(), from, until, i64::from(limit).into()];
        let rows = sql::rows(self.sql(), query, parameters)?;
        let full = rows.len() as u64 >= u64::from(limit);
        let last = if full { last_of(&rows)? } else { end.max(window.after) };
        Ok((shown(&rows)?, Read { last, more: last < window.upto }))
    }

    /// Entries of one hold: its postings stand together, since their ids begin with the reservation's.
    pub(super) fn entries_of(
        &self,
        reservation: ReservationId,
        filter: &LedgerFilter,
        after: u64,
        limit: u32,
    ) -> Result<(Vec<LedgerEntryView>, Read)> {
        let query = "
            SELECT entry.seq, entry.json, posting.json
            FROM posting JOIN ledger_entry AS entry ON entry.seq = posting.seq
            WHERE posting.id > ?1 AND posting.id < ?2 AND posting.seq > ?3 AND (?4 IS NULL OR posting.kind = ?4)
              AND json_extract(entry.json, '$.recorded_at') >= ?5 AND json_extract(entry.json, '$.recorded_at') < ?6
            ORDER BY posting.seq LIMIT ?7";
        let (first, end) = ids_of(&reservation);
        let (from, until) = bounds(filter.span)?;
        let kind = filter.kind.map(|kind| kind.as_str().to_owned());
        let wanted = i64::from(limit).saturating_add(1);
        let parameters = vec![first.into(), end.into(), sql::int(after)?, kind.into(), from, until, wanted.into()];
        let (rows, more) = cut(sql::rows(self.sql(), query, parameters)?, limit);
        let last = if rows.is_empty() { after } else { last_of(&rows)? };
        Ok((shown(&rows)?, Read { last, more }))
    }

    /// Invoice lines of a window, with their numbers.
    pub(super) fn lines(&self, window: Window, span: Span, limit: u32) -> Result<(Vec<(u64, InvoiceLine)>, Read)> {
        let query = "SELECT seq, json FROM invoice_line WHERE seq > ?1 AND seq <= ?2 ORDER BY seq LIMIT ?3";
        let wanted = i64::from(limit).saturating_add(1);
        let parameters = vec![sql::int(window.after)?, sql::int(window.upto)?, wanted.into()];
        let (rows, more) = cut(sql::rows(self.sql(), query, parameters)?, limit);
        let last = if rows.is_empty() { window.after } else { last_of(&rows)? };
        let mut lines = Vec::with_capacity(rows.len());
        for row in &rows {
            let line: InvoiceLine = json_of(row, 1)?;
            if span.has(line.recorded_at) {
                lines.push((seq_of(row)?, line));
            }
        }
        Ok((lines, Read { last, more }))
    }

    /// The line of a posting.
    pub(super) fn line(&self, id: &str) -> Result<Option<InvoiceLine>> {
        sql::first_json(self.sql(), "SELECT json FROM invoice_line WHERE posting = ?", vec![id.into()])
    }

    /// The records of these ids, those that are there.
    pub(super) fn usage_records(&self, ids: &[String]) -> Result<Vec<UsageRecord>> {
        let one = |id: &String| {
            sql::first_json(self.sql(), "SELECT json FROM usage_record WHERE id = ?", vec![id.as_str().into()])
        };
        ids.iter().map(one).filter_map(Result::transpose).collect()
    }

    /// The records of a reservation, the first observation first.
    pub(super) fn usage_records_of(&self, reservation: &ReservationId, limit: u32) -> Result<Vec<UsageRecord>> {
        let query = "SELECT json FROM usage_record WHERE reservation = ? ORDER BY observed_at, id LIMIT ?";
        sql::all_json(self.sql(), query, vec![reservation.as_str().into(), i64::from(limit).into()])
    }

    /// Audit rows as events, one a line. A row whose posting cannot be read has none: a check names it.
    pub(super) fn audit_events(&self, tenant: &TenantId, after: u64, limit: u32) -> Result<(String, Read)> {
        let query = "
            SELECT audit.seq, audit.json, posting.json
            FROM audit LEFT JOIN posting ON posting.id = json_extract(audit.json, '$.posting_id')
            WHERE audit.seq > ? ORDER BY audit.seq LIMIT ?";
        let wanted = i64::from(limit).saturating_add(1);
        let (rows, more) = cut(sql::rows(self.sql(), query, vec![sql::int(after)?, wanted.into()])?, limit);
        let last = if rows.is_empty() { after } else { last_of(&rows)? };
        let mut events = String::new();
        for row in &rows {
            let audit: AuditRow = json_of(row, 1)?;
            let event = text_at(row, 2).and_then(|posting| audit_event(tenant, &audit, posting));
            match event {
                Some(event) => events.extend([event.as_str(), "\n"]),
                None => worker::console_error!("audit row {} has no posting that can be read", audit.seq),
            }
        }
        Ok((events, Read { last, more }))
    }

    /// Generations, newest first, and where older ones follow. They were admitted in the order of their holds' postings.
    pub(super) fn generations(&self, filter: &GenerationFilter, paging: Paging) -> Result<(Vec<Hold>, Option<u64>)> {
        let window = self.window(filter.span, 0)?;
        let before = paging.after.unwrap_or(u64::MAX).min(window.upto.saturating_add(1));
        // Open ones are few and have an index; all others are found by walking down the ledger.
        let open = filter.state == Some(HoldState::Open);
        let low =
            if open { window.after } else { window.after.max(before.saturating_sub(SCANNED_MAX.saturating_add(1))) };
        let query = if open { OPEN_GENERATIONS } else { GENERATIONS };
        let (from, until) = bounds(filter.span)?;
        let parameters = vec![
            sql::int(low)?,
            sql::int(before)?,
            filter.state.map(|state| state.as_str().to_owned()).into(),
            filter.route.clone().into(),
            filter.model.clone().into(),
            from,
            until,
            i64::from(paging.limit).saturating_add(1).into(),
        ];
        let (rows, more) = cut(sql::rows(self.sql(), query, parameters)?, paging.limit);
        let holds = rows.iter().map(|row| json_of(row, 1)).collect::<Result<Vec<Hold>>>()?;
        let next = match rows.last() {
            Some(row) if more => Some(seq_of(row)?),
            // Nothing else in what was looked through; there may be in what lies below.
            _ => Some(low.saturating_add(1)).filter(|_| low > window.after),
        };
        Ok((holds, next))
    }
}

const OPEN_GENERATIONS: &str = "
    SELECT posting.seq, hold.json
    FROM hold JOIN posting ON posting.id = hold.reservation || ':1:hold:1'
    WHERE hold.state = 'open' AND posting.seq > ?1 AND posting.seq < ?2 AND hold.state = ?3
      AND (?4 IS NULL OR json_extract(hold.json, '$.terms.route') = ?4)
      AND (?5 IS NULL OR json_extract(hold.json, '$.terms.model') = ?5)
      AND hold.admitted_at >= ?6 AND hold.admitted_at < ?7
    ORDER BY posting.seq DESC LIMIT ?8";

const GENERATIONS: &str = "
    SELECT entry.seq, hold.json
    FROM ledger_entry AS entry
    JOIN posting ON posting.id = entry.posting AND posting.kind = 'hold'
    JOIN hold ON hold.reservation = posting.reservation
    WHERE entry.seq > ?1 AND entry.seq < ?2 AND (?3 IS NULL OR hold.state = ?3)
      AND (?4 IS NULL OR json_extract(hold.json, '$.terms.route') = ?4)
      AND (?5 IS NULL OR json_extract(hold.json, '$.terms.model') = ?5)
      AND hold.admitted_at >= ?6 AND hold.admitted_at < ?7
    ORDER BY entry.seq DESC LIMIT ?8";

/// The ids of a reservation's postings lie between these.
pub(super) fn ids_of(reservation: &ReservationId) -> (String, String) {
    // `;` follows `:`.
    (format!("{reservation}:"), format!("{reservation};"))
}

/// A span as two numbers.
fn bounds(span: Span) -> Result<(SqlStorageValue, SqlStorageValue)> {
    let latest = UnixMillis((1 << 53) - 1);
    Ok((sql::time(span.from.unwrap_or_default().min(latest))?, sql::time(span.until.unwrap_or(latest).min(latest))?))
}

/// The rows of a page, and whether one more was found.
fn cut(mut rows: Vec<Row>, limit: u32) -> (Vec<Row>, bool) {
    let limit = usize::try_from(limit).unwrap_or(usize::MAX);
    let more = rows.len() > limit;
    rows.truncate(limit);
    (rows, more)
}

fn shown(rows: &[Row]) -> Result<Vec<LedgerEntryView>> {
    let view = |row: &Row| {
        let (entry, posting): (LedgerEntry, Posting) = (json_of(row, 1)?, json_of(row, 2)?);
        Ok(LedgerEntryView::of(&entry, &posting))
    };
    rows.iter().map(view).collect()
}

fn last_of(rows: &[Row]) -> Result<u64> {
    rows.last().map_or_else(|| Err(Error::from("no row")), seq_of)
}

/// The number in the first column.
pub(super) fn seq_of(row: &Row) -> Result<u64> {
    sql::as_int(row.first())?.ok_or_else(|| Error::from("a row without a number"))
}

/// The text of a column; none for NULL.
pub(super) fn text_at(row: &Row, column: usize) -> Option<&str> {
    match row.get(column) {
        Some(SqlStorageValue::String(text)) => Some(text),
        _ => None,
    }
}

/// The JSON of a column.
pub(super) fn json_of<T: DeserializeOwned>(row: &Row, column: usize) -> Result<T> {
    let text = text_at(row, column).ok_or_else(|| Error::from("expected JSON text"))?;
    Ok(serde_json::from_str(text)?)
}
