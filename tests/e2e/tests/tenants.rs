//! Tenants by the operator's API: created, granted, suspended; keys issued, rotated, revoked, each with its role.

use holdfast_e2e::http::Request;
use holdfast_e2e::{Chat, Client, Options, Reply, Route, Tenant, World, unique};
use serde_json::{Value, json};

fn world(name: &str) -> (World, Tenant) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    (World::start(&Options::new(name).tenant(&tenant)), tenant)
}

fn send(client: &Client, method: &'static str, target: &str, body: &Value) -> Reply {
    client.call(&client.authorized(method, target).json(body))
}

fn delete(client: &Client, target: &str) -> Reply {
    client.call(&client.authorized("DELETE", target))
}

#[test]
fn an_operator_creates_lists_and_grants() {
    let (world, _) = world("operator");
    let operator = world.operator();
    let created = send(&operator, "POST", "/admin/tenants", &json!({ "id": "later", "grant_micros": 500 })).expect(201);
    assert_eq!(created.json()["granted_micros"], 500);
    let again = send(&operator, "POST", "/admin/tenants", &json!({ "id": "later", "grant_micros": 500 })).expect(201);
    assert_eq!(again.json(), created.json(), "creating is idempotent");
    for (id, amount, granted) in [("g1", 100, 600), ("g1", 100, 600), ("g2", 50, 650)] {
        let grant = json!({ "id": id, "amount_micros": amount });
        let reply = send(&operator, "POST", "/admin/tenants/later/grants", &grant).expect(200);
        assert_eq!(reply.json()["granted_micros"], granted, "{id}");
    }
    let conflict = json!({ "id": "g1", "amount_micros": 101 });
    send(&operator, "POST", "/admin/tenants/later/grants", &conflict).assert_problem(409, "posting_conflict");

    let page = operator.get("/admin/tenants?limit=1").expect(200).json();
    assert_eq!((page["data"][0]["id"].as_str(), page["has_more"].as_bool()), (Some("acme"), Some(true)));
    let rest = operator.get("/admin/tenants?after=acme").expect(200).json();
    assert_eq!((rest["data"][0]["id"].as_str(), rest["has_more"].as_bool()), (Some("later"), Some(false)));

    operator.get("/admin/tenants/nobody").assert_problem(404, "unknown_tenant");
    operator.get("/admin/tenants/NOBODY").assert_problem(404, "unknown_tenant");
    send(&operator, "POST", "/admin/tenants", &json!({ "id": "A_B" })).assert_problem(400, "invalid_request");
    send(&operator, "POST", "/admin/tenants", &json!({ "id": "x", "grants": 1 }))
        .assert_problem(400, "invalid_request");
}

/// A key that is made here is shown once, by the answer that makes it. Creating a tenant shows none, and may be repeated: it
/// takes keys that were made elsewhere, and refuses any other before anything is created.
#[test]
fn a_tenant_is_not_created_with_keys_that_nobody_would_see() {
    let (world, _) = world("unseen keys");
    let operator = world.operator();
    let create = |keys: Value| {
        let body = json!({ "id": "later", "grant_micros": 500, "keys": keys, "config": { "concurrency": 3 } });
        send(&operator, "POST", "/admin/tenants", &body)
    };
    let elsewhere = json!({ "digest": "ab".repeat(32), "label": "made elsewhere" });
    for keys in [
        json!([{}]),
        json!([{ "role": "admin", "label": "nobody sees it" }]),
        json!([{ "digest": null }]),
        json!([elsewhere, { "role": "client" }]),
        json!([elsewhere, { "digest": "AB".repeat(32) }]),
        json!([{ "digest": "" }]),
    ] {
        let refused = create(keys.clone());
        refused.assert_problem(400, "invalid_request");
        assert_eq!(refused.json()["retryable"], false, "{keys}");
        assert!(refused.json()["detail"].as_str().is_some_and(|detail| detail.contains("`digest`")), "{keys}");
        operator.get("/admin/tenants/later").assert_problem(404, "unknown_tenant");
        let listed = operator.get("/admin/tenants").expect(200).json();
        assert_eq!(listed["data"].as_array().map(Vec::len), Some(1), "not in the directory either: {listed}");
    }
    for _ in 0..2 {
        assert_eq!(create(json!([elsewhere])).expect(201).json()["granted_micros"], 500);
        let keys = operator.get("/admin/tenants/later/keys").expect(200).json();
        assert_eq!(keys["data"].as_array().map(Vec::len), Some(1), "entered once: {keys}");
        assert_eq!(keys["data"][0]["label"], "made elsewhere", "{keys}");
    }
    let issued = send(&operator, "POST", "/admin/tenants/later/keys", &json!({})).expect(201).json();
    let key = issued["key"].as_str().expect("shown once");
    assert_eq!(world.client_with_key(key).get("/v1/balance").status, 200, "that is where keys are made");
}

/// What somebody calls a key or a grant is stored and shown: a megabyte of it, or what acts on a terminal, is refused.
#[test]
fn names_are_bounded() {
    let (world, tenant) = world("names");
    let (admin, operator) = (world.client(&tenant), world.operator());
    let before = operator.get("/admin/tenants/acme").expect(200).json();
    for name in ["x".repeat(900_000), "x".repeat(129), "a\u{1b}[2J".into(), "a\nb".into(), String::new()] {
        send(&admin, "POST", "/v1/keys", &json!({ "label": name })).assert_problem(400, "invalid_setting");
        let grant = json!({ "id": name, "amount_micros": 1 });
        send(&operator, "POST", "/admin/tenants/acme/grants", &grant).assert_problem(400, "invalid_setting");
    }
    let late = json!({ "expires_at": u64::MAX });
    send(&admin, "POST", "/v1/keys", &late).assert_problem(400, "invalid_setting");
    let long = json!({ "request": { "model": "a".repeat(900_000) } });
    send(&admin, "POST", "/v1/config/check", &long).assert_problem(400, "invalid_setting");
    assert_eq!(admin.get("/v1/keys").json()["data"].as_array().map(Vec::len), Some(1));
    assert_eq!(operator.get("/admin/tenants/acme").json(), before, "nothing came of it");
}

#[test]
fn only_the_operator_is_let_in() {
    let (world, tenant) = world("strangers");
    for client in [world.client(&tenant), world.client_with_key(""), world.client_with_key("operator-key")] {
        for target in ["/admin/tenants", "/admin/tenants/acme", "/admin/tenants/nobody", "/admin/tenants/acme/keys"] {
            client.get(target).assert_problem(401, "invalid_api_key");
        }
    }
    world.operator().get("/v1/balance").assert_problem(401, "invalid_api_key");
}

#[test]
fn keys_have_roles_and_end_at_once() {
    let (world, tenant) = world("keys");
    let admin = world.client(&tenant);
    let issued = send(&admin, "POST", "/v1/keys", &json!({ "label": "app" })).expect(201).json();
    let key = issued["key"].as_str().expect("shown once");
    let client = world.client_with_key(key);
    assert_eq!(client.chat(&Chat::stream("gen?tokens=3")).status, 200);

    // A client's key runs and reads; it does not configure.
    for (method, target, body) in [("POST", "/v1/keys", json!({})), ("PUT", "/v1/config", json!({}))] {
        send(&client, method, target, &body).assert_problem(403, "role_required");
    }
    client.get("/v1/keys").assert_problem(403, "role_required");
    client.get("/v1/config").assert_problem(403, "role_required");
    assert_eq!(client.get("/v1/balance").status, 200);

    let listed = admin.get("/v1/keys").expect(200);
    assert!(!listed.text().contains(key) && !listed.text().contains("digest"), "{}", listed.text());
    assert_eq!(listed.json()["data"].as_array().map(Vec::len), Some(2));

    // Revoked in mid-stream: what runs is settled, the next request is refused.
    let (mut running, id) = client.begin(&Chat::stream("gen?tokens=40&interval_ms=20"));
    let _seen = running.read(50);
    let revoked = delete(&admin, &format!("/v1/keys/{}", issued["id"].as_str().unwrap())).expect(200).json();
    assert!(revoked["revoked_at"].is_u64() && revoked.get("key").is_none(), "{revoked}");
    client.chat(&Chat::stream("gen?tokens=3")).assert_envelope(401, "invalid_api_key");
    client.get("/v1/balance").assert_problem(401, "invalid_api_key");
    let settled = admin.wait_until_settled(&id);
    assert_eq!((&settled["lifecycle"], &settled["settlement"]), (&json!("completed"), &json!("committed")));
    delete(&admin, "/v1/keys/key_unknown").assert_problem(404, "not_found");
}

#[test]
fn a_rotation_overlaps() {
    let (world, tenant) = world("rotation");
    let admin = world.client(&tenant);
    let old = send(&admin, "POST", "/v1/keys", &json!({})).expect(201).json();
    let old_client = world.client_with_key(old["key"].as_str().unwrap());
    let wanted = json!({ "replaces": old["id"], "overlap_ms": 60_000 });
    let new = send(&admin, "POST", "/v1/keys", &wanted).expect(201).json();
    let new_client = world.client_with_key(new["key"].as_str().unwrap());
    for client in [&old_client, &new_client] {
        assert_eq!(client.get("/v1/balance").status, 200, "both work");
    }
    let wanted = json!({ "replaces": new["id"], "overlap_ms": 0 });
    let newest = send(&admin, "POST", "/v1/keys", &wanted).expect(201).json();
    new_client.get("/v1/balance").assert_problem(401, "invalid_api_key");
    assert_eq!(world.client_with_key(newest["key"].as_str().unwrap()).get("/v1/balance").status, 200);
}

#[test]
fn a_suspended_tenant_reads_and_runs_nothing_new() {
    let (world, tenant) = world("suspended");
    let (client, operator) = (world.client(&tenant), world.operator());
    let (running, id) = client.begin(&Chat::stream("gen?tokens=30&interval_ms=20"));
    let _shown = send(&operator, "POST", "/admin/tenants/acme/suspend", &json!({})).expect(200);
    let tag = unique("suspended");
    client.chat(&Chat::stream("gen?tokens=3").tag(&tag)).assert_envelope(403, "tenant_suspended");
    world.simulator.assert_never_called(&tag);
    drop(running);
    assert_eq!(client.wait_until_settled(&id)["lifecycle"], "completed", "what runs is settled");
    assert_eq!(client.result(&id).status, 200, "what is stored can be read");
    let _shown = send(&operator, "POST", "/admin/tenants/acme/resume", &json!({})).expect(200);
    assert_eq!(client.chat(&Chat::stream("gen?tokens=3")).status, 200);
}

#[test]
fn without_an_operator_a_deployment_does_not_serve() {
    let mut request = Request::new("GET", "/v1/balance");
    request = request.header("Authorization", "Bearer x");
    let tenant = Tenant::new("acme").route(Route::new("chat"));
    let world = World::start(&Options::new("no operator").tenant(&tenant).without_operator());
    let client = world.client_with_key("x");
    client.call(&request).assert_problem(503, "misconfigured");
    client.get("/admin/tenants").assert_problem(503, "misconfigured");
    assert!(client.get("/healthz").text().contains("OPERATOR_KEY"));
}
