//! The members of a JSON object as they stand, and the strict reading of a few of them.

use super::RequestError;
use alloc::borrow::Cow;
use alloc::vec::Vec;
use core::fmt;
use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, Visitor};
use serde_json::value::RawValue;

/// The largest number that is understood: 2^53, above which JSON readers lose integers.
const INTEGER_MAX: u64 = 1 << 53;

/// Members of an object in their order, values as raw text, duplicates included.
#[derive(Debug, Clone, Default)]
pub(super) struct Members<'a>(Vec<(Cow<'a, str>, &'a RawValue)>);

impl<'a> Members<'a> {
    /// Values are skipped, not built: nesting costs neither stack nor memory.
    pub(super) fn read(text: &'a str) -> Result<Self, RequestError> {
        match serde_json::from_str(text) {
            Ok(members) => Ok(members),
            Err(error) if error.is_data() => Err(RequestError::NotAnObject),
            Err(_) => Err(RequestError::NotJson),
        }
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a RawValue> {
        self.0.iter().find(|(key, _)| key == name).map(|(_, raw)| *raw)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Refuses what readers would take differently: the name twice, or in another case.
    pub(super) fn refuse_doubt(&self, name: &'static str) -> Result<(), RequestError> {
        if self.0.iter().filter(|(key, _)| key == name).count() > 1 {
            return Err(RequestError::Duplicate(name));
        }
        let ambiguous = self.0.iter().any(|(key, _)| key != name && equals_without_case(key, name));
        if ambiguous { Err(RequestError::Ambiguous(name)) } else { Ok(()) }
    }
}

impl<'de> Deserialize<'de> for Members<'de> {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        #[derive(Deserialize)]
        struct Name<'a>(#[serde(borrow)] Cow<'a, str>);

        struct InOrder;

        impl<'de> Visitor<'de> for InOrder {
            type Value = Members<'de>;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("an object")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
                let mut members = Vec::new();
                while let Some((name, raw)) = map.next_entry::<Name<'de>, &'de RawValue>()? {
                    members.push((name.0, raw));
                }
                Ok(Members(members))
            }
        }

        deserializer.deserialize_map(InOrder)
    }
}

/// Whether a server that matches names without case could take `key` for `name`, which is ASCII.
fn equals_without_case(key: &str, name: &str) -> bool {
    key.chars().map(folded).eq(name.chars().map(folded))
}

/// Lower case where that is ASCII. Besides the capitals, four letters have an ASCII letter as a simple case partner; Go's
/// JSON decoder, for one, takes `ſ` for `s` and the Kelvin sign for `k`.
const fn folded(letter: char) -> char {
    match letter {
        '\u{017F}' => 's',
        '\u{212A}' => 'k',
        '\u{0130}' | '\u{0131}' => 'i',
        _ => letter.to_ascii_lowercase(),
    }
}

pub(super) fn is_null(raw: &RawValue) -> bool {
    raw.get() == "null"
}

pub(super) fn boolean(value: Option<&RawValue>, field: &'static str) -> Result<Option<bool>, RequestError> {
    match value.map(RawValue::get) {
        None | Some("null") => Ok(None),
        Some("true") => Ok(Some(true)),
        Some("false") => Ok(Some(false)),
        Some(_) => Err(RequestError::WrongType { field, expected: "a boolean" }),
    }
}

/// A positive integer, written as one.
pub(super) fn integer(value: Option<&RawValue>, field: &'static str) -> Result<Option<u64>, RequestError> {
    let Some(text) = value.map(RawValue::get).filter(|text| *text != "null") else {
        return Ok(None);
    };
    let digits = text.strip_prefix('-').unwrap_or(text);
    if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return Err(RequestError::WrongType { field, expected: "an integer" });
    }
    match text.parse::<u64>() {
        Ok(number) if (1..=INTEGER_MAX).contains(&number) => Ok(Some(number)),
        _ => Err(RequestError::OutOfRange(field)),
    }
}
