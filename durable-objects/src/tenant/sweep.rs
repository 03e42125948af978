//! What the alarm does, and a poke by the cron: send events that are due, forget what was kept for its time, and ask the
//! generations of overdue holds what became of them, in bounded batches. A hold is resolved only by the posting that its generation authors; the answer to
//! the question decides nothing here but when to ask again.

use super::answers::FORGET_MAX;
use super::webhooks::refused;
use super::{Failure, Tenant};
use crate::clock;
use crate::rpc::{self, Answer};
use futures::future::join;
use futures::{StreamExt, stream};
use holdfast_core::ids::Identity;
use holdfast_core::reservation::ResolvedBy;
use holdfast_core::tenant::{Admitted, Hold, HoldState, due_after_start};
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{GenerationCall, GenerationReply, Swept, TenantReply};
use worker::Result;

/// Holds that one run asks after.
const HOLDS_PER_RUN: u32 = 20;
/// Of these so many at a time: the platform opens six connections.
const ASKED_AT_ONCE: usize = 5;
/// How long a generation may take to answer.
const ANSWER_TIMEOUT_MS: u64 = 10_000;
/// When a generation that did not answer is asked again, and when a run that died is made up for.
const RETRY_MS: u64 = 60_000;

impl Tenant {
    /// One bounded run. The next alarm stands before any work is done.
    pub(super) async fn sweep(&self) -> Result<()> {
        let now = clock::now();
        self.wake.rang();
        let made_up_for_ms = self.made_up_for_ms(now).unwrap_or(RETRY_MS).min(RETRY_MS);
        self.wake.at(now.plus(made_up_for_ms), now).await?;
        // At the same time: a receiver that is slow makes no hold wait.
        let (asked, sent) = join(self.ask_after_overdue(now), self.send_due_events()).await;
        match self.store.earliest_due()? {
            // What failed is still due: it is tried again later, not at once.
            Some(due) if asked.is_err() || sent.is_err() => {
                self.wake.at(due.max(clock::now().plus(RETRY_MS)), clock::now()).await?;
            }
            Some(due) => self.wake.at(due, clock::now()).await?,
            None => self.wake.never().await?,
        }
        asked.map(|_| ()).and(sent)
    }

    /// A poke: what is overdue is asked after, whatever became of the alarm; the alarm stands afterwards, and goes on with
    /// the rest. The account need not exist: an entry of the directory without a tenant behind it is harmless.
    pub(super) async fn poked(&self) -> core::result::Result<TenantReply, Failure> {
        Ok(TenantReply::Swept(self.ask_after_overdue(clock::now()).await?))
    }

    async fn ask_after_overdue(&self, now: UnixMillis) -> Result<Swept> {
        if !self.store.exists()? {
            return Ok(Swept::default());
        }
        self.forget(now)?;
        let overdue = self.store.overdue(now, HOLDS_PER_RUN)?;
        let questions = stream::iter(overdue.iter().map(|hold| self.ask_after(hold)));
        let answers: Vec<Result<bool>> = questions.buffer_unordered(ASKED_AT_ONCE).collect().await;
        let mut swept = Swept::default();
        for answered in answers {
            let count = if answered? { &mut swept.holds_asked } else { &mut swept.holds_failed };
            *count = count.saturating_add(1);
        }
        swept.holds_left = !self.store.overdue(now, 1)?.is_empty();
        Ok(swept)
    }

    /// Removes what was kept for its time, a bounded part of each: a tenant that goes quiet has nobody else to do it.
    fn forget(&self, now: UnixMillis) -> Result<()> {
        self.store.forget_expired(now, FORGET_MAX)?;
        self.store.forget_old_runs(now)?;
        let limits = self.settings.limits(&self.env).map_err(refused)?;
        self.store.forget_old_events(UnixMillis(now.0.saturating_sub(limits.webhook_keep_ms)))
    }

    /// Whether the generation answered.
    async fn ask_after(&self, hold: &Hold) -> Result<bool> {
        let answered = self.resolve(hold).await;
        // A settlement may have come meanwhile: the hold is loaded anew.
        let current = self.store.hold(&hold.identity.reservation)?;
        if let Some(current) = current.filter(|current| current.state == HoldState::Open) {
            let now = clock::now();
            let due_at = if answered { due_after_start(&current, now) } else { now.plus(RETRY_MS) };
            self.store.store_hold(Hold { due_at, ..current })?;
        }
        Ok(answered)
    }

    /// Whether the generation answered that the hold is, or will be, resolved by itself.
    async fn resolve(&self, hold: &Hold) -> bool {
        let name = Identity::object_name(&hold.identity.tenant, &hold.identity.generation);
        let call = GenerationCall::Resolve { admitted: Box::new(Admitted::of(hold, false)), by: ResolvedBy::Sweep };
        let asked = rpc::ask_generation_by_name(&self.env, &name, &call, &[]);
        match clock::within(ANSWER_TIMEOUT_MS, asked).await {
            Some(Ok(Answer::Reply(GenerationReply::Resolved))) => true,
            Some(Ok(Answer::Reply(reply))) => {
                worker::console_error!("{name} did not resolve its hold: {reply:?}");
                false
            }
            // An answer that is meant for a client, or none; `rpc` told about the latter.
            Some(_) => false,
            None => {
                worker::console_error!("{name} did not answer in {ANSWER_TIMEOUT_MS} ms");
                false
            }
        }
    }
}
