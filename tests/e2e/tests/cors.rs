//! Pages of other origins: none by default, those that the tenant names, and nothing is ever reflected to the others.

use holdfast_e2e::http::Request;
use holdfast_e2e::{Chat, Client, Options, Reply, Route, Tenant, World, unique, wait_for};
use serde_json::{Value, json};

const PAGE: &str = "https://app.example";
const OTHER: &str = "https://other.example";
const NOWHERE: &str = "gen_0123456789abcdef0123456789abcdef";

const CORS: [&str; 6] = [
    "access-control-allow-origin",
    "access-control-allow-credentials",
    "access-control-allow-headers",
    "access-control-allow-methods",
    "access-control-expose-headers",
    "access-control-max-age",
];

fn world(name: &str, allowed_origins: &[&str]) -> (World, Client) {
    let tenant = Tenant::new("acme")
        .route(Route::new("edge").detach().edge_owned().with("total_ms", 20_000).for_model("gpt-*"))
        .route(Route::new("chat").detach())
        .with("allowed_origins", json!(allowed_origins));
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn own(client: &Client) -> String {
    format!("http://127.0.0.1:{}", client.port())
}

fn minted(client: &Client, limits: Value) -> String {
    let answer = client.call(&client.authorized("POST", "/v1/tokens").json(&limits)).expect(201).json();
    answer["token"].as_str().expect("a token").to_owned()
}

fn get_from(client: &Client, origin: &str, target: &str) -> Reply {
    client.call(&client.authorized("GET", target).header("Origin", origin))
}

fn assert_unmarked(reply: &Reply) {
    for name in CORS {
        assert_eq!(reply.header(name), None, "{name}: {}", reply.text());
    }
}

fn assert_readable_by(reply: &Reply, origin: &str) {
    assert_eq!(reply.header("access-control-allow-origin"), Some(origin), "{}", reply.text());
    assert_eq!(reply.header("access-control-allow-credentials"), None);
    let exposed = reply.required("access-control-expose-headers");
    for name in ["x-generation-id", "x-reservation-id", "location", "retry-after", "x-should-retry", "x-request-id"] {
        assert!(exposed.split(", ").any(|found| found == name), "{name} in {exposed}");
    }
    assert_varies(reply);
}

fn assert_varies(reply: &Reply) {
    let varies = reply.headers.get_all("vary").iter().filter_map(|value| value.to_str().ok());
    assert!(varies.flat_map(|value| value.split(", ")).any(|name| name == "Origin"), "{:?}", reply.headers);
}

/// Every request that a page can make, of a generation that exists.
fn requests(client: &Client, generation: &str) -> Vec<Request> {
    let of = |method, rest: &str| client.authorized(method, &format!("/v1/generations{rest}"));
    vec![
        Chat::stream("gen?tokens=2").request(client.key()),
        Chat::complete("gpt-4?tokens=2").request(client.key()),
        of("GET", "?idempotency_key=none"),
        of("GET", &format!("/{generation}")),
        of("GET", &format!("/{generation}/stream")),
        of("GET", &format!("/{generation}/stream?offset=1")),
        of("GET", &format!("/{generation}/result")),
        of("POST", &format!("/{generation}/cancel")),
        client.authorized("GET", "/v1/balance"),
        client.authorized("POST", "/v1/tokens").json(&json!({})),
    ]
}

fn finished(client: &Client) -> String {
    let id = client.chat(&Chat::complete("gen?tokens=2")).expect(200).required("x-generation-id").to_owned();
    let _ = client.wait_until_settled(&id);
    id
}

#[test]
fn by_default_no_other_page_is_served() {
    let (world, client) = world("no origins", &[]);
    let id = finished(&client);
    let spent = client.balance().spent;
    let token = world.client_with_key(&minted(&client, json!({})));
    for request in requests(&client, &id).into_iter().chain(requests(&token, &id)) {
        for origin in [PAGE, "null", "http://localhost", "https://127.0.0.1", "*"] {
            let refused = client.call(&request.clone().header("Origin", origin));
            assert_eq!(refused.status, 403, "{origin} {}: {}", request.target, refused.text());
            assert!(refused.text().contains("origin_not_allowed"), "{}", refused.text());
            assert_unmarked(&refused);
            assert_varies(&refused);
        }
    }
    let balance = client.balance();
    assert_eq!((balance.slots, balance.spent), (0, spent), "nothing was started");
}

#[test]
fn the_deployments_own_pages_and_programs_need_no_permission() {
    let (_world, client) = world("own origin", &[]);
    let id = finished(&client);
    for request in requests(&client, &id) {
        let served = client.call(&request.clone().header("Origin", &own(&client)));
        assert!(served.status < 300, "{}: {}", request.target, served.text());
        assert_unmarked(&served);
        let served = client.call(&request);
        assert!(served.status < 300, "{}: {}", request.target, served.text());
        assert_unmarked(&served);
    }
}

#[test]
fn an_allowed_page_is_served_and_may_read_the_answer() {
    let (world, client) = world("allowed origin", &[PAGE, OTHER]);
    let id = finished(&client);
    for request in requests(&client, &id) {
        let served = client.call(&request.clone().header("Origin", PAGE));
        assert!(served.status < 300, "{}: {}", request.target, served.text());
        assert_readable_by(&served, PAGE);
        for stranger in
            ["https://evil.example", "http://app.example", "https://app.example:8443", "https://APP.example", "null"]
        {
            let refused = client.call(&request.clone().header("Origin", stranger));
            assert_eq!(refused.status, 403, "{stranger} {}: {}", request.target, refused.text());
            assert_unmarked(&refused);
        }
    }
    let missing = get_from(&client, PAGE, &format!("/v1/generations/{NOWHERE}"));
    missing.assert_problem(404, "not_found");
    assert_readable_by(&missing, PAGE);
    let beyond = get_from(&client, OTHER, &format!("/v1/generations/{id}/stream?offset=999999"));
    beyond.assert_problem(409, "beyond_end");
    assert_readable_by(&beyond, OTHER);
    let by_token = world.client_with_key(&minted(&client, json!({ "may": "read" })));
    let no_run = by_token.chat(&Chat::complete("gen?tokens=1").header("Origin", PAGE));
    no_run.assert_envelope(403, "token_not_allowed");
    assert_readable_by(&no_run, PAGE);
    let no_balance = get_from(&by_token, PAGE, "/v1/balance");
    no_balance.assert_problem(403, "token_not_allowed");
    assert_readable_by(&no_balance, PAGE);
    let unpriced = client.chat(&Chat::complete("unpriced").header("Origin", PAGE));
    unpriced.assert_envelope(400, "model_not_priced");
    assert_readable_by(&unpriced, PAGE);

    // Who is not known is told nothing: whose allowed origins would they be?
    let unknown = get_from(&world.client_with_key("hfk_acme_x"), PAGE, &format!("/v1/generations/{id}"));
    unknown.assert_problem(401, "invalid_api_key");
    assert_unmarked(&unknown);
}

#[test]
fn what_is_for_the_tenants_own_staff_is_for_no_other_page() {
    let (world, client) = world("staff", &[PAGE]);
    for target in ["/v1/config", "/v1/keys"] {
        let refused = get_from(&client, PAGE, target);
        refused.assert_problem(403, "origin_not_allowed");
        assert_unmarked(&refused);
        let _ = client.get(target).expect(200);
        let _ = get_from(&client, &own(&client), target).expect(200);
    }
    assert_unmarked(&get_from(&world.operator(), PAGE, "/admin/tenants"));
    assert_unmarked(&get_from(&client, PAGE, "/healthz"));
    assert_unmarked(&get_from(&client, PAGE, "/v1/unknown"));
}

#[test]
fn a_change_of_the_allowed_origins_counts_from_the_next_request_on() {
    let (_world, client) = world("changed origins", &[PAGE]);
    let id = finished(&client);
    let target = format!("/v1/generations/{id}");
    let _ = get_from(&client, PAGE, &target).expect(200);
    let current = client.get("/v1/config").expect(200);
    let mut config = current.json();
    // The document itself, or the document in its envelope.
    let document = if config.get("config").is_some() { &mut config["config"] } else { &mut config };
    document["allowed_origins"] = json!([OTHER]);
    let mut request = client.authorized("PUT", "/v1/config").json(document);
    if let Some(etag) = current.header("etag") {
        request = request.header("If-Match", etag);
    }
    let _ = client.call(&request).expect(200);
    get_from(&client, PAGE, &target).assert_problem(403, "origin_not_allowed");
    assert_readable_by(&get_from(&client, OTHER, &target).expect(200), OTHER);
}

#[test]
fn a_token_of_one_origin_is_for_no_other() {
    let (world, client) = world("token origins", &[PAGE, OTHER]);
    let id = finished(&client);
    let target = format!("/v1/generations/{id}");
    let page = world.client_with_key(&minted(&client, json!({ "origins": [PAGE] })));
    assert_readable_by(&get_from(&page, PAGE, &target).expect(200), PAGE);
    for origin in [OTHER, "https://evil.example", "null", &own(&client)] {
        let refused = get_from(&page, origin, &target);
        refused.assert_problem(403, "origin_not_allowed");
        assert_unmarked(&refused);
    }
    page.get(&target).assert_problem(403, "origin_not_allowed");
    let any = world.client_with_key(&minted(&client, json!({})));
    assert_readable_by(&get_from(&any, OTHER, &target).expect(200), OTHER);
    let _ = any.get(&target).expect(200);
}

/// A page that is served may read why its request was refused, also before its origin was looked at. Any other may not.
#[test]
fn a_page_may_read_its_own_errors() {
    let (world, client) = world("errors of pages", &[PAGE]);
    let page = world.client_with_key(&minted(&client, json!({ "origins": [PAGE] })));
    let bad_body = |client: &Client| {
        let mut request = Chat::stream("gen").request(client.key());
        request.body = b"{".to_vec();
        request
    };
    let bad_header = |client: &Client| Chat::stream("gen").on_disconnect("perhaps").request(client.key());
    let bad_query = |client: &Client| client.authorized("GET", "/v1/generations?idempotency_key=a&idempotency_key=b");
    for asks in [&client, &page] {
        for request in [bad_body(asks), bad_header(asks), bad_query(asks)] {
            let refused = asks.call(&request.clone().header("Origin", PAGE));
            assert_eq!(refused.status, 400, "{}", refused.text());
            assert_readable_by(&refused, PAGE);
            for stranger in [OTHER, "null"] {
                assert_unmarked(&asks.call(&request.clone().header("Origin", stranger)));
            }
        }
    }
    // Whoever is not known reads nothing, whatever is wrong besides.
    let unknown = world.client_with_key(&holdfast_e2e::config::client_key("acme", "nobody's"));
    assert_unmarked(&unknown.call(&bad_body(&unknown).header("Origin", PAGE)));

    // A page whose token has ended learns that it needs another one; another page does not.
    let short = world.client_with_key(&minted(&client, json!({ "origins": [PAGE], "expires_in_s": 1 })));
    let any = world.client_with_key(&minted(&client, json!({ "expires_in_s": 1 })));
    let target = format!("/v1/generations/{NOWHERE}");
    let [ended, of_any_page] = [&short, &any].map(|page| {
        wait_for("the end of a token", || {
            let reply = get_from(page, PAGE, &target);
            if reply.status == 401 { Ok(reply) } else { Err(reply.text()) }
        })
    });
    ended.assert_problem(401, "token_expired");
    assert_readable_by(&ended, PAGE);
    assert_unmarked(&get_from(&short, OTHER, &target));
    assert_unmarked(&of_any_page);
}

#[test]
fn a_preflight_opens_nothing_and_tells_nothing() {
    let (world, client) = world("preflight", &[PAGE]);
    let preflight = |origin: &str, target: &str, headers: &str| {
        let request = Request::new("OPTIONS", target)
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", headers);
        client.call(&request)
    };
    let wanted = "authorization,content-type,idempotency-key,x-stainless-lang";
    let allowed = preflight(PAGE, "/v1/chat/completions", wanted).expect(204);
    assert_eq!(allowed.header("access-control-allow-origin"), Some(PAGE));
    assert_eq!(allowed.header("access-control-allow-headers"), Some(wanted.replace(',', ", ").as_str()));
    assert_eq!(allowed.header("access-control-allow-methods"), Some("GET, POST, PUT, DELETE"));
    assert_eq!(allowed.header("access-control-allow-credentials"), None);
    assert_varies(&allowed);
    assert!(allowed.body.is_empty());

    // The same for whom the tenant does not allow, and for what does not exist.
    let stranger = preflight("https://evil.example", "/v1/chat/completions", wanted).expect(204);
    assert_eq!(stranger.header("access-control-allow-origin"), Some("https://evil.example"));
    let nothing = preflight(PAGE, &format!("/v1/generations/{NOWHERE}/stream"), wanted).expect(204);
    let unknown = preflight(PAGE, "/v1/unknown", wanted).expect(204);
    for name in CORS {
        assert_eq!(nothing.header(name), allowed.header(name), "{name}");
        assert_eq!(unknown.header(name), allowed.header(name), "{name}");
    }
    assert_eq!(
        preflight(PAGE, "/v1/balance", "cookie,authorization").header("access-control-allow-headers"),
        Some("authorization")
    );
    for (origin, target) in
        [("null", "/v1/balance"), ("*", "/v1/balance"), (PAGE, "/healthz"), (PAGE, "/admin/tenants")]
    {
        let refused = preflight(origin, target, wanted);
        assert!(refused.status >= 400, "{origin} {target}: {}", refused.status);
        assert_unmarked(&refused);
    }
    let plain = client.call(&Request::new("OPTIONS", "/v1/balance").header("Origin", PAGE));
    plain.assert_problem(405, "method_not_allowed");

    let tag = unique("preflight");
    let sent = client.chat(&Chat::complete("gen?tokens=1").tag(&tag).header("Origin", "https://evil.example"));
    sent.assert_envelope(403, "origin_not_allowed");
    assert!(world.simulator.log(&tag).is_empty(), "the preflight's answer was no permission");
}
