//! Faults on demand, for tests alone: compiled in by the feature `test-hooks`, never part of a deployment.

use serde::Serialize;
use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use worker::{Error, Request, Result};

thread_local! {
    static CALLS: RefCell<BTreeMap<String, u32>> = const { RefCell::new(BTreeMap::new()) };
}

/// Counts a call to an object, whoever makes it: edge and objects of a server on its own share their memory.
pub fn count<T: Serialize>(call: &T) {
    let kind = core::any::type_name::<T>().rsplit("::").next().unwrap_or_default();
    let written = serde_json::to_value(call).unwrap_or_default();
    let name = written.get("call").and_then(serde_json::Value::as_str).unwrap_or_default();
    CALLS.with_borrow_mut(|calls| {
        let count = calls.entry(format!("{kind}.{name}")).or_default();
        *count = count.saturating_add(1);
    });
}

/// How often each call was made since the server started.
#[must_use]
pub fn calls() -> BTreeMap<String, u32> {
    CALLS.with_borrow(Clone::clone)
}

/// Panics when the request asks for it.
#[expect(clippy::panic, reason = "the panic is the point")]
pub fn panic_if_asked(request: &Request) {
    if request.headers().get("x-holdfast-test").ok().flatten().as_deref() == Some("panic") {
        panic!("asked to panic");
    }
}

/// What happens to a write of any object of this isolate.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WriteFault {
    /// It is not done, and the caller is told so.
    Lost,
    /// Everything stands still before it is done, until the process is killed. Then the output has [`STANDS_STILL`].
    Stop,
}

/// What a server writes to its output before it stands still.
pub const STANDS_STILL: &str = "holdfast test: stands still before a write";

thread_local! {
    static NEXT_FAULT: Cell<Option<(WriteFault, u32)>> = const { Cell::new(None) };
}

/// Lets so many writes pass, and then one fault happen.
pub fn arm_write_fault(fault: WriteFault, after_writes: u32) {
    NEXT_FAULT.set(Some((fault, after_writes)));
}

/// Comes before each write.
///
/// # Errors
/// The fault, when its time has come.
pub fn before_write() -> Result<()> {
    match NEXT_FAULT.get() {
        None => Ok(()),
        Some((fault, left @ 1..)) => {
            NEXT_FAULT.set(Some((fault, left.saturating_sub(1))));
            Ok(())
        }
        Some((WriteFault::Lost, 0)) => {
            NEXT_FAULT.set(None);
            Err(Error::from("this write is lost"))
        }
        Some((WriteFault::Stop, 0)) => {
            worker::console_log!("{STANDS_STILL}");
            #[expect(clippy::empty_loop, reason = "whoever kills the process has all the time")]
            loop {}
        }
    }
}
