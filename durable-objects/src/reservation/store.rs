//! The rows of a generation. One state row guarded by version, the chunk log, the history, the outbox.
//!
//! | table | life of a row |
//! |---|---|
//! | `schema` | one row, the version of these tables |
//! | `state` | one row: the aggregate as JSON, its version and the epoch that owns |
//! | `chunk` | one per stored batch; its time renews the lease; deleted at the end of retention |
//! | `history` | one per change of the client side, cancel, lease or end, and per refused stale write; never deleted |
//! | `outbox` | one per posting; kept as the record of what was sent |

use crate::sql;
use holdfast_core::ledger::Posting;
use holdfast_core::reservation::{Aggregate, HistoryRow, LogFacts, Transition};
use holdfast_core::time::UnixMillis;
use std::rc::Rc;
use worker::{Error, Result, SqlStorage, SqlStorageValue, Storage};

/// Version of the tables below. A change appends to [`MIGRATIONS`].
const MIGRATIONS: [&str; 1] = ["
    CREATE TABLE state (id INTEGER PRIMARY KEY CHECK (id = 1), version INTEGER NOT NULL, epoch INTEGER NOT NULL, json TEXT NOT NULL);
    CREATE TABLE chunk (offset INTEGER PRIMARY KEY, epoch INTEGER NOT NULL, at INTEGER NOT NULL, bytes BLOB NOT NULL);
    CREATE TABLE history (seq INTEGER PRIMARY KEY, at INTEGER NOT NULL, command TEXT NOT NULL, outcome TEXT NOT NULL, epoch INTEGER NOT NULL);
    CREATE TABLE outbox (posting_id TEXT PRIMARY KEY, json TEXT NOT NULL) WITHOUT ROWID;
"];

/// Largest stored row of the log; a larger batch is split.
pub(super) const CHUNK_MAX_BYTES: usize = 512 << 10;

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
        let aggregate = sql::first_json(&self.sql, "SELECT json FROM state", vec![])?.unwrap_or_default();
        let last = "SELECT offset + length(bytes), at FROM chunk ORDER BY offset DESC LIMIT 1";
        let log = match sql::first(&self.sql, last, vec![])? {
            Some(row) => LogFacts {
                length: sql::as_int(row.first())?.unwrap_or_default(),
                last_append_at: sql::as_int(row.get(1))?.map(UnixMillis),
                received_at: None,
            },
            None => LogFacts::default(),
        };
        Ok((aggregate, log))
    }

    /// Stores a batch alone, the common case: one row, one statement, atomic by itself.
    pub(super) fn commit_batch(&self, append: Append, now: UnixMillis) -> Result<()> {
        self.append_row(append.offset, append.epoch, append.bytes, now)
    }

    /// Stores what one transition makes, and the bytes that go with it, in one transaction.
    pub(super) fn commit(
        &self,
        transition: &Transition,
        first_write: bool,
        append: Option<Append>,
        delete_content: bool,
        now: UnixMillis,
    ) -> Result<()> {
        let this = self.clone();
        let transition = transition.clone();
        sql::transaction(&self.storage, move || {
            if first_write {
                this.create_tables()?;
            }
            if let Some(append) = &append {
                this.append(append, now)?;
            }
            if let Some(state) = &transition.state {
                this.write_state(state)?;
            }
            transition.history.iter().try_for_each(|row| this.write_history(row))?;
            transition.postings.iter().try_for_each(|posting| this.write_outbox(posting))?;
            if delete_content {
                sql::run(&this.sql, "DELETE FROM chunk", vec![])?;
            }
            Ok(())
        })
    }

    fn create_tables(&self) -> Result<()> {
        for migration in MIGRATIONS {
            sql::run(&self.sql, migration, vec![])?;
        }
        sql::run(&self.sql, "CREATE TABLE schema (version INTEGER NOT NULL)", vec![])?;
        sql::run(&self.sql, "INSERT INTO schema VALUES (?)", vec![sql::int(MIGRATIONS.len() as u64)?]).map(|_| ())
    }

    fn write_state(&self, state: &Aggregate) -> Result<()> {
        let (version, epoch) = match state {
            Aggregate::Live(live) => (live.version, live.attempt.epoch),
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

    fn write_outbox(&self, posting: &Posting) -> Result<()> {
        let parameters = vec![posting.id.as_str().into(), sql::json(posting)?];
        sql::run(&self.sql, "INSERT INTO outbox (posting_id, json) VALUES (?, ?)", parameters).map(|_| ())
    }

    pub(super) fn posting(&self, posting_id: &str) -> Result<Option<Posting>> {
        sql::first_json(&self.sql, "SELECT json FROM outbox WHERE posting_id = ?", vec![posting_id.into()])
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
                match columns.next() {
                    Some(SqlStorageValue::Blob(bytes)) => Ok((start, bytes)),
                    _ => Err(Error::from("a chunk is not a blob")),
                }
            })
            .collect()
    }
}
