//! Over the budget or the concurrency limit: refused before the provider is called, and nothing is held.

use holdfast_e2e::{Balance, Chat, Client, Options, Reply, Route, Tenant, World, assert_completed, unique, wait_for};

fn world(name: &str, tenant: &Tenant) -> (World, Client) {
    let world = World::start(&Options::new(name).tenant(tenant));
    let client = world.client(tenant);
    (world, client)
}

/// Sends a streaming and a complete request; both must be refused alike, without a call and without a hold.
fn assert_refused(world: &World, client: &Client, before: &Balance, check: impl Fn(&Reply)) {
    for chat in [Chat::stream("gen?tokens=5"), Chat::complete("gen?tokens=5")] {
        let tag = unique("refused");
        let reply = client.chat(&chat.tag(&tag));
        check(&reply);
        assert_eq!(reply.header("x-generation-id"), None, "nothing was made");
        world.simulator.assert_never_called(&tag);
        assert_eq!(&client.balance(), before, "nothing is held");
    }
}

#[test]
fn without_credit_the_provider_is_not_called() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach()).with("grant_micros", 1_000);
    let (world, client) = world("no credit", &tenant);
    let before = client.balance();
    assert_eq!((before.granted, before.available), (1_000, 1_000));
    assert_refused(&world, &client, &before, |reply| reply.assert_envelope(402, "budget_exhausted"));
}

#[test]
fn over_the_periods_limit_the_provider_is_not_called() {
    let budget = serde_json::json!({ "limit_micros": 1_000, "period": "month" });
    let tenant = Tenant::new("acme").route(Route::new("chat").detach()).with("budget", budget);
    let (world, client) = world("over the limit", &tenant);
    let before = client.balance();
    assert_eq!(before.granted, 900_000_000);
    assert_refused(&world, &client, &before, |reply| reply.assert_envelope(402, "budget_exhausted"));
}

#[test]
fn credit_is_held_for_the_worst_case_and_comes_back() {
    // Room for one worst case of 2,000 output tokens, not for two.
    let tenant = Tenant::new("acme").route(Route::new("chat").detach()).with("grant_micros", 20_000);
    let (world, client) = world("worst case", &tenant);
    let tag = unique("first");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=60&interval_ms=15").tag(&tag));
    let before = client.balance();
    assert!(before.held > 15_308 && before.available < before.held, "{before:?}");
    assert_refused(&world, &client, &before, |reply| reply.assert_envelope(402, "budget_exhausted"));
    exchange.finish().clean();
    assert_completed(&client.wait_until_settled(&id), 12, 60);

    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3").tag(&unique("second")));
    exchange.finish().clean();
    assert_completed(&client.wait_until_settled(&id), 12, 3);
}

#[test]
fn over_the_concurrency_limit_the_provider_is_not_called() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach()).with("concurrency", 2);
    let (world, client) = world("concurrency", &tenant);
    let tags = [unique("one"), unique("two")];
    let mut open = tags.each_ref().map(|tag| client.begin(&Chat::stream("gen?tokens=80&interval_ms=15").tag(tag)));
    let before = client.balance();
    assert_eq!(before.slots, 2);
    assert_refused(&world, &client, &before, |reply| {
        reply.assert_envelope(429, "concurrency_exceeded");
        let seconds: u64 = reply.required("retry-after").parse().expect("whole seconds");
        assert!((1..=60).contains(&seconds), "{seconds}");
    });
    for (exchange, id) in &mut open {
        exchange.finish().clean();
        assert_completed(&client.wait_until_settled(id), 12, 80);
    }
    let (mut exchange, _) = client.begin(&Chat::stream("gen?tokens=3").tag(&unique("after")));
    exchange.finish().clean();
    client.wait_until_nothing_is_held();
}

#[test]
fn a_detached_generation_keeps_its_slot_until_it_is_settled() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach()).with("concurrency", 1);
    let (world, client) = world("slot of a detached one", &tenant);
    let tag = unique("detached");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=60&interval_ms=15").tag(&tag));
    exchange.read(300);
    exchange.abandon();
    client.chat(&Chat::stream("gen?tokens=3").tag(&unique("next"))).assert_envelope(429, "concurrency_exceeded");
    world.simulator.assert_sent_everything(&tag);
    assert_completed(&client.wait_until_settled(&id), 12, 60);
    client.wait_until_nothing_is_held();
    let _ = client.begin(&Chat::stream("gen?tokens=3").tag(&unique("next")));
}

#[test]
fn a_body_over_the_bound_is_refused() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new("body bound").tenant(&tenant).limit("body_max_bytes", 4_096));
    let client = world.client(&tenant);
    let before = client.balance();
    for length in [4_096, 100_000, 3_000_000] {
        let tag = unique("big");
        let chat = Chat::stream("gen?tokens=3").tag(&tag).field("user", "u".repeat(length));
        client.chat(&chat).assert_envelope(413, "body_too_large");
        world.simulator.assert_never_called(&tag);
    }
    assert_eq!(client.balance(), before, "nothing is held");
    let (mut exchange, _) = client.begin(&Chat::stream("gen?tokens=3").field("user", "u".repeat(3_000)));
    exchange.finish().clean();
}

#[test]
fn output_tokens_are_capped_by_the_route() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach().with("max_output_tokens", 300));
    let (world, client) = world("cap", &tenant);
    let sent_cap = |chat: Chat| {
        let tag = unique("cap");
        assert_eq!(client.chat(&chat.tag(&tag)).status, 200);
        let entry = world.simulator.only(&tag);
        let body = entry.body().clone();
        let (new, old) = (body.get("max_completion_tokens").cloned(), body.get("max_tokens").cloned());
        new.or(old).and_then(|cap| cap.as_u64())
    };
    let chat = || Chat::stream("gen?tokens=3");
    assert_eq!(sent_cap(chat()), Some(300), "a client that names no cap gets the route's");
    assert_eq!(sent_cap(chat().field("max_tokens", 20)), Some(20));
    assert_eq!(sent_cap(chat().field("max_completion_tokens", 20)), Some(20));
    assert_eq!(sent_cap(chat().field("max_completion_tokens", 5_000)), Some(300));
    assert_eq!(sent_cap(chat().field("max_tokens", 5_000)), Some(300));
    wait_for("settled holds", || {
        let balance = client.balance();
        if balance.slots == 0 { Ok(()) } else { Err(format!("{balance:?}")) }
    });
}
