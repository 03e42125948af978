//! The balance as the API shows it, compared with what was read of the ledger and with the open holds.

use super::check::chain_rows;
use super::world::{START, World, config, identity, micros, request};
use super::{settled, world};
use holdfast_core::ledger::Balances;
use holdfast_core::tenant::Hold;
use holdfast_core::tenant::books::{Said, Verified, What};
use holdfast_core::view::{BalanceView, Consistency, OpenTotals, RouteSlots};

/// The view of a world whose open holds are said to be these.
pub(crate) fn balance(world: &World, open: &[Hold], slots: u64, held: u64) -> BalanceView {
    let mut verified = Verified::default();
    let differences = verified.read(&chain_rows(world));
    let totals = OpenTotals { slots, held: micros(held), ..OpenTotals::default() };
    let checked = Consistency::of(verified, differences, &world.tenant, &totals);
    BalanceView::of(&world.tenant, open, totals, checked)
}

/// Invariant 11, as the API shows it.
#[test]
fn a_balance_tells_whether_it_agrees_with_ledger_and_holds() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    let open: Vec<_> = world.holds.values().cloned().collect();
    let view = balance(&world, &open, 1, 30);
    assert!(view.check.consistent && view.check.differences.is_empty());
    assert_eq!((view.available_micros, view.holds.len(), view.slots_in_use), (micros(970), 1, 1));
    assert_eq!((view.check.verified_seq, view.check.seq), (2, 2));
    for (slots, held, what) in [(2, 30, What::SlotsByPostings), (1, 29, What::HeldByPostings)] {
        let view = balance(&world, &open, slots, held);
        assert!(!view.check.consistent);
        assert_eq!(view.check.differences.iter().map(|difference| difference.what).collect::<Vec<_>>(), [what]);
    }
    world.tenant.balances = Balances { spent: micros(1), ..world.tenant.balances };
    let view = balance(&world, &open, 1, 30);
    let [difference] = &view.check.differences[..] else { panic!("{view:?}") };
    assert_eq!(
        (difference.what, &difference.expected, &difference.found),
        (What::SpentByEntries, &Said::Number(0), &Said::Number(1))
    );
}

/// A resting place is as good as the beginning: only what is newer is read, and the sums are those of the whole.
#[test]
fn what_was_read_once_is_not_read_again() {
    let mut world = World::new(config(1_000, 1_000, 4, super::ROUTE));
    let mut verified = Verified::default();
    for n in 1..=3 {
        world.admit(&request(n, 20), START).unwrap();
        world.settle(&settled(n, 5), START).unwrap();
        let seq = verified.head.seq;
        let newer: Vec<_> = chain_rows(&world).into_iter().filter(|row| row.seq > seq).collect();
        assert_eq!(newer.len(), if n == 1 { 3 } else { 2 });
        assert_eq!(verified.read(&newer), []);
        assert_eq!(verified.agrees_with(&world.tenant.audit, &world.tenant.balances), []);
    }
    let stored = serde_json::to_string(&verified).unwrap();
    assert_eq!(serde_json::from_str::<Verified>(&stored).unwrap(), verified);
    let behind = Consistency::of(Verified::default(), Vec::new(), &world.tenant, &OpenTotals::default());
    assert_eq!(behind.differences, [], "a ledger that was not read to its end is compared with nothing");
}

/// What each route holds is told beside the whole.
#[test]
fn slots_are_told_by_route() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    let hold = &world.holds[&identity(1).reservation];
    let routes = vec![RouteSlots { route: hold.terms.route.clone(), slots_in_use: 1, held_micros: hold.held() }];
    let open = OpenTotals { slots: 1, held: micros(30), routes: routes.clone(), detached: 1 };
    let checked = Consistency::of(Verified::default(), Vec::new(), &world.tenant, &open);
    assert_eq!(BalanceView::of(&world.tenant, std::slice::from_ref(hold), open, checked).routes, routes);
}
