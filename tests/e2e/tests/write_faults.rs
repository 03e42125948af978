//! Faults 32 to 34: whatever is written, the server may die before it, or the write may fail. Each place is tried, one
//! after the other, in objects of both classes: what was decided is decided once, nothing stays held, and the books agree.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::thread;
use std::time::{Duration, Instant};

use holdfast_e2e::sse::assert_broken;
use holdfast_e2e::wait::now_ms;
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_bytes, unique, wait_for_within};
use serde_json::Value;

/// What the server says before it stands still.
const STANDS_STILL: &str = "holdfast test: stands still before a write";

/// A run makes fewer writes than this.
const WRITES_MAX: usize = 200;

/// Within this time a run has made all its writes.
const RUN: Duration = Duration::from_secs(3);

const MODEL: &str = "gen?tokens=40&interval_ms=2&prompt_tokens=5";

fn world(name: &str, route: Route) -> (World, Client) {
    let tenant = Tenant::new("acme").route(route.quick_recovery()).with("grant_micros", 1_000_000_000_u64);
    let options = Options::new(name).tenant(&tenant).with_test_hooks();
    let options = options.limit("batch_bytes", 2_048).limit("batch_ms", 100).limit("start_grace_ms", 1_500);
    let world = World::start(&options);
    let client = world.client(&tenant);
    (world, client)
}

/// Whether it was armed: another generation's writes may bring the fault about before the answer leaves.
fn arm(client: &Client, fault: &str, after_writes: usize) -> std::io::Result<()> {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, client.port()))?;
    let target = format!("/__test/write-fault/{fault}/{after_writes}");
    write!(socket, "POST {target} HTTP/1.1\r\nhost: localhost\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")?;
    let mut answer = String::new();
    socket.read_to_string(&mut answer)?;
    assert!(answer.is_empty() || answer.starts_with("HTTP/1.1 200"), "{answer}");
    Ok(())
}

/// One run with a client that stays. Whatever it gets: a clean end is the whole answer, or says that it is none.
fn play(world: &World, client: &Client, chat: &Chat) {
    let Ok(mut exchange) = client.try_open(chat) else { return };
    let Ok(head) = exchange.try_head() else { return };
    let rest = exchange.finish();
    if head.status == 200 && rest.end == holdfast_e2e::http::BodyEnd::Clean {
        let whole = world.simulator.expected(chat);
        if rest.bytes != whole {
            assert_broken(&rest.bytes, &whole);
        }
    }
}

/// Every run has one record and one call at most, one end, and costs what the ledger says.
fn assert_consistent(world: &World, client: &Client, chats: &[(Chat, String)]) {
    // Where the fault hit the question about an overdue hold, it is asked again a minute later.
    let balance = wait_for_within(Duration::from_secs(90), "no open hold", || {
        let balance = client.balance();
        if balance.slots == 0 && balance.held == 0 { Ok(balance) } else { Err(format!("{balance:?}")) }
    });
    let mut spent = 0;
    for (chat, tag) in chats {
        let calls = world.simulator.log(tag).len();
        let found = client.by_idempotency_key(tag);
        assert!(calls <= 1 && found.len() <= 1, "{tag}: {calls} calls, {found:?}");
        let Some(generation) = found.first() else {
            assert_eq!(calls, 0, "{tag}: a call without a record");
            continue;
        };
        let cost = generation["cost"]["settled_micros"].as_u64().unwrap_or(0);
        match generation["settlement"].as_str() {
            Some("released") => assert_eq!(calls, 0, "{generation}: what was sent is not given back"),
            Some("committed") => assert!(cost > 0, "{generation}"),
            _ => panic!("{generation}"),
        }
        spent += cost;
        assert_reads(world, client, chat, generation);
    }
    assert_eq!(balance.spent, spent);
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!((&check["complete"], &check["consistent"]), (&true.into(), &true.into()), "{check}");
}

fn assert_reads(world: &World, client: &Client, chat: &Chat, generation: &Value) {
    let id = generation["id"].as_str().expect("an id");
    let stored = client.get(&format!("/v1/generations/{id}/stream?offset=0"));
    if generation["lifecycle"] == "completed" {
        assert_bytes!(stored.body, world.simulator.expected(chat), "{generation}");
    } else if stored.status == 200 {
        assert_broken(&stored.body, &world.simulator.expected(chat));
    }
}

/// Dies before the first write, before the second, and so on, until a run makes all its writes.
fn die_before_each_write(name: &str, route: Route) {
    let (world, client) = world(name, route);
    let mut chats = Vec::new();
    for after_writes in 0..WRITES_MAX {
        let tag = unique("dies");
        let chat = Chat::stream(MODEL).tag(&tag).idempotency_key(&tag);
        chats.push((chat.clone(), tag));
        let deaths = world.output_count(STANDS_STILL);
        let died = thread::scope(|scope| {
            scope.spawn(|| {
                // Without an answer it has died already.
                if arm(&client, "stop", after_writes).is_ok() {
                    play(&world, &client, &chat);
                }
            });
            let begun = Instant::now();
            loop {
                let stands_still = world.output_count(STANDS_STILL) > deaths;
                if stands_still || begun.elapsed() > RUN {
                    world.kill();
                    return stands_still;
                }
                thread::sleep(Duration::from_millis(5));
            }
        });
        world.restart();
        if !died {
            println!("{name}: {after_writes} writes, and the server died before each, at {}", now_ms());
            assert!(after_writes > 10, "the fault was armed");
            assert_consistent(&world, &client, &chats);
            return;
        }
    }
    panic!("{name}: more than {WRITES_MAX} writes");
}

#[test]
fn the_server_dies_before_each_write() {
    die_before_each_write("dies before each write", Route::new("r").detach());
}

#[test]
fn the_server_dies_before_each_write_of_an_edge_generation() {
    let route = Route::new("r").detach().edge_owned().with("total_ms", 25_000);
    die_before_each_write("dies before each write, edge", route);
}

/// Fault 34: the first write fails, then the second, and so on. The caller gets no false success.
#[test]
fn each_write_fails_once() {
    for (mode, route) in
        [("object", Route::new("r").detach()), ("edge", Route::new("r").detach().edge_owned().with("total_ms", 25_000))]
    {
        let (world, client) = world(&format!("each write fails, {mode}"), route);
        let mut chats = Vec::new();
        for after_writes in 0..60 {
            let tag = unique("fails");
            let chat = Chat::stream(MODEL).tag(&tag).idempotency_key(&tag);
            chats.push((chat.clone(), tag));
            arm(&client, "lost", after_writes).expect("it answers");
            play(&world, &client, &chat);
        }
        // One that was not reached is not left for the drain.
        arm(&client, "lost", 1_000_000).expect("it answers");
        assert_consistent(&world, &client, &chats);
        for (chat, tag) in &chats {
            for generation in client.by_idempotency_key(tag) {
                let called = !world.simulator.log(tag).is_empty();
                assert!(!called || generation["lifecycle"] == "completed", "{mode}, {}: {generation}", chat.model());
                assert!(!called || generation["usage"]["kind"] == "exact", "{mode}: {generation}");
            }
        }
    }
}
