//! Browser tokens: short-lived, signed, and never stronger than the key that minted them (design 10).
//!
//! A page cannot keep a secret, so it gets a token instead of a key: limited to routes, origins and, if wanted, to one
//! generation; dead within the hour, and at once when its key is revoked.
//!
//! The text is `hft_{claims}.{mac}`: the claims as JSON and an HMAC-SHA-256 over everything before the dot, both in
//! base64url. It has the shape of a JWT and is none on purpose. A JWT names its own algorithm and key in a header
//! that a verifier must not believe; here the prefix fixes algorithm and key, and another scheme will have another
//! prefix or version. The prefix also lets secret scanners find it. The claims are signed, not encrypted: whoever holds the
//! token can read them, so they name no secret.
//!
//! A token is verified twice. The edge checks the MAC, the time and the token's origins, and passes on what it says; the
//! tenant's object then checks that the minting key still stands, that the token was not revoked, and that the call is
//! within the limits.

mod base64url;
mod minted;

pub use minted::{By, MINTED_KEPT_MS, MINTED_MAX, Minted, TokenPage, TokenView, check_minted};

use crate::ids::{GenerationId, TenantId, TokenId};
use crate::key::{KeyDigest, hmac_sha256};
use crate::origin::Origin;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use core::fmt;
use hmac::{Hmac, KeyInit, Mac};
use serde::{Deserialize, Serialize};
use sha2::Sha256;

/// What a token's text begins with.
const PREFIX: &str = "hft_";
/// Under this label the signing key is derived from the pepper: one key for each purpose.
const LABEL: &[u8] = b"holdfast/browser-token/v1";
/// The version of claims and MAC that is minted and accepted.
const VERSION: u8 = 1;

/// How long a token lives where its request does not say, in seconds.
pub const LIFETIME_DEFAULT_S: u64 = 600;
/// How long a token may live at most, in seconds.
pub const LIFETIME_MAX_S: u64 = 3_600;
/// Routes that a token can name.
pub const ROUTES_MAX: usize = 16;
/// Origins that a token can name.
pub const ORIGINS_MAX: usize = 8;
/// Largest claims, in bytes of JSON: a token goes into a header.
const CLAIMS_MAX_BYTES: usize = 2_048;
/// Longest text that is looked at: prefix, largest claims in base64url, dot, MAC.
const TEXT_MAX_BYTES: usize = 2_779;

/// What a token may do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum May {
    /// Look at generations and read them.
    Read,
    /// Start, join and cancel generations too.
    Run,
}

/// What a token says. Text and ids only, no secret: the holder can read them.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Claims {
    /// Version of claims and MAC.
    #[serde(rename = "v")]
    pub version: u8,
    /// The token's name in records.
    pub id: TokenId,
    /// Whose it is.
    pub tenant: TenantId,
    /// The id of the key that minted it: when that key falls, so does the token.
    pub key: String,
    /// What it may do.
    pub may: May,
    /// Names of the routes that it may use and whose generations it may read; all when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub routes: Vec<String>,
    /// The origins that may use it, of those that the tenant allows; all of those when empty.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub origins: Vec<String>,
    /// The only generation that it may name; with one, nothing can be started.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<GenerationId>,
    /// When it was minted.
    pub issued_at: UnixMillis,
    /// From then on it is refused.
    pub expires_at: UnixMillis,
}

impl Claims {
    /// Whether a page may use it that was loaded from `origin`. `own` is the deployment's origin, which also stands in
    /// where a request names none: browsers leave `Origin` out when they read from where the page came from.
    ///
    /// Whether the tenant allows the origin is for its object to say.
    #[must_use]
    pub fn allow_origin(&self, origin: Option<&Origin>, own: Option<&Origin>) -> bool {
        self.origins.is_empty() || origin.or(own).is_some_and(|origin| origin.is_among(&self.origins))
    }

    fn allow_route(&self, route: &str) -> bool {
        self.routes.is_empty() || self.routes.iter().any(|allowed| allowed == route)
    }

    /// The text that is signed, and that goes from edge to object. Text and numbers always serialize.
    fn to_json(&self) -> String {
        serde_json::to_string(self).unwrap_or_default()
    }

    /// No longer than a token may live, and not a time that lies before its minting.
    fn lifetime_is_bounded(&self) -> bool {
        let longest = self.issued_at.plus(LIFETIME_MAX_S.saturating_mul(1_000));
        self.issued_at < self.expires_at && self.expires_at <= longest
    }
}

/// Who asks, as the tenant's object is told: the digest of a key, or what a verified token says.
///
/// On the wire it is a text in either case: the digest as it was before there were tokens, or the claims as JSON.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub enum Credential {
    /// A key of the tenant.
    Key(KeyDigest),
    /// A token whose MAC, time and origins the edge has checked.
    Token(Box<Claims>),
}

impl Credential {
    /// What tells one caller from another: the key's digest, or the token's name.
    #[must_use]
    pub fn name(&self) -> &str {
        match self {
            Self::Key(digest) => &digest.0,
            Self::Token(token) => token.id.as_str(),
        }
    }

    /// The token, if it is one.
    #[must_use]
    pub fn token(&self) -> Option<&Claims> {
        match self {
            Self::Key(_) => None,
            Self::Token(token) => Some(token),
        }
    }

    /// Whether it may start or join a generation, on whatever route.
    ///
    /// # Errors
    /// [`Refusal::TokenNotAllowed`] for a token that only reads, or that is limited to one generation.
    pub fn check_start(&self) -> Result<(), Refusal> {
        match self.token() {
            Some(token) if token.may == May::Read || token.generation.is_some() => Err(Refusal::TokenNotAllowed),
            _ => Ok(()),
        }
    }

    /// Whether it may use a route.
    ///
    /// # Errors
    /// [`Refusal::RouteNotAllowed`].
    pub fn check_route(&self, route: &str) -> Result<(), Refusal> {
        if self.token().is_none_or(|token| token.allow_route(route)) { Ok(()) } else { Err(Refusal::RouteNotAllowed) }
    }

    /// Whether it may ask for the cancellation of a generation that it can see.
    ///
    /// # Errors
    /// [`Refusal::TokenNotAllowed`] for a token that only reads.
    pub fn check_cancel(&self) -> Result<(), Refusal> {
        match self.token() {
            Some(token) if token.may == May::Read => Err(Refusal::TokenNotAllowed),
            _ => Ok(()),
        }
    }

    /// Whether a generation of the tenant exists for it. One that is outside of a token's limits gets the answer of one
    /// that does not exist.
    #[must_use]
    pub fn sees(&self, generation: &GenerationId, route: &str) -> bool {
        self.token().is_none_or(|token| {
            token.allow_route(route) && token.generation.as_ref().is_none_or(|only| only == generation)
        })
    }

    /// Whether it is a key: tokens may neither mint tokens nor see what belongs to the tenant as a whole.
    ///
    /// # Errors
    /// [`Refusal::TokenNotAllowed`].
    pub fn require_key(&self) -> Result<&KeyDigest, Refusal> {
        match self {
            Self::Key(digest) => Ok(digest),
            Self::Token(_) => Err(Refusal::TokenNotAllowed),
        }
    }
}

impl From<KeyDigest> for Credential {
    fn from(digest: KeyDigest) -> Self {
        Self::Key(digest)
    }
}

impl From<Claims> for Credential {
    fn from(claims: Claims) -> Self {
        Self::Token(Box::new(claims))
    }
}

impl From<Credential> for String {
    fn from(credential: Credential) -> Self {
        match credential {
            Credential::Key(KeyDigest(digest)) => digest,
            Credential::Token(claims) => claims.to_json(),
        }
    }
}

impl TryFrom<String> for Credential {
    type Error = serde_json::Error;
    fn try_from(text: String) -> Result<Self, serde_json::Error> {
        if text.starts_with('{') {
            serde_json::from_str(&text).map(Self::Token)
        } else {
            Ok(Self::Key(KeyDigest(text)))
        }
    }
}

/// A token as a client sent it. It has no `Display` and no `Serialize`: it cannot slip into a log or an answer.
#[derive(Clone)]
pub struct BrowserToken(String);

impl fmt::Debug for BrowserToken {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("BrowserToken(hft_…)")
    }
}

impl BrowserToken {
    /// Takes a text that has the prefix of a token. Whether it is one, [`TokenKey::verify`] tells.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        (text.starts_with(PREFIX) && text.len() <= TEXT_MAX_BYTES).then(|| Self(text.into()))
    }
}

/// The key that signs tokens. It never leaves the edge.
#[derive(Clone)]
pub struct TokenKey([u8; 32]);

impl fmt::Debug for TokenKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("TokenKey(…)")
    }
}

impl TokenKey {
    /// Derives it from the pepper, under a label of its own: what is signed with it can be nothing else, and from it
    /// the pepper cannot be found.
    #[must_use]
    pub fn derive(pepper: &[u8]) -> Self {
        Self(hmac_sha256(pepper, &[LABEL]))
    }

    /// Makes the token's text from claims that were [granted](grant). The one place where it is written.
    #[must_use]
    pub fn mint(&self, granted: &Granted) -> String {
        let signed = format!("{PREFIX}{}", base64url::encode(granted.claims.as_bytes()));
        let mac = base64url::encode(&hmac_sha256(&self.0, &[signed.as_bytes()]));
        format!("{signed}.{mac}")
    }

    /// What a token says, if it was minted with this key and still counts. The MAC is checked first, in constant time:
    /// nothing of a forged token is parsed.
    ///
    /// # Errors
    /// [`Refusal::InvalidKey`], or [`Refusal::TokenExpired`] for one that counted once.
    pub fn verify(&self, token: &BrowserToken, now: UnixMillis) -> Result<Claims, Refusal> {
        let claims = self.authentic(&token.0).ok_or(Refusal::InvalidKey)?;
        if claims.expires_at <= now { Err(Refusal::TokenExpired) } else { Ok(claims) }
    }

    /// What a token said that counts no more; `None` for one that still does, and for any other text.
    #[must_use]
    pub fn ended(&self, token: &BrowserToken, now: UnixMillis) -> Option<Claims> {
        self.authentic(&token.0).filter(|claims| claims.expires_at <= now)
    }

    fn authentic(&self, text: &str) -> Option<Claims> {
        let (signed, mac) = text.split_once('.')?;
        let mac = base64url::decode(mac)?;
        Hmac::<Sha256>::new_from_slice(&self.0).ok()?.chain_update(signed).verify_slice(&mac).ok()?;
        let json = base64url::decode(signed.strip_prefix(PREFIX)?)?;
        let claims: Claims = serde_json::from_slice(&json).ok()?;
        (claims.version == VERSION && claims.lifetime_is_bounded()).then_some(claims)
    }
}

/// The body of `POST /v1/tokens`. What is left out does not limit the token; an empty list is refused, since it could
/// mean all or nothing.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TokenRequest {
    /// Names of the routes that it may use.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub routes: Option<Vec<String>>,
    /// The origins that may use it, out of the tenant's `allowed_origins`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub origins: Option<Vec<String>>,
    /// The only generation that it may name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub generation: Option<String>,
    /// What it may do: `run` by default, `read` for a token that is limited to one generation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub may: Option<May>,
    /// How long it lives, in seconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_in_s: Option<u64>,
}

impl TokenRequest {
    /// Reads a request body.
    ///
    /// # Errors
    /// [`Refusal::InvalidTokenRequest`] when it is not an object of the known members.
    pub fn parse(body: &str) -> Result<Self, Refusal> {
        // A list would be read member by member, in an order that nobody promised.
        if !body.trim_ascii_start().starts_with('{') {
            return Err(invalid("the body must be a JSON object".into()));
        }
        serde_json::from_str(body).map_err(|error| invalid(format!("{error}")))
    }

    /// The generation that it names.
    ///
    /// # Errors
    /// [`Refusal::NotFound`] when that is not an id: the answer of a generation that does not exist.
    pub fn named_generation(&self) -> Result<Option<GenerationId>, Refusal> {
        self.generation.as_deref().map(GenerationId::parse).transpose().map_err(|_| Refusal::NotFound)
    }
}

/// What a new token says.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Granted {
    /// [`Claims`] as JSON: the very text that is signed.
    pub claims: String,
    /// When the token ends.
    pub expires_at: UnixMillis,
}

/// What a grant depends on.
#[derive(Clone, Copy, Debug)]
pub struct GrantContext<'a> {
    /// The tenant.
    pub tenant: &'a TenantId,
    /// Id of the key that asks. That it is valid was checked before.
    pub key: &'a str,
    /// When that key expires: its tokens do not outlive it.
    pub key_expires_at: Option<UnixMillis>,
    /// Names of the tenant's routes.
    pub routes: &'a [&'a str],
    /// The tenant's `allowed_origins`.
    pub allowed_origins: &'a [String],
    /// Whether the generation that the request names is the tenant's.
    pub generation_exists: bool,
}

/// Decides what a new token says. It is never stronger than the key: what it names must be the tenant's own, and it ends
/// with the key at the latest.
///
/// # Errors
/// In this order: [`Refusal::InvalidTokenRequest`] (lifetime, then routes, then origins), [`Refusal::NotFound`] (no such
/// generation), [`Refusal::InvalidTokenRequest`] (too large for a header).
pub fn grant(
    context: &GrantContext<'_>,
    request: &TokenRequest,
    id: TokenId,
    now: UnixMillis,
) -> Result<Granted, Refusal> {
    let lifetime_s = request.expires_in_s.unwrap_or(LIFETIME_DEFAULT_S);
    if !(1..=LIFETIME_MAX_S).contains(&lifetime_s) {
        return Err(invalid(format!("`expires_in_s` must be from 1 to {LIFETIME_MAX_S}")));
    }
    let routes = check_routes(context, request)?;
    let origins = check_origins(context, request)?;
    let generation = request.named_generation()?;
    if generation.is_some() && !context.generation_exists {
        return Err(Refusal::NotFound);
    }

    let wanted = now.plus(lifetime_s.saturating_mul(1_000));
    let expires_at = context.key_expires_at.map_or(wanted, |key_expires_at| wanted.min(key_expires_at));
    let may = request.may.unwrap_or(if generation.is_some() { May::Read } else { May::Run });
    let (tenant, key) = (context.tenant.clone(), context.key.into());
    let claims =
        Claims { version: VERSION, id, tenant, key, may, routes, origins, generation, issued_at: now, expires_at };
    let claims = claims.to_json();
    if claims.len() > CLAIMS_MAX_BYTES {
        return Err(invalid("it names too much for one token".into()));
    }
    Ok(Granted { claims, expires_at })
}

fn invalid(fault: String) -> Refusal {
    Refusal::InvalidTokenRequest { fault }
}

/// The names in order, each once.
fn check_count(member: &str, names: &[String], most: usize) -> Result<Vec<String>, Refusal> {
    let mut names = names.to_vec();
    names.sort_unstable();
    names.dedup();
    if (1..=most).contains(&names.len()) {
        Ok(names)
    } else {
        Err(invalid(format!("`{member}` must name 1 to {most}; leave it out for all")))
    }
}

fn check_routes(context: &GrantContext<'_>, request: &TokenRequest) -> Result<Vec<String>, Refusal> {
    let Some(routes) = &request.routes else { return Ok(Vec::new()) };
    let routes = check_count("routes", routes, ROUTES_MAX)?;
    match routes.iter().find(|route| !context.routes.contains(&route.as_str())) {
        Some(unknown) => Err(invalid(format!("`routes`: there is no route `{unknown}`"))),
        None => Ok(routes),
    }
}

fn check_origins(context: &GrantContext<'_>, request: &TokenRequest) -> Result<Vec<String>, Refusal> {
    let Some(origins) = &request.origins else { return Ok(Vec::new()) };
    let origins = check_count("origins", origins, ORIGINS_MAX)?;
    for text in &origins {
        match Origin::parse(text) {
            Ok(origin) if origin.is_among(context.allowed_origins) => {}
            Ok(_) => return Err(invalid(format!("`origins`: `{text}` is not among the tenant's allowed_origins"))),
            Err(fault) => return Err(invalid(format!("`origins`: `{text}` is no origin: {fault}"))),
        }
    }
    Ok(origins)
}
