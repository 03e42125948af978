//! Browser tokens (design 10 and 12): whatever is altered is refused, and no token is stronger than its key.
#![allow(
    clippy::unwrap_used,
    clippy::indexing_slicing,
    clippy::string_slice,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

use hmac::{Hmac, KeyInit, Mac};
use holdfast_core::ids::{GenerationId, TenantId, TokenId};
use holdfast_core::key::KeyDigest;
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::time::UnixMillis;
use holdfast_core::token::{
    BrowserToken, Claims, Credential, GrantContext, Granted, LIFETIME_DEFAULT_S, LIFETIME_MAX_S, May, TokenKey,
    TokenRequest, grant,
};
use proptest::prelude::*;
use serde_json::{Value, json};
use sha2::Sha256;

const PEPPER: &[u8] = b"pepper-of-the-tests";
const NOW: UnixMillis = UnixMillis(1_764_000_000_000);

/// Made by another program from the description in the documentation.
const VECTOR: &str = "hft_eyJ2IjoxLCJpZCI6InRva18wNzA3MDcwNzA3MDcwNzA3MDcwNzA3MDcwNzA3MDcwNyIsInRlbmFudCI6ImFjbWUiLCJrZXkiOiJrZXlfMSIsIm1heSI6InJ1biIsInJvdXRlcyI6WyJjaGF0Il0sIm9yaWdpbnMiOlsiaHR0cHM6Ly9hcHAuZXhhbXBsZSJdLCJpc3N1ZWRfYXQiOjE3NjQwMDAwMDAwMDAsImV4cGlyZXNfYXQiOjE3NjQwMDA2MDAwMDB9.QNTOh250YMAPM-FdeDqy3INrUufiakihm1yuNOa9PZw";

fn texts(items: &[&str]) -> Vec<String> {
    items.iter().map(|item| (*item).to_owned()).collect()
}

fn generation(byte: u8) -> GenerationId {
    GenerationId::from_random([byte; 16])
}

fn claims() -> Claims {
    Claims {
        version: 1,
        id: TokenId::from_random([7; 16]),
        tenant: TenantId::parse("acme").unwrap(),
        key: "key_1".into(),
        may: May::Run,
        routes: texts(&["chat"]),
        origins: texts(&["https://app.example"]),
        generation: None,
        issued_at: NOW,
        expires_at: NOW.plus(600_000),
    }
}

fn token_key() -> TokenKey {
    TokenKey::derive(PEPPER)
}

fn minted(claims: &Claims) -> String {
    let json = serde_json::to_string(claims).unwrap();
    token_key().mint(&Granted { claims: json, expires_at: claims.expires_at })
}

fn verified(text: &str, now: UnixMillis) -> Result<Claims, Refusal> {
    BrowserToken::parse(text).ok_or(Refusal::InvalidKey).and_then(|token| token_key().verify(&token, now))
}

fn hmac(key: &[u8], message: &[u8]) -> [u8; 32] {
    Hmac::<Sha256>::new_from_slice(key).unwrap().chain_update(message).finalize().into_bytes().into()
}

fn base64url(bytes: &[u8]) -> String {
    const ALPHABET: &[u8] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let bits: Vec<u8> = bytes.iter().flat_map(|byte| (0..8).rev().map(move |at| (byte >> at) & 1)).collect();
    let digit = |group: &[u8]| (0..6).fold(0, |value, at| value * 2 + usize::from(*group.get(at).unwrap_or(&0)));
    bits.chunks(6).map(|group| char::from(ALPHABET[digit(group)])).collect()
}

/// A token over any JSON, signed as the documentation says, without the code under test.
fn signed(key: &[u8], json: &str) -> String {
    let signed = format!("hft_{}", base64url(json.as_bytes()));
    let mac = base64url(&hmac(key, signed.as_bytes()));
    format!("{signed}.{mac}")
}

fn derived(pepper: &[u8], label: &[u8]) -> [u8; 32] {
    hmac(pepper, label)
}

fn right_key() -> [u8; 32] {
    derived(PEPPER, b"holdfast/browser-token/v1")
}

#[test]
fn the_format_is_pinned() {
    assert_eq!(minted(&claims()), VECTOR);
    assert_eq!(verified(VECTOR, NOW), Ok(claims()));
    let json = serde_json::to_string(&claims()).unwrap();
    assert_eq!(signed(&right_key(), &json), VECTOR);
}

#[test]
fn all_that_may_be_absent_is_absent() {
    let bare = Claims { routes: Vec::new(), origins: Vec::new(), ..claims() };
    let json: Value = serde_json::to_value(&bare).unwrap();
    let members: Vec<&String> = json.as_object().unwrap().keys().collect();
    assert_eq!(members, ["expires_at", "id", "issued_at", "key", "may", "tenant", "v"]);
    assert_eq!(verified(&minted(&bare), NOW), Ok(bare));
}

/// Each member of the claims altered under the old MAC: another tenant's, another key's, more routes, more time.
#[test]
fn an_altered_claim_is_refused() {
    let limited = Claims { generation: Some(generation(1)), ..claims() };
    let text = minted(&limited);
    let (_, mac) = text.split_once('.').unwrap();
    let whole = serde_json::to_value(&limited).unwrap();
    for (member, other) in [
        ("v", json!(2)),
        ("id", json!(TokenId::from_random([8; 16]))),
        ("tenant", json!("evil")),
        ("key", json!("key_2")),
        ("may", json!("read")),
        ("routes", json!(["chat", "report"])),
        ("routes", Value::Null),
        ("origins", json!(["https://evil.example"])),
        ("origins", Value::Null),
        ("generation", json!(generation(2))),
        ("generation", Value::Null),
        ("issued_at", json!(NOW.0 - 1)),
        ("expires_at", json!(NOW.0 + 600_001)),
        ("more", json!(1)),
    ] {
        let mut altered = whole.clone();
        let object = altered.as_object_mut().unwrap();
        match other {
            Value::Null => object.remove(member),
            other => object.insert(member.into(), other),
        };
        assert_ne!(altered, whole, "{member}");
        let forged = format!("hft_{}.{mac}", base64url(altered.to_string().as_bytes()));
        assert_eq!(verified(&forged, NOW), Err(Refusal::InvalidKey), "{member}");
    }
}

#[test]
fn a_token_with_any_letter_altered_left_out_or_added_is_refused() {
    let text = minted(&claims());
    for at in 0..text.len() {
        let (before, rest) = text.split_at(at);
        let other = if rest.starts_with('A') { 'B' } else { 'A' };
        for forged in [
            format!("{before}{other}{}", &rest[1..]),
            format!("{before}{}", &rest[1..]),
            format!("{before}{other}{rest}"),
            before.to_owned(),
        ] {
            assert_eq!(verified(&forged, NOW), Err(Refusal::InvalidKey), "{forged}");
        }
    }
    for forged in [
        format!("{text}A"),
        format!("{text}="),
        format!("{text}."),
        format!("{text}.{text}"),
        format!(" {text}"),
        text.replace("hft_", "hfk_"),
        text.replace("hft_", "HFT_"),
        format!("{}.", text.split_once('.').unwrap().0),
        "hft_.".into(),
        "hft_".into(),
        String::new(),
    ] {
        assert_eq!(verified(&forged, NOW), Err(Refusal::InvalidKey), "{forged}");
    }
}

/// One key per purpose (CVE-2026-114612): neither the pepper itself nor what is derived for something else signs tokens.
#[test]
fn only_the_key_of_this_purpose_signs() {
    let json = serde_json::to_string(&claims()).unwrap();
    for (what, key) in [
        ("pepper", PEPPER.to_vec()),
        ("other pepper", derived(b"pepper-of-others-x", b"holdfast/browser-token/v1").to_vec()),
        ("other label", derived(PEPPER, b"holdfast/browser-token/v2").to_vec()),
        ("no key", Vec::new()),
        ("zeros", vec![0; 32]),
    ] {
        assert_eq!(verified(&signed(&key, &json), NOW), Err(Refusal::InvalidKey), "{what}");
    }
    assert_eq!(verified(&signed(&right_key(), &json), NOW), Ok(claims()));
}

/// A MAC that is right does not make up for claims that this version would never mint.
#[test]
fn what_is_signed_is_still_read_strictly() {
    let good = serde_json::to_value(claims()).unwrap();
    let longest = NOW.0 + LIFETIME_MAX_S * 1_000;
    for (member, value, accepted) in [
        ("expires_at", json!(longest), true),
        ("expires_at", json!(longest + 1), false),
        ("expires_at", json!(NOW.0), false),
        ("expires_at", json!(-1), false),
        ("expires_at", json!("never"), false),
        ("issued_at", json!(NOW.0 + 600_000), false),
        ("v", json!(0), false),
        ("v", json!(2), false),
        ("may", json!("admin"), false),
        ("tenant", json!("a:b"), false),
        ("origins", json!("https://app.example"), false),
        ("generation", json!("gen_1"), false),
        ("role", json!("admin"), false),
    ] {
        let mut claims = good.clone();
        claims[member] = value.clone();
        let outcome = verified(&signed(&right_key(), &claims.to_string()), NOW);
        assert_eq!(outcome.is_ok(), accepted, "{member} = {value}: {outcome:?}");
    }
    for json in ["", "{}", "[]", "null", "{"] {
        assert_eq!(verified(&signed(&right_key(), json), NOW), Err(Refusal::InvalidKey), "{json}");
    }
}

#[test]
fn a_token_ends_at_its_time() {
    let text = minted(&claims());
    for (now, outcome) in [
        (NOW.0 - 1, Ok(claims())),
        (NOW.0, Ok(claims())),
        (NOW.0 + 599_999, Ok(claims())),
        (NOW.0 + 600_000, Err(Refusal::TokenExpired)),
        (u64::MAX, Err(Refusal::TokenExpired)),
    ] {
        assert_eq!(verified(&text, UnixMillis(now)), outcome, "{now}");
    }
}

#[test]
fn secrets_are_never_shown() {
    let text = minted(&claims());
    let shown = format!("{:?} {:?}", BrowserToken::parse(&text).unwrap(), token_key());
    assert_eq!(shown, "BrowserToken(hft_…) TokenKey(…)");
}

#[test]
fn origins_of_a_token() {
    let page = Origin::parse("https://app.example").unwrap();
    let own = Origin::parse("https://edge.example").unwrap();
    let limited = |named: &[&str]| Claims { origins: texts(named), ..claims() };
    for (named, origin, allowed) in [
        (&[][..], Some(&page), true),
        (&[], None, true),
        (&["https://app.example"], Some(&page), true),
        (&["https://app.example"], None, false),
        (&["https://app.example"], Some(&own), false),
        (&["https://app.example:8443"], Some(&page), false),
        (&["http://app.example"], Some(&page), false),
        (&["https://edge.example"], None, true),
        (&["https://edge.example"], Some(&page), false),
        (&["https://app.example", "https://edge.example"], Some(&own), true),
    ] {
        assert_eq!(limited(named).allow_origin(origin, Some(&own)), allowed, "{named:?} {origin:?}");
    }
    assert!(!limited(&["https://edge.example"]).allow_origin(None, None));
}

/// Objects and Workers of two versions talk during a deploy: a key is written as it was before there were tokens.
#[test]
fn credentials_on_the_wire() {
    let key = Credential::Key(KeyDigest("ab".repeat(32)));
    assert_eq!(serde_json::to_string(&key).unwrap(), format!("\"{}\"", "ab".repeat(32)));
    let said = Claims { generation: Some(generation(1)), ..claims() };
    let token = Credential::from(said.clone());
    let text: String = serde_json::from_str(&serde_json::to_string(&token).unwrap()).unwrap();
    assert_eq!(serde_json::from_str::<Claims>(&text).unwrap(), said);
    for bad in ["\"{}\"", "\"{\"", "{}", "1"] {
        assert!(serde_json::from_str::<Credential>(bad).is_err(), "{bad}");
    }
    for credential in [key, token] {
        let json = serde_json::to_string(&credential).unwrap();
        assert_eq!(serde_json::from_str::<Credential>(&json).unwrap(), credential);
    }
}

/// What each credential may do. A key may all of it.
#[test]
fn limits_of_a_credential() {
    let token = |may, routes: &[&str], only: Option<u8>| {
        Credential::from(Claims { may, routes: texts(routes), generation: only.map(generation), ..claims() })
    };
    let refused = Err(Refusal::TokenNotAllowed);
    // credential, start, use `chat`, use `report`, cancel, see 1 of `chat`, see 2 of `chat`, see 1 of `report`
    for (credential, start, chat, report, cancel, sees) in [
        (KeyDigest("d".into()).into(), Ok(()), true, true, Ok(()), [true, true, true]),
        (token(May::Run, &[], None), Ok(()), true, true, Ok(()), [true, true, true]),
        (token(May::Run, &["chat"], None), Ok(()), true, false, Ok(()), [true, true, false]),
        (token(May::Run, &[], Some(1)), refused.clone(), true, true, Ok(()), [true, false, true]),
        (token(May::Read, &[], None), refused.clone(), true, true, refused.clone(), [true, true, true]),
        (token(May::Read, &["chat"], Some(1)), refused.clone(), true, false, refused.clone(), [true, false, false]),
    ] {
        assert_eq!(credential.check_start(), start, "{credential:?}");
        let route = |name| credential.check_route(name);
        assert_eq!(route("chat").is_ok(), chat, "{credential:?}");
        assert_eq!(route("report"), if report { Ok(()) } else { Err(Refusal::RouteNotAllowed) }, "{credential:?}");
        assert_eq!(credential.check_cancel(), cancel, "{credential:?}");
        let seen = [(1, "chat"), (2, "chat"), (1, "report")].map(|(id, route)| credential.sees(&generation(id), route));
        assert_eq!(seen, sees, "{credential:?}");
        assert_eq!(credential.require_key().is_ok(), credential.token().is_none(), "{credential:?}");
    }
}

const ROUTES: [&str; 2] = ["chat", "report"];

fn granted(request: Value) -> Result<Claims, Refusal> {
    granted_by(None, true, request)
}

fn granted_by(key_expires_at: Option<UnixMillis>, generation_exists: bool, request: Value) -> Result<Claims, Refusal> {
    let tenant = TenantId::parse("acme").unwrap();
    let allowed_origins = ["https://app.example".to_owned(), "https://*.example".into()];
    let context = GrantContext {
        tenant: &tenant,
        key: "key_1",
        key_expires_at,
        routes: &ROUTES,
        allowed_origins: &allowed_origins,
        generation_exists,
    };
    let request = TokenRequest::parse(&request.to_string()).unwrap();
    let granted = grant(&context, &request, TokenId::from_random([7; 16]), NOW)?;
    let claims: Claims = serde_json::from_str(&granted.claims).unwrap();
    assert_eq!(granted.expires_at, claims.expires_at);
    Ok(claims)
}

#[test]
fn a_grant_says_what_was_asked_for() {
    let plain = granted(json!({})).unwrap();
    let lifetime = NOW.plus(LIFETIME_DEFAULT_S * 1_000);
    let expected = Claims { routes: Vec::new(), origins: Vec::new(), expires_at: lifetime, ..claims() };
    assert_eq!(plain, expected);
    let request = json!({"routes": ["chat", "chat"], "origins": ["https://app.example"], "expires_in_s": 600});
    assert_eq!(granted(request), Ok(claims()));

    let id = generation(1);
    let of_one = |may: Value| granted(json!({"generation": id, "may": may})).unwrap();
    assert_eq!((of_one(Value::Null).may, of_one(Value::Null).generation), (May::Read, Some(id.clone())));
    assert_eq!(of_one(json!("run")).may, May::Run);
    assert_eq!(granted(json!({"may": "read"})).unwrap().may, May::Read);
}

#[test]
fn a_grant_that_is_too_wide_is_refused() {
    let many_origins: Vec<String> = (0..9).map(|n| format!("https://{n}.example")).collect();
    let many_routes: Vec<String> = (0..17).map(|n| format!("route-{n}")).collect();
    for (request, fault) in [
        (json!({"expires_in_s": 0}), "`expires_in_s` must be from 1 to 3600"),
        (json!({"expires_in_s": 3_601}), "`expires_in_s` must be from 1 to 3600"),
        (json!({"expires_in_s": u64::MAX}), "`expires_in_s` must be from 1 to 3600"),
        (json!({"routes": []}), "`routes` must name 1 to 16; leave it out for all"),
        (json!({"routes": many_routes}), "`routes` must name 1 to 16; leave it out for all"),
        (json!({"routes": ["chat", "admin"]}), "`routes`: there is no route `admin`"),
        (json!({"routes": ["*"]}), "`routes`: there is no route `*`"),
        (json!({"origins": []}), "`origins` must name 1 to 8; leave it out for all"),
        (json!({"origins": many_origins}), "`origins` must name 1 to 8; leave it out for all"),
        (
            json!({"origins": ["https://evil.example"]}),
            "`origins`: `https://evil.example` is not among the tenant's allowed_origins",
        ),
        (
            json!({"origins": ["https://*.example"]}),
            "`origins`: `https://*.example` is no origin: its host must be one name or address, in lower case, with nothing after it",
        ),
        (json!({"origins": ["*"]}), "`origins`: `*` is no origin: it must be https://host or http://host"),
    ] {
        assert_eq!(granted(request.clone()), Err(Refusal::InvalidTokenRequest { fault: fault.into() }), "{request}");
    }
    for body in [
        r#"{"role":"admin"}"#,
        r#"{"tenant":"evil"}"#,
        r#"{"may":"admin"}"#,
        r#"{"expires_in_s":-1}"#,
        r#"{"expires_in_s":"600"}"#,
        r#"{"routes":"chat"}"#,
        r#"{"routes":["chat"],"routes":["report"]}"#,
        "[]",
        r#"[["chat"]]"#,
        "null",
        "",
        "{}{}",
    ] {
        let parsed = TokenRequest::parse(body);
        assert!(matches!(parsed, Err(Refusal::InvalidTokenRequest { .. })), "{body}");
    }
    assert_eq!(TokenRequest::parse(" {}"), Ok(TokenRequest::default()));
}

/// A malformed id, another tenant's and one that never was: the same answer.
#[test]
fn a_grant_for_a_foreign_generation_tells_nothing() {
    let asked = |id: &str| granted_by(None, false, json!({"generation": id}));
    for id in ["gen_1", "", generation(9).as_str()] {
        assert_eq!(asked(id), Err(Refusal::NotFound), "{id}");
    }
}

#[test]
fn no_token_outlives_its_key() {
    for (key_expires_in_ms, lifetime_ms) in [(60_000, 60_000), (600_000, 600_000), (600_001, 600_000)] {
        let claims = granted_by(Some(NOW.plus(key_expires_in_ms)), true, json!({})).unwrap();
        assert_eq!(claims.expires_at, NOW.plus(lifetime_ms));
    }
}

/// A header has room for the largest token that is granted; what is larger is refused then.
#[test]
fn a_token_fits_into_a_header() {
    let tenant = TenantId::parse("acme").unwrap();
    let sized = |key: &str| {
        let context = GrantContext {
            tenant: &tenant,
            key,
            key_expires_at: None,
            routes: &ROUTES,
            allowed_origins: &[],
            generation_exists: false,
        };
        grant(&context, &TokenRequest::default(), TokenId::from_random([7; 16]), NOW)
    };
    let rest = sized("").unwrap().claims.len();
    let text = token_key().mint(&sized(&"k".repeat(2_048 - rest)).unwrap());
    assert_eq!(verified(&text, NOW).unwrap().key.len(), 2_048 - rest);
    assert!(BrowserToken::parse(&format!("{text}A")).is_none(), "the bound is no looser than it must be");
    assert!(matches!(sized(&"k".repeat(2_049 - rest)), Err(Refusal::InvalidTokenRequest { .. })));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// Whatever is granted comes back from its text, is within the bounds, and names only what the tenant has.
    #[test]
    fn grants_round_trip_and_stay_within(
        routes in proptest::option::of(proptest::collection::btree_set("chat|report|admin", 0..3)),
        read in any::<bool>(),
        only in proptest::option::of(any::<u8>()),
        lifetime_s in 0_u64..5_000,
        key_expires_in_ms in proptest::option::of(1_u64..5_000_000),
    ) {
        let request = json!({
            "routes": routes, "may": if read { "read" } else { "run" },
            "generation": only.map(generation), "expires_in_s": lifetime_s,
        });
        let key_expires_at = key_expires_in_ms.map(|ms| NOW.plus(ms));
        if let Ok(claims) = granted_by(key_expires_at, true, request) {
            prop_assert!(claims.routes.iter().all(|route| ROUTES.contains(&route.as_str())));
            prop_assert_eq!(claims.routes.is_empty(), routes.is_none());
            prop_assert!(claims.expires_at <= NOW.plus(LIFETIME_MAX_S * 1_000));
            prop_assert!(key_expires_at.is_none_or(|end| claims.expires_at <= end));
            prop_assert_eq!(verified(&minted(&claims), NOW), Ok(claims));
        } else {
            let in_bounds = (1..=LIFETIME_MAX_S).contains(&lifetime_s);
            let routes_known = routes.is_none_or(|routes| !routes.is_empty() && !routes.contains("admin"));
            prop_assert!(!in_bounds || !routes_known);
        }
    }

    /// Nothing that is not minted is accepted, whatever it looks like.
    #[test]
    fn strangers_are_refused(payload in "[A-Za-z0-9_-]{0,60}", mac in "[A-Za-z0-9_-]{43}") {
        prop_assert_eq!(verified(&format!("hft_{payload}.{mac}"), NOW), Err(Refusal::InvalidKey));
    }
}
