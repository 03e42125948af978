//! A disconnect is a fact about sockets: the moment when the last reader is gone. The policy decides what follows.
//!
//! Where the terms have what prices it, every disconnect makes an [`Assessment`]. Policy `auto` acts by it: `detach` goes on
//! to the end, `cancel` stops the work after the grace time. The first assessment of a disconnect stands; a reader that
//! comes back and leaves again makes another one. The fixed policies record it and do what they say.
//!
//! `auto` without an assessment stops like `cancel`, as the rules do without an estimate: nothing priced the absence of
//! readers that were lost with their driver.

use super::command::{HistoryRow, Reply, Transition};
use super::{AbortCause, ConnectionState, Lifecycle, LogFacts, Reservation};
use crate::economics::{AutoDecision, Choice, estimated_tokens};
use crate::policy::OnDisconnect;
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// What a disconnect was found to cost, either way: evidence, with everything that led to it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Assessment {
    /// When the last reader left.
    pub at: UnixMillis,
    /// The epoch that worked then.
    pub epoch: u32,
    /// The policy was `auto`, and did this. Otherwise it is what `auto` would have done.
    pub applied: bool,
    /// The decision and its inputs.
    pub decision: AutoDecision,
}

impl Assessment {
    fn history_row(&self) -> HistoryRow {
        let outcome = match self.decision.choice {
            Choice::Cancel => "cancel",
            Choice::Detach => "detach",
        };
        HistoryRow { at: self.at, command: "auto".into(), outcome: outcome.into(), epoch: self.epoch }
    }
}

impl Reservation {
    /// The number of readers changed.
    pub(super) fn readers(&self, attached: u32, furthest_offset: u64, log: &LogFacts, now: UnixMillis) -> Transition {
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
        match (self.lifecycle, attached) {
            (Lifecycle::Active, 0) => return next.left_alone(log, now),
            (Lifecycle::Detached, 1..) => next.lifecycle = Lifecycle::Active,
            _ => {}
        }
        let outcome = if attached == 0 { "disconnected" } else { "reconnected" };
        next.changed(Reply::Done).with_history(now, "readers", outcome, self.attempt.epoch())
    }

    /// The last reader of a running generation is gone, and the connection says so already.
    fn left_alone(mut self, log: &LogFacts, now: UnixMillis) -> Transition {
        self.lifecycle = Lifecycle::Detached;
        self.disconnects = self.disconnects.saturating_add(1);
        let assessment = self.assess(log, now);
        self.assessment = assessment.clone().map(Box::new).or(self.assessment.take());
        let epoch = self.attempt.epoch();
        // A driver that was told to stop is not told again: the first cause stands.
        let at_once = self.stops_without_readers() && self.terms.grace_ms == 0 && self.attempt.abort.is_none();
        let mut transition =
            if at_once { self.abort(AbortCause::Disconnect, now, "readers") } else { self.changed(Reply::Done) };
        let left = HistoryRow { at: now, command: "readers".into(), outcome: String::from("disconnected"), epoch };
        let applied = assessment.as_ref().filter(|assessment| assessment.applied).map(Assessment::history_row);
        transition.history.splice(0..0, core::iter::once(left).chain(applied));
        transition.assessments.extend(assessment);
        transition
    }

    fn assess(&self, log: &LogFacts, now: UnixMillis) -> Option<Assessment> {
        let terms = self.terms.auto.as_ref()?;
        // Of an answer that nobody can see yet nothing counts as produced: that errs towards cancelling.
        let produced = log.content_bytes.map_or(0, estimated_tokens);
        Some(Assessment {
            at: now,
            epoch: self.attempt.epoch(),
            applied: self.terms.on_disconnect == OnDisconnect::Auto,
            decision: terms.inputs(&self.terms.price, produced).decide(),
        })
    }

    /// Whether the work is stopped, after the grace time, for want of a reader.
    pub(super) fn stops_without_readers(&self) -> bool {
        match self.terms.on_disconnect {
            OnDisconnect::Cancel => true,
            OnDisconnect::Detach => false,
            OnDisconnect::Auto => {
                // One of an earlier absence says nothing about this one.
                let of_this_absence = |assessment: &&Assessment| Some(assessment.at) == self.connection.disconnected_at;
                let assessment = self.assessment.as_deref().filter(of_this_absence);
                assessment.is_none_or(|assessment| assessment.decision.choice == Choice::Cancel)
            }
        }
    }
}
