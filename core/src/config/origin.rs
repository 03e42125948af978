//! Origins and URLs that a configuration names.

use core::net::{Ipv4Addr, Ipv6Addr};

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

/// Whether this is an origin in the form in which browsers send it: another form would never be equal to it.
#[must_use]
pub fn is_web_origin(origin: &str) -> bool {
    split_origin(origin).is_some_and(|(https, host, port)| {
        let usual = if https { 443 } else { 80 };
        is_host(host) && !host.bytes().any(|byte| byte.is_ascii_uppercase()) && port != Some(usual)
    })
}

/// Whether an origin is this very machine.
pub(super) fn is_loopback_origin(origin: &str) -> bool {
    split_origin(origin).is_some_and(|(_, host, _)| is_loopback(host))
}

/// Whether a webhook may be set to it: `https`, or `http` to this very machine, without user and fragment.
#[must_use]
pub fn is_webhook_url(url: &str) -> bool {
    let Some(authority_start) = url.find("://").and_then(|scheme| scheme.checked_add(3)) else { return false };
    let rest = url.get(authority_start..).unwrap_or_default();
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    let end = authority_start.saturating_add(authority.len());
    let visible = url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'#' && byte != b'\\');
    let origin = split_origin(url.get(..end).unwrap_or_default());
    visible && origin.is_some_and(|(https, host, _)| is_host(host) && (https || is_loopback(host)))
}

/// Whether it is `https`, the host, and the port if it is given in its plain form.
fn split_origin(origin: &str) -> Option<(bool, &str, Option<u16>)> {
    let (https, rest) = match origin.strip_prefix("https://") {
        Some(rest) => (true, rest),
        None => (false, origin.strip_prefix("http://")?),
    };
    // The colons of an IPv6 address stand in brackets.
    let (host, port) = match rest.rsplit_once(':').filter(|(_, port)| !port.ends_with(']')) {
        Some((host, port)) => (host, Some(port)),
        None => (rest, None),
    };
    let plain = |port: &str| !port.starts_with('0') && port.bytes().all(|byte| byte.is_ascii_digit());
    match port {
        None => Some((https, host, None)),
        Some(port) if plain(port) => Some((https, host, Some(port.parse().ok()?))),
        Some(_) => None,
    }
}

fn is_host(host: &str) -> bool {
    if let Some(address) = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']')) {
        return address.parse::<Ipv6Addr>().is_ok();
    }
    let label = |label: &str| {
        !label.is_empty() && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-' || byte == b'_')
    };
    host.len() <= 253 && host.split('.').all(label)
}

fn is_loopback(host: &str) -> bool {
    let v4 = host.parse::<Ipv4Addr>().is_ok_and(|address| address.is_loopback());
    v4 || host == "localhost" || host == "[::1]"
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
    fn origins_of_pages() {
        for good in [
            "https://app.example",
            "https://app.example:8443",
            "http://app.example",
            "http://localhost:3000",
            "http://[::1]:3000",
            "https://xn--bcher-kva.example",
        ] {
            assert!(is_web_origin(good), "{good}");
        }
        for bad in [
            "",
            "*",
            "null",
            "app.example",
            "https://",
            "https://*.app.example",
            "https://app.example/",
            "https://App.example",
            "HTTPS://app.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example:08443",
            "https://app.example:",
            "https://app.example:0",
            "https://app.example:+1",
            "https://app.example:70000",
            "https://u@app.example",
            "https://app..example",
            "https://[app]",
            "ftp://app.example",
            " https://app.example",
        ] {
            assert!(!is_web_origin(bad), "{bad}");
        }
    }

    #[test]
    fn urls_of_webhooks() {
        for good in [
            "https://hooks.example/a?b=c",
            "https://hooks.example",
            "https://hooks.example?x",
            "https://hooks.example:8443/",
            "http://127.0.0.1:9/hook",
            "http://localhost/hook",
            "http://[::1]:9/",
        ] {
            assert!(is_webhook_url(good), "{good}");
        }
        for bad in [
            "",
            "hooks.example",
            "http://hooks.example/",
            "http://127.0.0.1.hooks.example/",
            "http://localhost.hooks.example/",
            "https://user:secret@hooks.example/",
            "http://hooks.example@localhost/",
            "http://localhost\\@hooks.example/",
            "https://hooks.example/#part",
            "https://hooks.example/a b",
            "https:///a",
            "ftp://hooks.example/",
        ] {
            assert!(!is_webhook_url(bad), "{bad}");
        }
    }
}
