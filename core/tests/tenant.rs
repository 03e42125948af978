//! The tenant aggregate: who may run, what is held, what is spent. Numbers are those of the invariants in the crate's
//! documentation.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "tenant/accounts.rs"]
mod accounts;
#[path = "tenant/balance.rs"]
mod balance;
#[path = "tenant/billing.rs"]
mod billing;
#[path = "tenant/check.rs"]
mod check;
#[path = "tenant/detached.rs"]
mod detached;
#[path = "tenant/due.rs"]
mod due;
#[path = "tenant/extensions.rs"]
mod extensions;
#[path = "tenant/histories.rs"]
mod histories;
#[path = "tenant/minted.rs"]
mod minted;
#[path = "tenant/model.rs"]
mod model;
#[path = "tenant/postings.rs"]
mod postings;
#[path = "tenant/runs.rs"]
mod runs;
#[path = "tenant/tokens.rs"]
mod tokens;
#[path = "tenant/usage.rs"]
mod usage;
#[path = "tenant/world.rs"]
mod world;

use holdfast_core::dialect::Dialect;
use holdfast_core::economics::Workload;
use holdfast_core::ids::{AttemptId, TenantId};
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode};
use holdfast_core::policy::{Background, OnDisconnect, OnExpiry, OnInterruption, Owner, SlotOnExpiry};
use holdfast_core::refusal::Refusal;
use holdfast_core::request::Endpoint;
use holdfast_core::tenant::account::Status;
use holdfast_core::tenant::{Admit, HoldState};
use holdfast_core::time::UnixMillis;
use world::{PATH, START, World, config, identity, micros, posting, request};

const ROUTE: &str = r#"{"name":"r","provider":"p","max_output_tokens":10}"#;

fn world() -> World {
    World::new(config(1_000, 1_000, 4, ROUTE))
}

fn settled(n: u8, amount: u64) -> Posting {
    posting(n, PostingKind::Settle, amount, ReasonCode::CompletedExact)
}

fn released(n: u8, amount: u64, reason: ReasonCode) -> Posting {
    posting(n, PostingKind::Release, amount, reason)
}

fn with_key(key: &str, call: Admit) -> Admit {
    Admit { idempotency_key: Some(key.into()), ..call }
}

/// Everything that can be wrong is wrong; each repair shows the refusal that was hidden behind the one before.
#[test]
fn refusals_of_an_admission_stand_in_their_order() {
    let routes = r#"{"name":"r","match":{"path":"/v1/chat/completions"},"provider":"p","allow_override":false,
                     "max_output_tokens":10}"#;
    let mut world = World::new(config(100, 60, 1, routes));
    world.admit(&with_key("again", request(1, 20)), START).unwrap();
    let providers = std::mem::take(&mut world.providers);
    let mut call = with_key("again", request(1, 500));
    world.account.status = Status::Suspended;
    call.identity.tenant = TenantId::parse("other").unwrap();
    call.model = "unknown".into();
    call.on_disconnect = Some(OnDisconnect::Detach);

    type Repair = fn(&mut World, &mut Admit);
    let ladder: [(Refusal, Repair); 11] = [
        (Refusal::InvalidKey, |_, call| call.identity.tenant = TenantId::parse("t").unwrap()),
        (Refusal::IdentityConflict, |_, call| call.identity = identity(2)),
        (Refusal::IdempotencyKeyReused, |_, call| {
            call.idempotency_key = None;
            call.path = "/v1/elsewhere".into();
        }),
        (Refusal::Suspended, |world, _| world.account.status = Status::Active),
        (Refusal::NoRoute, |_, call| call.path = PATH.into()),
        (Refusal::Unavailable { what: "provider `p` is not configured".into() }, |world, _| {
            world.providers = world::providers();
        }),
        (Refusal::OverrideNotAllowed, |_, call| call.on_disconnect = Some(OnDisconnect::Cancel)),
        (Refusal::ModelNotPriced { model: "unknown".into() }, |_, call| call.model = "priceless".into()),
        (Refusal::AmountOutOfRange, |_, call| call.model = "m".into()),
        (Refusal::BudgetExhausted, |_, call| call.body_bytes = 20),
        (Refusal::ConcurrencyExceeded { limit: 1 }, |world, _| world.config.concurrency = 2),
    ];
    for (refusal, repair) in ladder {
        let before = world.clone();
        assert_eq!(world.admit(&call, START), Err(refusal));
        assert_eq!(world, before, "a refusal changes nothing");
        repair(&mut world, &mut call);
    }
    assert_eq!(world.providers, providers);
    assert_eq!(world.admit(&call, START).unwrap().identity, identity(2));
    assert_eq!((world.tenant.balances.held, world.tenant.slots_in_use), (micros(60), 2));
}

/// Invariant 8: the same ids are answered from what is recorded, also after the hold has ended.
#[test]
fn a_repeated_admit_holds_once() {
    let mut world = world();
    let call = request(1, 20);
    let first = world.admit(&call, START).unwrap();
    let before = world.clone();
    let later = START.plus(5_000);
    assert_eq!(world.admit(&call, later), Ok(first.clone()));
    assert_eq!(
        world.admit(&Admit { attempt: AttemptId::from_random([9; 16]), ..call.clone() }, later),
        Ok(first.clone())
    );
    assert_eq!(world, before);
    world.config.routes.clear();
    world.settle(&settled(1, 3), START).unwrap();
    assert_eq!(world.admit(&call, later), Ok(first), "what was admitted stays admitted under its terms");
    let mixed = Admit {
        identity: holdfast_core::ids::Identity { reservation: identity(2).reservation, ..identity(1) },
        ..call
    };
    assert_eq!(world.admit(&mixed, later), Err(Refusal::IdentityConflict));
}

/// Invariant 8: a key joins while it stands, whatever became of its generation, and is free after that.
#[test]
fn an_idempotency_key_joins_conflicts_and_expires() {
    let mut world = world();
    world.admit(&with_key("k", request(1, 20)), START).unwrap();
    let joined = world.admit(&with_key("k", request(2, 20)), START).unwrap();
    assert_eq!((joined.identity, joined.joined), (identity(1), true));
    assert_eq!(world.admit(&with_key("k", request(2, 30)), START), Err(Refusal::IdempotencyKeyReused));
    assert_eq!(world.keys.values().next().unwrap().key(), "k");
    let elsewhere = Admit { path: "/v1/other".into(), ..with_key("k", request(3, 30)) };
    assert!(!world.admit(&elsewhere, START).unwrap().joined, "another path is another scope");
    let far = START.plus(world.limits.idempotency_ms * 9);
    assert!(world.admit(&with_key("k", request(4, 20)), far).unwrap().joined, "a key never expires under an open hold");

    world.settle(&settled(1, 5), START).unwrap();
    let end = START.plus(world.limits.idempotency_ms);
    assert!(world.admit(&with_key("k", request(4, 20)), UnixMillis(end.0 - 1)).unwrap().joined);
    let anew = world.admit(&with_key("k", request(5, 30)), end).unwrap();
    assert_eq!((anew.identity, anew.joined), (identity(5), false), "an expired key takes any body");
    let late = posting(1, PostingKind::Overage, 2, ReasonCode::CompletedExact);
    assert_eq!(world.settle(&late, end), Ok(true));
    assert_eq!(world.keys[&format!("{PATH} k")].expires_at, None, "a late posting leaves the new owner's key alone");
}

/// A retry under the same key after the provider's 429 must be able to succeed.
#[test]
fn a_key_is_free_again_when_nothing_was_executed_under_it() {
    for reason in [ReasonCode::NeverStarted, ReasonCode::ProviderRefused, ReasonCode::ProviderFailed] {
        let mut world = world();
        world.admit(&with_key("k", request(1, 20)), START).unwrap();
        world.settle(&released(1, 30, reason), START).unwrap();
        assert_eq!(world.holds[&identity(1).reservation].state, HoldState::Released);
        let again = world.admit(&with_key("k", request(2, 20)), START).unwrap();
        assert!(!again.joined, "{reason:?}");
    }
}

#[test]
fn terms_are_the_first_matching_route_within_its_caps() {
    let routes = r#"{"name":"report","match":{"header":{"x-workload":"report"}},"provider":"p","on_disconnect":"detach"},
        {"name":"quick","match":{"model":"mini*"},"provider":"p","owner":"edge","allow_override":false,"include_usage":false},
        {"name":"rest","provider":"p","grace_ms":3000,"max_output_tokens":50}"#;
    let terms = |change: fn(&mut Admit)| {
        let mut call = request(1, 20);
        change(&mut call);
        World::new(config(1_000_000, 1_000_000, 4, routes)).admit(&call, START).unwrap().terms
    };
    let report = terms(|call| drop(call.headers.insert("x-workload".into(), "report".into())));
    assert_eq!((report.route.as_str(), report.on_disconnect), ("report", OnDisconnect::Detach));
    let quick = terms(|call| call.model = "mini-1".into());
    assert_eq!((quick.route.as_str(), quick.strip_usage), ("quick", false), "usage is not asked for");
    let rest = terms(|call| {
        call.choices = 3;
        call.max_output_tokens = None;
        call.on_disconnect = Some(OnDisconnect::Detach);
    });
    assert_eq!((rest.route.as_str(), rest.on_disconnect, rest.grace_ms), ("rest", OnDisconnect::Detach, 3_000));
    assert_eq!((rest.max_output_tokens, rest.output_bound_tokens, rest.hold), (50, 150, micros(170)));
    assert!(rest.strip_usage, "the client did not ask for usage, the proxy does");
    assert!(!terms(|call| call.include_usage = true).strip_usage);
    assert!(!terms(|call| call.streaming = false).strip_usage);
    assert_eq!(terms(|call| call.max_output_tokens = Some(5_000)).max_output_tokens, 50, "lowered to the route's cap");
    assert_eq!(terms(|call| call.choices = 0).output_bound_tokens, 10, "at least one choice");
}

/// Slots are limited per tenant and per route: a full route leaves the others alone, and a slot comes back with its hold.
#[test]
fn a_route_has_slots_of_its_own() {
    let routes = r#"{"name":"narrow","match":{"model":"mini*"},"provider":"p","max_output_tokens":10,"concurrency":2},
         {"name":"wide","provider":"p","max_output_tokens":10}"#;
    let mut world = World::new(config(1_000, 1_000, 4, routes));
    let mini = |n: u8| Admit { model: "mini".into(), ..request(n, 20) };
    world.admit(&mini(1), START).unwrap();
    world.admit(&mini(2), START).unwrap();
    assert_eq!(world.admit(&mini(3), START), Err(Refusal::ConcurrencyExceeded { limit: 2 }));
    assert_eq!(world.admit(&request(4, 20), START).unwrap().terms.route, "wide");
    world.settle(&settled(1, 5), START).unwrap();
    world.admit(&mini(3), START).unwrap();
    world.admit(&request(5, 20), START).unwrap();
    assert_eq!(
        world.admit(&mini(6), START),
        Err(Refusal::ConcurrencyExceeded { limit: 4 }),
        "the tenant's comes first"
    );
}

/// Design 11: every policy of the route is pinned, with the presets of its workload; without a match the default route.
#[test]
fn terms_have_the_policies_of_their_route() {
    let routes = r#"{"name":"night","match":{"workload":"batch"},"provider":"p","on_expiry":{"credit":"escalate","slot":"release"},
         "on_interruption":"quarantine","escalate_above_micros":7,"expected_ms":5000,
         "retention_s":9,"observation_ms":11}"#;
    let mut world = World::new(config(1_000_000, 1_000_000, 4, routes));
    let night = Admit { workload: Some(Workload::Batch), ..request(1, 20) };
    assert_eq!(world.admit(&request(1, 20), START), Err(Refusal::NoRoute), "it names no workload");
    let terms = world.admit(&night, START).unwrap().terms;
    assert_eq!((terms.workload, terms.grace_ms, terms.total_ms), (Workload::Batch, 60_000, 1_800_000));
    assert_eq!((terms.on_expiry, terms.slot_on_expiry), (Some(OnExpiry::Escalate), SlotOnExpiry::Release));
    assert_eq!((terms.on_interruption, terms.escalate_above), (OnInterruption::Quarantine, Some(micros(7))));
    assert_eq!((terms.expected_ms, terms.retention_s, terms.observation_ms), (Some(5_000), 9, 11));
    assert_eq!(terms.config_version, 7);

    world.config.default_route = Some("night".into());
    let terms = world.admit(&request(2, 20), START).unwrap().terms;
    assert_eq!((terms.route.as_str(), terms.workload), ("night", Workload::Batch));
}

/// What follows from the path: who may serve it, what is asked for at the provider, and whether there is output at all.
#[test]
fn terms_follow_the_path() {
    let forward = |name: &str| [(name.to_string(), "x-1".to_string())].into_iter().collect();
    for (dialect, path, target, output, strips) in [
        (Dialect::OpenaiChat, "/v1/chat/completions", "/v1/chat/completions", true, true),
        (Dialect::OpenaiChat, "/v1/completions", "/v1/completions", true, true),
        (Dialect::OpenaiChat, "/v1/embeddings", "/v1/embeddings", false, false),
        (Dialect::OpenaiResponses, "/v1/responses", "/v1/responses", true, false),
        (Dialect::AnthropicMessages, "/v1/messages", "/v1/messages", true, false),
        (Dialect::Gemini, "/v1beta/models/m:generateContent", "/v1beta/models/m:generateContent", true, false),
        (
            Dialect::Gemini,
            "/v1beta/models/m:streamGenerateContent",
            "/v1beta/models/m:streamGenerateContent?alt=sse",
            true,
            false,
        ),
    ] {
        let endpoint = Endpoint::at(path).unwrap();
        let route = format!(r#"{{"name":"r","provider":"p","match":{{"path":"{}"}}}}"#, endpoint.pattern());
        for spoken in [dialect, Dialect::Opaque] {
            let mut world = World::new(config(1_000_000, 1_000_000, 4, &route));
            world.providers[0].dialect = spoken;
            let asked = Admit {
                path: path.into(),
                streaming: true,
                include_usage: false,
                forward: forward("anthropic-beta"),
                ..request(1, 1)
            };
            let terms = world.admit(&asked, START).unwrap().terms;
            assert_eq!((terms.path.as_str(), terms.strip_usage), (target, strips), "{path}");
            assert_eq!(terms.output_bound_tokens > 0, output, "{path}");
            assert_eq!((terms.dialect, terms.client_dialect()), (spoken, dialect), "{path}");
            assert_eq!(terms.forward.len(), usize::from(spoken == Dialect::AnthropicMessages), "{path}");
        }
        let other = if dialect == Dialect::Gemini { Dialect::OpenaiChat } else { Dialect::Gemini };
        let mut world = World::new(config(1_000_000, 1_000_000, 4, &route));
        world.providers[0].dialect = other;
        let refused = world.admit(&Admit { path: path.into(), ..request(1, 1) }, START).unwrap_err();
        assert_eq!(refused, Refusal::DialectMismatch { path: dialect, provider: other }, "{path}");
    }
}

/// Background is the route's choice or the request's own; only a stream of a dialect that has it runs there, driven by the
/// object, looked for as long as it may run, and with what its provider can do.
#[test]
fn terms_of_a_background_operation() {
    let route = |owner: &str, observation: &str| {
        format!(
            r#"{{"name":"r","provider":"p","allow_override":false,"owner":"{owner}","total_ms":9000{observation}}}"#
        )
    };
    let ask = |background, streaming| Admit { background, streaming, ..request(1, 20) };
    for (dialect, owner, switches, observation, asked, expected) in [
        (Dialect::OpenaiResponses, "object", true, "", ask(Background::Open, true), (true, Owner::Object, 9_000)),
        (
            Dialect::OpenaiResponses,
            "object",
            true,
            r#","observation_ms":0"#,
            ask(Background::Open, true),
            (true, Owner::Object, 0),
        ),
        (Dialect::OpenaiResponses, "object", true, "", ask(Background::Never, true), (false, Owner::Object, 9_000)),
        (Dialect::OpenaiResponses, "object", true, "", ask(Background::Open, false), (false, Owner::Object, 9_000)),
        (Dialect::OpenaiResponses, "object", false, "", ask(Background::Open, true), (false, Owner::Object, 0)),
        (Dialect::OpenaiResponses, "object", false, "", ask(Background::Asked, true), (true, Owner::Object, 9_000)),
        (Dialect::OpenaiResponses, "edge", false, "", ask(Background::Asked, true), (true, Owner::Object, 9_000)),
        (Dialect::OpenaiResponses, "edge", false, "", ask(Background::Open, true), (false, Owner::Edge, 0)),
        (Dialect::OpenaiChat, "object", false, "", ask(Background::Asked, true), (false, Owner::Object, 0)),
    ] {
        let mut world = World::new(config(1_000_000, 1_000_000, 4, &route(owner, observation)));
        world.providers[0].dialect = dialect;
        world.config.routes[0].background = switches;
        let path = if dialect == Dialect::OpenaiChat { Endpoint::ChatCompletions } else { Endpoint::Responses };
        let asked = Admit { path: path.pattern().into(), ..asked };
        let terms = world.admit(&asked, START).unwrap().terms;
        let found = (terms.background, terms.owner, terms.observation_ms);
        assert_eq!(found, expected, "{dialect:?} {owner} {switches} {asked:?}");
        assert_eq!(terms.capabilities, world.providers[0].capabilities_for(terms.background));
        assert_eq!(terms.capabilities.outlives_socket(), terms.background);
    }
}

/// Invariant 8: a grant is given once under its id; under another amount it is refused.
#[test]
fn a_grant_is_given_once() {
    let mut world = world();
    for (id, amount, said, granted) in [
        ("initial", 1_000, Ok(false), 1_000),
        ("more", 500, Ok(true), 1_500),
        ("more", 500, Ok(false), 1_500),
        ("more", 501, Err(Refusal::PostingConflict), 1_500),
        ("nothing", 0, Err(Refusal::AmountOutOfRange), 1_500),
        ("too much", (1 << 53) - 1, Err(Refusal::AmountOutOfRange), 1_500),
    ] {
        assert_eq!(world.grant(id, micros(amount)), said, "{id}");
        assert_eq!(world.tenant.balances.granted, micros(granted), "{id}");
    }
    world.check_audit();
}

/// The worst case must fit into the credit, and into what the period still allows, to the last micro.
#[test]
fn credit_and_period_bind_each_by_itself() {
    for (grant, limit, fits) in [(60, 1_000, true), (59, 1_000, false), (1_000, 60, true), (1_000, 59, false)] {
        let mut world = World::new(config(grant, limit, 4, ROUTE));
        world.admit(&request(1, 20), START).unwrap();
        world.settle(&settled(1, 30), START).unwrap();
        let second = world.admit(&request(2, 20), START);
        assert_eq!(second.err(), (!fits).then_some(Refusal::BudgetExhausted), "grant {grant}, limit {limit}");
    }
}

/// A hold counts in the period of its admission, also when it is settled in the next one.
#[test]
fn a_hold_belongs_to_the_period_of_its_admission() {
    let mut world = World::new(config(1_000, 50, 4, ROUTE));
    let next_day = START.plus(86_400_000);
    world.admit(&request(1, 20), START).unwrap();
    assert_eq!(world.admit(&request(2, 20), START), Err(Refusal::BudgetExhausted));
    world.admit(&request(2, 20), next_day).unwrap();
    world.settle(&settled(1, 25), next_day).unwrap();
    let of = |key: &str| (world.periods[key].held.get(), world.periods[key].spent.get());
    assert_eq!((of("2026-11-30"), of("2026-12-01")), ((0, 25), (30, 0)));
}
