//! Rules broken on purpose: the checker must find each, by the property that names it.

use holdfast_model::{Bug, hunt};

fn is_caught(bug: Bug) {
    let (found, search) = hunt(bug);
    let found = found.unwrap_or_else(|| panic!("{bug:?} breaks nothing within {} states", search.unique_states));
    assert_eq!(found.property, bug.violates());
    println!("{bug:?}: {} steps, {} states searched\n{found}", found.actions.len(), search.unique_states);
}

macro_rules! caught {
    ($($test:ident: $bug:ident,)*) => {
        $(#[test]
        fn $test() {
            is_caught(Bug::$bug);
        })*

        /// A bug without a test would be planted in vain.
        #[test]
        fn every_planted_bug_has_its_test() {
            assert_eq!(Bug::ALL, [$(Bug::$bug,)*]);
        }
    };
}

caught! {
    stale_epoch_accepted: StaleEpochAccepted,
    overwrite_terminal: OverwriteTerminal,
    release_on_expiry: ReleaseOnExpiry,
    release_unfenced: ReleaseUnfenced,
    release_on_abort: ReleaseOnAbort,
    release_by_tenant: ReleaseByTenant,
    start_ignores_tombstone: StartIgnoresTombstone,
    fetch_before_submit: FetchBeforeSubmit,
    non_idempotent_ledger: NonIdempotentLedger,
    overage_in_settlement: OverageInSettlement,
    drop_late: DropLate,
    drop_late_signal: DropLateSignal,
    overwrite_terminal_late: OverwriteTerminalLate,
    settle_late_twice: SettleLateTwice,
    correction_ignores_charge: CorrectionIgnoresCharge,
    record_forgotten: RecordForgotten,
    retry_without_extension: RetryWithoutExtension,
    action_applied_twice: ActionAppliedTwice,
    stale_version_accepted: StaleVersionAccepted,
    end_recorded_as_append: EndRecordedAsAppend,
    no_outbox: NoOutbox,
    alarm_gives_up: AlarmGivesUp,
    settle_below_bound: SettleBelowBound,
    second_hold_after_lost_reply: SecondHoldAfterLostReply,
    cancel_recorded_again: CancelRecordedAgain,
    batch_stored_twice: BatchStoredTwice,
    cursor_ignores_loss: CursorIgnoresLoss,
    audit_row_lost: AuditRowLost,
    slot_freed_twice: SlotFreedTwice,
    double_dispatch: DoubleDispatch,
    begun_by_zombie: BegunByZombie,
    slot_freed_by_both: SlotFreedByBoth,
    sweep_believes_its_alarm: SweepBelievesItsAlarm,
    edge_client_forgotten: EdgeClientForgotten,
    resume_unfenced: ResumeUnfenced,
    resume_repeats_a_piece: ResumeRepeatsAPiece,
    loss_forgotten: LossForgotten,
    place_above_cap: PlaceAboveCap,
    late_place_word_counts: LatePlaceWordCounts,
    place_not_freed: PlaceNotFreed,
}
