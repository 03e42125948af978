//! What must hold of the books and of what is stored after every step, whatever the history: properties, and a second
//! account of what is charged. Numbers are those of the invariants in the crate's documentation.

use super::world::World;
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode};
use holdfast_core::policy::Terms;
use holdfast_core::reservation::{Aggregate, Delivery, Lifecycle, Parcel, Reservation, ResolvedAs, Settlement};
use holdfast_core::usage::{Metered, Usage};
use holdfast_core::webhook::EventType;
use std::collections::BTreeSet;

/// What is charged by all postings together.
pub(crate) fn charged(world: &World) -> i64 {
    let charges = |kind: &str| !matches!(kind, "release" | "hold_reduced");
    world.books().iter().filter(|(kind, _)| charges(kind)).map(|(_, amount)| amount).sum()
}

/// Invariants 1, 2, 4 and 6.
pub(crate) fn check(world: &World, terms: &Terms, acknowledged: &BTreeSet<String>) {
    let postings = &world.postings;
    let of = |kind| postings.iter().filter(move |posting| posting.kind == kind);
    let sum = |kind| of(kind).map(|posting| posting.amount.get()).sum::<u64>();
    let resolving: Vec<_> = postings.iter().filter(|posting| posting.kind.resolves_hold()).collect();
    assert!(resolving.len() <= 1, "invariant 1: {postings:?}");
    let ids: BTreeSet<_> = postings.iter().map(|posting| posting.id.clone()).collect();
    assert_eq!(ids.len(), postings.len(), "ids are unique: {postings:?}");
    let live = world.aggregate.live();
    let held = terms.hold.get() + live.map_or(0, |live| live.extended.get());
    let reduced = sum(PostingKind::HoldReduced);
    assert!(reduced <= held, "invariant 2: {postings:?}");
    let left = held - reduced;
    for settle in of(PostingKind::Settle) {
        assert!(settle.amount.get() <= left, "invariant 2: {settle:?}");
        check_usage(settle);
    }
    for release in of(PostingKind::Release) {
        assert_eq!(release.amount.get(), left, "invariant 2: {release:?}");
    }
    for overage in of(PostingKind::Overage) {
        let counted = overage.usage_records.iter().any(|record| record.usage.is_exact());
        assert!(counted, "only an exact count goes above the hold");
        assert_eq!(sum(PostingKind::Settle), left, "invariant 2: above the hold only");
    }
    let followers =
        [PostingKind::LateSettlement, PostingKind::Correction, PostingKind::Compensation].map(of).into_iter().flatten();
    for follower in followers {
        let resolution = resolving.first().expect("nothing follows what is not resolved");
        assert_eq!(follower.refers_to.as_ref(), Some(&resolution.id), "invariant 3");
    }
    assert!(of(PostingKind::Compensation).count() <= 1, "once");
    let late: Vec<_> = postings.iter().filter(|posting| posting.kind == PostingKind::LateSettlement).collect();
    assert!(late.len() <= 1 && (late.is_empty() || resolving[0].kind == PostingKind::Release), "{postings:?}");
    // Invariant 6: each posting is on its way, has arrived, or was put aside. The name of an operation moves nothing.
    let names = |delivery: &&Delivery| delivery.parcel == Parcel::Operation;
    let named: BTreeSet<_> = world.aggregate.deliveries().iter().filter(names).map(|it| &it.posting_id).collect();
    assert!(named.iter().all(|id| id.ends_with(":operation") && !acknowledged.contains(*id)), "{named:?}");
    let of_books = |id: &String| !id.ends_with(":operation");
    let acknowledged = &acknowledged.iter().filter(|id| of_books(id)).cloned().collect::<BTreeSet<_>>();
    let all = world.aggregate.deliveries().iter().filter(|delivery| delivery.parcel != Parcel::Place);
    let all = all.map(|delivery| delivery.posting_id.clone());
    let on_the_way: BTreeSet<_> = all.filter(of_books).collect();
    let put_aside: BTreeSet<_> = refused(world);
    assert!(on_the_way.is_disjoint(acknowledged) && on_the_way.is_disjoint(&put_aside));
    let known: BTreeSet<_> = on_the_way.union(acknowledged).chain(&put_aside).cloned().collect();
    let told = check_notices(world);
    assert_eq!(known, ids.union(&told).cloned().collect(), "invariant 6");
    let order: Vec<_> = postings.iter().map(|posting| &posting.id).filter(|id| on_the_way.contains(*id)).collect();
    let carried = world.aggregate.deliveries().iter().filter(|delivery| delivery.parcel == Parcel::Posting);
    let carried: Vec<_> = carried.map(|delivery| &delivery.posting_id).collect();
    assert_eq!(order, carried);
    if let Some(live) = live {
        check_live(world, live, reduced);
        let arrived = !postings.is_empty() && carried.is_empty() && put_aside.is_empty();
        assert_eq!(live.acknowledged_at.is_some(), arrived);
    }
}

/// Each event has an id of its own, and its end is told once. Returns the ids of those that travel by themselves.
fn check_notices(world: &World) -> BTreeSet<String> {
    let ids: BTreeSet<_> = world.notices.iter().map(|notice| notice.id.clone()).collect();
    assert_eq!(ids.len(), world.notices.len(), "{:?}", world.notices);
    let ends =
        world.notices.iter().filter(|notice| !matches!(notice.kind, EventType::LateCompletion | EventType::Disputed));
    let ended = match &world.aggregate {
        Aggregate::Vacant => false,
        Aggregate::Tombstone(_) => true,
        Aggregate::Live(live) => live.lifecycle.is_terminal(),
    };
    assert_eq!(ends.count(), usize::from(ended), "{:?}", world.notices);
    let carried: BTreeSet<_> =
        world.postings.iter().flat_map(|posting| &posting.notices).map(|notice| &notice.id).collect();
    ids.iter().filter(|id| !carried.contains(id)).cloned().collect()
}

fn check_live(world: &World, live: &Reservation, reduced: u64) {
    let resolving = world.postings.iter().find(|posting| posting.kind.resolves_hold());
    assert_eq!(live.reduced.get(), reduced);
    assert_eq!(live.resolution.as_ref().map(|resolution| &resolution.posting_id), resolving.map(|posting| &posting.id));
    assert_eq!(live.settlement.holds(), resolving.is_none(), "kept means that no posting ends it");
    if !live.lifecycle.is_terminal() {
        assert_eq!((live.settlement, world.postings.len()), (Settlement::Pending, 0), "nothing ends before the end");
    } else {
        assert_ne!(live.settlement, Settlement::Pending, "an end leaves nothing pending");
    }
    let charged = charged(world);
    let cost = live.cost.map(|cost| i64::try_from(cost.get()).unwrap());
    assert_eq!(cost, resolving.map(|_| charged), "invariant 6: the cost is what was charged: {:?}", world.books());
    if cost.is_some() && live.lifecycle != Lifecycle::Compensated {
        assert_eq!(cost, Some(priced(live)), "design 4: settlement sums all attempts: {live:?}");
    }
    if live.settlement.holds() && live.lifecycle.is_terminal() {
        assert!(live.review.is_some(), "whoever must decide is called");
    }
}

/// A second account of what all attempts together cost, from the counts, the list of prices and the words of design 4
/// alone: exact counts at their price, tier by tier, whatever is held; a bound at the dearest price that its tokens may turn
/// out to have, at most an attempt's hold, and where output is hidden all of that; the bounds together at most what is held.
/// One rounding, up.
fn priced(live: &Reservation) -> i64 {
    let price = &live.terms.price;
    let (input, output) = (price.input_micros_per_million, price.output_micros_per_million);
    let cached = price.cached_input_micros_per_million.unwrap_or(input);
    let written = price.cache_write_micros_per_million.unwrap_or(input);
    let reasoning = price.reasoning_micros_per_million.unwrap_or(output);
    let of = |tokens: u64, price: u64| i128::from(tokens) * i128::from(price);
    let whole = |hold: u64| i128::from(hold) * 1_000_000;
    let (mut counted, mut bounds) = (0, 0);
    for accounted in live.attempts().filter_map(|attempt| attempt.accounted) {
        match accounted.metered {
            Metered::Exact(usage) => {
                counted += of(usage.input_tokens - usage.cached_input_tokens - usage.cache_write_tokens, input)
                    + of(usage.cached_input_tokens, cached)
                    + of(usage.cache_write_tokens, written)
                    + of(usage.output_tokens - usage.reasoning_tokens, output)
                    + of(usage.reasoning_tokens, reasoning);
            }
            Metered::AtLeast(_) if price.hidden_output => bounds += whole(live.terms.hold.get()),
            Metered::AtLeast(usage) => {
                let dearest = of(usage.input_tokens, input.max(cached).max(written))
                    + of(usage.output_tokens, output.max(reasoning));
                bounds += dearest.min(whole(live.terms.hold.get()));
            }
        }
    }
    let held = live.terms.hold.get() + live.extended.get() - live.reduced.get();
    i64::try_from((counted + bounds.min(whole(held)) + 999_999) / 1_000_000).unwrap()
}

/// A settlement says which usage it stands on, and how much of it is a bound.
fn check_usage(posting: &Posting) {
    let sum = |exact: bool| {
        let records = posting.usage_records.iter().map(|record| record.usage);
        let parts = records.filter(|usage| usage.is_exact() == exact).map(|usage| *usage.usage());
        parts.reduce(|a, b| Usage {
            input_tokens: a.input_tokens + b.input_tokens,
            output_tokens: a.output_tokens + b.output_tokens,
            cached_input_tokens: a.cached_input_tokens + b.cached_input_tokens,
            cache_write_tokens: a.cache_write_tokens + b.cache_write_tokens,
            reasoning_tokens: a.reasoning_tokens + b.reasoning_tokens,
        })
    };
    let (counted, bound) = (sum(true), sum(false));
    assert_eq!(posting.estimated_usage, bound.filter(|_| counted.is_some()), "{posting:?}");
    let usage = posting.usage.unwrap();
    assert_eq!(usage.is_exact(), bound.is_none(), "{posting:?}");
    let whole = [counted, bound].into_iter().flatten().map(|usage| usage.output_tokens).sum::<u64>();
    assert_eq!(usage.usage().output_tokens, whole, "{posting:?}");
}

fn refused(world: &World) -> BTreeSet<String> {
    let refused = match &world.aggregate {
        Aggregate::Vacant => &[][..],
        Aggregate::Tombstone(tombstone) => &tombstone.refused_deliveries,
        Aggregate::Live(live) => &live.refused_deliveries,
    };
    refused.iter().map(|refused| refused.posting_id.clone()).collect()
}

/// Invariant 4: a hold is given back only where nothing can live any more, and by what: proof that nothing was sent,
/// evidence, the route's word at the deadline, or an operator.
pub(crate) fn check_release(before: &World, after: &World) {
    let release = &after.postings[before.postings.len()..];
    let Some(release) = release.iter().find(|posting| posting.kind == PostingKind::Release) else { return };
    let Some(was) = before.aggregate.live() else {
        assert_eq!(release.reason, ReasonCode::NeverStarted);
        return;
    };
    let is = after.live();
    let searched = was.reconciliation.is_some() && !was.lifecycle.is_terminal();
    let deadline_reached = was.reconciliation.is_some_and(|search| search.deadline <= after.now);
    let by = is.resolution.as_ref().map(|resolution| resolution.by);
    let failed = |attempt: &holdfast_core::reservation::Attempt| {
        attempt.reported.is_some_and(|said| said.outcome == holdfast_core::reconcile::Outcome::Failed)
    };
    // Never sent, or known to have failed without use.
    let owes_nothing = is.attempts().all(|attempt| attempt.submitted_at.is_none() || failed(attempt));
    match release.reason {
        ReasonCode::ProviderUnreachable => {
            let before = is.past_attempts.iter().any(|attempt| attempt.submitted_at.is_some());
            assert!(was.reconciliation.is_none() && !before, "invariant 4: {release:?}");
        }
        ReasonCode::NeverSubmitted
        | ReasonCode::CancelledByRequest
        | ReasonCode::CancelledOnDisconnect
        | ReasonCode::DetachedExceeded
        | ReasonCode::FirstByteTimeout
        | ReasonCode::IdleTimeout
        | ReasonCode::TotalTimeout => assert!(owes_nothing, "invariant 4: {release:?}"),
        ReasonCode::OperationFailed => assert!(failed(&is.attempt), "by evidence"),
        ReasonCode::LateCompletion => assert!(failed(&is.attempt) && was.settlement == Settlement::Expired),
        ReasonCode::ExpiredReleased | ReasonCode::ExpiredWatching | ReasonCode::ExpiredEstimated => {
            assert!(searched && deadline_reached, "invariant 4: at the deadline, fenced: {release:?}");
            assert_eq!(by, Some(ResolvedAs::Expiry));
        }
        ReasonCode::OperatorDecision => {
            assert!(searched || was.lifecycle.is_terminal(), "invariant 4: fenced or ended");
            assert_eq!(by, Some(ResolvedAs::Operator));
        }
        other => panic!("invariant 4: released for {other:?}"),
    }
}

/// Invariants 3 and 9: nothing goes back, and the first end stands.
pub(crate) fn check_progress(before: &World, after: &World) {
    let Some(was) = before.aggregate.live() else { return };
    let is = after.live();
    assert!(is.attempt.epoch() >= was.attempt.epoch() && is.version >= was.version, "invariant 9");
    assert!(after.log.length >= before.log.length, "invariant 9");
    assert!(is.connection.furthest_offset >= was.connection.furthest_offset, "invariant 9");
    assert!(is.extended >= was.extended && is.reduced >= was.reduced);
    assert_eq!((&is.identity, &is.terms), (&was.identity, &was.terms));
    for (earlier, later) in was.attempts().zip(is.attempts()) {
        assert_eq!((&earlier.id, earlier.first_epoch), (&later.id, later.first_epoch), "attempts only grow");
        assert!(earlier.submitted_at.is_none() || later.submitted_at == earlier.submitted_at, "invariant 12");
        assert!(earlier.abort.is_none() || later.abort == earlier.abort, "the first cause stands");
    }
    if let (Some(first), Some(now)) = (was.cancellation, is.cancellation) {
        assert_eq!(first.requested_at, now.requested_at, "the first cancel stands");
        assert!(first.outcome.is_none() || first.outcome == now.outcome, "and what came of it");
    } else {
        assert!(was.cancellation.is_none());
    }
    assert!(was.resolution.is_none() || was.resolution == is.resolution, "invariant 3");
    if was.lifecycle.is_terminal() {
        let first = |live: &Reservation| (live.reason, live.ended_at, live.head.clone(), live.lost_from);
        assert_eq!(first(is), first(was), "invariant 3");
        let compensated = is.lifecycle == Lifecycle::Compensated;
        assert!(is.lifecycle == was.lifecycle || compensated, "invariant 3");
        assert!(is.content_deleted || !was.content_deleted);
    }
}
