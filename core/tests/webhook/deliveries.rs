//! One event on its way: the schedule, what answers mean, dead letters and their replay.

use super::events::NOW;
use holdfast_core::refusal::Refusal;
use holdfast_core::time::UnixMillis;
use holdfast_core::webhook::delivery::{ATTEMPTS_MAX, RETRY_AFTER_MAX_MS, SCHEDULE_MS};
use holdfast_core::webhook::{
    Answer, DeadReason, Delivery, DeliveryState, Endpoint, Finished, Reach, Schedule, Step, UrlFault, retry_after_ms,
};

const TIMEOUT_MS: u64 = 15_000;
const ID: &str = "evt_01010101010101010101010101010101_7_finished";

pub(crate) fn endpoint() -> Endpoint {
    Endpoint::new("https://acme.com/hook", &[], Reach::Public).unwrap()
}

const fn status(status: u16) -> Answer {
    Answer::Status { status, retry_after_ms: None }
}

/// Begins the attempt that is due.
fn begin(delivery: &Delivery, schedule: &Schedule, now: UnixMillis) -> Delivery {
    match delivery.step(Some(&endpoint()), schedule, TIMEOUT_MS, now) {
        Step::Send(begun) => begun,
        other => panic!("not due at {now}: {other:?}"),
    }
}

fn next_at(delivery: &Delivery) -> UnixMillis {
    match delivery.state {
        DeliveryState::Pending { next_at } => next_at,
        other => panic!("not pending: {other:?}"),
    }
}

fn at_most_a_tenth_more(at: UnixMillis, from: UnixMillis, delay_ms: u64) -> bool {
    (delay_ms..=delay_ms + delay_ms / 10).contains(&at.since(from))
}

/// Reliability reference 5: 0, 5 s, 5 min, 30 min, 2 h, 5 h, 10 h, 14 h, 20 h, 24 h, together 75:35:05, with jitter.
#[test]
fn the_schedule_by_default() {
    let schedule = Schedule::default();
    assert_eq!(SCHEDULE_MS.iter().sum::<u64>(), ((75 * 60 + 35) * 60 + 5) * 1_000);
    let mut delivery = Delivery::new(ID, &schedule, NOW);
    let mut now = NOW;
    for (made, delay_ms) in SCHEDULE_MS.into_iter().enumerate() {
        let at = next_at(&delivery);
        assert!(at_most_a_tenth_more(at, now, delay_ms), "attempt {made} at {at}");
        assert_eq!(delivery.step(Some(&endpoint()), &schedule, TIMEOUT_MS, UnixMillis(at.0 - 1)), Step::Wait);
        let begun = begin(&delivery, &schedule, at);
        now = at.plus(40);
        let Finished { delivery: after, disables } = begun.finish(status(500), &schedule, now);
        assert!(!disables);
        delivery = after;
    }
    // Fault 49: a receiver that is down for days.
    assert_eq!(delivery.state, DeliveryState::Dead { at: now, why: DeadReason::ScheduleEnded });
    assert_eq!((delivery.attempts, delivery.event_id.as_str()), (10, ID));
}

/// Fault 48, answer by answer, after the first attempt of three.
#[test]
fn what_answers_mean() {
    let schedule = Schedule::new(vec![0, 5_000, 60_000]).unwrap();
    let begun = begin(&Delivery::new(ID, &schedule, NOW), &schedule, NOW);
    let now = NOW.plus(100);
    for code in [200, 201, 202, 204, 299] {
        let after = begun.finish(status(code), &schedule, now);
        assert_eq!((after.delivery.state, after.disables), (DeliveryState::Delivered { at: now }, false), "{code}");
    }
    let gone = begun.finish(status(410), &schedule, now);
    assert_eq!(gone.delivery.state, DeliveryState::Dead { at: now, why: DeadReason::EndpointGone });
    assert!(gone.disables);
    let failures =
        [100, 199, 300, 301, 302, 307, 308, 400, 401, 404, 408, 409, 429, 500, 502, 503, 504, 599].map(status);
    let others = [
        Answer::TimedOut,
        Answer::Unreachable,
        Answer::UrlRefused { fault: UrlFault::IpLiteral },
        Answer::NoSecret,
        Answer::Status { status: 500, retry_after_ms: Some(3_600_000) },
        Answer::Status { status: 301, retry_after_ms: Some(3_600_000) },
    ];
    for answer in failures.into_iter().chain(others) {
        let Finished { delivery, disables } = begun.finish(answer, &schedule, now);
        assert!(!disables, "{answer:?}");
        assert!(at_most_a_tenth_more(next_at(&delivery), now, 5_000), "{answer:?}: {delivery:?}");
        assert_eq!(delivery.last_attempt.unwrap().answer, answer);
    }
}

/// A receiver's wish defers, within a day, and never hurries; it makes no attempt more.
#[test]
fn a_receivers_wish() {
    let schedule = Schedule::new(vec![0, 5_000]).unwrap();
    let begun = begin(&Delivery::new(ID, &schedule, NOW), &schedule, NOW);
    for (code, wish_ms, delay_ms) in [
        (429, 0, 5_000),
        (429, 4_999, 5_000),
        (429, 60_000, 60_000),
        (503, 60_000, 60_000),
        (503, RETRY_AFTER_MAX_MS, RETRY_AFTER_MAX_MS),
        (503, u64::MAX, RETRY_AFTER_MAX_MS),
    ] {
        let answer = Answer::Status { status: code, retry_after_ms: Some(wish_ms) };
        let delivery = begun.finish(answer, &schedule, NOW).delivery;
        assert!(at_most_a_tenth_more(next_at(&delivery), NOW, delay_ms), "{code} {wish_ms}");
        let last = begin(&delivery, &schedule, next_at(&delivery));
        let dead = last.finish(answer, &schedule, NOW).delivery;
        assert_eq!(dead.state, DeliveryState::Dead { at: NOW, why: DeadReason::ScheduleEnded });
    }
}

#[test]
fn wishes_are_seconds_or_dates() {
    let now = UnixMillis(784_111_777_000); // Sun, 06 Nov 1994 08:49:37 GMT
    for (value, wish_ms) in [
        ("0", Some(0)),
        ("120", Some(120_000)),
        (" 120 ", Some(120_000)),
        ("999999999999999", Some(999_999_999_999_999_000)),
        ("Sun, 06 Nov 1994 08:49:37 GMT", Some(0)),
        ("Sun, 06 Nov 1994 08:50:37 GMT", Some(60_000)),
        ("Mon, 07 Nov 1994 08:49:37 GMT", Some(86_400_000)),
        ("Sat, 05 Nov 1994 08:49:37 GMT", Some(0)),
        ("", None),
        ("-1", None),
        ("1.5", None),
        ("1e3", None),
        ("1000000000000000", None),
        ("soon", None),
        ("Sun, 06 Nov 1994 08:49:37", None),
        ("Sun, 06 Nov 1994 08:49:37 PST", None),
        ("Sun, 06 Nov 1994 24:49:37 GMT", None),
        ("Sun, 6 Nov 1994 08:49:37 GMT", None),
        ("Sun, 06 nov 1994 08:49:37 GMT", None),
        ("Sunday, 06-Nov-94 08:49:37 GMT", None),
    ] {
        assert_eq!(retry_after_ms(value, now), wish_ms, "{value}");
    }
}

/// Fault 50: what was begun and never noted is tried again under the same id, at its scheduled time, and counts.
#[test]
fn a_sender_that_dies_sends_again() {
    let schedule = Schedule::new(vec![0, 5_000]).unwrap();
    let begun = begin(&Delivery::new(ID, &schedule, NOW), &schedule, NOW);
    assert_eq!((begun.attempts, begun.last_attempt.unwrap().answer), (1, Answer::Lost));
    assert!(at_most_a_tenth_more(next_at(&begun), NOW.plus(TIMEOUT_MS), 5_000), "{begun:?}");
    let again = begin(&begun, &schedule, next_at(&begun));
    assert_eq!((again.event_id.as_str(), again.attempts), (ID, 2));
    // It dies at the last attempt, too: it is a dead letter, once the answer could have come.
    let at = next_at(&again);
    assert_eq!(at, next_at(&begun).plus(TIMEOUT_MS));
    let Step::Bury(dead) = again.step(Some(&endpoint()), &schedule, TIMEOUT_MS, at) else { panic!("{again:?}") };
    assert_eq!(dead.state, DeliveryState::Dead { at, why: DeadReason::ScheduleEnded });
    assert_eq!(dead.last_attempt.unwrap().answer, Answer::Lost);
}

#[test]
fn nothing_is_sent_to_an_endpoint_that_is_not_there() {
    let schedule = Schedule::default();
    let delivery = Delivery::new(ID, &schedule, NOW);
    for (endpoint, why) in
        [(None, DeadReason::EndpointRemoved), (Some(endpoint().gone(NOW)), DeadReason::EndpointDisabled)]
    {
        let Step::Bury(dead) = delivery.step(endpoint.as_ref(), &schedule, TIMEOUT_MS, NOW) else { panic!("{why:?}") };
        assert_eq!(dead.state, DeliveryState::Dead { at: NOW, why });
    }
}

/// An answer that comes after all changes nothing.
#[test]
fn the_end_stands() {
    let schedule = Schedule::default();
    let begun = begin(&Delivery::new(ID, &schedule, NOW), &schedule, NOW);
    let delivered = begun.finish(status(200), &schedule, NOW).delivery;
    let dead = begun.finish(status(410), &schedule, NOW).delivery;
    for end in [delivered, dead] {
        for answer in [status(200), status(410), status(500), Answer::TimedOut] {
            let after = end.finish(answer, &schedule, NOW.plus(1));
            assert_eq!(after, Finished { delivery: end.clone(), disables: false });
        }
        assert_eq!(end.step(Some(&endpoint()), &schedule, TIMEOUT_MS, NOW.plus(1 << 40)), Step::Wait);
    }
}

#[test]
fn a_dead_letter_is_replayed_under_its_id() {
    let schedule = Schedule::new(vec![0]).unwrap();
    let begun = begin(&Delivery::new(ID, &schedule, NOW), &schedule, NOW);
    let refused = |state: &str| Err(Refusal::NotReplayable { state: state.into() });
    assert_eq!(begun.replay(&schedule, NOW), refused("pending"));
    assert_eq!(begun.finish(status(200), &schedule, NOW).delivery.replay(&schedule, NOW), refused("delivered"));
    let dead = begun.finish(status(500), &schedule, NOW).delivery;
    let later = NOW.plus(1_000_000);
    let again = dead.replay(&schedule, later).unwrap();
    assert_eq!((again.event_id.as_str(), again.attempts, again.replays), (ID, 0, 1));
    assert_eq!(again.state, DeliveryState::Pending { next_at: later });
    let delivered = begin(&again, &schedule, later).finish(status(200), &schedule, later).delivery;
    assert_eq!(delivered.state, DeliveryState::Delivered { at: later });
}

#[test]
fn bytes_of_a_delivery_are_pinned() {
    let schedule = Schedule::new(vec![0]).unwrap();
    let begun = begin(&Delivery::new("evt_1", &schedule, NOW), &schedule, NOW);
    let bytes = r#"{"event_id":"evt_1","state":{"dead":{"at":1796031667250,"why":"schedule_ended"}},"attempts":1,"replays":0,"last_attempt":{"at":1796031667249,"answer":{"status":{"status":503,"retry_after_ms":7}}}}"#;
    let answer = Answer::Status { status: 503, retry_after_ms: Some(7) };
    let dead = begun.finish(answer, &schedule, NOW.plus(1)).delivery;
    assert_eq!(serde_json::to_string(&dead).unwrap(), bytes);
    assert_eq!(serde_json::from_str::<Delivery>(bytes).unwrap(), dead);
}

#[test]
fn schedules_are_bounded() {
    assert_eq!(Schedule::new(Vec::new()), None);
    assert!(Schedule::new(vec![0; ATTEMPTS_MAX]).is_some());
    assert_eq!(Schedule::new(vec![0; ATTEMPTS_MAX + 1]), None);
    assert_eq!((Schedule::default().attempts(), Schedule::default().delay_ms(10)), (10, None));
}

/// What failed together is not tried together.
#[test]
fn jitter_spreads() {
    let schedule = Schedule::new(vec![0, 300_000]).unwrap();
    let at = |n: u32| {
        let begun = begin(&Delivery::new(&format!("evt_{n}"), &schedule, NOW), &schedule, NOW);
        next_at(&begun.finish(status(500), &schedule, NOW).delivery).since(NOW)
    };
    let times: std::collections::BTreeSet<u64> = (0..100).map(at).collect();
    assert!(times.len() > 90, "{} different times of 100", times.len());
    let (first, last) = (times.first().unwrap(), times.last().unwrap());
    assert!(last - first > 20_000, "{first} to {last} of 30,000");
}
