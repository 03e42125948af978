//! How many worlds run at once: each is a workerd and a simulator, and timing tests need some air.

use std::sync::{Condvar, Mutex};

const DEFAULT_WORLDS: usize = 3;
const WORLDS_VARIABLE: &str = "HOLDFAST_E2E_WORLDS";

static WORLDS: Mutex<usize> = Mutex::new(0);
static CHANGED: Condvar = Condvar::new();

/// The right to run a world; given back on drop.
#[derive(Debug)]
pub struct Permit {
    weight: usize,
}

impl Permit {
    /// Waits until fewer than the allowed number of worlds run (`HOLDFAST_E2E_WORLDS`, 3 by default).
    #[must_use]
    pub fn acquire() -> Self {
        Self::acquire_weight(1)
    }

    /// Waits until no other world runs: for tests that measure time.
    #[must_use]
    pub fn acquire_alone() -> Self {
        Self::acquire_weight(allowed())
    }

    fn acquire_weight(weight: usize) -> Self {
        let mut running = WORLDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        while *running + weight > allowed() {
            running = CHANGED.wait(running).unwrap_or_else(std::sync::PoisonError::into_inner);
        }
        *running += weight;
        Self { weight }
    }
}

impl Drop for Permit {
    fn drop(&mut self) {
        let mut running = WORLDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        *running -= self.weight;
        CHANGED.notify_all();
    }
}

fn allowed() -> usize {
    let set = std::env::var(WORLDS_VARIABLE).ok().and_then(|text| text.parse().ok());
    set.unwrap_or(DEFAULT_WORLDS).max(1)
}
