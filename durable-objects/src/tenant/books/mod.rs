//! A tenant's books: pages of ledger, lines, audit and generations, and the steps of a check. Every call reads a bounded
//! number of rows.
//!
//! | module | does |
//! |---|---|
//! | `mod` | the answer to each question |
//! | `pages` | rows of a page |
//! | `seek` | from a moment to a sequence number |
//! | `check` | one step of a check; the balance |
//! | `rows` | what a check reads, and where it rests |

mod check;
mod pages;
mod rows;
mod seek;

use super::{Failure, Tenant};
use holdfast_core::ids::{Identity, ReservationId};
use holdfast_core::ledger::{GroupBy, UsageSums};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Hold;
use holdfast_core::view::{Cursor, GenerationSummary, InvoiceLineView, List, Page, UsageRecordView};
use holdfast_core::wire::{
    BooksCall, BooksReply, GenerationFilter, HoldName, LedgerFilter, PAGE_MAX, Paging, RecordsOf, Span, TenantReply,
};
use pages::Read;
use seek::Window;
use serde::Serialize;
use worker::Error;

/// Invoice lines that one call sums.
const SUMMED_MAX: u32 = 2_000;

type Answer = Result<BooksReply, Failure>;

impl Tenant {
    /// Answers a question about the books of a caller whose role was checked.
    pub(super) async fn answer_books(&self, question: BooksCall) -> Result<TenantReply, Failure> {
        let reply = match question {
            BooksCall::Check { run } => self.check_step(run).await?,
            question => self.read_books(&question)?,
        };
        Ok(TenantReply::Books(Box::new(reply)))
    }

    fn read_books(&self, question: &BooksCall) -> Answer {
        match question {
            BooksCall::Ledger { filter, paging } => self.ledger(filter, bounded(*paging)),
            BooksCall::Lines { span, paging } => self.lines(*span, bounded(*paging)),
            BooksCall::Sums { by, span, after, upto } => self.sums(*by, *span, *after, *upto),
            BooksCall::Records(of) => self.records(of),
            BooksCall::Audit { paging } => self.audit(bounded(*paging)),
            BooksCall::Generations { filter, paging } => self.generations(filter, bounded(*paging)),
            // Asked where it may wait.
            BooksCall::Check { .. } => Err(Refusal::NotFound.into()),
        }
    }

    fn ledger(&self, filter: &LedgerFilter, paging: Paging) -> Answer {
        let after = paging.after.unwrap_or_default();
        let (data, read) = match &filter.hold {
            Some(name) => self.store.entries_of(self.named(name)?, filter, after, paging.limit)?,
            None => {
                let window = self.store.window(filter.span, after)?;
                self.store.entries(window, filter, paging.limit)?
            }
        };
        document(&page(List::Ledger, data, read))
    }

    fn lines(&self, span: Span, paging: Paging) -> Answer {
        let window = self.store.window(span, paging.after.unwrap_or_default())?;
        let (lines, read) = self.store.lines(window, span, paging.limit)?;
        let data: Vec<_> = lines.into_iter().map(|(seq, line)| InvoiceLineView::of(seq, line)).collect();
        document(&page(List::Lines, data, read))
    }

    fn sums(&self, by: GroupBy, span: Span, after: Option<u64>, upto: Option<u64>) -> Answer {
        let window = self.store.window(span, after.unwrap_or_default())?;
        // What is billed while a long report is made belongs to the next one.
        let upto = upto.map_or(window.upto, |upto| upto.min(window.upto));
        let (lines, read) = self.store.lines(Window { upto, ..window }, span, SUMMED_MAX)?;
        let mut sums = UsageSums::default();
        lines.iter().try_for_each(|(_, line)| sums.add(line, by)).map_err(|_| Refusal::AmountOutOfRange)?;
        Ok(BooksReply { sums: sums.into_groups(), place: read.last, more: read.more, upto, ..BooksReply::default() })
    }

    fn records(&self, of: &RecordsOf) -> Answer {
        let records = match of {
            RecordsOf::Line(id) => {
                let line = self.store.line(id)?.ok_or(Refusal::NotFound)?;
                self.store.usage_records(&line.usage_records)?
            }
            RecordsOf::Generation(generation) => {
                let hold = self.store.hold_of(generation)?.ok_or(Refusal::NotFound)?;
                self.store.usage_records_of(&hold.identity.reservation, PAGE_MAX)?
            }
        };
        let data: Vec<_> = records.into_iter().map(UsageRecordView::from).collect();
        document(&Page::new(data, false, None))
    }

    fn audit(&self, paging: Paging) -> Answer {
        let tenant = self.settings.tenant_id()?;
        let (body, read) = self.store.audit_events(&tenant, paging.after.unwrap_or_default(), paging.limit)?;
        Ok(BooksReply { body, place: read.last, more: read.more, ..BooksReply::default() })
    }

    fn generations(&self, filter: &GenerationFilter, paging: Paging) -> Answer {
        let (holds, next) = self.store.generations(filter, paging)?;
        let data: Vec<_> = holds.iter().map(GenerationSummary::from).collect();
        let next = next.map(|place| Cursor { list: List::Generations, place });
        document(&Page::new(data, next.is_some(), next))
    }

    /// The reservation that a caller names; one of another tenant is as unknown as one of nobody.
    fn named(&self, name: &HoldName) -> Result<ReservationId, Failure> {
        let hold: Option<Hold> = match name {
            HoldName::Reservation(reservation) => self.store.hold(reservation)?,
            HoldName::Generation(generation) => self.store.hold_of(generation)?,
        };
        let Identity { reservation, .. } = hold.ok_or(Refusal::NotFound)?.identity;
        Ok(reservation)
    }
}

/// Whoever sends the call, a page stays a page.
fn bounded(paging: Paging) -> Paging {
    Paging { limit: paging.limit.clamp(1, PAGE_MAX), ..paging }
}

/// A page of a list that grows at its end.
fn page<T>(list: List, data: Vec<T>, read: Read) -> Page<T> {
    Page::new(data, read.more, Some(Cursor { list, place: read.last }))
}

fn document<T: Serialize>(document: &T) -> Answer {
    Ok(BooksReply { body: serde_json::to_string(document).map_err(Error::from)?, ..BooksReply::default() })
}
