//! Any valid document: the schema and the types agree about it.

use super::world::{lines, read, read_text};
use holdfast_core::config::TenantConfig;
use proptest::collection::{btree_map, vec};
use proptest::prelude::*;
use proptest::sample::select;
use serde_json::{Map, Value, json};

/// Members of an object, each there or not.
fn members(parts: Vec<(&'static str, BoxedStrategy<Value>)>) -> impl Strategy<Value = Map<String, Value>> {
    let maybe = |(name, value): (&'static str, BoxedStrategy<Value>)| {
        proptest::option::of(value).prop_map(move |value| value.map(|value| (name.to_owned(), value)))
    };
    parts.into_iter().map(maybe).collect::<Vec<_>>().prop_map(|members| members.into_iter().flatten().collect())
}

fn number(from: u64, to: u64) -> BoxedStrategy<Value> {
    (from..=to).prop_map(Value::from).boxed()
}

fn word(words: &'static [&'static str]) -> BoxedStrategy<Value> {
    select(words).prop_map(Value::from).boxed()
}

fn flag() -> BoxedStrategy<Value> {
    any::<bool>().prop_map(Value::from).boxed()
}

fn object(parts: Vec<(&'static str, BoxedStrategy<Value>)>) -> BoxedStrategy<Value> {
    members(parts).prop_map(Value::Object).boxed()
}

fn route() -> impl Strategy<Value = Map<String, Value>> {
    let header = btree_map("x-[a-b]{1,2}", "[a-z]{0,3}", 0..3).prop_map(|header| json!(header)).boxed();
    let matches = object(vec![
        ("path", "/v1/[a-c]{1,3}".prop_map(Value::from).boxed()),
        ("model", word(&["gpt-*", "gpt-4", "*", "m"])),
        ("header", header),
        ("workload", word(&["chat", "batch", "agentic"])),
    ]);
    members(vec![
        ("match", matches),
        ("workload", word(&["chat", "batch", "agentic"])),
        ("on_disconnect", word(&["cancel", "detach", "auto"])),
        ("allow_override", flag()),
        ("grace_ms", number(0, 3_600_000)),
        ("max_output_tokens", number(1, 1_000_000_000)),
        ("include_usage", flag()),
        ("keep_partial", flag()),
        ("lease_ms", number(1_000, 3_600_000)),
        // Defaults for the total differ: these fit all.
        ("first_byte_ms", number(1, 600_000)),
        ("idle_ms", number(1, 600_000)),
        ("total_ms", number(600_000, 86_400_000)),
        ("observation_ms", number(0, 604_800_000)),
        ("watch_ms", number(1, 604_800_000)),
        ("expected_ms", number(1, 600_000)),
        (
            "on_expiry",
            object(vec![
                (
                    "credit",
                    word(&["quarantine", "reduce_hold", "expire_and_watch", "escalate", "release", "settle_estimate"]),
                ),
                ("slot", word(&["quarantine", "release"])),
            ]),
        ),
        ("on_interruption", word(&["fail", "quarantine"])),
        ("escalate_above_micros", number(0, (1 << 53) - 1)),
        ("retention_s", number(0, 31_536_000)),
        ("artifact", object(vec![("long", flag()), ("has_home", flag()), ("reproducible", flag())])),
        ("re_ask_prior_per_mille", number(0, 1_000)),
        ("user_minute_micros", number(0, (1 << 53) - 1)),
        ("concurrency", number(1, 100_000)),
    ])
}

fn document() -> impl Strategy<Value = Value> {
    let routes = vec(route(), 0..4).prop_map(|routes| {
        let named = routes.into_iter().enumerate().map(|(index, mut route)| {
            route.insert("name".into(), json!(format!("r{index}")));
            route.insert("provider".into(), json!("p"));
            Value::Object(route)
        });
        named.collect::<Value>()
    });
    let rest = members(vec![
        ("budget", number(0, (1 << 53) - 1).prop_map(|limit| json!({ "limit_micros": limit })).boxed()),
        ("concurrency", number(1, 100_000)),
        ("detached_max", number(0, 100_000)),
        ("allowed_origins", Just(json!(["https://app.example", "http://localhost:3000"])).boxed()),
        ("webhook", Just(json!({ "url": "https://app.example/hook", "events": ["generation.failed"] })).boxed()),
    ]);
    (routes, rest).prop_map(|(routes, mut rest)| {
        rest.insert("routes".into(), routes);
        Value::Object(rest)
    })
}

/// Where some value stands, and the value with it replaced.
fn replaced(document: &Value, pick: usize, by: &Value) -> Value {
    fn pointers(value: &Value, at: &str, found: &mut Vec<String>) {
        let mut member = |name: &str, value: &Value| {
            let at = format!("{at}/{name}");
            found.push(at.clone());
            pointers(value, &at, found);
        };
        match value {
            Value::Object(members) => members.iter().for_each(|(name, value)| member(name, value)),
            Value::Array(items) => items.iter().enumerate().for_each(|(n, value)| member(&n.to_string(), value)),
            _ => {}
        }
    }
    let mut found = Vec::new();
    pointers(document, "", &mut found);
    let mut changed = document.clone();
    *changed.pointer_mut(&found[pick % found.len()]).unwrap() = by.clone();
    changed
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::with_cases(200) })]

    /// A valid document is taken, is stored without loss, and means the same when it is read again.
    #[test]
    fn a_valid_document_round_trips(document in document()) {
        let reading = read(&document);
        prop_assert_eq!(lines(&reading.errors), Vec::<String>::new());
        let accepted = reading.accepted.unwrap();
        let stored: Value = serde_json::from_str(&accepted.document).unwrap();
        prop_assert_eq!(&stored, &document, "nothing is added, nothing is lost");
        prop_assert_eq!(read_text(&accepted.document).accepted, Some(accepted.clone()));
        prop_assert_eq!(&serde_json::from_value::<TenantConfig>(document).unwrap(), &accepted.config);
        let written = serde_json::to_value(&accepted.config).unwrap();
        let again = read(&written);
        prop_assert_eq!(again.accepted.map(|again| again.config), Some(accepted.config), "{:?}", again.errors);
    }

    /// What the schema lets pass, the types take; what the types refuse, the schema names.
    #[test]
    fn the_schema_is_as_strict_as_the_types(
        document in document(),
        pick in any::<usize>(),
        by in prop_oneof![
            Just(Value::Null), Just(json!(true)), Just(json!(-1)), Just(json!(1.5)), Just(json!(u64::MAX)), Just(json!("x")),
            Just(json!([])), Just(json!({})), Just(json!({ "x": 1 })), Just(json!([1, "x", null])),
        ],
    ) {
        let changed = replaced(&document, pick, &by);
        let reading = read(&changed);
        let typed = serde_json::from_value::<TenantConfig>(changed.clone());
        if typed.is_err() {
            prop_assert!(!reading.errors.is_empty(), "{}: {:?}", changed, typed);
        }
        if let Some(accepted) = reading.accepted {
            prop_assert_eq!(typed.ok(), Some(accepted.config));
        }
    }

    /// Any text has an answer.
    #[test]
    fn any_text_is_judged(text in "\\PC{0,40}") {
        let reading = read_text(&text);
        prop_assert_eq!(reading.accepted.is_some(), reading.errors.is_empty());
    }
}
