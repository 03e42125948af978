//! A second account of a generation, written as a fold over facts: nothing but what happened is kept, and every state is
//! read off those facts.

use super::world::HEARTBEAT_MS;
use holdfast_core::policy::{OnDisconnect, Owner, Terms};
use holdfast_core::reservation::{
    AbortCause, Aggregate, Command, ConnectionState, Lifecycle, LogFacts, SourceEnd, UpstreamState,
};

/// The facts of a started generation. Times are milliseconds.
#[derive(Clone, Debug)]
pub(crate) struct Facts {
    terms: Terms,
    began: u64,
    sent: Option<u64>,
    answered: Option<u64>,
    /// Last sign of the driver for its own sake.
    sign: u64,
    /// How often a driver was lost.
    losses: u32,
    /// The last loss is looked into at that time.
    look: Option<u64>,
    stop: Option<AbortCause>,
    away_since: Option<u64>,
    ever_away: bool,
    asked: Option<u64>,
    end: Option<(u64, Lifecycle)>,
    deleted: bool,
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
    connection: ConnectionState,
    epoch: u32,
    stop: Option<AbortCause>,
    asked: Option<u64>,
    deleted: bool,
}

impl Shown {
    pub(crate) fn of(aggregate: &Aggregate) -> Option<Self> {
        aggregate.live().map(|live| Self {
            lifecycle: live.lifecycle,
            // Where it ended is the table's affair.
            upstream: Some(live.attempt.upstream).filter(|_| !live.lifecycle.is_terminal()),
            connection: live.connection.state,
            epoch: live.attempt.epoch(),
            stop: live.attempt.abort,
            asked: live.cancellation.map(|cancellation| cancellation.requested_at.0),
            deleted: live.content_deleted,
        })
    }
}

impl Model {
    /// Takes a command at a time; says what it must do, in the words of [`super::world::said`].
    pub(crate) fn take(&mut self, command: &Command, log: &LogFacts, now: u64) -> String {
        match (&mut *self, command) {
            (Self::Nothing, Command::Start { terms, .. }) => {
                *self = Self::Ran(Box::new(Facts::new((**terms).clone(), now)));
                "started>active".into()
            }
            (Self::Nothing, Command::ResolveNeverStarted { .. }) => {
                *self = Self::Never;
                "done".into()
            }
            (Self::Nothing, _) => "!not_found".into(),
            (Self::Never, Command::ResolveNeverStarted { .. } | Command::Wake { .. }) => "done=".into(),
            (Self::Never, _) => "!never_started".into(),
            (Self::Ran(_), Command::Start { .. } | Command::ResolveNeverStarted { .. }) => "again=".into(),
            (Self::Ran(facts), command) => {
                let before = facts.lifecycle();
                let mut said = facts.take(command, log, now);
                let after = facts.lifecycle();
                if before != after {
                    let effects = said.find('+').unwrap_or(said.len());
                    said.insert_str(effects, &format!(">{}", after.as_str()));
                }
                said
            }
        }
    }

    pub(crate) fn shown(&self) -> Option<Shown> {
        match self {
            Self::Nothing | Self::Never => None,
            Self::Ran(facts) => Some(facts.shown()),
        }
    }
}

impl Facts {
    fn new(terms: Terms, now: u64) -> Self {
        Self {
            terms,
            began: now,
            sent: None,
            answered: None,
            sign: now,
            losses: 0,
            look: None,
            stop: None,
            away_since: None,
            ever_away: false,
            asked: None,
            end: None,
            deleted: false,
        }
    }

    fn lifecycle(&self) -> Lifecycle {
        match (self.end, self.away_since) {
            (Some((_, lifecycle)), _) => lifecycle,
            _ if self.asked.is_some() || self.stop == Some(AbortCause::Disconnect) => Lifecycle::CancellationRequested,
            (None, Some(_)) => Lifecycle::Detached,
            (None, None) => Lifecycle::Active,
        }
    }

    fn shown(&self) -> Shown {
        let running = match () {
            () if self.losses > 0 => UpstreamState::Unknown,
            () if self.answered.is_some() => UpstreamState::Processing,
            () if self.sent.is_some() => UpstreamState::Submitted,
            () => UpstreamState::Prepared,
        };
        Shown {
            lifecycle: self.lifecycle(),
            upstream: Some(running).filter(|_| self.end.is_none()),
            connection: match (self.away_since, self.ever_away) {
                (Some(_), _) => ConnectionState::Disconnected,
                (None, true) => ConnectionState::Reconnected,
                (None, false) => ConnectionState::Connected,
            },
            epoch: self.epoch(),
            stop: self.stop,
            asked: self.asked,
            deleted: self.deleted,
        }
    }

    fn epoch(&self) -> u32 {
        self.losses + 1
    }

    fn go_on(&self, wrote: bool) -> String {
        let word = if self.stop.is_some() { "stop" } else { "continue" };
        if wrote { word.into() } else { format!("{word}=") }
    }

    fn take(&mut self, command: &Command, log: &LogFacts, now: u64) -> String {
        if let Command::Submit { epoch }
        | Command::Respond { epoch, .. }
        | Command::Append { epoch, .. }
        | Command::End { epoch, .. } = command
        {
            if *epoch != self.epoch() {
                return "!stale_epoch".into();
            }
            if self.end.is_some() {
                return "!wrong_state".into();
            }
        }
        match command {
            Command::Submit { .. } => self.submit(now),
            Command::Respond { .. } => self.respond(now),
            Command::Append { bytes, .. } => {
                let renews = *bytes == 0 && self.short(log, now);
                if renews {
                    self.sign = now;
                }
                self.go_on(renews)
            }
            Command::Readers { attached, .. } => self.readers(*attached, now),
            Command::Cancel => self.cancel(now),
            Command::End { end, .. } => self.ends(end, now),
            Command::Wake { driver_alive } => self.wake(*driver_alive, log, now),
            other => panic!("not for this model: {other:?}"),
        }
    }

    fn submit(&mut self, now: u64) -> String {
        if self.sent.is_some() || self.losses > 0 {
            return "!wrong_state".into();
        }
        if self.stop.is_some() {
            return "stop=".into();
        }
        self.sent = Some(now);
        self.sign = now;
        self.go_on(true)
    }

    fn respond(&mut self, now: u64) -> String {
        if self.sent.is_none() || self.losses > 0 {
            return "!wrong_state".into();
        }
        let first = self.answered.is_none();
        if first {
            self.answered = Some(now);
            self.sign = now;
        }
        self.go_on(first)
    }

    fn readers(&mut self, attached: u32, now: u64) -> String {
        if self.end.is_some() || (attached == 0) == self.away_since.is_some() {
            return "done=".into();
        }
        let waited_for = self.lifecycle() == Lifecycle::Active;
        self.away_since = Some(now).filter(|_| attached == 0);
        self.ever_away = true;
        let patience = self.terms.on_disconnect == OnDisconnect::Detach || self.terms.grace_ms > 0;
        if attached > 0 || patience || !waited_for || self.stop.is_some() {
            return "done".into();
        }
        self.stop = Some(AbortCause::Disconnect);
        "stop+abort".into()
    }

    fn cancel(&mut self, now: u64) -> String {
        match (self.asked, self.end) {
            (Some(_), _) => return "requested=".into(),
            (None, Some(_)) => return "none=".into(),
            (None, None) => self.asked = Some(now),
        }
        if self.stop.is_some() {
            return "requested".into();
        }
        self.stop = Some(AbortCause::Request);
        "requested+abort".into()
    }

    /// Where it ends is the conclusion table's affair: here only whether it ended well or was stopped.
    fn ends(&mut self, end: &holdfast_core::reservation::UpstreamEnd, now: u64) -> String {
        use holdfast_core::meter::EndClass;
        // In these histories a head comes with `Respond` and says 200.
        let whole = end.source == SourceEnd::Body(EndClass::Complete) && self.answered.is_some();
        let stopped = end.source == SourceEnd::Aborted;
        let lifecycle = match self.stop {
            _ if whole => Lifecycle::Completed,
            None | Some(AbortCause::Request | AbortCause::Disconnect) if stopped => Lifecycle::Cancelled,
            _ => Lifecycle::Failed,
        };
        self.end = Some((now, lifecycle));
        self.deleted = lifecycle == Lifecycle::Cancelled && !self.terms.keep_partial;
        if self.deleted { "done+close+delete".into() } else { "done+close".into() }
    }

    fn wake(&mut self, driver_alive: bool, log: &LogFacts, now: u64) -> String {
        if let Some((ended, _)) = self.end {
            let delete = !self.deleted && now >= ended + self.terms.retention_s * 1_000;
            self.deleted |= delete;
            return if delete { "done+delete" } else { "done=" }.into();
        }
        if let Some(look) = self.look {
            if now < look {
                return "done=".into();
            }
            self.look = Some(now + 1_000);
            return "done+evidence".into();
        }
        let here = driver_alive && self.terms.owner == Owner::Object;
        if !here && now >= self.lease_end(log) {
            return self.lose(now);
        }
        if let Some(cause) = self.missed(log, now) {
            self.stop = Some(cause);
            if here {
                self.sign = now;
            }
            return "stop+abort".into();
        }
        let renews = here && self.short(log, now);
        if renews {
            self.sign = now;
        }
        if renews { "done" } else { "done=" }.into()
    }

    fn lose(&mut self, now: u64) -> String {
        self.losses += 1;
        self.away_since = self.away_since.or(Some(now));
        self.ever_away = true;
        let watch_ms = self.sent.map_or(0, |_| self.terms.observation_ms);
        self.look = Some(now + if watch_ms == 0 { 1_000 } else { watch_ms });
        if watch_ms == 0 { "done+evidence" } else { "done" }.into()
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
    fn missed(&self, log: &LogFacts, now: u64) -> Option<AbortCause> {
        if self.stop.is_some() {
            return None;
        }
        let grace = self.terms.on_disconnect == OnDisconnect::Cancel && self.lifecycle() == Lifecycle::Detached;
        let silence = match (self.sent, self.answered) {
            (_, Some(at)) => {
                let last = at.max(log.last_append_at.map_or(0, |at| at.0));
                Some((last + self.terms.idle_ms, AbortCause::IdleTimeout))
            }
            (Some(at), None) => Some((at + self.terms.first_byte_ms, AbortCause::FirstByteTimeout)),
            (None, None) => None,
        };
        let mut due = vec![(self.sent.unwrap_or(self.began) + self.terms.total_ms, AbortCause::TotalTimeout)];
        due.extend(self.away_since.filter(|_| grace).map(|at| (at + self.terms.grace_ms, AbortCause::Disconnect)));
        due.extend(silence);
        due.sort_by_key(|(at, _)| *at);
        due.first().filter(|(at, _)| *at <= now).map(|(_, cause)| *cause)
    }
}
