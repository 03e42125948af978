//! The ledger in its order: audit chain, entries and postings, number by number.

use super::difference::{compare, signed};
use super::{Difference, Said, What};
use crate::audit::{AuditRow, ChainHead, payload_hash};
use crate::ledger::{Balances, LedgerEntry, Posting, PostingKind};
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A posting as it is stored.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct StoredPosting {
    /// Its canonical bytes: those that the audit row hashes.
    pub text: String,
    /// The number that it says it was applied under.
    pub seq: Option<u64>,
}

/// What is stored under one number. Rows that are not there are `None`: nobody has looked past them.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct ChainRow {
    /// The number.
    pub seq: u64,
    /// The audit row.
    pub audit: Option<AuditRow>,
    /// The entry.
    pub entry: Option<LedgerEntry>,
    /// How the entry's columns say that granted, held and spent moved.
    pub columns: Option<(i64, i64, i64)>,
    /// The posting that the audit row names, or else the entry.
    pub posting: Option<StoredPosting>,
}

/// How far the ledger was read without finding a difference, or was read at all: a resting place.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Verified {
    /// End of the chain that was read.
    pub head: ChainHead,
    /// Balances after it, as its last entry says.
    pub after: Balances,
    /// Sum of the entries' movements.
    pub moved: (i64, i64, i64),
    /// Sum of the grants, by their postings.
    pub granted: i64,
}

impl Verified {
    /// Reads on. The rows are those of the next numbers, without a gap. What is broken is named once: what follows is
    /// measured from what is stored, not from what should be.
    pub fn read(&mut self, rows: &[ChainRow]) -> Vec<Difference> {
        rows.iter().flat_map(|row| self.read_one(row)).collect()
    }

    /// Whether the tenant's balances are those that were read.
    #[must_use]
    pub fn agrees_with(&self, head: &ChainHead, balances: &Balances) -> Vec<Difference> {
        let (granted, held, spent) = self.moved;
        let at_end = self.head == *head;
        let ends = (!at_end).then(|| Difference::new(What::AuditHead, word(&self.head), word(head)));
        [
            ends,
            compare(What::GrantedByEntries, granted, signed(balances.granted)),
            compare(What::HeldByEntries, held, signed(balances.held)),
            compare(What::SpentByEntries, spent, signed(balances.spent)),
            compare(What::GrantedByPostings, self.granted, signed(balances.granted)),
        ]
        .into_iter()
        .flatten()
        .collect()
    }

    fn read_one(&mut self, row: &ChainRow) -> Vec<Difference> {
        let mut found = Vec::new();
        let posting = row.posting.as_ref().and_then(|stored| serde_json::from_str::<Posting>(&stored.text).ok());
        self.read_audit(row, &mut found);
        if let Some(named) = row.named()
            && row.posting.is_none()
        {
            found.push(Difference::new(What::Posting, named, Said::Nothing).at(row.seq).in_row(named));
        }
        self.read_entry(row, posting.as_ref(), &mut found);
        if let Some(posting) = &posting {
            found = found.into_iter().map(|difference| difference.of_posting(posting)).collect();
            if posting.kind == PostingKind::Grant {
                self.granted = self.granted.saturating_add(signed(posting.amount));
            }
        }
        found
    }

    fn read_audit(&mut self, row: &ChainRow, found: &mut Vec<Difference>) {
        let Some(audit) = row.audit.as_ref().filter(|audit| audit.seq == row.seq) else {
            let there = row.audit.as_ref().map(|audit| audit.seq);
            let there = there.map_or(Said::Nothing, Said::from);
            found.push(Difference::new(What::AuditRow, row.seq, there).at(row.seq));
            self.head = ChainHead { seq: row.seq, hash: String::new() };
            return;
        };
        // After a gap there is no predecessor to name: the gap was named.
        let after_gap = self.head.hash.is_empty() && self.head.seq > 0;
        if !after_gap {
            let link = compare(What::AuditLink, self.head.hash.as_str(), audit.prev_hash.as_str());
            found.extend(link.map(|difference| difference.at(row.seq)));
        }
        let content = audit.content_hash();
        let own = compare(What::AuditHash, content.as_str(), audit.hash.as_str());
        found.extend(own.map(|difference| difference.at(row.seq)));
        if let Some(stored) = &row.posting {
            let hash = payload_hash(stored.text.as_bytes());
            let payload = compare(What::PostingContent, audit.payload_hash.as_str(), hash.as_str());
            found.extend(payload.map(|difference| difference.at(row.seq).in_row(&audit.posting_id)));
        }
        self.head = audit.head();
    }

    fn read_entry(&mut self, row: &ChainRow, posting: Option<&Posting>, found: &mut Vec<Difference>) {
        let Some(entry) = &row.entry else {
            found.push(Difference::new(What::Entry, row.named(), Said::Nothing).at(row.seq));
            return;
        };
        let named = row.audit.as_ref().map_or(entry.posting_id.as_str(), |audit| audit.posting_id.as_str());
        let numbered = row.posting.as_ref().and_then(|stored| stored.seq);
        let same_place = row.audit.as_ref().is_none_or(|audit| audit.at == entry.recorded_at);
        if entry.posting_id != named || entry.seq != row.seq || !same_place {
            found.push(Difference::new(What::Entry, named, entry.posting_id.as_str()).at(row.seq));
        }
        if row.posting.is_some() && numbered != Some(row.seq) {
            let numbered = numbered.map_or(Said::Nothing, Said::from);
            found.push(Difference::new(What::Entry, row.seq, numbered).at(row.seq));
        }
        let moved = (entry.granted.get(), entry.held.get(), entry.spent.get());
        if let Some(columns) = row.columns {
            found.extend(differ(What::EntryMovement, moved, columns, row.seq));
        }
        if let Some(posting) = posting {
            found.extend(differ(What::EntryMovement, movement(posting, moved.1), moved, row.seq));
        }
        let before = numbers(&self.after);
        found.extend(differ(What::EntryBalance, sum(before, moved), numbers(&entry.after), row.seq));
        self.after = entry.after;
        self.moved = sum(self.moved, moved);
    }
}

impl ChainRow {
    /// The posting that stands under this number.
    fn named(&self) -> Option<&str> {
        let audit = self.audit.as_ref().map(|audit| audit.posting_id.as_str());
        audit.or_else(|| self.entry.as_ref().map(|entry| entry.posting_id.as_str()))
    }
}

/// How a posting moves granted, held and spent. A resolution ends whatever was held, which its hold knows: it is taken
/// as it was `told`, and checked there.
fn movement(posting: &Posting, told: i64) -> (i64, i64, i64) {
    let amount = signed(posting.amount);
    match posting.kind {
        PostingKind::Grant => (amount, 0, 0),
        PostingKind::Hold | PostingKind::HoldExtended => (0, amount, 0),
        PostingKind::HoldReduced => (0, amount.saturating_neg(), 0),
        PostingKind::Settle => (0, told, amount),
        PostingKind::Release => (0, told, 0),
        PostingKind::Overage | PostingKind::LateSettlement | PostingKind::Correction | PostingKind::Compensation => {
            (0, 0, super::holds::billed(posting))
        }
    }
}

const fn sum(a: (i64, i64, i64), b: (i64, i64, i64)) -> (i64, i64, i64) {
    (a.0.saturating_add(b.0), a.1.saturating_add(b.1), a.2.saturating_add(b.2))
}

fn numbers(balances: &Balances) -> (i64, i64, i64) {
    (signed(balances.granted), signed(balances.held), signed(balances.spent))
}

/// The first of three numbers that differs.
fn differ(what: What, expected: (i64, i64, i64), found: (i64, i64, i64), seq: u64) -> Option<Difference> {
    let pairs = [(expected.0, found.0), (expected.1, found.1), (expected.2, found.2)];
    let (expected, found) = pairs.into_iter().find(|(expected, found)| expected != found)?;
    Some(Difference::new(what, expected, found).at(seq))
}

fn word(head: &ChainHead) -> Said {
    Said::Word(alloc::format!("{}:{}", head.seq, head.hash))
}
