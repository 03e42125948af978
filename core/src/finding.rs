//! What was looked for, and what was found: the absences are told apart by type (seed 3: "not applicable", "not
//! available" and "searched but not observed" are three different statements).

use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Where evidence comes from, the strongest first. When two differ, the stronger one stands; two of the same rank that
/// differ are a dispute (design 6: operator > provider lookup or verified callback > terminal event of the stream > our
/// own count).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Source {
    /// An operator decided.
    Operator,
    /// The provider answered a status lookup.
    Lookup,
    /// The provider called back, and the signature was verified.
    Callback,
    /// The terminal event of the stream.
    Stream,
    /// What we counted ourselves.
    OwnCount,
}

impl Source {
    /// Larger is stronger. Lookup and callback are the same provider speaking: equal.
    #[must_use]
    pub const fn rank(self) -> u8 {
        match self {
            Self::Operator => 4,
            Self::Lookup | Self::Callback => 3,
            Self::Stream => 2,
            Self::OwnCount => 1,
        }
    }
}

/// What is known about a question.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "finding", rename_all = "snake_case")]
pub enum Finding<T> {
    /// The question has no meaning here: this kind of provider, route or state has no such thing.
    NotApplicable,
    /// It has, and it could not be asked or read.
    NotAvailable {
        /// Why, in a stable word.
        why: String,
    },
    /// It was looked for, and not observed. This is no proof that it was never sent.
    SearchedNotObserved {
        /// Stores that were searched.
        stores: Vec<String>,
        /// Start of the window.
        from: UnixMillis,
        /// End of the window.
        until: UnixMillis,
    },
    /// It was observed.
    Observed {
        /// What.
        value: T,
    },
}

impl<T> Finding<T> {
    /// What was observed, if anything was.
    #[must_use]
    pub const fn observed(&self) -> Option<&T> {
        match self {
            Self::Observed { value } => Some(value),
            Self::NotApplicable | Self::NotAvailable { .. } | Self::SearchedNotObserved { .. } => None,
        }
    }

    /// An observation.
    #[must_use]
    pub const fn of(value: T) -> Self {
        Self::Observed { value }
    }

    /// `Observed` where there is a value, else the given absence.
    #[must_use]
    pub fn of_or(value: Option<T>, absence: Self) -> Self {
        value.map_or(absence, Self::of)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_absences_are_written_apart() {
        let json = |finding: &Finding<u8>| serde_json::to_string(finding).unwrap();
        assert_eq!(json(&Finding::NotApplicable), r#"{"finding":"not_applicable"}"#);
        assert_eq!(json(&Finding::NotAvailable { why: "lost".into() }), r#"{"finding":"not_available","why":"lost"}"#);
        let searched =
            Finding::SearchedNotObserved { stores: vec!["log".into()], from: UnixMillis(1), until: UnixMillis(2) };
        assert_eq!(json(&searched), r#"{"finding":"searched_not_observed","stores":["log"],"from":1,"until":2}"#);
        assert_eq!(json(&Finding::of(7)), r#"{"finding":"observed","value":7}"#);
    }

    /// Design 6, the declared order of sources of truth.
    #[test]
    fn order_of_sources() {
        let ranks = [Source::Operator, Source::Lookup, Source::Stream, Source::OwnCount].map(Source::rank);
        assert!(ranks.is_sorted_by(|stronger, weaker| stronger > weaker));
        assert_eq!(Source::Lookup.rank(), Source::Callback.rank());
    }
}
