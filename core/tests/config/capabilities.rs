//! What a provider can do: by its dialect, by its declaration, and by whether the operation runs in the background.

use super::world::lines;
use holdfast_core::capability::Capabilities;
use holdfast_core::config::{ConfigError, Limits, Operator, Provider, parse_providers, read_config};
use holdfast_core::webhook::Reach;
use serde_json::{Value, json};

const ALL: Capabilities =
    Capabilities { cancel: true, status: true, resume: true, callback: true, idempotency_key: true };
const NONE: Capabilities =
    Capabilities { cancel: false, status: false, resume: false, callback: false, idempotency_key: false };

/// A provider of a dialect, with some members.
fn provider(dialect: &str, members: Value) -> Value {
    let mut provider = json!({
        "name": "p", "origin": "https://p.example", "dialect": dialect, "secret": "K",
        "prices": { "version": "v1", "models": [
            { "model": "*", "input_micros_per_million": 1, "output_micros_per_million": 1 }
        ] }
    });
    for (name, value) in members.as_object().unwrap() {
        provider[name] = value.clone();
    }
    provider
}

fn read(dialect: &str, members: Value) -> Provider {
    serde_json::from_value(provider(dialect, members)).unwrap()
}

/// Design 6: what the dialect has a protocol for, as far as the operator declares it; without background an operation
/// ends with its socket.
#[test]
fn capabilities_by_dialect_declaration_and_background() {
    let secret = json!({ "callback_secret": "S" });
    let only_status = json!({ "capabilities": { "status": true }, "callback_secret": "S" });
    let key = Capabilities { idempotency_key: true, ..NONE };
    for (dialect, members, background, expected) in [
        ("openai-responses", json!({}), true, Capabilities { callback: false, ..ALL }),
        ("openai-responses", secret.clone(), true, ALL),
        ("openai-responses", secret.clone(), false, key),
        ("openai-responses", only_status.clone(), true, Capabilities { status: true, ..NONE }),
        ("openai-responses", only_status, false, NONE),
        ("openai-responses", json!({ "capabilities": {} }), true, NONE),
        ("openai-chat", json!({}), true, NONE),
        ("openai-chat", json!({ "capabilities": { "idempotency_key": true } }), false, key),
        ("anthropic-messages", json!({}), true, NONE),
        ("gemini", json!({}), true, NONE),
        ("opaque", json!({}), true, NONE),
    ] {
        let found = read(dialect, members.clone()).capabilities_for(background);
        assert_eq!(found, expected, "{dialect} {members} {background}");
    }
}

/// Seed 1, the matrix: every row of it can be declared.
#[test]
fn every_row_of_the_matrix_can_be_declared() {
    for (cancel, status) in [(true, true), (true, false), (false, true), (false, false)] {
        let declared = json!({ "capabilities": { "cancel": cancel, "status": status } });
        let found = read("openai-responses", declared).capabilities_for(true);
        assert_eq!(found, Capabilities { cancel, status, ..NONE });
    }
}

#[test]
fn what_no_protocol_can_do_is_not_declared() {
    for (dialect, members, expected) in [
        ("openai-chat", json!({ "capabilities": { "cancel": true } }), "declares `cancel`"),
        ("openai-chat", json!({ "capabilities": { "status": true } }), "declares `status`"),
        ("openai-chat", json!({ "capabilities": { "resume": true } }), "declares `resume`"),
        ("openai-chat", json!({ "capabilities": { "callback": true } }), "declares `callback`"),
        ("openai-chat", json!({ "callback_secret": "S" }), "has a `callback_secret`"),
    ] {
        let ConfigError(message) =
            parse_providers(&json!([provider(dialect, members.clone())]).to_string()).unwrap_err();
        assert!(message.starts_with("PROVIDERS: `p` "), "{message}");
        assert!(message.contains(expected), "{members}: {message}");
    }
    let allowed = json!([provider("openai-chat", json!({ "capabilities": { "idempotency_key": true } }))]);
    assert!(parse_providers(&allowed.to_string()).is_ok());
}

/// Design 4.4: only the object takes a stream up again, and only where the provider has something to take up.
#[test]
fn background_is_for_the_object_and_for_a_dialect_that_has_it() {
    let providers =
        [read("openai-responses", json!({ "name": "responses" })), read("openai-chat", json!({ "name": "chat" }))];
    let errors = |provider: &str, owner: &str, background: bool| {
        let document = json!({ "routes": [{
            "name": "r", "provider": provider, "owner": owner, "background": background,
            "allow_override": false, "match": { "model": "m" }
        }] });
        let operator = Operator { providers: &providers, limits: &Limits::default(), reach: Reach::Public };
        lines(&read_config(&document.to_string(), &operator).errors)
    };
    assert_eq!(errors("responses", "object", true), [] as [&str; 0]);
    assert_eq!(errors("chat", "edge", false), [] as [&str; 0]);
    assert_eq!(
        errors("responses", "edge", true),
        [
            "routes[0].background | contradiction | true | owner `edge` cannot take the stream of a background operation up \
          again: `object` can"
        ]
    );
    assert_eq!(
        errors("chat", "object", true),
        ["routes[0].background | contradiction | true | dialect `openai-chat` of this provider has no background \
          operations"]
    );
}
