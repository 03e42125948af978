//! Webhooks to the tenant: what is told arrives signed, is retried under the same id, and is never lost (Standard
//! Webhooks 1.0; faults 48 to 50 of the reliability reference).

use holdfast_e2e::http::Request;
use holdfast_e2e::wait::let_time_pass_until;
use holdfast_e2e::webhook::{Hook, Message, accepted_by_sdk};
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, now_ms, price_micros, unique, wait_for};
use serde_json::{Value, json};

/// Delays before the attempts, unless a test says otherwise.
const SCHEDULE: [u64; 4] = [0, 200, 400, 600];

fn options(name: &str) -> (Options, Tenant) {
    let detach = Route::new("detach").detach().quick_recovery().for_model("gen*");
    let tenant = Tenant::new("acme").route(detach);
    let options = Options::new(name).tenant(&tenant).local();
    (options.limit("webhook_schedule_ms", json!(SCHEDULE)).limit("webhook_timeout_ms", 1_000), tenant)
}

fn world(name: &str) -> (World, Client) {
    let (options, tenant) = options(name);
    let world = World::start(&options);
    let client = world.client(&tenant);
    (world, client)
}

/// Runs a generation to its end.
fn run(client: &Client) -> String {
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3"));
    let _body = exchange.finish().clean();
    id
}

fn types(messages: &[Message]) -> Vec<String> {
    messages.iter().map(|message| message.json()["type"].as_str().expect("a type").to_owned()).collect()
}

fn millis(timestamp: &Value) -> String {
    timestamp.as_str().expect("a timestamp").to_owned()
}

/// Finished, cancelled and failed generations are told, signed, with the numbers of the API. Those whose outcome stays open
/// are told in `webhooks_of_open_outcomes.rs`.
#[test]
fn ends_are_told_and_signed() {
    let (world, client) = world("ends are told");
    let hook = Hook::new(&world.simulator, &unique("ends"), "200");
    let secret = client.use_hook(&hook);

    let finished = run(&client);
    let [message] = hook.wait_for(&world.simulator, 1).try_into().expect("one message");
    let body = message.json();
    assert_eq!(body["type"], "generation.finished", "{body}");
    let settled = client.wait_until_settled(&finished);
    let data = &body["data"];
    assert_eq!(data["generation_id"], finished.as_str(), "{body}");
    for (member, expected) in [
        ("reservation_id", &settled["reservation_id"]),
        ("lifecycle", &settled["lifecycle"]),
        ("settlement", &settled["settlement"]),
        ("reason", &settled["reason"]),
        ("cost_micros", &settled["cost"]["settled_micros"]),
        ("route", &settled["route"]),
    ] {
        assert_eq!(&data[member], expected, "{member}: {body}");
    }
    assert_eq!(data["cost_micros"], price_micros(12, 3), "{body}");
    assert_eq!(
        (data["estimated"].as_bool(), data["usage"]["output_tokens"].as_u64()),
        (Some(false), Some(3)),
        "{body}"
    );
    assert!(millis(&body["timestamp"]).ends_with('Z'), "{body}");
    assert!(message.id().starts_with("evt_") && !message.id().contains('.'), "{}", message.id());
    assert_eq!(message.header("content-type"), "application/json");
    assert_eq!(message.header("user-agent").split('/').next(), Some("holdfast"));
    let balance = client.balance();
    assert_eq!(balance.spent, price_micros(12, 3), "what is told is in the ledger: {balance:?}");

    let (mut exchange, cancelled) = client.begin(&Chat::stream("gen?tokens=400&interval_ms=10"));
    let _some = exchange.read(500);
    let _requested = client.cancel(&cancelled);
    let _rest = exchange.finish();
    hook.wait_for(&world.simulator, 2);
    let refused = client.chat(&Chat::stream("gen?status=400"));
    assert_eq!(refused.status, 400);

    let messages = hook.wait_for(&world.simulator, 3);
    assert_eq!(types(&messages), ["generation.finished", "generation.cancelled", "generation.failed"]);
    assert_eq!(messages[1].json()["data"]["generation_id"], cancelled.as_str());
    assert_eq!(messages[1].json()["data"]["estimated"], true);
    assert_eq!(messages[2].json()["data"]["cost_micros"], 0);
    assert!(messages.iter().all(|message| message.is_signed_by(&secret)));
    assert_eq!(accepted_by_sdk(&messages, &secret), [true; 3]);
    let other = "whsec_AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";
    assert_eq!(accepted_by_sdk(&messages, other), [false; 3]);
    client.wait_for_deliveries("delivered", 3);
    // No prompt and no output is told.
    for message in &messages {
        assert!(!message.body().contains("messages") && !message.body().contains("content"), "{}", message.body());
    }
}

/// A generation that never started is told as failed; one whose driver was lost, too; nobody asks.
#[test]
fn what_the_sweep_and_the_alarm_find_is_told() {
    let (options, tenant) = options("found by sweep and alarm");
    let world = World::start(&options.limit("start_grace_ms", 1_000).with_test_hooks());
    let client = world.client(&tenant);
    let hook = Hook::new(&world.simulator, &unique("found"), "200");
    let secret = client.use_hook(&hook);
    let stopped = Chat::stream("gen?tokens=5").header("x-holdfast-test-failpoint", "stop-after-admit");
    assert_eq!(client.chat(&stopped).status, 500);
    let messages = hook.wait_for(&world.simulator, 1);
    assert_eq!(messages[0].json()["data"]["reason"], "never_started", "{}", messages[0].body());

    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=400&interval_ms=10"));
    let _some = exchange.read(500);
    world.kill();
    world.restart();
    let messages = hook.wait_for(&world.simulator, 2);
    let told = messages[1].json();
    assert_eq!(
        (told["type"].as_str(), told["data"]["reason"].as_str()),
        (Some("generation.failed"), Some("driver_lost"))
    );
    assert_eq!(told["data"]["generation_id"], id.as_str());
    assert!(messages.iter().all(|message| message.is_signed_by(&secret)));
}

/// Fault 48: each failure is tried again, under the same id, by a fresh timestamp and signature, until it is taken.
#[test]
fn failures_are_retried_under_the_same_id() {
    let (world, client) = world("retries");
    for (answers, requests, last) in [
        ("500,200", 2, "status"),
        ("302,200", 2, "status"),
        ("404,503,204", 3, "status"),
        ("drop,200", 2, "status"),
        ("silent,200", 2, "status"),
        ("200@3000,200", 2, "status"),
        // What comes after the head is not waited for, and cannot take the head back.
        ("200!reset", 1, "status"),
        ("200!stall", 1, "status"),
    ] {
        let hook = Hook::new(&world.simulator, &unique("retry"), answers);
        let secret = client.use_hook(&hook);
        let before = client.deliveries("delivered").len();
        run(&client);
        let messages = hook.wait_for(&world.simulator, requests);
        let delivered = client.wait_for_deliveries("delivered", before + 1);
        let delivery = delivered.last().expect("a delivery");
        assert_eq!(delivery["attempts"], requests, "{answers}: {delivery}");
        assert_eq!(delivery["last_attempt"]["answer"], last, "{answers}: {delivery}");
        let messages = [messages, hook.messages(&world.simulator)].concat();
        assert_eq!(messages.len(), 2 * requests, "{answers}: no more than needed");
        assert!(messages.iter().all(|message| message.id() == delivery["id"]), "{answers}: {delivery}");
        assert!(messages.iter().all(|message| message.body() == messages[0].body()), "{answers}: the same bytes");
        assert!(messages.iter().all(|message| message.is_signed_by(&secret)), "{answers}");
        assert_eq!(hook.followed(&world.simulator), 0, "{answers}: a redirect is not followed");
    }
}

/// The timestamp is of the attempt, and the receiver's own wish is kept.
#[test]
fn a_receivers_wish_is_kept() {
    let (world, client) = world("retry after");
    let hook = Hook::new(&world.simulator, &unique("wish"), "429:3,200");
    let secret = client.use_hook(&hook);
    run(&client);
    // It is pending before the first attempt too: the one that was answered is waited for.
    let answered = wait_for("a noted attempt", || {
        let pending = client.deliveries("pending");
        let noted = pending.first().filter(|delivery| delivery["last_attempt"]["status"].is_u64()).cloned();
        noted.ok_or_else(|| format!("{pending:?}"))
    });
    let [first, second] = hook.wait_for(&world.simulator, 2).try_into().expect("two messages");
    assert_eq!((answered["last_attempt"]["status"].as_u64(), answered["id"].as_str()), (Some(429), Some(first.id())));
    let waited_ms = second.received_at_ms() - first.received_at_ms();
    assert!((3_000..6_000).contains(&waited_ms), "{waited_ms} ms");
    let sent_s = |message: &Message| message.header("webhook-timestamp").parse::<u64>().expect("seconds");
    assert!(sent_s(&second) >= sent_s(&first) + 2, "a timestamp of its own");
    assert_ne!(first.signatures(), second.signatures());
    assert_eq!(accepted_by_sdk(&[first, second], &secret), [true; 2]);
}

/// Fault 49: when the schedule ends it is a dead letter: listed, and sent again on demand under the same id.
#[test]
fn dead_letters_are_listed_and_replayed() {
    let (world, client) = world("dead letters");
    let hook = Hook::new(&world.simulator, &unique("dead"), "500,500,500,500,500,200");
    client.use_hook(&hook);
    let id = run(&client);
    let dead = client.wait_for_deliveries("dead", 1);
    assert_eq!(dead[0]["why"], "schedule_ended", "{dead:?}");
    assert_eq!(dead[0]["attempts"], SCHEDULE.len(), "{dead:?}");
    assert_eq!(dead[0]["last_attempt"]["status"], 500, "{dead:?}");
    let event = dead[0]["id"].as_str().expect("an id").to_owned();
    let messages = hook.messages(&world.simulator);
    assert_eq!(messages.len(), SCHEDULE.len());
    assert_eq!(client.get("/v1/webhook").json()["dead"], 1);

    let replay = format!("/v1/webhook/deliveries/{event}/replay");
    let replayed = client.post(&replay).expect(202).json();
    assert_eq!((replayed["state"].as_str(), replayed["replays"].as_u64()), (Some("pending"), Some(1)), "{replayed}");
    let delivered = client.wait_for_deliveries("delivered", 1);
    assert_eq!(delivered[0]["id"], event.as_str());
    let messages = hook.messages(&world.simulator);
    assert_eq!(messages.len(), SCHEDULE.len() + 2, "one more failure, then it is taken");
    assert!(
        messages.iter().all(|message| message.id() == event && message.json()["data"]["generation_id"] == id.as_str())
    );
    client.post(&replay).assert_problem(409, "not_replayable");
    client.post("/v1/webhook/deliveries/evt_unknown/replay").assert_problem(404, "not_found");
    assert_eq!(client.deliveries("dead"), Vec::<Value>::new());
}

/// A bound that is reached has a name: what has no room among the pending is a dead letter, what has none there is counted.
#[test]
fn too_many_events_are_put_aside_and_counted() {
    let (options, tenant) = options("too many events");
    let waits = options.limit("webhook_schedule_ms", json!([3_600_000, 0])).limit("webhook_pending_max", 2);
    let world = World::start(&waits);
    let client = world.client(&tenant);
    client.use_hook(&Hook::new(&world.simulator, &unique("crowd"), "200"));
    for _ in 0..6 {
        client.wait_until_settled(&run(&client));
    }
    let webhook = client.get("/v1/webhook").expect(200).json();
    assert_eq!((&webhook["pending"], &webhook["dead"], &webhook["dropped"]), (&json!(2), &json!(2), &json!(2)));
    let dead = client.deliveries("dead");
    assert!(dead.iter().all(|letter| letter["why"] == "too_many_pending"), "{dead:?}");
    let replay = format!("/v1/webhook/deliveries/{}/replay", dead[0]["id"].as_str().expect("an id"));
    client.post(&replay).assert_problem(503, "unavailable");
    client.post("/v1/webhook/test").assert_problem(503, "unavailable");
    let generations = client.get("/v1/generations").expect(200).json();
    assert_eq!(generations["data"].as_array().map(Vec::len), Some(6), "what was not told can be listed");
    world.kill();
    world.restart();
    assert_eq!(client.get("/v1/webhook").json()["dropped"], 3, "the test too, and a restart forgets nothing");
}

/// Fault 48: `410` disables the endpoint. What happens meanwhile is kept as dead letters, and nothing is sent.
#[test]
fn gone_disables() {
    let (world, client) = world("gone");
    let hook = Hook::new(&world.simulator, &unique("gone"), "410,200");
    client.use_hook(&hook);
    run(&client);
    let dead = client.wait_for_deliveries("dead", 1);
    assert_eq!(dead[0]["why"], "endpoint_gone", "{dead:?}");
    let webhook = client.get("/v1/webhook").expect(200).json();
    assert_eq!((webhook["status"].as_str(), webhook["disabled_because"].as_str()), (Some("disabled"), Some("gone")));
    assert!(webhook["disabled_since"].is_u64(), "{webhook}");
    run(&client);
    let dead = client.wait_for_deliveries("dead", 2);
    assert_eq!(dead[1]["why"], "endpoint_disabled", "{dead:?}");
    assert_eq!(hook.messages(&world.simulator).len(), 1, "nothing is sent to what is gone");

    // A restart, and other settings for the same URL, change nothing of that.
    world.kill();
    world.restart();
    let webhook = json!({ "url": hook.url(), "events": ["generation.finished"] });
    let _stored = client.put_webhook(&webhook).expect(200);
    assert_eq!(client.get("/v1/webhook").json()["status"], "disabled");

    assert_eq!(client.post("/v1/webhook/enable").expect(200).json()["status"], "active");
    for letter in &dead {
        let id = letter["id"].as_str().expect("an id");
        let _replayed = client.post(&format!("/v1/webhook/deliveries/{id}/replay")).expect(202);
    }
    client.wait_for_deliveries("delivered", 2);
    assert_eq!(hook.messages(&world.simulator).len(), 3);
}

/// Fault 50: the sender dies between sending and noting. The event is sent a second time, and is the same.
#[test]
fn a_death_between_sending_and_noting() {
    let (options, tenant) = options("death while sending");
    let world = World::start(&options.limit("webhook_timeout_ms", 4_000));
    let client = world.client(&tenant);
    let hook = Hook::new(&world.simulator, &unique("death"), "200@2000,200");
    let secret = client.use_hook(&hook);
    run(&client);
    hook.wait_for(&world.simulator, 1);
    world.kill();
    world.restart();
    // No request reminds it: the alarm stands.
    let [first, second] = hook.wait_for(&world.simulator, 2).try_into().expect("two messages");
    assert_eq!((first.id(), first.body()), (second.id(), second.body()));
    assert!(second.is_signed_by(&secret));
    let delivered = client.wait_for_deliveries("delivered", 1);
    assert_eq!((delivered[0]["attempts"].as_u64(), delivered[0]["id"].as_str()), (Some(2), Some(first.id())));
    assert_eq!(hook.messages(&world.simulator).len(), 2);
}

/// While a secret is replaced a message has two signatures; without overlap the old one signs no more at once.
#[test]
fn rotation_signs_by_both_secrets() {
    let (world, client) = world("rotation");
    let hook = Hook::new(&world.simulator, &unique("rotation"), "200");
    let first = client.use_hook(&hook);
    run(&client);
    hook.wait_for(&world.simulator, 1);
    let second = client.rotate_webhook_secret("");
    let shown = client.get("/v1/webhook").expect(200);
    assert!(!shown.text().contains("whsec_"), "a secret is shown once: {}", shown.text());
    assert!(shown.json()["secret"]["previous_until"].as_u64() > Some(now_ms()), "{}", shown.text());
    run(&client);
    hook.wait_for(&world.simulator, 2);
    let third = client.rotate_webhook_secret("?overlap_ms=0");
    run(&client);
    let messages = hook.wait_for(&world.simulator, 3);
    let signatures: Vec<_> = messages.iter().map(|message| message.signatures().len()).collect();
    assert_eq!(signatures, [1, 2, 1]);
    assert_eq!(accepted_by_sdk(&messages, &first), [true, true, false]);
    assert_eq!(accepted_by_sdk(&messages, &second), [false, true, false]);
    assert_eq!(accepted_by_sdk(&messages, &third), [false, false, true]);
    client.post("/v1/webhook/rotate?overlap_ms=999999999999").assert_problem(400, "invalid_setting");
    client.post("/v1/webhook/rotate?overlap_ms=x").assert_problem(400, "invalid_request");
}

/// Reliability reference 3.2: a URL that may not be called is not saved, and the configuration before it stands.
#[test]
fn urls_are_checked_when_they_are_saved() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new("ssrf").tenant(&tenant));
    let client = world.client(&tenant);
    let local = format!("{}/__hook/x", world.simulator.origin());
    for url in [
        local.as_str(),
        "http://hooks.acme.com/",
        "https://127.0.0.1/",
        "https://127.1/",
        "https://2130706433/",
        "https://0x7f000001/",
        "https://[::1]/",
        "https://[::ffff:169.254.169.254]/",
        "https://169.254.169.254/latest/meta-data/",
        "https://localhost/",
        "https://metadata.google.internal/",
        "https://hooks.acme.com:8443/",
        "https://user:pass@hooks.acme.com/",
        "https://hooks.acme.com#@127.0.0.1/",
        "https://hooks.acme.com\\@127.0.0.1/",
        "https://127.0.0.1%2ehooks.acme.com/",
        "ftp://hooks.acme.com/",
        "",
    ] {
        let refused = client.put_webhook(&json!({ "url": url }));
        refused.assert_problem(422, "invalid_config");
        let paths: Vec<Value> =
            refused.json()["errors"].as_array().expect("errors").iter().map(|error| error["path"].clone()).collect();
        assert_eq!(paths, ["webhook.url"], "{url}: {}", refused.text());
    }
    assert_eq!(client.get("/v1/webhook").expect(200).json()["status"], "not_configured");
    let _stored = client.put_webhook(&json!({ "url": "https://hooks.acme.com/holdfast?x=1" })).expect(200);
    assert_eq!(client.get("/v1/webhook").json()["url"], "https://hooks.acme.com/holdfast?x=1");
    for bad in [json!({ "event": [] }), json!({ "events": ["generation.exploded"] })] {
        let mut webhook = bad.clone();
        webhook["url"] = json!("https://hooks.acme.com/");
        client.put_webhook(&webhook).assert_problem(422, "invalid_config");
    }
}

/// The same check stands before each call: what was saved on a developer's machine is not called from a deployment.
#[test]
fn urls_are_checked_when_they_are_called() {
    let (options, tenant) = options("checked at send");
    let world = World::start(&options);
    let client = world.client(&tenant);
    let hook = Hook::new(&world.simulator, &unique("send"), "200");
    client.use_hook(&hook);
    world.kill();
    world.set_local(false);
    world.restart();
    run(&client);
    let dead = client.wait_for_deliveries("dead", 1);
    assert_eq!(
        (dead[0]["last_attempt"]["answer"].as_str(), dead[0]["last_attempt"]["fault"].as_str()),
        (Some("url_refused"), Some("scheme"))
    );
    assert_eq!(hook.messages(&world.simulator).len(), 0);
}

/// Only what is wanted is told, nothing where nobody listens, and without a secret nothing is sent.
#[test]
fn who_wants_what() {
    let (world, client) = world("wanted");
    run(&client);
    let hook = Hook::new(&world.simulator, &unique("wanted"), "200");
    let _stored = client.put_webhook(&json!({ "url": hook.url(), "events": ["generation.failed"] })).expect(200);
    run(&client);
    assert_eq!(client.chat(&Chat::stream("gen?status=400")).status, 400);
    let dead = client.wait_for_deliveries("dead", 1);
    assert_eq!(
        (dead[0]["type"].as_str(), dead[0]["last_attempt"]["answer"].as_str()),
        (Some("generation.failed"), Some("no_secret"))
    );
    assert_eq!(hook.messages(&world.simulator).len(), 0);
    assert_eq!(client.get("/v1/webhook").json()["secret"], Value::Null);

    let secret = client.rotate_webhook_secret("");
    let test = client.post("/v1/webhook/test").expect(202).json();
    assert_eq!(test["type"], "webhook.test", "{test}");
    let [message] = hook.wait_for(&world.simulator, 1).try_into().expect("one message");
    assert_eq!((message.id(), message.is_signed_by(&secret)), (test["id"].as_str().expect("an id"), true));
    assert_eq!(message.json()["data"]["tenant"], "acme");

    // Removed: what is on its way is put aside, and can be sent again to the next one.
    let slow = Hook::new(&world.simulator, &unique("slow"), "500");
    let _stored = client.put_webhook(&json!({ "url": slow.url() })).expect(200);
    run(&client);
    slow.wait_for(&world.simulator, 1);
    let _removed = client.put_webhook(&Value::Null).expect(200);
    let dead = wait_for("a second dead letter", || match client.deliveries("dead").as_slice() {
        [_, second] => Ok(second.clone()),
        other => Err(format!("{other:?}")),
    });
    assert!(matches!(dead["why"].as_str(), Some("endpoint_removed" | "schedule_ended")), "{dead}");
    client.post("/v1/webhook/test").assert_problem(400, "invalid_setting");
    client.post("/v1/webhook/enable").assert_problem(400, "invalid_setting");
}

/// `/v1/webhook` is for administrators: another key, another tenant and no key get nothing.
#[test]
fn only_an_administrator_sees_it() {
    let (options, tenant) = options("roles");
    let other = Tenant::new("other").route(Route::new("chat"));
    let world = World::start(&options.tenant(&other));
    let client = world.client(&tenant);
    let hook = Hook::new(&world.simulator, &unique("roles"), "500");
    client.use_hook(&hook);
    run(&client);
    let event = hook.wait_for(&world.simulator, 1)[0].id().to_owned();
    let issued = client.send_json("POST", "/v1/keys", &json!({ "role": "client" })).expect(201).json();
    let plain = world.client_with_key(issued["key"].as_str().expect("a key"));
    let replay = format!("/v1/webhook/deliveries/{event}/replay");
    for target in ["/v1/webhook", "/v1/webhook/deliveries"] {
        plain.get(target).assert_problem(403, "role_required");
        world.client_with_key("").get(target).assert_problem(401, "invalid_api_key");
    }
    for target in ["/v1/webhook/rotate", "/v1/webhook/enable", "/v1/webhook/test", &replay] {
        plain.post(target).assert_problem(403, "role_required");
        world.client_with_key("").post(target).assert_problem(401, "invalid_api_key");
    }
    let stranger = world.client(&other);
    assert_eq!(stranger.deliveries("pending"), Vec::<Value>::new());
    let unknown = stranger.post("/v1/webhook/deliveries/evt_unknown/replay").expect(404).body;
    assert_eq!(stranger.post(&replay).expect(404).body, unknown, "foreign and unknown are one answer");
}

/// Pages follow each other by the last id; a bad query is refused.
#[test]
fn deliveries_come_in_pages() {
    let (world, client) = world("pages");
    let hook = Hook::new(&world.simulator, &unique("pages"), "200");
    client.use_hook(&hook);
    let told: Vec<String> = (0..5)
        .map(|_| client.post("/v1/webhook/test").expect(202).json()["id"].as_str().expect("an id").to_owned())
        .collect();
    client.wait_for_deliveries("delivered", 5);
    let (mut seen, mut after) = (Vec::new(), String::new());
    for _ in 0..3 {
        let page = client.get(&format!("/v1/webhook/deliveries?limit=2{after}")).expect(200).json();
        let ids: Vec<String> = page["data"]
            .as_array()
            .expect("a list")
            .iter()
            .map(|delivery| delivery["id"].as_str().expect("an id").to_owned())
            .collect();
        seen.extend(ids.iter().cloned());
        assert_eq!(page["has_more"], seen.len() < 5, "{page}");
        after = format!("&after={}", ids.last().expect("an id"));
    }
    assert_eq!(seen, told);
    for bad in ["limit=0", "limit=101", "limit=x", "state=gone", "state=dead&state=dead"] {
        client.get(&format!("/v1/webhook/deliveries?{bad}")).assert_problem(400, "invalid_request");
    }
    let request: Request = client.authorized("DELETE", "/v1/webhook");
    assert_eq!(client.call(&request).status, 405);
}

/// A receiver that takes its time makes no request wait, and no hold.
#[test]
fn a_slow_receiver_holds_nobody_up() {
    let (options, tenant) = options("slow receiver");
    let world = World::start(&options.limit("webhook_timeout_ms", 5_000));
    let client = world.client(&tenant);
    let hook = Hook::new(&world.simulator, &unique("slow"), "silent");
    client.use_hook(&hook);
    run(&client);
    hook.wait_for(&world.simulator, 1);
    let begun = now_ms();
    for _ in 0..5 {
        let id = run(&client);
        client.wait_until_settled(&id);
    }
    assert!(now_ms() - begun < 4_000, "{} ms", now_ms() - begun);
    client.wait_until_nothing_is_held();
    let_time_pass_until(begun + 100);
    assert_eq!(client.deliveries("delivered"), Vec::<Value>::new());
}
