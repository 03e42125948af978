//! Measured consumption, before anybody has put a price on it.

use crate::finding::Source;
use crate::ids::{AttemptId, GenerationId, Identity, ReservationId};
use crate::policy::Terms;
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What one attempt consumed, by one observation. It is no charge: usage telemetry does not become one without
/// validation (seed 2, "Likely lost completion or settlement event"). A better observation of the same attempt is a
/// further record; none is ever edited.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsageRecord {
    /// See [`usage_record_id`].
    pub id: String,
    /// The reservation it is accounted with.
    pub reservation: ReservationId,
    /// The generation of that reservation.
    pub generation: GenerationId,
    /// Which execution consumed it: a retry is never mistaken for the original.
    pub attempt: AttemptId,
    /// The epoch under which it was observed.
    pub epoch: u32,
    /// The provider.
    pub provider: String,
    /// Model as the client named it.
    pub model: String,
    /// The provider's own id of the execution, where it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub operation_id: Option<String>,
    /// The counts and their quality.
    pub usage: Metered,
    /// Who measured it.
    pub source: Source,
    /// When it was observed.
    pub observed_at: UnixMillis,
}

impl UsageRecord {
    /// The observation number `version` (1, 2, …) of `source` about one attempt.
    #[must_use]
    pub fn of(identity: &Identity, terms: &Terms, attempt: &AttemptId, observed: Observed) -> Self {
        Self {
            id: usage_record_id(attempt, observed.source, observed.version),
            reservation: identity.reservation.clone(),
            generation: identity.generation.clone(),
            attempt: attempt.clone(),
            epoch: observed.epoch,
            provider: terms.provider.clone(),
            model: terms.model.clone(),
            operation_id: observed.operation_id,
            usage: observed.usage,
            source: observed.source,
            observed_at: observed.at,
        }
    }
}

/// One observation of consumption, before it is bound to its attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Observed {
    /// Who measured it.
    pub source: Source,
    /// 1, 2, …: which observation of that source it is.
    pub version: u32,
    /// The epoch under which it was observed.
    pub epoch: u32,
    /// The counts and their quality.
    pub usage: Metered,
    /// The provider's own id of the execution, where it is known.
    pub operation_id: Option<String>,
    /// When it was observed.
    pub at: UnixMillis,
}

/// The id of a usage record. Unique: the same observation told twice has the same id.
#[must_use]
pub fn usage_record_id(attempt: &AttemptId, source: Source, version: u32) -> String {
    format!("{attempt}:usage:{}:{version}", name_of(source))
}

const fn name_of(source: Source) -> &'static str {
    match source {
        Source::Operator => "operator",
        Source::Lookup => "lookup",
        Source::Callback => "callback",
        Source::Stream => "stream",
        Source::OwnCount => "own_count",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_name_attempt_source_and_version() {
        let attempt = AttemptId::from_random([2; 16]);
        for source in [Source::Operator, Source::Lookup, Source::Callback, Source::Stream, Source::OwnCount] {
            let name = serde_json::to_string(&source).unwrap();
            let id = format!("att_02020202020202020202020202020202:usage:{}:3", name.trim_matches('"'));
            assert_eq!(usage_record_id(&attempt, source, 3), id);
        }
    }
}
