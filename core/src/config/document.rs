//! A JSON document as it was written: members in their order, repeated ones too, so that a fault can be named where it is.

use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use serde::de::{Deserialize, Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::{Map, Number, Value};

/// Longest text that is repeated in a fault, in characters.
const SHOWN_MAX_CHARS: usize = 120;

/// One JSON value.
#[derive(Clone, Debug, PartialEq)]
pub(super) enum Node {
    Null,
    Bool(bool),
    Number(Number),
    Text(String),
    List(Vec<Self>),
    Object(Vec<(String, Self)>),
}

impl Node {
    /// The first member of a name.
    pub(super) fn member(&self, name: &str) -> Option<&Self> {
        match self {
            Self::Object(members) => members.iter().find(|(found, _)| found == name).map(|(_, value)| value),
            _ => None,
        }
    }

    /// What stands at a place.
    pub(super) fn at(&self, place: &Place) -> Option<&Self> {
        place.0.iter().try_fold(self, |node, step| match (step, node) {
            (Step::Member(name), node) => node.member(name),
            (Step::Index(index), Self::List(items)) => items.get(*index),
            (Step::Index(_), _) => None,
        })
    }

    /// What kind of value it is, in words.
    pub(super) const fn kind(&self) -> &'static str {
        match self {
            Self::Null => "null",
            Self::Bool(_) => "a boolean",
            Self::Number(_) => "a number",
            Self::Text(_) => "a string",
            Self::List(_) => "a list",
            Self::Object(_) => "an object",
        }
    }

    /// What a fault shows of it: texts are cut, objects and lists are left out.
    pub(super) fn shown(&self) -> Option<Value> {
        match self {
            Self::Null => Some(Value::Null),
            Self::Bool(value) => Some(Value::Bool(*value)),
            Self::Number(number) => Some(Value::Number(number.clone())),
            Self::Text(text) => Some(Value::String(cut(text))),
            Self::List(_) | Self::Object(_) => None,
        }
    }

    /// The value with members sorted by name; of repeated members the first.
    pub(super) fn into_value(self) -> Value {
        match self {
            Self::Null => Value::Null,
            Self::Bool(value) => Value::Bool(value),
            Self::Number(number) => Value::Number(number),
            Self::Text(text) => Value::String(text),
            Self::List(items) => Value::Array(items.into_iter().map(Self::into_value).collect()),
            Self::Object(mut members) => {
                members.sort_by(|(a, _), (b, _)| a.cmp(b));
                let mut sorted = Map::new();
                for (name, value) in members {
                    sorted.entry(name).or_insert_with(|| value.into_value());
                }
                Value::Object(sorted)
            }
        }
    }
}

fn cut(text: &str) -> String {
    match text.char_indices().nth(SHOWN_MAX_CHARS) {
        Some((end, _)) => format!("{}…", text.get(..end).unwrap_or_default()),
        None => text.to_string(),
    }
}

impl<'de> Deserialize<'de> for Node {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        struct AsWritten;

        impl<'de> Visitor<'de> for AsWritten {
            type Value = Node;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("JSON")
            }

            fn visit_unit<E>(self) -> Result<Node, E> {
                Ok(Node::Null)
            }

            fn visit_bool<E>(self, value: bool) -> Result<Node, E> {
                Ok(Node::Bool(value))
            }

            fn visit_u64<E>(self, value: u64) -> Result<Node, E> {
                Ok(Node::Number(value.into()))
            }

            fn visit_i64<E>(self, value: i64) -> Result<Node, E> {
                Ok(Node::Number(value.into()))
            }

            fn visit_f64<E>(self, value: f64) -> Result<Node, E> {
                Ok(Number::from_f64(value).map_or(Node::Null, Node::Number))
            }

            fn visit_str<E>(self, text: &str) -> Result<Node, E> {
                Ok(Node::Text(text.to_string()))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut seq: A) -> Result<Node, A::Error> {
                let mut items = Vec::new();
                while let Some(item) = seq.next_element()? {
                    items.push(item);
                }
                Ok(Node::List(items))
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Node, A::Error> {
                let mut members = Vec::new();
                while let Some(member) = map.next_entry()? {
                    members.push(member);
                }
                Ok(Node::Object(members))
            }
        }

        deserializer.deserialize_any(AsWritten)
    }
}

/// Where something stands in a document. Written as `routes[2].match.header["x-workload"]`; the whole is `$`.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Place(Vec<Step>);

#[derive(Clone, Debug, PartialEq, Eq)]
enum Step {
    Member(String),
    Index(usize),
}

impl Place {
    /// A member of what stands here.
    pub(super) fn member(&self, name: &str) -> Self {
        self.step(Step::Member(name.to_string()))
    }

    /// A member of a member.
    pub(super) fn members<const N: usize>(&self, names: [&str; N]) -> [Self; N] {
        names.map(|name| self.member(name))
    }

    /// An item of the list that stands here.
    pub(super) fn item(&self, index: usize) -> Self {
        self.step(Step::Index(index))
    }

    fn step(&self, step: Step) -> Self {
        let mut steps = self.0.clone();
        steps.push(step);
        Self(steps)
    }

    /// Whether one of the two lies within the other.
    pub(super) fn overlaps(&self, other: &Self) -> bool {
        self.0.iter().zip(&other.0).all(|(a, b)| a == b)
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.0.is_empty() {
            return f.write_str("$");
        }
        for (nth, step) in self.0.iter().enumerate() {
            match step {
                Step::Index(index) => write!(f, "[{index}]")?,
                Step::Member(name) if !is_word(name) => write!(f, "[{}]", Value::from(cut(name)))?,
                Step::Member(name) if nth == 0 => f.write_str(name)?,
                Step::Member(name) => write!(f, ".{name}")?,
            }
        }
        Ok(())
    }
}

/// Whether a name needs no quotes in a path.
fn is_word(name: &str) -> bool {
    let starts = name.bytes().next().is_some_and(|byte| byte.is_ascii_alphabetic() || byte == b'_');
    starts && name.len() <= SHOWN_MAX_CHARS && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_')
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(json: &str) -> Node {
        serde_json::from_str(json).unwrap()
    }

    #[test]
    fn repeated_members_are_kept_and_the_first_counts() {
        let node = parse(r#"{"b":1,"a":[null,true,-2,1.5,"x"],"b":2}"#);
        assert!(matches!(&node, Node::Object(members) if members.len() == 3));
        assert_eq!(node.member("b"), Some(&Node::Number(1.into())));
        assert_eq!(node.into_value().to_string(), r#"{"a":[null,true,-2,1.5,"x"],"b":1}"#);
    }

    #[test]
    fn places_are_written_and_found() {
        let node = parse(r#"{"routes":[{},{"match":{"header":{"x-a":"v"}}}]}"#);
        let route = Place::default().member("routes").item(1);
        let header = route.member("match").member("header").member("x-a");
        assert_eq!(header.to_string(), r#"routes[1].match.header["x-a"]"#);
        assert_eq!(node.at(&header), Some(&Node::Text("v".into())));
        assert_eq!(node.at(&route.item(0)), None);
        assert_eq!(Place::default().to_string(), "$");
        assert!(route.overlaps(&header) && header.overlaps(&route));
        assert!(!header.overlaps(&route.member("name")));
    }

    #[test]
    fn long_values_are_cut() {
        let long = Node::Text("é".repeat(500));
        assert_eq!(long.shown().unwrap().as_str().unwrap().chars().count(), 121);
        assert_eq!(parse("[1]").shown(), None);
    }
}
