//! Rules broken on purpose. The rules themselves stay as they are: the harness distorts what goes into them or what
//! comes out. A checker that does not find each of them checks nothing.

use crate::properties as p;

macro_rules! bugs {
    ($($(#[$doc:meta])* $name:ident => $property:expr,)*) => {
        /// What is broken.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        pub enum Bug {
            $($(#[$doc])* $name,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &[Self] = &[$(Self::$name,)*];

            /// The property that must be violated.
            #[must_use]
            pub const fn violates(self) -> &'static str {
                match self {
                    $(Self::$name => $property,)*
                }
            }
        }
    };
}

bugs! {
    /// A write of an older epoch is taken for one of the epoch that owns.
    StaleEpochAccepted => p::GROWS,
    /// An end is applied to a terminal generation as if it still ran.
    OverwriteTerminal => p::TERMINAL,
    /// The alarm releases the hold as soon as the lease is over.
    ReleaseOnExpiry => p::LIVE,
    /// The route's release at the deadline comes without a fence, as soon as the lease is over.
    ReleaseUnfenced => p::LIVE,
    /// The hold is released when the driver is told to stop.
    ReleaseOnAbort => p::LIVE,
    /// A hold that nobody answered for is released by the sweep itself.
    ReleaseByTenant => p::LIVE,
    /// A tombstone does not refuse a late Start.
    StartIgnoresTombstone => p::LIVE,
    /// The provider is called before `submitted` is stored.
    FetchBeforeSubmit => p::LIVE,
    /// The tenant applies a repeated posting again.
    NonIdempotentLedger => p::ONE_SETTLEMENT,
    /// A cost above the hold is put into the settlement.
    OverageInSettlement => p::BALANCED,
    /// Refused late writes leave no record.
    DropLate => p::RECORDED,
    /// What a refused end says of the outcome is not said on.
    DropLateSignal => p::RECORDED,
    /// A late completion is applied to a generation that has ended as if its outcome were still searched.
    OverwriteTerminalLate => p::TERMINAL,
    /// Only the event's id tells whether a completion was settled: another event settles it again.
    SettleLateTwice => p::BALANCED,
    /// A correction is made of the whole cost, whatever was charged before.
    CorrectionIgnoresCharge => p::BALANCED,
    /// A release or a quarantine leaves no record.
    RecordForgotten => p::EVIDENCE,
    /// A further attempt does not wait for its hold.
    RetryWithoutExtension => p::BALANCED,
    /// A repeated action of an operator is not looked up.
    ActionAppliedTwice => p::OPERATOR,
    /// An operator's view of an older state is taken.
    StaleVersionAccepted => p::OPERATOR,
    /// A fenced driver's end is asked about as if it were a batch, so the record does not say that one came.
    EndRecordedAsAppend => p::RECORDED,
    /// A delivery is forgotten once it was sent.
    NoOutbox => p::COST_IS_KEPT,
    /// An alarm that has rung is not armed again.
    AlarmGivesUp => p::DRAINS,
    /// The estimate leaves out what may be in flight.
    SettleBelowBound => p::AT_LEAST,
    /// An Admit whose reply was lost is sent again with new ids.
    SecondHoldAfterLostReply => p::SUMS,
    /// A repeated cancel is recorded anew.
    CancelRecordedAgain => p::REPLAY,
    /// A repeated batch is stored again.
    BatchStoredTwice => p::GROWS,
    /// A client's cursor is compared with the log's length alone.
    CursorIgnoresLoss => p::GROWS,
    /// A posting is stored without its audit row.
    AuditRowLost => p::AUDIT,
    /// A repeated posting frees a slot again.
    SlotFreedTwice => p::SUMS,
    /// A repeated Start calls the provider again.
    DoubleDispatch => p::ONE_DISPATCH,
    /// A driver at the edge that asks again whether it began is told so, whoever owns by now.
    BegunByZombie => p::ONE_DISPATCH,
    /// The settlement frees a slot that was given back at the deadline.
    SlotFreedByBoth => p::SUMS,
    /// The sweep does not note that its alarm has rung, so that it does not set one for the very same time again.
    SweepBelievesItsAlarm => p::DRAINS,
    /// After a restart the object no longer hears that the client of an edge's driver has left.
    EdgeClientForgotten => p::POLICY,
    /// A stream is taken up again under the epoch of its lost driver.
    ResumeUnfenced => p::GROWS,
    /// A stream that is taken up again begins with a piece that is stored.
    ResumeRepeatsAPiece => p::GROWS,
    /// What a lost driver took from readers is forgotten once its stream was to be taken up again.
    LossForgotten => p::GROWS,
    /// The tenant gives a place though all are taken.
    PlaceAboveCap => p::PLACES,
    /// A word about a place counts though a later one has overtaken it.
    LatePlaceWordCounts => p::PLACES,
    /// The tenant does not free a place.
    PlaceNotFreed => p::DRAINS,
}

impl Bug {
    /// The variants in which it shows, by how their names begin: the search leaves out the others.
    #[must_use]
    pub(crate) const fn shows_in(self) -> &'static [&'static str] {
        match self {
            Self::ReleaseUnfenced | Self::RecordForgotten | Self::SlotFreedByBoth => &["expiry: re"],
            Self::SettleLateTwice => &["expiry: release", "lookup and callback", "expiry: settle"],
            Self::OverwriteTerminalLate => &["expiry: quarantine"],
            Self::CorrectionIgnoresCharge => &["expiry: settle", "operator: after the end"],
            Self::BegunByZombie => &["edge: late start"],
            Self::StaleEpochAccepted => &["retry: and a zombie"],
            Self::RetryWithoutExtension => &["retry"],
            Self::ActionAppliedTwice | Self::StaleVersionAccepted => &["operator"],
            Self::DropLateSignal => &["edge"],
            Self::ResumeUnfenced | Self::ResumeRepeatsAPiece | Self::LossForgotten => &["resume"],
            Self::PlaceAboveCap | Self::LatePlaceWordCounts | Self::PlaceNotFreed => &["detached"],
            _ => &["object", "edge", "two"],
        }
    }
}
