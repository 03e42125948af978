//! The rows of a generation. One state row guarded by version, the chunk log, the history, the outbox.
//!
//! | table | life of a row |
//! |---|---|
//! | `schema` | one row, the version of these tables |
//! | `state` | one row: the aggregate as JSON, its version and the epoch that owns |
//! | `chunk` | one per stored batch; its time renews the lease; deleted at the end of retention |
//! | `history` | one per change of the client side, cancel, lease or end, and per refused stale write; never deleted |
//! | `outbox` | one per posting, and per notice that travels without one; kept as the record of what was sent |
//! | `result` | one per piece of a result that was learnt outside of the stream; deleted with the content |
//! | `request` | the request as it was sent, where it may have to be sent again; deleted at the end |
//! | `signal` | one per signal of a provider or of a fenced driver; never deleted |
//! | `action` | one per action of an operator; never deleted |
//! | `assessment` | one per disconnect that was priced; never deleted |
//! | `evidence` | one per release record, per signal that came after one, and when the effects of either are known; never deleted |

use crate::{schema, sql};
use holdfast_core::evidence::Disposition;
use holdfast_core::ledger::Posting;
use holdfast_core::reservation::{
    ActionRow, Aggregate, Assessment, EvidenceRow, HistoryRow, LogFacts, SignalRow, Transition,
};
use holdfast_core::time::UnixMillis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::rc::Rc;
use worker::{Error, Result, SqlStorage, SqlStorageValue, Storage};

/// Forward only: a change of tables or of what is stored appends one. A new generation has no rows to be changed.
const MIGRATIONS: [Migration; 2] = [Migration::Tables(TABLES), Migration::Rows(ATTEMPTS)];

/// One step from version to version.
#[derive(Clone, Copy, Debug)]
enum Migration {
    /// For every object.
    Tables(&'static str),
    /// For what an earlier version has stored.
    Rows(&'static str),
}

const TABLES: &str = "
    CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, epoch INTEGER NOT NULL, json TEXT NOT NULL);
    CREATE TABLE chunk (offset INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, bytes BLOB NOT NULL);
    CREATE TABLE history (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, command TEXT NOT NULL, outcome TEXT NOT NULL, epoch INTEGER NOT NULL);
    CREATE TABLE outbox (posting_id TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
";

/// The first version knew one attempt: its epoch was its own, and now is its lease's. What ended the hold was not named in
/// the state: it is in the outbox. What the attempt is accounted with was what the hold is settled by.
const ATTEMPTS: &str = "
    UPDATE state SET json = json_set(json,
        '$.attempt.first_epoch', 1,
        '$.attempt.lease.epoch', json_extract(json, '$.attempt.epoch'),
        '$.resolution', json((
            SELECT json_object('posting_id', posting_id, 'kind', json_extract(outbox.json, '$.kind'), 'by', 'observed')
            FROM outbox WHERE json_extract(outbox.json, '$.kind') IN ('settle', 'release'))),
        '$.attempt.accounted', CASE json_type(json, '$.usage') WHEN 'object' THEN json_object(
            'metered', json_extract(json, '$.usage'),
            'source', CASE json_extract(json, '$.usage.kind') WHEN 'exact' THEN 'stream' ELSE 'own_count' END) END)
    WHERE json_extract(json, '$.aggregate') = 'live' AND json_type(json, '$.attempt.first_epoch') IS NULL;
";

/// Tables that most generations never need: made with the first row for one of them, since every table costs writes.
const RARE_TABLES: &str = "
    CREATE TABLE IF NOT EXISTS signal (seq INTEGER PRIMARY KEY, event_id TEXT UNIQUE, at INTEGER NOT NULL, json TEXT NOT NULL);
    CREATE TABLE IF NOT EXISTS action (id TEXT PRIMARY KEY, at INTEGER NOT NULL, json TEXT NOT NULL) WITHOUT ROWID;
    CREATE TABLE IF NOT EXISTS evidence (seq INTEGER PRIMARY KEY, kind TEXT NOT NULL, at INTEGER NOT NULL, hash TEXT NOT NULL, json TEXT NOT NULL);
";

/// Made with the first disconnect.
const ASSESSMENT_TABLE: &str =
    "CREATE TABLE IF NOT EXISTS assessment (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, json TEXT NOT NULL)";

/// Largest stored row of the log; a larger batch is split.
pub(super) const CHUNK_MAX_BYTES: usize = 512 << 10;

/// Made with the first request that may have to be sent again.
const REQUEST_TABLE: &str = "CREATE TABLE IF NOT EXISTS request (seq INTEGER PRIMARY KEY, bytes BLOB NOT NULL)";

/// Made with the first result that was learnt outside of the stream.
const RESULT_TABLE: &str = "CREATE TABLE IF NOT EXISTS result (offset INTEGER PRIMARY KEY, bytes BLOB NOT NULL)";

/// What a change does to the stored result.
#[derive(Debug, Default)]
pub(super) enum ResultRows {
    /// Nothing.
    #[default]
    Stay,
    /// It is stored, in these pieces.
    Store(Vec<Vec<u8>>),
    /// It is deleted.
    Forget,
}

/// What a change does to the stored request.
#[derive(Debug, Default)]
pub(super) enum RequestRow {
    /// Nothing.
    #[default]
    Stays,
    /// It is stored: it may have to be sent again.
    Store(Vec<u8>),
    /// It is deleted: nothing will be sent again.
    Forget,
}

/// Bytes to append to the log.
#[derive(Debug, Default)]
pub(super) struct Append {
    /// Where they belong.
    pub(super) offset: u64,
    /// Which epoch writes them.
    pub(super) epoch: u32,
    /// The bytes.
    pub(super) bytes: Vec<u8>,
}

/// What goes with the rows of a transition, in the same storage transaction.
#[derive(Debug, Default)]
pub(super) struct Beside {
    /// Bytes for the log.
    pub(super) append: Option<Append>,
    /// The log and the result are deleted.
    pub(super) delete_content: bool,
    /// The request.
    pub(super) request: RequestRow,
    /// The result.
    pub(super) result: ResultRows,
}

/// The storage of one generation.
#[derive(Clone, Debug)]
pub(super) struct Store {
    storage: Rc<Storage>,
    sql: SqlStorage,
}

impl Store {
    pub(super) fn new(storage: Storage) -> Self {
        let sql = storage.sql();
        Self { storage: Rc::new(storage), sql }
    }

    pub(super) fn storage(&self) -> &Storage {
        &self.storage
    }

    /// The stored aggregate and what its log says; `Vacant` for an untouched object, without writing anything.
    pub(super) fn load(&self) -> Result<(Aggregate, LogFacts)> {
        if !sql::has_table(&self.sql, "schema")? {
            return Ok((Aggregate::Vacant, LogFacts::default()));
        }
        self.migrate()?;
        let aggregate = sql::first_json(&self.sql, "SELECT json FROM state", vec![])?.unwrap_or_default();
        let last = "SELECT offset + length(bytes), at FROM chunk ORDER BY offset DESC LIMIT 1";
        let log = match sql::first(&self.sql, last, vec![])? {
            Some(row) => LogFacts {
                length: sql::as_int(row.first())?.unwrap_or_default(),
                last_append_at: sql::as_int(row.get(1))?.map(UnixMillis),
                ..LogFacts::default()
            },
            None => LogFacts::default(),
        };
        Ok((aggregate, log))
    }

    /// Stores a batch alone, the common case: one row, one statement, atomic by itself.
    pub(super) fn commit_batch(&self, append: Append, now: UnixMillis) -> Result<()> {
        self.append_row(append.offset, append.epoch, append.bytes, now)
    }

    /// Stores what one transition makes, and what goes with it, in one transaction.
    pub(super) fn commit(
        &self,
        transition: &Transition,
        first_write: bool,
        beside: Beside,
        now: UnixMillis,
    ) -> Result<()> {
        let this = self.clone();
        let transition = transition.clone();
        sql::transaction(&self.storage, move || {
            if first_write {
                this.create_tables()?;
            }
            if let Some(append) = &beside.append {
                this.append(append, now)?;
            }
            if let Some(state) = &transition.state {
                this.write_state(state)?;
            }
            transition.history.iter().try_for_each(|row| this.write_history(row))?;
            transition.postings.iter().try_for_each(|posting| this.write_outbox(&posting.id, posting))?;
            transition.notices.iter().try_for_each(|notice| this.write_outbox(&notice.id, notice))?;
            this.make_rare_tables(&transition)?;
            transition.signals.iter().try_for_each(|row| this.write_signal(row))?;
            transition.actions.iter().try_for_each(|row| this.write_action(row))?;
            transition.evidence.iter().try_for_each(|record| this.write_evidence(record))?;
            transition.assessments.iter().try_for_each(|row| this.write_assessment(row))?;
            this.write_result(&beside.result)?;
            if beside.delete_content {
                sql::run(&this.sql, "DELETE FROM chunk", vec![])?;
                this.write_result(&ResultRows::Forget)?;
            }
            this.write_request(&beside.request)
        })
    }

    fn create_tables(&self) -> Result<()> {
        sql::run(&self.sql, "CREATE TABLE schema (version INTEGER NOT NULL)", vec![])?;
        sql::run(&self.sql, "INSERT INTO schema VALUES (0)", vec![])?;
        self.run_migrations(0)
    }

    /// Brings the tables of an older version up to this one. Those of a newer one are refused.
    fn migrate(&self) -> Result<()> {
        let from = schema::version(&self.sql, "generation")?;
        if schema::pending(&MIGRATIONS, from, "generation")?.is_empty() {
            return Ok(());
        }
        let this = self.clone();
        sql::transaction(&self.storage, move || this.run_migrations(from))
    }

    fn run_migrations(&self, from: usize) -> Result<()> {
        for migration in schema::pending(&MIGRATIONS, from, "generation")? {
            match migration {
                Migration::Tables(statements) => sql::run(&self.sql, statements, vec![])?,
                Migration::Rows(statements) if from > 0 => sql::run(&self.sql, statements, vec![])?,
                Migration::Rows(_) => 0,
            };
        }
        let version = sql::int(MIGRATIONS.len() as u64)?;
        sql::run(&self.sql, "UPDATE schema SET version = ?", vec![version]).map(|_| ())
    }

    fn write_state(&self, state: &Aggregate) -> Result<()> {
        let (version, epoch) = match state {
            Aggregate::Live(live) => (live.version, live.attempt.epoch()),
            // A tombstone has no driver to be fenced from.
            Aggregate::Vacant | Aggregate::Tombstone(_) => (1, 0),
        };
        let json = sql::json(state)?;
        let parameters = vec![sql::int(version)?, sql::int(u64::from(epoch))?, json];
        let statement = "INSERT INTO state (id, version, epoch, json) VALUES (1, ?1, ?2, ?3)
            ON CONFLICT (id) DO UPDATE SET version = ?1, epoch = ?2, json = ?3
            WHERE state.version = ?1 - 1 OR ?2 = 0";
        // A row that another incarnation has moved on is not overwritten.
        match sql::run(&self.sql, statement, parameters)? {
            0 => Err(Error::from("the state row has moved on")),
            _ => Ok(()),
        }
    }

    fn append(&self, append: &Append, now: UnixMillis) -> Result<()> {
        let mut offset = append.offset;
        for piece in append.bytes.chunks(CHUNK_MAX_BYTES) {
            self.append_row(offset, append.epoch, piece.to_vec(), now)?;
            offset = offset.saturating_add(piece.len() as u64);
        }
        Ok(())
    }

    /// The epoch is compared in the very statement: an older driver changes zero rows. So is the offset: the log has no
    /// holes.
    fn append_row(&self, offset: u64, epoch: u32, bytes: Vec<u8>, now: UnixMillis) -> Result<()> {
        let statement = "INSERT INTO chunk SELECT ?1, ?2, ?3, ?4 WHERE (SELECT epoch FROM state) <= ?2
            AND ?1 = COALESCE((SELECT offset + length(bytes) FROM chunk ORDER BY offset DESC LIMIT 1), 0)";
        let parameters =
            vec![sql::int(offset)?, sql::int(u64::from(epoch))?, sql::time(now)?, SqlStorageValue::Blob(bytes)];
        match sql::run(&self.sql, statement, parameters)? {
            0 => Err(Error::from("the log has moved on")),
            _ => Ok(()),
        }
    }

    pub(super) fn write_history(&self, row: &HistoryRow) -> Result<()> {
        let parameters = vec![
            sql::time(row.at)?,
            row.command.as_str().into(),
            row.outcome.as_str().into(),
            sql::int(u64::from(row.epoch))?,
        ];
        let statement = "INSERT INTO history (at, command, outcome, epoch) VALUES (?, ?, ?, ?)";
        sql::run(&self.sql, statement, parameters).map(|_| ())
    }

    /// A posting or a notice.
    fn write_outbox<T: Serialize>(&self, id: &str, row: &T) -> Result<()> {
        let parameters = vec![id.into(), sql::json(row)?];
        sql::run(&self.sql, "INSERT INTO outbox (posting_id, json) VALUES (?, ?)", parameters).map(|_| ())
    }

    fn make_rare_tables(&self, transition: &Transition) -> Result<()> {
        let needless = transition.signals.is_empty() && transition.actions.is_empty() && transition.evidence.is_empty();
        if needless || sql::has_table(&self.sql, "evidence")? {
            return Ok(());
        }
        sql::run(&self.sql, RARE_TABLES, vec![]).map(|_| ())
    }

    /// An event id that is there already fails the transaction: the same event is handled once.
    fn write_signal(&self, row: &SignalRow) -> Result<()> {
        let event_id = row.signal.event_id.clone();
        let parameters = vec![event_id.into(), sql::time(row.at)?, sql::json(row)?];
        sql::run(&self.sql, "INSERT INTO signal (event_id, at, json) VALUES (?, ?, ?)", parameters).map(|_| ())
    }

    fn write_action(&self, row: &ActionRow) -> Result<()> {
        let parameters = vec![row.action.id.as_str().into(), sql::time(row.at)?, sql::json(row)?];
        sql::run(&self.sql, "INSERT INTO action (id, at, json) VALUES (?, ?, ?)", parameters).map(|_| ())
    }

    /// The very bytes that the hash stands for.
    fn write_evidence(&self, row: &EvidenceRow) -> Result<()> {
        let stored = String::from_utf8(row.to_stored()).map_err(|error| Error::from(error.to_string()))?;
        let parameters = vec![row.kind().into(), sql::time(row.created_at())?, row.hash().into(), stored.into()];
        let statement = "INSERT INTO evidence (kind, at, hash, json) VALUES (?, ?, ?, ?)";
        sql::run(&self.sql, statement, parameters).map(|_| ())
    }

    fn write_assessment(&self, row: &Assessment) -> Result<()> {
        sql::run(&self.sql, ASSESSMENT_TABLE, vec![])?;
        let parameters = vec![sql::time(row.at)?, sql::json(row)?];
        sql::run(&self.sql, "INSERT INTO assessment (at, json) VALUES (?, ?)", parameters).map(|_| ())
    }

    fn write_request(&self, request: &RequestRow) -> Result<()> {
        match request {
            RequestRow::Stays => Ok(()),
            RequestRow::Store(bytes) => {
                sql::run(&self.sql, REQUEST_TABLE, vec![])?;
                bytes.chunks(CHUNK_MAX_BYTES).try_for_each(|piece| {
                    let parameters = vec![SqlStorageValue::Blob(piece.to_vec())];
                    sql::run(&self.sql, "INSERT INTO request (bytes) VALUES (?)", parameters).map(|_| ())
                })
            }
            RequestRow::Forget if sql::has_table(&self.sql, "request")? => {
                sql::run(&self.sql, "DELETE FROM request", vec![]).map(|_| ())
            }
            RequestRow::Forget => Ok(()),
        }
    }

    fn write_result(&self, result: &ResultRows) -> Result<()> {
        match result {
            ResultRows::Stay => Ok(()),
            ResultRows::Store(pieces) => {
                sql::run(&self.sql, RESULT_TABLE, vec![])?;
                let mut offset = 0_u64;
                pieces.iter().flat_map(|piece| piece.chunks(CHUNK_MAX_BYTES)).try_for_each(|piece| {
                    let parameters = vec![sql::int(offset)?, SqlStorageValue::Blob(piece.to_vec())];
                    offset = offset.saturating_add(piece.len() as u64);
                    sql::run(&self.sql, "INSERT INTO result (offset, bytes) VALUES (?, ?)", parameters).map(|_| ())
                })
            }
            ResultRows::Forget if sql::has_table(&self.sql, "result")? => {
                sql::run(&self.sql, "DELETE FROM result", vec![]).map(|_| ())
            }
            ResultRows::Forget => Ok(()),
        }
    }

    /// The piece of the stored result that begins at `offset`.
    pub(super) fn result_piece(&self, offset: u64) -> Result<Vec<u8>> {
        let row = sql::first(&self.sql, "SELECT bytes FROM result WHERE offset = ?", vec![sql::int(offset)?])?;
        sql::as_blob(row.and_then(|row| row.into_iter().next()))
    }

    /// The stored request; `None` where none is stored.
    pub(super) fn request(&self) -> Result<Option<Vec<u8>>> {
        if !sql::has_table(&self.sql, "request")? {
            return Ok(None);
        }
        let pieces = sql::rows(&self.sql, "SELECT bytes FROM request ORDER BY seq", vec![])?;
        let bytes = |row: sql::Row| sql::as_blob(row.into_iter().next());
        let whole = pieces.into_iter().map(bytes).collect::<Result<Vec<_>>>()?;
        Ok((!whole.is_empty()).then(|| whole.concat()))
    }

    /// How the event of this id was handled, if it came before.
    pub(super) fn disposition_of(&self, event_id: &str) -> Result<Option<Disposition>> {
        if !sql::has_table(&self.sql, "signal")? {
            return Ok(None);
        }
        let row: Option<SignalRow> =
            sql::first_json(&self.sql, "SELECT json FROM signal WHERE event_id = ?", vec![event_id.into()])?;
        Ok(row.map(|row| row.disposition))
    }

    /// All postings of the outbox.
    pub(super) fn postings(&self) -> Result<Vec<Posting>> {
        sql::all_json(&self.sql, "SELECT json FROM outbox WHERE json_extract(json, '$.kind') IS NOT NULL", vec![])
    }

    /// The posting or notice of that id.
    pub(super) fn outbox_row<T: DeserializeOwned>(&self, id: &str) -> Result<Option<T>> {
        sql::first_json(&self.sql, "SELECT json FROM outbox WHERE posting_id = ?", vec![id.into()])
    }

    /// Up to `rows_max` stored chunks from the one that contains `offset` on.
    pub(super) fn chunks_from(&self, offset: u64, rows_max: u64) -> Result<Vec<(u64, Vec<u8>)>> {
        let query = "SELECT offset, bytes FROM chunk
            WHERE offset >= COALESCE((SELECT MAX(offset) FROM chunk WHERE offset <= ?1), 0) ORDER BY offset LIMIT ?2";
        let rows = sql::rows(&self.sql, query, vec![sql::int(offset)?, sql::int(rows_max)?])?;
        rows.into_iter()
            .map(|row| {
                let mut columns = row.into_iter();
                let start = sql::as_int(columns.next().as_ref())?.unwrap_or_default();
                Ok((start, sql::as_blob(columns.next())?))
            })
            .collect()
    }
}
