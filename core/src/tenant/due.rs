//! When an open hold is asked after. Thousands may be admitted, or lost, at one instant: what is due is spread, each at a
//! time of its own, so that a sweep finds batches and no crowd.

use super::Hold;
use crate::deadline::spread_ms;
use crate::ids::ReservationId;
use crate::time::UnixMillis;

/// A hold that stays open is asked after at the latest after so long: one that is quarantined waits for somebody, and
/// asking it each minute finds nothing sooner.
pub const OPEN_ASKED_MAX_MS: u64 = 6 * 3_600_000;

/// The shortest time between two questions, and how late an alarm of the generation may be.
const MINUTE_MS: u64 = 60_000;

/// Over how long a time the questions after one instant are spread.
const SPREAD_MS: u64 = 30_000;

/// When a new hold is looked into, should nothing have been heard of its generation: after the grace, and up to a quarter
/// of it later.
#[must_use]
pub fn first_due(reservation: &ReservationId, start_grace_ms: u64, now: UnixMillis) -> UnixMillis {
    now.plus(start_grace_ms.saturating_add(spread_ms(reservation.as_str(), start_grace_ms / 4)))
}

/// When an open hold is looked into again: once its generation must have ended, with a minute for a late alarm. From then
/// on at pauses of a quarter of the time that it is overdue, from a minute to [`OPEN_ASKED_MAX_MS`].
#[must_use]
pub fn due_after_start(hold: &Hold, now: UnixMillis) -> UnixMillis {
    let terms = &hold.terms;
    let longest = terms.total_ms.saturating_add(terms.lease_ms).saturating_add(terms.observation_ms);
    let ended_by = hold.admitted_at.plus(longest.saturating_add(MINUTE_MS));
    let pause_ms = (now.since(ended_by) / 4).clamp(MINUTE_MS, OPEN_ASKED_MAX_MS);
    ended_by.max(now.plus(pause_ms)).plus(spread_ms(hold.identity.reservation.as_str(), SPREAD_MS))
}
