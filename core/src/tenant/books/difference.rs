//! What does not agree, by name.

use crate::ids::{GenerationId, ReservationId};
use crate::ledger::Posting;
use crate::money::Micros;
use crate::tenant::Hold;
use alloc::string::String;
use core::fmt;
use serde::de::Visitor;
use serde::{Deserialize, Deserializer, Serialize};

/// Which two accounts of one thing differ. Stable names, part of the API. In a [`Difference`], `expected` is the first of
/// the two and `found` the second.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum What {
    /// A row of this sequence number / the audit chain, which has none or has another.
    AuditRow,
    /// The predecessor's hash / the one that the row names.
    AuditLink,
    /// The hash of the row's content / the one that it carries.
    AuditHash,
    /// The end of the chain / the end that the tenant's row remembers.
    AuditHead,
    /// The posting that audit row or entry names / none.
    Posting,
    /// The hash in the audit row / the hash of the stored posting: it was edited, or cannot be read.
    PostingContent,
    /// An entry for the posting of this number / none, or one of another posting.
    Entry,
    /// The movement that the posting makes / the movement that its entry says.
    EntryMovement,
    /// The balance before and the movement / the balance that the entry says.
    EntryBalance,
    /// The entries' sum / the balance.
    GrantedByEntries,
    /// The entries' sum / the balance.
    HeldByEntries,
    /// The entries' sum / the balance.
    SpentByEntries,
    /// The sum of grants / the balance.
    GrantedByPostings,
    /// The sum over the postings of all holds / the balance.
    HeldByPostings,
    /// The sum over the postings of all holds / the balance.
    SpentByPostings,
    /// The sum of the invoice lines / the balance.
    SpentByLines,
    /// Open holds that have their slot, by postings / the count.
    SlotsByPostings,
    /// The sum over the period's holds / the period's row.
    PeriodHeld,
    /// The sum over the period's holds / the period's row.
    PeriodSpent,
    /// At most one resolution / a further one (invariant 1).
    Resolution,
    /// How the postings left the hold / its state.
    HoldState,
    /// The amount that the hold was placed with, by its posting / by the hold.
    HoldPlaced,
    /// What is held by the postings / by the hold.
    HoldHeld,
    /// Whether it has its slot, by the postings / by the hold.
    HoldSlot,
    /// What was charged by the postings / by the hold.
    HoldCharged,
    /// What was reserved / a settlement above it (invariant 2).
    HoldExceeded,
    /// The amount of the posting / the amount of its invoice line, or no line.
    Line,
    /// The usage that the posting stands on / the usage that its line names, or a record that is not there.
    UsageRecord,
    /// A hold / a posting, invoice line or usage record of a reservation that has none.
    Stray,
    /// A row that can be read / one that cannot.
    Unreadable,
    /// The hold's state / what its reservation says of it.
    ReservationState,
    /// What is held by the hold / by its reservation.
    ReservationHeld,
    /// What was charged by the tenant / by the reservation.
    ReservationCost,
    /// A posting that is applied / one that the tenant refused for good.
    ReservationPosting,
}

/// A value in one of two accounts. In JSON a number, a text or `null`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(untagged)]
pub enum Said {
    /// An amount in micro-USD, or a count.
    Number(i64),
    /// A state, a hash, an id.
    Word(String),
    /// Nothing is there.
    Nothing,
}

impl<'de> Deserialize<'de> for Said {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        deserializer.deserialize_any(SaidVisitor)
    }
}

struct SaidVisitor;

impl Visitor<'_> for SaidVisitor {
    type Value = Said;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("a number, a text or null")
    }

    fn visit_i64<E>(self, number: i64) -> Result<Said, E> {
        Ok(Said::Number(number))
    }

    fn visit_u64<E>(self, number: u64) -> Result<Said, E> {
        Ok(Said::from(number))
    }

    fn visit_str<E>(self, word: &str) -> Result<Said, E> {
        Ok(Said::from(word))
    }

    fn visit_unit<E>(self) -> Result<Said, E> {
        Ok(Said::Nothing)
    }
}

impl From<i64> for Said {
    fn from(number: i64) -> Self {
        Self::Number(number)
    }
}

impl From<Micros> for Said {
    fn from(amount: Micros) -> Self {
        Self::Number(signed(amount))
    }
}

impl From<u64> for Said {
    fn from(number: u64) -> Self {
        Self::Number(i64::try_from(number).unwrap_or(i64::MAX))
    }
}

impl From<bool> for Said {
    fn from(flag: bool) -> Self {
        Self::Word(if flag { "yes" } else { "no" }.into())
    }
}

impl From<&str> for Said {
    fn from(word: &str) -> Self {
        Self::Word(word.into())
    }
}

impl From<Option<&str>> for Said {
    fn from(word: Option<&str>) -> Self {
        word.map_or(Self::Nothing, Self::from)
    }
}

impl From<Option<i64>> for Said {
    fn from(number: Option<i64>) -> Self {
        number.map_or(Self::Nothing, Self::Number)
    }
}

/// Amounts stay below 2^53, so they fit.
pub(super) fn signed(amount: Micros) -> i64 {
    i64::try_from(amount.get()).unwrap_or(i64::MAX)
}

/// One disagreement: what, of whom, and what each side says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Difference {
    /// Which two accounts.
    pub what: What,
    /// Sequence number of the ledger, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seq: Option<u64>,
    /// The reservation, where it is about one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reservation_id: Option<ReservationId>,
    /// Its generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation_id: Option<GenerationId>,
    /// The row, where it is about a posting, an invoice line, a usage record or a budget period: its id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub row: Option<String>,
    /// By recomputation, or by the row that decides.
    pub expected: Said,
    /// What is there instead.
    pub found: Said,
}

impl Difference {
    /// About the tenant as a whole.
    #[must_use]
    pub fn new(what: What, expected: impl Into<Said>, found: impl Into<Said>) -> Self {
        Self {
            what,
            seq: None,
            reservation_id: None,
            generation_id: None,
            row: None,
            expected: expected.into(),
            found: found.into(),
        }
    }

    /// About one number of the ledger.
    #[must_use]
    pub fn at(self, seq: u64) -> Self {
        Self { seq: Some(seq), ..self }
    }

    /// About one row.
    #[must_use]
    pub fn in_row(self, id: &str) -> Self {
        Self { row: Some(id.into()), ..self }
    }

    /// About one hold.
    #[must_use]
    pub fn of_hold(self, hold: &Hold) -> Self {
        Self {
            reservation_id: Some(hold.identity.reservation.clone()),
            generation_id: Some(hold.identity.generation.clone()),
            ..self
        }
    }

    /// About one posting, and so about its reservation.
    #[must_use]
    pub fn of_posting(self, posting: &Posting) -> Self {
        Self {
            reservation_id: posting.reservation.clone(),
            generation_id: posting.generation.clone(),
            ..self.in_row(&posting.id)
        }
    }
}

/// The difference of two values, if there is one.
pub(super) fn compare<T: PartialEq + Into<Said>>(what: What, expected: T, found: T) -> Option<Difference> {
    (expected != found).then(|| Difference::new(what, expected, found))
}
