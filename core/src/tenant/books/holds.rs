//! One hold with all that was posted, billed and measured under its reservation.

use super::difference::{compare, signed};
use super::{Difference, Said, What};
use crate::ledger::{Direction, InvoiceLine, LedgerEntry, Posting, PostingKind};
use crate::tenant::{Hold, HoldState};
use alloc::collections::BTreeSet;
use alloc::string::String;
use alloc::vec::Vec;

/// What the hold's columns say: queries sum over them, so they must say what the row says.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldColumns {
    /// `open`, `settled`, `released`.
    pub state: String,
    /// What is held now, in micro-USD.
    pub held: i64,
    /// Whether it has its slot.
    pub slot: bool,
}

/// A posting with the entry of its number.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeptPosting {
    /// The number that it was applied under.
    pub seq: u64,
    /// The posting.
    pub posting: Posting,
    /// The entry of that number.
    pub entry: Option<LedgerEntry>,
}

/// An invoice line with its columns.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct KeptLine {
    /// The number of its posting.
    pub seq: u64,
    /// The line.
    pub line: InvoiceLine,
    /// The amount by its column.
    pub amount: i64,
}

/// A hold and everything under its reservation, postings and lines in the order of their numbers.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct HoldRows {
    /// The hold.
    pub hold: Hold,
    /// Its columns.
    pub columns: HoldColumns,
    /// Its postings.
    pub postings: Vec<KeptPosting>,
    /// Its invoice lines.
    pub lines: Vec<KeptLine>,
    /// Ids of its usage records.
    pub usage_records: BTreeSet<String>,
    /// The first number whose posting has an invoice line, if it bills: what was applied by a version that made none has
    /// none.
    pub lines_from: u64,
}

/// What a reservation's rows come to, at one moment of the ledger. Amounts in micro-USD.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct Standing {
    /// Held.
    pub held: i64,
    /// Charged, refunds taken off.
    pub spent: i64,
    /// Sum of the invoice lines, and of what was charged before there were any.
    pub billed: i64,
    /// Slots taken: one or none.
    pub slots: i64,
}

impl Standing {
    /// How it moved from `earlier`.
    #[must_use]
    pub const fn since(self, earlier: Self) -> Self {
        Self {
            held: self.held.saturating_sub(earlier.held),
            spent: self.spent.saturating_sub(earlier.spent),
            billed: self.billed.saturating_sub(earlier.billed),
            slots: self.slots.saturating_sub(earlier.slots),
        }
    }
}

impl HoldRows {
    /// What the postings and lines up to a number come to, by themselves: no entry and no hold is looked at.
    #[must_use]
    pub fn standing(&self, upto: u64) -> Standing {
        let postings = || self.postings.iter().filter(|kept| kept.seq <= upto).map(|kept| &kept.posting);
        let placed = postings().any(|posting| posting.kind == PostingKind::Hold);
        let open = placed && !postings().any(|posting| posting.kind.resolves_hold());
        let lines = self.lines.iter().filter(|kept| kept.seq <= upto).map(|kept| kept.line.amount.get());
        let unlined = self.postings.iter().filter(|kept| kept.seq <= upto && kept.seq < self.lines_from);
        let unlined = unlined.map(|kept| billed(&kept.posting));
        Standing {
            held: if open { postings().fold(0, |held, posting| held.saturating_add(reserved(posting))) } else { 0 },
            spent: postings().fold(0, |spent, posting| spent.saturating_add(billed(posting))),
            billed: lines.chain(unlined).fold(0, i64::saturating_add),
            slots: i64::from(open && !postings().any(|posting| posting.frees_slot)),
        }
    }

    /// What does not agree: the hold with its postings, the postings with entries, lines and usage records.
    #[must_use]
    pub fn check(&self) -> Vec<Difference> {
        let found =
            [self.check_hold(), self.check_resolution(), self.check_entries(), self.check_lines(), self.check_usage()];
        found.into_iter().flatten().map(|difference| difference.of_hold(&self.hold)).collect()
    }

    fn resolutions(&self) -> impl Iterator<Item = &KeptPosting> {
        self.postings.iter().filter(|kept| kept.posting.kind.resolves_hold())
    }

    fn check_hold(&self) -> Vec<Difference> {
        let Self { hold, columns, .. } = self;
        let standing = self.standing(u64::MAX);
        let state = match self.resolutions().next().map(|kept| kept.posting.kind) {
            None => HoldState::Open,
            Some(PostingKind::Settle) => HoldState::Settled,
            Some(_) => HoldState::Released,
        };
        let placed = self.postings.iter().find(|kept| kept.posting.kind == PostingKind::Hold);
        let placed = placed.map_or(Said::Nothing, |kept| Said::from(kept.posting.amount));
        let has_slot = standing.slots == 1;
        [
            compare(What::HoldState, state.as_str(), hold.state.as_str()),
            compare(What::HoldState, state.as_str(), columns.state.as_str()),
            compare(What::HoldPlaced, placed, Said::from(hold.terms.hold)),
            compare(What::HoldHeld, standing.held, signed(hold.held())),
            compare(What::HoldHeld, standing.held, columns.held),
            compare(What::HoldSlot, has_slot, hold.has_slot()),
            compare(What::HoldSlot, has_slot, columns.slot),
            compare(What::HoldCharged, standing.spent, signed(hold.charged)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    /// Invariants 1 and 2.
    fn check_resolution(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for extra in self.resolutions().skip(1) {
            let id = extra.posting.id.as_str();
            found.push(Difference::new(What::Resolution, Said::Nothing, id).at(extra.seq).in_row(id));
        }
        let Some(resolution) = self.resolutions().next() else { return found };
        let before = self.standing(resolution.seq.saturating_sub(1)).held;
        let amount = signed(resolution.posting.amount);
        if resolution.posting.kind == PostingKind::Settle && amount > before {
            let id = resolution.posting.id.as_str();
            found.push(Difference::new(What::HoldExceeded, before, amount).at(resolution.seq).in_row(id));
        }
        found
    }

    /// A resolution ends all that is held: only here can that be told. A hold is entered as often as it is posted.
    fn check_entries(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for kept in &self.postings {
            let Some(entry) = &kept.entry else {
                let difference = Difference::new(What::Entry, kept.posting.id.as_str(), Said::Nothing);
                found.push(difference.at(kept.seq).in_row(&kept.posting.id));
                continue;
            };
            let before = self.standing(kept.seq.saturating_sub(1)).held;
            let moved = self.standing(kept.seq).held.saturating_sub(before);
            let differs = compare(What::EntryMovement, moved, entry.held.get());
            found.extend(differs.map(|difference| difference.at(kept.seq).in_row(&kept.posting.id)));
        }
        found
    }

    /// Each posting that bills has one line, of its amount; nothing else has one.
    fn check_lines(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        let due = |kept: &&KeptPosting| kept.posting.kind.bills() && kept.seq >= self.lines_from;
        for kept in self.postings.iter().filter(due) {
            let id = kept.posting.id.as_str();
            let due = billed(&kept.posting);
            let line = self.lines.iter().find(|line| line.line.posting_id == id);
            let told = line.map_or([None, None], |line| [Some(line.line.amount.get()), Some(line.amount)]);
            let wrong = told.into_iter().find(|told| *told != Some(due));
            found.extend(wrong.map(|told| Difference::new(What::Line, due, told).at(kept.seq).in_row(id)));
        }
        let billed_for = |line: &KeptLine| {
            self.postings.iter().any(|kept| kept.posting.id == line.line.posting_id && kept.posting.kind.bills())
        };
        for line in self.lines.iter().filter(|line| !billed_for(line)) {
            let difference = Difference::new(What::Line, Said::Nothing, line.line.amount.get());
            found.push(difference.at(line.seq).in_row(&line.line.posting_id));
        }
        found
    }

    /// What is billed stands on the usage that its posting brought, and that usage is there.
    fn check_usage(&self) -> Vec<Difference> {
        let mut found = Vec::new();
        for KeptPosting { seq, posting, .. } in &self.postings {
            let lost = posting.usage_records.iter().find(|record| !self.usage_records.contains(&record.id));
            found.extend(lost.map(|record| {
                Difference::new(What::UsageRecord, record.id.as_str(), Said::Nothing).at(*seq).in_row(&posting.id)
            }));
            let Some(line) = self.lines.iter().find(|line| line.line.posting_id == posting.id) else { continue };
            let brought = posting.usage_records.iter().map(|record| &record.id);
            if !brought.eq(&line.line.usage_records) {
                let ids = posting.usage_records.iter().map(|record| record.id.as_str()).collect::<Vec<_>>();
                let difference = Difference::new(
                    What::UsageRecord,
                    ids.join(" ").as_str(),
                    line.line.usage_records.join(" ").as_str(),
                );
                found.push(difference.at(*seq).in_row(&posting.id));
            }
        }
        found
    }
}

/// What a posting adds to a hold that stays open.
fn reserved(posting: &Posting) -> i64 {
    match posting.kind {
        PostingKind::Hold | PostingKind::HoldExtended => signed(posting.amount),
        PostingKind::HoldReduced => signed(posting.amount).saturating_neg(),
        _ => 0,
    }
}

/// What a posting adds to what is spent.
pub(super) fn billed(posting: &Posting) -> i64 {
    let amount = if posting.kind.bills() { signed(posting.amount) } else { 0 };
    match posting.direction {
        Direction::Charge => amount,
        Direction::Refund => amount.saturating_neg(),
    }
}
