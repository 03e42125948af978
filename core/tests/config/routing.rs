//! Which route takes a request, and why.

use super::world::{providers, route};
use holdfast_core::config::{
    ChosenBy, ConfigCheck, Limits, Mismatch, Operator, RouteTrial, TenantConfig, TrialRequest, check_config,
};
use holdfast_core::economics::Workload;
use holdfast_core::policy::{OnDisconnect, OnExpiry, Owner, Policies, Route, RouteMatch, SlotOnExpiry};
use holdfast_core::webhook::Reach;
use serde_json::{Value, json};

fn check(document: &Value, request: Value) -> ConfigCheck {
    let request: TrialRequest = serde_json::from_value(request).unwrap();
    checked(document, Some(&request))
}

fn checked(document: &Value, request: Option<&TrialRequest>) -> ConfigCheck {
    let (providers, limits) = (providers(), Limits::default());
    let operator = Operator { providers: &providers, limits: &limits, reach: Reach::Public };
    check_config(&document.to_string(), request, &operator)
}

fn trial(document: &Value, request: Value) -> RouteTrial {
    let check = check(document, request);
    assert!(check.errors.is_empty(), "{:#?}", check.errors);
    check.route.unwrap()
}

fn document() -> Value {
    json!({
        "routes": [
            route("report", json!({ "match": { "header": { "x-kind": "report" }, "model": "gpt-*" }, "on_disconnect": "detach" })),
            route("night", json!({ "match": { "workload": "batch", "model": "gpt-*" } })),
            route("small", json!({ "match": { "path": "/v1/chat/completions", "model": "gpt-*-mini" }, "allow_override": false })),
            route("other", json!({ "match": { "path": "/v1/other", "model": "m" } })),
            route("rest", json!({ "match": { "path": "/nowhere", "model": "m" }, "grace_ms": 7 })),
        ],
        "default_route": "rest",
    })
}

/// First match wins; the default route takes the rest, whatever its own `match` says.
#[test]
fn routes_in_their_order() {
    let header = json!({ "X-Kind": "report" });
    for (request, name, by, passed_over) in [
        (json!({ "model": "gpt-4", "headers": header }), "report", ChosenBy::FirstMatch, 0),
        (json!({ "model": "gpt-4", "headers": header, "workload": "batch" }), "report", ChosenBy::FirstMatch, 0),
        (json!({ "model": "gpt-4", "workload": "batch" }), "night", ChosenBy::FirstMatch, 1),
        (json!({ "model": "gpt-4-mini", "workload": "chat" }), "small", ChosenBy::FirstMatch, 2),
        (json!({ "model": "m", "path": "/v1/other" }), "other", ChosenBy::FirstMatch, 3),
        (json!({ "model": "gpt-4" }), "rest", ChosenBy::Default, 5),
        (json!({ "model": "gpt-4", "headers": { "x-kind": "Report" } }), "rest", ChosenBy::Default, 5),
    ] {
        let trial = trial(&document(), request.clone());
        let chosen = trial.chosen.unwrap();
        assert_eq!((chosen.name.as_str(), chosen.by, trial.passed_over.len()), (name, by, passed_over), "{request}");
        assert_eq!(document()["routes"][chosen.index]["name"], name);
    }
}

/// For each route that did not take the request: the first part that does not match.
#[test]
fn why_the_others_did_not() {
    let trial = trial(&document(), json!({ "model": "gpt-4", "workload": "chat", "headers": { "x-kind": "memo" } }));
    let because: Vec<_> =
        trial.passed_over.into_iter().map(|passed| (passed.index, passed.name, passed.because)).collect();
    let path = |wanted: &str| Mismatch::Path { wanted: wanted.into(), found: "/v1/chat/completions".into() };
    assert_eq!(
        because,
        [
            (
                0,
                "report".into(),
                Mismatch::Header { name: "x-kind".into(), wanted: "report".into(), found: Some("memo".into()) }
            ),
            (1, "night".into(), Mismatch::Workload { wanted: Workload::Batch, found: Some(Workload::Chat) }),
            (2, "small".into(), Mismatch::Model { wanted: "gpt-*-mini".into(), found: "gpt-4".into() }),
            (3, "other".into(), path("/v1/other")),
            (4, "rest".into(), path("/nowhere")),
        ]
    );
    let json = serde_json::to_value(Mismatch::Header { name: "x-a".into(), wanted: "v".into(), found: None }).unwrap();
    assert_eq!(json, json!({ "part": "header", "name": "x-a", "wanted": "v", "found": null }));
}

/// What the request would be told, as admission would decide; its own choice of policy is applied where it may choose.
#[test]
fn refusals_and_overrides() {
    let mut nobody = document();
    nobody.as_object_mut().unwrap().remove("default_route");
    let none = trial(&nobody, json!({ "model": "gpt-4" }));
    assert_eq!((none.chosen, none.refusal.as_deref(), none.passed_over.len()), (None, Some("no_route"), 5));

    let mini = |wanted: &str| trial(&document(), json!({ "model": "gpt-4-mini", "on_disconnect": wanted }));
    assert_eq!(mini("detach").refusal.as_deref(), Some("override_not_allowed"));
    assert_eq!(mini("cancel").refusal, None, "what the route does anyway may be asked for");
    let chosen = trial(&document(), json!({ "model": "gpt-4", "on_disconnect": "detach" }));
    assert_eq!(chosen.chosen.unwrap().policies.on_disconnect, OnDisconnect::Detach);
    assert_eq!(chosen.refusal, None);
    let unpriced = trial(&document(), json!({ "model": "o-1" }));
    assert_eq!(unpriced.refusal.as_deref(), Some("model_not_priced"));
    assert_eq!(unpriced.chosen.unwrap().name, "rest");
}

/// A document with errors is never served from: what it would do is not told.
#[test]
fn no_route_of_a_faulty_document() {
    let mut faulty = document();
    faulty["concurrency"] = json!(0);
    let answer = check(&faulty, json!({ "model": "gpt-4" }));
    assert_eq!((answer.errors.len(), answer.route), (1, None));
    let without = checked(&document(), None);
    assert_eq!((without.errors.len(), without.route), (0, None));
}

fn policies(members: Value) -> Policies {
    serde_json::from_value::<Route>(route("r", members)).unwrap().policies()
}

/// Seed 1: chat and batch are "different serving-policy problems"; seed 4: where nobody has chosen, `cancel`.
#[test]
fn presets() {
    let shown = |p: Policies| (p.grace_ms, p.lease_ms, p.first_byte_ms, p.idle_ms, p.total_ms, p.retention_s);
    let chat = (0, 120_000, 60_000, 60_000, 600_000, 86_400);
    let batch = (60_000, 120_000, 300_000, 120_000, 1_800_000, 604_800);
    assert_eq!(shown(policies(json!({}))), chat);
    assert_eq!(shown(policies(json!({ "workload": "chat" }))), chat);
    assert_eq!(shown(policies(json!({ "workload": "agentic" }))), chat);
    assert_eq!(shown(policies(json!({ "workload": "batch" }))), batch);
    let matched = policies(json!({ "match": { "workload": "batch" } }));
    assert_eq!((matched.workload, shown(matched)), (Workload::Batch, batch), "a route for batch requests is one");
    let own = policies(json!({ "match": { "workload": "batch" }, "workload": "agentic" }));
    assert_eq!(own.workload, Workload::Agentic, "its own word counts");
    for workload in ["chat", "batch", "agentic"] {
        assert_eq!(policies(json!({ "workload": workload })).on_disconnect, OnDisconnect::Cancel);
    }
}

#[test]
fn what_follows_from_other_members() {
    let short = policies(json!({ "workload": "batch", "total_ms": 5_000 }));
    assert_eq!((short.first_byte_ms, short.idle_ms), (5_000, 5_000), "no default is beyond the end");
    let edge = policies(json!({ "owner": "edge", "workload": "batch" }));
    assert_eq!((edge.owner, edge.grace_ms), (Owner::Edge, 0));
    let watch = json!({ "credit": "expire_and_watch", "slot": "release" });
    let watched = policies(json!({ "on_expiry": watch }));
    assert_eq!((watched.watch_ms, watched.on_expiry.slot), (3_600_000, SlotOnExpiry::Release));
    assert_eq!(watched.on_expiry.credit, Some(OnExpiry::ExpireAndWatch));
    assert_eq!(policies(json!({ "on_expiry": watch, "watch_ms": 5 })).watch_ms, 5);
    assert_eq!(policies(json!({})).watch_ms, 0);
    let long = |members| policies(members).artifact.long;
    assert_eq!(long(json!({ "expected_ms": 30_000 })), Some(true));
    assert_eq!(long(json!({ "expected_ms": 29_999 })), Some(false));
    assert_eq!(long(json!({ "expected_ms": 1, "workload": "batch" })), Some(true));
    assert_eq!(long(json!({ "expected_ms": 90_000, "artifact": { "long": false } })), Some(false));
    assert_eq!(long(json!({})), None);
}

#[test]
fn a_match_covers_another() {
    let of = |json: Value| serde_json::from_value::<RouteMatch>(json).unwrap();
    let all = json!({});
    let (path, other) = (json!({ "path": "/a" }), json!({ "path": "/b" }));
    let (glob, narrow) = (json!({ "model": "gpt-*" }), json!({ "model": "gpt-4*" }));
    let (header, both) = (json!({ "header": { "x-a": "1" } }), json!({ "header": { "x-a": "1", "x-b": "2" } }));
    let (batch, chat) = (json!({ "workload": "batch" }), json!({ "workload": "chat" }));
    for (one, another, covers, covered) in [
        (&all, &all, true, true),
        (&all, &path, true, false),
        (&path, &other, false, false),
        (&glob, &narrow, true, false),
        (&all, &glob, true, false),
        (&json!({ "model": "*" }), &all, true, true),
        (&header, &both, true, false),
        (&all, &batch, true, false),
        (&batch, &chat, false, false),
        (&glob, &path, false, false),
    ] {
        let (a, b) = (of(one.clone()), of(another.clone()));
        assert_eq!((a.covers(&b), b.covers(&a)), (covers, covered), "{one} and {another}");
    }
}

/// An empty configuration takes nothing.
#[test]
fn nothing_configured() {
    let config: TenantConfig = serde_json::from_str("{}").unwrap();
    assert_eq!(config, TenantConfig::default());
    let none = trial(&json!({}), json!({ "model": "m" }));
    assert_eq!((none.refusal.as_deref(), none.passed_over.len()), (Some("no_route"), 0));
}
