//! A whole check, step by step. Its state is data: it may be stored between two steps.
//!
//! ```text
//! chain ─▶ holds ─▶ strays ─▶ balances ─▶ reservations ─▶ done
//! ```
//!
//! `chain` fixes how far the check counts. `holds` sums what every reservation came to by that number. `balances` takes
//! what was posted since, together with the tenant's row: a check is right although the tenant goes on.

use super::difference::{compare, signed};
use super::{Asked, ChainRow, Difference, HoldRows, Said, Standing, Verified, What};
use crate::ids::ReservationId;
use crate::tenant::{PeriodState, TenantState};
use alloc::collections::BTreeMap;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Differences that a check lists; it counts the others.
pub const DIFFERENCES_MAX: usize = 100;

/// What a check reads next.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Stage {
    /// The numbers after [`Verified::head`], up to the one where the chain ended when the check began.
    Chain {
        /// That number.
        upto: u64,
    },
    /// Holds by the id of their reservation, with all that is theirs.
    Holds {
        /// The last one that was read.
        after: Option<ReservationId>,
    },
    /// Rows that belong to no hold.
    Strays {
        /// In which table.
        home: Home,
        /// The last id that was read.
        after: Option<String>,
    },
    /// What was posted since the check began, and the balances.
    Balances,
    /// Open holds by the id of their reservation, each with what the reservation says.
    Reservations {
        /// The last one that was asked.
        after: Option<ReservationId>,
    },
    /// Nothing.
    Done,
}

/// A table whose rows belong to a hold.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Home {
    /// Postings; a grant belongs to no hold.
    Postings,
    /// Invoice lines.
    Lines,
    /// Usage records.
    UsageRecords,
}

impl Home {
    const fn next(self) -> Option<Self> {
        match self {
            Self::Postings => Some(Self::Lines),
            Self::Lines => Some(Self::UsageRecords),
            Self::UsageRecords => None,
        }
    }
}

/// What the holds came to. Amounts in micro-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Totals {
    /// Held.
    pub held: i64,
    /// Charged, refunds taken off.
    pub spent: i64,
    /// Sum of the invoice lines.
    pub billed: i64,
    /// Slots taken.
    pub slots: i64,
}

impl Totals {
    const fn plus(self, moved: Standing) -> Self {
        Self {
            held: self.held.saturating_add(moved.held),
            spent: self.spent.saturating_add(moved.spent),
            billed: self.billed.saturating_add(moved.billed),
            slots: self.slots.saturating_add(moved.slots),
        }
    }
}

/// How much a check has read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Counted {
    /// Numbers of the ledger.
    pub entries: u64,
    /// Holds.
    pub holds: u64,
    /// Reservations that were asked.
    pub reservations: u64,
    /// Reservations whose postings are on their way: they agree once these have come.
    pub underway: u64,
    /// Reservations that did not answer.
    pub unanswered: u64,
}

/// The rows that balances are compared with, read at one moment.
#[derive(Clone, Copy, Debug)]
pub struct Books<'a> {
    /// The tenant's row.
    pub tenant: &'a TenantState,
    /// Every period's row.
    pub periods: &'a [PeriodState],
}

/// A check in progress.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Check {
    /// What is read next.
    pub stage: Stage,
    /// The chain as far as it was read.
    pub chain: Verified,
    /// The holds as far as they were read, as of the end of that chain.
    pub totals: Totals,
    /// The same by budget period.
    pub periods: BTreeMap<String, Totals>,
    /// How much was read.
    pub counted: Counted,
    /// The first differences, at most [`DIFFERENCES_MAX`].
    pub differences: Vec<Difference>,
    /// How many there are in all.
    pub differences_count: u64,
}

impl Check {
    /// A check of all that there is, the chain being `upto` long.
    #[must_use]
    pub fn of_all(upto: u64) -> Self {
        Self {
            stage: Stage::Chain { upto },
            chain: Verified::default(),
            totals: Totals::default(),
            periods: BTreeMap::new(),
            counted: Counted::default(),
            differences: Vec::new(),
            differences_count: 0,
        }
    }

    /// Whether there is nothing left to read.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.stage == Stage::Done
    }

    /// Notes what does not agree; the same thing once.
    pub fn note(&mut self, differences: impl IntoIterator<Item = Difference>) {
        for difference in differences {
            if self.differences.contains(&difference) {
                continue;
            }
            self.differences_count = self.differences_count.saturating_add(1);
            if self.differences.len() < DIFFERENCES_MAX {
                self.differences.push(difference);
            }
        }
    }

    /// Stage `chain`: the next numbers.
    pub fn read_chain(&mut self, rows: &[ChainRow]) {
        let differences = self.chain.read(rows);
        self.note(differences);
        self.counted.entries = self.counted.entries.saturating_add(count(rows));
        if let Stage::Chain { upto } = self.stage
            && self.chain.head.seq >= upto
        {
            self.stage = Stage::Holds { after: None };
        }
    }

    /// Stage `holds`: the next holds; none when the last one was read.
    pub fn read_holds(&mut self, holds: &[HoldRows], last: Option<ReservationId>) {
        let upto = self.chain.head.seq;
        for rows in holds {
            self.note(rows.check());
            self.add(&rows.hold.period, rows.standing(upto));
        }
        self.counted.holds = self.counted.holds.saturating_add(count(holds));
        self.stage = match last {
            None => Stage::Strays { home: Home::Postings, after: None },
            after => Stage::Holds { after },
        };
    }

    /// Stage `strays`: the ids of rows without a hold in the next page, and the page's last id; none when the table is
    /// at its end.
    pub fn read_strays(&mut self, home: Home, strays: &[String], last: Option<String>) {
        self.note(strays.iter().map(|id| Difference::new(What::Stray, Said::Nothing, id.as_str()).in_row(id)));
        self.stage = match (last, home.next()) {
            (Some(after), _) => Stage::Strays { home, after: Some(after) },
            (None, Some(home)) => Stage::Strays { home, after: None },
            (None, None) => Stage::Balances,
        };
    }

    /// Stage `balances`: the next numbers that came since the check began, the reservations that they belong to, and the
    /// balances of this very moment. With the last number, all is compared.
    pub fn read_balances(&mut self, rows: &[ChainRow], touched: &[HoldRows], books: &Books<'_>) {
        let before = self.chain.head.seq;
        let differences = self.chain.read(rows);
        self.note(differences);
        self.counted.entries = self.counted.entries.saturating_add(count(rows));
        let upto = self.chain.head.seq;
        for rows in touched {
            self.note(rows.check());
            self.add(&rows.hold.period, rows.standing(upto).since(rows.standing(before)));
        }
        if upto >= books.tenant.audit.seq {
            self.compare(books);
            self.stage = Stage::Reservations { after: None };
        }
    }

    /// Stage `reservations`: what the next ones answered (`None`: nothing), and the last that was asked; none when there
    /// are no more.
    pub fn read_reservations(&mut self, asked: Vec<Option<Asked>>, last: Option<ReservationId>) {
        for asked in asked {
            self.counted.reservations = self.counted.reservations.saturating_add(1);
            match asked {
                None => self.counted.unanswered = self.counted.unanswered.saturating_add(1),
                Some(Asked { differences, underway }) => {
                    self.note(differences);
                    self.counted.underway = self.counted.underway.saturating_add(u64::from(underway));
                }
            }
        }
        self.stage = match last {
            None => Stage::Done,
            after => Stage::Reservations { after },
        };
    }

    fn add(&mut self, period: &str, moved: Standing) {
        self.totals = self.totals.plus(moved);
        let of_period = self.periods.get(period).copied().unwrap_or_default();
        self.periods.insert(period.into(), of_period.plus(moved));
    }

    /// Invariant 11.
    fn compare(&mut self, books: &Books<'_>) {
        let TenantState { balances, slots_in_use, audit } = books.tenant;
        let Totals { held, spent, billed, slots } = self.totals;
        let mut found = self.chain.agrees_with(audit, balances);
        found.extend(compare(What::HeldByPostings, held, signed(balances.held)));
        found.extend(compare(What::SpentByPostings, spent, signed(balances.spent)));
        found.extend(compare(What::SpentByLines, billed, signed(balances.spent)));
        found.extend(compare(What::SlotsByPostings, slots, i64::from(*slots_in_use)));
        for row in books.periods {
            let of_period = self.periods.get(&row.key).copied().unwrap_or_default();
            let held = compare(What::PeriodHeld, of_period.held, signed(row.held));
            let spent = compare(What::PeriodSpent, of_period.spent, signed(row.spent));
            found.extend([held, spent].into_iter().flatten().map(|difference| difference.in_row(&row.key)));
        }
        let known = |key: &str| books.periods.iter().any(|row| row.key == key);
        for key in self.periods.keys().filter(|key| !known(key)) {
            found.push(Difference::new(What::PeriodHeld, key.as_str(), Said::Nothing).in_row(key));
        }
        self.note(found);
    }
}

fn count<T>(rows: &[T]) -> u64 {
    rows.len() as u64
}
