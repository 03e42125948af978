//! The operator's tables, as they stand in the Worker's variables (providers, limits), and the tenant's document.
//! Parsing is strict and happens before any request is served from them.
//!
//! A tenant's document is read by [`read_config`], which names all that is wrong with it at once. Its form is that of
//! [`TenantConfig`]: the published JSON Schema ([`CONFIG_SCHEMA`]) is made from the types, and what it finds is found by
//! walking the document along it; what the types cannot say (a provider that is not there, deadlines that contradict each
//! other) is checked afterwards. A fault hides others only where they would be concluded from it.

mod check;
mod choice;
mod document;
mod fault;
#[cfg(feature = "schema")]
mod generated;
mod origin;
mod routes;
mod shape;
mod tenant;
mod version;

pub use check::{Accepted, CONFIG_SCHEMA, Reading, check_config, read_config};
pub use choice::{
    ConfigCheck, Facts, Mismatch, PassedOver, RouteChoice, RouteTrial, TRIAL_MAX_BYTES, TrialRequest, try_route,
};
pub use fault::{ConfigFault, FAULTS_MAX, FaultCode};
#[cfg(feature = "schema")]
pub use generated::generated_schema;
pub use origin::origin_is_allowed;
pub use tenant::{Budget, ChosenBy, Period, ROUTES_MAX, TenantConfig};
pub use version::{Condition, ConfigEntry, ConfigVersion, put};

use crate::capability::Capabilities;
use crate::dialect::Dialect;
use crate::pricing::PriceList;
use crate::refusal::Refusal;
use crate::webhook::Reach;
use crate::webhook::delivery::{ATTEMPTS_MAX, Schedule};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;

/// An upstream API. Named by the operator, never by a caller.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Provider {
    /// Name that routes refer to.
    pub name: String,
    /// Scheme, host and port. `https`, or `http` on a loopback address.
    pub origin: String,
    /// Wire format.
    pub dialect: Dialect,
    /// Name of the secret binding that holds the provider's key.
    pub secret: String,
    /// Chat Completions: the request member that limits output, set where the client gave none. The other APIs have one
    /// name for it.
    #[serde(default = "default_max_tokens_field")]
    pub max_tokens_field: String,
    /// Prices by model.
    #[serde(default)]
    pub prices: PriceList,
    /// What the provider can do, as the operator declares it. When absent: what the dialect has a protocol for.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub capabilities: Option<Capabilities>,
    /// Name of the secret binding that holds the secret by which the provider signs its callbacks (`whsec_…`). Without
    /// one no callback is taken.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub callback_secret: Option<String>,
}

impl Provider {
    /// What can be done with an operation of this provider: the dialect's protocol, as far as the operator declares it.
    /// Without `background` an operation ends with its socket, and only a key against repetition can help. Callbacks
    /// need a secret to verify them by.
    #[must_use]
    pub fn capabilities_for(&self, background: bool) -> Capabilities {
        let protocol = self.dialect.capabilities();
        let declared = self.capabilities.unwrap_or(protocol);
        let lives_on = background && self.dialect.has_background();
        Capabilities {
            cancel: lives_on && protocol.cancel && declared.cancel,
            status: lives_on && protocol.status && declared.status,
            resume: lives_on && protocol.resume && declared.resume,
            callback: lives_on && protocol.callback && declared.callback && self.callback_secret.is_some(),
            // A header, whatever the dialect: the operator's word is enough.
            idempotency_key: declared.idempotency_key,
        }
    }

    /// The first capability that is declared and that the dialect has no protocol for.
    fn impossible_capability(&self) -> Option<&'static str> {
        let (protocol, declared) = (self.dialect.capabilities(), self.capabilities?);
        [
            ("cancel", declared.cancel && !protocol.cancel),
            ("status", declared.status && !protocol.status),
            ("resume", declared.resume && !protocol.resume),
            ("callback", declared.callback && !protocol.callback),
        ]
        .into_iter()
        .find_map(|(name, impossible)| impossible.then_some(name))
    }

    fn check_capabilities(&self) -> Result<(), ConfigError> {
        let fault = |what: String| Err(ConfigError(format!("PROVIDERS: `{}` {what}", self.name)));
        if let Some(name) = self.impossible_capability() {
            return fault(format!("declares `{name}`, for which dialect `{}` has no protocol", self.dialect.name()));
        }
        match (&self.callback_secret, self.capabilities) {
            (Some(_), _) if !self.dialect.capabilities().callback => {
                fault(format!("has a `callback_secret`, and dialect `{}` has no callbacks", self.dialect.name()))
            }
            (None, Some(Capabilities { callback: true, .. })) => {
                fault("declares `callback` without a `callback_secret` to verify it by".into())
            }
            _ => Ok(()),
        }
    }
}

fn default_max_tokens_field() -> String {
    "max_completion_tokens".into()
}

/// Bounds on everything. Bytes and milliseconds.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Limits {
    /// Largest request body.
    pub body_max_bytes: u64,
    /// A request body that is not whole after so long is refused.
    pub body_ms: u64,
    /// Largest upstream event that is still examined.
    pub event_max_bytes: u64,
    /// Largest stored output of one generation; above it the generation is aborted. A result that is looked up and is
    /// larger is not kept.
    pub generation_max_bytes: u64,
    /// Readers of one generation at once.
    pub readers_max: u32,
    /// A reader that takes nothing for so long while bytes wait is dropped.
    pub reader_stall_ms: u64,
    /// A batch is stored when it has so many bytes.
    pub batch_bytes: u64,
    /// A batch is stored at the latest after so long.
    pub batch_ms: u64,
    /// A running driver shows life at least so often. At most 30 s keeps the platform from evicting the object.
    pub heartbeat_ms: u64,
    /// An admission whose generation has not been seen by then is looked into.
    pub start_grace_ms: u64,
    /// How long an idempotency key is kept after its generation was settled.
    pub idempotency_ms: u64,
    /// Delays before the attempts to deliver an event to a tenant's webhook: their number is the number of attempts.
    pub webhook_schedule_ms: Schedule,
    /// How long a webhook may take to answer.
    pub webhook_timeout_ms: u64,
    /// How long a replaced webhook secret signs besides the new one.
    pub webhook_rotation_ms: u64,
    /// How long an event that was delivered, or a dead letter, is kept.
    pub webhook_keep_ms: u64,
    /// Events of one tenant that may be on their way at once; and dead letters that further ones may become.
    pub webhook_pending_max: u32,
    /// Tenants that one sweep pokes; the next one goes on behind them.
    pub sweep_tenants_max: u32,
    /// Callbacks of one tenant that wait for their operation; the oldest gives way.
    pub callbacks_parked_max: u32,
    /// How long a callback waits for its operation.
    pub callback_parked_ms: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            body_max_bytes: 1 << 20,
            body_ms: 15_000,
            event_max_bytes: 1 << 20,
            generation_max_bytes: 32 << 20,
            readers_max: 64,
            reader_stall_ms: 30_000,
            batch_bytes: 16 << 10,
            batch_ms: 500,
            heartbeat_ms: 30_000,
            start_grace_ms: 30_000,
            idempotency_ms: 86_400_000,
            webhook_schedule_ms: Schedule::default(),
            webhook_timeout_ms: 15_000,
            webhook_rotation_ms: 86_400_000,
            webhook_keep_ms: 2_592_000_000,
            webhook_pending_max: 10_000,
            sweep_tenants_max: 200,
            callbacks_parked_max: 1_000,
            callback_parked_ms: 86_400_000,
        }
    }
}

/// What is wrong with the configuration: where and why.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ConfigError(pub String);

fn parse<'a, T: Deserialize<'a>>(name: &str, json: &'a str) -> Result<T, ConfigError> {
    serde_json::from_str(json).map_err(|error| ConfigError(format!("{name}: {error}")))
}

/// Parses a list so that an error names the place in it.
fn parse_each<'a, T: Deserialize<'a>>(name: &str, json: &'a str) -> Result<Vec<T>, ConfigError> {
    let items: Vec<&RawValue> = parse(name, json)?;
    items.iter().enumerate().map(|(index, item)| parse(&format!("{name}[{index}]"), item.get())).collect()
}

/// Reads `PROVIDERS`.
///
/// # Errors
/// [`ConfigError`] for malformed JSON, an unknown member, an origin that is not allowed or a name given twice.
pub fn parse_providers(json: &str) -> Result<Vec<Provider>, ConfigError> {
    let providers: Vec<Provider> = parse_each("PROVIDERS", json)?;
    let mut names = BTreeSet::new();
    for provider in &providers {
        if !names.insert(provider.name.as_str()) {
            return Err(ConfigError(format!("PROVIDERS: name `{}` is given twice", provider.name)));
        }
        if !origin_is_allowed(&provider.origin) {
            return Err(ConfigError(format!(
                "PROVIDERS: origin of `{}` must be https://host[:port], or http on a loopback address",
                provider.name
            )));
        }
        provider.check_capabilities()?;
    }
    Ok(providers)
}

/// What of the operator's a tenant's document is checked against.
#[derive(Clone, Copy, Debug)]
pub struct Operator<'a> {
    /// The providers.
    pub providers: &'a [Provider],
    /// Bounds.
    pub limits: &'a Limits,
    /// Where this deployment runs.
    pub reach: Reach,
}

/// The provider of a name.
///
/// # Errors
/// [`Refusal::Unavailable`] when there is none: it was there when the configuration was read.
pub(crate) fn provider_of<'a>(providers: &'a [Provider], name: &str) -> Result<&'a Provider, Refusal> {
    let missing = || Refusal::Unavailable { what: format!("provider `{name}` is not configured") };
    providers.iter().find(|provider| provider.name == name).ok_or_else(missing)
}

/// Reads `LIMITS`; the defaults when absent.
///
/// # Errors
/// [`ConfigError`] for malformed JSON, an unknown member or a bound of zero.
pub fn parse_limits(json: Option<&str>) -> Result<Limits, ConfigError> {
    let limits: Limits = json.map_or_else(|| Ok(Limits::default()), |json| parse("LIMITS", json))?;
    let zero = [
        ("body_max_bytes", limits.body_max_bytes),
        ("body_ms", limits.body_ms),
        ("event_max_bytes", limits.event_max_bytes),
        ("generation_max_bytes", limits.generation_max_bytes),
        ("readers_max", u64::from(limits.readers_max)),
        ("reader_stall_ms", limits.reader_stall_ms),
        ("batch_bytes", limits.batch_bytes),
        ("batch_ms", limits.batch_ms),
        ("heartbeat_ms", limits.heartbeat_ms),
        ("start_grace_ms", limits.start_grace_ms),
        ("webhook_timeout_ms", limits.webhook_timeout_ms),
        ("webhook_keep_ms", limits.webhook_keep_ms),
        ("webhook_pending_max", u64::from(limits.webhook_pending_max)),
        ("sweep_tenants_max", u64::from(limits.sweep_tenants_max)),
        ("callbacks_parked_max", u64::from(limits.callbacks_parked_max)),
        ("callback_parked_ms", limits.callback_parked_ms),
    ]
    .into_iter()
    .find(|(_, value)| *value == 0);
    match zero {
        Some((name, _)) => Err(ConfigError(format!("LIMITS: `{name}` must be above zero"))),
        None if !limits.webhook_schedule_ms.is_valid() => {
            Err(ConfigError(format!("LIMITS: `webhook_schedule_ms` must have 1 to {ATTEMPTS_MAX} delays")))
        }
        None => Ok(limits),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn faults_are_named() {
        let twice = r#"{"name":"p","origin":"https://p.example","dialect":"openai-chat","secret":"K"}"#;
        let ConfigError(message) = parse_providers(&format!("[{twice},{twice}]")).unwrap_err();
        assert_eq!(message, "PROVIDERS: name `p` is given twice");
        assert!(parse_limits(Some(r#"{"batch_ms":0}"#)).is_err());
        assert!(parse_limits(Some(r#"{"body_ms":0}"#)).is_err());
        assert!(parse_limits(Some(r#"{"webhook_schedule_ms":[]}"#)).is_err());
        assert!(parse_limits(Some(r#"{"webhook_schedule_ms":[0,1]}"#)).is_ok());
        assert_eq!(parse_limits(None), Ok(Limits::default()));
    }
}
