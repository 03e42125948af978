//! The tenant's document over HTTP: put, read, its versions, its faults, and which route takes a request.

use holdfast_e2e::{Chat, Client, Options, Reply, Route, Tenant, World};
use serde_json::{Value, json};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn put(client: &Client, target: &str, if_match: Option<&str>, document: &Value) -> Reply {
    let request = client.authorized("PUT", target).json(document);
    client.call(&match if_match {
        Some(tag) => request.header("If-Match", tag),
        None => request,
    })
}

fn post(client: &Client, target: &str, body: &Value) -> Reply {
    client.call(&client.authorized("POST", target).json(body))
}

/// A document with one route of a name.
fn document(route: &str) -> Value {
    json!({ "routes": [{ "name": route, "provider": "simulator", "max_output_tokens": 2_000 }] })
}

fn tag(client: &Client) -> String {
    client.get("/v1/config").expect(200).required("etag").to_owned()
}

/// "A change applies to the next request; running generations keep the version that they were admitted under."
#[test]
fn a_change_applies_to_the_next_request() {
    let (_world, client) = world("config change");
    let first = client.get("/v1/config").expect(200);
    assert_eq!(first.required("holdfast-config-version"), "1");
    assert_eq!(first.json()["routes"][0]["name"], "chat");

    let (running, running_id) = client.begin(&Chat::stream("gen?tokens=40&interval_ms=20"));
    let mut next = first.json();
    next["routes"][0]["name"] = json!("next");
    next["routes"][0]["on_disconnect"] = json!("cancel");
    let put = put(&client, "/v1/config", first.header("etag"), &next).expect(200).json();
    assert_eq!((&put["object"], &put["version"]), (&json!("config.version"), &json!(2)));
    let second = client.get("/v1/config").expect(200);
    assert_eq!((second.json(), second.header("etag")), (next, put["etag"].as_str()));

    // The client of the running one leaves: it was admitted under `detach`, and goes on.
    running.abandon();
    let (_, id) = client.begin(&Chat::stream("gen?tokens=3"));
    let settled = client.wait_until_settled(&running_id);
    assert_eq!((&settled["route"], &settled["lifecycle"]), (&json!("chat"), &json!("completed")));
    assert_eq!(client.generation(&id)["route"], "next");

    let versions = client.get("/v1/config/versions").expect(200).json();
    let numbers: Vec<_> = versions["data"].as_array().unwrap().iter().map(|entry| entry["version"].as_u64()).collect();
    assert_eq!((numbers, &versions["has_more"]), (vec![Some(2), Some(1)], &json!(false)));
    let before = client.get("/v1/config/versions?before=2").expect(200).json();
    assert_eq!(before["data"].as_array().map(Vec::len), Some(1));
    let kept = client.get("/v1/config/versions/1").expect(200);
    assert_eq!((kept.body, kept.headers.get("etag")), (first.body.clone(), first.headers.get("etag")));
    for unknown in ["3", "0", "x", "-1", "99999999999999999999"] {
        client.get(&format!("/v1/config/versions/{unknown}")).assert_problem(404, "unknown_config_version");
    }
    client.get("/v1/config/versions?before=x").assert_problem(400, "invalid_cursor");
}

/// Of writers who read the same version one wins; nobody's change is undone unseen.
#[test]
fn races_have_one_winner() {
    let (_world, client) = world("config races");
    let read = tag(&client);
    put(&client, "/v1/config", None, &document("blind")).assert_problem(428, "precondition_required");
    put(&client, "/v1/config", Some("\"other\""), &document("stale")).assert_problem(412, "precondition_failed");

    let replies: Vec<Reply> = std::thread::scope(|scope| {
        let writers: Vec<_> = (0..8)
            .map(|n| {
                let (client, read) = (&client, &read);
                scope.spawn(move || put(client, "/v1/config", Some(read), &document(&format!("writer-{n}"))))
            })
            .collect();
        writers.into_iter().map(|writer| writer.join().expect("a writer")).collect()
    });
    let won: Vec<_> = replies.iter().filter(|reply| reply.status == 200).collect();
    assert_eq!(won.len(), 1, "{replies:?}");
    for lost in replies.iter().filter(|reply| reply.status != 200) {
        lost.assert_problem(412, "precondition_failed");
    }
    let now = client.get("/v1/config").expect(200);
    assert_eq!(now.header("etag"), won[0].json()["etag"].as_str());
    assert_eq!(now.required("holdfast-config-version"), "2");

    // A put whose answer was lost is repeated: the same version, though its `If-Match` is old.
    let again = put(&client, "/v1/config", Some(&read), &now.json()).expect(200).json();
    assert_eq!(again["version"], 2);
    assert_eq!(client.get("/v1/config/versions").expect(200).json()["data"].as_array().map(Vec::len), Some(2));
}

/// "A config with ten faults yields ten named errors", and is not taken.
#[test]
fn ten_faults_are_ten_errors() {
    let (_world, client) = world("config faults");
    let before = client.get("/v1/config").expect(200);
    let faulty = json!({
        "routes": [
            { "name": "a", "provider": "simulator", "match": { "model": "gpt-*" }, "grase_ms": 5, "lease_ms": 5 },
            { "name": "b", "provider": "unknown", "match": { "model": "gen" }, "on_disconnect": "detatch" },
            { "name": "a", "provider": "simulator", "match": { "model": "o-1" }, "owner": "edge", "total_ms": 30_000 },
            { "provider": "simulator", "match": { "model": "gen" } }
        ],
        "concurrency": "many",
        "allowed_origins": ["app.example"],
    });
    let refused = put(&client, "/v1/config", before.header("etag"), &faulty);
    refused.assert_problem(422, "invalid_config");
    let problem = refused.json();
    let mut errors: Vec<_> = problem["errors"].as_array().unwrap().iter().collect();
    errors.sort_by_key(|error| error["path"].as_str().map(str::to_owned));
    let named: Vec<_> = errors.iter().map(|error| (error["path"].as_str().unwrap(), &error["value"])).collect();
    assert_eq!(
        named,
        [
            ("allowed_origins[0]", &json!("app.example")),
            ("concurrency", &json!("many")),
            ("routes[0].grase_ms", &json!(5)),
            ("routes[0].lease_ms", &json!(5)),
            ("routes[1].on_disconnect", &json!("detatch")),
            ("routes[1].provider", &json!("unknown")),
            ("routes[2].match.model", &json!("o-1")),
            ("routes[2].name", &json!("a")),
            ("routes[2].total_ms", &json!(30_000)),
            ("routes[3].name", &Value::Null),
        ]
    );
    assert!(errors.iter().all(|error| error["reason"].as_str().is_some_and(|reason| !reason.is_empty())));
    let after = client.get("/v1/config").expect(200);
    assert_eq!((after.body, after.headers.get("etag")), (before.body, before.headers.get("etag")));

    // The dry run finds the same.
    let checked = post(&client, "/v1/config/check", &json!({ "document": faulty })).expect(200).json();
    assert_eq!(checked["errors"], problem["errors"]);
    let twice = client.authorized("POST", "/v1/config/check").header("Content-Type", "application/json");
    let mut twice = twice;
    twice.body = br#"{"document":{"concurrency":1,"concurrency":2}}"#.to_vec();
    let twice = client.call(&twice).expect(200).json();
    assert_eq!(twice["errors"][0]["path"], "concurrency");
    assert_eq!(twice["errors"][0]["code"], "duplicate");
}

/// "Which route would this request take, and why": what the check says is what admission does.
#[test]
fn the_check_tells_what_admission_does() {
    let tenant = Tenant::new("acme")
        .route(Route::new("report").detach().with("match", json!({ "header": { "x-kind": "report" } })))
        .route(Route::new("night").with("match", json!({ "workload": "batch", "model": "gen*" })))
        .route(
            Route::new("rest").cancel().with("match", json!({ "path": "/v1/nowhere" })).with("allow_override", false),
        )
        .with("default_route", "rest");
    let world = World::start(&Options::new("config check").tenant(&tenant));
    let client = world.client(&tenant);
    let check = |request: Value| post(&client, "/v1/config/check", &json!({ "request": request })).expect(200).json();

    for (chat, request, route, by, passed_over) in [
        (
            Chat::stream("gen?tokens=1").header("X-Kind", "report"),
            json!({ "headers": { "X-Kind": "report" } }),
            "report",
            "first_match",
            0,
        ),
        (
            Chat::stream("gen?tokens=1").header("Holdfast-Workload", "batch"),
            json!({ "workload": "batch" }),
            "night",
            "first_match",
            1,
        ),
        (
            Chat::stream("gen?tokens=1").header("X-Kind", "memo"),
            json!({ "headers": { "x-kind": "memo" } }),
            "rest",
            "default",
            3,
        ),
    ] {
        let mut request = request;
        request["model"] = json!("gen?tokens=1");
        let told = &check(request)["route"];
        assert_eq!((&told["chosen"]["name"], &told["chosen"]["by"]), (&json!(route), &json!(by)), "{told}");
        assert_eq!(told["passed_over"].as_array().map(Vec::len), Some(passed_over), "{told}");
        let (_, id) = client.begin(&chat);
        assert_eq!(client.generation(&id)["route"], route);
    }
    let told = &check(json!({ "model": "gen", "headers": { "x-kind": "memo" } }))["route"];
    let because = |index: usize| &told["passed_over"][index]["because"];
    assert_eq!(because(0), &json!({ "part": "header", "name": "x-kind", "wanted": "report", "found": "memo" }));
    assert_eq!(because(1), &json!({ "part": "workload", "wanted": "batch", "found": null }));
    assert_eq!(because(2), &json!({ "part": "path", "wanted": "/v1/nowhere", "found": "/v1/chat/completions" }));
    let refused = &check(json!({ "model": "gen", "on_disconnect": "detach" }))["route"];
    assert_eq!(refused["refusal"], "override_not_allowed");
    let refused = client.chat(&Chat::stream("gen?tokens=1").on_disconnect("detach"));
    refused.assert_envelope(400, "override_not_allowed");

    // A document that is not in force yet.
    let other = json!({ "document": document("other"), "request": { "model": "gen" } });
    let told = post(&client, "/v1/config/check", &other).expect(200).json();
    assert_eq!((&told["route"]["chosen"]["name"], &told["errors"]), (&json!("other"), &json!([])));
    assert_eq!(client.get("/v1/config").expect(200).required("holdfast-config-version"), "1", "nothing is stored");
    post(&client, "/v1/config/check", &json!({ "requst": {} })).assert_problem(400, "invalid_request");
    post(&client, "/v1/config/check", &json!({ "request": { "modl": "gen" } })).assert_problem(400, "invalid_setting");
    let odd = Chat::stream("gen?tokens=1").header("Holdfast-Workload", "party");
    client.chat(&odd).assert_envelope(400, "invalid_request");
}

#[test]
fn a_route_has_slots_of_its_own() {
    let tenant = Tenant::new("acme")
        .route(Route::new("narrow").for_model("gen?tokens=50*").with("concurrency", 1))
        .route(Route::new("wide"));
    let world = World::start(&Options::new("route slots").tenant(&tenant));
    let client = world.client(&tenant);
    let (running, id) = client.begin(&Chat::stream("gen?tokens=50&interval_ms=100"));
    client.chat(&Chat::stream("gen?tokens=50")).assert_envelope(429, "concurrency_exceeded");
    assert_eq!(client.chat(&Chat::stream("gen?tokens=2")).status, 200, "the other route has room");
    let _cancelled = client.cancel(&id);
    drop(running);
    let _settled = client.wait_until_settled(&id);
    assert_eq!(client.chat(&Chat::stream("gen?tokens=50")).status, 200);
}

/// The operator configures any tenant, a client's key none; a stranger is not told whether there is one.
#[test]
fn who_may_configure() {
    let (world, client) = world("config authority");
    let operator = world.operator();
    let below = "/admin/tenants/acme/config";
    let read = operator.get(below).expect(200);
    assert_eq!(read.header("etag"), Some(tag(&client).as_str()));
    let put_by_operator = put(&operator, below, read.header("etag"), &document("set")).expect(200).json();
    assert_eq!(put_by_operator["version"], 2);
    assert_eq!(client.get("/v1/config").expect(200).json(), document("set"));
    let checked = post(&operator, &format!("{below}/check"), &json!({ "request": { "model": "gen" } })).expect(200);
    assert_eq!(checked.json()["route"]["chosen"]["name"], "set");
    assert_eq!(operator.get(&format!("{below}/versions")).expect(200).json()["data"].as_array().map(Vec::len), Some(2));
    assert_eq!(operator.get(&format!("{below}/versions/2")).expect(200).json(), document("set"));
    operator.get("/admin/tenants/nobody/config").assert_problem(404, "unknown_tenant");

    // A tenant that has configured nothing: its document is empty, and can be put without looking first.
    let fresh = json!({ "id": "fresh" });
    let _created = post(&operator, "/admin/tenants", &fresh).expect(201);
    let empty = operator.get("/admin/tenants/fresh/config").expect(200);
    assert_eq!((empty.text().as_str(), empty.required("holdfast-config-version")), ("{}", "0"));
    let first = put(&operator, "/admin/tenants/fresh/config", None, &document("first")).expect(200).json();
    assert_eq!(first["version"], 1);

    let issued = post(&client, "/v1/keys", &json!({ "role": "client" })).expect(201).json();
    let plain = world.client_with_key(issued["key"].as_str().unwrap());
    for target in ["/v1/config", "/v1/config/versions", "/v1/config/versions/1"] {
        plain.get(target).assert_problem(403, "role_required");
        world.client_with_key("").get(target).assert_problem(401, "invalid_api_key");
    }
    put(&plain, "/v1/config", Some("*"), &document("x")).assert_problem(403, "role_required");
    post(&plain, "/v1/config/check", &json!({})).assert_problem(403, "role_required");
}

/// The schema is published: what an editor is pointed at is what a document is checked by.
#[test]
fn the_schema_is_served() {
    let (world, client) = world("config schema");
    let published = world.client_with_key("").get("/config.schema.json").expect(200);
    assert!(published.header("content-type").is_some_and(|kind| kind.starts_with("application/json")), "{published:?}");
    let schema = published.json();
    assert_eq!(schema["$schema"], "https://json-schema.org/draft/2020-12/schema");
    let words = &schema["$defs"]["Owner"]["oneOf"];
    let words: Vec<_> =
        words.as_array().unwrap().iter().map(|word| format!("`{}`", word["const"].as_str().unwrap())).collect();
    let mut faulty = document("r");
    faulty["routes"][0]["owner"] = json!("nobody");
    let problem = put(&client, "/v1/config", Some("*"), &faulty).json();
    assert_eq!(problem["errors"][0]["reason"], format!("must be one of {}", words.join(", ")));
}
