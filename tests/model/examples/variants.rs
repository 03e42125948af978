//! Explores some variants within the default bounds, and says what each costs: `variants [part of a name]… [--large]`.
use holdfast_model::{Config, check};

fn main() {
    let wanted: Vec<String> = std::env::args().skip(1).collect();
    let large = wanted.iter().any(|word| word == "--large");
    let mut config = if large { Config::large() } else { Config::default_test() };
    let names: Vec<&String> = wanted.iter().filter(|word| !word.starts_with("--")).collect();
    config.variants.retain(|variant| names.is_empty() || names.iter().any(|name| variant.name.contains(name.as_str())));
    let outcome = check(&config, 2, &mut |progress| {
        if progress.done {
            println!("{:>9} {:6.1} s  {}", progress.unique_states, progress.took.as_secs_f64(), progress.variant);
        }
    });
    println!("{} states, {} deep, {:.1} s", outcome.unique_states, outcome.depth, outcome.took.as_secs_f64());
    for found in &outcome.violations {
        println!("{found}");
    }
    for missed in outcome.missed() {
        println!("never reached: {}", missed.text());
    }
}
