//! Tokens that were minted: who sees them, who ends them, and what an end does.

use super::world::{KEY, START};
use holdfast_core::ids::{TenantId, TokenId};
use holdfast_core::key::KeyDigest;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::account::Role;
use holdfast_core::token::{By, Claims, Credential, May, Minted, TokenView, check_minted};

fn claims(n: u8, key: &str) -> Claims {
    Claims {
        version: 1,
        id: TokenId::from_random([n; 16]),
        tenant: TenantId::parse("t").unwrap(),
        key: key.into(),
        may: May::Run,
        routes: vec!["r".into()],
        origins: Vec::new(),
        generation: None,
        issued_at: START,
        expires_at: START.plus(600_000),
    }
}

/// A derived right is never above its issuer's: a client's key has its own tokens, a token has itself.
#[test]
fn who_has_which_token() {
    let (mine, other) = (claims(1, "key_1"), claims(2, "key_2"));
    for (by, has_mine, has_other) in [
        (By::Key("key_1", Role::Admin), true, true),
        (By::Key("key_1", Role::Client), true, false),
        (By::Token(&mine.id), true, false),
        (By::Token(&other.id), false, true),
        (By::Key("", Role::Client), false, false),
    ] {
        assert_eq!((by.has(&mine), by.has(&other)), (has_mine, has_other), "{by:?}");
    }
}

#[test]
fn a_revoked_token_is_no_key_any_more() {
    let minted = Minted::new(claims(1, "key_1"));
    let token: Credential = minted.claims.clone().into();
    let key: Credential = KeyDigest(KEY.into()).into();
    let revoked = minted.clone().revoked(START.plus(5));
    assert_eq!(revoked.clone().revoked(START.plus(9)), revoked, "the first time stands");
    for (asks, row, expected) in [
        (&token, None, Ok(())),
        (&token, Some(&minted), Ok(())),
        (&token, Some(&revoked), Err(Refusal::InvalidKey)),
        (&key, Some(&revoked), Ok(())),
    ] {
        assert_eq!(check_minted(asks, row), expected);
    }
}

/// Rows are read by later versions; the view has nothing that could be shown as a token.
#[test]
fn bytes_of_a_minted_token_are_pinned() {
    let minted = Minted::new(claims(1, "key_1"));
    let bytes = r#"{"claims":{"v":1,"id":"tok_01010101010101010101010101010101","tenant":"t","key":"key_1","may":"run","routes":["r"],"issued_at":1795996800000,"expires_at":1795997400000}}"#;
    assert_eq!(serde_json::to_string(&minted).unwrap(), bytes);
    assert_eq!(serde_json::from_str::<Minted>(bytes).unwrap(), minted);
    assert_eq!(
        serde_json::to_string(&TokenView::from(&minted.revoked(START))).unwrap(),
        r#"{"object":"token","id":"tok_01010101010101010101010101010101","key_id":"key_1","may":"run","routes":["r"],"origins":[],"generation_id":null,"issued_at":1795996800000,"expires_at":1795997400000,"revoked_at":1795996800000}"#
    );
}
