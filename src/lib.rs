//! The edge of Holdfast: HTTP in, HTTP out. It decides nothing about money and keeps nothing: tenants and generations
//! live in the Durable Objects, which are exported from here.
//!
//! | module | room |
//! |---|---|
//! | `router` | which handler takes a request |
//! | `proxy` | requests that go to a provider |
//! | `edge_driver` | generations that the edge itself drives |
//! | `generations`, `balance`, `books`, `healthz` | Holdfast's own routes |
//! | `admin`, `accounts`, `configuration` | the operator's routes; keys and configuration of a tenant |
//! | `caller`, `request_headers`, `body`, `query` | what a request says, parsed |
//! | `callbacks` | what providers call back |
//! | `sweep` | the walk over all tenants, by the cron or by hand |
//! | `tokens`, `cors` | pages in browsers: their tokens, and which may ask at all |
//! | `ask` | questions to the objects |
//! | `error`, `respond` | what can go wrong, and the answers; the only place that names status codes |

#![forbid(unsafe_code)]

mod accounts;
mod admin;
mod ask;
mod balance;
mod body;
mod books;
mod callbacks;
mod caller;
mod configuration;
mod cors;
mod edge_client;
mod edge_driver;
mod error;
mod generations;
mod healthz;
mod policy_report;
mod proxy;
mod query;
mod request_headers;
mod respond;
mod router;
mod sweep;
#[cfg(feature = "test-hooks")]
mod test_hooks;
mod tokens;
mod webhooks;

// The root crate must name the objects, or they vanish from the Wasm.
pub use holdfast_objects::{DirectoryObject, ReservationObject, TenantObject};

use worker::{Context, Env, Request, Response, ScheduleContext, ScheduledEvent, event};

/// Runs once per instance, before anything else. The hook that the `worker` crate has installed stays in the chain: the
/// runtime shim depends on it.
#[event(start)]
fn start() {
    let installed = std::panic::take_hook();
    std::panic::set_hook(Box::new(move |info| {
        console_error_panic_hook::hook(info);
        installed(info);
    }));
}

/// Every HTTP request. Each error, a panic included, becomes a response: this never returns `Err`.
#[event(fetch)]
async fn fetch(request: Request, env: Env, context: Context) -> worker::Result<Response> {
    Ok(router::handle(request, &env, &context).await)
}

/// The cron of `wrangler.toml`: part of the tenants at a time. It never fails: what was not done is done by the next one.
#[event(scheduled)]
async fn scheduled(_event: ScheduledEvent, env: Env, _context: ScheduleContext) {
    sweep::by_cron(&env).await;
}
