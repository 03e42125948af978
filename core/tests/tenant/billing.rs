//! What is billed, at which price, and on which measured consumption it stands.

use super::postings::{exact, reduced, refers, refund, version};
use super::world::{START, identity, micros, request};
use super::{released, settled, world};
use holdfast_core::finding::Source;
use holdfast_core::ids::AttemptId;
use holdfast_core::ledger::{Observed, Posting, PostingKind, ReasonCode, UsageRecord};
use holdfast_core::policy::Terms;
use holdfast_core::pricing::{CostPart, ModelPrice, Tier};
use holdfast_core::tenant::HoldState;
use holdfast_core::usage::{Metered, Usage};

pub(crate) fn exact_usage(input: u64, output: u64) -> Metered {
    Metered::Exact(Usage { input_tokens: input, output_tokens: output, ..Usage::default() })
}

pub(crate) fn usage_record(n: u8, usage: Metered) -> UsageRecord {
    let mut world = world();
    let terms = world.admit(&request(n, 20), START).unwrap().terms;
    let observed =
        Observed { source: Source::Stream, version: 1, epoch: 1, usage, operation_id: Some("op".into()), at: START };
    UsageRecord::of(&identity(n), &terms, &AttemptId::from_random([n; 16]), observed)
}

/// Seed 2: "A reservation represents held capacity, credit, or budget. A usage event records measured consumption. An
/// invoice line expresses a billable amount. A ledger entry records a financial movement." One settlement, told four
/// times, and each in its own words.
#[test]
fn reservation_usage_record_invoice_line_and_ledger_entry_are_four_things() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    let usage = Usage { input_tokens: 15, output_tokens: 9, cached_input_tokens: 5, ..Usage::default() };
    let record = usage_record(1, Metered::Exact(usage));
    let sent = Posting {
        usage: Some(record.usage),
        usage_records: vec![record.clone()],
        price_version: Some("v1".into()),
        ..settled(1, 24)
    };
    let later = START.plus(5);
    assert_eq!(world.settle(&sent, later), Ok(true));

    let hold = &world.holds[&identity(1).reservation];
    assert_eq!((hold.state, hold.terms.hold, hold.charged), (HoldState::Settled, micros(30), micros(24)));

    assert_eq!(world.usage_records[&record.id], record);
    assert_eq!(record.id, "att_01010101010101010101010101010101:usage:stream:1");
    let Terms { provider, model, .. } = &hold.terms;
    assert_eq!((&record.provider, &record.model, record.usage.usage()), (provider, model, &usage));

    let line = &world.lines[&sent.id];
    let part = |tier, tokens| CostPart { tier, tokens, micros_per_million: 1_000_000, millionths: tokens * 1_000_000 };
    assert_eq!(line.parts, [part(Tier::Input, 10), part(Tier::CachedInput, 5), part(Tier::Output, 9)]);
    assert_eq!((line.rated, line.amount.get(), line.estimated), (Some(micros(24)), 24, false));
    assert_eq!((line.route.as_str(), line.price_version.as_str(), line.period.as_str()), ("r", "v1", "2026-11-30"));
    assert_eq!((&line.usage_records, line.recorded_at), (&vec![record.id], later));

    let entry = world.entries.last().unwrap();
    assert_eq!((entry.granted.get(), entry.held.get(), entry.spent.get()), (0, -30, 24));
    assert_eq!((entry.after, entry.seq, entry.recorded_at), (world.tenant.balances, 3, later));
}

/// What a line bills, and what the usage behind it is worth, are not always the same.
#[test]
fn an_invoice_line_says_what_is_billed_and_what_it_stands_on() {
    use PostingKind as K;
    let with = |usage, posting| Posting { usage: Some(usage), ..posting };
    let bound = Metered::AtLeast(*exact_usage(40, 20).usage());
    let correction = |posting| refers(K::Settle, version(1, 9, posting));
    for (case, settled_by, sent, rated, amount, estimated) in [
        ("whole", None, with(exact_usage(10, 15), settled(1, 25)), Some(25), 25, false),
        ("capped estimate", None, with(bound, settled(1, 30)), Some(60), 30, true),
        ("beyond any price", None, with(exact_usage(u64::MAX, 1), settled(1, 30)), None, 30, false),
        ("no usage", None, settled(1, 3), None, 3, false),
        ("part above", Some(30), with(exact_usage(20, 17), exact(1, K::Overage, 7)), Some(37), 7, false),
        (
            "back",
            Some(30),
            with(exact_usage(4, 4), refund(correction(exact(1, K::Correction, 22)))),
            Some(8),
            -22,
            false,
        ),
        ("gift", Some(30), refund(correction(exact(1, K::Compensation, 5))), None, -5, false),
        (
            "another price list",
            Some(30),
            Posting {
                price_version: Some("v2".into()),
                ..with(exact_usage(4, 4), correction(exact(1, K::Correction, 2)))
            },
            None,
            2,
            false,
        ),
    ] {
        let mut world = world();
        world.admit(&request(1, 20), START).unwrap();
        if let Some(amount) = settled_by {
            world.settle(&settled(1, amount), START).unwrap();
        }
        assert_eq!(world.settle(&sent, START), Ok(true), "{case}");
        let line = &world.lines[&sent.id];
        assert_eq!(
            (line.rated.map(|price| price.get()), line.amount.get(), line.estimated),
            (rated, amount, estimated)
        );
        assert_eq!(line.parts.is_empty(), rated.is_none(), "{case}");
        assert_eq!((line.kind, line.reason), (sent.kind, sent.reason), "{case}");
        assert_eq!(line.price_version, sent.price_version.as_deref().unwrap_or("v1"), "{case}");
    }
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    world.settle(&reduced(1, 5, true), START).unwrap();
    world.settle(&released(1, 25, ReasonCode::ExpiredReleased), START).unwrap();
    assert!(world.lines.is_empty(), "a hold is not billed, nor is its end without cost");
}

/// An observation that is told again, with a further posting, stands as it was told first.
#[test]
fn a_usage_record_is_kept_once() {
    let mut world = world();
    world.admit(&request(1, 20), START).unwrap();
    let first = usage_record(1, exact_usage(1, 2));
    let other = UsageRecord { usage: exact_usage(9, 9), ..first.clone() };
    let settle = Posting { usage_records: vec![first.clone()], ..settled(1, 3) };
    let overage = Posting { usage_records: vec![other], ..exact(1, PostingKind::Overage, 3) };
    assert_eq!(world.settle(&settle, START), Ok(true));
    assert_eq!(world.settle(&overage, START), Ok(true));
    assert_eq!(world.usage_records.values().collect::<Vec<_>>(), [&first]);
}

/// A hold must cover the dearest tier that a token may turn out to be of: a cache write can cost more than plain input.
#[test]
fn a_hold_covers_the_dearest_tier() {
    let mut world = world();
    let price: &mut ModelPrice = &mut world.providers[0].prices.models[1];
    price.cache_write_micros_per_million = Some(1_250_000);
    price.reasoning_micros_per_million = Some(3_000_000);
    let terms = world.admit(&request(1, 20), START).unwrap().terms;
    assert_eq!(terms.hold, micros(25 + 30));
    let dearest =
        Usage { input_tokens: 20, cache_write_tokens: 20, output_tokens: 10, reasoning_tokens: 10, ..Usage::default() };
    assert_eq!(terms.price.cost(&dearest), Ok(terms.hold));
}
