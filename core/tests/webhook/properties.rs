//! Any history of one event: whatever answers, deaths, disabling and replays come.

use super::deliveries::endpoint;
use super::events::NOW;
use holdfast_core::time::UnixMillis;
use holdfast_core::webhook::{Answer, Delivery, DeliveryState, Schedule, Step};
use proptest::prelude::*;

const TIMEOUT_MS: u64 = 15_000;

#[derive(Clone, Copy, Debug)]
enum Happens {
    /// Time goes to the next attempt, and the receiver answers.
    Answered(Answer),
    /// The sender dies after it has begun.
    Dies,
    /// An answer comes a second time, or much too late.
    AnsweredAgain(Answer),
    /// The alarm rings just before the time.
    Early,
    Replay,
    Disabled,
}

fn answer() -> impl Strategy<Value = Answer> {
    prop_oneof![
        3 => (100_u16..600, proptest::option::of(any::<u64>()))
            .prop_map(|(status, retry_after_ms)| Answer::Status { status, retry_after_ms }),
        1 => Just(Answer::Status { status: 200, retry_after_ms: None }),
        1 => Just(Answer::TimedOut),
        1 => Just(Answer::Unreachable),
        1 => Just(Answer::NoSecret),
    ]
}

fn happens() -> impl Strategy<Value = Happens> {
    prop_oneof![
        6 => answer().prop_map(Happens::Answered),
        2 => Just(Happens::Dies),
        2 => answer().prop_map(Happens::AnsweredAgain),
        1 => Just(Happens::Early),
        1 => Just(Happens::Replay),
        1 => Just(Happens::Disabled),
    ]
}

/// One event, the time, and what was counted of it.
struct History {
    schedule: Schedule,
    delivery: Delivery,
    now: UnixMillis,
    sent: u32,
    schedules: u32,
}

impl History {
    const fn due(&self) -> Option<UnixMillis> {
        match self.delivery.state {
            DeliveryState::Pending { next_at } => Some(next_at),
            _ => None,
        }
    }

    /// Lets time pass until it is due, and does what is to be done; the answer comes unless the sender dies.
    fn try_it(&mut self, answer: Option<Answer>) {
        let due = self.due();
        self.now = self.now.max(due.unwrap_or(self.now));
        match self.delivery.step(Some(&endpoint()), &self.schedule, TIMEOUT_MS, self.now) {
            Step::Wait => assert!(due.is_none(), "due and not tried: {:?}", self.delivery),
            Step::Bury(dead) => {
                assert_eq!(self.delivery.attempts, self.schedule.attempts());
                self.delivery = dead;
            }
            Step::Send(begun) => {
                assert!(due.is_some(), "sent after the end: {begun:?}");
                self.sent += 1;
                self.delivery = begun;
                if let Some(answer) = answer {
                    self.now = self.now.plus(7);
                    self.delivery = self.delivery.finish(answer, &self.schedule, self.now).delivery;
                }
            }
        }
    }

    fn happens(&mut self, what: Happens) {
        match what {
            Happens::Answered(answer) => self.try_it(Some(answer)),
            Happens::Dies => self.try_it(None),
            Happens::AnsweredAgain(answer) if self.due().is_none() => {
                assert_eq!(self.delivery.finish(answer, &self.schedule, self.now).delivery, self.delivery);
            }
            Happens::AnsweredAgain(_) => {}
            Happens::Early => {
                if let Some(due) = self.due().filter(|due| due.0 > 0) {
                    let early = UnixMillis(due.0 - 1);
                    let step = self.delivery.step(Some(&endpoint()), &self.schedule, TIMEOUT_MS, early);
                    assert_eq!(step, Step::Wait);
                }
            }
            Happens::Replay => {
                let replayed = self.delivery.replay(&self.schedule, self.now);
                assert_eq!(replayed.is_ok(), matches!(self.delivery.state, DeliveryState::Dead { .. }));
                if let Ok(replayed) = replayed {
                    self.schedules += 1;
                    self.delivery = replayed;
                }
            }
            Happens::Disabled => {
                self.now = self.now.max(self.due().unwrap_or(self.now));
                let gone = endpoint().gone(self.now);
                if let Step::Bury(dead) = self.delivery.step(Some(&gone), &self.schedule, TIMEOUT_MS, self.now) {
                    self.delivery = dead;
                }
            }
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 1_000, ..ProptestConfig::default() })]

    /// The same id on every attempt; no more attempts than the schedule has, for each replay; none after it is done; and
    /// what is not done comes to an end.
    #[test]
    fn any_history(
        delays in proptest::collection::vec(0_u64..100_000, 1..6),
        steps in proptest::collection::vec(happens(), 0..40),
    ) {
        let schedule = Schedule::new(delays).unwrap();
        let delivery = Delivery::new("evt_1", &schedule, NOW);
        let mut history = History { schedule, delivery, now: NOW, sent: 0, schedules: 1 };
        for step in steps {
            let before = history.delivery.clone();
            history.happens(step);
            let after = &history.delivery;
            prop_assert_eq!(after.event_id.as_str(), "evt_1");
            prop_assert!(history.sent <= history.schedules * history.schedule.attempts());
            prop_assert!(after.attempts <= history.schedule.attempts());
            let done = matches!(before.state, DeliveryState::Delivered { .. });
            prop_assert!(!done || *after == before, "after it was done: {after:?}");
        }
        for _ in 0..=history.schedule.attempts() {
            history.try_it(None);
        }
        prop_assert_eq!(history.due(), None, "{:?}", history.delivery);
    }
}
