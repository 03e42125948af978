//! Stamped tokens: each says when it was sent, so that a load client on the same machine can tell how long the way
//! took. The stamp is the monotonic clock in microseconds, in sixteen digits, so that it moves no byte offset.

use nix::time::ClockId;

/// The text of a token before it is sent, without the leading space; the digits are replaced when it is.
pub(crate) const PLACEHOLDER: &str = "t0000000000000000";
const DIGITS: usize = PLACEHOLDER.len() - 1;

/// Where the digits of stamps start in a body.
pub(crate) fn offsets(body: &[u8]) -> Vec<usize> {
    let placeholder = PLACEHOLDER.as_bytes();
    let mut found = Vec::new();
    let mut position = 0;
    while let Some(rest) = body.get(position..position + placeholder.len()) {
        if rest == placeholder {
            found.push(position + 1);
            position += placeholder.len();
        } else {
            position += 1;
        }
    }
    found
}

/// Writes `time_us` into the stamps that `piece`, the bytes of the body from `start` on, holds or touches.
pub(crate) fn overlay(piece: &mut [u8], start: usize, offsets: &[usize], time_us: u64) {
    let digits = format!("{time_us:0DIGITS$}");
    let end = start + piece.len();
    let first = offsets.partition_point(|offset| offset + DIGITS <= start);
    for offset in offsets[first..].iter().take_while(|offset| **offset < end) {
        for (position, digit) in (*offset..).zip(digits.bytes()) {
            if let Some(byte) = position.checked_sub(start).and_then(|index| piece.get_mut(index)) {
                *byte = digit;
            }
        }
    }
}

/// The monotonic clock in microseconds; the same in all processes of this machine.
pub(crate) fn now_us() -> u64 {
    let now = ClockId::CLOCK_MONOTONIC.now().expect("every system has the monotonic clock");
    u64::try_from(std::time::Duration::from(now).as_micros()).unwrap_or(u64::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stamps_are_found() {
        assert_eq!(offsets(b"t000000000000000"), Vec::<usize>::new());
        assert_eq!(offsets(b"tt0000000000000000"), vec![2]);
        let body = format!("a{PLACEHOLDER}b{PLACEHOLDER}{PLACEHOLDER}");
        assert_eq!(offsets(body.as_bytes()), vec![2, 20, 37]);
    }

    #[test]
    fn an_overlay_keeps_to_the_digits_of_its_piece() {
        let body = format!("a{PLACEHOLDER}b{PLACEHOLDER}c").into_bytes();
        let offsets = offsets(&body);
        let whole = "at1234567890123456bt1234567890123456c";
        for cut in 0..=body.len() {
            let (mut left, mut right) = (body[..cut].to_vec(), body[cut..].to_vec());
            overlay(&mut left, 0, &offsets, 1_234_567_890_123_456);
            assert_eq!(left, whole.as_bytes()[..cut]);
            overlay(&mut right, cut, &offsets, 1_234_567_890_123_456);
            assert_eq!(right, whole.as_bytes()[cut..]);
        }
        let mut short = body.clone();
        overlay(&mut short, 0, &offsets, 7);
        assert_eq!(short, b"at0000000000000007bt0000000000000007c");
    }

    #[test]
    fn time_goes_on() {
        let before = now_us();
        assert!(before > 0 && now_us() >= before && now_us() < 10_u64.pow(16));
    }
}
