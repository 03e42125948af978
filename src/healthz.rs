//! `GET /healthz`: whether this deployment can serve, as far as its settings tell.

use crate::error::EdgeError;
use crate::respond;
use holdfast_core::config::Provider;
use holdfast_core::refusal::Refusal;
use holdfast_objects::settings;
use serde::Serialize;
use worker::{Env, Response};

#[derive(Serialize)]
struct Health {
    status: &'static str,
    version: &'static str,
    #[serde(skip_serializing_if = "Vec::is_empty")]
    warnings: Vec<String>,
}

/// Answers `ok` when providers and limits can be read and the secrets of this service are there; a provider whose secret
/// is missing is a warning, since its routes alone fail. No object is asked, so that a probe costs nothing.
///
/// # Errors
/// 503 with the reason.
pub(crate) fn check(env: &Env) -> Result<Response, EdgeError> {
    let warnings = read_settings(env).map_err(told)?;
    respond::ok(&Health { status: "ok", version: env!("CARGO_PKG_VERSION"), warnings })
}

/// What is missing without being needed by everybody.
fn read_settings(env: &Env) -> Result<Vec<String>, Refusal> {
    let providers = settings::providers(env)?;
    settings::limits(env)?;
    settings::check_secrets(env)?;
    let missing = |provider: &Provider| match settings::provider_key(env, provider) {
        Err(Refusal::Misconfigured { what }) => Some(format!("provider `{}`: {what}", provider.name)),
        _ => None,
    };
    let unverified = |provider: &Provider| match settings::callback_secrets(env, provider) {
        Err(Refusal::Misconfigured { what }) => Some(format!("provider `{}`: {what}", provider.name)),
        _ => None,
    };
    Ok(providers.iter().flat_map(|provider| [missing(provider), unverified(provider)]).flatten().collect())
}

/// Clients are told that the service is misconfigured; a probe is told how.
fn told(refusal: Refusal) -> EdgeError {
    match refusal {
        Refusal::Misconfigured { what } => EdgeError::Unhealthy { reason: what },
        refusal => refusal.into(),
    }
}

#[cfg(test)]
mod tests {
    use holdfast_core::config::Limits;

    /// `wrangler.toml` says that its LIMITS are the defaults.
    #[test]
    fn the_limits_of_the_shipped_settings_are_the_defaults() {
        let shipped =
            include_str!("../wrangler.toml").split_once("LIMITS = '''").unwrap().1.split_once("'''").unwrap().0;
        let shipped: serde_json::Value = serde_json::from_str(shipped).unwrap();
        assert_eq!(shipped, serde_json::to_value(Limits::default()).unwrap());
    }
}
