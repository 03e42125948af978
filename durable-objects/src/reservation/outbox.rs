//! Brings postings to the tenant until they are acknowledged. At least once; the posting id makes a repeat harmless.

use super::generation::Generation;
use crate::clock::{self, sleep_ms};
use crate::rpc::ask_tenant;
use futures::future::{Either, select};
use futures::pin_mut;
use holdfast_core::ids::TenantId;
use holdfast_core::ledger::Posting;
use holdfast_core::reservation::{Aggregate, Command};
use holdfast_core::wire::{TenantCall, TenantReply};
use std::rc::Rc;

/// Longest wait for the tenant's answer.
const ANSWER_MS: u64 = 10_000;

impl Generation {
    /// Delivers in the background.
    pub(super) fn start_deliveries(self: &Rc<Self>) {
        let generation = self.clone();
        self.state.wait_until(async move { generation.deliver_postings().await });
    }

    /// Delivers what is due, in order. One at a time: a second call while one runs does nothing.
    pub(super) async fn deliver_postings(self: &Rc<Self>) {
        if self.delivering.replace(true) {
            return;
        }
        let due = self.due_postings();
        if let Some((tenant, postings)) = due {
            let ids: Vec<String> = postings.iter().map(|posting| posting.id.clone()).collect();
            let settled = self.settle(&tenant, postings).await;
            for posting_id in ids {
                let command =
                    if settled { Command::Acknowledge { posting_id } } else { Command::DeliveryFailed { posting_id } };
                if let Err(refusal) = self.apply(&command) {
                    worker::console_error!("outbox: {}", refusal.message());
                }
            }
        }
        self.delivering.set(false);
    }

    fn due_postings(&self) -> Option<(TenantId, Vec<Posting>)> {
        let (tenant, ids) = self.with_aggregate(|aggregate| {
            let tenant = match aggregate {
                Aggregate::Vacant => None,
                Aggregate::Tombstone(tombstone) => Some(tombstone.identity.tenant.clone()),
                Aggregate::Live(live) => Some(live.identity.tenant.clone()),
            };
            let due: Vec<String> =
                aggregate.due_deliveries(clock::now()).map(|delivery| delivery.posting_id.clone()).collect();
            tenant.map(|tenant| (tenant, due))
        })?;
        let postings: Vec<Posting> = ids
            .iter()
            .filter_map(|id| {
                self.store.posting(id).inspect_err(|error| worker::console_error!("outbox: {error}")).ok().flatten()
            })
            .collect();
        (!postings.is_empty()).then_some((tenant, postings))
    }

    async fn settle(&self, tenant: &TenantId, postings: Vec<Posting>) -> bool {
        let call = TenantCall::Settle { postings };
        let asked = ask_tenant(&self.env, tenant, &call);
        let patience = sleep_ms(ANSWER_MS);
        pin_mut!(asked, patience);
        match select(asked, patience).await {
            Either::Left((Ok(TenantReply::Settled), _)) => true,
            Either::Left((answer, _)) => {
                worker::console_error!("outbox: the tenant answered {answer:?}");
                false
            }
            Either::Right(_) => false,
        }
    }
}
