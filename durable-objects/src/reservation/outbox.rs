//! Brings postings to the tenant until they are acknowledged. At least once; the posting id makes a repeat harmless.

use super::generation::Generation;
use crate::clock::{self, sleep_ms};
use crate::rpc::ask_tenant;
use futures::future::{Either, select};
use futures::pin_mut;
use holdfast_core::ids::TenantId;
use holdfast_core::ledger::Posting;
use holdfast_core::refusal::Refusal;
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

    /// Delivers what is due, one by one and in order, so that each has its own answer. A second call while one runs does
    /// nothing; the first failure ends the round.
    pub(super) async fn deliver_postings(self: &Rc<Self>) {
        if self.delivering.replace(true) {
            return;
        }
        if let Some((tenant, postings)) = self.due_postings() {
            for posting in postings {
                let posting_id = posting.id.clone();
                let outcome = self.settle(&tenant, posting).await;
                let command = outcome.command(posting_id);
                if let Err(refusal) = self.apply(&command) {
                    worker::console_error!("outbox: {}", refusal.message());
                }
                if matches!(command, Command::DeliveryFailed { .. }) {
                    break;
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

    async fn settle(&self, tenant: &TenantId, posting: Posting) -> Outcome {
        let call = TenantCall::Settle { postings: vec![posting] };
        let asked = ask_tenant(&self.env, tenant, &call);
        let patience = sleep_ms(ANSWER_MS);
        pin_mut!(asked, patience);
        match select(asked, patience).await {
            Either::Left((Ok(TenantReply::Settled), _)) => Outcome::Applied,
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
