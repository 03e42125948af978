//! The only place that reads the clock. In production it stands still while the CPU works and moves on I/O.

use futures::future::{Either, select};
use holdfast_core::time::UnixMillis;
use std::future::Future;
use std::pin::pin;
use std::time::Duration;
use worker::{Date, Delay};

/// Now, in milliseconds since the Unix epoch.
#[must_use]
pub fn now() -> UnixMillis {
    UnixMillis(Date::now().as_millis())
}

/// Waits for `ms` milliseconds.
pub async fn sleep_ms(ms: u64) {
    Delay::from(Duration::from_millis(ms)).await;
}

/// What comes of a task within `ms` milliseconds; `None` when it took longer. It is dropped then.
pub async fn within<T>(ms: u64, task: impl Future<Output = T>) -> Option<T> {
    match select(pin!(task), pin!(sleep_ms(ms))).await {
        Either::Left((outcome, _)) => Some(outcome),
        Either::Right(_) => None,
    }
}
