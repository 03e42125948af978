//! A run: all connections, all streams, one report.

use std::sync::Arc;
use std::time::Duration;

use serde_json::{Value, json};
use tokio::time::Instant;

use crate::args::Plan;
use crate::connection::{Connection, Sample};
use crate::expected::Expected;
use crate::{process, stats};

/// Runs the plan and reports what was seen. The first thing that goes wrong fails the run.
pub(crate) fn run(plan: &Plan) -> Result<Value, String> {
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build();
    let runtime = runtime.map_err(|error| error.to_string())?;
    let limited = async { tokio::time::timeout(plan.timeout, measure(plan)).await };
    runtime.block_on(limited).map_err(|_| format!("not done after {} s", plan.timeout.as_secs()))?
}

async fn measure(plan: &Plan) -> Result<Value, String> {
    let expected = Arc::new(Expected::read(&plan.expected)?);
    let mut connections = Vec::with_capacity(plan.streams);
    for _ in 0..plan.streams {
        connections.push(Connection::open(plan.address).await?);
    }
    let cpu_before_us = plan.pid.map(process::cpu_us).transpose()?;
    let (samples, wall) = stream_all(plan, connections, &expected).await?;
    let mut report = summary(&samples, wall, &expected);
    if let Some((pid, before_us)) = plan.pid.zip(cpu_before_us) {
        let after_us = process::cpu_us_when_quiet(pid).await?;
        let (rss_kib, peak_rss_kib) = process::memory_kib(pid)?;
        report["cpu_ms"] = stats::ms(after_us - before_us).into();
        report["rss_kib"] = rss_kib.into();
        report["peak_rss_kib"] = peak_rss_kib.into();
    }
    Ok(report)
}

async fn stream_all(
    plan: &Plan,
    connections: Vec<Connection>,
    expected: &Arc<Expected>,
) -> Result<(Vec<Sample>, Duration), String> {
    let request: Arc<[u8]> = request(plan).into();
    let started = Instant::now();
    let count = u32::try_from(connections.len()).map_err(|error| error.to_string())?;
    let mut tasks = tokio::task::JoinSet::new();
    for (position, connection) in (0_u32..).zip(connections) {
        let due = started + plan.ramp * position / count;
        let (request, expected, rounds) = (Arc::clone(&request), Arc::clone(expected), plan.rounds);
        tasks.spawn(async move {
            tokio::time::sleep_until(due).await;
            stream_rounds(connection, &request, &expected, rounds).await
        });
    }
    let mut samples = Vec::with_capacity(plan.streams * plan.rounds);
    while let Some(ended) = tasks.join_next().await {
        samples.extend(ended.map_err(|error| error.to_string())??);
    }
    Ok((samples, started.elapsed()))
}

async fn stream_rounds(
    mut connection: Connection,
    request: &[u8],
    expected: &Expected,
    rounds: usize,
) -> Result<Vec<Sample>, String> {
    let mut samples = Vec::with_capacity(rounds);
    for _ in 0..rounds {
        samples.push(connection.exchange(request, expected).await?);
    }
    Ok(samples)
}

fn request(plan: &Plan) -> Vec<u8> {
    let mut body = json!({
        "model": plan.model,
        "stream": true,
        "messages": [{"role": "user", "content": "Tell me the time, again and again."}],
    });
    if plan.include_usage {
        body["stream_options"] = json!({"include_usage": true});
    }
    let body = body.to_string();
    let head = format!(
        "POST /v1/chat/completions HTTP/1.1\r\nhost: {}\r\nauthorization: Bearer {}\r\n\
         content-type: application/json\r\ncontent-length: {}\r\n\r\n",
        plan.address,
        plan.key,
        body.len(),
    );
    [head, body].concat().into_bytes()
}

fn summary(samples: &[Sample], wall: Duration, expected: &Expected) -> Value {
    let latencies_us: Vec<u64> = samples.iter().flat_map(|sample| sample.latencies_us.iter().copied()).collect();
    json!({
        "generations": samples.len(),
        "tokens": latencies_us.len(),
        "bytes": samples.len() * expected.len(),
        "wall_ms": wall.as_secs_f64() * 1000.0,
        "ttft_ms": stats::summary(samples.iter().map(|sample| sample.ttft_us).collect()),
        "latency_ms": stats::summary(latencies_us),
    })
}
