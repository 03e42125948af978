//! Results that were learnt outside of their stream (design 6, row "no cancel, status": "store the result"; seed 1, the same):
//! whatever happens on the way, what was paid for is there, as long as content is kept.

use std::thread;
use std::time::{Duration, Instant};

use holdfast_e2e::config::BACKGROUND;
use holdfast_e2e::jobs::{asked, assert_broken, assert_looked_up, expected, final_response, job, once_asked, states};
use holdfast_e2e::{
    Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, price_micros, unique, wait_for,
    wait_for_within,
};
use serde_json::{Value, json};

/// Its stream breaks off, and is not given again: what came of it is looked up.
const BROKEN: &str = "reset_at=3000&resumes=404!";

fn route() -> Route {
    Route::new("r").background(BACKGROUND).detach()
}

fn options(name: &str, tenant: &Tenant) -> Options {
    Options::new(name).tenant(tenant).limit("batch_bytes", 2_048).limit("batch_ms", 50)
}

fn start(name: &str, route: Route, limit: (&str, u64)) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route.with("lease_ms", 1_000)).with("grant_micros", 1_000_000_000_u64);
    let world = World::start(&options(name, &tenant).limit(limit.0, limit.1).with_test_hooks());
    let client = world.client(&tenant);
    (world, client)
}

fn broken_job(keys: &str, tag: &str) -> Chat {
    job(&format!("gen?{keys}&{BROKEN}"), tag)
}

/// Killed while the outcome is searched, and again once it is known: the result is found, and stays.
#[test]
fn killed_before_and_after_it_is_learnt() {
    let (world, client) = start("result, killed", route(), ("heartbeat_ms", 500));
    let tag = unique("killed");
    let chat = broken_job("tokens=60&interval_ms=2&lookups=503:2", &tag);
    let (exchange, id) = client.begin(&chat);
    once_asked(&world.simulator, &tag, "lookup", 1);
    assert_eq!(client.result(&id).status, 202, "it runs, as far as anybody knows");
    world.kill();
    drop(exchange);
    world.restart();
    let settled = client.wait_until_settled(&id);
    assert_completed(&settled, 12, 60);
    assert_looked_up(&world, &client, &settled);
    world.kill();
    world.restart();
    assert_looked_up(&world, &client, &client.generation(&id));
    assert_broken(&client.read_all_from(&id, 0), &expected(&world.simulator, &chat));
}

/// Once the word that settles it is stored, so is the result: the server dies before the first write behind the break of
/// the stream, before the second, and so on.
#[test]
fn killed_before_each_write() {
    let (world, client) = start("result, each write", route(), ("start_grace_ms", 1_500));
    let deaths = || world.output_count("stands still before a write");
    let mut ids = Vec::new();
    let mut died = 0;
    for after_writes in 0..20 {
        let tag = unique("write");
        let (mut exchange, id) = client.begin(&broken_job("tokens=60&interval_ms=10&lookups=503", &tag));
        exchange.read(1_000);
        let before = deaths();
        client.post(&format!("/__test/write-fault/stop/{after_writes}")).expect(200);
        let begun = Instant::now();
        while deaths() == before && begun.elapsed() < Duration::from_secs(5) {
            thread::sleep(Duration::from_millis(20));
        }
        died += usize::from(deaths() > before);
        world.kill();
        drop(exchange);
        world.restart();
        ids.push(id);
    }
    assert!(died > 8, "the fault was armed: {died}");
    for id in ids {
        // What was asked for when it died counts as unanswered after a while.
        let settled = wait_for_within(Duration::from_secs(60), "a settled generation", || {
            let generation = client.generation(&id);
            if generation["settled"] == true { Ok(generation) } else { Err(generation.to_string()) }
        });
        assert_completed(&settled, 12, 60);
        assert_looked_up(&world, &client, &settled);
    }
}

/// Above the bound it is settled by its usage all the same, and counts as no failure of the provider: the breaker stays
/// closed, and each is asked about once.
#[test]
fn one_that_is_too_large_is_settled_without_it() {
    let (world, client) = start("result, too large", route(), ("generation_max_bytes", 6_000));
    for tokens in [2_000; 6] {
        let tag = unique("large");
        let (mut exchange, id) = client.begin(&broken_job(&format!("tokens={tokens}"), &tag));
        let received = exchange.finish().clean();
        let settled = client.wait_until_settled(&id);
        assert_completed(&settled, 12, tokens);
        let told = &settled["result"];
        assert_eq!((&told["kept"], &told["outcome"]), (&json!(false), &json!("completed")), "{settled}");
        assert!(told["length"].as_u64() > Some(6_000), "{settled}");
        // What is there is the part of the stream, and nobody is sent elsewhere.
        assert_bytes!(client.result(&id).expect(200).body, received);
        assert!(!String::from_utf8_lossy(&received).contains("/result"));
        assert_eq!(asked(&world.simulator, &tag, "lookup").len(), 1);
        assert_eq!(told["length"], final_response(&world.simulator, &settled).len());
    }
}

/// One that is larger than a stored row, and than what one answer holds in one piece.
#[test]
fn a_large_one_is_whole() {
    let (world, client) = start("result, large", route(), ("readers_max", 64));
    let tag = unique("large");
    let (mut exchange, id) = client.begin(&broken_job("tokens=300000", &tag));
    exchange.finish();
    let settled = client.wait_until_settled(&id);
    assert!(settled["result"]["length"].as_u64() > Some(1 << 20), "{settled}");
    assert_looked_up(&world, &client, &settled);
    world.kill();
    world.restart();
    assert_looked_up(&world, &client, &client.generation(&id));
}

/// It is content: it goes when the log goes.
#[test]
fn past_retention_it_is_gone() {
    let (world, client) = start("result, retention", route().with("retention_s", 1), ("readers_max", 64));
    let tag = unique("retention");
    let (mut exchange, id) = client.begin(&broken_job("tokens=60", &tag));
    exchange.finish();
    let gone = wait_for("a result that is deleted", || {
        let generation = client.generation(&id);
        if generation["log"]["deleted"] == true { Ok(generation) } else { Err(generation.to_string()) }
    });
    client.result(&id).assert_problem(410, "content_deleted");
    assert_completed(&gone, 12, 60);
    let told = &gone["result"];
    assert_eq!((&told["kept"], &told["outcome"]), (&json!(false), &json!("completed")), "{gone}");
    world.kill();
    assert_eq!(world.count_in_generation(&id, "SELECT COUNT(*) FROM result"), 0);
    assert_eq!(world.count_in_generation(&id, "SELECT COUNT(*) FROM chunk"), 0);
}

/// The deadline came first and the hold was given back; the result that comes behind it is kept, and paid.
#[test]
fn one_that_comes_after_the_deadline() {
    let expiry = json!({ "credit": "expire_and_watch" });
    let route = route().with("observation_ms", 300).with("watch_ms", 60_000).with("on_expiry", expiry);
    let (world, client) = start("result, late", route, ("readers_max", 64));
    let tag = unique("late");
    let (mut exchange, id) = client.begin(&broken_job("tokens=400&interval_ms=10", &tag));
    exchange.finish();
    let late = wait_for("a late result", || {
        let generation = client.generation(&id);
        if generation["result"].is_null() { Err(generation.to_string()) } else { Ok(generation) }
    });
    assert_eq!(states(&late), ("expired".into(), "completed".into(), "released".into()), "{late}");
    assert_looked_up(&world, &client, &late);
    assert_eq!(client.wait_until_settled(&id)["cost"]["settled_micros"], Value::from(price_micros(12, 400)));
}
