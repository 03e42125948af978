//! Messages from the object to the tenant: late, twice, never; and their receipts.

use crate::config::Fault;
use crate::probes::Probe;
use crate::state::{Message, Sending, Settled, State};
use crate::step::Step;

/// What happens to a delivery.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The message reaches the tenant.
    Arrives {
        /// Which request.
        g: usize,
        /// Which message.
        message: Message,
        /// A copy of it is still on its way.
        comes_again: bool,
    },
    /// The receipt reaches the object.
    Receipt {
        /// Which request.
        g: usize,
    },
    /// The object waits in vain: the message or its receipt is lost, or late.
    NoReceipt {
        /// Which request.
        g: usize,
    },
}

pub(crate) fn actions(state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    for message in &generation.messages {
        may(Action::Arrives { g, message: *message, comes_again: false });
        if state.faults.allow(fault_of(*message, Fault::Duplicate)) {
            may(Action::Arrives { g, message: *message, comes_again: true });
        }
    }
    let Some(sending) = generation.object.memory.as_ref().and_then(|memory| memory.sending) else { return };
    if sending.answer.is_some() {
        may(Action::Receipt { g });
    }
    if state.faults.allow(fault_of(sending.message, Fault::Loss)) {
        may(Action::NoReceipt { g });
    }
}

/// What it is when this happens to a message.
const fn fault_of(message: Message, fault: Fault) -> Fault {
    if matches!(message, Message::Place { .. }) { Fault::Word } else { fault }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Arrives { g, message, comes_again } => {
            step.spend_if(comes_again, fault_of(message, Fault::Duplicate));
            if !comes_again {
                step.generation(g).messages.remove(&message);
            }
            let answer = step.tenant_takes(g, message);
            let memory = step.generation(g).object.memory.as_mut();
            if let Some(sending) = memory.and_then(|memory| memory.sending.as_mut())
                && sending.message == message
            {
                sending.answer.get_or_insert(answer);
            }
        }
        Action::Receipt { g } => {
            if let Some(sending @ Sending { answer: Some(answer), .. }) = step.memory(g).sending.take() {
                step.acknowledge(g, sending, answer);
            }
        }
        Action::NoReceipt { g } => {
            if let Some(sending) = step.memory(g).sending.take() {
                step.state.faults.spend(fault_of(sending.message, Fault::Loss));
                step.hit_if(sending.answer == Some(Settled::Applied), Probe::DeliveredAgain);
                step.acknowledge(g, sending, Settled::Failed);
            }
        }
    }
}
