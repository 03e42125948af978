//! Runs of a route: what they come to, what is pinned of it at admission, and which policy they speak for.

use super::world::{START, World, config, identity, micros, request};
use holdfast_core::economics::{
    Artifact, AutoRule, AutoTerms, Choice, Departure, ExpectedFrom, PerMille, ReAskRate, SAMPLES_MIN, UserTime,
};
use holdfast_core::ids::{GenerationId, TenantId};
use holdfast_core::policy::{OnDisconnect, Route};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reservation::{Assessment, Lifecycle, RunEnd};
use holdfast_core::tenant::{
    Admit, MEASURED_FOR_MS, PolicyReport, RUNS_KEPT_MS, Recommendation, RecommendedBy, RouteMeasures, RoutePolicy,
    RunRow, RunStart, auto_terms, measure, route_policy,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::{Metered, Usage};
use proptest::prelude::*;

const PEPPER: &[u8] = b"pepper-of-the-tests";
const MINUTE: u64 = 60_000;
const NOW: UnixMillis = UnixMillis(START.0 + 1_000 * MINUTE);

fn tenant() -> TenantId {
    TenantId::parse("t").unwrap()
}

fn asks(client: &str, question: &str) -> RunStart {
    RunStart::of(PEPPER, &tenant(), client, question)
}

fn per_mille(n: u16) -> PerMille {
    PerMille::new(n).unwrap()
}

fn exact(output_tokens: u64) -> Metered {
    Metered::Exact(Usage { input_tokens: 10, output_tokens, ..Usage::default() })
}

/// A run that was admitted so many minutes after the start.
fn row(n: u8, client: &str, question: &str, minutes: u64) -> RunRow {
    let RunStart { client, fingerprint } = asks(client, question);
    RunRow {
        generation: GenerationId::from_random([n; 16]),
        route: "r".into(),
        on_disconnect: OnDisconnect::Auto,
        client,
        fingerprint,
        started_at: START.plus(minutes * MINUTE),
        end: None,
        read_at: None,
    }
}

/// An end two minutes after the admission.
fn ended(row: &RunRow, lifecycle: Lifecycle, usage: Option<Metered>) -> RunEnd {
    RunEnd {
        generation: row.generation.clone(),
        lifecycle,
        ended_at: row.started_at.plus(2 * MINUTE),
        disconnects: 0,
        departure: None,
        went_on: false,
        assessment: None,
        usage,
        delivered_output_tokens: usage.map(|usage| usage.usage().output_tokens),
    }
}

fn completed(row: RunRow, output_tokens: u64) -> RunRow {
    let end = ended(&row, Lifecycle::Completed, Some(exact(output_tokens)));
    row.ended(end)
}

fn price() -> ModelPrice {
    ModelPrice {
        model: "m".into(),
        input_micros_per_million: 1_000_000,
        output_micros_per_million: 1_000_000,
        cached_input_micros_per_million: None,
        cache_write_micros_per_million: None,
        reasoning_micros_per_million: None,
        hidden_output: false,
    }
}

/// What is pinned of a route without measures: 100 tokens in, 900 out, one micro-USD each.
fn pinned(artifact: Artifact, prior: Option<u16>) -> AutoTerms {
    AutoTerms {
        artifact,
        measured: ReAskRate::default(),
        prior_per_mille: prior.map(per_mille),
        user_time: None,
        input_tokens: 100,
        expected_output_tokens: 900,
        expected_from: ExpectedFrom::OutputLimit,
    }
}

/// A run whose reader left after a minute, when so many tokens were produced; what `auto` chooses is done.
fn left(row: RunRow, terms: &AutoTerms, produced: u64) -> RunRow {
    let decision = terms.inputs(&price(), produced).decide();
    let disconnected_at = row.started_at.plus(MINUTE);
    let cancelled = decision.choice == Choice::Cancel;
    let lifecycle = if cancelled { Lifecycle::Cancelled } else { Lifecycle::Completed };
    let usage = if cancelled { exact(produced) } else { exact(900) };
    let base = ended(&row, lifecycle, Some(usage));
    let departure = if cancelled {
        Departure::Cancelled { disconnected_at }
    } else {
        Departure::Detached { finished_at: base.ended_at, read_later: false }
    };
    let assessment = Assessment { at: disconnected_at, epoch: 1, applied: true, decision };
    let end = RunEnd {
        disconnects: 1,
        departure: Some(departure),
        went_on: !cancelled,
        assessment: Some(assessment),
        delivered_output_tokens: Some(produced),
        ..base
    };
    row.ended(end)
}

fn report(rows: &[RunRow]) -> RoutePolicy {
    route_policy("r", rows, START, NOW)
}

#[test]
fn who_asks_what_is_told_in_keyed_hashes() {
    let question = "What does the contract say about late delivery?";
    let start = asks("ann", question);
    assert_eq!(start, asks("ann", question));
    assert_eq!(start.client.len(), 32);
    let json = serde_json::to_string(&start).unwrap();
    for secret in ["ann", "contract", "delivery"] {
        assert!(!json.contains(secret), "{json}");
    }
    let other_tenant = RunStart::of(PEPPER, &TenantId::parse("u").unwrap(), "ann", question);
    let other_pepper = RunStart::of(b"another-pepper", &tenant(), "ann", question);
    for other in [&other_tenant, &other_pepper] {
        assert_ne!(other.client, start.client);
        assert!(!other.fingerprint.is_near_identical(&start.fingerprint), "not comparable without the key");
    }
    assert_ne!(asks("bob", question).client, start.client);
    assert_eq!(asks("bob", question).fingerprint, start.fingerprint);
}

#[test]
fn an_admission_makes_a_run_and_pins_what_a_disconnect_needs() {
    let route = r#"{"name":"r","provider":"p","max_output_tokens":10,"on_disconnect":"auto","re_ask_prior_per_mille":80,
                    "artifact":{"has_home":true},"expected_ms":90000,"user_minute_micros":7}"#;
    let mut world = World::new(config(1_000, 1_000, 4, route));
    let call = Admit { run: Some(asks("ann", "One?")), ..request(1, 101) };
    let admitted = world.admit(&call, START).unwrap();
    assert_eq!(admitted.terms.on_disconnect, OnDisconnect::Auto);
    assert_eq!(admitted.terms.expected_ms, Some(90_000));
    assert_eq!(
        admitted.terms.auto,
        Some(AutoTerms {
            // Chat work of 90 seconds is long (seed 4, the evidence summary).
            artifact: Artifact { long: Some(true), has_home: Some(true), reproducible: None },
            measured: ReAskRate::default(),
            prior_per_mille: Some(per_mille(80)),
            user_time: Some(UserTime { minute_micros: micros(7), lost_ms: 90_000 }),
            input_tokens: 26,
            expected_output_tokens: 10,
            expected_from: ExpectedFrom::OutputLimit,
        })
    );
    assert_eq!(admitted.terms.input_bound_tokens, 101, "the hold has the bound, not the estimate");
    assert_eq!(world.runs.len(), 1);
    let row = &world.runs[0];
    assert_eq!((&row.generation, row.route.as_str(), row.started_at), (&identity(1).generation, "r", START));
    assert_eq!((row.on_disconnect, &row.end), (OnDisconnect::Auto, &None));

    world.admit(&call, START).unwrap();
    assert_eq!(world.runs.len(), 1, "a repeated admission is one run");
    world.admit(&request(2, 40), START).unwrap();
    assert_eq!(world.runs.len(), 1, "a request of which nothing was told makes none");
    // Where the route allows it, a request may choose `auto` or leave it.
    let choose = |n, policy| Admit { on_disconnect: Some(policy), ..request(n, 40) };
    let chosen = world.admit(&choose(3, OnDisconnect::Detach), START).unwrap();
    assert_eq!(chosen.terms.on_disconnect, OnDisconnect::Detach);
    assert!(chosen.terms.auto.is_some(), "what `auto` would do is recorded under every policy");
}

#[test]
fn measures_are_pinned_once_there_are_enough() {
    let route: Route =
        serde_json::from_str(r#"{"name":"r","provider":"p","user_minute_micros":7,"expected_ms":1000}"#).unwrap();
    let measures = |completed| RouteMeasures {
        measured_at: START,
        re_ask: ReAskRate { rate_per_mille: per_mille(400), samples: 12 },
        completed,
        output_tokens: 700,
        duration_ms: 5_000,
    };
    for (what, measures, bound, expected) in [
        ("nothing measured", None, 4_096, (4_096, ExpectedFrom::OutputLimit, 1_000)),
        ("too few runs", Some(measures(29)), 4_096, (4_096, ExpectedFrom::OutputLimit, 1_000)),
        ("enough runs", Some(measures(SAMPLES_MIN)), 4_096, (700, ExpectedFrom::Measured, 5_000)),
        ("no run is longer than its limit", Some(measures(SAMPLES_MIN)), 300, (300, ExpectedFrom::Measured, 5_000)),
    ] {
        let terms = auto_terms(&route.policies(), 0, bound, measures.as_ref());
        let lost_ms = terms.user_time.unwrap().lost_ms;
        assert_eq!((terms.expected_output_tokens, terms.expected_from, lost_ms), expected, "{what}");
        let rate = measures.map(|measures| measures.re_ask).unwrap_or_default();
        assert_eq!(terms.measured, rate, "{what}: the rate goes with its samples, and the rules weigh them");
    }
    let unknown = Route { expected_ms: None, ..route };
    assert_eq!(
        auto_terms(&unknown.policies(), 0, 10, None).user_time,
        None,
        "a time that is not known counts for nothing"
    );
    assert!(
        !measures(1).is_stale(START.plus(MEASURED_FOR_MS - 1)) && measures(1).is_stale(START.plus(MEASURED_FOR_MS))
    );
}

/// Means are over completed runs that the provider has counted.
#[test]
fn a_route_is_measured_by_its_runs() {
    assert_eq!(measure(&[], NOW), RouteMeasures { measured_at: NOW, ..RouteMeasures::default() });
    let estimated = Metered::AtLeast(Usage { output_tokens: 9_999, ..Usage::default() });
    let plain = |n| row(n, "ann", "One?", 0);
    let of = |row: RunRow, lifecycle, usage| {
        let end = ended(&row, lifecycle, usage);
        row.ended(end)
    };
    let rows = [
        completed(plain(1), 100),
        completed(plain(2), 201),
        of(plain(3), Lifecycle::Completed, Some(estimated)),
        of(plain(4), Lifecycle::Cancelled, Some(exact(9_999))),
        of(plain(5), Lifecycle::Failed, None),
        plain(6),
    ];
    let measures = measure(&rows, NOW);
    assert_eq!((measures.completed, measures.output_tokens, measures.duration_ms), (2, 151, 2 * MINUTE));
    assert_eq!(measures.re_ask, ReAskRate::default());
}

/// Design 5: a later read of a detached result counts, whichever word came first: that of the read or that of the end.
#[test]
fn a_later_read_is_a_return() {
    let finish = pinned(Artifact { long: Some(true), has_home: Some(true), reproducible: Some(false) }, None);
    let detached = left(row(1, "ann", "One?", 0), &finish, 400);
    assert_eq!(
        measure(std::slice::from_ref(&detached), NOW).re_ask,
        ReAskRate { rate_per_mille: per_mille(0), samples: 1 }
    );
    let end = detached.end.clone().unwrap();
    let read_after = detached.clone().read(NOW);
    let read_before = row(1, "ann", "One?", 0).read(NOW).ended(*end);
    for read in [read_after, read_before] {
        assert_eq!(measure(std::slice::from_ref(&read), NOW).re_ask.rate_per_mille, per_mille(1_000));
        assert_eq!(read.clone().read(NOW.plus(1)), read, "the first time stands");
        assert_eq!(report(&[read]).detach.read, 1);
    }
    let nothing = pinned(Artifact::default(), None);
    let cancelled = left(row(2, "ann", "One?", 0), &nothing, 400).read(NOW);
    assert!(matches!(cancelled.departure(), Some(Departure::Cancelled { .. })), "a partial is no result");
}

/// Three departures of a route, priced: 500 tokens are to come of each, a whole run costs 1,000.
#[test]
fn what_each_policy_would_have_cost() {
    let terms = pinned(Artifact::default(), Some(600));
    let rows: Vec<RunRow> = (1..=3).map(|n| left(row(n, "ann", "One?", 0), &terms, 400)).collect();
    let costs = report(&rows).costs;
    assert_eq!((costs.disconnects, costs.unpriced), (3, 0));
    assert_eq!(
        (costs.cancel_micros, costs.detach_micros, costs.auto_micros),
        (micros(1_800), micros(1_500), micros(1_500))
    );
    let unknown: Vec<RunRow> =
        (4..=5).map(|n| left(row(n, "ann", "One?", 0), &pinned(Artifact::default(), None), 400)).collect();
    let costs = report(&[rows, unknown].concat()).costs;
    assert_eq!((costs.disconnects, costs.unpriced), (3, 2), "the sums compare the same disconnects");
    assert_eq!(costs.detach_micros, micros(1_500));
}

/// What was decided by a prior is priced at the rate that has been measured since.
#[test]
fn the_rate_that_is_known_now_prices_the_past() {
    let terms = pinned(Artifact::default(), Some(900));
    let prompts = ["alpha beta gamma", "delta epsilon zeta", "eta theta iota", "kappa lambda mu", "nu xi omicron"];
    // Thirty detached runs whose result nobody wanted, each of its own client.
    let rows: Vec<RunRow> =
        (0..30).map(|n| left(row(n, &format!("client {n}"), prompts[usize::from(n) % 5], 0), &terms, 400)).collect();
    let report = report(&rows);
    assert_eq!((report.re_ask, report.re_ask_counts), (ReAskRate { rate_per_mille: per_mille(0), samples: 30 }, true));
    assert_eq!(report.decisions.by_rule, [(AutoRule::Prior, 30)].into());
    assert_eq!((report.decisions.applied, report.decisions.cancel, report.decisions.detach), (30, 0, 30));
    assert_eq!((report.costs.cancel_micros, report.costs.detach_micros), (micros(0), micros(15_000)));
    assert_eq!(report.recommendation.why, RecommendedBy::CancelIsCheaper);
}

/// The first that applies; seed 4's three properties stand above the arithmetic.
#[test]
fn which_policy_the_numbers_speak_for() {
    use OnDisconnect::{Auto, Cancel, Detach};
    use RecommendedBy as By;
    let artifact = |long, has_home, reproducible| Artifact { long, has_home, reproducible };
    let any = Artifact::default();
    let half = |prior| vec![(pinned(any, Some(prior)), 400)];
    for (what, disconnects, policy, why) in [
        ("nobody has left", vec![], None, By::NoDisconnects),
        (
            "none holds",
            vec![(pinned(artifact(Some(false), Some(false), Some(true)), Some(1_000)), 400)],
            Some(Cancel),
            By::NoneHolds,
        ),
        (
            "no home",
            vec![(pinned(artifact(Some(true), Some(false), None), Some(1_000)), 400)],
            Some(Cancel),
            By::NoHome,
        ),
        (
            "short and cheap",
            vec![(pinned(artifact(Some(false), None, Some(true)), Some(1_000)), 400)],
            Some(Cancel),
            By::ShortAndReproducible,
        ),
        (
            "all hold",
            vec![(pinned(artifact(Some(true), Some(true), Some(false)), None), 400)],
            Some(Detach),
            By::AllHold,
        ),
        ("no rate", vec![(pinned(any, None), 400)], Some(Cancel), By::NoEstimate),
        ("500 to finish, 501 to lose it", half(501), Some(Detach), By::DetachIsCheaper),
        ("500 to finish, 500 to lose it", half(500), Some(Cancel), By::CancelIsCheaper),
        // Cancel 2 × 500, detach 900 + 100, auto 500 + 100.
        (
            "early departures are cheap to lose, late ones cheap to finish",
            vec![(pinned(any, Some(500)), 0), (pinned(any, Some(500)), 800)],
            Some(Auto),
            By::DependsOnTheMoment,
        ),
        // Cancel 2 × 500, detach 530 + 420, auto 500 + 420: less than a tenth below.
        (
            "a little less is not worth the doubt",
            vec![(pinned(any, Some(500)), 370), (pinned(any, Some(500)), 480)],
            Some(Detach),
            By::DetachIsCheaper,
        ),
    ] {
        let rows: Vec<RunRow> = disconnects
            .iter()
            .zip(1..)
            .map(|((terms, produced), n)| left(row(n, "ann", "One?", 0), terms, *produced))
            .collect();
        assert_eq!(report(&rows).recommendation, Recommendation { policy, why }, "{what}");
    }
    // The latest description counts.
    let homeless = pinned(artifact(None, Some(false), None), Some(900));
    let rows =
        [left(row(1, "ann", "One?", 0), &homeless, 400), left(row(2, "ann", "One?", 30), &pinned(any, Some(900)), 400)];
    assert_eq!(report(&rows).recommendation.why, By::DetachIsCheaper);
}

/// Seed 4, "The shape each policy leaves on a dashboard": billed by delivered under cancel.
#[test]
fn an_abort_that_does_not_propagate_shows() {
    let nothing = pinned(Artifact::default(), None);
    let whole = completed(row(1, "ann", "One?", 0), 1_000);
    let mut rows = vec![whole, left(row(2, "ann", "Two?", 0), &nothing, 400)];
    let signals = report(&rows).cancel;
    assert_eq!((signals.runs, signals.billed_output_tokens, signals.delivered_output_tokens), (2, 1_400, 1_400));
    assert_eq!(signals.billed_per_delivered_per_mille, Some(1_000));
    // The provider went on to the end: 3,000 more were billed.
    let end = rows[1].end.as_mut().unwrap();
    end.usage = Some(exact(3_400));
    assert_eq!(report(&rows).cancel.billed_per_delivered_per_mille, Some(3_142), "2 to 3 in the seed");
    // What went on without readers by policy is no sign of it, nor is what was not billed.
    let finish = pinned(Artifact { long: Some(true), has_home: Some(true), reproducible: Some(false) }, None);
    let unbilled = row(4, "ann", "Four?", 0);
    let refused = ended(&unbilled, Lifecycle::Failed, None);
    rows = vec![left(row(3, "ann", "Three?", 0), &finish, 10), unbilled.ended(refused)];
    assert_eq!(report(&rows).cancel, Default::default());
}

/// Seed 4: "the count of detached generations that reached complete, compared against the count that started detaching".
#[test]
fn a_pump_that_dies_shows() {
    let finish = pinned(Artifact { long: Some(true), has_home: Some(true), reproducible: Some(false) }, None);
    let mut rows: Vec<RunRow> = (1..=4).map(|n| left(row(n, "ann", "One?", 0), &finish, 400)).collect();
    let end = rows[0].end.as_mut().unwrap();
    (end.lifecycle, end.departure) = (Lifecycle::Failed, None);
    rows[1] = rows[1].clone().read(NOW);
    let report = report(&rows);
    assert_eq!((report.detach.started, report.detach.completed, report.detach.read), (4, 3, 1));
    assert_eq!((report.departures.cancelled, report.departures.detached), (0, 3));
    assert_eq!(report.disconnects, 4);
}

/// Seed 4: "re-runs show up as two generations with near-identical prompts inside ten minutes".
#[test]
fn users_that_ask_again_show() {
    let question = "Write the summary of evidence for the audit of last year";
    let finish = pinned(Artifact { long: Some(true), has_home: Some(true), reproducible: Some(false) }, None);
    let rows = [
        left(row(1, "ann", question, 0), &finish, 400),
        row(2, "ann", question, 5),
        row(3, "bob", question, 6),
        row(4, "ann", "Something else that nobody has asked before", 7),
        row(5, "bob", question, 15),
        row(6, "bob", question, 26),
    ];
    let clients = report(&rows).clients;
    assert_eq!((clients.clients, clients.generations_per_client_per_mille), (2, Some(3_000)));
    assert_eq!((clients.re_runs, clients.re_runs_after_detach), (2, 1), "2 after 1, 5 after 3; 6 comes too late");
    assert_eq!(report(&[]).clients.generations_per_client_per_mille, None);
}

/// The window counts runs by their admission; what a rate is made of is all that is kept.
#[test]
fn a_report_is_over_its_window() {
    let terms = pinned(Artifact::default(), Some(600));
    let rows: Vec<RunRow> = (0..4).map(|n| left(row(n, "ann", "One?", u64::from(n) * 60), &terms, 400)).collect();
    let later = route_policy("r", &rows, START.plus(120 * MINUTE), NOW);
    assert_eq!((later.generations, later.disconnects, later.costs.disconnects), (2, 2, 2));
    assert_eq!(later.from, Some(START.plus(120 * MINUTE)));
    assert_eq!(later.policies, [OnDisconnect::Auto].into());
    assert_eq!(later.re_ask.samples, 4);
    let PolicyReport { object, from, to, routes, complete } = PolicyReport::over(5 * MINUTE, NOW);
    assert_eq!((object.as_str(), from, to, routes.len()), ("policy_report", UnixMillis(NOW.0 - 5 * MINUTE), NOW, 0));
    assert!(complete, "nothing ran: that is all");
    assert_eq!(PolicyReport::over(u64::MAX, NOW).from, UnixMillis(NOW.0 - RUNS_KEPT_MS), "no run is kept longer");
}

/// As many routes as a configuration may have are reported, by name. Of more, those that ran last, and the report says so.
#[test]
fn a_report_says_whether_it_has_every_route() {
    let names = |count: u32| (0..count).rev().map(|n| format!("r{n:03}")).collect::<Vec<_>>();
    for (ran, complete, first, last) in
        [(1, true, "r000", "r000"), (256, true, "r000", "r255"), (257, false, "r001", "r256")]
    {
        let mut report = PolicyReport::over(5 * MINUTE, NOW);
        let chosen = report.chosen(names(ran));
        assert_eq!((report.complete, chosen.len()), (complete, ran.min(256) as usize), "{ran}");
        assert!(chosen.is_sorted(), "{chosen:?}");
        assert_eq!((chosen.first().unwrap().as_str(), chosen.last().unwrap().as_str()), (first, last), "{ran}");
    }
    assert!(serde_json::to_string(&PolicyReport::over(0, NOW)).unwrap().ends_with(r#","routes":[],"complete":true}"#));
}

/// Rows are stored as JSON and read by later versions.
#[test]
fn bytes_of_a_run_are_pinned() {
    let row = row(1, "ann", "", 0);
    let json = serde_json::to_string(&row).unwrap();
    let (client, fingerprint) = (&row.client, "f".repeat(512));
    assert_eq!(
        json,
        format!(
            r#"{{"generation":"gen_01010101010101010101010101010101","route":"r","on_disconnect":"auto","client":"{client}","fingerprint":"{fingerprint}","started_at":1795996800000}}"#
        )
    );
    assert_eq!(serde_json::from_str::<RunRow>(&json).unwrap(), row);
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// `auto` never costs more than the better fixed policy where the arithmetic decides, and its decisions are counted
    /// once each.
    #[test]
    fn the_costs_of_auto_are_the_least(disconnects in prop::collection::vec((0_u64..1_200, 0_u16..=1_000), 0..20)) {
        let rows: Vec<RunRow> = disconnects
            .iter()
            .zip(0..)
            .map(|((produced, prior), n)| {
                left(row(n, "ann", "One?", 0), &pinned(Artifact::default(), Some(*prior)), *produced)
            })
            .collect();
        let report = report(&rows);
        let total = u64::try_from(rows.len()).unwrap();
        prop_assert!(report.costs.auto_micros <= report.costs.cancel_micros.min(report.costs.detach_micros));
        prop_assert_eq!(report.costs.disconnects, total);
        prop_assert_eq!(report.decisions.cancel + report.decisions.detach, total);
        prop_assert_eq!(report.decisions.by_rule.values().sum::<u64>(), total);
        prop_assert_eq!(report.departures.cancelled + report.departures.detached, total);
        prop_assert_eq!(report.detach.started, report.decisions.detach);
    }
}
