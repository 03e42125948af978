//! What a tenant is told of an outcome that stays open: an expiry that keeps the hold, what comes to light after it, and a
//! dispute. None of them has a posting to travel with: each travels by itself (`announce`, and seed 2's five settlements).

use holdfast_e2e::callback::Callback;
use holdfast_e2e::config::ONLY_CALLING_PROVIDER;
use holdfast_e2e::http::Exchange;
use holdfast_e2e::webhook::{Hook, Message, accepted_by_sdk};
use holdfast_e2e::{
    Api, Chat, Client, Options, Route, Tenant, World, assert_estimated, price_micros, unique, wait_for,
};
use serde_json::{Value, json};

/// A running generation whose tenant listens.
struct Told {
    world: World,
    client: Client,
    hook: Hook,
    secret: String,
    id: String,
    exchange: Exchange,
}

impl Told {
    fn start(name: &str, route: Route, chat: &Chat) -> Self {
        let tenant = Tenant::new("acme").route(route.detach());
        let options = Options::new(name).tenant(&tenant).local().with_test_hooks().limit("batch_ms", 100);
        let world = World::start(&options.limit("webhook_schedule_ms", json!([0, 200, 400, 600])));
        let client = world.client(&tenant);
        let hook = Hook::new(&world.simulator, &unique("open"), "200");
        let secret = client.use_hook(&hook);
        let (exchange, id) = client.begin(chat);
        Self { world, client, hook, secret, id, exchange }
    }

    /// Killed in mid-stream and up again: nobody drives it any more, and nobody asks.
    fn lose_the_driver(&mut self) {
        self.exchange.read(2_000);
        self.world.kill();
        self.world.restart();
    }

    /// What a callback of the provider comes to.
    fn called(&self, event_id: &str, how: &str) -> String {
        let operation_id = wait_for("the operation's name", || {
            let view = self.client.generation(&self.id);
            view["upstream"]["operation_id"].as_str().map(str::to_owned).ok_or_else(|| view.to_string())
        });
        let callback = Callback::new("acme", ONLY_CALLING_PROVIDER, event_id, how, &operation_id);
        let (status, disposition) = callback.taken(&self.world.client_with_key("nobody"));
        assert_eq!(status, "handled");
        disposition.expect("a disposition")
    }

    /// The messages once there are so many and all of them were taken: each signed, and each about this generation.
    fn messages(&self, count: usize) -> Vec<Message> {
        self.client.wait_for_deliveries("delivered", count);
        let messages = self.hook.messages(&self.world.simulator);
        assert_eq!(messages.len(), count, "each is told once");
        assert!(messages.iter().all(|message| message.is_signed_by(&self.secret)));
        assert_eq!(accepted_by_sdk(&messages, &self.secret), vec![true; count]);
        let view = self.client.generation(&self.id);
        for message in &messages {
            let data = &message.json()["data"];
            assert_eq!((&data["generation_id"], &data["reservation_id"]), (&view["id"], &view["reservation_id"]));
            assert_eq!(data["route"], "r", "{data}");
        }
        messages
    }

    /// The `data` of the only message of that type.
    fn only(&self, messages: &[Message], kind: &str) -> Value {
        let of_it: Vec<_> = messages.iter().filter(|message| message.json()["type"] == kind).collect();
        let [message] = of_it.as_slice() else { panic!("{} of {kind}", of_it.len()) };
        assert!(message.id().ends_with(kind.trim_start_matches("generation.")), "{}", message.id());
        message.json()["data"].take()
    }

    /// The hold and its slot are kept, and nothing is spent.
    fn assert_kept(&self) {
        let balance = self.client.balance();
        assert_eq!((balance.slots, balance.spent), (1, 0), "{balance:?}");
        assert_eq!(balance.holds.iter().map(|(id, _)| id.as_str()).collect::<Vec<_>>(), [self.id.as_str()]);
    }
}

/// The members of `data` that say how it stands.
fn states(data: &Value) -> [&Value; 6] {
    ["lifecycle", "settlement", "reason", "cost_micros", "usage", "review"].map(|member| &data[member])
}

/// Recovery within seconds; at the deadline the hold is kept.
fn route(on_expiry: &str) -> Route {
    let route = Route::new("r").quick_recovery().with("total_ms", 25_000);
    route.with("on_expiry", json!({ "credit": on_expiry, "slot": "quarantine" }))
}

/// An operation in the background whose provider can do nothing but call back.
fn calling() -> Route {
    route("quarantine").by(ONLY_CALLING_PROVIDER).at("/v1/responses").with("observation_ms", 300)
}

/// It calls nobody by itself: only what a test says of it is known.
fn background(model: &str) -> Chat {
    let chat = Chat::of(Api::Responses, &format!("{model}&callback=lost"), true).tag(&unique("background"));
    chat.field("background", true).field("store", true)
}

const ENDLESS: &str = "gen?tokens=900&interval_ms=20";

/// Seed 1, "quarantine": told with the hold kept. Then the provider calls back, twice: the hold is settled, and that is told
/// once.
#[test]
fn an_expiry_is_told_and_then_its_late_completion() {
    let mut told = Told::start("told: expired, then late", calling(), &background(ENDLESS));
    told.lose_the_driver();
    let messages = told.messages(1);
    let expired = told.only(&messages, "generation.expired");
    let kept = [&json!("expired"), &json!("expired"), &json!("expired_quarantined"), &Value::Null, &Value::Null];
    assert_eq!(states(&expired)[..5], kept, "{expired}");
    assert_eq!((&expired["review"], &expired["estimated"]), (&json!("expired_quarantined"), &json!(false)));
    told.assert_kept();

    for _ in 0..2 {
        assert_eq!(told.called("evt_1", "completed"), "processed_without_duplicate_effects");
    }
    let messages = told.messages(2);
    let late = told.only(&messages, "generation.late_completion");
    let settled = told.client.wait_until_settled(&told.id);
    let charged = assert_estimated(&settled);
    assert_eq!((&late["lifecycle"], &late["settlement"]), (&json!("expired"), &json!("committed")), "{late}");
    assert_eq!((&late["reason"], &late["cost_micros"]), (&json!("late_completion"), &json!(charged)), "{late}");
    assert_eq!(late["estimated"], true, "{late}");
    assert_eq!(told.client.wait_until_nothing_is_held().spent, charged, "what is told is in the ledger");
}

/// The same of a driver at the edge: out of reach for longer than its lease, it reports its end to a generation that has
/// expired meanwhile. Its stream tells the exact usage.
#[test]
fn an_end_that_a_fenced_driver_reports_is_told_as_late() {
    let route = route("quarantine").edge_owned().with("lease_ms", 3_000);
    let chat = Chat::stream("gen?tokens=300&interval_ms=20").tag(&unique("fenced"));
    let chat = chat.header("x-holdfast-test-failpoint", "mute-edge-driver");
    let mut told = Told::start("told: expired, then the fenced driver's end", route, &chat);
    let messages = told.messages(1);
    let expired = told.only(&messages, "generation.expired");
    assert_eq!(
        (&expired["reason"], &expired["cost_micros"]),
        (&json!("expired_quarantined"), &Value::Null),
        "{expired}"
    );
    told.assert_kept();

    told.exchange.finish().clean();
    let messages = told.messages(2);
    let late = told.only(&messages, "generation.late_completion");
    assert_eq!((&late["lifecycle"], &late["settlement"]), (&json!("expired"), &json!("committed")), "{late}");
    let cost = price_micros(12, 300);
    assert_eq!((&late["cost_micros"], &late["estimated"]), (&json!(cost), &json!(false)), "{late}");
    assert_eq!((&late["usage"]["input_tokens"], &late["usage"]["output_tokens"]), (&json!(12), &json!(300)), "{late}");
    assert_eq!(told.client.wait_until_nothing_is_held().spent, cost);
}

/// Seed 1, "escalate": the end and the dispute are told, each by itself, and the hold waits for an operator.
#[test]
fn an_escalation_is_told_as_expired_and_as_disputed() {
    for (owner, route) in [("object", route("escalate")), ("edge", route("escalate").edge_owned())] {
        let chat = Chat::stream(ENDLESS).tag(&unique("escalated"));
        let mut told = Told::start(&format!("told: escalated, {owner}"), route, &chat);
        told.lose_the_driver();
        let messages = told.messages(2);
        let open =
            [json!("expired"), json!("disputed"), json!("escalated"), Value::Null, Value::Null, json!("escalated")];
        for kind in ["generation.expired", "generation.disputed"] {
            let data = told.only(&messages, kind);
            assert_eq!(states(&data), open.each_ref(), "{owner}: {kind}");
        }
        told.assert_kept();
    }
}

/// Two statements of the same rank differ while the driver works: its end is told, and that the hold is disputed.
#[test]
fn evidence_that_conflicts_is_told_as_disputed() {
    let model = "gen?tokens=200&interval_ms=20";
    let mut told = Told::start("told: disputed", calling(), &background(model));
    assert_eq!(told.called("evt_1", "completed"), "processed_without_duplicate_effects");
    assert_eq!(told.called("evt_2", "failed"), "quarantined");
    assert_eq!(told.hook.messages(&told.world.simulator).len(), 0, "while it runs nothing is told");
    told.exchange.finish().clean();
    let messages = told.messages(2);
    for (kind, reason) in [("generation.finished", None), ("generation.disputed", Some("evidence_conflict"))] {
        let data = told.only(&messages, kind);
        assert_eq!((&data["lifecycle"], &data["settlement"]), (&json!("completed"), &json!("disputed")), "{data}");
        assert_eq!((&data["cost_micros"], &data["review"]), (&Value::Null, &json!("evidence_conflict")), "{data}");
        assert!(reason.is_none_or(|reason| data["reason"] == reason), "{data}");
    }
    told.assert_kept();
}

/// Agentic work completes late through review alone (design 5): what comes to light is told, and settles nothing; what
/// contradicts it is a dispute.
#[test]
fn of_agentic_work_everything_is_told_and_nothing_is_settled() {
    let mut told = Told::start("told: agentic", calling().with("workload", "agentic"), &background(ENDLESS));
    told.lose_the_driver();
    told.messages(1);
    assert_eq!(told.called("evt_1", "completed"), "quarantined");
    let messages = told.messages(2);
    let late = told.only(&messages, "generation.late_completion");
    assert_eq!((&late["settlement"], &late["cost_micros"]), (&json!("expired"), &Value::Null), "{late}");
    assert_eq!(told.called("evt_2", "failed"), "quarantined");
    let messages = told.messages(3);
    let disputed = told.only(&messages, "generation.disputed");
    assert_eq!(
        (&disputed["lifecycle"], &disputed["settlement"]),
        (&json!("expired"), &json!("disputed")),
        "{disputed}"
    );
    told.assert_kept();
}
