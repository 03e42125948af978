//! The contract between the edge and the objects, and between the objects. Calls are frames; a test pins their bytes,
//! since Worker and objects of two versions talk to each other during a deploy.
//!
//! A frame is the length of the JSON part (4 bytes, big endian), the JSON part, and raw bytes (a request body, a batch
//! of output) that are never wrapped in JSON.

mod books;
mod directory;
mod generation;
mod operations;

pub use books::{
    BooksCall, BooksReply, GenerationFilter, HoldName, LedgerFilter, PAGE_DEFAULT, PAGE_MAX, Paging, RecordsOf, Span,
};
pub use directory::{DirectoryCall, DirectoryEntry, DirectoryReply};
pub use generation::{GenerationCall, GenerationReply, Responded, StreamForm};
pub use operations::{OperationCall, OperationReply, Swept};

use crate::config::{Condition, ConfigEntry, ConfigVersion};
use crate::ids::{GenerationId, TokenId};
use crate::key::KeyDigest;
use crate::ledger::{Posting, Receipt};
use crate::money::Micros;
use crate::refusal::Refusal;
use crate::reservation::{Detached, RunEnd};
use crate::signature::SecretText;
use crate::tenant::account::{AccountView, Authority, KeyView, NewKey, Status};
use crate::tenant::{Admit, Admitted, Extend};
use crate::token::{Credential, Granted};
use crate::view::BalanceView;
use crate::webhook::{Notice, StateName};
use alloc::boxed::Box;
use alloc::string::String;
use alloc::vec::Vec;
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};

/// Content type of a reply. An answer of any other type is the client's answer and passes through the edge untouched.
pub const REPLY_CONTENT_TYPE: &str = "application/vnd.holdfast.reply+json";

/// A call to a TenantObject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "call", rename_all = "snake_case")]
pub enum TenantCall {
    /// May this request run? Idempotent by generation id.
    Admit(Box<Admit>),
    /// Is this key valid, and is this generation admitted?
    Authenticate {
        /// The caller's key or token. What is outside of a token's limits does not exist for it.
        key: Credential,
        /// A generation that the caller names.
        generation: Option<GenerationId>,
    },
    /// Which generation runs or ran under this idempotency key, on any path?
    FindByIdempotencyKey {
        /// The caller's key or token. What is outside of a token's limits is not found.
        key: Credential,
        /// The idempotency key.
        idempotency_key: String,
    },
    /// Balances and open holds.
    Balance {
        /// The caller's key.
        key: KeyDigest,
    },
    /// A question about the tenant's books.
    Books {
        /// The caller's key.
        key: KeyDigest,
        /// What is asked.
        question: Box<BooksCall>,
    },
    /// May this token be minted?
    MintToken {
        /// The key that mints it.
        key: KeyDigest,
        /// The token's name, made at the edge.
        id: TokenId,
        /// What is asked for: a [`crate::token::TokenRequest`] as the caller wrote it.
        request: String,
    },
    /// An operator, or a key of role `admin`, acts on the account. The tenant that does not exist is refused, unless it
    /// is created.
    Account {
        /// Who acts.
        authority: Authority,
        /// What is to be done.
        action: AccountCall,
    },
    /// Postings of one reservation, in order. Idempotent by posting id.
    Settle {
        /// The postings.
        postings: Vec<Posting>,
        /// How the run ended, once it has: for the measures of its route. The same word twice has one effect.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        run: Option<Box<RunEnd>>,
    },
    /// The result of a run that went on without readers was read after its end. Idempotent.
    ResultRead {
        /// Which run.
        generation: GenerationId,
    },
    /// What the disconnects of each route came to, and which policy they speak for.
    Policy {
        /// The caller's key.
        key: KeyDigest,
        /// Over how long a time, in milliseconds.
        window_ms: u64,
    },
    /// A key of role `admin` acts on the tenant's webhook.
    Webhook {
        /// The caller's key.
        key: KeyDigest,
        /// What is to be done.
        action: WebhookCall,
    },
    /// What a reservation tells about a change that has no posting. Idempotent by the notice's id.
    Notify {
        /// What is told, in order.
        notices: Vec<Notice>,
    },
    /// A further attempt is planned: may its hold be extended? Idempotent by reservation and epoch.
    Extend(Box<Extend>),
    /// A poke: look into what is overdue, whatever became of the alarm. Harmless at any time.
    Sweep,
    /// About an operation at a provider.
    Operation {
        /// The provider's name.
        provider: String,
        /// What is said.
        action: OperationCall,
    },
    /// Which tokens were minted, or the end of one.
    Tokens {
        /// The caller's key, or the token that ends itself.
        key: Credential,
        /// What is to be done.
        action: TokensCall,
    },
    /// Work goes on without a reader, or does so no longer. Idempotent by the number of the place.
    Detached(Box<Detached>),
}

/// What can be done with minted tokens.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum TokensCall {
    /// The latest ones.
    List {
        /// From before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<TokenId>,
        /// At most so many.
        limit: u32,
    },
    /// From the next call on, this one is not accepted. A text that is no id names no token.
    Revoke {
        /// Which.
        id: String,
    },
}

/// What can be done with a tenant's webhook. Where it points is configured.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WebhookCall {
    /// Its state.
    Show,
    /// Replace the secret.
    Rotate {
        /// The new one, made by the edge.
        secret: SecretText,
        /// For how long the old one signs besides; the operator's limit when absent, and no more.
        overlap_ms: Option<u64>,
    },
    /// It is there again.
    Enable,
    /// Send an event that says nothing but that it arrives.
    Test {
        /// Makes its id; letters and digits.
        random: String,
    },
    /// Events in the order in which they were told.
    List {
        /// Only in this state.
        state: Option<StateName>,
        /// From behind this event on.
        after: Option<String>,
        /// At most so many.
        limit: u32,
    },
    /// Send a dead letter again.
    Replay {
        /// The event.
        id: String,
    },
}

/// What can be done with an account.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "account", rename_all = "snake_case")]
pub enum AccountCall {
    /// Make the tenant, or find it made. Operator only.
    Create,
    /// Account and balances.
    Show,
    /// Suspend or resume. Operator only.
    SetStatus {
        /// The new status.
        status: Status,
    },
    /// Grant credit. Operator only; idempotent by id.
    Grant {
        /// Names the grant.
        grant_id: String,
        /// How much.
        amount: Micros,
    },
    /// Issue a key.
    IssueKey {
        /// Which.
        key: NewKey,
    },
    /// All keys, without their digests.
    ListKeys,
    /// Revoke a key: from the next call on it is not accepted.
    RevokeKey {
        /// Which.
        id: String,
    },
    /// Replace the configuration. The same document put again is the same version.
    PutConfig {
        /// The document.
        document: String,
        /// What must hold.
        condition: Condition,
    },
    /// A version of the configuration.
    ShowConfig {
        /// Which; the current one when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        version: Option<u64>,
    },
    /// The versions, the latest first.
    ListConfigs {
        /// From before this one.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        before: Option<u64>,
        /// At most so many.
        limit: u32,
    },
    /// What is wrong with a document, and which route would take a request? Nothing is stored.
    CheckConfig {
        /// The document; the current one when absent.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        document: Option<String>,
        /// The request: a [`TrialRequest`](crate::config::TrialRequest) as JSON.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        request: Option<String>,
    },
}

/// The answer of a TenantObject.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(tag = "reply", rename_all = "snake_case")]
pub enum TenantReply {
    /// The request may run, or joins one that does.
    Admitted(Box<Admitted>),
    /// The key is valid.
    Authenticated {
        /// What the named generation was admitted under, if it is this tenant's.
        admitted: Option<Box<Admitted>>,
    },
    /// The generation under an idempotency key, if there is one.
    Found {
        /// Which.
        generation: Option<GenerationId>,
    },
    /// Balances and open holds.
    Balance(Box<BalanceView>),
    /// What the books say.
    Books(Box<BooksReply>),
    /// What the token says that may be minted; the edge signs it.
    Granted(Granted),
    /// The account after a call on it.
    Account(Box<AccountView>),
    /// The keys of the tenant, or the one that was issued or revoked.
    Keys {
        /// In the order in which they were issued.
        keys: Vec<KeyView>,
    },
    /// A version of the configuration; 0 before the first.
    Config(Box<ConfigVersion>),
    /// The configuration is in force, now or before.
    ConfigPut {
        /// Its version.
        entry: ConfigEntry,
        /// What works, and hardly as it was meant: a JSON list of [`ConfigFault`](crate::config::ConfigFault). What the
        /// object has written, nobody reads and writes again on the way.
        warnings: String,
    },
    /// The document cannot be served from. Nothing changed.
    ConfigRefused {
        /// How many errors.
        count: u64,
        /// All of them, as a JSON list.
        errors: String,
        /// As in [`Self::ConfigPut`].
        warnings: String,
    },
    /// Versions of the configuration.
    Configs {
        /// The latest first.
        entries: Vec<ConfigEntry>,
    },
    /// A document was checked.
    ConfigChecked {
        /// A [`ConfigCheck`](crate::config::ConfigCheck) as JSON.
        check: String,
    },
    /// Every posting is applied, now or before.
    Settled {
        /// When, and with which effects, in the order of the postings.
        #[serde(default, skip_serializing_if = "Vec::is_empty")]
        receipts: Vec<Receipt>,
    },
    /// The webhook, or deliveries, as the API shows them; see [`crate::webhook::view`].
    Webhook {
        /// JSON.
        document: String,
    },
    /// Tokens, or the one that was revoked, as the API shows them.
    Tokens {
        /// JSON.
        document: String,
    },
    /// What was told is noted, now or before, or nobody is to be told.
    Noted,
    /// The report: [`crate::tenant::PolicyReport`] as text, which the edge hands on as it is.
    Policy {
        /// The document.
        document: String,
    },
    /// The hold is extended by the amount asked for, now or before.
    Extended,
    /// What a poke did.
    Swept(Swept),
    /// What is known of an operation.
    Operation(OperationReply),
    /// Refused; nothing changed.
    Refused {
        /// Why.
        refusal: Refusal,
    },
}

/// The frame is malformed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct MalformedFrame(pub String);

/// Packs a call with its raw bytes.
///
/// # Errors
/// [`MalformedFrame`] when the call does not serialize or is above 4 GiB.
pub fn encode<T: Serialize>(call: &T, raw: &[u8]) -> Result<Vec<u8>, MalformedFrame> {
    let json = serde_json::to_vec(call).map_err(|error| MalformedFrame(alloc::format!("{error}")))?;
    let length = u32::try_from(json.len()).map_err(|_| MalformedFrame("too long".into()))?;
    let mut frame = Vec::with_capacity(json.len().saturating_add(raw.len()).saturating_add(4));
    frame.extend_from_slice(&length.to_be_bytes());
    frame.extend_from_slice(&json);
    frame.extend_from_slice(raw);
    Ok(frame)
}

/// Unpacks a call and its raw bytes.
///
/// # Errors
/// [`MalformedFrame`] when the frame is cut or its JSON is not a known call.
pub fn decode<T: DeserializeOwned>(mut frame: Vec<u8>) -> Result<(T, Vec<u8>), MalformedFrame> {
    let cut = || MalformedFrame("cut".into());
    let length = frame.first_chunk::<4>().map(|bytes| u32::from_be_bytes(*bytes)).ok_or_else(cut)?;
    let end = usize::try_from(length).ok().and_then(|length| length.checked_add(4)).ok_or_else(cut)?;
    let json = frame.get(4..end).ok_or_else(cut)?;
    let call = serde_json::from_slice(json).map_err(|error| MalformedFrame(alloc::format!("{error}")))?;
    frame.drain(..end);
    Ok((call, frame))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evidence::Disposition;

    /// Objects and Workers of two versions talk during a deploy: these bytes may gain members, never lose or change them.
    #[test]
    fn bytes_are_pinned() {
        let call = GenerationCall::Append {
            epoch: 1,
            offset: 7,
            response: None,
            received: true,
            client_attached: true,
            furthest_offset: 5,
        };
        let frame = encode(&call, b"data").unwrap();
        assert_eq!(
            frame,
            b"\0\0\0\x61{\"call\":\"append\",\"epoch\":1,\"offset\":7,\"received\":true,\"client_attached\":true,\"furthest_offset\":5}data"
        );
        assert_eq!(decode::<GenerationCall>(frame), Ok((call, b"data".to_vec())));
        let stream = GenerationCall::Stream { form: StreamForm::Raw { offset: 3 } };
        assert_eq!(serde_json::to_string(&stream).unwrap(), r#"{"call":"stream","form":"raw","offset":3}"#);
        assert_eq!(
            serde_json::from_str::<GenerationCall>(r#"{"call":"stream","form":"raw","offset":3}"#).unwrap(),
            stream
        );
        let refused = TenantReply::Refused { refusal: Refusal::ConcurrencyExceeded { limit: 2 } };
        assert_eq!(
            serde_json::to_string(&refused).unwrap(),
            r#"{"reply":"refused","refusal":{"refusal":"concurrency_exceeded","limit":2}}"#
        );
        let asked = r#"{"call":"authenticate","key":"ab","generation":null}"#;
        let call = TenantCall::Authenticate { key: KeyDigest("ab".into()).into(), generation: None };
        assert_eq!(serde_json::to_string(&call).unwrap(), asked, "a key as before there were tokens");
        assert_eq!(serde_json::from_str::<TenantCall>(asked).unwrap(), call);
        let minting = r#"{"call":"mint_token","key":"ab","id":"tok_01010101010101010101010101010101","request":"{}"}"#;
        let call = serde_json::from_str::<TenantCall>(minting).unwrap();
        assert_eq!(serde_json::to_string(&call).unwrap(), minting);
        let notify =
            r#"{"call":"notify","notices":[{"id":"evt_1_2_expired","type":"generation.expired","at":1,"body":"{}"}]}"#;
        let call = serde_json::from_str::<TenantCall>(notify).unwrap();
        assert_eq!(serde_json::to_string(&call).unwrap(), notify);
        let action = WebhookCall::Replay { id: "evt_1".into() };
        assert_eq!(serde_json::to_string(&action).unwrap(), r#"{"replay":{"id":"evt_1"}}"#);
        let settle = TenantCall::Settle { postings: Vec::new(), run: None };
        assert_eq!(serde_json::to_string(&settle).unwrap(), r#"{"call":"settle","postings":[]}"#);
        assert_eq!(serde_json::from_str::<TenantCall>(r#"{"call":"settle","postings":[]}"#).unwrap(), settle);
        for settled in [
            r#"{"reply":"settled"}"#,
            r#"{"reply":"settled","receipts":[{"posting_id":"p","recorded_at":7,"credit_returned":5,"slot_returned":true}]}"#,
        ] {
            let reply = serde_json::from_str::<TenantReply>(settled).unwrap();
            assert_eq!(serde_json::to_string(&reply).unwrap(), settled);
        }
        let generation = GenerationId::from_random([1; 16]);
        assert_eq!(
            serde_json::to_string(&TenantCall::ResultRead { generation }).unwrap(),
            r#"{"call":"result_read","generation":"gen_01010101010101010101010101010101"}"#
        );
        assert_eq!(serde_json::to_string(&TenantReply::Noted).unwrap(), r#"{"reply":"noted"}"#);
        let identity = r#"{"tenant":"t","generation":"gen_01010101010101010101010101010101","reservation":"res_02020202020202020202020202020202"}"#;
        let bytes = alloc::format!(r#"{{"call":"extend","identity":{identity},"epoch":2,"amount":7}}"#);
        let extend = serde_json::from_str::<TenantCall>(&bytes).unwrap();
        assert!(matches!(&extend, TenantCall::Extend(extend) if extend.epoch == 2));
        assert_eq!(serde_json::to_string(&extend).unwrap(), bytes);
        let bytes =
            alloc::format!(r#"{{"call":"detached","identity":{identity},"place":{{"number":3,"taken":true}}}}"#);
        let detached = serde_json::from_str::<TenantCall>(&bytes).unwrap();
        assert!(matches!(&detached, TenantCall::Detached(told) if told.place.taken));
        assert_eq!(serde_json::to_string(&detached).unwrap(), bytes);
        assert_eq!(serde_json::to_string(&TenantReply::Extended).unwrap(), r#"{"reply":"extended"}"#);
        for pinned in [
            r#"{"call":"sweep"}"#.into(),
            alloc::format!(r#"{{"call":"operation","provider":"p","action":{{"named":{{"identity":{identity},"operation_id":"resp_1"}}}}}}"#),
            r#"{"call":"operation","provider":"p","action":{"called":{"event":{"event_id":"evt_1","operation_id":"resp_1","outcome":"completed"}}}}"#.into(),
        ] {
            let call = serde_json::from_str::<TenantCall>(&pinned).unwrap();
            assert_eq!(serde_json::to_string(&call).unwrap(), pinned);
        }
        for pinned in
            [r#"{"reply":"swept","holds_asked":1,"holds_failed":2,"holds_left":true}"#, r#"{"reply":"operation"}"#]
        {
            let reply = serde_json::from_str::<TenantReply>(pinned).unwrap();
            assert_eq!(serde_json::to_string(&reply).unwrap(), pinned);
        }
        for pinned in [r#"{"call":"sweep_next","limit":3}"#, r#"{"call":"swept_to","tenant":null}"#] {
            let call = serde_json::from_str::<DirectoryCall>(pinned).unwrap();
            assert_eq!(serde_json::to_string(&call).unwrap(), pinned);
        }
        let signal = r#"{"call":"signal","signal":{"event_id":"callback:evt_1","source":"callback","subject":{"by":"operation","operation_id":"resp_1"},"report":{"report":"ended","outcome":"completed","usage":null},"observed_at":7}}"#;
        let call = serde_json::from_str::<GenerationCall>(signal).unwrap();
        assert_eq!(serde_json::to_string(&call).unwrap(), signal);
        let disposition = Disposition::ProcessedWithoutDuplicateEffects;
        assert_eq!(
            serde_json::to_string(&GenerationReply::Signalled { disposition }).unwrap(),
            r#"{"reply":"signalled","disposition":"processed_without_duplicate_effects"}"#
        );
    }

    #[test]
    fn cut_frames_are_refused() {
        let frame = encode(&GenerationCall::Status, b"").unwrap();
        for cut in 0..frame.len() {
            assert!(decode::<GenerationCall>(frame.iter().copied().take(cut).collect()).is_err(), "{cut}");
        }
        assert!(decode::<GenerationCall>(b"\xff\xff\xff\xff{}".to_vec()).is_err());
    }
}
