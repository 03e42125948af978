//! The clock that the stamps are of.

use std::time::Duration;

use nix::time::ClockId;

/// The monotonic clock in microseconds; the same in all processes of this machine.
pub(crate) fn now_us() -> u64 {
    let now = ClockId::CLOCK_MONOTONIC.now().expect("every system has the monotonic clock");
    u64::try_from(Duration::from(now).as_micros()).unwrap_or(u64::MAX)
}
