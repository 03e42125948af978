//! The operator's tables that documents are checked against.

use holdfast_core::config::{ConfigFault, Limits, Operator, Provider, Reading, parse_providers, read_config};
use holdfast_core::webhook::Reach;
use serde_json::{Value, json};

/// `p` has prices for `gpt-*` and `m`, one micro-USD per token; `bare` has none; the others, named by what they speak, have
/// one for `m`.
pub(crate) fn providers() -> Vec<Provider> {
    parse_providers(
        r#"[{"name":"p","origin":"https://p.example","dialect":"openai-chat","secret":"K","prices":{"version":"v1","models":[
                {"model":"gpt-*","input_micros_per_million":1000000,"output_micros_per_million":1000000},
                {"model":"m","input_micros_per_million":1000000,"output_micros_per_million":1000000}]}},
            {"name":"bare","origin":"https://b.example","dialect":"openai-chat","secret":"K"},
            {"name":"responses","origin":"https://p.example","dialect":"openai-responses","secret":"K","prices":{"version":"v1","models":[
                {"model":"m","input_micros_per_million":1000000,"output_micros_per_million":1000000}]}},
            {"name":"messages","origin":"https://m.example","dialect":"anthropic-messages","secret":"K","prices":{"version":"v1","models":[
                {"model":"m","input_micros_per_million":1000000,"output_micros_per_million":1000000}]}},
            {"name":"opaque","origin":"https://o.example","dialect":"opaque","secret":"K","prices":{"version":"v1","models":[
                {"model":"m","input_micros_per_million":1000000,"output_micros_per_million":1000000}]}}]"#,
    )
    .unwrap()
}

pub(crate) fn read(document: &Value) -> Reading {
    read_text(&document.to_string())
}

pub(crate) fn read_text(text: &str) -> Reading {
    let limits = Limits { body_max_bytes: 1_000, ..Limits::default() };
    read_config(text, &Operator { providers: &providers(), limits: &limits, reach: Reach::Public })
}

/// A route without any fault, with some members in place of others.
pub(crate) fn route(name: &str, members: Value) -> Value {
    let mut route = json!({ "name": name, "provider": "p", "match": { "model": "gpt-*" } });
    for (name, value) in members.as_object().unwrap() {
        route[name] = value.clone();
    }
    route
}

/// A document with one such route.
pub(crate) fn with_route(members: Value) -> Value {
    json!({ "routes": [route("r", members)] })
}

/// `path | code | value | reason` of each.
pub(crate) fn lines(faults: &[ConfigFault]) -> Vec<String> {
    let line = |fault: &ConfigFault| {
        let code = serde_json::to_value(fault.code).unwrap();
        let value = fault.value.as_ref().map_or_else(String::new, Value::to_string);
        format!("{} | {} | {value} | {}", fault.path, code.as_str().unwrap(), fault.reason)
    };
    faults.iter().map(line).collect()
}
