//! Extensions of a hold: allowed or refused, once for each attempt.

use super::postings::{extension, reduced};
use super::world::{START, World, config, identity, micros, request};
use super::{ROUTE, released, settled, world};
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Extend;
use holdfast_core::tenant::account::Status;

/// Design 4: "a further attempt first extends the hold or is refused".
#[test]
fn refusals_of_an_extension_stand_in_their_order() {
    let mut world = World::new(config(1_000, 80, 2, ROUTE));
    world.admit(&request(1, 20), START).unwrap();
    world.admit(&request(2, 10), START).unwrap();
    let mut request = extension(1, 31);
    let mut taken = world.clone();
    assert_eq!(taken.extend(&extension(1, 30), START), Ok(true));
    assert_eq!(taken.extend(&request, START), Err(Refusal::PostingConflict), "same epoch, other amount");

    let stranger = Extend { identity: identity(9), ..request.clone() };
    let mixed = holdfast_core::ids::Identity { generation: identity(2).generation, ..identity(1) };
    let mut ended = world.clone();
    assert_eq!(ended.settle(&settled(1, 1), START), Ok(true));
    let mut freed = world.clone();
    assert_eq!(freed.settle(&reduced(1, 0, true), START), Ok(true));
    let slot_freed = Refusal::WrongState { state: "slot_freed".into() };
    let suspended = |world: &World| {
        let mut world = world.clone();
        world.account.status = Status::Suspended;
        world
    };
    let (taken_suspended, ended_suspended) = (suspended(&taken), suspended(&ended));
    for (world, request, refusal) in [
        (&taken_suspended, request.clone(), Refusal::PostingConflict),
        (&suspended(&world), stranger.clone(), Refusal::Suspended),
        (&ended_suspended, request.clone(), Refusal::Suspended),
        (&world, stranger, Refusal::NotFound),
        (&taken, Extend { epoch: 3, identity: mixed, ..request.clone() }, Refusal::NotFound),
        (&ended, request.clone(), Refusal::AlreadyResolved),
        (&freed, request.clone(), slot_freed),
        (&taken, Extend { epoch: 3, amount: micros((1 << 53) - 1), ..request.clone() }, Refusal::AmountOutOfRange),
    ] {
        let mut after = world.clone();
        assert_eq!(after.extend(&request, START), Err(refusal));
        assert_eq!(after, *world, "a refusal changes nothing");
    }
    assert_eq!(world.extend(&request, START), Err(Refusal::BudgetExhausted), "30 + 20 + 31 is above the period");
    request.amount = micros(30);
    assert_eq!(world.extend(&request, START), Ok(true));
    assert_eq!((world.tenant.balances.held, world.tenant.slots_in_use), (micros(80), 2), "no further slot");
    assert_eq!(world.periods["2026-11-30"].held, micros(80));
}

/// Credit and period bind an extension each by itself, to the last micro; the period is that of the admission.
#[test]
fn an_extension_must_be_affordable() {
    for (grant, limit, fits) in [(50, 1_000, true), (49, 1_000, false), (1_000, 50, true), (1_000, 49, false)] {
        let mut world = World::new(config(grant, limit, 4, ROUTE));
        world.admit(&request(1, 20), START).unwrap();
        let next_day = START.plus(86_400_000);
        let said = world.extend(&extension(1, 20), next_day);
        assert_eq!(said, if fits { Ok(true) } else { Err(Refusal::BudgetExhausted) }, "grant {grant}, limit {limit}");
        assert_eq!(world.periods.len(), 1, "a hold counts where it was admitted");
    }
}

/// Invariant 8: a repeated request gets the recorded answer, also when the hold has ended and the credit is gone; each
/// epoch extends once, at the price and for the sum of both.
#[test]
fn a_repeated_extension_extends_once() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    assert_eq!(world.extend(&extension(1, 20), START), Ok(true));
    assert_eq!(world.extend(&extension(1, 20), START.plus(9_000)), Ok(false));
    assert_eq!(world.extend(&Extend { epoch: 3, ..extension(1, 20) }, START), Ok(true));
    let stored = &world.postings[&extension(1, 20).posting_id()];
    assert_eq!((stored.kind, stored.reason), (PostingKind::HoldExtended, ReasonCode::RetryExtended));
    assert_eq!((stored.price_version.as_deref(), stored.decided_at), (Some("v1"), START));
    assert_eq!(world.settle(&settled(1, 70), START), Ok(true), "30 + 20 + 20");
    world.config.budget = None;
    let before = world.clone();
    assert_eq!(world.extend(&extension(1, 20), START), Ok(false));
    assert_eq!(world, before);
    world.check_audit();
}

/// Invariant 8: the answer was lost, and the tenant was suspended before the request came again. What was extended stays
/// extended and says so; nothing more is held, and what is held is settled.
#[test]
fn a_suspended_tenant_is_extended_no_further() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    assert_eq!(world.extend(&extension(1, 20), START), Ok(true));
    world.account.status = Status::Suspended;
    let before = world.clone();
    assert_eq!(world.extend(&extension(1, 20), START.plus(9_000)), Ok(false), "the recorded answer stands");
    let further = Extend { epoch: 3, ..extension(1, 20) };
    assert_eq!(world.extend(&further, START), Err(Refusal::Suspended));
    assert_eq!(world, before);
    assert_eq!(world.settle(&settled(1, 50), START), Ok(true), "30 + 20");
    world.account.status = Status::Active;
    assert_eq!(world.extend(&further, START), Err(Refusal::AlreadyResolved));
    world.check_audit();
}

/// The answer to an extension can get lost: its reservation then releases less than is held, and nothing stays behind.
#[test]
fn a_release_returns_an_extension_that_its_author_never_heard_of() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    world.extend(&extension(1, 20), START).unwrap();
    assert_eq!(world.settle(&released(1, 30, ReasonCode::NeverSubmitted), START), Ok(true));
    assert_eq!((world.tenant.balances.held, world.periods["2026-11-30"].held), (micros(0), micros(0)));
    assert_eq!(world.entries.last().unwrap().held.get(), -50, "the entry says what was returned");
}
