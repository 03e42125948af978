//! The sweep over all tenants, by the cron or by the operator's hand. It walks the directory in pages and pokes each tenant;
//! the tenant does the work. A walk goes on where the last one stopped, so a directory of any size is covered, run by run.
//!
//! Nothing depends on it while alarms ring and rows are there: it is for what was lost.

use crate::error::EdgeError;
use crate::{ask, respond};
use futures::{StreamExt, stream};
use holdfast_core::config::Limits;
use holdfast_core::deadline::spread_ms;
use holdfast_core::ids::TenantId;
use holdfast_core::refusal::Refusal;
use holdfast_core::wire::{DirectoryCall, DirectoryEntry, DirectoryReply, Swept, TenantCall, TenantReply};
use holdfast_objects::clock::{sleep_ms, within};
use holdfast_objects::settings;
use serde::Serialize;
use worker::{Env, Response};

/// Tenants of one page.
const PAGE: u32 = 50;
/// Tenants that are poked at the same time: the platform opens six connections.
const POKED_AT_ONCE: usize = 5;
/// The pokes of one run begin within so long of each other, each at a place of its own.
const SPREAD_MS: u64 = 250;
/// How long a tenant may take.
const ANSWER_TIMEOUT_MS: u64 = 30_000;

/// What a sweep did.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub(crate) struct Summary {
    object: &'static str,
    /// Tenants that were poked and answered.
    tenants: u32,
    /// Tenants that did not answer.
    tenants_failed: u32,
    /// Generations that were asked after, over all tenants.
    holds_asked: u32,
    /// Generations that did not answer.
    holds_failed: u32,
    /// Tenants that have more overdue holds than one poke asks after.
    tenants_left: u32,
    /// The end of the directory was reached: the next sweep begins at its start.
    complete: bool,
}

impl Summary {
    fn add(&mut self, poked: Option<Swept>) {
        let Some(swept) = poked else {
            self.tenants_failed = self.tenants_failed.saturating_add(1);
            return;
        };
        self.tenants = self.tenants.saturating_add(1);
        self.holds_asked = self.holds_asked.saturating_add(swept.holds_asked);
        self.holds_failed = self.holds_failed.saturating_add(swept.holds_failed);
        self.tenants_left = self.tenants_left.saturating_add(u32::from(swept.holds_left));
    }
}

/// `POST /admin/sweep`: what the cron does, at once.
///
/// # Errors
/// [`Refusal::Unavailable`] when the directory does not answer.
pub(crate) async fn by_hand(env: &Env) -> Result<Response, EdgeError> {
    respond::ok(&run(env, &settings::limits(env)?).await?)
}

/// The cron.
pub(crate) async fn by_cron(env: &Env) {
    let swept = match settings::limits(env) {
        Ok(limits) => run(env, &limits).await,
        Err(refusal) => Err(refusal),
    };
    match swept.map(|summary| serde_json::to_string(&summary)) {
        Ok(Ok(summary)) => worker::console_log!("sweep: {summary}"),
        Ok(Err(error)) => worker::console_error!("sweep: {error}"),
        Err(refusal) => worker::console_error!("sweep: {}", refusal.message()),
    }
}

/// Pokes up to `sweep_tenants_max` tenants. The place is stored after each page: of a run that dies a page is done again.
async fn run(env: &Env, limits: &Limits) -> Result<Summary, Refusal> {
    let mut summary = Summary { object: "sweep", ..Summary::default() };
    let mut left = limits.sweep_tenants_max;
    while left > 0 && !summary.complete {
        let limit = left.min(PAGE);
        let page = page(env, limit).await?;
        let count = u32::try_from(page.len()).unwrap_or(u32::MAX);
        left = left.saturating_sub(count);
        summary.complete = count < limit;
        let last = page.last().map(|entry| entry.id.clone()).filter(|_| !summary.complete);
        let mut pokes = stream::iter(page).map(|entry| poke(env, entry.id)).buffer_unordered(POKED_AT_ONCE);
        while let Some(poked) = pokes.next().await {
            summary.add(poked);
        }
        ask::directory(env, &DirectoryCall::SweptTo { tenant: last }).await?;
    }
    Ok(summary)
}

async fn page(env: &Env, limit: u32) -> Result<Vec<DirectoryEntry>, Refusal> {
    match ask::directory(env, &DirectoryCall::SweepNext { limit }).await? {
        DirectoryReply::Tenants { tenants } => Ok(tenants),
        _ => Err(ask::unexpected()),
    }
}

/// A tenant that fails is named in the log, and holds nobody up.
async fn poke(env: &Env, tenant: TenantId) -> Option<Swept> {
    sleep_ms(spread_ms(tenant.as_str(), SPREAD_MS)).await;
    match within(ANSWER_TIMEOUT_MS, ask::tenant(env, &tenant, &TenantCall::Sweep)).await {
        Some(Ok(TenantReply::Swept(swept))) => Some(swept),
        Some(answer) => {
            worker::console_error!("sweep: tenant {tenant} answered {answer:?}");
            None
        }
        None => {
            worker::console_error!("sweep: tenant {tenant} did not answer in {ANSWER_TIMEOUT_MS} ms");
            None
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_summary_adds_up() {
        let mut summary = Summary { object: "sweep", ..Summary::default() };
        summary.add(Some(Swept { holds_asked: 2, holds_failed: 1, holds_left: true }));
        summary.add(Some(Swept::default()));
        summary.add(None);
        summary.complete = true;
        assert_eq!(
            serde_json::to_string(&summary).unwrap(),
            r#"{"object":"sweep","tenants":2,"tenants_failed":1,"holds_asked":2,"holds_failed":1,"tenants_left":1,"complete":true}"#
        );
    }
}
