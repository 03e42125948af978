//! Origins that a configuration names.

use core::net::Ipv4Addr;

/// Whether secrets may be sent to `origin`: `https`, or `http` to this very machine. No path, query, user or fragment.
#[must_use]
pub fn origin_is_allowed(origin: &str) -> bool {
    let (host_and_port, loopback_only) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => return false,
    };
    let (host, port) = match host_and_port.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (host_and_port, None),
    };
    let host_is_plain = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    let port_is_plain = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    host_is_plain && port_is_plain && (!loopback_only || host == "127.0.0.1" || host == "localhost")
}

/// Whether the origin of a page is of this very machine.
pub(super) fn is_loopback_origin(origin: &str) -> bool {
    let rest = origin.split_once("://").map_or("", |(_, rest)| rest);
    if rest.starts_with("[::1]") {
        return true;
    }
    let host = rest.split(':').next().unwrap_or_default();
    host == "localhost" || host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins_of_providers() {
        for good in ["https://api.openai.com", "https://a.b:8443", "http://127.0.0.1:9", "http://localhost:80"] {
            assert!(origin_is_allowed(good), "{good}");
        }
        for bad in [
            "http://api.openai.com",
            "https://a/b",
            "https://u@a",
            "https://a#b",
            "https://a?b",
            "https://",
            "https://a:0",
            "https://a:99999",
            "http://127.0.0.1.evil.example",
            "ftp://a",
            "https://[::1]",
        ] {
            assert!(!origin_is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn origins_of_this_machine() {
        for (origin, expected) in [
            ("http://localhost:3000", true),
            ("http://127.0.0.2", true),
            ("http://[::1]:3000", true),
            ("http://app.example", false),
            ("http://localhost.app.example", false),
            ("http://127.0.0.1.app.example", false),
            ("http://10.0.0.1", false),
        ] {
            assert_eq!(is_loopback_origin(origin), expected, "{origin}");
        }
    }
}
