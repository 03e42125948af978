//! When something is due: functions of the rows and of now, never of an alarm.

use super::{AbortCause, Aggregate, Lifecycle, LogFacts, Reservation};
use crate::deadline::{DeadlineName, Earliest};
use crate::time::UnixMillis;

impl Reservation {
    /// When the driver counts as lost.
    #[must_use]
    pub fn lease_expires_at(&self, log: &LogFacts) -> UnixMillis {
        self.attempt.lease.expires_at(log.last_append_at, self.terms.lease_ms)
    }

    /// When the provider must have sent something, and what is missed then.
    fn silence_deadline(&self, log: &LogFacts) -> Option<(DeadlineName, UnixMillis)> {
        match (self.attempt.responded_at, self.attempt.submitted_at) {
            (Some(responded_at), _) => {
                let resumed_at = self.attempt.resumption.and_then(|resumption| resumption.resumed_at);
                let signs = [log.last_append_at, log.received_at, resumed_at];
                let heard = signs.into_iter().flatten().fold(responded_at, UnixMillis::max);
                Some((DeadlineName::Idle, heard.plus(self.terms.idle_ms)))
            }
            (None, Some(submitted_at)) => Some((DeadlineName::FirstByte, submitted_at.plus(self.terms.first_byte_ms))),
            (None, None) => None,
        }
    }

    pub(super) fn total_deadline(&self) -> UnixMillis {
        self.attempt.submitted_at.or(self.attempt.prepared_at).unwrap_or(self.created_at).plus(self.terms.total_ms)
    }

    fn grace_deadline(&self) -> Option<UnixMillis> {
        let waiting =
            self.lifecycle == Lifecycle::Detached && self.stops_without_readers() && self.attempt.abort.is_none();
        self.connection.disconnected_at.filter(|_| waiting).map(|at| at.plus(self.terms.grace_ms))
    }

    /// When a driver is told to stop. Of two at the same time the first named here counts. Silence says nothing of the
    /// provider where nobody listens.
    fn stop_deadlines(&self, log: &LogFacts, driven: bool) -> Earliest {
        let earliest = Earliest::default()
            .and(DeadlineName::Total, self.total_deadline())
            .and_maybe(DeadlineName::Grace, self.grace_deadline());
        let silence = self.silence_deadline(log).filter(|_| driven);
        silence.map_or(earliest, |(name, at)| earliest.and(name, at))
    }

    /// Whether the lease would lapse before the next sign of life.
    pub(super) fn lease_is_short(&self, log: &LogFacts, heartbeat_ms: u64, now: UnixMillis) -> bool {
        // Twice the heartbeat, or half a lease if that is longer: so the next one comes in time. At most two thirds of
        // a lease: a renewed one is long enough, and a second wake-up at the same moment writes nothing.
        let lease_ms = self.terms.lease_ms;
        let margin = heartbeat_ms.saturating_mul(2).max(lease_ms / 2).min(lease_ms.saturating_mul(2) / 3);
        self.lease_expires_at(log) <= now.plus(margin)
    }

    fn earliest(&self, log: &LogFacts, now: UnixMillis, heartbeat_ms: u64) -> Earliest {
        let first = self.deliveries.first().map(|delivery| delivery.next_at);
        let deliveries = Earliest::default().and_maybe(DeadlineName::Outbox, first);
        if self.lifecycle.is_terminal() {
            let kept_until = self
                .ended_at
                .filter(|_| !self.content_deleted)
                .map(|at| at.plus(self.terms.retention_s.saturating_mul(1_000)));
            let watch = self.reconciliation.map(|watch| watch.next_at);
            return deliveries.and_maybe(DeadlineName::Retention, kept_until).and_maybe(DeadlineName::Reconcile, watch);
        }
        if let Some(search) = self.reconciliation {
            return deliveries
                .and(DeadlineName::Reconcile, search.next_at)
                .and_maybe(DeadlineName::Cancel, self.cancel_due_at());
        }
        let earliest = deliveries
            .and(DeadlineName::Lease, self.lease_expires_at(log))
            .and(DeadlineName::Heartbeat, now.plus(heartbeat_ms))
            .and_maybe(DeadlineName::Name, self.attempt.name_by)
            .and_maybe(DeadlineName::Cancel, self.cancel_due_at());
        // Silence that is over its time and stopped nobody: nobody listens, and the lease tells.
        let heard = self.silence_deadline(log).is_some_and(|(_, at)| at > now);
        let stop = self.stop_deadlines(log, heard);
        match (stop.name(), stop.at()) {
            (Some(name), Some(at)) if self.attempt.abort.is_none() => earliest.and(name, at),
            _ => earliest,
        }
    }

    /// What was missed first: a late wake-up finds the same cause as one in time. `driven`: somebody listens to the
    /// provider, as far as it is known. A driver that is not there waits for its lease to end, and for nothing else.
    pub(super) fn overdue(&self, log: &LogFacts, driven: bool, now: UnixMillis) -> Option<AbortCause> {
        let earliest = self.stop_deadlines(log, driven);
        let missed = earliest.name().filter(|_| earliest.at().is_some_and(|at| at <= now))?;
        match missed {
            DeadlineName::Total => Some(AbortCause::TotalTimeout),
            DeadlineName::Grace => Some(AbortCause::Disconnect),
            DeadlineName::FirstByte => Some(AbortCause::FirstByteTimeout),
            DeadlineName::Idle => Some(AbortCause::IdleTimeout),
            _ => None,
        }
    }
}

impl Aggregate {
    /// When the object must be woken. `heartbeat_ms` bounds the sleep while a driver runs.
    #[must_use]
    pub fn next_wake(&self, log: &LogFacts, now: UnixMillis, heartbeat_ms: u64) -> Option<UnixMillis> {
        match self {
            Self::Vacant => None,
            Self::Tombstone(tombstone) => tombstone.deliveries.first().map(|delivery| delivery.next_at),
            Self::Live(reservation) => reservation.earliest(log, now, heartbeat_ms).at(),
        }
    }
}
