//! Faults on demand, for tests. Only in builds with the feature `test-hooks`, never in a deployment.

use crate::caller::Bearer;
use crate::error::EdgeError;
use crate::request_headers::header;
use holdfast_core::ids::{GenerationId, Identity, TenantId};
use holdfast_core::refusal::Refusal;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{GenerationCall, TenantCall, encode};
use holdfast_objects::test_hooks::WriteFault;
use holdfast_objects::{clock, rpc};
use worker::js_sys::Uint8Array;
use worker::wasm_bindgen::JsValue;
use worker::{Env, Headers, Method, Request, RequestInit, Response};

/// Header of a proxied request that names a failpoint.
const FAILPOINT: &str = "x-holdfast-test-failpoint";
/// Header of a call to an object that tells it to panic.
const OBJECT_HOOK: &str = "x-holdfast-test";

fn is_at(request: &Request, failpoint: &str) -> bool {
    header(request.headers(), FAILPOINT).as_deref() == Some(failpoint)
}

/// `drop-admit-reply`: the tenant admits, and its reply is lost on the way. The proxy asks as if for the second time.
pub(crate) async fn lose_first_reply(request: &Request, env: &Env, tenant: &TenantId, call: &TenantCall) {
    if is_at(request, "drop-admit-reply") {
        drop(rpc::ask_tenant(env, tenant, call).await);
    }
}

/// `stop-after-admit`: the edge dies between Admit and Start.
///
/// # Errors
/// [`EdgeError::Internal`] at this failpoint.
pub(crate) fn stop_after_admit(request: &Request) -> Result<(), EdgeError> {
    if is_at(request, "stop-after-admit") { Err(EdgeError::Internal) } else { Ok(()) }
}

/// `mute-edge-driver`: for three leases from now, a driver at the edge does not reach its object. That is until when;
/// in the past without the failpoint.
pub(crate) fn mute_until(request: &Request, lease_ms: u64) -> UnixMillis {
    let muted = is_at(request, "mute-edge-driver");
    if muted { clock::now().plus(lease_ms.saturating_mul(3)) } else { UnixMillis(0) }
}

/// `POST /__test/panic`: the edge panics.
#[expect(clippy::panic, reason = "the panic is what is tested")]
pub(crate) fn panic_here() -> Result<Response, EdgeError> {
    panic!("asked to panic at the edge");
}

/// `POST /__test/write-fault/{lost|stop}/{n}`: after `n` more writes of any object, one is lost, or the server stands
/// still before it.
///
/// # Errors
/// 400 for anything else.
pub(crate) fn arm_write_fault(fault: &str) -> Result<Response, EdgeError> {
    let (fault, after) = fault.split_once('/').ok_or_else(|| EdgeError::invalid("kind/number"))?;
    let fault = match fault {
        "lost" => WriteFault::Lost,
        "stop" => WriteFault::Stop,
        _ => return Err(EdgeError::invalid("lost or stop")),
    };
    holdfast_objects::test_hooks::arm_write_fault(fault, after.parse().map_err(|_| EdgeError::invalid("a number"))?);
    Ok(Response::empty()?)
}

/// `POST /__test/panic-object/{generation}`: the generation's object panics. The answer says what its caller saw.
///
/// # Errors
/// 401, 404, and 503 when the object did not answer.
pub(crate) async fn panic_object(request: &Request, env: &Env, id: &str) -> Result<Response, EdgeError> {
    let bearer = Bearer::of(env, request)?;
    let known = bearer.authenticate(env, GenerationId::parse(id).ok()).await?;
    let identity = known.ok_or(Refusal::NotFound)?.identity;
    let unreachable = |error: worker::Error| Refusal::Unavailable { what: format!("the object failed: {error}") };
    Ok(call_panicking(env, &identity).await.map_err(unreachable)?)
}

async fn call_panicking(env: &Env, identity: &Identity) -> worker::Result<Response> {
    let name = Identity::object_name(&identity.tenant, &identity.generation);
    let frame = encode(&GenerationCall::Status, &[]).map_err(|error| worker::Error::from(error.0))?;
    let headers = Headers::new();
    headers.set(OBJECT_HOOK, "panic")?;
    let mut init = RequestInit::new();
    init.with_method(Method::Post).with_headers(headers);
    init.with_body(Some(JsValue::from(Uint8Array::from(frame.as_slice()))));
    let stub = env.durable_object(rpc::RESERVATION)?.get_by_name(&name)?;
    stub.fetch_with_request(Request::new_with_init("https://object/", &init)?).await
}
