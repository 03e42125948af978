//! A panic in one request reaches its own caller and nobody else.

use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, unique};

fn world(name: &str) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant).with_test_hooks());
    let client = world.client(&tenant);
    (world, client)
}

/// Panics while a generation streams; it must pass whole all the same.
fn panic_beside(name: &str, path_of: impl Fn(&str) -> String) {
    let (world, client) = world(name);
    let tag = unique("beside");
    let chat = Chat::stream("gen?tokens=60&interval_ms=15").tag(&tag);
    let expected = world.simulator.expected(&chat);
    let (mut exchange, id) = client.begin(&chat);
    let mut got = exchange.read(500);
    for _ in 0..3 {
        let reply = client.post(&path_of(&id));
        assert!(matches!(reply.status, 500 | 503), "{}: {}", reply.status, reply.text());
        assert!(!reply.text().contains("src/"), "no place in the source is shown: {}", reply.text());
        got.extend(exchange.read(300));
    }
    assert_eq!(world.simulator.only(&tag).end(), "open", "it was in mid-stream");
    got.extend(exchange.finish().clean());
    assert_bytes!(got, expected);
    world.simulator.assert_sent_everything(&tag);
    assert_completed(&client.wait_until_settled(&id), 12, 60);
    assert_bytes!(client.read_all_from(&id, 0), expected);
    assert!(world.output().contains("panic"), "the panic is in the server's log: {}", world.output());

    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3"));
    exchange.finish().clean();
    assert_completed(&client.wait_until_settled(&id), 12, 3);
    client.wait_until_nothing_is_held();
}

#[test]
fn a_panic_at_the_edge_disturbs_no_generation() {
    panic_beside("panic at the edge", |_| "/__test/panic".to_owned());
}

#[test]
fn a_panic_in_the_same_object_does_not_disturb_its_generation() {
    panic_beside("panic in the same object", |id| format!("/__test/panic-object/{id}"));
}

#[test]
fn a_panic_in_another_object_disturbs_no_generation() {
    let (world, client) = world("panic in another object");
    let (mut other, other_id) = client.begin(&Chat::stream("gen?tokens=3"));
    other.finish().clean();
    let chat = Chat::stream("gen?tokens=60&interval_ms=10").tag(&unique("beside"));
    let (mut exchange, id) = client.begin(&chat);
    let mut got = exchange.read(500);
    let reply = client.post(&format!("/__test/panic-object/{other_id}"));
    assert!(matches!(reply.status, 500 | 503), "{}: {}", reply.status, reply.text());
    got.extend(exchange.finish().clean());
    assert_bytes!(got, world.simulator.expected(&chat));
    assert_completed(&client.wait_until_settled(&id), 12, 60);
    assert_completed(&client.wait_until_settled(&other_id), 12, 3);
}

#[test]
fn what_ships_has_no_test_hooks() {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new("no hooks").tenant(&tenant));
    let client = world.client(&tenant);
    for path in ["/__test/panic", "/__test/panic-object/gen_00000000000000000000000000000000"] {
        let reply = client.post(path);
        assert!(matches!(reply.status, 404 | 405), "{path}: {}", reply.status);
    }
    let chat = Chat::stream("gen?tokens=3").header("x-holdfast-test-failpoint", "stop-after-admit");
    let reply = client.chat(&chat).expect(200);
    assert_completed(&client.wait_until_settled(reply.required("x-generation-id")), 12, 3);
}
