//! Objects that an earlier version has written open under this one: forward-only migrations. The folders are made as
//! `tests/e2e/fixtures/README.md` says.

use std::fs;

use holdfast_e2e::world::fixtures;
use holdfast_e2e::{
    Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, now_ms, unique, wait_for,
};
use serde_json::{Value, json};

/// What an earlier version answered just before it was killed.
fn expected(fixture: &str) -> Value {
    let text = fs::read_to_string(fixtures().join(fixture).join("expected.json")).expect("the fixture's answers");
    serde_json::from_str(&text).expect("JSON")
}

fn tenant() -> Tenant {
    let tenant = Tenant::new("acme").keyed_as_stored().with("grant_micros", 0);
    tenant.route(Route::new("chat").detach().quick_recovery())
}

fn world(fixture: &str) -> (World, Client, Value) {
    let world = World::start(&Options::new(fixture).stored_by(fixture));
    let expected = expected(fixture);
    if expected["accounts"] == false {
        // Tenants were a variable then: the operator makes the account, and finds what the tenant has.
        world.create(&tenant());
    }
    let client = world.client(&tenant());
    (world, client, expected)
}

fn text<'a>(value: &'a Value, member: &str) -> &'a str {
    value[member].as_str().unwrap_or_else(|| panic!("no {member} in {value}"))
}

/// Every member that was there has the value that it had; members may have come. Who reads is a matter of memory.
fn assert_says_no_less(now: &Value, then: &Value, place: &str) {
    match (now, then) {
        (Value::Object(now), Value::Object(then)) => {
            for (name, value) in then.iter().filter(|(name, _)| *name != "connection") {
                let found = now.get(name).unwrap_or_else(|| panic!("{place}.{name} is gone"));
                assert_says_no_less(found, value, &format!("{place}.{name}"));
            }
        }
        _ => assert_eq!(now, then, "{place}"),
    }
}

fn assert_opens(fixture: &str) {
    let (world, client, expected) = world(fixture);

    // The generation whose driver died with that server is found by its own alarm, or by whoever asks; its part is kept.
    let running = text(&expected["running"], "id");
    let lost = client.wait_until_settled(running);
    assert_eq!((&lost["lifecycle"], &lost["reason"]), (&json!("failed"), &json!("driver_lost")), "{lost}");
    let part = client.read_all_from(running, 0);
    let seen = text(&expected["running"], "seen").as_bytes();
    assert!(part.len() > 1_000 && seen.starts_with(&part[..1_000]), "{}", String::from_utf8_lossy(&part));

    // Balance: what it was, and what that one cost.
    let balance = client.wait_until_nothing_is_held();
    let number = |name: &str| expected["balance"][name].as_u64().expect("an amount");
    let cost = lost["cost"]["settled_micros"].as_u64().expect("a cost");
    assert_eq!((balance.granted, balance.spent), (number("granted_micros"), number("spent_micros") + cost));

    // Each ended generation says what it said, and its bytes are the same.
    for name in ["streamed", "complete", "refused", "overage"] {
        let then = &expected[name];
        assert_says_no_less(&client.generation(text(then, "id")), &then["view"], name);
        let body = text(then, "body").as_bytes();
        assert_bytes!(client.result(text(then, "id")).body, body, "{name}");
        let raw = client.get(&format!("/v1/generations/{}/stream?offset=1", text(then, "id")));
        assert_bytes!(raw.body, &body[1..], "{name}");
    }
    let overage = &client.generation(text(&expected["overage"], "id"))["cost"];
    assert!(overage["settled_micros"].as_u64() > overage["hold_micros"].as_u64(), "{overage}");
    assert_books(&client, &expected);
    assert_directory(&world, &expected);

    // The idempotency key still finds its answer; nobody is called for it.
    let tag = unique("upgrade");
    let mut repeated = Chat::stream("gen").idempotency_key("kept").request(client.key());
    repeated.body = text(&expected["streamed"], "request").as_bytes().to_vec();
    let again = client.call(&repeated);
    assert_eq!(again.header("x-generation-id"), expected["streamed"]["id"].as_str(), "{}", again.text());
    assert_bytes!(again.body, text(&expected["streamed"], "body").as_bytes());

    // And it goes on: a new request, a detached one, a restart.
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=60&interval_ms=15").tag(&tag));
    exchange.read(300);
    exchange.abandon();
    wait_for("a detached generation that is counted", || {
        let balance = client.get("/v1/balance").expect(200).json();
        if balance["detached"] == 1 { Ok(()) } else { Err(balance.to_string()) }
    });
    assert_completed(&client.wait_until_settled(&id), 12, 60);
    world.kill();
    world.restart();
    assert_says_no_less(&client.generation(text(&expected["streamed"], "id")), &expected["streamed"]["view"], "again");
    assert_books(&client, &expected);
    assert_directory(&world, &expected);
    world.kill();
    assert_eq!(world.count_in_directory("SELECT version FROM schema"), 2);
    assert_eq!(world.count_in_tenant(&tenant(), "SELECT version FROM schema"), 9);
    let version = |name: &str| world.count_in_generation(text(&expected[name], "id"), "SELECT version FROM schema");
    assert_eq!(["streamed", "complete", "refused", "overage", "running"].map(version), [2; 5]);
}

/// The operator's list, and a walk of the sweep over it from its beginning to its end.
fn assert_directory(world: &World, expected: &Value) {
    let tenants = world.operator().get("/admin/tenants").expect(200).json();
    if expected["tenants"].is_object() {
        assert_says_no_less(&tenants, &expected["tenants"], "tenants");
    }
    let ids: Vec<_> = tenants["data"].as_array().expect("tenants").iter().map(|tenant| text(tenant, "id")).collect();
    assert_eq!(ids, ["acme"], "{tenants}");
    let swept = world.operator().post("/admin/sweep").expect(200).json();
    assert_eq!((&swept["tenants"], &swept["tenants_failed"]), (&json!(1), &json!(0)), "{swept}");
    assert_eq!(swept["complete"], true, "{swept}");
}

fn assert_books(client: &Client, expected: &Value) {
    let ledger = client.get("/v1/ledger?limit=100").expect(200).json();
    let entries = ledger["data"].as_array().expect("entries");
    if let Some(then) = expected["ledger"].as_array() {
        assert_eq!(&entries[..then.len()], then.as_slice(), "entries are immutable");
    }
    let of_kind = |kind: &str| entries.iter().filter(|entry| entry["kind"] == kind).count();
    assert_eq!((of_kind("grant"), of_kind("overage"), of_kind("release")), (1, 1, 1), "{ledger}");
    let last = &entries.last().expect("entries")["after"];
    let balance = client.balance();
    assert_eq!((&last["spent_micros"], &last["held_micros"]), (&json!(balance.spent), &json!(balance.held)));
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!((&check["complete"], &check["consistent"]), (&json!(true), &json!(true)), "{check}");
    let audit = client.get("/v1/audit").expect(200).text();
    assert_eq!(audit.lines().count(), entries.len(), "each posting has one audit row");
}

/// Tables of a tenant at version 1, tenants as a variable; a ReservationObject of the first version; no directory.
#[test]
fn a_store_from_before_accounts_opens() {
    assert_opens("before-accounts");
}

/// Tables of a tenant at version 6: accounts, configuration, books, webhooks, runs; nobody counted detached generations or
/// tokens. The directory has its list, and no version.
#[test]
fn a_store_from_before_detached_max_opens() {
    let fixture = "before-detached-max";
    assert_opens(fixture);
    let (_world, client, expected) = world(fixture);
    let config = client.get("/v1/config").expect(200);
    assert_eq!(config.json(), expected["config"], "the document as it was put");
    assert_eq!(config.required("holdfast-config-version"), "1");
    assert_eq!(client.get("/v1/keys").expect(200).json()["data"].as_array().map(Vec::len), Some(1));
    // A token of that time was not kept: it has ended, and says so.
    let token = text(&expected["token"], "token");
    let late = Client::new(client.port(), token);
    late.get("/v1/generations?idempotency_key=kept").assert_problem(401, "token_expired");
    assert_eq!(client.get("/v1/tokens").expect(200).json()["data"], json!([]));
}

/// Tables of a tenant at version 8, the one before operations were kept.
#[test]
fn a_store_from_before_operations_opens() {
    assert_opens("before-operations");
}

/// The directory as it was before its tables had a version: the list, and the place of the sweep. All else is of now.
#[test]
fn a_store_from_before_the_directorys_version_opens() {
    assert_opens("before-directory-version");
}

/// What a newer version has stored is left alone, object by object, and said in the log: what its rows mean is not known
/// here. The version that knows them goes on with it.
#[test]
fn tables_of_a_newer_version_are_refused() {
    const NEWER: [&str; 1] = ["UPDATE schema SET version = version + 1"];
    const BACK: [&str; 1] = ["UPDATE schema SET version = version - 1"];
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new("newer").tenant(&tenant));
    let (client, operator) = (world.client(&tenant), world.operator());
    let chat = Chat::stream("gen?tokens=3");
    let (mut exchange, id) = client.begin(&chat);
    let _body = exchange.finish().clean();
    let view = client.wait_until_settled(&id);
    let told = |whose: &str| world.output_count(&format!("{whose} tables are of a newer version"));
    let generation = format!("/v1/generations/{id}");
    assert_eq!(["tenant", "generation", "directory"].map(told), [0; 3]);

    world.kill();
    world.edit_generation(&id, &NEWER);
    world.restart();
    client.get(&generation).assert_problem(503, "unavailable");
    client.get(&format!("{generation}/stream?offset=0")).assert_problem(503, "unavailable");
    assert!(told("generation") > 0 && told("tenant") == 0, "{}", world.output());
    assert_eq!(client.chat(&chat).status, 200, "another generation is of this version");

    world.kill();
    world.edit_generation(&id, &BACK);
    world.edit_tenant(&tenant, &NEWER);
    world.restart();
    let tag = unique("newer");
    assert_eq!(client.chat(&Chat::stream("gen?tokens=3").tag(&tag)).status, 503);
    world.simulator.assert_never_called(&tag);
    let swept = operator.post("/admin/sweep").expect(200).json();
    assert_eq!((&swept["tenants"], &swept["tenants_failed"]), (&json!(0), &json!(1)), "{swept}");
    assert!(told("tenant") > 0 && told("directory") == 0, "{}", world.output());

    world.kill();
    world.edit_tenant(&tenant, &BACK);
    world.edit_directory(&NEWER);
    world.restart();
    operator.get("/admin/tenants").assert_problem(503, "unavailable");
    operator.post("/admin/sweep").assert_problem(503, "unavailable");
    assert!(told("directory") > 0, "{}", world.output());
    // The directory is the operator's: generations go on.
    assert_says_no_less(&client.generation(&id), &view, "read again");

    world.kill();
    world.edit_directory(&BACK);
    world.restart();
    assert_eq!(operator.get("/admin/tenants").expect(200).json()["data"][0]["id"], "acme");
    assert_eq!(operator.post("/admin/sweep").expect(200).json()["tenants"], 1);
    assert_eq!(client.chat(&chat).status, 200);
}

/// An alarm that rings where the generation cannot be read is not lost: it rings again, for the version that can.
#[test]
fn an_alarm_under_an_older_version_rings_again() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach().with("retention_s", 5));
    let world = World::start(&Options::new("older alarm").tenant(&tenant));
    let client = world.client(&tenant);
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3"));
    let body = exchange.finish().clean();
    client.wait_until_settled(&id);
    world.kill();
    world.edit_generation(&id, &["UPDATE schema SET version = version + 1"]);
    let due = world.alarm_of_generation(&id).expect("its output is kept for its time only");
    world.restart();
    let again = wait_for("a later alarm", || match world.alarm_of_generation(&id) {
        Some(at) if at > due => Ok(at),
        other => Err(format!("{other:?}, due {due}: {}", world.output())),
    });
    assert!(again >= now_ms() && again > due + 50_000, "{again}, due {due}");
    world.kill();
    let stored = world.count_in_generation(&id, "SELECT SUM(LENGTH(bytes)) FROM chunk");
    assert_eq!(usize::try_from(stored), Ok(body.len()), "nothing is changed");
    world.edit_generation(&id, &["UPDATE schema SET version = version - 1"]);
    world.restart();
    // Whoever asks first makes up for what was due.
    wait_for("the output is gone", || {
        let status = client.result(&id).status;
        if status == 410 { Ok(()) } else { Err(status.to_string()) }
    });
}
