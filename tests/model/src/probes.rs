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
