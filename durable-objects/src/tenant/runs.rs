//! The runs of each route, in rows of their own beside the books: nothing here moves money, and nothing waits for it.

use super::store::Store;
use super::{Failure, Tenant};
use crate::sql::{self, Row};
use holdfast_core::config::{ROUTES_MAX, TenantConfig};
use holdfast_core::ids::GenerationId;
use holdfast_core::reservation::RunEnd;
use holdfast_core::tenant::{
    Admit, PolicyReport, RUNS_KEPT_MS, RUNS_MAX, RouteMeasures, RunRow, measure, route_of, route_policy,
};
use holdfast_core::time::UnixMillis;
use holdfast_core::wire::TenantReply;
use std::cell::RefCell;
use std::collections::BTreeMap;
use worker::{Error, Result, SqlStorage};

/// Runs that one run of the sweep removes.
const FORGET_MAX: u32 = 200;

/// Each route with runs, by one look into the index for each: the table is not read.
const ROUTES: &str = "WITH RECURSIVE ran(route) AS (
    SELECT MIN(route) FROM run
    UNION ALL
    SELECT (SELECT MIN(route) FROM run WHERE route > ran.route) FROM ran WHERE ran.route IS NOT NULL)";

/// What the runs of each route came to when they were last read. It is made from rows and made again when it is stale.
#[derive(Debug, Default)]
pub(super) struct Measures(RefCell<BTreeMap<String, RouteMeasures>>);

impl Tenant {
    /// What the recent runs of the request's route come to. They are read once in a while, not at each admission.
    pub(super) fn measures(
        &self,
        config: &TenantConfig,
        call: &Admit,
        now: UnixMillis,
    ) -> Result<Option<RouteMeasures>> {
        let Some(route) = route_of(config, call) else { return Ok(None) };
        let kept = self.measures.0.borrow().get(&route.name).copied();
        if kept.is_some_and(|kept| !kept.is_stale(now)) {
            return Ok(kept);
        }
        self.store.forget_runs(&route.name, now)?;
        let measured = measure(&self.store.runs(&route.name)?, now);
        let mut measures = self.measures.0.borrow_mut();
        // Routes that are gone from the configuration are measured no more.
        measures.retain(|name, _| config.routes.iter().any(|route| route.name == *name));
        measures.insert(route.name.clone(), measured);
        Ok(Some(measured))
    }

    /// A run has ended. One that is not kept any more tells nothing.
    pub(super) fn run_ended(&self, end: RunEnd) -> Result<()> {
        self.store.change_run(&end.generation.clone(), |row| row.ended(end))
    }

    /// The result of a run was read after its end.
    pub(super) fn result_read(
        &self,
        generation: &GenerationId,
        now: UnixMillis,
    ) -> core::result::Result<TenantReply, Failure> {
        if self.store.exists()? {
            self.store.change_run(generation, |row| row.read(now))?;
        }
        Ok(TenantReply::Noted)
    }

    /// What the disconnects of each route came to. One route's runs are in memory at a time.
    pub(super) fn policy_report(&self, window_ms: u64, now: UnixMillis) -> core::result::Result<TenantReply, Failure> {
        let mut report = PolicyReport::over(window_ms, now);
        // One more than are shown tells whether these are all.
        let routes = self.store.routes_with_runs(ROUTES_MAX.saturating_add(1))?;
        for route in report.chosen(routes) {
            self.store.forget_runs(&route, now)?;
            let shown = route_policy(&route, &self.store.runs(&route)?, report.from, now);
            report.routes.extend((shown.generations > 0).then_some(shown));
        }
        Ok(TenantReply::Policy { document: serde_json::to_string(&report).map_err(Error::from)? })
    }
}

/// Stores an admitted run, in the transaction of its admission.
pub(super) fn insert_run(sql: &SqlStorage, row: &RunRow) -> Result<()> {
    let parameters =
        vec![row.generation.as_str().into(), row.route.as_str().into(), sql::time(row.started_at)?, sql::json(row)?];
    let statement = "INSERT INTO run (generation, route, started_at, json) VALUES (?, ?, ?, ?)";
    sql::run(sql, statement, parameters).map(|_| ())
}

impl Store {
    /// The latest runs of a route.
    fn runs(&self, route: &str) -> Result<Vec<RunRow>> {
        let query = "SELECT json FROM run WHERE route = ? ORDER BY started_at DESC LIMIT ?";
        sql::all_json(self.sql(), query, vec![route.into(), i64::from(RUNS_MAX).into()])
    }

    /// The routes that have runs, the one that ran last first.
    fn routes_with_runs(&self, limit: u32) -> Result<Vec<String>> {
        let query = format!(
            "{ROUTES} SELECT route FROM ran WHERE route IS NOT NULL
            ORDER BY (SELECT MAX(started_at) FROM run WHERE run.route = ran.route) DESC, route LIMIT ?"
        );
        let name = |row: Row| sql::as_text(row.into_iter().next());
        sql::rows(self.sql(), &query, vec![i64::from(limit).into()])?.into_iter().map(name).collect()
    }

    /// Removes runs that are too old, of whichever route: nobody asks for those of a route that is gone.
    pub(super) fn forget_old_runs(&self, now: UnixMillis) -> Result<()> {
        let oldest = UnixMillis(now.0.saturating_sub(RUNS_KEPT_MS));
        let statement = format!(
            "{ROUTES} DELETE FROM run WHERE generation IN (
            SELECT run.generation FROM ran JOIN run ON run.route = ran.route AND run.started_at < ? LIMIT ?)"
        );
        let parameters = vec![sql::time(oldest)?, i64::from(FORGET_MAX).into()];
        sql::run(self.sql(), &statement, parameters).map(|_| ())
    }

    /// Removes the runs of a route that are too old, or too many.
    fn forget_runs(&self, route: &str, now: UnixMillis) -> Result<()> {
        let oldest = UnixMillis(now.0.saturating_sub(RUNS_KEPT_MS));
        let parameters = vec![route.into(), sql::time(oldest)?, i64::from(RUNS_MAX).into()];
        let statement = "DELETE FROM run WHERE route = ?1 AND (started_at < ?2 OR generation IN (
            SELECT generation FROM run WHERE route = ?1 ORDER BY started_at DESC LIMIT -1 OFFSET ?3))";
        sql::run(self.sql(), statement, parameters).map(|_| ())
    }

    fn change_run(&self, generation: &GenerationId, change: impl FnOnce(RunRow) -> RunRow) -> Result<()> {
        let query = "SELECT json FROM run WHERE generation = ?";
        let row: Option<RunRow> = sql::first_json(self.sql(), query, vec![generation.as_str().into()])?;
        let Some(row) = row else { return Ok(()) };
        let changed = change(row.clone());
        if changed == row {
            return Ok(());
        }
        let parameters = vec![sql::json(&changed)?, generation.as_str().into()];
        sql::run(self.sql(), "UPDATE run SET json = ? WHERE generation = ?", parameters).map(|_| ())
    }
}
