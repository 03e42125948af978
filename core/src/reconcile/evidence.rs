//! What was observed about a reservation whose outcome is open, kept apart by kind of source.

use crate::finding::{Finding, Source};
use crate::time::UnixMillis;
use crate::usage::Metered;
use serde::{Deserialize, Serialize};

/// What is known about one attempt, by the six kinds of source that seed 2's candidate query joins: reservation with
/// its lease, worker, job, usage, completion and ledger. Finding one says nothing about the others.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Evidence {
    /// Until when the owner may write.
    pub lease: LeaseEvidence,
    /// Who may write, and whether it lives.
    pub owner: OwnerEvidence,
    /// How far the attempt got.
    pub execution: Finding<ExecutionEvidence>,
    /// What was metered.
    pub usage: Finding<UsageEvidence>,
    /// What the operation came to.
    pub completion: Finding<CompletionEvidence>,
    /// What is posted.
    pub ledger: LedgerEvidence,
    /// Two pieces of the same rank differ: [`prefer`] answered [`Preference::Conflict`].
    pub conflict: bool,
}

/// The lease of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct LeaseEvidence {
    /// When it ends, or ended.
    pub expires_at: UnixMillis,
    /// It ended before the evidence was collected. A reason to investigate, and no proof of anything.
    pub expired: bool,
}

/// The owner of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct OwnerEvidence {
    /// The epoch that this evidence is about.
    pub epoch: u32,
    /// Last sign of life: a stored batch, or a renewal.
    pub last_sign_at: UnixMillis,
    /// Whether the driver lives.
    pub driver: DriverEvidence,
    /// A newer attempt of the same reservation owns it: this one settles nothing.
    pub newer_attempt_owns: bool,
}

/// What is known about the driver of the attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DriverEvidence {
    /// It shows life.
    Alive,
    /// Silent beyond its lease and not fenced yet: it may still write.
    Silent,
    /// A newer epoch fences it: whatever it still writes changes nothing.
    Fenced,
}

/// How far an attempt got, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ExecutionEvidence {
    /// How far.
    pub phase: Phase,
    /// Who says so: the provider, or our own rows.
    pub source: Source,
}

/// How far an attempt got.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Phase {
    /// The intent is stored and provably nothing was sent.
    Prepared,
    /// Stored before the call: something may have been sent.
    Submitted,
    /// The provider has answered, or says that it works.
    Processing,
    /// It no longer runs. What it came to is the completion's question.
    Ended,
}

/// Metered usage, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UsageEvidence {
    /// The counts and their quality.
    pub metered: Metered,
    /// Who says so.
    pub source: Source,
    /// It belongs to the attempt that this evidence is about. Usage of another attempt finalizes nothing here.
    pub of_this_attempt: bool,
}

/// What the operation came to, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct CompletionEvidence {
    /// What it came to.
    pub outcome: Outcome,
    /// Who says so.
    pub source: Source,
}

/// What an authoritative source says that the operation came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Outcome {
    /// It completed.
    Completed,
    /// It ended short of its end, by the provider's own word: a limit or a filter. A stream that only broke off says
    /// nothing, and is no completion.
    Incomplete,
    /// It failed.
    Failed,
    /// It was cancelled, and the provider confirms it.
    Cancelled,
}

/// What the ledger has of the reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LedgerEvidence {
    /// No posting resolves the hold.
    NothingPosted,
    /// The posting that resolves the hold is authored: it is on its way, or applied.
    Posted,
}

/// Which of two reports about the same attempt stands.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Preference {
    /// The first: its source is stronger.
    First,
    /// The second: its source is stronger.
    Second,
    /// Both say the same with the same right.
    Same,
    /// They differ with the same right: nobody's rule decides, see [`Evidence::conflict`].
    Conflict,
}

/// Which of two reports about the same attempt stands, by the declared order of sources of truth (design 6; seed 2 asks
/// for one). A stronger source stands whatever the weaker one says; equal ranks must agree.
#[must_use]
pub fn prefer<T: PartialEq>(first: (Source, &T), second: (Source, &T)) -> Preference {
    let ((first_source, first_says), (second_source, second_says)) = (first, second);
    match first_source.rank().cmp(&second_source.rank()) {
        core::cmp::Ordering::Greater => Preference::First,
        core::cmp::Ordering::Less => Preference::Second,
        core::cmp::Ordering::Equal if first_says == second_says => Preference::Same,
        core::cmp::Ordering::Equal => Preference::Conflict,
    }
}

/// Whether a source outside of this system speaks: the terminal event of the stream, or anything stronger. Our own count
/// bounds a cost; it decides nothing.
const fn is_authoritative(source: Source) -> bool {
    source.rank() >= Source::Stream.rank()
}

impl Evidence {
    /// An attempt may write with right: its driver lives, or a newer attempt has taken over.
    pub(super) const fn somebody_owns(&self) -> bool {
        matches!(self.owner.driver, DriverEvidence::Alive) || self.owner.newer_attempt_owns
    }

    /// What the operation came to, as an authoritative source says.
    pub(super) fn outcome(&self) -> Option<Outcome> {
        self.completion.observed().filter(|seen| is_authoritative(seen.source)).map(|seen| seen.outcome)
    }

    /// Whether usage was observed that a charge may be made of: exact, of this attempt, by an authoritative source
    /// (seed 2: usage does not become a charge without validation).
    pub(super) fn has_valid_usage(&self) -> bool {
        self.usage
            .observed()
            .is_some_and(|seen| seen.of_this_attempt && seen.metered.is_exact() && is_authoritative(seen.source))
    }

    /// Whether anything at all, of whatever quality, says that the attempt used something or ended.
    pub(super) fn has_any_result(&self) -> bool {
        self.completion.observed().is_some() || self.usage.observed().is_some_and(|seen| seen.of_this_attempt)
    }

    /// How far the attempt got, as far as anybody knows.
    pub(super) fn phase(&self) -> Option<Phase> {
        self.execution.observed().map(|seen| seen.phase)
    }

    /// Whether the provider itself, or an operator, says that the operation still runs.
    pub(super) fn provider_says_it_runs(&self) -> bool {
        self.execution.observed().is_some_and(|seen| {
            matches!(seen.phase, Phase::Submitted | Phase::Processing) && seen.source.rank() >= Source::Lookup.rank()
        })
    }
}
