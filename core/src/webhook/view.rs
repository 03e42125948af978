//! The webhook and its deliveries as the API shows them. Secrets are never among it. The object writes these documents; the
//! edge passes them on as they are.

use super::delivery::{Answer, Attempt, DeadReason, Delivery, DeliveryState, StateName};
use super::endpoint::{DisabledBecause, Endpoint, Secrets};
use super::event::{EventType, Notice};
use super::url::UrlFault;
use crate::time::UnixMillis;
use serde::Serialize;

/// Whether the tenant is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookStatus {
    /// The configuration names no webhook.
    NotConfigured,
    /// It is told.
    Active,
    /// It is not, until somebody enables it.
    Disabled,
}

/// What may be shown of the secrets.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct SecretView {
    /// When the current one was made.
    pub created_at: UnixMillis,
    /// Until when the one before signs besides.
    pub previous_until: Option<UnixMillis>,
}

/// The webhook of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct WebhookView<'a> {
    /// `webhook`.
    pub object: &'static str,
    /// As configured.
    pub url: Option<&'a str>,
    /// The types that are wanted; all of them when empty.
    pub events: &'a [EventType],
    /// Whether it is told.
    pub status: WebhookStatus,
    /// Since when it is disabled.
    pub disabled_since: Option<UnixMillis>,
    /// Why it is disabled.
    pub disabled_because: Option<DisabledBecause>,
    /// The secret that signs; without one nothing is sent.
    pub secret: Option<SecretView>,
    /// Events on their way.
    pub pending: u64,
    /// Dead letters.
    pub dead: u64,
    /// Events that were only counted, since too many others were on their way or dead.
    pub dropped: u64,
}

impl<'a> WebhookView<'a> {
    /// The view of an endpoint.
    #[must_use]
    pub fn of(endpoint: Option<&'a Endpoint>, secrets: &Secrets, pending: u64, dead: u64, now: UnixMillis) -> Self {
        let disabled = endpoint.and_then(|endpoint| endpoint.disabled);
        let status = match (endpoint, disabled) {
            (None, _) => WebhookStatus::NotConfigured,
            (Some(_), None) => WebhookStatus::Active,
            (Some(_), Some(_)) => WebhookStatus::Disabled,
        };
        let secret = secrets
            .current()
            .map(|current| SecretView { created_at: current.created_at, previous_until: secrets.previous_until(now) });
        Self {
            object: "webhook",
            url: endpoint.map(|endpoint| endpoint.url.as_str()),
            events: endpoint.map(|endpoint| endpoint.events.as_slice()).unwrap_or_default(),
            status,
            disabled_since: disabled.map(|disabled| disabled.since),
            disabled_because: disabled.map(|disabled| disabled.why),
            secret,
            pending,
            dead,
            dropped: endpoint.map_or(0, |endpoint| endpoint.dropped),
        }
    }
}

/// The last attempt.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct AttemptView {
    /// When it was begun.
    pub at: UnixMillis,
    /// What came of it: `status`, `timed_out`, `unreachable`, `url_refused`, `no_secret`, `lost`.
    pub answer: &'static str,
    /// The receiver's HTTP status.
    pub status: Option<u16>,
    /// Why the URL was refused.
    pub fault: Option<UrlFault>,
}

impl From<Attempt> for AttemptView {
    fn from(Attempt { at, answer }: Attempt) -> Self {
        let (status, fault) = match answer {
            Answer::Status { status, .. } => (Some(status), None),
            Answer::UrlRefused { fault } => (None, Some(fault)),
            _ => (None, None),
        };
        Self { at, answer: answer.name(), status, fault }
    }
}

/// An event on its way, delivered or dead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DeliveryView<'a> {
    /// `webhook.delivery`.
    pub object: &'static str,
    /// The event's id: the `webhook-id` of every attempt.
    pub id: &'a str,
    /// What is told.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When it happened.
    pub created_at: UnixMillis,
    /// Where it stands.
    pub state: StateName,
    /// When it is tried next.
    pub next_at: Option<UnixMillis>,
    /// When it was delivered or put aside.
    pub done_at: Option<UnixMillis>,
    /// Why it is a dead letter.
    pub why: Option<DeadReason>,
    /// Attempts begun in this schedule.
    pub attempts: u32,
    /// Schedules before this one.
    pub replays: u32,
    /// The last attempt.
    pub last_attempt: Option<AttemptView>,
}

impl<'a> DeliveryView<'a> {
    /// The view of an event and its delivery.
    #[must_use]
    pub fn of(notice: &'a Notice, delivery: &Delivery) -> Self {
        let (done_at, why) = match delivery.state {
            DeliveryState::Pending { .. } => (None, None),
            DeliveryState::Delivered { at } => (Some(at), None),
            DeliveryState::Dead { at, why } => (Some(at), Some(why)),
        };
        Self {
            object: "webhook.delivery",
            id: &notice.id,
            kind: notice.kind,
            created_at: notice.at,
            state: delivery.state.name(),
            next_at: delivery.state.next_at(),
            done_at,
            why,
            attempts: delivery.attempts,
            replays: delivery.replays,
            last_attempt: delivery.last_attempt.map(AttemptView::from),
        }
    }
}

/// A page of a list.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize)]
pub struct DeliveryPage<'a> {
    /// `list`.
    pub object: &'static str,
    /// In the order in which they were told.
    pub data: alloc::vec::Vec<DeliveryView<'a>>,
    /// There are more behind them.
    pub has_more: bool,
}
