//! A tenant's rows in memory, kept as the object keeps them in SQLite: load, apply, store.

use holdfast_core::audit::{AuditRow, ChainHead};
use holdfast_core::config::{Limits, Operator, Provider, TenantConfig, parse_providers, read_config};
use holdfast_core::ids::{AttemptId, GenerationId, Identity, ReservationId, TenantId};
use holdfast_core::key::KeyDigest;
use holdfast_core::ledger::{InvoiceLine, LedgerEntry, Posting, PostingKind, ReasonCode, UsageRecord, posting_id};
use holdfast_core::money::Micros;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::Detached;
use holdfast_core::tenant::account::{Account, Status, grant};
use holdfast_core::tenant::{
    Admit, AdmitContext, Admitted, DetachedContext, Extend, ExtendContext, Hold, IdempotencyRow, KeyAfter, PeriodState,
    PostedRows, RunRow, SettleContext, SettlementRows, TenantState, admit, detach, extend, route_of, settle,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::webhook::Reach;
use std::collections::BTreeMap;

pub(crate) const PATH: &str = "/v1/chat/completions";
pub(crate) const KEY: &str = "0123456789abcdef0123456789abcdef0123456789abcdef0123456789abcdef";
/// 2026-11-30T00:00:00Z: the next day is in the next month.
pub(crate) const START: UnixMillis = UnixMillis(1_795_996_800_000);

/// One micro-USD per token, so that a hold is the sum of its bounds.
pub(crate) fn providers() -> Vec<Provider> {
    parse_providers(
        r#"[{"name":"p","origin":"https://p.example","dialect":"openai-chat","secret":"K","prices":{"version":"v1","models":[
            {"model":"priceless","input_micros_per_million":18446744073709551615,"output_micros_per_million":0},
            {"model":"m*","input_micros_per_million":1000000,"output_micros_per_million":1000000}]}}]"#,
    )
    .unwrap()
}

/// A tenant of the given credit, period limit (by day) and slots, with the given routes.
pub(crate) fn config(grant: u64, limit: u64, concurrency: u32, routes: &str) -> Setup {
    let json = format!(
        r#"{{"budget":{{"limit_micros":{limit},"period":"day"}},"concurrency":{concurrency},"routes":[{routes}]}}"#
    );
    let (providers, limits) = (providers(), Limits::default());
    let operator = Operator { providers: &providers, limits: &limits, reach: Reach::Public };
    let reading = read_config(&json, &operator);
    let accepted = reading.accepted.unwrap_or_else(|| panic!("{:#?}", reading.errors));
    Setup { grant: micros(grant), config: accepted.config }
}

/// What a tenant begins with.
#[derive(Clone, Debug)]
pub(crate) struct Setup {
    pub(crate) grant: Micros,
    pub(crate) config: TenantConfig,
}

/// The tenant `t`, that may run.
pub(crate) fn account() -> Account {
    Account { id: TenantId::parse("t").unwrap(), status: Status::Active, created_at: START, config_version: 7 }
}

pub(crate) fn micros(n: u64) -> Micros {
    Micros::new(n).unwrap()
}

pub(crate) fn identity(n: u8) -> Identity {
    Identity {
        tenant: TenantId::parse("t").unwrap(),
        generation: GenerationId::from_random([n; 16]),
        reservation: ReservationId::from_random([n; 16]),
    }
}

/// A request of generation `n` whose worst case is `body_bytes + 10`; its fingerprint is its size.
pub(crate) fn request(n: u8, body_bytes: u64) -> Admit {
    Admit {
        identity: identity(n),
        attempt: AttemptId::from_random([n; 16]),
        key: KeyDigest(KEY.into()).into(),
        path: PATH.into(),
        model: "m".into(),
        streaming: true,
        include_usage: false,
        max_output_tokens: Some(10),
        choices: 1,
        body_bytes,
        fingerprint: format!("body of {body_bytes}"),
        headers: BTreeMap::new(),
        on_disconnect: None,
        idempotency_key: None,
        workload: None,
        run: None,
        forward: BTreeMap::new(),
        background: Default::default(),
    }
}

pub(crate) fn posting(n: u8, kind: PostingKind, amount: u64, reason: ReasonCode) -> Posting {
    let identity = identity(n);
    Posting {
        id: id_of(n, kind, 1),
        reservation: Some(identity.reservation),
        generation: Some(identity.generation),
        ..Posting::new(String::new(), kind, micros(amount), reason, START)
    }
}

/// Id of a posting of reservation `n` by its first attempt.
pub(crate) fn id_of(n: u8, kind: PostingKind, version: u32) -> String {
    posting_id(&identity(n).reservation, 1, kind, version)
}

#[derive(Clone, Debug, PartialEq)]
pub(crate) struct World {
    pub(crate) account: Account,
    pub(crate) config: TenantConfig,
    pub(crate) providers: Vec<Provider>,
    pub(crate) limits: Limits,
    pub(crate) tenant: TenantState,
    pub(crate) periods: BTreeMap<String, PeriodState>,
    pub(crate) holds: BTreeMap<ReservationId, Hold>,
    pub(crate) postings: BTreeMap<String, Posting>,
    pub(crate) entries: Vec<LedgerEntry>,
    pub(crate) lines: BTreeMap<String, InvoiceLine>,
    pub(crate) usage_records: BTreeMap<String, UsageRecord>,
    pub(crate) audit: Vec<AuditRow>,
    pub(crate) keys: BTreeMap<String, IdempotencyRow>,
    pub(crate) runs: Vec<RunRow>,
}

impl World {
    /// A tenant with its configured credit granted.
    pub(crate) fn new(setup: Setup) -> Self {
        let mut world = Self {
            account: account(),
            config: setup.config,
            providers: providers(),
            limits: Limits::default(),
            tenant: TenantState::default(),
            periods: BTreeMap::new(),
            holds: BTreeMap::new(),
            postings: BTreeMap::new(),
            entries: Vec::new(),
            lines: BTreeMap::new(),
            usage_records: BTreeMap::new(),
            audit: Vec::new(),
            keys: BTreeMap::new(),
            runs: Vec::new(),
        };
        world.grant("initial", setup.grant).unwrap();
        world
    }

    /// Whether the credit was granted now, and not before.
    pub(crate) fn grant(&mut self, id: &str, amount: Micros) -> Result<bool, Refusal> {
        let same_id = self.postings.get(&format!("grant:{id}"));
        let rows = grant(&self.tenant, same_id, id, amount, START)?;
        let granted = rows.is_some();
        rows.into_iter().for_each(|rows| self.store(rows));
        Ok(granted)
    }

    pub(crate) fn admit(&mut self, call: &Admit, now: UnixMillis) -> Result<Admitted, Refusal> {
        let key = PeriodState::key_for(&self.config, now);
        let period = self.periods.get(&key).cloned().unwrap_or_else(|| PeriodState::empty(key));
        let row = call.idempotency_scope().and_then(|scope| self.keys.get(&scope));
        let context = AdmitContext {
            account: &self.account,
            config: &self.config,
            providers: &self.providers,
            limits: &self.limits,
            tenant: &self.tenant,
            period: &period,
            same_generation: self.holds.values().find(|hold| hold.identity.generation == call.identity.generation),
            same_key: row.map(|row| (row, &self.holds[&row.identity.reservation])),
            route_slots: route_of(&self.config, call).map_or(0, |route| self.slots_of(&route.name)),
            measures: None,
        };
        let (admitted, rows) = admit(&context, call, now)?;
        if let Some(rows) = rows {
            self.store(rows.posted);
            self.periods.insert(rows.period.key.clone(), rows.period);
            let replaced = self.holds.insert(rows.hold.identity.reservation.clone(), rows.hold);
            assert_eq!(replaced, None, "a hold is made once");
            self.runs.extend(rows.run);
            self.keys.extend(rows.idempotency.map(|row| (row.scope.clone(), row)));
        }
        Ok(admitted)
    }

    fn slots_of(&self, route: &str) -> u32 {
        let taken = self.holds.values().filter(|hold| hold.has_slot() && hold.terms.route == route);
        u32::try_from(taken.count()).unwrap()
    }

    /// Whether the posting was applied now, and not before.
    pub(crate) fn settle(&mut self, posting: &Posting, now: UnixMillis) -> Result<bool, Refusal> {
        let hold = posting.reservation.as_ref().and_then(|reservation| self.holds.get(reservation));
        let untouched = PeriodState::empty(String::new());
        let context = SettleContext {
            limits: &self.limits,
            tenant: &self.tenant,
            hold,
            period: hold.map_or(&untouched, |hold| &self.periods[&hold.period]),
            idempotency: hold.and_then(|hold| self.keys.get(hold.idempotency_scope.as_deref()?)),
            same_id: self.postings.get(&posting.id),
            referred: posting.refers_to.as_ref().and_then(|id| self.postings.get(id)),
        };
        let rows = settle(&context, posting, now)?;
        Ok(rows.map(|rows| self.store_settlement(rows)).is_some())
    }

    /// Whether the hold was extended now, and not before.
    pub(crate) fn extend(&mut self, request: &Extend, now: UnixMillis) -> Result<bool, Refusal> {
        let hold = self.holds.get(&request.identity.reservation);
        let untouched = PeriodState::empty(String::new());
        let context = ExtendContext {
            config: &self.config,
            tenant: &self.tenant,
            hold,
            period: hold.map_or(&untouched, |hold| &self.periods[&hold.period]),
            same_id: self.postings.get(&request.posting_id()),
            account: &self.account,
        };
        let rows = extend(&context, request, now)?;
        Ok(rows.map(|rows| self.store_settlement(rows)).is_some())
    }

    /// Whether the word changed anything.
    pub(crate) fn detach(&mut self, told: &Detached) -> Result<bool, Refusal> {
        let hold = self.holds.get(&told.identity.reservation);
        let context = DetachedContext { config: &self.config, hold, detached: self.detached() };
        let hold = detach(&context, told)?;
        Ok(hold.map(|hold| self.holds.insert(hold.identity.reservation.clone(), hold)).is_some())
    }

    /// Generations that go on without a reader.
    pub(crate) fn detached(&self) -> u32 {
        u32::try_from(self.holds.values().filter(|hold| hold.is_detached()).count()).unwrap()
    }

    fn store_settlement(&mut self, rows: SettlementRows) {
        self.store(rows.posted);
        if let Some(line) = rows.invoice_line {
            assert_eq!(self.lines.insert(line.posting_id.clone(), line), None, "a posting is billed once");
        }
        self.periods.insert(rows.period.key.clone(), rows.period);
        match (rows.idempotency, &rows.hold.idempotency_scope) {
            (KeyAfter::Expires(row), Some(scope)) => assert!(self.keys.insert(scope.clone(), row).is_some()),
            (KeyAfter::Freed, Some(scope)) => assert!(self.keys.remove(scope).is_some()),
            (KeyAfter::Unchanged, _) => {}
            (other, None) => panic!("{other:?} of a hold without a key"),
        }
        self.holds.insert(rows.hold.identity.reservation.clone(), rows.hold);
    }

    /// Removes the keys that stand no longer, as the object does now and then.
    pub(crate) fn forget(&mut self, now: UnixMillis) {
        self.keys.retain(|_, row| row.stands(now));
    }

    /// Invariant 10: the audit chain has one unaltered row for each posting and ends at the tenant's head.
    pub(crate) fn check_audit(&self) {
        let mut head = ChainHead::default();
        let mut left = self.postings.clone();
        assert_eq!(self.entries.len(), self.audit.len());
        for (row, entry) in self.audit.iter().zip(&self.entries) {
            assert_eq!((row.seq, &row.posting_id, row.at), (entry.seq, &entry.posting_id, entry.recorded_at));
            assert!(row.follows(&head), "{row:?} after {head:?}");
            let posting = left.remove(&row.posting_id).expect("each posting has one row");
            assert_eq!(&head.append(&posting, row.at), row, "the row stands for this very posting");
            head = row.head();
        }
        assert!(left.is_empty(), "postings without an audit row: {left:?}");
        assert_eq!(head, self.tenant.audit);
    }

    fn store(&mut self, rows: PostedRows) {
        for record in &rows.posting.usage_records {
            self.usage_records.entry(record.id.clone()).or_insert_with(|| record.clone());
        }
        let replaced = self.postings.insert(rows.posting.id.clone(), rows.posting);
        assert_eq!(replaced, None, "postings are immutable");
        self.entries.push(rows.entry);
        self.audit.push(rows.audit);
        self.tenant = rows.tenant;
    }
}
