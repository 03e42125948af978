//! Small typed helpers over the SQLite storage of an object.
//!
//! They avoid the traps of the binding: `one()` on an empty cursor hangs the request for ever, booleans bind as text,
//! and BLOBs come back only through `raw()`.

use holdfast_core::money::{Micros, SignedMicros};
use holdfast_core::time::UnixMillis;
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::closure::Closure;
use wasm_bindgen::{JsCast, JsValue};
use worker::js_sys::{Function, Reflect};
use worker::{Error, Result, SqlStorage, SqlStorageValue, Storage};

/// One row, by position.
pub type Row = Vec<SqlStorageValue>;

/// An integer parameter.
///
/// # Errors
/// When it is 2^53 or more.
pub fn int(value: u64) -> Result<SqlStorageValue> {
    i64::try_from(value).map_err(|_| Error::from("integer out of range")).and_then(SqlStorageValue::try_from_i64)
}

/// A time parameter.
///
/// # Errors
/// When it is 2^53 or more.
pub fn time(value: UnixMillis) -> Result<SqlStorageValue> {
    int(value.0)
}

/// An amount parameter.
///
/// # Errors
/// Never in practice: amounts stay below 2^53.
pub fn micros(value: Micros) -> Result<SqlStorageValue> {
    int(value.get())
}

/// A movement of an amount as a parameter.
///
/// # Errors
/// Never in practice: movements stay below 2^53.
pub fn signed_micros(value: SignedMicros) -> Result<SqlStorageValue> {
    SqlStorageValue::try_from_i64(value.get())
}

/// A JSON parameter.
///
/// # Errors
/// When the value does not serialize.
pub fn json<T: Serialize>(value: &T) -> Result<SqlStorageValue> {
    Ok(SqlStorageValue::String(serde_json::to_string(value)?))
}

/// Runs a statement; returns how many rows it wrote, index rows included.
///
/// # Errors
/// The database's error.
pub fn run(sql: &SqlStorage, statement: &str, parameters: Row) -> Result<usize> {
    #[cfg(feature = "test-hooks")]
    crate::test_hooks::before_write()?;
    Ok(sql.exec(statement, parameters)?.rows_written())
}

/// All rows of a query.
///
/// # Errors
/// The database's error.
pub fn rows(sql: &SqlStorage, query: &str, parameters: Row) -> Result<Vec<Row>> {
    sql.exec(query, parameters)?.raw().collect()
}

/// The first row of a query, if there is one.
///
/// # Errors
/// The database's error.
pub fn first(sql: &SqlStorage, query: &str, parameters: Row) -> Result<Option<Row>> {
    sql.exec(query, parameters)?.raw().next().transpose()
}

/// The first column of the first row, read from JSON.
///
/// # Errors
/// The database's error, or JSON that does not fit: never a default in its place.
pub fn first_json<T: DeserializeOwned>(sql: &SqlStorage, query: &str, parameters: Row) -> Result<Option<T>> {
    match first(sql, query, parameters)?.and_then(|row| row.into_iter().next()) {
        Some(SqlStorageValue::String(text)) => Ok(Some(serde_json::from_str(&text)?)),
        Some(_) => Err(Error::from("expected JSON text")),
        None => Ok(None),
    }
}

/// The first column of every row, read from JSON.
///
/// # Errors
/// As [`first_json`].
pub fn all_json<T: DeserializeOwned>(sql: &SqlStorage, query: &str, parameters: Row) -> Result<Vec<T>> {
    let parse = |row: Row| match row.first() {
        Some(SqlStorageValue::String(text)) => Ok(serde_json::from_str(text)?),
        _ => Err(Error::from("expected JSON text")),
    };
    rows(sql, query, parameters)?.into_iter().map(parse).collect()
}

/// The value as an unsigned integer; `None` for NULL.
///
/// # Errors
/// When it is of another type or negative.
pub fn as_int(value: Option<&SqlStorageValue>) -> Result<Option<u64>> {
    match value {
        None | Some(SqlStorageValue::Null) => Ok(None),
        Some(SqlStorageValue::Integer(value)) => {
            u64::try_from(*value).map(Some).map_err(|_| Error::from("negative integer"))
        }
        Some(_) => Err(Error::from("expected an integer")),
    }
}

/// The value as text.
///
/// # Errors
/// When it is of another type, or there is none.
pub fn as_text(value: Option<SqlStorageValue>) -> Result<String> {
    match value {
        Some(SqlStorageValue::String(text)) => Ok(text),
        _ => Err(Error::from("expected text")),
    }
}

/// The value as bytes.
///
/// # Errors
/// As [`as_text`].
pub fn as_blob(value: Option<SqlStorageValue>) -> Result<Vec<u8>> {
    match value {
        Some(SqlStorageValue::Blob(bytes)) => Ok(bytes),
        _ => Err(Error::from("expected bytes")),
    }
}

/// Whether the object has the table: an untouched object is recognised without writing anything.
///
/// # Errors
/// The database's error.
pub fn has_table(sql: &SqlStorage, name: &str) -> Result<bool> {
    let query = "SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = ?";
    Ok(first(sql, query, vec![name.into()])?.is_some())
}

/// Runs `body` as one storage transaction: an error rolls everything back. (Statements of one turn are committed
/// together anyway, but an error in the middle would leave the first ones.) So does a panic.
///
/// # Errors
/// The error of `body`, after the rollback.
pub fn transaction<T: 'static>(storage: &Storage, body: impl FnOnce() -> Result<T> + 'static) -> Result<T> {
    let outcome = std::rc::Rc::new(std::cell::RefCell::new(None));
    let slot = outcome.clone();
    let closure = Closure::once_assert_unwind_safe(move || -> std::result::Result<JsValue, JsValue> {
        let result = body();
        let failed = result.is_err();
        *slot.borrow_mut() = Some(result);
        if failed { Err(JsValue::from_str("rolled back")) } else { Ok(JsValue::UNDEFINED) }
    });
    let raw: &JsValue = storage.as_raw().as_ref();
    let function: Function = Reflect::get(raw, &JsValue::from_str("transactionSync"))?.dyn_into()?;
    let called = function.call1(raw, closure.as_ref());
    match (outcome.borrow_mut().take(), called) {
        (Some(Ok(_)), Err(error)) => Err(error.into()),
        (Some(result), _) => result,
        (None, Err(error)) => Err(error.into()),
        (None, Ok(_)) => Err(Error::from("transaction did not run")),
    }
}
