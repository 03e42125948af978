//! Who came back, and who did not.

use holdfast_core::economics::{Departure, RE_ASK_WINDOW_MS, ReAskRate, Run, fingerprint, re_ask_rate};
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;

const MINUTE: u64 = 60_000;
const LATER: u64 = 1_000 * MINUTE;
const PROMPT: &str = "Write an evidence summary for the audit";

fn run(client: &str, prompt: &str, started_at: u64, departure: Option<Departure>) -> Run {
    let fingerprint = fingerprint(b"key", prompt);
    Run { client: client.into(), fingerprint, started_at: UnixMillis(started_at), departure }
}

fn cancelled(disconnected_at: u64) -> Option<Departure> {
    Some(Departure::Cancelled { disconnected_at: UnixMillis(disconnected_at) })
}

fn detached(finished_at: u64, read_later: bool) -> Option<Departure> {
    Some(Departure::Detached { finished_at: UnixMillis(finished_at), read_later })
}

fn rate(runs: &[Run], now: u64) -> (u16, u32) {
    let ReAskRate { rate_per_mille, samples } = re_ask_rate(runs, UnixMillis(now));
    (rate_per_mille.get(), samples)
}

/// Seed 4: "near-identical prompts inside ten minutes". Ten minutes after the disconnect is too late.
#[test]
fn edges_of_the_window() {
    assert_eq!(RE_ASK_WINDOW_MS, 10 * MINUTE);
    let (start, left) = (5_000, 65_000);
    for (what, client, prompt, again_at, returned) in [
        ("at 9:59.999", "a", PROMPT, left + 599_999, true),
        ("at 10:00.000", "a", PROMPT, left + 600_000, false),
        ("at the disconnect", "a", PROMPT, left, true),
        ("before the disconnect was noticed", "a", PROMPT, start + 1, true),
        ("at the same moment", "a", PROMPT, start, false),
        ("before", "a", PROMPT, start - 1, false),
        ("another client", "b", PROMPT, left + 1, false),
        ("another question", "a", "Write a poem about the sea", left + 1, false),
        ("the same in capitals", "a", "WRITE AN EVIDENCE SUMMARY FOR THE AUDIT!", left + 1, true),
    ] {
        let runs = [run("a", PROMPT, start, cancelled(left)), run(client, prompt, again_at, None)];
        let expected = (if returned { 1_000 } else { 0 }, 1);
        assert_eq!(rate(&runs, LATER), expected, "{what}");
        let [first, second] = runs;
        assert_eq!(rate(&[second, first], LATER), expected, "{what}, listed the other way round");
    }
}

/// Design 5: "after a detached one, a later read of the result counts".
#[test]
fn reads_of_detached_results() {
    assert_eq!(rate(&[run("a", PROMPT, 0, detached(90_000, true))], LATER), (1_000, 1));
    assert_eq!(rate(&[run("a", PROMPT, 0, detached(90_000, false))], LATER), (0, 1));
    // Asking again is no read: the result was there.
    let runs = [run("a", PROMPT, 0, detached(90_000, false)), run("a", PROMPT, 91_000, None)];
    assert_eq!(rate(&runs, LATER), (0, 1));
}

/// Neither a return nor a stay-away is counted before its ten minutes are over.
#[test]
fn samples_wait_for_their_window() {
    let again = run("a", PROMPT, 2 * MINUTE, None);
    for (departure, with) in [
        (cancelled(MINUTE), &[again][..]),
        (detached(MINUTE, true), &[]),
        (cancelled(MINUTE), &[]),
        (detached(MINUTE, false), &[]),
    ] {
        let mut runs = with.to_vec();
        runs.push(run("a", PROMPT, 0, departure));
        assert_eq!(rate(&runs, 11 * MINUTE - 1), (0, 0), "{departure:?}");
        assert_eq!(rate(&runs, 11 * MINUTE).1, 1, "{departure:?}");
    }
}

/// Each new generation stands for one cancelled run, the latest before it.
#[test]
fn one_return_counts_once() {
    let first = run("a", PROMPT, 0, cancelled(MINUTE));
    let second = run("a", PROMPT, 2 * MINUTE, cancelled(3 * MINUTE));
    let third = run("a", PROMPT, 4 * MINUTE, None);
    let chain = [first.clone(), second, third.clone()];
    assert_eq!(rate(&chain, LATER), (1_000, 2), "each run of a chain was asked again by the next");
    let twins = [first.clone(), first.clone(), third.clone()];
    assert_eq!(rate(&twins, LATER), (500, 2), "two runs at once, one return");
    let twice = [first.clone(), third.clone(), run("a", PROMPT, 5 * MINUTE, None)];
    assert_eq!(rate(&twice, LATER), (1_000, 1), "one run, two returns");
    assert_eq!(rate(&[third], LATER), (0, 0), "a run that kept its reader is no sample");
    assert_eq!(rate(&[], LATER), (0, 0));
}

/// Seed 4's 74 %, from both kinds of departure.
#[test]
fn seventy_four_per_cent() {
    let mut runs = Vec::new();
    for n in 0..25 {
        let client = format!("c{n}");
        runs.push(run(&client, PROMPT, n, cancelled(n + MINUTE)));
        if n < 18 {
            runs.push(run(&client, PROMPT, n + 2 * MINUTE, None));
        }
        runs.push(run(&client, PROMPT, n + 30 * MINUTE, detached(n + 31 * MINUTE, n < 19)));
    }
    assert_eq!(rate(&runs, LATER), (740, 50));
    runs.push(run("one more", PROMPT, 0, cancelled(1)));
    assert_eq!(rate(&runs, LATER), (725, 51), "37 of 51, rounded down");
}

fn any_run() -> impl Strategy<Value = Run> {
    let departure = prop_oneof![
        Just(None),
        (0_u64..30).prop_map(|minute| cancelled(minute * MINUTE)),
        (0_u64..30, any::<bool>()).prop_map(|(minute, read)| detached(minute * MINUTE, read)),
    ];
    (0_usize..2, 0_usize..2, 0_u64..30, departure).prop_map(|(client, prompt, minute, departure)| {
        run(["a", "b"][client], [PROMPT, "Write a poem about the sea"][prompt], minute * MINUTE, departure)
    })
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, cases: 64, ..ProptestConfig::default() })]

    #[test]
    fn order_of_runs_does_not_matter(runs in proptest::collection::vec(any_run(), 0..12), now in 0_u64..60) {
        let backwards: Vec<Run> = runs.iter().rev().cloned().collect();
        prop_assert_eq!(rate(&runs, now * MINUTE), rate(&backwards, now * MINUTE));
        let departures = runs.iter().filter(|run| run.departure.is_some()).count();
        prop_assert!(usize::try_from(rate(&runs, now * MINUTE).1).unwrap() <= departures);
        prop_assert_eq!(usize::try_from(rate(&runs, LATER).1).unwrap(), departures);
    }
}
