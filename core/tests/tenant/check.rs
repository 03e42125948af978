//! The consistency check: it finds nothing where nothing is wrong, whatever happens while it runs, and names what is.

use super::billing::{exact_usage, usage_record};
use super::histories::{Books as BothBooks, step};
use super::postings::{exact, reduced, refers, refund, version};
use super::world::{START, World, id_of, identity, micros, request};
use super::{released, settled, world};
use holdfast_core::audit::ChainHead;
use holdfast_core::ids::ReservationId;
use holdfast_core::ledger::{Balances, Posting, PostingKind, ReasonCode};
use holdfast_core::money::SignedMicros;
use holdfast_core::tenant::books::{
    Books, ChainRow, Check, DIFFERENCES_MAX, Difference, HoldColumns, HoldRows, Home, KeptLine, KeptPosting, Said,
    Stage, StoredPosting, What,
};
use holdfast_core::tenant::{HoldState, PeriodState, TenantState};
use holdfast_core::view::LedgerCheckView;
use proptest::prelude::*;
use std::collections::BTreeSet;

/// The rows under every number, as the object reads them.
pub(crate) fn chain_rows(world: &World) -> Vec<ChainRow> {
    let last = world.audit.last().map_or(0, |row| row.seq);
    let row = |seq| {
        let audit = world.audit.iter().find(|row| row.seq == seq).cloned();
        let entry = world.entries.iter().find(|entry| entry.seq == seq).cloned();
        let named = audit.as_ref().map(|audit| &audit.posting_id).or(entry.as_ref().map(|entry| &entry.posting_id));
        let posting = named.and_then(|id| world.postings.get(id));
        let stored = posting.map(|posting| StoredPosting {
            text: serde_json::to_string(posting).unwrap(),
            seq: world.entries.iter().find(|entry| entry.posting_id == posting.id).map(|entry| entry.seq),
        });
        let columns = entry.as_ref().map(|entry| (entry.granted.get(), entry.held.get(), entry.spent.get()));
        ChainRow { seq, audit, entry, columns, posting: stored }
    };
    (1..=last).map(row).collect()
}

/// All that is stored under a hold.
fn hold_rows(world: &World, reservation: &ReservationId) -> HoldRows {
    let hold = world.holds[reservation].clone();
    let entry_of = |id: &str| world.entries.iter().find(|entry| entry.posting_id == id).cloned();
    let seq_of = |id: &str| world.audit.iter().find(|row| row.posting_id == id).map_or(0, |row| row.seq);
    let of_hold = world.postings.values().filter(|posting| posting.reservation.as_ref() == Some(reservation));
    let mut postings: Vec<_> = of_hold
        .map(|posting| KeptPosting { seq: seq_of(&posting.id), posting: posting.clone(), entry: entry_of(&posting.id) })
        .collect();
    postings.sort_by_key(|kept| kept.seq);
    let lines = world.lines.values().filter(|line| line.reservation == *reservation);
    let lines =
        lines.map(|line| KeptLine { seq: seq_of(&line.posting_id), line: line.clone(), amount: line.amount.get() });
    let records = world.usage_records.values().filter(|record| record.reservation == *reservation);
    HoldRows {
        columns: HoldColumns {
            state: hold.state.as_str().into(),
            held: i64::try_from(hold.held().get()).unwrap(),
            slot: hold.has_slot(),
        },
        hold,
        postings,
        lines: lines.collect(),
        usage_records: records.map(|record| record.id.clone()).collect(),
        lines_from: 1,
    }
}

/// One step, with pages of `size`.
fn advance(check: &mut Check, world: &World, size: usize) {
    let next_rows =
        |seq: u64| -> Vec<ChainRow> { chain_rows(world).into_iter().filter(|row| row.seq > seq).take(size).collect() };
    match check.stage.clone() {
        Stage::Chain { upto } => {
            let rows: Vec<_> = next_rows(check.chain.head.seq).into_iter().filter(|row| row.seq <= upto).collect();
            check.read_chain(&rows);
        }
        Stage::Holds { after } => {
            let ids = world.holds.keys().filter(|id| after.as_ref().is_none_or(|after| *id > after)).take(size);
            let ids: Vec<_> = ids.cloned().collect();
            let rows: Vec<_> = ids.iter().map(|id| hold_rows(world, id)).collect();
            check.read_holds(&rows, ids.last().cloned());
        }
        Stage::Strays { home, .. } => check.read_strays(home, &strays(world, home), None),
        Stage::Balances => {
            let rows = next_rows(check.chain.head.seq);
            let touched: BTreeSet<_> =
                rows.iter().filter_map(|row| row.entry.as_ref().and_then(|entry| entry.reservation.clone())).collect();
            let touched: Vec<_> = touched.iter().map(|id| hold_rows(world, id)).collect();
            let periods: Vec<PeriodState> = world.periods.values().cloned().collect();
            check.read_balances(&rows, &touched, &Books { tenant: &world.tenant, periods: &periods });
        }
        Stage::Reservations { .. } => check.read_reservations(Vec::new(), None),
        Stage::Done => {}
    }
}

fn strays(world: &World, home: Home) -> Vec<String> {
    let homeless = |reservation: Option<&ReservationId>| reservation.is_some_and(|id| !world.holds.contains_key(id));
    match home {
        Home::Postings => {
            let all = world.postings.values().filter(|posting| homeless(posting.reservation.as_ref()));
            all.map(|posting| posting.id.clone()).collect()
        }
        Home::Lines => {
            let all = world.lines.values().filter(|line| homeless(Some(&line.reservation)));
            all.map(|line| line.posting_id.clone()).collect()
        }
        Home::UsageRecords => {
            let all = world.usage_records.values().filter(|record| homeless(Some(&record.reservation)));
            all.map(|record| record.id.clone()).collect()
        }
    }
}

pub(crate) fn checked(world: &World, size: usize) -> Check {
    let mut check = Check::of_all(world.tenant.audit.seq);
    while !check.is_done() {
        advance(&mut check, world, size);
    }
    check
}

/// A tenant with a hold of each kind of end, and one that is open.
fn eventful() -> World {
    let mut world = world();
    for n in 1..=4 {
        world.admit(&request(n, 20), START).unwrap();
    }
    let record = usage_record(1, exact_usage(10, 15));
    let with_usage = |posting| Posting { usage: Some(record.usage), usage_records: vec![record.clone()], ..posting };
    let correction = refund(refers(PostingKind::Settle, version(1, 2, exact(1, PostingKind::Correction, 4))));
    for posting in [
        with_usage(settled(1, 25)),
        correction,
        settled(2, 30),
        exact(2, PostingKind::Overage, 7),
        released(3, 30, ReasonCode::ProviderRefused),
        reduced(4, 12, true),
    ] {
        assert_eq!(world.settle(&posting, START.plus(1)), Ok(true), "{posting:?}");
    }
    world
}

#[test]
fn nothing_is_found_where_nothing_is_wrong() {
    let world = eventful();
    for size in [1, 2, 100] {
        let check = checked(&world, size);
        assert_eq!((check.differences.as_slice(), check.differences_count), (&[][..], 0));
        assert_eq!((check.counted.entries, check.counted.holds), (11, 4));
        assert_eq!((check.totals.held, check.totals.spent, check.totals.slots), (18, 58, 0));
        let view = LedgerCheckView::of(1, &check);
        assert_eq!((view.complete, view.consistent, view.next), (true, Some(true), None));
    }
    let mut empty = super::world();
    empty.tenant = TenantState::default();
    empty.postings.clear();
    empty.entries.clear();
    empty.audit.clear();
    assert_eq!(checked(&empty, 10).differences, [], "an empty ledger");
}

/// A planted edit, by name: what must be named, of which row, expected and found.
type Plant = (&'static str, fn(&mut World), What, Option<fn() -> String>, Said, Said);

fn row(n: u8, kind: PostingKind) -> String {
    id_of(n, kind, 1)
}

fn number(n: i64) -> Said {
    Said::Number(n)
}

/// Every row that says what another says too is edited once; the check names it.
#[test]
fn a_planted_difference_is_named() {
    let settle_1: fn() -> String = || row(1, PostingKind::Settle);
    let plants: [Plant; 22] = [
        (
            "tenant, granted",
            |world| world.tenant.balances.granted = micros(999),
            What::GrantedByEntries,
            None,
            number(1000),
            number(999),
        ),
        (
            "tenant, held",
            |world| world.tenant.balances.held = micros(17),
            What::HeldByPostings,
            None,
            number(18),
            number(17),
        ),
        (
            "tenant, spent",
            |world| world.tenant.balances.spent = micros(59),
            What::SpentByLines,
            None,
            number(58),
            number(59),
        ),
        ("tenant, slots", |world| world.tenant.slots_in_use = 1, What::SlotsByPostings, None, number(0), number(1)),
        (
            "tenant, chain",
            |world| world.tenant.audit = ChainHead::default(),
            What::AuditHead,
            None,
            Said::Nothing,
            Said::Nothing,
        ),
        (
            "period",
            |world| world.periods.values_mut().next().unwrap().spent = micros(1),
            What::PeriodSpent,
            Some(|| "2026-11-30".into()),
            number(58),
            number(1),
        ),
        (
            "period, held",
            |world| world.periods.values_mut().next().unwrap().held = micros(1),
            What::PeriodHeld,
            Some(|| "2026-11-30".into()),
            number(18),
            number(1),
        ),
        (
            "hold, charged",
            |world| edit_hold(world, 1, |hold| hold.charged = micros(20)),
            What::HoldCharged,
            None,
            number(21),
            number(20),
        ),
        (
            "hold, reduced",
            |world| edit_hold(world, 4, |hold| hold.reduced = micros(2)),
            What::HoldHeld,
            None,
            number(18),
            number(28),
        ),
        (
            "hold, slot",
            |world| edit_hold(world, 4, |hold| hold.slot_freed = false),
            What::HoldSlot,
            None,
            Said::Word("no".into()),
            Said::Word("yes".into()),
        ),
        (
            "hold, state",
            |world| edit_hold(world, 3, |hold| hold.state = HoldState::Settled),
            What::HoldState,
            None,
            Said::Word("released".into()),
            Said::Word("settled".into()),
        ),
        (
            "hold, placed",
            |world| edit_hold(world, 2, |hold| hold.terms.hold = micros(31)),
            What::HoldPlaced,
            None,
            number(30),
            number(31),
        ),
        (
            "hold removed",
            |world| drop(world.holds.remove(&identity(3).reservation)),
            What::Stray,
            Some(|| row(3, PostingKind::Release)),
            Said::Nothing,
            Said::Word(row(3, PostingKind::Release)),
        ),
        (
            "posting, amount",
            |world| world.postings.get_mut(&row(1, PostingKind::Settle)).unwrap().amount = micros(24),
            What::PostingContent,
            Some(settle_1),
            Said::Nothing,
            Said::Nothing,
        ),
        (
            "posting removed",
            |world| drop(world.postings.remove(&row(1, PostingKind::Settle))),
            What::Posting,
            Some(settle_1),
            Said::Word(row(1, PostingKind::Settle)),
            Said::Nothing,
        ),
        (
            "line, amount",
            |world| world.lines.get_mut(&row(1, PostingKind::Settle)).unwrap().amount = SignedMicros::new(24).unwrap(),
            What::Line,
            Some(settle_1),
            number(25),
            number(24),
        ),
        (
            "line removed",
            |world| drop(world.lines.remove(&row(1, PostingKind::Settle))),
            What::Line,
            Some(settle_1),
            number(25),
            Said::Nothing,
        ),
        (
            "usage record removed",
            |world| world.usage_records.clear(),
            What::UsageRecord,
            Some(settle_1),
            Said::Nothing,
            Said::Nothing,
        ),
        (
            "entry, held",
            |world| edit_entry(world, 6, |entry| entry.held = SignedMicros::new(-29).unwrap()),
            What::EntryMovement,
            Some(settle_1),
            number(-30),
            number(-29),
        ),
        (
            "entry, after",
            |world| edit_entry(world, 6, |entry| entry.after = Balances::default()),
            What::EntryBalance,
            Some(settle_1),
            number(1000),
            number(0),
        ),
        (
            "audit row, time",
            |world| world.audit[5].at = START,
            What::AuditHash,
            Some(settle_1),
            Said::Nothing,
            Said::Nothing,
        ),
        (
            "audit row removed",
            |world| drop(world.audit.remove(5)),
            What::AuditRow,
            Some(settle_1),
            number(6),
            Said::Nothing,
        ),
    ];
    for (case, plant, what, row, expected, found) in plants {
        let mut world = eventful();
        plant(&mut world);
        let check = checked(&world, 3);
        let named = check.differences.iter().filter(|difference| difference.what == what).collect::<Vec<_>>();
        let row = row.map(|row| row());
        let fits = |said: &Said, wanted: &Said| *wanted == Said::Nothing || said == wanted;
        let same = |difference: &&&Difference| {
            (row.is_none() || difference.row == row)
                && fits(&difference.expected, &expected)
                && fits(&difference.found, &found)
        };
        assert!(named.iter().find(same).is_some(), "{case}: {what:?} {row:?} in {:#?}", check.differences);
        assert_eq!(LedgerCheckView::of(1, &check).consistent, Some(false), "{case}");
    }
}

fn edit_hold(world: &mut World, n: u8, edit: impl FnOnce(&mut holdfast_core::tenant::Hold)) {
    edit(world.holds.get_mut(&identity(n).reservation).unwrap());
}

fn edit_entry(world: &mut World, seq: usize, edit: impl FnOnce(&mut holdfast_core::ledger::LedgerEntry)) {
    edit(&mut world.entries[seq - 1]);
}

/// An edit that is consistent in itself (posting, entry, line, hold, balances all say 24) still breaks the chain.
#[test]
fn whoever_edits_everything_is_betrayed_by_the_chain() {
    let mut world = eventful();
    let id = row(1, PostingKind::Settle);
    world.postings.get_mut(&id).unwrap().amount = micros(24);
    world.lines.get_mut(&id).unwrap().amount = SignedMicros::new(24).unwrap();
    edit_hold(&mut world, 1, |hold| hold.charged = micros(20));
    world.tenant.balances.spent = micros(57);
    world.periods.values_mut().for_each(|period| period.spent = micros(57));
    world.entries[5].spent = SignedMicros::new(24).unwrap();
    for entry in &mut world.entries[5..] {
        entry.after.spent = micros(entry.after.spent.get() - 1);
    }
    let check = checked(&world, 3);
    let whats: Vec<_> = check.differences.iter().map(|difference| (difference.what, difference.seq)).collect();
    assert_eq!(whats, [(What::PostingContent, Some(6))]);
    assert_eq!(check.differences[0].reservation_id, Some(identity(1).reservation));
}

/// Postings of one hold that contradict each other: invariants 1 and 2.
#[test]
fn a_second_resolution_and_a_settlement_above_its_hold_are_named() {
    let mut world = eventful();
    let twice = Posting { id: version(3, 9, settled(3, 1)).id, ..settled(3, 1) };
    let mut rows = hold_rows(&world, &identity(3).reservation);
    rows.postings.push(KeptPosting { seq: 12, posting: twice.clone(), entry: None });
    let named: Vec<_> = rows.check().into_iter().map(|difference| (difference.what, difference.row)).collect();
    assert!(named.contains(&(What::Resolution, Some(twice.id))), "{named:?}");

    world.postings.get_mut(&row(2, PostingKind::Settle)).unwrap().amount = micros(31);
    let named = hold_rows(&world, &identity(2).reservation).check();
    let above = named.iter().find(|difference| difference.what == What::HoldExceeded).unwrap();
    assert_eq!((&above.expected, &above.found), (&number(30), &number(31)));
}

/// A version that made no invoice lines left postings without one: none is missing.
#[test]
fn lines_are_due_from_their_first_version_on() {
    let mut world = eventful();
    world.lines.clear();
    let mut rows = hold_rows(&world, &identity(1).reservation);
    assert!(rows.check().iter().any(|difference| difference.what == What::Line));
    rows.lines_from = 100;
    assert!(
        rows.check().iter().all(|difference| difference.what == What::UsageRecord || difference.what != What::Line)
    );
    assert_eq!(rows.standing(u64::MAX).billed, 21, "what was charged then is taken as billed");
}

#[test]
fn a_long_list_is_counted_and_cut() {
    let mut check = Check::of_all(0);
    let many = (0..DIFFERENCES_MAX as u64 + 5).map(|seq| Difference::new(What::AuditRow, 1_i64, 2_i64).at(seq));
    check.note(many.clone());
    assert_eq!((check.differences.len(), check.differences_count), (DIFFERENCES_MAX, DIFFERENCES_MAX as u64 + 5));
    check.note(many.take(DIFFERENCES_MAX));
    assert_eq!(check.differences_count, DIFFERENCES_MAX as u64 + 5, "the same difference is told once");
    let view = LedgerCheckView::of(0xab, &check);
    assert_eq!((view.complete, view.consistent, view.next.as_deref()), (false, Some(false), Some("chkab")));
    assert_eq!(LedgerCheckView::of(1, &Check::of_all(3)).consistent, None, "nothing is known yet");
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, failure_persistence: None, ..ProptestConfig::default() })]

    /// Invariant 11: whatever is posted between two steps of a check, it finds nothing, and its state may be stored.
    #[test]
    fn a_check_beside_a_history_finds_nothing(
        steps in prop::collection::vec((step(), any::<bool>()), 1..80),
        size in 1_usize..6,
    ) {
        let mut books = BothBooks::new();
        let mut check = Check::of_all(books.world.tenant.audit.seq);
        for (step, advances) in &steps {
            books.take(step);
            if *advances {
                advance(&mut check, &books.world, size);
                let stored = serde_json::to_string(&check).unwrap();
                prop_assert_eq!(&serde_json::from_str::<Check>(&stored).unwrap(), &check);
            }
            if check.is_done() {
                prop_assert_eq!(&check.differences, &[]);
                check = Check::of_all(books.world.tenant.audit.seq);
            }
        }
        let check = checked(&books.world, size);
        prop_assert_eq!(&check.differences, &[]);
        prop_assert_eq!(check.totals.spent.unsigned_abs(), books.world.tenant.balances.spent.get());
    }
}
