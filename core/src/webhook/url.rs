//! Where a webhook may point. The text is read strictly, so that what is checked here is what the platform calls: no
//! form that a URL parser would turn into another host is let through.

use core::fmt;
use serde::{Deserialize, Serialize};

/// Longest URL, in bytes.
pub const URL_MAX_BYTES: usize = 2_048;

/// Last labels of host names that are not of the public internet.
const PRIVATE_SUFFIXES: [&str; 12] = [
    "localhost",
    "local",
    "localdomain",
    "internal",
    "intranet",
    "private",
    "corp",
    "home",
    "lan",
    "arpa",
    "onion",
    "invalid",
];

/// Where this deployment runs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Reach {
    /// On the internet: public hosts by `https` alone.
    Public,
    /// On a developer's machine: its own loopback addresses by `http` besides.
    Local,
}

/// Why a URL is refused. Stable names, part of the API. The variants stand in the order in which they are checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum UrlFault {
    /// Above [`URL_MAX_BYTES`].
    TooLong,
    /// A space, a control character, a backslash or anything beyond ASCII: write it percent-encoded, a host in punycode.
    Character,
    /// Not `https`.
    Scheme,
    /// A fragment is never sent.
    Fragment,
    /// User name or password.
    UserInfo,
    /// An IP address instead of a name.
    IpLiteral,
    /// Not a name of the public internet: `name.tld` at least, letters, digits and hyphens.
    Host,
    /// Another port than 443.
    Port,
}

impl UrlFault {
    /// One sentence for the tenant.
    #[must_use]
    pub const fn message(self) -> &'static str {
        match self {
            Self::TooLong => "The URL is longer than 2,048 bytes.",
            Self::Character => "The URL has a character that must be percent-encoded.",
            Self::Scheme => "The URL must begin with https://.",
            Self::Fragment => "The URL has a fragment.",
            Self::UserInfo => "The URL has a user name or a password.",
            Self::IpLiteral => "The URL names an IP address; a public host name is needed.",
            Self::Host => "The URL's host is not a public host name.",
            Self::Port => "The URL names another port than 443.",
        }
    }
}

impl fmt::Display for UrlFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.message())
    }
}

/// Checks a URL: when it is saved and again before each call.
///
/// What a name resolves to is not known here. That it is no private address is for the platform's network to see to.
///
/// # Errors
/// See [`UrlFault`].
pub fn check_url(url: &str, reach: Reach) -> Result<(), UrlFault> {
    if url.len() > URL_MAX_BYTES {
        return Err(UrlFault::TooLong);
    }
    if !url.bytes().all(|byte| byte.is_ascii_graphic() && byte != b'\\') {
        return Err(UrlFault::Character);
    }
    let (rest, loopback) = match (url.strip_prefix("https://"), url.strip_prefix("http://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) if reach == Reach::Local => (rest, true),
        _ => return Err(UrlFault::Scheme),
    };
    if rest.contains('#') {
        return Err(UrlFault::Fragment);
    }
    let authority = rest.split(['/', '?']).next().unwrap_or_default();
    if authority.contains('@') {
        return Err(UrlFault::UserInfo);
    }
    if authority.starts_with('[') {
        return Err(UrlFault::IpLiteral);
    }
    let (host, port) = match authority.split_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (authority, None),
    };
    if loopback { check_loopback(host, port) } else { check_public(host, port) }
}

fn check_loopback(host: &str, port: Option<&str>) -> Result<(), UrlFault> {
    if !matches!(host, "127.0.0.1" | "localhost") {
        return Err(UrlFault::Scheme);
    }
    let plain = port.is_none_or(|port| {
        port.bytes().all(|byte| byte.is_ascii_digit()) && port.parse::<u16>().is_ok_and(|port| port > 0)
    });
    if plain { Ok(()) } else { Err(UrlFault::Port) }
}

fn check_public(host: &str, port: Option<&str>) -> Result<(), UrlFault> {
    let last = host.rsplit('.').next().unwrap_or_default();
    // A last label that is a number makes the whole an IPv4 address, in whichever of its many forms.
    if last.bytes().next().is_some_and(|first| first.is_ascii_digit()) {
        return Err(UrlFault::IpLiteral);
    }
    let named = host.contains('.') && host.len() <= 253 && host.split('.').all(is_label);
    let private = PRIVATE_SUFFIXES.iter().any(|suffix| last.eq_ignore_ascii_case(suffix));
    if !named || private {
        return Err(UrlFault::Host);
    }
    if port.is_none_or(|port| port == "443") { Ok(()) } else { Err(UrlFault::Port) }
}

fn is_label(label: &str) -> bool {
    (1..=63).contains(&label.len())
        && label.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'-')
        && !label.starts_with('-')
        && !label.ends_with('-')
}
