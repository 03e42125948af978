//! How many generations may go on without a reader (design 5). A reservation asks when its last reader left and its
//! policy goes on, and tells when a reader came back or the work ended: see [`crate::reservation::Detached`].

use super::{Hold, HoldState};
use crate::config::TenantConfig;
use crate::refusal::Refusal;
use crate::reservation::Detached;

/// The stored rows that a place depends on.
#[derive(Clone, Copy, Debug)]
pub struct DetachedContext<'a> {
    /// The tenant as configured: the cap of now counts, not the one of the admission.
    pub config: &'a TenantConfig,
    /// The hold of the reservation.
    pub hold: Option<&'a Hold>,
    /// Holds of the tenant whose generation goes on without a reader.
    pub detached: u32,
}

/// Takes or frees a place. The hold to store, or `Ok(None)` where nothing changes: the word came before, a later one
/// overtook it, or the hold has ended.
///
/// # Errors
/// In this order: [`Refusal::NotFound`] (no such hold), [`Refusal::DetachedExceeded`].
pub fn detach(context: &DetachedContext<'_>, told: &Detached) -> Result<Option<Hold>, Refusal> {
    let hold = context.hold.filter(|hold| hold.identity == told.identity).ok_or(Refusal::NotFound)?;
    if hold.state != HoldState::Open || told.place.number <= hold.place.number {
        return Ok(None);
    }
    let takes = told.place.taken && !hold.place.taken;
    match context.config.detached_max {
        Some(limit) if takes && context.detached >= limit => Err(Refusal::DetachedExceeded { limit }),
        _ => Ok(Some(Hold { place: told.place, ..hold.clone() })),
    }
}
