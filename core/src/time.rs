//! Time as data. The core never asks for it: every rule takes `now` as an argument.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Milliseconds since the Unix epoch. Below 2^53, so it survives JavaScript and SQLite.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct UnixMillis(pub u64);

impl UnixMillis {
    /// This moment plus `ms` milliseconds; saturates.
    #[must_use]
    pub const fn plus(self, ms: u64) -> Self {
        Self(self.0.saturating_add(ms))
    }

    /// Milliseconds from `earlier` to this moment; zero if `earlier` is later (clocks may step back).
    #[must_use]
    pub const fn since(self, earlier: Self) -> u64 {
        self.0.saturating_sub(earlier.0)
    }

    /// Year and month in UTC, by the days-from-civil rule (proleptic Gregorian calendar).
    #[must_use]
    pub fn year_month_day(self) -> (u64, u64, u64) {
        let days = self.0 / 86_400_000;
        // Shift the epoch to 0000-03-01, so that leap days end a cycle of years.
        let shifted = days.saturating_add(719_468);
        let (era, day_of_era) = (shifted / 146_097, shifted % 146_097);
        let year_of_era = day_of_era
            .saturating_sub(day_of_era / 1_460)
            .saturating_add(day_of_era / 36_524)
            .saturating_sub(day_of_era / 146_096)
            / 365;
        let day_of_year = day_of_era.saturating_sub(
            year_of_era.saturating_mul(365).saturating_add(year_of_era / 4).saturating_sub(year_of_era / 100),
        );
        let month_shifted = day_of_year.saturating_mul(5).saturating_add(2) / 153;
        let day = day_of_year.saturating_sub(month_shifted.saturating_mul(153).saturating_add(2) / 5).saturating_add(1);
        let month = if month_shifted < 10 { month_shifted.saturating_add(3) } else { month_shifted.saturating_sub(9) };
        let year = year_of_era.saturating_add(era.saturating_mul(400)).saturating_add(u64::from(month <= 2));
        (year, month, day)
    }
}

impl fmt::Display for UnixMillis {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn civil_dates() {
        for (ms, date) in [
            (0, (1970, 1, 1)),
            (951_782_400_000, (2000, 2, 29)),
            (951_868_800_000, (2000, 3, 1)),
            (1_798_675_199_999, (2026, 12, 30)),
            (1_798_761_599_999, (2026, 12, 31)),
            (1_798_761_600_000, (2027, 1, 1)),
        ] {
            assert_eq!(UnixMillis(ms).year_month_day(), date, "{ms}");
        }
    }
}
