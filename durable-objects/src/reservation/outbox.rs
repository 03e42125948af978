//! Brings postings, and what is told without one, to the tenant until they are acknowledged. At least once; their ids
//! make a repeat harmless.

use super::generation::{Generation, storage_failed};
use crate::clock::{self, within};
use crate::rpc::ask_tenant;
use holdfast_core::callback::CallbackEvent;
use holdfast_core::ids::{GenerationId, TenantId};
use holdfast_core::ledger::{Posting, Receipt};
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Command, Delivery, Parcel, Reservation};
use holdfast_core::wire::{OperationCall, TenantCall, TenantReply};
use std::rc::Rc;
use worker::Result;

/// Longest wait for the tenant's answer.
const ANSWER_MS: u64 = 10_000;

impl Generation {
    /// Delivers in the background.
    pub(super) fn start_deliveries(self: &Rc<Self>) {
        let generation = self.clone();
        self.state.wait_until(async move { generation.deliver_postings().await });
    }

    /// Delivers what is due, in order. Postings that follow one another go in one call: what ends a hold and what is charged
    /// above it are applied together, or neither is. Where the tenant refuses such a call, each goes alone, so that each has
    /// its own answer. A second run while one works does nothing: what became due meanwhile is delivered by the same run.
    /// The first failure ends it.
    pub(super) async fn deliver_postings(self: &Rc<Self>) {
        if self.delivering.replace(true) {
            return;
        }
        let mut together = true;
        // What an answer brings may make further postings: they go at once.
        while let Some(due) = self.due_call(together) {
            let outcome = self.deliver(&due).await;
            if matches!(outcome, Outcome::Refused(_)) && due.ids.len() > 1 {
                together = false;
                continue;
            }
            if let Outcome::Named(callbacks) = &outcome {
                self.take_callbacks(callbacks);
            }
            if !due.ids.into_iter().all(|id| self.take_outcome(outcome.command(id))) {
                break;
            }
        }
        self.delivering.set(false);
    }

    /// Whether the run goes on.
    fn take_outcome(self: &Rc<Self>, command: Command) -> bool {
        let applied = self.apply(&command);
        if let Err(refusal) = &applied {
            worker::console_error!("outbox: {}", refusal.message());
        }
        applied.is_ok() && !matches!(command, Command::DeliveryFailed { .. })
    }

    /// What was called back before the operation had its name here.
    fn take_callbacks(self: &Rc<Self>, callbacks: &[CallbackEvent]) {
        for callback in callbacks {
            if let Err(refusal) = self.take_signal(callback.signal(clock::now())) {
                worker::console_error!("callback: {}", refusal.message());
            }
        }
    }

    /// Compares what was authored with the rows there are, after the tenant said that it still holds, or where a row is
    /// missing: what is not on its way is sent again, and a lost row is made again.
    pub(super) fn repair_outbox(self: &Rc<Self>) {
        let ended = self.with_aggregate(|aggregate| match aggregate {
            Aggregate::Vacant => false,
            Aggregate::Tombstone(_) => true,
            Aggregate::Live(live) => live.lifecycle.is_terminal(),
        });
        if !ended {
            return;
        }
        let repaired = self.store.postings().map_err(|error| storage_failed(&error));
        let repaired = repaired.and_then(|postings| self.apply(&Command::HoldOpen { postings }));
        if let Err(refusal) = repaired {
            worker::console_error!("outbox: {}", refusal.message());
        }
    }

    /// Tells the tenant, once, that somebody came back for a result that was made without readers. Should it fail, the
    /// next read tells.
    pub(super) fn tell_read(self: &Rc<Self>) {
        let news = self.with_aggregate(|aggregate| {
            let live = aggregate.live().filter(|live| live.read_is_news())?;
            Some((live.identity.tenant.clone(), live.identity.generation.clone()))
        });
        let Some((tenant, generation)) = news.filter(|_| !self.telling_read.replace(true)) else { return };
        let this = self.clone();
        self.state.wait_until(async move {
            if this.told_read(&tenant, generation).await
                && let Err(refusal) = this.apply(&Command::ReadTold)
            {
                worker::console_error!("read: {}", refusal.message());
            }
            this.telling_read.set(false);
        });
    }

    async fn told_read(&self, tenant: &TenantId, generation: GenerationId) -> bool {
        let call = TenantCall::ResultRead { generation };
        matches!(within(ANSWER_MS, ask_tenant(&self.env, tenant, &call)).await, Some(Ok(TenantReply::Noted)))
    }

    fn due_call(self: &Rc<Self>, together: bool) -> Option<Due> {
        self.first_due_call(together).or_else(|| {
            // Something may be due, and nothing of it has a row.
            if self.with_aggregate(|aggregate| aggregate.due_deliveries(clock::now()).next().is_some()) {
                self.repair_outbox();
            }
            self.first_due_call(together)
        })
    }

    /// The first that is due and can be delivered, with the postings that follow it.
    fn first_due_call(&self, together: bool) -> Option<Due> {
        let (tenant, due) = self.with_aggregate(|aggregate| {
            let tenant = match aggregate {
                Aggregate::Vacant => None,
                Aggregate::Tombstone(tombstone) => Some(tombstone.identity.tenant.clone()),
                Aggregate::Live(live) => Some(live.identity.tenant.clone()),
            };
            let due: Vec<Delivery> = aggregate.due_deliveries(clock::now()).cloned().collect();
            tenant.map(|tenant| (tenant, due))
        })?;
        (0..due.len()).find_map(|first| {
            let most = if together { usize::MAX } else { 1 };
            let call = self.call_of(due.get(first..)?, most);
            let (ids, call) = call.inspect_err(|error| worker::console_error!("outbox: {error}")).ok().flatten()?;
            Some(Due { tenant: tenant.clone(), ids, call })
        })
    }

    /// The call that delivers the first of `due`; postings that follow it go along, at most so many in all.
    fn call_of(&self, due: &[Delivery], most: usize) -> Result<Option<(Vec<String>, TenantCall)>> {
        let Some(Delivery { posting_id, parcel, .. }) = due.first() else { return Ok(None) };
        let call = match parcel {
            Parcel::Posting => return self.settling(due, most),
            Parcel::Operation => self.with_aggregate(|aggregate| {
                let live = aggregate.live()?;
                let (identity, operation_id) = (live.identity.clone(), live.operation_of(posting_id)?.to_owned());
                let action = OperationCall::Named { identity, operation_id };
                Some(TenantCall::Operation { provider: live.terms.provider.clone(), action })
            }),
            Parcel::Notice => {
                let notice = self.store.outbox_row(posting_id)?;
                notice.map(|notice| TenantCall::Notify { notices: vec![notice] })
            }
            // What is so now: it has a number of its own.
            Parcel::Place => self.with_aggregate(|aggregate| {
                aggregate.live().map(|live| TenantCall::Detached(Box::new(live.detached())))
            }),
        };
        Ok(call.map(|call| (vec![posting_id.clone()], call)))
    }

    /// What the end tells of the route goes with its postings; a repeat changes nothing.
    fn settling(&self, due: &[Delivery], most: usize) -> Result<Option<(Vec<String>, TenantCall)>> {
        let follow = due.iter().take_while(|delivery| delivery.parcel == Parcel::Posting).take(most);
        let rows = follow.map(|delivery| self.store.outbox_row(&delivery.posting_id));
        // One without a row ends it: none overtakes another.
        let postings: Vec<Posting> = rows.map_while(Result::transpose).collect::<Result<_>>()?;
        if postings.is_empty() {
            return Ok(None);
        }
        let ids = postings.iter().map(|posting| posting.id.clone()).collect();
        let run = self.with_aggregate(|aggregate| aggregate.live().and_then(Reservation::run_end));
        Ok(Some((ids, TenantCall::Settle { postings, run: run.map(Box::new) })))
    }

    async fn deliver(&self, due: &Due) -> Outcome {
        match within(ANSWER_MS, ask_tenant(&self.env, &due.tenant, &due.call)).await {
            Some(Ok(TenantReply::Settled { receipts })) => Outcome::Applied(receipts),
            Some(Ok(TenantReply::Noted)) => Outcome::Taken,
            Some(Ok(TenantReply::Operation(reply))) => Outcome::Named(reply.callbacks),
            Some(Ok(TenantReply::Refused { refusal })) if refusal.is_permanent_for_posting() => {
                worker::console_error!("outbox: the tenant refuses for good: {refusal:?}");
                Outcome::Refused(refusal)
            }
            Some(answer) => {
                worker::console_error!("outbox: the tenant answered {answer:?}");
                Outcome::Failed
            }
            None => Outcome::Failed,
        }
    }
}

/// What is delivered next.
struct Due {
    tenant: TenantId,
    ids: Vec<String>,
    call: TenantCall,
}

/// What became of a call.
enum Outcome {
    /// The postings are applied; each with its receipt, unless the tenant is of an older version.
    Applied(Vec<Receipt>),
    Taken,
    /// The operation has its name; these were called back before.
    Named(Vec<CallbackEvent>),
    Refused(Refusal),
    Failed,
}

impl Outcome {
    /// What it means for one of what was sent.
    fn command(&self, posting_id: String) -> Command {
        match self {
            Self::Applied(receipts) => match receipts.iter().find(|receipt| receipt.posting_id == posting_id) {
                Some(receipt) => Command::Applied { receipt: receipt.clone() },
                None => Command::Acknowledge { posting_id },
            },
            Self::Taken | Self::Named(_) => Command::Acknowledge { posting_id },
            Self::Refused(refusal) => Command::DeliveryRefused { posting_id, refusal: refusal.code().into() },
            Self::Failed => Command::DeliveryFailed { posting_id },
        }
    }
}
