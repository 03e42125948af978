//! Many named deadlines, one alarm. A deadline is a function of stored rows; the alarm is armed for the earliest.
//! A wake-up that comes early, late, twice or never decides nothing: rules compare rows with `now`.

use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// What is due.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadlineName {
    /// The driver must have shown life by then.
    Lease,
    /// A live driver is asked for a sign, and the platform is kept from evicting the object.
    Heartbeat,
    /// The provider must have sent its first byte.
    FirstByte,
    /// The provider must have sent another byte.
    Idle,
    /// The generation must have ended.
    Total,
    /// A reader must have come back (policy `cancel`).
    Grace,
    /// An attempt of unknown outcome is resolved.
    Reconcile,
    /// The provider must have named the operation that is to be stopped.
    Name,
    /// A request to cancel that was lost is sent again.
    Cancel,
    /// A posting is delivered again.
    Outbox,
    /// Stored content is deleted.
    Retention,
}

/// The earliest of some deadlines.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Earliest(Option<(UnixMillis, DeadlineName)>);

impl Earliest {
    /// Adds a deadline.
    #[must_use]
    pub fn and(self, name: DeadlineName, at: UnixMillis) -> Self {
        match self.0 {
            Some((earliest, _)) if earliest <= at => self,
            _ => Self(Some((at, name))),
        }
    }

    /// Adds a deadline that may not be set.
    #[must_use]
    pub fn and_maybe(self, name: DeadlineName, at: Option<UnixMillis>) -> Self {
        at.map_or(self, |at| self.and(name, at))
    }

    /// When to wake, if ever.
    #[must_use]
    pub fn at(self) -> Option<UnixMillis> {
        self.0.map(|(at, _)| at)
    }

    /// What is due first.
    #[must_use]
    pub fn name(self) -> Option<DeadlineName> {
        self.0.map(|(_, name)| name)
    }
}

/// Delay before the delivery after `attempts` failed ones: doubles from one second to one minute.
#[must_use]
pub fn backoff_ms(attempts: u32) -> u64 {
    1_000_u64.checked_shl(attempts.min(6)).unwrap_or(60_000).min(60_000)
}

/// A number below `span_ms` that differs from key to key and is always the same for one: it spreads over a span what would
/// otherwise be due at one instant.
#[must_use]
pub fn spread_ms(key: &str, span_ms: u64) -> u64 {
    let hash = key
        .bytes()
        .fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
    // The low bits of this hash follow the last bytes closely; the high ones follow all.
    (hash >> 16).checked_rem(span_ms).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_spread_is_even_and_always_the_same() {
        assert_eq!((spread_ms("a", 0), spread_ms("a", 1)), (0, 0));
        // FNV-1a of "a" is af63dc4c8601ec8c.
        assert_eq!(spread_ms("a", 10_000), 5_665);
        let mut tenths = [0_u32; 10];
        for n in 0..10_000 {
            let at = spread_ms(&alloc::format!("res_{n:032x}"), 10_000);
            tenths[usize::try_from(at / 1_000).unwrap()] += 1;
        }
        assert!(tenths.iter().all(|count| (800..1_200).contains(count)), "{tenths:?}");
    }

    #[test]
    fn earliest_wins_and_first_added_keeps_ties() {
        let earliest = Earliest::default()
            .and(DeadlineName::Total, UnixMillis(9))
            .and_maybe(DeadlineName::Grace, None)
            .and(DeadlineName::Lease, UnixMillis(5))
            .and(DeadlineName::Idle, UnixMillis(5));
        assert_eq!((earliest.at(), earliest.name()), (Some(UnixMillis(5)), Some(DeadlineName::Lease)));
    }

    #[test]
    fn backoff_is_bounded() {
        assert_eq!([0, 1, 5, 6, 1_000].map(backoff_ms), [1_000, 2_000, 32_000, 60_000, 60_000]);
    }
}
