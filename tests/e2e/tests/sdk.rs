//! The official SDKs work with only base URL and key changed: what their user sees through the edge is what he would
//! see at the provider itself.

use holdfast_e2e::sdk::Sdk;
use holdfast_e2e::wait::let_time_pass_until;
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_completed, now_ms, unique};
use serde_json::Value;

fn world(name: &str) -> (World, Tenant) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    (World::start(&Options::new(name).tenant(&tenant)), tenant)
}

/// Runs the SDK at the provider and at the edge.
fn both(world: &World, tenant: &Tenant, sdk: &Sdk, model: &str) -> (Value, Value) {
    let direct = format!("{}/v1", world.simulator.origin());
    (sdk.run(&direct, "sk-direct", model), sdk.run(&world.base_url(), tenant.key(), model))
}

/// What the edge must show, given what the provider shows. A recording replays its usage chunk to who did not ask for it
/// too; the edge does not.
fn as_through_the_edge(direct: &Value) -> Value {
    let mut edge = direct.clone();
    edge["complete"]["generation"] = Value::Null;
    let stream = &mut edge["stream"];
    if !stream["usage"].take().is_null() {
        stream["chunks"] = (stream["chunks"].as_u64().expect("a count") - 1).into();
    }
    edge
}

fn streams_and_completes(sdk: &Sdk) {
    let (world, tenant) = world("sdk streams and completes");
    let client = world.client(&tenant);
    for model in [
        "gen?tokens=30&prompt_tokens=21",
        "gen?tokens=25&text=multibyte&split=3",
        "recording/tool-calls",
        "recording/crlf?cut=100,261,262,263,264",
    ] {
        let (direct, mut edge) = both(&world, &tenant, sdk, model);
        let generation = edge["complete"]["generation"].take();
        let generation = generation.as_str().expect("the SDK shows the generation's id");
        assert_eq!(edge, as_through_the_edge(&direct), "{} {model}", sdk.name);
        assert_eq!(edge["stream"]["error"], Value::Null, "{} {model}", sdk.name);
        assert_eq!(edge["stream"]["usage"], Value::Null, "nobody asked for the usage chunk");
        assert_eq!(edge["stream"]["id"], edge["complete"]["id"], "{} {model}", sdk.name);
        let usage = &direct["stream_with_usage"]["usage"];
        let tokens = |name: &str| usage[name].as_u64().expect("tokens");
        let settled = client.wait_until_settled(generation);
        assert_completed(&settled, tokens("prompt_tokens"), tokens("completion_tokens"));
    }
    client.wait_until_nothing_is_held();
}

fn raises_when_the_provider_dies(sdk: &Sdk) {
    let (world, tenant) = world("sdk raises");
    for fault in ["fin_at=300", "reset_at=300", "end_at=300", "fin_at=0"] {
        let model = format!("gen?tokens=30&{fault}&tag={}", unique("sdk-dies"));
        let edge = sdk.run(&world.base_url(), tenant.key(), &model);
        for way in ["stream", "stream_with_usage"] {
            let seen = &edge[way];
            assert_eq!(seen["error"]["code"], "upstream_interrupted", "{} {model}: {seen}", sdk.name);
            assert_eq!(seen["finish_reason"], Value::Null, "{} {model}: {seen}", sdk.name);
        }
        let complete = &edge["complete"]["error"];
        assert_eq!(complete["status"], 502, "{} {model}: {complete}", sdk.name);
        assert_eq!(complete["code"], "upstream_interrupted", "{} {model}: {complete}", sdk.name);
    }
    let balance = world.client(&tenant).wait_until_nothing_is_held();
    assert!(balance.spent > 0, "{balance:?}");
}

fn raises_its_own_error_types(sdk: &Sdk) {
    let poor = Tenant::new("poor").route(Route::new("chat")).with("grant_micros", 10);
    let full = Tenant::new("full").route(Route::new("chat").detach()).with("concurrency", 1);
    let world = World::start(&Options::new("sdk errors").tenant(&poor).tenant(&full));
    let (_holds_the_slot, _) = world.client(&full).begin(&Chat::stream("gen?tokens=3&stall_at=200"));
    let run = |key: &str, model: &str| sdk.run(&world.base_url(), key, model);
    let expect = |seen: Value, class: &str, status: u16, code: &str| {
        for way in ["stream", "complete"] {
            let error = &seen[way]["error"];
            assert_eq!(error["class"], class, "{}: {error}", sdk.name);
            assert_eq!(error["status"], status, "{}: {error}", sdk.name);
            assert_eq!(error["code"], code, "{}: {error}", sdk.name);
        }
    };
    let plain = if sdk.name == "node" { "APIError" } else { "APIStatusError" };
    expect(run("sk-not-a-key", "gen"), "AuthenticationError", 401, "invalid_api_key");
    expect(run(poor.key(), "gen"), plain, 402, "budget_exhausted");
    expect(run(full.key(), "gen"), "RateLimitError", 429, "concurrency_exceeded");
    expect(run(poor.key(), "unknown-model"), "BadRequestError", 400, "model_not_priced");
}

#[test]
fn node_streams_and_completes() {
    streams_and_completes(&Sdk::node());
}

#[test]
fn node_raises_when_the_provider_dies() {
    raises_when_the_provider_dies(&Sdk::node());
}

#[test]
fn node_raises_its_own_error_types() {
    raises_its_own_error_types(&Sdk::node());
}

#[test]
fn python_streams_and_completes() {
    if let Some(sdk) = Sdk::python() {
        streams_and_completes(&sdk);
    }
}

#[test]
fn python_raises_when_the_provider_dies() {
    if let Some(sdk) = Sdk::python() {
        raises_when_the_provider_dies(&sdk);
    }
}

#[test]
fn python_raises_its_own_error_types() {
    if let Some(sdk) = Sdk::python() {
        raises_its_own_error_types(&sdk);
    }
}

/// Where the other SDKs find a provider or the edge: that of OpenAI is told the version, the others add it.
fn base_of(sdk: &Sdk, origin: &str) -> String {
    if sdk.name == "responses" { format!("{origin}/v1") } else { origin.to_owned() }
}

fn world_of_all(name: &str) -> (World, Tenant) {
    let tenant = Tenant::new("acme").all_paths(&Route::new("any").detach());
    (World::start(&Options::new(name).tenant(&tenant)), tenant)
}

fn others() -> [Sdk; 3] {
    [Sdk::responses(), Sdk::anthropic(), Sdk::google()]
}

/// Responses, Messages and Gemini: what the user of the SDK sees is what he sees at the provider itself.
#[test]
fn the_other_sdks_stream_and_complete() {
    let (world, tenant) = world_of_all("the other SDKs stream and complete");
    let client = world.client(&tenant);
    let origin = format!("http://127.0.0.1:{}", client.port());
    for sdk in others() {
        for model in
            ["gen?tokens=30&prompt_tokens=21", "gen?tokens=25&text=multibyte&split=3", "gen?tokens=5&finish=length"]
        {
            let direct = sdk.run(&base_of(&sdk, &world.simulator.origin()), "sk-direct", model);
            let mut edge = sdk.run(&base_of(&sdk, &origin), tenant.key(), model);
            let what = format!("{} {model}", sdk.name);
            let generation = edge["complete"]["generation"].take();
            let generation = generation.as_str().unwrap_or_else(|| panic!("{what}: no generation in {edge}"));
            assert_eq!(edge, direct, "{what}");
            assert_eq!(edge["stream"]["error"], Value::Null, "{what}");
            assert_eq!(edge["stream"]["text"], edge["complete"]["text"], "{what}");
            assert!(edge["stream"]["text"].as_str().is_some_and(|text| text.len() > 10), "{what}: {edge}");
            assert!(edge["stream"]["finish"].is_string(), "{what}: {edge}");
            let tokens = |name: &str| edge["stream"]["usage"][name].as_u64().expect("tokens");
            assert_completed(&client.wait_until_settled(generation), tokens("input"), tokens("output"));
        }
    }
    client.wait_until_nothing_is_held();
}

/// None of them takes a stream that broke for one that has ended.
#[test]
fn the_other_sdks_raise_when_the_provider_dies() {
    let (world, tenant) = world_of_all("the other SDKs raise");
    let origin = format!("http://127.0.0.1:{}", world.client(&tenant).port());
    for sdk in others() {
        for fault in ["fin_at=900", "reset_at=900", "end_at=900", "fin_at=0"] {
            let model = format!("gen?tokens=30&{fault}&tag={}", unique("sdk-dies"));
            let edge = sdk.run(&base_of(&sdk, &origin), tenant.key(), &model);
            let what = format!("{} {model}: {edge}", sdk.name);
            assert_eq!(edge["stream"]["error"]["code"], "upstream_interrupted", "{what}");
            assert_eq!(edge["stream"]["finish"], Value::Null, "{what}");
            if sdk.name == "anthropic" {
                assert_eq!(edge["assembled"]["error"]["code"], "upstream_interrupted", "{what}");
            }
        }
        let model = format!("gen?tokens=30&end_at=60&tag={}", unique("sdk-dies"));
        let edge = sdk.run(&base_of(&sdk, &origin), tenant.key(), &model);
        assert_eq!(edge["complete"]["error"]["status"], 502, "{}: {edge}", sdk.name);
        assert_eq!(edge["complete"]["error"]["code"], "upstream_interrupted", "{}: {edge}", sdk.name);
    }
    let balance = world.client(&tenant).wait_until_nothing_is_held();
    assert!(balance.spent > 0, "{balance:?}");
}

/// What somebody cancels before its head is told by a 409, which these SDKs repeat by themselves, without a key. It is not
/// run and paid a second time.
#[test]
fn no_sdk_repeats_what_was_cancelled() {
    let (world, tenant) = world_of_all("no SDK repeats what was cancelled");
    let client = world.client(&tenant);
    let origin = format!("http://127.0.0.1:{}", client.port());
    for sdk in [Some(Sdk::node()), Sdk::python(), Some(Sdk::responses()), Some(Sdk::anthropic())].into_iter().flatten()
    {
        let tag = unique("sdk-cancelled");
        let model = format!("gen?tokens=3&headers_ms=30000&tag={tag}");
        let base = if sdk.name == "anthropic" { origin.clone() } else { format!("{origin}/v1") };
        let seen = std::thread::scope(|scope| {
            let running = scope.spawn(|| sdk.run_repeating(&base, tenant.key(), &model, 2));
            while !running.is_finished() {
                if world.simulator.log(&tag).iter().any(|entry| entry.end() == "open") {
                    cancel_what_waits(&client);
                }
                let_time_pass_until(now_ms() + 20);
            }
            running.join().expect("the SDK ends")
        });
        let ways = seen.as_object().expect("what its user saw, by way of asking");
        for (way, outcome) in ways {
            let error = &outcome["error"];
            assert_eq!(error["status"], 409, "{} {way}: {seen}", sdk.name);
            assert_eq!(error["code"], "generation_cancelled", "{} {way}: {seen}", sdk.name);
        }
        assert_eq!(world.simulator.log(&tag).len(), ways.len(), "{}: one call for each way of asking", sdk.name);
    }
    client.wait_until_nothing_is_held();
}

/// Cancels every generation that waits for its provider.
fn cancel_what_waits(client: &Client) {
    let open = client.get("/v1/generations?state=open").expect(200).json();
    for id in open["data"].as_array().expect("a list").iter().filter_map(|row| row["id"].as_str()) {
        if client.generation(id)["upstream"]["state"] == "submitted" {
            client.cancel(id).expect(202);
        }
    }
}

/// Refused before anything is sent: each SDK raises what it raises for the provider's own error of that status.
#[test]
fn the_other_sdks_raise_their_own_error_types() {
    let poor = Tenant::new("poor").all_paths(&Route::new("any")).with("grant_micros", 10);
    let world = World::start(&Options::new("the other SDKs' errors").tenant(&poor));
    let origin = format!("http://127.0.0.1:{}", world.client(&poor).port());
    for sdk in others() {
        let base = base_of(&sdk, &origin);
        let (unknown, priced, unpaid) = match sdk.name {
            "google" => ("ApiError", "ApiError", "ApiError"),
            "anthropic" => ("AuthenticationError", "BadRequestError", "PaymentRequiredError"),
            _ => ("AuthenticationError", "BadRequestError", "APIError"),
        };
        for (key, model, class, status, code) in [
            ("sk-not-a-key", "gen", unknown, 401, "invalid_api_key"),
            (poor.key(), "unknown-model", priced, 400, "model_not_priced"),
            (poor.key(), "gen", unpaid, 402, "budget_exhausted"),
        ] {
            let seen = sdk.run(&base, key, model);
            for way in ["stream", "complete"] {
                let error = &seen[way]["error"];
                assert_eq!(error["class"], class, "{} {model}: {seen}", sdk.name);
                assert_eq!(error["status"], status, "{} {model}: {seen}", sdk.name);
                assert_eq!(error["code"], code, "{} {model}: {seen}", sdk.name);
            }
        }
    }
}
