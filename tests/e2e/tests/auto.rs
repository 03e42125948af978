//! `auto`: a disconnect is priced when it happens, and each route's runs say which policy fits. Seed 4's two worked
//! examples come out of the API with the same decisions.

use holdfast_e2e::config::{SEED_INPUT_MICROS_PER_MILLION, SEED_OUTPUT_MICROS_PER_MILLION};
use holdfast_e2e::sse::whole_events;
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_bytes, unique, wait_for};
use serde_json::{Value, json};

/// What counts as one token where the provider has not counted.
const BYTES_PER_TOKEN: usize = 4;

fn auto_route(name: &str, model: &str) -> Route {
    Route::new(name).with("on_disconnect", "auto").for_model(model)
}

/// Seed 4, the evidence summary: 7,000 tokens, asked for again by 74 %.
fn report_route() -> Route {
    auto_route("report", "sim-seed-report*")
        .with("max_output_tokens", 7_000)
        .with("re_ask_prior_per_mille", 740)
        .with("artifact", json!({ "has_home": true }))
        .with("workload", "batch")
}

/// Seed 4, the in-editor assistant: 300 tokens, asked for again by 8 %.
fn editor_route() -> Route {
    auto_route("editor", "sim-seed-editor*").with("max_output_tokens", 300).with("re_ask_prior_per_mille", 80)
}

fn world(name: &str, routes: &[Route]) -> (World, Client) {
    let tenant = routes.iter().cloned().fold(Tenant::new("acme"), Tenant::route);
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

/// A request whose body has exactly so many bytes: the estimate of its input tokens is a quarter of it.
fn sized(model: &str, tag: &str, body_bytes: usize) -> Chat {
    let chat =
        |text: &str| Chat::stream(model).tag(tag).field("messages", json!([{ "role": "user", "content": text }]));
    let rest = body_bytes - chat("").request("").body.len();
    let chat = chat(&"evidence ".repeat(body_bytes)[..rest]);
    assert_eq!(chat.request("").body.len(), body_bytes);
    chat
}

fn content_bytes(event: &[u8]) -> usize {
    let text = String::from_utf8_lossy(event);
    let chunk: Value = serde_json::from_str(text.trim_end().trim_start_matches("data: ")).unwrap_or_default();
    chunk["choices"][0]["delta"]["content"].as_str().map_or(0, str::len)
}

/// Words that come one by one behind a place where a client leaves: a failed write tells that it has.
const SLOW_WORDS: usize = 8;

/// Where the events end by which so many tokens are produced, and those of the words that come slowly behind them. The
/// same in the provider's bytes and in the client's.
fn slow_from(world: &World, chat: &Chat, tokens: usize) -> Vec<usize> {
    let (mut end, mut content) = (0, 0);
    let mut ends = Vec::new();
    for event in whole_events(&world.simulator.sent_for(chat)) {
        end += event.len();
        content += content_bytes(event);
        if content > (tokens - 1) * BYTES_PER_TOKEN {
            ends.push(end);
        }
    }
    assert!(ends.len() > SLOW_WORDS, "fewer than {tokens} tokens and some");
    ends.truncate(SLOW_WORDS + 1);
    ends
}

/// The request in which the provider goes slowly behind each of these places.
fn slowed(chat: impl Fn(&str) -> Chat, places: &[&[usize]]) -> Chat {
    let cuts: Vec<String> = places.concat().iter().map(usize::to_string).collect();
    chat(&format!("&gap_ms=250&cut={}", cuts.join(",")))
}

/// Starts the request, and leaves it when so many tokens have come.
fn leave_at_token(world: &World, client: &Client, chat: impl Fn(&str) -> Chat, tokens: usize) -> (String, Chat) {
    let places = slow_from(world, &chat(""), tokens);
    let chat = slowed(chat, &[&places]);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(places[0]);
    exchange.abandon();
    (id, chat)
}

/// The last disconnect of a generation, once there is one.
fn assessed(client: &Client, id: &str) -> Value {
    wait_for("a decision", || {
        let generation = client.generation(id);
        if generation["auto"].is_object() { Ok(generation["auto"].clone()) } else { Err(generation.to_string()) }
    })
}

/// Tokens that are produced by the time at which a client's leaving is noticed: those of two or three words more.
fn assert_produced(inputs: &Value, tokens: u64) {
    let produced = micros(&inputs["produced_output_tokens"]);
    assert!((tokens..=tokens + 6).contains(&produced), "{produced} for {tokens}: {inputs}");
}

fn micros(value: &Value) -> u64 {
    value.as_u64().unwrap_or_else(|| panic!("{value} is no amount"))
}

/// An amount in thousandths of a dollar, to the nearest, as seed 4 writes it.
fn mills(value: &Value) -> u64 {
    (micros(value) + 500) / 1_000
}

fn policy(client: &Client) -> Value {
    client.get("/v1/policy").expect(200).json()
}

fn route_of(report: &Value, name: &str) -> Value {
    let routes = report["routes"].as_array().unwrap_or_else(|| panic!("no routes in {report}"));
    routes.iter().find(|route| route["route"] == name).cloned().unwrap_or_default()
}

/// Waits until the report on a route says what is looked for.
fn reported(client: &Client, route: &str, looked_for: impl Fn(&Value) -> bool) -> Value {
    wait_for("a report", || {
        let report = route_of(&policy(client), route);
        if looked_for(&report) { Ok(report) } else { Err(report.to_string()) }
    })
}

/// Seed 4: "Twelve thousand input tokens at $3 per million … is $0.036. Seven thousand output tokens … gives $0.105". A
/// disconnect at two thirds: "Spending $0.104 to save $0.035"; detach.
#[test]
fn the_evidence_summary_of_the_seed_is_finished() {
    let (world, client) = world("evidence summary", &[report_route()]);
    let tag = unique("report");
    let chat = |more: &str| sized(&format!("sim-seed-report?tokens=7000&prompt_tokens=12000{more}"), &tag, 48_000);
    // Two thirds of 7,000.
    let (id, chat) = leave_at_token(&world, &client, chat, 4_667);

    let assessment = assessed(&client, &id);
    let decision = &assessment["decision"];
    assert_eq!((&decision["choice"], &decision["why"]), (&json!("detach"), &json!("prior")), "{assessment}");
    assert_eq!((&assessment["applied"], &decision["rate_per_mille"]), (&json!(true), &json!(740)), "{assessment}");
    let inputs = &decision["inputs"];
    assert_eq!((&inputs["input_tokens"], &inputs["expected_output_tokens"]), (&json!(12_000), &json!(7_000)));
    assert_eq!(inputs["price"]["input_micros_per_million"], SEED_INPUT_MICROS_PER_MILLION);
    assert_eq!(inputs["price"]["output_micros_per_million"], SEED_OUTPUT_MICROS_PER_MILLION);
    assert_eq!(inputs["prior_per_mille"], 740, "{assessment}");
    assert_eq!(inputs["artifact"], json!({ "has_home": true }), "{assessment}");
    assert_produced(inputs, 4_667);
    assert_eq!(mills(&decision["cost_to_finish_micros"]), 35, "$0.035: {assessment}");
    assert_eq!(micros(&decision["cost_of_cancelling_micros"]), 104_340, "74 % of $0.141: {assessment}");

    let settled = client.wait_until_settled(&id);
    assert_eq!((&settled["lifecycle"], &settled["on_disconnect"]), (&json!("completed"), &json!("auto")), "{settled}");
    assert_eq!(settled["cost"]["settled_micros"], 141_000, "one run costs $0.141: {settled}");
    assert_eq!(settled["auto"], assessment, "the first decision of a disconnect stands");
    world.simulator.assert_sent_everything(&tag);

    let report = reported(&client, "report", |report| report["detach"]["completed"] == 1);
    assert_eq!(report["disconnects"], 1, "{report}");
    assert_eq!(report["decisions"]["by_rule"], json!({ "prior": 1 }), "{report}");
    assert_eq!((&report["decisions"]["applied"], &report["decisions"]["detach"]), (&json!(1), &json!(1)), "{report}");
    assert_eq!(report["departures"], json!({ "cancelled": 0, "detached": 1 }), "{report}");
    assert_eq!(report["costs"]["cancel_micros"], 104_340, "{report}");
    assert_eq!(report["costs"]["detach_micros"], decision["cost_to_finish_micros"], "{report}");
    assert_eq!(report["recommendation"], json!({ "policy": "detach", "why": "detach_is_cheaper" }), "{report}");
    assert_eq!(report["detach"], json!({ "started": 1, "completed": 1, "read": 0 }), "{report}");

    // Somebody comes back for it: told once, however often it is read.
    for _ in 0..2 {
        assert_bytes!(client.result(&id).expect(200).body, world.simulator.expected(&chat));
        reported(&client, "report", |report| report["detach"]["read"] == 1);
    }
}

/// Seed 4: "about 800 input tokens and 300 output, … a disconnect at token 60 recovering about $0.0036", asked for again
/// "in about 8% of cases": cancel.
#[test]
fn the_code_assistant_of_the_seed_is_cancelled() {
    let (world, client) = world("code assistant", &[editor_route()]);
    let tag = unique("editor");
    let chat = |more: &str| sized(&format!("sim-seed-editor?tokens=300&prompt_tokens=800{more}"), &tag, 3_200);
    let (id, _) = leave_at_token(&world, &client, chat, 57);

    let settled = client.wait_until_settled(&id);
    assert_eq!((&settled["lifecycle"], &settled["reason"]), (&json!("cancelled"), &json!("cancelled_on_disconnect")));
    let decision = &settled["auto"]["decision"];
    assert_eq!((&decision["choice"], &decision["why"]), (&json!("cancel"), &json!("prior")), "{settled}");
    let inputs = &decision["inputs"];
    assert_eq!((&inputs["input_tokens"], &inputs["expected_output_tokens"]), (&json!(800), &json!(300)), "{settled}");
    assert_produced(inputs, 57);
    let to_finish = micros(&decision["cost_to_finish_micros"]);
    assert!(to_finish.abs_diff(3_600) <= 50, "about $0.0036: {settled}");
    assert_eq!(micros(&decision["cost_of_cancelling_micros"]), 552, "8 % of $0.0069: {settled}");
    assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed");

    let report = reported(&client, "editor", |report| report["departures"]["cancelled"] == 1);
    assert_eq!(report["costs"]["cancel_micros"], 552, "{report}");
    assert_eq!(report["recommendation"], json!({ "policy": "cancel", "why": "cancel_is_cheaper" }), "{report}");
    assert_eq!(report["detach"]["started"], 0, "{report}");
    let cancel = &report["cancel"];
    assert_eq!(cancel["runs"], 1, "{report}");
    assert_eq!(cancel["billed_output_tokens"], settled["usage"]["output_tokens"], "{report}");
    let (billed, delivered) = (micros(&cancel["billed_output_tokens"]), micros(&cancel["delivered_output_tokens"]));
    assert!(0 < delivered && delivered < billed, "{report}");
}

/// Design 5: "after a cancelled run, a new generation of the same client with a near-identical prompt … within ten minutes
/// counts". Thirty departures are measured, admission pins the rate, and `auto` decides by it; before, there is no estimate.
#[test]
fn a_measured_rate_decides() {
    let tenant = Tenant::new("acme").route(auto_route("asked", "sim-seed*").with("max_output_tokens", 300));
    let world = World::start(&Options::new("measured").tenant(&tenant));
    let client = world.client(&tenant);
    let ask = |user: usize, model: &str, words: &str| {
        let content = format!("Which of the contracts with the harbour were signed late, {words}, and by whom?");
        let messages = json!([{ "role": "user", "content": content }]);
        Chat::stream(model).tag(&unique("rate")).field("messages", messages).header("x-client-id", &format!("u{user}"))
    };
    let slow = "sim-seed?tokens=290&interval_ms=15";
    let leave = |user: usize, bytes: usize| {
        let (mut exchange, id) = client.begin(&ask(user, slow, "and why"));
        exchange.read(bytes);
        exchange.abandon();
        client.wait_until_settled(&id)
    };
    // 24 of 30 users ask again, in other words.
    std::thread::scope(|scope| {
        for user in 0..30 {
            let (leave, ask, client) = (&leave, &ask, &client);
            scope.spawn(move || {
                let left = leave(user, 300);
                let decision = &left["auto"]["decision"];
                assert_eq!(
                    (&decision["choice"], &decision["why"]),
                    (&json!("cancel"), &json!("no_estimate")),
                    "{left}"
                );
                if user < 24 {
                    let _answer = client.chat(&ask(user, "sim-seed?tokens=3", "and WHY")).expect(200);
                }
            });
        }
    });
    let report = reported(&client, "asked", |report| report["departures"]["cancelled"] == 30);
    assert_eq!(report["re_ask_counts"], false, "ten minutes have not passed: {report}");

    // Eleven minutes pass.
    world.kill();
    let earlier = |path: &str| format!("'{path}', json_extract(json, '{path}') - 660000");
    let paths = ["$.started_at", "$.end.ended_at", "$.end.departure.disconnected_at"].map(earlier).join(", ");
    let edit = format!("UPDATE run SET started_at = started_at - 660000, json = json_replace(json, {paths})");
    world.edit_tenant(&tenant, &[&edit]);
    world.restart();

    // When little is left to finish: what the rate says decides.
    let kept = leave(99, 30_000);
    let decision = &kept["auto"]["decision"];
    assert_eq!((&decision["choice"], &decision["why"]), (&json!("detach"), &json!("measured")), "{kept}");
    assert_eq!(decision["rate_per_mille"], 800, "24 of 30: {kept}");
    assert_eq!(decision["inputs"]["measured"], json!({ "rate_per_mille": 800, "samples": 30 }), "{kept}");
    assert_eq!(kept["lifecycle"], "completed", "{kept}");
    let report = reported(&client, "asked", |report| report["re_ask_counts"] == true);
    assert_eq!(report["re_ask"], json!({ "rate_per_mille": 800, "samples": 30 }), "{report}");
}

/// A reader that comes back and leaves again is decided about anew; after a restart the last decision is still there.
#[test]
fn each_absence_is_decided_anew() {
    let route = auto_route("late", "sim-seed*").with("max_output_tokens", 300).with("re_ask_prior_per_mille", 500);
    let (world, client) = world("decided anew", &[route.with("grace_ms", 20_000)]);
    let tag = unique("anew");
    let chat = |more: &str| sized(&format!("sim-seed?tokens=300{more}"), &tag, 3_200);
    let (early, late) = (slow_from(&world, &chat(""), 20), slow_from(&world, &chat(""), 280));
    let (mut exchange, id) = client.begin(&slowed(chat, &[&early, &late]));
    exchange.read(early[0]);
    exchange.abandon();
    let first = assessed(&client, &id);
    assert_eq!(first["decision"]["choice"], "cancel", "280 tokens at $15 are dearer than half a run: {first}");

    let mut reader = client.read_from(&id, early[0]);
    reader.read(late[0] - early[0]);
    reader.abandon();
    let second = wait_for("the second decision", || {
        let second = assessed(&client, &id);
        if second["at"] == first["at"] { Err(second.to_string()) } else { Ok(second) }
    });
    assert_eq!(second["decision"]["choice"], "detach", "20 tokens are cheap: {second}");
    assert_produced(&second["decision"]["inputs"], 280);
    world.simulator.assert_sent_everything(&tag);
    assert_eq!(client.wait_until_settled(&id)["lifecycle"], "completed");

    world.kill();
    world.restart();
    assert_eq!(client.generation(&id)["auto"], second);
    let report = reported(&client, "late", |report| report["disconnects"] == 2);
    assert_eq!(report["detach"], json!({ "started": 1, "completed": 1, "read": 0 }), "{report}");
}

/// A driver at the edge learns of the decision as it learns of any policy.
#[test]
fn a_driver_at_the_edge_does_what_is_decided() {
    let edge = |name: &str, model: &str| auto_route(name, model).edge_owned().with("total_ms", 20_000);
    let long = json!({ "long": true, "has_home": true, "reproducible": false });
    let homeless = json!({ "long": true, "has_home": false });
    let routes =
        [edge("kept", "sim-kept*").with("artifact", long), edge("left", "sim-left*").with("artifact", homeless)];
    let (world, client) = world("edge decides", &routes);
    for (model, choice, why, end) in
        [("sim-kept", "detach", "all_hold", "complete"), ("sim-left", "cancel", "no_home", "client_closed")]
    {
        let tag = unique(model);
        let chat = Chat::stream(&format!("{model}?tokens=150&interval_ms=15")).tag(&tag);
        let (mut exchange, id) = client.begin(&chat);
        exchange.read(900);
        exchange.abandon();
        assert_eq!(world.simulator.once_closed(&tag).end(), end, "{model}");
        let settled = client.wait_until_settled(&id);
        assert_eq!(
            (&settled["auto"]["decision"]["choice"], &settled["auto"]["decision"]["why"]),
            (&json!(choice), &json!(why)),
            "{settled}"
        );
    }
}

/// A fixed policy does what it says; what `auto` would have done is recorded. A request may choose where the route lets it.
#[test]
fn fixed_policies_record_and_requests_choose() {
    let (world, client) = world("fixed policies", &[Route::new("chat").cancel()]);
    let leave = |chat: Chat, tag: &str| {
        let (mut exchange, id) = client.begin(&chat.tag(tag));
        exchange.read(900);
        exchange.abandon();
        assert_eq!(world.simulator.once_closed(tag).end(), "client_closed");
        client.wait_until_settled(&id)
    };
    let slow = || Chat::stream("gen?tokens=400&interval_ms=20");
    let fixed = leave(slow(), &unique("fixed"));
    assert_eq!((&fixed["on_disconnect"], &fixed["auto"]["applied"]), (&json!("cancel"), &json!(false)), "{fixed}");
    let chosen = leave(slow().on_disconnect("auto"), &unique("chosen"));
    assert_eq!((&chosen["on_disconnect"], &chosen["auto"]["applied"]), (&json!("auto"), &json!(true)), "{chosen}");
    assert_eq!(chosen["auto"]["decision"]["why"], "no_estimate", "{chosen}");
    let report = reported(&client, "chat", |report| report["disconnects"] == 2);
    assert_eq!(report["policies"], json!(["cancel", "auto"]), "{report}");
    assert_eq!((&report["decisions"]["applied"], &report["decisions"]["recorded"]), (&json!(1), &json!(1)), "{report}");
    assert_eq!(report["costs"]["unpriced"], 2, "{report}");
}

/// Seed 4: "re-runs show up as two generations with near-identical prompts inside ten minutes", told apart by client.
#[test]
fn users_that_ask_again_show() {
    let (_world, client) = world("ask again", &[Route::new("chat")]);
    let ask = |user: Option<&str>, question: &str| {
        let messages =
            json!([{ "role": "system", "content": "Answer in one word." }, { "role": "user", "content": question }]);
        let chat = Chat::complete("gen?tokens=3").tag(&unique("ask")).field("messages", messages);
        let chat = user.map_or(chat.clone(), |user| chat.header("x-client-id", user));
        let _answer = client.chat(&chat).expect(200);
    };
    let question = "What does the contract with the harbour say about late delivery of the goods?";
    ask(Some("ann"), question);
    ask(Some("bob"), question);
    ask(Some("ann"), "Which bridges cross the river between the harbour and the old town?");
    ask(Some("ann"), "WHAT does the contract with the harbour say about late delivery of the goods, please?");
    ask(None, question);
    let clients = reported(&client, "chat", |report| report["generations"] == 5)["clients"].clone();
    assert_eq!(clients["clients"], 3, "ann, bob, and whoever has the key: {clients}");
    assert_eq!((&clients["re_runs"], &clients["re_runs_after_detach"]), (&json!(1), &json!(0)), "{clients}");
    assert_eq!(clients["generations_per_client_per_mille"], 1_666, "{clients}");
}

/// As many routes as a configuration may have are all reported. Of more, since some were renamed, those that ran last are,
/// and the report says that it is not complete.
#[test]
fn a_report_has_every_route() {
    let tenant = Tenant::new("acme").route(Route::new("chat"));
    let world = World::start(&Options::new("every route").tenant(&tenant));
    let client = world.client(&tenant);
    client.wait_until_settled(client.chat(&Chat::stream("gen?tokens=3")).required("x-generation-id"));
    let names = |report: &Value| -> Vec<String> {
        let routes = report["routes"].as_array().unwrap_or_else(|| panic!("no routes in {report}"));
        routes.iter().map(|route| route["route"].as_str().expect("a name").to_owned()).collect()
    };
    let one = policy(&client);
    assert_eq!((names(&one), &one["complete"]), (vec!["chat".to_owned()], &json!(true)));

    // Runs of more routes, each a millisecond before the last: `r1` before `chat`, `r2` before that.
    let runs_of = |from: u32, to: u32| {
        format!(
            "WITH RECURSIVE n(i) AS (SELECT {from} UNION ALL SELECT i + 1 FROM n WHERE i < {to})
             INSERT INTO run SELECT 'gen_' || i, 'r' || i, started_at - i, json_set(json, '$.route', 'r' || i)
             FROM run, n WHERE route = 'chat'"
        )
    };
    world.kill();
    world.edit_tenant(&tenant, &[&runs_of(1, 255)]);
    world.restart();
    let full = policy(&client);
    assert_eq!((names(&full).len(), &full["complete"]), (256, &json!(true)));
    assert!(names(&full).is_sorted() && names(&full).contains(&"r255".to_owned()), "by name");
    world.kill();
    world.edit_tenant(&tenant, &[&runs_of(256, 300)]);
    world.restart();
    let cut = policy(&client);
    assert_eq!((names(&cut), &cut["complete"]), (names(&full), &json!(false)), "those that ran last");
}

#[test]
fn a_report_is_for_the_tenants_admin() {
    let (world, client) = world("policy report", &[Route::new("chat")]);
    let empty = policy(&client);
    assert_eq!((&empty["object"], &empty["routes"]), (&json!("policy_report"), &json!([])), "{empty}");
    assert_eq!(micros(&empty["to"]) - micros(&empty["from"]), 7 * 86_400_000, "{empty}");
    let hour = client.get("/v1/policy?window_s=3600").expect(200).json();
    assert_eq!(micros(&hour["to"]) - micros(&hour["from"]), 3_600_000, "{hour}");
    for bad in ["0", "-1", "x", "", "1&window_s=2"] {
        let refused = client.get(&format!("/v1/policy?window_s={bad}")).expect(400).json();
        assert_eq!(refused["code"], "invalid_request", "{bad}");
    }
    let issue = client.authorized("POST", "/v1/keys").json(&json!({ "role": "client" }));
    let issued = client.call(&issue).expect(201).json();
    let key = issued["key"].as_str().unwrap_or_else(|| panic!("no key in {issued}"));
    let reader = world.client_with_key(key);
    assert_eq!(reader.get("/v1/policy").expect(403).json()["code"], "role_required");
    let _served = reader.chat(&Chat::complete("gen?tokens=3")).expect(200);
    assert_eq!(world.client_with_key("hfk_acme_x").get("/v1/policy").expect(401).json()["code"], "invalid_api_key");
}
