//! Where a webhook may point (reliability reference 3.2, "SSRF/egress"; design 12).

use holdfast_core::webhook::{Reach, UrlFault, check_url};

#[test]
fn public_hosts_by_https() {
    for good in [
        "https://hooks.acme.com",
        "https://hooks.acme.com/",
        "https://hooks.acme.com:443/holdfast?tenant=1&x=%20",
        "https://HOOKS.Acme.COM/a//b",
        "https://xn--bcher-kva.example/x",
        "https://a.b.c.d.co/[x]",
        "https://1.acme.com",
        "https://acme.com?x",
        "https://acme.com/@x:y",
    ] {
        assert_eq!(check_url(good, Reach::Public), Ok(()), "{good}");
        assert_eq!(check_url(good, Reach::Local), Ok(()), "{good}");
    }
}

#[test]
fn everything_else_is_refused_by_name() {
    use UrlFault as F;
    for (bad, fault) in [
        ("", F::Scheme),
        ("hooks.acme.com", F::Scheme),
        ("http://hooks.acme.com", F::Scheme),
        ("HTTPS://hooks.acme.com", F::Scheme),
        ("ftp://hooks.acme.com", F::Scheme),
        ("javascript:alert(1)", F::Scheme),
        ("file:///etc/passwd", F::Scheme),
        ("https:/hooks.acme.com", F::Scheme),
        ("https://hooks.acme.com/#x", F::Fragment),
        ("https://hooks.acme.com#@evil.com", F::Fragment),
        ("https://user@hooks.acme.com", F::UserInfo),
        ("https://hooks.acme.com@evil.com", F::UserInfo),
        ("https://hooks.acme.com:443@evil.com/", F::UserInfo),
        ("https://hooks.acme.com\\@evil.com", F::Character),
        ("https://hooks.acme.com\\.evil.com", F::Character),
        ("https://hooks.acme.com/\n", F::Character),
        ("https://hooks\t.acme.com", F::Character),
        (" https://hooks.acme.com", F::Character),
        ("https://hooks.acme.com/a b", F::Character),
        ("https://bücher.example", F::Character),
        ("https://ａcme.com", F::Character),
        ("https://acme。com", F::Character),
        ("https://127.0.0.1", F::IpLiteral),
        ("https://127.1", F::IpLiteral),
        ("https://2130706433", F::IpLiteral),
        ("https://0x7f000001", F::IpLiteral),
        ("https://0x7f.1", F::IpLiteral),
        ("https://017700000001", F::IpLiteral),
        ("https://169.254.169.254/latest/meta-data", F::IpLiteral),
        ("https://8.8.8.8", F::IpLiteral),
        ("https://acme.com.1", F::IpLiteral),
        ("https://[::1]/", F::IpLiteral),
        ("https://[::ffff:10.0.0.1]:443/", F::IpLiteral),
        ("https://", F::Host),
        ("https:///x", F::Host),
        ("https://localhost", F::Host),
        ("https://LOCALHOST", F::Host),
        ("https://acme", F::Host),
        ("https://acme.com.", F::Host),
        ("https://.acme.com", F::Host),
        ("https://a..com", F::Host),
        ("https://-acme.com", F::Host),
        ("https://acme-.com", F::Host),
        ("https://%61cme.com", F::Host),
        ("https://127.0.0.1%2eacme.com", F::Host),
        ("https://acme_x.com", F::Host),
        ("https://printer.local", F::Host),
        ("https://x.localhost", F::Host),
        ("https://metadata.google.internal", F::Host),
        ("https://1.0.0.127.in-addr.arpa", F::Host),
        ("https://acme.com:80", F::Port),
        ("https://acme.com:8443", F::Port),
        ("https://acme.com:", F::Port),
        ("https://acme.com:0443", F::Port),
        ("https://acme.com:443:443", F::Port),
    ] {
        assert_eq!(check_url(bad, Reach::Public), Err(fault), "{bad}");
    }
    let label = "a".repeat(64);
    assert_eq!(check_url(&format!("https://{label}.com"), Reach::Public), Err(F::Host));
    let of_length = |bytes: usize| format!("https://acme.com/{}", "a".repeat(bytes - 17));
    assert_eq!(check_url(&of_length(2_049), Reach::Public), Err(F::TooLong));
    assert_eq!(check_url(&of_length(2_048), Reach::Public), Ok(()));
}

/// On a developer's machine its own loopback is allowed by `http`, and nothing else more.
#[test]
fn loopback_is_for_local_deployments() {
    use UrlFault as F;
    for (url, local) in [
        ("http://127.0.0.1:8787/hook", Ok(())),
        ("http://localhost/hook", Ok(())),
        ("http://localhost:1", Ok(())),
        ("http://127.0.0.1:0", Err(F::Port)),
        ("http://127.0.0.1:99999", Err(F::Port)),
        ("http://127.0.0.1:+80", Err(F::Port)),
        ("http://127.0.0.2", Err(F::Scheme)),
        ("http://127.1", Err(F::Scheme)),
        ("http://localhost.evil.com", Err(F::Scheme)),
        ("http://10.0.0.1", Err(F::Scheme)),
        ("http://[::1]", Err(F::IpLiteral)),
        ("http://x@127.0.0.1", Err(F::UserInfo)),
        ("https://127.0.0.1", Err(F::IpLiteral)),
        ("https://localhost", Err(F::Host)),
    ] {
        assert_eq!(check_url(url, Reach::Local), local, "{url}");
        assert!(check_url(url, Reach::Public).is_err(), "{url}");
    }
}
