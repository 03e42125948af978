//! The tenant's document: `/v1/config` with a key of role `admin`, and the same below `/admin/tenants/{id}` for the
//! operator. The document is the body, so that what was read can be changed and put back.

use crate::accounts::{self, Actor};
use crate::error::EdgeError;
use crate::query::{GivenTwice, parameter};
use crate::request_headers::header;
use crate::{ask, respond};
use holdfast_core::config::{Condition, ConfigEntry, ConfigVersion};
use holdfast_core::refusal::Refusal;
use holdfast_core::wire::{AccountCall, TenantReply};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use worker::{Env, Request, Response};

/// Versions of one page.
const PAGE: u32 = 100;

/// A path below `config`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConfigPath<'a> {
    /// The document itself.
    Document,
    /// `versions`
    Versions,
    /// `versions/{n}`
    Version(&'a str),
    /// `check`
    Check,
}

impl<'a> ConfigPath<'a> {
    /// The path behind `config`.
    pub(crate) fn at(rest: &'a str) -> Option<Self> {
        match rest {
            "" => Some(Self::Document),
            "/versions" => Some(Self::Versions),
            "/check" => Some(Self::Check),
            _ => rest.strip_prefix("/versions/").filter(|number| !number.contains('/')).map(Self::Version),
        }
    }

    /// The methods that it takes.
    pub(crate) const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Document => &["GET", "PUT"],
            Self::Versions | Self::Version(_) => &["GET"],
            Self::Check => &["POST"],
        }
    }
}

/// Serves a path below `config`.
///
/// # Errors
/// 400, 401, 403, 404, 412, 422, 428.
pub(crate) async fn serve(
    path: ConfigPath<'_>,
    actor: &Actor,
    request: Request,
    env: &Env,
) -> Result<Response, EdgeError> {
    let reads = request.inner().method() == "GET";
    match path {
        ConfigPath::Document if reads => show(actor, env, None).await,
        ConfigPath::Document => replace(actor, request, env).await,
        ConfigPath::Versions => versions(actor, &request, env).await,
        ConfigPath::Version(number) => {
            let version = number.parse().map_err(|_| Refusal::UnknownConfigVersion)?;
            show(actor, env, Some(version)).await
        }
        ConfigPath::Check => check(actor, request, env).await,
    }
}

/// The document with its entity tag and the number of its version.
async fn show(actor: &Actor, env: &Env, version: Option<u64>) -> Result<Response, EdgeError> {
    match actor.act(env, AccountCall::ShowConfig { version }).await? {
        TenantReply::Config(shown) => {
            let ConfigVersion { version, etag, document, .. } = *shown;
            Ok(respond::document(document, etag, version))
        }
        _ => Err(ask::unexpected().into()),
    }
}

/// What became of a document that was put.
#[derive(Serialize)]
struct PutView {
    object: &'static str,
    #[serde(flatten)]
    entry: ConfigEntry,
    warnings: Box<RawValue>,
}

/// From the next request on, it applies.
async fn replace(actor: &Actor, mut request: Request, env: &Env) -> Result<Response, EdgeError> {
    let condition = Condition::IfMatch { tags: header(request.headers(), "if-match") };
    let document = accounts::read(&mut request, env).await?;
    let (entry, warnings) = put(actor, env, document, condition).await?;
    respond::ok(&PutView { object: "config.version", entry, warnings })
}

/// Stores a document.
///
/// # Errors
/// 422 with all that is wrong with it; 412, 428; what the tenant refuses.
pub(crate) async fn put(
    actor: &Actor,
    env: &Env,
    document: Vec<u8>,
    condition: Condition,
) -> Result<(ConfigEntry, Box<RawValue>), EdgeError> {
    let document = String::from_utf8(document).map_err(|_| EdgeError::invalid("it is not UTF-8"))?;
    match actor.act(env, AccountCall::PutConfig { document, condition }).await? {
        TenantReply::ConfigPut { entry, warnings } => Ok((entry, raw(warnings)?)),
        TenantReply::ConfigRefused { count, errors, warnings } => {
            Err(EdgeError::InvalidConfig { count, errors, warnings })
        }
        _ => Err(ask::unexpected().into()),
    }
}

/// What the object has written.
fn raw(text: String) -> Result<Box<RawValue>, EdgeError> {
    RawValue::from_string(text).map_err(|_| ask::unexpected().into())
}

#[derive(Serialize)]
struct Page {
    object: &'static str,
    data: Vec<ConfigEntry>,
    has_more: bool,
}

/// `?before=N`: the versions before that one, the latest first.
async fn versions(actor: &Actor, request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let before = match parameter(&request.url()?, "before") {
        Ok(None) => None,
        Ok(Some(text)) => Some(text.parse().map_err(|_| EdgeError::InvalidCursor)?),
        Err(GivenTwice) => return Err(EdgeError::InvalidCursor),
    };
    match actor.act(env, AccountCall::ListConfigs { before, limit: PAGE.saturating_add(1) }).await? {
        TenantReply::Configs { entries: mut data } => {
            let has_more = data.len() > PAGE as usize;
            data.truncate(PAGE as usize);
            respond::ok(&Page { object: "list", data, has_more })
        }
        _ => Err(ask::unexpected().into()),
    }
}

/// What is to be checked: a document, or the one in force; and a request, if there is one to try.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct CheckRequest<'a> {
    #[serde(default, borrow)]
    document: Option<&'a RawValue>,
    #[serde(default, borrow)]
    request: Option<&'a RawValue>,
}

/// A dry run: nothing is stored, and nothing is held.
async fn check(actor: &Actor, mut request: Request, env: &Env) -> Result<Response, EdgeError> {
    let body = accounts::read(&mut request, env).await?;
    let CheckRequest { document, request } = accounts::parse(&body)?;
    let [document, request] = [document, request].map(|part| part.map(|part| part.get().to_owned()));
    match actor.act(env, AccountCall::CheckConfig { document, request }).await? {
        TenantReply::ConfigChecked { check } => Ok(respond::written(check)),
        _ => Err(ask::unexpected().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (rest, expected) in [
            ("", Some(ConfigPath::Document)),
            ("/versions", Some(ConfigPath::Versions)),
            ("/versions/7", Some(ConfigPath::Version("7"))),
            ("/check", Some(ConfigPath::Check)),
            ("/", None),
            ("/versions/7/x", None),
            ("/other", None),
            ("uration", None),
        ] {
            assert_eq!(ConfigPath::at(rest), expected, "{rest}");
        }
    }
}
