//! What counts as the same prompt.

use holdfast_core::economics::{Fingerprint, fingerprint};
use proptest::prelude::*;

const KEY: &[u8] = b"a tenant's key";

/// Sixty words.
const REPORT: &str = "Write an evidence summary for the annual audit of the purchasing department. List every invoice \
    above the approval limit, name the person who approved it, and compare the dates of order, delivery and payment. \
    Point out what is missing. Keep the tone neutral, cite the document behind each finding, and close with a table \
    of open questions for the meeting.";

fn of(text: &str) -> Fingerprint {
    fingerprint(KEY, text)
}

/// The similarity and the verdict, which must not depend on which of the two comes first.
fn compared(one: &str, other: &str) -> (u16, bool) {
    let (one, other) = (of(one), of(other));
    assert_eq!(one.similarity(&other), other.similarity(&one));
    assert_eq!(one.is_near_identical(&other), other.is_near_identical(&one));
    (one.similarity(&other).get(), one.is_near_identical(&other))
}

/// Seed 4: "two generations with near-identical prompts"; and "when it is asked for again the prompt has usually changed".
/// The comment of a row is the exact share of common shingles; the vectors pin its estimate.
#[test]
fn near_identical_prompts() {
    assert_eq!(REPORT.split_whitespace().count(), 60);
    let appended = format!("{REPORT} Please write it in German and keep it below three pages.");
    let doubled = format!("{REPORT} {REPORT}");
    let half = REPORT.split_at(REPORT.find("Point out").unwrap()).0;
    for (what, edited, similarity, near) in [
        ("the same prompt", REPORT.into(), 1_000, true),
        ("other case", REPORT.to_uppercase(), 1_000, true),
        ("other white space", REPORT.replace(' ', "\r\n\t  "), 1_000, true),
        ("no punctuation", REPORT.replace([',', '.'], ""), 1_000, true),
        ("one word changed", REPORT.replace("neutral", "friendly"), 906, true), // 59 of 65
        ("one number added", REPORT.replace("annual", "2026 annual"), 890, true), // 60 of 65
        ("the first word changed", REPORT.replacen("Write", "Draft", 1), 859, true), // 59 of 65
        ("a sentence appended", appended, 796, true),                           // 60 of 75
        ("the prompt twice", doubled, 984, true),                               // 62 of 64
        ("the first half", half.into(), 578, false),                            // 34 of 64
        ("the words in reverse", REPORT.split_whitespace().rev().collect::<Vec<_>>().join(" "), 0, false),
        ("an unrelated prompt", "Explain how a lock-free queue works, with an example in Rust.".into(), 0, false),
        ("nothing", String::new(), 0, false),
    ] {
        assert_eq!(compared(REPORT, &edited), (similarity, near), "{what}");
    }
}

/// In a short prompt each word carries the question. Given is the exact share of common shingles.
#[test]
fn short_prompts() {
    for (one, other, share, near) in [
        ("Summarise invoice 1041 for March", "summarise  invoice 1041 for march!", 1_000, true),
        ("Summarise invoice 1041 for March", "Summarise invoice 1042 for March", 400, false),
        ("What is 17 times 23?", "What is 17 times 24?", 400, false),
        // Eleven words, one of them another: 10 of 16.
        (
            "Tell me again what the result of 17 times 23 is",
            "Tell me again what the result of 17 times 24 is",
            625,
            false,
        ),
        ("Hi", "hi!", 1_000, true),
        ("Hi", "Hello", 0, false),
        ("Thank you", "Thank you", 1_000, true),
        ("Thank you", "you thank", 0, false),
        // No spaces in these scripts: each letter is a word.
        ("\u{6771}\u{4eac}\u{306e}\u{5929}\u{6c17}", "\u{6771}\u{4eac}\u{306e}\u{5929}\u{6c17}\u{ff1f}", 1_000, true),
        ("\u{6771}\u{4eac}\u{306e}\u{5929}\u{6c17}", "\u{5927}\u{962a}\u{306e}\u{5929}\u{6c17}", 272, false),
        // Nothing to compare: equal, and yet no repetition.
        ("", "", 1_000, false),
        ("?!", " \n", 1_000, false),
        ("\u{1f642}", "\u{1f642}", 1_000, false),
    ] {
        let (estimate, verdict) = compared(one, other);
        assert_eq!(verdict, near, "{one} / {other}: {estimate}");
        let exact = (share == 0 || share == 1_000).then_some(share);
        assert!(exact.map_or(estimate.abs_diff(share) < 125, |exact| estimate == exact), "{one} / {other}: {estimate}");
    }
}

/// The limit itself: 45 of 64 minima are 703 per mille, 44 are 687.
#[test]
fn limit_of_near_identity() {
    let stored = String::from(of(REPORT));
    for (differing, similarity, near) in [(0, 1_000, true), (19, 703, true), (20, 687, false), (64, 0, false)] {
        // The lowest bit of a minimum is in the last digit of its eight.
        let edited: String = stored
            .char_indices()
            .map(|(at, digit)| if at % 8 == 7 && at / 8 < differing { flipped(digit) } else { digit })
            .collect();
        let edited = Fingerprint::try_from(edited).unwrap();
        assert_eq!(of(REPORT).similarity(&edited).get(), similarity, "{differing}");
        assert_eq!(of(REPORT).is_near_identical(&edited), near, "{differing}");
    }
}

fn flipped(digit: char) -> char {
    char::from_digit(digit.to_digit(16).unwrap() ^ 1, 16).unwrap()
}

/// Another key is another family of functions: two signatures of one prompt have nothing in common, so a guess at the
/// prompt cannot be tried without the key.
#[test]
fn signatures_tell_nothing_without_the_key() {
    for other in [&b"another tenant's key"[..], b"", b"a tenant's kez", &[0; 200]] {
        assert_eq!(of(REPORT).similarity(&fingerprint(other, REPORT)).get(), 0, "{other:?}");
    }
}

#[test]
fn stored_form() {
    let stored = serde_json::to_string(&of("Hi")).unwrap();
    assert_eq!(stored.len(), 2 + 512);
    // Computed apart from this code.
    assert!(stored.starts_with("\"17fcebb8c49073e63471f1dac6264ad0561f9b5d"), "{stored}");
    assert_eq!(serde_json::from_str::<Fingerprint>(&stored).unwrap(), of("hi"));
    let digits = "0".repeat(512);
    assert!(Fingerprint::try_from(digits.clone()).is_ok());
    for bad in [
        String::new(),
        "0".repeat(511),
        "0".repeat(513),
        "0".repeat(520),
        digits.replacen('0', "A", 1),
        digits.replacen('0', "g", 1),
        digits.replacen("00", "\u{e9}", 1),
    ] {
        assert!(Fingerprint::try_from(bad.clone()).is_err(), "{bad}");
    }
}

fn words_with_blanks(words: &[String]) -> Vec<String> {
    let blanks = [String::new(), String::new()];
    [&blanks[..], words, &blanks].concat()
}

fn prompt() -> impl Strategy<Value = Vec<String>> {
    proptest::collection::vec("[a-z0-9\u{e0}-\u{f6}]{1,8}", 0..60)
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn similarity_is_symmetric_and_whole_for_equals(one in ".{0,80}", other in ".{0,80}") {
        prop_assert_eq!(of(&one).similarity(&of(&one)).get(), 1_000);
        prop_assert_eq!(of(&one).similarity(&of(&other)), of(&other).similarity(&of(&one)));
        let stored = serde_json::to_string(&of(&one)).unwrap();
        prop_assert_eq!(serde_json::from_str::<Fingerprint>(&stored).unwrap(), of(&one));
    }

    /// Only the words and their order count.
    #[test]
    fn case_space_and_punctuation_do_not_count(words in prompt(), separators in proptest::collection::vec("[ \t\r\n.,;:!?()-]{1,3}", 60)) {
        let plain = words.join(" ");
        let dressed: String = words.iter().zip(&separators).map(|(word, separator)| word.to_uppercase() + separator).collect();
        prop_assert_eq!(of(&plain), of(&dressed));
    }

    /// The estimate is near the exact share of common shingles: four standard errors and a half at most.
    #[test]
    fn similarity_estimates_the_common_share(words in prompt(), cut in 0_usize..60) {
        let kept = &words[..cut.min(words.len())];
        let shingles = |words: &[String]| {
            words_with_blanks(words).windows(3).map(<[String]>::to_vec).collect::<std::collections::BTreeSet<_>>()
        };
        let (whole, part) = (shingles(&words), shingles(kept));
        let all = whole.union(&part).count();
        prop_assume!(all > 0 && !kept.is_empty());
        let exact = 1_000 * whole.intersection(&part).count() / all;
        let estimate = usize::from(of(&words.join(" ")).similarity(&of(&kept.join(" "))).get());
        prop_assert!(exact.abs_diff(estimate) <= 280, "{exact} and {estimate}");
    }
}
