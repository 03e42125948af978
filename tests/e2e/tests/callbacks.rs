//! What a provider calls back: who is let in, what waits, and what it makes of a generation in each state. Once for each
//! event, whoever sends it how often.

use holdfast_e2e::callback::Callback;
use holdfast_e2e::config::{
    CALLBACK_SECRET, CALLING_PROVIDER, OLD_CALLBACK_SECRET, ONLY_CALLING_PROVIDER, PROVIDER, UNVERIFIED_PROVIDER,
};
use holdfast_e2e::{Client, Options, Route, Tenant, World, now_ms};

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
