//! What is sent: its bytes, its size, and nothing but ids, states and amounts.

use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::ReasonCode;
use holdfast_core::money::Micros;
use holdfast_core::reservation::{Lifecycle, Settlement};
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::{Metered, Usage};
use holdfast_core::webhook::event::{About, BODY_MAX_BYTES, ROUTE_MAX_CHARS};
use holdfast_core::webhook::{DeadReason, DeliveryState, Endpoint, Event, EventType, Notice, Reach, Schedule, record};

pub(crate) const NOW: UnixMillis = UnixMillis(1_796_031_667_249);

fn notice(usage: Option<Metered>) -> Notice {
    Notice {
        id: "evt_01010101010101010101010101010101_7_finished".into(),
        kind: EventType::Finished,
        at: NOW,
        about: About {
            generation_id: GenerationId::from_random([1; 16]),
            reservation_id: ReservationId::from_random([1; 16]),
            route: "report".into(),
            lifecycle: Lifecycle::Completed,
            settlement: Settlement::Committed,
            reason: ReasonCode::CompletedExact,
            cost_micros: Some(Micros::new(81).unwrap()),
            usage,
            review: None,
        },
    }
}

/// `{type, timestamp, data}`; receivers were written against these bytes: members may be added, none changed.
#[test]
fn bytes_of_a_body_are_pinned() {
    let usage = Usage { input_tokens: 12, output_tokens: 3, ..Usage::default() };
    let event = Event::of(&notice(Some(Metered::Exact(usage))));
    assert_eq!(
        event.body,
        r#"{"type":"generation.finished","timestamp":"2026-11-30T09:41:07.249Z","data":{"generation_id":"gen_01010101010101010101010101010101","reservation_id":"res_01010101010101010101010101010101","route":"report","lifecycle":"completed","settlement":"committed","reason":"completed_exact","cost_micros":81,"estimated":false,"usage":{"input_tokens":12,"output_tokens":3,"cached_input_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"review":null}}"#
    );
    let bound = Event::of(&notice(Some(Metered::AtLeast(usage))));
    assert_eq!(bound.body, event.body.replace(r#""estimated":false"#, r#""estimated":true"#));
    let test = Event::test("ab12", "acme", NOW);
    assert_eq!(test.id, "evt_ab12_test");
    assert_eq!(test.body, r#"{"type":"webhook.test","timestamp":"2026-11-30T09:41:07.249Z","data":{"tenant":"acme"}}"#);
}

/// Names are of the alphabet that Standard Webhooks asks for.
#[test]
fn names() {
    for kind in EventType::OF_GENERATIONS.into_iter().chain([EventType::Test]) {
        let name = kind.as_str();
        assert!(name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_' || byte == b'.'), "{name}");
        assert_eq!(serde_json::to_string(&kind).unwrap(), format!("\"{name}\""));
        assert_eq!(name.rsplit('.').next(), Some(kind.short()));
    }
}

/// The longest that there can be is far below 20 kB.
#[test]
fn bodies_are_thin() {
    let most = Usage {
        input_tokens: u64::MAX,
        output_tokens: u64::MAX,
        cached_input_tokens: u64::MAX,
        cache_write_tokens: u64::MAX,
        reasoning_tokens: u64::MAX,
    };
    let mut longest = notice(Some(Metered::AtLeast(most)));
    longest.kind = EventType::LateCompletion;
    longest.about.route = "\u{1}".repeat(ROUTE_MAX_CHARS);
    longest.about.cost_micros = Some(Micros::MAX);
    longest.about.reason = ReasonCode::CompletedWithoutUsage;
    longest.about.review = Some(ReasonCode::CompletedWithoutUsage);
    let length = Event::of(&longest).body.len();
    assert!(length < BODY_MAX_BYTES / 10, "{length}");
}

/// A notice crosses from object to object, and lies in an outbox over a deploy.
#[test]
fn bytes_of_a_notice_are_pinned() {
    let notice = notice(None);
    let bytes = r#"{"id":"evt_01010101010101010101010101010101_7_finished","type":"generation.finished","at":1796031667249,"generation_id":"gen_01010101010101010101010101010101","reservation_id":"res_01010101010101010101010101010101","route":"report","lifecycle":"completed","settlement":"committed","reason":"completed_exact","cost_micros":81,"usage":null,"review":null}"#;
    assert_eq!(serde_json::to_string(&notice).unwrap(), bytes);
    assert_eq!(serde_json::from_str::<Notice>(bytes).unwrap(), notice);
}

/// Nobody configured, not wanted: nothing is stored. Disabled: a dead letter from the start.
#[test]
fn an_event_is_recorded_for_whoever_wants_it() {
    let schedule = Schedule::default();
    let event = || Event::of(&notice(None));
    let all = Endpoint::new("https://acme.com/", &[], Reach::Public).unwrap();
    let failures = Endpoint::new("https://acme.com/", &[EventType::Failed], Reach::Public).unwrap();
    assert_eq!(record(event(), None, &schedule, NOW), None);
    assert_eq!(record(event(), Some(&failures), &schedule, NOW), None);
    let (stored, delivery) = record(event(), Some(&all), &schedule, NOW).unwrap();
    assert_eq!((&stored.id, &delivery.event_id), (&event().id, &event().id));
    assert_eq!(delivery.state, DeliveryState::Pending { next_at: NOW }, "at once");
    let (_, dead) = record(event(), Some(&all.gone(NOW)), &schedule, NOW).unwrap();
    assert_eq!(dead.state, DeliveryState::Dead { at: NOW, why: DeadReason::EndpointDisabled });
    assert!(record(Event::test("1", "t", NOW), Some(&failures), &schedule, NOW).is_some(), "a test is always wanted");
}
