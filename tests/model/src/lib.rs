//! A model of Holdfast for an exhaustive checker ([stateright]): every order of events within finite bounds, and every
//! invariant of `holdfast_core` in every state that is reached.
//!
//! The rules are not written again here. `Aggregate::apply`, `refused_row`, `late_signal`, `next_wake`, `cursor_beyond`,
//! `admit`, `extend`, `settle`, `detach` and `due_after_start` are the production functions. The model is a harness around
//! them: [`object`] and [`tenant`] keep rows, alarm and memory as the shells of `durable-objects` do (load, apply, store,
//! arm, perform, reply), and the [`actors`] call them in every order.
//!
//! # What is covered
//!
//! | actor | does |
//! |---|---|
//! | [`actors::client`] | leaves, comes back with a cursor, cancels, cancels again |
//! | [`actors::edge`] | admits; repeats Admit after a lost reply; dies before Start or while it drives; Start in time, late (past the sweep), twice, cut short by a crash; Begin with a lost reply; batches and ends with lost replies and copies; as a zombie it writes on after a take-over |
//! | [`actors::driver`] | in the object: stores batches, ends; a restart of the object kills it at any point, between `submitted` and the headers, too |
//! | [`actors::provider`] | answers, sends, completes with usage, without, or with usage above the hold, refuses, fails, breaks off, is not reached; what it can have billed is kept as the truth to compare with |
//! | [`actors::delivery`] | postings, and words about a place among the detached, from the object to the tenant: late, twice, never; receipts that do not come |
//! | [`actors::alarms`] | the clock, also back; alarms in time, late, early, twice, never; the tenant's sweep, with lost questions and answers |
//! | [`actors::callbacks`] | what a provider tells by itself of work that outlives its socket: before and after every end, any number of times, out of order, against itself |
//! | [`actors::questions`] | lookups, cancels with every answer, extensions of the hold: answered while other things happen, late, never, or by "no such operation" |
//! | [`actors::resume`] | tries to take a stream up again: the provider sends the rest on, something else, refuses for good, or not now; a crash takes the try; the lost driver writes on |
//! | [`actors::operator`] | every operation on an open, kept or resolved hold; on an older state; the same action again, or another under its id |
//! | [`actors::objects`] | restarts of both objects: memory goes, rows and alarm stay |
//!
//! A further actor is a file in `actors/`, a line in [`Action`] and one each in the two functions below it.
//!
//! # Bounds
//!
//! A [`Config`] is a list of [`Variant`]s (route, provider, number of requests, what client and operator may do), and a
//! budget of [`Faults`]. Each variant shows a part of the rules: nobody pays for all of it at once. One second is a tick;
//! lease, silence, total, grace, observation and the first sweep lie within a few ticks, and when nothing runs any more the
//! clock jumps to the next alarm. What takes less than a tick in the shells (a batch, an end, a delivery or an answer that
//! is not lost) happens before the clock moves, unless a fault delays it: time is what multiplies states most. Variants
//! that are about the time after the driver ([`Variant::brief`]) come to it sooner.
//!
//! | run | bounds | unique states | took |
//! |---|---|---|---|
//! | `cargo test` | [`Config::default_test`]: one fault of any kind, one piece of content | 1.8 million | one to three minutes |
//! | `npm run model` | [`Config::large`]: two faults of any kinds, two pieces | the run prints them | as it prints |
//! | each planted bug | [`Config::hunt`]: two faults, one thread, up to the first history | 2,000 to 150,000 searched | seconds |
//!
//! Measured on two cores that others used, too, so the time on a quiet machine is shorter. In debug builds these crates are
//! optimized (`Cargo.toml` of the workspace): that costs a few seconds of compilation and takes minutes off the run.
//!
//! # What must hold
//!
//! [`properties`] has one property per invariant, named by its number; two promises of the product: no settlement
//! below what the provider can have billed (and exactly what it told, once it has), and a disconnect that stops the work
//! reaches the driver; and one each about release records, about operators, and about the places of generations that go on
//! without a reader. Some are read off a state, others off a
//! stored change (`checks`): what was terminal stays, what is released is fenced, what is decided has its record.
//!
//! Invariant 7 is about what happens in the end. The checker's own `eventually` misses histories that join others, so it is
//! not used. Instead, from *every* state, the faults stop and a deterministic drain runs: clients and edges are gone,
//! messages on their way are lost, the provider is silent; alarms ring, deliveries are answered, the sweep asks. Within
//! 160 steps everything must have ended, or be kept for a late signal or an operator as the
//! route says; and the two objects must agree about what is charged, what is held, and the slot.
//!
//! [`Probe`]s are situations that a run must have reached; one that was not fails the run. They are counted beside the
//! states, because a state that remembered them would be another state.
//!
//! # Planted bugs
//!
//! Each [`Bug`] distorts what goes into a production function or what becomes of its result; the functions stay as they
//! are. The checker must find a violation of the property that the bug names.
//!
//! # Where the harness leaves the shells
//!
//! The operation is named with the headers, also to a driver at the edge, so its stream can be taken up again; the shells
//! leave that to drivers in the object. Postings go one by one; the shells send those that follow one another in one call.
//! A callback tells the usage where its provider cannot be asked; real ones never do. Where no cap is set, words about
//! places are taken at once. An end of the edge is asked about before its offset is looked at, so that a fenced one is
//! recorded whatever became of the log. What a variant says of capabilities and expiry is put into the admitted terms by
//! [`world::terms_of`]. What the default bounds assume stands in `tests/assumptions.rs`, each with the violation that
//! follows without it.
//!
//! Not modelled: bytes (a piece of content has a length and as many tokens; the scanner and the counters have tests of
//! their own), failing writes (the stores have), two incarnations of one object at once (the platform stops the older one
//! at its next access to storage), slow readers, two clocks.
//!
//! # How to read a history
//!
//! A violation is printed with its variant and its actions in order, each with the state after it. An action names its
//! actor and `g`, the request: 0, or 1 where there are two. `reply_lost`, `comes_again` and the like are faults. Read it
//! from the end: the last action made the state that breaks the property (for invariant 7: a state from which the drain
//! does not end). For practice: `cargo test -p holdfast-model --test bugs overwrite_terminal -- --nocapture`.

pub mod actors;
mod bug;
mod checks;
mod config;
mod drain;
pub mod object;
mod outbox;
mod probes;
pub mod properties;
mod run;
mod sabotage;
mod signals;
pub mod state;
mod step;
pub mod tenant;
mod variants;
pub mod world;

pub use actors::Action;
pub use bug::Bug;
pub use config::{Config, Faults, Requests, TICK_MS, Variant};
pub use probes::{Probe, Probes};
pub use run::{Counterexample, Outcome, Progress, check, hunt, seek};
pub use state::State;

use holdfast_core::ids::Identity;
use stateright::{Model, Property};
use std::sync::Arc;
use world::Setting;

/// The model: bounds, what stands fixed, and what was reached.
#[derive(Debug)]
pub struct HoldfastModel {
    pub(crate) config: Config,
    pub(crate) settings: Vec<Setting>,
    pub(crate) identities: Vec<Identity>,
    pub(crate) probes: Arc<Probes>,
}

impl HoldfastModel {
    /// A model within bounds.
    #[must_use]
    pub fn new(config: Config) -> Self {
        let settings = config.variants.iter().map(|variant| Setting::of(&config, variant)).collect();
        Self { config, settings, identities: (0..2).map(world::identity).collect(), probes: Arc::default() }
    }
}

impl Model for HoldfastModel {
    type State = State;
    type Action = Action;

    fn init_states(&self) -> Vec<State> {
        (0..self.config.variants.len()).map(|variant| State::initial(&self.config, variant)).collect()
    }

    fn actions(&self, state: &State, out: &mut Vec<Action>) {
        actors::actions(self, state, out);
    }

    fn next_state(&self, last: &State, action: Action) -> Option<State> {
        let mut step = step::Step::new(self, last);
        actors::perform(&mut step, action);
        Some(step.state)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        properties::all()
    }
}
