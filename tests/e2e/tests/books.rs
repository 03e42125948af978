//! The books over HTTP: they agree after whatever happened, and what does not agree is named.

use std::collections::{BTreeMap, BTreeSet};

use holdfast_e2e::wait::let_time_pass_until;
use holdfast_e2e::{Balance, Chat, Client, Options, Route, Seed, Tenant, World, now_ms, unique};
use serde_json::{Value, json};

fn tenant(id: &str) -> Tenant {
    let edge = Route::new("quick").for_model("gpt-*").edge_owned().detach().with("total_ms", 20_000).quick_recovery();
    Tenant::new(id).route(edge).route(Route::new("chat").cancel().quick_recovery())
}

fn options(name: &str) -> Options {
    Options::new(name).limit("batch_bytes", 1_024).limit("batch_ms", 100).limit("start_grace_ms", 1_500)
}

fn number(document: &Value, name: &str) -> i64 {
    document[name].as_i64().unwrap_or_else(|| panic!("no {name} in {document}"))
}

fn text<'a>(document: &'a Value, name: &str) -> &'a str {
    document[name].as_str().unwrap_or_else(|| panic!("no {name} in {document}"))
}

/// All rows of a list, page by page.
fn all(client: &Client, target: &str, limit: usize) -> Vec<Value> {
    let sign = if target.contains('?') { '&' } else { '?' };
    let mut rows = Vec::new();
    let mut after = String::new();
    loop {
        let page = client.get(&format!("{target}{sign}limit={limit}{after}")).expect(200).json();
        assert_eq!(page["object"], "list", "{page}");
        let data = page["data"].as_array().unwrap_or_else(|| panic!("no data in {page}"));
        assert!(data.len() <= limit, "{page}");
        rows.extend(data.iter().cloned());
        if page["has_more"] == false {
            return rows;
        }
        after = format!("&after={}", text(&page, "next"));
    }
}

/// A whole check, however many requests it takes.
fn check(client: &Client) -> Value {
    let mut after = String::new();
    loop {
        let view = client.get(&format!("/v1/ledger/check{after}")).expect(200).json();
        assert_eq!(view["object"], "ledger.check", "{view}");
        if view["complete"] == true {
            return view;
        }
        after = format!("?after={}", text(&view, "next"));
    }
}

fn assert_nothing_differs(view: &Value) {
    assert_eq!((&view["consistent"], &view["differences_count"]), (&json!(true), &json!(0)), "{view}");
    assert_eq!((&view["differences"], &view["read"]["unanswered"]), (&json!([]), &json!(0)), "{view}");
}

/// One request of the random run, and what its client does.
fn one_of_the_run(world: &World, client: &Client, seed: &mut Seed) {
    let (slow, quick) = ("tokens=40&interval_ms=8", "tokens=5");
    let models = [
        format!("gen?{quick}"),
        format!("gen?{slow}"),
        format!("gpt-4?{slow}"),
        format!("gpt-4?{quick}"),
        format!("gen?{quick}&usage=none"),
        // More than the worst case that was held: an overage.
        "gen?tokens=5&completion_tokens=5000".into(),
        "gen?status=429".into(),
        "gen?status=500".into(),
        "gen?drop=1".into(),
        "gen?tokens=20&reset_at=900".into(),
        "gen?tokens=20&end_at=900".into(),
        "gen?tokens=9&error_after=4".into(),
    ];
    let model = &models[seed.between(0, models.len())];
    let streams = seed.between(0, 4) > 0;
    let chat = if streams { Chat::stream(model) } else { Chat::complete(model) };
    let policy = ["cancel", "detach"][seed.between(0, 2)];
    let chat = chat.tag(&unique("books")).on_disconnect(policy);
    let Ok(mut exchange) = client.try_open(&chat) else { panic!("{}", world.output()) };
    match seed.between(0, 4) {
        // Leaves before the head, after a few bytes, or stays.
        0 => exchange.abandon(),
        1 => {
            let id = exchange.try_head().ok().and_then(|head| head.header("x-generation-id").map(str::to_owned));
            exchange.abandon();
            if let Some(id) = id.filter(|_| seed.between(0, 2) == 0) {
                client.try_cancel(&id);
            }
        }
        2 => {
            let _seen = exchange.try_head();
            let _some = exchange.read_up_to(600);
            exchange.abandon();
        }
        _ => {
            let _seen = exchange.try_head();
            let _whole = exchange.finish();
        }
    }
}

/// Many generations of every kind, with the server killed in between.
fn random_run(world: &World, client: &Client, name: &str) -> Balance {
    let mut seed = Seed::named(name);
    for round in 0..4 {
        for _ in 0..16 {
            one_of_the_run(world, client, &mut seed);
        }
        if round == 1 {
            // While postings are on their way.
            assert_nothing_differs(&check(client));
        }
        // Some are in the middle of their lives.
        let open: Vec<_> = (0..4).map(|_| client.open(&Chat::stream("gen?tokens=60&interval_ms=5"))).collect();
        let_time_pass_until(now_ms() + seed.between(5, 80) as u64);
        world.kill();
        drop(open);
        world.restart();
    }
    client.wait_until_nothing_is_held()
}

/// Every list sums to the balance, and to what every generation says of itself.
fn assert_books_agree(client: &Client, balance: &Balance) {
    let (spent, granted) = (i64::try_from(balance.spent).unwrap(), i64::try_from(balance.granted).unwrap());
    let generations = all(client, "/v1/generations", 7);
    let mut charged = 0;
    for summary in &generations {
        let view = client.generation(text(summary, "id"));
        assert_eq!(view["settled"], true, "{view}");
        assert_eq!(view["cost"]["settled_micros"], summary["charged_micros"], "{view} {summary}");
        assert_eq!(view["reservation_id"], summary["reservation_id"]);
        let state = if view["settlement"] == "committed" { "settled" } else { "released" };
        assert_eq!((text(summary, "state"), number(summary, "held_micros")), (state, 0), "{view} {summary}");
        charged += number(summary, "charged_micros");
    }
    assert_eq!(charged, spent, "the sum over the reservations");

    let entries = all(client, "/v1/ledger", 50);
    let sum = |name: &str| entries.iter().map(|entry| number(entry, name)).sum::<i64>();
    assert_eq!((sum("granted_micros"), sum("held_micros"), sum("spent_micros")), (granted, 0, spent));
    assert!(entries.iter().zip(1..).all(|(entry, seq)| number(entry, "seq") == seq), "every number, in order");
    let last = &entries.last().expect("entries")["after"];
    assert_eq!((number(last, "spent_micros"), number(last, "held_micros")), (spent, 0));
    let holds = entries.iter().filter(|entry| entry["kind"] == "hold").count();
    assert_eq!(holds, generations.len(), "one hold for each generation, and each is listed once");
    assert_filters(client, &entries, &generations);
    assert_usage_agrees(client, spent);
    assert_audit_agrees(client, &entries);
}

fn assert_filters(client: &Client, entries: &[Value], generations: &[Value]) {
    for kind in ["settle", "release", "overage"] {
        let of_kind: Vec<_> = entries.iter().filter(|entry| entry["kind"] == kind).cloned().collect();
        assert!(!of_kind.is_empty(), "the run made a {kind}");
        assert_eq!(all(client, &format!("/v1/ledger?kind={kind}"), 3), of_kind);
    }
    let middle = number(&entries[entries.len() / 2], "recorded_at");
    let (before, after): (Vec<_>, Vec<_>) =
        entries.iter().cloned().partition(|entry| number(entry, "recorded_at") < middle);
    assert_eq!(all(client, &format!("/v1/ledger?until={middle}"), 40), before);
    assert_eq!(all(client, &format!("/v1/ledger?from={middle}"), 40), after);

    let some = &generations[generations.len() / 2];
    let own: Vec<_> = entries.iter().filter(|entry| entry["generation_id"] == some["id"]).cloned().collect();
    assert!(own.len() >= 2, "a hold and its end");
    let (id, reservation) = (text(some, "id"), text(some, "reservation_id"));
    for filter in [format!("generation={id}"), format!("reservation={reservation}")] {
        assert_eq!(all(client, &format!("/v1/ledger?{filter}"), 1), own);
    }
    for state in ["open", "settled", "released"] {
        let of_state: Vec<_> = generations.iter().filter(|summary| summary["state"] == state).cloned().collect();
        assert_eq!(all(client, &format!("/v1/generations?state={state}"), 5), of_state, "{state}");
    }
    let quick: Vec<_> = generations.iter().filter(|summary| summary["route"] == "quick").cloned().collect();
    assert!(!quick.is_empty() && quick.len() < generations.len());
    assert_eq!(all(client, "/v1/generations?route=quick", 5), quick);
    let admitted = number(some, "admitted_at");
    let (older, newer): (Vec<_>, Vec<_>) =
        generations.iter().cloned().partition(|summary| number(summary, "admitted_at") < admitted);
    assert_eq!(all(client, &format!("/v1/generations?until={admitted}"), 6), older);
    assert_eq!(all(client, &format!("/v1/generations?from={admitted}"), 6), newer);
}

fn assert_usage_agrees(client: &Client, spent: i64) {
    let lines = all(client, "/v1/usage/lines", 9);
    assert_eq!(lines.iter().map(|line| number(line, "amount_micros")).sum::<i64>(), spent);
    for by in ["", "route", "model", "day", "disposition", "route,model,day,disposition"] {
        let report = client.get(&format!("/v1/usage?group_by={by}")).expect(200).json();
        let groups = report["data"].as_array().expect("groups");
        let sum = |name: &str| groups.iter().map(|group| number(group, name)).sum::<i64>();
        assert_eq!((sum("amount_micros"), sum("lines")), (spent, lines.len() as i64), "{report}");
        for group in groups {
            assert_eq!(group["price_version"], "test-1", "{group}");
            let named: Vec<_> = by.split(',').filter(|name| !name.is_empty()).collect();
            assert!(named.iter().all(|name| group[*name].is_string()), "{group}");
        }
    }
    let report = client.get("/v1/usage?group_by=disposition").expect(200).json();
    let groups = report["data"].as_array().expect("groups");
    let dispositions: BTreeSet<_> = groups.iter().map(|group| text(group, "disposition").to_owned()).collect();
    for wanted in ["exact", "estimated", "overage"] {
        assert!(dispositions.contains(wanted), "{report}");
    }
    let nothing = client.get("/v1/usage?from=1&until=2").expect(200).json();
    assert_eq!(nothing["data"], json!([]));
    for line in &lines {
        let records = client.get(&format!("/v1/usage/records?line={}", text(line, "id"))).expect(200).json();
        let ids: Vec<_> = records["data"].as_array().expect("records").iter().map(|record| &record["id"]).collect();
        assert!(!ids.is_empty(), "what is billed stands on a record: {line}");
        assert_eq!(ids, line["usage_record_ids"].as_array().expect("ids").iter().collect::<Vec<_>>());
        let of_generation = format!("/v1/usage/records?generation={}", text(line, "generation_id"));
        let all = client.get(&of_generation).expect(200).json();
        let all: Vec<_> = all["data"].as_array().expect("records").iter().map(|record| &record["id"]).collect();
        assert!(ids.iter().all(|id| all.contains(id)), "{all:?} {line}");
    }
}

fn assert_audit_agrees(client: &Client, entries: &[Value]) {
    let mut events: Vec<Value> = Vec::new();
    let mut after = String::new();
    loop {
        let reply = client.get(&format!("/v1/audit?limit=60{after}")).expect(200);
        assert_eq!(reply.required("content-type"), "application/x-ndjson");
        events
            .extend(reply.text().lines().map(|line| serde_json::from_str::<Value>(line).expect("one document a line")));
        after = format!("&after={}", reply.required("holdfast-next"));
        if reply.required("holdfast-has-more") == "false" {
            break;
        }
    }
    assert_eq!(events.len(), entries.len(), "each posting has one audit row");
    let mut prev = json!("");
    for (event, entry) in events.iter().zip(entries) {
        let data = &event["data"];
        assert_eq!(event["specversion"], "1.0");
        assert_eq!(text(event, "type"), format!("dev.holdfast.ledger.{}", text(entry, "kind")));
        assert_eq!((&data["seq"], &data["posting_id"]), (&entry["seq"], &entry["posting_id"]));
        assert_eq!((&data["prev_hash"], &data["posting"]["id"]), (&prev, &entry["posting_id"]));
        prev = data["hash"].clone();
    }
    let later = client.get(&format!("/v1/audit?{}", &after[1..])).expect(200);
    assert_eq!((later.text().as_str(), later.required("holdfast-has-more")), ("", "false"), "a kept cursor waits");
}

/// Invariant 11: "balances equal the sum over its reservations", after a randomized run with kills. Then rows are edited
/// behind the server's back, and each edit is named.
#[test]
fn the_books_agree_after_a_random_run_and_name_what_was_edited() {
    let tenant = tenant("acme");
    let world = World::start(&options("random books").tenant(&tenant));
    let client = world.client(&tenant);
    let balance = random_run(&world, &client, "random books");
    assert!(balance.spent > 0, "{balance:?}");
    let view = check(&client);
    assert_nothing_differs(&view);
    assert_books_agree(&client, &balance);
    assert!(number(&view["read"], "holds") > 40 && number(&view["read"], "entries") > 80, "{view}");

    let lines = all(&client, "/v1/usage/lines", 200);
    let settled: Vec<_> = lines.iter().filter(|line| line["kind"] == "settle").collect();
    let (a, b, c, d) = (settled[0], settled[1], settled[2], settled[3]);
    let reservation = |line: &Value| text(line, "reservation_id").to_owned();
    world.kill();
    let statements = [
        "UPDATE tenant SET json = json_set(json, '$.balances.spent', json_extract(json, '$.balances.spent') + 5)"
            .into(),
        format!(
            "UPDATE hold SET json = json_set(json, '$.charged', json_extract(json, '$.charged') + 1)
             WHERE reservation = '{}'",
            reservation(a)
        ),
        format!("UPDATE posting SET json = json_set(json, '$.amount', 1) WHERE id = '{}'", text(b, "id")),
        format!("DELETE FROM invoice_line WHERE posting = '{}'", text(c, "id")),
        format!(
            "UPDATE hold SET state = 'open', json = json_set(json, '$.state', 'open') WHERE reservation = '{}'",
            reservation(d)
        ),
    ];
    world.edit_tenant(&tenant, &statements.iter().map(String::as_str).collect::<Vec<_>>());
    world.restart();

    let view = check(&client);
    assert_eq!((&view["complete"], &view["consistent"]), (&json!(true), &json!(false)), "{view}");
    let differences = view["differences"].as_array().expect("differences");
    let named = |what: &str, member: &str, value: &str| -> &Value {
        let same =
            |difference: &&Value| difference["what"] == what && (member.is_empty() || difference[member] == value);
        differences.iter().find(same).unwrap_or_else(|| panic!("no {what} of {member} {value} in {view:#}"))
    };
    let spent = i64::try_from(balance.spent).unwrap();
    let by_entries = named("spent_by_entries", "", "");
    assert_eq!((number(by_entries, "expected"), number(by_entries, "found")), (spent, spent + 5));
    let charged = named("hold_charged", "reservation_id", &reservation(a));
    assert_eq!(number(charged, "found"), number(charged, "expected") + 1, "{charged}");
    assert_eq!(named("posting_content", "row", text(b, "id"))["reservation_id"], b["reservation_id"]);
    let line = named("line", "row", text(c, "id"));
    assert_eq!((&line["expected"], &line["found"]), (&c["amount_micros"], &Value::Null));
    let state = named("reservation_state", "reservation_id", &reservation(d));
    assert_eq!((text(state, "expected"), text(state, "found")), ("open", "settled"));
    named("hold_state", "reservation_id", &reservation(d));
    let balance = client.get("/v1/balance").expect(200).json();
    assert_eq!(balance["check"]["consistent"], false, "{balance}");
    assert!(balance["check"]["differences"].as_array().is_some_and(|list| !list.is_empty()), "{balance}");
}

/// Ids of another tenant are as unknown as ids of nobody, byte for byte; a client's key sees generations, not books.
#[test]
fn the_books_are_the_tenants_own() {
    let (acme, other) = (tenant("acme"), tenant("other"));
    let world = World::start(&options("own books").tenant(&acme).tenant(&other));
    let (client, stranger) = (world.client(&acme), world.client(&other));
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3"));
    let reservation = exchange.head().required("x-reservation-id").to_owned();
    exchange.finish().clean();
    client.wait_until_settled(&id);
    let line = text(&all(&client, "/v1/usage/lines", 10)[0], "id").to_owned();
    let own = [
        format!("/v1/ledger?reservation={reservation}"),
        format!("/v1/ledger?generation={id}"),
        format!("/v1/usage/records?line={line}"),
        format!("/v1/usage/records?generation={id}"),
    ];
    for target in &own {
        assert_eq!(client.get(target).status, 200, "{target}");
        let foreign = stranger.get(target);
        foreign.assert_problem(404, "not_found");
        let (path, value) = target.split_once('=').unwrap();
        let nobodys =
            if value.contains(':') { "res_0:1:settle:1".into() } else { format!("{}{}", &value[..4], "0".repeat(32)) };
        for unknown in [nobodys.as_str(), "x", ""] {
            let reply = stranger.get(&format!("{path}={unknown}"));
            assert_eq!((reply.status, &reply.body), (404, &foreign.body), "{path}={unknown}");
        }
    }
    assert_eq!(all(&stranger, "/v1/generations", 10), [] as [Value; 0]);
    assert_eq!(stranger.get("/v1/usage").expect(200).json()["data"], json!([]));
    assert_nothing_differs(&check(&stranger));

    let issued = client.call(&client.authorized("POST", "/v1/keys").json(&json!({}))).expect(201).json();
    let app = world.client_with_key(text(&issued, "key"));
    let books = ["/v1/ledger", "/v1/ledger/check", "/v1/usage", "/v1/usage/lines", "/v1/audit", own[2].as_str()];
    for target in books {
        app.get(target).assert_problem(403, "role_required");
        world.client_with_key("hfk_acme_nonsense").get(target).assert_problem(401, "invalid_api_key");
    }
    assert_eq!(all(&app, "/v1/generations", 10).len(), 1);
}

#[test]
fn a_question_that_cannot_be_read_is_refused() {
    let tenant = tenant("acme");
    let world = World::start(&options("bad questions").tenant(&tenant));
    let client = world.client(&tenant);
    for target in [
        "/v1/ledger?limit=0",
        "/v1/ledger?limit=201",
        "/v1/ledger?after=7",
        "/v1/ledger?after=aud1",
        "/v1/ledger?kind=gift",
        "/v1/ledger?knid=settle",
        "/v1/ledger?from=2&until=1",
        "/v1/ledger?from=yesterday",
        "/v1/ledger?kind=settle&kind=release",
        "/v1/usage?group_by=customer",
        "/v1/usage?group_by=day,day",
        "/v1/usage/records",
        "/v1/generations?state=lost",
        "/v1/audit?from=1",
        "/v1/ledger/check?after=x",
    ] {
        client.get(target).assert_problem(400, "invalid_request");
    }
    client.get("/v1/ledger/check?after=chk1").assert_problem(404, "not_found");
    let page = client.get("/v1/ledger?limit=200").expect(200).json();
    let kinds: BTreeMap<_, _> =
        page["data"].as_array().unwrap().iter().map(|entry| (text(entry, "kind"), ())).collect();
    assert_eq!(kinds.keys().copied().collect::<Vec<_>>(), ["grant"], "nothing but its credit");
}
