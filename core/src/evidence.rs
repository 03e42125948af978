//! Stand-in until the module of the same name arrives.
use serde::{Deserialize, Serialize};
/// How a late signal was handled.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Disposition {
    /// Ignored.
    Ignored,
    /// Done without double effects.
    ProcessedWithoutDuplicateEffects,
    /// For review.
    Quarantined,
    /// Corrected.
    CorrectiveActionInitiated,
}
/// A record.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub enum EvidenceRecord {
    /// Nothing.
    Nothing,
}
