//! The second account of a generation whose outcome is open: the search, a further attempt, the deadline, the watch.

use super::model::Facts;
use super::words::Word;
use holdfast_core::ids::AttemptId;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{ATTEMPTS_MAX, OnExpiry, OnInterruption};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Lifecycle, LogFacts, Settlement, SourceEnd, UpstreamEnd};

/// What is searched for, and until when. Times are milliseconds.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Search {
    pub(crate) until: u64,
    next: u64,
    /// The provider is asked then.
    asks: bool,
    /// The tenant was asked for more, and has not answered.
    pub(crate) extending: bool,
    /// There will be no further attempt.
    no_more: bool,
    /// The time of the next look was left to the implementation.
    free: bool,
    /// So was that of the next try to take the stream up again.
    pauses: bool,
    /// How often the tenant was asked for more; and the pause before the next time, without its jitter.
    begged: u32,
    begs_after: Option<u64>,
}

impl Facts {
    /// Between two attempts nothing can be stopped: the tenant's answer, which ends it, is asked for at once.
    pub(crate) fn hurries(&mut self, now: u64) -> bool {
        match self.search.as_mut().filter(|search| search.extending) {
            Some(search) => {
                search.next = now + 1_000;
                search.free = false;
                true
            }
            None => false,
        }
    }
}

/// After an expiry: the provider is still asked.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Watch {
    pub(crate) until: u64,
    next: u64,
}

impl Facts {
    /// The time and kind of the next look, as chosen; within its bounds.
    pub(crate) fn adopt(&mut self, next: u64, asks: bool, now: u64) {
        let can_ask = self.terms.capabilities.status;
        if let Some(watch) = &mut self.watch {
            assert!(watch.next == next || (now < next && next <= watch.until.max(now + 1)), "{watch:?} {next} {now}");
            watch.next = next;
        }
        if let Some(search) = &mut self.search {
            if search.free && search.extending {
                assert!(now + 1_000 <= next && next < now + 5_000, "{search:?} {next} at {now}");
                search.next = next;
                search.free = false;
            }
            if let Some(pause) = search.begs_after.take() {
                assert!(now + pause <= next && next < now + pause * 5 / 4, "{search:?} {next} at {now}");
                search.next = next;
            }
            if search.pauses {
                assert!(now < next && next <= now + 300_000, "{search:?} {next} at {now}");
                search.next = next;
                search.pauses = false;
            }
            if search.free {
                assert_eq!(asks, can_ask, "{search:?}");
                assert!(now < next && next <= search.until.max(now + 1), "{search:?} {next} at {now}");
                search.next = next;
                search.asks = asks;
                search.free = false;
            }
            assert_eq!((search.next, search.asks), (next, asks), "{search:?} at {now}");
        }
    }

    /// What an end tells, whatever follows from it.
    pub(crate) fn learn(&mut self, end: &UpstreamEnd) {
        self.own.name = end.operation_id.clone().or(self.own.name.take());
    }

    /// Whoever drove is fenced, and the outcome is searched.
    pub(crate) fn fence(&mut self, log: &LogFacts, now: u64) -> String {
        self.own.fences += 1;
        self.own.unnamed = None;
        self.sees(now);
        let patience = self.own.sent.map_or(0, |_| self.terms.observation_ms);
        let can_ask = self.terms.capabilities.status && self.own.name.is_some();
        let at_once = patience == 0 || can_ask || self.own.reported;
        self.search = Some(Search {
            until: now + patience,
            next: now + if at_once { 1_000 } else { patience },
            asks: false,
            extending: false,
            no_more: false,
            free: false,
            pauses: false,
            begged: 0,
            begs_after: None,
        });
        if let Some(tried) = self.plans_rejoin(log, now) {
            return format!("done{tried}");
        }
        format!("done{}{}", self.ask_cancel(now), if at_once { "+evidence" } else { "" })
    }

    /// The next look is a try to take the stream up again: then, or when the implementation chooses.
    pub(crate) fn pauses(&mut self, until: Option<u64>) {
        let search = self.search.as_mut().unwrap();
        search.asks = false;
        search.free = false;
        search.pauses = until.is_none();
        search.next = until.unwrap_or(search.next);
    }

    /// Something new is to be looked at.
    pub(crate) fn look_again(&mut self, now: u64) -> &'static str {
        if self.can_rejoin(now) {
            return "";
        }
        let Some(search) = &mut self.search else { return "" };
        search.next = now;
        search.asks = false;
        "+evidence"
    }

    pub(crate) fn wake_search(&mut self, log: &LogFacts, now: u64) -> String {
        let search = self.search.unwrap();
        if now < search.next {
            let ask = self.ask_cancel(now);
            return if ask.is_empty() { "done=".into() } else { format!("done{ask}") };
        }
        if self.can_rejoin(now) {
            return format!("done{}", self.tries_rejoin(log, now));
        }
        let ask = search.asks && self.own.name.is_some();
        let next = now + if ask { 15_000 } else { 1_000 };
        let mut search = Search { next, asks: false, ..search };
        if search.extending {
            search.begs_after = Some((1_000 << search.begged.min(10)).min(60_000));
            search.begged += 1;
            search.free = false;
        }
        self.search = Some(search);
        let cancel = self.ask_cancel(now);
        let effect = match (ask, search.extending) {
            (true, _) => "+look_up",
            (false, true) => "+extend",
            (false, false) => "+evidence",
        };
        format!("done{cancel}{effect}")
    }

    pub(crate) fn wake_watch(&mut self, now: u64) -> String {
        let Some(watch) = self.watch.filter(|watch| watch.next <= now) else { return "done=".into() };
        if watch.until <= now {
            self.watch = None;
            return "done".into();
        }
        let asks = self.terms.capabilities.status && self.own.name.is_some();
        if asks { "done+look_up" } else { "done" }.into()
    }

    pub(crate) fn look_up_failed(&mut self, epoch: u32, now: u64) -> String {
        match (self.search, self.watch) {
            _ if epoch != self.epoch() => "!stale_epoch".into(),
            (Some(_), _) => format!("done{}", self.look_again(now)),
            (None, Some(_)) => "done".into(),
            (None, None) => "done=".into(),
        }
    }

    /// What the rules make of what is known. The first that fits.
    pub(crate) fn reconcile(&mut self, end: &UpstreamEnd, log: &LogFacts, now: u64) -> String {
        let search = self.search.unwrap();
        if search.extending {
            return "done=".into();
        }
        self.learn(end);
        let told = matches!(end.source, SourceEnd::Body(EndClass::Complete | EndClass::InBandError));
        let counted = self.priced(end).is_some();
        if self.own.at_odds {
            return self.keeps(Settlement::Disputed, now);
        }
        if self.may_tell_usage(end) && now < search.until {
            return self.waits(search);
        }
        if self.own.reported || told || counted {
            return self.closes(end, now);
        }
        if self.own.sent.is_none() && self.past.is_empty() && !self.own.runs {
            return self.closes(end, now);
        }
        if now < search.until {
            return self.waits(search);
        }
        let may = self.repeats(log) && !search.no_more && !self.own.runs;
        match self.terms.on_interruption {
            OnInterruption::Retry if may => return format!("done{}", self.plans(now)),
            OnInterruption::Quarantine => return self.keeps(Settlement::Expired, now),
            _ => {}
        }
        if self.is_high() {
            return self.keeps(Settlement::Disputed, now);
        }
        match self.terms.on_expiry {
            None if self.outlives() => self.keeps(Settlement::Expired, now),
            None => self.closes(&UpstreamEnd { source: SourceEnd::Lost, ..end.clone() }, now),
            Some(OnExpiry::Quarantine | OnExpiry::ReduceHold) => self.keeps(Settlement::Expired, now),
            Some(OnExpiry::Escalate) => self.keeps(Settlement::Disputed, now),
            Some(OnExpiry::SettleEstimate) => self.expires(self.own.sent.is_some() || self.charged_before(), now),
            Some(chosen @ (OnExpiry::Release | OnExpiry::ExpireAndWatch)) => {
                let told = self.past.iter().any(|attempt| attempt.exact);
                let said = self.expires(told, now);
                if chosen == OnExpiry::ExpireAndWatch && self.terms.watch_ms > 0 {
                    self.watch = Some(Watch { until: now + self.terms.watch_ms, next: 0 });
                }
                said
            }
        }
    }

    /// Who called back told no usage: it is asked for as long as there is time.
    pub(crate) fn may_tell_usage(&self, end: &UpstreamEnd) -> bool {
        let seen = end.content_bytes > 0;
        let open = |word: Word| word.called && word.usage.is_none() && (word.outcome != Outcome::Failed || seen);
        let called = self.own.reported && self.own.word.is_some_and(open);
        called && self.priced(end).is_none() && self.can_ask() && !self.own.at_odds
    }

    pub(crate) fn can_ask(&self) -> bool {
        self.terms.capabilities.status && self.own.name.is_some()
    }

    /// The route lets a call be repeated, and nothing stands against it.
    pub(crate) fn repeats(&self, log: &LogFacts) -> bool {
        let attempts = u32::try_from(self.past.len()).unwrap() + 1;
        let may = self.terms.on_interruption == OnInterruption::Retry && attempts < ATTEMPTS_MAX;
        may && log.length == 0 && self.own.stop.is_none()
    }

    /// The driver has ended without an answer: it is fenced, and the tenant is asked after a pause.
    pub(crate) fn repeats_after(&mut self, end: &UpstreamEnd, now: u64) -> String {
        self.learn(end);
        self.own.fences += 1;
        self.own.bound = true;
        let (asks, no_more, extending) = (false, false, true);
        self.search = Some(Search {
            until: now,
            next: now,
            asks,
            extending,
            no_more,
            free: true,
            pauses: false,
            begged: 0,
            begs_after: None,
        });
        "done".into()
    }

    /// The provider is asked for the usage of what it has called back after the end.
    pub(crate) fn asks_late(&mut self, now: u64) {
        if self.can_ask() && self.watch.is_none() {
            self.watch = Some(Watch { until: now + 600_000, next: 0 });
        }
    }

    /// Attempts before this one are charged for.
    fn charged_before(&self) -> bool {
        self.past.iter().any(|attempt| attempt.bound || attempt.exact)
    }

    fn is_high(&self) -> bool {
        self.terms.escalate_above.is_some_and(|limit| self.holds * self.terms.hold.get() > limit.get())
    }

    fn waits(&mut self, search: Search) -> String {
        if self.terms.capabilities.status {
            self.search = Some(Search { free: true, ..search });
            return "done|done=".into();
        }
        let same = search.next == search.until && !search.asks;
        self.search = Some(Search { next: search.until, asks: false, ..search });
        if same { "done=" } else { "done" }.into()
    }

    /// A further attempt is planned: what this one may have used is part of the sum.
    pub(crate) fn plans(&mut self, now: u64) -> &'static str {
        self.own.bound = self.own.sent.is_some();
        self.own.exact = self.own.sent.is_some()
            && self.own.reported
            && self.own.word.is_some_and(|word| self.has_price(word.usage));
        let search = self.search.as_mut().unwrap();
        search.extending = true;
        search.begged = 1;
        search.next = now + 1_000;
        "+extend"
    }

    pub(crate) fn hold_extended(&mut self, epoch: u32, id: &AttemptId, now: u64) -> String {
        if self.own.first == epoch && self.own.id == *id {
            return "again=".into();
        }
        let waits = self.end.is_none() && self.search.is_some_and(|search| search.extending);
        if !waits || epoch != self.epoch() + 1 {
            return "!stale_epoch".into();
        }
        self.holds += 1;
        // Nothing is repeated that somebody wants stopped, or whose outcome is known by now.
        if self.own.stop.is_some() || self.own.reported || self.own.at_odds {
            return format!("done{}", self.gives_up(now));
        }
        self.begins(id.clone(), now);
        "started".into()
    }

    pub(crate) fn extension_refused(&mut self, epoch: u32, now: u64) -> String {
        match self.search {
            _ if epoch != self.epoch() + 1 => "!stale_epoch".into(),
            Some(search) if search.extending => format!("done{}", self.gives_up(now)),
            _ => "done=".into(),
        }
    }

    fn gives_up(&mut self, now: u64) -> &'static str {
        let search = self.search.as_mut().unwrap();
        search.extending = false;
        search.no_more = true;
        self.look_again(now)
    }

    pub(crate) fn defers(&mut self, until: u64, now: u64) {
        let search = self.search.as_mut().unwrap();
        search.until = until;
        search.next = until.max(now + 1);
    }

    /// The terminal usage in an end, if it has a price.
    fn priced(&self, end: &UpstreamEnd) -> Option<holdfast_core::usage::Usage> {
        let terminal = end.source == SourceEnd::Body(EndClass::Complete) || end.finish_reason.is_some();
        end.usage.filter(|usage| terminal && self.has_price(Some((*usage, 0))))
    }

    /// The log closes: by a driver's end, or by evidence.
    pub(crate) fn closes(&mut self, end: &UpstreamEnd, now: u64) -> String {
        let lifecycle = self.comes_to(end);
        let whole = end.source == SourceEnd::Body(EndClass::Complete) && self.own.answered.is_some();
        let failed_word = self.own.reported && self.own.word.is_some_and(|word| word.outcome == Outcome::Failed);
        let told_usage = self.own.word.is_some_and(|word| word.usage.is_some());
        let charged = match end.source {
            _ if whole => true,
            _ if failed_word => told_usage || end.content_bytes > 0,
            _ if self.own.reported => true,
            SourceEnd::NoResponse { provably_unsent: true } => false,
            SourceEnd::Aborted | SourceEnd::Lost => self.own.sent.is_some(),
            _ => true,
        };
        let reported_usage = self.own.word.filter(|_| self.own.reported).and_then(|word| word.usage);
        self.own.exact = charged && (self.priced(end).is_some() || self.has_price(reported_usage));
        self.own.bound = charged;
        if !self.own.reported {
            self.own.word = self.streamed(end, whole);
        }
        let hold = match (self.own.at_odds, charged || self.charged_before()) {
            (true, _) if self.search.is_none() => Settlement::Disputed,
            (_, true) => Settlement::Committed,
            (_, false) => Settlement::Released,
        };
        self.ends_as(lifecycle, hold, now)
    }

    /// What the stream itself told at its end.
    fn streamed(&self, end: &UpstreamEnd, whole: bool) -> Option<Word> {
        let outcome = match end.source {
            _ if whole => Outcome::Completed,
            SourceEnd::Body(EndClass::InBandError) | SourceEnd::NoResponse { provably_unsent: true } => Outcome::Failed,
            _ => return None,
        };
        let counts = !matches!(end.source, SourceEnd::NoResponse { .. });
        let usage = self.priced(end).filter(|_| counts).map(|usage| (usage, 2));
        Some(Word { outcome, rank: 2, usage, called: false })
    }

    pub(crate) fn ends_as(&mut self, lifecycle: Lifecycle, hold: Settlement, now: u64) -> String {
        self.end = Some((now, lifecycle));
        self.hold = hold;
        self.search = None;
        self.deleted = lifecycle == Lifecycle::Cancelled && !self.terms.keep_partial;
        if self.deleted { "done+close+delete".into() } else { "done+close".into() }
    }

    /// The deadline: the hold is kept.
    pub(crate) fn keeps(&mut self, hold: Settlement, now: u64) -> String {
        self.own.bound |= self.own.sent.is_some();
        self.own.exact |= self.own.reported && self.own.word.is_some_and(|word| self.has_price(word.usage));
        self.ends_as(Lifecycle::Expired, hold, now)
    }

    fn expires(&mut self, charged: bool, now: u64) -> String {
        self.own.bound |= self.terms.on_expiry == Some(OnExpiry::SettleEstimate) && self.own.sent.is_some();
        self.ends_as(Lifecycle::Expired, if charged { Settlement::Committed } else { Settlement::Released }, now)
    }

    /// A late word about a hold that is kept: it settles it, if it is about what the hold is kept for.
    pub(crate) fn settles_late(&mut self, past: bool, known: bool) -> &'static str {
        if past && !known && self.own.sent.is_some() {
            return "processed";
        }
        let charged = self.own.bound || self.own.exact || self.charged_before();
        self.hold = if charged { Settlement::Committed } else { Settlement::Released };
        self.watch = None;
        "processed"
    }
}
