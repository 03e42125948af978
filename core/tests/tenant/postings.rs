//! Every posting kind against every state of its hold, one value for each cell.

use super::billing::{exact_usage, usage_record};
use super::world::{PATH, START, World, config, id_of, identity, micros, posting, request};
use super::{ROUTE, released, settled, with_key, world};
use holdfast_core::ledger::{Direction, Posting, PostingKind, ReasonCode};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Extend;
use holdfast_core::view::BalanceView;

pub(crate) fn exact(n: u8, kind: PostingKind, amount: u64) -> Posting {
    posting(n, kind, amount, ReasonCode::CompletedExact)
}

pub(crate) fn extension(n: u8, amount: u64) -> Extend {
    Extend { identity: identity(n), epoch: 2, amount: micros(amount) }
}

pub(crate) fn reduced(n: u8, amount: u64, frees_slot: bool) -> Posting {
    Posting { frees_slot, ..posting(n, PostingKind::HoldReduced, amount, ReasonCode::ExpiredReduced) }
}

/// A posting with a version of its own, so that it is none of those which made the state.
pub(crate) fn version(n: u8, version: u32, posting: Posting) -> Posting {
    Posting { id: id_of(n, posting.kind, version), ..posting }
}

pub(crate) fn refers(to: PostingKind, posting: Posting) -> Posting {
    Posting { refers_to: Some(id_of(1, to, 1)), ..posting }
}

pub(crate) fn refund(posting: Posting) -> Posting {
    Posting { direction: Direction::Refund, ..posting }
}

/// Credit 1,000; one hold of 30 with one slot, in each of its states.
fn states() -> Vec<(&'static str, World)> {
    let with = |postings: &[Posting]| {
        let mut world = world();
        world.admit(&request(1, 20), START).unwrap();
        for posting in postings {
            assert_eq!(world.settle(posting, START), Ok(true));
        }
        world
    };
    let mut extended = with(&[]);
    assert_eq!(extended.extend(&extension(1, 20), START), Ok(true));
    let late = refers(PostingKind::Release, posting(1, PostingKind::LateSettlement, 9, ReasonCode::LateCompletion));
    vec![
        ("unknown", world()),
        ("open", with(&[])),
        ("extended", extended),
        ("reduced", with(&[reduced(1, 10, true)])),
        ("settled", with(&[settled(1, 12)])),
        ("overspent", with(&[settled(1, 30), exact(1, PostingKind::Overage, 5)])),
        ("released", with(&[released(1, 30, ReasonCode::ExpiredWatching)])),
        ("settled late", with(&[released(1, 30, ReasonCode::ExpiredWatching), late])),
    ]
}

/// Held, spent and slots after a posting of 7, or why it is refused.
type Cell = Result<(u64, u64, u32), &'static str>;

/// Design 8: "`grant`, `hold`, `hold_extended`, `hold_reduced`, `settle`, `release`, `overage`, `late_settlement`,
/// `correction`, `compensation`" — each against every state of its hold.
#[test]
fn every_kind_in_every_state() {
    use PostingKind as K;
    const NONE: Cell = Err("not_found");
    const WRONG: Cell = Err("wrong_state");
    const ENDED: Cell = Err("already_resolved");
    const EARLY: Cell = Err("not_resolved_yet");
    let states = states();
    let resolution = |state: &str| match state {
        "released" | "settled late" => K::Release,
        _ => K::Settle,
    };
    // Columns: unknown, open (30), extended (50), reduced (20, no slot), settled (12), overspent (30 + 5), released,
    // settled late (9).
    #[rustfmt::skip]
    let table: [(K, bool, [Cell; 8]); 12] = [
        (K::Grant, false,          [NONE, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG]),
        (K::Hold, false,           [NONE, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG]),
        (K::HoldExtended, false,   [NONE, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG, WRONG]),
        (K::HoldReduced, false,    [NONE, Ok((23, 0, 1)), Ok((43, 0, 1)), Ok((13, 0, 0)), ENDED, ENDED, ENDED, ENDED]),
        (K::Settle, false,         [NONE, Ok((0, 7, 0)), Ok((0, 7, 0)), Ok((0, 7, 0)), ENDED, ENDED, ENDED, ENDED]),
        (K::Release, false,        [NONE, Ok((0, 0, 0)), Ok((0, 0, 0)), Ok((0, 0, 0)), ENDED, ENDED, ENDED, ENDED]),
        (K::Overage, false,        [NONE, EARLY, EARLY, EARLY, Ok((0, 19, 0)), Ok((0, 42, 0)), ENDED, ENDED]),
        (K::LateSettlement, false, [NONE, EARLY, EARLY, EARLY, ENDED, ENDED, Ok((0, 7, 0)), Ok((0, 16, 0))]),
        (K::Correction, false,     [NONE, EARLY, EARLY, EARLY, Ok((0, 19, 0)), Ok((0, 42, 0)), Ok((0, 7, 0)), Ok((0, 16, 0))]),
        (K::Correction, true,      [NONE, EARLY, EARLY, EARLY, Ok((0, 5, 0)), Ok((0, 28, 0)), Err("amount_out_of_range"), Ok((0, 2, 0))]),
        (K::Compensation, false,   [NONE, EARLY, EARLY, EARLY, Ok((0, 19, 0)), Ok((0, 42, 0)), Ok((0, 7, 0)), Ok((0, 16, 0))]),
        (K::Compensation, true,    [NONE, EARLY, EARLY, EARLY, Ok((0, 5, 0)), Ok((0, 28, 0)), Err("amount_out_of_range"), Ok((0, 2, 0))]),
    ];
    for (kind, refunds, cells) in table {
        for ((state, world), cell) in states.iter().zip(cells) {
            let mut posting = version(1, 9, exact(1, kind, 7));
            if kind.refers() {
                posting = refers(resolution(state), posting);
            }
            if refunds {
                posting = refund(posting);
            }
            let mut after = world.clone();
            let said = after.settle(&posting, START);
            let balances = after.tenant.balances;
            let numbers = (balances.held.get(), balances.spent.get(), after.tenant.slots_in_use);
            match cell {
                Ok(expected) => assert_eq!((said, numbers), (Ok(true), expected), "{kind:?} on {state}"),
                Err(code) => {
                    assert_eq!(said.unwrap_err().code(), code, "{kind:?} on {state}");
                    assert_eq!(after, *world, "{kind:?} on {state}: a refusal changes nothing");
                }
            }
            after.check_audit();
        }
    }
}

/// What each kind may amount to at most: one less, the most itself, one more. The rest of a hold is never lost.
#[test]
fn amounts_end_where_the_hold_ends() {
    use PostingKind as K;
    let reduced_by = |amount| reduced(1, amount, false);
    let back = |kind, to, amount| refund(refers(to, version(1, 9, exact(1, kind, amount))));
    type Make<'a> = &'a dyn Fn(u64) -> Posting;
    let cases: [(&str, u64, Make<'_>); 13] = [
        ("open", 30, &|amount| settled(1, amount)),
        ("open", 30, &|amount| released(1, amount, ReasonCode::NeverSubmitted)),
        ("open", 30, &reduced_by),
        ("extended", 50, &|amount| settled(1, amount)),
        ("extended", 50, &|amount| released(1, amount, ReasonCode::NeverSubmitted)),
        ("extended", 50, &reduced_by),
        ("reduced", 20, &|amount| settled(1, amount)),
        ("reduced", 20, &|amount| released(1, amount, ReasonCode::NeverSubmitted)),
        ("reduced", 20, &|amount| version(1, 2, reduced(1, amount, true))),
        ("settled", 12, &|amount| back(K::Correction, K::Settle, amount)),
        ("overspent", 35, &|amount| back(K::Compensation, K::Settle, amount)),
        ("overspent", 35, &|amount| back(K::Correction, K::Overage, amount)),
        ("settled late", 9, &|amount| back(K::Correction, K::LateSettlement, amount)),
    ];
    let states = states();
    for (state, most, make) in cases {
        let start = &states.iter().find(|(name, _)| *name == state).unwrap().1;
        for (amount, said) in [(most - 1, Ok(true)), (most, Ok(true)), (most + 1, Err(Refusal::AmountOutOfRange))] {
            let mut world = start.clone();
            let posting = make(amount);
            assert_eq!(world.settle(&posting, START), said, "{:?} of {amount} on {state}", posting.kind);
            let hold = &world.holds[&identity(1).reservation];
            assert_eq!(world.tenant.balances.held, hold.held());
            assert_eq!(world.tenant.balances.spent, hold.charged);
        }
    }
}

/// A slot that an expired hold gave back is not given back again by its end (invariant 11).
#[test]
fn a_slot_is_given_back_once() {
    for resolution in [settled(1, 5), released(1, 10, ReasonCode::ExpiredReleased)] {
        let mut world = world();
        world.admit(&request(1, 20), START).unwrap();
        world.admit(&request(2, 20), START).unwrap();
        assert_eq!(world.settle(&reduced(1, 0, true), START), Ok(true));
        assert_eq!((world.tenant.slots_in_use, world.tenant.balances.held), (1, micros(60)), "the credit is kept");
        assert_eq!(world.settle(&version(1, 2, reduced(1, 20, true)), START), Ok(true));
        assert_eq!((world.tenant.slots_in_use, world.tenant.balances.held), (1, micros(40)), "had this effect already");
        assert_eq!(world.settle(&resolution, START), Ok(true));
        assert_eq!((world.tenant.slots_in_use, world.tenant.balances.held), (1, micros(30)), "the other's slot stands");
    }
}

/// A slot that was given back is there for the next request, and the kept hold still counts against credit and period.
#[test]
fn a_reduced_hold_makes_room_for_others() {
    let mut world = World::new(config(100, 65, 1, ROUTE));
    world.admit(&request(1, 20), START).unwrap();
    assert_eq!(world.admit(&request(2, 20), START), Err(Refusal::ConcurrencyExceeded { limit: 1 }));
    assert_eq!(world.settle(&reduced(1, 5, true), START), Ok(true));
    assert_eq!(world.admit(&request(2, 31), START), Err(Refusal::BudgetExhausted), "25 + 41 is above the period");
    world.admit(&request(2, 30), START).unwrap();
    let open: Vec<_> = world.holds.values().cloned().collect();
    let view = BalanceView::of(&world.tenant, &world.tenant.balances, &open, 1, micros(65));
    assert!(view.check.consistent);
    let shown: Vec<_> = view.holds.iter().map(|hold| hold.hold_micros.get()).collect();
    assert_eq!((shown, view.slots_in_use), (vec![25, 40], 1));
}

/// One thing after the other is put right; what stands first in the documented order is told first.
#[test]
fn refusals_of_a_posting_stand_in_their_order() {
    let mut world = world();
    for n in [1, 2] {
        world.admit(&request(n, 20), START).unwrap();
    }
    let wrong = |what: &str| Refusal::WrongState { state: format!("correction: {what}") };
    let mut sent = Posting {
        id: settled(1, 0).id,
        direction: Direction::Refund,
        frees_slot: true,
        usage_records: vec![usage_record(2, exact_usage(1, 1))],
        ..posting(9, PostingKind::Correction, 13, ReasonCode::OperatorDecision)
    };
    type Repair = fn(&mut World, &mut Posting);
    let ladder: [(Refusal, Repair); 9] = [
        (Refusal::PostingConflict, |_, sent| sent.id = id_of(1, PostingKind::Correction, 1)),
        (Refusal::NotFound, |_, sent| sent.reservation = Some(identity(1).reservation)),
        (wrong("frees_slot of a kind that keeps or ends the hold"), |_, sent| sent.frees_slot = false),
        (wrong("without refers_to"), |_, sent| sent.refers_to = Some(id_of(2, PostingKind::Overage, 1))),
        (wrong("usage of another reservation"), |_, sent| sent.usage_records.clear()),
        (Refusal::NotResolvedYet, |world, _| {
            assert_eq!(world.settle(&version(1, 2, settled(1, 12)), START), Ok(true));
        }),
        (Refusal::NotResolvedYet, |world, _| {
            assert_eq!(world.settle(&settled(2, 30), START), Ok(true));
            assert_eq!(world.settle(&exact(2, PostingKind::Overage, 50), START), Ok(true));
        }),
        (wrong("refers to what it cannot follow"), |_, sent| {
            sent.refers_to = Some(id_of(1, PostingKind::Settle, 2));
        }),
        (Refusal::AmountOutOfRange, |_, sent| sent.amount = micros(12)),
    ];
    // The first rung needs a posting under the id that is sent: made here, and undone with its refusal seen.
    let mut taken = world.clone();
    assert_eq!(taken.settle(&settled(1, 12), START), Ok(true));
    for (rung, (refusal, repair)) in ladder.into_iter().enumerate() {
        let on = if rung == 0 { &mut taken } else { &mut world };
        let before = on.clone();
        assert_eq!(on.settle(&sent, START), Err(refusal));
        assert_eq!(*on, before, "a refusal changes nothing");
        repair(&mut world, &mut sent);
    }
    assert_eq!(world.settle(&sent, START), Ok(true));
    assert_eq!(world.settle(&sent, START), Ok(false), "same id, same content");
    assert_eq!(world.tenant.balances.spent, micros(30 + 50), "all that the first was charged went back");
    let more = |n, amount| version(n, 3, exact(n, PostingKind::Overage, amount));
    assert_eq!(world.settle(&more(1, (1 << 53) - 80), START), Err(Refusal::AmountOutOfRange), "leaves the range");
    assert_eq!(world.settle(&more(1, (1 << 53) - 81), START), Ok(true));
}

/// What is wrong with a posting by itself, whatever the state of its hold.
#[test]
fn contradictions_of_a_posting() {
    use PostingKind as K;
    let own = |posting: Posting| Posting { usage_records: vec![usage_record(1, exact_usage(1, 1))], ..posting };
    for kind in [K::Settle, K::Release, K::Overage, K::LateSettlement, K::HoldReduced] {
        let refunded = refers(K::Settle, refund(exact(1, kind, 1)));
        assert_eq!(refunded.contradiction(), Some("refund of a kind that only charges"), "{kind:?}");
    }
    for kind in [K::Settle, K::Release, K::Overage, K::LateSettlement, K::Correction, K::Compensation] {
        let posting = refers(K::Settle, exact(1, kind, 1));
        assert_eq!(own(posting.clone()).contradiction(), None, "{kind:?}");
        let freeing = Posting { frees_slot: true, ..posting };
        assert_eq!(freeing.contradiction(), Some("frees_slot of a kind that keeps or ends the hold"), "{kind:?}");
    }
    for kind in [K::LateSettlement, K::Correction, K::Compensation] {
        assert_eq!(exact(1, kind, 1).contradiction(), Some("without refers_to"), "{kind:?}");
    }
    assert_eq!(own(settled(2, 1)).contradiction(), Some("usage of another reservation"));
    assert_eq!(reduced(1, 1, true).contradiction(), None);
}

/// What follows a resolution may name it, or a charge that was made after it; nothing that is not there, of another
/// hold, or no charge.
#[test]
fn what_can_be_referred_to() {
    use PostingKind as K;
    for (state, kind, to, said) in [
        ("settled", K::Correction, id_of(1, K::Settle, 1), Ok(true)),
        ("overspent", K::Correction, id_of(1, K::Overage, 1), Ok(true)),
        ("settled late", K::Compensation, id_of(1, K::LateSettlement, 1), Ok(true)),
        ("settled", K::Correction, id_of(1, K::Hold, 1), Err("wrong_state")),
        ("extended", K::Correction, id_of(1, K::Hold, 1), Err("not_resolved_yet")),
        ("settled", K::Correction, id_of(1, K::Overage, 1), Err("not_resolved_yet")),
        ("settled", K::Compensation, "config:grant:1000".into(), Err("wrong_state")),
        ("settled late", K::LateSettlement, id_of(1, K::LateSettlement, 1), Err("wrong_state")),
        ("released", K::LateSettlement, id_of(1, K::Settle, 1), Err("not_resolved_yet")),
    ] {
        let mut world = states().into_iter().find(|(name, _)| *name == state).unwrap().1;
        let sent = Posting { refers_to: Some(to.clone()), ..version(1, 9, exact(1, kind, 1)) };
        assert_eq!(world.settle(&sent, START).map_err(|refusal| refusal.code()), said, "{kind:?} to {to} on {state}");
    }
    let mut world = states().remove(4).1;
    let first = version(1, 2, refund(refers(K::Settle, exact(1, K::Correction, 4))));
    let second = Posting { refers_to: Some(first.id.clone()), ..version(1, 3, exact(1, K::Correction, 1)) };
    assert_eq!(world.settle(&second, START), Err(Refusal::NotResolvedYet), "it overtook what it corrects");
    assert_eq!(world.settle(&first, START), Ok(true));
    assert_eq!(world.settle(&second, START), Ok(true), "a correction of a correction");
    assert_eq!(world.tenant.balances.spent, micros(12 - 4 + 1));
}

/// A posting that can never be applied is quarantined, not delivered for ever; one that can is never quarantined.
#[test]
fn which_refusals_of_a_posting_stand_for_ever() {
    let wrong = Refusal::WrongState { state: String::new() };
    for refusal in
        [Refusal::PostingConflict, Refusal::NotFound, wrong, Refusal::AlreadyResolved, Refusal::AmountOutOfRange]
    {
        assert!(refusal.is_permanent_for_posting() && !refusal.retryable(), "{refusal:?}");
    }
    let what = String::new();
    for refusal in
        [Refusal::NotResolvedYet, Refusal::Unavailable { what: what.clone() }, Refusal::Misconfigured { what }]
    {
        assert!(!refusal.is_permanent_for_posting(), "{refusal:?}");
    }
}

/// Invariant 12: an expiry proves nothing about the provider, so the same key does not run the same call again by
/// itself. A release by evidence frees it.
#[test]
fn a_key_is_kept_when_its_hold_was_released_without_evidence() {
    for (reason, runs_again) in [
        (ReasonCode::ExpiredReleased, false),
        (ReasonCode::ExpiredWatching, false),
        (ReasonCode::OperatorDecision, false),
        (ReasonCode::OperationFailed, true),
        (ReasonCode::CancelConfirmed, true),
        (ReasonCode::NeverSubmitted, true),
    ] {
        let mut world = world();
        world.admit(&with_key("k", request(1, 20)), START).unwrap();
        world.settle(&released(1, 30, reason), START).unwrap();
        let again = world.admit(&with_key("k", request(2, 20)), START).unwrap();
        assert_eq!(again.joined, !runs_again, "{reason:?}");
        let end = START.plus(world.limits.idempotency_ms);
        assert_eq!(world.keys[&format!("{PATH} k")].expires_at.is_some_and(|at| at == end), !runs_again, "{reason:?}");
    }
}
