//! A stream that broke, or whose driver was lost, is taken up again where the provider can: the same bytes at the same
//! offsets, one settlement. Seed 2, "Use bounded leases for worker ownership"; faults 32, 42 to 44 of the list.

use holdfast_e2e::config::BACKGROUND;
use holdfast_e2e::jobs::{asked, assert_broken, assert_looked_up, expected, job, once_asked, states, world};
use holdfast_e2e::sse::event_ends;
use holdfast_e2e::{Chat, Client, Options, Route, Seed, Tenant, World, assert_bytes, assert_completed, unique};
use serde_json::Value;

const SLOW: &str = "gen?tokens=150&interval_ms=8";

fn route() -> Route {
    Route::new("r").background(BACKGROUND).detach()
}

/// Kills the server once the client has so many bytes, restarts it, and reads on from there.
fn killed_at(world: &World, client: &Client, tag: &str, bytes: usize) {
    let chat = job(SLOW, tag);
    let whole = expected(&world.simulator, &chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut received = exchange.read(bytes.min(whole.len()));
    world.kill();
    received.extend(exchange.finish().bytes);
    assert!(whole.starts_with(&received), "the client got a prefix");
    world.restart();

    // It may have seen more than is stored: it waits, and gets the rest.
    received.extend(client.read_all_from(&id, received.len()));
    assert_bytes!(received, whole);
    let settled = client.wait_until_settled(&id);
    assert_completed(&settled, 12, 150);
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.holds.len(), 0);
    assert_bytes!(client.read_all_from(&id, 0), whole);
    assert_eq!(asked(&world.simulator, tag, "responses").len(), 1, "nothing is sent a second time");
    let epoch = settled["upstream"]["epoch"].as_u64().expect("an epoch");
    let resumed = asked(&world.simulator, tag, "resume").len();
    // With all of it stored there is nothing to take up.
    let fits = if bytes < whole.len() { epoch > 1 && (1..=2).contains(&resumed) } else { resumed <= 1 };
    assert!(fits, "epoch {epoch}, {resumed} times taken up");
}

/// The money of one generation, settled once: whatever was spent before stays.
#[test]
fn killed_at_many_moments() {
    let (world, client) = world("killed at many moments", route());
    let probe = expected(&world.simulator, &job(SLOW, "probe"));
    let ends = event_ends(&probe);
    let mut seed = Seed::named("killed at many moments");
    // Behind the first events, in the middle of one, between any two batches, at random, at the end.
    let mut moments = vec![1, ends[0], ends[1] + 7, ends[10], ends[60], ends[120] + 1];
    moments.extend(seed.distinct(3, ends[2], ends[150]));
    moments.push(probe.len() * 2);
    let mut spent = 0;
    for bytes in moments {
        let tag = unique("moment");
        killed_at(&world, &client, &tag, bytes);
        let now = client.balance().spent;
        assert!(now > spent, "each is paid for once");
        spent = now;
    }
    let each = holdfast_e2e::price_micros(12, 150);
    assert_eq!(spent, 10 * each);
}

/// Killed again while it is taken up again.
#[test]
fn killed_twice() {
    let (world, client) = world("killed twice, resumed", route());
    let tag = unique("twice");
    let chat = job("gen?tokens=300&interval_ms=10", &tag);
    let whole = expected(&world.simulator, &chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut received = exchange.read(6_000);
    world.kill();
    received.extend(exchange.finish().bytes);
    world.restart();
    let mut reader = client.read_from(&id, received.len());
    received.extend(reader.read(2_000));
    world.kill();
    received.extend(reader.finish().bytes);
    world.restart();
    received.extend(client.read_all_from(&id, received.len()));
    assert_bytes!(received, whole);
    assert_completed(&client.wait_until_settled(&id), 12, 300);
    assert_eq!(asked(&world.simulator, &tag, "responses").len(), 1);
}

/// A kill in mid-stream; then nobody reads or asks until nothing is held, and the result is whole.
fn taken_up_unasked(world: &World, client: &Client, tag: &str) {
    let chat = job(SLOW, tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(3_000);
    world.kill();
    world.restart();
    client.wait_until_nothing_is_held();
    assert_completed(&client.generation(&id), 12, 150);
    assert_bytes!(client.result(&id).expect(200).body, expected(&world.simulator, &chat));
}

/// Nobody reads, and nobody asks: the alarm finds the lost driver, and the result is whole.
#[test]
fn the_alarm_takes_it_up_without_any_reader() {
    let (world, client) = world("resumed by the alarm", route());
    taken_up_unasked(&world, &client, &unique("alarm"));
}

/// As by default, the lease lasts longer than the provider may be silent. Nobody listens meanwhile, so silence stops
/// nothing: the lost driver is found by its lease, and the stream is taken up again.
#[test]
fn a_lease_longer_than_the_silence_is_waited_for() {
    let route = route().with("lease_ms", 4_000).with("idle_ms", 1_000).with("first_byte_ms", 1_000);
    let tenant = Tenant::new("acme").route(route);
    let world = World::start(&Options::new("long lease").tenant(&tenant).limit("batch_ms", 50));
    let client = world.client(&tenant);
    let tag = unique("lease");
    taken_up_unasked(&world, &client, &tag);
    assert_eq!(asked(&world.simulator, &tag, "cancel").len(), 0, "nobody wanted it stopped");
}

/// The provider's operation has ended while the server was gone: its stored events bring the rest.
#[test]
fn what_ended_while_we_were_away_is_whole() {
    let (world, client) = world("ended while away", route());
    let tag = unique("away");
    let chat = job("gen?tokens=60&interval_ms=5", &tag);
    let whole = expected(&world.simulator, &chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut received = exchange.read(2_500);
    world.kill();
    received.extend(exchange.finish().bytes);
    holdfast_e2e::wait::let_time_pass_until(holdfast_e2e::now_ms() + 700);
    world.restart();
    received.extend(client.read_all_from(&id, received.len()));
    assert_bytes!(received, whole);
    assert_completed(&client.wait_until_settled(&id), 12, 60);
}

/// A socket that merely breaks is taken up at once: its client hears nothing of it.
#[test]
fn a_broken_socket_is_not_seen() {
    let (world, client) = world("broken sockets", route());
    let probe = expected(&world.simulator, &job("gen?tokens=40", "probe"));
    let ends = event_ends(&probe);
    for (fault, at) in
        [("reset_at", ends[8]), ("reset_at", ends[8] + 20), ("fin_at", ends[20] + 3), ("end_at", ends[5])]
    {
        let tag = unique("broken");
        let chat = job(&format!("gen?tokens=40&interval_ms=4&{fault}={at}"), &tag);
        let (mut exchange, id) = client.begin(&chat);
        assert_bytes!(exchange.finish().clean(), expected(&world.simulator, &chat));
        let settled = client.wait_until_settled(&id);
        assert_completed(&settled, 12, 40);
        assert_eq!(settled["upstream"]["epoch"], 2, "{fault} {at}: {settled}");
        assert_eq!(asked(&world.simulator, &tag, "resume").len(), 1, "{fault} {at}");
    }
}

/// Where the stored bytes end inside a large event the repeated prefix is compared and left out.
#[test]
fn a_cut_inside_a_stored_event_is_spliced() {
    let (world, client) = world("cut inside an event", route().with("max_output_tokens", 10_000));
    let (chat, whole, cut) = cut_in_a_large_event(&world, "");
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.finish().clean(), whole);
    let settled = client.wait_until_settled(&id);
    assert_completed(&settled, 12, 6_000);
    assert_eq!(settled["upstream"]["epoch"], 2, "{settled}");
    assert!(cut > 0);
}

/// Bytes that differ from the stored ones are never spliced: readers keep what they have, then the error; the hold is
/// settled by what the provider says of the operation.
#[test]
fn other_bytes_are_never_spliced() {
    let (world, client) = world("other bytes", route().with("max_output_tokens", 10_000));
    let (chat, whole, cut) = cut_in_a_large_event(&world, "&resumes=other!");
    let (mut exchange, id) = client.begin(&chat);
    let received = exchange.finish().clean();
    assert!(!received.windows(9).any(|part| part == b"id: other"), "no byte of the other stream");
    assert!(assert_broken(&received, &whole) <= cut);
    let settled = client.wait_until_settled(&id);
    assert_eq!(states(&settled), ("completed".into(), "completed".into(), "committed".into()), "{settled}");
    assert_eq!((&settled["usage"]["kind"], &settled["usage"]["output_tokens"]), (&"exact".into(), &6_000.into()));
    assert_bytes!(client.read_all_from(&id, 0), received);
}

/// A request whose first stream breaks 20 KB into the event that has all of the text; the whole stream; and the cut.
fn cut_in_a_large_event(world: &World, keys: &str) -> (Chat, Vec<u8>, usize) {
    let probe = expected(&world.simulator, &job("gen?tokens=6000", "probe"));
    let ends = event_ends(&probe);
    // `output_text.done` follows the words.
    let cut = ends[6_003] + 20_000;
    assert!(cut < ends[6_004], "it is large enough");
    let tag = unique("large");
    let chat = job(&format!("gen?tokens=6000&split=4096&reset_at={cut}{keys}"), &tag);
    let whole = expected(&world.simulator, &chat);
    (chat, whole, cut)
}

/// Refused (too old, not known): settled by lookup, and readers of the part get the error.
#[test]
fn what_is_refused_is_settled_by_lookup() {
    let (world, client) = world("resume refused", route());
    for (refusal, at) in [("400", 3_000), ("404", 5_000)] {
        let tag = unique("refused");
        let chat = job(&format!("gen?tokens=40&interval_ms=2&reset_at={at}&resumes={refusal}!"), &tag);
        let (mut exchange, id) = client.begin(&chat);
        let received = exchange.finish().clean();
        assert_broken(&received, &expected(&world.simulator, &chat));
        let settled = client.wait_until_settled(&id);
        assert_completed(&settled, 12, 40);
        assert_eq!(asked(&world.simulator, &tag, "resume").len(), 1, "asked once");
        assert!(!asked(&world.simulator, &tag, "lookup").is_empty());
        // The reader's error says where the rest is.
        let place = format!("/v1/generations/{id}/result");
        assert!(String::from_utf8_lossy(&received).contains(&place), "{}", String::from_utf8_lossy(&received));
        assert_looked_up(&world, &client, &settled);
        // A cursor behind the part is told where the provider's bytes end.
        let beyond = client.get(&format!("/v1/generations/{id}/stream?offset={}", received.len() + 9));
        assert_eq!(beyond.status, 409, "{}", beyond.text());
    }
}

/// Fault 14: a provider that is busy is asked again when it wishes, and takes the stream up then.
#[test]
fn a_busy_provider_is_asked_again_later() {
    let (world, client) = world("resume later", route());
    let tag = unique("busy");
    let chat = job("gen?tokens=40&interval_ms=2&reset_at=3000&resumes=503:2,500", &tag);
    let (mut exchange, id) = client.begin(&chat);
    assert_bytes!(exchange.finish().clean(), expected(&world.simulator, &chat));
    assert_completed(&client.wait_until_settled(&id), 12, 40);
    let tries: Vec<u64> = asked(&world.simulator, &tag, "resume").iter().map(|entry| entry.received_at_ms()).collect();
    assert_eq!(tries.len(), 3);
    assert!(tries[1] - tries[0] >= 2_000, "{tries:?}");
    assert!(tries[2] - tries[1] >= 1_000, "{tries:?}");
}

/// Before its first event it has no name: nothing can be asked, and nothing is sent again. The route's word counts.
#[test]
fn killed_before_it_has_a_name() {
    let expiry = serde_json::json!({ "credit": "settle_estimate" });
    let (world, client) = world("killed unnamed", route().with("observation_ms", 300).with("on_expiry", expiry));
    let (tag, key) = (unique("unnamed"), unique("key"));
    let mut exchange = client.open(&job("gen?tokens=5&headers_ms=30000", &tag).idempotency_key(&key));
    world.simulator.only(&tag);
    world.kill();
    assert!(exchange.try_head().is_err());
    world.restart();
    client.wait_until_nothing_is_held();
    let id = client.id_by_idempotency_key(&key);
    let settled = client.generation(&id);
    assert_eq!(states(&settled), ("expired".into(), "unknown".into(), "committed".into()), "{settled}");
    assert_eq!(settled["upstream"]["operation_id"], Value::Null);
    assert_eq!(world.simulator.log(&tag).len(), 1, "nothing is sent a second time, nothing is asked");
}

/// The operation's name is stored before the bytes that bring it reach anybody.
#[test]
fn the_name_is_stored_before_it_is_seen() {
    let (world, client) = world("named early", route());
    let tag = unique("named");
    let chat = job("gen?tokens=5&interval_ms=400", &tag);
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(1);
    world.kill();
    world.restart();
    assert!(client.generation(&id)["upstream"]["operation_id"].is_string());
    assert_bytes!(client.read_all_from(&id, 0), expected(&world.simulator, &chat));
    once_asked(&world.simulator, &tag, "resume", 1);
}
