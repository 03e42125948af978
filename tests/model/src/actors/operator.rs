//! An operator, who looks, and acts a little later. What is refused changes nothing and costs nothing.

use crate::HoldfastModel;
use crate::bug::Bug;
use crate::config::TICK_MS;
use crate::probes::Probe;
use crate::properties as p;
use crate::state::State;
use crate::step::Step;
use crate::world::INPUT_TOKENS;
use holdfast_core::ledger::Direction;
use holdfast_core::money::Micros;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Operation, OperatorAction, Reply};
use holdfast_core::usage::Usage;

/// What an operator may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Operates {
    /// Gives the hold back.
    Release,
    /// Settles it by a usage.
    Finalize,
    /// Decides later.
    Defer,
    /// Repeats the call.
    Retry,
    /// Keeps the hold.
    Quarantine,
    /// Keeps it, disputed.
    Escalate,
    /// Corrects what is charged to a usage.
    Correct,
    /// Compensates by a refund.
    Refund,
    /// Compensates by a charge.
    Charge,
}

/// What the operator does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Acts on what the reservation is now.
    Acts {
        /// Which request.
        g: usize,
        /// What.
        operates: Operates,
    },
    /// Acts on what the reservation was a change ago.
    ActsTooLate {
        /// Which request.
        g: usize,
        /// What.
        operates: Operates,
    },
    /// The last action comes again, under its id.
    Repeats {
        /// Which request.
        g: usize,
    },
}

/// Output tokens that the operator believes in.
const BELIEVED_TOKENS: u64 = 500;
/// What a compensation moves.
const COMPENSATION: u64 = 7;

pub(crate) fn actions(model: &HoldfastModel, state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    let variant = &model.config.variants[state.variant];
    if variant.operations.is_empty() || generation.object.aggregate.live().is_none() {
        return;
    }
    if generation.operator > 0 {
        for operates in &variant.operations {
            may(Action::Acts { g, operates: *operates });
        }
        may(Action::ActsTooLate { g, operates: variant.operations[0] });
    }
    if !generation.object.actions.is_empty() {
        may(Action::Repeats { g });
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    match action {
        Action::Acts { g, operates } => step.operator_acts(g, operates),
        Action::ActsTooLate { g, operates } => step.operator_acts_too_late(g, operates),
        Action::Repeats { g } => step.operator_repeats(g),
    }
}

impl Step<'_> {
    fn operation(&self, operates: Operates) -> Operation {
        let usage = Usage { input_tokens: INPUT_TOKENS, output_tokens: BELIEVED_TOKENS, ..Usage::default() };
        let amount = Micros::new(COMPENSATION).unwrap_or_default();
        match operates {
            Operates::Release => Operation::Release,
            Operates::Finalize => Operation::Finalize { usage },
            Operates::Defer => Operation::Defer { until: self.now().plus(TICK_MS) },
            Operates::Retry => Operation::Retry,
            Operates::Quarantine => Operation::Quarantine,
            Operates::Escalate => Operation::Escalate,
            Operates::Correct => Operation::Correct { usage },
            Operates::Refund => Operation::Compensate { amount, direction: Direction::Refund },
            Operates::Charge => Operation::Compensate { amount, direction: Direction::Charge },
        }
    }

    fn version(&self, g: usize) -> u64 {
        self.state.generations[g].object.aggregate.live().map_or(0, |live| live.version)
    }

    fn order(&self, g: usize, operates: Operates, expected_version: u64) -> OperatorAction {
        OperatorAction {
            id: format!("action-{}", self.state.generations[g].object.actions.len()),
            actor: "op".into(),
            channel: "console".into(),
            reason_code: "review".into(),
            justification: "looked at it".into(),
            expected_version: Some(expected_version),
            operation: self.operation(operates),
        }
    }

    fn operate(&mut self, g: usize, mut action: OperatorAction) -> Result<Reply, Refusal> {
        let stored = &self.state.generations[g].object.actions;
        let twice = self.bug(Bug::ActionAppliedTwice);
        let recorded = stored.iter().find(|row| row.action.id == action.id && !twice);
        let recorded = recorded.map(|row| Box::new((**row).clone()));
        if self.bug(Bug::StaleVersionAccepted) || (twice && stored.iter().any(|row| row.action.id == action.id)) {
            action.expected_version = None;
        }
        let answer = self.apply(g, &Command::Operate { action: Box::new(action), recorded });
        self.deliver(g);
        answer
    }

    fn operator_acts(&mut self, g: usize, operates: Operates) {
        self.call(g);
        let action = self.order(g, operates, self.version(g));
        let before = self.aggregate(g);
        let rows = self.state.generations[g].object.actions.len();
        match self.operate(g, action) {
            Ok(_) => {
                self.generation(g).operator -= 1;
                let kept = self.state.generations[g].object.actions.len() == rows + 1;
                self.check(kept, p::OPERATOR);
            }
            Err(refusal) => {
                let allowed = matches!(refusal, Refusal::WrongState { .. } | Refusal::AmountOutOfRange);
                self.check(allowed && *before == *self.aggregate(g), p::OPERATOR);
            }
        }
    }

    fn operator_acts_too_late(&mut self, g: usize, operates: Operates) {
        self.call(g);
        let current = self.version(g);
        let Some(seen) = current.checked_sub(1) else { return };
        let action = self.order(g, operates, seen);
        let before = self.aggregate(g);
        let answer = self.operate(g, action);
        let refused = answer == Err(Refusal::VersionConflict { current }) && *before == *self.aggregate(g);
        self.check(refused, p::OPERATOR);
        self.hit_if(refused, Probe::StaleVersionRefused);
    }

    fn operator_repeats(&mut self, g: usize) {
        self.call(g);
        let Some(row) = self.state.generations[g].object.actions.last().cloned() else { return };
        let before = self.aggregate(g);
        let answer = self.operate(g, row.action.clone());
        let same = answer == Ok(Reply::Operated(Box::new((*row).clone()))) && *before == *self.aggregate(g);
        self.check(same, p::OPERATOR);
        self.hit_if(same, Probe::ActionRepeated);
        let other = OperatorAction { justification: "another one".into(), ..row.action.clone() };
        let answer = self.operate(g, other);
        self.check(answer == Err(Refusal::ActionConflict), p::OPERATOR);
    }
}
