//! What can be asked of a generation, and what a transition makes.

use super::cancel::{CancelAnswer, Cancellation};
use super::conclude::UpstreamEnd;
use super::disconnect::Assessment;
use super::operate::{ActionRow, OperatorAction};
use super::record::EvidenceRow;
use super::signal::{Signal, SignalRow};
use super::{Aggregate, Reservation, ResponseHead};
use crate::evidence::Disposition;
use crate::ids::{AttemptId, Identity};
use crate::ledger::{Posting, Receipt};
use crate::money::Micros;
use crate::operation::FinalForm;
use crate::policy::Terms;
use crate::time::UnixMillis;
use crate::webhook::Notice;
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Who finds that a generation was never started.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ResolvedBy {
    /// The tenant's sweep found a hold whose generation it has not heard of.
    #[default]
    Sweep,
    /// A cancel came before the start.
    Cancel,
    /// An operator decided.
    Operator,
}

/// A command to the aggregate.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Command {
    /// Start the generation, or find that it was started.
    Start {
        /// Tenant, generation, reservation.
        identity: Identity,
        /// The first attempt.
        attempt: AttemptId,
        /// What it was admitted under.
        terms: Box<Terms>,
    },
    /// The provider is about to be called.
    Submit {
        /// The attempt's epoch.
        epoch: u32,
    },
    /// The provider's headers came. `head` is given when the answer is a stream that readers may follow already.
    Respond {
        /// The attempt's epoch.
        epoch: u32,
        /// Status and headers for the readers.
        head: Option<ResponseHead>,
    },
    /// The provider named its operation.
    Identify {
        /// The attempt's epoch.
        epoch: u32,
        /// The provider's id.
        operation_id: String,
    },
    /// A batch is about to be stored, or (empty) the driver shows life.
    Append {
        /// The attempt's epoch.
        epoch: u32,
        /// Size of the batch.
        bytes: u64,
    },
    /// The number of attached readers changed.
    Readers {
        /// How many there are now.
        attached: u32,
        /// Furthest byte given to any of them.
        furthest_offset: u64,
    },
    /// Somebody asks for cancellation.
    Cancel,
    /// The provider's answer to a request to cancel.
    CancelAnswered {
        /// The attempt's epoch.
        epoch: u32,
        /// What it said.
        answer: CancelAnswer,
    },
    /// The driver ended.
    End {
        /// The attempt's epoch.
        epoch: u32,
        /// What it observed.
        end: Box<UpstreamEnd>,
    },
    /// The stored log was read for evidence: decide what becomes of an attempt of unknown outcome.
    Reconcile {
        /// The epoch that resolves.
        epoch: u32,
        /// What the log says.
        end: Box<UpstreamEnd>,
    },
    /// A provider spoke outside the stream: a lookup was answered, a callback came, or a fenced driver ended.
    Signal {
        /// What it said.
        signal: Box<Signal>,
        /// How the same event was handled when it came before; the shell looks it up by its id.
        seen: Option<Disposition>,
    },
    /// The final form of an operation came with an answer about it. Told before the word that comes with it.
    ResultTold {
        /// The provider's id.
        operation_id: String,
        /// What it is.
        form: FinalForm,
        /// Its length in bytes.
        length: u64,
        /// A longer one is not kept.
        max_bytes: u64,
    },
    /// A lookup got no answer.
    LookUpFailed {
        /// The epoch that asked.
        epoch: u32,
        /// When the provider wishes to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// The provider sends the stream on, as [`Effect::Resume`] asked.
    Resumed {
        /// The epoch that asked.
        epoch: u32,
    },
    /// The provider does not send the stream on.
    ResumeFailed {
        /// The epoch that asked.
        epoch: u32,
        /// For good: it says so, or its bytes differ from the stored ones.
        refused: bool,
        /// When the provider wishes to be asked again.
        retry_after_ms: Option<u64>,
    },
    /// The tenant extended the hold: a further attempt may start.
    HoldExtended {
        /// The epoch of the new attempt.
        epoch: u32,
        /// Its id, new.
        attempt: AttemptId,
    },
    /// The tenant did not extend the hold.
    ExtensionRefused {
        /// The epoch of the attempt that will not be.
        epoch: u32,
    },
    /// An operator acts.
    Operate {
        /// What is to be done, by whom and why.
        action: Box<OperatorAction>,
        /// The row of an earlier action of the same id; the shell looks it up.
        recorded: Option<Box<ActionRow>>,
    },
    /// An alarm, or any request that finds something due.
    Wake {
        /// The driver runs in this very incarnation of the object.
        driver_alive: bool,
    },
    /// A hold whose generation was never started is resolved.
    ResolveNeverStarted {
        /// Tenant, generation, reservation.
        identity: Identity,
        /// The attempt that was planned.
        attempt: AttemptId,
        /// What it was admitted under.
        terms: Box<Terms>,
        /// When it was admitted.
        admitted_at: UnixMillis,
        /// Who found it.
        by: ResolvedBy,
    },
    /// The tenant still holds what it was told to end, or was not told.
    HoldOpen {
        /// The postings that the outbox has rows of.
        postings: Vec<Posting>,
    },
    /// The tenant has applied a posting, and says when and with which effects.
    Applied {
        /// What it says.
        receipt: Receipt,
    },
    /// The tenant has applied a posting, of which nothing else is known, or taken another parcel.
    Acknowledge {
        /// Which; a parcel by its own id.
        posting_id: String,
    },
    /// The tenant knows that the result was read after the end.
    ReadTold,
    /// A delivery failed.
    DeliveryFailed {
        /// Which.
        posting_id: String,
    },
    /// The tenant refuses a posting for good: delivering it again would change nothing.
    DeliveryRefused {
        /// Which.
        posting_id: String,
        /// The refusal's stable name.
        refusal: String,
    },
}

impl Command {
    /// The name in the history.
    #[must_use]
    pub const fn name(&self) -> &'static str {
        match self {
            Self::Start { .. } => "start",
            Self::Submit { .. } => "submit",
            Self::Respond { .. } => "respond",
            Self::Identify { .. } => "identify",
            Self::Append { .. } => "append",
            Self::Readers { .. } => "readers",
            Self::Cancel => "cancel",
            Self::CancelAnswered { .. } => "cancel_answered",
            Self::End { .. } => "end",
            Self::Reconcile { .. } => "reconcile",
            Self::Signal { .. } => "signal",
            Self::ResultTold { .. } => "result_told",
            Self::LookUpFailed { .. } => "look_up_failed",
            Self::Resumed { .. } => "resumed",
            Self::ResumeFailed { .. } => "resume_failed",
            Self::HoldExtended { .. } => "hold_extended",
            Self::ExtensionRefused { .. } => "extension_refused",
            Self::Operate { .. } => "operate",
            Self::Wake { .. } => "wake",
            Self::ResolveNeverStarted { .. } => "resolve_never_started",
            Self::HoldOpen { .. } => "hold_open",
            Self::Applied { .. } => "applied",
            Self::Acknowledge { .. } => "acknowledge",
            Self::ReadTold => "read_told",
            Self::DeliveryFailed { .. } => "delivery_failed",
            Self::DeliveryRefused { .. } => "delivery_refused",
        }
    }

    /// The epoch that a driver or a resolver names.
    #[must_use]
    pub const fn epoch(&self) -> Option<u32> {
        match self {
            Self::Submit { epoch }
            | Self::Respond { epoch, .. }
            | Self::Identify { epoch, .. }
            | Self::Append { epoch, .. }
            | Self::CancelAnswered { epoch, .. }
            | Self::End { epoch, .. }
            | Self::Reconcile { epoch, .. }
            | Self::LookUpFailed { epoch, .. }
            | Self::Resumed { epoch }
            | Self::ResumeFailed { epoch, .. } => Some(*epoch),
            _ => None,
        }
    }
}

/// What the shell does after it has stored the rows.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Effect {
    /// Stop the driver of this epoch.
    AbortUpstream {
        /// Which driver.
        epoch: u32,
    },
    /// Ask the provider to cancel its operation; come back with [`Command::CancelAnswered`].
    RequestCancel {
        /// The epoch that asks.
        epoch: u32,
        /// The provider's id.
        operation_id: String,
    },
    /// Ask the provider what became of its operation; come back with [`Command::Signal`] or [`Command::LookUpFailed`].
    LookUp {
        /// The epoch that asks.
        epoch: u32,
        /// The provider's id.
        operation_id: String,
    },
    /// Ask the provider for the rest of the operation's stream, behind the last whole stored event; come back with
    /// [`Command::Resumed`] and drive the epoch, or with [`Command::ResumeFailed`]. Where the log has the stream's terminal
    /// there is nothing to ask for: then it is read as [`Effect::CollectEvidence`] says.
    Resume {
        /// The epoch that asks.
        epoch: u32,
        /// The provider's id.
        operation_id: String,
    },
    /// Ask the tenant to extend the hold for a further attempt; come back with [`Command::HoldExtended`] or
    /// [`Command::ExtensionRefused`].
    ExtendHold {
        /// The epoch of the attempt that is planned.
        epoch: u32,
        /// By how much.
        amount: Micros,
    },
    /// Append these bytes to the log, in the same transaction, and close it.
    CloseLog {
        /// The error in the client's dialect, or nothing.
        terminal: Vec<u8>,
    },
    /// Read the stored log and come back with [`Command::Reconcile`].
    CollectEvidence {
        /// The epoch that resolves.
        epoch: u32,
    },
    /// Store the result that was told, in the same transaction.
    KeepResult,
    /// Delete the stored result, in the same transaction.
    ForgetResult,
    /// Delete the stored output, the result that was kept too.
    DeleteContent,
}

/// One row of the transition history.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct HistoryRow {
    /// When.
    pub at: UnixMillis,
    /// Which command.
    pub command: String,
    /// What it found or did: a state, a reason, a refusal.
    pub outcome: String,
    /// The epoch that the command named or that owns.
    pub epoch: u32,
}

/// The answer of a transition.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Reply {
    /// Done, or it was done before.
    Done,
    /// Started now: the caller (or the object) drives this epoch.
    Started {
        /// The epoch to drive.
        epoch: u32,
    },
    /// Started earlier: attach a reader.
    AlreadyStarted,
    /// The driver goes on.
    Continue,
    /// The driver stops; it ends with [`super::SourceEnd::Aborted`].
    Stop,
    /// The recorded answer to a cancel; `None` when the generation had already ended without one.
    Cancellation(Option<Cancellation>),
    /// How a signal was handled, now or when it came first.
    Signal(Disposition),
    /// What an operator's action did, now or when it came first.
    Operated(Box<ActionRow>),
}

/// What one command makes: rows to store in one transaction, then effects, then the reply.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Transition {
    /// The new state, or `None` when the state row stays as it is.
    pub state: Option<Aggregate>,
    /// Rows for the history.
    pub history: Vec<HistoryRow>,
    /// Rows for the outbox. What is told about the transition travels with the last one.
    pub postings: Vec<Posting>,
    /// Rows for the outbox: what is told about a transition that has no posting.
    pub notices: Vec<Notice>,
    /// Rows for the signals that were received.
    pub signals: Vec<SignalRow>,
    /// Rows for the operator's actions.
    pub actions: Vec<ActionRow>,
    /// Release records and what was learnt after them; sealed by [`Aggregate::apply`], once it is known who is told.
    pub evidence: Vec<EvidenceRow>,
    /// What a disconnect was found to cost.
    pub assessments: Vec<Assessment>,
    /// What to do afterwards.
    pub effects: Vec<Effect>,
    /// The answer.
    pub reply: Reply,
}

impl Transition {
    pub(super) const fn unchanged(reply: Reply) -> Self {
        Self {
            state: None,
            history: Vec::new(),
            postings: Vec::new(),
            notices: Vec::new(),
            signals: Vec::new(),
            actions: Vec::new(),
            evidence: Vec::new(),
            assessments: Vec::new(),
            effects: Vec::new(),
            reply,
        }
    }

    pub(super) fn to(state: Aggregate, reply: Reply) -> Self {
        Self { state: Some(state), ..Self::unchanged(reply) }
    }

    pub(super) fn with_history(mut self, at: UnixMillis, command: &str, outcome: &str, epoch: u32) -> Self {
        self.history.push(HistoryRow { at, command: command.into(), outcome: outcome.into(), epoch });
        self
    }

    pub(super) fn with_effect(mut self, effect: Effect) -> Self {
        self.effects.push(effect);
        self
    }

    pub(super) fn with_signal(mut self, row: SignalRow) -> Self {
        self.signals.push(row);
        self
    }

    /// Changes the new state further, where there is one: still one stored change.
    pub(super) fn map_live(mut self, change: impl FnOnce(&mut Reservation)) -> Self {
        if let Some(Aggregate::Live(live)) = &mut self.state {
            change(live);
        }
        self
    }

    /// What the log is closed with, if it is closed.
    #[must_use]
    pub fn terminal(&self) -> Option<&[u8]> {
        self.effects.iter().find_map(|effect| match effect {
            Effect::CloseLog { terminal } => Some(terminal.as_slice()),
            _ => None,
        })
    }

    /// Whether there is anything to store.
    #[must_use]
    pub const fn writes_nothing(&self) -> bool {
        self.state.is_none()
            && self.history.is_empty()
            && self.postings.is_empty()
            && self.notices.is_empty()
            && self.signals.is_empty()
            && self.actions.is_empty()
            && self.evidence.is_empty()
            && self.assessments.is_empty()
    }
}
