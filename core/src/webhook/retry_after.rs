//! `Retry-After`: seconds, or a date (RFC 9110, 10.2.3).

use crate::time::UnixMillis;

const MONTHS: [&str; 12] = ["Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec"];

/// The wait that a header asks for, in milliseconds from `now`; nothing for a date that is past. `None` when it is
/// neither a number of seconds nor a date in the preferred form (`Sun, 06 Nov 1994 08:49:37 GMT`).
#[must_use]
pub fn retry_after_ms(value: &str, now: UnixMillis) -> Option<u64> {
    let value = value.trim();
    if (1..=15).contains(&value.len()) && value.bytes().all(|byte| byte.is_ascii_digit()) {
        return value.parse::<u64>().ok().map(|seconds| seconds.saturating_mul(1_000));
    }
    date(value).map(|at| at.since(now))
}

fn date(text: &str) -> Option<UnixMillis> {
    let (_, rest) = text.split_once(", ")?;
    let mut parts = rest.split(' ');
    let day = number(parts.next()?, 2)?;
    let name = parts.next()?;
    let month = MONTHS.iter().zip(1..).find(|(month, _)| **month == name).map(|(_, number)| number)?;
    let year = number(parts.next()?, 4)?;
    let mut clock = parts.next()?.split(':');
    let (hour, minute, second) = (number(clock.next()?, 2)?, number(clock.next()?, 2)?, number(clock.next()?, 2)?);
    let whole = parts.next() == Some("GMT") && parts.next().is_none() && clock.next().is_none();
    let in_range = (1..=31).contains(&day) && hour < 24 && minute < 60 && second <= 60 && year >= 1970;
    if !whole || !in_range {
        return None;
    }
    let days = UnixMillis::from_date(year, month, day)?.0 / 86_400_000;
    let seconds = days.checked_mul(24)?.checked_add(hour)?.checked_mul(60)?.checked_add(minute)?;
    let seconds = seconds.checked_mul(60)?.checked_add(second)?;
    seconds.checked_mul(1_000).map(UnixMillis)
}

fn number(text: &str, digits: usize) -> Option<u64> {
    let plain = text.len() == digits && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}
