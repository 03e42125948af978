//! When the provider is asked again.

/// The delay before the first look-up; each further one doubles it.
pub const BACKOFF_BASE_MS: u64 = 1_000;

/// The longest delay that doubling comes to.
pub const BACKOFF_STEP_MAX_MS: u64 = 60_000;

/// The longest delay that a provider can wish for.
pub const RETRY_AFTER_MAX_MS: u64 = 240_000;

/// The longest delay of all: the provider's longest wish, and jitter below a quarter of it.
pub const BACKOFF_MAX_MS: u64 = 300_000;

/// The delay before look-up number `lookups` (from zero), in milliseconds.
///
/// It doubles from [`BACKOFF_BASE_MS`] to [`BACKOFF_STEP_MAX_MS`]. The provider's wish (`Retry-After`) makes it longer, at
/// most [`RETRY_AFTER_MAX_MS`], and never shorter: a wish of zero is no reason to ask without pause. To either comes
/// jitter below a quarter of it, from any number that the caller brings, so that many reservations lost at once are not
/// asked for at once. Never above [`BACKOFF_MAX_MS`].
#[must_use]
pub fn backoff_ms(lookups: u32, retry_after_ms: Option<u64>, jitter: u64) -> u64 {
    let doubled = BACKOFF_BASE_MS.saturating_mul(2_u64.saturating_pow(lookups)).min(BACKOFF_STEP_MAX_MS);
    let delay = doubled.max(retry_after_ms.unwrap_or(0).min(RETRY_AFTER_MAX_MS));
    let spread = jitter.checked_rem(delay / 4).unwrap_or(0);
    delay.saturating_add(spread).min(BACKOFF_MAX_MS)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Seed 1, "Retry schedules with bounded backoff".
    #[test]
    fn it_doubles_to_a_minute() {
        assert_eq!(
            [0, 1, 2, 5, 6, 7, u32::MAX].map(|lookups| backoff_ms(lookups, None, 0)),
            [1_000, 2_000, 4_000, 32_000, 60_000, 60_000, 60_000]
        );
    }

    /// A `Retry-After` may be zero, small, large or absurd: it is clamped at both ends.
    #[test]
    fn a_wish_prolongs_within_bounds_and_never_shortens() {
        for (lookups, wish, delay) in [
            (0, 0, 1_000),
            (0, 999, 1_000),
            (0, 1_001, 1_001),
            (3, 1_000, 8_000),
            (6, 90_000, 90_000),
            (0, 240_000, 240_000),
            (0, 240_001, 240_000),
            (u32::MAX, u64::MAX, 240_000),
        ] {
            assert_eq!(backoff_ms(lookups, Some(wish), 0), delay, "{lookups} {wish}");
        }
    }

    #[test]
    fn jitter_adds_less_than_a_quarter() {
        for (lookups, wish, jitter, delay) in [
            (0, None, 249, 1_249),
            (0, None, 250, 1_000),
            (0, None, 251, 1_001),
            (6, None, 14_999, 74_999),
            (6, None, 15_000, 60_000),
            (0, Some(u64::MAX), 59_999, 299_999),
        ] {
            assert_eq!(backoff_ms(lookups, wish, jitter), delay, "{lookups} {wish:?} {jitter}");
        }
    }

    /// The longest wish with the most jitter stays inside, so jitter is never cut off: those who wait longest are spread too.
    #[test]
    fn the_bounds_fit_each_other() {
        const { assert!(RETRY_AFTER_MAX_MS + RETRY_AFTER_MAX_MS / 4 <= BACKOFF_MAX_MS) };
        const { assert!(BACKOFF_BASE_MS < BACKOFF_STEP_MAX_MS && BACKOFF_STEP_MAX_MS < RETRY_AFTER_MAX_MS) };
    }
}
