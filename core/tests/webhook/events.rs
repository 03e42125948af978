//! What is sent: its bytes, its size, and nothing but ids, states and amounts.

use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::ReasonCode;
use holdfast_core::money::Micros;
use holdfast_core::reservation::{Lifecycle, Settlement};
use holdfast_core::signature::SigningSecret;
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::Usage;
use holdfast_core::webhook::event::{About, BODY_MAX_BYTES, ROUTE_MAX_CHARS};
use holdfast_core::webhook::{
    Answer, Crowd, DeadReason, Delivery, DeliveryState, DeliveryView, Endpoint, EventType, Notice, Reach, Recorded,
    Schedule, Secrets, Step, WebhookConfig, WebhookView, record,
};

pub(crate) const NOW: UnixMillis = UnixMillis(1_796_031_667_249);

const ID: &str = "evt_01010101010101010101010101010101_7_finished";

/// Makes a notice of what `change` makes of a completed generation.
fn notice(change: impl FnOnce(&mut About<'_>)) -> Notice {
    let (generation_id, reservation_id) = (GenerationId::from_random([1; 16]), ReservationId::from_random([1; 16]));
    let mut about = About {
        generation_id: &generation_id,
        reservation_id: &reservation_id,
        route: "report",
        lifecycle: Lifecycle::Completed,
        settlement: Settlement::Committed,
        reason: ReasonCode::CompletedExact,
        cost_micros: Some(Micros::new(81).unwrap()),
        estimated: false,
        usage: Some(Usage { input_tokens: 12, output_tokens: 3, ..Usage::default() }),
        review: None,
    };
    change(&mut about);
    Notice::of(ID.into(), EventType::Finished, NOW, &about)
}

/// `{type, timestamp, data}`; receivers were written against these bytes: members may be added, none changed.
#[test]
fn bytes_of_a_body_are_pinned() {
    let told = notice(|_| {});
    assert_eq!(
        told.body,
        r#"{"type":"generation.finished","timestamp":"2026-11-30T09:41:07.249Z","data":{"generation_id":"gen_01010101010101010101010101010101","reservation_id":"res_01010101010101010101010101010101","route":"report","lifecycle":"completed","settlement":"committed","reason":"completed_exact","cost_micros":81,"estimated":false,"usage":{"input_tokens":12,"output_tokens":3,"cached_input_tokens":0,"cache_write_tokens":0,"reasoning_tokens":0},"review":null}}"#
    );
    let test = Notice::test("ab12", "acme", NOW);
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

/// The longest that there can be is far below 20 kB. Of a long name the beginning is told, whole characters of it.
#[test]
fn bodies_are_thin() {
    let long = "\u{1}".repeat(10 * ROUTE_MAX_CHARS);
    let body = |route: &str| {
        let route = route.to_owned();
        let told = notice(|about| {
            about.route = Box::leak(route.into_boxed_str());
            about.cost_micros = Some(Micros::MAX);
            about.reason = ReasonCode::CompletedWithoutUsage;
            about.review = Some(ReasonCode::CompletedWithoutUsage);
            about.usage = Some(Usage {
                input_tokens: u64::MAX,
                output_tokens: u64::MAX,
                cached_input_tokens: u64::MAX,
                cache_write_tokens: u64::MAX,
                reasoning_tokens: u64::MAX,
            });
        });
        told.body
    };
    assert!(body(&long).len() < BODY_MAX_BYTES / 10, "{}", body(&long).len());
    let told: serde_json::Value = serde_json::from_str(&body(&"ä".repeat(ROUTE_MAX_CHARS + 1))).unwrap();
    assert_eq!(told["data"]["route"], "ä".repeat(ROUTE_MAX_CHARS).as_str());
}

/// A notice crosses from object to object, and lies in an outbox over a deploy.
#[test]
fn bytes_of_a_notice_are_pinned() {
    let notice = Notice { id: ID.into(), kind: EventType::Finished, at: NOW, body: "{}".into() };
    let bytes = r#"{"id":"evt_01010101010101010101010101010101_7_finished","type":"generation.finished","at":1796031667249,"body":"{}"}"#;
    assert_eq!(serde_json::to_string(&notice).unwrap(), bytes);
    assert_eq!(serde_json::from_str::<Notice>(bytes).unwrap(), notice);
}

/// Nobody configured, not wanted: nothing is stored. Disabled: a dead letter from the start.
#[test]
fn an_event_is_recorded_for_whoever_wants_it() {
    let schedule = Schedule::default();
    let told = || notice(|_| {});
    let all = Endpoint::new("https://acme.com/", &[], Reach::Public).unwrap();
    let failures = Endpoint::new("https://acme.com/", &[EventType::Failed], Reach::Public).unwrap();
    let room = Crowd::default();
    assert_eq!(record(told(), None, room, &schedule, NOW), Recorded::Unwanted);
    assert_eq!(record(told(), Some(&failures), room, &schedule, NOW), Recorded::Unwanted);
    let (stored, delivery) = stored(record(told(), Some(&all), room, &schedule, NOW));
    assert_eq!((&stored, delivery.event_id.as_str()), (&told(), ID));
    assert_eq!(delivery.state, DeliveryState::Pending { next_at: NOW }, "at once");
    let (_, dead) = self::stored(record(told(), Some(&all.gone(NOW)), room, &schedule, NOW));
    assert_eq!(dead.state, DeliveryState::Dead { at: NOW, why: DeadReason::EndpointDisabled });
    let test = record(Notice::test("1", "t", NOW), Some(&failures), room, &schedule, NOW);
    assert!(matches!(test, Recorded::Stored(_)), "a test is always wanted");
}

fn stored(recorded: Recorded) -> (Notice, Delivery) {
    match recorded {
        Recorded::Stored(stored) => *stored,
        other => panic!("{other:?}"),
    }
}

/// A bound that is reached has a name: a dead letter that may be replayed, then a number.
#[test]
fn too_many_events_are_put_aside_and_then_counted() {
    let schedule = Schedule::default();
    let all = Endpoint::new("https://acme.com/", &[], Reach::Public).unwrap();
    let (on, off) = (&all, &all.gone(NOW));
    for (endpoint, pending_is_full, dead_is_full, expected) in [
        (on, false, false, None),
        (on, false, true, None),
        (on, true, false, Some(DeadReason::TooManyPending)),
        (off, false, false, Some(DeadReason::EndpointDisabled)),
        (off, true, false, Some(DeadReason::EndpointDisabled)),
    ] {
        let crowd = Crowd { pending_is_full, dead_is_full };
        let (_, delivery) = stored(record(notice(|_| {}), Some(endpoint), crowd, &schedule, NOW));
        let expected =
            expected.map_or(DeliveryState::Pending { next_at: NOW }, |why| DeliveryState::Dead { at: NOW, why });
        assert_eq!(delivery.state, expected, "{crowd:?}");
        let replayed = delivery.replay(&schedule, NOW.plus(5)).ok().map(|delivery| delivery.state);
        let again = DeliveryState::Pending { next_at: NOW.plus(5) };
        assert_eq!(replayed, Some(again).filter(|_| matches!(expected, DeliveryState::Dead { .. })), "{crowd:?}");
    }
    for (endpoint, pending_is_full) in [(on, true), (off, true), (off, false)] {
        let crowd = Crowd { pending_is_full, dead_is_full: true };
        assert_eq!(record(notice(|_| {}), Some(endpoint), crowd, &schedule, NOW), Recorded::Dropped, "{crowd:?}");
    }
    let config = WebhookConfig { url: "https://other.example/".into(), events: Vec::new() };
    assert_eq!(Endpoint::configured(&config, Some(&all.dropping(2).dropping(1))).dropped, 3, "of any URL");
}

/// What the API shows: flat, and never a secret.
#[test]
fn views() {
    let secrets = Secrets::default().rotated(SigningSecret::from_random([1; 32]), 0, NOW).secrets;
    let secrets = secrets.rotated(SigningSecret::from_random([2; 32]), 1_000, NOW.plus(5)).secrets;
    let endpoint = Endpoint::new("https://acme.com/", &[EventType::Failed], Reach::Public).unwrap().gone(NOW);
    let view = WebhookView::of(Some(&endpoint), &secrets, 1, 2, NOW.plus(6));
    assert_eq!(
        serde_json::to_string(&view).unwrap(),
        r#"{"object":"webhook","url":"https://acme.com/","events":["generation.failed"],"status":"disabled","disabled_since":1796031667249,"disabled_because":"gone","secret":{"created_at":1796031667254,"previous_until":1796031668254},"pending":1,"dead":2,"dropped":0}"#
    );
    let none = WebhookView::of(None, &Secrets::default(), 0, 0, NOW);
    assert!(serde_json::to_string(&none).unwrap().contains(r#""url":null,"events":[],"status":"not_configured""#));
    let schedule = Schedule::new(vec![0]).unwrap();
    let told = notice(|_| {});
    let Step::Send(begun) = Delivery::new(ID, &schedule, NOW).step(Some(&endpoint.enabled()), &schedule, 9, NOW) else {
        panic!("it is due")
    };
    let answer = Answer::Status { status: 503, retry_after_ms: Some(7) };
    let dead = begun.finish(answer, &schedule, NOW.plus(1)).delivery;
    assert_eq!(
        serde_json::to_string(&DeliveryView::of(&told, &dead)).unwrap(),
        r#"{"object":"webhook.delivery","id":"evt_01010101010101010101010101010101_7_finished","type":"generation.finished","created_at":1796031667249,"state":"dead","next_at":null,"done_at":1796031667250,"why":"schedule_ended","attempts":1,"replays":0,"last_attempt":{"at":1796031667249,"answer":"status","status":503,"fault":null}}"#
    );
}
