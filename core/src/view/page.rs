//! Lists in pages. A cursor is opaque to callers: it names its list, so that it is of no use in another.

use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use serde::Serialize;

/// A list that is read in pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum List {
    /// Ledger entries, oldest first.
    Ledger,
    /// Invoice lines, oldest first.
    Lines,
    /// Audit events, oldest first.
    Audit,
    /// Generations, newest first.
    Generations,
    /// A check that goes on.
    Check,
}

impl List {
    const fn tag(self) -> &'static str {
        match self {
            Self::Ledger => "led",
            Self::Lines => "lin",
            Self::Audit => "aud",
            Self::Generations => "gen",
            Self::Check => "chk",
        }
    }
}

/// A place in a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Cursor {
    /// Which list.
    pub list: List,
    /// The sequence number that was read last. Of a check: which one.
    pub place: u64,
}

/// The text is no cursor of the wanted list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct MalformedCursor;

impl Cursor {
    /// Reads the text form.
    ///
    /// # Errors
    /// [`MalformedCursor`] for anything that [`Cursor::to_string`](alloc::string::ToString) does not write for `list`.
    pub fn parse(list: List, text: &str) -> Result<Self, MalformedCursor> {
        let digits = text.strip_prefix(list.tag()).ok_or(MalformedCursor)?;
        let place = u64::from_str_radix(digits, 16).map_err(|_| MalformedCursor)?;
        let cursor = Self { list, place };
        let in_range = place < 1 << 53;
        if in_range && format!("{cursor}") == text { Ok(cursor) } else { Err(MalformedCursor) }
    }
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}{:x}", self.list.tag(), self.place)
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize)]
pub struct Page<T> {
    /// `list`.
    pub object: String,
    /// What is on it. A filter may leave it short, or empty, although more follows.
    pub data: Vec<T>,
    /// Whether more is there now.
    pub has_more: bool,
    /// Where to read on, `?after=`. A list that grows at its end always has one: kept, it finds what came since.
    pub next: Option<String>,
}

impl<T> Page<T> {
    /// A page that ends at `next`.
    #[must_use]
    pub fn new(data: Vec<T>, has_more: bool, next: Option<Cursor>) -> Self {
        Self { object: "list".into(), data, has_more, next: next.map(|cursor| format!("{cursor}")) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_belongs_to_its_list_and_has_one_text() {
        for list in [List::Ledger, List::Lines, List::Audit, List::Generations, List::Check] {
            for place in [0, 1, 255, (1 << 53) - 1] {
                let cursor = Cursor { list, place };
                assert_eq!(Cursor::parse(list, &format!("{cursor}")), Ok(cursor));
            }
        }
        assert_eq!(format!("{}", Cursor { list: List::Ledger, place: 255 }), "ledff");
        for bad in ["", "led", "led-1", "led+1", "led01", "ledFF", "aud1", "1", "led20000000000000", "led1 ", "ledg"] {
            assert_eq!(Cursor::parse(List::Ledger, bad), Err(MalformedCursor), "{bad:?}");
        }
    }
}
