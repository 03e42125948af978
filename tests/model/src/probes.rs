//! Situations that a run must have reached: a model that never gets there proves nothing about them. They are counted
//! beside the states, so that they do not multiply them.

use std::sync::atomic::{AtomicU64, Ordering};

macro_rules! probes {
    ($($(#[$doc:meta])* $name:ident => $text:literal,)*) => {
        /// A situation.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Probe {
            $($(#[$doc])* $name,)*
        }

        impl Probe {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// What it is.
            #[must_use]
            pub const fn text(self) -> &'static str {
                match self {
                    $(Self::$name => $text,)*
                }
            }
        }
    };
}

probes! {
    /// The provider's usage was charged.
    SettledExact => "settled by the provider's usage",
    /// An upper bound was charged.
    SettledEstimated => "settled by an upper bound",
    /// A cost above the hold.
    Overage => "settled above the hold",
    /// The provider refused: nothing was charged.
    Released => "released: the provider did not execute",
    /// The sweep found a hold without a generation.
    Tombstone => "released by a tombstone",
    /// Start came after the tombstone.
    LateStartRefused => "late Start refused",
    /// Start came again.
    StartRepeated => "repeated Start attached and did not dispatch",
    /// Admit came again.
    AdmitRepeated => "repeated Admit answered from the hold",
    /// Admit under a known idempotency key.
    AdmitJoined => "second request joined by its idempotency key",
    /// No slot was free.
    SlotRefused => "refused: no slot free",
    /// The lease was over.
    TakeOver => "lease over, epoch taken over",
    /// A write of an older epoch came.
    StaleRefused => "write of an older epoch refused and recorded",
    /// A driver's end came after the resolution.
    LateEndRefused => "end after the resolution refused and recorded",
    /// The lost driver's log held the terminal event.
    FoundComplete => "completion found in the log of a lost driver",
    /// Completion was faster than a requested cancel.
    CancelLost => "cancel lost against completion",
    /// A requested cancel took effect.
    CancelConfirmed => "cancelled by request",
    /// A repeated cancel.
    CancelRepeated => "repeated cancel answered from the record",
    /// The policy stopped the work at the disconnect.
    CancelledAtOnce => "stopped at the disconnect",
    /// The policy stopped the work after the grace.
    GraceAbort => "stopped after the grace",
    /// A reader came back in time.
    GraceKept => "reader back within the grace",
    /// The driver was told that the time is over.
    TimedOut => "stopped by a deadline",
    /// A posting was applied before.
    SettleRepeated => "repeated posting answered from the record",
    /// The receipt was lost, and the delivery repeated.
    DeliveredAgain => "delivered again after a lost receipt",
    /// The object had lost its alarm, and the sweep found it.
    AlarmRepaired => "lost alarm repaired by the sweep",
    /// An alarm rang when nothing was due.
    AlarmEarly => "early alarm decided nothing",
    /// A driver died between its call and the provider's headers.
    LostBeforeHeaders => "driver lost between submitted and headers",
    /// A client came back to a log that had lost what it had read.
    ReadBeyondLoss => "client had read what a crash took",
    /// A repeated batch of the edge.
    BatchRepeated => "repeated batch stored once",
    /// A repeated end of the edge.
    FinishRepeated => "repeated end answered from the record",
    /// A round of deliveries had more than one.
    NextInRound => "next posting of the same round sent",
    /// An event came again.
    EventRepeated => "repeated event answered from the record",
    /// Something arrived after a release record.
    LateSignalRecorded => "late signal recorded beside the release record",
    /// The deadline came with an open outcome, and the hold is kept.
    Quarantined => "quarantined at the deadline",
    /// A kept hold was settled by what the provider told.
    QuarantinedThenSettled => "quarantined, then settled by a signal",
    /// A hold was reduced at the deadline.
    Reduced => "hold reduced at the deadline",
    /// A slot was given back at the deadline.
    SlotFreed => "slot given back at the deadline",
    /// An operator was called at the deadline.
    Escalated => "escalated at the deadline",
    /// A bound was settled at the deadline.
    ExpiredEstimated => "settled by estimate at the deadline",
    /// A cost became known after the release by expiry.
    SettledLate => "late settlement after a release by expiry",
    /// The watch after an expiry found it.
    WatchFound => "the watch found a late outcome",
    /// A fenced driver's usage corrected an estimate.
    ZombieCorrected => "corrected by a fenced driver's usage",
    /// A correction gave something back.
    Refunded => "a correction refunded",
    /// Two equals differed.
    DisputedByConflict => "disputed: two equals differ",
    /// A lookup found that it runs.
    FoundRunning => "lookup answered: still running",
    /// A completion that was only reported.
    CompletedByReport => "completed by lookup or callback",
    /// The provider confirmed a cancel.
    ProviderConfirmed => "cancel confirmed by the provider",
    /// The provider had been asked to cancel, and had completed.
    CompletionWon => "completion won against a request to cancel",
    /// A further attempt completed, and both are charged.
    RetrySummed => "both attempts summed",
    /// No credit for a further attempt.
    ExtensionRefused => "extension refused",
    /// It was stopped while the hold was extended.
    RetryNotNeeded => "retry not needed any more when the hold was extended",
    /// An older attempt told while a newer one owned.
    OlderAttemptTold => "signal attributed to an older attempt",
    /// An operator ended a kept hold.
    OperatorEnded => "kept hold ended by an operator",
    /// An operator corrected.
    OperatorCorrected => "corrected by an operator",
    /// An operator released, and a completion came.
    ReleasedThenCorrected => "released by an operator, then corrected by a completion",
    /// An operator compensated.
    Compensated => "compensated",
    /// An operator had looked at an older state.
    StaleVersionRefused => "operator's view of an older state refused",
    /// An operator's action came again.
    ActionRepeated => "repeated action answered from the record",
    /// A stream went on under a new epoch.
    TakenUp => "stream taken up again",
    /// It went on to its end.
    TakenUpAndCompleted => "stream taken up again, and completed",
    /// It went on when it was not wanted any more.
    TakenUpInVain => "stream not wanted any more when it went on",
    /// A try brought nothing, and another one was made.
    TriedAgain => "stream tried again after a pause",
    /// The provider refused for good.
    TryRefused => "given up: the provider refuses the rest of a stream",
    /// Something else than the stored stream came.
    OtherBytes => "given up: other bytes than the stored ones",
    /// It was tried often enough.
    TriesGivenUp => "given up: no new byte in so many tries",
    /// Somebody asked to stop it between two drivers.
    CancelledWhileTried => "cancelled while the stream was to be taken up",
    /// The lost driver wrote after its stream was taken up.
    ZombieAfterResume => "write of a lost driver refused after its stream was taken up",
    /// A reader came back that had seen what a crash took, and the stream may bring it again.
    ReaderWaits => "reader waits for what a crash took",
    /// The tenant gave a place.
    PlaceGranted => "place among the detached granted",
    /// The cap was reached.
    PlaceRefused => "no place among the detached: stopped",
    /// A place was given back by a word.
    PlaceFreed => "place among the detached freed by a word",
    /// A word came late or twice.
    PlaceWordLate => "word about a place late or repeated: nothing changed",
}

/// How often each situation was reached.
#[derive(Debug)]
pub struct Probes(Vec<AtomicU64>);

impl Default for Probes {
    fn default() -> Self {
        Self(Probe::ALL.iter().map(|_| AtomicU64::new(0)).collect())
    }
}

impl Probes {
    /// Counts one.
    pub fn hit(&self, probe: Probe) {
        self.0[probe as usize].fetch_add(1, Ordering::Relaxed);
    }

    /// How often it was reached.
    #[must_use]
    pub fn count(&self, probe: Probe) -> u64 {
        self.0[probe as usize].load(Ordering::Relaxed)
    }

    /// Those that were not reached.
    #[must_use]
    pub fn missed(&self) -> Vec<Probe> {
        Probe::ALL.iter().copied().filter(|probe| self.count(*probe) == 0).collect()
    }
}
