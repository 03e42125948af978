//! Browser tokens at admission: what a token does not allow is refused before anything is held.

use crate::with_key;
use crate::world::{START, World, config, identity, request};
use holdfast_core::ids::TokenId;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Admit;
use holdfast_core::token::{Claims, Credential, May};

const ROUTES: &str = r#"{"name":"m2","match":{"model":"m2"},"provider":"p","max_output_tokens":10},
                        {"name":"m3","match":{"model":"m3"},"provider":"gone","max_output_tokens":10},
                        {"name":"rest","match":{"path":"/v1/chat/completions"},"provider":"p","max_output_tokens":10}"#;

fn world() -> World {
    let mut setup = config(1_000, 1_000, 4, &ROUTES.replace("gone", "p"));
    setup.config.routes[1].provider = "gone".into();
    World::new(setup)
}

fn token(may: May, routes: &[&str], only: Option<u8>) -> Credential {
    let claims = Claims {
        version: 1,
        id: TokenId::from_random([1; 16]),
        tenant: identity(1).tenant,
        key: "key_1".into(),
        may,
        routes: routes.iter().map(|route| (*route).to_owned()).collect(),
        origins: Vec::new(),
        generation: only.map(|n| identity(n).generation),
        issued_at: START,
        expires_at: START.plus(1),
    };
    claims.into()
}

fn asks(key: Credential, n: u8, model: &str) -> Admit {
    Admit { key, model: model.into(), ..request(n, 20) }
}

#[test]
fn what_a_token_allows_is_admitted() {
    for (key, model, route) in [
        (token(May::Run, &[], None), "m", "rest"),
        (token(May::Run, &[], None), "m2", "m2"),
        (token(May::Run, &["m2"], None), "m2", "m2"),
        (token(May::Run, &["rest", "m2"], None), "m", "rest"),
    ] {
        let mut world = world();
        let admitted = world.admit(&asks(key, 1, model), START).unwrap();
        assert_eq!(admitted.terms.route, route);
        assert_eq!(world.tenant.slots_in_use, 1);
    }
}

#[test]
fn what_it_does_not_allow_is_refused_and_nothing_is_held() {
    for (key, model, refusal) in [
        (token(May::Run, &["rest"], None), "m2", Refusal::RouteNotAllowed),
        (token(May::Run, &["gone"], None), "m", Refusal::RouteNotAllowed),
        (token(May::Read, &[], None), "m", Refusal::TokenNotAllowed),
        (token(May::Run, &[], Some(1)), "m", Refusal::TokenNotAllowed),
        (token(May::Run, &[], Some(2)), "m", Refusal::TokenNotAllowed),
        // Another route is refused before it is told what is wrong with it.
        (token(May::Run, &["rest"], None), "m3", Refusal::RouteNotAllowed),
    ] {
        let mut world = world();
        let before = world.clone();
        assert_eq!(world.admit(&asks(key, 1, model), START), Err(refusal));
        assert_eq!(world, before);
    }
}

#[test]
fn a_path_without_a_route_is_none_for_a_token_too() {
    let call = Admit { path: "/v1/elsewhere".into(), ..asks(token(May::Run, &["m2"], None), 1, "m") };
    assert_eq!(world().admit(&call, START), Err(Refusal::NoRoute));
}

/// A recorded answer of another route is no way around the limit, neither by the idempotency key nor by the ids.
#[test]
fn a_token_does_not_join_what_it_may_not_run() {
    let mut world = world();
    let key_asks = with_key("again", Admit { model: "m2".into(), ..request(1, 20) });
    world.admit(&key_asks, START).unwrap();
    for (key, outcome) in [
        (token(May::Run, &[], None), Ok(true)),
        (token(May::Run, &["m2"], None), Ok(true)),
        (token(May::Run, &["rest"], None), Err(Refusal::RouteNotAllowed)),
        (token(May::Read, &["m2"], None), Err(Refusal::TokenNotAllowed)),
        (token(May::Run, &["m2"], Some(1)), Err(Refusal::TokenNotAllowed)),
    ] {
        let joins = with_key("again", asks(key.clone(), 2, "m2"));
        assert_eq!(world.admit(&joins, START).map(|admitted| admitted.joined), outcome, "{key:?}");
        let repeats = Admit { key: key.clone(), ..key_asks.clone() };
        assert_eq!(world.admit(&repeats, START).is_ok(), outcome.is_ok(), "{key:?}");
    }
    assert_eq!(world.tenant.slots_in_use, 1);
}
