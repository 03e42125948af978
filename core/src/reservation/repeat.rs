//! A further attempt: planned by a rule, by the route's word at an end without an answer, or by an operator. The hold is
//! extended first, and each attempt has an id, an epoch and an `Idempotency-Key` of its own (design 4 and 7; invariant 12).
//!
//! By itself this system repeats a call only where nothing of the answer was stored or shown, the route says that the call
//! may be repeated, and attempts are left. What the provider itself answered is handed on: a client that repeats on 429 or
//! 503 does so by itself, and two layers of repeats would multiply.
//!
//! | the attempt ended | repeated |
//! |---|---|
//! | its driver was lost, nothing was stored | after the observation, unless the provider says that it runs |
//! | no answer came; or a 5xx that is not the provider's own; or half an answer that nobody was shown | after a pause |
//! | the provider's own answer, whatever it says; an answer that has begun | no |
//! | the pause before the next one would last longer than the attempt may | no |
//! | stopped by a deadline, by its readers' leaving, or by request | no |
//! | it was never sent, for want of a setting | no: a repeat would want it too |

use super::attempt::Attempt;
use super::command::{Effect, Reply, Transition};
use super::conclude::{SourceEnd, UpstreamEnd, is_success};
use super::resolve::EVIDENCE_RETRY_MS;
use super::{ConnectionState, Lifecycle, LogFacts, Reconciliation, Reservation, ResponseHead, UpstreamState};
use crate::ids::AttemptId;
use crate::meter::EndClass;
use crate::policy::{ATTEMPTS_MAX, Owner};
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use crate::webhook::retry_after_ms;

impl Reservation {
    /// Whether this system may repeat the call by itself, as far as the reservation tells.
    pub(super) fn may_repeat(&self, log: &LogFacts) -> bool {
        let left = self.past_attempts.len() < ATTEMPTS_MAX.saturating_sub(1) as usize;
        self.terms.may_repeat() && left && log.length == 0 && self.attempt.abort.is_none()
    }

    /// The head that a reader may have. While the call may still be repeated there is none: its readers were lost with its
    /// driver, and who comes meanwhile waits for the answer that is read on.
    #[must_use]
    pub fn head_for_readers(&self, log: &LogFacts) -> Option<&ResponseHead> {
        let may_change = self.reconciliation.is_some() && !self.lifecycle.is_terminal() && self.may_repeat(log);
        self.head.as_ref().filter(|_| !may_change)
    }

    /// Whether an end is answered by a further attempt. One that would begin after the time of this one is over would keep
    /// its readers, its hold and its slot for nothing.
    pub(super) fn end_is_repeated(&self, end: &UpstreamEnd, log: &LogFacts, now: UnixMillis) -> bool {
        let unanswered = match (end.source, end.head.as_ref().map(|head| head.status)) {
            (SourceEnd::NoResponse { provably_unsent }, _) => !provably_unsent,
            (SourceEnd::Body(_), Some(status)) if status >= 500 => !end.error_envelope,
            (SourceEnd::Body(EndClass::Incomplete | EndClass::CutInsideEvent), None) => true,
            _ => false,
        };
        let silent = self.head.is_none() && self.attempt.reported.is_none() && !self.attempt.conflict;
        // What outlives its socket may run all the same: it is asked about first.
        let died = self.was_submitted() && !self.terms.capabilities.outlives_socket();
        let in_time = now.plus(self.pause_ms(end, now)) < self.total_deadline();
        unanswered && silent && died && in_time && self.cancellation.is_none() && self.may_repeat(log)
    }

    /// The pause before the next attempt.
    fn pause_ms(&self, end: &UpstreamEnd, now: UnixMillis) -> u64 {
        let attempts = u32::try_from(self.past_attempts.len()).unwrap_or(u32::MAX);
        crate::reconcile::backoff_ms(attempts, wish(end, now), self.jitter())
    }

    /// Plans a further attempt after an end: who drove is fenced, readers wait, and the tenant is asked after a pause.
    pub(super) fn repeated(&self, end: &UpstreamEnd, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.learn(end, now);
        next.attempt.upstream = UpstreamState::Unknown;
        next.attempt.lease = self.attempt.lease.taken_over(now);
        next.attempt.accounted = Some(self.accounted(end));
        next.reconciliation = Some(Reconciliation {
            since: now,
            deadline: now,
            next_at: now.plus(self.pause_ms(end, now)),
            look_up: false,
            lookups: 0,
            lookups_answered: 0,
            retry_after_ms: None,
            extending: true,
            extension_refused: false,
            driver_lost: false,
            extension_asks: 0,
        });
        let epoch = next.attempt.epoch();
        next.changed(Reply::Done).with_history(now, "end", "retry", epoch)
    }

    /// A further attempt is decided. It starts once the tenant has extended the hold, under an id of its own.
    pub(super) fn plan_retry(&self, end: &UpstreamEnd, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        // What the attempt that ends here may have used is part of the settlement. What was never sent used nothing.
        next.attempt.accounted = self.was_submitted().then(|| self.accounted(end));
        if let Some(search) = &mut next.reconciliation {
            search.extending = true;
            search.extension_asks = 1;
            search.next_at = now.plus(EVIDENCE_RETRY_MS);
        }
        let extension = self.extension();
        let epoch = self.attempt.epoch();
        next.changed(Reply::Done).with_history(now, "reconcile", "retry", epoch).with_effect(extension)
    }

    /// Asks for the worst case of one more attempt. The posting's id names the epoch: asked twice, it is extended once.
    pub(super) fn extension(&self) -> Effect {
        Effect::ExtendHold { epoch: self.attempt.epoch().saturating_add(1), amount: self.terms.hold }
    }

    pub(super) fn hold_extended(&self, epoch: u32, id: &AttemptId, now: UnixMillis) -> Result<Transition, Refusal> {
        if self.attempt.first_epoch == epoch && self.attempt.id == *id {
            return Ok(Transition::unchanged(Reply::AlreadyStarted));
        }
        let waits = self.reconciliation.is_some_and(|search| search.extending) && !self.lifecycle.is_terminal();
        if !waits || epoch != self.attempt.epoch().saturating_add(1) {
            return Err(Refusal::StaleEpoch { current: self.attempt.epoch() });
        }
        let mut next = self.clone();
        next.extended = self.extended.plus(self.terms.hold)?;
        // Meanwhile somebody wanted it stopped, or said what it came to: there is nothing to repeat (invariant 12).
        if self.attempt.abort.is_some() || self.attempt.reported.is_some() || self.attempt.conflict {
            next.reconciliation = self.reconciliation.map(|search| Reconciliation {
                extending: false,
                extension_refused: true,
                ..search
            });
            let effect = next.look_again(now);
            let mut transition =
                next.changed(Reply::Done).with_history(now, "hold_extended", "not_needed", self.attempt.epoch());
            transition.effects.extend(effect);
            return Ok(transition);
        }
        let mut further = Attempt::prepared(id.clone(), epoch, &self.terms, now);
        // The object starts it and drives it, also where an edge drove the first: that one's request is gone.
        further.lease.owner = Owner::Object;
        let ended = core::mem::replace(&mut next.attempt, further);
        next.past_attempts.push(ended);
        // A lost driver may have shown bytes that nobody stored: who has any reads the further answer from its beginning.
        let search_began_so = self.reconciliation.is_some_and(|search| search.driver_lost);
        // Or an earlier one did, and its stream could not be taken up.
        let driver_lost = search_began_so || next.past_attempts.last().is_some_and(|ended| ended.resumption.is_some());
        next.lost_from = if driver_lost { Some(0) } else { self.lost_from };
        next.reconciliation = None;
        next.head = None;
        if next.cancellation.is_none() && next.lifecycle != Lifecycle::CancellationRequested {
            let gone = next.connection.state == ConnectionState::Disconnected;
            next.lifecycle = if gone { Lifecycle::Detached } else { Lifecycle::Active };
        }
        Ok(next.changed(Reply::Started { epoch }).with_history(now, "hold_extended", "attempt_started", epoch))
    }

    pub(super) fn extension_refused(&self, epoch: u32, now: UnixMillis) -> Result<Transition, Refusal> {
        if epoch != self.attempt.epoch().saturating_add(1) {
            return Err(Refusal::StaleEpoch { current: self.attempt.epoch() });
        }
        let Some(search) = self.reconciliation.filter(|search| search.extending) else {
            return Ok(Transition::unchanged(Reply::Done));
        };
        let mut next = self.clone();
        next.reconciliation = Some(Reconciliation { extending: false, extension_refused: true, ..search });
        let effect = next.look_again(now);
        let mut transition =
            next.changed(Reply::Done).with_history(now, "extension_refused", "refused", self.attempt.epoch());
        transition.effects.extend(effect);
        Ok(transition)
    }
}

/// When the one who answered for the provider wishes to be asked again.
fn wish(end: &UpstreamEnd, now: UnixMillis) -> Option<u64> {
    let head = end.head.as_ref().filter(|head| !is_success(head.status))?;
    let (_, value) = head.headers.iter().find(|(name, _)| name == "retry-after")?;
    retry_after_ms(value, now)
}
