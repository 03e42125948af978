//! The operator's routes: `/admin/…`, with `Authorization: Bearer OPERATOR_KEY`. Without an operator's key they do not
//! exist.

use crate::accounts::{self, Actor, KeyRequest};
use crate::configuration::{self, ConfigPath};
use crate::error::EdgeError;
use crate::query::{GivenTwice, parameter};
use crate::request_headers::{bearer, header};
use crate::{ask, respond, sweep};
use holdfast_core::config::Condition;
use holdfast_core::ids::TenantId;
use holdfast_core::money::Micros;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::{AccountView, Authority, Status};
use holdfast_core::wire::{AccountCall, DirectoryCall, DirectoryEntry, DirectoryReply, TenantReply};
use holdfast_objects::{clock, settings};
use serde::{Deserialize, Serialize};
use serde_json::value::RawValue;
use uuid::Uuid;
use worker::{Env, Request, Response};

/// Tenants of one page, where nothing else is asked for.
const PAGE: u32 = 100;
/// Tenants of one page at most.
const PAGE_MAX: u32 = 1_000;

/// A path below `/admin/`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum AdminPath<'a> {
    /// `tenants`
    Tenants,
    /// `tenants/{id}`
    Tenant(&'a str),
    /// `tenants/{id}/suspend`
    Suspend(&'a str),
    /// `tenants/{id}/resume`
    Resume(&'a str),
    /// `tenants/{id}/grants`
    Grants(&'a str),
    /// `tenants/{id}/keys`
    Keys(&'a str),
    /// `tenants/{id}/keys/{key}`
    Key(&'a str, &'a str),
    /// `sweep`
    Sweep,
    /// `tenants/{id}/config` and below
    Config(&'a str, ConfigPath<'a>),
}

impl<'a> AdminPath<'a> {
    /// The path behind `/admin/`.
    pub(crate) fn at(rest: &'a str) -> Option<Self> {
        let config = rest.strip_prefix("tenants/").and_then(|rest| rest.split_once("/config"));
        if let Some((id, below)) = config.filter(|(id, _)| !id.contains('/')) {
            return ConfigPath::at(below).map(|path| Self::Config(id, path));
        }
        let mut parts = rest.split('/');
        let path = (parts.next()?, parts.next(), parts.next(), parts.next(), parts.next());
        match path {
            ("sweep", None, ..) => Some(Self::Sweep),
            ("tenants", None, ..) => Some(Self::Tenants),
            ("tenants", Some(id), None, ..) => Some(Self::Tenant(id)),
            ("tenants", Some(id), Some("suspend"), None, _) => Some(Self::Suspend(id)),
            ("tenants", Some(id), Some("resume"), None, _) => Some(Self::Resume(id)),
            ("tenants", Some(id), Some("grants"), None, _) => Some(Self::Grants(id)),
            ("tenants", Some(id), Some("keys"), None, _) => Some(Self::Keys(id)),
            ("tenants", Some(id), Some("keys"), Some(key), None) => Some(Self::Key(id, key)),
            _ => None,
        }
    }

    /// The methods that it takes.
    pub(crate) const fn methods(self) -> &'static [&'static str] {
        match self {
            Self::Tenants | Self::Keys(_) => &["GET", "POST"],
            Self::Tenant(_) => &["GET"],
            Self::Suspend(_) | Self::Resume(_) | Self::Grants(_) | Self::Sweep => &["POST"],
            Self::Key(..) => &["DELETE"],
            Self::Config(_, path) => path.methods(),
        }
    }
}

/// Serves a path below `/admin/`. The operator's key is checked first, whatever the path names.
///
/// # Errors
/// 401 without the operator's key; 404 where there is none.
pub(crate) async fn serve(path: AdminPath<'_>, mut request: Request, env: &Env) -> Result<Response, EdgeError> {
    authorize(&request, env)?;
    let reads = request.inner().method() == "GET";
    match path {
        AdminPath::Tenants if reads => list(&request, env).await,
        AdminPath::Sweep => sweep::by_hand(env).await,
        AdminPath::Tenants => create(&mut request, env).await,
        AdminPath::Tenant(id) => shown(&operator(id)?.act(env, AccountCall::Show).await?),
        AdminPath::Suspend(id) => set_status(id, env, Status::Suspended).await,
        AdminPath::Resume(id) => set_status(id, env, Status::Active).await,
        AdminPath::Grants(id) => grant(id, &mut request, env).await,
        AdminPath::Keys(id) if reads => accounts::list_keys(&operator(id)?, env).await,
        AdminPath::Keys(id) => accounts::issue_key(&operator(id)?, request, env).await,
        AdminPath::Key(id, key) => accounts::revoke_key(&operator(id)?, env, key).await,
        AdminPath::Config(id, path) => configuration::serve(path, &operator(id)?, request, env).await,
    }
}

fn authorize(request: &Request, env: &Env) -> Result<(), EdgeError> {
    let expected = settings::operator_key(env)?.ok_or(EdgeError::UnknownPath)?;
    let shown = header(request.headers(), "authorization");
    let shown = shown.as_deref().and_then(bearer).unwrap_or_default();
    if holdfast_core::key::same_secret(&expected, shown) { Ok(()) } else { Err(Refusal::InvalidKey.into()) }
}

fn operator(id: &str) -> Result<Actor, EdgeError> {
    let tenant = TenantId::parse(id).map_err(|_| Refusal::UnknownTenant)?;
    Ok(Actor { tenant, authority: Authority::Operator })
}

/// A tenant that is to be created, with what it begins with.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewTenant<'a> {
    id: TenantId,
    #[serde(default)]
    grant_micros: Option<Micros>,
    #[serde(default)]
    keys: Vec<KeyRequest>,
    #[serde(default, borrow)]
    config: Option<&'a RawValue>,
}

/// `POST /admin/tenants`: the directory first, so that no tenant is ever without its entry. Each part may be repeated: so
/// its keys are those that were made elsewhere.
async fn create(request: &mut Request, env: &Env) -> Result<Response, EdgeError> {
    let body = accounts::read(request, env).await?;
    let new: NewTenant<'_> = accounts::parse(&body)?;
    new.keys.iter().try_for_each(KeyRequest::check_made_elsewhere)?;
    let actor = Actor { tenant: new.id.clone(), authority: Authority::Operator };
    ask::directory(env, &DirectoryCall::Add { tenant: new.id, created_at: clock::now() }).await?;
    let mut answer = actor.act(env, AccountCall::Create).await?;
    if let Some(config) = new.config {
        configuration::put(&actor, env, config.get().into(), Condition::Always).await?;
    }
    if let Some(amount) = new.grant_micros.filter(|amount| *amount > Micros::ZERO) {
        // The first grant has one name: a repeated creation grants it once.
        answer = actor.act(env, AccountCall::Grant { grant_id: "initial".into(), amount }).await?;
    }
    for key in new.keys {
        match accounts::issue(&actor, env, key).await {
            Ok(_) | Err(EdgeError::Refused(Refusal::KeyExists)) => {}
            Err(error) => return Err(error),
        }
    }
    match answer {
        TenantReply::Account(account) => respond::created(&TenantView { object: "tenant", account: *account }),
        _ => Err(ask::unexpected().into()),
    }
}

async fn set_status(id: &str, env: &Env, status: Status) -> Result<Response, EdgeError> {
    shown(&operator(id)?.act(env, AccountCall::SetStatus { status }).await?)
}

/// Credit for a tenant.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct NewGrant {
    /// Names the grant: repeated under the same name it is granted once.
    id: Option<String>,
    amount_micros: Micros,
}

async fn grant(id: &str, request: &mut Request, env: &Env) -> Result<Response, EdgeError> {
    let actor = operator(id)?;
    let NewGrant { id, amount_micros } = accounts::parse(&accounts::read(request, env).await?)?;
    let grant_id = id.unwrap_or_else(|| Uuid::new_v4().simple().to_string());
    shown(&actor.act(env, AccountCall::Grant { grant_id, amount: amount_micros }).await?)
}

#[derive(Serialize)]
struct TenantView {
    object: &'static str,
    #[serde(flatten)]
    account: AccountView,
}

fn shown(reply: &TenantReply) -> Result<Response, EdgeError> {
    match reply {
        TenantReply::Account(account) => respond::ok(&TenantView { object: "tenant", account: (**account).clone() }),
        _ => Err(ask::unexpected().into()),
    }
}

#[derive(Serialize)]
struct Page {
    object: &'static str,
    data: Vec<DirectoryEntry>,
    has_more: bool,
}

/// `GET /admin/tenants?after=ID&limit=N`.
async fn list(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let url = request.url()?;
    let query =
        |name| parameter(&url, name).map_err(|GivenTwice| EdgeError::invalid(format!("`{name}` is given twice")));
    let after = match query("after")? {
        Some(id) => Some(TenantId::parse(&id).map_err(|_| EdgeError::InvalidCursor)?),
        None => None,
    };
    let limit = match query("limit")? {
        Some(text) => text.parse().ok().filter(|limit| (1..=PAGE_MAX).contains(limit)),
        None => Some(PAGE),
    };
    let limit = limit.ok_or_else(|| EdgeError::invalid(format!("`limit` must be from 1 to {PAGE_MAX}")))?;
    match ask::directory(env, &DirectoryCall::List { after, limit: limit.saturating_add(1) }).await? {
        DirectoryReply::Tenants { tenants: mut data } => {
            let has_more = data.len() > limit as usize;
            data.truncate(limit as usize);
            respond::ok(&Page { object: "list", data, has_more })
        }
        DirectoryReply::Added | DirectoryReply::Noted => Err(ask::unexpected().into()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn paths() {
        for (rest, expected) in [
            ("sweep", Some(AdminPath::Sweep)),
            ("sweep/now", None),
            ("tenants", Some(AdminPath::Tenants)),
            ("tenants/acme", Some(AdminPath::Tenant("acme"))),
            ("tenants/acme/suspend", Some(AdminPath::Suspend("acme"))),
            ("tenants/acme/resume", Some(AdminPath::Resume("acme"))),
            ("tenants/acme/grants", Some(AdminPath::Grants("acme"))),
            ("tenants/acme/keys", Some(AdminPath::Keys("acme"))),
            ("tenants/acme/keys/key_1", Some(AdminPath::Key("acme", "key_1"))),
            ("tenants/acme/config", Some(AdminPath::Config("acme", ConfigPath::Document))),
            ("tenants/acme/config/versions/3", Some(AdminPath::Config("acme", ConfigPath::Version("3")))),
            ("tenants/acme/x/config", None),
            ("tenants/acme/keys/config", Some(AdminPath::Key("acme", "config"))),
            ("tenants/acme/keys/key_1/x", None),
            ("tenants/acme/config/x", None),
            ("tenants/acme/other", None),
            ("", None),
            ("other", None),
        ] {
            assert_eq!(AdminPath::at(rest), expected, "{rest}");
        }
    }
}
