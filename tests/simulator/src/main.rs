//! The provider simulator as a program: `holdfast-simulator [--port 0] [--recordings DIR]`.
#![forbid(unsafe_code)]

use std::io::Write;
use std::process::ExitCode;

use holdfast_simulator::{Config, Simulator};

const USAGE: &str = "usage: holdfast-simulator [--port PORT] [--recordings DIR] [--log-max ENTRIES]";

fn main() -> ExitCode {
    let config = match parse(std::env::args().skip(1)) {
        Ok(Some(config)) => config,
        Ok(None) => {
            println!("{USAGE}");
            return ExitCode::SUCCESS;
        }
        Err(message) => {
            eprintln!("{message}\n{USAGE}");
            return ExitCode::from(2);
        }
    };
    match run(config) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("holdfast-simulator: {error}");
            ExitCode::FAILURE
        }
    }
}

/// `None` when help was asked for.
fn parse(mut arguments: impl Iterator<Item = String>) -> Result<Option<Config>, String> {
    let mut config = Config::default();
    while let Some(argument) = arguments.next() {
        if argument == "--help" || argument == "-h" {
            return Ok(None);
        }
        let (name, inline) = match argument.split_once('=') {
            Some((name, value)) => (name.to_owned(), Some(value.to_owned())),
            None => (argument, None),
        };
        let value = inline.or_else(|| arguments.next()).ok_or_else(|| format!("{name} needs a value"))?;
        let number_expected = || format!("{name} needs a number, not {value:?}");
        match name.as_str() {
            "--port" => config.port = value.parse().map_err(|_| number_expected())?,
            "--log-max" => config.log_max = value.parse().map_err(|_| number_expected())?,
            "--recordings" => config.recordings = Some(value.into()),
            _ => return Err(format!("unknown option {name}")),
        }
    }
    Ok(Some(config))
}

#[tokio::main]
async fn run(config: Config) -> std::io::Result<()> {
    let simulator = Simulator::start(config).await?;
    let mut out = std::io::stdout();
    writeln!(out, "simulator listening on {}", simulator.origin())?;
    out.flush()?;
    simulator.wait().await;
    Ok(())
}
