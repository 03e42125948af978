//! Tables of a tenant. Migrations only go forward; one that was deployed never changes.

use crate::{schema, sql};
use holdfast_core::tenant::TenantState;
use worker::{Result, SqlStorage, Storage};

const MIGRATIONS: &[&str] = &[TENANT, LEDGER, ACCOUNT, BOOKS, WEBHOOK, RUNS, DETACHED, TOKENS, OPERATIONS];

/// Balances, holds, postings, audit chain, idempotency keys.
const TENANT: &str = "
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
";

/// What each posting moved, what is billed, what was consumed; holds that are extended, reduced or without their slot.
///
/// Postings that were applied before get their entries here, from the audit chain, which has their order: until now they
/// were of five kinds, and a resolution ended the hold as it was placed. Their invoice lines are not made up afterwards.
///
/// Postings and invoice lines of one reservation need no index: their ids begin with the reservation's.
const LEDGER: &str = "
    CREATE TABLE ledger_entry (
        seq INTEGER PRIMARY KEY,
        posting TEXT NOT NULL,
        granted_micros INTEGER NOT NULL,
        held_micros INTEGER NOT NULL,
        spent_micros INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE invoice_line (
        posting TEXT PRIMARY KEY,
        reservation TEXT NOT NULL,
        period TEXT NOT NULL,
        amount_micros INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX invoice_line_period ON invoice_line (period);
    CREATE TABLE usage_record (
        id TEXT PRIMARY KEY,
        reservation TEXT NOT NULL,
        attempt TEXT NOT NULL,
        observed_at INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX usage_record_reservation ON usage_record (reservation);

    INSERT INTO ledger_entry (seq, posting, granted_micros, held_micros, spent_micros, json)
    WITH moved AS (
        SELECT audit.seq AS seq, posting.id AS posting, posting.kind AS kind, posting.reservation AS reservation,
               json_extract(audit.json, '$.at') AS at,
               CASE posting.kind WHEN 'grant' THEN posting.amount_micros ELSE 0 END AS granted,
               CASE WHEN posting.kind = 'hold' THEN posting.amount_micros
                    WHEN posting.kind IN ('settle', 'release') THEN -hold.hold_micros
                    ELSE 0 END AS held,
               CASE WHEN posting.kind IN ('settle', 'overage') THEN posting.amount_micros ELSE 0 END AS spent
        FROM audit
        JOIN posting ON posting.id = json_extract(audit.json, '$.posting_id')
        LEFT JOIN hold ON hold.reservation = posting.reservation
    )
    SELECT seq, posting, granted, held, spent,
           json_object('seq', seq, 'posting_id', posting, 'kind', kind, 'reservation', reservation,
                       'granted', granted, 'held', held, 'spent', spent,
                       'after', json_object('granted', SUM(granted) OVER so_far, 'held', SUM(held) OVER so_far,
                                            'spent', SUM(spent) OVER so_far),
                       'recorded_at', at)
    FROM moved WINDOW so_far AS (ORDER BY seq);

    ALTER TABLE hold ADD COLUMN slot INTEGER NOT NULL DEFAULT 0;
    UPDATE hold SET
        slot = state = 'open',
        hold_micros = CASE state WHEN 'open' THEN hold_micros ELSE 0 END;
    UPDATE hold SET json = json_set(json, '$.charged', bill.charged)
    FROM (
        SELECT reservation, SUM(amount_micros) AS charged FROM posting
        WHERE kind IN ('settle', 'overage') GROUP BY reservation
    ) AS bill
    WHERE bill.reservation = hold.reservation;
";

/// The account, its keys, and every version of its configuration.
const ACCOUNT: &str = "
    CREATE TABLE account (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE api_key (
        id TEXT PRIMARY KEY,
        digest TEXT NOT NULL UNIQUE,
        created_at INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE config (
        version INTEGER PRIMARY KEY,
        at INTEGER NOT NULL,
        etag TEXT NOT NULL,
        json TEXT NOT NULL
    ) STRICT;
";

/// Numbers of postings and invoice lines, so that lists and checks find them; where checks rest; from which number on a
/// posting that bills has a line. Lines are read by their number: it takes the place of the period, which nobody asks for.
const BOOKS: &str = "
    ALTER TABLE posting ADD COLUMN seq INTEGER;
    UPDATE posting SET seq = entry.seq FROM ledger_entry AS entry WHERE entry.posting = posting.id;
    ALTER TABLE invoice_line ADD COLUMN seq INTEGER;
    UPDATE invoice_line SET seq = entry.seq FROM ledger_entry AS entry WHERE entry.posting = invoice_line.posting;
    DROP INDEX invoice_line_period;
    CREATE UNIQUE INDEX invoice_line_seq ON invoice_line (seq);
    CREATE TABLE books (
        name TEXT PRIMARY KEY,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    INSERT INTO books (name, json) SELECT 'lines_from', CAST(COALESCE(
        (SELECT MIN(seq) FROM invoice_line), (SELECT MAX(seq) + 1 FROM ledger_entry), 1
    ) AS TEXT);
";

/// What happened to the webhook, its secrets, and the events with their deliveries. Secrets are stored as they are: what
/// is signed with must be at hand, and this storage is the tenant's own.
const WEBHOOK: &str = "
    CREATE TABLE webhook (
        one INTEGER PRIMARY KEY CHECK (one = 1),
        json TEXT NOT NULL
    ) STRICT;
    CREATE TABLE webhook_secret (
        secret TEXT PRIMARY KEY,
        created_at INTEGER NOT NULL,
        retires_at INTEGER
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE webhook_event (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        type TEXT NOT NULL,
        at INTEGER NOT NULL,
        state TEXT NOT NULL,
        next_at INTEGER,
        body TEXT NOT NULL,
        json TEXT NOT NULL
    ) STRICT;
    CREATE INDEX webhook_event_due ON webhook_event (next_at) WHERE state = 'pending';
    CREATE INDEX webhook_event_state ON webhook_event (state, seq);
";

/// The recent runs of each route, for policy `auto`. Beside the books: rows come and go.
const RUNS: &str = "
    CREATE TABLE run (
        generation TEXT PRIMARY KEY,
        route TEXT NOT NULL,
        started_at INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT, WITHOUT ROWID;
    CREATE INDEX run_route ON run (route, started_at);
";

/// Which holds are of generations that go on without a reader. None was counted before.
const DETACHED: &str = "
    ALTER TABLE hold ADD COLUMN detached INTEGER NOT NULL DEFAULT 0;
    CREATE INDEX hold_detached ON hold (reservation) WHERE detached = 1;
";

/// Tokens that were minted lately, in their order.
const TOKENS: &str = "
    CREATE TABLE token (
        seq INTEGER PRIMARY KEY,
        id TEXT NOT NULL UNIQUE,
        expires_at INTEGER NOT NULL,
        revoked INTEGER NOT NULL,
        json TEXT NOT NULL
    ) STRICT;
    CREATE INDEX token_expiry ON token (expires_at);
";

/// Operations at providers that call back, and callbacks that wait for theirs.
const OPERATIONS: &str = "
    CREATE TABLE operation (
        provider TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        json TEXT NOT NULL,
        PRIMARY KEY (provider, operation_id)
    ) STRICT, WITHOUT ROWID;
    CREATE TABLE parked_callback (
        seq INTEGER PRIMARY KEY,
        provider TEXT NOT NULL,
        operation_id TEXT NOT NULL,
        event_id TEXT NOT NULL,
        at INTEGER NOT NULL,
        json TEXT NOT NULL,
        UNIQUE (provider, event_id)
    ) STRICT;
    CREATE INDEX parked_callback_operation ON parked_callback (provider, operation_id);
";

/// Whether the tenant has tables.
pub(super) fn exists(sql: &SqlStorage) -> Result<bool> {
    sql::has_table(sql, "schema")
}

/// Brings the tables up to this version, from whatever there is; a new tenant starts with empty balances.
pub(super) fn migrate(storage: &Storage) -> Result<()> {
    let sql = storage.sql();
    let from = if exists(&sql)? { schema::version(&sql, "tenant")? } else { 0 };
    let pending = schema::pending(MIGRATIONS, from, "tenant")?;
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
