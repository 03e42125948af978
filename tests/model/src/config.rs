//! How large the world is. Every bound is finite, so the space is; every bound is a number here, so it can be tuned.

use crate::actors::operator::Operates;
use crate::actors::resume::Answers;
use crate::bug::Bug;
use crate::state::{Fate, Outcome, Said};
use holdfast_core::capability::Capabilities;
use holdfast_core::policy::{OnDisconnect, OnExpiry, OnInterruption, Owner, SlotOnExpiry};

/// One step of the dense clock, in milliseconds. A second: that is also the first delay of a repeated delivery, so all
/// that is due lies on the grid.
pub const TICK_MS: u64 = 1_000;

/// A route and what its provider does: the terms of a generation come from it, through admission.
#[derive(Clone, Debug)]
pub struct Variant {
    /// Its name in reports.
    pub name: &'static str,
    /// Where the driver runs.
    pub owner: Owner,
    /// What a disconnect does.
    pub on_disconnect: OnDisconnect,
    /// How long a reader may be away, in ticks.
    pub grace_ticks: u64,
    /// How long a lost driver's attempt is observed, in ticks.
    pub observation_ticks: u64,
    /// Whether the answer is a stream.
    pub streaming: bool,
    /// The provider bills output that it does not stream.
    pub hidden_output: bool,
    /// How many requests there are.
    pub requests: Requests,
    /// Start may be on its way while the clock moves: past the sweep, too.
    pub late_start: bool,
    /// An alarm may ring so many ticks late. One that is lost is a fault.
    pub alarm_late_ticks: u64,
    /// Disconnects of a client.
    pub disconnects: u8,
    /// Returns of a client.
    pub returns: u8,
    /// Cancels of a client: the second one is a repetition.
    pub cancels: u8,
    /// How the provider may end.
    pub outcomes: Vec<Outcome>,
    /// What the provider can do besides answering.
    pub capabilities: Capabilities,
    /// How an operation may end whose socket is gone, where it outlives it.
    pub unseen: Vec<Fate>,
    /// What the provider's callbacks say, where it has some.
    pub callbacks: Vec<Said>,
    /// Lookups and cancels may be on their way while the clock moves.
    pub slow_provider: bool,
    /// What becomes of a try to take a stream up again, without any fault; nothing where the provider cannot.
    pub resumes: Vec<Answers>,
    /// How long an attempt may take, in ticks, where it is not the run's.
    pub total_ticks: Option<u64>,
    /// How many generations of the tenant may go on without a reader.
    pub detached_max: Option<u32>,
    /// What the deadline of an open outcome does to the credit.
    pub on_expiry: Option<OnExpiry>,
    /// What it does to the slot.
    pub slot_on_expiry: SlotOnExpiry,
    /// What a lost driver means.
    pub on_interruption: OnInterruption,
    /// The hold is above what a rule alone may resolve while the outcome is open.
    pub high_value: bool,
    /// How long the provider is still asked after an expiry, in ticks.
    pub watch_ticks: u64,
    /// The credit is enough for one attempt, and no more.
    pub tight_budget: bool,
    /// What an operator may do.
    pub operations: Vec<Operates>,
    /// Actions of the operator.
    pub operator_actions: u8,
    /// Jumps of the clock beside those of the run.
    pub more_jumps: u8,
    /// The sweep comes after everything, a lease is one tick, and the clock jumps sooner: for what happens once the
    /// driver is gone.
    pub brief: bool,
    /// Faults fewer than the run allows: two requests alone make many states.
    pub fewer_faults: u8,
    /// Faults are those of words about places alone: two requests alone make many states.
    pub words_only: bool,
    /// Faults that a history has at most, whatever the run allows.
    pub faults_max: u8,
}

/// How many requests there are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Requests {
    /// One.
    One,
    /// Two of one client under the same idempotency key.
    SameKey,
    /// Two that do not know of each other, for one slot.
    OneSlot,
    /// Two that do not know of each other, with a slot for each.
    Two,
}

/// Faults that may still happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Faults {
    /// Of all kinds together.
    pub total: u8,
    /// An edge, a driver or an object dies.
    pub crashes: u8,
    /// A reply or a receipt does not come.
    pub lost: u8,
    /// A message comes again.
    pub duplicates: u8,
    /// An alarm rings early, twice or never.
    pub alarms: u8,
    /// A word about a place, or its receipt, does not come or comes again.
    pub words: u8,
}

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// See [`Faults::crashes`].
    Crash,
    /// See [`Faults::lost`].
    Loss,
    /// See [`Faults::duplicates`].
    Duplicate,
    /// See [`Faults::alarms`].
    Alarm,
    /// See [`Faults::words`].
    Word,
}

impl Faults {
    /// So many, of any kinds.
    #[must_use]
    pub const fn up_to(total: u8) -> Self {
        Self { total, crashes: total, lost: total, duplicates: total, alarms: total, words: total }
    }

    /// Those of a history of this variant.
    #[must_use]
    pub(crate) fn of(self, variant: &Variant) -> Self {
        let total = self.total.saturating_sub(variant.fewer_faults).min(variant.faults_max);
        let others = if variant.words_only { Self::default() } else { self };
        Self { total, words: self.words, ..others }
    }

    fn left_of(&mut self, fault: Fault) -> &mut u8 {
        match fault {
            Fault::Crash => &mut self.crashes,
            Fault::Loss => &mut self.lost,
            Fault::Duplicate => &mut self.duplicates,
            Fault::Alarm => &mut self.alarms,
            Fault::Word => &mut self.words,
        }
    }

    /// Whether one may still happen.
    #[must_use]
    pub fn allow(mut self, fault: Fault) -> bool {
        self.total > 0 && *self.left_of(fault) > 0
    }

    /// One happens. What cannot happen any more is forgotten, so that it does not tell states apart.
    pub(crate) fn spend(&mut self, fault: Fault) {
        self.total -= 1;
        *self.left_of(fault) -= 1;
        if self.total == 0 {
            *self = Self::default();
        }
    }
}

/// The bounds of a run.
#[derive(Clone, Debug)]
pub struct Config {
    /// Routes that are explored, each with its own initial state.
    pub variants: Vec<Variant>,
    /// Faults of one history.
    pub faults: Faults,
    /// Content pieces that a provider sends at most.
    pub pieces: u8,
    /// Length of a content piece in bytes, and the tokens in it.
    pub piece_bytes: u64,
    /// The clock moves tick by tick for so long; then it jumps to the next alarm.
    pub dense_ticks: u64,
    /// Jumps.
    pub jumps: u8,
    /// Lease of a driver, in ticks.
    pub lease_ticks: u64,
    /// First byte and idle time, in ticks.
    pub silence_ticks: u64,
    /// Total time, in ticks.
    pub total_ticks: u64,
    /// An admission whose generation was not seen is looked into after so many ticks.
    pub start_grace_ticks: u64,
    /// The tenant's alarm may be lost like an object's.
    pub sweep_may_be_lost: bool,
    /// Somebody looks at a generation once more after its hold was resolved: a client or an operator. The sweep does not.
    pub looked_at_after_resolution: bool,
    /// What is broken on purpose.
    pub bug: Option<Bug>,
}

impl Config {
    /// What `cargo test` explores.
    #[must_use]
    pub fn default_test() -> Self {
        Self {
            variants: crate::variants::all(),
            faults: Faults::up_to(1),
            pieces: 1,
            piece_bytes: 400,
            dense_ticks: 3,
            jumps: 1,
            lease_ticks: 2,
            silence_ticks: 2,
            total_ticks: 3,
            start_grace_ticks: 1,
            sweep_may_be_lost: false,
            looked_at_after_resolution: true,
            bug: None,
        }
    }

    /// What `npm run model` explores.
    #[must_use]
    pub fn large() -> Self {
        Self { pieces: 2, faults: Faults::up_to(2), ..Self::default_test() }
    }

    /// Where a planted bug is looked for.
    #[must_use]
    pub fn hunt() -> Self {
        Self { faults: Faults::up_to(2), ..Self::default_test() }
    }
}
