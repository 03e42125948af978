//! A further attempt: planned by the route or an operator, paid for by an extended hold, with an id and an epoch of its
//! own (seed 2: "a retry is not mistaken for the original execution"; design 4 and 7; invariant 12). The hold is 2,100;
//! what was seen of the first attempt costs at most 632: 100 + (10 + 256) × 2.

use super::world::*;
use holdfast_core::ledger::{InvoiceLine, ReasonCode};
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{ATTEMPTS_MAX, OnExpiry, OnInterruption, Owner, Terms};
use holdfast_core::pricing::ModelPrice;
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{
    Command, Effect, Operation, Reply, Report, SourceEnd, Subject, UpstreamEnd, UpstreamState,
};
use holdfast_core::usage::{Metered, Usage};

/// Socket-only, retried at once when its driver is lost; nothing else is due for a while.
fn retries() -> Terms {
    Terms {
        on_interruption: OnInterruption::Retry,
        first_byte_ms: 90_000,
        idle_ms: 90_000,
        total_ms: 200_000,
        ..terms()
    }
}

fn seen() -> UpstreamEnd {
    UpstreamEnd { content_bytes: 10, ..ended(SourceEnd::Lost) }
}

fn extended(epoch: u32, id: u8) -> Command {
    Command::HoldExtended { epoch, attempt: attempt_id(id) }
}

/// The first attempt was lost, and a second is planned: the tenant is asked. The clock stands 9 s after the start.
fn planned(terms: &Terms) -> World {
    let mut world = World::searching(terms);
    world.at(9_000 + terms.observation_ms);
    assert_eq!(world.say(&reconcile(2, seen())), "done+extend");
    world
}

/// The second attempt was started, and works.
fn second(terms: &Terms) -> World {
    let mut world = planned(terms);
    assert_eq!(world.take(&extended(3, 2)).unwrap().reply, Reply::Started { epoch: 3 });
    world.take(&Command::Submit { epoch: 3 }).unwrap();
    world.take(&respond(3)).unwrap();
    world.take(&Command::Identify { epoch: 3, operation_id: "op-2".into() }).unwrap();
    world
}

/// Design 4, "a further attempt first extends the hold": the worst case of one more, under an epoch that is planned.
#[test]
fn the_hold_is_extended_first() {
    let mut world = World::searching(&retries());
    let transition = world.take(&reconcile(2, seen())).unwrap();
    assert_eq!(transition.effects, [Effect::ExtendHold { epoch: 3, amount: micros(HOLD) }]);
    assert_eq!((world.epoch(), world.live().past_attempts.len()), (2, 0), "planned is not started");
    assert_eq!(world.live().hold(), micros(HOLD), "and not held yet");
    assert_eq!(world.say(&reconcile(2, seen())), "done=", "it is decided");
    for write in [Command::Submit { epoch: 2 }, Command::Submit { epoch: 3 }] {
        assert!(world.ask(&write).is_err(), "nothing is sent before the hold");
    }
    let started = world.take(&extended(3, 2)).unwrap();
    assert_eq!((started.reply, &*started.effects), (Reply::Started { epoch: 3 }, &[][..]));
    let live = world.live();
    assert_eq!((live.hold(), live.extended), (micros(2 * HOLD), micros(HOLD)));
    assert_eq!((&live.attempt.id, live.attempt.first_epoch, live.attempt.epoch()), (&attempt_id(2), 3, 3));
    assert_eq!((live.attempt.upstream, live.reconciliation), (UpstreamState::Prepared, None));
    let [first] = live.past_attempts.as_slice() else { panic!("{:?}", live.past_attempts) };
    assert_eq!((first.id.clone(), first.upstream), (attempt_id(1), UpstreamState::Unknown));
    assert_eq!(first.accounted.unwrap().metered, Metered::AtLeast(usage(100, 266)), "its bound is part of the sum");
    assert_eq!(world.states(), ("detached", "prepared", "pending"));
    assert_eq!(world.outcomes().last(), Some(&"attempt_started"));
}

/// The tenant's answer may be lost: it is asked again under the same epoch, after growing pauses, and whichever answer comes first starts the
/// one attempt (invariant 8).
#[test]
fn a_lost_extension_is_asked_for_again() {
    let mut world = planned(&retries());
    assert_eq!(world.next_wake_ms(), Some(10_000));
    for base_ms in [2_000, 4_000, 8_000, 16_000, 32_000] {
        world.now = world.next_wake().unwrap();
        let transition = world.take(&wake(false)).unwrap();
        assert_eq!(transition.effects, [Effect::ExtendHold { epoch: 3, amount: micros(HOLD) }], "the same epoch");
        let pause_ms = world.next_wake().unwrap().since(world.now);
        assert!((base_ms..base_ms * 5 / 4).contains(&pause_ms), "{base_ms}: {pause_ms}");
    }
    assert_eq!(world.say(&extended(3, 2)), "started");
    let before = world.aggregate.clone();
    assert_eq!(world.say(&extended(3, 2)), "again=", "the same answer");
    assert_eq!(world.say(&extended(3, 7)), "!stale_epoch", "an answer that brought another id");
    assert_eq!(world.say(&extended(2, 2)), "!stale_epoch");
    assert_eq!(world.say(&extended(4, 4)), "!stale_epoch", "nobody asked for it");
    assert_eq!(world.say(&Command::ExtensionRefused { epoch: 3 }), "!stale_epoch", "it is there");
    assert_eq!((&world.aggregate, world.live().hold()), (&before, micros(2 * HOLD)));
    world.take(&Command::Submit { epoch: 3 }).unwrap();
    assert_eq!(world.say(&extended(3, 2)), "again=", "later too");
}

/// The object starts a further attempt, so it is the object's to drive, also where an edge drove the first: while its
/// driver lives, the lease is renewed and nobody takes over (design 7; invariants 4 and 12).
#[test]
fn a_further_attempt_is_driven_by_the_object() {
    for owner in [Owner::Object, Owner::Edge] {
        let mut world = second(&Terms { owner, ..retries() });
        assert_eq!(world.live().attempt.lease.owner, Owner::Object, "{owner:?}");
        for ms in [17_000, 25_000, 33_000] {
            world.at(ms).take(&wake(true)).unwrap();
            assert_eq!((world.epoch(), world.live().attempt.upstream), (3, UpstreamState::Processing), "{owner:?}");
        }
    }
}

/// What an older epoch writes is refused, whichever attempt it was of; each of the two speaks for itself.
#[test]
fn the_new_attempt_owns() {
    let mut world = second(&retries());
    for epoch in [1, 2, 4] {
        for write in [Command::Submit { epoch }, Command::Append { epoch, bytes: 1 }, end(epoch, complete(1, 1))] {
            assert_eq!(world.say(&write), "!stale_epoch", "{write:?}");
        }
    }
    assert_eq!(world.say(&Command::Append { epoch: 3, bytes: 5 }), "continue=");
    assert_eq!(world.say(&Command::Submit { epoch: 3 }), "!wrong_state", "invariant 12");
    assert_eq!(world.say(&end(3, complete(10, 20))), "done>completed+close");
}

/// Design 4, "Usage rules": each attempt is priced by its own quality. What the provider counted costs its price, tier by
/// tier, also above the hold; the bound of the other stays a bound within that attempt's hold; all is rounded once.
#[test]
fn each_attempt_is_priced_by_its_own_quality() {
    let priced = |price: ModelPrice| Terms { price, ..retries() };
    let tiered = ModelPrice {
        cached_input_micros_per_million: Some(100_000),
        cache_write_micros_per_million: Some(1_250_000),
        reasoning_micros_per_million: Some(3_000_000),
        ..terms().price
    };
    let cheap = ModelPrice { input_micros_per_million: 300_000, output_micros_per_million: 600_000, ..terms().price };
    let hidden = ModelPrice { hidden_output: true, ..terms().price };
    let cached = Usage { cached_input_tokens: 80, cache_write_tokens: 10, reasoning_tokens: 5, ..usage(100, 20) };
    for (what, terms, counted, books) in [
        ("above the hold", retries(), usage(100, 3_000), vec![("settle", 4_200), ("overage", 632 + 6_100 - 4_200)]),
        ("hidden output of the first", priced(hidden), usage(10, 20), vec![("settle", 2_100 + 50)]),
        // 100 × 1.25 + 266 × 3, and 10 × 1 + 80 × 0.1 + 10 × 1.25 + 15 × 2 + 5 × 3.
        ("tiers", priced(tiered), cached, vec![("settle", 999)]),
        // 100 × 0.3 + 266 × 0.6, and 1 × 0.3 + 5 × 0.6: 189.6 + 3.3.
        ("fractions", priced(cheap), usage(1, 5), vec![("settle", 193)]),
        ("a small hold", Terms { hold: micros(500), ..retries() }, usage(10, 20), vec![("settle", 550)]),
        (
            "above a small hold",
            Terms { hold: micros(500), ..retries() },
            usage(0, 400),
            vec![("settle", 1_000), ("overage", 300)],
        ),
    ] {
        let mut world = second(&terms);
        world.take(&end(3, UpstreamEnd { usage: Some(counted), ..complete(1, 1) })).unwrap();
        assert_eq!(world.books(), books, "{what}");
        let sum = counted.plus(&usage(100, 266)).unwrap();
        for posting in &world.postings {
            assert_eq!(posting.usage, Some(Metered::AtLeast(sum)), "{what}");
            assert_eq!(posting.estimated_usage, Some(usage(100, 266)), "{what}");
        }
        let line = InvoiceLine::of(&world.postings[0], &identity(1), &terms, "2026-11", START).unwrap();
        assert!(line.estimated, "{what}");
        let rated: u64 = line.parts.iter().map(|part| part.millionths).sum();
        assert_eq!(line.rated, Some(micros(rated.div_ceil(1_000_000))), "{what}");
        if matches!(what, "tiers" | "fractions") {
            assert_eq!(line.rated.map(|rated| i64::try_from(rated.get()).unwrap()), Some(line.amount.get()), "{what}");
        }
    }
}

/// What comes to light later is priced by the same rule.
#[test]
fn a_late_word_prices_its_attempt_alone() {
    let ended_by = |end_of_it| {
        let mut world = second(&retries());
        world.take(&end(3, end_of_it)).unwrap();
        world
    };
    let told = |input, output| ended_as(Outcome::Completed, Some(usage(input, output)));
    let failed = ended_as(Outcome::Failed, None);
    for (mut world, signal, correction, cost) in [
        (ended_by(complete(100, 3_000)), lookup(1, told(10, 20)), 50 - 632, 6_150),
        (ended_by(complete(100, 3_000)), lookup(1, failed), -632, 6_100),
        (ended_by(ended(SourceEnd::Body(EndClass::Incomplete))), lookup(3, told(100, 3_000)), 6_100 - 612, 6_732),
        (ended_by(ended(SourceEnd::Body(EndClass::Incomplete))), lookup(1, told(10, 20)), 50 - 632, 662),
    ] {
        assert_eq!(world.hear(signal), "corrected");
        assert_eq!(world.books().last(), Some(&("correction", correction)));
        assert_eq!(world.live().cost, Some(micros(cost)));
    }
    // An operator who gives the hold back gives all of it back: what is told later of one attempt charges for that one.
    let mut released = second(&Terms { capabilities: CALLBACK, observation_ms: 60_000, ..retries() });
    released.now = released.now.plus(9_000);
    released.take(&wake(false)).unwrap();
    assert_eq!(released.operate("a-1", Operation::Release), "operated>expired+close");
    assert_eq!(released.hear(lookup(4, told(10, 20))), "corrected");
    assert_eq!(released.books(), [("release", 4_200), ("correction", 50)]);
}

/// Design 4, "Settlement sums all attempts": bound and exact are told as a bound, two exact as an exact sum.
#[test]
fn both_attempts_are_settled() {
    let late = || {
        let mut world = second(&retries());
        assert_eq!(world.hear(lookup(1, ended_as(Outcome::Completed, Some(usage(40, 30))))), "processed");
        world
    };
    for (mut world, end_of_it, books, total) in [
        (second(&retries()), complete(10, 20), vec![("settle", 632 + 50)], Metered::AtLeast(usage(110, 286))),
        (late(), complete(10, 20), vec![("settle", 100 + 50)], Metered::Exact(usage(50, 50))),
        (
            late(),
            ended(SourceEnd::Body(EndClass::Incomplete)),
            vec![("settle", 100 + 612)],
            Metered::AtLeast(usage(140, 286)),
        ),
        (late(), complete(100, 3_000), vec![("settle", 4_200), ("overage", 2_000)], Metered::Exact(usage(140, 3_030))),
    ] {
        world.take(&end(3, end_of_it)).unwrap();
        assert_eq!((world.books(), world.live().usage), (books, Some(total)));
        let charged: i64 = world.books().iter().map(|(_, amount)| amount).sum();
        assert_eq!(world.live().cost, Some(micros(charged.try_into().unwrap())));
        assert_eq!(world.postings[0].id, format!("{}:3:settle:1", identity(1).reservation));
    }
    // A refused second attempt used nothing; the first one may have.
    let mut refused = second(&retries());
    let answer = UpstreamEnd { head: Some(head(429)), ..ended(SourceEnd::Body(EndClass::Complete)) };
    refused.take(&end(3, answer)).unwrap();
    assert_eq!((refused.states(), refused.books()), (("failed", "failed", "committed"), vec![("settle", 632)]));
}

/// Seed 2, race 3: "A newer attempt owns the reservation". The old attempt's completion is attributed to it, while the
/// newer owns and after the end; it is corrected, and no bytes of it come.
#[test]
fn the_old_attempts_late_completion() {
    let mut world = second(&retries());
    assert_eq!(world.refused_and_heard(&end(1, complete(10, 20))), "processed");
    let live = world.live();
    assert_eq!(live.past_attempts[0].accounted.unwrap().metered, Metered::Exact(usage(10, 20)));
    assert_eq!(
        (live.past_attempts[0].upstream, live.attempt.upstream),
        (UpstreamState::Completed, UpstreamState::Processing)
    );
    assert_eq!((live.attempt.reported, live.attempt.accounted), (None, None), "not to the newer one");
    let mut after = second(&retries());
    after.take(&end(3, complete(10, 20))).unwrap();
    assert_eq!(after.refused_and_heard(&end(1, complete(10, 20))), "corrected");
    assert_eq!(after.books(), [("settle", 682), ("correction", 100 - 682)]);
    assert_eq!(after.live().usage, Some(Metered::Exact(usage(20, 40))));
    // Signals name the attempt by its operation, or by any of its epochs.
    for (subject, index) in [
        (Subject::Operation { operation_id: OPERATION.into() }, 0),
        (Subject::Epoch { epoch: 1 }, 0),
        (Subject::Epoch { epoch: 2 }, 0),
        (Subject::Operation { operation_id: "op-2".into() }, 1),
        (Subject::Epoch { epoch: 3 }, 1),
    ] {
        let mut world = second(&retries());
        world.hear(holdfast_core::reservation::Signal { subject, ..lookup(9, ended_as(Outcome::Completed, None)) });
        let told: Vec<_> = world.live().attempts().map(|attempt| attempt.reported.is_some()).collect();
        assert_eq!(told.iter().position(|told| *told), Some(index));
    }
}

/// Seed 1's boundary case "during a retry", its hard half: the completion comes while the tenant is asked. There is an
/// outcome now, and nothing to repeat (invariant 12): the hold is extended, and no second attempt is sent.
#[test]
fn a_completion_while_the_hold_is_extended() {
    for refuses in [false, true] {
        let mut world = planned(&retries());
        world.hear(lookup(2, ended_as(Outcome::Completed, Some(usage(10, 20)))));
        let answer = if refuses { Command::ExtensionRefused { epoch: 3 } } else { extended(3, 2) };
        let started = matches!(world.take(&answer).unwrap().reply, Reply::Started { .. });
        assert!(!started, "the outcome is known");
        for _ in 0..3 {
            if !world.lifecycle().is_terminal() {
                world.now = world.now.max(world.next_wake().unwrap());
                world.take(&wake(false)).unwrap();
                let epoch = world.epoch();
                world.take(&reconcile(epoch, seen())).unwrap();
            }
        }
        assert_eq!((world.states(), world.books()), (("completed", "completed", "committed"), vec![("settle", 50)]));
    }
}

/// A cancel, or a last reader who leaves under the policy `cancel`, while the tenant is asked: whoever wanted it stopped
/// gets no second run of it.
#[test]
fn a_stop_while_the_hold_is_extended() {
    let leaves = Terms { on_interruption: OnInterruption::Retry, ..cancels(0) };
    for (terms, stops) in [(retries(), vec![Command::Cancel]), (leaves, vec![readers(1), readers(0)])] {
        let mut world = planned(&terms);
        for stop in &stops {
            world.take(stop).unwrap();
        }
        assert_eq!(world.states().0, "cancellation_requested");
        let _answer = world.take(&extended(3, 2)).unwrap();
        let epoch = world.epoch();
        let sent = world.say(&Command::Submit { epoch });
        assert!(sent == "stop=" || sent.starts_with('!'), "nothing is sent after a stop: {sent}");
        for _ in 0..4 {
            if let Some(at) = world.next_wake().filter(|_| !world.lifecycle().is_terminal()) {
                world.now = world.now.max(at);
                for effect in world.take(&wake(false)).unwrap().effects {
                    if let Effect::CollectEvidence { epoch } = effect {
                        world.take(&reconcile(epoch, seen())).unwrap();
                    }
                }
            }
        }
        assert_eq!((world.states().0, world.states().2), ("cancelled", "committed"));
        assert_eq!(world.books(), [("settle", 632)], "what the first attempt may have used");
    }
}

/// The tenant refuses: the search goes on without a retry, and the rules decide what is left.
#[test]
fn the_extension_is_refused() {
    for (terms, expected, books) in [
        (retries(), ("failed", "unknown", "committed"), vec![("settle", 632)]),
        (
            Terms { on_expiry: Some(OnExpiry::Release), ..retries() },
            ("expired", "unknown", "released"),
            vec![("release", 2_100)],
        ),
        (Terms { capabilities: CALLBACK, ..retries() }, ("expired", "unknown", "expired"), vec![]),
    ] {
        let mut world = planned(&terms);
        assert_eq!(world.say(&Command::ExtensionRefused { epoch: 9 }), "!stale_epoch");
        assert_eq!(world.say(&Command::ExtensionRefused { epoch: 3 }), "done+evidence");
        assert_eq!(world.say(&Command::ExtensionRefused { epoch: 3 }), "done=");
        assert_eq!(world.say(&extended(3, 2)), "!stale_epoch", "a late yes to what was refused");
        assert_eq!(world.say(&reconcile(2, seen())), "done>".to_string() + expected.0 + "+close");
        assert_eq!((world.states(), world.books()), (expected, books));
        assert_eq!(world.live().hold().get() + world.live().reduced.get(), HOLD, "nothing was extended");
    }
}

/// Attempts are bounded (design 12, "bounds on everything"), by the route and by an operator alike.
#[test]
fn attempts_are_bounded() {
    let mut world = World::searching(&retries());
    let mut epoch = 2;
    for attempt in 2..=u8::try_from(ATTEMPTS_MAX).unwrap() {
        assert_eq!(world.say(&reconcile(epoch, seen())), "done+extend", "attempt {attempt}");
        epoch += 1;
        world.take(&extended(epoch, attempt)).unwrap();
        world.take(&Command::Submit { epoch }).unwrap();
        world.now = world.now.plus(9_000);
        assert_eq!(world.say(&wake(false)), "done+evidence", "lost again");
        epoch += 1;
    }
    assert_eq!(world.operate("a-1", Operation::Retry), "!wrong_state");
    assert_eq!(world.say(&reconcile(epoch, seen())), "done>failed+close");
    assert_eq!(world.live().attempts().count(), ATTEMPTS_MAX as usize);
    assert_eq!(world.books(), [("settle", i64::from(ATTEMPTS_MAX) * 632)]);
    assert_eq!(world.live().hold(), micros(u64::from(ATTEMPTS_MAX) * HOLD));
    let ids: Vec<_> = world.live().attempts().map(|attempt| (attempt.id.clone(), attempt.first_epoch)).collect();
    assert_eq!(ids, [(attempt_id(1), 1), (attempt_id(2), 3), (attempt_id(3), 5)], "ids and epochs only grow");
}

/// A further attempt has the time of an attempt: it starts when it does, however long the first one was searched for.
#[test]
fn a_further_attempt_has_its_own_time() {
    let observed = Terms { observation_ms: 60_000, total_ms: 20_000, ..retries() };
    let mut world = planned(&observed);
    world.take(&extended(3, 2)).unwrap();
    assert_eq!(world.say(&wake(true)), "done=", "nothing is overdue: it has just begun");
    assert_eq!(world.live().attempt.abort, None);
    assert_eq!(world.say(&Command::Submit { epoch: 3 }), "continue");
    world.now = world.now.plus(19_999);
    world.take(&wake(true)).unwrap();
    assert_eq!(world.live().attempt.abort, None);
    world.now = world.now.plus(1);
    assert_eq!(world.say(&wake(true)), "stop+abort");
}

/// A further attempt that is lost before it was sent proves nothing about the first: the reservation ends all the same,
/// whatever the route says (invariant 7), and the first is charged for as far as it is charged for at all.
#[test]
fn a_further_attempt_that_was_never_sent() {
    use OnExpiry as O;
    for (on_expiry, outlives, expected, books) in [
        (None, false, ("failed", "prepared", "committed"), vec![("settle", 632)]),
        (None, true, ("expired", "prepared", "expired"), vec![]),
        (Some(O::Quarantine), false, ("expired", "prepared", "expired"), vec![]),
        (Some(O::Escalate), false, ("expired", "prepared", "disputed"), vec![]),
        (Some(O::ReduceHold), false, ("expired", "prepared", "expired"), vec![("hold_reduced", 4_200 - 632)]),
        (Some(O::SettleEstimate), false, ("expired", "prepared", "committed"), vec![("settle", 632)]),
        (Some(O::Release), false, ("expired", "prepared", "released"), vec![("release", 4_200)]),
    ] {
        let capabilities = if outlives { CALLBACK } else { terms().capabilities };
        let mut world = planned(&Terms { on_expiry, capabilities, ..retries() });
        world.take(&extended(3, 2)).unwrap();
        world.at(18_000);
        assert_eq!(world.say(&wake(false)), "done+evidence");
        assert_eq!(world.say(&reconcile(4, ended(SourceEnd::Lost))), "done+extend", "{on_expiry:?}");
        assert_eq!(world.say(&Command::ExtensionRefused { epoch: 5 }), "done+evidence");
        let said = world.say(&reconcile(4, ended(SourceEnd::Lost)));
        assert_eq!(said, format!("done>{}+close", expected.0), "{on_expiry:?}");
        assert_eq!((world.states(), world.books()), (expected, books), "{on_expiry:?}");
    }
}

/// A route that releases at the deadline charges for what a provider told, and for no bound, of whichever attempt: also
/// when the extension for a further one was refused after its bound had been taken down.
#[test]
fn a_release_by_the_route_charges_for_what_was_told() {
    let mut world = second(&Terms { on_expiry: Some(OnExpiry::Release), ..retries() });
    let told = Report::Ended { outcome: Outcome::Completed, usage: Some(usage(10, 20)) };
    world.hear(lookup(1, told));
    world.now = world.now.plus(9_000);
    assert_eq!(world.say(&wake(false)), "done+evidence");
    assert_eq!(world.say(&reconcile(4, seen())), "done+extend");
    assert_eq!(world.say(&Command::ExtensionRefused { epoch: 5 }), "done+evidence");
    assert_eq!(world.say(&reconcile(4, seen())), "done>expired+close");
    assert_eq!((world.states(), world.books()), (("expired", "unknown", "committed"), vec![("settle", 50)]));
    let counted: Vec<_> = world.live().attempts().map(|attempt| attempt.accounted.map(|it| it.metered)).collect();
    assert_eq!(counted, [Some(Metered::Exact(usage(10, 20))), None]);
    assert_eq!(world.postings[0].usage_records.len(), 1, "one attempt stands behind the settlement");
}

/// An operator who releases gives the hold back (the table of `operate.rs`), as it was extended, whatever an earlier
/// attempt was estimated at.
#[test]
fn an_operators_release_after_a_retry() {
    let lost_again = |observation_ms| {
        let mut world = second(&Terms { capabilities: CALLBACK, observation_ms, ..retries() });
        world.now = world.now.plus(9_000);
        world.take(&wake(false)).unwrap();
        world
    };
    let mut searching = lost_again(60_000);
    assert_eq!(searching.operate("a-1", Operation::Release), "operated>expired+close");
    assert_eq!(searching.books(), [("release", 4_200)]);
    let mut kept = lost_again(60_000);
    assert_eq!(kept.operate("a-1", Operation::Quarantine), "operated>expired+close");
    assert_eq!(kept.operate("a-2", Operation::Release), "operated");
    assert_eq!(kept.books(), [("release", 4_200)]);
}

/// What still runs by the provider's word is not repeated by a rule (invariant 12). An operator may, where the route says
/// that the call may be repeated.
#[test]
fn what_runs_is_not_repeated() {
    let asked = Terms { capabilities: STATUS, ..retries() };
    let mut world = World::searching(&asked);
    world.hear(lookup(2, Report::Processing));
    assert_eq!(world.say(&reconcile(2, seen())), "done>expired+close");
    let mut unknown = World::searching(&asked);
    unknown.hear(lookup(2, Report::Unknown));
    assert_eq!(unknown.say(&reconcile(2, seen())), "done+extend", "it knows of nothing that runs");
    let mut operated = World::searching(&Terms { observation_ms: 60_000, ..asked });
    operated.hear(lookup(2, Report::Processing));
    assert_eq!(operated.operate("a-1", Operation::Retry), "operated+extend");
}

/// The readers of the first attempt were gone with its driver; those who came back meanwhile are there.
#[test]
fn the_readers_of_a_further_attempt() {
    let mut away = planned(&retries());
    away.take(&extended(3, 2)).unwrap();
    assert_eq!(away.states().0, "detached");
    let mut back = planned(&retries());
    assert_eq!(back.say(&readers(1)), "done>active");
    assert_eq!(back.say(&extended(3, 2)), "started");
    assert_eq!((back.states().0, back.live().head.clone()), ("active", None), "a new answer has a new head");
    back.take(&Command::Submit { epoch: 3 }).unwrap();
    back.take(&respond(3)).unwrap();
    back.take(&end(3, complete(10, 20))).unwrap();
    assert_eq!(back.live().reason, Some(ReasonCode::CompletedExact), "the outcome of the attempt that answered");
}

/// An attempt that was never sent used nothing, also when a further one comes after it.
#[test]
fn what_was_never_sent_is_not_charged() {
    let mut world = planned(&retries());
    world.take(&extended(3, 2)).unwrap();
    world.at(18_000).take(&wake(false)).unwrap();
    assert_eq!(world.say(&reconcile(4, ended(SourceEnd::Lost))), "done+extend", "the second was only prepared");
    world.take(&extended(5, 3)).unwrap();
    world.take(&Command::Submit { epoch: 5 }).unwrap();
    world.take(&respond(5)).unwrap();
    world.take(&end(5, complete(10, 20))).unwrap();
    assert_eq!(world.books(), [("settle", 632 + 50)]);
}

/// What a lost driver had shown is in no log: a client that has any of it must not be given the further answer's bytes behind
/// its own (invariant 9). A driver that ended itself had shown nothing.
#[test]
fn a_client_of_a_lost_driver_reads_the_further_answer_from_its_beginning() {
    let lost_from = |world: &World| (world.live().lost_from, world.live().cursor_beyond(5, 100));
    let mut lost = second(&retries());
    assert_eq!(lost_from(&lost), (Some(0), Some(0)));
    lost.take(&Command::Append { epoch: 3, bytes: 100 }).unwrap();
    assert_eq!(lost.say(&end(3, complete(40, 60))), "done>completed+close");
    assert_eq!(lost_from(&lost), (Some(0), Some(0)), "nor after the end");
    assert_eq!(lost.live().cursor_beyond(0, 100), None);

    let mut unanswered = World::submitted(&retries());
    let gone = UpstreamEnd::by(SourceEnd::NoResponse { provably_unsent: false });
    assert_eq!(unanswered.say(&end(1, gone)), "done");
    unanswered.take(&extended(3, 2)).unwrap();
    assert_eq!(lost_from(&unanswered), (None, None));
}
