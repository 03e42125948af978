//! In progress.
use worker::{DurableObject, Env, Request, Response, Result, State, durable_object};
/// One generation.
#[durable_object(alarm)]
pub struct ReservationObject { state: State, env: Env }
impl DurableObject for ReservationObject {
    fn new(state: State, env: Env) -> Self { Self { state, env } }
    async fn fetch(&self, _req: Request) -> Result<Response> { let _ = (&self.state, &self.env); Response::ok("hi") }
    async fn alarm(&self) -> Result<Response> { Response::empty() }
}
