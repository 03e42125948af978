//! `detached_max`: so many generations of a tenant may go on without a reader; one more is cancelled and settled by what
//! was seen of it (design 5: "Over the cap: abort, settle by the `AtLeast` rule"; seed 1 has "the number of detached
//! reservations" watched).

use holdfast_e2e::wait::let_time_pass_until;
use holdfast_e2e::{
    Chat, Client, Options, Route, Seed, Tenant, World, assert_completed, assert_estimated, now_ms, unique, wait_for,
};
use serde_json::{Value, json};

fn world(name: &str, detached_max: u64, routes: &[Route]) -> (World, Client) {
    let tenant = Tenant::new("acme").with("detached_max", detached_max);
    let tenant = routes.iter().fold(tenant, |tenant, route| tenant.route(route.clone()));
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

fn detached(client: &Client) -> u64 {
    client.get("/v1/balance").expect(200).json()["detached"].as_u64().expect("a count")
}

fn wait_until_detached(client: &Client, count: u64) {
    wait_for("so many without a reader", || match detached(client) {
        now if now == count => Ok(()),
        now => Err(format!("{now}, not {count}")),
    });
}

/// Starts a generation and leaves it when its first bytes have come.
fn leave(client: &Client, chat: &Chat) -> String {
    let (mut exchange, id) = client.begin(chat);
    exchange.read(300);
    exchange.abandon();
    id
}

fn slow(model: &str) -> (Chat, String) {
    let tag = unique("cap");
    (Chat::stream(&format!("{model}?tokens=250&interval_ms=15")).tag(&tag), tag)
}

/// Cancelled for the cap: the provider's socket was closed, and what was seen is charged.
fn assert_over_the_cap(world: &World, client: &Client, id: &str, tag: &str) -> Value {
    let settled = client.wait_until_settled(id);
    assert_eq!((&settled["lifecycle"], &settled["reason"]), (&json!("cancelled"), &json!("detached_exceeded")));
    let _charged = assert_estimated(&settled);
    assert_eq!(world.simulator.once_closed(tag).end(), "client_closed");
    settled
}

#[test]
fn the_third_of_two_is_cancelled_and_settled() {
    let (world, client) = world("third of two", 2, &[Route::new("report").detach()]);
    let kept: Vec<_> = (1..=2)
        .map(|count| {
            let (chat, _) = slow("gen");
            let id = leave(&client, &chat);
            wait_until_detached(&client, count);
            id
        })
        .collect();
    let (chat, tag) = slow("gen");
    let third = leave(&client, &chat);
    assert_over_the_cap(&world, &client, &third, &tag);
    let stored = String::from_utf8(client.read_all_from(&third, 0)).expect("UTF-8");
    assert!(stored.contains("generation_cancelled") && !stored.contains("[DONE]"), "{stored}");

    for id in &kept {
        assert_completed(&client.wait_until_settled(id), 12, 250);
    }
    client.wait_until_nothing_is_held();
    wait_until_detached(&client, 0);
    // Their places are free again.
    let (chat, _) = slow("gen");
    assert_completed(&client.wait_until_settled(&leave(&client, &chat)), 12, 250);
}

#[test]
fn a_reader_that_comes_back_frees_a_place() {
    let (world, client) = world("a reader comes back", 1, &[Route::new("report").detach()]);
    let (chat, tag) = slow("gen");
    let first = leave(&client, &chat.field("seed", 1));
    wait_until_detached(&client, 1);
    let mut reader = client.read_from(&first, 0);
    assert_eq!(reader.head().status, 200);
    wait_until_detached(&client, 0);

    let (chat, _) = slow("gen");
    let second = leave(&client, &chat);
    wait_until_detached(&client, 1);
    // The first one's reader leaves again: its place is taken by now.
    reader.abandon();
    assert_over_the_cap(&world, &client, &first, &tag);
    assert_completed(&client.wait_until_settled(&second), 12, 250);
    wait_until_detached(&client, 0);
}

/// `auto` that decides to go on is counted, one that decides to stop is not; nor is a grace time that runs. A driver at the
/// edge is told to stop as any other.
#[test]
fn whoever_goes_on_is_counted() {
    let long = json!({ "long": true, "has_home": true, "reproducible": false });
    let homeless = json!({ "long": true, "has_home": false });
    let auto = |name: &str, model: &str| Route::new(name).for_model(model).with("on_disconnect", "auto");
    let routes = [
        auto("kept", "sim-kept*").with("artifact", long),
        auto("left", "sim-left*").with("artifact", homeless).with("grace_ms", 60_000),
        Route::new("edge").for_model("gpt-*").edge_owned().detach().with("total_ms", 20_000),
    ];
    let (world, client) = world("who is counted", 1, &routes);
    let (chat, _) = slow("sim-left");
    let left = leave(&client, &chat);
    wait_for("a decision", || {
        let generation = client.generation(&left);
        if generation["lifecycle"] == "detached" { Ok(()) } else { Err(generation.to_string()) }
    });
    let (chat, _) = slow("sim-kept");
    let kept = leave(&client, &chat);
    wait_until_detached(&client, 1);
    for model in ["sim-kept", "gpt-4o"] {
        let (chat, tag) = slow(model);
        let over = leave(&client, &chat);
        assert_over_the_cap(&world, &client, &over, &tag);
    }
    assert_completed(&client.wait_until_settled(&kept), 12, 250);
    wait_until_detached(&client, 0);
    let (chat, _) = slow("gpt-4o");
    let edge = leave(&client, &chat);
    wait_until_detached(&client, 1);
    assert_completed(&client.wait_until_settled(&edge), 12, 250);
}

/// The count is in rows: after a kill it is what it was, until the leases of the lost drivers are over.
#[test]
fn the_count_survives_a_restart() {
    let route = Route::new("report").detach().with("lease_ms", 6_000).with("observation_ms", 200);
    let (world, client) = world("count and restart", 2, &[route]);
    let kept: Vec<_> = (1..=2)
        .map(|count| {
            let id = leave(&client, &Chat::stream("gen?tokens=900&interval_ms=20"));
            wait_until_detached(&client, count);
            id
        })
        .collect();
    world.kill();
    world.restart();
    assert_eq!(detached(&client), 2, "as before");
    let (chat, tag) = slow("gen");
    let third = leave(&client, &chat);
    assert_over_the_cap(&world, &client, &third, &tag);
    for id in &kept {
        assert_eq!(client.wait_until_settled(id)["reason"], "driver_lost");
    }
    wait_until_detached(&client, 0);
}

/// Killed at any moment around the leaving: the word is stored with the disconnect, and nothing stays counted.
#[test]
fn kills_leave_nothing_counted() {
    let (world, client) = world("kills and counts", 2, &[Route::new("report").detach().quick_recovery()]);
    let mut seed = Seed::named("kills and counts");
    for _ in 0..4 {
        for _ in 0..4 {
            let (chat, _) = slow("gen");
            let _id = leave(&client, &chat);
        }
        let_time_pass_until(now_ms() + seed.between(0, 60) as u64);
        world.kill();
        world.restart();
    }
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(detached(&client), 0, "{balance:?}");
    let (chat, _) = slow("gen");
    let id = leave(&client, &chat);
    wait_until_detached(&client, 1);
    assert_completed(&client.wait_until_settled(&id), 12, 250);
}
