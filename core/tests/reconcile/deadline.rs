//! Waiting, and what follows at the deadline: the capability matrix and the deadline policies of seed 1.

use crate::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::finding::Source;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::policy::{ATTEMPTS_MAX, OnExpiry, OnInterruption};
use holdfast_core::reconcile::*;
use holdfast_core::time::UnixMillis;

const KEPT: Action = Action::Quarantine { reduce: false };
const ESTIMATE: Action = Action::Finalize { basis: FinalizeBasis::Estimate };

fn defer(until: u64, look_up: bool) -> Action {
    Action::Defer { until: UnixMillis(until), look_up }
}

fn verdict(evidence: &Evidence, circumstances: &Circumstances) -> (u8, Action, ReasonCode) {
    let decision = decide(evidence, circumstances);
    (decision.rule, decision.action, decision.reason)
}

/// Seed 1, the table of "Choosing a Policy for Inference-Serving Reservations": look-ups where there are any, else
/// waiting for a signal; at the end the bounded ambiguity policy. Where the socket was the only lever and the driver is
/// proved dead, the work is dead too (design 7).
#[test]
fn capability_matrix() {
    let none = Capabilities::default();
    let (kept, dead) = ((KEPT, ReasonCode::ExpiredQuarantined), (ESTIMATE, ReasonCode::DriverLost));
    for (row, capabilities, looks_up, (action, reason)) in [
        ("cancel and status", Capabilities { cancel: true, status: true, ..none }, true, kept),
        ("cancel only", Capabilities { cancel: true, ..none }, false, kept),
        ("status only", Capabilities { status: true, ..none }, true, kept),
        ("neither", none, false, dead),
        ("neither, but it calls back", Capabilities { callback: true, ..none }, false, kept),
        ("neither, but a stream can be read on", Capabilities { resume: true, ..none }, false, kept),
        ("neither; a key outlives nothing", Capabilities { idempotency_key: true, ..none }, false, dead),
    ] {
        let until = if looks_up { NOW + 1_000 } else { DEADLINE };
        let waiting = verdict(&lost(), &Circumstances { capabilities, ..open() });
        assert_eq!(waiting, (7, defer(until, looks_up), ReasonCode::OutcomeOpen), "{row}");
        let ended = verdict(&lost(), &Circumstances { capabilities, ..due() });
        assert_eq!(ended, (11, action, reason), "{row}");
    }
}

/// Look-ups are backed off, and the last one comes at the deadline, not behind it. The deadline itself is due.
#[test]
fn waiting_ends_at_the_deadline() {
    let askable = Circumstances { capabilities: ASKABLE, ..open() };
    for (what, circumstances, until) in [
        ("first", askable, NOW + 1_000),
        ("fourth", Circumstances { lookups: 3, ..askable }, NOW + 8_000),
        ("with jitter", Circumstances { lookups: 3, jitter: 1_999, ..askable }, NOW + 9_999),
        ("as wished", Circumstances { retry_after_ms: Some(30_000), ..askable }, NOW + 30_000),
        ("wished for never", Circumstances { retry_after_ms: Some(u64::MAX), ..askable }, NOW + 240_000),
        ("wished for at once", Circumstances { retry_after_ms: Some(0), ..askable }, NOW + 1_000),
        ("close to the end", Circumstances { now: UnixMillis(DEADLINE - 400), ..askable }, DEADLINE),
        ("at the last moment", Circumstances { now: UnixMillis(DEADLINE - 1), ..askable }, DEADLINE),
    ] {
        assert_eq!(verdict(&lost(), &circumstances), (7, defer(until, true), ReasonCode::OutcomeOpen), "{what}");
    }
    for now in [DEADLINE, DEADLINE + 1, u64::MAX] {
        let circumstances = Circumstances { now: UnixMillis(now), ..askable };
        assert_eq!(verdict(&lost(), &circumstances).0, 11, "{now}");
    }
}

/// Seed 1, "Use Leases and Deadlines to Resolve Unknown Outcomes": what a route can choose. The choice stands over what
/// the capabilities suggest, and waits for the deadline.
#[test]
fn deadline_policies() {
    let released = |watch| Action::Release { basis: ReleaseBasis::Expiry { watch } };
    for (chosen, action, reason) in [
        (OnExpiry::Quarantine, KEPT, ReasonCode::ExpiredQuarantined),
        (OnExpiry::ReduceHold, Action::Quarantine { reduce: true }, ReasonCode::ExpiredReduced),
        (OnExpiry::ExpireAndWatch, released(true), ReasonCode::ExpiredWatching),
        (OnExpiry::Escalate, Action::Escalate, ReasonCode::Escalated),
        (OnExpiry::Release, released(false), ReasonCode::ExpiredReleased),
        (OnExpiry::SettleEstimate, ESTIMATE, ReasonCode::ExpiredEstimated),
    ] {
        for capabilities in [Capabilities::default(), ASKABLE] {
            let at = |circumstances| Circumstances { on_expiry: Some(chosen), capabilities, ..circumstances };
            assert_eq!(verdict(&lost(), &at(due())), (10, action, reason), "{chosen:?}");
            assert_eq!(verdict(&lost(), &at(open())).0, 7, "{chosen:?}");
            // Seed 2, recovery row e, is before any choice that gives something away.
            let high = Circumstances { escalate_above: Some(micros(999)), ..at(due()) };
            assert_eq!(verdict(&lost(), &high), (9, Action::Escalate, ReasonCode::Escalated), "{chosen:?}");
            let at_the_limit = Circumstances { escalate_above: Some(micros(1_000)), ..at(due()) };
            assert_eq!(verdict(&lost(), &at_the_limit), (10, action, reason), "{chosen:?}");
        }
    }
}

/// Invariant 12: no second dispatch for an attempt of unknown outcome, unless the route allows it; and then within the
/// attempts, under an extended hold, after the time of observation, and not beside an operation that runs.
#[test]
fn interruption_policies() {
    let retry = Circumstances { on_interruption: OnInterruption::Retry, ..due() };
    let again = (8, Action::Retry, ReasonCode::RetryExtended);
    let not_again = (11, ESTIMATE, ReasonCode::DriverLost);
    let running = Evidence { execution: phase(Phase::Processing, Source::Lookup), ..lost() };
    let begun = Evidence { execution: phase(Phase::Processing, Source::Stream), ..lost() };
    for (what, evidence, circumstances, expected) in [
        ("first", lost(), retry, again),
        ("it had begun", begun, retry, again),
        ("last but one", lost(), Circumstances { attempts: ATTEMPTS_MAX - 1, ..retry }, again),
        ("last", lost(), Circumstances { attempts: ATTEMPTS_MAX, ..retry }, not_again),
        ("no credit", lost(), Circumstances { retry_refused: true, ..retry }, not_again),
        ("it runs", running, retry, not_again),
        ("not allowed", lost(), due(), not_again),
        (
            "kept",
            lost(),
            Circumstances { on_interruption: OnInterruption::Quarantine, ..due() },
            (8, KEPT, ReasonCode::ExpiredQuarantined),
        ),
        (
            "there is time",
            lost(),
            Circumstances { now: UnixMillis(NOW), ..retry },
            (7, defer(DEADLINE, false), ReasonCode::OutcomeOpen),
        ),
    ] {
        assert_eq!(verdict(&evidence, &circumstances), expected, "{what}");
    }
}

/// Decisions are stored: their names are part of the format.
#[test]
fn decisions_are_stored_by_name() {
    let watched = Circumstances { on_expiry: Some(OnExpiry::ExpireAndWatch), ..due() };
    for (decision, json) in [
        (
            decide(&lost(), &watched),
            r#"{"action":{"action":"release","basis":{"expiry":{"watch":true}}},"reason":"expired_watching","candidate":"nothing_observed","pattern":"no_execution_or_usage","rule":10,"rules_version":"reconcile/1"}"#,
        ),
        (
            decide(&driven(DriverEvidence::Silent, lost()), &open()),
            r#"{"action":{"action":"defer","until":501000,"look_up":false},"reason":"outcome_open","candidate":"stale_worker","pattern":"recoverable_active_attempt","rule":6,"rules_version":"reconcile/1"}"#,
        ),
    ] {
        assert_eq!(serde_json::to_string(&decision).unwrap(), json);
        assert_eq!(serde_json::from_str::<Decision>(json).unwrap(), decision);
    }
    let evidence = lost();
    let json = serde_json::to_string(&evidence).unwrap();
    assert_eq!(serde_json::from_str::<Evidence>(&json).unwrap(), evidence);
}
