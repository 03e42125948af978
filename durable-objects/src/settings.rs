//! The operator's settings from the Worker's variables and secrets.

use holdfast_core::config::{
    ConfigError, Limits, Provider, TenantConfig, parse_limits, parse_providers, parse_tenants,
};
use holdfast_core::ids::TenantId;
use holdfast_core::key::{ClientKey, KeyDigest, ProviderKey};
use holdfast_core::refusal::Refusal;
use worker::Env;

/// Shortest pepper that is accepted, in bytes.
const PEPPER_MIN_BYTES: usize = 16;

fn misconfigured(ConfigError(what): ConfigError) -> Refusal {
    worker::console_error!("misconfigured: {what}");
    Refusal::Misconfigured { what }
}

fn text(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string()).filter(|value| !value.is_empty())
}

/// The providers.
///
/// # Errors
/// [`Refusal::Misconfigured`] that says what is wrong with `PROVIDERS`.
pub fn providers(env: &Env) -> Result<Vec<Provider>, Refusal> {
    parse_providers(text(env, "PROVIDERS").as_deref().unwrap_or("[]")).map_err(misconfigured)
}

/// The tenants.
///
/// # Errors
/// [`Refusal::Misconfigured`] that says what is wrong with `TENANTS`.
pub fn tenants(env: &Env, providers: &[Provider]) -> Result<Vec<TenantConfig>, Refusal> {
    parse_tenants(text(env, "TENANTS").as_deref().unwrap_or("[]"), providers).map_err(misconfigured)
}

/// One tenant, or [`Refusal::InvalidKey`] when there is none of that id.
///
/// # Errors
/// See above, and [`Refusal::Misconfigured`].
pub fn tenant(env: &Env, providers: &[Provider], id: &TenantId) -> Result<TenantConfig, Refusal> {
    tenants(env, providers)?.into_iter().find(|tenant| tenant.id == *id).ok_or(Refusal::InvalidKey)
}

/// The bounds.
///
/// # Errors
/// [`Refusal::Misconfigured`] that says what is wrong with `LIMITS`.
pub fn limits(env: &Env) -> Result<Limits, Refusal> {
    parse_limits(text(env, "LIMITS").as_deref()).map_err(misconfigured)
}

/// The digest of a client's key under the pepper.
///
/// # Errors
/// [`Refusal::Misconfigured`] when the secret `KEY_PEPPER` is not set or too short: no key is checked without it.
pub fn digest(env: &Env, key: &ClientKey) -> Result<KeyDigest, Refusal> {
    let pepper = secret(env, "KEY_PEPPER").filter(|pepper| pepper.len() >= PEPPER_MIN_BYTES);
    pepper.map(|pepper| key.digest(pepper.as_bytes())).ok_or_else(pepper_missing)
}

fn pepper_missing() -> Refusal {
    misconfigured(ConfigError("the secret KEY_PEPPER is not set or shorter than 16 bytes".into()))
}

/// Whether every secret is there that the tenants' requests need. Without tenants none is needed.
///
/// # Errors
/// [`Refusal::Misconfigured`] naming the first that is not.
pub fn check_secrets(env: &Env, providers: &[Provider], tenants: &[TenantConfig]) -> Result<(), Refusal> {
    if !tenants.is_empty() && secret(env, "KEY_PEPPER").is_none_or(|pepper| pepper.len() < PEPPER_MIN_BYTES) {
        return Err(pepper_missing());
    }
    let used = |provider: &&Provider| {
        tenants.iter().flat_map(|tenant| &tenant.routes).any(|route| route.provider == provider.name)
    };
    providers.iter().filter(used).try_for_each(|provider| provider_key(env, provider).map(|_| ()))
}

/// The key of a provider.
///
/// # Errors
/// [`Refusal::Misconfigured`] naming the secret binding that is not set.
pub fn provider_key(env: &Env, provider: &Provider) -> Result<ProviderKey, Refusal> {
    let missing = || misconfigured(ConfigError(format!("the secret {} is not set", provider.secret)));
    secret(env, &provider.secret).map(ProviderKey::new).ok_or_else(missing)
}

/// A secret binding; locally it may be a plain variable.
fn secret(env: &Env, name: &str) -> Option<String> {
    let secret = env.secret(name).ok().map(|value| value.to_string());
    secret.or_else(|| text(env, name)).filter(|value| !value.is_empty())
}
