//! How large the world is. Every bound is finite, so the space is; every bound is a number here, so it can be tuned.

use crate::bug::Bug;
use crate::state::{Outcome, Reported};
use holdfast_core::policy::{OnDisconnect, Owner};

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
    /// Faults that a history has at most, whatever the run allows: two requests alone make many states.
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
}

impl Faults {
    /// So many, of any kinds.
    #[must_use]
    pub const fn up_to(total: u8) -> Self {
        Self { total, crashes: total, lost: total, duplicates: total, alarms: total }
    }

    fn left_of(&mut self, fault: Fault) -> &mut u8 {
        match fault {
            Fault::Crash => &mut self.crashes,
            Fault::Loss => &mut self.lost,
            Fault::Duplicate => &mut self.duplicates,
            Fault::Alarm => &mut self.alarms,
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
    /// A driver at the edge that waits for its object reads on meanwhile: more than one batch may be lost with it.
    pub edge_reads_ahead: bool,
    /// The tenant's alarm may be lost like an object's.
    pub sweep_may_be_lost: bool,
    /// What is broken on purpose.
    pub bug: Option<Bug>,
}

const ENDS: [Outcome; 5] = [
    Outcome::Complete(Reported::Streamed),
    Outcome::Complete(Reported::Missing),
    Outcome::Interrupted,
    Outcome::Refused,
    Outcome::NoAnswer,
];
const HIDDEN_ENDS: [Outcome; 2] = [Outcome::Complete(Reported::AboveHold), Outcome::ErrorInBand];
const PLAIN_ENDS: [Outcome; 4] =
    [Outcome::Complete(Reported::Streamed), Outcome::Failed, Outcome::Gateway, Outcome::Unsent];

impl Variant {
    /// Owner `object`, policy `detach`; the provider completes, or refuses; the client stays.
    #[must_use]
    pub fn object(name: &'static str) -> Self {
        Self {
            name,
            owner: Owner::Object,
            on_disconnect: OnDisconnect::Detach,
            grace_ticks: 0,
            observation_ticks: 0,
            streaming: true,
            hidden_output: false,
            requests: Requests::One,
            late_start: false,
            alarm_late_ticks: 0,
            disconnects: 0,
            returns: 0,
            cancels: 0,
            faults_max: u8::MAX,
            outcomes: vec![Outcome::Complete(Reported::Streamed), Outcome::Refused],
        }
    }

    /// The same, with the policy `cancel` and so much grace.
    #[must_use]
    pub fn cancelling(self, grace_ticks: u64) -> Self {
        Self { on_disconnect: OnDisconnect::Cancel, grace_ticks, ..self }
    }

    /// The same, where the provider may end only so.
    #[must_use]
    pub fn ending(self, outcomes: &[Outcome]) -> Self {
        Self { outcomes: outcomes.to_vec(), ..self }
    }

    /// The same, driven by the edge.
    #[must_use]
    pub fn at_edge(self) -> Self {
        Self { owner: Owner::Edge, ..self }
    }

    /// The same, with a client that leaves, comes back and asks to stop so often.
    #[must_use]
    pub fn client(self, disconnects: u8, returns: u8, cancels: u8) -> Self {
        Self { disconnects, returns, cancels, ..self }
    }

    /// The same, with a Start and with alarms that may be late.
    #[must_use]
    pub fn late(self) -> Self {
        Self { late_start: true, alarm_late_ticks: 1, ..self }
    }
}

/// The variants that are always explored.
fn variants() -> Vec<Variant> {
    let completes = [Outcome::Complete(Reported::Streamed)];
    let two = |requests, name| Variant { requests, faults_max: 1, ..Variant::object(name).ending(&[Outcome::Refused]) };
    vec![
        Variant::object("object: every end").ending(&ENDS),
        Variant::object("object: cancel at once").cancelling(0).client(1, 0, 1),
        Variant::object("object: cancel after grace").cancelling(1).client(1, 1, 0),
        Variant::object("object: cancelled twice").ending(&completes).client(0, 0, 2),
        Variant { observation_ticks: 1, ..Variant::object("object: observed").client(0, 1, 0) },
        Variant { hidden_output: true, ..Variant::object("object: hidden output").ending(&HIDDEN_ENDS) },
        Variant { streaming: false, ..Variant::object("object: plain answer").ending(&PLAIN_ENDS) },
        Variant::object("object: late start").ending(&completes).late(),
        Variant::object("edge: cancel at once").at_edge().cancelling(0).client(1, 0, 0),
        Variant { observation_ticks: 1, ..Variant::object("edge: observed").at_edge().ending(&completes) },
        two(Requests::SameKey, "two: one key"),
        two(Requests::OneSlot, "two: one slot"),
    ]
}

impl Config {
    /// What `cargo test` explores.
    #[must_use]
    pub fn default_test() -> Self {
        Self {
            variants: variants(),
            faults: Faults::up_to(1),
            pieces: 1,
            piece_bytes: 400,
            dense_ticks: 3,
            jumps: 1,
            lease_ticks: 2,
            silence_ticks: 2,
            total_ticks: 3,
            start_grace_ticks: 1,
            edge_reads_ahead: false,
            sweep_may_be_lost: false,
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
