//! Generations that the edge itself drives (`owner = "edge"`): short ones, close to their one client.

use holdfast_core::config::Provider;
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Admitted;
use worker::{Context, Env, Request, Response};

/// Drives an admitted generation and answers its client. `context` carries the work after the client has left;
/// `request` is the client's, with its body read: its signal tells when the client leaves. `upstream_body` goes to
/// `provider`.
///
/// # Errors
/// [`Refusal::Unavailable`]: this version does not drive at the edge.
pub(crate) async fn run(
    _env: &Env,
    _context: &Context,
    _request: &Request,
    _provider: &Provider,
    admitted: Admitted,
    _upstream_body: Vec<u8>,
) -> Result<Response, Refusal> {
    let what = format!("route `{}` has the owner `edge`, which is not served", admitted.terms.route);
    Err(Refusal::Unavailable { what })
}
