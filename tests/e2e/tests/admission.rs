//! What admission promises: nobody spends in parallel what is there once, and it costs one hop.

use std::collections::BTreeMap;
use std::sync::Barrier;

use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, price_micros, unique, wait_for};

/// The worst case of [`chat`]'s hold, as the API shows it.
fn hold_of(client: &Client, chat: &Chat) -> u64 {
    let (mut exchange, id) = client.begin(chat);
    exchange.finish().clean();
    client.wait_until_settled(&id)["cost"]["hold_micros"].as_u64().expect("a hold")
}

/// "200 concurrent requests against a budget for 50: exactly 50 admitted."
#[test]
fn parallel_overspend_is_impossible() {
    let tenant = |id: &str, grant: u64| {
        let tenant = Tenant::new(id).route(Route::new("chat").detach()).with("concurrency", 1_000);
        tenant.with("grant_micros", grant)
    };
    let first = tenant("first", 900_000_000);
    let world = World::start(&Options::new("overspend").tenant(&first));
    // Each of them is as long as every other: they all hold the same.
    let chat = |n: usize| Chat::stream("gen?tokens=5&prompt_tokens=40&headers_ms=2500").field("seed", 100 + n);
    let hold = hold_of(&world.client(&first), &chat(0));
    let budget = 50 * hold + hold / 2;
    let poor = tenant("poor", budget);
    world.create(&poor);
    let client = world.client(&poor);

    let at_once = Barrier::new(200);
    let answers: Vec<_> = std::thread::scope(|scope| {
        let asked: Vec<_> = (0..200)
            .map(|n| {
                let (client, at_once, chat) = (&client, &at_once, chat(n));
                scope.spawn(move || {
                    at_once.wait();
                    client.chat(&chat)
                })
            })
            .collect();
        // While they run, what is there is held once: the answers wait for the provider.
        let full = wait_for("fifty holds", || {
            let balance = client.balance();
            if balance.slots == 50 { Ok(balance) } else { Err(format!("{balance:?}")) }
        });
        assert_eq!((full.held, full.available), (50 * hold, hold / 2), "{full:?}");
        asked.into_iter().map(|asked| asked.join().expect("an answer")).collect()
    });
    let (admitted, refused): (Vec<_>, Vec<_>) = answers.iter().partition(|answer| answer.status == 200);
    assert_eq!((admitted.len(), refused.len()), (50, 150));
    for answer in refused {
        answer.assert_envelope(402, "budget_exhausted");
        assert_eq!(answer.header("x-generation-id"), None, "nothing was made");
    }
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, 50 * price_micros(40, 5), "{balance:?}");
    assert_eq!((balance.granted, balance.available), (budget, budget - balance.spent), "{balance:?}");
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!((&check["complete"], &check["consistent"]), (&true.into(), &true.into()), "{check}");
}

/// How often edge and objects have called objects, by the kind of call.
fn calls(client: &Client) -> BTreeMap<String, u64> {
    let counted = client.get("/__test/calls").expect(200).json();
    let counted = counted.as_object().expect("counts").clone();
    counted.into_iter().map(|(name, count)| (name, count.as_u64().expect("a count"))).collect()
}

/// What was called in between, as `name count`.
fn between(before: &BTreeMap<String, u64>, after: &BTreeMap<String, u64>) -> Vec<String> {
    let more = |(name, count): (&String, &u64)| (name.clone(), count - before.get(name).copied().unwrap_or(0));
    let grown = after.iter().map(more).filter(|(_, more)| *more > 0);
    grown.map(|(name, more)| format!("{name} {more}")).collect()
}

/// "Admission adds one object hop and no more (count the calls)": one question to the tenant, before the generation's
/// own object is called. Whatever the request is, and whatever it comes to.
#[test]
fn admission_costs_one_hop() {
    let edge = Route::new("quick").for_model("gpt-*").edge_owned().detach().with("total_ms", 20_000);
    let tenant = Tenant::new("acme").route(edge).route(Route::new("chat").cancel()).with("concurrency", 3);
    let world = World::start(&Options::new("hops").tenant(&tenant).with_test_hooks());
    let client = world.client(&tenant);
    let counted = |what: &str, act: &dyn Fn(), expected: &[&str]| {
        let before = calls(&client);
        act();
        let wanted: Vec<String> = expected.iter().map(|name| (*name).to_owned()).collect();
        wait_for(what, || match between(&before, &calls(&client)) {
            made if made == wanted => Ok(()),
            made => Err(format!("{what}: {made:?}")),
        });
    };

    // A whole life without a disconnect: admitted, started, settled by the generation.
    let key = unique("key");
    let whole = |chat: &Chat| {
        let answer = client.chat(chat);
        assert_eq!(answer.status, 200, "{}", answer.text());
    };
    let life = ["GenerationCall.start 1", "TenantCall.admit 1", "TenantCall.settle 1"];
    counted("a stream", &|| whole(&Chat::stream("gen?tokens=5")), &life);
    counted("an answer in one piece", &|| whole(&Chat::complete("gen?tokens=5")), &life);
    // What is charged above the hold comes with what ends it: nothing is owed by a hold that is closed.
    counted("an overage", &|| whole(&Chat::stream("gen?tokens=5&completion_tokens=100000")), &life);
    let keyed = Chat::stream("gen?tokens=5").idempotency_key(&key);
    counted("with an idempotency key", &|| whole(&keyed), &life);
    let replayed = ["GenerationCall.start 1", "TenantCall.admit 1"];
    counted("a replay", &|| whole(&keyed), &replayed);
    let by_the_edge =
        ["GenerationCall.begin 1", "GenerationCall.finish 1", "TenantCall.admit 1", "TenantCall.settle 1"];
    counted("a driver at the edge", &|| whole(&Chat::complete("gpt-4o?tokens=5")), &by_the_edge);

    // Refused: the tenant was asked once, and nobody else.
    let once = ["TenantCall.admit 1"];
    let refused = |chat: &Chat, status: u16| assert_eq!(client.chat(chat).status, status);
    counted("no such price", &|| refused(&Chat::stream("priceless"), 400), &once);
    counted("another body", &|| refused(&keyed.clone().field("seed", 9), 422), &once);
    let stranger = world.client_with_key(&holdfast_e2e::config::client_key("nobody", "well-formed"));
    counted("an unknown key", &|| assert_eq!(stranger.chat(&Chat::stream("gen")).status, 401), &once);
    let nobody = world.client_with_key("hfk_nobody_x");
    counted("what is no key", &|| assert_eq!(nobody.chat(&Chat::stream("gen")).status, 401), &[]);
    counted("what is no request", &|| refused(&Chat::stream("gen").field("n", 0), 400), &[]);

    // A disconnect on a route that cancels costs no call either: only work that goes on takes a place.
    let leave = |policy: &str| {
        let (mut exchange, id) =
            client.begin(&Chat::stream("gen?tokens=60&interval_ms=15").on_disconnect(policy).tag(&unique("hops")));
        exchange.read(300);
        exchange.abandon();
        let _asks_nothing_of_the_tenant_by_itself = id;
    };
    counted("a cancel", &|| leave("cancel"), &life);
    let detached = ["GenerationCall.start 1", "TenantCall.admit 1", "TenantCall.detached 1", "TenantCall.settle 1"];
    counted("a detached one", &|| leave("detach"), &detached);
}
