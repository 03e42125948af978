//! A tenant's books: `/v1/ledger`, `/v1/ledger/check`, `/v1/usage`, `/v1/usage/lines`, `/v1/usage/records`, `/v1/audit`,
//! and the list of its generations. Ids of other tenants are as unknown as ids of nobody.

use crate::caller::{Bearer, Caller};
use crate::error::EdgeError;
use crate::query::Query;
use crate::{ask, respond};
use holdfast_core::ids::{GenerationId, ReservationId};
use holdfast_core::ledger::{GroupBy, PostingKind, SumError, UsageGroup, UsageSums};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::HoldState;
use holdfast_core::time::UnixMillis;
use holdfast_core::view::{Cursor, LedgerCheckView, List};
use holdfast_core::wire::{
    BooksCall, BooksReply, GenerationFilter, HoldName, LedgerFilter, PAGE_DEFAULT, PAGE_MAX, Paging, RecordsOf, Span,
    TenantCall, TenantReply,
};
use serde::Serialize;
use serde::de::DeserializeOwned;
use worker::{Env, Request, Response};

/// Calls that one report may take, each of which sums up to two thousand lines.
const SUM_CALLS_MAX: u32 = 50;
/// Steps of a check that one request takes.
const CHECK_STEPS: u32 = 40;

/// `GET /v1/ledger`: entries, oldest first.
///
/// # Errors
/// 400 for a query that cannot be read, 401, 403, 404 for a reservation or generation that is not the tenant's, 503.
pub(crate) async fn ledger(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let parse = |query: &Query| {
        let hold = match (query.get("reservation"), query.get("generation")) {
            (Some(_), Some(_)) => return Err(EdgeError::invalid("either `reservation` or `generation`, not both")),
            (Some(id), None) => Some(HoldName::Reservation(ReservationId::parse(id).map_err(|_| Refusal::NotFound)?)),
            (None, Some(id)) => Some(HoldName::Generation(generation_id(id)?)),
            (None, None) => None,
        };
        let filter = LedgerFilter { kind: word::<PostingKind>(query, "kind")?, hold, span: span(query)? };
        Ok(BooksCall::Ledger { filter, paging: paging(query, List::Ledger)? })
    };
    let names = ["after", "limit", "kind", "reservation", "generation", "from", "until"];
    match question(request, env, &names, parse).await? {
        BooksReply::Ledger(page) => respond::ok(&page),
        _ => Err(ask::unexpected().into()),
    }
}

/// `GET /v1/usage/lines`: invoice lines, oldest first, each with the ids of its usage records.
///
/// # Errors
/// 400, 401, 403, 503.
pub(crate) async fn lines(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let parse = |query: &Query| Ok(BooksCall::Lines { span: span(query)?, paging: paging(query, List::Lines)? });
    match question(request, env, &["after", "limit", "from", "until"], parse).await? {
        BooksReply::Lines(page) => respond::ok(&page),
        _ => Err(ask::unexpected().into()),
    }
}

/// `GET /v1/usage/records`: what a line stands on, or all that a generation consumed.
///
/// # Errors
/// 400, 401, 403, 404, 503.
pub(crate) async fn records(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let parse = |query: &Query| match (query.get("line"), query.get("generation")) {
        (Some(line), None) => Ok(BooksCall::Records(RecordsOf::Line(line.into()))),
        (None, Some(id)) => Ok(BooksCall::Records(RecordsOf::Generation(generation_id(id)?))),
        _ => Err(EdgeError::invalid("either `line` or `generation` says whose usage records")),
    };
    match question(request, env, &["line", "generation"], parse).await? {
        BooksReply::Records(page) => respond::ok(&page),
        _ => Err(ask::unexpected().into()),
    }
}

/// `GET /v1/audit`: the audit chain as `CloudEvents`, one a line, oldest first.
///
/// # Errors
/// 400, 401, 403, 503.
pub(crate) async fn audit(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let parse = |query: &Query| Ok(BooksCall::Audit { paging: paging(query, List::Audit)? });
    match question(request, env, &["after", "limit"], parse).await? {
        BooksReply::Audit(page) => Ok(respond::json_lines(&page)),
        _ => Err(ask::unexpected().into()),
    }
}

/// `GET /v1/generations` without an idempotency key: what the tenant knows of its generations, newest first.
///
/// # Errors
/// 400, 401, 503.
pub(crate) async fn generations(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let parse = |query: &Query| {
        let filter = GenerationFilter {
            state: word::<HoldState>(query, "state")?,
            route: query.get("route").map(Into::into),
            model: query.get("model").map(Into::into),
            span: span(query)?,
        };
        Ok(BooksCall::Generations { filter, paging: paging(query, List::Generations)? })
    };
    let names = ["after", "limit", "state", "route", "model", "from", "until"];
    match question(request, env, &names, parse).await? {
        BooksReply::Generations(page) => respond::ok(&page),
        _ => Err(ask::unexpected().into()),
    }
}

/// Invoice lines summed.
#[derive(Serialize)]
struct UsageReport {
    object: &'static str,
    from: Option<UnixMillis>,
    until: Option<UnixMillis>,
    /// The last number of the ledger that is in it.
    through_seq: u64,
    data: Vec<UsageGroup>,
}

/// `GET /v1/usage`: invoice lines summed by price version and by what is asked for.
///
/// # Errors
/// 400 for a query that cannot be read, or a report above its bounds; 401, 403, 503.
pub(crate) async fn usage(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let (caller, (by, span)) = read(request, env, &["group_by", "from", "until"], grouping).await?;
    let mut reply = put(&caller, env, BooksCall::Sums { by, span, after: None, upto: None }).await?;
    let mut sums = UsageSums::default();
    for _ in 0..SUM_CALLS_MAX {
        let (groups, next, upto) = match reply {
            BooksReply::Sums { groups, next, upto } => (groups, next, upto),
            BooksReply::TooManyGroups => return Err(too_many_groups()),
            _ => return Err(ask::unexpected().into()),
        };
        sums.merge(groups).map_err(|error| match error {
            SumError::TooManyGroups => too_many_groups(),
            SumError::Money => Refusal::AmountOutOfRange.into(),
        })?;
        if next.is_none() {
            let (from, until) = (span.from, span.until);
            let data = sums.into_groups();
            return respond::ok(&UsageReport { object: "usage", from, until, through_seq: upto, data });
        }
        reply = put(&caller, env, BooksCall::Sums { by, span, after: next, upto: Some(upto) }).await?;
    }
    Err(EdgeError::invalid("more lines than one report may sum: ask for a shorter span"))
}

fn grouping(query: &Query) -> Result<(GroupBy, Span), EdgeError> {
    let by = GroupBy::parse(query.get("group_by").unwrap_or_default());
    let unknown = || EdgeError::invalid("`group_by` lists route, model, day, disposition, each once");
    Ok((by.ok_or_else(unknown)?, span(query)?))
}

fn too_many_groups() -> EdgeError {
    EdgeError::invalid("more groups than one report may have: ask for fewer dimensions or a shorter span")
}

/// `GET /v1/ledger/check`: recomputes the books. A long check takes several requests: `after` goes on with one.
///
/// # Errors
/// 400 for a cursor that is none, 401, 403, 404 for a check that another one has replaced, 503.
pub(crate) async fn check(request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let (caller, run) = read(request, env, &["after"], |query| cursor(query, List::Check)).await?;
    let mut reply = put(&caller, env, BooksCall::Check { run }).await?;
    let mut left = CHECK_STEPS;
    loop {
        let (run, view) = checked(reply)?;
        left = left.saturating_sub(1);
        if view.complete || left == 0 {
            return respond::ok(&view);
        }
        reply = put(&caller, env, BooksCall::Check { run: Some(run) }).await?;
    }
}

fn checked(reply: BooksReply) -> Result<(u64, Box<LedgerCheckView>), EdgeError> {
    match reply {
        BooksReply::Check { run, view } => Ok((run, view)),
        _ => Err(ask::unexpected().into()),
    }
}

/// Who asks, and what `parse` makes of the query. A stranger learns nothing, not even that the query is bad.
async fn read<T>(
    request: &Request,
    env: &Env,
    names: &[&str],
    parse: impl FnOnce(&Query) -> Result<T, EdgeError>,
) -> Result<(Caller, T), EdgeError> {
    let caller = Caller::of(env, request.headers())?;
    match Query::of(&request.url()?, names).and_then(|query| parse(&query)) {
        Ok(parsed) => Ok((caller, parsed)),
        Err(error) => {
            Bearer::of(env, request)?.authenticate(env, None).await?;
            Err(error)
        }
    }
}

/// Puts the question that `parse` makes of the query.
async fn question(
    request: &Request,
    env: &Env,
    names: &[&str],
    parse: impl FnOnce(&Query) -> Result<BooksCall, EdgeError>,
) -> Result<BooksReply, EdgeError> {
    let (caller, call) = read(request, env, names, parse).await?;
    put(&caller, env, call).await
}

async fn put(caller: &Caller, env: &Env, question: BooksCall) -> Result<BooksReply, EdgeError> {
    let call = TenantCall::Books { key: caller.key.clone(), question: Box::new(question) };
    match ask::tenant(env, &caller.tenant, &call).await? {
        TenantReply::Books(reply) => Ok(*reply),
        _ => Err(ask::unexpected().into()),
    }
}

fn generation_id(text: &str) -> Result<GenerationId, EdgeError> {
    GenerationId::parse(text).map_err(|_| Refusal::NotFound.into())
}

/// A value that has a fixed set of names.
fn word<T: DeserializeOwned>(query: &Query, name: &str) -> Result<Option<T>, EdgeError> {
    let read = |text: &str| serde_json::from_value(serde_json::Value::String(text.into()));
    let unknown = || EdgeError::invalid(format!("`{name}` has no such value"));
    query.get(name).map(|text| read(text).map_err(|_| unknown())).transpose()
}

fn span(query: &Query) -> Result<Span, EdgeError> {
    let at = |name| query.number(name).map(|at| at.map(UnixMillis));
    let span = Span { from: at("from")?, until: at("until")? };
    match (span.from, span.until) {
        (Some(from), Some(until)) if from > until => Err(EdgeError::invalid("`from` is later than `until`")),
        _ => Ok(span),
    }
}

fn paging(query: &Query, list: List) -> Result<Paging, EdgeError> {
    let limit = query.number("limit")?.unwrap_or_else(|| u64::from(PAGE_DEFAULT));
    let limit = u32::try_from(limit).ok().filter(|limit| (1..=PAGE_MAX).contains(limit));
    let limit = limit.ok_or_else(|| EdgeError::invalid(format!("`limit` must be 1 to {PAGE_MAX}")))?;
    Ok(Paging { after: cursor(query, list)?, limit })
}

fn cursor(query: &Query, list: List) -> Result<Option<u64>, EdgeError> {
    let none = || EdgeError::invalid("`after` is no cursor of this list");
    let read = |text| Cursor::parse(list, text).map(|cursor| cursor.place).map_err(|_| none());
    query.get("after").map(read).transpose()
}

#[cfg(test)]
mod tests {
    use super::*;
    use worker::Url;

    fn query(text: &str) -> Query {
        let url = Url::parse(&format!("https://edge.example/v1/ledger?{text}")).unwrap();
        Query::of(&url, &["after", "limit", "kind", "from", "until"]).unwrap()
    }

    #[test]
    fn pages_are_bounded_and_cursors_belong_to_their_list() {
        let read = |text: &str| paging(&query(text), List::Ledger);
        assert_eq!(read(""), Ok(Paging { after: None, limit: PAGE_DEFAULT }));
        assert_eq!(read("limit=200&after=led1f"), Ok(Paging { after: Some(31), limit: 200 }));
        for bad in ["limit=0", "limit=201", "limit=x", "limit=-1", "limit=", "after=aud1f", "after=", "after=31"] {
            assert!(read(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn words_and_spans() {
        assert_eq!(word(&query("kind=late_settlement"), "kind"), Ok(Some(PostingKind::LateSettlement)));
        assert_eq!(word::<PostingKind>(&query(""), "kind"), Ok(None));
        assert!(word::<PostingKind>(&query("kind=Settle"), "kind").is_err());
        assert_eq!(span(&query("from=5&until=5")), Ok(Span { from: Some(UnixMillis(5)), until: Some(UnixMillis(5)) }));
        assert!(span(&query("from=6&until=5")).is_err());
        assert!(span(&query("from=2026-11-30")).is_err());
    }
}
