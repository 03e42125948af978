//! Browser tokens: a page may do what its token says and no more, for as long as the token and its key stand.

use std::collections::BTreeSet;
use std::time::Duration;

use holdfast_e2e::http::Request;
use holdfast_e2e::{
    Chat, Client, Options, Reply, Route, Tenant, World, assert_bytes, assert_completed, now_ms, unique,
};
use serde_json::{Value, json};

const PAGE: &str = "https://app.example";
const NOWHERE: &str = "gen_0123456789abcdef0123456789abcdef";

fn tenant() -> Tenant {
    Tenant::new("acme")
        .route(Route::new("chat").detach().for_model("gen*"))
        .route(Route::new("report").detach().for_model("gpt-*"))
        .with("allowed_origins", json!([PAGE, "https://other.example"]))
}

fn world(name: &str) -> (World, Client) {
    let tenant = tenant();
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn mint_request(client: &Client, limits: &Value) -> Reply {
    client.call(&client.authorized("POST", "/v1/tokens").json(limits))
}

fn minted(client: &Client, limits: Value) -> String {
    let answer = mint_request(client, &limits).expect(201).json();
    answer["token"].as_str().expect("a token").to_owned()
}

/// A client that shows a new token instead of a key.
fn with_token(world: &World, client: &Client, limits: Value) -> Client {
    world.client_with_key(&minted(client, limits))
}

fn delete(client: &Client, target: &str) -> Reply {
    client.call(&client.authorized("DELETE", target))
}

/// The answer's status, body and headers, without what differs from answer to answer.
fn seen_by_client(reply: &Reply) -> (u16, Vec<u8>, BTreeSet<String>) {
    let headers = reply.headers.iter().filter(|(name, _)| *name != "date");
    let headers = headers.map(|(name, value)| format!("{name}: {value:?}")).collect();
    (reply.status, reply.body.clone(), headers)
}

#[test]
fn a_token_starts_reads_on_and_finds_as_its_key_does() {
    let (world, client) = world("token runs");
    let before = now_ms();
    let answer = mint_request(&client, &json!({})).expect(201);
    assert_eq!(answer.header("cache-control"), Some("no-store"));
    let lifetime_ms = answer.json()["expires_at"].as_u64().expect("a time") - before;
    assert!((590_000..=610_000).contains(&lifetime_ms), "{lifetime_ms}");

    let page = world.client_with_key(answer.json()["token"].as_str().expect("a token"));
    let (tag, key) = (unique("token"), unique("key"));
    let chat = Chat::stream("gen?tokens=30&interval_ms=15").tag(&tag).idempotency_key(&key);
    let expected = world.simulator.expected(&chat);
    let (mut first, id) = page.begin(&chat);
    let start = first.read(700);
    first.abandon();
    let rest = page.read_all_from(&id, 700);
    assert_bytes!([start, rest].concat(), expected);
    assert_completed(&page.wait_until_settled(&id), 12, 30);
    assert_bytes!(page.result(&id).expect(200).body, expected);
    assert_eq!(page.id_by_idempotency_key(&key), id);
    assert_eq!(page.chat(&chat).expect(200).required("x-generation-id"), id, "a repeated start joins");
    assert_eq!(world.simulator.log(&tag).len(), 1);
    assert_eq!(client.generation(&id)["settled"], true, "the tenant's key sees it");

    let x_api_key = Request::new("GET", format!("/v1/generations/{id}")).header("x-api-key", page.key());
    assert_eq!(page.call(&x_api_key).expect(200).json()["id"], id.as_str());

    let (_running, id) = page.begin(&Chat::stream("gen?tokens=900&interval_ms=20"));
    let _ = page.cancel(&id).expect(202);
    assert_eq!(page.wait_until_settled(&id)["lifecycle"], "cancelled");
}

#[test]
fn what_belongs_to_the_tenant_as_a_whole_takes_a_key() {
    let (world, client) = world("token limits");
    let page = with_token(&world, &client, json!({}));
    mint_request(&page, &json!({})).assert_problem(403, "token_not_allowed");
    for (method, path) in [
        ("GET", "/v1/balance"),
        ("GET", "/v1/config"),
        ("PUT", "/v1/config"),
        ("GET", "/v1/keys"),
        ("POST", "/v1/keys"),
    ] {
        let request = page.authorized(method, path);
        let request = if method == "GET" { request } else { request.json(&json!({})) };
        page.call(&request).assert_problem(403, "token_not_allowed");
    }
    delete(&page, "/v1/keys/key_1").assert_problem(403, "token_not_allowed");
    page.get("/admin/tenants").assert_problem(401, "invalid_api_key");
}

#[test]
fn a_token_of_one_route_neither_runs_nor_sees_another() {
    let (world, client) = world("token routes");
    let page = with_token(&world, &client, json!({ "routes": ["chat"] }));
    let allowed = page.chat(&Chat::complete("gen?tokens=2")).expect(200).required("x-generation-id").to_owned();
    let tag = unique("report");
    let key = unique("key");
    let report = Chat::complete("gpt-4?tokens=2").tag(&tag).idempotency_key(&key);
    page.chat(&report).assert_envelope(403, "route_not_allowed");
    assert!(world.simulator.log(&tag).is_empty(), "nothing was sent");
    let _ = client.wait_until_settled(&allowed);
    assert_eq!(client.balance().slots, 0, "nothing is held");

    let foreign = client.chat(&report).expect(200).required("x-generation-id").to_owned();
    page.chat(&report).assert_envelope(403, "route_not_allowed");
    assert!(page.by_idempotency_key(&key).is_empty(), "not even found");
    assert_eq!(client.by_idempotency_key(&key).len(), 1);
    for (method, rest) in [("GET", ""), ("GET", "/stream"), ("GET", "/result"), ("POST", "/cancel")] {
        let asked = |id: &str| page.call(&page.authorized(method, &format!("/v1/generations/{id}{rest}")));
        asked(NOWHERE).assert_problem(404, "not_found");
        assert_eq!(seen_by_client(&asked(&foreign)), seen_by_client(&asked(NOWHERE)), "{method} {rest}");
        assert!(asked(&allowed).status < 300, "{method} {rest}");
    }
}

#[test]
fn a_token_of_one_generation_reads_that_and_nothing_else() {
    let (world, client) = world("token generation");
    let run = || client.chat(&Chat::complete("gen?tokens=3")).expect(200).required("x-generation-id").to_owned();
    let (mine, other) = (run(), run());
    let page = with_token(&world, &client, json!({ "generation": mine }));
    let whole = client.result(&mine).expect(200).body;
    assert_bytes!(page.result(&mine).expect(200).body, whole);
    assert_bytes!(page.read_all_from(&mine, 5), whole[5..]);
    assert_eq!(page.generation(&mine)["id"], mine.as_str());
    for rest in ["", "/stream", "/result"] {
        let asked = |id: &str| page.get(&format!("/v1/generations/{id}{rest}"));
        assert_eq!(seen_by_client(&asked(&other)), seen_by_client(&asked(NOWHERE)), "{rest}");
        asked("gen_1").assert_problem(404, "not_found");
    }
    page.cancel(&mine).assert_problem(403, "token_not_allowed");
    page.cancel(&other).assert_problem(404, "not_found");
    page.chat(&Chat::complete("gen?tokens=1")).assert_envelope(403, "token_not_allowed");

    let (_running, running) = client.begin(&Chat::stream("gen?tokens=900&interval_ms=20"));
    let stopper = with_token(&world, &client, json!({ "generation": running, "may": "run" }));
    stopper.chat(&Chat::complete("gen?tokens=1")).assert_envelope(403, "token_not_allowed");
    let _ = stopper.cancel(&running).expect(202);
}

#[test]
fn a_token_that_only_reads_starts_and_cancels_nothing() {
    let (world, client) = world("token reads");
    let page = with_token(&world, &client, json!({ "may": "read" }));
    let tag = unique("read");
    page.chat(&Chat::complete("gen?tokens=1").tag(&tag)).assert_envelope(403, "token_not_allowed");
    assert!(world.simulator.log(&tag).is_empty());
    let (_running, id) = client.begin(&Chat::stream("gen?tokens=900&interval_ms=20"));
    page.cancel(&id).assert_problem(403, "token_not_allowed");
    assert_eq!(page.generation(&id)["lifecycle"], "active");
    let _ = client.cancel(&id).expect(202);
}

#[test]
fn an_expired_an_altered_and_a_foreign_token_are_refused() {
    let globex = Tenant::new("globex").route(Route::new("chat"));
    let acme = tenant();
    let world = World::start(&Options::new("token ends").tenant(&acme).tenant(&globex));
    let client = world.client(&acme);
    let id = client.chat(&Chat::complete("gen?tokens=1")).expect(200).required("x-generation-id").to_owned();
    let target = format!("/v1/generations/{id}");

    let short = with_token(&world, &client, json!({ "expires_in_s": 1 }));
    let _ = short.get(&target).expect(200);
    std::thread::sleep(Duration::from_millis(1_200));
    let refused = short.get(&target);
    refused.assert_problem(401, "token_expired");
    assert_eq!(refused.header("www-authenticate"), Some("Bearer"));
    short.chat(&Chat::complete("gen?tokens=1")).assert_envelope(401, "token_expired");

    let token = minted(&client, json!({}));
    let (claims, mac) = token.split_once('.').expect("two parts");
    let other = minted(&client, json!({ "routes": ["chat"] }));
    let (other_claims, _) = other.split_once('.').expect("two parts");
    for forged in
        [format!("{other_claims}.{mac}"), claims.to_owned(), format!("{claims}."), format!("{token}x"), "hft_".into()]
    {
        world.client_with_key(&forged).get(&target).assert_problem(401, "invalid_api_key");
    }

    let stranger = with_token(&world, &world.client(&globex), json!({}));
    stranger.get(&target).assert_problem(404, "not_found");
    assert_eq!(
        seen_by_client(&stranger.get(&target)),
        seen_by_client(&stranger.get(&format!("/v1/generations/{NOWHERE}")))
    );
    mint_request(&world.client(&globex), &json!({ "generation": id })).assert_problem(404, "not_found");
}

#[test]
fn a_token_falls_with_its_key() {
    let (world, client) = world("token and key");
    let issued = client.call(&client.authorized("POST", "/v1/keys").json(&json!({ "role": "client" })));
    let issued = issued.expect(201).json();
    let (key, id) = (issued["key"].as_str().expect("a key"), issued["id"].as_str().expect("an id"));
    let page = with_token(&world, &world.client_with_key(key), json!({}));
    let unaffected = with_token(&world, &client, json!({}));

    let chat = Chat::stream("gen?tokens=40&interval_ms=20");
    let expected = world.simulator.expected(&chat);
    let (mut running, generation) = page.begin(&chat);
    let start = running.read(500);
    let _ = delete(&client, &format!("/v1/keys/{id}")).expect(200);
    page.chat(&Chat::complete("gen?tokens=1")).assert_envelope(401, "invalid_api_key");
    page.get(&format!("/v1/generations/{generation}")).assert_problem(401, "invalid_api_key");
    assert_bytes!([start, running.finish().clean()].concat(), expected, "what runs goes on");
    assert_completed(&unaffected.wait_until_settled(&generation), 12, 40);
}

/// One token ends before its time: at once, for good, and no other with it. What it said stays on record.
#[test]
fn a_token_is_revoked_by_itself() {
    let (world, client) = world("revoked token");
    let issue = client.authorized("POST", "/v1/keys").json(&json!({ "role": "client" }));
    let issued = client.call(&issue).expect(201).json();
    let server = world.client_with_key(issued["key"].as_str().expect("a key"));
    let mint = |client: &Client, limits: Value| {
        let answer = mint_request(client, &limits).expect(201).json();
        let (id, token) = (answer["id"].as_str().expect("an id"), answer["token"].as_str().expect("a token"));
        (id.to_owned(), world.client_with_key(token))
    };
    let (stolen, thief) = mint(&server, json!({ "routes": ["chat"] }));
    let (_, visitor) = mint(&server, json!({}));
    let (admins, _) = mint(&client, json!({ "may": "read" }));

    let chat = Chat::stream("gen?tokens=40&interval_ms=20");
    let (mut running, generation) = thief.begin(&chat);
    let start = running.read(500);
    let revoked = delete(&server, &format!("/v1/tokens/{stolen}")).expect(200).json();
    assert!(revoked["revoked_at"].is_u64() && revoked.get("token").is_none(), "{revoked}");
    for target in [format!("/v1/generations/{generation}"), "/v1/generations?idempotency_key=k".into()] {
        thief.get(&target).assert_problem(401, "invalid_api_key");
    }
    thief.chat(&Chat::complete("gen?tokens=1")).assert_envelope(401, "invalid_api_key");
    assert_bytes!([start, running.finish().clean()].concat(), world.simulator.expected(&chat), "what runs goes on");
    assert_eq!(visitor.get(&format!("/v1/generations/{generation}")).status, 200, "no other token falls with it");

    let again = delete(&server, &format!("/v1/tokens/{stolen}")).expect(200).json();
    assert_eq!(again, revoked, "the first time stands");
    // A client's key has what it minted, an admin's everything, a token itself.
    delete(&server, &format!("/v1/tokens/{admins}")).assert_problem(404, "not_found");
    delete(&visitor, &format!("/v1/tokens/{admins}")).assert_problem(404, "not_found");
    visitor.get("/v1/tokens").assert_problem(403, "token_not_allowed");
    let (own, leaving) = mint(&server, json!({ "may": "read" }));
    let _gone = delete(&leaving, &format!("/v1/tokens/{own}")).expect(200);
    leaving.get(&format!("/v1/generations/{generation}")).assert_problem(401, "invalid_api_key");

    let ids = |client: &Client, query: &str| -> Vec<String> {
        let page = client.get(&format!("/v1/tokens{query}")).expect(200);
        assert!(!page.text().contains("hft_"), "{}", page.text());
        let page = page.json();
        let data = page["data"].as_array().expect("data").iter();
        data.map(|token| token["id"].as_str().expect("an id").to_owned()).collect()
    };
    assert_eq!((ids(&client, "").len(), ids(&server, "").len()), (4, 3));
    assert_eq!(ids(&client, "?limit=1"), std::slice::from_ref(&own), "the latest first");
    assert_eq!(ids(&client, &format!("?before={own}&limit=1")), [admins]);
    for bad in ["?limit=0", "?limit=101", "?limit=x", "?limit=1&limit=2", "?before=tok_"] {
        assert_eq!(client.get(&format!("/v1/tokens{bad}")).status, 400, "{bad}");
    }

    world.kill();
    world.restart();
    thief.get(&format!("/v1/generations/{generation}")).assert_problem(401, "invalid_api_key");
    assert_eq!(visitor.get(&format!("/v1/generations/{generation}")).status, 200);
}

#[test]
fn a_token_that_would_be_too_strong_is_not_minted() {
    let (_world, client) = world("token faults");
    for (limits, word) in [
        (json!({ "expires_in_s": 3_601 }), "expires_in_s"),
        (json!({ "expires_in_s": 0 }), "expires_in_s"),
        (json!({ "routes": ["admin"] }), "admin"),
        (json!({ "routes": [] }), "routes"),
        (json!({ "origins": ["https://evil.example"] }), "allowed_origins"),
        (json!({ "origins": ["*"] }), "no origin"),
        (json!({ "may": "admin" }), "`run`"),
        (json!({ "role": "admin" }), "role"),
        (json!([]), "object"),
    ] {
        let refused = mint_request(&client, &limits);
        refused.assert_problem(400, "invalid_token_request");
        assert!(refused.text().contains(word), "{limits}: {}", refused.text());
    }
    for id in ["gen_1", NOWHERE] {
        mint_request(&client, &json!({ "generation": id })).assert_problem(404, "not_found");
    }
    let no_key = Request::new("POST", "/v1/tokens").json(&json!({}));
    client.call(&no_key).assert_problem(401, "invalid_api_key");
    client.call(&client.authorized("PUT", "/v1/tokens")).assert_problem(405, "method_not_allowed");
}
