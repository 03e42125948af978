//! Keys and roles: issued, rotated, revoked, expired.

use super::world::{START, account, micros};
use holdfast_core::key::KeyDigest;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::TenantState;
use holdfast_core::tenant::account::{
    ApiKey, KEYS_MAX, NAME_MAX_CHARS, NewKey, ROTATION_MAX_MS, Replaced, Role, Status, authenticate, create, grant,
    issue_key, revoke_key,
};
use holdfast_core::time::UnixMillis;

fn digest(n: usize) -> KeyDigest {
    KeyDigest(format!("{n:064x}"))
}

fn new_key(n: usize) -> NewKey {
    NewKey {
        id: format!("key_{n}"),
        role: Role::Client,
        digest: digest(n),
        label: None,
        expires_at: None,
        replaces: None,
    }
}

fn issued(n: usize) -> ApiKey {
    issue_key(&[], &new_key(n), START).unwrap().key
}

#[test]
fn creating_a_tenant_is_idempotent() {
    let id = account().id;
    let (first, new) = create(None, &id, START);
    assert!(new && first.status == Status::Active && first.config_version == 0);
    let later = START.plus(5);
    assert_eq!(create(Some(&account()), &id, later), (account(), false), "the recorded one stands");
}

/// Unknown, revoked and expired are one answer; a role is a second question.
#[test]
fn who_may_call() {
    let key = issued(1);
    let revoked = ApiKey { revoked_at: Some(START), ..key.clone() };
    let expiring = ApiKey { expires_at: Some(START.plus(10)), ..key.clone() };
    let admin = ApiKey { role: Role::Admin, ..key.clone() };
    let at = |ms| START.plus(ms);
    for (name, account, key, role, now, refused) in [
        ("valid", Some(account()), Some(&key), Role::Client, at(0), None),
        ("no tenant", None, Some(&key), Role::Client, at(0), Some(Refusal::InvalidKey)),
        ("no key", Some(account()), None, Role::Client, at(0), Some(Refusal::InvalidKey)),
        ("revoked", Some(account()), Some(&revoked), Role::Client, at(0), Some(Refusal::InvalidKey)),
        ("before its end", Some(account()), Some(&expiring), Role::Client, at(9), None),
        ("at its end", Some(account()), Some(&expiring), Role::Client, at(10), Some(Refusal::InvalidKey)),
        ("client as admin", Some(account()), Some(&key), Role::Admin, at(0), Some(Refusal::RoleRequired)),
        ("revoked as admin", Some(account()), Some(&revoked), Role::Admin, at(0), Some(Refusal::InvalidKey)),
        ("admin", Some(account()), Some(&admin), Role::Admin, at(0), None),
        ("admin as client", Some(account()), Some(&admin), Role::Client, at(0), None),
    ] {
        let said = authenticate(account.as_ref(), key, role, now).err();
        assert_eq!(said, refused, "{name}");
    }
}

#[test]
fn a_rotation_overlaps_and_never_prolongs() {
    let rotate = |old: &ApiKey, overlap_ms| {
        let new = NewKey { replaces: Some(Replaced { id: old.id.clone(), overlap_ms }), ..new_key(2) };
        issue_key(std::slice::from_ref(old), &new, START).map(|rows| rows.replaced.unwrap().expires_at)
    };
    let old = issued(1);
    assert_eq!(rotate(&old, 60_000), Ok(Some(START.plus(60_000))));
    assert_eq!(rotate(&old, 0), Ok(Some(START)), "at once");
    assert_eq!(rotate(&old, ROTATION_MAX_MS), Ok(Some(START.plus(ROTATION_MAX_MS))));
    let too_long = format!("`overlap_ms` is above {ROTATION_MAX_MS}");
    assert_eq!(rotate(&old, ROTATION_MAX_MS + 1), Err(Refusal::InvalidSetting { what: too_long }));
    let ending = ApiKey { expires_at: Some(START.plus(5)), ..old.clone() };
    assert_eq!(rotate(&ending, 60_000), Ok(Some(START.plus(5))), "it would have ended before");
    let revoked = ApiKey { revoked_at: Some(START), ..old };
    assert_eq!(rotate(&revoked, 0), Err(Refusal::NotFound), "a revoked key is not replaced");
}

#[test]
fn refusals_of_a_new_key() {
    let keys: Vec<ApiKey> = (0..KEYS_MAX).map(issued).collect();
    let few = &keys[..1];
    let again = |id: usize, digest_of: usize| NewKey { digest: digest(digest_of), ..new_key(id) };
    assert_eq!(issue_key(few, &again(0, 500), START), Err(Refusal::KeyExists), "the id");
    assert_eq!(issue_key(few, &again(500, 0), START), Err(Refusal::KeyExists), "the digest");
    assert_eq!(issue_key(&keys, &new_key(500), START), Err(Refusal::TooManyKeys { limit: KEYS_MAX }));
    let mut one_less = keys.clone();
    one_less[3].revoked_at = Some(START);
    assert!(issue_key(&one_less, &new_key(500), START).is_ok(), "a revoked key takes no place");
    let unknown = NewKey { replaces: Some(Replaced { id: "key_9".into(), overlap_ms: 0 }), ..new_key(500) };
    assert_eq!(issue_key(few, &unknown, START), Err(Refusal::NotFound));
    let past = NewKey { expires_at: Some(UnixMillis(START.0 - 1)), ..new_key(500) };
    assert_eq!(issue_key(few, &past, START), Err(Refusal::InvalidSetting { what: "`expires_at` is past".into() }));
}

/// What somebody calls a key or a grant is stored, listed and audited as it is.
#[test]
fn names_are_bounded() {
    let longest = "é".repeat(NAME_MAX_CHARS);
    for (name, fits) in [
        ("a", true),
        ("the app's key, 2026", true),
        (longest.as_str(), true),
        ("", false),
        ("a\nb", false),
        ("a\0", false),
        ("\u{85}", false),
        (&format!("{longest}x"), false),
        (&"x".repeat(1_000_000), false),
    ] {
        let labelled = NewKey { label: Some(name.into()), ..new_key(1) };
        let issued = issue_key(&[], &labelled, START);
        let granted = grant(&TenantState::default(), None, name, micros(1), START);
        assert_eq!((issued.is_ok(), granted.is_ok()), (fits, fits), "{:.20}", name.escape_debug());
        for refusal in [issued.err(), granted.err()].into_iter().flatten() {
            assert!(matches!(&refusal, Refusal::InvalidSetting { what } if what.contains("128")), "{refusal:?}");
        }
    }
    for (at, fits) in [((1 << 53) - 1, true), (1 << 53, false), (u64::MAX, false)] {
        let ends = NewKey { expires_at: Some(UnixMillis(at)), ..new_key(1) };
        assert_eq!(issue_key(&[], &ends, START).is_ok(), fits, "{at}");
    }
}

#[test]
fn the_first_revocation_stands() {
    let keys = [issued(1)];
    let revoked = revoke_key(&keys, "key_1", START).unwrap();
    assert_eq!(revoked.revoked_at, Some(START));
    let again = revoke_key(std::slice::from_ref(&revoked), "key_1", START.plus(9)).unwrap();
    assert_eq!(again, revoked);
    assert_eq!(revoke_key(&keys, "key_2", START), Err(Refusal::NotFound));
}
