//! Explores the large bounds and looks for every planted bug. Ends with one line that says what came of it.
//!
//! With words, it explores within the default bounds the variants whose names have one of them, and plants nothing:
//! `cargo run -p holdfast-model -- retry expiry`. With `--large` among them, within the large bounds.

use holdfast_model::{Bug, Config, Outcome, Progress, check, hunt};
use std::process::ExitCode;
use std::time::Duration;

/// Between two lines about the same variant.
const REPORT_EVERY: Duration = Duration::from_secs(10);

fn main() -> ExitCode {
    let threads = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    println!("Every history within the bounds, {threads} threads");
    let words: Vec<String> = std::env::args().skip(1).collect();
    if !words.is_empty() {
        let large = words.iter().any(|word| word == "--large");
        let mut config = if large { Config::large() } else { Config::default_test() };
        config.variants.retain(|variant| words.iter().any(|word| variant.name.contains(word.as_str())));
        let explored = explore(&config, threads);
        return if explored.violations.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE };
    }
    let explored = explore(&Config::large(), threads);
    for probe in explored.missed() {
        println!("  FAILED: never reached: {}", probe.text());
    }
    println!("Planted bugs");
    let caught = Bug::ALL.iter().filter(|bug| is_caught(**bug)).count();
    println!("model: {} unique states, {caught} of {} planted bugs caught", explored.unique_states, Bug::ALL.len());
    let holds = explored.violations.is_empty() && explored.missed().is_empty();
    if holds && caught == Bug::ALL.len() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

fn explore(config: &Config, threads: usize) -> Outcome {
    let mut said = Duration::ZERO;
    let explored = check(config, threads, &mut |progress: Progress| {
        let Progress { variant, unique_states, took, done } = progress;
        if done {
            println!("  ok   {variant}: {unique_states} states in {:.1} s", took.as_secs_f64());
            said = Duration::ZERO;
        } else if took.saturating_sub(said) >= REPORT_EVERY {
            println!("  ..   {variant}: {unique_states} states so far, {} s", took.as_secs());
            said = took;
        }
    });
    println!(
        "  {} unique states, {} steps, at most {} deep, {:.1} s",
        explored.unique_states,
        explored.steps,
        explored.depth,
        explored.took.as_secs_f64()
    );
    for (probe, hits) in &explored.probes {
        println!("  {hits:>9} times  {}", probe.text());
    }
    for found in &explored.violations {
        println!("  FAILED: {found}");
    }
    explored
}

fn is_caught(bug: Bug) -> bool {
    let (found, search) = hunt(bug);
    match &found {
        Some(found) => println!("  ok   {bug:?}: {} steps to a violation of {}", found.actions.len(), found.property),
        None => println!("  FAILED: {bug:?} breaks nothing within {} states", search.unique_states),
    }
    found.is_some()
}
