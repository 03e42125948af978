//! Clients that cost more than they send, and requests that no honest client makes.

use std::io::{ErrorKind, Read, Write};
use std::net::{Ipv4Addr, TcpStream};
use std::time::{Duration, Instant};

use holdfast_e2e::config::client_key;
use holdfast_e2e::{Chat, Client, Options, Route, Tenant, World, assert_completed, unique};
use serde_json::Value;

/// How long an answer may take; far below the hour that a body has in the test of keys.
const PATIENCE: Duration = Duration::from_secs(20);

fn world(name: &str, body_ms: u64) -> (World, Client) {
    let tenant = Tenant::new("acme").route(Route::new("chat").detach());
    let world = World::start(&Options::new(name).tenant(&tenant).limit("body_ms", body_ms));
    let client = world.client(&tenant);
    (world, client)
}

/// Writes bytes as they are and nothing else; the socket stays open.
fn write(port: u16, text: &str) -> TcpStream {
    let mut socket = TcpStream::connect((Ipv4Addr::LOCALHOST, port)).expect("a server");
    socket.set_read_timeout(Some(PATIENCE)).expect("a timeout");
    socket.write_all(text.as_bytes()).expect("a server that takes it");
    socket
}

/// The head of a chat request with a body of one megabyte, and the first bytes of it.
fn stalled(port: u16, key: &str, tag: &str, sent: usize) -> TcpStream {
    let body = format!("{{\"model\":\"gen?tokens=3&tag={tag}\",\"stream\":true,\"user\":\"{}", "u".repeat(sent));
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {key}\r\n\
         Content-Type: application/json\r\nContent-Length: 1000000\r\n\r\n"
    );
    write(port, &(head + &body[..sent.min(body.len())]))
}

/// Everything up to the end of the connection, which the server must bring about.
fn read_to_close(socket: &mut TcpStream) -> String {
    let mut bytes = Vec::new();
    let mut block = [0_u8; 4_096];
    loop {
        match socket.read(&mut block) {
            Ok(0) => break,
            Ok(count) => bytes.extend_from_slice(&block[..count]),
            // Closed while bytes of ours were unread.
            Err(error) if error.kind() == ErrorKind::ConnectionReset => break,
            Err(error) => panic!("still open ({error}) after {:?}", String::from_utf8_lossy(&bytes)),
        }
    }
    String::from_utf8(bytes).expect("an answer in UTF-8")
}

fn status_of(answer: &str) -> &str {
    answer.split(' ').nth(1).unwrap_or_else(|| panic!("no answer: {answer:?}"))
}

fn json_of(answer: &str) -> Value {
    let (_, body) = answer.split_once("\r\n\r\n").unwrap_or_else(|| panic!("no whole head: {answer:?}"));
    serde_json::from_str(body).unwrap_or_else(|error| panic!("{error}: {answer:?}"))
}

/// What is no key is refused before its body comes. One that is well-formed is for the tenant's object to know: its body
/// is read first, within the bounds of every body, so that a request has one hop.
#[test]
fn a_forged_key_costs_no_more_than_a_bounded_body() {
    let body_ms = 1_000;
    let (world, client) = world("forged keys", body_ms);
    let tag = unique("forged");
    let well_formed = client_key("acme", "well-formed, and nobody was given it");
    let mistyped = format!("{}0", &well_formed[..well_formed.len() - 1]);
    for (key, status, code) in [(&mistyped, "401", "invalid_api_key"), (&well_formed, "408", "request_timeout")] {
        let mut open: Vec<_> = (0..20).map(|n| stalled(client.port(), key, &tag, n * 1_000)).collect();
        for socket in &mut open {
            let answer = read_to_close(socket);
            assert_eq!(status_of(&answer), status, "{answer}");
            assert_eq!(json_of(&answer)["error"]["code"], code, "{answer}");
        }
    }
    let whole = world.client_with_key(&well_formed).chat(&Chat::stream("gen?tokens=3").tag(&tag));
    whole.assert_envelope(401, "invalid_api_key");
    world.simulator.assert_never_called(&tag);
}

#[test]
fn a_body_that_stalls_is_refused_in_time() {
    let body_ms = 600;
    let (world, client) = world("stalled bodies", body_ms);
    let before = client.balance();
    let tag = unique("stalled");
    for sent in [0, 1, 70, 300_000] {
        let began = Instant::now();
        let mut socket = stalled(client.port(), client.key(), &tag, sent);
        let answer = read_to_close(&mut socket);
        assert!(began.elapsed() >= Duration::from_millis(body_ms), "{sent}: {:?}", began.elapsed());
        assert_eq!(status_of(&answer), "408", "{sent}: {answer}");
        let error = &json_of(&answer)["error"];
        assert_eq!((&error["code"], &error["param"]), (&Value::from("request_timeout"), &Value::Null), "{answer}");
    }
    world.simulator.assert_never_called(&tag);
    assert_eq!(client.balance(), before, "nothing is held");
    let (mut exchange, id) = client.begin(&Chat::stream("gen?tokens=3"));
    exchange.finish().clean();
    assert_completed(&client.wait_until_settled(&id), 12, 3);
}

#[test]
fn a_head_of_the_health_has_no_body() {
    let (_world, client) = world("head of the health", 15_000);
    let port = client.port();
    let mut socket =
        write(port, &format!("HEAD /healthz HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nConnection: close\r\n\r\n"));
    let answer = read_to_close(&mut socket);
    assert_eq!(status_of(&answer), "200", "{answer}");
    assert!(answer.to_ascii_lowercase().contains("content-type: application/json"), "{answer}");
    assert!(answer.ends_with("\r\n\r\n"), "nothing follows the head: {answer}");
}

#[test]
fn a_target_that_is_no_path_is_a_fault_of_the_request() {
    let (world, client) = world("no path", 15_000);
    let port = client.port();
    let here = format!("127.0.0.1:{port}");
    let odd = [
        ("GET", "*", here.as_str()),
        ("HEAD", "*", &here),
        ("OPTIONS", "*", &here),
        ("GET", "*", "a"),
        ("GET", "/", "["),
    ];
    for (method, target, host) in odd {
        let mut socket =
            write(port, &format!("{method} {target} HTTP/1.1\r\nHost: {host}\r\nConnection: close\r\n\r\n"));
        let answer = read_to_close(&mut socket);
        assert!(matches!(status_of(&answer), "400" | "404"), "{method} {target} at {host}: {answer}");
        assert!(answer.contains("application/problem+json"), "{method} {target} at {host}: {answer}");
    }
    assert!(!world.output().contains("panicked"), "{}", world.output());
}
