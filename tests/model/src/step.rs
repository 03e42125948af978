//! One step of the world: a state that is being changed, and what the change is judged by.

use crate::HoldfastModel;
use crate::bug::Bug;
use crate::config::{Config, Fault, Variant};
use crate::probes::Probe;
use crate::state::{Generation, Memory, State};
use crate::world::Setting;
use holdfast_core::time::UnixMillis;

/// A state on its way to the next one.
pub(crate) struct Step<'m> {
    pub(crate) model: &'m HoldfastModel,
    pub(crate) state: State,
    /// Alarms that are set now are lost ([`Bug::AlarmGivesUp`]).
    pub(crate) deaf: bool,
    /// The drain of invariant 7: what it does is judged by where it ends.
    pub(crate) draining: bool,
}

impl<'m> Step<'m> {
    pub(crate) fn new(model: &'m HoldfastModel, state: &State) -> Self {
        Self { model, state: state.clone(), deaf: false, draining: false }
    }

    pub(crate) fn config(&self) -> &'m Config {
        &self.model.config
    }

    pub(crate) fn variant(&self) -> &'m Variant {
        &self.model.config.variants[self.state.variant]
    }

    pub(crate) fn setting(&self) -> &'m Setting {
        &self.model.settings[self.state.variant]
    }

    pub(crate) fn now(&self) -> UnixMillis {
        self.state.now
    }

    pub(crate) fn generation(&mut self, g: usize) -> &mut Generation {
        &mut self.state.generations[g]
    }

    /// The loaded incarnation of the object; loads it if there is none.
    pub(crate) fn memory(&mut self, g: usize) -> &mut Memory {
        self.state.generations[g].object.memory.get_or_insert_default()
    }

    pub(crate) fn bug(&self, bug: Bug) -> bool {
        self.model.config.bug == Some(bug)
    }

    pub(crate) fn hit(&self, probe: Probe) {
        if !self.draining {
            self.model.probes.hit(probe);
        }
    }

    pub(crate) fn hit_if(&self, condition: bool, probe: Probe) {
        if condition {
            self.hit(probe);
        }
    }

    /// Spends a fault if there is one.
    pub(crate) fn spend_if(&mut self, condition: bool, fault: Fault) {
        if condition {
            self.state.faults.spend(fault);
        }
    }

    /// Notes that a rule was broken by what happened just now.
    pub(crate) fn check(&mut self, holds: bool, property: &'static str) {
        if !holds {
            self.state.broken.insert(property);
        }
    }
}
