//! The generations endpoints, errors, and what crosses the edge in each direction.

use holdfast_e2e::config::{PROVIDER_KEY, client_key};
use holdfast_e2e::http::{Exchange, Request};
use holdfast_e2e::{Chat, Client, Options, Reply, Route, Tenant, World, assert_bytes, assert_completed, unique};
use serde_json::{Value, json};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

#[test]
fn health_and_front_page_need_no_key() {
    let (world, _) = world("health");
    let anybody = world.client_with_key("");
    let health = anybody.call(&Request::new("GET", "/healthz")).expect(200);
    assert_eq!(health.json()["status"], "ok");
    let page = anybody.call(&Request::new("GET", "/")).expect(200);
    assert!(page.required("content-type").starts_with("text/html"), "{:?}", page.headers);
}

#[test]
fn a_wrong_key_is_refused_everywhere() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new("keys").tenant(&tenant));
    let good = tenant.key();
    let flipped = |at: usize| {
        let mut key = good.to_owned();
        let other = if &key[at..=at] == "0" { "1" } else { "0" };
        key.replace_range(at..=at, other);
        key
    };
    let wrong = [
        String::new(),
        "sk-something".to_owned(),
        client_key("acme", "a well-formed key that nobody was given"),
        client_key("nobody", "a tenant that does not exist"),
        client_key("acme", "x").to_uppercase(),
        flipped(good.len() - 1),
        flipped("hfk_acme_".len()),
        format!("{good}0"),
        good[..good.len() - 1].to_owned(),
    ];
    for key in &wrong {
        let client = world.client_with_key(key);
        let tag = unique("wrong-key");
        let reply = client.chat(&Chat::stream("gen?tokens=3").tag(&tag));
        reply.assert_envelope(401, "invalid_api_key");
        world.simulator.assert_never_called(&tag);
        for target in ["/v1/balance", "/v1/generations/gen_00000000000000000000000000000000"] {
            client.get(target).assert_problem(401, "invalid_api_key");
        }
    }
    let mut without = Chat::stream("gen?tokens=3").request("");
    without.headers.retain(|(name, _)| name != "Authorization");
    let anybody = world.client_with_key("");
    anybody.call(&without).assert_envelope(401, "invalid_api_key");
    let other_header = without.header("x-api-key", good);
    assert_eq!(anybody.call(&other_header).status, 200, "the key may come by x-api-key");
}

#[test]
fn unknown_and_foreign_generations_are_the_same_404() {
    let tenants = ["acme", "other"].map(|id| Tenant::new(id).route(Route::new("chat").detach()));
    let world = World::start(&Options::new("404").tenant(&tenants[0]).tenant(&tenants[1]));
    let (owner, other) = (world.client(&tenants[0]), world.client(&tenants[1]));
    let (mut exchange, foreign) = owner.begin(&Chat::stream("gen?tokens=3"));
    exchange.finish().clean();
    owner.wait_until_settled(&foreign);

    let unknown = "gen_0123456789abcdef0123456789abcdef";
    for (method, tail) in
        [("GET", ""), ("GET", "/stream"), ("GET", "/stream?offset=0"), ("GET", "/result"), ("POST", "/cancel")]
    {
        let ask = |id: &str| other.call(&other.authorized(method, &format!("/v1/generations/{id}{tail}")));
        let first = ask(unknown);
        first.assert_problem(404, "not_found");
        for id in [foreign.as_str(), unknown, "gen_", "nonsense", &foreign.to_uppercase()] {
            let reply = ask(id);
            assert_eq!((reply.status, &reply.body), (404, &first.body), "{method} {id}{tail}");
            assert_eq!(reply.header("content-type"), first.header("content-type"), "{method} {id}{tail}");
        }
        assert!(!first.text().contains(unknown), "the id is not part of it: {}", first.text());
    }
    assert!(other.by_idempotency_key("anything").is_empty());
    assert_eq!(owner.generation(&foreign)["id"], foreign, "and its owner still has it");
}

#[test]
fn a_bad_cursor_is_refused() {
    let (_world, client) = world("cursors");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3"));
    let length = exchange.finish().clean().len();
    client.wait_until_settled(&id);
    for cursor in ["-1", "abc", "1e3", "0x10", "99999999999999999999999", "1.5", "", "%20"] {
        let reply = client.get(&format!("/v1/generations/{id}/stream?offset={cursor}"));
        assert_eq!(reply.status, 400, "offset {cursor:?}: {}", reply.text());
        assert_eq!(reply.header("content-type"), Some("application/problem+json"), "offset {cursor:?}");
    }
    for cursor in ["abc", "-1", "1e3"] {
        let mut reader = client.read_events(&id, Some(cursor));
        assert_eq!(reader.head().status, 400, "Last-Event-ID {cursor:?}");
    }
    let beyond = client.get(&format!("/v1/generations/{id}/stream?offset={}", length + 1));
    assert_eq!(beyond.status, 409, "{}", beyond.text());
    assert_eq!(beyond.header("content-type"), Some("application/problem+json"));
    assert_eq!(beyond.json()["log_length"], length, "{}", beyond.text());
    let mut reader = client.read_events(&id, Some(&(length + 1).to_string()));
    assert_eq!(reader.head().status, 409);
    assert_bytes!(client.read_all_from(&id, length), b"");
}

#[test]
fn a_result_is_there_when_the_generation_is_at_its_end() {
    let (world, client) = world("result");
    let chat = Chat::stream("gen?tokens=40&interval_ms=15").tag(&unique("result"));
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(300);
    let early = client.result(&id);
    assert_eq!(early.status, 202, "{}", early.text());
    assert_eq!(early.required("retry-after"), "1");
    assert_eq!(early.required("content-type"), "application/problem+json");
    exchange.finish().clean();
    client.wait_until_settled(&id);
    let result = client.result(&id).expect(200);
    assert_bytes!(result.body, world.simulator.expected(&chat));
    assert!(result.required("content-type").starts_with("text/event-stream"));
}

#[test]
fn a_generation_is_found_by_its_idempotency_key() {
    let (_world, client) = world("by key");
    let key = unique("key");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3").idempotency_key(&key));
    let list = client.by_idempotency_key(&key);
    assert_eq!(list.len(), 1, "{list:?}");
    assert_eq!(list[0]["id"], id, "{list:?}");
    assert_eq!(list[0]["object"], "generation", "{list:?}");
    exchange.finish().clean();
    let settled = client.wait_until_settled(&id);
    assert_eq!(client.by_idempotency_key(&key), [settled]);
    assert!(client.by_idempotency_key(&unique("never")).is_empty());
}

/// Sends something that must be refused, and checks that it left no trace.
fn assert_refused(world: &World, client: &Client, mut request: Request, tag: &str) -> Reply {
    let before = client.balance();
    request.headers.push(("X-Marker".to_owned(), tag.to_owned()));
    let reply = client.call(&request);
    assert!(reply.status >= 400, "{}", reply.text());
    assert_eq!(client.balance(), before, "nothing is held");
    world.simulator.assert_never_called(tag);
    reply
}

#[test]
fn requests_that_make_no_sense_are_refused() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach().for_model("g*"));
    let world = World::start(&Options::new("refusals").tenant(&tenant));
    let client = world.client(&tenant);
    let request = |chat: &Chat| chat.request(client.key());
    let tag = unique("refused");
    let good = request(&Chat::stream("gen?tokens=3").tag(&tag));
    let refuse = |request: Request| assert_refused(&world, &client, request, &tag);

    let mut plain_text = good.clone();
    plain_text.headers.retain(|(name, _)| name != "Content-Type");
    refuse(plain_text.header("Content-Type", "text/plain")).assert_envelope(415, "unsupported_media_type");

    let garbage: [&[u8]; 7] =
        [b"", b"{", b"[]", b"null", b"\xff\xfe", b"{\"messages\":[]}", b"{\"model\":7,\"messages\":[]}"];
    for body in garbage {
        let mut broken = good.clone();
        broken.body = body.to_vec();
        refuse(broken).assert_envelope(400, "invalid_request");
    }
    for (field, value) in
        [("stream", json!("yes")), ("max_completion_tokens", json!(-1)), ("max_tokens", json!("many"))]
    {
        let odd = Chat::stream("gen?tokens=3").tag(&tag).field(field, value);
        refuse(request(&odd)).assert_envelope(400, "invalid_request");
    }
    let policy = Chat::stream("gen?tokens=3").tag(&tag).on_disconnect("perhaps");
    refuse(request(&policy)).assert_envelope(400, "invalid_request");

    refuse(request(&Chat::stream("claude").tag(&tag))).assert_envelope(404, "no_route");
    refuse(request(&Chat::stream("gemma").tag(&tag))).assert_envelope(400, "model_not_priced");
}

#[test]
fn what_crosses_the_edge_is_on_a_list() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new("headers").tenant(&tenant));
    let client = world.client(&tenant);
    let tag = unique("headers");
    let chat = Chat::stream("gen?tokens=3")
        .tag(&tag)
        .idempotency_key(&unique("key"))
        .header("Cookie", "session=sentinel-cookie")
        .header("X-Forwarded-For", "203.0.113.9")
        .header("X-Sentinel", "sentinel-header")
        .header("OpenAI-Organization", "org-sentinel")
        .header("Accept-Encoding", "br, gzip");
    let mut exchange = client.open(&chat);
    let head = exchange.head();
    assert_eq!(head.status, 200);
    exchange.finish().clean();

    let entry = world.simulator.only(&tag);
    let seen = entry.headers().to_string();
    for secret in ["sentinel", tenant.key(), "203.0.113.9"] {
        assert!(!seen.contains(secret), "{secret} went to the provider: {seen}");
    }
    assert_eq!(entry.field("authorization_present"), true);
    assert_eq!(entry.headers()["content-type"], "application/json", "{seen}");
    assert_eq!(entry.headers()["accept-encoding"], "identity", "{seen}");

    let answered = format!("{head:?}");
    for secret in ["__cf_bm", PROVIDER_KEY, world.simulator.origin().as_str()] {
        assert!(!answered.contains(secret), "{secret} came to the client: {answered}");
    }
    assert_eq!(head.header("set-cookie"), None);
    assert!(head.header("x-request-id").is_some(), "the provider's request id helps its users: {answered}");
    let all = client.get(&format!("/v1/generations/{}", head.required("x-generation-id"))).text();
    assert!(!all.contains(PROVIDER_KEY) && !all.contains(tenant.key()), "{all}");
    assert!(!world.output().contains(PROVIDER_KEY) && !world.output().contains(tenant.key()));
}

#[test]
fn a_request_passes_unchanged_but_for_what_the_edge_must_set() {
    let (world, client) = world("body");
    let tag = unique("body");
    let tools = json!([{ "type": "function", "function": { "name": "f", "parameters": { "b": 1, "a": 1.5e3 } } }]);
    let chat = Chat::stream("gen?tokens=3").tag(&tag).field("tools", tools.clone()).field("temperature", 0.25);
    let chat = chat.field("unknown_field", json!({ "deep": [1, { "x": "é" }] }));
    let reply = client.chat(&chat).expect(200);
    assert_completed(&client.wait_until_settled(reply.required("x-generation-id")), 12, 3);
    let entry = world.simulator.only(&tag);
    let mut sent = entry.body().clone();
    let original: Value = serde_json::from_slice(&chat.request("k").body).expect("JSON");
    let object = sent.as_object_mut().expect("an object");
    assert_eq!(object.remove("max_completion_tokens"), Some(json!(2_000)));
    assert_eq!(object.remove("stream_options"), Some(json!({ "include_usage": true })));
    assert_eq!(sent, original);
}

#[test]
fn other_paths_and_methods_are_refused() {
    let (world, client) = world("paths");
    for (method, target) in [
        ("GET", "/v1/chat/completions"),
        ("POST", "/v1/balance"),
        ("POST", "/v1/generations/gen_0123456789abcdef0123456789abcdef"),
        ("GET", "/v1/nothing-of-the-kind"),
        ("POST", "/v1/chat/completions/more"),
    ] {
        let reply = client.call(&client.authorized(method, target));
        assert!(matches!(reply.status, 404 | 405), "{method} {target}: {} {}", reply.status, reply.text());
    }
    let mut odd = Exchange::send(client.port(), &Request::new("GET", "/v1//../healthz/..%2f"));
    assert!(odd.head().status >= 400);
    drop(world);
}
