//! The program itself.

use std::io::{BufRead, BufReader, Read, Write};
use std::net::TcpStream;
use std::process::{Command, Stdio};

#[test]
fn it_says_where_it_listens() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_holdfast-simulator"))
        .args(["--port", "0"])
        .current_dir(std::env::temp_dir())
        .stdout(Stdio::piped())
        .spawn()
        .unwrap();
    let mut line = String::new();
    BufReader::new(child.stdout.take().unwrap()).read_line(&mut line).unwrap();
    let address = line.trim_end().strip_prefix("simulator listening on http://").unwrap().to_owned();
    assert!(address.starts_with("127.0.0.1:"), "{line}");
    let mut stream = TcpStream::connect(&address).unwrap();
    stream.write_all(b"GET /__expected?model=recording/crlf HTTP/1.1\r\nconnection: close\r\n\r\n").unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    child.kill().unwrap();
    child.wait().unwrap();
    assert!(answer.ends_with(include_bytes!("../recordings/crlf.sse")));
}

#[test]
fn it_refuses_what_it_does_not_know() {
    for arguments in [&["--prot", "1"][..], &["--port", "many"], &["--port"]] {
        let output = Command::new(env!("CARGO_BIN_EXE_holdfast-simulator")).args(arguments).output().unwrap();
        assert_eq!(output.status.code(), Some(2), "{arguments:?}");
        assert!(String::from_utf8_lossy(&output.stderr).contains("usage:"));
    }
    let output = Command::new(env!("CARGO_BIN_EXE_holdfast-simulator"))
        .args(["--recordings", "/nonexistent/folder"])
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
}
