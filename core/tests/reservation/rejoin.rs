//! The second account of a stream that is taken up again: how often it was tried, and whether it still is.

use super::model::Facts;
use holdfast_core::meter::EndClass;
use holdfast_core::reservation::{LogFacts, RESUMES_MAX, SourceEnd, UpstreamEnd};

/// What was tried.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Rejoin {
    tries: u32,
    /// Length of the log then.
    from: u64,
    /// When the stream last went on.
    pub(crate) at: Option<u64>,
    over: bool,
}

impl Facts {
    /// There is a stream to take up, and nothing against it.
    pub(crate) fn can_rejoin(&self, now: u64) -> bool {
        let total = self.own.sent.unwrap_or(self.own.began) + self.terms.total_ms;
        let there = self.terms.capabilities.resume && self.own.name.is_some() && self.own.answered.is_some();
        let against = self.own.stop.is_some() || self.own.at_odds || self.own.rejoin.over || self.end.is_some();
        there && !against && !self.search.is_some_and(|search| search.extending) && now < total
    }

    /// The stream broke off before its terminal.
    pub(crate) fn breaks_off(&self, end: &UpstreamEnd, now: u64) -> bool {
        matches!(end.source, SourceEnd::Body(EndClass::Incomplete | EndClass::CutInsideEvent)) && self.can_rejoin(now)
    }

    fn in_vain(&self, log: &LogFacts) -> u32 {
        if log.length > self.own.rejoin.from { 0 } else { self.own.rejoin.tries }
    }

    /// A search has begun: tried now, later, or (`None`) not.
    pub(crate) fn plans_rejoin(&mut self, log: &LogFacts, now: u64) -> Option<&'static str> {
        match self.in_vain(log) {
            _ if !self.can_rejoin(now) => None,
            0 => Some(self.tries_rejoin(log, now)),
            tries if tries < RESUMES_MAX => {
                self.pauses(None);
                Some("")
            }
            _ => {
                self.leaves_off(now);
                None
            }
        }
    }

    /// A look that is due is a try.
    pub(crate) fn tries_rejoin(&mut self, log: &LogFacts, now: u64) -> &'static str {
        let tries = self.in_vain(log);
        if tries >= RESUMES_MAX {
            self.leaves_off(now);
            return self.look_again(now);
        }
        self.own.rejoin = Rejoin { tries: tries + 1, from: log.length, ..self.own.rejoin };
        self.pauses(Some(now + 20_000));
        "+resume"
    }

    pub(crate) fn leaves_off(&mut self, now: u64) {
        self.own.rejoin.over = true;
        if let Some(search) = &mut self.search {
            search.until = search.until.max(now + self.terms.observation_ms);
        }
    }

    pub(crate) fn stops_rejoining(&mut self, now: u64) -> &'static str {
        self.leaves_off(now);
        self.look_again(now)
    }

    pub(crate) fn resumed(&mut self, epoch: u32, now: u64) -> String {
        if let Some(refused) = self.not_mine(epoch) {
            return refused;
        }
        match (self.search, self.own.rejoin.at) {
            (None, None) => "!wrong_state".into(),
            (None, Some(_)) => self.go_on(false),
            (Some(_), _) if !self.can_rejoin(now) => format!("stop{}", self.look_again(now)),
            (Some(_), _) => {
                self.search = None;
                self.own.rejoin.at = Some(now);
                self.sees(now);
                "continue".into()
            }
        }
    }

    pub(crate) fn resume_failed(&mut self, epoch: u32, refused: bool, log: &LogFacts, now: u64) -> String {
        if let Some(refused) = self.not_mine(epoch) {
            return refused;
        }
        if self.search.is_none() && !refused {
            return "!wrong_state".into();
        }
        if refused {
            self.leaves_off(now);
        }
        if self.search.is_none() {
            return self.fence(log, now);
        }
        if self.can_rejoin(now) {
            self.pauses(None);
            return "done".into();
        }
        format!("done{}", self.look_again(now))
    }

    fn not_mine(&self, epoch: u32) -> Option<String> {
        match () {
            () if epoch != self.epoch() => Some("!stale_epoch".into()),
            () if self.end.is_some() => Some("!wrong_state".into()),
            () => None,
        }
    }
}
