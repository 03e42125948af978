//! Requests that go to a provider: admit first, then start. Nothing is sent upstream before the hold is placed, and only
//! an object or the edge's driver sends it.

use crate::caller::Bearer;
use crate::edge_driver;
use crate::error::EdgeError;
use crate::request_headers::RequestOptions;
use crate::{ask, body};
use holdfast_core::config::Provider;
use holdfast_core::ids::{AttemptId, GenerationId, Identity, ReservationId};
use holdfast_core::key::sha256_hex;
use holdfast_core::policy::Owner;
use holdfast_core::refusal::Refusal;
use holdfast_core::request::{Endpoint, GenerationRequest, Rewrite};
use holdfast_core::tenant::{Admit, Admitted, RunStart};
use holdfast_core::wire::{GenerationCall, TenantCall, TenantReply};
use holdfast_objects::settings;
use uuid::Uuid;
use worker::{Context, Env, Request, Response};

/// The header by which a client names its user. It goes no further than to a keyed hash.
const CLIENT_ID: &str = "x-client-id";

/// A request to one of the proxied paths. Checked in this order: configuration, key, headers, query, body; then what
/// [`holdfast_core::tenant::admit`] checks.
///
/// # Errors
/// Before admission nothing is held. After it, [`EdgeError::Unserved`] names the generation.
pub(crate) async fn serve(
    endpoint: Endpoint,
    mut request: Request,
    env: &Env,
    context: &Context,
) -> Result<Response, EdgeError> {
    let (providers, limits) = (settings::providers(env)?, settings::limits(env)?);
    let bearer = Bearer::of(env, &request)?;
    let options = RequestOptions::of(request.headers())?;
    check_query(endpoint, &request)?;
    let body = body::read_json(&mut request, &limits).await?;
    let asked = GenerationRequest::parse(endpoint, endpoint.model_in(&request.path()).as_deref(), &body)?;

    let run = settings::run_start(env, &bearer.tenant, asker(&bearer, &options), &asked.question())?;
    let path = endpoint.path_for(asked.model());
    let call = TenantCall::Admit(Box::new(admission(&bearer, options, path, &asked, &body, run)));
    #[cfg(feature = "test-hooks")]
    crate::test_hooks::lose_first_reply(&request, env, &bearer.tenant, &call).await;
    let admitted = admit(env, &bearer, &call).await?;

    #[cfg(feature = "test-hooks")]
    crate::test_hooks::stop_after_admit(&request)?;
    let identity = admitted.identity.clone();
    let started = start(&request, env, context, &providers, &asked, admitted).await;
    started.map_err(|error| EdgeError::Unserved { error: Box::new(error), identity: Box::new(identity) })
}

/// A query is never sent on. A key in it would stand in every log on the way here, so it is not taken for one either; and
/// a stream of Gemini is served as events alone, not as the JSON array that is sent where nobody asks for events.
fn check_query(endpoint: Endpoint, request: &Request) -> Result<(), EdgeError> {
    if endpoint.streams_by_path().is_none() {
        return Ok(());
    }
    let url = request.url()?;
    if url.query_pairs().any(|(name, _)| name == "key") {
        return Err(EdgeError::invalid("a key in the URL is not read: send it as x-goog-api-key"));
    }
    let events = url.query_pairs().any(|(name, value)| name == "alt" && value == "sse");
    match endpoint.streams_by_path() {
        Some(true) if !events => Err(EdgeError::invalid("streams are served as events only: ask with ?alt=sse")),
        Some(false) if events => Err(EdgeError::invalid("generateContent is no stream: alt=sse has no meaning here")),
        _ => Ok(()),
    }
}

/// Who asks: the client's own name for its user, where it gives one; else whoever has this key. One key for all users
/// makes all of them one asker.
fn asker<'a>(bearer: &'a Bearer, options: &'a RequestOptions) -> &'a str {
    options.routing.get(CLIENT_ID).map_or_else(|| bearer.credential.name(), String::as_str)
}

/// The facts that admission needs. The ids are minted here, once: a repeated Admit carries the same.
fn admission(
    bearer: &Bearer,
    options: RequestOptions,
    path: String,
    asked: &GenerationRequest<'_>,
    body: &[u8],
    run: RunStart,
) -> Admit {
    Admit {
        identity: Identity {
            tenant: bearer.tenant.clone(),
            generation: GenerationId::from_random(random_bits()),
            reservation: ReservationId::from_random(random_bits()),
        },
        attempt: AttemptId::from_random(random_bits()),
        key: bearer.credential.clone(),
        model: asked.model().into(),
        streaming: asked.stream(),
        include_usage: asked.include_usage(),
        max_output_tokens: asked.max_output_tokens(),
        choices: u32::try_from(asked.choices()).unwrap_or(u32::MAX),
        body_bytes: u64::try_from(body.len()).unwrap_or(u64::MAX),
        fingerprint: sha256_hex(&[path.as_bytes(), body]),
        path,
        headers: options.routing,
        on_disconnect: options.on_disconnect,
        idempotency_key: options.idempotency_key,
        workload: options.workload,
        run: Some(run),
        forward: options.forward,
        background: asked.background(),
    }
}

fn random_bits() -> [u8; 16] {
    Uuid::new_v4().into_bytes()
}

async fn admit(env: &Env, bearer: &Bearer, call: &TenantCall) -> Result<Box<Admitted>, Refusal> {
    match bearer.ask(env, call).await? {
        TenantReply::Admitted(admitted) => Ok(admitted),
        _ => Err(ask::unexpected()),
    }
}

/// Starts the generation, or joins it: a Start that is repeated never calls the provider again. It carries the body in
/// either case, so that a generation whose first request died before its Start is healed.
async fn start(
    request: &Request,
    env: &Env,
    context: &Context,
    providers: &[Provider],
    asked: &GenerationRequest<'_>,
    admitted: Box<Admitted>,
) -> Result<Response, EdgeError> {
    let provider = providers.iter().find(|provider| provider.name == admitted.terms.provider);
    let provider = provider.ok_or_else(|| Refusal::Unavailable {
        what: format!("provider `{}` is not configured", admitted.terms.provider),
    })?;
    let upstream_body = asked.rewrite(&Rewrite {
        max_output_tokens: Some(admitted.terms.max_output_tokens),
        field_if_absent: &provider.max_tokens_field,
        include_usage: admitted.terms.strip_usage || asked.include_usage(),
        background: admitted.terms.background,
    });
    match admitted.terms.owner {
        Owner::Object => start_object(env, *admitted, &upstream_body).await,
        Owner::Edge => edge_driver::run(env, context, request, provider, *admitted, upstream_body).await,
    }
}

/// The object's answer is the client's answer. It is handed on as it is, so that the platform moves the bytes.
async fn start_object(env: &Env, admitted: Admitted, upstream_body: &[u8]) -> Result<Response, EdgeError> {
    let Admitted { identity, attempt, terms, .. } = admitted;
    let call = GenerationCall::Start { identity: identity.clone(), attempt, terms: Box::new(terms) };
    ask::for_client(ask::generation(env, &identity, &call, upstream_body).await?)
}
