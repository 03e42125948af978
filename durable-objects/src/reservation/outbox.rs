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

    /// Delivers what is due, one by one and in order, so that each has its own answer. A second call while one runs does
    /// nothing: what became due meanwhile is delivered by the same run. The first failure ends it.
    pub(super) async fn deliver_postings(self: &Rc<Self>) {
        if self.delivering.replace(true) {
            return;
        }
        // What an answer brings may make further postings: they go at once.
        while let Some((tenant, posting_id, call)) = self.due_call() {
            let outcome = self.deliver(&tenant, &call).await;
            if let Outcome::Named(callbacks) = &outcome {
                self.take_callbacks(callbacks);
            }
            let command = outcome.command(posting_id);
            let applied = self.apply(&command);
            if let Err(refusal) = &applied {
                worker::console_error!("outbox: {}", refusal.message());
            }
            if applied.is_err() || matches!(command, Command::DeliveryFailed { .. }) {
                break;
            }
        }
        self.delivering.set(false);
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

    fn due_call(self: &Rc<Self>) -> Option<(TenantId, String, TenantCall)> {
        self.first_due_call().or_else(|| {
            // Something may be due, and nothing of it has a row.
            if self.with_aggregate(|aggregate| aggregate.due_deliveries(clock::now()).next().is_some()) {
                self.repair_outbox();
            }
            self.first_due_call()
        })
    }

    /// The first that is due and can be delivered.
    fn first_due_call(&self) -> Option<(TenantId, String, TenantCall)> {
        let (tenant, due) = self.with_aggregate(|aggregate| {
            let tenant = match aggregate {
                Aggregate::Vacant => None,
                Aggregate::Tombstone(tombstone) => Some(tombstone.identity.tenant.clone()),
                Aggregate::Live(live) => Some(live.identity.tenant.clone()),
            };
            let due: Vec<Delivery> = aggregate.due_deliveries(clock::now()).cloned().collect();
            tenant.map(|tenant| (tenant, due))
        })?;
        due.into_iter().find_map(|Delivery { posting_id, parcel, .. }| {
            let call = self.call_of(&posting_id, parcel);
            let call = call.inspect_err(|error| worker::console_error!("outbox: {error}")).ok().flatten()?;
            Some((tenant.clone(), posting_id, call))
        })
    }

    fn call_of(&self, id: &str, parcel: Parcel) -> Result<Option<TenantCall>> {
        Ok(match parcel {
            Parcel::Posting => self.store.outbox_row(id)?.map(|posting| self.settling(posting)),
            Parcel::Operation => self.with_aggregate(|aggregate| {
                let live = aggregate.live()?;
                let (identity, operation_id) = (live.identity.clone(), live.operation_of(id)?.to_owned());
                let action = OperationCall::Named { identity, operation_id };
                Some(TenantCall::Operation { provider: live.terms.provider.clone(), action })
            }),
            Parcel::Notice => self.store.outbox_row(id)?.map(|notice| TenantCall::Notify { notices: vec![notice] }),
            // What is so now: it has a number of its own.
            Parcel::Place => self.with_aggregate(|aggregate| {
                aggregate.live().map(|live| TenantCall::Detached(Box::new(live.detached())))
            }),
        })
    }

    /// What the end tells of the route goes with its posting; a repeat changes nothing.
    fn settling(&self, posting: Posting) -> TenantCall {
        let run = self.with_aggregate(|aggregate| aggregate.live().and_then(Reservation::run_end));
        TenantCall::Settle { postings: vec![posting], run: run.map(Box::new) }
    }

    async fn deliver(&self, tenant: &TenantId, call: &TenantCall) -> Outcome {
        match within(ANSWER_MS, ask_tenant(&self.env, tenant, call)).await {
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

/// What became of one delivery.
enum Outcome {
    /// The posting is applied; with its receipt, unless the tenant is of an older version.
    Applied(Vec<Receipt>),
    Taken,
    /// The operation has its name; these were called back before.
    Named(Vec<CallbackEvent>),
    Refused(Refusal),
    Failed,
}

impl Outcome {
    fn command(self, posting_id: String) -> Command {
        match self {
            Self::Applied(receipts) => match receipts.into_iter().find(|receipt| receipt.posting_id == posting_id) {
                Some(receipt) => Command::Applied { receipt },
                None => Command::Acknowledge { posting_id },
            },
            Self::Taken | Self::Named(_) => Command::Acknowledge { posting_id },
            Self::Refused(refusal) => Command::DeliveryRefused { posting_id, refusal: refusal.code().into() },
            Self::Failed => Command::DeliveryFailed { posting_id },
        }
    }
}
