//! The tables of seed 2, and the declared order of the sources of truth.

use crate::world::*;
use holdfast_core::finding::{Finding, Source};
use holdfast_core::ledger::ReasonCode;
use holdfast_core::reconcile::*;
use holdfast_core::time::UnixMillis;

const EVIDENCE: Action = Action::Finalize { basis: FinalizeBasis::Evidence };
const UNEXECUTED: Action = Action::Release { basis: ReleaseBasis::Unexecuted };
const KEPT: Action = Action::Quarantine { reduce: false };

fn defer(until: u64, look_up: bool) -> Action {
    Action::Defer { until: UnixMillis(until), look_up }
}

/// The decision with the given candidate, pattern, action, reason and rule.
fn assert_decided(
    what: &str,
    evidence: &Evidence,
    circumstances: &Circumstances,
    expected: (Candidate, Pattern, Action, ReasonCode, u8),
) {
    let decision = decide(evidence, circumstances);
    let (candidate, pattern, action, reason, rule) = expected;
    let expected = Decision { action, reason, candidate, pattern, rule, rules_version: "reconcile/1".into() };
    assert_eq!(decision, expected, "{what}");
    assert_eq!(classify(evidence), candidate, "{what}");
}

/// Seed 2, candidate row 1: expired lease and stale heartbeat ⇒ check execution and usage before release or retry. A
/// silent driver is not released at any time: it was not fenced.
#[test]
fn candidate_row_1_stale_worker() {
    let silent = driven(DriverEvidence::Silent, lost());
    let (candidate, pattern) = (Candidate::StaleWorker, Pattern::RecoverableActiveAttempt);
    let askable = Circumstances { capabilities: ASKABLE, ..open() };
    for (what, evidence, circumstances, action) in [
        ("cannot be asked", silent.clone(), open(), defer(NOW + 1_000, false)),
        ("can be asked", silent.clone(), askable, defer(NOW + 1_000, true)),
        ("past the deadline", silent.clone(), due(), defer(DEADLINE + 1_000, false)),
        (
            "provably unsent, but the driver may still send",
            Evidence { execution: phase(Phase::Prepared, Source::OwnCount), ..silent },
            open(),
            defer(NOW + 1_000, false),
        ),
    ] {
        assert_decided(what, &evidence, &circumstances, (candidate, pattern, action, ReasonCode::OutcomeOpen, 6));
    }
    // Fenced, and seen at work: it may have crashed in the middle.
    for (what, evidence) in [
        ("answered", Evidence { execution: phase(Phase::Processing, Source::OwnCount), ..lost() }),
        ("broke off", Evidence { execution: phase(Phase::Ended, Source::OwnCount), ..lost() }),
        ("ended, says the provider", Evidence { execution: phase(Phase::Ended, Source::Lookup), ..lost() }),
        ("bytes were counted", Evidence { usage: usage(AT_LEAST, Source::OwnCount), ..lost() }),
    ] {
        let expected = (candidate, Pattern::NoExecutionOrUsage, defer(DEADLINE, false), ReasonCode::OutcomeOpen, 7);
        assert_decided(what, &evidence, &open(), expected);
    }
}

/// Seed 2, candidate row 2: expired lease but active job ⇒ recheck, renew conditionally, or defer.
#[test]
fn candidate_row_2_delayed_renewal() {
    let (candidate, pattern) = (Candidate::DelayedRenewal, Pattern::RecoverableActiveAttempt);
    let alive = driven(DriverEvidence::Alive, lost());
    for (what, evidence, circumstances, until) in [
        ("the driver lives", alive.clone(), open(), NOW + 1_000),
        ("a newer attempt owns", superseded(lost()), open(), NOW + 1_000),
        ("third time", alive.clone(), Circumstances { lookups: 2, ..open() }, NOW + 4_000),
        ("past the deadline", alive.clone(), due(), DEADLINE + 1_000),
        (
            "a completion of the old attempt settles nothing while a newer one owns",
            superseded(Evidence { completion: completion(Outcome::Completed, Source::Callback), ..lost() }),
            open(),
            NOW + 1_000,
        ),
    ] {
        let expected = (candidate, pattern, defer(until, false), ReasonCode::AttemptLive, 2);
        assert_decided(what, &evidence, &circumstances, expected);
    }
    // The driver is lost, and the provider says that it works on.
    for source in [Source::Lookup, Source::Callback, Source::Operator] {
        for at in [Phase::Submitted, Phase::Processing] {
            let evidence = Evidence { execution: phase(at, source), ..lost() };
            let circumstances = Circumstances { capabilities: ASKABLE, ..open() };
            let expected = (candidate, pattern, defer(NOW + 1_000, true), ReasonCode::OutcomeOpen, 7);
            assert_decided("the provider says that it runs", &evidence, &circumstances, expected);
        }
    }
}

/// Seed 2, candidate row 3: no completion event and no usage ⇒ the work may not have run: release, expire, retry, or
/// escalate under policy. Released at once only where it is proved that nothing was sent.
#[test]
fn candidate_row_3_nothing_observed() {
    let (candidate, pattern) = (Candidate::NothingObserved, Pattern::NoExecutionOrUsage);
    let prepared = Evidence { execution: phase(Phase::Prepared, Source::OwnCount), ..lost() };
    let released = (candidate, pattern, UNEXECUTED, ReasonCode::NeverSubmitted, 5);
    assert_decided("provably unsent", &prepared, &open(), released);
    assert_decided("provably unsent, later", &prepared, &due(), released);
    let denied = Evidence { execution: phase(Phase::Prepared, Source::Lookup), ..lost() };
    assert_decided("the provider says that nothing came", &denied, &open(), released);
    let high = Circumstances { escalate_above: Some(micros(1)), ..open() };
    assert_decided("a proof needs no operator", &prepared, &high, released);

    let waiting = (candidate, pattern, defer(DEADLINE, false), ReasonCode::OutcomeOpen, 7);
    assert_decided("something may have been sent", &lost(), &open(), waiting);
    for unknown in [Finding::NotApplicable, Finding::NotAvailable { why: "unreadable".into() }, not_observed()] {
        assert_decided("no row", &Evidence { execution: unknown, ..lost() }, &open(), waiting);
    }
    // The phase is this attempt's alone: the first one may have run.
    let second = Circumstances { attempts: 2, ..open() };
    assert_decided("a second attempt", &prepared, &second, waiting);
    let of_another = UsageEvidence { metered: EXACT, source: Source::Lookup, of_this_attempt: false };
    let evidence = Evidence { usage: Finding::of(of_another), ..lost() };
    assert_decided("usage of another attempt", &evidence, &open(), waiting);

    // A result contradicts the phase, whatever its quality.
    for contradicted in [
        Evidence { usage: usage(AT_LEAST, Source::OwnCount), ..prepared.clone() },
        Evidence { completion: completion(Outcome::Completed, Source::OwnCount), ..prepared },
    ] {
        let expected = (Candidate::StaleWorker, pattern, defer(DEADLINE, false), ReasonCode::OutcomeOpen, 7);
        assert_decided("unsent, yet with a result", &contradicted, &open(), expected);
    }
}

/// Seed 2, candidate row 4: usage exists but no finalized charge ⇒ finalize idempotently if the evidence is
/// authoritative.
#[test]
fn candidate_row_4_usage_without_charge() {
    let expected = (
        Candidate::UsageWithoutCharge,
        Pattern::ValidUsageIncompleteSettlement,
        EVIDENCE,
        ReasonCode::CompletedExact,
        4,
    );
    for source in [Source::Stream, Source::Callback, Source::Lookup, Source::Operator] {
        let evidence = Evidence { usage: usage(EXACT, source), ..lost() };
        assert_decided("fenced", &evidence, &open(), expected);
        assert_decided("the deadline changes nothing", &evidence, &due(), expected);
        assert_decided("silent", &driven(DriverEvidence::Silent, evidence), &open(), expected);
    }
    for (what, unproved) in [
        ("our own count", usage(EXACT, Source::OwnCount)),
        ("a lower bound", usage(AT_LEAST, Source::Lookup)),
        ("no usage", not_observed()),
    ] {
        let decision = decide(&Evidence { usage: unproved, ..lost() }, &open());
        assert_eq!((decision.rule, decision.action), (7, defer(DEADLINE, false)), "{what}");
    }
}

/// Seed 2, candidate row 5: completion exists but the ledger entry is absent ⇒ retry guarded finalization.
#[test]
fn candidate_row_5_completion_without_entry() {
    let pattern = Pattern::ValidUsageIncompleteSettlement;
    for (outcome, without_usage, with_usage) in [
        (Outcome::Completed, ReasonCode::CompletedWithoutUsage, ReasonCode::CompletedExact),
        (Outcome::Incomplete, ReasonCode::CompletedWithoutUsage, ReasonCode::CompletedExact),
        (Outcome::Failed, ReasonCode::OperationFailed, ReasonCode::OperationFailed),
        (Outcome::Cancelled, ReasonCode::CancelConfirmed, ReasonCode::CancelConfirmed),
    ] {
        for source in [Source::Stream, Source::Callback, Source::Lookup, Source::Operator] {
            let evidence = Evidence { completion: completion(outcome, source), ..lost() };
            let expected = (Candidate::CompletionWithoutEntry, pattern, EVIDENCE, without_usage, 4);
            assert_decided("without usage", &evidence, &open(), expected);
            // A stale report that it runs does not outlive its completion.
            let evidence = Evidence { execution: phase(Phase::Processing, Source::Lookup), ..evidence };
            assert_decided("and a stale report", &evidence, &open(), expected);
            let evidence = Evidence { usage: usage(EXACT, source), ..evidence };
            let expected = (Candidate::CompletionWithoutEntry, pattern, EVIDENCE, with_usage, 4);
            assert_decided("with usage", &evidence, &open(), expected);
        }
    }
    // Somebody must say so: our own count is nobody.
    let counted = Evidence { completion: completion(Outcome::Completed, Source::OwnCount), ..lost() };
    assert_eq!(decide(&counted, &open()).rule, 7);

    // Authored already: the outbox delivers it, nothing is decided a second time (invariant 1).
    let posted = Evidence {
        completion: completion(Outcome::Completed, Source::Lookup),
        ledger: LedgerEvidence::Posted,
        ..lost()
    };
    for (what, evidence) in [
        ("completed", posted.clone()),
        ("with usage", Evidence { usage: usage(EXACT, Source::Stream), ..posted }),
        ("without a result", Evidence { ledger: LedgerEvidence::Posted, ..lost() }),
    ] {
        let circumstances = Circumstances { capabilities: ASKABLE, ..due() };
        let expected =
            (Candidate::NotACandidate, pattern, defer(DEADLINE + 1_000, false), ReasonCode::PostingUnderway, 3);
        assert_decided(what, &evidence, &circumstances, expected);
    }
}

/// Seed 2, candidate row 6: conflicting usage or attempt records ⇒ quarantine or send for manual review.
#[test]
fn candidate_row_6_conflicting() {
    let conflict = Evidence { conflict: true, ..lost() };
    let kept = (Candidate::Conflicting, Pattern::ConflictingEvidence, KEPT, ReasonCode::EvidenceConflict, 1);
    for (what, evidence) in [
        ("nothing else", conflict.clone()),
        ("usage", Evidence { usage: usage(EXACT, Source::Lookup), ..conflict.clone() }),
        ("completion", Evidence { completion: completion(Outcome::Completed, Source::Callback), ..conflict.clone() }),
        ("unsent", Evidence { execution: phase(Phase::Prepared, Source::OwnCount), ..conflict.clone() }),
        ("a driver that lives", leased(driven(DriverEvidence::Alive, conflict.clone()))),
    ] {
        assert_decided(what, &evidence, &open(), kept);
        assert_decided(what, &evidence, &due(), kept);
    }
    let at_the_limit = Circumstances { escalate_above: Some(micros(1_000)), ..open() };
    assert_decided("not above", &conflict, &at_the_limit, kept);
    let above = Circumstances { escalate_above: Some(micros(999)), ..open() };
    let called =
        (Candidate::Conflicting, Pattern::HighValueAmbiguity, Action::Escalate, ReasonCode::EvidenceConflict, 1);
    assert_decided("above", &conflict, &above, called);
}

/// Seed 2: pending and expired makes a candidate. Whose lease holds is none; whose driver was fenced is one, whatever
/// the newer epoch's lease says.
#[test]
fn whose_lease_holds_is_no_candidate() {
    for driver in [DriverEvidence::Alive, DriverEvidence::Silent] {
        let evidence = leased(driven(driver, lost()));
        assert_eq!(classify(&evidence), Candidate::NotACandidate, "{driver:?}");
        // It is looked at again when the lease ends, not before.
        assert!(
            matches!(decide(&evidence, &open()).action, Action::Defer { until: UnixMillis(until), .. } if until == NOW + 7_000)
        );
    }
    assert_eq!(classify(&leased(lost())), Candidate::NothingObserved);
}

/// Seed 2, recovery rows a to e.
#[test]
fn recovery_rows() {
    let high = |circumstances| Circumstances { escalate_above: Some(micros(999)), ..circumstances };
    let used = Evidence { usage: usage(EXACT, Source::Stream), ..lost() };
    let running = Evidence { execution: phase(Phase::Processing, Source::Lookup), ..lost() };
    for (row, evidence, circumstances, pattern, action) in [
        ("a", lost(), open(), Pattern::NoExecutionOrUsage, defer(DEADLINE, false)),
        ("a", lost(), due(), Pattern::NoExecutionOrUsage, Action::Finalize { basis: FinalizeBasis::Estimate }),
        ("b", used.clone(), open(), Pattern::ValidUsageIncompleteSettlement, EVIDENCE),
        ("b", used.clone(), high(due()), Pattern::ValidUsageIncompleteSettlement, EVIDENCE),
        (
            "c",
            driven(DriverEvidence::Alive, used.clone()),
            due(),
            Pattern::RecoverableActiveAttempt,
            defer(DEADLINE + 1_000, false),
        ),
        (
            "c",
            driven(DriverEvidence::Silent, lost()),
            due(),
            Pattern::RecoverableActiveAttempt,
            defer(DEADLINE + 1_000, false),
        ),
        ("c", running.clone(), open(), Pattern::RecoverableActiveAttempt, defer(DEADLINE, false)),
        ("d", Evidence { conflict: true, ..used }, open(), Pattern::ConflictingEvidence, KEPT),
        ("e", lost(), high(due()), Pattern::HighValueAmbiguity, Action::Escalate),
        ("e", running, high(due()), Pattern::HighValueAmbiguity, Action::Escalate),
    ] {
        let decision = decide(&evidence, &circumstances);
        assert_eq!((decision.pattern, decision.action), (pattern, action), "row {row}: {evidence:?}");
    }
}

/// Design 6: operator > provider lookup or verified callback > terminal event of the stream > our own count; equal ranks
/// that differ are a dispute. Every pair, both ways round.
#[test]
fn declared_order_of_sources() {
    const ORDER: [(Source, u8); 5] =
        [(Source::Operator, 0), (Source::Lookup, 1), (Source::Callback, 1), (Source::Stream, 2), (Source::OwnCount, 3)];
    for (first, first_place) in ORDER {
        for (second, second_place) in ORDER {
            let (agreed, differing) = match (first_place, second_place) {
                (a, b) if a < b => (Preference::First, Preference::First),
                (a, b) if a > b => (Preference::Second, Preference::Second),
                _ => (Preference::Same, Preference::Conflict),
            };
            assert_eq!(prefer((first, &EXACT), (second, &EXACT)), agreed, "{first:?} {second:?}");
            assert_eq!(prefer((first, &EXACT), (second, &AT_LEAST)), differing, "{first:?} {second:?}");
        }
    }
}
