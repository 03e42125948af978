//! Brings postings, and what is told without one, to the tenant until they are acknowledged. At least once; their ids
//! make a repeat harmless.

use super::generation::Generation;
use crate::clock::{self, sleep_ms};
use crate::rpc::ask_tenant;
use futures::future::{Either, select};
use futures::pin_mut;
use holdfast_core::ids::{GenerationId, TenantId};
use holdfast_core::ledger::Posting;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Command, Delivery, Parcel, Reservation};
use holdfast_core::wire::{TenantCall, TenantReply};
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

    /// Tells the tenant at once, where the last reader's leaving or a reader's return has made a word for it.
    pub(super) fn tell_place(self: &Rc<Self>) {
        let word = self.with_aggregate(|aggregate| {
            aggregate.deliveries().iter().any(|delivery| delivery.parcel == Parcel::Place && delivery.attempts == 0)
        });
        if word {
            self.start_deliveries();
        }
    }

    /// Delivers what is due, one by one and in order, so that each has its own answer. A second call while one runs does
    /// nothing: what became due meanwhile is delivered by the same run. The first failure ends it.
    pub(super) async fn deliver_postings(self: &Rc<Self>) {
        if self.delivering.replace(true) {
            return;
        }
        while let Some((tenant, posting_id, call)) = self.due_call() {
            let command = self.deliver(&tenant, &call).await.command(posting_id);
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
        let asked = ask_tenant(&self.env, tenant, &call);
        let patience = sleep_ms(ANSWER_MS);
        pin_mut!(asked, patience);
        matches!(select(asked, patience).await, Either::Left((Ok(TenantReply::Noted), _)))
    }

    /// The first that is due and can be delivered.
    fn due_call(&self) -> Option<(TenantId, String, TenantCall)> {
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
        let asked = ask_tenant(&self.env, tenant, call);
        let patience = sleep_ms(ANSWER_MS);
        pin_mut!(asked, patience);
        match select(asked, patience).await {
            Either::Left((Ok(TenantReply::Settled | TenantReply::Noted), _)) => Outcome::Applied,
            Either::Left((Ok(TenantReply::Refused { refusal }), _)) if refusal.is_permanent_for_posting() => {
                worker::console_error!("outbox: the tenant refuses for good: {refusal:?}");
                Outcome::Refused(refusal)
            }
            Either::Left((answer, _)) => {
                worker::console_error!("outbox: the tenant answered {answer:?}");
                Outcome::Failed
            }
            Either::Right(_) => Outcome::Failed,
        }
    }
}

/// What became of one delivery.
enum Outcome {
    Applied,
    Refused(Refusal),
    Failed,
}

impl Outcome {
    fn command(self, posting_id: String) -> Command {
        match self {
            Self::Applied => Command::Acknowledge { posting_id },
            Self::Refused(refusal) => Command::DeliveryRefused { posting_id, refusal: refusal.code().into() },
            Self::Failed => Command::DeliveryFailed { posting_id },
        }
    }
}
