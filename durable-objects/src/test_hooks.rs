//! Faults on demand, for tests alone: compiled in by the feature `test-hooks`, never part of a deployment.

use serde::Serialize;
use std::cell::RefCell;
use std::collections::BTreeMap;
use worker::Request;

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
