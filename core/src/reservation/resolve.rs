//! The driver is gone, or ended without an outcome: the control loop of seed 2 ("Operate Reconciliation as an Auditable
//! Control Loop"). Evidence is collected, [`crate::reconcile::decide`] decides by explicit rules with a version, and the
//! action is applied here under epoch and state, with its record.

use super::attempt::Attempt;
use super::command::{Effect, Reply, Transition};
use super::conclude::{SourceEnd, UpstreamEnd, Verdict, verdict};
use super::record::Basis;
use super::resume::Planned;
use super::{
    AbortCause, ConnectionState, Lifecycle, LogFacts, Reconciliation, Reservation, ResolvedAs, Settlement,
    UpstreamState,
};
use crate::finding::{Finding, Source};
use crate::ledger::ReasonCode;
use crate::meter::EndClass;
use crate::money::Micros;
use crate::policy::SlotOnExpiry;
use crate::reconcile::{
    Action, Circumstances, CompletionEvidence, Decision, DriverEvidence, Evidence, ExecutionEvidence, FinalizeBasis,
    LeaseEvidence, LedgerEvidence, Outcome, OwnerEvidence, Phase, ReleaseBasis, UsageEvidence, decide,
};
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;

/// When evidence that could not be collected is looked for again: an alarm that stays in the past would fire for ever.
pub(super) const EVIDENCE_RETRY_MS: u64 = 1_000;

/// When a question that was not answered, a lookup or a cancel, counts as lost.
pub(super) const LOOK_UP_PATIENCE_MS: u64 = 15_000;

impl Reservation {
    /// The lease is over and no driver lives: a new epoch fences the old one, and the search for the outcome begins.
    pub(super) fn take_over(&self, log: &LogFacts, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.connection.state = ConnectionState::Disconnected;
        next.connection.disconnected_at = self.connection.disconnected_at.or(Some(now));
        if next.lifecycle == Lifecycle::Active {
            next.lifecycle = Lifecycle::Detached;
        }
        next.search(log, now, "wake", "lease_expired").map_live(|live| {
            live.reconciliation = live.reconciliation.map(|search| Reconciliation { driver_lost: true, ..search });
        })
    }

    /// The driver ended and says nothing of the outcome, which outlives its socket. Readers keep waiting.
    pub(super) fn interrupted(&self, end: &UpstreamEnd, log: &LogFacts, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        next.learn(end, now);
        // Its socket is closed, and that stops nothing: the provider is asked, where it can be.
        if end.source == SourceEnd::TooLarge && self.attempt.abort.is_none() {
            next.attempt.abort = Some(AbortCause::TooLarge);
            let epoch = self.attempt.epoch();
            let transition = next.search(log, now, "end", "outcome_open");
            return transition.with_history(now, "end", AbortCause::TooLarge.outcome(), epoch);
        }
        next.search(log, now, "end", "outcome_open")
    }

    /// Begins the search under a new epoch: whoever wrote before is fenced from here on. What was never submitted is
    /// known to be unsent; it needs no time of observation. A stream that can be taken up again comes first.
    pub(super) fn search(mut self, log: &LogFacts, now: UnixMillis, command: &str, outcome: &str) -> Transition {
        let submitted = self.attempt.submitted_at.is_some();
        if submitted {
            self.attempt.upstream = UpstreamState::Unknown;
        }
        self.attempt.lease = self.attempt.lease.taken_over(now);
        self.attempt.name_by = None;
        let observation_ms = if submitted { self.terms.observation_ms } else { 0 };
        let due = observation_ms == 0 || self.attempt.reported.is_some();
        let looks_up = self.terms.capabilities.practice().looks_up() && self.attempt.operation_id.is_some();
        // The first look is at what is stored: at once where nothing is to be waited for.
        let at_once = due || looks_up;
        self.reconciliation = Some(Reconciliation {
            since: now,
            deadline: now.plus(observation_ms),
            next_at: now.plus(if at_once { EVIDENCE_RETRY_MS } else { observation_ms }),
            look_up: false,
            lookups: 0,
            lookups_answered: 0,
            retry_after_ms: None,
            extending: false,
            extension_refused: false,
            driver_lost: false,
            extension_asks: 0,
        });
        let epoch = self.attempt.epoch();
        let planned = self.plan_resume(log, now);
        let request = self.request_cancel(now);
        let mut transition = self.changed(Reply::Done).with_history(now, command, outcome, epoch);
        transition.effects.extend(request);
        match planned {
            Some(Planned::Now(effect)) => return transition.with_effect(effect),
            Some(Planned::Later) => return transition,
            None => {}
        }
        if at_once { transition.with_effect(Effect::CollectEvidence { epoch }) } else { transition }
    }

    /// Something of the search is due: the provider is asked, the tenant is asked again, or the evidence is collected.
    /// Should that fail, it is due again a little later.
    pub(super) fn wake_search(&self, search: Reconciliation, log: &LogFacts, now: UnixMillis) -> Transition {
        if search.next_at > now {
            return self.ask_again(false, now).unwrap_or(Transition::unchanged(Reply::Done));
        }
        let mut next = self.clone();
        if self.may_resume(now) {
            // Tried often enough, it is given up, and the search goes on.
            let effect = next.take_up(log, now).or_else(|| next.look_again(now));
            let mut transition = next.changed(Reply::Done);
            transition.effects.extend(effect);
            return transition;
        }
        let epoch = self.attempt.epoch();
        let operation_id = self.attempt.operation_id.clone().filter(|_| search.look_up);
        let pause_ms = match operation_id {
            Some(_) => LOOK_UP_PATIENCE_MS,
            None if search.extending => crate::reconcile::backoff_ms(search.extension_asks, None, self.jitter()),
            None => EVIDENCE_RETRY_MS,
        };
        next.reconciliation = Some(Reconciliation {
            look_up: false,
            lookups: search.lookups.saturating_add(u32::from(search.look_up)),
            // The provider's wish was for the time of this lookup. Evidence that is read twice takes it from nobody.
            retry_after_ms: search.retry_after_ms.filter(|_| !search.look_up),
            next_at: now.plus(pause_ms),
            extension_asks: search.extension_asks.saturating_add(u32::from(search.extending)),
            ..search
        });
        let request = next.request_cancel(now);
        let mut transition = next.changed(Reply::Done);
        transition.effects.extend(request);
        transition.with_effect(match operation_id {
            Some(operation_id) => Effect::LookUp { epoch, operation_id },
            None if search.extending => self.extension(),
            None => Effect::CollectEvidence { epoch },
        })
    }

    /// After an expiry that goes on watching: the provider is asked until the watch ends.
    pub(super) fn wake_watch(&self, watch: Reconciliation, now: UnixMillis) -> Transition {
        if watch.next_at > now {
            return Transition::unchanged(Reply::Done);
        }
        let mut next = self.clone();
        let over = watch.deadline <= now;
        let lookups = watch.lookups.saturating_add(1);
        let wait_ms = crate::reconcile::backoff_ms(lookups, watch.retry_after_ms, self.jitter());
        let next_at = now.plus(wait_ms).min(watch.deadline.max(now.plus(1)));
        next.reconciliation = (!over).then_some(Reconciliation { lookups, next_at, ..watch });
        let epoch = self.attempt.epoch();
        let transition = next.changed(Reply::Done);
        match self.attempt.operation_id.clone() {
            Some(operation_id) if !over && self.terms.capabilities.practice().looks_up() => {
                transition.with_effect(Effect::LookUp { epoch, operation_id })
            }
            _ => transition,
        }
    }

    /// A lookup got no answer: the next one is decided on, with the provider's own wish for its time.
    pub(super) fn look_up_failed(
        &self,
        epoch: u32,
        retry_after_ms: Option<u64>,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.attempt.lease.allow(epoch)?;
        let Some(search) = self.reconciliation else {
            return Ok(Transition::unchanged(Reply::Done));
        };
        let mut next = self.clone();
        next.reconciliation = Some(Reconciliation { retry_after_ms, ..search });
        let effect = next.look_again(now);
        let mut transition = next.changed(Reply::Done);
        transition.effects.extend(effect);
        Ok(transition)
    }

    /// The evidence is collected: decide, and act.
    pub(super) fn reconcile(
        &self,
        epoch: u32,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        self.guard(epoch)?;
        let Some(search) = self.reconciliation else {
            return Err(Refusal::WrongState { state: self.attempt.upstream.as_str().into() });
        };
        if search.extending {
            return Ok(Transition::unchanged(Reply::Done));
        }
        let mut known = self.clone();
        known.learn(end, now);
        if let Some(until) = known.usage_to_ask_for(&search, end, now) {
            return Ok(known.defer(until, true, now));
        }
        let evidence = known.evidence(Some(end), log, now);
        let decision = decide(&evidence, &known.circumstances(&search, log, now));
        known.act(&decision, &evidence, end, log, now)
    }

    fn act(
        &self,
        decision: &Decision,
        evidence: &Evidence,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        use Lifecycle::Expired;
        let basis = Basis::Rule { decision, evidence };
        let (reason, open) = (decision.reason, self.open_upstream());
        let resolved = match decision.action {
            Action::Release { basis: ReleaseBasis::Unexecuted } => (self.lost_verdict(), ResolvedAs::Observed),
            Action::Release { basis: ReleaseBasis::Expiry { .. } } => {
                (verdict(Expired, open, reason, false), ResolvedAs::Expiry)
            }
            Action::Finalize { basis: FinalizeBasis::Evidence } => {
                return self.finalize_by_evidence(basis, end, log, now);
            }
            Action::Finalize { basis: FinalizeBasis::Estimate } if reason == ReasonCode::DriverLost => {
                (self.lost_verdict(), ResolvedAs::Observed)
            }
            Action::Finalize { basis: FinalizeBasis::Estimate } => {
                (verdict(Expired, open, reason, self.was_submitted()), ResolvedAs::Expiry)
            }
            Action::Retry => return Ok(self.plan_retry(end, now)),
            Action::Defer { until, look_up } => return Ok(self.defer(until, look_up, now)),
            Action::Quarantine { reduce } => {
                let disputed = reason == ReasonCode::EvidenceConflict;
                return self.keep(basis, end, Kept { reduce, disputed }, log, now);
            }
            Action::Escalate => return self.keep(basis, end, Kept { reduce: false, disputed: true }, log, now),
        };
        let (verdict, by) = resolved;
        if !matches!(decision.action, Action::Release { basis: ReleaseBasis::Expiry { watch: true } }) {
            return Ok(self.with_record(self.ended_as(verdict, by, end, log, now)?, basis, log, now));
        }
        // The watch is one of the effects that the record names.
        let transition = self.ended_as(verdict, by, end, log, now)?.map_live(|live| live.watch(now));
        Ok(self.with_record(transition, basis, log, now))
    }

    /// A completion in the log or by somebody's word. The money follows as from a driver's own end.
    fn finalize_by_evidence(
        &self,
        basis: Basis<'_>,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        let conclusion = self.conclude(end, now)?;
        let transition = self.concluded(end, conclusion, ResolvedAs::Observed, log, now, "reconcile");
        Ok(self.with_record(transition, basis, log, now))
    }

    /// Ends the hold by a verdict that no end made. Its record is the caller's.
    pub(super) fn ended_as(
        &self,
        verdict: Verdict,
        by: ResolvedAs,
        end: &UpstreamEnd,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        let conclusion = self.conclude_as(verdict, end, now)?;
        Ok(self.concluded(end, conclusion, by, log, now, "reconcile"))
    }

    fn watch(&mut self, now: UnixMillis) {
        if self.terms.watch_ms > 0 {
            self.watch_for(self.terms.watch_ms, now);
        }
    }

    /// The provider is asked, after the end, for as long.
    pub(super) fn watch_for(&mut self, watch_ms: u64, now: UnixMillis) {
        self.reconciliation = Some(Reconciliation {
            since: now,
            deadline: now.plus(watch_ms),
            next_at: now.plus(crate::reconcile::backoff_ms(0, None, self.jitter()).min(watch_ms)),
            look_up: false,
            lookups: 0,
            lookups_answered: 0,
            retry_after_ms: None,
            extending: false,
            extension_refused: false,
            driver_lost: false,
            extension_asks: 0,
        });
    }

    /// When the provider is asked for the usage of what it has called back as done: a callback tells none, and before the
    /// deadline an upper bound is no match for a count.
    fn usage_to_ask_for(&self, search: &Reconciliation, end: &UpstreamEnd, now: UnixMillis) -> Option<UnixMillis> {
        let pause_ms = crate::reconcile::backoff_ms(search.lookups, search.retry_after_ms, self.jitter());
        (self.usage_is_open(end) && now < search.deadline).then(|| now.plus(pause_ms).min(search.deadline))
    }

    /// Whether the provider can be asked about the owning attempt.
    pub(super) const fn can_be_asked(&self) -> bool {
        self.terms.capabilities.practice().looks_up() && self.attempt.operation_id.is_some()
    }

    fn defer(&self, until: UnixMillis, look_up: bool, now: UnixMillis) -> Transition {
        let mut next = self.clone();
        let later = until.max(now.plus(1));
        if let Some(search) = &mut next.reconciliation {
            let same = search.next_at == later && search.look_up == look_up;
            search.next_at = later;
            search.look_up = look_up;
            if same {
                return Transition::unchanged(Reply::Done);
            }
        }
        next.changed(Reply::Done)
    }

    /// The hold is kept beyond its deadline: in part where the route says so, its slot as the route says.
    pub(super) fn keep(
        &self,
        basis: Basis<'_>,
        end: &UpstreamEnd,
        kept: Kept,
        log: &LogFacts,
        now: UnixMillis,
    ) -> Result<Transition, Refusal> {
        let reason = basis.reason();
        let mut conclusion = self.conclude_as(
            verdict(Lifecycle::Expired, self.open_upstream(), reason, self.was_submitted()),
            end,
            now,
        )?;
        let most = conclusion.cost;
        conclusion.settlement = if kept.disputed { Settlement::Disputed } else { Settlement::Expired };
        conclusion.postings = Vec::new();
        conclusion.usage = None;
        let reduction = if kept.reduce { self.hold().saturating_minus(most) } else { Micros::ZERO };
        let frees_slot = !kept.disputed && self.terms.slot_on_expiry == SlotOnExpiry::Release;
        conclusion.postings.extend(self.reducing_posting(reduction, frees_slot, reason, now));
        let transition = self.concluded(end, conclusion, ResolvedAs::Expiry, log, now, "reconcile");
        let transition = transition.map_live(|live| {
            live.cost = None;
            live.reduced = live.reduced.plus(reduction).unwrap_or(live.reduced);
            live.ask_for_review(reason, now);
        });
        Ok(self.with_record(transition, basis, log, now))
    }

    /// What is known, by kind of source (seed 2); `end` is what the stored log says, where it was read. It is collected
    /// behind the fence, of the newest attempt: see [`crate::reconcile`] for what that settles beforehand.
    pub(super) fn evidence(&self, end: Option<&UpstreamEnd>, log: &LogFacts, now: UnixMillis) -> Evidence {
        let (log_read, unread) = (end.is_some(), UpstreamEnd::by(SourceEnd::Lost));
        let end = end.unwrap_or(&unread);
        let Attempt { reported, running_at, submitted_at, responded_at, conflict, lease, .. } = &self.attempt;
        let expires_at = self.lease_expired_at(log);
        let observe = |source, phase| Finding::of(ExecutionEvidence { phase, source });
        let execution = match (reported, running_at) {
            (Some(said), _) => observe(said.source, Phase::Ended),
            (None, Some(_)) => observe(Source::Lookup, Phase::Processing),
            _ if responded_at.is_some() => observe(Source::Stream, Phase::Processing),
            _ if submitted_at.is_some() => observe(Source::OwnCount, Phase::Submitted),
            _ => observe(Source::OwnCount, Phase::Prepared),
        };
        let streamed = match end.source {
            SourceEnd::Body(EndClass::Complete) => Some(Outcome::Completed),
            SourceEnd::Body(EndClass::InBandError) => Some(Outcome::Failed),
            _ => None,
        };
        let completion = reported
            .map(|said| CompletionEvidence { outcome: said.outcome, source: said.source })
            .or(streamed.map(|outcome| CompletionEvidence { outcome, source: Source::Stream }));
        let accounted = self.accounted(end);
        let counted = accounted.metered.is_exact() || (submitted_at.is_some() && end.content_bytes > 0);
        let usage = counted.then_some(UsageEvidence {
            metered: accounted.metered,
            source: accounted.source,
            of_this_attempt: true,
        });
        Evidence {
            // A driver that ended by itself left before its lease was over.
            lease: LeaseEvidence { expires_at, expired: expires_at <= now },
            owner: OwnerEvidence {
                epoch: lease.epoch,
                last_sign_at: self.last_sign_at(log),
                driver: DriverEvidence::Fenced,
                newer_attempt_owns: false,
            },
            execution,
            usage: usage.map_or_else(|| self.not_observed(log_read, now), Finding::of),
            completion: completion.map_or_else(|| self.not_observed(log_read, now), Finding::of),
            ledger: if self.resolution.is_some() { LedgerEvidence::Posted } else { LedgerEvidence::NothingPosted },
            conflict: *conflict,
        }
    }

    /// Looked for and not found; no proof that it never was.
    pub(super) fn not_observed<T>(&self, log_read: bool, now: UnixMillis) -> Finding<T> {
        Finding::SearchedNotObserved { stores: self.stores_searched(log_read), from: self.created_at, until: now }
    }

    /// Where evidence was looked for. A lookup that was not answered has searched nothing.
    pub(super) fn stores_searched(&self, log_read: bool) -> Vec<String> {
        let looked_up = self.reconciliation.is_some_and(|search| search.lookups_answered > 0);
        [("chunk_log", log_read), ("signals", true), ("provider_lookup", looked_up)]
            .into_iter()
            .filter(|(_, searched)| *searched)
            .map(|(store, _)| store.into())
            .collect()
    }

    fn circumstances(&self, search: &Reconciliation, log: &LogFacts, now: UnixMillis) -> Circumstances {
        Circumstances {
            capabilities: self.terms.capabilities,
            on_expiry: self.terms.on_expiry,
            on_interruption: self.terms.on_interruption,
            hold: self.hold(),
            escalate_above: self.terms.escalate_above,
            deadline: search.deadline,
            lookups: search.lookups,
            attempts: u32::try_from(self.past_attempts.len()).unwrap_or(u32::MAX).saturating_add(1),
            retry_refused: search.extension_refused || !self.may_repeat(log),
            retry_after_ms: search.retry_after_ms,
            jitter: self.jitter(),
            now,
        }
    }

    /// A number that differs between reservations and lookups: the spread of the backoff.
    pub(super) fn jitter(&self) -> u64 {
        let lookups = self.reconciliation.map_or(0, |search| u64::from(search.lookups));
        self.identity.reservation.as_str().bytes().fold(lookups.wrapping_add(0xcbf2_9ce4_8422_2325), |hash, byte| {
            (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
        })
    }
}

/// How a hold is kept beyond its deadline.
#[derive(Clone, Copy, Debug)]
pub(super) struct Kept {
    /// Only what the work can have cost is kept.
    pub(super) reduce: bool,
    /// For an operator.
    pub(super) disputed: bool,
}
