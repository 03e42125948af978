//! When a call is repeated by itself: before the first byte, by the route's word, within a budget, and in one layer (faults
//! 11, 12, 14, 15 and 16). The hold is 2,100; an attempt that answered nothing costs at most 612: 100 + 256 × 2.

use super::world::*;
use holdfast_core::economics::Workload;
use holdfast_core::ids::AttemptId;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{ATTEMPTS_MAX, OnInterruption, Terms};
use holdfast_core::reservation::{Command, Effect, Reply, ResponseHead, SourceEnd, UpstreamEnd, UpstreamState};

const REFUSED: UpstreamEnd = ended(SourceEnd::NoResponse { provably_unsent: false });

fn retries() -> Terms {
    Terms { on_interruption: OnInterruption::Retry, ..terms() }
}

fn answered(status: u16, error_envelope: bool) -> UpstreamEnd {
    UpstreamEnd { head: Some(head(status)), error_envelope, ..ended(SourceEnd::Body(EndClass::Incomplete)) }
}

/// Each end of an attempt whose provider was called and of whose answer nobody has seen anything.
#[test]
fn which_ends_are_repeated() {
    let body = |class| ended(SourceEnd::Body(class));
    for (what, end_of_it, repeated) in [
        ("a reset before the head", REFUSED, true),
        ("half an answer that is no stream", body(EndClass::Incomplete), true),
        ("a body cut in an event", body(EndClass::CutInsideEvent), true),
        ("502 of a gateway", answered(502, false), true),
        ("503 of a gateway", answered(503, false), true),
        ("500 of the provider", answered(500, true), false),
        ("503 of the provider", answered(503, true), false),
        ("429", answered(429, true), false),
        ("429 of a gateway", answered(429, false), false),
        ("400", answered(400, true), false),
        ("a redirect", answered(302, false), false),
        ("a stream that has begun", answered(200, false), false),
        ("a completion", complete(10, 20), false),
        ("an error in the stream", body(EndClass::InBandError), false),
        ("too large", ended(SourceEnd::TooLarge), false),
        ("stopped", ended(SourceEnd::Aborted), false),
        ("a setting is missing", ended(SourceEnd::NoResponse { provably_unsent: true }), false),
    ] {
        let mut world = World::submitted(&retries());
        world.take(&end(1, end_of_it.clone())).unwrap();
        assert_eq!(world.lifecycle().is_terminal(), !repeated, "{what}");
        assert_eq!(world.live().reconciliation.is_some_and(|search| search.extending), repeated, "{what}");
        assert_eq!(world.postings.is_empty(), repeated, "{what}: nothing is settled while it is repeated");
        // Without the route's word nothing is.
        let mut once = World::submitted(&terms());
        once.take(&end(1, end_of_it)).unwrap();
        assert!(once.lifecycle().is_terminal(), "{what}");
    }
}

/// Something was shown, or somebody has decided: the same end is no reason to repeat any more.
#[test]
fn what_forbids_a_repeat() {
    let shown = || World::processing(&retries());
    let stored = || {
        let mut world = World::submitted(&retries());
        world.log.length = 1;
        world
    };
    let cancelled = || {
        let mut world = World::submitted(&retries());
        world.take(&Command::Cancel).unwrap();
        world
    };
    let agentic = || World::submitted(&Terms { workload: Workload::Agentic, ..retries() });
    let timed_out = || {
        let mut world = World::submitted(&retries());
        world.at(2_000).take(&wake(true)).unwrap();
        assert!(world.live().attempt.abort.is_some());
        world
    };
    for (what, mut world) in [
        ("a head was given to a reader", shown()),
        ("a byte is stored", stored()),
        ("somebody asked for its end", cancelled()),
        ("agentic work", agentic()),
        ("a deadline has stopped it", timed_out()),
    ] {
        world.take(&end(1, REFUSED)).unwrap();
        assert!(world.lifecycle().is_terminal(), "{what}");
    }
}

/// A lost driver: repeated where nothing is stored, failed where a byte is, whatever the route says.
#[test]
fn a_lost_driver_is_repeated_only_before_the_first_byte() {
    for (length, agentic, said) in
        [(0, false, "done+extend"), (1, false, "done>failed+close"), (0, true, "done>failed+close")]
    {
        let workload = if agentic { Workload::Agentic } else { Workload::default() };
        let mut world = World::processing(&Terms { workload, ..retries() });
        world.log.length = length;
        world.at(9_000).take(&wake(false)).unwrap();
        assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), said, "{length} bytes, agentic {agentic}");
    }
}

/// The head of an attempt that may be repeated is shown to nobody: who comes meanwhile waits for the answer that is read on.
#[test]
fn readers_wait_for_the_answer_that_is_read_on() {
    for (what, terms, length, shown) in [
        ("it may be repeated", retries(), 0, false),
        ("a byte is stored", retries(), 1, true),
        ("it stands", terms(), 0, true),
    ] {
        let mut world = World::processing(&terms);
        let shows = |world: &World| world.live().head_for_readers(&world.log).is_some();
        assert!(shows(&world), "{what}");
        world.log.length = length;
        world.at(9_000).take(&wake(false)).unwrap();
        assert_eq!(shows(&world), shown, "{what}");
    }
}

/// The whole of a repeat: who drove is fenced, after a pause the hold is extended, an attempt with an id of its own is
/// sent, and both are settled.
#[test]
fn a_repeat_from_end_to_end() {
    let mut world = World::submitted(&retries());
    assert_eq!(world.say(&end(1, REFUSED)), "done");
    assert_eq!(world.say(&end(1, complete(10, 20))), "!stale_epoch", "who drove is fenced");
    assert_eq!((world.epoch(), world.live().attempt.upstream), (2, UpstreamState::Unknown));
    let pause_ms = world.next_wake_ms().unwrap();
    assert!((1_000..1_250).contains(&pause_ms), "{pause_ms}");
    assert_eq!(world.at(pause_ms - 1).say(&wake(false)), "done=");
    let asked = world.at(pause_ms).take(&wake(false)).unwrap();
    assert_eq!(asked.effects, [Effect::ExtendHold { epoch: 3, amount: micros(HOLD) }]);
    let attempt = AttemptId::further(&identity(1).reservation, 3);
    assert_ne!(attempt, attempt_id(1));
    let started = world.take(&Command::HoldExtended { epoch: 3, attempt: attempt.clone() }).unwrap();
    assert_eq!(started.reply, Reply::Started { epoch: 3 });
    assert_eq!(world.live().attempt.id, attempt);
    world.take(&Command::Submit { epoch: 3 }).unwrap();
    world.take(&respond(3)).unwrap();
    world.take(&end(3, complete(10, 20))).unwrap();
    assert_eq!(world.books(), [("settle", 612 + 50)], "what the first may have used, and what the second did");
}

/// Design 4, "retry within a budget": three attempts, with growing pauses, and then the last end stands.
#[test]
fn the_budget_ends() {
    let mut world = World::submitted(&retries());
    let mut epoch = 1;
    let mut pauses = Vec::new();
    for further in 2..=u8::try_from(ATTEMPTS_MAX).unwrap() {
        let before = world.now;
        assert_eq!(world.say(&end(epoch, REFUSED)), "done");
        pauses.push(world.next_wake().unwrap().since(before));
        world.now = world.next_wake().unwrap();
        assert_eq!(world.say(&wake(false)), "done+extend");
        epoch += 2;
        world.take(&Command::HoldExtended { epoch, attempt: attempt_id(further) }).unwrap();
        world.take(&Command::Submit { epoch }).unwrap();
    }
    assert!((1_000..1_250).contains(&pauses[0]) && (2_000..2_500).contains(&pauses[1]), "{pauses:?}");
    assert_eq!(world.say(&end(epoch, REFUSED)), "done>failed+close");
    assert_eq!(world.books(), [("settle", 3 * 612)]);
}

fn wishing(retry_after: &str) -> UpstreamEnd {
    let head = ResponseHead { status: 503, headers: vec![("retry-after".into(), retry_after.into())] };
    UpstreamEnd { head: Some(head), ..answered(503, false) }
}

/// Whoever wishes to be asked again after the attempt's longest time (20 s) is not asked again: its answer is handed on.
#[test]
fn a_pause_beyond_the_longest_time_ends_it() {
    for (seconds, said) in [("15", "done"), ("20", "done>failed+close"), ("99999999", "done>failed+close")] {
        assert_eq!(World::submitted(&retries()).say(&end(1, wishing(seconds))), said, "{seconds}");
    }
}

/// Nothing runs between two attempts: a cancel asks for the tenant's answer at once, and that ends it.
#[test]
fn a_cancel_between_two_attempts_ends_it_at_once() {
    let mut world = World::submitted(&Terms { total_ms: 600_000, ..retries() });
    world.take(&end(1, wishing("100"))).unwrap();
    assert_eq!(world.say(&Command::Cancel), "requested>cancellation_requested+abort+extend");
    assert_eq!(world.next_wake_ms(), Some(1_000), "asked again, should the answer be lost");
    assert_eq!(world.say(&Command::HoldExtended { epoch: 3, attempt: attempt_id(2) }), "done+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>cancelled+close");
    assert_eq!(world.books(), [("settle", 612)]);
}

/// Fault 14: a gateway's `Retry-After` makes the pause longer, within bounds; what it says otherwise is not heard.
#[test]
fn a_wish_of_a_gateway_is_clamped() {
    for (value, from, to) in [
        ("7", 7_000, 8_750),
        ("0", 1_000, 1_250),
        ("-5", 1_000, 1_250),
        ("99999999", 240_000, 300_001),
        ("Sun, 29 Nov 2026 08:00:30 GMT", 1_000, 300_001),
        ("soon", 1_000, 1_250),
    ] {
        let mut world = World::submitted(&Terms { total_ms: 600_000, ..retries() });
        world.take(&end(1, wishing(value))).unwrap();
        let pause_ms = world.next_wake_ms().unwrap();
        assert!((from..to).contains(&pause_ms), "{value}: {pause_ms}");
    }
}

/// The tenant does not extend the hold: nothing is sent, and what the first attempt may have used is charged.
#[test]
fn a_refused_extension_ends_it() {
    let mut world = World::submitted(&retries());
    world.take(&end(1, REFUSED)).unwrap();
    world.now = world.next_wake().unwrap();
    assert_eq!(world.say(&wake(false)), "done+extend");
    assert_eq!(world.say(&Command::ExtensionRefused { epoch: 3 }), "done+evidence");
    assert_eq!(world.say(&reconcile(2, ended(SourceEnd::Lost))), "done>failed+close");
    assert_eq!(world.books(), [("settle", 612)]);
}

/// The id of a further attempt is the same whoever makes it, and no other epoch or reservation has it.
#[test]
fn ids_of_further_attempts() {
    let of = |n, epoch| AttemptId::further(&identity(n).reservation, epoch);
    assert_eq!(of(1, 3), of(1, 3));
    assert!(of(1, 3) != of(1, 5) && of(1, 3) != of(2, 3));
}
