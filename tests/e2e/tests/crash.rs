//! `SIGKILL` of the server at several moments, and a restart on the same storage. What was stored is there, the
//! alarm acts without being asked, every reservation comes to a named end, and no reader is told a clean end.

use holdfast_e2e::sse::{assert_broken, event_ends};
use holdfast_e2e::wait::let_time_pass_until;
use holdfast_e2e::{
    Chat, Client, Options, Route, Seed, Tenant, World, assert_bytes, assert_completed, assert_estimated, now_ms, unique,
};
use serde_json::Value;

const BATCH_BYTES: u64 = 1_024;

/// Longest time from the restart until a lost driver's hold is settled: lease, observation, and room for the alarm.
const RECOVERED_WITHIN_MS: u64 = 1_500 + 200 + 3_000;

const SLOW: &str = "gen?tokens=400&interval_ms=10&prompt_tokens=5";

fn options(name: &str, route: Route) -> (Options, Tenant) {
    let tenant = Tenant::new("acme").route(route.quick_recovery());
    let options = Options::new(name).tenant(&tenant);
    let options = options.limit("batch_bytes", BATCH_BYTES).limit("batch_ms", 100).limit("start_grace_ms", 1_500);
    (options, tenant)
}

fn world(name: &str, route: Route) -> (World, Client) {
    let (options, tenant) = options(name, route);
    let world = World::start(&options);
    let client = world.client(&tenant);
    (world, client)
}

/// The named end of a generation whose driver was lost after the provider had been called.
fn assert_failed_by_estimate(generation: &Value) {
    assert_eq!(generation["lifecycle"], "failed", "{generation}");
    let upstream = generation["upstream"]["state"].as_str();
    assert!(matches!(upstream, Some("unknown" | "failed")), "{generation}");
    assert!(generation["reason"].is_string(), "{generation}");
    assert_eq!(generation["settled"], true, "{generation}");
    assert_eq!(generation["log"]["closed"], true, "{generation}");
    assert_estimated(generation);
}

#[test]
fn killed_in_mid_stream() {
    for (name, route) in [("detach", Route::new("r").detach()), ("cancel", Route::new("r").cancel())] {
        let (world, client) = world(&format!("killed in mid-stream, {name}"), route);
        let tag = unique("mid");
        let chat = Chat::stream(SLOW).tag(&tag);
        let expected = world.simulator.expected(&chat);
        let (mut exchange, id) = client.begin(&chat);
        let mut received = exchange.read(event_ends(&expected)[60] + 40);
        world.kill();
        received.extend(exchange.finish().bytes);
        assert!(expected.starts_with(&received), "the client got a prefix");
        let entry = world.simulator.once_closed(&tag);
        assert_eq!(entry.end(), "client_closed", "{}", entry.brief());

        world.restart();
        // No word to the generation: its own alarm must find the lost driver.
        let balance = client.wait_until_nothing_is_held();
        let settled = client.generation(&id);
        assert_failed_by_estimate(&settled);
        assert_eq!(settled["cost"]["settled_micros"], balance.spent, "{settled}");
        assert!(settled["upstream"]["operation_id"].is_string(), "{settled}");

        let stored = client.read_all_from(&id, 0);
        let kept = assert_broken(&stored, &expected).prefix_len;
        let longest_event = expected.split(|byte| *byte == b'\n').map(<[u8]>::len).max().expect("events");
        let batch = usize::try_from(BATCH_BYTES).expect("small") + longest_event;
        assert!(kept + batch >= received.len(), "{kept} bytes kept of {} received", received.len());
        assert!(kept as u64 <= entry.bytes_sent(), "nothing is stored that was not sent");
        assert_bytes!(client.result(&id).expect(200).body, stored);
        assert_beyond_the_log_is_refused(&client, &id, kept, stored.len());

        assert_eq!(world.simulator.log(&tag).len(), 1, "one call at most");
        assert_works(&world, &client);
    }
}

/// What a client saw behind the stored bytes of the provider is in no log: it is told where to start again.
fn assert_beyond_the_log_is_refused(client: &Client, id: &str, kept: usize, length: usize) {
    // The end too: whether a client's last bytes were those of the error or as many that were lost, no offset tells.
    for offset in [kept + 1, length - 1, length, length + 1] {
        let beyond = client.get(&format!("/v1/generations/{id}/stream?offset={offset}"));
        assert_eq!(beyond.status, 409, "{}", beyond.text());
        assert_eq!(beyond.json()["log_length"], kept, "{}", beyond.text());
    }
}

/// The server serves as if nothing had happened.
fn assert_works(world: &World, client: &Client) {
    let tag = unique("works");
    let chat = Chat::stream("gen?tokens=3").tag(&tag);
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.finish().clean(), world.simulator.expected(&chat));
    assert_completed(&client.wait_until_settled(&id), 12, 3);
}

/// Seed 3, "Recording both the decision and execution outcome": the record of a lost driver's end stays as it is, and
/// when the tenant has taken its posting a record of its own says when its effects were had.
#[test]
fn a_lost_drivers_record_is_completed_by_the_receipt() {
    let (world, client) = world("records of a lost driver", Route::new("r").detach());
    let (mut exchange, id) = client.begin(&Chat::stream(SLOW).tag(&unique("records")));
    exchange.read(3_000);
    world.kill();
    world.restart();
    client.wait_until_nothing_is_held();
    let settled = client.wait_until_settled(&id);
    world.kill();
    let [(release_kind, release), (effects_kind, effects)] = world.evidence(&id).try_into().expect("two records");
    assert_eq!((release_kind.as_str(), effects_kind.as_str()), ("release", "effects"));
    let searched = &release["expected_signal"];
    assert_eq!(searched["match_result"], "not_observed_in_named_stores_during_window", "{release}");
    assert_eq!(searched["stores_searched"], serde_json::json!(["chunk_log", "signals"]), "{release}");
    let open = ["credit_returned", "slot_returned", "posting_authored", "notification"];
    assert_eq!(release["release_effects"]["partial_failures"], serde_json::json!(open), "{release}");
    let hash = &release["record_governance"]["integrity_reference"];
    assert_eq!((&effects["completes"], &effects["record_governance"]["previous_record"]["value"]), (hash, hash));
    assert_eq!(effects["effects"]["partial_failures"], serde_json::json!([]), "{effects}");
    let released_at = &effects["released_at"]["value"];
    assert_eq!(released_at["source"], "tenant_object_clock", "{effects}");
    assert!(released_at["at"].as_u64() >= settled["ended_at"].as_u64(), "{effects} {settled}");
    world.restart();
    assert_works(&world, &client);
}

#[test]
fn the_alarm_acts_without_any_request() {
    let (world, client) = world("alarm alone", Route::new("r").detach());
    let tag = unique("alone");
    let (mut exchange, id) = client.begin(&Chat::stream(SLOW).tag(&tag));
    exchange.read(3_000);
    world.kill();
    world.restart();
    let_time_pass_until(now_ms() + RECOVERED_WITHIN_MS);
    let first_request_at = now_ms();
    let balance = client.balance();
    assert_eq!((balance.slots, balance.held), (0, 0), "the first request finds it done: {balance:?}");
    let settled = client.generation(&id);
    assert_failed_by_estimate(&settled);
    let ended_at = settled["ended_at"].as_u64().expect("a time");
    assert!(ended_at < first_request_at, "ended {} ms after the first request", ended_at - first_request_at);
}

#[test]
fn a_reader_that_waits_over_the_recovery_gets_the_error() {
    let (world, client) = world("a reader waits", Route::new("r").detach());
    let tag = unique("waits");
    let chat = Chat::stream(SLOW).tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(3_000);
    world.kill();
    world.restart();
    let mut raw = client.read_from(&id, 0);
    let mut events = client.read_events(&id, None);
    let raw = raw.finish().clean();
    let broken = assert_broken(&raw, &expected);
    assert!(broken.prefix_len > 0);
    let events = String::from_utf8(events.finish().clean()).expect("UTF-8");
    assert!(events.contains("\"error\"") && !events.contains("[DONE]"), "{events}");
    assert!(events.contains("event: holdfast.end") && events.contains("\"lifecycle\":\"failed\""), "{events}");
    client.wait_until_nothing_is_held();
    assert_bytes!(client.read_all_from(&id, 0), raw);
    assert_failed_by_estimate(&client.generation(&id));
}

#[test]
fn killed_twice() {
    let (world, client) = world("killed twice", Route::new("r").detach());
    let tag = unique("twice");
    let chat = Chat::stream(SLOW).tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(3_000);
    world.kill();
    world.restart();
    world.kill();
    world.restart();
    let balance = client.wait_until_nothing_is_held();
    let settled = client.generation(&id);
    assert_failed_by_estimate(&settled);
    assert_eq!(settled["cost"]["settled_micros"], balance.spent, "settled once: {settled}");
    assert_broken(&client.read_all_from(&id, 0), &expected);
    assert_eq!(world.simulator.log(&tag).len(), 1);
}

#[test]
fn killed_between_the_call_and_the_providers_head() {
    let (world, client) = world("killed before the head", Route::new("r").detach());
    let (tag, key) = (unique("headless"), unique("key"));
    let chat = Chat::stream("gen?tokens=5&headers_ms=30000").tag(&tag).idempotency_key(&key);
    let mut exchange = client.open(&chat);
    world.simulator.only(&tag);
    world.kill();
    assert!(exchange.try_head().is_err(), "the client gets no answer");
    assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed");

    world.restart();
    let balance = client.wait_until_nothing_is_held();
    let id = client.id_by_idempotency_key(&key);
    let settled = client.generation(&id);
    assert_failed_by_estimate(&settled);
    assert_eq!(settled["cost"]["settled_micros"], balance.spent, "{settled}");
    assert_eq!(world.simulator.log(&tag).len(), 1, "nothing is sent a second time");

    let mut reader = client.read_from(&id, 0);
    let status = reader.head().status;
    let body = reader.finish().clean();
    let text = String::from_utf8_lossy(&body);
    assert!(text.contains("\"error\"") && !text.contains("[DONE]"), "{status}: {text}");

    // The same request with the same key is answered from the record: the call of unknown outcome is not repeated.
    let again = client.chat(&chat);
    assert!(again.text().contains("\"error\""), "{}: {}", again.status, again.text());
    assert_eq!(world.simulator.log(&tag).len(), 1, "nothing is sent a second time");
}

#[test]
fn killed_between_admission_and_start() {
    let (options, tenant) = options("killed before the start", Route::new("r").detach());
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    let (tag, key) = (unique("unstarted"), unique("key"));
    let plain = Chat::stream("gen?tokens=5").tag(&tag).idempotency_key(&key);
    let stopped = plain.clone().header("x-holdfast-test-failpoint", "stop-after-admit");
    assert_eq!(client.chat(&stopped).status, 500);
    let balance = client.balance();
    assert_eq!(balance.slots, 1, "admitted, and held: {balance:?}");
    let (id, hold) = balance.holds[0].clone();
    assert!(hold > 0);

    world.kill();
    world.restart();
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, 0, "what was never sent costs nothing: {balance:?}");
    world.simulator.assert_never_called(&tag);
    let resolved = client.generation(&id);
    assert_eq!(resolved["settlement"], "released", "{resolved}");
    assert!(resolved["reason"].is_string(), "{resolved}");
    let lifecycle = resolved["lifecycle"].as_str();
    assert!(matches!(lifecycle, Some("failed" | "expired" | "cancelled")), "{resolved}");

    // The key is free again: a client that tries once more is served, once.
    let (mut exchange, again) = client.begin(&plain);
    assert_ne!(again, id);
    assert_bytes!(exchange.finish().clean(), world.simulator.expected(&plain));
    assert_completed(&client.wait_until_settled(&again), 12, 5);
    assert_eq!(world.simulator.log(&tag).len(), 1);
}

#[test]
fn a_retry_heals_a_death_between_admission_and_start() {
    let (options, tenant) = options("a retry heals", Route::new("r").detach());
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    let (tag, key) = (unique("healed"), unique("key"));
    let plain = Chat::stream("gen?tokens=5").tag(&tag).idempotency_key(&key);
    let stopped = plain.clone().header("x-holdfast-test-failpoint", "stop-after-admit");
    assert_eq!(client.chat(&stopped).status, 500);
    let (admitted, _) = client.balance().holds[0].clone();
    world.kill();
    world.restart();
    let (mut exchange, id) = client.begin(&plain);
    assert_eq!(id, admitted, "the generation that was admitted, with its one hold");
    assert_bytes!(exchange.finish().clean(), world.simulator.expected(&plain));
    assert_completed(&client.wait_until_settled(&id), 12, 5);
    assert_eq!(world.simulator.log(&tag).len(), 1);
    client.wait_until_nothing_is_held();
}

#[test]
fn a_lost_reply_of_the_admission_holds_once() {
    let (options, tenant) = options("lost reply", Route::new("r").detach());
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    let lost = |chat: Chat| chat.header("x-holdfast-test-failpoint", "drop-admit-reply");

    let tag = unique("lost");
    let chat = lost(Chat::stream("gen?tokens=30&interval_ms=15").tag(&tag));
    let (mut exchange, id) = client.begin(&chat);
    let held = client.balance();
    assert_eq!((held.slots, held.holds.len()), (1, 1), "one hold: {held:?}");
    assert_eq!(held.holds[0].0, id);
    assert_bytes!(exchange.finish().clean(), world.simulator.expected(&chat));
    assert_completed(&client.wait_until_settled(&id), 12, 30);
    assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
    let before = client.wait_until_nothing_is_held();

    let tag = unique("lost-and-killed");
    let (mut exchange, id) = client.begin(&lost(Chat::stream(SLOW).tag(&tag)));
    exchange.read(2_000);
    world.kill();
    world.restart();
    let after = client.wait_until_nothing_is_held();
    let settled = client.generation(&id);
    assert_failed_by_estimate(&settled);
    assert_eq!(settled["cost"]["settled_micros"], after.spent - before.spent, "{settled}");
    assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
}

#[test]
fn killed_while_requests_are_at_every_stage() {
    let (world, client) = world("killed at every stage", Route::new("r").detach());
    let mut seed = Seed::named("killed at every stage");
    // One request a step, so that one kill meets them all at different moments of their lives.
    let steps: Vec<_> = (0..10).map(|_| (unique("stage"), seed.between(3, 40))).collect();
    let mut open = Vec::new();
    for (tag, pause_ms) in &steps {
        let model = "gen?tokens=20&interval_ms=5&headers_ms=20";
        open.push(client.open(&Chat::stream(model).tag(tag).idempotency_key(tag)));
        let_time_pass_until(now_ms() + *pause_ms as u64);
    }
    world.kill();
    drop(open);
    world.restart();

    let balance = client.wait_until_nothing_is_held();
    let mut spent = 0;
    for (tag, _) in &steps {
        let calls = world.simulator.log(tag);
        assert!(calls.len() <= 1, "one call at most: {calls:?}");
        for found in client.by_idempotency_key(tag) {
            assert_eq!(found["settled"], true, "{found}");
            let lifecycle = found["lifecycle"].as_str();
            assert!(matches!(lifecycle, Some("completed" | "failed" | "expired" | "cancelled")), "{found}");
            if found["settlement"] == "committed" {
                // A kill after `submitted` and before the call is paid for too: from the record they look the same.
                spent += found["cost"]["settled_micros"].as_u64().expect("settled");
            } else {
                assert_eq!(found["settlement"], "released", "{found}");
                assert!(calls.is_empty(), "released although the provider was called: {found}");
            }
        }
    }
    assert_eq!(balance.spent, spent, "{balance:?}");
    assert!(spent > 0, "at least the first request was at an end");
    assert_works(&world, &client);
}
