//! Every API on its own path, at its own provider: what goes up, what comes down, how it ends, what it costs.

use holdfast_e2e::config::{PROVIDER_KEY, price_micros};
use holdfast_e2e::http::Request;
use holdfast_e2e::sse::{event_ends, events};
use holdfast_e2e::{
    Api, Chat, Client, Options, Reply, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, now_ms,
    unique, wait_for,
};
use serde_json::{Value, json};
use sha2::{Digest, Sha256};

fn world(name: &str, route: &Route) -> (World, Client) {
    let tenant = Tenant::new("acme").all_paths(route);
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

/// Both owners of the driver, with a policy.
fn owners(policy: fn(Route) -> Route) -> [(&'static str, Route); 2] {
    let route = policy(Route::new("any"));
    [("object", route.clone()), ("edge", route.edge_owned().with("total_ms", 25_000))]
}

/// Asserts that an answer is an error of this status and code, in the envelope that the API's own SDK reads.
fn assert_own_error(api: Api, reply: &Reply, status: u16, code: &str) {
    assert_eq!(reply.status, status, "{api:?}: {}", reply.text());
    let body = reply.json();
    assert_eq!(own_code(api, &body), Some(code), "{api:?}: {body}");
    match api {
        Api::Messages => assert_eq!(body["type"], "error", "{body}"),
        Api::Gemini => assert_eq!(body["error"]["code"], status, "{body}"),
        _ => assert_eq!(body["error"].get("param"), Some(&Value::Null), "{body}"),
    }
}

/// The code of an error of ours, where the API's envelope has it.
fn own_code(api: Api, body: &Value) -> Option<&str> {
    match api {
        Api::Gemini => body["error"]["details"][0]["reason"].as_str(),
        _ => body["error"]["code"].as_str(),
    }
}

/// Asserts that a stream ends with an error of ours in the API's own form, behind a prefix of what the provider would
/// have sent, and returns how long the prefix is.
fn assert_broken(api: Api, got: &[u8], sent: &[u8]) -> usize {
    let text = String::from_utf8_lossy(got);
    let last = events(got).pop().unwrap_or_else(|| panic!("{api:?}: no event in {text}"));
    let named = matches!(api, Api::Responses | Api::Messages);
    assert_eq!(last.name, if named { "error" } else { "" }, "{api:?}: {text}");
    let data: Value =
        serde_json::from_str(&last.data).unwrap_or_else(|error| panic!("{api:?}: {error}: {}", last.data));
    assert_eq!(own_code(api, &data), Some("upstream_interrupted"), "{api:?}: {data}");
    let start = event_ends(got).iter().rev().nth(1).copied().unwrap_or(0);
    let prefix = got[..start].iter().zip(sent).take_while(|(got, sent)| got == sent).count();
    let added = &got[prefix..start];
    assert!(added.len() <= 2 && added.iter().all(|byte| *byte == b'\n'), "{api:?}: not a prefix: {text}");
    prefix
}

fn sha256(text: &str) -> String {
    Sha256::digest(text.as_bytes()).iter().map(|byte| format!("{byte:02x}")).collect()
}

#[test]
fn a_stream_of_every_api() {
    for (owner, route) in owners(Route::detach) {
        let (world, client) = world(&format!("streams, {owner}"), &route);
        for api in Api::STREAMING {
            let tag = unique("stream");
            let model = "gen?tokens=30&prompt_tokens=40&cached_tokens=16&reasoning_tokens=8&text=multibyte&split=11";
            let chat = Chat::of(api, model, true).tag(&tag);
            let expected = world.simulator.expected(&chat);
            let (mut exchange, id) = client.begin(&chat);
            assert_bytes!(exchange.finish().clean(), &expected, "{owner} {api:?}");
            let settled = client.wait_until_settled(&id);
            assert_completed(&settled, 40, 30);
            assert_eq!(settled["usage"]["cached_input_tokens"], 16, "{settled}");
            let entry = world.simulator.only(&tag);
            assert_eq!(entry.field("api"), api.name(), "{}", entry.brief());
            // Read on from any byte, and from every event.
            for offset in [0, 1, expected.len() / 2, expected.len()] {
                assert_bytes!(client.read_all_from(&id, offset), &expected[offset..], "{api:?} from {offset}");
            }
            let replayed = events(&client.read_events(&id, None).finish().clean());
            let data: Vec<_> = replayed.iter().map(|event| (event.name.clone(), event.data.clone())).collect();
            let sent: Vec<_> = events(&expected).into_iter().map(|event| (event.name, event.data)).collect();
            assert_eq!(data[..sent.len()], sent, "{api:?}");
        }
        client.wait_until_nothing_is_held();
    }
}

#[test]
fn an_answer_in_one_piece_of_every_api() {
    for (owner, route) in owners(Route::detach) {
        let (world, client) = world(&format!("whole answers, {owner}"), &route);
        for api in Api::ALL {
            let chat =
                Chat::of(api, "gen?tokens=30&prompt_tokens=40&cache_write_tokens=4", false).tag(&unique("whole"));
            let reply = client.chat(&chat).expect(200);
            assert_bytes!(reply.body, world.simulator.sent_for(&chat), "{owner} {api:?}");
            let id = reply.required("x-generation-id");
            let output_tokens = if api == Api::Embeddings { 0 } else { 30 };
            let settled = client.wait_until_settled(id);
            assert_completed(&settled, 40, output_tokens);
            assert_bytes!(client.result(id).expect(200).body, reply.body, "{owner} {api:?}");
            if api == Api::Embeddings {
                // The hold is that of the input alone: a vector has no output tokens.
                let hold = settled["cost"]["hold_micros"].as_u64();
                assert!(hold < Some(price_micros(1_000, 0)), "{settled}");
            }
        }
        client.wait_until_nothing_is_held();
    }
}

/// Each dialect's provider gets the key as it wants it, and of the client's headers those alone that it knows.
#[test]
fn what_goes_up_is_ours_but_for_a_few_headers() {
    let (world, client) = world("headers", &Route::new("any").detach());
    for api in Api::ALL {
        let tag = unique("headers");
        let chat = Chat::of(api, "gen?tokens=2", false)
            .tag(&tag)
            .header("anthropic-beta", "feature-1")
            .header("openai-beta", "feature-2")
            .header("openai-organization", "org-of-the-client")
            .header("cookie", "a=b")
            .header("x-forwarded-for", "192.0.2.1")
            .header("x-stainless-lang", "js");
        let reply = client.chat(&chat).expect(200);
        let entry = world.simulator.only(&tag);
        let (header, value) = match api {
            Api::Messages => ("x-api-key", PROVIDER_KEY.to_owned()),
            Api::Gemini => ("x-goog-api-key", PROVIDER_KEY.to_owned()),
            _ => ("authorization", format!("Bearer {PROVIDER_KEY}")),
        };
        assert_eq!(entry.field("credential_header"), header, "{api:?}");
        assert_eq!(entry.field("authorization_sha256"), &json!(sha256(&value)), "{api:?}");
        let sent = |name: &str| entry.headers()[name].as_str();
        let (anthropic, openai) = (api == Api::Messages, !matches!(api, Api::Messages | Api::Gemini));
        assert_eq!(sent("anthropic-beta"), anthropic.then_some("feature-1"), "{api:?}");
        assert_eq!(sent("anthropic-version"), anthropic.then_some("2023-06-01"), "{api:?}");
        assert_eq!(sent("openai-beta"), openai.then_some("feature-2"), "{api:?}");
        for never in ["openai-organization", "cookie", "x-forwarded-for", "x-stainless-lang"] {
            assert_eq!(sent(never), None, "{api:?}");
        }
        assert_eq!(entry.field("query"), &json!([]), "{api:?}");
        // What comes back: what SDKs read, and nothing that names the operator.
        for never in ["set-cookie", "openai-organization", "anthropic-organization-id", "openai-version"] {
            assert_eq!(reply.header(never), None, "{api:?}");
        }
        match api {
            Api::Messages => {
                assert!(reply.required("request-id").starts_with("req_"));
                assert_eq!(reply.required("anthropic-ratelimit-requests-remaining"), "999");
            }
            Api::Gemini => {}
            _ => assert!(reply.required("x-request-id").starts_with("req_"), "{api:?}"),
        }
    }
    // The version that the client names counts.
    let tag = unique("version");
    let chat = Chat::of(Api::Messages, "gen", true).tag(&tag).header("anthropic-version", "2024-10-22");
    client.begin(&chat).0.finish();
    assert_eq!(world.simulator.only(&tag).headers()["anthropic-version"], "2024-10-22");
}

#[test]
fn the_cap_of_the_route_goes_up_in_the_members_of_each_api() {
    let (world, client) = world("caps", &Route::new("any").detach().with("max_output_tokens", 77));
    for api in Api::ALL {
        let tag = unique("cap");
        client.chat(&Chat::of(api, "gen?tokens=2", false).tag(&tag)).expect(200);
        let body = world.simulator.only(&tag).body().clone();
        let cap = match api {
            Api::Chat => &body["max_completion_tokens"],
            Api::Completions | Api::Messages => &body["max_tokens"],
            Api::Responses => &body["max_output_tokens"],
            Api::Gemini => &body["generationConfig"]["maxOutputTokens"],
            Api::Embeddings => &json!(77),
        };
        assert_eq!(cap, 77, "{api:?}: {body}");
        let text = body.to_string();
        assert_eq!(text.matches("77").count(), usize::from(api != Api::Embeddings), "{api:?}: {text}");
    }
}

/// The provider says within its stream that it failed: its clients get what it says, and nothing of ours.
#[test]
fn an_error_in_band_passes_and_is_a_failure() {
    for (owner, route) in owners(Route::detach) {
        let (world, client) = world(&format!("in-band errors, {owner}"), &route);
        for api in Api::STREAMING {
            let chat = Chat::of(api, "gen?tokens=30&error_after=9", true).tag(&unique("in-band"));
            let (mut exchange, id) = client.begin(&chat);
            assert_bytes!(exchange.finish().clean(), world.simulator.sent_for(&chat), "{owner} {api:?}");
            let settled = client.wait_until_settled(&id);
            assert_eq!(settled["lifecycle"], "failed", "{owner} {api:?}: {settled}");
            assert_eq!(settled["reason"], "provider_error_in_band", "{owner} {api:?}: {settled}");
            assert_estimated(&settled);
        }
        client.wait_until_nothing_is_held();
    }
}

/// A byte behind the 20th event that is at the end of an event, or is not.
fn place(world: &World, api: Api, fault: &str, at_event_end: bool) -> (Chat, usize) {
    let tag = unique("dies");
    let dying_at = |k: usize| {
        let chat = Chat::of(api, &format!("gen?tokens=40&{fault}={k}"), true).tag(&tag);
        let ends = event_ends(&world.simulator.sent_for(&chat));
        (chat, ends)
    };
    let from = dying_at(99_999).1[20];
    (from..from + 2_000)
        .find_map(|k| {
            let (chat, ends) = dying_at(k);
            (ends[15] < k && ends.contains(&k) == at_event_end).then_some((chat, k))
        })
        .unwrap_or_else(|| panic!("{api:?}: no place for {fault}"))
}

/// The socket breaks inside an event, or the body ends without the API's terminal: no client may take it for an end.
#[test]
fn a_stream_that_breaks_ends_with_an_error_of_its_dialect() {
    for (owner, route) in owners(Route::detach) {
        let (world, client) = world(&format!("broken streams, {owner}"), &route);
        for api in Api::STREAMING {
            for (fault, at_event_end) in [("fin_at", false), ("end_at", true), ("end_at", false)] {
                let (chat, k) = place(&world, api, fault, at_event_end);
                let what = format!("{owner} {api:?} {}", chat.model());
                let sent = world.simulator.sent_for(&chat);
                let (mut exchange, id) = client.begin(&chat);
                let got = exchange.finish().clean();
                let prefix = assert_broken(api, &got, &sent);
                let last_whole = event_ends(&sent).into_iter().take_while(|end| *end <= k).last().expect("events");
                assert!(prefix == k || prefix == last_whole, "{what}: {prefix} of {last_whole}");
                let settled = client.wait_until_settled(&id);
                assert_eq!(settled["lifecycle"], "failed", "{what}: {settled}");
                assert_eq!(settled["reason"], "upstream_interrupted", "{what}: {settled}");
                let estimate = assert_estimated(&settled);
                // A bound of what was seen and of what may have been on its way, far below the cap of 2,000.
                assert!(estimate < price_micros(1_000, 1_300), "{what}: {settled}");
                assert_bytes!(client.read_all_from(&id, 0), &got, "{what}: every reader gets the same");
                assert_bytes!(client.read_all_from(&id, prefix), &got[prefix..], "{what}");
            }
        }
        client.wait_until_nothing_is_held();
    }
}

#[test]
fn an_error_before_the_first_byte_passes_in_the_providers_words() {
    for (owner, route) in owners(Route::detach) {
        let (world, client) = world(&format!("errors, {owner}"), &route);
        for api in Api::ALL {
            for status in [400, 401, 429] {
                let chat = Chat::of(api, &format!("gen?status={status}&retry_after=7"), api != Api::Embeddings);
                let chat = chat.tag(&unique("status"));
                let reply = client.chat(&chat);
                assert_eq!(reply.status, status, "{owner} {api:?}: {}", reply.text());
                assert_bytes!(reply.body, world.simulator.sent_for(&chat), "{owner} {api:?}");
                assert_eq!((reply.required("retry-after"), reply.required("x-should-retry")), ("7", "true"));
                let settled = client.wait_until_settled(reply.required("x-generation-id"));
                assert_eq!(settled["settlement"], "released", "{owner} {api:?}: {settled}");
            }
        }
        assert_eq!(client.wait_until_nothing_is_held().spent, 0, "{owner}");
    }
}

#[test]
fn a_client_that_leaves_stops_the_provider_of_any_dialect() {
    for (owner, route) in owners(Route::cancel) {
        let (world, client) = world(&format!("cancel, {owner}"), &route);
        for api in Api::STREAMING {
            let tag = unique("leaves");
            let chat = Chat::of(api, "gen?tokens=400&interval_ms=20", true).tag(&tag);
            let expected = world.simulator.sent_for(&chat);
            let (mut exchange, id) = client.begin(&chat);
            exchange.read(900);
            let left_at = now_ms();
            exchange.abandon();
            let entry = world.simulator.once_closed(&tag);
            assert_eq!(entry.end(), "client_closed", "{owner} {api:?}: {}", entry.brief());
            assert!(entry.closed_at_ms().expect("closed") < left_at + 4_000, "{owner} {api:?}: {}", entry.brief());
            let settled = client.wait_until_settled(&id);
            assert_eq!(settled["lifecycle"], "cancelled", "{owner} {api:?}: {settled}");
            assert_estimated(&settled);
            let stored = client.read_all_from(&id, 0);
            assert!(stored.len() >= 900, "{owner} {api:?}");
            assert_bytes!(stored[..900], expected[..900], "{owner} {api:?}");
        }
        client.wait_until_nothing_is_held();
    }
}

/// A key that is repeated joins or replays; the path is part of its scope.
#[test]
fn idempotency_on_every_path() {
    let (world, client) = world("idempotency", &Route::new("any").detach());
    let key = unique("key");
    let mut ids = Vec::new();
    for api in Api::ALL {
        let tag = unique("idempotent");
        let chat = Chat::of(api, "gen?tokens=5", api != Api::Embeddings).tag(&tag).idempotency_key(&key);
        let first = client.chat(&chat).expect(200);
        let again = client.chat(&chat).expect(200);
        assert_bytes!(again.body, first.body, "{api:?}");
        assert_eq!(again.required("x-generation-id"), first.required("x-generation-id"), "{api:?}");
        assert_eq!(world.simulator.log(&tag).len(), 1, "{api:?}: one call");
        assert_own_error(api, &client.chat(&chat.field("user", "another")), 422, "idempotency_key_reused");
        ids.push(first.required("x-generation-id").to_owned());
    }
    ids.sort();
    ids.dedup();
    assert_eq!(ids.len(), Api::ALL.len(), "one generation for each path");
    client.wait_until_nothing_is_held();
}

/// Errors of ours, before and after the key is known, in the envelope of the path's dialect.
#[test]
fn own_errors_are_written_in_the_dialect_of_the_path() {
    let full = Tenant::new("full").all_paths(&Route::new("any").detach()).with("concurrency", 1);
    let poor = Tenant::new("poor").all_paths(&Route::new("any")).with("grant_micros", 1);
    let options = Options::new("own errors").tenant(&full).tenant(&poor).limit("body_max_bytes", 4_000);
    let world = World::start(&options);
    let (full, poor) = (world.client(&full), world.client(&poor));
    let tag = unique("holds-the-slot");
    let (_holds_the_slot, _) = full.begin(&Chat::stream("gen?tokens=3&stall_at=200").tag(&tag));
    for api in Api::ALL {
        let chat = |model: &str| Chat::of(api, model, api != Api::Embeddings);
        let stranger = Client::new(full.port(), "sk-not-a-key");
        assert_own_error(api, &stranger.chat(&chat("gen")), 401, "invalid_api_key");
        assert_own_error(api, &full.chat(&chat("gen")), 429, "concurrency_exceeded");
        assert_own_error(api, &poor.chat(&chat("gen")), 402, "budget_exhausted");
        assert_own_error(api, &poor.chat(&chat("unknown-model")), 400, "model_not_priced");
        let large = chat("gen").field("padding", "x".repeat(5_000));
        assert_own_error(api, &poor.chat(&large), 413, "body_too_large");
        let mut broken = chat("gen").request(poor.key());
        broken.body = b"{".to_vec();
        assert_own_error(api, &poor.call(&broken), 400, "invalid_request");
        let mut get = chat("gen").request(poor.key());
        get.method = "GET";
        assert_own_error(api, &poor.call(&get), 405, "method_not_allowed");
    }
}

/// A route decides who serves; it cannot make a provider understand what it does not speak.
#[test]
fn a_provider_of_another_dialect_is_refused_by_name() {
    let tenant = Tenant::new("acme").route(Route::new("all").by("gemini"));
    let world = World::start(&Options::new("mismatch").tenant(&tenant));
    let client = world.client(&tenant);
    for api in Api::ALL.into_iter().filter(|api| *api != Api::Gemini) {
        let tag = unique("mismatch");
        let reply = client.chat(&Chat::of(api, "gen", false).tag(&tag));
        assert_own_error(api, &reply, 400, "dialect_mismatch");
        assert!(reply.text().contains(api.dialect()) && reply.text().contains("gemini"), "{}", reply.text());
        world.simulator.assert_never_called(&tag);
    }
    client.chat(&Chat::of(Api::Gemini, "gen", false)).expect(200);
}

/// An opaque provider serves any path: its bytes pass, nothing is read of them, and the hold is settled by the bound.
#[test]
fn an_opaque_provider_is_relayed_and_settled_by_its_bound() {
    let tenant = Tenant::new("acme").route(Route::new("all").by("opaque").detach());
    let world = World::start(&Options::new("opaque").tenant(&tenant));
    let client = world.client(&tenant);
    for api in [Api::Chat, Api::Responses] {
        let chat = Chat::of(api, "gen?tokens=20", true).tag(&unique("opaque"));
        let (mut exchange, id) = client.begin(&chat);
        assert_bytes!(exchange.finish().clean(), world.simulator.sent_for(&chat), "{api:?}");
        let settled = client.wait_until_settled(&id);
        assert_eq!(settled["lifecycle"], "completed", "{settled}");
        assert_eq!(settled["reason"], "completed_without_usage", "{settled}");
        assert_estimated(&settled);
        let (chat, _) = place(&world, api, "fin_at", false);
        let (mut exchange, _) = client.begin(&chat);
        assert_broken(api, &exchange.finish().clean(), &world.simulator.sent_for(&chat));
    }
    client.wait_until_nothing_is_held();
}

/// A key in the URL would stand in every log on the way: it is not read, and nothing of a query is sent on.
#[test]
fn the_query_of_a_gemini_path_is_never_sent_on() {
    let (world, client) = world("query", &Route::new("any").detach());
    let body = json!({ "contents": [{ "parts": [{ "text": "Hi" }] }] });
    let ask = |target: &str, key: Option<&str>| {
        let request = Request::new("POST", target).json(&body);
        client.call(&key.into_iter().fold(request, |request, key| request.header("x-goog-api-key", key)))
    };
    let path = |action: &str, query: &str| format!("/v1beta/models/gen%3Ftag%3Dquery:{action}{query}");
    let own = client.key();
    for key in [None, Some(own)] {
        let reply = ask(&path("generateContent", &format!("?key={own}")), key);
        let (status, code) = if key.is_some() { (400, "invalid_request") } else { (401, "invalid_api_key") };
        assert_own_error(Api::Gemini, &reply, status, code);
        assert!(!reply.text().contains(own), "the key is not shown again");
    }
    assert_own_error(Api::Gemini, &ask(&path("streamGenerateContent", ""), Some(own)), 400, "invalid_request");
    assert_own_error(Api::Gemini, &ask(&path("generateContent", "?alt=sse"), Some(own)), 400, "invalid_request");
    world.simulator.assert_never_called("query");
    ask(&path("streamGenerateContent", "?alt=sse&prettyPrint=false"), Some(own)).expect(200);
    let entry = world.simulator.only("query");
    assert_eq!(entry.field("query"), &json!([["alt", "sse"]]));
    assert!(!entry.field("path").as_str().expect("a path").contains('?'));
    // A key of another place in the line is read where its SDK sends it.
    let bearer = client.authorized("POST", &path("generateContent", "")).json(&body);
    client.call(&bearer).expect(200);
}

/// Pages may use every path, with the headers that the SDKs send from a browser.
#[test]
fn pages_may_use_every_path() {
    let origin = "https://app.example";
    let tenant = Tenant::new("acme").all_paths(&Route::new("any").detach()).with("allowed_origins", json!([origin]));
    let world = World::start(&Options::new("pages").tenant(&tenant));
    let client = world.client(&tenant);
    for api in Api::ALL {
        let chat = Chat::of(api, "gen?tokens=2", false).tag(&unique("page")).header("Origin", origin);
        let asked = chat.request(client.key());
        let wanted =
            "x-api-key, x-goog-api-key, anthropic-version, anthropic-dangerous-direct-browser-access, x-stainless-os";
        let preflight = Request::new("OPTIONS", asked.target.clone())
            .header("Origin", origin)
            .header("Access-Control-Request-Method", "POST")
            .header("Access-Control-Request-Headers", wanted);
        let allowed = client.call(&preflight).expect(204);
        assert_eq!(allowed.required("access-control-allow-headers"), wanted, "{api:?}");
        let reply = client.chat(&chat).expect(200);
        assert_eq!(reply.required("access-control-allow-origin"), origin, "{api:?}");
        let elsewhere = Chat::of(api, "gen", false).header("Origin", "https://other.example");
        assert_own_error(api, &client.chat(&elsewhere), 403, "origin_not_allowed");
    }
    wait_for("nothing held", || {
        let balance = client.balance();
        if balance.held == 0 { Ok(()) } else { Err(format!("{balance:?}")) }
    });
}
