//! The operator's settings from the Worker's variables and secrets.

use holdfast_core::config::{ConfigError, Limits, Provider, parse_limits, parse_providers};
use holdfast_core::ids::TenantId;
use holdfast_core::key::{ClientKey, KeyDigest, ProviderKey};
use holdfast_core::refusal::Refusal;
use holdfast_core::signature::SigningSecret;
use holdfast_core::tenant::RunStart;
use holdfast_core::token::TokenKey;
use worker::Env;

/// Shortest secret of our own that is accepted, in bytes.
const SECRET_MIN_BYTES: usize = 16;

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
    pepper(env).map(|pepper| key.digest(pepper.as_bytes())).ok_or_else(pepper_missing)
}

fn pepper(env: &Env) -> Option<String> {
    secret(env, "KEY_PEPPER").filter(|pepper| pepper.len() >= SECRET_MIN_BYTES)
}

/// The key that signs browser tokens, derived from the pepper.
///
/// # Errors
/// As [`digest`].
pub fn token_key(env: &Env) -> Result<TokenKey, Refusal> {
    pepper(env).map(|pepper| TokenKey::derive(pepper.as_bytes())).ok_or_else(pepper_missing)
}

/// Who asks what, in hashes under the pepper: for the re-ask rate of the route.
///
/// # Errors
/// [`Refusal::Misconfigured`] without the pepper.
pub fn run_start(env: &Env, tenant: &TenantId, asker: &str, question: &str) -> Result<RunStart, Refusal> {
    let pepper = pepper(env).ok_or_else(pepper_missing)?;
    Ok(RunStart::of(pepper.as_bytes(), tenant, asker, question))
}

fn pepper_missing() -> Refusal {
    misconfigured(ConfigError("the secret KEY_PEPPER is not set or shorter than 16 bytes".into()))
}

/// The operator's key, where one is set.
///
/// # Errors
/// [`Refusal::Misconfigured`] when it is shorter than 16 bytes.
pub fn operator_key(env: &Env) -> Result<Option<String>, Refusal> {
    match secret(env, "OPERATOR_KEY") {
        Some(key) if key.len() < SECRET_MIN_BYTES => {
            Err(misconfigured(ConfigError("the secret OPERATOR_KEY is shorter than 16 bytes".into())))
        }
        key => Ok(key),
    }
}

/// Whether this is a server on somebody's own machine: `LOCAL` is `true`.
#[must_use]
pub fn is_local(env: &Env) -> bool {
    text(env, "LOCAL").as_deref() == Some("true")
}

/// Whether the secrets of this service are there: the pepper, and the operator's key outside of a local server.
///
/// # Errors
/// [`Refusal::Misconfigured`] naming the first that is not.
pub fn check_secrets(env: &Env) -> Result<(), Refusal> {
    if pepper(env).is_none() {
        return Err(pepper_missing());
    }
    check_operator_key(env)
}

/// Outside of a local server there is no serving without an operator's key: nobody could say who may call.
///
/// # Errors
/// [`Refusal::Misconfigured`].
pub fn check_operator_key(env: &Env) -> Result<(), Refusal> {
    match operator_key(env)? {
        None if !is_local(env) => Err(misconfigured(ConfigError("the secret OPERATOR_KEY is not set".into()))),
        _ => Ok(()),
    }
}

/// The key of a provider.
///
/// # Errors
/// [`Refusal::Misconfigured`] naming the secret binding that is not set.
pub fn provider_key(env: &Env, provider: &Provider) -> Result<ProviderKey, Refusal> {
    let missing = || misconfigured(ConfigError(format!("the secret {} is not set", provider.secret)));
    secret(env, &provider.secret).map(ProviderKey::new).ok_or_else(missing)
}

/// The secrets by which a provider signs its callbacks: one, or two divided by a space while one is being replaced. `None`
/// for a provider that is not configured to call back.
///
/// # Errors
/// [`Refusal::Misconfigured`] where the binding is empty, or one of them is no secret: nothing is verified by it then.
pub fn callback_secrets(env: &Env, provider: &Provider) -> Result<Option<Vec<SigningSecret>>, Refusal> {
    let Some(name) = &provider.callback_secret else { return Ok(None) };
    let text = secret(env, name).unwrap_or_default();
    let secrets: Result<Vec<_>, _> = text.split_ascii_whitespace().map(SigningSecret::parse).collect();
    let fault = |what: &str| misconfigured(ConfigError(format!("the secret {name} {what}")));
    match secrets {
        Ok(secrets) if secrets.is_empty() => Err(fault("is not set")),
        Ok(secrets) => Ok(Some(secrets)),
        Err(error) => Err(fault(&format!("cannot be used: {error}"))),
    }
}

/// A secret binding; locally it may be a plain variable.
fn secret(env: &Env, name: &str) -> Option<String> {
    let secret = env.secret(name).ok().map(|value| value.to_string());
    secret.or_else(|| text(env, name)).filter(|value| !value.is_empty())
}
