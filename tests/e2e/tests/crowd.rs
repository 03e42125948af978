//! Many clients at once that stay, leave, cancel and repeat, at providers that work, refuse and die; with a kill of the
//! server among them or without. Whatever happens, the books balance and nobody is told a clean end that was none.

use std::sync::Mutex;

use holdfast_e2e::http::BodyEnd;
use holdfast_e2e::sse::assert_broken;
use holdfast_e2e::{Chat, Client, Options, Route, Seed, Tenant, World, unique, wait_for};
use serde_json::Value;

const REQUESTS: usize = 60;
const CLIENTS: usize = 12;

/// What the provider does.
const PROVIDERS: [&str; 8] = [
    "gen?tokens=20&interval_ms=4",
    "gen?tokens=40&text=multibyte&split=90",
    "gen?tokens=30&interval_ms=4&fin_at=2345",
    "gen?tokens=30&interval_ms=4&reset_at=2345",
    "gen?tokens=30&end_at=2345",
    "gen?status=429&retry_after=1",
    "gen?status=500",
    "gen?tokens=15&headers_ms=60&usage=none",
];

/// What the client does.
#[derive(Clone, Copy, Debug)]
enum Behaviour {
    Stays,
    LeavesAt(usize),
    LeavesBeforeTheHead,
    CancelsAt(usize),
}

#[derive(Clone, Debug)]
struct Plan {
    chat: Chat,
    tag: String,
    behaviour: Behaviour,
}

fn plan(seed: &mut Seed) -> Plan {
    let tag = unique("crowd");
    let model = PROVIDERS[seed.between(0, PROVIDERS.len())];
    let chat = if seed.between(0, 5) == 0 { Chat::complete(model) } else { Chat::stream(model) };
    let policy = if seed.between(0, 2) == 0 { "detach" } else { "cancel" };
    let behaviour = match seed.between(0, 5) {
        0 => Behaviour::LeavesAt(seed.between(0, 2_000)),
        1 => Behaviour::LeavesBeforeTheHead,
        2 => Behaviour::CancelsAt(seed.between(0, 2_000)),
        _ => Behaviour::Stays,
    };
    // The tag is the idempotency key, so that the generation can be found whatever the client saw of it.
    let chat = chat.tag(&tag).idempotency_key(&tag).on_disconnect(policy);
    Plan { chat, tag, behaviour }
}

/// Plays one client. The server may die at any moment, so nothing is expected here but that a clean end is true.
fn play(world: &World, client: &Client, plan: &Plan) {
    let Ok(mut exchange) = client.try_open(&plan.chat) else { return };
    if let Behaviour::LeavesBeforeTheHead = plan.behaviour {
        return exchange.abandon();
    }
    let Ok(head) = exchange.try_head() else { return };
    let mut got = Vec::new();
    match plan.behaviour {
        Behaviour::LeavesAt(k) => {
            exchange.read_up_to(k);
            return exchange.abandon();
        }
        Behaviour::CancelsAt(k) => {
            got = exchange.read_up_to(k);
            if let Some(id) = head.header("x-generation-id") {
                client.try_cancel(id);
            }
        }
        Behaviour::Stays | Behaviour::LeavesBeforeTheHead => {}
    }
    let rest = exchange.finish();
    got.extend(rest.bytes);
    if rest.end == BodyEnd::Clean && head.status == 200 && plan.chat.is_stream() {
        let whole = world.simulator.expected(&plan.chat);
        if got != whole {
            assert_broken(&got, &whole);
        }
    }
}

/// Plays all plans on a few clients; kills the server once the provider has been called so often.
fn play_all(world: &World, client: &Client, plans: &[Plan], kill_after_calls: Option<usize>) {
    let queue = Mutex::new(plans.iter());
    let next = || queue.lock().expect("a queue").next();
    std::thread::scope(|scope| {
        for _ in 0..CLIENTS {
            scope.spawn(|| {
                while let Some(plan) = next() {
                    play(world, client, plan);
                }
            });
        }
        if let Some(calls) = kill_after_calls {
            wait_for("calls of the provider", || {
                let seen = plans.iter().filter(|plan| !world.simulator.log(&plan.tag).is_empty()).count();
                if seen >= calls { Ok(()) } else { Err(seen.to_string()) }
            });
            world.kill();
        }
    });
    if kill_after_calls.is_some() {
        world.restart();
    }
}

fn assert_books_balance(world: &World, client: &Client, plans: &[Plan]) {
    let balance = client.wait_until_nothing_is_held();
    let mut spent = 0;
    for plan in plans {
        let calls = world.simulator.log(&plan.tag);
        let found = client.by_idempotency_key(&plan.tag);
        // One call at most, unless the provider refused: then nothing was executed, and a retry runs anew.
        let refused = calls.iter().all(|call| call.field("status").as_u64() >= Some(400));
        assert!(found.len() <= 1 && (calls.len() <= 1 || refused), "{plan:?}: {calls:?} {found:?}");
        let Some(generation) = found.first() else {
            assert!(calls.is_empty(), "a call without a record: {plan:?} {calls:?}");
            continue;
        };
        // The receipt may have been lost with the server: it comes again.
        let generation = &client.wait_until_settled(generation["id"].as_str().expect("an id"));
        spent += assert_at_an_end(generation, plan);
        let stored =
            client.get(&format!("/v1/generations/{}/stream?offset=0", generation["id"].as_str().expect("an id")));
        if generation["lifecycle"] == "completed" {
            assert_eq!(stored.status, 200, "{plan:?}: {generation}");
            assert!(stored.body == world.simulator.expected(&plan.chat), "{plan:?}: {generation}: {}", stored.text());
        } else if stored.status == 200 {
            assert!(!stored.text().contains("[DONE]"), "{plan:?}: {generation}: {}", stored.text());
            assert!(stored.text().contains("\"error\""), "{plan:?}: {generation}: {}", stored.text());
        }
    }
    assert_eq!(balance.spent, spent, "{balance:?}");
    assert!(spent > 0);
}

fn assert_at_an_end(generation: &Value, plan: &Plan) -> u64 {
    let what = format!("{plan:?}: {generation}");
    assert_eq!(generation["settled"], true, "{what}");
    assert!(generation["reason"].is_string(), "{what}");
    assert!(matches!(generation["lifecycle"].as_str(), Some("completed" | "cancelled" | "failed")), "{what}");
    let cost = generation["cost"]["settled_micros"].as_u64();
    match generation["settlement"].as_str() {
        Some("released") => assert!(cost.unwrap_or(0) == 0, "{what}"),
        Some("committed") => assert!(cost > Some(0) && cost <= generation["cost"]["hold_micros"].as_u64(), "{what}"),
        _ => panic!("{what}"),
    }
    cost.unwrap_or(0)
}

fn world(name: &str) -> (World, Client, Vec<Plan>) {
    let tenant = Tenant::new("acme").route(Route::new("r").quick_recovery());
    let options = Options::new(name).tenant(&tenant).limit("start_grace_ms", 1_500).limit("batch_bytes", 2_048);
    let world = World::start(&options);
    let client = world.client(&tenant);
    let mut seed = Seed::named(name);
    let plans = (0..REQUESTS).map(|_| plan(&mut seed)).collect();
    (world, client, plans)
}

#[test]
fn a_crowd_leaves_balanced_books() {
    let (world, client, plans) = world("crowd");
    play_all(&world, &client, &plans, None);
    assert_books_balance(&world, &client, &plans);
}

#[test]
fn a_crowd_whose_server_dies_leaves_balanced_books() {
    let (world, client, plans) = world("crowd and kill");
    let mut seed = Seed::named("moment of the kill");
    play_all(&world, &client, &plans, Some(seed.between(5, REQUESTS / 2)));
    assert_books_balance(&world, &client, &plans);
    // Nobody remembers the kill: everything is asked for once more, and what never ran runs now.
    play_all(&world, &client, &plans, None);
    assert_books_balance(&world, &client, &plans);
}
