//! Comparing bodies without printing a hundred kilobytes.

/// Bytes shown on each side of the first difference.
const SHOWN_BYTES: usize = 100;

/// Says where two bodies begin to differ, or nothing if they are the same.
#[must_use]
pub fn difference(got: &[u8], expected: &[u8]) -> Option<String> {
    if got == expected {
        return None;
    }
    let alike = got.iter().zip(expected).take_while(|(got, expected)| got == expected).count();
    let around = |bytes: &[u8]| {
        let end = bytes.len().min(alike + SHOWN_BYTES);
        String::from_utf8_lossy(&bytes[alike.saturating_sub(SHOWN_BYTES)..end]).into_owned()
    };
    let lengths = format!("{} bytes for {}, alike as far as {alike}", got.len(), expected.len());
    Some(format!("{lengths}\n     got: {:?}\nexpected: {:?}", around(got), around(expected)))
}

/// Asserts that two bodies are the same: the one that came, then the one that had to come, then what they are.
#[macro_export]
macro_rules! assert_bytes {
    ($got:expr, $expected:expr) => {
        $crate::assert_bytes!($got, $expected, "bytes")
    };
    ($got:expr, $expected:expr, $($what:tt)+) => {{
        let (got, expected) = (&$got, &$expected);
        let difference = $crate::bytes::difference(AsRef::<[u8]>::as_ref(got), AsRef::<[u8]>::as_ref(expected));
        if let Some(difference) = difference {
            panic!("{}: {difference}", format_args!($($what)+));
        }
    }};
}
