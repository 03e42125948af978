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
use holdfast_core::view::{Cursor, List};
use holdfast_core::wire::{
    BooksCall, BooksReply, GenerationFilter, HoldName, LedgerFilter, PAGE_DEFAULT, PAGE_MAX, Paging, RecordsOf, Span,
    TenantCall, TenantReply,
};
use serde::Serialize;
use worker::{Env, Request, Response};

/// Calls that one report may take, each of which sums up to two thousand lines.
const SUM_CALLS_MAX: u32 = 50;
/// Steps of a check that one request takes.
const CHECK_STEPS: u32 = 40;

/// What can be asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum BooksPath {
    /// `/v1/audit`: the audit chain as `CloudEvents`, one a line, oldest first.
    Audit,
    /// `/v1/ledger/check`: recomputes the books. A long check takes several requests: `after` goes on with one.
    Check,
    /// `/v1/generations`: what the tenant knows of its generations, newest first.
    Generations,
    /// `/v1/ledger`: entries, oldest first.
    Ledger,
    /// `/v1/usage/lines`: invoice lines, oldest first, each with the ids of its usage records.
    Lines,
    /// `/v1/usage/records`: what a line stands on, or all that a generation consumed.
    Records,
    /// `/v1/usage`: invoice lines summed by price version and by what is asked for.
    Usage,
}

impl BooksPath {
    /// The parameters that it takes.
    const fn names(self) -> &'static [&'static str] {
        match self {
            Self::Audit => &["after", "limit"],
            Self::Check => &["after"],
            Self::Generations => &["after", "limit", "state", "route", "model", "from", "until"],
            Self::Ledger => &["after", "limit", "kind", "reservation", "generation", "from", "until"],
            Self::Lines => &["after", "limit", "from", "until"],
            Self::Records => &["line", "generation"],
            Self::Usage => &["group_by", "from", "until"],
        }
    }

    /// The question that a query asks.
    fn question(self, query: &Query) -> Result<BooksCall, EdgeError> {
        Ok(match self {
            Self::Audit => BooksCall::Audit { paging: paging(query, List::Audit)? },
            Self::Check => BooksCall::Check { run: cursor(query, List::Check)? },
            Self::Generations => {
                BooksCall::Generations { filter: generation_filter(query)?, paging: paging(query, List::Generations)? }
            }
            Self::Ledger => BooksCall::Ledger { filter: ledger_filter(query)?, paging: paging(query, List::Ledger)? },
            Self::Lines => BooksCall::Lines { span: span(query)?, paging: paging(query, List::Lines)? },
            Self::Records => BooksCall::Records(records_of(query)?),
            Self::Usage => {
                let by = GroupBy::parse(query.get("group_by").unwrap_or_default());
                let unknown = || EdgeError::invalid("`group_by` lists route, model, day, disposition, each once");
                BooksCall::Sums { by: by.ok_or_else(unknown)?, span: span(query)?, after: None, upto: None }
            }
        })
    }
}

/// Answers a question about the books.
///
/// # Errors
/// 400 for a query that cannot be read, or a report above its bounds; 401, 403; 404 for an id that is not the tenant's,
/// or a check that another one has replaced; 503.
pub(crate) async fn serve(path: BooksPath, request: &Request, env: &Env) -> Result<Response, EdgeError> {
    let caller = Caller::of(env, request.headers())?;
    let asked = Query::of(&request.url()?, path.names()).and_then(|query| path.question(&query));
    let mut call = match asked {
        Ok(call) => call,
        Err(error) => {
            // A stranger learns nothing, not even that the query is bad.
            Bearer::of(env, request)?.authenticate(env, None).await?;
            return Err(error);
        }
    };
    let mut sums = UsageSums::default();
    let mut calls: u32 = 0;
    loop {
        let reply = put(&caller, env, call.clone()).await?;
        calls = calls.saturating_add(1);
        match call {
            BooksCall::Sums { by, span, .. } => {
                sums.merge(reply.sums).map_err(unsummable)?;
                if !reply.more {
                    return respond::ok(&UsageReport::of(span, reply.upto, sums));
                }
                if calls >= SUM_CALLS_MAX {
                    return Err(EdgeError::invalid("more lines than one report may sum: ask for a shorter span"));
                }
                call = BooksCall::Sums { by, span, after: Some(reply.place), upto: Some(reply.upto) };
            }
            BooksCall::Check { .. } if reply.more && calls < CHECK_STEPS => {
                call = BooksCall::Check { run: Some(reply.place) };
            }
            BooksCall::Audit { .. } => {
                let next = Cursor { list: List::Audit, place: reply.place };
                return Ok(respond::json_lines(reply.body, reply.more, &next.to_string()));
            }
            _ => return Ok(respond::written(reply.body)),
        }
    }
}

async fn put(caller: &Caller, env: &Env, question: BooksCall) -> Result<BooksReply, EdgeError> {
    let call = TenantCall::Books { key: caller.key.clone(), question: Box::new(question) };
    match ask::tenant(env, &caller.tenant, &call).await? {
        TenantReply::Books(reply) => Ok(*reply),
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

impl UsageReport {
    fn of(span: Span, through_seq: u64, sums: UsageSums) -> Self {
        let Span { from, until } = span;
        Self { object: "usage", from, until, through_seq, data: sums.into_groups() }
    }
}

fn unsummable(error: SumError) -> EdgeError {
    match error {
        SumError::TooManyGroups => {
            EdgeError::invalid("more groups than one report may have: ask for fewer dimensions or a shorter span")
        }
        SumError::Money => Refusal::AmountOutOfRange.into(),
    }
}

fn ledger_filter(query: &Query) -> Result<LedgerFilter, EdgeError> {
    let hold = match (query.get("reservation"), query.get("generation")) {
        (Some(_), Some(_)) => return Err(EdgeError::invalid("either `reservation` or `generation`, not both")),
        (Some(id), None) => Some(HoldName::Reservation(ReservationId::parse(id).map_err(|_| Refusal::NotFound)?)),
        (None, Some(id)) => Some(HoldName::Generation(generation_id(id)?)),
        (None, None) => None,
    };
    Ok(LedgerFilter { kind: word(query, "kind", PostingKind::parse)?, hold, span: span(query)? })
}

fn generation_filter(query: &Query) -> Result<GenerationFilter, EdgeError> {
    Ok(GenerationFilter {
        state: word(query, "state", HoldState::parse)?,
        route: query.get("route").map(Into::into),
        model: query.get("model").map(Into::into),
        span: span(query)?,
    })
}

fn records_of(query: &Query) -> Result<RecordsOf, EdgeError> {
    match (query.get("line"), query.get("generation")) {
        (Some(line), None) => Ok(RecordsOf::Line(line.into())),
        (None, Some(id)) => Ok(RecordsOf::Generation(generation_id(id)?)),
        _ => Err(EdgeError::invalid("either `line` or `generation` says whose usage records")),
    }
}

fn generation_id(text: &str) -> Result<GenerationId, EdgeError> {
    GenerationId::parse(text).map_err(|_| Refusal::NotFound.into())
}

/// A value that has a fixed set of names.
fn word<T>(query: &Query, name: &str, parse: fn(&str) -> Option<T>) -> Result<Option<T>, EdgeError> {
    let unknown = || EdgeError::invalid(format!("`{name}` has no such value"));
    query.get(name).map(|text| parse(text).ok_or_else(unknown)).transpose()
}

fn span(query: &Query) -> Result<Span, EdgeError> {
    let span = Span { from: query.number("from")?.map(UnixMillis), until: query.number("until")?.map(UnixMillis) };
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

    fn query(path: BooksPath, text: &str) -> Result<Query, EdgeError> {
        Query::of(&Url::parse(&format!("https://edge.example/v1/x?{text}")).unwrap(), path.names())
    }

    fn asked(path: BooksPath, text: &str) -> Result<BooksCall, EdgeError> {
        path.question(&query(path, text)?)
    }

    #[test]
    fn pages_are_bounded_and_cursors_belong_to_their_list() {
        let pages = |text: &str| paging(&query(BooksPath::Ledger, text).unwrap(), List::Ledger);
        assert_eq!(pages(""), Ok(Paging { after: None, limit: PAGE_DEFAULT }));
        assert_eq!(pages("limit=200&after=led1f"), Ok(Paging { after: Some(31), limit: 200 }));
        for bad in ["limit=0", "limit=201", "limit=x", "limit=-1", "limit=", "after=aud1f", "after=", "after=31"] {
            assert!(pages(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn questions() {
        let span = |from, until| Span { from: Some(UnixMillis(from)), until: Some(UnixMillis(until)) };
        let paging = Paging { after: None, limit: PAGE_DEFAULT };
        let filter = LedgerFilter { kind: Some(PostingKind::LateSettlement), hold: None, span: span(5, 5) };
        assert_eq!(
            asked(BooksPath::Ledger, "kind=late_settlement&from=5&until=5"),
            Ok(BooksCall::Ledger { filter, paging })
        );
        assert_eq!(asked(BooksPath::Lines, "from=5&until=6"), Ok(BooksCall::Lines { span: span(5, 6), paging }));
        let filter = GenerationFilter { state: Some(HoldState::Open), ..GenerationFilter::default() };
        assert_eq!(asked(BooksPath::Generations, "state=open"), Ok(BooksCall::Generations { filter, paging }));
        assert_eq!(asked(BooksPath::Records, "line=x"), Ok(BooksCall::Records(RecordsOf::Line("x".into()))));
        assert_eq!(asked(BooksPath::Check, "after=chk7"), Ok(BooksCall::Check { run: Some(7) }));
        for (path, bad) in [
            (BooksPath::Ledger, "kind=Settle"),
            (BooksPath::Ledger, "from=6&until=5"),
            (BooksPath::Ledger, "from=2026-11-30"),
            (BooksPath::Ledger, "reservation=x&generation=y"),
            (BooksPath::Generations, "state=lost"),
            (BooksPath::Records, ""),
            (BooksPath::Records, "line=x&generation=y"),
            (BooksPath::Usage, "group_by=customer"),
            (BooksPath::Audit, "from=1"),
        ] {
            assert!(matches!(asked(path, bad), Err(EdgeError::InvalidRequest { .. })), "{path:?} {bad}");
        }
        for (path, foreign) in [(BooksPath::Ledger, "reservation=x"), (BooksPath::Records, "generation=gen_1")] {
            assert_eq!(asked(path, foreign), Err(Refusal::NotFound.into()), "{path:?} {foreign}");
        }
    }
}
