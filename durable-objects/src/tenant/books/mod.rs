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
use holdfast_core::ledger::{GroupBy, SumError, UsageSums};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::Hold;
use holdfast_core::view::{Cursor, GenerationSummary, InvoiceLineView, List, Page};
use holdfast_core::wire::{
    BooksCall, BooksReply, GenerationFilter, HoldName, LedgerFilter, PAGE_MAX, Paging, RecordsOf, Span, TenantReply,
};

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
        Ok(BooksReply::Ledger(page(List::Ledger, data, read.more, read.last)))
    }

    fn lines(&self, span: Span, paging: Paging) -> Answer {
        let window = self.store.window(span, paging.after.unwrap_or_default())?;
        let (lines, read) = self.store.lines(window, span, paging.limit)?;
        let data = lines.into_iter().map(|(seq, line)| InvoiceLineView::of(seq, line)).collect();
        Ok(BooksReply::Lines(page(List::Lines, data, read.more, read.last)))
    }

    fn sums(&self, by: GroupBy, span: Span, after: Option<u64>, upto: Option<u64>) -> Answer {
        let window = self.store.window(span, after.unwrap_or_default())?;
        // What is billed while a long report is made belongs to the next one.
        let upto = upto.map_or(window.upto, |upto| upto.min(window.upto));
        let (lines, read) = self.store.lines(seek::Window { upto, ..window }, span, SUMMED_MAX)?;
        let mut sums = UsageSums::default();
        match lines.iter().try_for_each(|(_, line)| sums.add(line, by)) {
            Ok(()) => {}
            Err(SumError::TooManyGroups) => return Ok(BooksReply::TooManyGroups),
            Err(SumError::Money) => return Err(Refusal::AmountOutOfRange.into()),
        }
        Ok(BooksReply::Sums { groups: sums.into_groups(), next: read.more.then_some(read.last), upto })
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
        Ok(BooksReply::Records(Page::new(records.into_iter().map(Into::into).collect(), false, None)))
    }

    fn audit(&self, paging: Paging) -> Answer {
        let tenant = self.settings.tenant_id()?;
        let after = paging.after.unwrap_or_default();
        let (data, read) = self.store.audit_events(&tenant, after, paging.limit)?;
        Ok(BooksReply::Audit(page(List::Audit, data, read.more, read.last)))
    }

    fn generations(&self, filter: &GenerationFilter, paging: Paging) -> Answer {
        let (holds, next) = self.store.generations(filter, paging)?;
        let data: Vec<_> = holds.iter().map(GenerationSummary::from).collect();
        let next = next.map(|place| Cursor { list: List::Generations, place });
        Ok(BooksReply::Generations(Page::new(data, next.is_some(), next)))
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
fn page<T>(list: List, data: Vec<T>, more: bool, last: u64) -> Page<T> {
    Page::new(data, more, Some(Cursor { list, place: last }))
}
