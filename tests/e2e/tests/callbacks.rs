//! What a provider calls back: who is let in, what waits, and what it makes of a generation in each state. Once for each
//! event, whoever sends it how often.

use holdfast_e2e::callback::Callback;
use holdfast_e2e::config::{
    CALLBACK_SECRET, CALLING_PROVIDER, OLD_CALLBACK_SECRET, ONLY_CALLING_PROVIDER, PROVIDER, UNVERIFIED_PROVIDER,
};
use holdfast_e2e::http::Exchange;
use holdfast_e2e::{
    Api, Chat, Client, Options, Route, Tenant, World, assert_completed, assert_estimated, now_ms, unique, wait_for,
};
use serde_json::{Value, json};

fn anonymous(world: &World) -> Client {
    world.client_with_key("nobody")
}

fn callback(provider: &str, event_id: &str) -> Callback {
    Callback::new("acme", provider, event_id, "completed", "resp_nobody")
}

fn door(name: &str) -> (World, Client) {
    let world = World::start(&Options::new(name).tenant(&Tenant::new("acme").route(Route::new("r"))));
    let client = anonymous(&world);
    (world, client)
}

/// Fault 31: what is not signed by the provider, just now, is not heard: 401, and the tenant does not learn of it.
#[test]
fn what_is_not_signed_is_not_heard() {
    let (_world, client) = door("not signed");
    let now_s = now_ms() / 1_000;
    let other = "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw";
    let good = callback(CALLING_PROVIDER, "evt_1");
    for (what, bad) in [
        ("unsigned", good.clone().signed_with(&[])),
        ("forged", good.clone().signed_with(&[other])),
        ("stale", good.clone().sent_at(now_s - 400)),
        ("from the future", good.clone().sent_at(now_s + 400)),
        ("an old message, well signed", good.clone().sent_at(1_750_861_210)),
    ] {
        let reply = bad.send(&client);
        assert_eq!(reply.status, 401, "{what}: {}", reply.text());
        reply.assert_problem(401, "invalid_signature");
    }
    let mut edited = good.request();
    edited.body.push(b' ');
    client.call(&edited).assert_problem(401, "invalid_signature");
    let unheard = ["webhook-id", "webhook-timestamp", "webhook-signature"];
    for missing in unheard {
        let mut request = good.request();
        request.headers.retain(|(name, _)| name != missing);
        client.call(&request).assert_problem(401, "invalid_signature");
    }
}

/// Fault 31: a secret that is being replaced counts besides the new one, and one good signature among others is enough.
#[test]
fn rotated_secrets_and_lists_of_signatures() {
    let (_world, client) = door("rotated");
    let other = "whsec_MDAwMDAwMDAwMDAwMDAwMDAwMDAwMDAw";
    for (n, secrets) in [
        vec![CALLBACK_SECRET],
        vec![OLD_CALLBACK_SECRET],
        vec![other, CALLBACK_SECRET],
        vec![OLD_CALLBACK_SECRET, other],
    ]
    .into_iter()
    .enumerate()
    {
        let good = callback(CALLING_PROVIDER, &format!("evt_{n}")).signed_with(&secrets);
        assert_eq!(good.taken(&client).0, "parked", "{secrets:?}");
    }
    let edges = [now_ms() / 1_000 - 290, now_ms() / 1_000 + 290];
    for sent_s in edges {
        let good = callback(CALLING_PROVIDER, &format!("evt_{sent_s}")).sent_at(sent_s);
        assert_eq!(good.taken(&client).0, "parked", "{sent_s}");
    }
}

/// No callbacks here: an unknown tenant, an unknown provider, one without a secret. The same 404, byte for byte; and who
/// cannot sign does not learn whether a tenant exists.
#[test]
fn where_there_are_no_callbacks() {
    let (_world, client) = door("nowhere");
    let to = |tenant: &str, provider: &str| Callback::new(tenant, provider, "evt_1", "completed", "resp_1");
    let missing = to("acme", "nobody-called-so").send(&client);
    missing.assert_problem(404, "unknown_path");
    for (tenant, provider) in
        [("acme", PROVIDER), ("nobody", CALLING_PROVIDER), ("NO_TENANT", CALLING_PROVIDER), ("acme", "CALLING")]
    {
        let reply = to(tenant, provider).send(&client);
        assert_eq!((reply.status, &reply.body), (404, &missing.body), "{tenant} {provider}");
    }
    for tenant in ["acme", "nobody"] {
        to(tenant, CALLING_PROVIDER).signed_with(&[]).send(&client).assert_problem(401, "invalid_signature");
    }
    client.get("/v1/callbacks/acme/calling").assert_problem(405, "method_not_allowed");
}

/// Fault 31: a secret that is not set verifies nothing. The operator is told, and the provider may try again later.
#[test]
fn a_secret_that_is_not_set() {
    let (world, client) = door("not set");
    for signed_with in [vec![], vec![CALLBACK_SECRET]] {
        let reply = callback(UNVERIFIED_PROVIDER, "evt_1").signed_with(&signed_with).send(&client);
        reply.assert_problem(503, "misconfigured");
    }
    let health = world.operator().get("/healthz").expect(200).json();
    let warnings = health["warnings"].to_string();
    assert!(warnings.contains("NOBODY_SET_THIS_EITHER"), "{health}");
}

/// Signed, and no event of ours: 400 for what is none, 413 for what is too large, and everything else is taken and passed
/// over, so that its sender does not send it for three days.
#[test]
fn bodies_that_are_no_events_of_ours() {
    let (_world, client) = door("bodies");
    let with = |body: &str| callback(CALLING_PROVIDER, "evt_1").body(body);
    for body in
        ["", "null", "[]", r#"{"type":"response.completed"}"#, r#"{"type":"response.completed","data":{"id":" "}}"#]
    {
        with(body).send(&client).assert_problem(400, "invalid_request");
    }
    let other = r#"{"id":"evt_1","object":"event","type":"batch.completed","data":{"id":"batch_1"}}"#;
    assert_eq!(with(other).taken(&client), ("passed_over".into(), None));
    with(&"x".repeat((64 << 10) + 1)).send(&client).assert_problem(413, "body_too_large");
}

/// Fault 30: an operation that nobody has named yet. Its callbacks wait, however often each comes; those of another
/// operation push nothing out before the bound.
#[test]
fn callbacks_of_unknown_operations_wait() {
    let tenant = Tenant::new("acme").route(Route::new("r"));
    let world = World::start(&Options::new("wait").tenant(&tenant).limit("callbacks_parked_max", 3));
    let client = anonymous(&world);
    for _ in 0..3 {
        assert_eq!(callback(ONLY_CALLING_PROVIDER, "evt_1").taken(&client), ("parked".into(), None));
    }
    for n in 2..8 {
        assert_eq!(callback(ONLY_CALLING_PROVIDER, &format!("evt_{n}")).taken(&client), ("parked".into(), None));
    }
    world.kill();
    let count = world.count_in_tenant(&tenant, "SELECT COUNT(*) FROM parked_callback");
    assert_eq!(count, 3, "bounded, and the latest are kept");
    assert_eq!(world.count_in_tenant(&tenant, "SELECT COUNT(*) FROM parked_callback WHERE event_id = 'evt_7'"), 1);
}

/// A background response, and the world in which it runs.
struct Running {
    world: World,
    client: Client,
    id: String,
    exchange: Exchange,
}

/// Recovery within seconds: the lease, then `observation_ms`.
fn route(provider: &str, observation_ms: u64) -> Route {
    let route = Route::new("r").by(provider).at("/v1/responses").detach().quick_recovery();
    route.with("observation_ms", observation_ms)
}

fn background(model: &str) -> Chat {
    let chat = Chat::of(Api::Responses, model, true).tag(&unique("background"));
    chat.field("background", true).field("store", true)
}

impl Running {
    fn start(name: &str, route: Route, model: &str) -> Self {
        let provider = route.provider().to_owned();
        let tenant = Tenant::new("acme").route(route);
        let world = World::start(&Options::new(name).tenant(&tenant).limit("batch_ms", 100));
        let url = world.base_url().replace("/v1", &format!("/v1/callbacks/acme/{provider}"));
        world.simulator.call_back_to(&url, CALLBACK_SECRET);
        let client = world.client(&tenant);
        let (exchange, id) = client.begin(&background(model));
        Self { world, client, id, exchange }
    }

    /// As [`Self::start`], killed in mid-stream and up again: nobody drives it any more.
    fn lost(name: &str, route: Route, model: &str) -> Self {
        let mut running = Self::start(name, route, model);
        running.exchange.read(2_000);
        running.world.kill();
        running.world.restart();
        running
    }

    fn view(&self) -> Value {
        self.client.generation(&self.id)
    }

    fn wait_for(&self, what: &str, is: impl Fn(&Value) -> bool) -> Value {
        wait_for(what, || Some(self.view()).filter(&is).ok_or_else(|| self.view().to_string()))
    }

    /// What a callback about it, sent by hand, comes to.
    fn called(&self, event_id: &str, how: &str) -> String {
        let operation_id = self.view()["upstream"]["operation_id"].as_str().expect("it has a name").to_owned();
        let callback = Callback::new("acme", ONLY_CALLING_PROVIDER, event_id, how, &operation_id);
        let (status, disposition) = callback.taken(&anonymous(&self.world));
        assert_eq!(status, "handled");
        disposition.expect("a disposition")
    }

    fn spent(&self) -> u64 {
        self.client.balance().spent
    }
}

const PROCESSED: &str = "processed_without_duplicate_effects";

/// Never ends by itself, and calls nobody: only what a test says of it is known.
const SILENT: &str = "gen?tokens=600&interval_ms=10&callback=lost";

/// Fault 30: the provider calls back three times before it has answered the request. The callback waits, is matched as soon as
/// the operation has its name, and changes nothing of what the stream tells: one effect, one settlement.
#[test]
fn a_callback_before_the_answer() {
    let model = "gen?tokens=8&interval_ms=20&callback=early&callbacks=3";
    let mut running = Running::start("early", route(ONLY_CALLING_PROVIDER, 60_000), model);
    running.exchange.finish();
    let settled = running.client.wait_until_settled(&running.id);
    assert_completed(&settled, 12, 8);
    assert_eq!(running.client.wait_until_nothing_is_held().spent, settled["cost"]["settled_micros"]);
    running.world.kill();
    let count = |query| running.world.count_in_generation(&running.id, query);
    assert_eq!(count("SELECT COUNT(*) FROM signal"), 1, "three messages, one event");
    assert_eq!(count("SELECT COUNT(*) FROM signal WHERE event_id LIKE 'callback:evt_%'"), 1);
}

/// Fault 27 and 30: the driver is lost, and the provider can only call back. The callback ends the search; the same event
/// again, and another that says the same, have no further effect. Late ones that say otherwise are put aside.
#[test]
fn a_callback_ends_the_search() {
    let running = Running::lost("search", route(ONLY_CALLING_PROVIDER, 60_000), SILENT);
    running.wait_for("a search", |view| view["upstream"]["state"] == "unknown");
    for _ in 0..3 {
        assert_eq!(running.called("evt_1", "completed"), PROCESSED);
    }
    let settled = running.client.wait_until_settled(&running.id);
    assert_eq!(settled["lifecycle"], "completed", "{settled}");
    let charged = assert_estimated(&settled);
    assert_eq!(running.client.wait_until_nothing_is_held().spent, charged);
    assert_eq!(running.called("evt_1", "completed"), PROCESSED, "known, for ever");
    assert_eq!(running.called("evt_2", "completed"), PROCESSED);
    assert_eq!(running.called("evt_3", "failed"), "quarantined", "as strong as the first, and different");
    assert_eq!((running.spent(), running.view()["lifecycle"].clone()), (charged, "completed".into()));
}

/// A failure that is called back fails the generation, with what was seen of it.
#[test]
fn a_failure_is_called_back() {
    let running = Running::lost("failure", route(ONLY_CALLING_PROVIDER, 60_000), SILENT);
    running.wait_for("a search", |view| view["upstream"]["state"] == "unknown");
    assert_eq!(running.called("evt_1", "failed"), PROCESSED);
    let settled = running.client.wait_until_settled(&running.id);
    assert_eq!((settled["lifecycle"].as_str(), settled["reason"].as_str()), (Some("failed"), Some("operation_failed")));
}

/// Fault 27, and design 7's boundary cases: just after the expiry, with the hold kept, the callback settles it; the terminal
/// state stays.
#[test]
fn a_callback_after_the_expiry_settles_the_hold_that_is_kept() {
    let running = Running::lost("kept", route(ONLY_CALLING_PROVIDER, 300), SILENT);
    let kept = running.wait_for("an expiry", |view| view["lifecycle"] == "expired");
    assert_eq!(kept["settlement"], "expired", "{kept}");
    assert_eq!(running.client.balance().slots, 1, "its slot is kept with it");
    for _ in 0..2 {
        assert_eq!(running.called("evt_1", "completed"), PROCESSED);
    }
    let balance = running.client.wait_until_nothing_is_held();
    let settled = running.client.wait_until_settled(&running.id);
    assert_eq!(settled["lifecycle"], "expired", "the first terminal state stands: {settled}");
    assert_eq!(assert_estimated(&settled), balance.spent);
}

/// The same after a release by the route's rule: without usage nobody can price it, and it is put aside for review.
#[test]
fn a_callback_after_a_release_is_put_aside() {
    let on_expiry = json!({ "credit": "release", "slot": "release" });
    let route = route(ONLY_CALLING_PROVIDER, 300).with("on_expiry", on_expiry);
    let running = Running::lost("released", route, SILENT);
    running.client.wait_until_nothing_is_held();
    assert_eq!(running.called("evt_1", "completed"), "quarantined");
    let view = running.view();
    assert_eq!(
        (view["lifecycle"].as_str(), view["settlement"].as_str()),
        (Some("expired"), Some("released")),
        "{view}"
    );
    assert_eq!(running.spent(), 0);
}

/// Fault 43: killed in mid-stream, and nobody says anything but the provider, whose callback comes after the restart, twice.
#[test]
fn the_providers_own_callback_after_a_crash() {
    let model = "gen?tokens=120&interval_ms=10&callbacks=2&callback_ms=50";
    let running = Running::lost("own callback", route(ONLY_CALLING_PROVIDER, 60_000), model);
    let balance = running.client.wait_until_nothing_is_held();
    let settled = running.client.wait_until_settled(&running.id);
    assert_eq!(settled["lifecycle"], "completed", "{settled}");
    assert_eq!(assert_estimated(&settled), balance.spent);
}

/// A forged callback ends nothing.
#[test]
fn a_forged_callback_after_a_crash() {
    let model = "gen?tokens=60&interval_ms=10&callback=forged";
    let running = Running::lost("forged", route(ONLY_CALLING_PROVIDER, 1_000), model);
    let kept = running.wait_for("an expiry", |view| view["lifecycle"] == "expired");
    assert_eq!(kept["settlement"], "expired", "{kept}");
    running.world.kill();
    let signals = "SELECT COUNT(*) FROM signal";
    assert_eq!(running.world.count_in_generation(&running.id, signals), 0, "nobody was heard");
}

/// A callback tells no usage: where the provider can be asked it is, although it fails at first, and what it tells is charged
/// exactly.
#[test]
fn the_usage_behind_a_callback_is_asked_for() {
    let model = "gen?tokens=90&interval_ms=10&resumes=400!&lookups=503";
    let running = Running::lost("usage", route(CALLING_PROVIDER, 60_000), model);
    let balance = running.client.wait_until_nothing_is_held();
    let settled = running.client.wait_until_settled(&running.id);
    assert_completed(&settled, 12, 90);
    assert_eq!(balance.spent, settled["cost"]["settled_micros"]);
}
