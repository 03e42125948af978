//! The provider: it answers, sends, ends. What it sends reaches the driver that holds the socket; what it bills is kept
//! apart, and compared at the end.

use crate::HoldfastModel;
use crate::config::Variant;
use crate::state::{Driver, Fate, Generation, Outcome, Piece, State};
use crate::step::Step;
use crate::world::{head_status, length_of, operation_id, tokens_streamed, usage_of};
use holdfast_core::meter::EndClass;
use holdfast_core::reservation::{SourceEnd, UpstreamEnd};

/// What a provider does.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// Its headers come.
    Answers {
        /// Which request.
        g: usize,
    },
    /// A content piece comes.
    Sends {
        /// Which request.
        g: usize,
    },
    /// The source ends.
    Ends {
        /// Which request.
        g: usize,
        /// How.
        outcome: Outcome,
    },
    /// An operation ends whose socket is gone.
    EndsUnseen {
        /// Which request.
        g: usize,
        /// Which attempt's operation.
        attempt: u8,
        /// How.
        fate: Fate,
    },
}

pub(crate) fn actions(model: &HoldfastModel, state: &State, g: usize, may: &mut dyn FnMut(Action)) {
    let generation = &state.generations[g];
    let variant = &model.config.variants[state.variant];
    unseen_actions(generation, variant, g, may);
    let Some(driver) = generation.driver().filter(|driver| driver.outcome.is_none() && !driver.told) else { return };
    if !driver.answered && variant.streaming {
        may(Action::Answers { g });
    }
    // A driver at the edge that waits for its object reads on meanwhile: more than a batch may be lost with it.
    let provider = &generation.provider;
    let repeats = driver.hears < provider.sent;
    if driver.answered && (repeats || (provider.fate == Fate::Running && provider.sent < model.config.pieces)) {
        may(Action::Sends { g });
    }
    for outcome in &variant.outcomes {
        let in_stream = matches!(outcome, Outcome::Complete(_) | Outcome::Interrupted | Outcome::ErrorInBand);
        let open = provider.fate == Fate::Running || *outcome == Outcome::Interrupted;
        if (!variant.streaming || in_stream == driver.answered)
            && open
            && (!repeats || *outcome == Outcome::Interrupted)
        {
            may(Action::Ends { g, outcome: *outcome });
        }
    }
    // What has ended unseen gives the rest of its stream, too.
    if let (Fate::Completed(reported), true, false) = (provider.fate, driver.answered, repeats) {
        may(Action::Ends { g, outcome: Outcome::Complete(reported) });
    }
}

/// Work that outlives its socket goes on without it.
fn unseen_actions(generation: &Generation, variant: &Variant, g: usize, may: &mut dyn FnMut(Action)) {
    let attempts = generation.attempt();
    let connected = generation.driver().is_some_and(|driver| !driver.told && driver.outcome.is_none());
    for attempt in (0..=attempts).filter(|attempt| *attempt < attempts || !connected) {
        let runs = generation.operation(attempt).is_some_and(|operation| operation.fate == Fate::Running);
        for fate in variant.unseen.iter().filter(|_| runs) {
            may(Action::EndsUnseen { g, attempt, fate: *fate });
        }
    }
}

pub(crate) fn perform(step: &mut Step<'_>, action: Action) {
    if let Action::EndsUnseen { g, attempt, fate } = action {
        if let Some(operation) = step.generation(g).operation_mut(attempt) {
            operation.fate = fate;
        }
        return step.calls_back(g, attempt);
    }
    let (Action::Answers { g } | Action::Sends { g } | Action::Ends { g, .. } | Action::EndsUnseen { g, .. }) = action;
    match action {
        Action::Answers { .. } => step.answers(g),
        Action::Sends { .. } => step.sends(g),
        Action::Ends { outcome, .. } => step.ends(g, outcome),
        Action::EndsUnseen { .. } => {}
    }
    let attempt = step.state.generations[g].attempt();
    step.calls_back(g, attempt);
    // A further attempt is the object's, also where an edge drove the first; so is a stream that is taken up again.
    let memory = step.state.generations[g].object.memory.as_ref();
    if memory.is_some_and(|memory| memory.driver.is_some()) {
        let now = step.now();
        step.memory(g).received_at = Some(now);
        step.flush_what_is_full(g);
    }
}

impl Step<'_> {
    /// The call goes out.
    pub(crate) fn provider_is_called(&mut self, g: usize) {
        let provider = &mut self.generation(g).provider;
        provider.dispatches += 1;
        provider.fate = Fate::Running;
    }

    fn answers(&mut self, g: usize) {
        if let Some(driver) = self.generation(g).driver_mut() {
            (driver.answered, driver.response_waits) = (true, true);
        }
    }

    fn sends(&mut self, g: usize) {
        let bytes = u16::try_from(self.config().piece_bytes).unwrap_or(u16::MAX);
        let generation = self.generation(g);
        let sent = generation.provider.sent;
        let Some(driver) = generation.driver_mut() else { return };
        let n = driver.hears;
        driver.hears += 1;
        driver.unstored.push(Piece::Content { n, bytes });
        generation.provider.sent = sent.max(n + 1);
    }

    fn ends(&mut self, g: usize, outcome: Outcome) {
        let streaming = self.variant().streaming;
        let generation = self.generation(g);
        let before = generation.provider.fate;
        generation.provider.fate = match outcome {
            _ if before != Fate::Running => before,
            Outcome::Complete(reported) => Fate::Completed(reported),
            Outcome::Refused | Outcome::Failed => Fate::Unbilled,
            Outcome::Unsent => Fate::NotReached,
            Outcome::Interrupted | Outcome::ErrorInBand | Outcome::Gateway | Outcome::NoAnswer | Outcome::Aborted => {
                Fate::Running
            }
        };
        if let Some(driver) = generation.driver_mut() {
            driver.outcome = Some(outcome);
            if let Outcome::Complete(reported) = outcome
                && streaming
            {
                driver.unstored.push(Piece::Terminal(reported));
            }
        }
    }

    /// A full batch and one with the terminal event are stored before the object does anything else.
    fn flush_what_is_full(&mut self, g: usize) {
        let batch_bytes = self.setting().limits.batch_bytes;
        let Some(driver) = &self.memory(g).driver else { return };
        let terminal = driver.unstored.iter().any(|piece| matches!(piece, Piece::Terminal(_)));
        if terminal || length_of(&driver.unstored) >= batch_bytes {
            self.flush(g);
        }
    }
}

/// What a driver observed of an end, and the pieces that go to the log with it.
pub(crate) fn end_of(step: &Step<'_>, g: usize, driver: &Driver, outcome: Outcome) -> (UpstreamEnd, Vec<Piece>) {
    let variant = step.variant();
    let source = match outcome {
        Outcome::Complete(_) | Outcome::Refused | Outcome::Failed => SourceEnd::Body(EndClass::Complete),
        Outcome::Interrupted | Outcome::Gateway => SourceEnd::Body(EndClass::Incomplete),
        Outcome::ErrorInBand => SourceEnd::Body(EndClass::InBandError),
        Outcome::Unsent => SourceEnd::NoResponse { provably_unsent: true },
        Outcome::NoAnswer => SourceEnd::NoResponse { provably_unsent: false },
        Outcome::Aborted => SourceEnd::Aborted,
    };
    let status = head_status(outcome).or_else(|| driver.answered.then_some(200));
    let usage = match outcome {
        Outcome::Complete(reported) => usage_of(reported, tokens_streamed(step, g, driver.attempt)),
        _ => None,
    };
    let end = UpstreamEnd {
        head: status.map(crate::object::head),
        error_envelope: matches!(outcome, Outcome::Refused | Outcome::Failed),
        usage,
        operation_id: (driver.answered && variant.capabilities.outlives_socket()).then(|| operation_id(driver.attempt)),
        ..UpstreamEnd::by(source)
    };
    let whole_body = matches!(outcome, Outcome::Refused | Outcome::Failed | Outcome::Gateway)
        || (!variant.streaming && matches!(outcome, Outcome::Complete(_)));
    (end, if whole_body { vec![Piece::Body] } else { Vec::new() })
}
