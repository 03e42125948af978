//! The same idempotency key twice: one call, and every client gets all bytes. With another body: refused, nothing held.

use std::sync::Barrier;

use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, price_micros, unique};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant));
    let client = world.client(&tenant);
    (world, client)
}

/// Sends the request from several connections at once; returns what each got: the generation's id and the bytes.
fn at_once(client: &Client, chat: &Chat, clients: usize) -> Vec<(String, Vec<u8>)> {
    let together = Barrier::new(clients);
    std::thread::scope(|scope| {
        let callers: Vec<_> = (0..clients)
            .map(|_| {
                scope.spawn(|| {
                    together.wait();
                    let (mut exchange, id) = client.begin(chat);
                    (id, exchange.finish().clean())
                })
            })
            .collect();
        callers.into_iter().map(|caller| caller.join().expect("a client")).collect()
    })
}

#[test]
fn the_same_key_twice_at_once_is_one_call() {
    let (world, client) = world("twice at once");
    let mut spent = 0;
    for (clients, chat) in [
        (2, Chat::stream("gen?tokens=25&interval_ms=10")),
        (6, Chat::stream("gen?tokens=25&interval_ms=10")),
        (2, Chat::stream("gen?tokens=25")),
        (3, Chat::complete("gen?tokens=25&interval_ms=8")),
        (2, Chat::complete("gen?tokens=25")),
    ] {
        let (tag, key) = (unique("twice"), unique("key"));
        let chat = chat.tag(&tag).idempotency_key(&key);
        let expected = world.simulator.expected(&chat);
        let got = at_once(&client, &chat, clients);
        let (id, _) = &got[0];
        for (other, bytes) in &got {
            assert_eq!(other, id, "one generation");
            assert_bytes!(bytes, &expected, "all bytes");
        }
        assert_eq!(world.simulator.log(&tag).len(), 1, "one call");
        assert_completed(&client.wait_until_settled(id), 12, 25);
        spent += price_micros(12, 25);
    }
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, spent, "each is paid once: {balance:?}");
}

#[test]
fn a_later_client_joins_or_replays() {
    let (world, client) = world("join and replay");
    let (tag, key) = (unique("join"), unique("key"));
    let plain = Chat::stream("gen?tokens=50&interval_ms=15").tag(&tag);
    let chat = plain.clone().idempotency_key(&key);
    let expected = world.simulator.expected(&chat);
    let (mut first, id) = client.begin(&chat);
    assert_bytes!(first.read(1_000), &expected[..1_000]);

    let (mut second, joined) = client.begin(&plain.clone().idempotency_key(&format!("\"{key}\"")));
    assert_eq!(joined, id, "a quoted key is the same key");
    assert_eq!(world.simulator.only(&tag).end(), "open", "it joined in mid-stream");
    assert_eq!(client.balance().slots, 1, "and holds nothing more");
    assert_bytes!(second.finish().clean(), expected, "from the first byte on");
    assert_bytes!(first.finish().clean(), &expected[1_000..]);

    assert_completed(&client.wait_until_settled(&id), 12, 50);
    let balance = client.balance();
    let replay = client.chat(&chat).expect(200);
    assert_bytes!(replay.body, expected, "byte for byte");
    assert_eq!(replay.required("x-generation-id"), id);
    assert!(replay.required("content-type").starts_with("text/event-stream"));
    assert_eq!(client.balance(), balance, "a replay costs nothing");
    assert_eq!(world.simulator.log(&tag).len(), 1);
}

#[test]
fn the_same_key_with_another_body_is_refused() {
    let (world, client) = world("another body");
    for running in [true, false] {
        let (first_tag, other_tag, key) = (unique("first"), unique("other"), unique("key"));
        let interval = if running { 15 } else { 0 };
        let model = format!("gen?tokens=50&interval_ms={interval}");
        let (mut exchange, id) = client.begin(&Chat::stream(&model).tag(&first_tag).idempotency_key(&key));
        if !running {
            exchange.finish().clean();
            client.wait_until_settled(&id);
        }
        let before = client.balance();
        let other = Chat::stream(&model).tag(&other_tag).idempotency_key(&key);
        client.chat(&other).assert_envelope(422, "idempotency_key_reused");
        let warmer = Chat::stream(&model).tag(&first_tag).field("temperature", 1).idempotency_key(&key);
        client.chat(&warmer).assert_envelope(422, "idempotency_key_reused");
        assert_eq!(client.balance(), before, "nothing is held");
        world.simulator.assert_never_called(&other_tag);
        exchange.finish().clean();
        assert_completed(&client.wait_until_settled(&id), 12, 50);
        assert_eq!(world.simulator.log(&first_tag).len(), 1);
    }
}

#[test]
fn a_key_belongs_to_its_tenant() {
    let tenants = ["acme", "other"].map(|id| Tenant::new(id).route(Route::new("chat").detach()));
    let world = World::start(&Options::new("two tenants").tenant(&tenants[0]).tenant(&tenants[1]));
    let (tag, key) = (unique("tenants"), unique("key"));
    let chat = Chat::stream("gen?tokens=5").tag(&tag).idempotency_key(&key);
    let ids = tenants.each_ref().map(|tenant| {
        let client = world.client(tenant);
        let (mut exchange, id) = client.begin(&chat);
        assert_bytes!(exchange.finish().clean(), world.simulator.expected(&chat));
        assert_eq!(client.id_by_idempotency_key(&key), id);
        id
    });
    assert_ne!(ids[0], ids[1]);
    assert_eq!(world.simulator.log(&tag).len(), 2, "a call for each");
    for tenant in &tenants {
        assert_eq!(world.client(tenant).wait_until_nothing_is_held().spent, price_micros(12, 5));
    }
}

#[test]
fn without_a_key_each_request_is_its_own() {
    let (world, client) = world("no key");
    let tag = unique("no-key");
    let chat = Chat::stream("gen?tokens=5").tag(&tag);
    let got = at_once(&client, &chat, 2);
    assert_ne!(got[0].0, got[1].0);
    assert_eq!(world.simulator.log(&tag).len(), 2);
    assert!(client.by_idempotency_key("never-used").is_empty());
}
