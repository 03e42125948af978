//! The published JSON Schema.

use holdfast_core::config::{CONFIG_SCHEMA, generated_schema};
use serde_json::Value;

/// Design 11: generated from the Rust types and published. `HOLDFAST_WRITE_SCHEMA=1` writes it anew.
#[test]
fn the_published_schema_is_that_of_the_types() {
    let generated = generated_schema().unwrap();
    if std::env::var_os("HOLDFAST_WRITE_SCHEMA").is_some() {
        std::fs::write(concat!(env!("CARGO_MANIFEST_DIR"), "/../public/config.schema.json"), generated).unwrap();
        return;
    }
    assert!(
        CONFIG_SCHEMA == generated,
        "public/config.schema.json is not that of the types: HOLDFAST_WRITE_SCHEMA=1 cargo test -p holdfast-core --test config"
    );
}

/// The validator knows these keywords and no others: a new one would be published and not checked.
#[test]
fn the_schema_has_only_keywords_that_are_checked() {
    fn walk(schema: &Value, found: &mut Vec<String>) {
        let Some(members) = schema.as_object() else { return };
        for (keyword, value) in members {
            found.push(keyword.clone());
            match keyword.as_str() {
                "properties" | "$defs" => value.as_object().unwrap().values().for_each(|part| walk(part, found)),
                "anyOf" | "oneOf" => value.as_array().unwrap().iter().for_each(|part| walk(part, found)),
                "items" | "additionalProperties" => walk(value, found),
                _ => {}
            }
        }
    }
    let mut found = Vec::new();
    walk(&serde_json::from_str(CONFIG_SCHEMA).unwrap(), &mut found);
    found.sort();
    found.dedup();
    let checked = [
        "$ref",
        "additionalProperties",
        "anyOf",
        "const",
        "enum",
        "items",
        "maxItems",
        "maxLength",
        "maxProperties",
        "maximum",
        "minItems",
        "minLength",
        "minimum",
        "oneOf",
        "properties",
        "required",
        "type",
        "uniqueItems",
    ];
    let told = ["$defs", "$schema", "default", "description", "title"];
    found.retain(|keyword| !checked.contains(&keyword.as_str()) && !told.contains(&keyword.as_str()));
    assert_eq!(found, Vec::<String>::new());
}
