//! Holdfast edge.
pub use holdfast_objects::{ReservationObject, TenantObject};
use worker::*;
#[event(fetch)]
async fn fetch(_req: Request, env: Env, _ctx: Context) -> Result<Response> {
    let ns = env.durable_object("RESERVATION")?;
    ns.get_by_name("x")?.fetch_with_str("http://x/").await
}
