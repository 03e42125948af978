//! Versions of a document, and who may put the next one.

use super::world::{read_text, with_route};
use holdfast_core::config::{Accepted, Condition, ConfigVersion, put};
use holdfast_core::refusal::Refusal;
use holdfast_core::time::UnixMillis;
use serde_json::json;

fn accepted(text: &str) -> Accepted {
    read_text(text).accepted.unwrap()
}

fn document(concurrency: u32) -> Accepted {
    accepted(&json!({ "concurrency": concurrency }).to_string())
}

const NOW: UnixMillis = UnixMillis(1_000);

#[test]
fn the_tag_is_of_what_was_written_and_not_of_how() {
    let one = accepted(r#"{ "concurrency" : 3, "budget": {"period":"day","limit_micros":9} }"#);
    let same = accepted(r#"{"budget":{"limit_micros":9,"period":"day"},"concurrency":3}"#);
    assert_eq!(one.document, r#"{"budget":{"limit_micros":9,"period":"day"},"concurrency":3}"#);
    assert_eq!((&one.document, &one.etag), (&same.document, &same.etag));
    assert_eq!(one.config, same.config);
    let (quote, hex) = (one.etag.trim_matches('"').len(), one.etag.len());
    assert_eq!((quote, hex), (32, 34), "{}", one.etag);
    assert_ne!(document(3).etag, document(4).etag);
    // What is left out stays left out: a later version's presets apply.
    let short = accepted(&with_route(json!({})).to_string());
    assert!(!short.document.contains("lease_ms"), "{}", short.document);
}

fn if_match(tags: &str) -> Condition {
    Condition::IfMatch { tags: Some(tags.into()) }
}

const WITHOUT: Condition = Condition::IfMatch { tags: None };

fn first() -> ConfigVersion {
    put(&ConfigVersion::none(NOW), &WITHOUT, &document(1), NOW).unwrap()
}

#[test]
fn preconditions() {
    let (none, first) = (ConfigVersion::none(NOW), first());
    assert_eq!((first.version, first.at, &first.etag), (1, NOW, &document(1).etag));
    assert_eq!((none.version, none.document.as_str()), (0, "{}"));
    let tag = first.etag.as_str();
    let listed = format!("\"other\", {tag}");
    let weak = format!("W/{tag}");
    let bare = tag.trim_matches('"');
    for (current, condition, expected) in [
        (&none, WITHOUT, Ok(1)),
        (&none, if_match("*"), Ok(1)),
        (&none, if_match(&none.etag), Ok(1)),
        (&none, if_match(tag), Err(Refusal::PreconditionFailed)),
        (&first, WITHOUT, Err(Refusal::PreconditionRequired)),
        (&first, if_match("\"other\""), Err(Refusal::PreconditionFailed)),
        (&first, if_match(""), Err(Refusal::PreconditionFailed)),
        (&first, if_match(&none.etag), Err(Refusal::PreconditionFailed)),
        (&first, if_match(&weak), Err(Refusal::PreconditionFailed)),
        (&first, if_match(bare), Err(Refusal::PreconditionFailed)),
        (&first, if_match(tag), Ok(2)),
        (&first, if_match(&listed), Ok(2)),
        (&first, if_match("*"), Ok(2)),
        (&first, Condition::Always, Ok(2)),
    ] {
        let put = put(current, &condition, &document(2), NOW.plus(5));
        assert_eq!(put.map(|version| version.version), expected, "{condition:?} at {}", current.version);
    }
}

/// Of two writers who read the same version one wins; the other is told, and its document changes nothing.
#[test]
fn two_writers() {
    let first = first();
    let second = put(&first, &if_match(&first.etag), &document(2), NOW.plus(1)).unwrap();
    let lost = put(&second, &if_match(&first.etag), &document(3), NOW.plus(2));
    assert_eq!(lost, Err(Refusal::PreconditionFailed));
    let again = put(&second, &if_match(&second.etag), &document(3), NOW.plus(3)).unwrap();
    assert_eq!((again.version, again.at), (3, NOW.plus(3)));
}

/// Invariant 8, for a put whose answer was lost: the repeat finds its own document and makes no version.
#[test]
fn a_repeated_put_makes_no_version() {
    let first = first();
    let second = put(&first, &if_match(&first.etag), &document(2), NOW.plus(1)).unwrap();
    assert_eq!(put(&second, &if_match(&first.etag), &document(2), NOW.plus(2)), Ok(second.clone()));
    assert_eq!(put(&second, &Condition::Always, &document(2), NOW.plus(2)), Ok(second.clone()));
    assert_eq!(put(&second, &WITHOUT, &document(2), NOW), Err(Refusal::PreconditionRequired));
    let back = put(&second, &if_match(&second.etag), &document(1), NOW.plus(3)).unwrap();
    assert_eq!((back.version, &back.etag), (3, &first.etag), "an old document is a new version");
    let stored: ConfigVersion = serde_json::from_str(&serde_json::to_string(&back).unwrap()).unwrap();
    assert_eq!(stored, back);
    let empty = put(&ConfigVersion::none(NOW), &WITHOUT, &accepted("{}"), NOW.plus(1)).unwrap();
    assert_eq!((empty.version, empty.at), (1, NOW.plus(1)), "an empty document is one too");
}
