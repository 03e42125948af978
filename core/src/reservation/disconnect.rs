//! A disconnect is a fact about sockets: the moment when the last reader is gone. The policy decides what follows.

use super::command::{HistoryRow, Reply, Transition};
use super::{AbortCause, ConnectionState, Lifecycle, Reservation};
use crate::policy::OnDisconnect;
use crate::time::UnixMillis;

impl Reservation {
    /// The number of readers changed.
    pub(super) fn readers(&self, attached: u32, furthest_offset: u64, now: UnixMillis) -> Transition {
        if self.lifecycle.is_terminal() {
            return Transition::unchanged(Reply::Done);
        }
        let mut next = self.clone();
        next.connection.furthest_offset = self.connection.furthest_offset.max(furthest_offset);
        let gone = self.connection.state == ConnectionState::Disconnected;
        match (attached == 0, gone) {
            (true, false) => {
                next.connection.state = ConnectionState::Disconnected;
                next.connection.disconnected_at = Some(now);
            }
            (false, true) => {
                next.connection.state = ConnectionState::Reconnected;
                next.connection.disconnected_at = None;
            }
            _ => return Transition::unchanged(Reply::Done),
        }
        let outcome = if attached == 0 { "disconnected" } else { "reconnected" };
        let epoch = self.attempt.epoch();
        match (self.lifecycle, attached) {
            (Lifecycle::Active, 0) => {
                next.lifecycle = Lifecycle::Detached;
                let at_once = next.terms.on_disconnect == OnDisconnect::Cancel && next.terms.grace_ms == 0;
                // A driver that was told to stop is not told again: the first cause stands.
                if at_once && next.attempt.abort.is_none() {
                    let mut transition = next.abort(AbortCause::Disconnect, now, "readers");
                    let row = HistoryRow { at: now, command: "readers".into(), outcome: outcome.into(), epoch };
                    transition.history.insert(0, row);
                    return transition;
                }
            }
            (Lifecycle::Detached, 1..) => next.lifecycle = Lifecycle::Active,
            _ => {}
        }
        next.changed(Reply::Done).with_history(now, "readers", outcome, epoch)
    }
}
