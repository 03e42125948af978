//! What is charged, to the micro-USD. One input token costs one, one output token two; the hold is 2,100.

use super::world::*;
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode};
use holdfast_core::meter::EndClass;
use holdfast_core::money::Micros;
use holdfast_core::policy::{Owner, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reservation::{Conclusion, IN_FLIGHT_TOKENS, SourceEnd, UpstreamEnd};
use holdfast_core::usage::Metered;

fn conclude(terms: &Terms, end: &UpstreamEnd) -> Conclusion {
    World::processing(terms).live().conclude(end, START).unwrap()
}

fn amounts(postings: &[Posting]) -> Vec<(PostingKind, u64)> {
    postings.iter().map(|posting| (posting.kind, posting.amount.get())).collect()
}

/// A stream that was cut after so many content bytes.
fn cut(content_bytes: u64) -> UpstreamEnd {
    UpstreamEnd { content_bytes, ..ended(SourceEnd::Body(EndClass::CutInsideEvent)) }
}

/// Design 4, "Usage rules": exact usage may refund below the hold; above it, the hold is settled and an overage added.
#[test]
fn exact_usage_below_at_and_above_the_hold() {
    use PostingKind::{Overage, Settle};
    for (input, output, expected) in [
        (0, 1, vec![(Settle, 2)]),
        (10, 20, vec![(Settle, 50)]),
        (99, 1_000, vec![(Settle, HOLD - 1)]),
        (100, 1_000, vec![(Settle, HOLD)]),
        (101, 1_000, vec![(Settle, HOLD), (Overage, 1)]),
        (500, 5_000, vec![(Settle, HOLD), (Overage, 8_400)]),
    ] {
        let conclusion = conclude(&terms(), &complete(input, output));
        assert_eq!(amounts(&conclusion.postings), expected, "{input} in, {output} out");
        let total: u64 = expected.iter().map(|(_, amount)| amount).sum();
        assert_eq!(conclusion.cost.get(), total, "the cost is all that is charged");
        assert!(conclusion.postings.iter().all(|posting| posting.usage == conclusion.usage));
        assert_eq!(conclusion.ended.reason, ReasonCode::CompletedExact);
    }
}

/// The estimate: input bound, content bytes, what may be in flight and what may be lost with the driver; never more than
/// the output bound, so never above the hold.
#[test]
fn estimates_below_at_and_above_the_output_bound() {
    let margin = IN_FLIGHT_TOKENS;
    for (content, unseen, tokens) in [
        (0, 0, margin),
        (1, 0, margin + 1),
        (300, 200, margin + 500),
        (1_000 - margin - 1, 0, 999),
        (1_000 - margin, 0, 1_000),
        (1_000 - margin + 1, 0, 1_000),
        (0, 16_384, 1_000),
        (u64::MAX, u64::MAX, 1_000),
    ] {
        let end = UpstreamEnd { unseen_bytes_max: unseen, ..cut(content) };
        let conclusion = conclude(&terms(), &end);
        assert_eq!(conclusion.usage, Some(Metered::AtLeast(usage(100, tokens))), "{content} + {unseen}");
        assert_eq!(amounts(&conclusion.postings), [(PostingKind::Settle, 100 + 2 * tokens)]);
    }
}

/// A hold that was made smaller than its bounds still caps an estimate.
#[test]
fn an_estimate_is_never_above_the_hold() {
    for hold in [0, 1, 631, 632, 633] {
        let conclusion = conclude(&Terms { hold: micros(hold), ..terms() }, &cut(10));
        assert_eq!(amounts(&conclusion.postings), [(PostingKind::Settle, hold.min(632))]);
        assert_eq!(conclusion.cost, micros(hold.min(632)));
    }
}

/// An upper bound is not below what the provider itself has counted so far, hidden tokens included.
#[test]
fn an_estimate_is_not_below_what_the_provider_reported() {
    for (content, reported, tokens) in [(5, 300, 300 + 256), (400, 300, 400 + 256), (5, 5_000, 1_000)] {
        let end = UpstreamEnd { usage: Some(usage(10, reported)), ..cut(content) };
        assert_eq!(conclude(&terms(), &end).usage, Some(Metered::AtLeast(usage(100, tokens))), "{content} {reported}");
    }
}

/// Output that is billed and not streamed: no bound can be seen, so the whole hold is taken. Exact usage still refunds.
#[test]
fn hidden_output_without_exact_usage_takes_the_whole_hold() {
    let terms = Terms { price: ModelPrice { hidden_output: true, ..terms().price }, ..terms() };
    assert_eq!(amounts(&conclude(&terms, &cut(0)).postings), [(PostingKind::Settle, HOLD)]);
    assert_eq!(amounts(&conclude(&terms, &ended(SourceEnd::Lost)).postings), [(PostingKind::Settle, HOLD)]);
    assert_eq!(amounts(&conclude(&terms, &complete(10, 20)).postings), [(PostingKind::Settle, 50)]);
}

/// What a provider has produced before it answers in one piece cannot be seen: the whole output bound.
#[test]
fn an_answer_in_one_piece_is_estimated_at_its_output_bound() {
    let terms = Terms { streaming: false, input_bound_tokens: 40, ..terms() };
    for end in [cut(3), ended(SourceEnd::Lost), ended(SourceEnd::NoResponse { provably_unsent: false })] {
        assert_eq!(conclude(&terms, &end).usage, Some(Metered::AtLeast(usage(40, 1_000))));
    }
    assert_eq!(conclude(&terms, &complete(10, 20)).cost, micros(50));
}

/// A completion whose usage is missing settles by the estimate, and says so.
#[test]
fn completion_without_usage_is_an_estimate() {
    let end = UpstreamEnd { usage: None, content_bytes: 10, ..complete(0, 0) };
    let conclusion = conclude(&terms(), &end);
    assert_eq!(conclusion.ended.reason, ReasonCode::CompletedWithoutUsage);
    assert_eq!(conclusion.usage, Some(Metered::AtLeast(usage(100, 266))));
}

/// Usage in mid-stream is a placeholder: it refunds nothing. Behind the finish reason it is the provider's last word.
#[test]
fn only_terminal_usage_refunds() {
    let placeholder = UpstreamEnd { usage: Some(usage(10, 1)), ..cut(700) };
    assert!(!conclude(&terms(), &placeholder).usage.unwrap().is_exact());
    let last_word = UpstreamEnd { finish_reason: Some("stop".into()), ..placeholder };
    assert_eq!(conclude(&terms(), &last_word).cost, micros(12));
}

/// An end is never refused for what a provider counts: a generation whose end is refused for ever would never settle
/// (invariant 7). Counts beyond any price are no evidence; the whole bound is taken.
#[test]
fn usage_beyond_any_price_settles_the_bound() {
    let dear = ModelPrice { output_micros_per_million: 1_000_000_000, ..terms().price };
    let terms = Terms { price: dear, hold: micros(1_000_100), ..terms() };
    for absurd in [usage(1, u64::MAX), usage(u64::MAX, 1)] {
        let mut world = World::processing(&terms);
        assert_eq!(world.say(&end(1, UpstreamEnd { usage: Some(absurd), ..complete(1, 1) })), "done>completed+close");
        assert_eq!(world.live().reason, Some(ReasonCode::CompletedWithoutUsage));
        assert_eq!(world.live().usage, Some(Metered::AtLeast(usage(100, 1_000))));
        assert_eq!(amounts(&world.postings), [(PostingKind::Settle, 1_000_100)]);
    }
}

/// Fractions are rounded up once, over input and output together.
#[test]
fn a_cost_is_rounded_up_once() {
    let price = ModelPrice { input_micros_per_million: 300_000, output_micros_per_million: 600_000, ..terms().price };
    let terms = Terms { price, ..terms() };
    for (input, output, cost) in [(1, 1, 1), (2, 1, 2), (0, 5, 3), (1, 5, 4)] {
        assert_eq!(conclude(&terms, &complete(input, output)).cost, micros(cost), "{input} in, {output} out");
    }
}

/// A release returns the whole hold and charges nothing (design 4, "Failures by phase").
#[test]
fn a_release_returns_the_whole_hold() {
    let refused = |status| UpstreamEnd { head: Some(head(status)), ..ended(SourceEnd::Body(EndClass::Complete)) };
    let failed = UpstreamEnd { error_envelope: true, ..refused(500) };
    for end in [refused(400), refused(429), failed, ended(SourceEnd::NoResponse { provably_unsent: true })] {
        let world = World::submitted(&terms());
        let conclusion = world.live().conclude(&end, START).unwrap();
        assert_eq!(amounts(&conclusion.postings), [(PostingKind::Release, HOLD)], "{end:?}");
        assert_eq!((conclusion.cost, conclusion.usage), (Micros::ZERO, None));
    }
    for source in [SourceEnd::Lost, SourceEnd::Aborted] {
        let conclusion = World::prepared(&terms()).live().conclude(&ended(source), START).unwrap();
        assert_eq!(amounts(&conclusion.postings), [(PostingKind::Release, HOLD)], "never submitted: {source:?}");
    }
}

/// A driver at the edge reads on while its appends are on their way, or while nobody takes them: what the log has is no
/// bound of what the provider has produced. One in the object loses a batch at most.
#[test]
fn a_lost_driver_at_the_edge_costs_the_whole_bound() {
    for (owner, charged) in [(Owner::Object, 100 + 2 * (300 + IN_FLIGHT_TOKENS)), (Owner::Edge, HOLD)] {
        let end = UpstreamEnd { content_bytes: 300, ..ended(SourceEnd::Lost) };
        let conclusion = conclude(&Terms { owner, ..terms() }, &end);
        assert_eq!(amounts(&conclusion.postings), [(PostingKind::Settle, charged)], "{owner:?}");
    }
}
