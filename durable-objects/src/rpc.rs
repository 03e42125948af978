//! Calls between edge and objects: frames of [`holdfast_core::wire`] over `fetch`.

use holdfast_core::ids::{Identity, TenantId};
use holdfast_core::origin::Origin;
use holdfast_core::refusal::Refusal;
use holdfast_core::wire::{
    DirectoryCall, DirectoryReply, GenerationCall, GenerationReply, REPLY_CONTENT_TYPE, TenantCall, TenantReply,
    decode, encode,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use wasm_bindgen::JsValue;
use worker::js_sys::Uint8Array;
use worker::{Env, Error, Headers, Method, Request, RequestInit, RequestRedirect, Response, Result, Stub};

/// Name of the binding of the ReservationObjects.
pub const RESERVATION: &str = "RESERVATION";
/// Name of the binding of the TenantObjects.
pub const TENANT: &str = "TENANT";

/// Name of the binding of the DirectoryObject.
pub const DIRECTORY: &str = "DIRECTORY";

/// Header of a call that is made for a page of another origin. It stands beside the frame: it is no part of any call.
const PAGE_HEADER: &str = "origin";

/// Objects are reached by binding; the URL only has to be one.
const URL: &str = "https://object/";

fn unreachable_object(what: &str) -> Refusal {
    Refusal::Unavailable { what: format!("the {what} could not be reached") }
}

/// Asks a tenant.
///
/// # Errors
/// [`Refusal::Unavailable`] when the object did not answer; the caller may repeat the same call.
pub async fn ask_tenant(env: &Env, tenant: &TenantId, call: &TenantCall) -> core::result::Result<TenantReply, Refusal> {
    ask_tenant_for(env, tenant, None, call).await
}

/// Asks a tenant for a page of another origin, which the tenant has to allow.
///
/// # Errors
/// As [`ask_tenant`].
pub async fn ask_tenant_for(
    env: &Env,
    tenant: &TenantId,
    page: Option<&Origin>,
    call: &TenantCall,
) -> core::result::Result<TenantReply, Refusal> {
    let asked = async {
        let stub = env.durable_object(TENANT)?.get_by_name(tenant.as_str())?;
        let headers = Headers::new();
        if let Some(page) = page {
            headers.set(PAGE_HEADER, page.as_str())?;
        }
        let response = send_with(&stub, call, &[], headers).await?;
        read_reply(response).await
    };
    asked.await.map_err(|error: Error| {
        worker::console_error!("tenant call failed: {error}");
        unreachable_object("tenant object")
    })
}

/// Asks the directory of tenants.
///
/// # Errors
/// [`Refusal::Unavailable`] when the object did not answer; the caller may repeat the same call.
pub async fn ask_directory(env: &Env, call: &DirectoryCall) -> core::result::Result<DirectoryReply, Refusal> {
    let asked = async {
        let stub = env.durable_object(DIRECTORY)?.get_by_name(crate::directory::NAME)?;
        let response = send(&stub, call, &[]).await?;
        read_reply(response).await
    };
    asked.await.map_err(|error: Error| {
        worker::console_error!("directory call failed: {error}");
        unreachable_object("directory object")
    })
}

/// What a ReservationObject answered.
#[derive(Debug)]
pub enum Answer {
    /// A reply to the caller.
    Reply(GenerationReply),
    /// The client's answer, to be passed on as it is.
    ForClient(Response),
}

/// Asks a generation.
///
/// # Errors
/// [`Refusal::Unavailable`] when the object did not answer.
pub async fn ask_generation(
    env: &Env,
    identity: &Identity,
    call: &GenerationCall,
    raw: &[u8],
) -> core::result::Result<Answer, Refusal> {
    let name = Identity::object_name(&identity.tenant, &identity.generation);
    ask_generation_by_name(env, &name, call, raw).await
}

/// Like [`ask_generation`], for a caller that knows only the object's name.
///
/// # Errors
/// [`Refusal::Unavailable`] when the object did not answer.
pub async fn ask_generation_by_name(
    env: &Env,
    name: &str,
    call: &GenerationCall,
    raw: &[u8],
) -> core::result::Result<Answer, Refusal> {
    let asked = async {
        let stub = env.durable_object(RESERVATION)?.get_by_name(name)?;
        let response = send(&stub, call, raw).await?;
        let is_reply = response.headers().get("content-type")?.as_deref() == Some(REPLY_CONTENT_TYPE);
        if is_reply { read_reply(response).await.map(Answer::Reply) } else { Ok(Answer::ForClient(response)) }
    };
    asked.await.map_err(|error: Error| {
        worker::console_error!("generation call failed: {error}");
        unreachable_object("generation object")
    })
}

async fn send<T: Serialize>(stub: &Stub, call: &T, raw: &[u8]) -> Result<Response> {
    send_with(stub, call, raw, Headers::new()).await
}

async fn send_with<T: Serialize>(stub: &Stub, call: &T, raw: &[u8], headers: Headers) -> Result<Response> {
    #[cfg(feature = "test-hooks")]
    crate::test_hooks::count(call);
    let frame = encode(call, raw).map_err(|error| Error::from(error.0))?;
    let mut init = RequestInit::new();
    // The answer may be the provider's: its status is passed on, never acted on.
    init.with_method(Method::Post)
        .with_redirect(RequestRedirect::Manual)
        .with_headers(headers)
        .with_body(Some(JsValue::from(Uint8Array::from(frame.as_slice()))));
    stub.fetch_with_request(Request::new_with_init(URL, &init)?).await
}

async fn read_reply<T: DeserializeOwned>(mut response: Response) -> Result<T> {
    Ok(serde_json::from_slice(&response.bytes().await?)?)
}

/// Reads the call of a request to an object, with its raw bytes.
///
/// # Errors
/// When the frame is malformed.
pub async fn read_call<T: DeserializeOwned>(request: &mut Request) -> Result<(T, Vec<u8>)> {
    decode(request.bytes().await?).map_err(|error| Error::from(error.0))
}

/// The page of another origin that a call to a tenant is made for.
///
/// # Errors
/// [`Refusal::OriginNotAllowed`] when what is named is no origin: it cannot have been allowed.
pub fn page_of(request: &Request) -> core::result::Result<Option<Origin>, Refusal> {
    let page = request.headers().get(PAGE_HEADER).map_err(|_| Refusal::OriginNotAllowed)?;
    page.as_deref().map(Origin::parse).transpose().map_err(|_| Refusal::OriginNotAllowed)
}

/// The response that carries a reply.
///
/// # Errors
/// When the reply does not serialize.
pub fn reply<T: Serialize>(reply: &T) -> Result<Response> {
    let headers = Headers::new();
    headers.set("content-type", REPLY_CONTENT_TYPE)?;
    Ok(Response::from_bytes(serde_json::to_vec(reply)?)?.with_headers(headers))
}
