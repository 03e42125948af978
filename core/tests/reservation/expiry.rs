//! The deadline with an open outcome: what the route chose for the credit and for the slot, and what can be proved
//! (seed 1, "Use Leases and Deadlines to Resolve Unknown Outcomes"; design 7). Expiry does not prove that the provider
//! stopped. The hold is 2,100; what was seen of the work costs at most 632: 100 + (10 + 256) × 2.

use super::world::*;
use holdfast_core::capability::Capabilities;
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::policy::{OnExpiry, OnInterruption, SlotOnExpiry, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reconcile::{BACKOFF_MAX_MS, Outcome};
use holdfast_core::reservation::{Command, Effect, Operation, Report, ResolvedAs, SourceEnd, UpstreamEnd};

const WATCH_MS: u64 = 600_000;

fn seen() -> UpstreamEnd {
    UpstreamEnd { content_bytes: 10, ..ended(SourceEnd::Lost) }
}

/// Under these terms the deadline was reached with nothing known.
fn at_the_deadline(terms: &Terms) -> World {
    let mut world = World::searching(terms);
    world.at(terms.lease_ms + terms.observation_ms).take(&reconcile(2, seen())).unwrap();
    world
}

fn chosen(on_expiry: Option<OnExpiry>, slot: SlotOnExpiry, outlives: bool) -> Terms {
    let capabilities = if outlives { CALLBACK } else { Capabilities::default() };
    Terms { on_expiry, slot_on_expiry: slot, capabilities, watch_ms: WATCH_MS, observation_ms: 5_000, ..terms() }
}

/// Credit chosen, may outlive its socket → lifecycle and settlement, reason, postings with amounts, for review, watched.
/// Where the hold is kept and not disputed, the slot's own choice frees it. Sources: seed 1, "At the deadline, the system
/// needs an explicit policy"; design 7, "for credit and for the slot separately", and its default.
#[test]
fn each_choice_for_credit_and_slot() {
    use OnExpiry as O;
    use ReasonCode as R;
    const REDUCED: i64 = 2_100 - 632;
    type Row =
        (Option<OnExpiry>, bool, (&'static str, &'static str), ReasonCode, &'static [(&'static str, i64)], bool, bool);
    let rows: &[Row] = &[
        (None, false, ("failed", "committed"), R::DriverLost, &[("settle", 632)], false, false),
        (None, true, ("expired", "expired"), R::ExpiredQuarantined, &[], true, false),
        (Some(O::Quarantine), false, ("expired", "expired"), R::ExpiredQuarantined, &[], true, false),
        (Some(O::Quarantine), true, ("expired", "expired"), R::ExpiredQuarantined, &[], true, false),
        (
            Some(O::ReduceHold),
            false,
            ("expired", "expired"),
            R::ExpiredReduced,
            &[("hold_reduced", REDUCED)],
            true,
            false,
        ),
        (Some(O::ReduceHold), true, ("expired", "expired"), R::ExpiredReduced, &[], true, false),
        (
            Some(O::ExpireAndWatch),
            false,
            ("expired", "released"),
            R::ExpiredWatching,
            &[("release", 2_100)],
            false,
            true,
        ),
        (
            Some(O::ExpireAndWatch),
            true,
            ("expired", "released"),
            R::ExpiredWatching,
            &[("release", 2_100)],
            false,
            true,
        ),
        (Some(O::Escalate), false, ("expired", "disputed"), R::Escalated, &[], true, false),
        (Some(O::Escalate), true, ("expired", "disputed"), R::Escalated, &[], true, false),
        (Some(O::Release), false, ("expired", "released"), R::ExpiredReleased, &[("release", 2_100)], false, false),
        (Some(O::Release), true, ("expired", "released"), R::ExpiredReleased, &[("release", 2_100)], false, false),
        (
            Some(O::SettleEstimate),
            false,
            ("expired", "committed"),
            R::ExpiredEstimated,
            &[("settle", 632)],
            false,
            false,
        ),
        (
            Some(O::SettleEstimate),
            true,
            ("expired", "committed"),
            R::ExpiredEstimated,
            &[("settle", 2_100)],
            false,
            false,
        ),
    ];
    for (on_expiry, outlives, (lifecycle, settlement), reason, postings, review, watched) in rows {
        for slot in [SlotOnExpiry::Quarantine, SlotOnExpiry::Release] {
            let world = at_the_deadline(&chosen(*on_expiry, slot, *outlives));
            let at = format!("{on_expiry:?} {slot:?} outlives: {outlives}");
            assert_eq!(world.states(), (*lifecycle, "unknown", *settlement), "{at}");
            let live = world.live();
            assert_eq!((live.reason, live.ended_at), (Some(*reason), Some(world.now)), "{at}");
            // A kept hold gives its slot back by a posting of its own, or with what it is reduced by.
            let frees = *settlement == "expired" && slot == SlotOnExpiry::Release;
            let mut expected = postings.to_vec();
            if frees && expected.is_empty() {
                expected.push(("hold_reduced", 0));
            }
            assert_eq!(world.books(), expected, "{at}");
            for posting in &world.postings {
                let frees = frees && posting.kind == PostingKind::HoldReduced;
                assert_eq!((posting.frees_slot, posting.reason), (frees, *reason), "{at}");
            }
            assert_eq!(live.review.map(|review| (review.since, review.reason)), review.then_some((world.now, *reason)));
            let until = live.reconciliation.map(|watch| watch.deadline);
            assert_eq!(until, watched.then(|| world.now.plus(WATCH_MS)), "{at}");
            let held =
                if live.settlement.holds() { 2_100 - expected.iter().map(|(_, n)| n).sum::<i64>() } else { 2_100 };
            assert_eq!(i64::try_from(live.hold().get()).unwrap(), held, "{at}");
            let by = if *reason == ReasonCode::DriverLost { ResolvedAs::Observed } else { ResolvedAs::Expiry };
            let resolution = live.resolution.as_ref().map(|resolution| resolution.by);
            assert_eq!(resolution, (!live.settlement.holds()).then_some(by), "{at}");
        }
    }
}

/// Before the deadline only evidence ends a hold, whatever the route chose (design 7; seed 2: "Age alone cannot").
#[test]
fn nothing_expires_before_the_deadline() {
    use OnExpiry as O;
    for on_expiry in [O::Quarantine, O::ReduceHold, O::ExpireAndWatch, O::Escalate, O::Release, O::SettleEstimate]
        .map(Some)
        .iter()
        .chain(&[None])
    {
        for outlives in [false, true] {
            let terms = chosen(*on_expiry, SlotOnExpiry::Release, outlives);
            let mut world = World::searching(&terms);
            for early_ms in [5_000, 1_000, 1] {
                world.at(9_000 + 5_000 - early_ms).take(&reconcile(2, seen())).unwrap();
                assert_eq!((world.lifecycle().is_terminal(), world.books()), (false, vec![]), "{on_expiry:?}");
                assert_eq!(world.live().reconciliation.unwrap().deadline, START.plus(14_000), "waiting moves nothing");
            }
            world.at(9_000 + 5_000).take(&reconcile(2, seen())).unwrap();
            assert!(world.lifecycle().is_terminal(), "{on_expiry:?}");
        }
    }
}

/// What comes before the route's choice, in this order: conflict, interruption, value (the rules 1, 8 and 9).
#[test]
fn what_comes_before_the_routes_choice() {
    let released = chosen(Some(OnExpiry::Release), SlotOnExpiry::Release, true);
    let limit = |escalate_above: u64| Terms { escalate_above: Some(micros(escalate_above)), ..released.clone() };
    for (terms, expected, reason) in [
        (limit(2_100), ("expired", "unknown", "released"), ReasonCode::ExpiredReleased),
        (limit(2_099), ("expired", "unknown", "disputed"), ReasonCode::Escalated),
        (limit(0), ("expired", "unknown", "disputed"), ReasonCode::Escalated),
        (
            Terms { on_interruption: OnInterruption::Quarantine, ..limit(0) },
            ("expired", "unknown", "expired"),
            ReasonCode::ExpiredQuarantined,
        ),
    ] {
        let world = at_the_deadline(&terms);
        assert_eq!((world.states(), world.live().reason), (expected, Some(reason)), "{terms:?}");
        // Nothing is reused while an operator is called.
        assert!(expected.2 != "disputed" || world.postings.is_empty());
    }
    // Two equals differ: disputed at any time, and no rule prefers one.
    let mut conflict = World::searching(&released);
    conflict.hear(callback("e-1", OPERATION, ended_as(Outcome::Completed, None)));
    conflict.hear(callback("e-2", OPERATION, ended_as(Outcome::Failed, None)));
    assert_eq!(conflict.say(&reconcile(2, seen())), "done>expired+close", "before the deadline");
    assert_eq!(conflict.states(), ("expired", "unknown", "disputed"));
    assert_eq!((conflict.live().reason, conflict.books()), (Some(ReasonCode::EvidenceConflict), vec![]));
}

/// Work that was told to stop and lost with its socket is dead (design 7): it is cancelled, charged by the bound, and
/// its partial goes where the route does not keep it. Where it can go on at the provider, nothing is proved.
#[test]
fn told_to_stop_and_lost() {
    let lost = |terms: &Terms, told: &Command| {
        let mut world = World::identified(terms);
        world.at(10).take(told).unwrap();
        world.at(9_000).take(&wake(false)).unwrap();
        world.say(&reconcile(2, seen()));
        world
    };
    for keep_partial in [true, false] {
        for (terms, told, reason) in [
            (terms(), Command::Cancel, ReasonCode::CancelledByRequest),
            (cancels(0), readers(0), ReasonCode::CancelledOnDisconnect),
        ] {
            let world = lost(&Terms { keep_partial, ..terms.clone() }, &told);
            assert_eq!(world.states(), ("cancelled", "cancelled", "committed"), "{told:?}");
            assert_eq!((world.live().reason, world.books()), (Some(reason), vec![("settle", 632)]));
            assert_eq!(world.live().content_deleted, !keep_partial, "the partial goes as the route says");
            let outlives = lost(&Terms { keep_partial, capabilities: CALLBACK, ..terms }, &told);
            assert_eq!(outlives.states(), ("expired", "unknown", "expired"), "{told:?}");
            assert!(!outlives.live().content_deleted);
        }
    }
    // Nothing was sent, and it was told to stop: nothing is charged.
    let mut unsent = World::prepared(&terms());
    unsent.take(&Command::Cancel).unwrap();
    unsent.at(9_000).take(&wake(false)).unwrap();
    assert_eq!(unsent.say(&reconcile(2, ended(SourceEnd::Lost))), "done>cancelled+close");
    assert_eq!((unsent.states(), unsent.books()), (("cancelled", "cancelled", "released"), vec![("release", 2_100)]));
    // A timeout is nobody's wish: a loss behind it stays a loss.
    let mut late = World::processing(&Terms { lease_ms: 120_000, ..terms() });
    assert_eq!(late.at(3_000).say(&wake(true)), "stop+abort");
    late.at(200_000).take(&wake(false)).unwrap();
    late.take(&reconcile(2, seen())).unwrap();
    assert_eq!((late.states(), late.live().reason), (("failed", "unknown", "committed"), Some(ReasonCode::DriverLost)));
}

/// A completion in the log or by somebody's word wins against a stop (seed 1, "Completion wins the race").
#[test]
fn completion_wins_against_a_lost_stop() {
    for by_word in [false, true] {
        let mut world = World::identified(&terms());
        world.take(&Command::Cancel).unwrap();
        world.at(9_000).take(&wake(false)).unwrap();
        if by_word {
            world.hear(lookup(2, ended_as(Outcome::Completed, Some(usage(10, 20)))));
        }
        let log = if by_word { seen() } else { complete(10, 20) };
        assert_eq!(world.say(&reconcile(2, log)), "done>completed+close");
        assert_eq!(world.books(), [("settle", 50)]);
    }
}

/// `expire_and_watch`: the provider is asked with backoff until the watch ends; then nothing is left to do.
#[test]
fn the_watch_asks_until_it_ends() {
    let terms = Terms {
        on_expiry: Some(OnExpiry::ExpireAndWatch),
        watch_ms: WATCH_MS,
        capabilities: STATUS,
        retention_s: 3_600,
        ..terms()
    };
    let mut world = at_the_deadline(&terms);
    assert_eq!(world.states(), ("expired", "unknown", "released"));
    let (began, end_of_watch) = (world.now, world.now.plus(WATCH_MS));
    let posting_id = world.postings[0].id.clone();
    world.take(&Command::Acknowledge { posting_id }).unwrap();
    let (mut asked, mut last) = (0, began);
    while let Some(watch) = world.live().reconciliation {
        assert!(watch.next_at > last && watch.next_at <= end_of_watch, "{watch:?}");
        assert!(watch.next_at.since(last) <= BACKOFF_MAX_MS);
        assert_eq!(world.next_wake(), Some(watch.next_at));
        world.now = watch.next_at;
        last = world.now;
        let transition = world.take(&wake(false)).unwrap();
        let over = world.now >= end_of_watch;
        let look_up = Effect::LookUp { epoch: 2, operation_id: OPERATION.into() };
        assert_eq!(transition.effects, if over { vec![] } else { vec![look_up] });
        asked += usize::from(!over);
        if !over {
            assert_eq!(world.say(&Command::LookUpFailed { epoch: 2, retry_after_ms: None }), "done");
        }
    }
    assert_eq!(last, end_of_watch, "it ends at its end");
    assert!((5..20).contains(&asked), "with backoff: {asked}");
    assert_eq!(world.books(), [("release", 2_100)]);
}

/// What the watch finds is settled late, and ends it. What still runs is noted.
#[test]
fn the_watch_finds_a_completion() {
    let terms =
        Terms { on_expiry: Some(OnExpiry::ExpireAndWatch), watch_ms: WATCH_MS, capabilities: STATUS, ..terms() };
    let mut world = at_the_deadline(&terms);
    world.hear(lookup(2, Report::Processing));
    assert!(world.live().reconciliation.is_some(), "it goes on");
    assert_eq!(world.hear(lookup(2, ended_as(Outcome::Completed, Some(usage(10, 20))))), "corrected");
    assert_eq!(world.books(), [("release", 2_100), ("late_settlement", 50)]);
    assert_eq!(world.live().reconciliation, None);
    assert_eq!(world.states(), ("expired", "completed", "released"));
}

/// A watch of no length is none.
#[test]
fn a_watch_of_no_length() {
    let world = at_the_deadline(&Terms { on_expiry: Some(OnExpiry::ExpireAndWatch), watch_ms: 0, ..terms() });
    assert_eq!((world.live().reconciliation, world.books()), (None, vec![("release", 2_100)]));
}

/// A reduced hold is what ends later: settled up to it and above it, or released (invariant 2: together they are the
/// hold as it was made).
#[test]
fn a_reduced_hold_ends_as_it_is() {
    let reduced = || at_the_deadline(&chosen(Some(OnExpiry::ReduceHold), SlotOnExpiry::Release, false));
    let usage_of = |output| ended_as(Outcome::Completed, Some(usage(100, output)));
    let mut below = reduced();
    below.hear(lookup(2, usage_of(20)));
    assert_eq!(below.books(), [("hold_reduced", 1_468), ("settle", 140)]);
    let mut above = reduced();
    above.hear(lookup(2, usage_of(1_000)));
    assert_eq!(above.books(), [("hold_reduced", 1_468), ("settle", 632), ("overage", 1_468)]);
    assert_eq!(above.live().cost, Some(micros(2_100)));
    let mut released = reduced();
    assert_eq!(released.operate("a-1", Operation::Release), "operated");
    assert_eq!(released.books(), [("hold_reduced", 1_468), ("release", 632)]);
    // Output that is billed and not seen can have cost the whole: there is nothing to reduce.
    let hidden = Terms {
        price: ModelPrice { hidden_output: true, ..terms().price },
        ..chosen(Some(OnExpiry::ReduceHold), SlotOnExpiry::Quarantine, false)
    };
    assert_eq!(at_the_deadline(&hidden).books(), []);
}

/// An attempt that was never sent is proved unsent: it is released at once, whatever the route says about open outcomes
/// (seed 2, recovery row a).
#[test]
fn the_unsent_does_not_wait() {
    for on_expiry in [None, Some(OnExpiry::Quarantine), Some(OnExpiry::Escalate), Some(OnExpiry::SettleEstimate)] {
        let terms = Terms {
            on_interruption: OnInterruption::Quarantine,
            escalate_above: Some(micros(0)),
            ..chosen(on_expiry, SlotOnExpiry::Quarantine, true)
        };
        let mut world = World::prepared(&terms);
        assert_eq!(world.at(9_000).say(&wake(false)), "done>detached+evidence");
        assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>failed+close");
        assert_eq!((world.states(), world.books()), (("failed", "prepared", "released"), vec![("release", 2_100)]));
        assert_eq!(world.live().reason, Some(ReasonCode::NeverSubmitted));
    }
}

/// An answer of a gateway in front of the provider says nothing of what the provider did (design 4: "5xx after sending:
/// unknown; reconcile before anything new is sent"), whole or not. The provider's own error does.
#[test]
fn a_gateways_answer_leaves_the_outcome_open() {
    use holdfast_core::meter::EndClass;
    for class in [EndClass::Complete, EndClass::Incomplete, EndClass::CutInsideEvent] {
        let answer =
            |error_envelope| UpstreamEnd { head: Some(head(502)), error_envelope, ..ended(SourceEnd::Body(class)) };
        let mut world = World::submitted(&with(CANCEL_AND_STATUS));
        world.take(&identify(1)).unwrap();
        assert_eq!(world.say(&end(1, answer(false))), "done+evidence", "{class:?}");
        assert_eq!(world.states(), ("active", "unknown", "pending"), "readers wait");
        let mut own = World::submitted(&with(CANCEL_AND_STATUS));
        assert_eq!(own.say(&end(1, answer(true))), "done>failed+close", "{class:?}");
        assert_eq!(own.books(), [("release", 2_100)]);
        let mut socket_only = World::submitted(&terms());
        assert_eq!(socket_only.say(&end(1, answer(false))), "done>failed+close", "{class:?}");
    }
}

/// Seed 1, capability matrix: the search asks where it can ask, with backoff and the provider's own wish; the same
/// evidence read twice changes nothing, and takes no wish back (invariant 8).
#[test]
fn the_search_keeps_the_providers_wish() {
    let mut world = World::searching(&Terms { observation_ms: 600_000, ..with(STATUS) });
    world.take(&reconcile(2, seen())).unwrap();
    let search = world.live().reconciliation.unwrap();
    assert!(search.look_up && search.next_at > world.now && search.next_at.since(world.now) < 1_250, "{search:?}");
    world.now = search.next_at;
    assert_eq!(world.say(&wake(false)), "done+look_up");
    assert_eq!(world.say(&Command::LookUpFailed { epoch: 2, retry_after_ms: Some(90_000) }), "done+evidence");
    world.take(&reconcile(2, seen())).unwrap();
    let wished = world.live().reconciliation.unwrap();
    let wait = wished.next_at.since(world.now);
    assert!((90_000..112_500).contains(&wait), "{wait}");
    assert_eq!(world.say(&reconcile(2, seen())), "done=", "again");
    assert_eq!(world.live().reconciliation, Some(wished));
    // It was for one lookup. One that nobody answers is no wish.
    world.now = wished.next_at;
    assert_eq!(world.say(&wake(false)), "done+look_up");
    world.now = world.next_wake().unwrap();
    assert_eq!(world.say(&wake(false)), "done+evidence");
    world.take(&reconcile(2, seen())).unwrap();
    let wait = world.live().reconciliation.unwrap().next_at.since(world.now);
    assert!((4_000..5_000).contains(&wait), "the backoff of the third lookup: {wait}");
}

/// A search that cannot ask waits for its deadline; one that can asks again and again, and a lookup that nobody answers
/// does not stop it.
#[test]
fn the_search_goes_on_to_its_deadline() {
    for (capabilities, asks) in [(STATUS, true), (CANCEL_AND_STATUS, true), (CANCEL, false), (CALLBACK, false)] {
        let terms = Terms { observation_ms: 120_000, ..with(capabilities) };
        let mut world = World::searching(&terms);
        let deadline = START.plus(9_000 + 120_000);
        let mut asked = 0;
        for _ in 0..60 {
            if world.lifecycle().is_terminal() {
                break;
            }
            world.now = world.now.max(world.next_wake().unwrap());
            let transition = world.take(&wake(false)).unwrap();
            assert!(transition.state.is_some(), "a wake-up that is due does something");
            for effect in transition.effects {
                match effect {
                    Effect::CollectEvidence { epoch } => drop(world.take(&reconcile(epoch, seen())).unwrap()),
                    // Nobody answers, not even with a failure.
                    Effect::LookUp { .. } => asked += 1,
                    other => panic!("{other:?}"),
                }
            }
        }
        assert_eq!(world.states(), ("expired", "unknown", "expired"), "{capabilities:?}");
        assert!(world.now >= deadline && world.now <= deadline.plus(16_000), "{}", world.now);
        assert_eq!(asked > 0, asks, "{capabilities:?}");
    }
}

/// The record of a release names each effect (seed 3, "Release effects"): a watch that goes on is one of them.
#[test]
fn the_record_names_the_watch() {
    for (watch_ms, watched) in [(WATCH_MS, true), (0, false)] {
        let terms = Terms { on_expiry: Some(OnExpiry::ExpireAndWatch), watch_ms, ..with(STATUS) };
        let mut world = World::searching(&terms);
        let transition = world.take(&reconcile(2, seen())).unwrap();
        let [record] = transition.evidence.as_slice() else { panic!("one record: {:?}", transition.evidence) };
        let stored = String::from_utf8(record.to_stored()).unwrap();
        assert_eq!(stored.contains("watch_scheduled"), watched, "{stored}");
    }
}
