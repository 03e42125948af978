//! The webhook and its deliveries as the API shows them. Secrets are never among it.

use super::delivery::{Attempt, Delivery, DeliveryState};
use super::endpoint::{DisabledBecause, Endpoint, EndpointStatus, Secrets};
use super::event::{Event, EventType};
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Whether the tenant is told.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct SecretView {
    /// When the current one was made.
    pub created_at: UnixMillis,
    /// Until when the one before signs besides.
    pub previous_until: Option<UnixMillis>,
}

/// The webhook of a tenant.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct WebhookView {
    /// `webhook`.
    pub object: String,
    /// As configured.
    pub url: Option<String>,
    /// The types that are wanted; all of them when empty.
    pub events: Vec<EventType>,
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
}

impl WebhookView {
    /// The view of an endpoint.
    #[must_use]
    pub fn of(endpoint: Option<&Endpoint>, secrets: &Secrets, pending: u64, dead: u64, now: UnixMillis) -> Self {
        let (status, disabled_since, disabled_because) = match endpoint.map(|endpoint| endpoint.status) {
            None => (WebhookStatus::NotConfigured, None, None),
            Some(EndpointStatus::Active) => (WebhookStatus::Active, None, None),
            Some(EndpointStatus::Disabled { since, why }) => (WebhookStatus::Disabled, Some(since), Some(why)),
        };
        let secret = secrets
            .current()
            .map(|current| SecretView { created_at: current.created_at, previous_until: secrets.previous_until(now) });
        Self {
            object: "webhook".into(),
            url: endpoint.map(|endpoint| endpoint.url.clone()),
            events: endpoint.map(|endpoint| endpoint.events.clone()).unwrap_or_default(),
            status,
            disabled_since,
            disabled_because,
            secret,
            pending,
            dead,
        }
    }
}

/// An event on its way, delivered or dead.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DeliveryView {
    /// `webhook.delivery`.
    pub object: String,
    /// The event's id: the `webhook-id` of every attempt.
    pub id: String,
    /// What is told.
    #[serde(rename = "type")]
    pub kind: EventType,
    /// When it happened.
    pub created_at: UnixMillis,
    /// Where it stands.
    #[serde(flatten)]
    pub state: DeliveryState,
    /// Attempts begun in this schedule.
    pub attempts: u32,
    /// Schedules before this one.
    pub replays: u32,
    /// The last attempt.
    pub last_attempt: Option<Attempt>,
}

impl DeliveryView {
    /// The view of an event and its delivery.
    #[must_use]
    pub fn of(event: &Event, delivery: &Delivery) -> Self {
        Self {
            object: "webhook.delivery".into(),
            id: event.id.clone(),
            kind: event.kind,
            created_at: event.at,
            state: delivery.state,
            attempts: delivery.attempts,
            replays: delivery.replays,
            last_attempt: delivery.last_attempt,
        }
    }
}
