//! `detach`: the client leaves, the generation goes on, and a reader that comes back gets exactly the rest.

use holdfast_e2e::sse::event_ends;
use holdfast_e2e::{
    Chat, Client, Options, Route, Seed, Tenant, World, assert_bytes, assert_completed, price_micros, unique, wait_for,
};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("report").detach());
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

/// A client leaves after `k` bytes. Readers come back in mid-stream and after the end.
fn leave_at_byte(world: &World, client: &Client, chat: &Chat, tag: &str, k: usize) {
    let expected = world.simulator.expected(chat);
    let (mut exchange, id) = client.begin(chat);
    assert_bytes!(exchange.read(k), &expected[..k], "before the client left at byte {k}");
    exchange.abandon();

    let mut reader = client.read_from(&id, k);
    assert_eq!(reader.head().status, 200);
    assert_eq!(world.simulator.only(tag).end(), "open", "the reader came back in mid-stream, k = {k}");
    assert_bytes!(reader.finish().clean(), &expected[k..], "in mid-stream, k = {k}");
    world.simulator.assert_sent_everything(tag);

    assert_completed(&client.wait_until_settled(&id), 40, 60);
    assert_bytes!(client.read_all_from(&id, k), &expected[k..], "after the end, k = {k}");
    assert_bytes!(client.read_all_from(&id, 0), expected, "all of it, k = {k}");
    assert_bytes!(client.result(&id).expect(200).body, expected, "the result, k = {k}");
}

#[test]
fn a_client_that_leaves_at_any_byte_loses_nothing() {
    let (world, client) = world("leave at byte k");
    let mut seed = Seed::named("leave at byte k");
    let model = "gen?tokens=60&prompt_tokens=40&interval_ms=25&text=multibyte";
    let sample = world.simulator.expected(&Chat::stream(model));
    let ends = event_ends(&sample);
    let mut places = vec![0, 1, ends[0] / 2, ends[2], ends[2] - 1, ends[20] + 30];
    places.extend(seed.distinct(4, 1, ends[40]));

    std::thread::scope(|scope| {
        for k in &places {
            let (world, client) = (&world, &client);
            scope.spawn(move || {
                let tag = unique("leave");
                leave_at_byte(world, client, &Chat::stream(model).tag(&tag), &tag, *k);
            });
        }
    });
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, places.len() as u64 * price_micros(40, 60), "{balance:?}");
}

#[test]
fn a_client_that_leaves_before_the_first_byte_loses_nothing() {
    let (world, client) = world("leave before the first byte");
    for delay in ["headers_ms=400", "first_ms=400"] {
        let (tag, key) = (unique("early"), unique("key"));
        let chat = Chat::stream(&format!("gen?tokens=20&interval_ms=5&{delay}")).tag(&tag).idempotency_key(&key);
        let exchange = client.open(&chat);
        world.simulator.only(&tag);
        exchange.abandon();

        let id = client.id_by_idempotency_key(&key);
        let expected = world.simulator.expected(&chat);
        assert_bytes!(client.read_all_from(&id, 0), expected, "a reader waits for the first byte, {delay}");
        world.simulator.assert_sent_everything(&tag);
        assert_completed(&client.wait_until_settled(&id), 12, 20);
    }
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, 2 * price_micros(12, 20), "{balance:?}");
}

#[test]
fn a_client_that_leaves_at_once_leaves_nothing_held() {
    let (world, client) = world("leave at once");
    let tags: Vec<_> = (0..8).map(|_| unique("at-once")).collect();
    for tag in &tags {
        client.open(&Chat::stream("gen?tokens=5").tag(tag).idempotency_key(tag)).abandon();
    }
    // Whether a request was read before its client was gone is for the server to say; each is whole or not at all.
    wait_for("requests that are at an end or never began", || {
        let seen: Vec<_> = tags.iter().flat_map(|tag| client.by_idempotency_key(tag)).collect();
        let settled = seen.iter().all(|generation| generation["settled"] == true);
        if settled && client.balance().slots == 0 { Ok(()) } else { Err(format!("{seen:?}")) }
    });
    let called: usize = tags.iter().map(|tag| world.simulator.log(tag).len()).sum();
    assert!(called <= tags.len(), "{called} calls");
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, called as u64 * price_micros(12, 5), "{balance:?}");
}

#[test]
fn readers_at_once_read_the_same() {
    let (world, client) = world("readers at once");
    let tag = unique("readers");
    let chat = Chat::stream("gen?tokens=80&interval_ms=8").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut first, id) = client.begin(&chat);
    let k = event_ends(&expected)[10] + 17;
    assert_bytes!(first.read(k), &expected[..k]);
    std::thread::scope(|scope| {
        for offset in [0, k, k, 5] {
            let (client, id, expected) = (&client, &id, &expected);
            scope.spawn(move || assert_bytes!(client.read_all_from(id, offset), &expected[offset..]));
        }
        assert_bytes!(first.finish().clean(), &expected[k..], "the first client reads on beside them");
    });
    assert_completed(&client.wait_until_settled(&id), 12, 80);
    assert_eq!(world.simulator.log(&tag).len(), 1);
}

#[test]
fn the_status_follows_client_and_provider() {
    let (world, client) = world("states");
    let tag = unique("states");
    let chat = Chat::stream("gen?tokens=100&interval_ms=15&prompt_tokens=31&cached_tokens=4&reasoning_tokens=6");
    let chat = chat.tag(&tag);
    let before = client.balance();
    let (mut exchange, id) = client.begin(&chat);
    let k = exchange.read(600).len();

    let running = client.generation(&id);
    assert_eq!(running["id"], id, "{running}");
    assert_eq!(running["object"], "generation", "{running}");
    assert_eq!(running["route"], "report", "{running}");
    assert_eq!(running["provider"], "simulator", "{running}");
    assert_eq!(running["model"], chat.model(), "{running}");
    assert_eq!(running["on_disconnect"], "detach", "{running}");
    assert_eq!(running["owner"], "object", "{running}");
    assert_eq!(running["lifecycle"], "active", "{running}");
    assert_eq!(running["settlement"], "pending", "{running}");
    assert_eq!(running["settled"], false, "{running}");
    assert_eq!(running["connection"]["state"], "connected", "{running}");
    assert_eq!(running["connection"]["readers"], 1, "{running}");
    assert_eq!(running["upstream"]["state"], "processing", "{running}");
    assert_eq!(running["upstream"]["epoch"], 1, "{running}");
    assert_eq!(running["upstream"]["status"], 200, "{running}");
    assert_eq!(running["log"]["closed"], false, "{running}");
    let hold = running["cost"]["hold_micros"].as_u64().expect("a hold");
    assert!(hold >= price_micros(0, 2_000), "the hold covers the route's cap of output tokens: {hold}");
    let held = client.balance();
    assert_eq!((held.held, held.slots), (hold, 1), "{held:?}");
    assert_eq!(held.available, before.available - hold, "{held:?}");
    assert_eq!(held.holds, [(id.clone(), hold)]);

    exchange.abandon();
    let gone = wait_for("a detached generation", || {
        let state = client.generation(&id);
        if state["lifecycle"] == "detached" { Ok(state) } else { Err(state.to_string()) }
    });
    assert_eq!(gone["connection"]["state"], "disconnected", "{gone}");
    assert_eq!(gone["connection"]["readers"], 0, "{gone}");
    assert!(gone["connection"]["furthest_offset"].as_u64() >= Some(k as u64), "{gone}");
    assert_eq!(gone["upstream"]["state"], "processing", "{gone}");
    assert_eq!(client.balance().slots, 1, "a detached generation keeps its slot");
    assert_eq!(client.balance().held, hold);

    let mut back = client.read_from(&id, k);
    assert_eq!(back.head().status, 200);
    let again = wait_for("an active generation", || {
        let state = client.generation(&id);
        if state["lifecycle"] == "active" { Ok(state) } else { Err(state.to_string()) }
    });
    assert_eq!(again["connection"]["state"], "reconnected", "{again}");
    assert_eq!(again["connection"]["readers"], 1, "{again}");
    back.finish().clean();

    let settled = client.wait_until_settled(&id);
    assert_completed(&settled, 31, 100);
    assert_eq!(settled["usage"]["cached_input_tokens"], 4, "{settled}");
    assert_eq!(settled["usage"]["reasoning_tokens"], 6, "{settled}");
    assert_eq!(settled["cost"]["hold_micros"], hold, "{settled}");
    assert_eq!(settled["upstream"]["finish_reason"], "stop", "{settled}");
    let expected = world.simulator.expected(&chat);
    let first_chunk = String::from_utf8_lossy(&expected);
    let operation = settled["upstream"]["operation_id"].as_str().expect("an operation id");
    assert!(operation.starts_with("chatcmpl-") && first_chunk.contains(operation), "{settled}");
    assert!(settled["ended_at"].as_u64() >= settled["created_at"].as_u64(), "{settled}");
    assert_eq!(settled["log"]["length"], expected.len(), "{settled}");
    let after = client.wait_until_nothing_is_held();
    assert_eq!(after.spent, before.spent + price_micros(31, 100), "{after:?}");
    assert_eq!(after.available, before.available - price_micros(31, 100), "{after:?}");
}

#[test]
fn an_answer_in_one_piece_is_kept_for_a_client_that_left() {
    let (world, client) = world("one piece");
    let (tag, key) = (unique("piece"), unique("key"));
    let chat = Chat::complete("gen?tokens=10&interval_ms=40").tag(&tag).idempotency_key(&key);
    let exchange = client.open(&chat);
    world.simulator.only(&tag);
    exchange.abandon();
    let id = client.id_by_idempotency_key(&key);
    assert_completed(&client.wait_until_settled(&id), 12, 10);
    assert_bytes!(client.result(&id).expect(200).body, world.simulator.expected(&chat));
    world.simulator.assert_sent_everything(&tag);
}

#[test]
fn a_request_may_choose_where_the_route_allows_it() {
    let tenant = Tenant::new("acme")
        .route(Route::new("fixed").cancel().for_model("gpt-*").with("allow_override", false))
        .route(Route::new("open").cancel());
    let world = World::start(&Options::new("override").tenant(&tenant));
    let client = world.client(&tenant);
    let keys = "tokens=60&interval_ms=15";

    let tag = unique("chosen");
    let chat = Chat::stream(&format!("gen?{keys}")).tag(&tag).on_disconnect("detach");
    let (mut exchange, id) = client.begin(&chat);
    exchange.read(200);
    assert_eq!(client.generation(&id)["on_disconnect"], "detach");
    exchange.abandon();
    world.simulator.assert_sent_everything(&tag);
    assert_completed(&client.wait_until_settled(&id), 12, 60);

    let tag = unique("fixed");
    let chat = Chat::stream(&format!("gpt-4o?{keys}")).tag(&tag).on_disconnect("detach");
    let mut exchange = client.open(&chat);
    if exchange.head().status == 200 {
        exchange.read(200);
        exchange.abandon();
        assert_eq!(world.simulator.once_closed(&tag).end(), "client_closed", "the route's policy stands");
    } else {
        assert_eq!(exchange.head().status, 400, "or the request is refused");
        world.simulator.assert_never_called(&tag);
    }
    client.wait_until_nothing_is_held();
}
