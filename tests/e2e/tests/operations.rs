//! Operations that outlive their socket: each row of the capability matrix, each outcome of a cancel, lookups with the
//! provider's wishes, the breaker. Seed 1, "Cancellation Requested Is Not Cancellation Confirmed" and "Choosing a Policy
//! for Inference-Serving Reservations"; seed 2, the control loop.

use holdfast_e2e::config::{BACKGROUND, CAPABILITY_ROWS};
use holdfast_e2e::http::Exchange;
use holdfast_e2e::jobs::{asked, assert_broken, assert_looked_up, expected, job, once_asked, states, world};
use holdfast_e2e::{Chat, Client, Reply, Route, World, assert_bytes, assert_completed, price_micros, unique, wait_for};
use serde_json::{Value, json};

/// Under which an open outcome ends in time for a test.
fn bounded(provider: &str) -> Route {
    let expiry = json!({ "credit": "settle_estimate" });
    Route::new("r").background(provider).detach().with("observation_ms", 3_000).with("on_expiry", expiry)
}

/// A job that is under way, with some of its bytes read.
fn begun(world: &World, client: &Client, model: &str, tag: &str) -> (Exchange, String, Chat) {
    let chat = job(model, tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(2_000);
    assert_eq!(asked(&world.simulator, tag, "responses").len(), 1);
    (exchange, id, chat)
}

fn assert_requested(reply: &Reply) {
    let answer = reply.clone().expect(202).json();
    assert_eq!(answer["object"], "generation.cancellation", "{answer}");
}

fn times(world: &World, tag: &str, what: &str) -> usize {
    asked(&world.simulator, tag, what).len()
}

/// The four rows, each after a cancel by name while it runs and never ends by itself.
#[test]
fn each_row_of_the_capability_matrix() {
    for (provider, cancel, status) in CAPABILITY_ROWS {
        let (world, client) = world(&format!("row {provider}"), bounded(provider));
        let tag = unique(provider);
        // It ends by itself within the observation, and takes its time to stop.
        let model = "gen?tokens=200&interval_ms=8&cancel=slow&cancel_ms=300";
        let (mut exchange, id, chat) = begun(&world, &client, model, &tag);
        assert_requested(&client.cancel(&id));
        exchange.finish();
        let settled = client.wait_until_settled(&id);
        assert_broken(&client.read_all_from(&id, 0), &expected(&world.simulator, &chat));
        assert_eq!(settled["settlement"], "committed", "{settled}");
        assert_eq!(times(&world, &tag, "cancel") > 0, cancel, "asked to cancel where it can");
        assert_eq!(times(&world, &tag, "lookup") > 0, status, "looked up where it can be");
        assert_eq!(times(&world, &tag, "resume"), 0, "what somebody cancelled is not taken up");
        assert_eq!(times(&world, &tag, "responses"), 1);
        match (cancel, status) {
            // Requested, and verified.
            (true, true) => {
                assert_eq!(states(&settled), ("cancelled".into(), "cancelled".into(), "committed".into()), "{settled}");
                assert_eq!(settled["reason"], "cancel_confirmed");
            }
            // Requested, and recorded as that; nobody said what came of it: the bounded policy.
            (true, false) => {
                assert_eq!(states(&settled), ("expired".into(), "unknown".into(), "committed".into()), "{settled}");
                assert_eq!(settled["reason"], "expired_estimated");
            }
            // It went on, and was looked up to its end; what it came to is stored.
            (false, true) => {
                assert_completed(&settled, 12, 200);
                assert_looked_up(&world, &client, &settled);
            }
            // The socket was the only lever.
            (false, false) => {
                assert_eq!(states(&settled), ("cancelled".into(), "cancelled".into(), "committed".into()), "{settled}");
                assert_eq!(settled["reason"], "cancelled_by_request");
                assert_eq!(settled["cost"]["estimated"], true);
            }
        }
        let looked_up = !cancel && status;
        assert_eq!(settled["result"].is_null(), !looked_up, "{settled}");
        if !looked_up {
            assert_broken(&client.result(&id).expect(200).body, &expected(&world.simulator, &chat));
        }
    }
}

/// The same rows, where the driver is lost instead.
#[test]
fn each_row_after_a_lost_driver() {
    for (provider, _, status) in CAPABILITY_ROWS {
        let (world, client) = world(&format!("lost, {provider}"), bounded(provider));
        let tag = unique(provider);
        let (exchange, id, chat) = begun(&world, &client, "gen?tokens=150&interval_ms=8", &tag);
        world.kill();
        drop(exchange);
        world.restart();
        client.wait_until_nothing_is_held();
        let settled = client.wait_until_settled(&id);
        assert_broken(&client.read_all_from(&id, 0), &expected(&world.simulator, &chat));
        assert_eq!(times(&world, &tag, "cancel"), 0, "nobody wants it stopped");
        assert_eq!(times(&world, &tag, "lookup") > 0, status);
        assert_eq!(times(&world, &tag, "responses"), 1, "nothing is sent a second time");
        if status {
            assert_completed(&settled, 12, 150);
            assert_looked_up(&world, &client, &settled);
        } else {
            assert_eq!(settled["cost"]["estimated"], true, "{settled}");
        }
    }
}

/// Outcome 1: the provider says that it has stopped.
#[test]
fn a_cancel_that_is_confirmed() {
    let (world, client) = world("cancel confirmed", bounded(BACKGROUND));
    let tag = unique("confirmed");
    let (mut exchange, id, _) = begun(&world, &client, "gen?tokens=2000&interval_ms=8", &tag);
    assert_requested(&client.cancel(&id));
    exchange.finish();
    let settled = client.wait_until_settled(&id);
    assert_eq!(states(&settled), ("cancelled".into(), "cancelled".into(), "committed".into()), "{settled}");
    assert_eq!(settled["reason"], "cancel_confirmed");
    assert_eq!(times(&world, &tag, "cancel"), 1, "asked once");
    // A second one has the same answer, and asks nobody.
    client.cancel(&id);
    assert_eq!(times(&world, &tag, "cancel"), 1);
}

/// Outcome 2: the work had completed; it is settled as what it is.
#[test]
fn a_cancel_that_comes_too_late() {
    let (world, client) = world("completion won", bounded(BACKGROUND));
    let tag = unique("won");
    // The job is done at once; its stream does not get on.
    let (exchange, id, _) = begun(&world, &client, "gen?tokens=40&stall_at=3000", &tag);
    assert_requested(&client.cancel(&id));
    let settled = client.wait_until_settled(&id);
    assert_completed(&settled, 12, 40);
    assert_eq!(times(&world, &tag, "cancel"), 1);
    // The answer to the cancel had the whole result.
    assert_eq!(times(&world, &tag, "lookup"), 0);
    assert_looked_up(&world, &client, &settled);
    drop(exchange);
}

/// Outcome 3: refused; the outcome stays open, and bounded.
#[test]
fn a_cancel_that_is_refused() {
    let (world, client) = world("cancel refused", bounded(BACKGROUND));
    let tag = unique("refused");
    let (mut exchange, id, _) = begun(&world, &client, "gen?tokens=20&interval_ms=8&endless=1&cancel=refused", &tag);
    assert_requested(&client.cancel(&id));
    let open = client.generation(&id);
    assert_eq!(open["lifecycle"], "cancellation_requested", "{open}");
    exchange.finish();
    let settled = client.wait_until_settled(&id);
    assert_eq!(states(&settled), ("expired".into(), "unknown".into(), "committed".into()), "{settled}");
    assert_eq!(times(&world, &tag, "cancel"), 1, "a refusal is an answer");
    assert!(times(&world, &tag, "lookup") >= 2, "looked up until the deadline");
    assert_eq!(
        settled["cost"]["settled_micros"], settled["cost"]["hold_micros"],
        "what goes on has no bound but the hold"
    );
}

/// Outcome 4: the answer is lost. It is asked again, or looked up: either tells.
#[test]
fn a_cancel_whose_answer_is_lost() {
    for (keys, lifecycle) in [("cancel=lost", "cancelled"), ("cancel=void", "completed")] {
        let (world, client) = world(&format!("answer lost, {keys}"), bounded(BACKGROUND));
        let tag = unique("lost");
        let (mut exchange, id, _) = begun(&world, &client, &format!("gen?tokens=250&interval_ms=8&{keys}"), &tag);
        assert_requested(&client.cancel(&id));
        exchange.finish();
        let settled = client.wait_until_settled(&id);
        assert_eq!(settled["lifecycle"], lifecycle, "{settled}");
        assert!(times(&world, &tag, "lookup") >= 1);
        assert_eq!(times(&world, &tag, "responses"), 1);
    }
}

/// Policy `cancel`: the last reader leaves, and the operation is stopped at the provider, not only its socket.
#[test]
fn a_disconnect_cancels_at_the_provider() {
    let route = Route::new("r").background(BACKGROUND).cancel().with("grace_ms", 0).with("observation_ms", 5_000);
    let (world, client) = world("disconnect cancels", route);
    let tag = unique("left");
    let (exchange, id, _) = begun(&world, &client, "gen?tokens=3000&interval_ms=8", &tag);
    exchange.abandon();
    let settled = client.wait_until_settled(&id);
    assert_eq!(states(&settled), ("cancelled".into(), "cancelled".into(), "committed".into()), "{settled}");
    assert_eq!(times(&world, &tag, "cancel"), 1);
    once_asked(&world.simulator, &tag, "cancel", 1);
}

/// Fault 14: `Retry-After` in seconds and as a date is kept; what fails otherwise is asked again by backoff.
#[test]
fn lookups_keep_to_the_providers_wishes() {
    let (world, client) = world("lookups", Route::new("r").background(BACKGROUND).detach());
    let tag = unique("wishes");
    let keys = "reset_at=3000&resumes=404!&lookups=503:3,429:+3,500";
    let chat = job(&format!("gen?tokens=40&interval_ms=2&{keys}"), &tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.finish();
    assert_completed(&client.wait_until_settled(&id), 12, 40);
    let at: Vec<u64> = asked(&world.simulator, &tag, "lookup").iter().map(|entry| entry.received_at_ms()).collect();
    assert_eq!(at.len(), 4, "{at:?}");
    assert!(at[1] - at[0] >= 3_000, "{at:?}");
    // A date has whole seconds.
    assert!(at[2] - at[1] >= 2_000, "{at:?}");
    assert!(at[3] - at[2] >= 4_000, "the third pause of the backoff: {at:?}");
}

/// What the provider does not know, or says in a way that is not understood, ends nothing: the bounded policy does.
#[test]
fn lookups_that_tell_nothing_end_nothing() {
    let (world, client) = world("lookups in vain", bounded(BACKGROUND));
    for plan in ["404!", "401!", "drop!"] {
        let tag = unique("vain");
        let chat = job(&format!("gen?tokens=40&interval_ms=2&reset_at=3000&resumes=400!&lookups={plan}"), &tag);
        let (mut exchange, id) = client.begin(&chat);
        exchange.finish();
        let settled = client.wait_until_settled(&id);
        assert_eq!(states(&settled).0, "expired", "{plan}: {settled}");
        assert!(times(&world, &tag, "lookup") >= 1);
    }
}

/// A provider that fails again and again is left alone for a while, by all reservations of the isolate.
#[test]
fn the_breaker_leaves_a_failing_provider_alone() {
    let (world, client) = world("breaker", Route::new("r").background(BACKGROUND).detach());
    let tags: Vec<String> = (0..5).map(|_| unique("breaker")).collect();
    for tag in &tags {
        let chat = job("gen?tokens=40&interval_ms=2&reset_at=3000&resumes=400!&lookups=500", tag);
        let (exchange, _) = client.begin(&chat);
        drop(exchange);
    }
    let lookups = || {
        let mut at: Vec<u64> = tags
            .iter()
            .flat_map(|tag| asked(&world.simulator, tag, "lookup"))
            .map(|entry| entry.received_at_ms())
            .collect();
        at.sort_unstable();
        at
    };
    let at = wait_for("lookups after the breaker has opened", || {
        let at = lookups();
        if at.len() == 10 { Ok(at) } else { Err(format!("{at:?}")) }
    });
    let quiet = at.windows(2).map(|pair| pair[1] - pair[0]).max().expect("lookups");
    assert!(quiet >= 4_000, "left alone for about five seconds: {at:?}");
    client.wait_until_nothing_is_held();
    assert_eq!(client.balance().spent, 5 * price_micros(12, 40));
}

/// What is not switched is not: `store` false, its own `background` false; and a request may ask for itself.
#[test]
fn which_requests_run_in_the_background() {
    let (world, client) = world("which requests", Route::new("r").background(BACKGROUND).detach());
    for (name, value, background) in [
        ("metadata", json!({}), true),
        ("background", json!(true), true),
        ("background", json!(false), false),
        ("store", json!(false), false),
    ] {
        let tag = unique("which");
        let chat = job("gen?tokens=3", &tag).field(name, value.clone());
        client.chat(&chat).expect(200);
        let body = world.simulator.only(&tag).body().clone();
        assert_eq!(body["background"] == true, background, "{name} {value}: {body}");
        if background {
            assert_eq!((&body["store"], &body["stream_options"]["include_obfuscation"]), (&json!(true), &json!(false)));
        }
        let key = world.simulator.only(&tag).headers()["idempotency-key"].clone();
        assert!(key.as_str().is_some_and(|key| key.starts_with("att_")), "{key}");
    }
    // Without a stream nobody would come back for it.
    let tag = unique("whole");
    let whole = Chat::of(holdfast_e2e::chat::Api::Responses, "gen?tokens=3", false).tag(&tag).field("background", true);
    let refused = client.chat(&whole);
    assert_eq!(refused.status, 400, "{}", refused.text());
    assert!(refused.text().contains("`background` is served for streams only"), "{}", refused.text());
    world.simulator.assert_never_called(&tag);
    assert_eq!(client.balance().held, 0);
}

/// A detached operation runs on without anybody, and its result waits.
#[test]
fn a_detached_operation_completes() {
    let (world, client) = world("detached", Route::new("r").background(BACKGROUND).detach());
    let tag = unique("detached");
    let (exchange, id, chat) = begun(&world, &client, "gen?tokens=100&interval_ms=5", &tag);
    exchange.abandon();
    assert_completed(&client.wait_until_settled(&id), 12, 100);
    assert_bytes!(client.result(&id).expect(200).body, expected(&world.simulator, &chat));
    assert_eq!(client.generation(&id)["connection"]["state"], Value::from("disconnected"));
}
