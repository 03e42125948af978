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
}
