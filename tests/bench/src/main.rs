//! The load client of the benchmark.
//!
//! It opens all its connections, starts one stream on each, checks every byte of every answer, reads the stamps that
//! the provider simulator puts into its tokens (`stamp=1`), watches the CPU time of the server's process, and prints
//! one line of JSON. It runs on one thread: the provider and the server under test need the other processors more.
//!
//! | field | meaning |
//! |---|---|
//! | `generations`, `tokens` | streams that ended whole, and the stamped tokens in them |
//! | `bytes` | body bytes received |
//! | `wall_ms` | from the first request to the end of the last answer |
//! | `ttft_ms` | from writing a request to the first body byte: `p50`, `p99`, `max` |
//! | `latency_ms` | from the provider's write of a token to its arrival here: `p50`, `p99`, `max` |
//! | `cpu_ms` | CPU time of the server's process, until it is quiet again after the last answer |
//! | `rss_kib`, `peak_rss_kib` | its memory after that, and its peak |

mod args;
mod chunked;
mod clock;
mod connection;
mod expected;
mod load;
mod process;
mod stats;

use std::process::ExitCode;

fn main() -> ExitCode {
    let plan = match args::parse(std::env::args().skip(1)) {
        Ok(plan) => plan,
        Err(message) => {
            eprintln!("{message}\n{}", args::USAGE);
            return ExitCode::from(2);
        }
    };
    match load::run(&plan) {
        Ok(report) => {
            println!("{report}");
            ExitCode::SUCCESS
        }
        Err(error) => {
            eprintln!("holdfast-bench: {error}");
            ExitCode::FAILURE
        }
    }
}
