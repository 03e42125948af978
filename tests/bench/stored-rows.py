"""Counts what a run left in the SQLite files of workerd's storage folder.

    python3 stored-rows.py STORAGE LOG_LENGTH

Counts the reservation objects whose log has LOG_LENGTH bytes (so the warm-up, whose streams have another length, does
not count), and the tenant object. Prints JSON: `generations`; `reservation` and `tenant`, rows by table;
`state_writes`, how often the state row of those reservations was written; `log_bytes`; `file_bytes`, size of their
database files.
"""

import collections
import glob
import json
import os
import sqlite3
import sys

SIDE_FILES = ("", "-wal", "-shm")


def tables(database):
    names = database.execute("SELECT name FROM sqlite_master WHERE type = 'table' AND name NOT LIKE 'sqlite_%'")
    return [name for (name,) in names if not name.startswith("_cf_")]


def count_rows(database, into):
    for table in tables(database):
        (rows,) = database.execute(f'SELECT count(*) FROM "{table}"').fetchone()
        into[table] += rows


def file_bytes(path):
    return sum(os.path.getsize(path + side) for side in SIDE_FILES if os.path.exists(path + side))


def databases(storage, class_name):
    for path in sorted(glob.glob(os.path.join(storage, f"holdfast-{class_name}", "*.sqlite"))):
        if os.path.basename(path) == "metadata.sqlite":
            continue
        size = file_bytes(path)  # before reading: opening it may move rows between its files
        database = sqlite3.connect(path)
        yield database, size
        database.close()


def main(storage, log_length):
    found = {"generations": 0, "state_writes": 0, "log_bytes": 0, "file_bytes": 0}
    reservation, tenant = collections.Counter(), collections.Counter()
    for database, size in databases(storage, "ReservationObject"):
        if "chunk" not in tables(database):
            continue
        (length,) = database.execute("SELECT coalesce(sum(length(bytes)), 0) FROM chunk").fetchone()
        if length != log_length:
            continue
        found["generations"] += 1
        found["log_bytes"] += length
        found["file_bytes"] += size
        found["state_writes"] += database.execute("SELECT version FROM state").fetchone()[0]
        count_rows(database, reservation)
    for database, _ in databases(storage, "TenantObject"):
        count_rows(database, tenant)
    print(json.dumps({**found, "reservation": reservation, "tenant": tenant}))


main(sys.argv[1], int(sys.argv[2]))
