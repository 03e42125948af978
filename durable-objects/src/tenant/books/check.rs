//! One step of a check, and the balance. Progress is stored: a check goes on wherever it was left.

use super::super::{Failure, Tenant};
use super::rows::{ReadHold, Run};
use crate::clock;
use crate::rpc::{self, Answer};
use futures::future::join_all;
use holdfast_core::ids::{Identity, ReservationId};
use holdfast_core::refusal::Refusal;
use holdfast_core::tenant::books::{Asked, Books, Check, Difference, HoldRows, Stage};
use holdfast_core::tenant::{Hold, HoldState};
use holdfast_core::view::{BalanceView, Consistency, LedgerCheckView};
use holdfast_core::wire::{BooksReply, GenerationCall, GenerationReply};
use worker::{Error, Result};

/// Open holds that a balance shows.
const HOLDS_SHOWN: u32 = 100;
/// Numbers of the ledger that a balance reads on.
const BALANCE_NUMBERS: u64 = 500;
/// Numbers of the ledger that one step reads.
const STEP_NUMBERS: u64 = 200;
/// Holds that one step reads, each with all that is its own.
const STEP_HOLDS: u32 = 50;
/// Ids that one step looks through for rows without a hold.
const STEP_STRAYS: u32 = 1_000;
/// Reservations that one step asks at once.
const STEP_RESERVATIONS: u32 = 16;
/// How long a reservation may take to answer.
const ANSWER_TIMEOUT_MS: u64 = 5_000;

impl Tenant {
    /// Balances and open holds, compared with what is new in the ledger since they were compared last.
    pub(in super::super) fn balance(&self) -> core::result::Result<BalanceView, Failure> {
        let tenant = self.store.tenant()?;
        let before = self.store.verified()?;
        let rows = self.store.chain_rows(before.head.seq, tenant.audit.seq, BALANCE_NUMBERS)?;
        let mut verified = before.clone();
        let differences = verified.read(&rows);
        // What differs is not passed by: it is told again, at every call.
        if !differences.is_empty() {
            verified = before;
        } else if verified != before {
            self.store.store_verified(&verified)?;
        }
        let open = self.store.open_totals()?;
        let checked = Consistency::of(verified, differences, &tenant, &open);
        Ok(BalanceView::of(&tenant, &self.store.open_holds(HOLDS_SHOWN)?, open, checked))
    }

    /// The next step of a check. A number that is not the one that was begun last is refused: its progress is gone.
    pub(super) async fn check_step(&self, run: Option<u64>) -> core::result::Result<BooksReply, Failure> {
        let stored = self.store.run()?;
        let mut run = match run {
            None => {
                let after_last = stored.map_or(0, |last| last.number.saturating_add(1));
                Run { number: clock::now().0.max(after_last), check: Check::of_all(self.store.chain_length()?) }
            }
            Some(number) => stored.filter(|stored| stored.number == number).ok_or(Refusal::NotFound)?,
        };
        match run.check.stage.clone() {
            Stage::Reservations { after } => {
                let before = run.clone();
                self.ask_reservations(&mut run.check, after.as_ref()).await?;
                if self.store.run()?.as_ref() != Some(&before) {
                    // Somebody else made this step meanwhile, or began another check.
                    return Err(Refusal::Unavailable { what: "the check goes on elsewhere".into() }.into());
                }
            }
            stage => self.read_stage(&mut run.check, &stage)?,
        }
        self.store.store_run(&run)?;
        let view = LedgerCheckView::of(run.number, &run.check);
        let body = serde_json::to_string(&view).map_err(Error::from)?;
        Ok(BooksReply { body, place: run.number, more: !view.complete, ..BooksReply::default() })
    }

    fn read_stage(&self, check: &mut Check, stage: &Stage) -> Result<()> {
        let store = &self.store;
        match stage {
            Stage::Chain { upto } => {
                check.read_chain(&store.chain_rows(check.chain.head.seq, *upto, STEP_NUMBERS)?);
            }
            Stage::Holds { after } => {
                let (holds, last) = store.next_holds(after.as_ref(), STEP_HOLDS)?;
                let holds = readable(check, holds);
                check.read_holds(&holds, last);
            }
            Stage::Strays { home, after } => {
                let (strays, last) = store.strays(*home, after.as_deref(), STEP_STRAYS)?;
                check.read_strays(*home, &strays, last);
            }
            Stage::Balances => {
                let tenant = store.tenant()?;
                let rows = store.chain_rows(check.chain.head.seq, tenant.audit.seq, STEP_NUMBERS)?;
                let touched = readable(check, store.holds_touched(&rows)?);
                let periods = store.periods()?;
                check.read_balances(&rows, &touched, &Books { tenant: &tenant, periods: &periods });
            }
            Stage::Reservations { .. } | Stage::Done => {}
        }
        Ok(())
    }

    async fn ask_reservations(&self, check: &mut Check, after: Option<&ReservationId>) -> Result<()> {
        let holds = self.store.next_open_holds(after, STEP_RESERVATIONS)?;
        let answers = join_all(holds.iter().map(|hold| self.ask_books(hold))).await;
        let mut asked = Vec::with_capacity(answers.len());
        for (hold, answer) in holds.iter().zip(answers) {
            // What was posted meanwhile makes the answer one about another moment.
            let current = self.store.hold(&hold.identity.reservation)?;
            let unchanged = current.is_some_and(|current| {
                let same = (current.held(), current.charged) == (hold.held(), hold.charged);
                current.state == HoldState::Open && same
            });
            asked.push(if unchanged { answer } else { Some(Asked::default()) });
        }
        check.read_reservations(asked, holds.last().map(|hold| hold.identity.reservation.clone()));
        Ok(())
    }

    async fn ask_books(&self, hold: &Hold) -> Option<Asked> {
        let name = Identity::object_name(&hold.identity.tenant, &hold.identity.generation);
        let asked = rpc::ask_generation_by_name(&self.env, &name, &GenerationCall::Books, &[]);
        match clock::within(ANSWER_TIMEOUT_MS, asked).await {
            Some(Ok(Answer::Reply(GenerationReply::Books(books)))) => Some(books.compare(hold)),
            Some(answer) => {
                worker::console_error!("{name} did not tell its books: {answer:?}");
                None
            }
            None => {
                worker::console_error!("{name} did not answer in {ANSWER_TIMEOUT_MS} ms");
                None
            }
        }
    }
}

/// The holds that can be read; the others are noted.
fn readable(check: &mut Check, holds: Vec<ReadHold>) -> Vec<HoldRows> {
    let mut unreadable: Vec<Difference> = Vec::new();
    let keep = |hold: ReadHold| hold.map_err(|difference| unreadable.push(difference)).ok();
    let holds = holds.into_iter().filter_map(keep).collect();
    check.note(unreadable);
    holds
}
