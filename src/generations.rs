//! `/v1/generations`: look, read, cancel. Unknown, foreign and malformed ids get the same answer.

use crate::ask;
use crate::books::{self, BooksPath};
use crate::caller::Bearer;
use crate::cors::Page;
use crate::error::EdgeError;
use crate::query::{GivenTwice, parameter, stream_form};
use crate::request_headers::{header, idempotency_key};
use crate::respond;
use holdfast_core::ids::GenerationId;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::ResolvedBy;
use holdfast_core::tenant::Admitted;
use holdfast_core::time::UnixMillis;
use holdfast_core::view::GenerationView;
use holdfast_core::wire::{GenerationCall, GenerationReply, TenantCall, TenantReply};
use holdfast_objects::clock;
use holdfast_objects::rpc::Answer;
use serde::Serialize;
use worker::{Env, Request, Response};

/// How long a reader waits for a generation that was admitted and not started yet.
const START_PATIENCE_MS: u64 = 20_000;
/// How often it looks.
const START_POLL_MS: u64 = 100;

/// `GET /v1/generations/{id}`: the three states.
///
/// # Errors
/// 401, 404, 503.
pub(crate) async fn show(request: &Request, env: &Env, id: &str) -> Result<Response, EdgeError> {
    let admitted = admitted(&Bearer::of(env, request)?, env, id).await?;
    respond::ok(&view(env, &admitted).await?)
}

/// `GET /v1/generations`: the tenant's list. With `?idempotency_key=K`, the one generation under it, as it is itself: for
/// a client that was cut off before the headers.
///
/// # Errors
/// 400, 401, 503.
pub(crate) async fn list(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    match parameter(&request.url()?, "idempotency_key") {
        // The list takes a key, and is not for pages of other origins.
        Ok(None) if Page::of(request).foreign()?.is_some() => Err(Refusal::OriginNotAllowed.into()),
        Ok(None) => books::serve(BooksPath::Generations, request, env).await,
        Ok(Some(text)) => find(request, env, &text).await,
        Err(GivenTwice) => Err(EdgeError::invalid("`idempotency_key` is given more than once")),
    }
}

async fn find(request: &Request, env: &Env, text: &str) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, request)?;
    let wanted = idempotency_key(text)?;
    let call = TenantCall::FindByIdempotencyKey { key: bearer.credential.clone(), idempotency_key: wanted };
    let found = match bearer.ask(env, &call).await? {
        TenantReply::Found { generation } => generation,
        _ => return Err(ask::unexpected().into()),
    };
    let mut data = Vec::new();
    if let Some(generation) = found
        && let Some(admitted) = bearer.authenticate(env, Some(generation)).await?
    {
        data.push(view(env, &admitted).await?);
    }
    respond::ok(&List { object: "list", data })
}

/// `GET /v1/generations/{id}/stream`: replays, follows, ends. A generation that was accepted and has no bytes yet makes
/// its reader wait.
///
/// # Errors
/// 400 for a bad cursor, 401, 404, 409 beyond the end, 410, 429 with too many readers, 503.
pub(crate) async fn stream(request: &Request, env: &Env, id: &str) -> Result<Response, EdgeError> {
    let form = stream_form(&request.url()?, header(request.headers(), "last-event-id"));
    // A stranger learns nothing, not even that the cursor is bad.
    let admitted = admitted(&Bearer::of(env, request)?, env, id).await?;
    let call = GenerationCall::Stream { form: form? };
    ask::for_client(ask_once_started(env, &admitted, &call).await?)
}

/// `GET /v1/generations/{id}/result`: the stored answer.
///
/// # Errors
/// 202 while it runs, 401, 404, 409 when it never ran, 410, 503.
pub(crate) async fn result(request: &Request, env: &Env, id: &str) -> Result<Response, EdgeError> {
    let admitted = admitted(&Bearer::of(env, request)?, env, id).await?;
    match ask::generation(env, &admitted.identity, &GenerationCall::Result, &[]).await {
        Ok(answer) => ask::for_client(answer),
        Err(Refusal::NotFound) => Err(EdgeError::Running),
        Err(refusal) => Err(refusal.into()),
    }
}

/// `POST /v1/generations/{id}/cancel`. A recorded cancel has one answer, however often it is asked for.
///
/// # Errors
/// 401, 404, 503.
pub(crate) async fn cancel(request: &Request, env: &Env, id: &str) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, request)?;
    let admitted = admitted(&bearer, env, id).await?;
    // Only now: what a token cannot see does not exist for it.
    bearer.credential.check_cancel()?;
    let requested_at = match request_cancel(env, &admitted).await {
        // Not started yet: it is resolved so that it never will be. A Start that came first is cancelled.
        Err(Refusal::NotFound) => {
            resolve_unstarted(env, &admitted).await?;
            request_cancel(env, &admitted).await
        }
        asked => asked,
    };
    let requested_at = match requested_at {
        Err(Refusal::NeverStarted) => view(env, &admitted).await?.ended_at,
        asked => asked?,
    };
    let answer = CancellationView::of(&admitted.identity.generation, requested_at);
    if requested_at.is_some() { respond::accepted(&answer) } else { respond::ok(&answer) }
}

/// When the recorded cancel was asked for; `None` when the generation had ended without one.
async fn request_cancel(env: &Env, admitted: &Admitted) -> Result<Option<UnixMillis>, Refusal> {
    match ask::generation(env, &admitted.identity, &GenerationCall::Cancel, &[]).await? {
        Answer::Reply(GenerationReply::Cancellation { cancellation }) => {
            Ok(cancellation.map(|first| first.requested_at))
        }
        _ => Err(ask::unexpected()),
    }
}

async fn resolve_unstarted(env: &Env, admitted: &Admitted) -> Result<(), Refusal> {
    let call = GenerationCall::Resolve { admitted: Box::new(admitted.clone()), by: ResolvedBy::Cancel };
    match ask::generation(env, &admitted.identity, &call, &[]).await? {
        Answer::Reply(GenerationReply::Resolved) => Ok(()),
        _ => Err(ask::unexpected()),
    }
}

#[derive(Serialize)]
struct List {
    object: &'static str,
    data: Vec<GenerationView>,
}

/// The answer to a cancel.
#[derive(Serialize)]
struct CancellationView<'a> {
    id: &'a GenerationId,
    object: &'static str,
    requested_at: Option<UnixMillis>,
    effect: &'static str,
}

impl<'a> CancellationView<'a> {
    const fn of(id: &'a GenerationId, requested_at: Option<UnixMillis>) -> Self {
        let effect = if requested_at.is_some() { "requested" } else { "none" };
        Self { id, object: "generation.cancellation", requested_at, effect }
    }
}

/// What the generation in the path was admitted under. The key is checked first, whatever the id looks like.
async fn admitted(bearer: &Bearer, env: &Env, id: &str) -> Result<Box<Admitted>, EdgeError> {
    let generation = GenerationId::parse(id).ok();
    let known = bearer.authenticate(env, generation).await?;
    known.ok_or_else(|| Refusal::NotFound.into())
}

async fn view(env: &Env, admitted: &Admitted) -> Result<GenerationView, Refusal> {
    match ask::generation(env, &admitted.identity, &GenerationCall::Status, &[]).await {
        Ok(Answer::Reply(GenerationReply::Generation(view))) => Ok(*view),
        Ok(_) => Err(ask::unexpected()),
        Err(Refusal::NotFound) => Ok(GenerationView::of_admitted(admitted)),
        Err(refusal) => Err(refusal),
    }
}

/// Asks until the generation is started, or resolved without a start.
async fn ask_once_started(env: &Env, admitted: &Admitted, call: &GenerationCall) -> Result<Answer, Refusal> {
    let give_up_at = clock::now().plus(START_PATIENCE_MS);
    loop {
        match ask::generation(env, &admitted.identity, call, &[]).await {
            Err(Refusal::NotFound) if clock::now() < give_up_at => clock::sleep_ms(START_POLL_MS).await,
            Err(Refusal::NotFound) => {
                return Err(Refusal::Unavailable { what: "the generation was admitted and is not started yet".into() });
            }
            answered => return answered,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn cancellations_are_written_as_documented() {
        let id = GenerationId::from_random([0xab; 16]);
        let text = |requested_at| serde_json::to_string(&CancellationView::of(&id, requested_at)).unwrap();
        assert_eq!(
            text(Some(UnixMillis(1_764_000_000_000))),
            r#"{"id":"gen_abababababababababababababababab","object":"generation.cancellation","requested_at":1764000000000,"effect":"requested"}"#
        );
        assert_eq!(
            text(None),
            r#"{"id":"gen_abababababababababababababababab","object":"generation.cancellation","requested_at":null,"effect":"none"}"#
        );
    }
}
