//! The second account of what is said about a generation outside of its stream: by a provider, a fenced driver, an
//! operator; and what of it stands.

use super::model::{Again, Facts, Seen, Try};
use holdfast_core::evidence::Disposition;
use holdfast_core::finding::Source;
use holdfast_core::ledger::Direction;
use holdfast_core::policy::{ATTEMPTS_MAX, OnInterruption};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{
    ActionRow, CancelAnswer, LogFacts, Operation, OperatorAction, Report, Settlement, Signal, Subject,
};
use holdfast_core::usage::Usage;

/// What is known of an attempt: what it came to, what it used, and how strongly each was said.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Word {
    pub(crate) outcome: Outcome,
    pub(crate) rank: u8,
    pub(crate) usage: Option<(Usage, u8)>,
    /// The outcome was called back.
    pub(crate) called: bool,
}

/// The words for a disposition that was recorded.
pub(crate) fn recorded(disposition: Disposition) -> String {
    format!("{}=", word_for(disposition))
}

pub(crate) fn word_for(disposition: Disposition) -> &'static str {
    match disposition {
        Disposition::Ignored => "ignored",
        Disposition::ProcessedWithoutDuplicateEffects => "processed",
        Disposition::Quarantined => "quarantined",
        Disposition::CorrectiveActionInitiated => "corrected",
    }
}

/// Design 6: operator > lookup or callback > stream > our own count.
fn rank(source: Source) -> u8 {
    match source {
        Source::Operator => 4,
        Source::Lookup | Source::Callback => 3,
        Source::Stream => 2,
        Source::OwnCount => 1,
    }
}

enum Heard {
    Stands(Word),
    Stronger(Word),
    Same,
    Weaker,
    Against,
}

/// What one word makes of another: outcome by outcome, usage by usage, the stronger stands and equals must agree.
fn weigh(known: Option<Word>, said: Word) -> Heard {
    let Some(known) = known else { return Heard::Stands(said) };
    let differs = known.outcome != said.outcome;
    if differs && said.rank < known.rank {
        return Heard::Weaker;
    }
    let counts = known.usage.zip(said.usage);
    let counted_against = counts.is_some_and(|(a, b)| a.1 == b.1 && a.0 != b.0);
    if (differs && said.rank == known.rank) || counted_against {
        return Heard::Against;
    }
    let mut now = known;
    if said.rank > known.rank {
        now = Word { outcome: said.outcome, rank: said.rank, called: said.called, ..now };
    }
    let stronger_count = said.usage.is_some_and(|(_, rank)| known.usage.is_none_or(|(_, before)| rank > before));
    if stronger_count {
        now.usage = said.usage;
    }
    let content = |word: Word| (word.outcome, word.usage.map(|(usage, _)| usage));
    match () {
        () if content(now) != content(known) => Heard::Stands(now),
        () if now != known => Heard::Stronger(now),
        () if counts.is_some_and(|(a, b)| a.0 != b.0) => Heard::Weaker,
        () => Heard::Same,
    }
}

impl Facts {
    pub(crate) fn has_price(&self, usage: Option<(Usage, u8)>) -> bool {
        usage.is_some_and(|(usage, _)| self.terms.price.cost(&usage).is_ok())
    }

    fn about(&mut self, subject: &Subject) -> Option<(&mut Try, bool)> {
        let fits = |attempt: &Try| match subject {
            Subject::Epoch { epoch } => (attempt.first..=attempt.first + attempt.fences).contains(epoch),
            Subject::Operation { operation_id } => attempt.name.as_ref() == Some(operation_id),
        };
        if fits(&self.own) {
            return Some((&mut self.own, false));
        }
        self.past.iter_mut().find(|attempt| fits(attempt)).map(|attempt| (attempt, true))
    }

    pub(crate) fn hear(&mut self, signal: &Signal, log: &LogFacts, now: u64) -> String {
        let over = self.end.is_some() && self.watch.is_none();
        let Some((attempt, past)) = self.about(&signal.subject) else { return "quarantined".into() };
        if signal.source == Source::OwnCount {
            return "ignored=".into();
        }
        let Report::Ended { outcome, usage } = signal.report else {
            if past || over || attempt.reported {
                return "ignored=".into();
            }
            attempt.runs = signal.report == Report::Processing;
            return format!("processed{}", self.look_again(now));
        };
        if attempt.sent.is_none() {
            return "quarantined".into();
        }
        let rank = rank(signal.source);
        let called = signal.source == Source::Callback;
        let said = Word { outcome, rank, usage: usage.map(|usage| (usage, rank)), called };
        match weigh(attempt.word, said) {
            Heard::Same => "processed=".into(),
            Heard::Weaker => "ignored=".into(),
            Heard::Stronger(word) => {
                attempt.word = Some(word);
                attempt.reported = true;
                "processed".into()
            }
            Heard::Against => {
                attempt.at_odds = true;
                let look = self.look_again(now);
                if self.hold == Settlement::Expired {
                    self.hold = Settlement::Disputed;
                }
                format!("quarantined{look}")
            }
            Heard::Stands(word) => self.stands(signal, word, past, log, now),
        }
    }

    fn stands(&mut self, signal: &Signal, word: Word, past: bool, log: &LogFacts, now: u64) -> String {
        let known = self.own.reported;
        let unseen = self.unseen || log.length == 0;
        let exact = self.has_price(word.usage);
        let ended = self.end.is_some();
        let (attempt, _) = self.about(&signal.subject).unwrap();
        attempt.word = Some(word);
        attempt.reported = true;
        attempt.runs = false;
        // A failure of which nothing was seen costs nothing; of an attempt that was followed by another nothing is.
        let unused = word.outcome == Outcome::Failed && word.usage.is_none() && (past || unseen);
        if past || ended {
            attempt.exact = (attempt.exact || exact) && !unused;
            attempt.bound &= !unused;
        }
        let compensated = self.compensated;
        let said = self.stands_after(past, exact || unused, ended, known, now);
        if ended
            && !past
            && !exact
            && !compensated
            && signal.source == Source::Callback
            && (word.outcome != Outcome::Failed || !unseen)
        {
            self.asks_late(now);
        }
        said
    }

    fn stands_after(&mut self, past: bool, has_cost: bool, ended: bool, known: bool, now: u64) -> String {
        match (ended, self.hold) {
            (false, _) => format!("processed{}", if past { "" } else { self.look_again(now) }),
            _ if self.compensated => "ignored".into(),
            (true, Settlement::Disputed | Settlement::Pending) => "quarantined".into(),
            (true, Settlement::Expired) => self.settles_late(past, known).into(),
            (true, Settlement::Committed) if !has_cost => "processed".into(),
            (true, Settlement::Released) if !has_cost => "quarantined".into(),
            // Whether it costs something else is the books' affair.
            (true, Settlement::Committed | Settlement::Released) => {
                self.watch = None;
                "corrected|processed".into()
            }
        }
    }

    pub(crate) fn cancel_answered(&mut self, epoch: u32, answer: CancelAnswer, log: &LogFacts, now: u64) -> String {
        if !(self.own.first..=self.epoch()).contains(&epoch) {
            return "!stale_epoch".into();
        }
        let confirms = matches!(answer, CancelAnswer::Confirmed { .. });
        match self.own.asked {
            None => return "!wrong_state".into(),
            Some(before) if before == Some(answer) => return "done=".into(),
            Some(_) if self.end.is_some() && !confirms => return "!wrong_state".into(),
            Some(_) => {
                self.own.asked = Some(Some(answer));
                self.own.asks = matches!(answer, CancelAnswer::Failed { .. }).then_some(Again::Free);
            }
        }
        match answer {
            CancelAnswer::Confirmed { usage } => {
                let report = Report::Ended { outcome: Outcome::Cancelled, usage };
                let subject = Subject::Epoch { epoch };
                let signal = super::world::lookup(epoch, report);
                let heard = self.hear(&Signal { subject, ..signal }, log, now);
                let (_, effects) = heard.split_at(heard.find('+').unwrap_or(heard.len()));
                format!("done{effects}")
            }
            CancelAnswer::TooLate => format!("done{}", self.look_again(now)),
            _ => "done".into(),
        }
    }

    pub(crate) fn operate(
        &mut self,
        action: &OperatorAction,
        recorded: Option<&ActionRow>,
        log: &LogFacts,
        seen: Seen,
        now: u64,
    ) -> String {
        match recorded {
            Some(row) if row.action == *action => return "operated=".into(),
            Some(_) => return "!action_conflict".into(),
            None if action.expected_version.is_some_and(|version| version != seen.version) => {
                return "!version_conflict".into();
            }
            None => {}
        }
        let searched = self.end.is_none() && self.search.is_some_and(|search| !search.extending);
        let held = matches!(self.hold, Settlement::Pending | Settlement::Expired | Settlement::Disputed);
        let decided = !held && !self.compensated;
        let attempts = u32::try_from(self.past.len()).unwrap() + 1;
        let may_repeat =
            self.terms.on_interruption == OnInterruption::Retry && attempts < ATTEMPTS_MAX && self.own.stop.is_none();
        let kept = self.end.is_some() && held;
        let allowed = match &action.operation {
            Operation::Release | Operation::Finalize { .. } => searched || kept,
            Operation::Defer { .. } | Operation::Quarantine => searched,
            Operation::Retry => searched && may_repeat && log.length == 0,
            Operation::Escalate => searched || self.hold == Settlement::Expired,
            Operation::Correct { .. } | Operation::Compensate { .. } => decided,
        };
        if !allowed {
            return "!wrong_state".into();
        }
        let said = match &action.operation {
            Operation::Finalize { usage } | Operation::Correct { usage } if !self.has_price(Some((*usage, 4))) => {
                return "!amount_out_of_range".into();
            }
            Operation::Release => self.operator_ends(Settlement::Released, now),
            Operation::Finalize { usage } => {
                self.states(*usage);
                self.operator_ends(Settlement::Committed, now)
            }
            Operation::Defer { until } => {
                self.defers(until.0, now);
                "done".into()
            }
            Operation::Retry => format!("done{}", self.plans(now)),
            Operation::Quarantine => self.keeps(Settlement::Expired, now),
            Operation::Escalate if searched => self.keeps(Settlement::Disputed, now),
            Operation::Escalate => {
                self.hold = Settlement::Disputed;
                "done".into()
            }
            Operation::Correct { usage } => {
                self.states(*usage);
                self.own.at_odds = false;
                self.watch = None;
                "done".into()
            }
            Operation::Compensate { amount, direction } => {
                if *direction == Direction::Refund && i64::try_from(amount.get()).unwrap() > seen.cost {
                    return "!amount_out_of_range".into();
                }
                self.compensated = true;
                "done".into()
            }
        };
        said.replace("done", "operated")
    }

    /// On the operator's word.
    fn states(&mut self, usage: Usage) {
        self.own.word = Some(Word { outcome: Outcome::Completed, rank: 4, usage: Some((usage, 4)), called: false });
        self.own.reported = true;
        self.own.exact = true;
    }

    fn operator_ends(&mut self, hold: Settlement, now: u64) -> String {
        if hold == Settlement::Released {
            self.own.exact = false;
            self.own.bound = false;
        }
        if self.end.is_some() {
            self.hold = hold;
            self.watch = None;
            return "done".into();
        }
        self.ends_as(holdfast_core::reservation::Lifecycle::Expired, hold, now)
    }
}
