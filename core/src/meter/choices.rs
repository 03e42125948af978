//! The choices of one answer: it has ended when all of them have.

use serde_json::value::RawValue;

/// A request may ask for so many at most ([`crate::request::CHOICES_MAX`]).
const INDEX_MAX: u32 = 127;

/// Which choices were seen, and which of them have ended: a bit each.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct Choices {
    seen: u128,
    ended: u128,
}

impl Choices {
    /// An event of one choice; `ended` when it says why that one stopped.
    pub(super) fn note(&mut self, index: Option<&RawValue>, ended: bool) {
        let index = index.and_then(|index| index.get().parse::<u32>().ok()).unwrap_or(0);
        let bit = 1_u128.checked_shl(index.min(INDEX_MAX)).unwrap_or_default();
        self.seen |= bit;
        if ended {
            self.ended |= bit;
        }
    }

    /// All that were seen have ended. Others may begin: whoever asks goes on reading.
    pub(super) const fn have_ended(self) -> bool {
        self.seen != 0 && self.seen == self.ended
    }

    /// One at least has ended.
    pub(super) const fn any_has_ended(self) -> bool {
        self.ended != 0
    }

    /// One at least was seen and has not ended.
    pub(super) const fn any_goes_on(self) -> bool {
        self.seen != self.ended
    }
}
