//! A second account of a generation, written as a fold over facts: nothing but what happened is kept, and every state is
//! read off those facts. Here: who reads, who drives, who wants it stopped. In [`super::open`]: what is done while the
//! outcome is open. In [`super::words`]: who says what came of it.

use super::world::HEARTBEAT_MS;
use holdfast_core::ids::AttemptId;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnDisconnect, Owner, Terms};
use holdfast_core::reservation::{
    AbortCause, Aggregate, CancelAnswer, CancelOutcome, Command, ConnectionState, Lifecycle, LogFacts, Settlement,
    SourceEnd, UpstreamEnd, UpstreamState,
};

/// What happened to one attempt. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Try {
    pub(crate) id: AttemptId,
    /// The first epoch that worked for it, and how often a driver of it was fenced.
    pub(crate) first: u32,
    pub(crate) fences: u32,
    pub(crate) began: u64,
    pub(crate) sent: Option<u64>,
    pub(crate) answered: Option<u64>,
    pub(crate) name: Option<String>,
    pub(crate) stop: Option<AbortCause>,
    /// Until when it is read on for its name, though it is to be stopped.
    pub(crate) unnamed: Option<u64>,
    /// The provider was asked to cancel it; what it said.
    pub(crate) asked: Option<Option<CancelAnswer>>,
    /// When it is asked again.
    pub(crate) asks: Option<Again>,
    /// What is known of it.
    pub(crate) word: Option<super::words::Word>,
    /// It was said outside of the stream.
    pub(crate) reported: bool,
    pub(crate) at_odds: bool,
    pub(crate) runs: bool,
    /// It is accounted by what somebody told; or by a bound.
    pub(crate) exact: bool,
    pub(crate) bound: bool,
    pub(crate) rejoin: super::rejoin::Rejoin,
}

impl Try {
    fn new(id: AttemptId, first: u32, now: u64) -> Self {
        Self {
            id,
            first,
            fences: 0,
            began: now,
            sent: None,
            answered: None,
            name: None,
            stop: None,
            unnamed: None,
            asked: None,
            asks: None,
            word: None,
            reported: false,
            at_odds: false,
            runs: false,
            exact: false,
            bound: false,
            rejoin: Default::default(),
        }
    }
}

/// When something is done again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Again {
    At(u64),
    /// The time was left to the implementation.
    Free,
}

/// The facts of a started generation.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    pub(crate) terms: Terms,
    pub(crate) past: Vec<Try>,
    pub(crate) own: Try,
    /// Last sign of the driver for its own sake.
    pub(crate) sign: u64,
    pub(crate) search: Option<super::open::Search>,
    pub(crate) watch: Option<super::open::Watch>,
    pub(crate) away_since: Option<u64>,
    pub(crate) ever_away: bool,
    pub(crate) asked: Option<u64>,
    pub(crate) end: Option<(u64, Lifecycle)>,
    pub(crate) compensated: bool,
    pub(crate) hold: Settlement,
    /// How many holds there are: one, and one for each extension.
    pub(crate) holds: u64,
    pub(crate) deleted: bool,
    pub(crate) place: super::place::Place,
    /// Nothing of its output was there to be seen when it ended.
    pub(crate) unseen: bool,
}

/// What an operator could see before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Seen {
    pub(crate) version: u64,
    /// What the books say is charged.
    pub(crate) cost: i64,
}

/// What became of the id.
#[derive(Clone, Debug, Default)]
pub(crate) enum Model {
    #[default]
    Nothing,
    Never,
    Ran(Box<Facts>),
}

/// What a test may compare of a live aggregate.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Shown {
    lifecycle: Lifecycle,
    upstream: Option<UpstreamState>,
    settlement: Settlement,
    connection: ConnectionState,
    attempts: usize,
    epoch: u32,
    stop: Option<AbortCause>,
    unnamed: Option<u64>,
    asked: Option<(u64, Option<CancelOutcome>)>,
    /// The provider was asked to cancel, and its answer.
    told: Option<Option<CancelAnswer>>,
    /// The deadline of the search or the watch.
    until: Option<u64>,
    deleted: bool,
    place: super::place::Place,
}

impl Shown {
    pub(crate) fn of(aggregate: &Aggregate) -> Option<Self> {
        aggregate.live().map(|live| Self {
            lifecycle: live.lifecycle,
            // Where it ended is the table's affair.
            upstream: Some(live.attempt.upstream).filter(|_| !live.lifecycle.is_terminal()),
            settlement: live.settlement,
            connection: live.connection.state,
            attempts: live.attempts().count(),
            epoch: live.attempt.epoch(),
            stop: live.attempt.abort,
            unnamed: live.attempt.name_by.map(|at| at.0),
            asked: live.cancellation.map(|cancellation| (cancellation.requested_at.0, cancellation.outcome)),
            told: live.attempt.cancel.map(|request| request.answer),
            until: live.reconciliation.map(|search| search.deadline.0),
            deleted: live.content_deleted,
            place: super::place::Place::of(live),
        })
    }
}

impl Model {
    /// Takes a command at a time; says what it must do, in the words of [`super::world::said`], with `|` where it may do
    /// one or the other.
    pub(crate) fn take(&mut self, command: &Command, log: &LogFacts, seen: Seen, now: u64) -> String {
        match (&mut *self, command) {
            (Self::Nothing, Command::Start { terms, attempt, .. }) => {
                *self = Self::Ran(Box::new(Facts::new((**terms).clone(), attempt.clone(), now)));
                "started>active".into()
            }
            (Self::Nothing, Command::ResolveNeverStarted { .. }) => {
                *self = Self::Never;
                "done".into()
            }
            (Self::Nothing, _) => "!not_found".into(),
            (Self::Never, answer) if super::place::is_answer(answer) => "done=".into(),
            (Self::Never, Command::ResolveNeverStarted { .. } | Command::Wake { .. }) => "done=".into(),
            (Self::Never, Command::Signal { seen, .. }) => {
                seen.map_or_else(|| "quarantined=".into(), super::words::recorded)
            }
            (Self::Never, _) => "!never_started".into(),
            (Self::Ran(_), Command::Start { .. } | Command::ResolveNeverStarted { .. }) => "again=".into(),
            (Self::Ran(facts), command) => {
                let (before, alone) = (facts.lifecycle(), facts.away_since.is_some());
                let said = facts.take(command, log, seen, now);
                facts.keep_place(before == Lifecycle::Active && !alone && matches!(command, Command::Readers { .. }));
                let after = facts.lifecycle();
                if before == after {
                    return said;
                }
                let leads = |said: &str| {
                    let (reply, effects) = said.split_at(said.find('+').unwrap_or(said.len()));
                    format!("{reply}>{}{effects}", after.as_str())
                };
                said.split('|').map(leads).collect::<Vec<_>>().join("|")
            }
        }
    }

    pub(crate) fn shown(&self) -> Option<Shown> {
        match self {
            Self::Nothing | Self::Never => None,
            Self::Ran(facts) => Some(facts.shown()),
        }
    }

    /// The time of the next look is chosen within bounds, with jitter: it is a fact like any other.
    pub(crate) fn adopt(&mut self, aggregate: &Aggregate, now: u64) {
        let (Self::Ran(facts), Some(live)) = (self, aggregate.live()) else { return };
        if let Some(chosen) = live.reconciliation {
            facts.adopt(chosen.next_at.0, chosen.look_up, now);
        }
        let again = live.attempt.cancel.and_then(|request| request.due_at()).map(|at| at.0);
        if facts.own.asks == Some(Again::Free) {
            assert!(again.is_some_and(|at| now < at && at <= now + 300_000), "{again:?} at {now}");
            facts.own.asks = again.map(Again::At);
        }
        assert_eq!(facts.own.asks, again.map(Again::At), "at {now}");
    }
}

impl Facts {
    fn new(terms: Terms, id: AttemptId, now: u64) -> Self {
        Self {
            terms,
            past: Vec::new(),
            own: Try::new(id, 1, now),
            sign: now,
            search: None,
            watch: None,
            away_since: None,
            ever_away: false,
            asked: None,
            end: None,
            compensated: false,
            hold: Settlement::Pending,
            holds: 1,
            deleted: false,
            place: super::place::Place::default(),
            unseen: false,
        }
    }

    /// A further attempt begins.
    pub(crate) fn begins(&mut self, id: AttemptId, now: u64) {
        let first = self.epoch() + 1;
        self.past.push(std::mem::replace(&mut self.own, Try::new(id, first, now)));
        self.search = None;
        self.sign = now;
    }

    /// A sign of life. A clock that steps back shortens no lease.
    pub(crate) fn sees(&mut self, now: u64) {
        self.sign = self.sign.max(now);
    }

    fn lifecycle(&self) -> Lifecycle {
        let policy = matches!(self.own.stop, Some(AbortCause::Disconnect | AbortCause::DetachedMax));
        match (self.end, self.away_since) {
            _ if self.compensated => Lifecycle::Compensated,
            (Some((_, lifecycle)), _) => lifecycle,
            _ if self.asked.is_some() || policy => Lifecycle::CancellationRequested,
            (None, Some(_)) => Lifecycle::Detached,
            (None, None) => Lifecycle::Active,
        }
    }

    fn shown(&self) -> Shown {
        let running = match () {
            () if self.own.sent.is_none() => UpstreamState::Prepared,
            () if self.search.is_some() => UpstreamState::Unknown,
            () if self.own.answered.is_some() => UpstreamState::Processing,
            () => UpstreamState::Submitted,
        };
        let came_to = self.end.map(|(_, lifecycle)| match lifecycle {
            Lifecycle::Cancelled => CancelOutcome::Confirmed,
            Lifecycle::Completed => CancelOutcome::CompletionWon,
            _ => CancelOutcome::Unknown,
        });
        Shown {
            lifecycle: self.lifecycle(),
            upstream: Some(running).filter(|_| self.end.is_none()),
            settlement: self.hold,
            connection: match (self.away_since, self.ever_away) {
                (Some(_), _) => ConnectionState::Disconnected,
                (None, true) => ConnectionState::Reconnected,
                (None, false) => ConnectionState::Connected,
            },
            attempts: self.past.len() + 1,
            epoch: self.epoch(),
            stop: self.own.stop,
            unnamed: self.own.unnamed.filter(|_| self.end.is_none()),
            asked: self.asked.map(|at| (at, came_to)),
            told: self.own.asked,
            until: self.search.map(|search| search.until).or(self.watch.map(|watch| watch.until)),
            deleted: self.deleted,
            place: self.place,
        }
    }

    pub(crate) fn epoch(&self) -> u32 {
        self.own.first + self.own.fences
    }

    pub(crate) fn outlives(&self) -> bool {
        let can = self.terms.capabilities;
        can.cancel || can.status || can.resume || can.callback
    }

    /// The provider is asked to stop what we want stopped, once there is a name to ask by.
    pub(crate) fn ask_cancel(&mut self, now: u64) -> &'static str {
        let open = match (self.own.asked, self.own.asks) {
            (None, _) => true,
            (_, Some(Again::At(at))) => at <= now,
            _ => false,
        };
        let can = self.terms.capabilities.cancel && self.own.name.is_some() && self.own.sent.is_some();
        if self.own.stop.is_none() || !open || !can {
            return "";
        }
        self.own.asked = Some(None);
        self.own.asks = Some(Again::At(now + 15_000));
        "+ask_cancel"
    }

    pub(crate) fn go_on(&self, wrote: bool) -> String {
        let stops = self.own.stop.is_some() && self.own.unnamed.is_none();
        let word = if stops { "stop" } else { "continue" };
        if wrote { word.into() } else { format!("{word}=") }
    }

    fn take(&mut self, command: &Command, log: &LogFacts, seen: Seen, now: u64) -> String {
        if self.end.is_none() {
            self.unseen = match command {
                Command::End { end, .. } | Command::Reconcile { end, .. } => {
                    end.content_bytes == 0 && end.source != SourceEnd::Body(EndClass::Complete)
                }
                _ => log.length == 0,
            };
        }
        if let Command::Submit { epoch }
        | Command::Respond { epoch, .. }
        | Command::Identify { epoch, .. }
        | Command::Append { epoch, .. }
        | Command::End { epoch, .. }
        | Command::Reconcile { epoch, .. } = command
        {
            if *epoch != self.epoch() {
                return "!stale_epoch".into();
            }
            // Drivers write while somebody drives; who resolves, while the outcome is searched.
            let resolves = matches!(command, Command::Reconcile { .. });
            if self.end.is_some() || self.search.is_some() != resolves {
                return "!wrong_state".into();
            }
        }
        match command {
            answer if super::place::is_answer(answer) => self.answered(answer, now),
            Command::Submit { .. } => self.submit(now),
            Command::Respond { .. } => self.respond(now),
            Command::Identify { operation_id, .. } => self.identify(operation_id, now),
            Command::Append { bytes, .. } => {
                let renews = *bytes == 0 && self.short(log, now);
                if renews {
                    self.sees(now);
                }
                self.go_on(renews)
            }
            Command::Readers { attached, .. } => self.readers(*attached, now),
            Command::Cancel => self.cancel(now),
            Command::End { end, .. } => self.ends(end, log, now),
            Command::Wake { driver_alive } => self.wake(*driver_alive, log, now),
            Command::Reconcile { end, .. } => self.reconcile(end, log, now),
            Command::LookUpFailed { epoch, .. } => self.look_up_failed(*epoch, now),
            Command::Resumed { epoch } => self.resumed(*epoch, now),
            Command::ResumeFailed { epoch, refused, .. } => self.resume_failed(*epoch, *refused, log, now),
            Command::HoldExtended { epoch, attempt } => self.hold_extended(*epoch, attempt, now),
            Command::ExtensionRefused { epoch } => self.extension_refused(*epoch, now),
            Command::CancelAnswered { epoch, answer } => self.cancel_answered(*epoch, *answer, log, now),
            Command::Signal { seen: Some(disposition), .. } => super::words::recorded(*disposition),
            Command::Signal { signal, seen: None } => self.hear(signal, log, now),
            Command::Operate { action, recorded } => self.operate(action, recorded.as_deref(), log, seen, now),
            other => panic!("not for this model: {other:?}"),
        }
    }

    fn submit(&mut self, now: u64) -> String {
        if self.own.sent.is_some() {
            return "!wrong_state".into();
        }
        if self.own.stop.is_some() {
            return "stop=".into();
        }
        self.own.sent = Some(now);
        self.sees(now);
        self.go_on(true)
    }

    fn respond(&mut self, now: u64) -> String {
        if self.own.sent.is_none() {
            return "!wrong_state".into();
        }
        let first = self.own.answered.is_none();
        if first {
            self.own.answered = Some(now);
            self.sees(now);
        }
        self.go_on(first)
    }

    fn identify(&mut self, name: &str, now: u64) -> String {
        if self.own.sent.is_none() {
            return "!wrong_state".into();
        }
        let first = self.own.name.is_none();
        if first {
            self.own.name = Some(name.into());
        }
        if !first {
            return self.go_on(false);
        }
        let abort = if self.own.unnamed.take().is_some() { "+abort" } else { "" };
        let ask = self.ask_cancel(now);
        self.go_on(true) + abort + ask
    }

    fn readers(&mut self, attached: u32, now: u64) -> String {
        if self.end.is_some() || (attached == 0) == self.away_since.is_some() {
            return "done=".into();
        }
        let waited_for = self.lifecycle() == Lifecycle::Active;
        self.away_since = Some(now).filter(|_| attached == 0);
        self.ever_away = true;
        let patience = self.terms.on_disconnect == OnDisconnect::Detach || self.terms.grace_ms > 0;
        if attached > 0 || patience || !waited_for || self.own.stop.is_some() {
            return "done".into();
        }
        self.stop(AbortCause::Disconnect, now)
    }

    pub(crate) fn stop(&mut self, cause: AbortCause, now: u64) -> String {
        let rejoins = self.search.is_some() && self.can_rejoin(now);
        self.own.stop = Some(cause);
        // Closing the socket stops nothing that outlives it; and without a name nobody could ask about it.
        if let (Some(sent), None, None, true) = (self.own.sent, &self.own.name, self.search, self.outlives()) {
            let first_byte = sent + self.terms.first_byte_ms.min(self.terms.total_ms);
            self.own.unnamed = Some(first_byte.max(now + 10_000));
            return "done".into();
        }
        let extend = if self.hurries(now) { "+extend" } else { "" };
        let ask = self.ask_cancel(now);
        let look = if rejoins { self.stops_rejoining(now) } else { "" };
        format!("stop+abort{extend}{ask}{look}")
    }

    fn cancel(&mut self, now: u64) -> String {
        match (self.asked, self.end) {
            (Some(_), _) => return "requested=".into(),
            (None, Some(_)) => return "none=".into(),
            (None, None) => self.asked = Some(now),
        }
        if self.own.stop.is_some() {
            return "requested".into();
        }
        self.stop(AbortCause::Request, now).replace("stop", "requested").replace("done", "requested")
    }

    /// What its end makes of it, by whatever way the end came to be known. Here only whether it ended well or was stopped.
    pub(crate) fn comes_to(&self, end: &UpstreamEnd) -> Lifecycle {
        use holdfast_core::reconcile::Outcome;
        // In these histories a head comes with `Respond` and says 200.
        let whole = end.source == SourceEnd::Body(EndClass::Complete) && self.own.answered.is_some();
        let wanted =
            matches!(self.own.stop, Some(AbortCause::Request | AbortCause::Disconnect | AbortCause::DetachedMax));
        match (end.source, self.own.word) {
            _ if whole => Lifecycle::Completed,
            (_, Some(word)) if self.own.reported => match word.outcome {
                Outcome::Completed | Outcome::Incomplete => Lifecycle::Completed,
                Outcome::Failed => Lifecycle::Failed,
                Outcome::Cancelled if self.own.stop == Some(AbortCause::TooLarge) => Lifecycle::Failed,
                Outcome::Cancelled => Lifecycle::Cancelled,
            },
            (SourceEnd::Aborted, _) if wanted || self.own.stop.is_none() => Lifecycle::Cancelled,
            (SourceEnd::Lost, _) if wanted => Lifecycle::Cancelled,
            _ => Lifecycle::Failed,
        }
    }

    fn ends(&mut self, end: &UpstreamEnd, log: &LogFacts, now: u64) -> String {
        // Nobody has seen anything of an answer, and nobody says what came of it.
        let silent = matches!(
            end.source,
            SourceEnd::NoResponse { provably_unsent: false }
                | SourceEnd::Body(EndClass::Incomplete | EndClass::CutInsideEvent)
        );
        let open = !self.own.reported && !self.own.at_odds && self.own.answered.is_none() && self.asked.is_none();
        if silent && open && !self.outlives() && self.own.sent.is_some() && self.repeats(log) {
            return self.repeats_after(end, now);
        }
        let told = matches!(end.source, SourceEnd::Body(EndClass::Complete | EndClass::InBandError))
            || end.source == SourceEnd::NoResponse { provably_unsent: true };
        let settled = self.own.reported && !self.may_tell_usage(end);
        let open = self.outlives() && self.own.sent.is_some() && !told && !settled;
        if open || self.breaks_off(end, now) {
            self.learn(end);
            if end.source == SourceEnd::TooLarge {
                self.own.stop = self.own.stop.or(Some(AbortCause::TooLarge));
            }
            return self.fence(log, now);
        }
        // No answer can be missing where nothing was sent.
        if self.own.sent.is_none() && end.source == (SourceEnd::NoResponse { provably_unsent: false }) {
            return "!wrong_state".into();
        }
        self.learn(end);
        self.closes(end, now)
    }

    fn wake(&mut self, driver_alive: bool, log: &LogFacts, now: u64) -> String {
        if let Some((ended, _)) = self.end {
            if !self.deleted && now >= ended + self.terms.retention_s * 1_000 {
                self.deleted = true;
                return "done+delete".into();
            }
            return self.wake_watch(now);
        }
        if self.search.is_some() {
            return self.wake_search(log, now);
        }
        let here = driver_alive && self.object_drives();
        if !here && now >= self.lease_end(log) {
            self.away_since = self.away_since.or(Some(now));
            self.ever_away = true;
            return self.fence(log, now);
        }
        if let Some(cause) = self.missed(log, here || !self.object_drives(), now) {
            if here {
                self.sees(now);
            }
            return self.stop(cause, now);
        }
        if self.own.unnamed.is_some_and(|at| at <= now) {
            self.own.unnamed = None;
            if here {
                self.sees(now);
            }
            return "stop+abort".into();
        }
        let ask = self.ask_cancel(now);
        if !ask.is_empty() {
            if here {
                self.sees(now);
            }
            return format!("done{ask}");
        }
        let renews = here && self.short(log, now);
        if renews {
            self.sees(now);
        }
        if renews { "done" } else { "done=" }.into()
    }

    /// An edge drives the first attempt at most, and takes no stream up again.
    fn object_drives(&self) -> bool {
        self.terms.owner == Owner::Object || !self.past.is_empty() || self.own.rejoin.at.is_some()
    }

    fn lease_end(&self, log: &LogFacts) -> u64 {
        self.sign.max(log.last_append_at.map_or(0, |at| at.0)) + self.terms.lease_ms
    }

    /// Less is left than two heartbeats, or than half; a lease with more than two thirds left is never short.
    fn short(&self, log: &LogFacts, now: u64) -> bool {
        let left = self.lease_end(log).saturating_sub(now);
        let lease_ms = self.terms.lease_ms;
        left <= lease_ms * 2 / 3 && (left <= 2 * HEARTBEAT_MS || left <= lease_ms / 2)
    }

    /// What was missed first.
    fn missed(&self, log: &LogFacts, heard: bool, now: u64) -> Option<AbortCause> {
        if self.own.stop.is_some() {
            return None;
        }
        let grace = self.terms.on_disconnect == OnDisconnect::Cancel && self.lifecycle() == Lifecycle::Detached;
        let silence = match (self.own.sent, self.own.answered) {
            (_, Some(at)) => {
                let last = at.max(log.last_append_at.map_or(0, |at| at.0)).max(self.own.rejoin.at.unwrap_or(0));
                Some((last + self.terms.idle_ms, AbortCause::IdleTimeout))
            }
            (Some(at), None) => Some((at + self.terms.first_byte_ms, AbortCause::FirstByteTimeout)),
            (None, None) => None,
        };
        let mut due = vec![(self.own.sent.unwrap_or(self.own.began) + self.terms.total_ms, AbortCause::TotalTimeout)];
        due.extend(self.away_since.filter(|_| grace).map(|at| (at + self.terms.grace_ms, AbortCause::Disconnect)));
        due.extend(silence.filter(|_| heard));
        due.sort_by_key(|(at, _)| *at);
        due.first().filter(|(at, _)| *at <= now).map(|(_, cause)| *cause)
    }
}
