//! Time as data. The core never asks for it: every rule takes `now` as an argument.

use alloc::format;
use alloc::string::String;
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

    /// Midnight, UTC, of a date from 1970 on: the same rule the other way. A day beyond the month's end runs on into the
    /// next month. `None` when out of range.
    #[must_use]
    pub fn from_date(year: u64, month: u64, day: u64) -> Option<Self> {
        // The year begins in March, so that leap days end it.
        let year = if month > 2 { year } else { year.checked_sub(1)? };
        let month_shifted = if month > 2 { month.checked_sub(3)? } else { month.checked_add(9)? };
        let (era, year_of_era) = (year / 400, year % 400);
        let day_of_year = month_shifted.checked_mul(153)?.checked_add(2)?.checked_div(5)?.checked_add(day)?;
        let leap_days = (year_of_era / 4).checked_sub(year_of_era / 100)?;
        let day_of_era = year_of_era.checked_mul(365)?.checked_add(leap_days)?.checked_add(day_of_year)?;
        let days = era.checked_mul(146_097)?.checked_add(day_of_era)?.checked_sub(719_469)?;
        days.checked_mul(86_400_000).map(Self)
    }

    /// The moment by ISO 8601, in UTC with milliseconds: `2026-11-30T09:41:07.249Z`.
    #[must_use]
    pub fn to_iso_8601(self) -> String {
        let (year, month, day) = self.year_month_day();
        let (seconds, ms) = (self.0 / 1_000 % 86_400, self.0 % 1_000);
        let (hour, minute, second) = (seconds / 3_600, seconds / 60 % 60, seconds % 60);
        format!("{year:04}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{ms:03}Z")
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
            let midnight = UnixMillis(ms / 86_400_000 * 86_400_000);
            assert_eq!(UnixMillis::from_date(date.0, date.1, date.2), Some(midnight), "{date:?}");
        }
    }

    #[test]
    fn moments_by_iso_8601() {
        for (ms, text) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (951_782_400_001, "2000-02-29T00:00:00.001Z"),
            (1_798_761_599_999, "2026-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(UnixMillis(ms).to_iso_8601(), text);
        }
    }
}
