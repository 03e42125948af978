//! Waiting for a condition, the clock, and words that must be seen.

use std::io::Write;
use std::thread::sleep;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

/// How long [`wait_for`] waits.
pub const PATIENCE: Duration = Duration::from_secs(15);

const FIRST_PAUSE: Duration = Duration::from_millis(5);
const LONGEST_PAUSE: Duration = Duration::from_millis(50);

/// Polls `probe` until it returns `Ok`, for at most [`PATIENCE`]. An `Err` says what was observed instead.
///
/// # Panics
/// When the time is over, with `what` was awaited and what was observed last.
pub fn wait_for<T>(what: &str, probe: impl FnMut() -> Result<T, String>) -> T {
    wait_for_within(PATIENCE, what, probe)
}

/// [`wait_for`] with its own limit.
///
/// # Panics
/// When the time is over, with `what` was awaited and what was observed last.
pub fn wait_for_within<T>(limit: Duration, what: &str, mut probe: impl FnMut() -> Result<T, String>) -> T {
    let begun = Instant::now();
    let mut pause = FIRST_PAUSE;
    loop {
        match probe() {
            Ok(value) => return value,
            Err(observed) if begun.elapsed() >= limit => {
                panic!("waited {limit:?} for {what}; last observed: {observed}")
            }
            Err(_) => sleep(pause),
        }
        pause = (pause * 2).min(LONGEST_PAUSE);
    }
}

/// Milliseconds since 1970, comparable with the times in the simulator's log and in the product's answers.
#[must_use]
pub fn now_ms() -> u64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).expect("a clock after 1970");
    u64::try_from(since.as_millis()).expect("a clock before the year 584 million")
}

/// Lets time pass until `at_ms`. Only for tests whose point is that something happens although nobody asks.
pub fn let_time_pass_until(at_ms: u64) {
    sleep(Duration::from_millis(at_ms.saturating_sub(now_ms())));
}

/// Says something that must be seen although the test passes: the test runner captures what `println!` writes.
pub fn shout(words: &str) {
    // Nobody is there to be told that the error stream is closed.
    let _ = writeln!(std::io::stderr(), "{words}");
}
