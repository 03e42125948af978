//! `GET /v1/policy`: what the disconnects of each route came to, and which policy the numbers speak for.

use crate::ask;
use crate::caller::Caller;
use crate::error::EdgeError;
use crate::query::{GivenTwice, parameter};
use crate::respond;
use holdfast_core::tenant::RUNS_KEPT_MS;
use holdfast_core::wire::{TenantCall, TenantReply};
use worker::{Env, Request, Response};

const WINDOW: &str = "window_s";

/// Answers with a report over the last `window_s` seconds; without it, over all the runs that are kept.
///
/// # Errors
/// 400 for a window that is none, 401, 403 for a key that is not of role `admin`, 503.
pub(crate) async fn show(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let caller = Caller::of(env, request.headers())?;
    let window_ms = match parameter(&request.url()?, WINDOW) {
        Ok(None) => RUNS_KEPT_MS,
        Ok(Some(text)) => window_ms(&text)?,
        Err(GivenTwice) => return Err(EdgeError::invalid("`window_s` is given more than once")),
    };
    let call = TenantCall::Policy { key: caller.key, window_ms };
    match ask::tenant(env, &caller.tenant, &call).await? {
        TenantReply::Policy { document } => Ok(respond::written(document)),
        _ => Err(ask::unexpected().into()),
    }
}

/// One that is longer than runs are kept is answered over those that are: the report names its times.
fn window_ms(text: &str) -> Result<u64, EdgeError> {
    let plain = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
    let seconds = text.parse::<u64>().ok().filter(|seconds| plain && *seconds > 0);
    let ms = seconds.map(|seconds| seconds.saturating_mul(1_000).min(RUNS_KEPT_MS));
    ms.ok_or_else(|| EdgeError::invalid("`window_s` must be a number of seconds above zero"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn windows() {
        for (text, expected) in
            [("1", 1_000), ("3600", 3_600_000), ("604800", RUNS_KEPT_MS), ("9999999999999999999", RUNS_KEPT_MS)]
        {
            assert_eq!(window_ms(text), Ok(expected), "{text}");
        }
        for bad in ["", "0", "-1", "+1", "1.5", "1h", " 1", "99999999999999999999"] {
            assert_eq!(window_ms(bad).unwrap_err().code(), "invalid_request", "{bad:?}");
        }
    }
}
