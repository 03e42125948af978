//! "Another tenant's key gets the same 404, byte for byte, on every route with an id."

use std::collections::BTreeSet;

use holdfast_e2e::http::Request;
use holdfast_e2e::webhook::Hook;
use holdfast_e2e::{Chat, Client, Options, Reply, Route, Tenant, World, unique};
use serde_json::{Value, json};

/// The ids of one tenant's things.
struct Ids {
    generation: String,
    running: String,
    key: String,
    token: String,
    delivery: String,
    line: String,
    idempotency_key: String,
    reservation: String,
}

/// Status, body and headers, without what differs from answer to answer.
fn whole(reply: &Reply) -> (u16, String, BTreeSet<String>) {
    let headers = reply.headers.iter().filter(|(name, _)| *name != "date");
    (reply.status, reply.text(), headers.map(|(name, value)| format!("{name}: {value:?}")).collect())
}

fn text(value: &Value, member: &str) -> String {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}")).to_owned()
}

fn things_of(world: &World, client: &Client) -> Ids {
    let hook = Hook::new(&world.simulator, &unique("matrix"), "500");
    client.use_hook(&hook);
    let (mut exchange, generation) = client.begin(&Chat::stream("gen?tokens=3"));
    exchange.finish().clean();
    let settled = client.wait_until_settled(&generation);
    let post = |target: &str| client.call(&client.authorized("POST", target).json(&json!({}))).expect(201).json();
    let idempotency_key = format!("idem_{}", unique("matrix"));
    let chat = Chat::stream("gen?tokens=900&interval_ms=20").idempotency_key(&idempotency_key);
    let (running, id) = client.begin(&chat);
    drop(running);
    Ids {
        reservation: text(&settled, "reservation_id"),
        generation,
        running: id,
        key: text(&post("/v1/keys"), "id"),
        token: text(&post("/v1/tokens"), "id"),
        delivery: text(&client.wait_for_deliveries("dead", 1)[0], "id"),
        line: text(&client.get("/v1/usage/lines").json()["data"][0], "id"),
        idempotency_key,
    }
}

/// Every route with an id in its path. What of the id is left out is `{}`.
fn routes(ids: &Ids) -> Vec<(&'static str, &'static str, String)> {
    let mut routes = Vec::new();
    for id in [&ids.generation, &ids.running] {
        for (method, path) in [
            ("GET", "/v1/generations/{}"),
            ("GET", "/v1/generations/{}/stream"),
            ("GET", "/v1/generations/{}/stream?offset=0"),
            ("GET", "/v1/generations/{}/stream?offset=nonsense"),
            ("GET", "/v1/generations/{}/result"),
            ("POST", "/v1/generations/{}/cancel"),
        ] {
            routes.push((method, path, id.clone()));
        }
    }
    routes.push(("DELETE", "/v1/keys/{}", ids.key.clone()));
    routes.push(("DELETE", "/v1/tokens/{}", ids.token.clone()));
    routes.push(("POST", "/v1/webhook/deliveries/{}/replay", ids.delivery.clone()));
    routes
}

/// Every list that is asked for by an id: an id of nobody leaves it empty, or is not found.
fn lists(ids: &Ids) -> Vec<(&'static str, String)> {
    vec![
        ("/v1/ledger?generation={}", ids.generation.clone()),
        ("/v1/ledger?reservation={}", ids.reservation.clone()),
        ("/v1/usage/records?generation={}", ids.generation.clone()),
        ("/v1/usage/records?line={}", ids.line.clone()),
        ("/v1/generations?idempotency_key={}", ids.idempotency_key.clone()),
    ]
}

/// The same id with other digits: as well formed, and nobody's.
fn unknown(id: &str) -> String {
    let (prefix, digits) = id.split_once('_').expect("a prefix");
    format!("{prefix}_{}", digits.replace(|letter: char| letter.is_ascii_digit(), "7").replace('a', "b"))
}

#[test]
fn what_is_anothers_does_not_exist() {
    let tenants = ["acme", "other"].map(|id| Tenant::new(id).route(Route::new("chat").detach()));
    let options = Options::new("matrix").tenant(&tenants[0]).tenant(&tenants[1]).local();
    let options = options.limit("webhook_schedule_ms", json!([0])).limit("webhook_timeout_ms", 1_000);
    let world = World::start(&options);
    let (owner, other) = (world.client(&tenants[0]), world.client(&tenants[1]));
    let ids = things_of(&world, &owner);
    let token = text(&other.call(&other.authorized("POST", "/v1/tokens").json(&json!({}))).json(), "token");
    let by_token = world.client_with_key(&token);

    for (method, path, id) in routes(&ids) {
        let ask = |client: &Client, id: &str| client.call(&client.authorized(method, &path.replace("{}", id)));
        let nobodys = ask(&other, &unknown(&id));
        nobodys.assert_problem(404, "not_found");
        for hidden in [id.as_str(), &id.to_uppercase(), "gen_", "%00", "nonsense", "..%2f..", &"9".repeat(500)] {
            assert_eq!(whole(&ask(&other, hidden)), whole(&nobodys), "{method} {path} {hidden}");
        }
        assert!(!nobodys.text().contains(&id[4..]), "nothing of the request is told");
        // By a token of the other tenant too, where tokens are taken at all.
        if path.starts_with("/v1/generations") || path.starts_with("/v1/tokens") {
            assert_eq!(whole(&ask(&by_token, &id)), whole(&nobodys), "{method} {path} by token");
        }
        // A page may neither.
        let from_a_page = |client: &Client, id: &str| {
            let request: Request = client.authorized(method, &path.replace("{}", id));
            whole(&client.call(&request.header("Origin", "https://evil.example")))
        };
        assert_eq!(from_a_page(&other, &id), from_a_page(&other, &unknown(&id)), "{method} {path} by a page");
        assert_eq!(from_a_page(&other, &id).0, 403, "{method} {path}");
    }
    for (path, id) in lists(&ids) {
        let ask = |id: &str| other.get(&path.replace("{}", id));
        let nobodys = ask(&unknown(&id));
        match nobodys.status {
            200 => assert_eq!(nobodys.json()["data"], json!([]), "{path}"),
            _ => nobodys.assert_problem(404, "not_found"),
        }
        assert_eq!(whole(&ask(&id)), whole(&nobodys), "{path}");
    }
    let mint = |id: &str| {
        let body = json!({ "generation": id });
        other.call(&other.authorized("POST", "/v1/tokens").json(&body))
    };
    assert_eq!(whole(&mint(&ids.generation)), whole(&mint(&unknown(&ids.generation))));

    // Nothing of it has touched the owner: what runs, runs; what stands, stands.
    assert_eq!(owner.generation(&ids.running)["cancellation"], Value::Null);
    let keys = owner.get("/v1/keys").expect(200).json();
    assert!(keys["data"].as_array().is_some_and(|keys| keys.iter().all(|key| key["revoked_at"].is_null())), "{keys}");
    let minted = owner.get("/v1/tokens").expect(200).json();
    assert_eq!((&minted["data"][0]["id"], &minted["data"][0]["revoked_at"]), (&json!(ids.token), &Value::Null));
    assert_eq!(owner.deliveries("dead")[0]["id"], json!(ids.delivery));
    let _cancelled = owner.cancel(&ids.running);
}
