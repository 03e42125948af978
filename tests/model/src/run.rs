//! Runs of the checker, and what they report.

use crate::{Action, Bug, Config, HoldfastModel, Probe, State};
use stateright::{Checker, HasDiscoveries, Model};
use std::collections::BTreeSet;
use std::fmt;
use std::sync::Arc;
use std::time::{Duration, Instant};

/// How often a run says how far it is.
const POLL: Duration = Duration::from_millis(20);

/// What a run found.
#[derive(Debug, Default)]
pub struct Outcome {
    /// Distinct states.
    pub unique_states: usize,
    /// Steps that were taken.
    pub steps: usize,
    /// Longest history that was needed to reach a state.
    pub depth: usize,
    /// How long it took.
    pub took: Duration,
    /// Properties that are violated, each with a history that shows it.
    pub violations: Vec<Counterexample>,
    /// How often each situation was reached.
    pub probes: Vec<(Probe, u64)>,
}

/// A history that ends in a state that breaks a property.
#[derive(Debug)]
pub struct Counterexample {
    /// The property.
    pub property: &'static str,
    /// The variant it is about.
    pub variant: &'static str,
    /// What happened, in order.
    pub actions: Vec<Action>,
    /// The state after each action.
    pub states: Vec<State>,
}

impl fmt::Display for Counterexample {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "violated: {}\n  in \"{}\", after {} steps:", self.property, self.variant, self.actions.len())?;
        self.actions
            .iter()
            .zip(&self.states)
            .try_for_each(|(action, state)| write!(f, "\n    {action:?}\n        {state}"))
    }
}

impl Outcome {
    /// Situations that were not reached.
    #[must_use]
    pub fn missed(&self) -> Vec<Probe> {
        self.probes.iter().filter(|(_, hits)| *hits == 0).map(|(probe, _)| *probe).collect()
    }

    fn add(&mut self, other: Self) {
        self.unique_states += other.unique_states;
        self.steps += other.steps;
        self.depth = self.depth.max(other.depth);
        self.took += other.took;
        self.violations.extend(other.violations);
        if self.probes.is_empty() {
            self.probes = other.probes;
        } else {
            self.probes.iter_mut().zip(other.probes).for_each(|(mine, other)| mine.1 += other.1);
        }
    }
}

/// How far a run is.
#[derive(Clone, Copy, Debug)]
pub struct Progress {
    /// The variant that is explored.
    pub variant: &'static str,
    /// Its distinct states so far.
    pub unique_states: usize,
    /// The time it has taken so far.
    pub took: Duration,
    /// It is explored wholly.
    pub done: bool,
}

/// Explores everything within the bounds, one variant after the other: the states of two variants have nothing in
/// common, and this way their frontiers need not be in memory together.
pub fn check(config: &Config, threads: usize, progress: &mut dyn FnMut(Progress)) -> Outcome {
    let mut all = Outcome::default();
    for variant in &config.variants {
        let config = Config { variants: vec![variant.clone()], ..config.clone() };
        let found = run(config, threads, HasDiscoveries::All, &mut |unique_states, took| {
            progress(Progress { variant: variant.name, unique_states, took, done: false });
        });
        let (unique_states, took) = (found.unique_states, found.took);
        progress(Progress { variant: variant.name, unique_states, took, done: true });
        all.add(found);
    }
    all
}

/// Looks for a violation of one property and stops soon after the first history that shows it. One thread, so hardly any
/// history is shorter. Also returns what the search took.
#[must_use]
pub fn seek(config: Config, property: &'static str) -> (Option<Counterexample>, Outcome) {
    let mut outcome = run(config, 1, HasDiscoveries::AnyOf(BTreeSet::from([property])), &mut |_, _| {});
    let found = outcome.violations.iter().position(|found| found.property == property);
    (found.map(|found| outcome.violations.swap_remove(found)), outcome)
}

/// Looks for the property that a planted bug must break.
#[must_use]
pub fn hunt(bug: Bug) -> (Option<Counterexample>, Outcome) {
    let mut config = Config { bug: Some(bug), ..Config::hunt() };
    config.variants.retain(|variant| bug.shows_in().iter().any(|name| variant.name.starts_with(name)));
    seek(config, bug.violates())
}

fn run(config: Config, threads: usize, finish: HasDiscoveries, progress: &mut dyn FnMut(usize, Duration)) -> Outcome {
    let model = HoldfastModel::new(config);
    let probes = Arc::clone(&model.probes);
    let variants: Vec<&'static str> = model.config.variants.iter().map(|variant| variant.name).collect();
    let started = Instant::now();
    let mut checker = model.checker().threads(threads).finish_when(finish).spawn_bfs();
    let handles = checker.handles();
    while handles.iter().any(|handle| !handle.is_finished()) {
        std::thread::sleep(POLL);
        progress(checker.unique_state_count(), started.elapsed());
    }
    for handle in handles {
        handle.join().expect("a checker thread does not panic");
    }
    let took = started.elapsed();
    let discoveries = checker.discoveries().into_iter();
    let mut violations: Vec<Counterexample> = discoveries
        .map(|(property, path)| {
            let variant = variants[path.last_state().variant];
            let (states, actions): (Vec<State>, Vec<Option<Action>>) = path.into_vec().into_iter().unzip();
            let actions = actions.into_iter().flatten().collect();
            Counterexample { property, variant, actions, states: states.into_iter().skip(1).collect() }
        })
        .collect();
    violations.sort_by_key(|found| found.property);
    Outcome {
        unique_states: checker.unique_state_count(),
        steps: checker.state_count(),
        depth: checker.max_depth(),
        took,
        violations,
        probes: Probe::ALL.iter().map(|probe| (*probe, probes.count(*probe))).collect(),
    }
}
