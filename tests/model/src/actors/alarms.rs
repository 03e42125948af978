//! The clock and the alarms. An alarm that is due may ring now or later; as faults it rings early, twice or never.

use crate::HoldfastModel;
use crate::config::{Fault, TICK_MS, Variant};
use crate::probes::Probe;
use crate::state::{Driver, Edge, Generation, Memory, State};
use crate::step::Step;
use crate::tenant::Asked;
use crate::world::START;
use holdfast_core::reservation::Aggregate;
use holdfast_core::tenant::HoldState;
use holdfast_core::time::UnixMillis;

/// What time does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The clock moves to the next moment that matters.
    TimePasses,
    /// The object's alarm rings, in time or late.
    Rings {
        /// Which request.
        g: usize,
    },
    /// The object's alarm rings before its time.
    RingsEarly {
        /// Which request.
        g: usize,
    },
    /// The object's alarm rings twice.
    RingsTwice {
        /// Which request.
        g: usize,
    },
    /// The object's alarm is lost.
    IsLost {
        /// Which request.
        g: usize,
    },
    /// The tenant's alarm rings, in time or late: the sweep.
    Sweeps {
        /// What comes of its questions.
        asked: Asked,
    },
    /// The tenant's alarm rings before its time.
    SweepsEarly,
    /// The tenant's alarm is lost.
    SweepIsLost,
    /// The clock steps back.
    StepsBack,
}

pub(crate) fn object_actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let Some(at) = state.generations[g].object.alarm else { return };
    let due = at <= state.now;
    let fault = state.faults.allow(Fault::Alarm);
    if due {
        may(Action::Rings { g });
    }
    if due && fault {
        may(Action::RingsTwice { g });
        may(Action::IsLost { g });
    }
    if !due && fault {
        may(Action::RingsEarly { g });
    }
}

pub(crate) fn tenant_actions(model: &HoldfastModel, state: &State, may: &mut dyn FnMut(Action)) {
    if next_moment(model, state).is_some() {
        may(Action::TimePasses);
    }
    if state.faults.allow(Fault::Alarm) && state.now > START {
        may(Action::StepsBack);
    }
    let Some(at) = state.tenant.alarm else { return };
    if model.config.sweep_may_be_lost && state.faults.allow(Fault::Alarm) {
        may(Action::SweepIsLost);
    }
    if at > state.now {
        if state.faults.allow(Fault::Alarm) {
            may(Action::SweepsEarly);
        }
        return;
    }
    may(Action::Sweeps { asked: Asked::Answered });
    if state.faults.allow(Fault::Loss) {
        may(Action::Sweeps { asked: Asked::QuestionLost });
        may(Action::Sweeps { asked: Asked::AnswerLost });
    }
    if state.faults.allow(Fault::Crash) {
        may(Action::Sweeps { asked: Asked::Died });
    }
}

/// Whether anything is open that time alone can move: a driver, a reader, a Start on its way.
fn is_dense(model: &HoldfastModel, state: &State) -> bool {
    let running = |generation: &Generation| match &*generation.object.aggregate {
        Aggregate::Vacant => !matches!(generation.edge, Edge::Idle | Edge::Done),
        Aggregate::Tombstone(_) => false,
        Aggregate::Live(live) => !live.lifecycle.is_terminal(),
    };
    let brief = model.config.variants[state.variant].brief;
    let dense_ticks = model.config.dense_ticks - u64::from(brief);
    state.now < START.plus(dense_ticks * TICK_MS) && state.generations.iter().any(running)
}

/// What takes less than a tick, so that the clock waits for it: a batch of the object's driver, its end, a delivery that
/// is neither lost nor late, a Start that is not held up. An alarm is late by so many ticks at most.
fn is_urgent(model: &HoldfastModel, state: &State) -> bool {
    let variant = &model.config.variants[state.variant];
    let rings =
        |alarm: Option<UnixMillis>| alarm.is_some_and(|at| at.plus(variant.alarm_late_ticks * TICK_MS) <= state.now);
    let soon = |generation: &Generation| {
        let starts = matches!(generation.edge, Edge::AdmitUnanswered | Edge::Admitted { .. });
        let memory = generation.object.memory.as_ref();
        let writes = |driver: &Driver| driver.told || driver.outcome.is_some() || !driver.unstored.is_empty();
        (starts && !variant.late_start)
            || memory.is_some_and(|memory| memory.sending.is_some() || memory.driver.as_ref().is_some_and(writes))
            || memory.is_some_and(|memory| asks(variant, memory))
            || rings(generation.object.alarm)
    };
    rings(state.tenant.alarm) || state.generations.iter().any(soon)
}

/// Whether an answer is awaited that comes in less than a tick.
fn asks(variant: &Variant, memory: &Memory) -> bool {
    let provider = memory.lookup.is_some() || memory.cancelling.is_some() || memory.resuming.is_some();
    memory.extending.is_some() || (provider && !variant.slow_provider)
}

/// The next tick while something runs; afterwards the next alarm, as long as anything is open.
fn next_moment(model: &HoldfastModel, state: &State) -> Option<UnixMillis> {
    let watches =
        |generation: &Generation| generation.object.aggregate.live().is_some_and(|live| live.reconciliation.is_some());
    let open = state.tenant.rows.holds.values().any(|hold| hold.state == HoldState::Open)
        || state.generations.iter().any(watches);
    let undelivered = state.generations.iter().any(|generation| !generation.object.undelivered().is_empty());
    if is_urgent(model, state) || (!open && !undelivered) {
        return None;
    }
    if is_dense(model, state) {
        return Some(state.now.plus(TICK_MS));
    }
    let alarms = state.generations.iter().filter_map(|generation| generation.object.alarm).chain(state.tenant.alarm);
    alarms.filter(|at| *at > state.now && state.jumps > 0).min()
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::TimePasses => {
            if let Some(next) = next_moment(step.model, &step.state) {
                let dense = is_dense(step.model, &step.state);
                step.state.jumps -= u8::from(!dense);
                step.state.now = next;
            }
        }
        Action::Rings { g } => step.alarm_rings(g),
        Action::RingsEarly { g } => {
            step.state.faults.spend(Fault::Alarm);
            let before = step.aggregate(g);
            step.alarm_rings(g);
            step.hit_if(*before == *step.aggregate(g), Probe::AlarmEarly);
        }
        Action::RingsTwice { g } => {
            step.state.faults.spend(Fault::Alarm);
            step.alarm_rings(g);
            step.alarm_rings(g);
        }
        Action::IsLost { g } => {
            step.state.faults.spend(Fault::Alarm);
            step.generation(g).object.alarm = None;
        }
        Action::Sweeps { asked } => {
            step.spend_if(matches!(asked, Asked::QuestionLost | Asked::AnswerLost), Fault::Loss);
            step.spend_if(asked == Asked::Died, Fault::Crash);
            step.tenant_alarm_rings(asked);
        }
        Action::SweepsEarly => {
            step.state.faults.spend(Fault::Alarm);
            step.tenant_alarm_rings(Asked::Answered);
        }
        Action::SweepIsLost => {
            step.state.faults.spend(Fault::Alarm);
            step.state.tenant.alarm = None;
        }
        Action::StepsBack => {
            step.state.faults.spend(Fault::Alarm);
            step.state.now = UnixMillis(step.state.now.0.saturating_sub(TICK_MS));
        }
    }
}

impl Step<'_> {
    fn alarm_rings(&mut self, g: usize) {
        self.generation(g).object.alarm = None;
        self.ring(g);
    }

    fn tenant_alarm_rings(&mut self, asked: Asked) {
        self.state.tenant.alarm = None;
        self.sweep(asked);
    }
}
