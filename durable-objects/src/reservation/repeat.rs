//! A further attempt: the tenant extends the hold, then the stored request is sent again under a new id.

use super::generation::Generation;
use crate::clock::within;
use crate::rpc::ask_tenant;
use holdfast_core::ids::AttemptId;
use holdfast_core::money::Micros;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Command, Reply};
use holdfast_core::tenant::Extend;
use holdfast_core::wire::{TenantCall, TenantReply};
use std::rc::Rc;

/// Longest wait for the tenant's answer; the alarm asks again.
const ANSWER_MS: u64 = 10_000;

impl Generation {
    /// Asks the tenant for a further attempt's hold. While one question is on its way a second is not put; one that gets
    /// no answer is put again by the alarm, under the same id.
    pub(super) fn extend_hold(self: &Rc<Self>, epoch: u32, amount: Micros) {
        if self.extending.replace(true) {
            return;
        }
        let generation = self.clone();
        self.state.wait_until(async move {
            let answer = generation.ask_for_extension(epoch, amount).await;
            generation.extending.set(false);
            if let Some(command) = answer {
                generation.extended(&command);
            }
        });
    }

    /// The command that the tenant's answer makes; `None` for none.
    async fn ask_for_extension(&self, epoch: u32, amount: Micros) -> Option<Command> {
        let identity = self.with_aggregate(|aggregate| aggregate.live().map(|live| live.identity.clone()))?;
        let attempt = AttemptId::further(&identity.reservation, epoch);
        let tenant = identity.tenant.clone();
        let call = TenantCall::Extend(Box::new(Extend { identity, epoch, amount }));
        match within(ANSWER_MS, ask_tenant(&self.env, &tenant, &call)).await? {
            Ok(TenantReply::Extended) => Some(Command::HoldExtended { epoch, attempt }),
            Ok(TenantReply::Refused { refusal }) if is_answer(&refusal) => Some(Command::ExtensionRefused { epoch }),
            answer => {
                worker::console_error!("no answer about a further attempt: {answer:?}");
                None
            }
        }
    }

    fn extended(self: &Rc<Self>, command: &Command) {
        match self.apply(command) {
            Ok(Reply::Started { epoch }) => match self.store.request() {
                Ok(Some(body)) => self.start_driver(epoch, body),
                // The lease finds an attempt that nobody drives.
                Ok(None) => worker::console_error!("the request of a further attempt is not stored"),
                Err(error) => worker::console_error!("the request of a further attempt: {error}"),
            },
            Ok(_) => {}
            Err(refusal) => worker::console_error!("a further attempt: {}", refusal.message()),
        }
    }
}

/// Whether a refusal is the tenant's word, and not that of a part that is missing.
const fn is_answer(refusal: &Refusal) -> bool {
    !matches!(refusal, Refusal::Unavailable { .. } | Refusal::Misconfigured { .. })
}
