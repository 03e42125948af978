//! Randomness from one printed seed, and tags that no other test uses.

use std::process;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::now_ms;

/// The environment variable that fixes the seed of a run.
pub const SEED_VARIABLE: &str = "HOLDFAST_SEED";

/// A stream of numbers (SplitMix64) that depends on the run's seed and on a name alone.
#[derive(Debug)]
pub struct Seed(u64);

impl Seed {
    /// The stream called `name`. Prints the run's seed, so that a failure can be repeated.
    #[must_use]
    pub fn named(name: &str) -> Self {
        println!("{name}: {SEED_VARIABLE}={}", run_seed());
        let mixed =
            name.bytes().fold(run_seed(), |mixed, byte| (mixed ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        Self(mixed)
    }

    /// The next number.
    pub fn next_u64(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mixed = (self.0 ^ (self.0 >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        let mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    /// A number in `low..high`.
    ///
    /// # Panics
    /// When the range is empty.
    pub fn between(&mut self, low: usize, high: usize) -> usize {
        assert!(low < high, "empty range {low}..{high}");
        let width = u64::try_from(high - low).expect("usize fits u64");
        low + usize::try_from(self.next_u64() % width).expect("below the width")
    }

    /// `count` distinct numbers in `low..high`, ascending.
    pub fn distinct(&mut self, count: usize, low: usize, high: usize) -> Vec<usize> {
        assert!(high - low >= count, "{low}..{high} has fewer than {count} numbers");
        let mut chosen = std::collections::BTreeSet::new();
        while chosen.len() < count {
            chosen.insert(self.between(low, high));
        }
        chosen.into_iter().collect()
    }
}

/// A label that no other request of this machine carries, for the simulator's log.
#[must_use]
pub fn unique(label: &str) -> String {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("{label}-{:x}-{:x}-{number}", run_seed(), process::id())
}

fn run_seed() -> u64 {
    static RUN: OnceLock<u64> = OnceLock::new();
    *RUN.get_or_init(|| match std::env::var(SEED_VARIABLE) {
        Ok(text) => text.parse().unwrap_or_else(|_| panic!("{SEED_VARIABLE}={text} is not a number")),
        Err(_) => now_ms() ^ (u64::from(process::id()) << 32),
    })
}
