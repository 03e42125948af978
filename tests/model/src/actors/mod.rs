//! Who acts. One file per actor: what it may do in a state, and what that does. A further actor is a file here, a line in
//! [`Action`] and one in each of the two functions below it.

pub mod alarms;
pub mod callbacks;
pub mod client;
pub mod delivery;
pub mod driver;
pub mod edge;
pub mod objects;
pub mod operator;
pub mod provider;
pub mod questions;
pub mod resume;

use crate::HoldfastModel;
use crate::state::State;
use crate::step::Step;

/// Something that happens.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// The client of a request.
    Client(client::Action),
    /// The Worker that serves it.
    Edge(edge::Action),
    /// A driver in the object.
    Driver(driver::Action),
    /// The provider.
    Provider(provider::Action),
    /// Messages of the outbox, and their receipts.
    Delivery(delivery::Action),
    /// Alarms and the clock.
    Alarm(alarms::Action),
    /// Restarts of the objects.
    Object(objects::Action),
    /// Callbacks of the provider.
    Callback(callbacks::Action),
    /// Lookups, cancels, and extensions of the hold.
    Question(questions::Action),
    /// Tries to take a stream up again.
    Resume(resume::Action),
    /// An operator.
    Operator(operator::Action),
}

/// Everything that may happen in a state.
pub(crate) fn actions(model: &HoldfastModel, state: &State, out: &mut Vec<Action>) {
    for g in 0..state.generations.len() {
        client::actions(state, g, &mut |action| out.push(Action::Client(action)));
        edge::actions(model, state, g, &mut |action| out.push(Action::Edge(action)));
        driver::actions(state, g, &mut |action| out.push(Action::Driver(action)));
        provider::actions(model, state, g, &mut |action| out.push(Action::Provider(action)));
        delivery::actions(state, g, &mut |action| out.push(Action::Delivery(action)));
        alarms::object_actions(state, g, &mut |action| out.push(Action::Alarm(action)));
        objects::actions(state, g, &mut |action| out.push(Action::Object(action)));
        callbacks::actions(state, g, &mut |action| out.push(Action::Callback(action)));
        questions::actions(state, g, &mut |action| out.push(Action::Question(action)));
        let resumes = &model.config.variants[state.variant].resumes;
        resume::actions(state, resumes, g, &mut |action| out.push(Action::Resume(action)));
        operator::actions(model, state, g, &mut |action| out.push(Action::Operator(action)));
    }
    objects::tenant_actions(state, &mut |action| out.push(Action::Object(action)));
    alarms::tenant_actions(model, state, &mut |action| out.push(Action::Alarm(action)));
}

/// What it does.
pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Client(action) => client::perform(step, action),
        Action::Edge(action) => edge::perform(step, action),
        Action::Driver(action) => driver::perform(step, action),
        Action::Provider(action) => provider::perform(step, action),
        Action::Delivery(action) => delivery::perform(step, action),
        Action::Alarm(action) => alarms::perform(step, action),
        Action::Object(action) => objects::perform(step, action),
        Action::Callback(action) => callbacks::perform(step, action),
        Action::Question(action) => questions::perform(step, action),
        Action::Resume(action) => resume::perform(step, action),
        Action::Operator(action) => operator::perform(step, action),
    }
}
