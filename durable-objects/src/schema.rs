//! Versions of tables. Migrations only go forward; one that was deployed never changes.

use crate::sql;
use worker::{Error, Result, SqlStorage};

/// The steps that tables of version `from` still need: all of them for none. `whose` tables they are is for the error.
///
/// # Errors
/// Tables of a newer version are left alone: what their rows mean is not known here.
pub fn pending<'a, T>(steps: &'a [T], from: usize, whose: &str) -> Result<&'a [T]> {
    steps.get(from..).ok_or_else(|| Error::from(format!("{whose} tables are of a newer version")))
}

/// The stored version: how many steps were taken.
///
/// # Errors
/// The database's error, or a table `schema` without a version.
pub fn version(sql: &SqlStorage, whose: &str) -> Result<usize> {
    let row = sql::first(sql, "SELECT version FROM schema", vec![])?;
    let version = sql::as_int(row.as_ref().and_then(|row| row.first()))?;
    version
        .and_then(|version| usize::try_from(version).ok())
        .ok_or_else(|| Error::from(format!("{whose} tables have no version")))
}
