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

fn unavailable(ConfigError(what): ConfigError) -> Refusal {
    Refusal::Unavailable { what }
}

fn text(env: &Env, name: &str) -> Option<String> {
    env.var(name).ok().map(|value| value.to_string()).filter(|value| !value.is_empty())
}

/// The providers.
///
/// # Errors
/// [`Refusal::Unavailable`] that says what is wrong with `PROVIDERS`.
pub fn providers(env: &Env) -> Result<Vec<Provider>, Refusal> {
    parse_providers(text(env, "PROVIDERS").as_deref().unwrap_or("[]")).map_err(unavailable)
}

/// The tenants.
///
/// # Errors
/// [`Refusal::Unavailable`] that says what is wrong with `TENANTS`.
pub fn tenants(env: &Env, providers: &[Provider]) -> Result<Vec<TenantConfig>, Refusal> {
    parse_tenants(text(env, "TENANTS").as_deref().unwrap_or("[]"), providers).map_err(unavailable)
}

/// One tenant, or [`Refusal::InvalidKey`] when there is none of that id.
///
/// # Errors
/// See above, and [`Refusal::Unavailable`].
pub fn tenant(env: &Env, providers: &[Provider], id: &TenantId) -> Result<TenantConfig, Refusal> {
    tenants(env, providers)?.into_iter().find(|tenant| tenant.id == *id).ok_or(Refusal::InvalidKey)
}

/// The bounds.
///
/// # Errors
/// [`Refusal::Unavailable`] that says what is wrong with `LIMITS`.
pub fn limits(env: &Env) -> Result<Limits, Refusal> {
    parse_limits(text(env, "LIMITS").as_deref()).map_err(unavailable)
}

/// The digest of a client's key under the pepper.
///
/// # Errors
/// [`Refusal::Unavailable`] when the secret `KEY_PEPPER` is not set or too short: no key is checked without it.
pub fn digest(env: &Env, key: &ClientKey) -> Result<KeyDigest, Refusal> {
    let pepper = secret(env, "KEY_PEPPER").filter(|pepper| pepper.len() >= PEPPER_MIN_BYTES);
    let missing = || Refusal::Unavailable { what: "the secret KEY_PEPPER is not set or shorter than 16 bytes".into() };
    pepper.map(|pepper| key.digest(pepper.as_bytes())).ok_or_else(missing)
}

/// The key of a provider.
///
/// # Errors
/// [`Refusal::Unavailable`] naming the secret binding that is not set.
pub fn provider_key(env: &Env, provider: &Provider) -> Result<ProviderKey, Refusal> {
    let missing = || Refusal::Unavailable { what: format!("the secret {} is not set", provider.secret) };
    secret(env, &provider.secret).map(ProviderKey::new).ok_or_else(missing)
}

/// A secret binding; locally it may be a plain variable.
fn secret(env: &Env, name: &str) -> Option<String> {
    let secret = env.secret(name).ok().map(|value| value.to_string());
    secret.or_else(|| text(env, name)).filter(|value| !value.is_empty())
}
