//! What the server's process costs. Linux only; elsewhere the run fails with a word about it.

use std::time::Duration;

/// CPU time that a server may use in [`QUIET_FOR`] and still count as quiet.
const QUIET_US: u64 = 500;
const QUIET_FOR: Duration = Duration::from_millis(150);
/// A server that is never quiet is measured after this time.
const QUIET_WITHIN: Duration = Duration::from_secs(5);

/// CPU time of all threads of a process, also of those that ended, user and system together, in microseconds.
#[cfg(target_os = "linux")]
pub(crate) fn cpu_us(pid: i32) -> Result<u64, String> {
    let time = nix::time::clock_getcpuclockid(nix::unistd::Pid::from_raw(pid))
        .and_then(nix::time::ClockId::now)
        .map_err(|error| format!("CPU time of process {pid}: {error}"))?;
    Ok(u64::try_from(Duration::from(time).as_micros()).unwrap_or(u64::MAX))
}

#[cfg(not(target_os = "linux"))]
pub(crate) fn cpu_us(_: i32) -> Result<u64, String> {
    Err("the CPU time of another process is read on Linux only".to_owned())
}

/// Waits until the process has done its work after the last answer, and gives its CPU time then.
pub(crate) async fn cpu_us_when_quiet(pid: i32) -> Result<u64, String> {
    let started = std::time::Instant::now();
    let mut before = cpu_us(pid)?;
    loop {
        tokio::time::sleep(QUIET_FOR).await;
        let after = cpu_us(pid)?;
        if after - before <= QUIET_US || started.elapsed() > QUIET_WITHIN {
            return Ok(after);
        }
        before = after;
    }
}

/// Resident memory now and at its peak, in KiB.
pub(crate) fn memory_kib(pid: i32) -> Result<(u64, u64), String> {
    let path = format!("/proc/{pid}/status");
    let status = std::fs::read_to_string(&path).map_err(|error| format!("{path}: {error}"))?;
    let field = |name| status_kib(&status, name).ok_or_else(|| format!("{path} has no {name}"));
    Ok((field("VmRSS:")?, field("VmHWM:")?))
}

fn status_kib(status: &str, name: &str) -> Option<u64> {
    let rest = status.lines().find_map(|line| line.strip_prefix(name))?;
    rest.trim().strip_suffix(" kB")?.parse().ok()
}

#[cfg(all(test, target_os = "linux"))]
mod tests {
    use super::*;

    #[test]
    fn fields_are_found() {
        let status = "Name:\tx\nVmHWM:\t   2048 kB\nVmRSS:\t     12 kB\n";
        assert_eq!(status_kib(status, "VmRSS:"), Some(12));
        assert_eq!(status_kib(status, "VmHWM:"), Some(2048));
        assert_eq!(status_kib(status, "VmSwap:"), None);
    }

    #[test]
    fn this_process_works_and_has_memory() {
        let pid = i32::try_from(std::process::id()).unwrap();
        let before = cpu_us(pid).unwrap();
        let mut state = 1_u64;
        while cpu_us(pid).unwrap() < before + 2_000 {
            state = std::hint::black_box(state.wrapping_mul(6_364_136_223_846_793_005));
        }
        let (now, peak) = memory_kib(pid).unwrap();
        assert!(now > 100 && peak >= now);
        // Beyond the largest process number that Linux gives.
        assert!(cpu_us((1 << 22) + 1).is_err());
    }
}
