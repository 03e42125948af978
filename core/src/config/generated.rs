//! The JSON Schema of a tenant's document, made from the types. Only for the published file and its test.

use super::TenantConfig;
use alloc::format;
use alloc::string::String;
use schemars::generate::SchemaSettings;
use serde_json::{Map, Value};

/// The text of the published schema: JSON Schema 2020-12.
///
/// # Errors
/// When it cannot be written as JSON.
pub fn generated_schema() -> Result<String, serde_json::Error> {
    let schema = SchemaSettings::draft2020_12().into_generator().into_root_schema_for::<TenantConfig>();
    let mut schema = Value::from(schema);
    tidy(&mut schema);
    serde_json::to_string_pretty(&schema).map(|text| format!("{text}\n"))
}

/// Takes out what says nothing: the widths of Rust's integers, and defaults that stand for "absent".
fn tidy(value: &mut Value) {
    match value {
        Value::Object(members) => {
            tidy_members(members);
            members.values_mut().for_each(tidy);
        }
        Value::Array(items) => items.iter_mut().for_each(tidy),
        _ => {}
    }
}

fn tidy_members(members: &mut Map<String, Value>) {
    // A property may have any name; a keyword is told by its value.
    if members.get("format").is_some_and(Value::is_string) {
        members.remove("format");
    }
    if members.get("default").is_some_and(Value::is_null) {
        members.remove("default");
    }
    // Descriptions are sentences of doc comments: their line ends are the source's.
    if let Some(Value::String(text)) = members.get_mut("description") {
        *text = text.replace("\n\n", "\u{0}").replace('\n', " ").replace('\u{0}', "\n\n");
    }
}
