//! Who may call a tenant: its account, its keys and their roles.
//!
//! An operator creates, suspends and grants; keys are issued by an operator or by a key of role `admin`. A key is shown
//! once and stored as a keyed digest. Revocation counts from the next call on: keys are read from storage, never from a
//! cache.

use super::{PostedRows, TenantState, post};
use crate::ids::TenantId;
use crate::key::KeyDigest;
use crate::ledger::{Posting, PostingKind, ReasonCode};
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::time::UnixMillis;
use alloc::format;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Longest overlap of a rotation: for so long at most the old key works beside the new one.
pub const ROTATION_MAX_MS: u64 = 30 * 24 * 3_600_000;

/// Keys of one tenant, revoked and expired ones not counted.
pub const KEYS_MAX: usize = 100;

/// Longest name that somebody gives to a key or a grant, in characters.
pub const NAME_MAX_CHARS: usize = 128;

/// A name is stored and shown as it is: it has a bound, and nothing in it acts on whoever shows it.
fn check_name(member: &str, name: &str) -> Result<(), Refusal> {
    let fits = (1..=NAME_MAX_CHARS).contains(&name.chars().take(NAME_MAX_CHARS.saturating_add(1)).count());
    if fits && !name.chars().any(char::is_control) {
        return Ok(());
    }
    let what = format!("`{member}` must have 1 to {NAME_MAX_CHARS} characters, none of them a control character");
    Err(Refusal::InvalidSetting { what })
}

/// Whether a tenant may run anything new.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Status {
    /// It may.
    #[default]
    Active,
    /// It may not. What runs is settled, and what is stored can be read.
    Suspended,
}

/// The tenant's own row of identity.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Account {
    /// Who.
    pub id: TenantId,
    /// Whether it may run anything new.
    pub status: Status,
    /// When it was created.
    pub created_at: UnixMillis,
    /// Version of its configuration that new requests are admitted under; 0 before the first.
    pub config_version: u64,
}

/// What a key may do.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Role {
    /// Run generations, read them, cancel them, see the balance.
    #[default]
    Client,
    /// Besides: configuration, keys, ledger, webhooks of the tenant.
    Admin,
}

impl Role {
    /// Whether this role includes the other.
    #[must_use]
    pub const fn includes(self, other: Self) -> bool {
        matches!((self, other), (Self::Admin, _) | (Self::Client, Self::Client))
    }
}

/// A key of the tenant, as stored: the digest, never the key.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApiKey {
    /// Public name: `key_…`.
    pub id: String,
    /// What it may do.
    #[serde(default)]
    pub role: Role,
    /// HMAC-SHA-256 of the key under the pepper, lower-case hex. See [`crate::key`].
    pub digest: KeyDigest,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// When it was issued.
    pub created_at: UnixMillis,
    /// From when on it is not accepted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixMillis>,
    /// When it was revoked.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked_at: Option<UnixMillis>,
}

impl ApiKey {
    /// Whether it is accepted at `now`.
    #[must_use]
    pub fn is_valid(&self, now: UnixMillis) -> bool {
        self.revoked_at.is_none() && self.expires_at.is_none_or(|at| at > now)
    }
}

/// A key that is to be issued.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct NewKey {
    /// Its public name, minted by the edge.
    pub id: String,
    /// What it may do.
    #[serde(default)]
    pub role: Role,
    /// Its digest.
    pub digest: KeyDigest,
    /// What its owner calls it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub label: Option<String>,
    /// From when on it is not accepted any more.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub expires_at: Option<UnixMillis>,
    /// The key that it replaces, and for how long that one still works: a rotation with overlap.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replaces: Option<Replaced>,
}

/// The key that a rotation replaces.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Replaced {
    /// Which.
    pub id: String,
    /// How long it still works beside the new one.
    pub overlap_ms: u64,
}

/// Largest whole number that every reader of JSON keeps.
const MAX_SAFE: u64 = (1 << 53) - 1;

/// Who acts on an account.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "by", rename_all = "snake_case")]
pub enum Authority {
    /// The operator: checked at the edge against the operator's key.
    Operator,
    /// A key of the tenant.
    Key {
        /// Its digest.
        digest: KeyDigest,
    },
}

/// The rows that an issued key makes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct IssuedRows {
    /// The new key.
    pub key: ApiKey,
    /// The one that it replaces, with its new end.
    pub replaced: Option<ApiKey>,
}

/// Makes an account. Asked again for the same tenant, it is the recorded one: creating is idempotent.
#[must_use]
pub fn create(existing: Option<&Account>, id: &TenantId, now: UnixMillis) -> (Account, bool) {
    match existing {
        Some(account) => (account.clone(), false),
        None => (Account { id: id.clone(), status: Status::Active, created_at: now, config_version: 0 }, true),
    }
}

/// Who a digest belongs to.
///
/// # Errors
/// [`Refusal::InvalidKey`]: no such tenant, no such key, revoked or expired, all alike; [`Refusal::RoleRequired`] when
/// the key's role does not include `role`.
pub fn authenticate<'a>(
    account: Option<&Account>,
    key: Option<&'a ApiKey>,
    role: Role,
    now: UnixMillis,
) -> Result<&'a ApiKey, Refusal> {
    let known = account.and(key).filter(|key| key.is_valid(now)).ok_or(Refusal::InvalidKey)?;
    if known.role.includes(role) { Ok(known) } else { Err(Refusal::RoleRequired) }
}

/// Issues a key; a rotation shortens the life of the one that it replaces.
///
/// # Errors
/// In this order: [`Refusal::KeyExists`] (the id or the digest is taken by another key), [`Refusal::TooManyKeys`],
/// [`Refusal::NotFound`] (the key to be replaced), [`Refusal::InvalidSetting`] (an overlap that is too long, an end
/// that is past or beyond all time, a label that is no name).
pub fn issue_key(keys: &[ApiKey], new: &NewKey, now: UnixMillis) -> Result<IssuedRows, Refusal> {
    if keys.iter().any(|key| key.id == new.id || key.digest == new.digest) {
        return Err(Refusal::KeyExists);
    }
    if keys.iter().filter(|key| key.is_valid(now)).count() >= KEYS_MAX {
        return Err(Refusal::TooManyKeys { limit: KEYS_MAX });
    }
    let replaced = match &new.replaces {
        Some(Replaced { id, overlap_ms }) => Some(outlived(keys, id, *overlap_ms, now)?),
        None => None,
    };
    if new.expires_at.is_some_and(|at| at <= now) {
        return Err(Refusal::InvalidSetting { what: "`expires_at` is past".into() });
    }
    if new.expires_at.is_some_and(|at| at > UnixMillis(MAX_SAFE)) {
        return Err(Refusal::InvalidSetting { what: "`expires_at` is beyond all time".into() });
    }
    new.label.as_deref().map_or(Ok(()), |label| check_name("label", label))?;
    let key = ApiKey {
        id: new.id.clone(),
        role: new.role,
        digest: new.digest.clone(),
        label: new.label.clone(),
        created_at: now,
        expires_at: new.expires_at,
        revoked_at: None,
    };
    Ok(IssuedRows { key, replaced })
}

/// The old key of a rotation: it ends after the overlap, and never later than it would have.
fn outlived(keys: &[ApiKey], id: &str, overlap_ms: u64, now: UnixMillis) -> Result<ApiKey, Refusal> {
    let old = keys.iter().find(|key| key.id == id && key.is_valid(now)).ok_or(Refusal::NotFound)?;
    if overlap_ms > ROTATION_MAX_MS {
        return Err(Refusal::InvalidSetting { what: format!("`overlap_ms` is above {ROTATION_MAX_MS}") });
    }
    let ends = now.plus(overlap_ms);
    let expires_at = Some(old.expires_at.map_or(ends, |at| at.min(ends)));
    Ok(ApiKey { expires_at, ..old.clone() })
}

/// Revokes a key. The first revocation stands.
///
/// # Errors
/// [`Refusal::NotFound`].
pub fn revoke_key(keys: &[ApiKey], id: &str, now: UnixMillis) -> Result<ApiKey, Refusal> {
    let key = keys.iter().find(|key| key.id == id).ok_or(Refusal::NotFound)?;
    Ok(ApiKey { revoked_at: key.revoked_at.or(Some(now)), ..key.clone() })
}

/// Grants credit. The grant's id makes a repeat harmless: `Ok(None)` means that it was granted before.
///
/// # Errors
/// [`Refusal::PostingConflict`] when the id was used for another amount; [`Refusal::InvalidSetting`] for an id that is no
/// name; [`Refusal::AmountOutOfRange`].
pub fn grant(
    tenant: &TenantState,
    same_id: Option<&Posting>,
    grant_id: &str,
    amount: Micros,
    now: UnixMillis,
) -> Result<Option<PostedRows>, Refusal> {
    if let Some(posting) = same_id {
        return if posting.amount == amount { Ok(None) } else { Err(Refusal::PostingConflict) };
    }
    check_name("id", grant_id)?;
    if amount == Micros::ZERO {
        return Err(Refusal::AmountOutOfRange);
    }
    let posting = Posting::new(grant_posting_id(grant_id), PostingKind::Grant, amount, ReasonCode::Granted, now);
    post(tenant, posting, Micros::ZERO, Some(tenant.slots_in_use), now).map(Some)
}

/// The id of a grant's posting.
#[must_use]
pub fn grant_posting_id(grant_id: &str) -> String {
    format!("grant:{grant_id}")
}

/// The keys of a tenant as they may be shown: everything but the digest.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct KeyView {
    /// Public name.
    pub id: String,
    /// What it may do.
    pub role: Role,
    /// What its owner calls it.
    pub label: Option<String>,
    /// When it was issued.
    pub created_at: UnixMillis,
    /// From when on it is not accepted any more.
    pub expires_at: Option<UnixMillis>,
    /// When it was revoked.
    pub revoked_at: Option<UnixMillis>,
}

impl From<&ApiKey> for KeyView {
    fn from(key: &ApiKey) -> Self {
        Self {
            id: key.id.clone(),
            role: key.role,
            label: key.label.clone(),
            created_at: key.created_at,
            expires_at: key.expires_at,
            revoked_at: key.revoked_at,
        }
    }
}

/// A tenant as the operator sees it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccountView {
    /// Who and in which state.
    #[serde(flatten)]
    pub account: Account,
    /// Credit given.
    pub granted_micros: Micros,
    /// Credit set aside.
    pub held_micros: Micros,
    /// Credit spent.
    pub spent_micros: Micros,
    /// Open holds.
    pub slots_in_use: u32,
}

impl AccountView {
    /// The view of an account and its balances.
    #[must_use]
    pub fn of(account: &Account, tenant: &TenantState) -> Self {
        Self {
            account: account.clone(),
            granted_micros: tenant.balances.granted,
            held_micros: tenant.balances.held,
            spent_micros: tenant.balances.spent,
            slots_in_use: tenant.slots_in_use,
        }
    }
}

/// Keys in the order in which they were issued.
#[must_use]
pub fn views(keys: &[ApiKey]) -> Vec<KeyView> {
    keys.iter().map(KeyView::from).collect()
}
