//! A stream that broke, or whose driver was lost, is taken up again where the provider can do that (design 7): the same
//! attempt, the same log, the same offsets, under a new epoch.
//!
//! It comes before the search for the outcome decides anything: what the stream still brings is better than any word about
//! it, and a provider gives the rest of an operation that has ended meanwhile just as well.
//!
//! | found | then |
//! |---|---|
//! | the stream goes on | driven again, from where the stored events end |
//! | no answer, or one that may be better later | tried again after a pause, [`RESUMES_MAX`] times without a new byte |
//! | refused (too old, not known), or its bytes differ from the stored ones | given up: nothing is spliced |
//! | somebody wants it stopped, two equals differ, or its time is over | given up |
//!
//! Given up, the search goes on as if there were nothing to take up: see [`crate::reconcile`].

use super::command::{Effect, Reply, Transition};
use super::conclude::{SourceEnd, UpstreamEnd, is_success};
use super::{LogFacts, Reservation, UpstreamState};
use crate::meter::EndClass;
use crate::policy::Owner;
use crate::reconcile::backoff_ms;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use serde::{Deserialize, Serialize};

/// Tries in a row that bring no new byte.
pub const RESUMES_MAX: u32 = 5;

/// When a try of which nothing was heard is made again.
pub(super) const RESUME_PATIENCE_MS: u64 = 20_000;

/// How an attempt's stream was taken up again.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Resumption {
    /// Tries since the log last grew.
    pub tries: u32,
    /// Length of the log at the last try, in bytes.
    pub from: u64,
    /// When the stream last went on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resumed_at: Option<UnixMillis>,
    /// It is not tried any more.
    #[serde(default)]
    pub given_up: bool,
}

impl Reservation {
    /// Whether the stream can still be taken up again, should its driver be lost. A reader that has seen more than is
    /// stored waits as long as this is so.
    #[must_use]
    pub fn may_resume(&self, now: UnixMillis) -> bool {
        let attempt = &self.attempt;
        let given_up = attempt.resumption.is_some_and(|resumption| resumption.given_up);
        let extending = self.reconciliation.is_some_and(|search| search.extending);
        let able = self.terms.capabilities.resume && attempt.operation_id.is_some() && self.head.is_some();
        let wanted = attempt.abort.is_none() && !attempt.conflict && !extending && !self.lifecycle.is_terminal();
        able && wanted && !given_up && now < self.total_deadline()
    }

    /// Whether the stream broke off before its terminal and can be taken up again, whatever else is known of the outcome.
    pub(super) fn breaks_off(&self, end: &UpstreamEnd, now: UnixMillis) -> bool {
        let status = end.head.as_ref().or(self.head.as_ref()).map(|head| head.status);
        matches!(end.source, SourceEnd::Body(EndClass::Incomplete | EndClass::CutInsideEvent))
            && status.is_some_and(is_success)
            && !end.error_envelope
            && self.may_resume(now)
    }

    /// The next try, in a search that has begun: now, or later where the last one brought nothing.
    pub(super) fn plan_resume(&mut self, log: &LogFacts, now: UnixMillis) -> Option<Planned> {
        if !self.may_resume(now) {
            return None;
        }
        match self.fruitless_tries(log) {
            0 => self.take_up(log, now).map(Planned::Now),
            RESUMES_MAX.. => {
                self.give_up(now);
                None
            }
            tries => {
                self.resume_after(tries, None, now);
                Some(Planned::Later)
            }
        }
    }

    fn fruitless_tries(&self, log: &LogFacts) -> u32 {
        let before = self.attempt.resumption.unwrap_or_default();
        if log.length > before.from { 0 } else { before.tries }
    }

    /// Tries now. `None` when it was tried often enough: it is given up then.
    pub(super) fn take_up(&mut self, log: &LogFacts, now: UnixMillis) -> Option<Effect> {
        let tries = self.fruitless_tries(log);
        if tries >= RESUMES_MAX {
            self.give_up(now);
            return None;
        }
        let before = self.attempt.resumption.unwrap_or_default();
        self.attempt.resumption = Some(Resumption { tries: tries.saturating_add(1), from: log.length, ..before });
        self.look_at(now.plus(RESUME_PATIENCE_MS));
        let epoch = self.attempt.epoch();
        self.attempt.operation_id.clone().map(|operation_id| Effect::Resume { epoch, operation_id })
    }

    fn resume_after(&mut self, tries: u32, retry_after_ms: Option<u64>, now: UnixMillis) {
        let pause_ms = backoff_ms(tries.saturating_sub(1), retry_after_ms, self.jitter());
        // Behind the longest time nothing is taken up: what came of it is looked for then.
        self.look_at(now.plus(pause_ms).min(self.total_deadline().max(now.plus(1))));
    }

    fn look_at(&mut self, at: UnixMillis) {
        if let Some(search) = &mut self.reconciliation {
            search.next_at = at;
            search.look_up = false;
        }
    }

    /// There is nothing to take up any more. The time of observation begins here.
    pub(super) fn give_up(&mut self, now: UnixMillis) {
        let before = self.attempt.resumption.unwrap_or_default();
        self.attempt.resumption = Some(Resumption { given_up: true, ..before });
        if let Some(search) = &mut self.reconciliation {
            search.deadline = search.deadline.max(now.plus(self.terms.observation_ms));
        }
    }

    /// The provider sends the stream on: the attempt is driven again, by the object.
    pub(super) fn resumed(&self, epoch: u32, now: UnixMillis) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
        let mut next = self.clone();
        if self.reconciliation.is_none() {
            let driven = self.attempt.resumption.is_some_and(|resumption| resumption.resumed_at.is_some());
            return match driven {
                true => {
                    Ok(Transition::unchanged(if self.attempt.abort.is_some() { Reply::Stop } else { Reply::Continue }))
                }
                false => Err(Refusal::WrongState { state: self.attempt.upstream.as_str().into() }),
            };
        }
        if !self.may_resume(now) {
            // Meanwhile somebody wanted it stopped, or its time is over.
            let effect = next.look_again(now);
            let mut transition = next.changed(Reply::Stop).with_history(now, "resumed", "not_wanted", epoch);
            transition.effects.extend(effect);
            return Ok(transition);
        }
        next.reconciliation = None;
        let attempt = &mut next.attempt;
        attempt.upstream = UpstreamState::Processing;
        attempt.lease = attempt.lease.renewed(now);
        attempt.lease.owner = Owner::Object;
        let before = attempt.resumption.unwrap_or_default();
        attempt.resumption = Some(Resumption { resumed_at: Some(now), ..before });
        Ok(next.changed(Reply::Continue).with_history(now, "resumed", "driven_again", epoch))
    }

    /// The stream does not go on: `refused` for good, or for now.
    pub(super) fn resume_failed(
        &self,
        epoch: u32,
        refused: bool,
        retry_after_ms: Option<u64>,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
        let mut next = self.clone();
        if refused {
            next.give_up(now);
        }
        if self.reconciliation.is_none() {
            // It went on, and with other bytes than those that readers have.
            return match refused {
                true => Ok(next.search(log, now, "resume_failed", "refused")),
                false => Err(Refusal::WrongState { state: self.attempt.upstream.as_str().into() }),
            };
        }
        let mut effect = None;
        if next.may_resume(now) {
            next.resume_after(next.fruitless_tries(log), retry_after_ms, now);
        } else {
            effect = next.look_again(now);
        }
        let outcome = if refused { "refused" } else { "failed" };
        let mut transition = next.changed(Reply::Done).with_history(now, "resume_failed", outcome, epoch);
        transition.effects.extend(effect);
        Ok(transition)
    }
}

/// When the next try is made.
pub(super) enum Planned {
    Now(Effect),
    Later,
}
