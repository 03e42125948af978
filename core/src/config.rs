//! The operator's tables, as they stand in the Worker's variables (providers, limits), and the tenant's document.
//! Parsing is strict and happens before any request is served from them.

use crate::dialect::Dialect;
use crate::money::Micros;
use crate::origin::Origin;
use crate::policy::Route;
use crate::pricing::PriceList;
use crate::webhook::WebhookConfig;
use crate::webhook::delivery::{ATTEMPTS_MAX, Schedule};
use alloc::collections::BTreeSet;
use alloc::format;
use alloc::string::{String, ToString};
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
    /// Request member that limits output, set where the client gave none.
    #[serde(default = "default_max_tokens_field")]
    pub max_tokens_field: String,
    /// Prices by model.
    #[serde(default)]
    pub prices: PriceList,
}

fn default_max_tokens_field() -> String {
    "max_completion_tokens".into()
}

/// The time over which a budget is counted, in UTC.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Period {
    /// A calendar day.
    Day,
    /// A calendar month.
    #[default]
    Month,
}

/// Upper limit for what a tenant may hold and spend in a period.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Budget {
    /// The limit.
    pub limit_micros: Micros,
    /// The time over which it counts.
    #[serde(default)]
    pub period: Period,
}

/// A tenant's own configuration: one JSON document.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TenantConfig {
    /// Limit per period; none when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub budget: Option<Budget>,
    /// Requests that may hold a slot at once.
    #[serde(default = "default_concurrency")]
    pub concurrency: u32,
    /// Routes; first match wins.
    #[serde(default)]
    pub routes: Vec<Route>,
    /// Where the tenant is told what became of its generations; nowhere when absent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub webhook: Option<WebhookConfig>,
    /// Origins whose pages may use the API, as browsers write them; see [`crate::origin`]. None by default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub allowed_origins: Vec<String>,
}

impl Default for TenantConfig {
    /// A tenant that has configured nothing: no route takes any request.
    fn default() -> Self {
        Self {
            budget: None,
            concurrency: default_concurrency(),
            routes: Vec::new(),
            allowed_origins: Vec::new(),
            webhook: None,
        }
    }
}

fn default_concurrency() -> u32 {
    32
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
    /// Largest stored output of one generation; above it the generation is aborted.
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
        if provider.dialect != Dialect::OpenaiChat {
            return Err(ConfigError(format!(
                "PROVIDERS: dialect `{}` of `{}` is not served by this version; `openai-chat` is",
                provider.dialect.name(),
                provider.name
            )));
        }
        if !origin_is_allowed(&provider.origin) {
            return Err(ConfigError(format!(
                "PROVIDERS: origin of `{}` must be https://host[:port], or http on a loopback address",
                provider.name
            )));
        }
    }
    Ok(providers)
}

/// Reads a tenant's document and checks it against the providers.
///
/// # Errors
/// [`ConfigError`] naming the route that cannot work.
pub fn parse_tenant_config(json: &str, providers: &[Provider]) -> Result<TenantConfig, ConfigError> {
    let config: TenantConfig = parse("configuration", json)?;
    if config.concurrency == 0 {
        return Err(ConfigError("configuration: `concurrency` must be above zero".into()));
    }
    for origin in &config.allowed_origins {
        Origin::parse(origin)
            .map_err(|fault| ConfigError(format!("configuration: `allowed_origins`: `{origin}`: {fault}")))?;
    }
    for route in &config.routes {
        let complaint = match route.contradiction() {
            Some(reason) => Some(reason.to_string()),
            None if providers.iter().all(|provider| provider.name != route.provider) => {
                Some(format!("unknown provider `{}`", route.provider))
            }
            None => None,
        };
        if let Some(reason) = complaint {
            return Err(ConfigError(format!("configuration: route `{}`: {reason}", route.name)));
        }
    }
    Ok(config)
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

/// Whether secrets may be sent to `origin`: `https`, or `http` to this very machine. No path, query, user or fragment.
#[must_use]
pub fn origin_is_allowed(origin: &str) -> bool {
    let (host_and_port, loopback_only) = match (origin.strip_prefix("https://"), origin.strip_prefix("http://")) {
        (Some(rest), _) => (rest, false),
        (_, Some(rest)) => (rest, true),
        _ => return false,
    };
    let (host, port) = match host_and_port.rsplit_once(':') {
        Some((host, port)) => (host, Some(port)),
        None => (host_and_port, None),
    };
    let host_is_plain = !host.is_empty() && host.bytes().all(|b| b.is_ascii_alphanumeric() || b == b'.' || b == b'-');
    let port_is_plain = port.is_none_or(|port| port.parse::<u16>().is_ok_and(|port| port > 0));
    host_is_plain && port_is_plain && (!loopback_only || host == "127.0.0.1" || host == "localhost")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn origins() {
        for good in ["https://api.openai.com", "https://a.b:8443", "http://127.0.0.1:9", "http://localhost:80"] {
            assert!(origin_is_allowed(good), "{good}");
        }
        for bad in [
            "http://api.openai.com",
            "https://a/b",
            "https://u@a",
            "https://a#b",
            "https://a?b",
            "https://",
            "https://a:0",
            "https://a:99999",
            "http://127.0.0.1.evil.example",
            "ftp://a",
            "https://[::1]",
        ] {
            assert!(!origin_is_allowed(bad), "{bad}");
        }
    }

    #[test]
    fn faults_are_named() {
        let providers =
            parse_providers(r#"[{"name":"p","origin":"https://p.example","dialect":"openai-chat","secret":"K"}]"#)
                .unwrap();
        let tenant = |routes: &str| parse_tenant_config(&format!(r#"{{"routes":[{routes}]}}"#), &providers);
        assert!(tenant(r#"{"name":"r","provider":"p"}"#).is_ok());
        let ConfigError(message) = tenant(r#"{"name":"r","provider":"q"}"#).unwrap_err();
        assert_eq!(message, "configuration: route `r`: unknown provider `q`");
        assert!(tenant(r#"{"name":"r","provider":"p","grace":1}"#).is_err(), "a misspelt member is refused");
        assert!(parse_limits(Some(r#"{"batch_ms":0}"#)).is_err());
        assert!(parse_limits(Some(r#"{"body_ms":0}"#)).is_err());
        assert!(parse_limits(Some(r#"{"webhook_schedule_ms":[]}"#)).is_err());
        assert!(parse_limits(Some(r#"{"webhook_schedule_ms":[0,1]}"#)).is_ok());
        assert_eq!(parse_limits(None), Ok(Limits::default()));
    }
}
