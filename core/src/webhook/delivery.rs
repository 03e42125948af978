//! One event on its way: a schedule of attempts that survives every crash, under one id.
//!
//! An attempt is counted and stored before it is sent, as if its answer never came; so a crash between sending and
//! noting the answer costs one attempt, sends the same event a second time under the same id, and no event is sent
//! without end.
//!
//! | answer | then |
//! |---|---|
//! | 2xx | delivered |
//! | 410 | a dead letter, and the endpoint is disabled |
//! | 3xx | a failure: it is never followed |
//! | 429 or 503 with `Retry-After` | the next attempt comes no earlier, within [`RETRY_AFTER_MAX_MS`] |
//! | anything else, no answer, or none in time | the next attempt comes as scheduled |
//! | any failure of the last attempt | a dead letter |
//!
//! A dead letter is kept, listed and may be replayed: a new schedule under the same id.

use super::endpoint::Endpoint;
use super::url::UrlFault;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// The delay before each attempt, in milliseconds: 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h (Standard
/// Webhooks 1.0): three days and three and a half hours.
pub const SCHEDULE_MS: [u64; 10] =
    [0, 5_000, 300_000, 1_800_000, 7_200_000, 18_000_000, 36_000_000, 50_400_000, 72_000_000, 86_400_000];

/// Longest wish of a receiver that is followed: a day.
pub const RETRY_AFTER_MAX_MS: u64 = 86_400_000;

/// Attempts of one schedule at most.
pub const ATTEMPTS_MAX: usize = 20;

/// The delays before the attempts, as configured.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Schedule(Vec<u64>);

impl Default for Schedule {
    fn default() -> Self {
        Self(SCHEDULE_MS.into())
    }
}

impl Schedule {
    /// A schedule of these delays, in milliseconds; `None` for none at all and for more than [`ATTEMPTS_MAX`].
    #[must_use]
    pub fn new(delays_ms: Vec<u64>) -> Option<Self> {
        Some(Self(delays_ms)).filter(Self::is_valid)
    }

    /// Whether it has an attempt, and not too many.
    #[must_use]
    pub fn is_valid(&self) -> bool {
        (1..=ATTEMPTS_MAX).contains(&self.0.len())
    }

    /// Attempts until an event is a dead letter.
    #[must_use]
    pub fn attempts(&self) -> u32 {
        u32::try_from(self.0.len()).unwrap_or(u32::MAX)
    }

    /// The delay before the attempt after `made` ones, without jitter; `None` when there is no further one.
    #[must_use]
    pub fn delay_ms(&self, made: u32) -> Option<u64> {
        usize::try_from(made).ok().and_then(|made| self.0.get(made)).copied()
    }
}

/// Why an event is not tried any more.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeadReason {
    /// Every attempt failed.
    ScheduleEnded,
    /// The endpoint answered 410 to this very event.
    EndpointGone,
    /// The endpoint was disabled before.
    EndpointDisabled,
    /// No endpoint is configured any more.
    EndpointRemoved,
    /// As many events were on their way as may be.
    TooManyPending,
}

/// Where it stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DeliveryState {
    /// On its way.
    Pending {
        /// When it is tried next.
        next_at: UnixMillis,
    },
    /// The receiver has it.
    Delivered {
        /// Since when.
        at: UnixMillis,
    },
    /// A dead letter.
    Dead {
        /// Since when.
        at: UnixMillis,
        /// Why.
        why: DeadReason,
    },
}

/// The name of a state.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum StateName {
    /// On its way.
    Pending,
    /// The receiver has it.
    Delivered,
    /// A dead letter.
    Dead,
}

impl StateName {
    /// The name in rows and the API.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "pending",
            Self::Delivered => "delivered",
            Self::Dead => "dead",
        }
    }
}

impl DeliveryState {
    /// The name.
    #[must_use]
    pub const fn name(self) -> StateName {
        match self {
            Self::Pending { .. } => StateName::Pending,
            Self::Delivered { .. } => StateName::Delivered,
            Self::Dead { .. } => StateName::Dead,
        }
    }

    /// When it is tried next, if ever.
    #[must_use]
    pub const fn next_at(self) -> Option<UnixMillis> {
        match self {
            Self::Pending { next_at } => Some(next_at),
            Self::Delivered { .. } | Self::Dead { .. } => None,
        }
    }
}

/// What came of an attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Answer {
    /// The receiver answered.
    Status {
        /// HTTP status.
        status: u16,
        /// When it wishes to be asked again.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        retry_after_ms: Option<u64>,
    },
    /// No answer in time.
    TimedOut,
    /// The connection failed, before or after the receiver had the event.
    Unreachable,
    /// Nothing was sent: the URL is not allowed any more.
    UrlRefused {
        /// Why.
        fault: UrlFault,
    },
    /// Nothing was sent: there is no secret to sign with.
    NoSecret,
    /// Not known: the sender died. The receiver may have the event.
    Lost,
}

impl Answer {
    /// The name in the API.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Status { .. } => "status",
            Self::TimedOut => "timed_out",
            Self::Unreachable => "unreachable",
            Self::UrlRefused { .. } => "url_refused",
            Self::NoSecret => "no_secret",
            Self::Lost => "lost",
        }
    }
}

/// The last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Attempt {
    /// When it was begun.
    pub at: UnixMillis,
    /// What came of it.
    pub answer: Answer,
}

/// One event on its way.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Delivery {
    /// Which event.
    pub event_id: String,
    /// Where it stands.
    pub state: DeliveryState,
    /// Attempts begun in this schedule.
    pub attempts: u32,
    /// Schedules before this one.
    #[serde(default)]
    pub replays: u32,
    /// The last attempt.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub last_attempt: Option<Attempt>,
}

/// What is to be done with a delivery now.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Step {
    /// Nothing, or not yet.
    Wait,
    /// Store this, then send; come back with [`Delivery::finish`].
    Send(Delivery),
    /// Store this: it is tried no more.
    Bury(Delivery),
}

/// What follows from an answer.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Finished {
    /// The delivery after it.
    pub delivery: Delivery,
    /// The endpoint is gone.
    pub disables: bool,
}

impl Delivery {
    /// A new one, due by the schedule's first delay.
    #[must_use]
    pub fn new(event_id: &str, schedule: &Schedule, now: UnixMillis) -> Self {
        let mut delivery = Self {
            event_id: event_id.into(),
            state: DeliveryState::Pending { next_at: now },
            attempts: 0,
            replays: 0,
            last_attempt: None,
        };
        delivery.state = delivery.later(schedule, 0, now);
        delivery
    }

    /// What is to be done at `now`. `timeout_ms` is how long an answer is waited for: an attempt whose sender died counts
    /// as failed then.
    #[must_use]
    pub fn step(&self, endpoint: Option<&Endpoint>, schedule: &Schedule, timeout_ms: u64, now: UnixMillis) -> Step {
        match self.state {
            DeliveryState::Pending { next_at } if next_at <= now => {}
            _ => return Step::Wait,
        }
        match endpoint {
            None => Step::Bury(self.dead(DeadReason::EndpointRemoved, now)),
            Some(endpoint) if !endpoint.is_active() => Step::Bury(self.disabled(now)),
            Some(_) if schedule.delay_ms(self.attempts).is_none() => {
                Step::Bury(self.dead(DeadReason::ScheduleEnded, now))
            }
            Some(_) => {
                let attempts = self.attempts.saturating_add(1);
                let last_attempt = Some(Attempt { at: now, answer: Answer::Lost });
                let begun = Self { attempts, last_attempt, ..self.clone() };
                // After the last attempt it is looked at once more, and buried.
                let state = begun.later(schedule, 0, now.plus(timeout_ms));
                Step::Send(Self { state, ..begun })
            }
        }
    }

    /// The answer to the attempt that was begun last. One that comes after the end changes nothing.
    #[must_use]
    pub fn finish(&self, answer: Answer, schedule: &Schedule, now: UnixMillis) -> Finished {
        let begun_at = self.last_attempt.map_or(now, |attempt| attempt.at);
        let mut delivery = self.clone();
        if !matches!(self.state, DeliveryState::Pending { .. }) {
            return Finished { delivery, disables: false };
        }
        delivery.last_attempt = Some(Attempt { at: begun_at, answer });
        let mut disables = false;
        match answer {
            Answer::Status { status: 200..=299, .. } => delivery.state = DeliveryState::Delivered { at: now },
            Answer::Status { status: 410, .. } => {
                disables = true;
                delivery = delivery.dead(DeadReason::EndpointGone, now);
            }
            _ if schedule.delay_ms(self.attempts).is_none() => {
                delivery = delivery.dead(DeadReason::ScheduleEnded, now);
            }
            Answer::Status { status: 429 | 503, retry_after_ms: Some(wish_ms) } => {
                delivery.state = delivery.later(schedule, wish_ms.min(RETRY_AFTER_MAX_MS), now);
            }
            _ => delivery.state = delivery.later(schedule, 0, now),
        }
        Finished { delivery, disables }
    }

    /// Tries a dead letter again: a new schedule, the same id.
    ///
    /// # Errors
    /// [`Refusal::NotReplayable`] when it is on its way or was delivered: what a receiver has is not sent again.
    pub fn replay(&self, schedule: &Schedule, now: UnixMillis) -> Result<Self, Refusal> {
        let state = self.state.name();
        if state != StateName::Dead {
            return Err(Refusal::NotReplayable { state: state.as_str().into() });
        }
        let fresh = Self { attempts: 0, replays: self.replays.saturating_add(1), ..self.clone() };
        Ok(Self { state: fresh.later(schedule, 0, now), ..fresh })
    }

    /// A dead letter, since its endpoint is disabled.
    #[must_use]
    pub fn disabled(&self, now: UnixMillis) -> Self {
        self.dead(DeadReason::EndpointDisabled, now)
    }

    /// A dead letter from the start, since too many others are on their way.
    #[must_use]
    pub fn crowded_out(&self, now: UnixMillis) -> Self {
        self.dead(DeadReason::TooManyPending, now)
    }

    fn dead(&self, why: DeadReason, now: UnixMillis) -> Self {
        Self { state: DeliveryState::Dead { at: now, why }, ..self.clone() }
    }

    /// Due by the schedule, and no earlier than `at_least_ms` from `from`.
    fn later(&self, schedule: &Schedule, at_least_ms: u64, from: UnixMillis) -> DeliveryState {
        let delay_ms = schedule.delay_ms(self.attempts).unwrap_or(0).max(at_least_ms);
        DeliveryState::Pending { next_at: from.plus(delay_ms.saturating_add(self.jitter_ms(delay_ms))) }
    }

    /// Up to a tenth of the delay, another for each event and attempt: what failed together is not tried together.
    fn jitter_ms(&self, delay_ms: u64) -> u64 {
        let seed = u64::from(self.attempts).wrapping_add(0xcbf2_9ce4_8422_2325);
        let hash =
            self.event_id.bytes().fold(seed, |hash, byte| (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3));
        // The low bits of this hash are its weakest.
        (hash >> 16).checked_rem(delay_ms / 10).unwrap_or(0)
    }
}
