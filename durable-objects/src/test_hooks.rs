//! Faults on demand, for tests alone: compiled in by the feature `test-hooks`, never part of a deployment.

use std::cell::Cell;
use worker::{Error, Request, Result};

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
