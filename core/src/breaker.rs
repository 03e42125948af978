//! A circuit breaker: a provider that fails again and again is left alone for a while, so that many reservations that
//! look for their outcomes do not all wait for it, and it is not asked by all of them when it comes back.
//!
//! | state | when | a question |
//! |---|---|---|
//! | closed | fewer than [`FAILURES_MAX`] failures in a row | is asked |
//! | open | for [`OPEN_MS`] after that, twice as long each further time, at most [`OPEN_MAX_MS`] | fails at once, with the time that remains |
//! | half open | that time is over | one is asked, and decides; the others fail at once |
//!
//! It decides nothing about money: what fails is asked again by the rules of [`crate::reconcile`]. Each isolate has its own,
//! in memory: a lost one costs a few questions.

use crate::time::UnixMillis;

/// Failures in a row that open it.
pub const FAILURES_MAX: u32 = 5;

/// How long it is open the first time, in milliseconds.
pub const OPEN_MS: u64 = 5_000;

/// Longest time that it is open, in milliseconds.
pub const OPEN_MAX_MS: u64 = 60_000;

/// How long the one question of a half open breaker has it to itself, in milliseconds.
pub const PROBE_MS: u64 = 15_000;

/// When the others ask again while that one is on its way, in milliseconds: its answer may come any moment.
pub const PROBED_MS: u64 = 1_000;

/// The breaker of one provider.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Breaker {
    failures: u32,
    opened: u32,
    open_until: Option<UnixMillis>,
    /// One question is on its way.
    probing: bool,
}

impl Breaker {
    /// Whether the provider may be asked now.
    ///
    /// # Errors
    /// How long it is still left alone, in milliseconds.
    pub fn ask(&mut self, now: UnixMillis) -> Result<(), u64> {
        let Some(until) = self.open_until else { return Ok(()) };
        if until > now {
            let left_ms = until.since(now);
            return Err(if self.probing { left_ms.min(PROBED_MS) } else { left_ms });
        }
        self.open_until = Some(now.plus(PROBE_MS));
        self.probing = true;
        Ok(())
    }

    /// The provider answered.
    pub fn succeeded(&mut self) {
        *self = Self::default();
    }

    /// It did not, or answered that it cannot.
    pub fn failed(&mut self, now: UnixMillis) {
        self.failures = self.failures.saturating_add(1);
        if self.failures < FAILURES_MAX {
            return;
        }
        let open_ms = OPEN_MS.saturating_mul(2_u64.saturating_pow(self.opened)).min(OPEN_MAX_MS);
        self.opened = self.opened.saturating_add(1);
        self.open_until = Some(now.plus(open_ms));
        self.probing = false;
    }
}

/// Whether a status says that the provider cannot answer now.
#[must_use]
pub const fn is_outage(status: u16) -> bool {
    matches!(status, 408 | 429 | 500..=599)
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT: UnixMillis = UnixMillis(1_000_000);

    fn open() -> Breaker {
        let mut breaker = Breaker::default();
        (0..FAILURES_MAX).for_each(|_| breaker.failed(AT));
        breaker
    }

    #[test]
    fn it_opens_after_failures_in_a_row() {
        let mut breaker = Breaker::default();
        for _ in 1..FAILURES_MAX {
            breaker.failed(AT);
            assert_eq!(breaker.ask(AT), Ok(()));
        }
        breaker.succeeded();
        breaker.failed(AT);
        assert_eq!(breaker.ask(AT), Ok(()), "an answer in between starts the count anew");
        assert_eq!(open().ask(AT), Err(OPEN_MS));
        assert_eq!(open().ask(AT.plus(OPEN_MS - 1)), Err(1));
    }

    #[test]
    fn half_open_asks_one_question() {
        let mut breaker = open();
        let later = AT.plus(OPEN_MS);
        assert_eq!(breaker.ask(later), Ok(()));
        assert_eq!(breaker.ask(later), Err(PROBED_MS), "the others wait for its answer");
        assert_eq!(breaker.ask(later.plus(PROBE_MS)), Ok(()), "an answer that was lost keeps nobody out");
        breaker.succeeded();
        assert_eq!(breaker.ask(later), Ok(()));
        assert_eq!(breaker, Breaker::default());
    }

    #[test]
    fn it_stays_open_longer_each_time_within_a_bound() {
        let (mut breaker, mut now, mut times) = (open(), AT, alloc::vec::Vec::new());
        for _ in 0..6 {
            let Err(left) = breaker.ask(now) else { panic!("open") };
            times.push(left);
            now = now.plus(left);
            assert_eq!(breaker.ask(now), Ok(()));
            breaker.failed(now);
        }
        assert_eq!(times, [5_000, 10_000, 20_000, 40_000, 60_000, 60_000]);
    }

    #[test]
    fn what_counts_as_an_outage() {
        for (status, outage) in
            [(200, false), (400, false), (404, false), (408, true), (429, true), (500, true), (503, true)]
        {
            assert_eq!(is_outage(status), outage, "{status}");
        }
    }
}
