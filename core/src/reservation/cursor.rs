//! Where a reader may start.

use super::Reservation;

impl Reservation {
    /// Whether the log can serve a reader from `offset`; otherwise the offset at which it may start again.
    ///
    /// After a lost driver, what a client saw behind the provider's stored bytes is in no log, and other bytes (the error
    /// of the end) stand there: such a reader starts again where the provider's bytes end (invariant 9). So does one that
    /// had read all of it: whether its last bytes were those of the error or others that were lost, no offset tells.
    #[must_use]
    pub fn cursor_beyond(&self, offset: u64, log_length: u64) -> Option<u64> {
        beyond(self.lost_from, offset, log_length)
    }
}

fn beyond(lost_from: Option<u64>, offset: u64, log_length: u64) -> Option<u64> {
    match lost_from {
        Some(lost_from) if offset > lost_from => Some(lost_from),
        _ => (offset > log_length).then_some(log_length),
    }
}

#[cfg(test)]
mod tests {
    use super::beyond;

    #[test]
    fn no_reader_gets_bytes_that_do_not_follow_its_own() {
        for (lost_from, offset, log_length, expected) in [
            (None, 0, 0, None),
            (None, 100, 100, None),
            (None, 101, 100, Some(100)),
            (Some(60), 59, 100, None),
            (Some(60), 60, 100, None),
            (Some(60), 61, 100, Some(60)),
            (Some(60), 99, 100, Some(60)),
            (Some(60), 100, 100, Some(60)),
            (Some(60), 101, 100, Some(60)),
            (Some(0), 1, 161, Some(0)),
        ] {
            assert_eq!(beyond(lost_from, offset, log_length), expected, "{lost_from:?} {offset} {log_length}");
        }
    }
}
