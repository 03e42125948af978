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
