//! What was lost is found by the sweep, with no client's help: alarms, rows, requests that died between admission and
//! start. Bounded batches, bounded pages, and a walk that goes on where it stopped.

use holdfast_e2e::webhook::Hook;
use holdfast_e2e::{
    Chat, Client, Options, Route, Tenant, World, assert_bytes, assert_completed, assert_estimated, unique, wait_for,
};
use serde_json::{Value, json};

/// A stream of some seconds.
const SLOW: &str = "gen?tokens=150&interval_ms=10&prompt_tokens=5";

/// Makes every hold of a tenant overdue.
const OVERDUE: &str = "UPDATE hold SET due_at = 1, json = json_set(json, '$.due_at', 1)";

fn tenant(id: &str) -> Tenant {
    Tenant::new(id).route(Route::new("r").detach().quick_recovery())
}

fn sweep(world: &World) -> Value {
    world.operator().post("/admin/sweep").expect(200).json()
}

/// A request that dies between admission and start.
fn die_after_admission(client: &Client) {
    let chat = Chat::stream("gen?tokens=5").tag(&unique("unstarted"));
    let stopped = chat.header("x-holdfast-test-failpoint", "stop-after-admit");
    assert_eq!(client.chat(&stopped).status, 500);
}

#[test]
fn a_sweep_is_the_operators() {
    let tenant = tenant("acme");
    let world = World::start(&Options::new("who may sweep").tenant(&tenant));
    world.client(&tenant).post("/admin/sweep").assert_problem(401, "invalid_api_key");
    world.operator().get("/admin/sweep").assert_problem(405, "method_not_allowed");
    assert_eq!(
        sweep(&world),
        json!({ "object": "sweep", "tenants": 1, "tenants_failed": 0, "holds_asked": 0, "holds_failed": 0,
                "tenants_left": 0, "complete": true })
    );
}

/// Faults 39 and 40: the request died between admission and start, and the alarm that would have found it is lost. The
/// sweep finds it.
#[test]
fn an_admission_that_never_started() {
    let tenant = tenant("acme");
    let options = Options::new("never started").tenant(&tenant).limit("start_grace_ms", 600_000);
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    die_after_admission(&client);
    let (id, _) = client.balance().holds[0].clone();
    world.kill();
    world.edit_tenant(&tenant, &[OVERDUE]);
    world.forget_alarms();
    world.restart();
    // No word of the tenant's: the sweep alone.
    let swept = sweep(&world);
    assert_eq!((swept["holds_asked"].as_u64(), swept["holds_failed"].as_u64()), (Some(1), Some(0)), "{swept}");
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, 0, "{balance:?}");
    assert_eq!(client.generation(&id)["settlement"], "released");
    assert_eq!(sweep(&world)["holds_asked"], 0, "nothing is left to ask after");
}

/// Faults 39, 40 and 43: the driver is lost with its object, and every alarm too. The sweep asks after the overdue hold, and
/// the generation looks into itself and sets its alarm again, although its own storage says that the alarm is there.
#[test]
fn a_lost_driver_whose_alarm_is_lost() {
    // Nobody waits out the lease before the restart: what the object remembers is in the future.
    for lease_ms in [1_500, 5_000] {
        let tenant = Tenant::new("acme").route(Route::new("r").detach().quick_recovery().with("lease_ms", lease_ms));
        let world = World::start(&Options::new("lost alarms").tenant(&tenant).limit("batch_ms", 100));
        let client = world.client(&tenant);
        let tag = unique("lost");
        let (mut exchange, id) = client.begin(&Chat::stream(SLOW).tag(&tag));
        exchange.read(3_000);
        world.kill();
        world.edit_tenant(&tenant, &[OVERDUE]);
        world.forget_alarms();
        world.restart();
        assert_eq!(sweep(&world)["holds_asked"], 1);
        let balance = client.wait_until_nothing_is_held();
        let settled = client.generation(&id);
        assert_eq!(settled["lifecycle"], "failed", "{settled}");
        assert_eq!(assert_estimated(&settled), balance.spent, "{settled}");
        assert_eq!(world.simulator.log(&tag).len(), 1, "nothing is sent a second time");
    }
}

/// Faults 33 and 36, and invariant 6: the tenant's rows are those of before the settlement (a restored backup), the
/// generation's outbox has lost its row, and every alarm is gone. The settlement is made again and applied once.
#[test]
fn a_settlement_that_both_sides_lost() {
    for outbox_lost in [false, true] {
        let tenant = tenant("acme");
        let world = World::start(&Options::new("lost settlement").tenant(&tenant).limit("batch_ms", 100));
        let client = world.client(&tenant);
        let chat = Chat::stream(SLOW).tag(&unique("restored"));
        let (mut exchange, id) = client.begin(&chat);
        exchange.read(2_000);
        let before = world.snapshot_tenant(&tenant);
        exchange.finish();
        let settled = client.wait_until_settled(&id);
        assert_completed(&settled, 5, 150);
        let spent = client.balance().spent;
        world.kill();
        world.restore_tenant(&before);
        world.edit_tenant(&tenant, &[OVERDUE]);
        if outbox_lost {
            world.edit_generation(&id, &["DELETE FROM outbox"]);
        }
        world.restart();
        assert_eq!(sweep(&world)["holds_asked"], 1);
        let balance = client.wait_until_nothing_is_held();
        assert_eq!(balance.spent, spent, "settled once, at the same price");
        assert_completed(&client.wait_until_settled(&id), 5, 150);
        let check = client.get("/v1/ledger/check").expect(200).json();
        assert_eq!(check["consistent"], true, "{check}");
        assert_eq!(sweep(&world)["holds_asked"], 0);
        assert_bytes!(client.read_all_from(&id, 0), world.simulator.expected(&chat));
    }
}

/// The walk is bounded, and goes on where it stopped: five tenants, two at a time.
#[test]
fn the_walk_goes_on_where_it_stopped() {
    let tenants: Vec<Tenant> = ["a", "b", "c", "d", "e"].map(tenant).into();
    let options = Options::new("walk").limit("sweep_tenants_max", 2).limit("start_grace_ms", 600_000);
    let options = tenants.iter().fold(options, Options::tenant);
    let world = World::start(&options.with_test_hooks());
    tenants.iter().for_each(|tenant| die_after_admission(&world.client(tenant)));
    world.kill();
    tenants.iter().for_each(|tenant| world.edit_tenant(tenant, &[OVERDUE]));
    world.forget_alarms();
    world.restart();
    let walked: Vec<_> =
        (0..3).map(|_| sweep(&world)).map(|it| (it["tenants"].clone(), it["complete"].clone())).collect();
    assert_eq!(json!(walked), json!([[2, false], [2, false], [1, true]]));
    for tenant in &tenants {
        assert_eq!(world.client(tenant).wait_until_nothing_is_held().spent, 0);
    }
    assert_eq!(sweep(&world)["tenants"], 2, "and begins anew");
}

/// Fault 56: many holds expire at one instant. One poke asks after a bounded batch; the tenant's own alarm goes on with the
/// rest, batch by batch, and each is resolved once.
#[test]
fn many_expiries_at_one_instant() {
    let tenant = tenant("acme").with("concurrency", 64);
    let options = Options::new("many").tenant(&tenant).limit("start_grace_ms", 600_000);
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    (0..45).for_each(|_| die_after_admission(&client));
    assert_eq!(client.balance().slots, 45);
    world.kill();
    world.edit_tenant(&tenant, &[OVERDUE]);
    world.forget_alarms();
    world.restart();
    let swept = sweep(&world);
    assert_eq!((swept["holds_asked"].as_u64(), swept["tenants_left"].as_u64()), (Some(20), Some(1)), "{swept}");
    let balance = client.wait_until_nothing_is_held();
    assert_eq!(balance.spent, 0, "{balance:?}");
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!(check["consistent"], true, "{check}");
}

/// What a tenant keeps for a time only is forgotten without its doing: runs of a route that gets no more requests, events
/// that nobody follows. What is young, or still on its way, stays.
#[test]
fn what_was_kept_for_its_time_is_forgotten() {
    let tenant = tenant("acme").route(Route::new("gone").detach().for_model("gone*"));
    let schedule = json!([0, 3_600_000]);
    let options = Options::new("forgotten").tenant(&tenant).local().limit("webhook_schedule_ms", schedule);
    // No alarm rings meanwhile: it would forget too.
    let world = World::start(&options.limit("start_grace_ms", 600_000));
    let client = world.client(&tenant);
    // The first event is taken, and the second is tried again in an hour.
    client.use_hook(&Hook::new(&world.simulator, &unique("forgotten"), "200,500"));
    for (count, state) in [(1, "delivered"), (2, "pending")] {
        client.wait_until_settled(client.chat(&Chat::stream("gen?tokens=3")).required("x-generation-id"));
        wait_for("an attempt", || {
            let all = client.get("/v1/webhook/deliveries").expect(200).json()["data"].clone();
            let last = &all[count - 1];
            if last["state"] == state && last["attempts"] == 1 { Ok(()) } else { Err(all.to_string()) }
        });
    }
    let counts = || {
        let count = |query: &str| world.count_in_tenant(&tenant, query);
        let events = "SELECT COUNT(*) FROM webhook_event WHERE state = ";
        let (delivered, pending) = (count(&format!("{events}'delivered'")), count(&format!("{events}'pending'")));
        (count("SELECT COUNT(*) FROM run"), delivered, pending)
    };
    world.kill();
    assert_eq!(counts(), (2, 1, 1));
    world.restart();
    sweep(&world);
    world.kill();
    assert_eq!(counts(), (2, 1, 1), "the time of none is over");

    // As if they were of long ago; of the runs one, and 300 of a route that nobody asks any more.
    let old_run = "UPDATE run SET started_at = 1 WHERE generation = (SELECT MIN(generation) FROM run)";
    let gone = "WITH RECURSIVE n(i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM n WHERE i < 300)
        INSERT INTO run SELECT 'gen_old_' || i, 'gone', i, (SELECT json FROM run LIMIT 1) FROM n";
    world.edit_tenant(&tenant, &[old_run, gone, "UPDATE webhook_event SET at = 1"]);
    let mut left = Vec::new();
    for _ in 0..3 {
        world.restart();
        sweep(&world);
        world.kill();
        left.push(counts());
    }
    assert_eq!(left, [(102, 0, 1), (1, 0, 1), (1, 0, 1)], "200 at a time, and nothing that is young or on its way");
}

/// The cron of `wrangler.toml` does the same by itself.
#[test]
fn the_cron_sweeps() {
    let tenant = tenant("acme");
    let options = Options::new("cron").tenant(&tenant).limit("start_grace_ms", 600_000).with_cron();
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    die_after_admission(&client);
    world.kill();
    world.edit_tenant(&tenant, &[OVERDUE]);
    world.forget_alarms();
    world.restart();
    assert_eq!(world.ring_cron(), "ok");
    assert!(world.output().contains(r#"sweep: {"object":"sweep","tenants":1,"tenants_failed":0,"holds_asked":1"#));
    assert_eq!(client.wait_until_nothing_is_held().spent, 0);
    let wrangler = std::fs::read_to_string(holdfast_e2e::world::repository().join("wrangler.toml")).expect("settings");
    assert!(wrangler.contains("crons = [\"* * * * *\"]"), "it is scheduled");
}

/// Fault 37: sweeps at the same time, and while the alarm rings, do no more than one.
#[test]
fn sweeps_at_the_same_time() {
    let tenant = tenant("acme");
    let options = Options::new("at the same time").tenant(&tenant).limit("start_grace_ms", 50);
    let world = World::start(&options.with_test_hooks());
    let client = world.client(&tenant);
    (0..5).for_each(|_| die_after_admission(&client));
    std::thread::scope(|scope| {
        for _ in 0..6 {
            scope.spawn(|| sweep(&world));
        }
    });
    wait_for("every hold is released", || {
        sweep(&world);
        let balance = client.balance();
        if balance.slots == 0 { Ok(()) } else { Err(format!("{balance:?}")) }
    });
    let check = client.get("/v1/ledger/check").expect(200).json();
    assert_eq!(check["consistent"], true, "{check}");
}
