//! Signed messages: the published vectors, and whatever must not pass (Standard Webhooks 1.0).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

use holdfast_core::signature::{
    MalformedSecret, SignatureError, SignedHeaders, SigningSecret, TOLERANCE_S, sign, verify,
};
use holdfast_core::time::UnixMillis;
use proptest::prelude::*;

/// A published vector: secret, id, timestamp, body, signature.
struct Vector {
    secret: &'static str,
    id: &'static str,
    timestamp_s: u64,
    body: &'static [u8],
    signature: &'static str,
}

/// The test of the reference libraries of Standard Webhooks, and the one of OpenAI's SDKs.
const VECTORS: [Vector; 2] = [
    Vector {
        secret: "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        id: "msg_p5jXN8AQM9LWM0D4loKWxJek",
        timestamp_s: 1_614_265_330,
        body: br#"{"test": 2432232314}"#,
        signature: "v1,g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE=",
    },
    Vector {
        secret: "whsec_RdvaYFYUXuIFuEbvZHwMfYFhUf7aMYjYcmM24+Aj40c=",
        id: "wh_685c059ae39c8190af8c71ed1022a24d",
        timestamp_s: 1_750_861_210,
        body: br#"{"id": "evt_685c059ae3a481909bdc86819b066fb6", "object": "event", "created_at": 1750861210, "type": "response.completed", "data": {"id": "resp_123"}}"#,
        signature: "v1,gUAg4R2hWouRZqRQG4uJypNS8YK885G838+EHb4nKBY=",
    },
];

const OTHER: &str = "v1,AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA=";

impl Vector {
    fn secrets(&self) -> Vec<SigningSecret> {
        vec![SigningSecret::parse(self.secret).unwrap()]
    }

    fn now(&self) -> UnixMillis {
        UnixMillis(self.timestamp_s * 1_000 + 999)
    }

    fn check(&self, signatures: &str, now: UnixMillis) -> Result<UnixMillis, SignatureError> {
        let timestamp = self.timestamp_s.to_string();
        verify(&self.secrets(), &SignedHeaders { id: self.id, timestamp: &timestamp, signatures }, self.body, now)
    }
}

#[test]
fn published_vectors() {
    for vector in VECTORS {
        let made = sign(&vector.secrets(), vector.id, vector.timestamp_s, vector.body);
        assert_eq!(made.as_deref(), Some(vector.signature), "{}", vector.id);
        assert_eq!(vector.check(vector.signature, vector.now()), Ok(UnixMillis(vector.timestamp_s * 1_000)));
    }
}

/// Reliability reference 5: 300 s both ways, and not a second more.
#[test]
fn the_timestamp_may_be_five_minutes_away() {
    let [vector, _] = &VECTORS;
    let sent = vector.timestamp_s;
    for (now_s, verdict) in [
        (sent, None),
        (sent + TOLERANCE_S, None),
        (sent + TOLERANCE_S + 1, Some(SignatureError::TooOld)),
        (sent - TOLERANCE_S, None),
        (sent - TOLERANCE_S - 1, Some(SignatureError::TooNew)),
        (0, Some(SignatureError::TooNew)),
    ] {
        assert_eq!(vector.check(vector.signature, UnixMillis(now_s * 1_000)).err(), verdict, "{now_s}");
    }
}

/// Every listed signature is tried, other versions are passed over, and a list without a right one is refused.
#[test]
fn lists_of_signatures() {
    let [vector, _] = &VECTORS;
    let right = vector.signature;
    let bare = right.trim_start_matches("v1,");
    for (signatures, accepted) in [
        (right.to_owned(), true),
        (format!("{OTHER} {right}"), true),
        (format!("{right} {OTHER}"), true),
        (format!("v1a,{bare} {right}"), true),
        (format!("v1,%%% v1, {right}"), true),
        (format!("  {right} "), true),
        (String::new(), false),
        ("v1,".into(), false),
        (OTHER.into(), false),
        (bare.into(), false),
        (format!("v1a,{bare}"), false),
        (format!("v2,{bare}"), false),
        (format!("V1,{bare}"), false),
        (right.trim_end_matches('=').into(), false),
        (right.replace("1OE=", "1OF="), false),
        (right.trim_end_matches("1OE=").into(), false),
        (right.replace(' ', ","), true),
        (format!("{right},{OTHER}"), false),
    ] {
        let verdict = vector.check(&signatures, vector.now());
        let expected = if accepted { None } else { Some(SignatureError::NoMatch) };
        assert_eq!(verdict.err(), expected, "{signatures}");
    }
}

#[test]
fn ids_and_timestamps_that_are_none() {
    let [vector, _] = &VECTORS;
    let check = |id: &str, timestamp: &str| {
        let headers = SignedHeaders { id, timestamp, signatures: vector.signature };
        verify(&vector.secrets(), &headers, vector.body, vector.now()).unwrap_err()
    };
    let timestamp = vector.timestamp_s.to_string();
    for id in ["", "a.b", "a b", "a\n", "ä", &"a".repeat(257)] {
        assert_eq!(check(id, &timestamp), SignatureError::MalformedId, "{id}");
    }
    for bad in ["", "-1", "+1614265330", "1614265330.0", "1614265330 ", "0x5f", "١٦١٤", "1614265330000", "NaN"] {
        assert_eq!(check(vector.id, bad), SignatureError::MalformedTimestamp, "{bad}");
    }
}

/// A dot in an id would let bytes move between id, timestamp and body under the same signature.
#[test]
fn an_id_cannot_be_cut_anew() {
    let secrets = VECTORS[0].secrets();
    let signature = sign(&secrets, "a", 5, b"6.body").unwrap();
    assert_eq!(sign(&secrets, "a.5", 6, b"body").unwrap(), signature, "the same bytes are signed");
    let headers = SignedHeaders { id: "a.5", timestamp: "6", signatures: &signature };
    assert_eq!(verify(&secrets, &headers, b"body", UnixMillis(6_000)), Err(SignatureError::MalformedId));
}

/// Seen elsewhere: a webhook verified with an empty secret gave away credit (reliability reference 3.1).
#[test]
fn without_a_secret_nothing_passes() {
    let [vector, _] = &VECTORS;
    let timestamp = vector.timestamp_s.to_string();
    let headers = SignedHeaders { id: vector.id, timestamp: &timestamp, signatures: vector.signature };
    assert_eq!(verify(&[], &headers, vector.body, vector.now()), Err(SignatureError::NoSecret));
    assert_eq!(sign(&[], vector.id, vector.timestamp_s, vector.body), None);
    for bad in [
        "",
        "whsec_",
        "whsec_AAAA",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS",
        "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whpk_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
        "whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaS!",
        " whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw",
    ] {
        assert_eq!(SigningSecret::parse(bad).err(), Some(MalformedSecret), "{bad}");
    }
}

/// 24 to 64 bytes.
#[test]
fn lengths_of_secrets() {
    use base64ct::{Base64, Encoding};
    for (bytes, accepted) in [(0, false), (23, false), (24, true), (32, true), (64, true), (65, false)] {
        let encoded = Base64::encode_string(&vec![7_u8; bytes]);
        for text in [format!("whsec_{encoded}"), format!("whsec_{}", encoded.trim_end_matches('='))] {
            assert_eq!(SigningSecret::parse(&text).is_ok(), accepted, "{bytes}");
        }
    }
}

#[test]
fn a_secret_shows_itself_once() {
    let secret = SigningSecret::from_random([7; 32]);
    assert_eq!(format!("{secret:?}"), "SigningSecret(whsec_…)");
    let text = secret.reveal();
    assert_eq!(text, "whsec_BwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwcHBwc=");
    assert_eq!(SigningSecret::parse(&text).unwrap().reveal(), text);
}

/// While a secret is replaced a message has two signatures, and either side may still have only one of the secrets.
#[test]
fn two_secrets_overlap() {
    let [old, new, strange] = [1, 2, 3].map(|n| SigningSecret::from_random([n; 32]));
    let both = sign(&[new.clone(), old.clone()], "evt_1", 100, b"{}").unwrap();
    assert_eq!(both.split(' ').count(), 2);
    let headers = SignedHeaders { id: "evt_1", timestamp: "100", signatures: &both };
    let check = |secrets: &[SigningSecret]| verify(secrets, &headers, b"{}", UnixMillis(100_000)).err();
    assert_eq!(check(std::slice::from_ref(&old)), None);
    assert_eq!(check(std::slice::from_ref(&new)), None);
    assert_eq!(check(&[strange.clone(), old]), None, "each secret is tried");
    assert_eq!(check(&[strange]), Some(SignatureError::NoMatch));
}

proptest! {
    #![proptest_config(ProptestConfig { failure_persistence: None, ..ProptestConfig::default() })]

    /// What was signed is accepted, any body, text or not; and not once a byte of it, of its id or its time is another.
    #[test]
    fn signed_bytes_and_no_others(
        key in any::<[u8; 32]>(),
        id in "[A-Za-z0-9_-]{1,40}",
        sent_s in 1_000_000_u64..4_000_000_000,
        body in proptest::collection::vec(any::<u8>(), 1..200),
        at in any::<proptest::sample::Index>(),
    ) {
        let secrets = [SigningSecret::from_random(key)];
        let signatures = sign(&secrets, &id, sent_s, &body).unwrap();
        let check = |id: &str, sent_s: u64, body: &[u8]| {
            let timestamp = sent_s.to_string();
            verify(&secrets, &SignedHeaders { id, timestamp: &timestamp, signatures: &signatures }, body, UnixMillis(sent_s * 1_000))
        };
        prop_assert!(check(&id, sent_s, &body).is_ok());
        let mut other = body.clone();
        other[at.index(body.len())] ^= 1;
        prop_assert_eq!(check(&id, sent_s, &other), Err(SignatureError::NoMatch));
        prop_assert_eq!(check(&id, sent_s + 1, &body), Err(SignatureError::NoMatch));
        prop_assert_eq!(check(&format!("{id}x"), sent_s, &body), Err(SignatureError::NoMatch));
    }
}
