//! The tenant's webhook: what is told becomes a row in the same turn as the posting that it came with; the alarm sends
//! what is due. Nothing here makes a call of the tenant wait for a receiver.

use super::store::Store;
use super::{Failure, Tenant};
use crate::clock;
use crate::egress::{self, Letter};
use crate::settings;
use crate::sql::{self, Row};
use futures::future::join_all;
use holdfast_core::refusal::Refusal;
use holdfast_core::signature::{self, SigningSecret};
use holdfast_core::time::UnixMillis;
use holdfast_core::webhook::{
    Answer, Crowd, Delivery, DeliveryPage, DeliveryView, Endpoint, Finished, Notice, Reach, Recorded, Secrets,
    StateName, Step, WebhookView, record,
};
use holdfast_core::wire::{TenantReply, WebhookCall};
use serde::Serialize;
use worker::{Error, Result, SqlStorage, SqlStorageValue};

/// Events that are sent at once: the platform opens six connections, and holds are asked after besides.
const SENT_AT_ONCE: u32 = 4;
/// After so long no further batch of a run begins.
const RUN_MS: u64 = 10_000;
/// Batches of one run at most.
const BATCHES_PER_RUN: u32 = 50;
/// Old events that are removed at once.
const FORGET_MAX: u32 = 20;
/// Deliveries of one page at most.
const PAGE_MAX: u32 = 100;

/// Whether this deployment may call its own machine.
pub(super) fn reach(env: &worker::Env) -> Reach {
    if settings::is_local(env) { Reach::Local } else { Reach::Public }
}

/// Calls of the tenant and of its generations.
impl Tenant {
    /// Where the tenant is told, as configured now and with what happened to that URL.
    fn endpoint(&self) -> core::result::Result<Option<Endpoint>, Failure> {
        let Some(account) = self.account()? else { return Ok(None) };
        let config = self.config(&account)?;
        let Some(webhook) = &config.webhook else { return Ok(None) };
        Ok(Some(Endpoint::configured(webhook, self.store.known_endpoint()?.as_ref())))
    }

    /// Notes what is told, where anybody is to be told. The same event told again changes nothing.
    pub(super) fn note(&self, notices: &[Notice], now: UnixMillis) -> core::result::Result<(), Failure> {
        if notices.is_empty() {
            return Ok(());
        }
        let Some(endpoint) = self.endpoint()? else { return Ok(()) };
        let limits = self.settings.limits(&self.env)?;
        let (schedule, crowd) = (&limits.webhook_schedule_ms, self.crowd()?);
        let (mut told, mut dropped) = (Vec::new(), 0_u64);
        for notice in notices {
            match record(notice.clone(), Some(&endpoint), crowd, schedule, now) {
                Recorded::Unwanted => {}
                Recorded::Stored(stored) => told.push(*stored),
                Recorded::Dropped if self.store.place(&notice.id)?.is_some() => {}
                Recorded::Dropped => dropped = dropped.saturating_add(1),
            }
        }
        let forgotten = UnixMillis(now.0.saturating_sub(limits.webhook_keep_ms));
        let counted = (dropped > 0).then(|| endpoint.dropping(dropped));
        Ok(self.store.store_events(told, counted, forgotten)?)
    }

    /// Whether there is room for more events.
    fn crowd(&self) -> core::result::Result<Crowd, Failure> {
        let most = self.settings.limits(&self.env)?.webhook_pending_max;
        let pending_is_full = self.store.has_so_many(StateName::Pending, most)?;
        let dead_is_full = self.store.has_so_many(StateName::Dead, most)?;
        Ok(Crowd { pending_is_full, dead_is_full })
    }

    /// Acts on the webhook; the key was checked.
    pub(super) fn act_on_webhook(
        &self,
        action: WebhookCall,
        now: UnixMillis,
    ) -> core::result::Result<TenantReply, Failure> {
        match action {
            WebhookCall::Show => self.shown_webhook(now),
            WebhookCall::Rotate { secret, overlap_ms } => {
                let secret = SigningSecret::parse(&secret.0)
                    .map_err(|error| Refusal::InvalidSetting { what: error.to_string() })?;
                let limit_ms = self.settings.limits(&self.env)?.webhook_rotation_ms;
                let overlap_ms = overlap_ms.unwrap_or(limit_ms);
                if overlap_ms > limit_ms {
                    return Err(Refusal::InvalidSetting { what: format!("`overlap_ms` is above {limit_ms}") }.into());
                }
                self.store.store_secrets(self.store.secrets()?.rotated(secret, overlap_ms, now).secrets)?;
                self.shown_webhook(now)
            }
            WebhookCall::Enable => {
                let endpoint = self.configured_endpoint()?.enabled();
                self.store.store_endpoint(endpoint)?;
                self.shown_webhook(now)
            }
            WebhookCall::Test { random } => {
                self.configured_endpoint()?;
                let tenant = self.account()?.ok_or(Refusal::UnknownTenant)?.id;
                let test = Notice::test(&random, tenant.as_str(), now);
                self.note(core::slice::from_ref(&test), now)?;
                self.shown_delivery(&test.id).map_err(|_| too_many())
            }
            WebhookCall::List { state, after, limit } => self.list_deliveries(state, after.as_deref(), limit),
            WebhookCall::Replay { id } => {
                let (_, delivery) = self.store.event(&id)?.ok_or(Refusal::NotFound)?;
                if self.crowd()?.pending_is_full {
                    return Err(too_many());
                }
                let schedule = &self.settings.limits(&self.env)?.webhook_schedule_ms;
                self.store.store_deliveries(vec![delivery.replay(schedule, now)?], None)?;
                self.shown_delivery(&id)
            }
        }
    }

    fn configured_endpoint(&self) -> core::result::Result<Endpoint, Failure> {
        let none = || Refusal::InvalidSetting { what: "the configuration has no `webhook`".into() };
        Ok(self.endpoint()?.ok_or_else(none)?)
    }

    fn shown_webhook(&self, now: UnixMillis) -> core::result::Result<TenantReply, Failure> {
        let (pending, dead) = (self.store.count(StateName::Pending)?, self.store.count(StateName::Dead)?);
        let endpoint = self.endpoint()?;
        document(&WebhookView::of(endpoint.as_ref(), &self.store.secrets()?, pending, dead, now))
    }

    fn shown_delivery(&self, id: &str) -> core::result::Result<TenantReply, Failure> {
        let (notice, delivery) = self.store.event(id)?.ok_or(Refusal::NotFound)?;
        document(&DeliveryView::of(&notice, &delivery))
    }

    fn list_deliveries(
        &self,
        state: Option<StateName>,
        after: Option<&str>,
        limit: u32,
    ) -> core::result::Result<TenantReply, Failure> {
        let after = match after {
            // An event that was forgotten lies before everything that is kept.
            Some(id) => self.store.place(id)?.unwrap_or_default(),
            None => 0,
        };
        let limit = limit.clamp(1, PAGE_MAX);
        let mut found = self.store.events_after(state, after, limit.saturating_add(1))?;
        let has_more = found.len() > limit as usize;
        found.truncate(limit as usize);
        let data = found.iter().map(|(notice, delivery)| DeliveryView::of(notice, delivery)).collect();
        document(&DeliveryPage { object: "list", data, has_more })
    }
}

/// Attempts that are counted and stored, to be sent now.
struct Batch {
    endpoint: Option<Endpoint>,
    letters: Vec<Letter>,
}

/// What the alarm does.
impl Tenant {
    /// When a run that dies while it sends is made up for: no answer comes any more then. `None` when nothing is due.
    pub(super) fn made_up_for_ms(&self, now: UnixMillis) -> Option<u64> {
        let due = self.store.exists().ok()? && self.store.next_event_at().ok()?.is_some_and(|at| at <= now);
        let limits = self.settings.limits(&self.env).ok()?;
        due.then_some(limits.webhook_timeout_ms)
    }

    /// Sends what is due, a few at once, for a bounded time. What is left is due at the next alarm.
    pub(super) async fn send_due_events(&self) -> Result<()> {
        if !self.store.exists()? {
            return Ok(());
        }
        let began = clock::now();
        // The clock stands still where nothing is sent: batches are counted besides.
        for _ in 0..BATCHES_PER_RUN {
            let Some(batch) = self.begin_attempts(clock::now()).map_err(broken)? else { return Ok(()) };
            let Batch { endpoint, letters } = &batch;
            let outcomes = join_all(letters.iter().map(|letter| self.send(letter, endpoint.as_ref()))).await;
            outcomes.into_iter().collect::<Result<()>>()?;
            if clock::now().since(began) >= RUN_MS {
                break;
            }
        }
        Ok(())
    }

    /// Counts the attempts that are due, and stores them before anything is sent. `None` when nothing is due.
    fn begin_attempts(&self, now: UnixMillis) -> core::result::Result<Option<Batch>, Failure> {
        let due = self.store.due_events(now, SENT_AT_ONCE)?;
        if due.is_empty() {
            return Ok(None);
        }
        let endpoint = self.endpoint()?;
        let limits = self.settings.limits(&self.env)?;
        let (schedule, timeout_ms) = (&limits.webhook_schedule_ms, limits.webhook_timeout_ms);
        let signing = self.store.secrets()?.signing(now);
        let mut stored = Vec::new();
        let mut letters = Vec::new();
        for (notice, delivery) in due {
            match delivery.step(endpoint.as_ref(), schedule, timeout_ms, now) {
                Step::Wait => {}
                Step::Bury(dead) => stored.push(dead),
                Step::Send(begun) => {
                    stored.push(begun);
                    letters.push(self.letter(notice, endpoint.as_ref(), &signing, timeout_ms, now));
                }
            }
        }
        if stored.is_empty() {
            return Ok(None);
        }
        self.store.store_deliveries(stored, None)?;
        Ok(Some(Batch { endpoint, letters }))
    }

    fn letter(
        &self,
        notice: Notice,
        endpoint: Option<&Endpoint>,
        signing: &[SigningSecret],
        timeout_ms: u64,
        now: UnixMillis,
    ) -> Letter {
        let timestamp_s = now.0 / 1_000;
        Letter {
            url: endpoint.map(|endpoint| endpoint.url.clone()).unwrap_or_default(),
            reach: reach(&self.env),
            signatures: signature::sign(signing, &notice.id, timestamp_s, notice.body.as_bytes()),
            id: notice.id,
            timestamp_s,
            body: notice.body,
            timeout_ms,
        }
    }

    /// Sends, and notes the answer. A death in between sends it again under the same id.
    async fn send(&self, letter: &Letter, endpoint: Option<&Endpoint>) -> Result<()> {
        let answer = egress::deliver(letter).await;
        if !matches!(answer, Answer::Status { status: 200..=299, .. }) {
            worker::console_log!("webhook: {} was not taken: {answer:?}", letter.id);
        }
        // Forgotten, replayed, disabled: whatever came meanwhile, the row is loaded anew.
        let Some((_, delivery)) = self.store.event(&letter.id)? else { return Ok(()) };
        let schedule = &self.settings.limits(&self.env).map_err(refused)?.webhook_schedule_ms;
        let now = clock::now();
        let Finished { delivery, disables } = delivery.finish(answer, schedule, now);
        let gone = endpoint.filter(|_| disables).map(|endpoint| endpoint.gone(now));
        self.store.store_deliveries(vec![delivery], gone)
    }
}

fn too_many() -> Failure {
    Refusal::Unavailable { what: "as many events as may be are on their way".into() }.into()
}

fn document<T: Serialize>(view: &T) -> core::result::Result<TenantReply, Failure> {
    Ok(TenantReply::Webhook { document: serde_json::to_string(view).map_err(Error::from)? })
}

pub(super) fn refused(refusal: Refusal) -> Error {
    Error::from(refusal.message())
}

fn broken(failure: Failure) -> Error {
    match failure {
        Failure::Refused(refusal) => refused(refusal),
        Failure::Broken(error) => error,
    }
}

/// Rows of the webhook.
impl Store {
    /// When the next event is tried.
    pub(super) fn next_event_at(&self) -> Result<Option<UnixMillis>> {
        let query = "SELECT next_at FROM webhook_event WHERE state = 'pending' ORDER BY next_at LIMIT 1";
        let row = sql::first(self.sql(), query, vec![])?;
        Ok(sql::as_int(row.as_ref().and_then(|row| row.first()))?.map(UnixMillis))
    }

    fn known_endpoint(&self) -> Result<Option<Endpoint>> {
        sql::first_json(self.sql(), "SELECT json FROM webhook", vec![])
    }

    fn store_endpoint(&self, endpoint: Endpoint) -> Result<()> {
        self.transaction(move |sql| write_endpoint(sql, &endpoint))
    }

    fn secrets(&self) -> Result<Secrets> {
        let query = "SELECT secret, created_at, retires_at FROM webhook_secret ORDER BY created_at DESC";
        let rows = sql::rows(self.sql(), query, vec![])?.into_iter().map(secret_of).collect::<Result<Vec<_>>>()?;
        Secrets::from_rows(rows).map_err(|error| Error::from(error.to_string()))
    }

    fn store_secrets(&self, secrets: Secrets) -> Result<()> {
        self.transaction(move |sql| {
            sql::run(sql, "DELETE FROM webhook_secret", vec![])?;
            secrets.rows().iter().try_for_each(|stored| {
                let retires_at = stored.retires_at.map_or(Ok(SqlStorageValue::Null), sql::time)?;
                let parameters = vec![stored.secret.reveal().into(), sql::time(stored.created_at)?, retires_at];
                let statement = "INSERT INTO webhook_secret (secret, created_at, retires_at) VALUES (?, ?, ?)";
                sql::run(sql, statement, parameters).map(|_| ())
            })
        })
    }

    /// Stores what is told; an event that is known stays as it is. `counted` has those that are not stored. Besides, old
    /// events are forgotten: delivered ones and dead letters from before `forgotten`.
    fn store_events(
        &self,
        told: Vec<(Notice, Delivery)>,
        counted: Option<Endpoint>,
        forgotten: UnixMillis,
    ) -> Result<()> {
        if told.is_empty() && counted.is_none() {
            return Ok(());
        }
        self.transaction(move |sql| {
            counted.iter().try_for_each(|endpoint| write_endpoint(sql, endpoint))?;
            told.iter().try_for_each(|(notice, delivery)| insert_event(sql, notice, delivery))?;
            forget_events(sql, forgotten)
        })
    }

    /// Removes events that are kept no longer, a few of each kind.
    pub(super) fn forget_old_events(&self, before: UnixMillis) -> Result<()> {
        self.transaction(move |sql| forget_events(sql, before))
    }

    fn store_deliveries(&self, deliveries: Vec<Delivery>, endpoint: Option<Endpoint>) -> Result<()> {
        self.transaction(move |sql| {
            deliveries.iter().try_for_each(|delivery| update_delivery(sql, delivery))?;
            endpoint.iter().try_for_each(|endpoint| write_endpoint(sql, endpoint))
        })
    }

    fn event(&self, id: &str) -> Result<Option<(Notice, Delivery)>> {
        let query = "SELECT id, type, at, body, json FROM webhook_event WHERE id = ?";
        sql::first(self.sql(), query, vec![id.into()])?.map(event_of).transpose()
    }

    /// Place of an event in the order of events.
    fn place(&self, id: &str) -> Result<Option<u64>> {
        let row = sql::first(self.sql(), "SELECT seq FROM webhook_event WHERE id = ?", vec![id.into()])?;
        sql::as_int(row.as_ref().and_then(|row| row.first()))
    }

    fn due_events(&self, now: UnixMillis, limit: u32) -> Result<Vec<(Notice, Delivery)>> {
        let query = "SELECT id, type, at, body, json FROM webhook_event
            WHERE state = 'pending' AND next_at <= ? ORDER BY next_at, seq LIMIT ?";
        self.events(query, vec![sql::time(now)?, i64::from(limit).into()])
    }

    fn events_after(&self, state: Option<StateName>, after: u64, limit: u32) -> Result<Vec<(Notice, Delivery)>> {
        let limit = i64::from(limit).into();
        match state {
            Some(state) => {
                let query = "SELECT id, type, at, body, json FROM webhook_event
                    WHERE state = ? AND seq > ? ORDER BY seq LIMIT ?";
                self.events(query, vec![state.as_str().into(), sql::int(after)?, limit])
            }
            None => {
                let query = "SELECT id, type, at, body, json FROM webhook_event WHERE seq > ? ORDER BY seq LIMIT ?";
                self.events(query, vec![sql::int(after)?, limit])
            }
        }
    }

    fn events(&self, query: &str, parameters: Row) -> Result<Vec<(Notice, Delivery)>> {
        sql::rows(self.sql(), query, parameters)?.into_iter().map(event_of).collect()
    }

    /// Whether there are `most` events of a state, or more. Looks at no more than these.
    fn has_so_many(&self, state: StateName, most: u32) -> Result<bool> {
        let query = "SELECT 1 FROM webhook_event WHERE state = ? ORDER BY seq LIMIT 1 OFFSET ?";
        let parameters = vec![state.as_str().into(), i64::from(most.saturating_sub(1)).into()];
        Ok(sql::first(self.sql(), query, parameters)?.is_some())
    }

    fn count(&self, state: StateName) -> Result<u64> {
        let query = "SELECT COUNT(*) FROM webhook_event WHERE state = ?";
        let row = sql::first(self.sql(), query, vec![state.as_str().into()])?;
        Ok(sql::as_int(row.as_ref().and_then(|row| row.first()))?.unwrap_or_default())
    }
}

fn secret_of(row: Row) -> Result<(String, UnixMillis, Option<UnixMillis>)> {
    let created_at = sql::as_int(row.get(1))?.map(UnixMillis).unwrap_or_default();
    let retires_at = sql::as_int(row.get(2))?.map(UnixMillis);
    Ok((sql::as_text(row.into_iter().next())?, created_at, retires_at))
}

fn event_of(row: Row) -> Result<(Notice, Delivery)> {
    let text = |index: usize| sql::as_text(row.get(index).cloned());
    let at = sql::as_int(row.get(2))?.map(UnixMillis).unwrap_or_default();
    let kind = serde_json::from_value(serde_json::Value::String(text(1)?))?;
    Ok((Notice { id: text(0)?, kind, at, body: text(3)? }, serde_json::from_str(&text(4)?)?))
}

fn write_endpoint(sql: &SqlStorage, endpoint: &Endpoint) -> Result<()> {
    let statement =
        "INSERT INTO webhook (one, json) VALUES (1, ?) ON CONFLICT (one) DO UPDATE SET json = excluded.json";
    sql::run(sql, statement, vec![sql::json(endpoint)?]).map(|_| ())
}

fn insert_event(sql: &SqlStorage, notice: &Notice, delivery: &Delivery) -> Result<()> {
    let statement = "INSERT OR IGNORE INTO webhook_event (id, type, at, state, next_at, body, json)
        VALUES (?, ?, ?, ?, ?, ?, ?)";
    let parameters = vec![
        notice.id.as_str().into(),
        notice.kind.as_str().into(),
        sql::time(notice.at)?,
        delivery.state.name().as_str().into(),
        next_at(delivery)?,
        notice.body.as_str().into(),
        sql::json(delivery)?,
    ];
    sql::run(sql, statement, parameters).map(|_| ())
}

fn update_delivery(sql: &SqlStorage, delivery: &Delivery) -> Result<()> {
    let parameters = vec![
        delivery.state.name().as_str().into(),
        next_at(delivery)?,
        sql::json(delivery)?,
        delivery.event_id.as_str().into(),
    ];
    sql::run(sql, "UPDATE webhook_event SET state = ?, next_at = ?, json = ? WHERE id = ?", parameters).map(|_| ())
}

fn next_at(delivery: &Delivery) -> Result<SqlStorageValue> {
    delivery.state.next_at().map_or(Ok(SqlStorageValue::Null), sql::time)
}

/// Delivered events and dead letters from before then: what is on its way is never forgotten.
fn forget_events(sql: &SqlStorage, before: UnixMillis) -> Result<()> {
    [StateName::Delivered, StateName::Dead].into_iter().try_for_each(|state| forget(sql, state, before))
}

/// Looks at the oldest few alone: events come in the order of their time, near enough.
fn forget(sql: &SqlStorage, state: StateName, before: UnixMillis) -> Result<()> {
    let statement = "DELETE FROM webhook_event WHERE at < ? AND seq IN (
        SELECT seq FROM webhook_event WHERE state = ? ORDER BY seq LIMIT ?)";
    sql::run(sql, statement, vec![sql::time(before)?, state.as_str().into(), i64::from(FORGET_MAX).into()]).map(|_| ())
}
