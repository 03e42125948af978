//! The client: it leaves, comes back, asks to stop. What it has read stays with it.

use crate::probes::Probe;
use crate::state::{Edge, State};
use crate::step::Step;
use crate::world::length_of;

/// What a client does. `g` is its request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Its connection breaks.
    Disconnects {
        /// Which request.
        g: usize,
    },
    /// It comes back and reads on.
    Returns {
        /// Which request.
        g: usize,
    },
    /// It asks to stop the work, from any connection.
    Cancels {
        /// Which request.
        g: usize,
    },
}

pub(crate) fn actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    let client = &generation.client;
    if client.connected && client.disconnects > 0 {
        may(Action::Disconnects { g });
    }
    // Only who knows the generation can name it, and the answer's headers tell: the object or the edge had begun.
    let known = generation.first_admitted.is_some();
    if !client.connected && known && client.returns > 0 {
        may(Action::Returns { g });
    }
    if known && client.cancels > 0 {
        may(Action::Cancels { g });
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Disconnects { g } => {
            step.generation(g).client.disconnects -= 1;
            step.disconnect(g);
        }
        Action::Returns { g } => {
            step.generation(g).client.returns -= 1;
            step.come_back(g);
        }
        Action::Cancels { g } => {
            step.generation(g).client.cancels -= 1;
            step.cancel(g);
        }
    }
}

impl Step<'_> {
    fn disconnect(&mut self, g: usize) {
        let generation = self.generation(g);
        generation.client.connected = false;
        if let Edge::Driving(driver) = &generation.edge
            && generation.object.memory.as_ref().is_none_or(|memory| !memory.reader)
        {
            // The edge tells the object with its next append.
            generation.client.got = generation.visible_to_edge_client(driver);
            return;
        }
        let visible = generation.visible_to_object_readers();
        generation.client.stops_reading(visible);
        let memory = self.memory(g);
        if std::mem::take(&mut memory.reader) {
            self.readers_changed(g);
        }
    }

    /// A reader attaches to the log where it stopped, or where the log says it may start again.
    fn come_back(&mut self, g: usize) {
        self.call(g);
        let generation = &self.state.generations[g];
        let Some(live) = generation.object.aggregate.live() else { return };
        let offset = length_of(&generation.client.got);
        let lost = live.cursor_beyond(offset, generation.visible_length()).is_some();
        self.hit_if(lost && live.lost_from.is_some(), Probe::ReadBeyondLoss);
        // It waits where it stopped, as long as the stream may be taken up again.
        let waits = lost && live.may_resume(self.now());
        self.hit_if(waits, Probe::ReaderWaits);
        let generation = self.generation(g);
        generation.client.connected = true;
        if !waits {
            generation.client.got = Vec::new();
        }
        self.memory(g).reader = true;
        self.readers_changed(g);
    }
}
