//! Money as integer micro-USD. JavaScript numbers lie between Rust and SQLite, so an amount stays below 2^53.

use core::fmt;
use serde::{Deserialize, Serialize};

/// An amount in micro-USD (1 USD = 1,000,000).
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "u64", into = "u64")]
pub struct Micros(u64);

/// A result would be negative or 2^53 or more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MoneyError;

impl fmt::Display for MoneyError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("amount out of range")
    }
}

impl Micros {
    /// Nothing.
    pub const ZERO: Self = Self(0);
    /// The largest amount: 2^53 − 1, about nine thousand million USD.
    pub const MAX: Self = Self((1 << 53) - 1);

    /// An amount in micro-USD.
    ///
    /// # Errors
    /// [`MoneyError`] at 2^53 and above.
    pub const fn new(micros: u64) -> Result<Self, MoneyError> {
        if micros <= Self::MAX.0 { Ok(Self(micros)) } else { Err(MoneyError) }
    }

    /// The number of micro-USD.
    #[must_use]
    pub const fn get(self) -> u64 {
        self.0
    }

    /// Sum.
    ///
    /// # Errors
    /// [`MoneyError`] when out of range.
    pub fn plus(self, other: Self) -> Result<Self, MoneyError> {
        self.0.checked_add(other.0).ok_or(MoneyError).and_then(Self::new)
    }

    /// Difference.
    ///
    /// # Errors
    /// [`MoneyError`] when `other` is larger.
    pub fn minus(self, other: Self) -> Result<Self, MoneyError> {
        self.0.checked_sub(other.0).map(Self).ok_or(MoneyError)
    }

    /// Difference, zero when `other` is larger.
    #[must_use]
    pub const fn saturating_minus(self, other: Self) -> Self {
        Self(self.0.saturating_sub(other.0))
    }
}

impl TryFrom<u64> for Micros {
    type Error = MoneyError;
    fn try_from(micros: u64) -> Result<Self, MoneyError> {
        Self::new(micros)
    }
}

impl From<Micros> for u64 {
    fn from(amount: Micros) -> Self {
        amount.0
    }
}

/// A movement of an amount in micro-USD, up or down; its size is below 2^53 like any amount's.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "i64", into = "i64")]
pub struct SignedMicros(i64);

impl SignedMicros {
    /// No movement.
    pub const ZERO: Self = Self(0);

    /// A movement in micro-USD.
    ///
    /// # Errors
    /// [`MoneyError`] when its size is 2^53 or more.
    pub const fn new(micros: i64) -> Result<Self, MoneyError> {
        if micros.unsigned_abs() <= Micros::MAX.0 { Ok(Self(micros)) } else { Err(MoneyError) }
    }

    /// How an amount moved. Both ends are in range, so the difference is.
    #[must_use]
    pub const fn between(before: Micros, after: Micros) -> Self {
        Self(after.0.cast_signed().saturating_sub(before.0.cast_signed()))
    }

    /// The number of micro-USD.
    #[must_use]
    pub const fn get(self) -> i64 {
        self.0
    }
}

impl TryFrom<i64> for SignedMicros {
    type Error = MoneyError;
    fn try_from(micros: i64) -> Result<Self, MoneyError> {
        Self::new(micros)
    }
}

impl From<SignedMicros> for i64 {
    fn from(movement: SignedMicros) -> Self {
        movement.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn arithmetic_is_checked_at_both_ends() {
        let one = Micros::new(1).unwrap();
        assert_eq!(Micros::MAX.plus(one), Err(MoneyError));
        assert_eq!(Micros::ZERO.minus(one), Err(MoneyError));
        assert_eq!(one.plus(one), Micros::new(2));
        assert!(serde_json::from_str::<Micros>("9007199254740992").is_err());
        assert!(serde_json::from_str::<Micros>("-1").is_err());
        assert!(serde_json::from_str::<Micros>("1.5").is_err());
    }
    #[test]
    fn movements_go_both_ways_and_stay_in_range() {
        let seven = Micros::new(7).unwrap();
        assert_eq!(SignedMicros::between(seven, Micros::ZERO).get(), -7);
        assert_eq!(SignedMicros::between(Micros::ZERO, Micros::MAX).get(), (1 << 53) - 1);
        assert_eq!(serde_json::from_str::<SignedMicros>("-7").unwrap(), SignedMicros::new(-7).unwrap());
        assert!(serde_json::from_str::<SignedMicros>("-9007199254740992").is_err());
    }
}
