//! Policy `auto`: what a disconnect is found to cost, what follows from it, and what an ended run tells about its route
//! (seed 4; design 5).

use super::world::*;
use holdfast_core::economics::{
    Artifact, AutoRule, AutoTerms, Choice, Departure, ExpectedFrom, PerMille, ReAskRate, UserTime,
};
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnDisconnect, OnInterruption, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reservation::{
    AbortCause, Assessment, Command, ConnectionState, Effect, IN_FLIGHT_TOKENS, Lifecycle, LogFacts, RunEnd, SourceEnd,
};
use holdfast_core::usage::Metered;
use holdfast_core::view::{GenerationView, LiveFacts};
use proptest::prelude::*;
use serde_json::json;

fn per_mille(n: u16) -> PerMille {
    PerMille::new(n).unwrap()
}

const NOTHING_KNOWN: Artifact = Artifact { long: None, has_home: None, reproducible: None };
const ALL_HOLD: Artifact = Artifact { long: Some(true), has_home: Some(true), reproducible: Some(false) };
const HOMELESS: Artifact = Artifact { long: Some(true), has_home: Some(false), reproducible: Some(false) };

fn auto_terms() -> AutoTerms {
    AutoTerms {
        artifact: NOTHING_KNOWN,
        measured: ReAskRate::default(),
        prior_per_mille: None,
        user_time: None,
        input_tokens: 100,
        expected_output_tokens: 1_000,
        expected_from: ExpectedFrom::OutputLimit,
    }
}

fn under(on_disconnect: OnDisconnect, auto: AutoTerms) -> Terms {
    Terms { on_disconnect, auto: Some(auto), ..terms() }
}

fn auto(auto: AutoTerms) -> Terms {
    under(OnDisconnect::Auto, auto)
}

/// A stream that has produced so many content bytes.
fn streaming(terms: &Terms, content_bytes: u64) -> World {
    let mut world = World::processing(terms);
    world.log.content_bytes = Some(content_bytes);
    world
}

fn assessment(world: &World) -> &Assessment {
    world.live().assessment.as_deref().expect("a disconnect")
}

/// $3 per million input tokens and $15 per million output tokens.
fn seed_price() -> ModelPrice {
    ModelPrice { input_micros_per_million: 3_000_000, output_micros_per_million: 15_000_000, ..terms().price }
}

/// Every rule of the table in `economics`, by a disconnect at 1,000 content bytes (250 tokens) of 1,000 tokens: 1,500
/// micro-USD finish it, a whole run costs 2,100.
#[test]
fn each_rule_decides_a_disconnect() {
    let short = |reproducible| Artifact { long: Some(false), has_home: None, reproducible: Some(reproducible) };
    let measured =
        |rate, samples| AutoTerms { measured: ReAskRate { rate_per_mille: per_mille(rate), samples }, ..auto_terms() };
    let of = |artifact| AutoTerms { artifact, ..measured(1_000, 500) };
    let prior = |rate| AutoTerms { prior_per_mille: Some(per_mille(rate)), ..auto_terms() };
    let minutes = |lost_ms| Some(UserTime { minute_micros: micros(1_000), lost_ms });
    let beyond_price = AutoTerms { input_tokens: u64::MAX, ..of(ALL_HOLD) };
    use AutoRule as R;
    use Choice::{Cancel, Detach};
    for (what, terms, why, choice) in [
        ("none holds", of(Artifact { has_home: Some(false), ..short(true) }), R::NoneHolds, Cancel),
        ("no home", of(HOMELESS), R::NoHome, Cancel),
        ("short and cheap", of(short(true)), R::ShortAndReproducible, Cancel),
        ("beyond any price", beyond_price, R::AmountOutOfRange, Cancel),
        ("all hold", AutoTerms { artifact: ALL_HOLD, ..auto_terms() }, R::AllHold, Detach),
        ("715 per mille of 2,100 is 1,502", measured(715, 30), R::Measured, Detach),
        ("714 per mille is 1,500, as much as finishing", measured(714, 30), R::Measured, Cancel),
        ("29 samples do not count", measured(1_000, 29), R::NoEstimate, Cancel),
        ("a prior", prior(715), R::Prior, Detach),
        ("a low prior", prior(714), R::Prior, Cancel),
        (
            "what is measured stands above the prior",
            AutoTerms { prior_per_mille: Some(per_mille(1_000)), ..measured(10, 30) },
            R::Measured,
            Cancel,
        ),
        (
            "half a minute for each user who asks again",
            AutoTerms { user_time: minutes(30_000), ..prior(578) },
            R::Prior,
            Detach,
        ),
        ("nothing is known", auto_terms(), R::NoEstimate, Cancel),
    ] {
        let mut world = streaming(&auto(terms), 1_000);
        let said = world.at(10).say(&readers(0));
        let (expected, lifecycle) = match choice {
            Cancel => ("stop>cancellation_requested+abort", Lifecycle::CancellationRequested),
            Detach => ("done>detached", Lifecycle::Detached),
        };
        assert_eq!((said.as_str(), world.lifecycle()), (expected, lifecycle), "{what}");
        let Assessment { at, epoch, applied, decision } = assessment(&world);
        assert_eq!((*at, *epoch, *applied), (world.now, 1, true), "{what}");
        assert_eq!((decision.why, decision.choice), (why, choice), "{what}");
        assert!(decision.is_reproduced(), "{what}: whoever has the row can decide again");
        assert_eq!(decision.inputs.produced_output_tokens, 250, "{what}");
    }
}

/// Seed 4: "Spending $0.104 to save $0.035". 12,000 in, 7,000 out, left at two thirds, 74 %.
#[test]
fn the_evidence_summary_of_the_seed_is_finished() {
    let terms = AutoTerms {
        prior_per_mille: Some(per_mille(740)),
        input_tokens: 12_000,
        expected_output_tokens: 7_000,
        ..auto_terms()
    };
    let mut world = streaming(&Terms { price: seed_price(), ..auto(terms) }, 4 * 4_667);
    assert_eq!(world.at(60).say(&readers(0)), "done>detached");
    let view = GenerationView::of(&world.aggregate, &world.log, &LiveFacts::default()).unwrap().auto.unwrap();
    assert_eq!(view.as_ref(), assessment(&world));
    let shown = serde_json::to_value(&view).unwrap();
    assert_eq!(
        (&shown["applied"], &shown["decision"]["choice"], &shown["decision"]["why"]),
        (&json!(true), &json!("detach"), &json!("prior"))
    );
    assert_eq!(shown["decision"]["cost_to_finish_micros"], 34_995, "$0.035");
    assert_eq!(shown["decision"]["cost_of_cancelling_micros"], 104_340, "$0.104");
    assert_eq!(shown["decision"]["rate_per_mille"], 740);
    let inputs = &shown["decision"]["inputs"];
    assert_eq!((&inputs["input_tokens"], &inputs["expected_output_tokens"]), (&json!(12_000), &json!(7_000)));
    assert_eq!(inputs["produced_output_tokens"], 4_667);
}

/// Seed 4: "a disconnect at token 60 recovering about $0.0036", asked for again "in about 8% of cases".
#[test]
fn the_code_assistant_of_the_seed_is_cancelled() {
    let terms = AutoTerms {
        prior_per_mille: Some(per_mille(80)),
        input_tokens: 800,
        expected_output_tokens: 300,
        ..auto_terms()
    };
    let mut world = streaming(&Terms { price: seed_price(), ..auto(terms) }, 4 * 60);
    assert_eq!(world.at(60).say(&readers(0)), "stop>cancellation_requested+abort");
    let decision = &assessment(&world).decision;
    assert_eq!((decision.choice, decision.why), (Choice::Cancel, AutoRule::Prior));
    assert_eq!(decision.cost_to_finish, Some(micros(3_600)), "$0.0036");
    assert_eq!(decision.cost_of_cancelling, Some(micros(552)), "8 % of $0.0069");
}

/// The history has a row for the disconnect and one for what was decided; the object's table has the inputs.
#[test]
fn a_decision_leaves_its_rows() {
    let finish = AutoTerms { artifact: ALL_HOLD, ..auto_terms() };
    let mut detached = streaming(&auto(finish), 400);
    let transition = detached.at(10).take(&readers(0)).unwrap();
    assert_eq!(detached.outcomes(), ["disconnected", "detach"]);
    assert_eq!(transition.assessments, [assessment(&detached).clone()]);

    let mut cancelled = streaming(&auto(auto_terms()), 400);
    let transition = cancelled.at(10).take(&readers(0)).unwrap();
    assert_eq!(cancelled.outcomes(), ["disconnected", "cancel", "abort_disconnect"]);
    assert_eq!(
        cancelled.history.iter().map(|row| row.command.as_str()).collect::<Vec<_>>(),
        ["readers", "auto", "readers"]
    );
    assert_eq!(transition.assessments.len(), 1);
    assert_eq!(transition.effects, [Effect::AbortUpstream { epoch: 1 }]);
    assert_eq!(cancelled.live().attempt.abort, Some(AbortCause::Disconnect));
}

/// The first assessment of a disconnect stands; a reader that comes back and leaves again makes another one.
#[test]
fn each_absence_is_decided_anew() {
    // 500 per mille of 2,100 is 1,050: finishing is cheaper from 476 tokens on.
    let terms = Terms { grace_ms: 500, ..auto(AutoTerms { prior_per_mille: Some(per_mille(500)), ..auto_terms() }) };
    let mut world = streaming(&terms, 4 * 475);
    assert_eq!(world.at(100).say(&readers(0)), "done>detached", "the grace time first");
    assert_eq!(assessment(&world).decision.choice, Choice::Cancel);
    assert_eq!(world.next_wake_ms(), Some(600), "the end of the grace time");

    world.log.content_bytes = Some(4 * 476);
    assert_eq!(world.say(&readers(0)), "done=", "the first one stands");
    assert_eq!(world.at(400).say(&readers(1)), "done>active");
    assert_eq!(world.at(700).say(&wake(true)), "done=", "its reader is back");

    assert_eq!(world.at(800).say(&readers(0)), "done>detached");
    assert_eq!(assessment(&world).decision.choice, Choice::Detach);
    assert_eq!(world.at(2_000).say(&wake(true)), "done=", "it goes on");
    assert_eq!(world.live().disconnects, 2);
    assert_eq!(world.outcomes(), ["disconnected", "cancel", "reconnected", "disconnected", "detach"]);
    assert_eq!(world.at(2_500).say(&end(1, complete(100, 900))), "done>completed+close");
}

#[test]
fn a_cancel_waits_for_the_grace_time() {
    let mut world = streaming(&Terms { grace_ms: 500, ..auto(auto_terms()) }, 40);
    world.at(100).take(&readers(0)).unwrap();
    assert_eq!(world.at(599).say(&wake(true)), "done=");
    assert_eq!(world.at(600).say(&wake(true)), "stop>cancellation_requested+abort");
    assert_eq!(world.live().attempt.abort, Some(AbortCause::Disconnect));
}

/// Of an answer that nobody can see yet, nothing counts as produced: finishing looks dear, which errs towards cancelling.
#[test]
fn what_is_not_seen_is_not_produced() {
    let mut world = World::processing(&auto(AutoTerms { prior_per_mille: Some(per_mille(900)), ..auto_terms() }));
    assert_eq!(world.say(&readers(0)), "stop>cancellation_requested+abort");
    assert_eq!(assessment(&world).decision.inputs.produced_output_tokens, 0);
}

/// Where nothing prices the absence, `auto` does what the rules do without an estimate.
#[test]
fn without_terms_it_cancels() {
    let mut world = World::processing(&Terms { on_disconnect: OnDisconnect::Auto, ..terms() });
    assert_eq!(world.say(&readers(0)), "stop>cancellation_requested+abort");
    assert_eq!(world.live().assessment, None);
    assert_eq!(world.outcomes(), ["disconnected", "abort_disconnect"]);
}

/// The fixed policies do what they say; what `auto` would have done is recorded beside it.
#[test]
fn fixed_policies_record_what_auto_would_have_done() {
    let finish = AutoTerms { artifact: ALL_HOLD, ..auto_terms() };
    let give_up = AutoTerms { artifact: HOMELESS, ..auto_terms() };
    for (policy, terms, said, choice) in [
        (OnDisconnect::Cancel, &finish, "stop>cancellation_requested+abort", Choice::Detach),
        (OnDisconnect::Cancel, &give_up, "stop>cancellation_requested+abort", Choice::Cancel),
        (OnDisconnect::Detach, &finish, "done>detached", Choice::Detach),
        (OnDisconnect::Detach, &give_up, "done>detached", Choice::Cancel),
    ] {
        let mut world = streaming(&under(policy, terms.clone()), 400);
        assert_eq!(world.say(&readers(0)), said);
        assert_eq!((assessment(&world).applied, assessment(&world).decision.choice), (false, choice));
        assert!(!world.history.iter().any(|row| row.command == "auto"), "nothing was decided by it");
    }
}

/// The readers of a lost driver are gone with it; nobody has priced that absence, and the one before says nothing of it.
#[test]
fn a_lost_driver_is_no_disconnect() {
    let mut world = streaming(&auto(AutoTerms { artifact: ALL_HOLD, ..auto_terms() }), 400);
    world.at(10).take(&readers(0)).unwrap();
    let first = assessment(&world).clone();
    world.at(20).take(&readers(1)).unwrap();
    assert_eq!(world.at(9_000).say(&wake(false)), "done>detached+evidence");
    assert_eq!((world.live().disconnects, assessment(&world)), (1, &first));
    assert_ne!(world.live().connection.disconnected_at, Some(first.at));
}

/// A further attempt that starts without readers goes on only where somebody priced their absence.
#[test]
fn a_further_attempt_that_nobody_waits_for() {
    let finish = AutoTerms { artifact: ALL_HOLD, ..auto_terms() };
    let terms = Terms { on_interruption: OnInterruption::Retry, grace_ms: 500, ..auto(finish) };
    let retried = |events: &[(u64, Command)]| {
        let mut world = streaming(&terms, 400);
        for (ms, command) in events {
            world.at(*ms).take(command).unwrap();
        }
        world.at(9_000).take(&wake(false)).unwrap();
        assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done+extend");
        world.take(&Command::HoldExtended { epoch: 3, attempt: attempt_id(2) }).unwrap();
        world.take(&Command::Submit { epoch: 3 }).unwrap();
        world.at(9_600).say(&wake(true))
    };
    assert_eq!(retried(&[(10, readers(0))]), "done=", "the same absence as before the loss");
    let lost_with_its_reader = "stop>cancellation_requested+abort";
    assert_eq!(retried(&[]), lost_with_its_reader);
    assert_eq!(retried(&[(10, readers(0)), (20, readers(1))]), lost_with_its_reader, "an earlier absence says nothing");
}

/// What stops a driver first stands, whatever a disconnect would decide.
#[test]
fn a_disconnect_behind_a_timeout_changes_no_cause() {
    let mut world = streaming(&auto(auto_terms()), 400);
    assert_eq!(world.at(3_000).say(&wake(true)), "stop+abort");
    assert_eq!(world.say(&readers(0)), "done>detached");
    assert_eq!(world.live().attempt.abort, Some(AbortCause::IdleTimeout));
}

fn ended_run(policy: OnDisconnect, choice: Choice, events: &[(u64, Command)]) -> RunEnd {
    let artifact = if choice == Choice::Detach { ALL_HOLD } else { HOMELESS };
    let terms = Terms { grace_ms: 500, ..under(policy, AutoTerms { artifact, ..auto_terms() }) };
    let mut world = streaming(&terms, 400);
    assert_eq!(world.live().run_end(), None, "it runs");
    for (ms, command) in events {
        world.at(*ms).take(command).unwrap();
    }
    world.live().run_end().expect("it has ended")
}

/// Who left, and whether anybody came back (design 5: "after a cancelled run …; after a detached one, a later read of the
/// result counts").
#[test]
fn departures_of_ended_runs() {
    use Choice::{Cancel, Detach};
    use OnDisconnect as P;
    let done = |ms| (ms, end(1, complete(100, 900)));
    let failed = |ms| (ms, end(1, ended(SourceEnd::Body(EndClass::InBandError))));
    let left = (100, readers(0));
    let back = (200, readers(1));
    let stopped = (700, wake(true));
    let aborted = (800, end(1, ended(SourceEnd::Aborted)));
    let cancelled = Some(Departure::Cancelled { disconnected_at: START.plus(100) });
    let detached = |ms, read_later| Some(Departure::Detached { finished_at: START.plus(ms), read_later });
    for (what, policy, choice, events, departure, went_on) in [
        ("a reader stayed", P::Auto, Detach, vec![done(300)], None, false),
        ("finished for nobody", P::Auto, Detach, vec![left.clone(), done(900)], detached(900, false), true),
        (
            "finished, and back before the end",
            P::Auto,
            Detach,
            vec![left.clone(), back.clone(), done(900)],
            detached(900, true),
            true,
        ),
        ("by a fixed policy", P::Detach, Cancel, vec![left.clone(), done(900)], detached(900, false), true),
        ("finished within the grace time", P::Auto, Cancel, vec![left.clone(), done(300)], detached(300, false), false),
        ("back within the grace time", P::Auto, Cancel, vec![left.clone(), back.clone(), done(900)], None, false),
        ("cancelled", P::Auto, Cancel, vec![left.clone(), stopped.clone(), aborted.clone()], cancelled, false),
        (
            "cancelled by a fixed policy",
            P::Cancel,
            Detach,
            vec![left.clone(), stopped.clone(), aborted.clone()],
            cancelled,
            false,
        ),
        (
            "back after the stop",
            P::Auto,
            Cancel,
            vec![left.clone(), stopped.clone(), (750, readers(1)), aborted.clone()],
            cancelled,
            false,
        ),
        (
            "completion won the race",
            P::Auto,
            Cancel,
            vec![left.clone(), stopped, done(800)],
            detached(800, false),
            false,
        ),
        ("failed for nobody", P::Auto, Detach, vec![left.clone(), failed(900)], None, true),
        ("failed", P::Auto, Detach, vec![failed(900)], None, false),
        ("somebody asked", P::Auto, Detach, vec![left, (200, Command::Cancel), aborted], None, true),
    ] {
        let run = ended_run(policy, choice, &events);
        assert_eq!((run.departure, run.went_on), (departure, went_on), "{what}");
        assert_eq!(run.generation, identity(1).generation);
    }
}

/// Seed 4, "Under cancel, the tell is the ratio of billed to delivered output tokens": both in one measure.
#[test]
fn delivered_tokens_are_a_part_of_what_was_seen() {
    let exact = |tokens| end(1, complete(10, tokens));
    let cut = |content_bytes| {
        let end_of_stream = ended(SourceEnd::Body(EndClass::Incomplete));
        end(1, holdfast_core::reservation::UpstreamEnd { content_bytes, ..end_of_stream })
    };
    for (what, gone_at, stored, command, billed, delivered) in [
        ("all of it, to a reader that stayed", None, 0, exact(200), 200, 200),
        ("nothing", Some(0), 1_000, exact(200), 200, 0),
        ("a quarter", Some(250), 1_000, exact(200), 200, 50),
        ("all that is stored", Some(1_000), 1_000, exact(200), 200, 200),
        ("more than is stored yet", Some(1_500), 1_000, exact(200), 200, 200),
        ("an empty log", Some(0), 0, exact(200), 200, 0),
        ("of a bound, without its margin", Some(500), 1_000, cut(400), 400 + IN_FLIGHT_TOKENS, 200),
        ("a bound that was read to its end", None, 1_000, cut(400), 400 + IN_FLIGHT_TOKENS, 400),
    ] {
        let mut world = World::processing(&terms());
        world.log = LogFacts { length: stored, ..LogFacts::default() };
        if let Some(furthest_offset) = gone_at {
            world.take(&Command::Readers { attached: 0, furthest_offset }).unwrap();
        }
        world.take(&command).unwrap();
        let run = world.live().run_end().unwrap();
        assert_eq!(run.usage.as_ref().map(|usage| usage.usage().output_tokens), Some(billed), "{what}");
        assert_eq!(run.delivered_output_tokens, Some(delivered), "{what}");
        assert_eq!(matches!(run.usage, Some(Metered::Exact(_))), billed == 200, "{what}");
    }
    let mut refused = World::submitted(&terms());
    refused
        .take(&end(
            1,
            holdfast_core::reservation::UpstreamEnd {
                head: Some(head(429)),
                error_envelope: true,
                ..ended(SourceEnd::Body(EndClass::Complete))
            },
        ))
        .unwrap();
    assert_eq!(refused.live().run_end().unwrap().delivered_output_tokens, None, "nothing is billed");
}

/// A result that was made without readers, and read later: the tenant is told once.
#[test]
fn a_later_read_is_news_once() {
    let mut world = World::processing(&terms());
    assert!(!world.live().read_is_news(), "it runs");
    world.at(10).take(&readers(0)).unwrap();
    world.at(20).take(&end(1, complete(10, 20))).unwrap();
    assert!(world.live().read_is_news());
    assert_eq!(world.say(&Command::ReadTold), "done");
    assert!(!world.live().read_is_news());
    assert_eq!(world.say(&Command::ReadTold), "done=");

    let mut stayed = World::processing(&terms());
    stayed.take(&end(1, complete(10, 20))).unwrap();
    assert!(!stayed.live().read_is_news(), "its reader stayed");
    assert_eq!(stayed.say(&Command::ReadTold), "done=");

    let mut stopped = World::processing(&cancels(0));
    stopped.take(&readers(0)).unwrap();
    stopped.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert!(!stopped.live().read_is_news(), "a partial is no result");
}

/// Rows that were stored before there was an assessment are read as they are.
#[test]
fn an_older_row_has_no_assessment() {
    let mut json = serde_json::to_value(&World::processing(&terms()).aggregate).unwrap();
    let members = json.as_object_mut().unwrap();
    for member in ["disconnects", "read_told"] {
        assert!(members.remove(member).is_some(), "{member}");
    }
    let read: holdfast_core::reservation::Aggregate = serde_json::from_value(json).unwrap();
    assert_eq!(read, World::processing(&terms()).aggregate);
}

#[derive(Clone, Debug)]
enum Step {
    Readers(u32),
    Wait(u64),
    Append,
    Cancel,
    End(bool),
}

fn step() -> impl Strategy<Value = Step> {
    prop_oneof![
        4 => (0..3_u32).prop_map(Step::Readers),
        4 => (1..900_u64).prop_map(Step::Wait),
        2 => Just(Step::Append),
        1 => Just(Step::Cancel),
        1 => any::<bool>().prop_map(Step::End),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever happens, `auto` behaves as the policy that it chooses: the same lifecycle, effects, money and deadlines.
    #[test]
    fn auto_behaves_as_the_policy_that_it_chooses(
        steps in prop::collection::vec(step(), 1..40),
        finish in any::<bool>(),
        grace_ms in prop_oneof![Just(0_u64), Just(500)],
    ) {
        let artifact = if finish { ALL_HOLD } else { HOMELESS };
        let chosen = if finish { OnDisconnect::Detach } else { OnDisconnect::Cancel };
        let world = |policy| {
            let terms = Terms { grace_ms, ..under(policy, AutoTerms { artifact, ..auto_terms() }) };
            streaming(&terms, 400)
        };
        let (mut auto, mut fixed) = (world(OnDisconnect::Auto), world(chosen));
        let mut ms = 0;
        for step in steps {
            let command = match step {
                Step::Readers(attached) => readers(attached),
                Step::Wait(more) => { ms += more; wake(true) }
                Step::Append => Command::Append { epoch: 1, bytes: 1 },
                Step::Cancel => Command::Cancel,
                Step::End(true) => end(1, complete(10, 20)),
                Step::End(false) => end(1, ended(SourceEnd::Aborted)),
            };
            prop_assert_eq!(auto.at(ms).say(&command), fixed.at(ms).say(&command));
            prop_assert_eq!(auto.states(), fixed.states());
            prop_assert_eq!(auto.next_wake(), fixed.next_wake());
            let live = auto.live();
            if live.connection.state == ConnectionState::Disconnected && live.disconnects > 0 && live.attempt.abort.is_none() {
                let decision = &assessment(&auto).decision;
                prop_assert_eq!(decision.choice == Choice::Detach, finish);
                prop_assert!(decision.is_reproduced());
            }
        }
        prop_assert_eq!(auto.books(), fixed.books());
        let (of_auto, of_fixed) = (auto.live().run_end(), fixed.live().run_end());
        prop_assert_eq!(
            of_auto.map(|run| (run.departure, run.went_on, run.disconnects)),
            of_fixed.map(|run| (run.departure, run.went_on, run.disconnects))
        );
    }
}
