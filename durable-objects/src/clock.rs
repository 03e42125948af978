//! The only place that reads the clock. In production it stands still while the CPU works and moves on I/O.

use holdfast_core::time::UnixMillis;
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
