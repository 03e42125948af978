//! Who asks. The edge turns away what cannot be a key or a token; whether it still stands, and what it may do, the
//! tenant's object says.

use crate::ask;
use crate::cors::{Page, own_origin};
use crate::request_headers::{bearer, header};
use holdfast_core::ids::{GenerationId, TenantId};
use holdfast_core::key::{ClientKey, KeyDigest};
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Admitted;
use holdfast_core::token::{BrowserToken, Credential};
use holdfast_core::wire::{TenantCall, TenantReply};
use holdfast_objects::{clock, settings};
use worker::{Env, Headers, Request};

/// A key that is well formed: the tenant that it names and the digest that the tenant's object looks for. For what takes
/// a key; what a page may do too takes a [`Bearer`].
#[derive(Clone, Debug)]
pub(crate) struct Caller {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// The digest of the key; the key itself goes no further.
    pub(crate) key: KeyDigest,
}

impl Caller {
    /// Reads the key from `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`; the first that is given counts. Its checksum turns
    /// guesses and typos away without a hop.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`] when it is missing or malformed; [`Refusal::TokenNotAllowed`] when a token is shown;
    /// [`Refusal::Misconfigured`] without the pepper.
    pub(crate) fn of(env: &Env, headers: &Headers) -> Result<Self, Refusal> {
        let shown = shown(headers).ok_or(Refusal::InvalidKey)?;
        if BrowserToken::parse(&shown).is_some() {
            return Err(Refusal::TokenNotAllowed);
        }
        let key = ClientKey::parse(&shown).ok_or(Refusal::InvalidKey)?;
        Ok(Self { tenant: key.tenant().clone(), key: settings::digest(env, &key)? })
    }
}

/// Who shows a key or a token, from which page.
#[derive(Clone, Debug)]
pub(crate) struct Bearer {
    /// The tenant.
    pub(crate) tenant: TenantId,
    /// What the tenant's object is told.
    pub(crate) credential: Credential,
    /// The page of another origin that asks, for the tenant's object to allow.
    page: Option<Origin>,
}

impl Bearer {
    /// Reads key or token from `Authorization: Bearer`, `x-api-key` or `x-goog-api-key`; the first that is given counts. Of a token, MAC,
    /// time and origins are checked here.
    ///
    /// # Errors
    /// In this order: [`Refusal::OriginNotAllowed`] for a page without a name, [`Refusal::InvalidKey`] when key or token
    /// is missing, malformed or forged, [`Refusal::TokenExpired`], [`Refusal::OriginNotAllowed`] where the token is for
    /// other pages; [`Refusal::Misconfigured`] without the pepper.
    pub(crate) fn of(env: &Env, request: &Request) -> Result<Self, Refusal> {
        let page = Page::of(request).foreign()?;
        let shown = shown(request.headers()).ok_or(Refusal::InvalidKey)?;
        let Some(token) = BrowserToken::parse(&shown) else {
            let Caller { tenant, key } = Caller::of(env, request.headers())?;
            return Ok(Self { tenant, credential: key.into(), page });
        };
        let claims = settings::token_key(env)?.verify(&token, clock::now())?;
        if !claims.allow_origin(page.as_ref(), own_origin(request).as_ref()) {
            return Err(Refusal::OriginNotAllowed);
        }
        Ok(Self { tenant: claims.tenant.clone(), credential: claims.into(), page })
    }

    /// Asks the tenant, on behalf of the page.
    ///
    /// # Errors
    /// What the tenant refused; [`Refusal::Unavailable`] when it did not answer.
    pub(crate) async fn ask(&self, env: &Env, call: &TenantCall) -> Result<TenantReply, Refusal> {
        ask::tenant_for(env, &self.tenant, self.page.as_ref(), call).await
    }

    /// The key, for what takes one. A token is refused only when the tenant has accepted it: its page may read why.
    ///
    /// # Errors
    /// [`Refusal::TokenNotAllowed`], and those of [`Bearer::authenticate`].
    pub(crate) async fn require_key(&self, env: &Env) -> Result<KeyDigest, Refusal> {
        match self.credential.require_key() {
            Ok(digest) => Ok(digest.clone()),
            Err(refusal) => self.authenticate(env, None).await.and(Err(refusal)),
        }
    }

    /// Has key or token checked, and asks what the named generation was admitted under; `None` when this tenant has none
    /// of that id, or the token is not for it.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`], [`Refusal::OriginNotAllowed`], [`Refusal::Unavailable`].
    pub(crate) async fn authenticate(
        &self,
        env: &Env,
        generation: Option<GenerationId>,
    ) -> Result<Option<Box<Admitted>>, Refusal> {
        let call = TenantCall::Authenticate { key: self.credential.clone(), generation };
        match self.ask(env, &call).await? {
            TenantReply::Authenticated { admitted } => Ok(admitted),
            _ => Err(ask::unexpected()),
        }
    }
}

/// A page of another origin that asks, as far as it may read why it was refused.
#[derive(Clone, Debug)]
pub(crate) enum PageAsks {
    /// By a key or token whose tenant can be asked.
    By(Bearer),
    /// By a token that has ended, and that was for this very origin.
    Ended,
    /// By nothing that could have been allowed.
    Nothing,
}

impl PageAsks {
    /// Reads the request.
    pub(crate) fn of(env: &Env, request: &Request) -> Self {
        match Bearer::of(env, request) {
            Ok(bearer) => Self::By(bearer),
            Err(Refusal::TokenExpired) if was_for_its_page(env, request) => Self::Ended,
            Err(_) => Self::Nothing,
        }
    }

    /// Whether the page may read an error that came before its origin was checked: the tenant is asked now.
    pub(crate) async fn may_read_errors(&self, env: &Env) -> bool {
        match self {
            Self::By(bearer) => bearer.authenticate(env, None).await.is_ok(),
            Self::Ended => true,
            Self::Nothing => false,
        }
    }
}

fn was_for_its_page(env: &Env, request: &Request) -> bool {
    let (Page::Of(origin), Ok(key)) = (Page::of(request), settings::token_key(env)) else { return false };
    let token = shown(request.headers()).and_then(|shown| BrowserToken::parse(&shown));
    let ended = token.and_then(|token| key.ended(&token, clock::now()));
    ended.is_some_and(|claims| origin.is_among(&claims.origins))
}

/// The text of the key or token that is shown.
fn shown(headers: &Headers) -> Option<String> {
    let authorization = header(headers, "authorization");
    match authorization.as_deref().and_then(bearer) {
        Some(shown) => Some(shown.to_owned()),
        None => header(headers, "x-api-key").or_else(|| header(headers, "x-goog-api-key")),
    }
}
