//! Embeddings: one document, whose vectors depend on nothing.

use serde_json::{Value, json};

use super::{Events, whole};
use crate::behaviour::Behaviour;

const VECTOR: [f32; 4] = [0.25, -0.5, 0.125, 1.0];
/// The same as little-endian floats in Base64.
const VECTOR_BASE64: &str = "AACAPgAAAL8AAAA+AACAPw==";

/// A list with one embedding.
pub(crate) fn list(behaviour: &Behaviour, base64: bool) -> Events {
    let vector: Value = if base64 { VECTOR_BASE64.into() } else { VECTOR.to_vec().into() };
    let mut answer = json!({
        "object": "list",
        "data": [{"object": "embedding", "index": 0, "embedding": vector}],
        "model": behaviour.name,
    });
    if behaviour.usage {
        answer["usage"] = json!({"prompt_tokens": behaviour.prompt_tokens, "total_tokens": behaviour.prompt_tokens});
    }
    whole(&answer)
}
