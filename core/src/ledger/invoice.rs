//! What is billed, and what it stands on.

use super::{Direction, Posting, PostingKind, ReasonCode};
use crate::ids::{GenerationId, Identity, ReservationId};
use crate::money::{Micros, SignedMicros};
use crate::policy::Terms;
use crate::pricing::{CostPart, millionths_of, rounded_up};
use crate::time::UnixMillis;
use crate::usage::Metered;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// A billable amount: one for each posting that changes what is spent. The lines of a tenant sum to what it has spent.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct InvoiceLine {
    /// The posting that moved the amount; it names the line too.
    pub posting_id: String,
    /// The reservation that is billed.
    pub reservation: ReservationId,
    /// Its generation.
    pub generation: GenerationId,
    /// The route that served it.
    pub route: String,
    /// The provider that was called.
    pub provider: String,
    /// Model as the client named it.
    pub model: String,
    /// The budget period it counts in: that of its admission.
    pub period: String,
    /// The price list that the amount was made by.
    pub price_version: String,
    /// Quantities by tier at their unit prices, those of bounds behind the counted ones; none where the posting stands on no usage, or was made by another price
    /// list than the one pinned at admission.
    pub parts: Vec<CostPart>,
    /// The sum of the parts, rounded up once: the price of the usage that the line stands on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub rated: Option<Micros>,
    /// What is billed by this line; below zero for a refund. It is the rated price where one line bills all of the
    /// usage. It differs where a hold caps an estimate, where hidden output takes a whole hold, where a cost above the
    /// hold is split over two lines, and in a correction, which bills the difference.
    pub amount: SignedMicros,
    /// The usage behind it is a bound, or partly one, not the provider's own count alone.
    pub estimated: bool,
    /// As what it is billed.
    pub kind: PostingKind,
    /// Why.
    pub reason: ReasonCode,
    /// Ids of the usage records that it stands on.
    pub usage_records: Vec<String>,
    /// When it was billed, by the tenant object's clock.
    pub recorded_at: UnixMillis,
}

impl InvoiceLine {
    /// The line of a posting; none for one that changes nothing of what is spent.
    #[must_use]
    pub fn of(
        posting: &Posting,
        identity: &Identity,
        terms: &Terms,
        period: &str,
        recorded_at: UnixMillis,
    ) -> Option<Self> {
        if !posting.kind.bills() {
            return None;
        }
        let price_version = posting.price_version.as_ref().unwrap_or(&terms.price_version);
        // Usage beyond any price is no reason to refuse what was settled: the line then stands without parts.
        let rated = parts_of(posting, terms)
            .filter(|_| *price_version == terms.price_version)
            .and_then(|parts| rounded_up(millionths_of(&parts)).ok().map(|price| (parts, price)));
        let (parts, rated) = rated.map_or((Vec::new(), None), |(parts, price)| (parts, Some(price)));
        let amount = match posting.direction {
            Direction::Charge => SignedMicros::between(Micros::ZERO, posting.amount),
            Direction::Refund => SignedMicros::between(posting.amount, Micros::ZERO),
        };
        Some(Self {
            posting_id: posting.id.clone(),
            reservation: identity.reservation.clone(),
            generation: identity.generation.clone(),
            route: terms.route.clone(),
            provider: terms.provider.clone(),
            model: terms.model.clone(),
            period: period.into(),
            price_version: price_version.clone(),
            parts,
            rated,
            amount,
            estimated: posting.usage.is_some_and(|usage| !usage.is_exact()),
            kind: posting.kind,
            reason: posting.reason,
            usage_records: posting.usage_records.iter().map(|record| record.id.clone()).collect(),
            recorded_at,
        })
    }
}

/// The parts of all usage behind a posting: what was counted and what is a bound, each by its own rule.
fn parts_of(posting: &Posting, terms: &Terms) -> Option<Vec<CostPart>> {
    let usage = posting.usage?;
    let Some(bound) = posting.estimated_usage else { return terms.price.cost_parts(&usage).ok() };
    let counted = Metered::Exact(usage.usage().minus(&bound));
    let parts = [counted, Metered::AtLeast(bound)].map(|metered| terms.price.cost_parts(&metered));
    let [counted, bound] = parts;
    Some([counted.ok()?, bound.ok()?].concat())
}
