//! `/v1/webhook…`, with a key of role `admin`: state, secret and deliveries of the tenant's webhook. Where it points is
//! part of the configuration.

use crate::caller::Caller;
use crate::error::EdgeError;
use crate::query::{GivenTwice, parameter};
use crate::{ask, respond};
use holdfast_core::signature::{SecretText, SigningSecret};
use holdfast_core::webhook::StateName;
use holdfast_core::wire::{TenantCall, TenantReply, WebhookCall};
use serde::Serialize;
use serde_json::value::RawValue;
use uuid::Uuid;
use worker::{Env, Request, Response, Url};

/// Deliveries of one page, where nothing else is asked for.
const PAGE: u32 = 50;
/// Deliveries of one page at most.
const PAGE_MAX: u32 = 100;

/// A path from `/v1/webhook` on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WebhookPath<'a> {
    /// `/v1/webhook`
    Show,
    /// `/v1/webhook/rotate`
    Rotate,
    /// `/v1/webhook/enable`
    Enable,
    /// `/v1/webhook/test`
    Test,
    /// `/v1/webhook/deliveries`
    Deliveries,
    /// `/v1/webhook/deliveries/{id}/replay`
    Replay(&'a str),
}

impl<'a> WebhookPath<'a> {
    /// The path behind `/v1/webhook`.
    pub(crate) fn at(rest: &'a str) -> Option<Self> {
        match rest {
            "" => Some(Self::Show),
            "/rotate" => Some(Self::Rotate),
            "/enable" => Some(Self::Enable),
            "/test" => Some(Self::Test),
            "/deliveries" => Some(Self::Deliveries),
            _ => {
                let id = rest.strip_prefix("/deliveries/")?.strip_suffix("/replay")?;
                Some(Self::Replay(id)).filter(|_| !id.contains('/'))
            }
        }
    }

    /// The methods that it takes.
    pub(crate) const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Show | Self::Deliveries => &["GET"],
            Self::Rotate | Self::Enable | Self::Test | Self::Replay(_) => &["POST"],
        }
    }
}

/// The secret that was just made, with the webhook. The one answer that ever holds it.
#[derive(Serialize)]
struct Rotated<'a> {
    object: &'static str,
    signing_secret: String,
    webhook: &'a RawValue,
}

/// Serves a path from `/v1/webhook` on.
///
/// # Errors
/// 400, 401, 403, 404, 409.
pub(crate) async fn serve(path: WebhookPath<'_>, request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let caller = Caller::of(env, request.headers())?;
    match path {
        WebhookPath::Show => respond::ok(&act(env, &caller, WebhookCall::Show).await?),
        WebhookPath::Enable => respond::ok(&act(env, &caller, WebhookCall::Enable).await?),
        WebhookPath::Rotate => rotate(&caller, &request.url()?, env).await,
        WebhookPath::Test => {
            let random = Uuid::new_v4().simple().to_string();
            respond::accepted(&act(env, &caller, WebhookCall::Test { random }).await?)
        }
        WebhookPath::Deliveries => list(&caller, &request.url()?, env).await,
        WebhookPath::Replay(id) => respond::accepted(&act(env, &caller, WebhookCall::Replay { id: id.into() }).await?),
    }
}

/// The document that the tenant's object answers with.
async fn act(env: &Env, caller: &Caller, action: WebhookCall) -> Result<Box<RawValue>, EdgeError> {
    match ask::tenant(env, &caller.tenant, &TenantCall::Webhook { key: caller.key.clone(), action }).await? {
        TenantReply::Webhook { document } => RawValue::from_string(document).map_err(|_| EdgeError::Internal),
        _ => Err(ask::unexpected().into()),
    }
}

async fn rotate(caller: &Caller, url: &Url, env: &Env) -> Result<Response, EdgeError> {
    let overlap_ms = number(url, "overlap_ms")?;
    let secret = SigningSecret::from_random(random_bytes());
    let action = WebhookCall::Rotate { secret: SecretText(secret.reveal()), overlap_ms };
    let webhook = act(env, caller, action).await?;
    respond::ok(&Rotated { object: "webhook.secret", signing_secret: secret.reveal(), webhook: &webhook })
}

/// From the platform's source for keys. A UUID fixes six of its bits: 244 random ones are left.
fn random_bytes() -> [u8; 32] {
    let [first, second] = [Uuid::new_v4().into_bytes(), Uuid::new_v4().into_bytes()];
    let mut bytes = [0; 32];
    bytes.iter_mut().zip(first.into_iter().chain(second)).for_each(|(byte, random)| *byte = random);
    bytes
}

async fn list(caller: &Caller, url: &Url, env: &Env) -> Result<Response, EdgeError> {
    let state = match query(url, "state")?.as_deref() {
        None => None,
        Some("pending") => Some(StateName::Pending),
        Some("delivered") => Some(StateName::Delivered),
        Some("dead") => Some(StateName::Dead),
        Some(_) => return Err(EdgeError::invalid("`state` must be pending, delivered or dead")),
    };
    let limit = match number(url, "limit")? {
        None => PAGE,
        Some(limit) => u32::try_from(limit)
            .ok()
            .filter(|limit| (1..=PAGE_MAX).contains(limit))
            .ok_or_else(|| EdgeError::invalid(format!("`limit` must be from 1 to {PAGE_MAX}")))?,
    };
    respond::ok(&act(env, caller, WebhookCall::List { state, after: query(url, "after")?, limit }).await?)
}

fn query(url: &Url, name: &str) -> Result<Option<String>, EdgeError> {
    parameter(url, name).map_err(|GivenTwice| EdgeError::invalid(format!("`{name}` is given twice")))
}

fn number(url: &Url, name: &str) -> Result<Option<u64>, EdgeError> {
    let Some(text) = query(url, name)? else { return Ok(None) };
    let plain = (1..=15).contains(&text.len()) && text.bytes().all(|byte| byte.is_ascii_digit());
    let number = text.parse().ok().filter(|_| plain);
    number.map(Some).ok_or_else(|| EdgeError::invalid(format!("`{name}` must be a whole number")))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (rest, expected) in [
            ("", Some(WebhookPath::Show)),
            ("/rotate", Some(WebhookPath::Rotate)),
            ("/deliveries", Some(WebhookPath::Deliveries)),
            ("/deliveries/evt_1/replay", Some(WebhookPath::Replay("evt_1"))),
            ("/deliveries/evt_1", None),
            ("/deliveries/a/b/replay", None),
            ("/deliveries/evt_1/replay/x", None),
            ("/", None),
            ("s", None),
        ] {
            assert_eq!(WebhookPath::at(rest), expected, "{rest}");
        }
    }
}
