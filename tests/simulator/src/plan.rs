//! Planned answers: the n-th question gets the n-th of a list, and those beyond it an honest answer.
//!
//! | answer | what happens |
//! |---|---|
//! | `200` | honest |
//! | `503` | that status, with the API's error JSON |
//! | `503:7` | the same, with `Retry-After: 7` |
//! | `503:+7` | the same, with the date seven seconds from now as `Retry-After` |
//! | `drop` | the connection is reset instead of an answer |
//! | `silent` | no answer, ever |
//! | `other` | (streams) other bytes than the first time |
//! | `cut` | (streams) ends cleanly after one event |
//!
//! A `!` behind the last one repeats it for ever.

use std::time::Duration;

use crate::log::now_ms;

/// One planned answer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Reply {
    /// What is so.
    Honest,
    /// An error.
    Status {
        /// Its status.
        status: u16,
        /// Its `Retry-After`.
        retry_after: Option<Later>,
    },
    /// A reset.
    Drop,
    /// Nothing.
    Silent,
    /// Bytes that differ.
    Other,
    /// One event.
    Cut,
}

/// When to ask again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Later {
    /// In seconds.
    Seconds(u64),
    /// At a date, so many seconds from the answer.
    Date(u64),
}

impl Later {
    /// The header's value.
    pub(crate) fn header(self) -> String {
        match self {
            Self::Seconds(seconds) => seconds.to_string(),
            Self::Date(seconds) => httpdate::fmt_http_date(
                std::time::UNIX_EPOCH + Duration::from_millis(now_ms()) + Duration::from_secs(seconds),
            ),
        }
    }
}

/// The answers to a kind of question.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Plan {
    replies: Vec<Reply>,
    for_ever: bool,
}

impl Plan {
    /// The answer to question number `nth`, from zero.
    pub(crate) fn reply(&self, nth: usize) -> Reply {
        let last = self.replies.last().filter(|_| self.for_ever);
        self.replies.get(nth).or(last).cloned().unwrap_or(Reply::Honest)
    }

    pub(crate) fn parse(text: &str) -> Option<Self> {
        let (list, for_ever) = match text.strip_suffix('!') {
            Some(list) => (list, true),
            None => (text, false),
        };
        let replies = list.split(',').map(reply).collect::<Option<_>>()?;
        Some(Self { replies, for_ever })
    }
}

fn reply(text: &str) -> Option<Reply> {
    match text {
        "200" => return Some(Reply::Honest),
        "drop" => return Some(Reply::Drop),
        "silent" => return Some(Reply::Silent),
        "other" => return Some(Reply::Other),
        "cut" => return Some(Reply::Cut),
        _ => {}
    }
    let (status, later) = text.split_once(':').map_or((text, None), |(status, later)| (status, Some(later)));
    let status = status.parse().ok().filter(|status| (300..600).contains(status))?;
    let retry_after = match later {
        None => None,
        Some(later) => Some(match later.strip_prefix('+') {
            Some(seconds) => Later::Date(seconds.parse().ok()?),
            None => Later::Seconds(later.parse().ok()?),
        }),
    };
    Some(Reply::Status { status, retry_after })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn plans_are_read_strictly() {
        let plan = Plan::parse("503:7,drop,200").unwrap();
        let busy = Reply::Status { status: 503, retry_after: Some(Later::Seconds(7)) };
        assert_eq!([0, 1, 2, 3].map(|n| plan.reply(n)), [busy, Reply::Drop, Reply::Honest, Reply::Honest]);
        let gone = Reply::Status { status: 404, retry_after: None };
        assert_eq!(Plan::parse("404!").unwrap().reply(9), gone);
        let dated = Reply::Status { status: 429, retry_after: Some(Later::Date(3)) };
        assert_eq!(Plan::parse("429:+3").unwrap().reply(0), dated);
        for bad in ["", "x", "201", "503:", "503:x", "503,,200", "!"] {
            assert_eq!(Plan::parse(bad), None, "{bad}");
        }
    }
}
