//! A driver in the object. What it writes is applied in the object's own turn.

use super::provider::end_of;
use crate::state::{Outcome, State};
use crate::step::Step;
use holdfast_core::reservation::Command;

/// What a driver in the object does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// It stores what it has delivered, the headers first.
    Flushes {
        /// Which request.
        g: usize,
    },
    /// It writes its end: what the source said, or that it was told to stop.
    Finishes {
        /// Which request.
        g: usize,
    },
}

pub(crate) fn actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let memory = state.generations[g].object.memory.as_ref();
    let Some(driver) = memory.and_then(|memory| memory.driver.as_ref()) else { return };
    if driver.response_waits || !driver.unstored.is_empty() {
        may(Action::Flushes { g });
    }
    if driver.told || driver.outcome.is_some() {
        may(Action::Finishes { g });
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Flushes { g } => step.flush(g),
        Action::Finishes { g } => step.finish(g),
    }
}

impl Step<'_> {
    /// Stores the batch of the object's driver. A driver that does not own any more closes its socket and is gone.
    pub(crate) fn flush(&mut self, g: usize) {
        let Some(driver) = self.memory(g).driver.clone() else { return };
        let (epoch, batch) = (driver.epoch, driver.unstored);
        let answered = if driver.response_waits {
            self.store_response(g, epoch)
        } else {
            Ok(holdfast_core::reservation::Reply::Continue)
        };
        let bytes = crate::world::length_of(&batch);
        let stored = answered.and_then(|_| self.write(g, &Command::Append { epoch, bytes }, batch));
        if stored.is_err() {
            self.memory(g).driver = None;
            return;
        }
        let told = stored.is_ok_and(|transition| transition.reply == holdfast_core::reservation::Reply::Stop);
        if let Some(driver) = &mut self.memory(g).driver {
            driver.unstored.clear();
            driver.response_waits = false;
            driver.told |= told;
        }
    }

    /// Writes the end of the object's driver; the driver is gone, whatever comes of it.
    pub(crate) fn finish(&mut self, g: usize) {
        let Some(driver) = self.memory(g).driver.clone() else { return };
        let outcome = driver.outcome.unwrap_or(Outcome::Aborted);
        let (end, last) = end_of(self, g, &driver, outcome);
        let mut pieces = driver.unstored;
        pieces.extend(last);
        // A refused end is recorded by the aggregate; the lease finds what is left.
        let _: Result<_, holdfast_core::refusal::Refusal> =
            self.end(g, driver.epoch, end, driver.response_waits, pieces);
        self.memory(g).driver = None;
    }
}
