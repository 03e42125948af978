//! Base64url without padding (RFC 4648, 5), strict: each byte string has exactly one text.

use alloc::string::String;
use alloc::vec::Vec;

const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";

/// The text of `bytes`.
pub(super) fn encode(bytes: &[u8]) -> String {
    let mut text = String::with_capacity(bytes.len().div_ceil(3).saturating_mul(4));
    for group in bytes.chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, at| (bits << 8) | u32::from(group.get(at).copied().unwrap_or(0)));
        // One byte takes two digits, two take three, three take four.
        for shift in [18, 12, 6, 0].into_iter().take(group.len().saturating_add(1)) {
            let digit = usize::try_from((bits >> shift) & 63).ok().and_then(|index| ALPHABET.get(index));
            text.extend(digit.map(|digit| char::from(*digit)));
        }
    }
    text
}

/// The bytes of `text`; `None` for padding, spaces, strange letters, an impossible length, or bits beyond the last byte.
pub(super) fn decode(text: &str) -> Option<Vec<u8>> {
    let mut bytes = Vec::with_capacity(text.len());
    for group in text.as_bytes().chunks(4) {
        let bits = group.iter().try_fold(0_u32, |bits, letter| Some((bits << 6) | digit(*letter)?))?;
        // The bits of the group, moved to the left end of 24.
        let (bits, length) = match group.len() {
            4 => (bits, 3),
            3 => (bits << 6, 2),
            2 => (bits << 12, 1),
            _ => return None,
        };
        let [_, whole @ ..] = bits.to_be_bytes();
        let (taken, beyond) = whole.split_at_checked(length)?;
        if beyond.iter().any(|byte| *byte != 0) {
            return None;
        }
        bytes.extend_from_slice(taken);
    }
    Some(bytes)
}

fn digit(letter: u8) -> Option<u32> {
    let value = match letter {
        b'A'..=b'Z' => letter.checked_sub(b'A')?,
        b'a'..=b'z' => letter.checked_sub(b'a')?.checked_add(26)?,
        b'0'..=b'9' => letter.checked_sub(b'0')?.checked_add(52)?,
        b'-' => 62,
        b'_' => 63,
        _ => return None,
    };
    Some(u32::from(value))
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// RFC 4648, section 10, without the padding; and the two letters in which the alphabets differ.
    #[test]
    fn the_vectors_of_the_rfc() {
        for (bytes, text) in [
            (&b""[..], ""),
            (b"f", "Zg"),
            (b"fo", "Zm8"),
            (b"foo", "Zm9v"),
            (b"foob", "Zm9vYg"),
            (b"fooba", "Zm9vYmE"),
            (b"foobar", "Zm9vYmFy"),
            (b"\xfb\xff\xbf", "-_-_"),
        ] {
            assert_eq!(encode(bytes), text);
            assert_eq!(decode(text).as_deref(), Some(bytes), "{text}");
        }
    }

    #[test]
    fn a_second_spelling_is_none() {
        for bad in ["Z", "Zg==", "Zg=", "Zh", "Zm9", "Zm8=", "Zm 9v", "Zm9v\n", "+/+/", "Zm9vY", "Zmé"] {
            assert_eq!(decode(bad), None, "{bad:?}");
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

        #[test]
        fn bytes_come_back(bytes in proptest::collection::vec(any::<u8>(), 0..80)) {
            prop_assert_eq!(decode(&encode(&bytes)), Some(bytes));
        }

        #[test]
        fn what_decodes_is_the_one_text(text in "[A-Za-z0-9_-]{0,12}") {
            if let Some(bytes) = decode(&text) {
                prop_assert_eq!(encode(&bytes), text);
            }
        }
    }
}
