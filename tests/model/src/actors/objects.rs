//! The platform replaces an object: its memory goes, its rows and its alarm stay.

use crate::config::Fault;
use crate::state::{Armed, State};
use crate::step::Step;

/// Which object is replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The ReservationObject of a request, with the driver in it.
    RestartsReservation {
        /// Which request.
        g: usize,
    },
    /// The TenantObject.
    RestartsTenant,
}

pub(crate) fn actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    if state.faults.allow(Fault::Crash) && state.generations[g].object.memory.is_some() {
        may(Action::RestartsReservation { g });
    }
}

pub(crate) fn tenant_actions(state: &State, may: &mut dyn FnMut(Action)) {
    if state.faults.allow(Fault::Crash) && state.tenant.armed != Armed::Unknown {
        may(Action::RestartsTenant);
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    step.state.faults.spend(Fault::Crash);
    match action {
        Action::RestartsReservation { g } => step.restart_object(g),
        Action::RestartsTenant => step.state.tenant.armed = Armed::Unknown,
    }
}
