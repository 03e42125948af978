//! Operations at providers: which generation has which, and callbacks that come before their operation is named here.
//!
//! | table | life of a row |
//! |---|---|
//! | `operation` | one per operation of a provider that calls back; never deleted, so that the latest callback finds it |
//! | `parked_callback` | one per callback that came first; kept for `callback_parked_ms`, and no more than `callbacks_parked_max` |

use super::store::Store;
use super::{Failure, Tenant};
use crate::sql::{self, Row};
use holdfast_core::callback::CallbackEvent;
use holdfast_core::config::Limits;
use holdfast_core::ids::Identity;
use holdfast_core::refusal::Refusal;
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::{OperationCall, OperationReply, TenantReply};
use worker::Result;

impl Tenant {
    /// Takes the name of an operation, or a callback about one.
    pub(super) fn operation(
        &self,
        provider: &str,
        action: OperationCall,
        now: UnixMillis,
    ) -> core::result::Result<TenantReply, Failure> {
        if self.account()?.is_none() {
            return Err(Refusal::UnknownTenant.into());
        }
        let reply = match action {
            OperationCall::Named { identity, operation_id } => {
                self.name_operation(provider, &operation_id, identity)?
            }
            OperationCall::Called { event } => self.called(provider, &event, now)?,
        };
        Ok(TenantReply::Operation(reply))
    }

    /// The answer brings what was called back before: it stays parked, should the answer be lost. The generation handles
    /// an event once.
    fn name_operation(
        &self,
        provider: &str,
        operation_id: &str,
        identity: Identity,
    ) -> core::result::Result<OperationReply, Failure> {
        let hold = self.store.hold(&identity.reservation)?.filter(|hold| hold.identity == identity);
        hold.ok_or(Refusal::NotFound)?;
        match self.store.operation(provider, operation_id)? {
            Some(known) if known != identity => return Err(Refusal::PostingConflict.into()),
            Some(_) => {}
            None => self.store.insert_operation(provider, operation_id, &identity)?,
        }
        let callbacks = self.store.parked(provider, operation_id)?;
        Ok(OperationReply { identity: Some(identity), callbacks })
    }

    fn called(
        &self,
        provider: &str,
        event: &CallbackEvent,
        now: UnixMillis,
    ) -> core::result::Result<OperationReply, Failure> {
        let identity = self.store.operation(provider, &event.operation_id)?;
        if identity.is_none() {
            self.store.park(provider, event, self.settings.limits(&self.env)?, now)?;
        }
        Ok(OperationReply { identity, callbacks: Vec::new() })
    }
}

impl Store {
    fn operation(&self, provider: &str, operation_id: &str) -> Result<Option<Identity>> {
        let query = "SELECT json FROM operation WHERE provider = ? AND operation_id = ?";
        sql::first_json(self.sql(), query, vec![provider.into(), operation_id.into()])
    }

    fn insert_operation(&self, provider: &str, operation_id: &str, identity: &Identity) -> Result<()> {
        let parameters: Row = vec![provider.into(), operation_id.into(), sql::json(identity)?];
        let statement = "INSERT INTO operation (provider, operation_id, json) VALUES (?, ?, ?)";
        sql::run(self.sql(), statement, parameters).map(|_| ())
    }

    fn parked(&self, provider: &str, operation_id: &str) -> Result<Vec<CallbackEvent>> {
        let query = "SELECT json FROM parked_callback WHERE provider = ? AND operation_id = ? ORDER BY seq";
        sql::all_json(self.sql(), query, vec![provider.into(), operation_id.into()])
    }

    /// The same event again is the same row. What is too old gives way, and of too many the oldest: one that is early is
    /// matched within moments.
    fn park(&self, provider: &str, event: &CallbackEvent, limits: &Limits, now: UnixMillis) -> Result<()> {
        let expired = sql::time(UnixMillis(now.0.saturating_sub(limits.callback_parked_ms)))?;
        let max = i64::from(limits.callbacks_parked_max);
        let parameters: Row = vec![
            provider.into(),
            event.operation_id.as_str().into(),
            event.event_id.as_str().into(),
            sql::time(now)?,
            sql::json(event)?,
        ];
        self.transaction(move |sql| {
            let insert = "INSERT OR IGNORE INTO parked_callback (provider, operation_id, event_id, at, json)
                VALUES (?, ?, ?, ?, ?)";
            sql::run(sql, insert, parameters)?;
            let forget = "DELETE FROM parked_callback WHERE at <= ?1 OR seq <= (
                SELECT seq FROM parked_callback ORDER BY seq DESC LIMIT 1 OFFSET ?2)";
            sql::run(sql, forget, vec![expired, max.into()]).map(|_| ())
        })
    }
}
