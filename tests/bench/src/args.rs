//! The command line.

use std::collections::HashMap;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

pub(crate) const USAGE: &str = "usage: holdfast-bench --address 127.0.0.1:PORT --key KEY --model MODEL --expected FILE \
    [--streams N] [--rounds N] [--ramp-ms MS] [--include-usage true|false] [--pid PID] [--timeout-s S]";

/// What to do.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Plan {
    /// The server.
    pub(crate) address: SocketAddr,
    /// Bearer key.
    pub(crate) key: String,
    /// Model name, with the simulator's keys.
    pub(crate) model: String,
    /// File with the body that each answer must have, stamps as zeros.
    pub(crate) expected: PathBuf,
    /// Connections, each with one stream at a time.
    pub(crate) streams: usize,
    /// Streams on each connection, one after the other.
    pub(crate) rounds: usize,
    /// The connections start evenly spread over this time.
    pub(crate) ramp: Duration,
    /// Whether the request asks for the usage event.
    pub(crate) include_usage: bool,
    /// The server's process.
    pub(crate) pid: Option<i32>,
    /// After this time the run has failed.
    pub(crate) timeout: Duration,
}

/// Reads `--name value` pairs.
pub(crate) fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Plan, String> {
    let mut given = HashMap::new();
    while let Some(argument) = arguments.next() {
        let name = argument.strip_prefix("--").ok_or_else(|| format!("unexpected argument {argument:?}"))?;
        let value = arguments.next().ok_or_else(|| format!("--{name} needs a value"))?;
        if given.insert(name.to_owned(), value).is_some() {
            return Err(format!("--{name} is given twice"));
        }
    }
    let mut given = Given(given);
    let plan = Plan {
        address: given.required("address")?,
        key: given.required("key")?,
        model: given.required("model")?,
        expected: given.required("expected")?,
        streams: given.number_from_one("streams")?,
        rounds: given.number_from_one("rounds")?,
        ramp: Duration::from_millis(given.optional("ramp-ms")?.unwrap_or(0)),
        include_usage: given.optional("include-usage")?.unwrap_or(false),
        pid: given.optional("pid")?,
        timeout: Duration::from_secs(given.optional("timeout-s")?.unwrap_or(120)),
    };
    match given.0.into_keys().next() {
        Some(unknown) => Err(format!("unknown option --{unknown}")),
        None => Ok(plan),
    }
}

struct Given(HashMap<String, String>);

impl Given {
    fn optional<T: std::str::FromStr>(&mut self, name: &str) -> Result<Option<T>, String> {
        let Some(value) = self.0.remove(name) else { return Ok(None) };
        value.parse().map(Some).map_err(|_| format!("bad value of --{name}: {value:?}"))
    }

    fn required<T: std::str::FromStr>(&mut self, name: &str) -> Result<T, String> {
        self.optional(name)?.ok_or_else(|| format!("--{name} is missing"))
    }

    fn number_from_one(&mut self, name: &str) -> Result<usize, String> {
        match self.optional(name)?.unwrap_or(1) {
            0 => Err(format!("--{name} must be 1 or more")),
            number => Ok(number),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parsed(line: &str) -> Result<Plan, String> {
        parse(line.split_whitespace().map(str::to_owned))
    }

    const LEAST: &str = "--address 127.0.0.1:9 --key k --model m --expected f";

    #[test]
    fn defaults_and_values() {
        let plan = parsed(LEAST).unwrap();
        assert_eq!((plan.streams, plan.rounds, plan.include_usage, plan.pid), (1, 1, false, None));
        let plan = parsed(&format!("{LEAST} --streams 8 --include-usage true --pid 12 --ramp-ms 30")).unwrap();
        assert_eq!((plan.streams, plan.include_usage, plan.pid), (8, true, Some(12)));
        assert_eq!(plan.ramp, Duration::from_millis(30));
    }

    #[test]
    fn mistakes_are_named() {
        assert!(parsed("--key k").unwrap_err().contains("address"));
        for (more, word) in
            [("--stream 3", "stream"), ("--streams 0", "streams"), ("--pid x", "pid"), ("--key j", "key")]
        {
            assert!(parsed(&format!("{LEAST} {more}")).unwrap_err().contains(word), "{more}");
        }
    }
}
