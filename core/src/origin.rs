//! Web origins, as browsers write them in `Origin`: scheme, host and, if it is not the scheme's own, port. Two are the
//! same if their text is the same, so nothing but that one spelling is an origin here.

use alloc::string::String;
use core::fmt;

/// Longest origin, in bytes: a host name has at most 253.
const ORIGIN_MAX_BYTES: usize = 270;

/// A web origin in the spelling of browsers (RFC 6454, 6.2). Never `null`, never `*`.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Origin(String);

/// Why a text is not an origin.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct OriginFault(pub &'static str);

impl fmt::Display for OriginFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.0)
    }
}

impl Origin {
    /// Parses an origin: `https://host` or `http://host`, with `:port` where it is not 443 or 80. The host is in lower
    /// case, in its ASCII form, or an IPv6 address in brackets. Nothing may follow, not even a slash.
    ///
    /// # Errors
    /// [`OriginFault`] with the reason. `null`, which sandboxed frames and local files send, is one: it names nobody.
    pub fn parse(text: &str) -> Result<Self, OriginFault> {
        if text.len() > ORIGIN_MAX_BYTES {
            return Err(OriginFault("it is too long"));
        }
        let (scheme, rest) = text.split_once("://").ok_or(OriginFault("it must be https://host or http://host"))?;
        let own_port = match scheme {
            "https" => 443,
            "http" => 80,
            _ => return Err(OriginFault("its scheme must be https or http")),
        };
        let (host, port) = split_port(rest);
        if !host_is_plain(host) {
            return Err(OriginFault("its host must be one name or address, in lower case, with nothing after it"));
        }
        match port.map(port_number) {
            None => Ok(Self(text.into())),
            Some(None) => Err(OriginFault("its port must be a number from 1 to 65535")),
            Some(Some(port)) if port == own_port => Err(OriginFault("browsers leave out the scheme's own port")),
            Some(Some(_)) => Ok(Self(text.into())),
        }
    }

    /// The text form.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }

    /// Whether it is one of `allowed`, in exactly that spelling. An entry that is not an origin matches nothing.
    #[must_use]
    pub fn is_among(&self, allowed: &[String]) -> bool {
        allowed.contains(&self.0)
    }
}

/// Host and port, if there is one. The colons of an address in brackets are none.
fn split_port(rest: &str) -> (&str, Option<&str>) {
    match rest.rsplit_once(':') {
        Some((host, port)) if !port.ends_with(']') => (host, Some(port)),
        _ => (rest, None),
    }
}

fn host_is_plain(host: &str) -> bool {
    let in_brackets = host.strip_prefix('[').and_then(|rest| rest.strip_suffix(']'));
    let of_address = |byte: u8| byte.is_ascii_digit() || (b'a'..=b'f').contains(&byte) || matches!(byte, b':' | b'.');
    let of_name = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || matches!(byte, b'-' | b'.' | b'_');
    match in_brackets {
        Some(address) => address.contains(':') && address.bytes().all(of_address),
        None => !host.is_empty() && !host.starts_with('.') && host.bytes().all(of_name),
    }
}

/// A port without sign and leading zeros.
fn port_number(text: &str) -> Option<u16> {
    let plain = !text.starts_with('0') && text.bytes().all(|byte| byte.is_ascii_digit());
    text.parse().ok().filter(|_| plain)
}

impl From<Origin> for String {
    fn from(origin: Origin) -> Self {
        origin.0
    }
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_spelling_is_an_origin() {
        for good in [
            "https://app.example",
            "https://app.example:8443",
            "http://localhost:3000",
            "http://127.0.0.1:1",
            "http://[::1]:5173",
            "https://[2001:db8::1]",
            "https://xn--bcher-kva.example",
            "https://my_app.example:65535",
            "https://a.example:80",
        ] {
            assert_eq!(Origin::parse(good).map(String::from), Ok(good.into()), "{good}");
        }
        let long = alloc::format!("https://{}", "a".repeat(263));
        for bad in [
            "",
            "*",
            "null",
            "app.example",
            "//app.example",
            "https://",
            "https://*.app.example",
            "https://app.example/",
            "https://app.example?x",
            "https://app.example#",
            "https://App.example",
            "HTTPS://app.example",
            "https://user@app.example",
            "https://app.example:443",
            "http://app.example:80",
            "https://app.example:",
            "https://app.example:0",
            "https://app.example:08443",
            "https://app.example:+8443",
            "https://app.example:65536",
            "https://app.example:8443:8443",
            "https://[app.example]",
            "https://[::1",
            "https://::1",
            "https://.example",
            "https://bücher.example",
            "https://app.example https://evil.example",
            "https://app.example\r\nx: y",
            "ftp://app.example",
            "chrome-extension://abcdef",
            &long,
        ] {
            assert!(Origin::parse(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn only_the_very_same_origin_is_among_the_allowed() {
        let allowed: alloc::vec::Vec<String> =
            ["https://app.example", "*", "https://*.dev.example"].map(Into::into).into();
        for (origin, found) in [
            ("https://app.example", true),
            ("http://app.example", false),
            ("https://app.example:8443", false),
            ("https://sub.app.example", false),
            ("https://x.dev.example", false),
            ("https://app.example.evil.example", false),
        ] {
            assert_eq!(Origin::parse(origin).unwrap().is_among(&allowed), found, "{origin}");
        }
        assert!(!Origin::parse("https://app.example").unwrap().is_among(&[]));
    }
}
