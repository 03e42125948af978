//! What can happen, and when: the steps of a history, and the terms it runs under.

use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::finding::Source;
use holdfast_core::ledger::Direction;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnDisconnect, OnExpiry, OnInterruption, Owner, SlotOnExpiry, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{CancelAnswer, Operation, Report, SourceEnd, UpstreamEnd};
use holdfast_core::usage::Usage;
use proptest::prelude::*;

/// A write names the epoch that owns, the one before, or the one after.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Which {
    Owning,
    Older,
    Newer,
}

/// Whom a signal is about.
#[derive(Clone, Copy, Debug)]
pub(crate) enum About {
    /// The epoch that owns.
    Owning,
    /// The one before.
    Older,
    /// The first one.
    First,
    /// The operation of the attempt at that place.
    Operation(usize),
    /// Nobody we know.
    Nobody,
}

#[derive(Clone, Debug)]
pub(crate) enum Step {
    Start,
    Submit(Which),
    Respond(Which),
    Identify(Which),
    Append(Which, u64),
    Readers(u32, u64),
    Cancel,
    CancelAnswered(Which, CancelAnswer),
    /// With the name of the operation, or without.
    End(Which, Box<UpstreamEnd>, bool),
    Reconcile(Which, Box<UpstreamEnd>),
    /// Source, subject, report; and the number of its event, if it has one.
    Signal(Source, About, Report, Option<u8>),
    LookUpFailed(Which, Option<u64>),
    Resumed(Which),
    /// For good or for now, with the provider's wish for the next try.
    ResumeFailed(Which, bool, Option<u64>),
    /// So many epochs ahead; under the id that belongs to it, or another one.
    HoldExtended(u32, bool),
    ExtensionRefused(u32),
    /// The number of the action, and whether the operator looked at the state of now.
    Operate(u8, Operation, bool),
    Wake(bool),
    Resolve,
    Acknowledge(prop::sample::Index),
    Undelivered(prop::sample::Index),
    RefusedPosting(prop::sample::Index),
    /// The word about the place of now, or of so many changes ago, is answered: it failed, was refused, or taken.
    PlaceAnswered(u32, Option<bool>),
    /// An earlier command comes again, at any distance.
    Again(prop::sample::Index),
    Wait(u64),
    /// Waits for the next wake-up: it comes early, in time or late. Then it comes, and its effects are performed.
    Alarm {
        early_ms: u64,
        late_ms: u64,
        driver_alive: bool,
    },
    ClockBack(u64),
}

fn which() -> impl Strategy<Value = Which> {
    prop_oneof![8 => Just(Which::Owning), 2 => Just(Which::Older), 1 => Just(Which::Newer)]
}

fn counted() -> impl Strategy<Value = Usage> {
    // The last is beyond any price.
    let tokens = prop::sample::select(vec![0_u64, 1, 40, 100, 1_000, 1_001, 9_000, 1 << 60]);
    (tokens.clone(), tokens, 0_u64..3, 0_u64..3, 0_u64..3).prop_map(|(input, output, cached, written, reasoning)| {
        Usage {
            cached_input_tokens: input / 4 * cached,
            cache_write_tokens: input / 4 * written,
            reasoning_tokens: output / 2 * reasoning,
            ..usage(input, output)
        }
    })
}

fn upstream_end() -> impl Strategy<Value = UpstreamEnd> {
    let source = prop_oneof![
        4 => Just(SourceEnd::Body(EndClass::Complete)),
        1 => Just(SourceEnd::Body(EndClass::Incomplete)),
        1 => Just(SourceEnd::Body(EndClass::CutInsideEvent)),
        1 => Just(SourceEnd::Body(EndClass::InBandError)),
        1 => any::<bool>().prop_map(|provably_unsent| SourceEnd::NoResponse { provably_unsent }),
        1 => Just(SourceEnd::TooLarge),
        3 => Just(SourceEnd::Aborted),
        2 => Just(SourceEnd::Lost),
    ];
    let content = prop_oneof![1 => Just(0_u64), 3 => 0_u64..2_000];
    (source, prop::option::of(counted()), any::<bool>(), content, any::<bool>()).prop_map(
        |(source, usage, finished, content_bytes, cut_inside_event)| UpstreamEnd {
            usage,
            finish_reason: finished.then(|| "stop".into()),
            content_bytes,
            unseen_bytes_max: content_bytes / 3,
            cut_inside_event,
            ..ended(source)
        },
    )
}

/// What a stored log says: mostly that the provider's bytes stop somewhere.
fn stored_end() -> impl Strategy<Value = UpstreamEnd> {
    (upstream_end(), 0_u8..8).prop_map(|(end, kind)| match kind {
        0 => UpstreamEnd { source: SourceEnd::Body(EndClass::Complete), ..end },
        1 => UpstreamEnd { source: SourceEnd::Body(EndClass::InBandError), ..end },
        2 => UpstreamEnd { source: SourceEnd::Lost, ..end },
        _ => UpstreamEnd { source: SourceEnd::Lost, usage: None, finish_reason: None, ..end },
    })
}

fn report() -> impl Strategy<Value = Report> {
    let outcome = prop::sample::select(vec![
        Outcome::Completed,
        Outcome::Completed,
        Outcome::Incomplete,
        Outcome::Failed,
        Outcome::Cancelled,
    ]);
    prop_oneof![
        2 => Just(Report::Processing),
        1 => Just(Report::Unknown),
        5 => (outcome, prop::option::of(counted())).prop_map(|(outcome, usage)| ended_as(outcome, usage)),
    ]
}

fn signal() -> impl Strategy<Value = Step> {
    let source = prop::sample::select(vec![
        Source::Lookup,
        Source::Lookup,
        Source::Callback,
        Source::Callback,
        Source::Stream,
        Source::Operator,
        Source::OwnCount,
    ]);
    let about = prop_oneof![
        4 => Just(About::Owning),
        1 => Just(About::Older),
        2 => Just(About::First),
        3 => (0_usize..3).prop_map(About::Operation),
        1 => Just(About::Nobody),
    ];
    (source, about, report(), prop::option::of(0_u8..6))
        .prop_map(|(source, about, report, event)| Step::Signal(source, about, report, event))
}

fn answer() -> impl Strategy<Value = CancelAnswer> {
    prop_oneof![
        Just(CancelAnswer::Accepted),
        Just(CancelAnswer::TooLate),
        Just(CancelAnswer::Refused),
        prop::option::of(prop::sample::select(vec![0_u64, 5_000, u64::MAX]))
            .prop_map(|retry_after_ms| CancelAnswer::Failed { retry_after_ms }),
        prop::option::of(counted()).prop_map(|usage| CancelAnswer::Confirmed { usage }),
    ]
}

fn operation() -> impl Strategy<Value = Operation> {
    let direction = prop::sample::select(vec![Direction::Charge, Direction::Refund]);
    prop_oneof![
        Just(Operation::Release),
        counted().prop_map(|usage| Operation::Finalize { usage }),
        (0_u64..200_000).prop_map(|ms| Operation::Defer { until: START.plus(ms) }),
        Just(Operation::Retry),
        Just(Operation::Quarantine),
        Just(Operation::Escalate),
        counted().prop_map(|usage| Operation::Correct { usage }),
        (prop::sample::select(vec![0_u64, 1, 5_000]), direction)
            .prop_map(|(amount, direction)| Operation::Compensate { amount: micros(amount), direction }),
    ]
}

pub(crate) fn step() -> impl Strategy<Value = Step> {
    let index = any::<prop::sample::Index>;
    let wait = prop::sample::select(vec![1_u64, 300, 700, 999, 2_000, 3_000, 5_000, 9_000, 20_000, 60_000]);
    let driven = prop_oneof![
        4 => Just(Step::Start),
        5 => which().prop_map(Step::Submit),
        5 => which().prop_map(Step::Respond),
        4 => which().prop_map(Step::Identify),
        6 => (which(), prop::sample::select(vec![0_u64, 0, 1, 500])).prop_map(|(which, n)| Step::Append(which, n)),
        6 => (0_u32..3, 0_u64..100).prop_map(|(attached, offset)| Step::Readers(attached, offset)),
        2 => Just(Step::Cancel),
        2 => (which(), upstream_end(), any::<bool>())
            .prop_map(|(which, end, named)| Step::End(which, Box::new(end), named)),
        4 => any::<bool>().prop_map(Step::Wake),
        1 => Just(Step::Resolve),
    ];
    let open = prop_oneof![
        3 => (which(), answer()).prop_map(|(which, answer)| Step::CancelAnswered(which, answer)),
        6 => (which(), stored_end()).prop_map(|(which, end)| Step::Reconcile(which, Box::new(end))),
        8 => signal(),
        2 => (which(), prop::option::of(0_u64..90_000)).prop_map(|(which, ms)| Step::LookUpFailed(which, ms)),
        4 => which().prop_map(Step::Resumed),
        2 => (which(), any::<bool>(), prop::option::of(0_u64..90_000))
            .prop_map(|(which, refused, ms)| Step::ResumeFailed(which, refused, ms)),
        4 => (0_u32..3, any::<bool>()).prop_map(|(ahead, own)| Step::HoldExtended(ahead, own)),
        1 => (0_u32..3).prop_map(Step::ExtensionRefused),
        3 => (0_u8..40, operation(), any::<bool>()).prop_map(|(id, what, seen)| Step::Operate(id, what, seen)),
    ];
    let around = prop_oneof![
        2 => index().prop_map(Step::Acknowledge),
        2 => index().prop_map(Step::Undelivered),
        1 => index().prop_map(Step::RefusedPosting),
        3 => (0_u32..2, any::<Option<bool>>()).prop_map(|(ago, given)| Step::PlaceAnswered(ago, given)),
        4 => index().prop_map(Step::Again),
        6 => wait.prop_map(Step::Wait),
        7 => (0_u64..2, prop::sample::select(vec![0_u64, 0, 1, 60_000]), any::<bool>())
            .prop_map(|(early_ms, late_ms, driver_alive)| Step::Alarm { early_ms, late_ms, driver_alive }),
        1 => (1_u64..5_000).prop_map(Step::ClockBack),
    ];
    prop_oneof![5 => driven, 4 => open, 4 => around]
}

fn capabilities() -> impl Strategy<Value = Capabilities> {
    let any = any::<[bool; 5]>().prop_map(|[cancel, status, resume, callback, idempotency_key]| Capabilities {
        cancel,
        status,
        resume,
        callback,
        idempotency_key,
    });
    prop_oneof![1 => Just(Capabilities::default()), 2 => any]
}

/// Plain, or with a price of its own for each tier, which leaves fractions.
fn price() -> impl Strategy<Value = ModelPrice> {
    let tiered = ModelPrice {
        input_micros_per_million: 1_100_001,
        output_micros_per_million: 2_000_003,
        cached_input_micros_per_million: Some(110_007),
        cache_write_micros_per_million: Some(1_375_009),
        reasoning_micros_per_million: Some(2_500_001),
        ..terms().price
    };
    let listed = prop::sample::select(vec![terms().price, tiered]);
    (listed, any::<bool>()).prop_map(|(price, hidden_output)| ModelPrice { hidden_output, ..price })
}

prop_compose! {
    fn driven_terms()(
        edge in any::<bool>(),
        cancel in any::<bool>(),
        grace_ms in prop::sample::select(vec![0_u64, 700]),
        keep_partial in any::<bool>(),
        lease_ms in prop::sample::select(vec![900_u64, 2_500, 9_000]),
        retention_s in prop::sample::select(vec![0_u64, 60]),
        hold in prop::sample::select(vec![HOLD, 500, 0]),
        streaming in any::<bool>(),
        price in price(),
    ) -> Terms {
        Terms {
            owner: if edge { Owner::Edge } else { Owner::Object },
            on_disconnect: if cancel { OnDisconnect::Cancel } else { OnDisconnect::Detach },
            grace_ms,
            keep_partial,
            lease_ms,
            retention_s,
            hold: micros(hold),
            streaming,
            price,
            ..terms()
        }
    }
}

prop_compose! {
    pub(crate) fn any_terms()(
        driven in driven_terms(),
        capabilities in capabilities(),
        observation_ms in prop::sample::select(vec![0_u64, 5_000, 20_000]),
        on_expiry in prop::sample::select(vec![
            None,
            Some(OnExpiry::Quarantine),
            Some(OnExpiry::ReduceHold),
            Some(OnExpiry::ExpireAndWatch),
            Some(OnExpiry::Escalate),
            Some(OnExpiry::Release),
            Some(OnExpiry::SettleEstimate),
        ]),
        frees_slot in any::<bool>(),
        on_interruption in prop::sample::select(vec![
            OnInterruption::Fail,
            OnInterruption::Retry,
            OnInterruption::Retry,
            OnInterruption::Quarantine,
        ]),
        escalate_above in prop::sample::select(vec![None, None, Some(0_u64), Some(500), Some(HOLD)]),
        watch_ms in prop::sample::select(vec![0_u64, 30_000]),
    ) -> Terms {
        Terms {
            capabilities,
            observation_ms,
            on_expiry,
            slot_on_expiry: if frees_slot { SlotOnExpiry::Release } else { SlotOnExpiry::Quarantine },
            on_interruption,
            escalate_above: escalate_above.map(micros),
            watch_ms,
            ..driven
        }
    }
}
