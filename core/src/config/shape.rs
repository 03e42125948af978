//! The form of a document, by the JSON Schema that is made from the types: every fault in one pass.
//!
//! Only the keywords that the schema of [`super::TenantConfig`] has are known here; a test sees to it that it has no
//! others.

use super::document::{Node, Place};
use super::fault::{FaultCode, Faults};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use serde_json::{Map, Value};

/// Members of an object, and entries of a list, that are looked at: more than any bound of the schema, so that what is
/// beyond it is refused for its number alone.
const LOOKED_AT_MAX: usize = 1_000;

/// References are followed so deep. The types have no cycles.
const DEPTH_MAX: u8 = 32;

/// The schema of a document.
#[derive(Debug)]
pub(super) struct Schema(Value);

/// One part of a schema, with what it refers to in place of references.
type Part<'s> = &'s Map<String, Value>;

impl Schema {
    pub(super) const fn new(schema: Value) -> Self {
        Self(schema)
    }

    /// Names every fault of form. Returns the document without them: faulty members that may be left out are left out,
    /// others have any value that their form allows; they are marked as unknown.
    pub(super) fn repaired(&self, document: &Node, faults: &mut Faults<'_>) -> Node {
        let Some(root) = self.0.as_object() else { return document.clone() };
        self.value(root, &Place::default(), document, faults).unwrap_or_else(|| self.any_of_form(root, DEPTH_MAX))
    }

    /// `None` when nothing of the value is of use.
    fn value(&self, part: Part<'_>, place: &Place, node: &Node, faults: &mut Faults<'_>) -> Option<Node> {
        let part = self.resolved(part, DEPTH_MAX);
        if matches!(node, Node::Null) && self.allows_null(part) {
            return Some(Node::Null);
        }
        let part = self.without_null(part);
        if let Some(words) = self.words(part) {
            return word(&words, place, node, faults);
        }
        match (kind(part), node) {
            (Some("object"), Node::Object(members)) => Some(self.object(part, place, members, faults)),
            (Some("array"), Node::List(items)) => Some(self.list(part, place, items, faults)),
            (Some("string"), Node::Text(text)) => {
                let length = text.chars().count();
                in_range(part, ["minLength", "maxLength"], as_number(length), " characters", place, faults)
                    .then(|| node.clone())
            }
            (Some("integer"), Node::Number(number)) if !number.is_f64() => {
                let value = number.as_u64().map_or_else(|| number.as_i64().map(i128::from), |value| Some(value.into()));
                in_range(part, ["minimum", "maximum"], value.unwrap_or(i128::MIN), "", place, faults)
                    .then(|| node.clone())
            }
            (Some("boolean"), Node::Bool(_)) | (None, _) => Some(node.clone()),
            (Some(wanted), _) => {
                let found = if matches!(node, Node::Number(_)) { "a number with a fraction" } else { node.kind() };
                let found = if wanted == "integer" { found } else { node.kind() };
                faults.form(place, FaultCode::WrongType, format!("must be {}, is {found}", in_words(wanted)));
                None
            }
        }
    }

    fn object(&self, part: Part<'_>, place: &Place, members: &[(String, Node)], faults: &mut Faults<'_>) -> Node {
        let none = Map::new();
        let properties = part.get("properties").and_then(Value::as_object).unwrap_or(&none);
        let further = part.get("additionalProperties").and_then(Value::as_object);
        in_range(part, ["minProperties", "maxProperties"], as_number(members.len()), " members", place, faults);
        let mut kept: Vec<(String, Node)> = Vec::new();
        // Of a document that is far too large the beginning is looked at: it is refused for its size.
        let mut seen: BTreeSet<&str> = BTreeSet::new();
        for (name, node) in members.iter().take(LOOKED_AT_MAX) {
            let at = place.member(name);
            if !seen.insert(name.as_str()) {
                faults.form(&at, FaultCode::Duplicate, "given twice".to_string());
                continue;
            }
            match properties.get(name).and_then(Value::as_object).or(further) {
                Some(member) => kept.extend(self.value(member, &at, node, faults).map(|node| (name.clone(), node))),
                None => unknown_member(properties, place, name, faults),
            }
        }
        let required = part.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        for name in required {
            if !seen.contains(name) {
                faults.form(&place.member(name), FaultCode::Missing, "missing".to_string());
            }
            if !kept.iter().any(|(found, _)| found == name) {
                let form = properties.get(name).and_then(Value::as_object);
                kept.extend(form.map(|form| (name.to_string(), self.any_of_form(form, DEPTH_MAX))));
            }
        }
        Node::Object(kept)
    }

    fn list(&self, part: Part<'_>, place: &Place, items: &[Node], faults: &mut Faults<'_>) -> Node {
        in_range(part, ["minItems", "maxItems"], as_number(items.len()), " entries", place, faults);
        let unique = part.get("uniqueItems").and_then(Value::as_bool).unwrap_or(false);
        let form = part.get("items").and_then(Value::as_object);
        let mut kept: Vec<Node> = Vec::new();
        for (index, item) in items.iter().enumerate().take(LOOKED_AT_MAX) {
            let at = place.item(index);
            if unique && items.iter().take(index).any(|earlier| earlier == item) {
                faults.form(&at, FaultCode::Duplicate, "given twice".to_string());
            }
            let Some(form) = form else { continue };
            // Places keep their numbers.
            kept.push(self.value(form, &at, item, faults).unwrap_or_else(|| self.any_of_form(form, DEPTH_MAX)));
        }
        Node::List(kept)
    }

    /// Some value of a form.
    fn any_of_form(&self, part: Part<'_>, depth: u8) -> Node {
        let part = self.resolved(part, DEPTH_MAX);
        if self.allows_null(part) || depth == 0 {
            return Node::Null;
        }
        if let Some(word) = self.words(part).and_then(|words| words.first().map(ToString::to_string)) {
            return Node::Text(word);
        }
        match kind(part) {
            Some("object") => Node::Object(self.required_members(part, depth)),
            Some("array") => Node::List(Vec::new()),
            Some("string") => Node::Text(String::new()),
            Some("boolean") => Node::Bool(false),
            _ => Node::Number(part.get("minimum").and_then(Value::as_u64).unwrap_or_default().into()),
        }
    }

    fn required_members(&self, part: Part<'_>, depth: u8) -> Vec<(String, Node)> {
        let required = part.get("required").and_then(Value::as_array).into_iter().flatten().filter_map(Value::as_str);
        let form = |name| part.get("properties").and_then(|all| all.get(name)).and_then(Value::as_object);
        let member = |(name, form): (&str, _)| (name.to_string(), self.any_of_form(form, depth.saturating_sub(1)));
        required.filter_map(|name| form(name).map(|form| (name, form))).map(member).collect()
    }

    /// What a reference stands for.
    fn resolved<'s>(&'s self, part: Part<'s>, depth: u8) -> Part<'s> {
        let target = part.get("$ref").and_then(Value::as_str).and_then(|path| path.strip_prefix('#'));
        let target = target.and_then(|pointer| self.0.pointer(pointer)).and_then(Value::as_object);
        match target {
            Some(target) if depth > 0 => self.resolved(target, depth.saturating_sub(1)),
            _ => part,
        }
    }

    fn alternatives<'s>(&'s self, part: Part<'s>) -> Vec<Part<'s>> {
        let alternatives = part.get("anyOf").or_else(|| part.get("oneOf")).and_then(Value::as_array);
        let alternatives = alternatives.into_iter().flatten().filter_map(Value::as_object);
        alternatives.map(|part| self.resolved(part, DEPTH_MAX)).collect()
    }

    fn allows_null(&self, part: Part<'_>) -> bool {
        let listed = part.get("type").and_then(Value::as_array).into_iter().flatten();
        let mut kinds = listed.filter_map(Value::as_str);
        kinds.any(|kind| kind == "null") || self.alternatives(part).into_iter().any(|part| kind(part) == Some("null"))
    }

    /// The one alternative that is not null; the part itself where there are none, or only words.
    fn without_null<'s>(&'s self, part: Part<'s>) -> Part<'s> {
        let mut alternatives = self.alternatives(part).into_iter().filter(|part| kind(part) != Some("null"));
        match (alternatives.next(), alternatives.next()) {
            (Some(one), None) => one,
            _ => part,
        }
    }

    /// The words that may stand here, where only some may.
    fn words<'s>(&'s self, part: Part<'s>) -> Option<Vec<&'s str>> {
        if let Some(words) = part.get("enum").and_then(Value::as_array) {
            return Some(words.iter().filter_map(Value::as_str).collect());
        }
        if let Some(word) = part.get("const").and_then(Value::as_str) {
            return Some(Vec::from([word]));
        }
        let alternatives = self.alternatives(part);
        let listed: Option<Vec<_>> = alternatives.iter().map(|part| self.words(part)).collect();
        listed.filter(|words| !words.is_empty()).map(|words| words.into_iter().flatten().collect())
    }
}

fn word(words: &[&str], place: &Place, node: &Node, faults: &mut Faults<'_>) -> Option<Node> {
    let code = match node {
        Node::Text(text) if words.contains(&text.as_str()) => return Some(node.clone()),
        Node::Text(_) => FaultCode::UnknownWord,
        _ => FaultCode::WrongType,
    };
    let listed: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    faults.form(place, code, format!("must be one of {}", listed.join(", ")));
    None
}

fn unknown_member(properties: &Map<String, Value>, place: &Place, name: &str, faults: &mut Faults<'_>) {
    // A unit that was left out, or a slip of the finger.
    let without_unit = |known: &&String| known.strip_prefix(name).is_some_and(|rest| rest.starts_with('_'));
    let likely = properties.keys().find(without_unit).map(|known| (0, known));
    let likely = likely.or_else(|| properties.keys().map(|known| (distance(known, name), known)).min());
    let likely = likely.filter(|(distance, known)| *distance <= 2 && *distance < known.len());
    let reason = match likely {
        Some((_, known)) => {
            // What was meant is not known, and what was not given is not the default either.
            faults.unknown(place.member(known));
            format!("there is no such member; `{known}` was meant?")
        }
        None => "there is no such member".to_string(),
    };
    faults.form(&place.member(name), FaultCode::UnknownMember, reason);
}

/// How many letters have to be added, removed or changed to come from one name to the other.
fn distance(a: &str, b: &str) -> usize {
    // No name is as long as that; a longer one is meant for nothing here.
    if b.len() > 64 {
        return usize::MAX;
    }
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (line, left) in a.bytes().enumerate() {
        let mut diagonal = line;
        let mut before = line.saturating_add(1);
        for (cell, right) in row.iter_mut().skip(1).zip(b.bytes()) {
            let changed = diagonal.saturating_add(usize::from(left != right));
            diagonal = *cell;
            before = changed.min(before.saturating_add(1)).min(cell.saturating_add(1));
            *cell = before;
        }
        if let Some(first) = row.first_mut() {
            *first = line.saturating_add(1);
        }
    }
    row.last().copied().unwrap_or(usize::MAX)
}

fn kind(part: Part<'_>) -> Option<&str> {
    match part.get("type") {
        Some(Value::String(kind)) => Some(kind),
        Some(Value::Array(kinds)) => kinds.iter().filter_map(Value::as_str).find(|kind| *kind != "null"),
        _ => None,
    }
}

fn in_words(kind: &str) -> &str {
    match kind {
        "object" => "an object",
        "array" => "a list",
        "string" => "a string",
        "integer" => "a whole number",
        "boolean" => "`true` or `false`",
        other => other,
    }
}

fn as_number(count: usize) -> i128 {
    i128::try_from(count).unwrap_or(i128::MAX)
}

fn in_range(
    part: Part<'_>,
    bounds: [&str; 2],
    value: i128,
    unit: &str,
    place: &Place,
    faults: &mut Faults<'_>,
) -> bool {
    let [low, high] = bounds.map(|name| part.get(name).and_then(Value::as_u64).map(i128::from));
    if low.is_none_or(|low| value >= low) && high.is_none_or(|high| value <= high) {
        return true;
    }
    let verb = if unit.is_empty() { "be" } else { "have" };
    let wanted = match (low, high) {
        (Some(low), Some(high)) if low > 0 || unit.is_empty() => format!("from {low} to {high}"),
        (_, Some(high)) => format!("at most {high}"),
        (low, None) => format!("at least {}", low.unwrap_or_default()),
    };
    faults.form(place, FaultCode::OutOfRange, format!("must {verb} {wanted}{unit}"));
    false
}

#[cfg(test)]
mod tests {
    use super::distance;

    #[test]
    fn distances() {
        for (a, b, expected) in [
            ("grace_ms", "grace_ms", 0),
            ("grace_ms", "grace", 3),
            ("grace_ms", "grase_ms", 1),
            ("total_ms", "totl_ms", 1),
            ("idle_ms", "idlee_mss", 2),
            ("abc", "", 3),
            ("", "abc", 3),
            ("kitten", "sitting", 3),
        ] {
            assert_eq!(distance(a, b), expected, "{a} {b}");
        }
    }
}
