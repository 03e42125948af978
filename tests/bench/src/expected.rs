//! The body that every answer must have, but for the digits of its stamps.

use std::path::Path;

const DIGITS: usize = 16;
const PLACEHOLDER: &[u8] = b"t0000000000000000";
const DONE: &[u8] = b"data: [DONE]\n\n";

/// An expected body.
#[derive(Debug)]
pub(crate) struct Expected {
    bytes: Vec<u8>,
    /// Where the digits of each stamp start.
    stamps: Vec<usize>,
}

impl Expected {
    /// Reads the body from a file.
    pub(crate) fn read(path: &Path) -> Result<Self, String> {
        let bytes = std::fs::read(path).map_err(|error| format!("{}: {error}", path.display()))?;
        Self::new(bytes)
    }

    fn new(bytes: Vec<u8>) -> Result<Self, String> {
        if !bytes.ends_with(DONE) {
            return Err("the expected body does not end with [DONE]".to_owned());
        }
        let placeholders = bytes.windows(PLACEHOLDER.len()).enumerate();
        let stamps: Vec<usize> =
            placeholders.filter(|(_, window)| *window == PLACEHOLDER).map(|(position, _)| position + 1).collect();
        if stamps.is_empty() {
            return Err("the expected body has no stamps".to_owned());
        }
        Ok(Self { bytes, stamps })
    }

    pub(crate) fn tokens(&self) -> usize {
        self.stamps.len()
    }

    pub(crate) fn len(&self) -> usize {
        self.bytes.len()
    }
}

/// Follows one body as it grows.
#[derive(Debug)]
pub(crate) struct Check<'a> {
    expected: &'a Expected,
    next_stamp: usize,
}

impl<'a> Check<'a> {
    pub(crate) fn new(expected: &'a Expected) -> Self {
        Self { expected, next_stamp: 0 }
    }

    /// Reads the stamps that `body` has whole by now, and hands each to `take`. Their digits become zeros.
    pub(crate) fn read_stamps(&mut self, body: &mut [u8], mut take: impl FnMut(u64)) -> Result<(), String> {
        while let Some(&start) = self.expected.stamps.get(self.next_stamp) {
            let Some(digits) = body.get_mut(start..start + DIGITS) else { break };
            let text = std::str::from_utf8(digits).ok().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
            let stamp = text.and_then(|text| text.parse().ok());
            take(stamp.ok_or_else(|| format!("no stamp at byte {start}: {}", excerpt(digits)))?);
            digits.fill(b'0');
            self.next_stamp += 1;
        }
        Ok(())
    }

    /// Whether `body`, all its stamps read, is the expected one to the last byte.
    pub(crate) fn whole(&self, body: &[u8]) -> Result<(), String> {
        let expected = self.expected.bytes.as_slice();
        if body == expected {
            return Ok(());
        }
        let same = body.iter().zip(expected).take_while(|(got, want)| got == want).count();
        Err(format!(
            "{} bytes instead of {}, the first difference at byte {same}: {} instead of {}",
            body.len(),
            expected.len(),
            excerpt(&body[same..]),
            excerpt(&expected[same..]),
        ))
    }
}

/// The beginning of bytes, printable.
pub(crate) fn excerpt(bytes: &[u8]) -> String {
    format!("{:?}", String::from_utf8_lossy(&bytes[..bytes.len().min(300)]))
}

#[cfg(test)]
mod tests {
    use super::*;

    const BODY: &[u8] = b"data: t0000000000000000\n\ndata: t0000000000000000\n\ndata: [DONE]\n\n";

    fn stamped(first: u64, second: u64) -> Vec<u8> {
        format!("data: t{first:016}\n\ndata: t{second:016}\n\ndata: [DONE]\n\n").into_bytes()
    }

    fn check(pieces: &[&[u8]]) -> Result<Vec<u64>, String> {
        let expected = Expected::new(BODY.to_vec()).unwrap();
        let mut check = Check::new(&expected);
        let (mut body, mut stamps) = (Vec::new(), Vec::new());
        for piece in pieces {
            body.extend_from_slice(piece);
            check.read_stamps(&mut body, |stamp| stamps.push(stamp))?;
        }
        check.whole(&body).map(|()| stamps)
    }

    #[test]
    fn stamps_are_read_at_any_cut() {
        let body = stamped(17, 1_234_567_890_123_456);
        for cut in 0..=body.len() {
            assert_eq!(check(&[&body[..cut], &body[cut..]]), Ok(vec![17, 1_234_567_890_123_456]), "{cut}");
        }
    }

    #[test]
    fn every_lost_doubled_or_changed_byte_is_seen() {
        let body = stamped(17, 18);
        for at in 0..body.len() {
            let mut changed = body.clone();
            changed[at] = b'#';
            assert!(check(&[&changed]).is_err(), "{at}");
            let mut lost = body.clone();
            lost.remove(at);
            assert!(check(&[&lost]).is_err(), "{at}");
            let mut doubled = body.clone();
            doubled.insert(at, b'#');
            assert!(check(&[&doubled]).is_err(), "{at}");
        }
        assert!(check(&[&body[..body.len() - 1]]).is_err());
    }

    #[test]
    fn a_body_without_end_or_stamps_is_no_expectation() {
        assert!(Expected::new(BODY[..30].to_vec()).is_err());
        assert!(Expected::new(DONE.to_vec()).is_err());
    }
}
