//! Where a planted [`Bug`] distorts what goes into the rules. Nothing here does anything without one.

use crate::bug::Bug;
use crate::step::Step;
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode, posting_id};
use holdfast_core::money::Micros;
use holdfast_core::reservation::{
    Aggregate, Command, Delivery, Effect, Lifecycle, Parcel, Reconciliation, Reply, Reservation, Settlement, Transition,
};
use std::sync::Arc;

impl Step<'_> {
    pub(crate) fn lease_is_over(&self, g: usize) -> bool {
        let object = self.object(g);
        let over =
            |live: &Reservation| !live.lifecycle.is_terminal() && live.lease_expires_at(&object.facts()) <= self.now();
        object.aggregate.live().is_some_and(over)
    }

    /// What a broken rule does: a release that no evidence supports.
    pub(crate) fn release(&mut self, g: usize, reason: ReasonCode) {
        let now = self.now();
        let aggregate = self.aggregate(g);
        let Some(live) = aggregate.live() else { return };
        let id = posting_id(&live.identity.reservation, live.attempt.epoch(), PostingKind::Release, 1);
        let posting = Posting {
            reservation: Some(live.identity.reservation.clone()),
            generation: Some(live.identity.generation.clone()),
            ..Posting::new(id, PostingKind::Release, live.terms.hold, reason, now)
        };
        let mut next = live.clone();
        next.version += 1;
        next.lifecycle = Lifecycle::Failed;
        next.settlement = Settlement::Released;
        next.ended_at = Some(now);
        let posting_id = posting.id.clone();
        next.deliveries.push(Delivery { posting_id, parcel: Parcel::Posting, attempts: 0, next_at: now });
        let transition = Transition {
            state: Some(Aggregate::Live(Box::new(next))),
            history: Vec::new(),
            postings: vec![posting],
            signals: Vec::new(),
            actions: Vec::new(),
            evidence: Vec::new(),
            assessments: Vec::new(),
            notices: Vec::new(),
            effects: Vec::new(),
            reply: Reply::Done,
        };
        let command = Command::Wake { driver_alive: false };
        self.check_transition(g, &command, &transition);
        self.commit(g, &command, &transition, Vec::new());
        self.arm(g);
    }

    /// The state that a command is applied to; another one only where a rule is broken on purpose.
    pub(crate) fn distorted_state(&self, g: usize, command: &Command) -> Arc<Aggregate> {
        let aggregate = self.aggregate(g);
        let Some(bug) = self.model.config.bug else { return aggregate };
        match &*aggregate {
            Aggregate::Tombstone(_)
                if bug == Bug::StartIgnoresTombstone && matches!(command, Command::Start { .. }) =>
            {
                Arc::new(Aggregate::Vacant)
            }
            Aggregate::Live(live) => match distorted(bug, live, command) {
                Some(live) => Arc::new(Aggregate::Live(Box::new(live))),
                None => aggregate,
            },
            _ => aggregate,
        }
    }

    /// What a broken rule makes of a command.
    pub(crate) fn distort_transition(&self, before: &Aggregate, transition: &mut Transition) {
        if self.bug(Bug::RecordForgotten) {
            transition.evidence.clear();
        }
        let Some(Aggregate::Live(after)) = &mut transition.state else { return };
        let resumed = after.attempt.resumption.is_some();
        if self.bug(Bug::LossForgotten) && resumed {
            after.lost_from = None;
        }
        let owned = before.live().map(|live| live.attempt.epoch());
        if let (true, true, Some(owned)) = (self.bug(Bug::ResumeUnfenced), resumed, owned) {
            after.attempt.lease.epoch = owned;
            for effect in &mut transition.effects {
                if let Effect::Resume { epoch, .. } = effect {
                    *epoch = owned;
                }
            }
        }
    }

    /// The command that is applied, where a rule is broken on purpose.
    pub(crate) fn distorted_command(&self, g: usize, command: &Command) -> Option<Command> {
        let aggregate = self.aggregate(g);
        let live = aggregate.live()?;
        let owns = live.attempt.epoch();
        let mut distorted = command.clone();
        match &mut distorted {
            Command::Append { epoch, .. } | Command::End { epoch, .. } | Command::Respond { epoch, .. }
                if self.bug(Bug::StaleEpochAccepted) =>
            {
                *epoch = owns;
            }
            Command::End { end, .. } | Command::Reconcile { end, .. } if self.bug(Bug::SettleBelowBound) => {
                (end.content_bytes, end.unseen_bytes_max) = (0, 0);
            }
            _ => return None,
        }
        Some(distorted)
    }
}

fn distorted(bug: Bug, live: &Reservation, command: &Command) -> Option<Reservation> {
    let mut distorted = live.clone();
    let over = live.lifecycle.is_terminal();
    match (bug, command) {
        (Bug::OverwriteTerminal, Command::End { .. }) if over => {
            (distorted.lifecycle, distorted.settlement) = (Lifecycle::Active, Settlement::Pending);
        }
        (Bug::OverwriteTerminalLate, Command::Signal { seen: None, .. }) if over => {
            (distorted.lifecycle, distorted.settlement) = (Lifecycle::Detached, Settlement::Pending);
            distorted.reconciliation = Some(search(live));
        }
        (Bug::CancelRecordedAgain, Command::Cancel) if !over => distorted.cancellation = None,
        // What was said is forgotten, and what it cost: only the event's id is left.
        (Bug::SettleLateTwice, Command::Signal { seen: None, .. }) if over && live.resolution.is_some() => {
            distorted.attempt.reported = None;
            distorted.attempt.accounted = None;
            distorted.cost = Some(Micros::ZERO);
        }
        (Bug::CorrectionIgnoresCharge, Command::Signal { seen: None, .. } | Command::Operate { .. }) if over => {
            distorted.cost = distorted.cost.map(|_| Micros::ZERO);
        }
        _ => return None,
    }
    Some(distorted)
}

fn search(live: &Reservation) -> Reconciliation {
    let now = live.ended_at.unwrap_or(live.created_at);
    Reconciliation {
        since: now,
        deadline: now,
        next_at: now,
        look_up: false,
        lookups: 0,
        lookups_answered: 0,
        retry_after_ms: None,
        extending: false,
        extension_refused: false,
        driver_lost: false,
        extension_asks: 0,
    }
}
