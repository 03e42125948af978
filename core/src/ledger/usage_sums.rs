//! Invoice lines summed by what they have in common.

use super::{InvoiceLine, PostingKind};
use crate::money::{Micros, MoneyError, SignedMicros};
use crate::time::UnixMillis;
use alloc::collections::BTreeMap;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Groups that one report may have.
pub const GROUPS_MAX: usize = 1_000;

/// As what an amount is charged.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ChargedAs {
    /// At its end, by what was counted.
    Exact,
    /// At its end, by an upper bound.
    Estimated,
    /// Above its hold, beside the charge at its end.
    Overage,
    /// After its hold was released by expiry.
    Late,
    /// By better evidence, after the end.
    Corrected,
    /// By a business decision, after the end.
    Compensated,
}

impl ChargedAs {
    /// What a line is.
    #[must_use]
    pub const fn of(line: &InvoiceLine) -> Self {
        match line.kind {
            PostingKind::Overage => Self::Overage,
            PostingKind::LateSettlement => Self::Late,
            PostingKind::Correction => Self::Corrected,
            PostingKind::Compensation => Self::Compensated,
            // Only what bills has a line; the others never come here.
            PostingKind::Settle
            | PostingKind::Grant
            | PostingKind::Hold
            | PostingKind::HoldExtended
            | PostingKind::HoldReduced
            | PostingKind::Release => {
                if line.estimated {
                    Self::Estimated
                } else {
                    Self::Exact
                }
            }
        }
    }
}

/// What lines are grouped by, beside their price version.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct GroupBy {
    /// The route that served it.
    #[serde(default)]
    pub route: bool,
    /// Model as the client named it.
    #[serde(default)]
    pub model: bool,
    /// The day in UTC on which it was billed.
    #[serde(default)]
    pub day: bool,
    /// See [`ChargedAs`].
    #[serde(default)]
    pub disposition: bool,
}

impl GroupBy {
    /// Reads a list like `route,day`; nothing is one group for each price version.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        let mut by = Self::default();
        for name in text.split(',').filter(|_| !text.is_empty()) {
            let flag = match name {
                "route" => &mut by.route,
                "model" => &mut by.model,
                "day" => &mut by.day,
                "disposition" => &mut by.disposition,
                _ => return None,
            };
            if core::mem::replace(flag, true) {
                return None;
            }
        }
        Some(by)
    }
}

/// What the lines of a group have in common; absent what was not asked for.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct GroupKey {
    /// `2026-11-29`.
    pub day: Option<String>,
    /// The route.
    pub route: Option<String>,
    /// The model.
    pub model: Option<String>,
    /// As what they are charged.
    pub disposition: Option<ChargedAs>,
    /// The price list.
    pub price_version: String,
}

impl GroupKey {
    fn of(line: &InvoiceLine, by: GroupBy) -> Self {
        Self {
            day: by.day.then(|| day(line.recorded_at)),
            route: by.route.then(|| line.route.clone()),
            model: by.model.then(|| line.model.clone()),
            disposition: by.disposition.then(|| ChargedAs::of(line)),
            price_version: line.price_version.clone(),
        }
    }
}

fn day(at: UnixMillis) -> String {
    let (year, month, day) = at.year_month_day();
    format!("{year:04}-{month:02}-{day:02}")
}

/// The sum of a group.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct GroupSum {
    /// How many lines.
    pub lines: u64,
    /// What was charged.
    pub charged_micros: Micros,
    /// What was given back.
    pub refunded_micros: Micros,
    /// Charged less given back.
    pub amount_micros: SignedMicros,
    /// How much of the amount stands on a bound instead of the provider's own count.
    pub estimated_micros: SignedMicros,
}

/// A group with its sum.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsageGroup {
    /// See [`GroupKey::day`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub day: Option<String>,
    /// See [`GroupKey::route`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub route: Option<String>,
    /// See [`GroupKey::model`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub model: Option<String>,
    /// See [`GroupKey::disposition`].
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disposition: Option<ChargedAs>,
    /// See [`GroupKey::price_version`].
    pub price_version: String,
    /// See [`GroupSum::lines`].
    pub lines: u64,
    /// See [`GroupSum::charged_micros`].
    pub charged_micros: Micros,
    /// See [`GroupSum::refunded_micros`].
    pub refunded_micros: Micros,
    /// See [`GroupSum::amount_micros`].
    pub amount_micros: SignedMicros,
    /// See [`GroupSum::estimated_micros`].
    pub estimated_micros: SignedMicros,
}

impl UsageGroup {
    fn of(key: GroupKey, sum: GroupSum) -> Self {
        let GroupKey { day, route, model, disposition, price_version } = key;
        let GroupSum { lines, charged_micros, refunded_micros, amount_micros, estimated_micros } = sum;
        Self {
            day,
            route,
            model,
            disposition,
            price_version,
            lines,
            charged_micros,
            refunded_micros,
            amount_micros,
            estimated_micros,
        }
    }

    fn into_parts(self) -> (GroupKey, GroupSum) {
        let Self { day, route, model, disposition, price_version, .. } = self;
        let Self { lines, charged_micros, refunded_micros, amount_micros, estimated_micros, .. } = self;
        let sum = GroupSum { lines, charged_micros, refunded_micros, amount_micros, estimated_micros };
        (GroupKey { day, route, model, disposition, price_version }, sum)
    }
}

/// Why there is no report.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum SumError {
    /// More than [`GROUPS_MAX`] groups.
    TooManyGroups,
    /// A sum leaves its range.
    Money,
}

impl From<MoneyError> for SumError {
    fn from(_: MoneyError) -> Self {
        Self::Money
    }
}

/// Sums in the making.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct UsageSums(BTreeMap<GroupKey, GroupSum>);

impl UsageSums {
    /// Adds a line. Who adds has a bound of its own on lines.
    ///
    /// # Errors
    /// [`MoneyError`] when a sum leaves its range.
    pub fn add(&mut self, line: &InvoiceLine, by: GroupBy) -> Result<(), MoneyError> {
        let size = Micros::new(line.amount.get().unsigned_abs())?;
        let refund = line.amount < SignedMicros::ZERO;
        let sum = GroupSum {
            lines: 1,
            charged_micros: if refund { Micros::ZERO } else { size },
            refunded_micros: if refund { size } else { Micros::ZERO },
            amount_micros: line.amount,
            estimated_micros: if line.estimated { line.amount } else { SignedMicros::ZERO },
        };
        self.plus(GroupKey::of(line, by), sum)
    }

    /// Adds sums of other lines to a report.
    ///
    /// # Errors
    /// See [`SumError`].
    pub fn merge(&mut self, groups: Vec<UsageGroup>) -> Result<(), SumError> {
        for group in groups {
            let (key, sum) = group.into_parts();
            self.plus(key, sum)?;
            if self.0.len() > GROUPS_MAX {
                return Err(SumError::TooManyGroups);
            }
        }
        Ok(())
    }

    /// The groups in the order of day, route, model, disposition, price version.
    #[must_use]
    pub fn into_groups(self) -> Vec<UsageGroup> {
        self.0.into_iter().map(|(key, sum)| UsageGroup::of(key, sum)).collect()
    }

    fn plus(&mut self, key: GroupKey, sum: GroupSum) -> Result<(), MoneyError> {
        let known = self.0.get(&key).copied().unwrap_or_default();
        self.0.insert(key, known.plus(&sum)?);
        Ok(())
    }
}

impl GroupSum {
    /// The sum of two groups.
    ///
    /// # Errors
    /// [`MoneyError`] when an amount leaves its range.
    pub fn plus(&self, other: &Self) -> Result<Self, MoneyError> {
        let signed = |a: SignedMicros, b: SignedMicros| {
            a.get().checked_add(b.get()).ok_or(MoneyError).and_then(SignedMicros::new)
        };
        Ok(Self {
            lines: self.lines.saturating_add(other.lines),
            charged_micros: self.charged_micros.plus(other.charged_micros)?,
            refunded_micros: self.refunded_micros.plus(other.refunded_micros)?,
            amount_micros: signed(self.amount_micros, other.amount_micros)?,
            estimated_micros: signed(self.estimated_micros, other.estimated_micros)?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn dimensions_are_named_once_each() {
        let all = GroupBy { route: true, model: true, day: true, disposition: true };
        assert_eq!(GroupBy::parse("route,model,day,disposition"), Some(all));
        assert_eq!(GroupBy::parse("day"), Some(GroupBy { day: true, ..GroupBy::default() }));
        assert_eq!(GroupBy::parse(""), Some(GroupBy::default()));
        for bad in ["day,day", "days", "route,", ",", " day", "Route"] {
            assert_eq!(GroupBy::parse(bad), None, "{bad:?}");
        }
    }
}
