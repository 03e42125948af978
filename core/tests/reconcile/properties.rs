//! What holds for every evidence under all circumstances.

use crate::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::finding::{Finding, Source};
use holdfast_core::policy::{OnExpiry, OnInterruption};
use holdfast_core::reconcile::*;
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;
use proptest::sample::select;
use std::collections::BTreeSet;

/// Times up to the bound of the format.
fn time() -> impl Strategy<Value = UnixMillis> {
    prop_oneof![0..4 * DEADLINE, 0..1_u64 << 53, Just((1 << 53) - 1)].prop_map(UnixMillis)
}

fn source() -> impl Strategy<Value = Source> {
    select(vec![Source::Operator, Source::Lookup, Source::Callback, Source::Stream, Source::OwnCount])
}

/// Something found half of the time, else one of the three absences.
fn finding<T: core::fmt::Debug + Clone>(value: impl Strategy<Value = T>) -> impl Strategy<Value = Finding<T>> {
    (value, 0..6_u8, time(), time()).prop_map(|(value, kind, from, until)| match kind {
        0 => Finding::NotApplicable,
        1 => Finding::NotAvailable { why: "unreadable".into() },
        2 => Finding::SearchedNotObserved { stores: vec!["log".into()], from, until },
        _ => Finding::of(value),
    })
}

prop_compose! {
    fn evidence()(
        (expires_at, expired, last_sign_at) in (time(), any::<bool>(), time()),
        driver in select(vec![DriverEvidence::Alive, DriverEvidence::Silent, DriverEvidence::Fenced, DriverEvidence::Fenced]),
        newer_attempt_owns in prop::bool::weighted(0.1),
        execution in finding(
            (select(vec![Phase::Prepared, Phase::Submitted, Phase::Processing, Phase::Ended]), source())
                .prop_map(|(phase, source)| ExecutionEvidence { phase, source })
        ),
        usage in finding(
            (select(vec![EXACT, AT_LEAST]), source(), any::<bool>())
                .prop_map(|(metered, source, of_this_attempt)| UsageEvidence { metered, source, of_this_attempt })
        ),
        completion in finding(
            (select(vec![Outcome::Completed, Outcome::Incomplete, Outcome::Failed, Outcome::Cancelled]), source())
                .prop_map(|(outcome, source)| CompletionEvidence { outcome, source })
        ),
        posted in prop::bool::weighted(0.1),
        conflict in prop::bool::weighted(0.1),
    ) -> Evidence {
        Evidence {
            lease: LeaseEvidence { expires_at, expired },
            owner: OwnerEvidence { epoch: 1, last_sign_at, driver, newer_attempt_owns },
            execution,
            usage,
            completion,
            ledger: if posted { LedgerEvidence::Posted } else { LedgerEvidence::NothingPosted },
            conflict,
        }
    }
}

prop_compose! {
    fn circumstances()(
        capabilities in any::<[bool; 5]>(),
        on_expiry in prop::option::of(select(vec![
            OnExpiry::Quarantine,
            OnExpiry::ReduceHold,
            OnExpiry::ExpireAndWatch,
            OnExpiry::Escalate,
            OnExpiry::Release,
            OnExpiry::SettleEstimate,
        ])),
        on_interruption in select(vec![OnInterruption::Fail, OnInterruption::Retry, OnInterruption::Quarantine]),
        escalate_above in prop::option::weighted(0.2, 0..2_000_u64),
        (deadline, now) in (time(), time()),
        (lookups, attempts, retry_refused) in (0..50_u32, 0..5_u32, any::<bool>()),
        (retry_after_ms, jitter) in (any::<Option<u64>>(), any::<u64>()),
    ) -> Circumstances {
        let [cancel, status, resume, callback, idempotency_key] = capabilities;
        Circumstances {
            capabilities: Capabilities { cancel, status, resume, callback, idempotency_key },
            on_expiry,
            on_interruption,
            hold: micros(1_000),
            escalate_above: escalate_above.map(micros),
            deadline,
            lookups,
            attempts,
            retry_refused,
            retry_after_ms,
            jitter,
            now,
        }
    }
}

/// An action that ends the hold, or spends more, without evidence of the outcome.
fn is_without_evidence(action: Action) -> bool {
    matches!(
        action,
        Action::Release { basis: ReleaseBasis::Expiry { .. } }
            | Action::Finalize { basis: FinalizeBasis::Estimate }
            | Action::Retry
    )
}

/// An action that gives credit back, settles by a guess, or dispatches again.
fn is_dangerous(action: Action) -> bool {
    is_without_evidence(action) || matches!(action, Action::Release { .. })
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 8_000, failure_persistence: None, ..ProptestConfig::default() })]

    /// Every evidence has a decision, by a rule of the table; the same again is the same.
    #[test]
    fn decide_is_total(evidence in evidence(), circumstances in circumstances()) {
        let decision = decide(&evidence, &circumstances);
        prop_assert!(RULES.iter().any(|rule| rule.number == decision.rule));
        prop_assert_eq!(decision.rules_version.as_str(), RULES_VERSION);
        prop_assert_eq!(decision.candidate, classify(&evidence));
        prop_assert_eq!(decision.pattern == Pattern::HighValueAmbiguity, decision.action == Action::Escalate);
        prop_assert_eq!(&decision, &decide(&evidence, &circumstances));
    }

    /// A deferred decision lies ahead, within reach, so a loop neither spins nor sleeps for good.
    #[test]
    fn a_deferred_decision_comes(evidence in evidence(), circumstances in circumstances()) {
        if let Action::Defer { until, look_up } = decide(&evidence, &circumstances).action {
            prop_assert!(until > circumstances.now);
            let latest = circumstances.now.plus(BACKOFF_MAX_MS).max(circumstances.deadline).max(evidence.lease.expires_at);
            prop_assert!(until <= latest);
            prop_assert!(!look_up || circumstances.capabilities.status);
        }
    }

    /// Invariant 4: nothing is released while an attempt may still be live or a newer attempt owns, whatever the time.
    #[test]
    fn nothing_is_given_away_without_a_fence(evidence in evidence(), circumstances in circumstances()) {
        let action = decide(&evidence, &circumstances).action;
        if evidence.owner.driver != DriverEvidence::Fenced || evidence.owner.newer_attempt_owns {
            prop_assert!(!is_dangerous(action), "{action:?}");
        }
        if evidence.owner.driver == DriverEvidence::Alive || evidence.owner.newer_attempt_owns {
            prop_assert!(!matches!(action, Action::Finalize { .. }), "{action:?}");
        }
    }

    /// Before the deadline only evidence ends a hold, and a conflict is not settled at any time.
    #[test]
    fn before_the_deadline_only_evidence_settles(evidence in evidence(), circumstances in circumstances()) {
        let action = decide(&evidence, &circumstances).action;
        if circumstances.now < circumstances.deadline {
            prop_assert!(!is_without_evidence(action), "{action:?}");
        }
        if evidence.conflict {
            prop_assert!(matches!(action, Action::Quarantine { reduce: false } | Action::Escalate), "{action:?}");
        }
        if evidence.ledger == LedgerEvidence::Posted {
            prop_assert!(!is_dangerous(action) && !matches!(action, Action::Finalize { .. }), "{action:?}");
        }
    }

    /// Seed 2: age alone cannot identify an orphan. Other times, the same candidate and pattern of evidence.
    #[test]
    fn classification_is_never_from_age(
        evidence in evidence(),
        circumstances in circumstances(),
        (expires_at, last_sign_at, now, deadline) in (time(), time(), time(), time()),
    ) {
        let mut aged = evidence.clone();
        aged.lease.expires_at = expires_at;
        aged.owner.last_sign_at = last_sign_at;
        let later = Circumstances { now, deadline, ..circumstances };
        prop_assert_eq!(classify(&aged), classify(&evidence));
        let (one, other) = (decide(&evidence, &circumstances), decide(&aged, &later));
        prop_assert_eq!(one.candidate, other.candidate);
        if one.action != Action::Escalate && other.action != Action::Escalate {
            prop_assert_eq!(one.pattern, other.pattern);
        }
    }

    /// After faults stop, a bounded drain resolves everything (invariant 7): once fenced and past the deadline, no
    /// decision is put off, unless somebody owns or the posting is on its way.
    #[test]
    fn at_the_deadline_something_is_decided(evidence in evidence(), circumstances in circumstances()) {
        let fenced = evidence.owner.driver == DriverEvidence::Fenced && !evidence.owner.newer_attempt_owns;
        if fenced && evidence.ledger == LedgerEvidence::NothingPosted && circumstances.now >= circumstances.deadline {
            let action = decide(&evidence, &circumstances).action;
            prop_assert!(!matches!(action, Action::Defer { .. }), "{action:?}");
        }
    }

    /// Invariant 12, and the operator's word: no second dispatch that the route does not allow, and nothing of high
    /// value is given away by a rule alone.
    #[test]
    fn the_route_limits_what_is_done(evidence in evidence(), circumstances in circumstances()) {
        let action = decide(&evidence, &circumstances).action;
        if circumstances.on_interruption != OnInterruption::Retry || circumstances.retry_refused {
            prop_assert_ne!(action, Action::Retry);
        }
        if circumstances.escalate_above.is_some_and(|limit| circumstances.hold > limit) {
            prop_assert!(!is_without_evidence(action) || action == Action::Retry, "{action:?}");
        }
    }

    /// Bounded whatever comes in; monotone without jitter; jitter below a quarter.
    #[test]
    fn backoff_is_bounded(lookups in any::<u32>(), wish in any::<Option<u64>>(), jitter in any::<u64>()) {
        let plain = backoff_ms(lookups, wish, 0);
        prop_assert!((BACKOFF_BASE_MS..=RETRY_AFTER_MAX_MS).contains(&plain));
        prop_assert!(plain <= backoff_ms(lookups.saturating_add(1), wish, 0));
        prop_assert!(plain >= backoff_ms(lookups, None, 0));
        let jittered = backoff_ms(lookups, wish, jitter);
        prop_assert!(jittered >= plain && jittered - plain < plain / 4 && jittered <= BACKOFF_MAX_MS);
    }
}

/// No rule of the table is dead.
#[test]
fn every_rule_is_reached() {
    let askable = Circumstances { capabilities: ASKABLE, ..open() };
    let reached: BTreeSet<u8> = [
        (Evidence { conflict: true, ..lost() }, open()),
        (driven(DriverEvidence::Alive, lost()), open()),
        (Evidence { ledger: LedgerEvidence::Posted, ..lost() }, open()),
        (Evidence { usage: usage(EXACT, Source::Lookup), ..lost() }, open()),
        (Evidence { execution: phase(Phase::Prepared, Source::OwnCount), ..lost() }, open()),
        (driven(DriverEvidence::Silent, lost()), open()),
        (lost(), askable),
        (lost(), Circumstances { on_interruption: OnInterruption::Retry, ..due() }),
        (lost(), Circumstances { escalate_above: Some(micros(1)), ..due() }),
        (lost(), Circumstances { on_expiry: Some(OnExpiry::Release), ..due() }),
        (lost(), due()),
    ]
    .iter()
    .map(|(evidence, circumstances)| decide(evidence, circumstances).rule)
    .collect();
    assert_eq!(reached, RULES.iter().map(|rule| rule.number).collect());
}
