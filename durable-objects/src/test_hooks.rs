//! Faults on demand, for tests alone: compiled in by the feature `test-hooks`, never part of a deployment.

use worker::Request;

/// Panics when the request asks for it.
#[expect(clippy::panic, reason = "the panic is the point")]
pub fn panic_if_asked(request: &Request) {
    if request.headers().get("x-holdfast-test").ok().flatten().as_deref() == Some("panic") {
        panic!("asked to panic");
    }
}
