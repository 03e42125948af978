//! What stands fixed around a run: ids, prices, routes, limits.

use crate::config::{Config, Requests, TICK_MS, Variant};
use crate::state::{Fate, Outcome, Piece, Reported};
use crate::step::Step;
use holdfast_core::config::{Limits, Provider, TenantConfig, parse_providers};
use holdfast_core::dialect::{Dialect, error_terminal};
use holdfast_core::ids::{AttemptId, GenerationId, Identity, ReservationId, TenantId};
use holdfast_core::key::KeyDigest;
use holdfast_core::money::Micros;
use holdfast_core::policy::{OnDisconnect, Owner, Terms};
use holdfast_core::reconcile;
use holdfast_core::reservation::{Report, ResponseHead};
use holdfast_core::tenant::Admit;
use holdfast_core::tenant::account::{Account, Status};
use holdfast_core::time::UnixMillis;
use holdfast_core::usage::Usage;
use std::collections::BTreeMap;

/// When the first request comes.
pub const START: UnixMillis = UnixMillis(1_795_996_800_000);
/// Largest request body: no more input tokens than this.
pub const BODY_BYTES: u64 = 100;
/// Input tokens that the provider counts.
pub const INPUT_TOKENS: u64 = 60;
/// Most output tokens of a request.
pub const OUTPUT_TOKENS: u64 = 1_200;
/// One micro-USD per token: the worst case.
pub const HOLD: u64 = BODY_BYTES + OUTPUT_TOKENS;
/// Output tokens of a usage above the hold.
pub const TOKENS_ABOVE_HOLD: u64 = 5_000;
const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// Ticks within which everything but a sweep has happened.
const SWEEP_AFTER_ALL: u64 = 600;
const PATH: &str = "/v1/chat/completions";
const TERMINAL_BYTES: u64 = 50;
const BODY_PIECE_BYTES: u64 = 90;

/// What the objects read from their settings.
#[derive(Debug)]
pub struct Setting {
    /// Who the tenant is.
    pub account: Account,
    /// Its credit.
    pub grant: Micros,
    /// Its configuration.
    pub tenant: TenantConfig,
    /// Its provider.
    pub providers: Vec<Provider>,
    /// Bounds.
    pub limits: Limits,
}

impl Setting {
    /// The settings of a variant.
    ///
    /// # Panics
    /// When the rules refuse them.
    #[must_use]
    pub fn of(config: &Config, variant: &Variant) -> Self {
        let providers = parse_providers(&format!(
            r#"[{{"name":"p","origin":"https://p.example","dialect":"openai-chat","secret":"K","prices":{{"version":"v1","models":[
                {{"model":"m","input_micros_per_million":1000000,"output_micros_per_million":1000000,"hidden_output":{}}}]}}}}]"#,
            variant.hidden_output
        ))
        .expect("well-formed providers");
        let owner = if variant.owner == Owner::Edge { "edge" } else { "object" };
        let policy = if variant.on_disconnect == OnDisconnect::Cancel { "cancel" } else { "detach" };
        let slots = if variant.requests == Requests::OneSlot { 1 } else { 2 };
        let detached = variant.detached_max.map_or(String::new(), |max| format!(r#""detached_max":{max},"#));
        let grant = if variant.tight_budget { HOLD } else { 100_000 };
        let ms = |ticks: u64| ticks * TICK_MS;
        let tenants = format!(
            r#"{{"budget":{{"limit_micros":50000,"period":"day"}},"concurrency":{slots},{detached}
                "routes":[{{"name":"r","provider":"p","owner":"{owner}","on_disconnect":"{policy}","grace_ms":{},
                    "max_output_tokens":{OUTPUT_TOKENS},"lease_ms":{},"first_byte_ms":{},"idle_ms":{},"total_ms":{},
                    "observation_ms":{},"retention_s":3600}}]}}"#,
            ms(variant.grace_ticks),
            ms(if variant.brief { 1 } else { config.lease_ticks }),
            ms(config.silence_ticks),
            ms(config.silence_ticks),
            ms(variant.total_ticks.unwrap_or(config.total_ticks)),
            ms(variant.observation_ticks),
        );
        let tenant: TenantConfig = serde_json::from_str(&tenants).expect("a well-formed document");
        let limits = Limits {
            // One piece waits for the next one, or for the timer.
            batch_bytes: config.piece_bytes + 1,
            heartbeat_ms: TICK_MS,
            start_grace_ms: ms(if variant.brief { SWEEP_AFTER_ALL } else { config.start_grace_ticks }),
            ..Limits::default()
        };
        let account = Account { id: tenant_id(), status: Status::Active, created_at: START, config_version: 1 };
        Self { account, grant: micros(grant), tenant, providers, limits }
    }
}

/// What a variant says of its provider's capabilities and of an open outcome, put into the terms that admission makes.
#[must_use]
pub fn terms_of(variant: &Variant, terms: &Terms) -> Terms {
    Terms {
        capabilities: variant.capabilities,
        on_expiry: variant.on_expiry,
        slot_on_expiry: variant.slot_on_expiry,
        on_interruption: variant.on_interruption,
        escalate_above: variant.high_value.then_some(Micros::ZERO),
        watch_ms: variant.watch_ticks * TICK_MS,
        ..terms.clone()
    }
}

/// The provider's id for an attempt's operation.
#[must_use]
pub fn operation_id(attempt: u8) -> String {
    format!("operation-{attempt}")
}

/// Which attempt an operation belongs to.
#[must_use]
pub fn attempt_of(operation_id: &str) -> u8 {
    operation_id.rsplit('-').next().and_then(|n| n.parse().ok()).unwrap_or(u8::MAX)
}

/// Output tokens that the provider has streamed for an attempt.
#[must_use]
pub(crate) fn tokens_streamed(step: &Step<'_>, g: usize, attempt: u8) -> u64 {
    let sent = step.state.generations[g].operation(attempt).map_or(0, |operation| operation.sent);
    tokens_of(step.variant(), u64::from(sent) * step.config().piece_bytes)
}

/// What the provider says of an operation when it is asked.
#[must_use]
pub(crate) fn report_of(step: &Step<'_>, g: usize, attempt: u8) -> Report {
    let tokens = tokens_streamed(step, g, attempt);
    let ended = |outcome, usage| Report::Ended { outcome, usage };
    match step.state.generations[g].operation(attempt).map(|operation| operation.fate) {
        Some(Fate::Running) => Report::Processing,
        Some(Fate::Completed(reported)) => ended(reconcile::Outcome::Completed, usage_of(reported, tokens)),
        Some(Fate::Cancelled(reported)) => ended(reconcile::Outcome::Cancelled, usage_of(reported, tokens)),
        Some(Fate::Unbilled) => ended(reconcile::Outcome::Failed, None),
        Some(Fate::Idle | Fate::NotReached) | None => Report::Unknown,
    }
}

/// The ids of a request.
///
/// # Panics
/// Never: the tenant's name is well formed.
#[must_use]
pub fn identity(n: usize) -> Identity {
    let bits = [u8::try_from(n).unwrap_or(u8::MAX); 16];
    Identity {
        tenant: TenantId::parse("t").expect("well-formed"),
        generation: GenerationId::from_random(bits),
        reservation: ReservationId::from_random(bits),
    }
}

/// The attempt that a request plans.
#[must_use]
pub fn attempt(n: usize) -> AttemptId {
    AttemptId::from_random([u8::try_from(n).unwrap_or(u8::MAX); 16])
}

fn tenant_id() -> TenantId {
    TenantId::parse("t").expect("a tenant's id")
}

fn micros(amount: u64) -> Micros {
    Micros::new(amount).expect("an amount")
}

/// The Admit of a request.
#[must_use]
pub fn admission(variant: &Variant, n: usize) -> Admit {
    Admit {
        identity: identity(n),
        attempt: attempt(n),
        key: KeyDigest(KEY.into()).into(),
        path: PATH.into(),
        model: "m".into(),
        streaming: variant.streaming,
        include_usage: true,
        max_output_tokens: None,
        choices: 1,
        body_bytes: BODY_BYTES,
        fingerprint: "the body".into(),
        headers: BTreeMap::new(),
        on_disconnect: None,
        workload: None,
        run: None,
        forward: BTreeMap::new(),
        background: Default::default(),
        idempotency_key: (variant.requests == Requests::SameKey).then(|| "key".into()),
    }
}

/// Length of stored pieces in bytes.
#[must_use]
pub fn length_of(pieces: &[Piece]) -> u64 {
    pieces.iter().map(|piece| piece_length(*piece)).sum()
}

fn piece_length(piece: Piece) -> u64 {
    match piece {
        Piece::Content { bytes, .. } => u64::from(bytes),
        Piece::Terminal(_) => TERMINAL_BYTES,
        Piece::Body => BODY_PIECE_BYTES,
        Piece::Error(bytes) => bytes,
    }
}

/// Content bytes of pieces: the basis of an estimate. The counter that finds them in real bytes has tests of its own.
#[must_use]
pub fn content_of(pieces: &[Piece]) -> u64 {
    let content = |piece: &Piece| matches!(piece, Piece::Content { .. });
    pieces.iter().filter(|piece| content(piece)).map(|piece| piece_length(*piece)).sum()
}

/// The usage that the provider reports after `tokens` output tokens.
#[must_use]
pub fn usage_of(reported: Reported, tokens: u64) -> Option<Usage> {
    let output_tokens = match reported {
        Reported::Streamed => tokens,
        Reported::AboveHold => TOKENS_ABOVE_HOLD,
        Reported::Unseen => OUTPUT_TOKENS / 2,
        Reported::Missing => return None,
    };
    Some(Usage { input_tokens: INPUT_TOKENS, output_tokens, ..Usage::default() })
}

/// Length of the error event that ends the log of a lost driver.
#[must_use]
pub fn lost_error_bytes() -> u64 {
    let message = "The connection to the provider was lost; the stored part stays readable.";
    error_terminal(Dialect::OpenaiChat, "upstream_interrupted", message).len() as u64
}

/// Output tokens of a completed answer that streamed so much content.
#[must_use]
pub const fn tokens_of(variant: &Variant, content: u64) -> u64 {
    if variant.streaming { content } else { OUTPUT_TOKENS / 2 }
}

/// The head that is stored before the end: a stream's.
#[must_use]
pub(crate) fn head_of(streaming: bool) -> Option<ResponseHead> {
    streaming.then(|| crate::object::head(200))
}

/// The status that an end brings with it.
#[must_use]
pub const fn head_status(outcome: Outcome) -> Option<u16> {
    match outcome {
        Outcome::Complete(_) | Outcome::Interrupted | Outcome::ErrorInBand => Some(200),
        Outcome::Refused => Some(429),
        Outcome::Failed => Some(500),
        Outcome::Gateway => Some(502),
        Outcome::Unsent | Outcome::NoAnswer | Outcome::Aborted => None,
    }
}
