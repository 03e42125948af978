//! Endpoints and their secrets: disabled by 410, and signed by two secrets while one replaces the other.

use super::events::NOW;
use holdfast_core::signature::SigningSecret;
use holdfast_core::time::UnixMillis;
use holdfast_core::webhook::{
    Disabled, DisabledBecause, Endpoint, EventType, Reach, Rotation, Secrets, UrlFault, WebhookConfig,
};

fn endpoint() -> Endpoint {
    Endpoint::new("https://acme.com/hook", &[], Reach::Public).unwrap()
}

#[test]
fn a_url_that_may_not_be_called_is_not_saved() {
    assert_eq!(Endpoint::new("http://127.0.0.1/", &[], Reach::Public), Err(UrlFault::Scheme));
    assert!(Endpoint::new("http://127.0.0.1/", &[], Reach::Local).is_ok());
}

#[test]
fn what_is_gone_stays_gone_until_it_is_enabled() {
    let gone = endpoint().gone(NOW);
    assert_eq!(gone.disabled, Some(Disabled { since: NOW, why: DisabledBecause::Gone }));
    assert_eq!(gone.gone(NOW.plus(1)), gone, "the first time stands");
    assert!(!gone.is_active() && gone.enabled().is_active());
}

/// The configuration changes beside what happened: the same URL stays disabled, whatever events it wants; another is new.
#[test]
fn what_happened_belongs_to_a_url() {
    let gone = endpoint().gone(NOW);
    let events = [EventType::Failed];
    let at = |url: &str, events: &[EventType]| WebhookConfig { url: url.into(), events: events.into() };
    let same = Endpoint::configured(&at("https://acme.com/hook", &events), Some(&gone));
    assert_eq!((same.disabled, same.events.as_slice()), (gone.disabled, &events[..]));
    assert!(Endpoint::configured(&at("https://acme.com/other", &[]), Some(&gone)).is_active());
    assert!(Endpoint::configured(&at("https://acme.com/hook", &[]), None).is_active());
}

#[test]
fn bytes_of_an_endpoint_are_pinned() {
    let bytes = r#"{"url":"https://acme.com/hook","disabled":{"since":1796031667249,"why":"gone"}}"#;
    assert_eq!(serde_json::to_string(&endpoint().gone(NOW)).unwrap(), bytes);
    assert_eq!(serde_json::from_str::<Endpoint>(bytes).unwrap(), endpoint().gone(NOW));
}

fn secret(n: u8) -> SigningSecret {
    SigningSecret::from_random([n; 32])
}

fn signing(secrets: &Secrets, now: UnixMillis) -> Vec<String> {
    secrets.signing(now).iter().map(SigningSecret::reveal).collect()
}

#[test]
fn a_replaced_secret_signs_besides_for_a_while() {
    let Rotation { secrets: first, previous_until } = Secrets::default().rotated(secret(1), 1_000, NOW);
    assert_eq!((signing(&first, NOW), previous_until), (vec![secret(1).reveal()], None));
    let Rotation { secrets: second, previous_until } = first.rotated(secret(2), 1_000, NOW.plus(10));
    assert_eq!(previous_until, Some(NOW.plus(1_010)));
    let (old, new) = (secret(1).reveal(), secret(2).reveal());
    assert_eq!(signing(&second, NOW.plus(1_009)), [new.clone(), old]);
    assert_eq!(signing(&second, NOW.plus(1_010)), std::slice::from_ref(&new));
    // A third comes within the time of the second: never more than two.
    let third = second.rotated(secret(3), 1_000, NOW.plus(20)).secrets;
    assert_eq!(signing(&third, NOW.plus(21)), [secret(3).reveal(), new]);
    assert_eq!(third.rows().len(), 2);
}

/// A secret that leaked signs nothing more, at once.
#[test]
fn without_overlap_the_old_one_is_of_no_use() {
    let first = Secrets::default().rotated(secret(1), 1_000, NOW).secrets;
    let Rotation { secrets, previous_until } = first.rotated(secret(2), 0, NOW.plus(1));
    assert_eq!((signing(&secrets, NOW.plus(1)), previous_until), (vec![secret(2).reveal()], None));
    assert_eq!(secrets.rows().len(), 1);
}

#[test]
fn secrets_survive_their_rows() {
    let first = Secrets::default().rotated(secret(1), 1_000, NOW).secrets;
    let secrets = first.rotated(secret(2), 1_000, NOW.plus(10)).secrets;
    let rows = secrets.rows().iter().map(|row| (row.secret.reveal(), row.created_at, row.retires_at));
    let read = Secrets::from_rows(rows).unwrap();
    assert_eq!(signing(&read, NOW.plus(11)), signing(&secrets, NOW.plus(11)));
    assert_eq!(read.current().unwrap().created_at, NOW.plus(10));
    assert!(Secrets::from_rows([("whsec_".into(), NOW, None)]).is_err(), "a broken row signs nothing");
    assert!(Secrets::default().signing(NOW).is_empty());
}
