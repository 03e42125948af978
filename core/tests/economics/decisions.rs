//! The decision of policy `auto`.

use holdfast_core::economics::{
    Artifact, AutoDecision, AutoInputs, AutoRule, Choice, PerMille, ReAskRate, SAMPLES_MIN, UserTime, Workload,
};
use holdfast_core::money::Micros;
use holdfast_core::pricing::ModelPrice;
use proptest::prelude::*;

fn micros(n: u64) -> Micros {
    Micros::new(n).unwrap()
}

fn per_mille(n: u16) -> PerMille {
    PerMille::new(n).unwrap()
}

fn artifact(long: Option<bool>, has_home: Option<bool>, reproducible: Option<bool>) -> Artifact {
    Artifact { long, has_home, reproducible }
}

/// $3 per million input tokens and $15 per million output tokens.
fn price() -> ModelPrice {
    ModelPrice {
        model: "m".into(),
        input_micros_per_million: 3_000_000,
        output_micros_per_million: 15_000_000,
        cached_input_micros_per_million: None,
        cache_write_micros_per_million: None,
        reasoning_micros_per_million: None,
        hidden_output: false,
    }
}

fn inputs(input: u64, expected: u64, produced: u64, rate: u16) -> AutoInputs {
    AutoInputs {
        artifact: Artifact::default(),
        input_tokens: input,
        expected_output_tokens: expected,
        produced_output_tokens: produced,
        price: price(),
        measured: ReAskRate { rate_per_mille: per_mille(rate), samples: 50 },
        prior_per_mille: None,
        user_time: None,
    }
}

/// Seed 4, the evidence summary: left at 60 of 90 seconds, asked for again by 74 %.
fn evidence_summary() -> AutoInputs {
    inputs(12_000, 7_000, 7_000 * 60 / 90, 740)
}

/// Seed 4, the code assistant: left at token 60, asked for again by 8 %.
fn code_assistant() -> AutoInputs {
    inputs(800, 300, 60, 80)
}

fn outcome(decision: &AutoDecision) -> (Choice, AutoRule) {
    (decision.choice, decision.why)
}

/// An amount in thousandths of a dollar, to the nearest, as seed 4 writes it.
fn mills(amount: Option<Micros>) -> u64 {
    (amount.unwrap().get() + 500) / 1_000
}

/// Seed 4, "$0.036 + $0.105 = $0.141", "cancelling recovers about $0.035", "$0.104 spent generating it again": detach.
#[test]
fn evidence_summary_of_the_seed() {
    let run = evidence_summary();
    assert_eq!(run.cost_of_run(), Ok(micros(141_000)));
    let decision = run.decide();
    assert_eq!(outcome(&decision), (Choice::Detach, AutoRule::Measured));
    // Two thirds of 7,000 tokens are 4,666 whole ones, and 2,334 are to come.
    assert_eq!(decision.cost_to_finish, Some(micros(35_010)));
    assert_eq!(decision.cost_of_cancelling, Some(micros(104_340)));
    assert_eq!((mills(decision.cost_to_finish), mills(decision.cost_of_cancelling)), (35, 104));
    let one_token_on = AutoInputs { produced_output_tokens: 4_667, ..evidence_summary() }.decide();
    assert_eq!(one_token_on.cost_to_finish, Some(micros(34_995)));
    assert_eq!(mills(one_token_on.cost_to_finish), 35);
}

/// Seed 4, "one generation costing roughly $0.0069, and a disconnect at token 60 recovering about $0.0036": cancel.
#[test]
fn code_assistant_of_the_seed() {
    let run = code_assistant();
    assert_eq!(run.cost_of_run(), Ok(micros(6_900)));
    let decision = run.decide();
    assert_eq!(outcome(&decision), (Choice::Cancel, AutoRule::Measured));
    assert_eq!(decision.cost_to_finish, Some(micros(3_600)));
    assert_eq!(decision.cost_of_cancelling, Some(micros(552)));
}

/// Seed 4, "before counting the user's ten minutes": they count once per run that is asked for again.
#[test]
fn time_of_the_user_is_part_of_the_cost_of_cancelling() {
    let time = |minute_micros, lost_ms| Some(UserTime { minute_micros: micros(minute_micros), lost_ms });
    for (user_time, cost, choice) in [
        (None, 552, Choice::Cancel),
        (time(0, 600_000), 552, Choice::Cancel),
        (time(500_000, 0), 552, Choice::Cancel),
        // 8 % of ($0.0069 + 10 min × $0.50).
        (time(500_000, 600_000), 400_552, Choice::Detach),
        // 8 % of ($0.0069 + half a minute × $0.01), and of one millisecond more: rounded up once.
        (time(10_000, 30_000), 952, Choice::Cancel),
        (time(10_000, 30_001), 953, Choice::Cancel),
        // 8 % of $0.0450, the price of finishing, and of a micro more.
        (time(38_100, 60_000), 3_600, Choice::Cancel),
        (time(38_101, 60_000), 3_601, Choice::Detach),
    ] {
        let decision = AutoInputs { user_time, ..code_assistant() }.decide();
        assert_eq!((decision.cost_of_cancelling, decision.choice), (Some(micros(cost)), choice), "{user_time:?}");
    }
}

/// Seed 4, the three properties: "When all three hold, detach. When none holds, cancel. Mixed cases go to whichever of
/// the first and third dominates, and the second is the one that quietly kills detach implementations". The arithmetic
/// of each row says the opposite of the property, so that it shows which of the two decided.
#[test]
fn properties_come_before_the_arithmetic() {
    let (yes, no, open) = (Some(true), Some(false), None);
    for (long, has_home, reproducible, says_detach, expected) in [
        (yes, yes, no, false, (Choice::Detach, AutoRule::AllHold)),
        (no, no, yes, true, (Choice::Cancel, AutoRule::NoneHolds)),
        // No home kills detach, whatever else is so.
        (yes, no, no, true, (Choice::Cancel, AutoRule::NoHome)),
        (yes, no, yes, true, (Choice::Cancel, AutoRule::NoHome)),
        (no, no, no, true, (Choice::Cancel, AutoRule::NoHome)),
        (open, no, open, true, (Choice::Cancel, AutoRule::NoHome)),
        // The first and the third agree that it is cheap.
        (no, yes, yes, true, (Choice::Cancel, AutoRule::ShortAndReproducible)),
        (no, open, yes, true, (Choice::Cancel, AutoRule::ShortAndReproducible)),
        // They differ, or something is not known: the arithmetic.
        (yes, yes, yes, true, (Choice::Detach, AutoRule::Measured)),
        (yes, yes, yes, false, (Choice::Cancel, AutoRule::Measured)),
        (no, yes, no, true, (Choice::Detach, AutoRule::Measured)),
        (no, yes, no, false, (Choice::Cancel, AutoRule::Measured)),
        (yes, open, no, true, (Choice::Detach, AutoRule::Measured)),
        (yes, open, no, false, (Choice::Cancel, AutoRule::Measured)),
        (open, yes, no, false, (Choice::Cancel, AutoRule::Measured)),
        (yes, yes, open, false, (Choice::Cancel, AutoRule::Measured)),
        (open, open, open, true, (Choice::Detach, AutoRule::Measured)),
    ] {
        let run = if says_detach { evidence_summary() } else { code_assistant() };
        let artifact = artifact(long, has_home, reproducible);
        let decision = AutoInputs { artifact, ..run }.decide();
        assert_eq!(outcome(&decision), expected, "{artifact:?}");
        assert!(decision.cost_to_finish.is_some() && decision.cost_of_cancelling.is_some(), "costs are always told");
    }
}

/// Design 5: "Below 30 samples the route's prior decides, without one `cancel`".
#[test]
fn prior_decides_below_thirty_samples() {
    assert_eq!(SAMPLES_MIN, 30);
    let (high, low) = (Some(per_mille(740)), Some(per_mille(80)));
    for (samples, measured, prior, rate, expected) in [
        (29, 740, None, None, (Choice::Cancel, AutoRule::NoEstimate)),
        (30, 740, None, high, (Choice::Detach, AutoRule::Measured)),
        (29, 80, high, high, (Choice::Detach, AutoRule::Prior)),
        (30, 80, high, low, (Choice::Cancel, AutoRule::Measured)),
        (29, 740, low, low, (Choice::Cancel, AutoRule::Prior)),
        (30, 740, low, high, (Choice::Detach, AutoRule::Measured)),
        (0, 0, high, high, (Choice::Detach, AutoRule::Prior)),
        (0, 0, None, None, (Choice::Cancel, AutoRule::NoEstimate)),
    ] {
        let measured = ReAskRate { rate_per_mille: per_mille(measured), samples };
        let decision = AutoInputs { measured, prior_per_mille: prior, ..evidence_summary() }.decide();
        assert_eq!(outcome(&decision), expected, "{measured:?}, {prior:?}");
        assert_eq!(decision.rate_per_mille, rate, "{measured:?}, {prior:?}");
        assert_eq!(decision.cost_of_cancelling.is_some(), rate.is_some());
    }
}

/// Design 5: "Detach when finishing is cheaper".
#[test]
fn equal_costs_cancel() {
    // 1,000 tokens at $15 per million are $0.0150 and half of them remain: even at 500 per mille.
    for (produced, rate, to_finish, of_cancelling, choice) in [
        (500, 500, 7_500, 7_500, Choice::Cancel),
        (501, 500, 7_485, 7_500, Choice::Detach),
        (499, 500, 7_515, 7_500, Choice::Cancel),
        (500, 501, 7_500, 7_515, Choice::Detach),
        (500, 499, 7_500, 7_485, Choice::Cancel),
        // Nothing left: finishing is free, and worth it if anybody ever comes back.
        (1_000, 1, 0, 15, Choice::Detach),
        (1_000, 0, 0, 0, Choice::Cancel),
        // Beyond the expectation: a run is as long as this one.
        (1_200, 1_000, 0, 18_000, Choice::Detach),
        // Nothing produced: certain return is as dear as the run itself.
        (0, 1_000, 15_000, 15_000, Choice::Cancel),
    ] {
        let decision = inputs(0, 1_000, produced, rate).decide();
        let costs = (decision.cost_to_finish.unwrap().get(), decision.cost_of_cancelling.unwrap().get());
        assert_eq!((costs, decision.choice), ((to_finish, of_cancelling), choice), "{produced} at {rate}");
    }
    let empty = inputs(0, 0, 0, 1_000).decide();
    assert_eq!((empty.choice, empty.cost_to_finish), (Choice::Cancel, Some(Micros::ZERO)));
}

#[test]
fn what_is_no_amount_cancels_and_says_so() {
    let all_hold = artifact(Some(true), Some(true), Some(false));
    let time = |minute_micros, lost_ms| Some(UserTime { minute_micros, lost_ms });
    let out_of_range = (Choice::Cancel, AutoRule::AmountOutOfRange);
    let too_much_output = AutoInputs { artifact: all_hold, ..inputs(0, u64::MAX, 0, 740) }.decide();
    assert_eq!(outcome(&too_much_output), out_of_range);
    assert_eq!((too_much_output.cost_to_finish, too_much_output.cost_of_cancelling), (None, None));
    let too_much_input = AutoInputs { artifact: all_hold, ..inputs(u64::MAX, 100, 0, 740) }.decide();
    assert_eq!(outcome(&too_much_input), out_of_range);
    assert_eq!((too_much_input.cost_to_finish, too_much_input.cost_of_cancelling), (Some(micros(1_500)), None));
    for user_time in [time(Micros::MAX, u64::MAX), time(Micros::MAX, 90_000)] {
        let decision = AutoInputs { user_time, ..evidence_summary() }.decide();
        assert_eq!(outcome(&decision), out_of_range);
        assert_eq!((decision.cost_to_finish, decision.cost_of_cancelling), (Some(micros(35_010)), None));
    }
    // The largest amount that can be written is still one: nobody comes back half of the time.
    let last = AutoInputs { user_time: time(Micros::MAX, 60_000), ..inputs(0, 1, 0, 500) }.decide();
    assert_eq!((last.choice, last.cost_of_cancelling), (Choice::Detach, Some(micros((1 << 52) + 7))));
    let no_home = artifact(None, Some(false), None);
    let first_rule = AutoInputs { artifact: no_home, ..inputs(0, u64::MAX, 0, 740) }.decide();
    assert_eq!(outcome(&first_rule), (Choice::Cancel, AutoRule::NoHome), "what cancels anyway needs no amount");
}

/// Design 5: "Every `auto` decision stores its inputs".
#[test]
fn stored_decision_tells_an_edit() {
    let decision = evidence_summary().decide();
    let stored = serde_json::to_string(&decision).unwrap();
    assert_eq!(
        stored,
        concat!(
            r#"{"rules_version":1,"choice":"detach","why":"measured","rate_per_mille":740,"cost_to_finish":35010,"#,
            r#""cost_of_cancelling":104340,"inputs":{"artifact":{},"input_tokens":12000,"expected_output_tokens":7000,"#,
            r#""produced_output_tokens":4666,"price":{"model":"m","input_micros_per_million":3000000,"#,
            r#""output_micros_per_million":15000000,"hidden_output":false},"#,
            r#""measured":{"rate_per_mille":740,"samples":50}}}"#
        )
    );
    let read: AutoDecision = serde_json::from_str(&stored).unwrap();
    assert_eq!(read, decision);
    assert!(read.is_reproduced());
    for (from, to) in [
        (r#""choice":"detach""#, r#""choice":"cancel""#),
        (r#""why":"measured""#, r#""why":"prior""#),
        (r#""rules_version":1"#, r#""rules_version":2"#),
        (r#""cost_to_finish":35010"#, r#""cost_to_finish":35009"#),
        (r#""input_tokens":12000"#, r#""input_tokens":12001"#),
        (r#""samples":50"#, r#""samples":29"#),
    ] {
        let edited: AutoDecision = serde_json::from_str(&stored.replacen(from, to, 1)).unwrap();
        assert!(edited != decision && !edited.is_reproduced(), "{to}");
    }
    assert!(serde_json::from_str::<AutoDecision>(&stored.replace("740", "1001")).is_err(), "no share above the whole");
}

/// Seed 4: seven seconds of a code assistant are watched, ninety seconds of a report are not. Seed 1: chat, batch and
/// agentic work differ.
#[test]
fn presets_of_workloads() {
    let described = artifact(None, Some(true), None);
    for (workload, expected_ms, long) in [
        (Workload::Chat, Some(7_000), Some(false)),
        (Workload::Chat, Some(29_999), Some(false)),
        (Workload::Chat, Some(30_000), Some(true)),
        (Workload::Chat, Some(90_000), Some(true)),
        (Workload::Chat, None, None),
        (Workload::Agentic, Some(29_999), Some(false)),
        (Workload::Agentic, Some(30_000), Some(true)),
        (Workload::Batch, Some(0), Some(true)),
        (Workload::Batch, None, None),
    ] {
        let artifact = described.or_expected(workload, expected_ms);
        assert_eq!(artifact, Artifact { long, ..described }, "{workload:?}, {expected_ms:?}");
        let said = Artifact { long: Some(false), ..described };
        assert_eq!(said.or_expected(workload, expected_ms), said, "what the route says stands");
    }
    for (workload, may_repeat, late_needs_review) in
        [(Workload::Chat, true, false), (Workload::Batch, true, false), (Workload::Agentic, false, true)]
    {
        assert_eq!((workload.may_repeat(), workload.late_needs_review()), (may_repeat, late_needs_review));
    }
    assert_eq!(serde_json::from_str::<Workload>(r#""agentic""#).unwrap(), Workload::Agentic);
    let report: Artifact = serde_json::from_str(r#"{"long":true,"has_home":true,"reproducible":false}"#).unwrap();
    assert!(report.all_hold() && !report.none_holds());
    assert!(!Artifact::default().all_hold() && !Artifact::default().none_holds(), "nothing is known");
}

fn any_inputs() -> impl Strategy<Value = AutoInputs> {
    let known = || proptest::option::of(any::<bool>());
    let tokens = || prop_oneof![0_u64..20_000, any::<u64>()];
    let share = || (0_u16..=1_000).prop_map(per_mille);
    let time =
        (0_u64..1 << 53, any::<u64>()).prop_map(|(value, lost_ms)| UserTime { minute_micros: micros(value), lost_ms });
    (
        (known(), known(), known()),
        (tokens(), tokens(), tokens()),
        (share(), 0_u32..60, proptest::option::of(share())),
        proptest::option::of(time),
    )
        .prop_map(|((long, has_home, reproducible), tokens, (rate, samples, prior_per_mille), user_time)| {
            AutoInputs {
                artifact: artifact(long, has_home, reproducible),
                input_tokens: tokens.0,
                expected_output_tokens: tokens.1,
                produced_output_tokens: tokens.2,
                price: price(),
                measured: ReAskRate { rate_per_mille: rate, samples },
                prior_per_mille,
                user_time,
            }
        })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is known, there is a decision, it can be made again, and it never detaches without a reason to.
    #[test]
    fn every_disconnect_has_a_reproducible_decision(inputs in any_inputs()) {
        let decision = inputs.clone().decide();
        prop_assert!(decision.is_reproduced());
        prop_assert_eq!(&decision.inputs, &inputs);
        let cheaper = decision.cost_to_finish.zip(decision.cost_of_cancelling).is_some_and(|(finish, cancel)| finish < cancel);
        match decision.choice {
            Choice::Detach => {
                prop_assert!(inputs.artifact.has_home != Some(false));
                prop_assert!(inputs.artifact.all_hold() || cheaper);
            }
            Choice::Cancel => {
                let weighed = matches!(decision.why, AutoRule::Measured | AutoRule::Prior);
                prop_assert!(!(weighed && cheaper) && decision.why != AutoRule::AllHold);
            }
        }
        let stored = serde_json::to_string(&decision).unwrap();
        prop_assert_eq!(serde_json::from_str::<AutoDecision>(&stored).unwrap(), decision);
    }

    /// A higher re-ask rate never turns detach into cancel.
    #[test]
    fn more_returns_never_cancel(inputs in any_inputs(), rates in (0_u16..=1_000, 0_u16..=1_000)) {
        let (low, high) = (rates.0.min(rates.1), rates.0.max(rates.1));
        let at = |rate| {
            let measured = ReAskRate { rate_per_mille: per_mille(rate), samples: 30 };
            AutoInputs { measured, ..inputs.clone() }.decide()
        };
        let (low, high) = (at(low), at(high));
        let in_range = high.why != AutoRule::AmountOutOfRange;
        prop_assert!(!in_range || low.choice == Choice::Cancel || high.choice == Choice::Detach);
    }
}
