//! The load client against the provider simulator: what it counts, and that it fails when it must.

use std::io::Write as _;
use std::process::{Command, Output};

use holdfast_simulator::{Config, Simulator};
use serde_json::Value;

const STAMPED: &str = "gen?tokens=30&interval_ms=2&stamp=1";

/// The body of `model`, without its faults, got by a plain request.
fn expected_body(simulator: &Simulator, model: &str) -> Vec<u8> {
    use std::io::Read as _;
    let model = model.replace('=', "%3D").replace('&', "%26").replace('?', "%3F");
    let mut stream = std::net::TcpStream::connect(simulator.addr()).unwrap();
    let request =
        format!("GET /__expected?model={model}&faults=false HTTP/1.1\r\nhost: x\r\nconnection: close\r\n\r\n");
    stream.write_all(request.as_bytes()).unwrap();
    let mut answer = Vec::new();
    stream.read_to_end(&mut answer).unwrap();
    let end_of_head = answer.windows(4).position(|window| window == b"\r\n\r\n").unwrap() + 4;
    answer.split_off(end_of_head)
}

/// Runs the client on `model`; it expects the body of `expected`, without its faults.
fn run_expecting(model: &str, expected: &str, more: &[&str]) -> Output {
    let runtime = tokio::runtime::Runtime::new().unwrap();
    let simulator = runtime.block_on(Simulator::start(Config::default())).unwrap();
    let mut file = tempfile::NamedTempFile::new().unwrap();
    file.write_all(&expected_body(&simulator, expected)).unwrap();
    Command::new(env!("CARGO_BIN_EXE_holdfast-bench"))
        .args(["--address", &simulator.addr().to_string(), "--key", "k", "--model", model])
        .args(["--expected", file.path().to_str().unwrap()])
        .args(more)
        .output()
        .unwrap()
}

fn run(model: &str, more: &[&str]) -> Output {
    run_expecting(model, model, more)
}

fn report(output: &Output) -> Value {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    serde_json::from_slice(&output.stdout).unwrap()
}

#[test]
fn all_streams_are_counted_and_timed() {
    let report = report(&run(STAMPED, &["--streams", "3", "--rounds", "2", "--ramp-ms", "30"]));
    assert_eq!((&report["generations"], &report["tokens"]), (&6.into(), &180.into()));
    // Thirty intervals of 2 ms, twice, behind a third of the ramp or two.
    assert!(report["wall_ms"].as_f64().unwrap() >= 120.0, "{report}");
    for field in ["ttft_ms", "latency_ms"] {
        let of = |name: &str| report[field][name].as_f64().unwrap();
        assert!(of("p50") <= of("p99") && of("p99") <= of("max") && of("max") < 20_000.0, "{report}");
    }
    // On one machine a token takes some microseconds, never a second.
    let p50 = report["latency_ms"]["p50"].as_f64().unwrap();
    assert!(p50 > 0.0 && p50 < 1000.0, "{report}");
}

#[test]
#[cfg(target_os = "linux")]
fn the_cost_of_a_process_is_reported() {
    let pid = std::process::id().to_string(); // the simulator runs in this process
    let report = report(&run(STAMPED, &["--pid", &pid]));
    assert!(report["cpu_ms"].as_f64().unwrap() > 0.0, "{report}");
    assert!(report["peak_rss_kib"].as_u64() >= report["rss_kib"].as_u64(), "{report}");
}

#[test]
fn what_is_not_whole_fails() {
    for (model, word) in [
        (format!("{STAMPED}&fin_at=900"), "closed the connection"),
        (format!("{STAMPED}&reset_at=900"), "reading the answer"),
        (format!("{STAMPED}&end_at=900"), "first difference at byte 900"),
    ] {
        let output = run(&model, &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(word), "{model}: {error}");
    }
}

#[test]
fn what_is_not_expected_fails() {
    for (model, word) in [
        (format!("{STAMPED}&status=500"), "not a streamed answer"),
        (format!("{STAMPED}&tag=other"), "first difference"),
        (STAMPED.replace("&stamp=1", ""), "no stamp at byte"),
    ] {
        let output = run_expecting(&model, STAMPED, &[]);
        let error = String::from_utf8_lossy(&output.stderr).into_owned();
        assert!(!output.status.success() && error.contains(word), "{model}: {error}");
    }
}

#[test]
fn a_stalled_answer_ends_with_the_time() {
    let output = run(&format!("{STAMPED}&stall_at=900"), &["--timeout-s", "1"]);
    let error = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(!output.status.success() && error.contains("not done after 1 s"), "{error}");
}
