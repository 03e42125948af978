//! Invoice lines summed, and what the pages of the books let through.

use super::billing::exact_usage;
use super::postings::{exact, refund, version};
use super::world::{START, World, identity, micros, request};
use super::{released, settled, world};
use holdfast_core::ledger::{
    ChargedAs, GROUPS_MAX, GroupBy, InvoiceLine, Posting, PostingKind, ReasonCode, SumError, UsageGroup, UsageSums,
};
use holdfast_core::money::{Micros, MoneyError, SignedMicros};
use holdfast_core::tenant::HoldState;
use holdfast_core::usage::Metered;
use holdfast_core::view::{GenerationSummary, InvoiceLineView, LedgerEntryView};
use holdfast_core::wire::{BooksCall, GenerationFilter, HoldName, LedgerFilter, RecordsOf, Span};

const DAY_MS: u64 = 86_400_000;

/// Four generations, settled in each way, over two days.
fn billed() -> World {
    let mut world = world();
    for n in 1..=4 {
        world.admit(&request(n, 20), START).unwrap();
    }
    let bound = Metered::AtLeast(*exact_usage(20, 10).usage());
    let correction = Posting {
        refers_to: Some(super::world::id_of(3, PostingKind::Settle, 1)),
        ..refund(version(3, 2, exact(3, PostingKind::Correction, 12)))
    };
    let late = Posting {
        refers_to: Some(super::world::id_of(4, PostingKind::Release, 1)),
        ..exact(4, PostingKind::LateSettlement, 5)
    };
    for (posting, days) in [
        (Posting { usage: Some(exact_usage(10, 15)), ..settled(1, 25) }, 0),
        (settled(2, 30), 0),
        (exact(2, PostingKind::Overage, 7), 0),
        (Posting { usage: Some(bound), ..settled(3, 30) }, 0),
        (released(4, 30, ReasonCode::ExpiredWatching), 0),
        (correction, 1),
        (late, 1),
    ] {
        assert_eq!(world.settle(&posting, START.plus(days * DAY_MS)), Ok(true), "{posting:?}");
    }
    world
}

fn sums<'a>(lines: impl IntoIterator<Item = &'a InvoiceLine>, by: GroupBy) -> Vec<UsageGroup> {
    let mut sums = UsageSums::default();
    lines.into_iter().for_each(|line| sums.add(line, by).unwrap());
    sums.into_groups()
}

const DISPOSITION: GroupBy = GroupBy { route: false, model: false, day: false, disposition: true };
const ALL: GroupBy = GroupBy { route: true, model: true, day: true, disposition: true };

#[test]
fn lines_are_summed_by_what_they_are_charged_as() {
    let world = billed();
    let told: Vec<_> = sums(world.lines.values(), DISPOSITION)
        .into_iter()
        .map(|group| {
            let (charged, refunded) = (group.charged_micros.get(), group.refunded_micros.get());
            (group.disposition.unwrap(), group.lines, charged, refunded, group.estimated_micros.get())
        })
        .collect();
    use ChargedAs as C;
    let expected = [
        (C::Exact, 2, 55, 0, 0),
        (C::Estimated, 1, 30, 0, 30),
        (C::Overage, 1, 7, 0, 0),
        (C::Late, 1, 5, 0, 0),
        (C::Corrected, 1, 0, 12, 0),
    ];
    assert_eq!(told, expected);
}

/// However they are grouped, and in however many parts they are summed, the lines of a tenant sum to what it spent.
#[test]
fn every_grouping_sums_to_what_was_spent() {
    let world = billed();
    for by in [GroupBy::default(), DISPOSITION, ALL] {
        let groups = sums(world.lines.values(), by);
        let total: i64 = groups.iter().map(|group| group.amount_micros.get()).sum();
        assert_eq!(total.unsigned_abs(), world.tenant.balances.spent.get());
        assert!(groups.iter().all(|group| group.price_version == "v1"));
        let mut parts = UsageSums::default();
        for line in world.lines.values() {
            let part = serde_json::to_string(&sums([line], by)).unwrap();
            parts.merge(serde_json::from_str(&part).unwrap()).unwrap();
        }
        assert_eq!(parts.into_groups(), groups);
    }
    let days: Vec<_> = sums(world.lines.values(), GroupBy { day: true, ..GroupBy::default() })
        .into_iter()
        .map(|group| group.day)
        .collect();
    assert_eq!(days, [Some("2026-11-30".into()), Some("2026-12-01".into())]);
}

#[test]
fn a_report_has_a_bound() {
    let world = billed();
    let line = world.lines.values().next().unwrap();
    let by = GroupBy { model: true, ..GroupBy::default() };
    let of_model = |model: String| sums([&InvoiceLine { model, ..line.clone() }], by);
    let mut report = UsageSums::default();
    for n in 0..GROUPS_MAX {
        report.merge(of_model(format!("m{n}"))).unwrap();
    }
    assert_eq!(report.merge(of_model("m1".into())), Ok(()));
    assert_eq!(report.merge(of_model("one more".into())), Err(SumError::TooManyGroups));
    let most = InvoiceLine { amount: SignedMicros::between(Micros::ZERO, Micros::MAX), ..line.clone() };
    let mut sums = UsageSums::default();
    assert_eq!((sums.add(&most, by), sums.add(&most, by)), (Ok(()), Err(MoneyError)));
}

#[test]
fn spans_are_open_at_absent_sides_and_at_their_end() {
    let span = |from: Option<u64>, until: Option<u64>| Span { from: from.map(at), until: until.map(at) };
    const fn at(ms: u64) -> holdfast_core::time::UnixMillis {
        holdfast_core::time::UnixMillis(ms)
    }
    for (span, has) in [
        (span(None, None), [true, true, true]),
        (span(Some(5), None), [false, true, true]),
        (span(None, Some(5)), [true, false, false]),
        (span(Some(5), Some(6)), [false, true, false]),
    ] {
        assert_eq!([4, 5, 6].map(|ms| span.has(at(ms))), has, "{span:?}");
    }
}

#[test]
fn filters_take_what_they_name() {
    let world = billed();
    let kind = LedgerFilter { kind: Some(PostingKind::Settle), ..LedgerFilter::default() };
    assert_eq!(world.entries.iter().filter(|entry| kind.takes(entry)).count(), 3);
    let second_day = Span { from: Some(START.plus(DAY_MS)), until: None };
    let later = LedgerFilter { span: second_day, ..LedgerFilter::default() };
    assert_eq!(world.entries.iter().filter(|entry| later.takes(entry)).count(), 2);

    let hold = &world.holds[&identity(4).reservation];
    let takes = |filter: GenerationFilter| filter.takes(hold);
    let none = GenerationFilter::default;
    assert!(takes(none()));
    for (good, bad) in [
        (
            GenerationFilter { state: Some(HoldState::Released), ..none() },
            GenerationFilter { state: Some(HoldState::Open), ..none() },
        ),
        (
            GenerationFilter { route: Some("r".into()), ..none() },
            GenerationFilter { route: Some("R".into()), ..none() },
        ),
        (
            GenerationFilter { model: Some("m".into()), ..none() },
            GenerationFilter { model: Some("m*".into()), ..none() },
        ),
        (
            GenerationFilter { span: Span { from: Some(START), until: None }, ..none() },
            GenerationFilter { span: Span { from: None, until: Some(START) }, ..none() },
        ),
    ] {
        assert!(takes(good.clone()) && !takes(bad.clone()), "{good:?} {bad:?}");
    }
}

/// The four things of seed 2 as the API shows them: amounts carry their unit, ids their kind.
#[test]
fn views_are_written_as_documented() {
    let world = billed();
    let entry = &world.entries[5];
    let shown = serde_json::to_value(LedgerEntryView::of(entry, &world.postings[&entry.posting_id])).unwrap();
    assert_eq!(shown["object"], "ledger_entry");
    assert_eq!((shown["seq"].as_u64(), shown["kind"].as_str()), (Some(6), Some("settle")));
    assert_eq!((shown["held_micros"].as_i64(), shown["spent_micros"].as_i64()), (Some(-30), Some(25)));
    assert_eq!(shown["after"]["spent_micros"], 25);
    let line = &world.lines[&entry.posting_id];
    let shown = serde_json::to_value(InvoiceLineView::of(6, line.clone())).unwrap();
    assert_eq!((shown["amount_micros"].as_i64(), shown["disposition"].as_str()), (Some(25), Some("exact")));
    let summary = GenerationSummary::from(&world.holds[&identity(3).reservation]);
    assert_eq!(
        (summary.state, summary.held_micros, summary.charged_micros),
        (HoldState::Settled, micros(0), micros(18))
    );
}

/// Edge and object of two versions talk during a deploy.
#[test]
fn bytes_of_questions_are_pinned() {
    for (call, bytes) in [
        (
            BooksCall::Ledger {
                filter: LedgerFilter {
                    kind: Some(PostingKind::Settle),
                    hold: Some(HoldName::Generation(identity(1).generation)),
                    span: Span { from: Some(START), until: None },
                },
                paging: holdfast_core::wire::Paging { after: Some(7), limit: 50 },
            },
            r#"{"ledger":{"filter":{"kind":"settle","hold":{"generation":"gen_01010101010101010101010101010101"},"span":{"from":1795996800000}},"paging":{"after":7,"limit":50}}}"#,
        ),
        (BooksCall::Records(RecordsOf::Line("res_1:1:settle:1".into())), r#"{"records":{"line":"res_1:1:settle:1"}}"#),
        (
            BooksCall::Sums { by: DISPOSITION, span: Span::default(), after: None, upto: Some(9) },
            r#"{"sums":{"by":{"route":false,"model":false,"day":false,"disposition":true},"span":{},"after":null,"upto":9}}"#,
        ),
        (BooksCall::Check { run: None }, r#"{"check":{"run":null}}"#),
    ] {
        assert_eq!(serde_json::to_string(&call).unwrap(), bytes);
        assert_eq!(serde_json::from_str::<BooksCall>(bytes).unwrap(), call);
    }
}
