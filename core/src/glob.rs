//! Globs over model names.

/// Whether `text` matches `glob`, where `*` stands for any run of characters (also none).
#[must_use]
pub fn glob_matches(glob: &str, text: &str) -> bool {
    let Some((head, rest)) = glob.split_once('*') else { return glob == text };
    let Some(mut remaining) = text.strip_prefix(head) else { return false };
    let mut pieces = rest.split('*').peekable();
    while let Some(piece) = pieces.next() {
        if pieces.peek().is_none() {
            return remaining.ends_with(piece);
        }
        let Some((_, after)) = remaining.split_once(piece) else { return false };
        remaining = after;
    }
    true
}

/// Whether some text matches both globs.
#[must_use]
pub fn globs_meet(a: &str, b: &str) -> bool {
    match (outer_pieces(a), outer_pieces(b)) {
        (None, _) => glob_matches(b, a),
        (_, None) => glob_matches(a, b),
        // What lies between can follow each other: only the ends can be at odds.
        (Some((a_head, a_tail)), Some((b_head, b_tail))) => {
            let heads = a_head.starts_with(b_head) || b_head.starts_with(a_head);
            heads && (a_tail.ends_with(b_tail) || b_tail.ends_with(a_tail))
        }
    }
}

/// What stands before the first star and after the last.
fn outer_pieces(glob: &str) -> Option<(&str, &str)> {
    let (head, _) = glob.split_once('*')?;
    let (_, tail) = glob.rsplit_once('*')?;
    Some((head, tail))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn globs() {
        for (glob, text, expected) in [
            ("gpt-4", "gpt-4", true),
            ("gpt-4", "gpt-4o", false),
            ("gpt-*", "gpt-4o", true),
            ("gpt-*", "xgpt-4o", false),
            ("*", "", true),
            ("*-mini", "gpt-4o-mini", true),
            ("*-mini", "gpt-4o-mini-x", false),
            ("a*b*c", "a__b__c", true),
            ("a*b*c", "a__c__b", false),
            ("a**c", "abc", true),
            ("a*a", "a", false),
            ("a*bc*bc", "abc", false),
        ] {
            assert_eq!(glob_matches(glob, text), expected, "{glob} ~ {text}");
        }
    }

    /// A glob that matches another's text, stars as plain letters, matches all that the other matches: its own letters
    /// never match a star.
    #[test]
    fn a_glob_covers_another() {
        for (glob, other, expected) in [
            ("*", "*", true),
            ("*", "gpt-*", true),
            ("gpt-*", "gpt-4*", true),
            ("gpt-*", "*", false),
            ("gpt-4*", "gpt-*", false),
            ("*-mini", "gpt-*-mini", true),
            ("a*c", "a*b*c", true),
            ("a*b*c", "a*c", false),
        ] {
            assert_eq!(glob_matches(glob, other), expected, "{glob} over {other}");
        }
    }

    #[test]
    fn globs_that_meet() {
        for (a, b, expected) in [
            ("gpt-4", "gpt-4", true),
            ("gpt-4", "gpt-*", true),
            ("gpt-4", "o*", false),
            ("gpt-*", "*-mini", true),
            ("gpt-*", "gpt-4*", true),
            ("gpt-*", "o*", false),
            ("*-mini", "*-nano", false),
            ("a*b", "a*c*b", true),
        ] {
            assert_eq!((globs_meet(a, b), globs_meet(b, a)), (expected, expected), "{a} and {b}");
        }
    }
}
