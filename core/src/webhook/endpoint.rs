//! Who is told, and by which secrets it is signed. The endpoint is as the tenant configured it; what happened to it since
//! is kept beside, for that very URL: another URL is another endpoint.

use super::event::EventType;
use super::url::{Reach, UrlFault, check_url};
use crate::signature::{MalformedSecret, SigningSecret};
use crate::time::UnixMillis;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Why an endpoint gets nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum DisabledBecause {
    /// It answered 410.
    Gone,
}

/// An endpoint gets nothing until somebody enables it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Disabled {
    /// Since when.
    pub since: UnixMillis,
    /// Why.
    pub why: DisabledBecause,
}

/// A webhook as the tenant's configuration has it.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[cfg_attr(feature = "schema", derive(schemars::JsonSchema))]
#[cfg_attr(feature = "schema", schemars(description = "Where the tenant is told what became of its generations."))]
#[serde(deny_unknown_fields)]
pub struct WebhookConfig {
    /// The URL; see [`check_url`].
    #[cfg_attr(
        feature = "schema",
        schemars(length(min = 1, max = 2048), description = "A public host by https, without user and fragment.")
    )]
    pub url: String,
    /// The types that are wanted; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[cfg_attr(feature = "schema", schemars(extend("uniqueItems" = true)))]
    pub events: Vec<EventType>,
}

/// Where a tenant is told.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Endpoint {
    /// The URL; see [`check_url`].
    pub url: String,
    /// The types that are wanted; all of them when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub events: Vec<EventType>,
    /// It is not told at present.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub disabled: Option<Disabled>,
    /// Events that were not stored, since too many others were: of any URL, and never forgotten.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub dropped: u64,
}

const fn is_zero(count: &u64) -> bool {
    *count == 0
}

impl Endpoint {
    /// A new endpoint.
    ///
    /// # Errors
    /// [`UrlFault`].
    pub fn new(url: &str, events: &[EventType], reach: Reach) -> Result<Self, UrlFault> {
        check_url(url, reach)?;
        Ok(Self { url: url.into(), events: events.into(), disabled: None, dropped: 0 })
    }

    /// The endpoint as it is configured, with what is known of the one before: what happened to this URL stays, another
    /// URL starts anew.
    #[must_use]
    pub fn configured(config: &WebhookConfig, known: Option<&Self>) -> Self {
        let WebhookConfig { url, events } = config.clone();
        let disabled = known.filter(|known| known.url == url).and_then(|known| known.disabled);
        Self { url, events, disabled, dropped: known.map_or(0, |known| known.dropped) }
    }

    /// Whether it is told at all.
    #[must_use]
    pub const fn is_active(&self) -> bool {
        self.disabled.is_none()
    }

    /// Whether it wants events of this type. A test is always wanted.
    #[must_use]
    pub fn wants(&self, kind: EventType) -> bool {
        kind == EventType::Test || self.events.is_empty() || self.events.contains(&kind)
    }

    /// So many more events were not stored.
    #[must_use]
    pub fn dropping(&self, more: u64) -> Self {
        Self { dropped: self.dropped.saturating_add(more), ..self.clone() }
    }

    /// It answered that it is gone. The first time stands.
    #[must_use]
    pub fn gone(&self, now: UnixMillis) -> Self {
        let disabled = self.disabled.unwrap_or(Disabled { since: now, why: DisabledBecause::Gone });
        Self { disabled: Some(disabled), ..self.clone() }
    }

    /// Somebody says that it is there again.
    #[must_use]
    pub fn enabled(&self) -> Self {
        Self { disabled: None, ..self.clone() }
    }
}

/// A secret as its row has it.
#[derive(Clone, Debug)]
pub struct StoredSecret {
    /// The secret.
    pub secret: SigningSecret,
    /// When it was made.
    pub created_at: UnixMillis,
    /// When it signs no more; the current one has no such time.
    pub retires_at: Option<UnixMillis>,
}

/// The secrets of an endpoint, the current one first.
#[derive(Clone, Debug, Default)]
pub struct Secrets(Vec<StoredSecret>);

/// A replaced secret: what is stored from now on.
#[derive(Clone, Debug)]
pub struct Rotation {
    /// The secrets after it.
    pub secrets: Secrets,
    /// Until when the one before signs too; none when there was none.
    pub previous_until: Option<UnixMillis>,
}

impl Secrets {
    /// Reads rows: text, when it was made, when it retires.
    ///
    /// # Errors
    /// [`MalformedSecret`]: the row is not what was stored.
    pub fn from_rows(
        rows: impl IntoIterator<Item = (String, UnixMillis, Option<UnixMillis>)>,
    ) -> Result<Self, MalformedSecret> {
        let read = |(text, created_at, retires_at): (String, UnixMillis, Option<UnixMillis>)| {
            Ok(StoredSecret { secret: SigningSecret::parse(&text)?, created_at, retires_at })
        };
        rows.into_iter().map(read).collect::<Result<_, _>>().map(Self)
    }

    /// The rows.
    #[must_use]
    pub fn rows(&self) -> &[StoredSecret] {
        &self.0
    }

    /// The secret that signs for good.
    #[must_use]
    pub fn current(&self) -> Option<&StoredSecret> {
        self.0.iter().find(|stored| stored.retires_at.is_none())
    }

    /// Until when the one before the current one signs, if it still does.
    #[must_use]
    pub fn previous_until(&self, now: UnixMillis) -> Option<UnixMillis> {
        self.0.iter().filter_map(|stored| stored.retires_at).find(|at| *at > now)
    }

    /// Those that sign now, the current one first: two while one replaces the other.
    #[must_use]
    pub fn signing(&self, now: UnixMillis) -> Vec<SigningSecret> {
        let signs = |stored: &&StoredSecret| stored.retires_at.is_none_or(|at| at > now);
        self.0.iter().filter(signs).map(|stored| stored.secret.clone()).collect()
    }

    /// Replaces the current secret. The one before signs besides for `overlap_ms`; the one before that signs no more, so
    /// that there are never more than two. With no overlap a secret that leaked is of no use at once.
    #[must_use]
    pub fn rotated(&self, secret: SigningSecret, overlap_ms: u64, now: UnixMillis) -> Rotation {
        let previous_until = now.plus(overlap_ms);
        let previous = self
            .current()
            .filter(|_| overlap_ms > 0)
            .map(|previous| StoredSecret { retires_at: Some(previous_until), ..previous.clone() });
        let previous_until = previous.as_ref().map(|_| previous_until);
        let current = StoredSecret { secret, created_at: now, retires_at: None };
        Rotation { secrets: Self(core::iter::once(current).chain(previous).collect()), previous_until }
    }
}
