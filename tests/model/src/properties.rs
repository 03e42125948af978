//! What must hold in every reachable state: the invariants of `holdfast_core`, by their numbers there, and two promises
//! of the product beside them.

use crate::HoldfastModel;
use crate::drain;
use crate::state::{Fate, Generation, Piece, Provider, Said, State, TenantRows};
use crate::world::{self, length_of};
use holdfast_core::audit::ChainHead;
use holdfast_core::finding::Source;
use holdfast_core::ledger::{Balances, Direction, Posting, PostingKind};
use holdfast_core::money::Micros;
use holdfast_core::policy::OnInterruption;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::{Aggregate, Attempt, Lifecycle, Parcel, Reservation, ResolvedAs, Settlement};
use holdfast_core::tenant::{AdmitContext, Hold, HoldState, PeriodState, admit};
use stateright::Property;
use std::collections::{BTreeMap, BTreeSet};

/// Invariant 1.
pub const ONE_SETTLEMENT: &str = "1: at most one settlement per reservation";
/// Invariant 2.
pub const BALANCED: &str =
    "2: held + settled + released = reserved, as extended or reduced; what is charged is the cost";
/// Invariant 3.
pub const TERMINAL: &str = "3: the first terminal state is never overwritten";
/// Invariant 4.
pub const LIVE: &str =
    "4: nothing is released that is executed, but behind a fence and by the route's or an operator's word";
/// Invariant 5.
pub const RECORDED: &str = "5: every received completion is recorded";
/// Invariant 6.
pub const COST_IS_KEPT: &str = "6: a recorded cost has an outbox row or an applied posting";
/// Invariant 7.
pub const DRAINS: &str = "7: a fair drain ends every reservation and resolves every hold";
/// Invariant 8.
pub const REPLAY: &str = "8: a replay has the same effect and answer; another body is refused";
/// Invariant 9.
pub const GROWS: &str = "9: epochs and offsets only grow; a reader's bytes are a prefix of the log";
/// Invariant 10.
pub const AUDIT: &str = "10: each posting has one row in an unbroken audit chain";
/// Invariant 11.
pub const SUMS: &str = "11: balances are the sum over reservations; slots stay within the limit";
/// Invariant 12.
pub const ONE_DISPATCH: &str = "12: an attempt is dispatched once, and another one only where the route allows it";
/// Seed 3: a release that cannot be explained is not one.
pub const EVIDENCE: &str = "evidence: whatever ends or keeps an overdue hold has its record, and the records chain";
/// Operators use the same guarded changes.
pub const OPERATOR: &str = "operator: an action counts once, and only for the state that it was decided on";
/// Promise 3 of the product: settled from evidence, and never below it.
pub const AT_LEAST: &str = "at least: no settlement below what the provider can have billed, up to the hold";
/// Promise 2 of the product.
pub const POLICY: &str = "policy: a disconnect that stops the work reaches the driver";

/// Design 5: detached generations have a cap.
pub const PLACES: &str = "places: as many go on without a reader as the tenant granted, never more than its cap, and each once its word came";

macro_rules! properties {
    ($($name:ident: $holds:expr,)*) => {
        /// All of them.
        #[must_use]
        pub(crate) fn all() -> Vec<Property<HoldfastModel>> {
            vec![$(Property::always($name, |model: &HoldfastModel, state: &State| {
                let holds: fn(&HoldfastModel, &State) -> bool = $holds;
                !state.broken.contains($name) && holds(model, state)
            }),)*]
        }

        /// Their names.
        pub const ALL: &[&str] = &[$($name,)*];
    };
}

properties! {
    ONE_SETTLEMENT: |_, state| one_settlement(state),
    BALANCED: |model, state| {
        state.tenant.rows.holds.values().all(|hold| balanced(&state.tenant.rows, hold))
            && (0..state.generations.len()).all(|g| cost_is_charged(model, state, g))
    },
    // Every change is compared with what was stored before: see `Step::check_transition`.
    TERMINAL: |_, _| true,
    LIVE: |model, state| (0..state.generations.len()).all(|g| nothing_live_is_released(model, state, g)),
    // Whoever refuses a completion checks its record: see `Step::record_refused`.
    RECORDED: |_, _| true,
    COST_IS_KEPT: |_, state| state.generations.iter().all(|generation| cost_is_kept(state, generation)),
    DRAINS: |model, state| drain::converges(model, state),
    REPLAY: replays_and_other_bodies,
    GROWS: |model, state| state.generations.iter().all(|generation| log_and_cursors_agree(model, generation)),
    AUDIT: |_, state| audit_is_whole(&state.tenant.rows),
    SUMS: sums_agree,
    ONE_DISPATCH: |model, state| state.generations.iter().all(|generation| dispatched_once(model, state, generation)),
    EVIDENCE: |_, _| true,
    OPERATOR: |_, _| true,
    AT_LEAST: |model, state| state.generations.iter().all(|generation| settled_at_least(model, state, generation)),
    // Whoever tells of a client that is gone checks the answer, too: see `Step::edge_append`.
    POLICY: |_, state| state.generations.iter().all(readers_are_there),
    PLACES: places_agree,
}

fn of_hold<'a>(rows: &'a TenantRows, hold: &'a Hold) -> impl Iterator<Item = &'a Posting> {
    rows.postings.iter().filter(|posting| posting.reservation.as_ref() == Some(&hold.identity.reservation))
}

fn one_settlement(state: &State) -> bool {
    let rows = &state.tenant.rows;
    let once = |hold: &Hold| of_hold(rows, hold).filter(|posting| posting.kind.resolves_hold()).count() <= 1;
    let authored_once = |generation: &Generation| {
        generation.object.outbox.iter().filter(|posting| posting.kind.resolves_hold()).count() <= 1
    };
    rows.holds.values().all(once) && state.generations.iter().all(authored_once)
}

fn sum_of(rows: &TenantRows, hold: &Hold, kind: PostingKind) -> u64 {
    of_hold(rows, hold).filter(|posting| posting.kind == kind).map(|posting| posting.amount.get()).sum()
}

/// What was reserved, as extended and reduced, is held, settled with its rest returned, or released; and what is charged
/// besides stands apart.
fn balanced(rows: &TenantRows, hold: &Hold) -> bool {
    let reserved = sum_of(rows, hold, PostingKind::Hold);
    let extended = sum_of(rows, hold, PostingKind::HoldExtended);
    let reduced = sum_of(rows, hold, PostingKind::HoldReduced);
    let settled = sum_of(rows, hold, PostingKind::Settle);
    let overage = sum_of(rows, hold, PostingKind::Overage);
    let resolved = of_hold(rows, hold).any(|posting| posting.kind.resolves_hold());
    let follows = |kind: PostingKind| kind.refers() || kind == PostingKind::Overage;
    let followed = of_hold(rows, hold).any(|posting| follows(posting.kind));
    let Some(most) = (reserved + extended).checked_sub(reduced) else { return false };
    let ended = match hold.state {
        HoldState::Open => !resolved && !followed && hold.held().get() == most,
        HoldState::Settled => resolved && settled <= most && (overage == 0 || settled == most),
        HoldState::Released => resolved && settled == 0 && overage == 0,
    };
    let charged = charged_by(of_hold(rows, hold));
    reserved == hold.terms.hold.get() && ended && charged == Some(hold.charged.get())
}

/// Charges less refunds.
fn charged_by<'a>(postings: impl Iterator<Item = &'a Posting>) -> Option<u64> {
    postings.filter(|posting| posting.kind.bills()).try_fold(0_u64, |sum, posting| match posting.direction {
        Direction::Charge => sum.checked_add(posting.amount.get()),
        Direction::Refund => sum.checked_sub(posting.amount.get()),
    })
}

/// What a reservation says that it costs is what it has authored; and it counts on no hold that the tenant has not
/// given.
fn cost_is_charged(model: &HoldfastModel, state: &State, g: usize) -> bool {
    let object = &state.generations[g].object;
    let Some(live) = object.aggregate.live() else { return true };
    let hold = state.tenant.rows.hold(&model.identities[g].reservation);
    let extended = hold.is_none_or(|hold| live.extended <= hold.extended);
    let charged = charged_by(object.outbox.iter().map(|posting| &**posting));
    extended && charged == Some(live.cost.map_or(0, Micros::get))
}

/// Released means: the provider bills nothing, now and later; or nobody drives it any more, and the route or an operator
/// has decided so (what is checked where it happens).
fn nothing_live_is_released(model: &HoldfastModel, state: &State, g: usize) -> bool {
    let generation = &state.generations[g];
    let hold = state.tenant.rows.hold(&model.identities[g].reservation);
    let applied = hold.is_some_and(|hold| hold.state == HoldState::Released);
    let mut authored =
        generation.object.outbox.iter().filter(|posting| posting.kind == PostingKind::Release).peekable();
    if authored.peek().is_none() {
        return !applied;
    }
    let bills = |operation: &Provider| !matches!(operation.fate, Fate::Idle | Fate::NotReached | Fate::Unbilled);
    let by_word = authored.all(|posting| posting.reason.leaves_outcome_open());
    by_word || contradicts_itself(model, state) || !generation.operations().any(bills)
}

/// Each row of the outbox is on its way or applied: none is forgotten, and none is refused for good.
fn cost_is_kept(state: &State, generation: &Generation) -> bool {
    let object = &generation.object;
    let undelivered = object.undelivered();
    object.outbox.iter().all(|posting| {
        undelivered.contains(&posting.id.as_str())
            || state.tenant.rows.postings.iter().any(|applied| applied.id == posting.id)
    })
}

fn dispatched_once(model: &HoldfastModel, state: &State, generation: &Generation) -> bool {
    let repeats = model.config.variants[state.variant].on_interruption == OnInterruption::Retry;
    let ids: BTreeSet<_> = generation
        .object
        .aggregate
        .live()
        .map_or_else(BTreeSet::new, |live| live.attempts().map(|attempt| attempt.id.as_str().to_owned()).collect());
    let attempts = generation.earlier.len() + 1;
    let own = ids.is_empty() || ids.len() == attempts;
    generation.operations().all(|operation| operation.dispatches <= 1) && (attempts == 1 || (repeats && own))
}

/// The same request of a known generation with another body is refused, whatever its state.
fn replays_and_other_bodies(model: &HoldfastModel, state: &State) -> bool {
    let rows = &state.tenant.rows;
    let setting = &model.settings[state.variant];
    let variant = &model.config.variants[state.variant];
    state.generations.iter().enumerate().all(|(g, _)| {
        let Some(hold) = rows.hold(&model.identities[g].reservation) else { return true };
        let mut other = world::admission(variant, g);
        other.fingerprint = "another body".into();
        let period = PeriodState::empty(String::new());
        let context = AdmitContext {
            account: &setting.account,
            route_slots: 0,
            measures: None,
            config: &setting.tenant,
            providers: &setting.providers,
            limits: &setting.limits,
            tenant: &rows.tenant,
            period: &period,
            same_generation: Some(hold),
            same_key: None,
        };
        admit(&context, &other, state.now) == Err(Refusal::IdentityConflict)
    })
}

/// The log has every piece once and in order, and a client finds its place in it.
fn log_and_cursors_agree(model: &HoldfastModel, generation: &Generation) -> bool {
    let in_order = |(n, piece): (usize, &Piece)| match piece {
        Piece::Content { n: number, .. } => usize::from(*number) == n,
        _ => true,
    };
    let visible = generation.visible_to_object_readers();
    let ordered = visible.iter().enumerate().all(in_order);
    let contents = visible.iter().take_while(|piece| matches!(piece, Piece::Content { .. })).count();
    let closing = visible.len().saturating_sub(contents);
    // After the content comes at most the provider's own end and one error of ours.
    ordered && closing <= 2 && cursor_is_served_right(model, generation, &visible)
}

fn cursor_is_served_right(model: &HoldfastModel, generation: &Generation, visible: &[Piece]) -> bool {
    let got = &generation.client.got;
    let Some(live) = generation.object.aggregate.live() else { return true };
    let (offset, length) = (length_of(got), generation.visible_length());
    let ignores_loss = model.config.bug == Some(crate::bug::Bug::CursorIgnoresLoss);
    let beyond = if ignores_loss { (offset > length).then_some(length) } else { live.cursor_beyond(offset, length) };
    let common = got.iter().zip(visible).take_while(|(got, stored)| got == stored).map(|(got, _)| *got);
    let common = length_of(&common.collect::<Vec<_>>());
    // It reads on from `start`, so what it has up to there must be what the log has.
    let start = beyond.unwrap_or(offset);
    start <= common
}

/// A stream that was taken up again counts as read only while somebody reads it here: no policy waits for a reader that
/// went with the lost driver.
fn readers_are_there(generation: &Generation) -> bool {
    let Some((live, memory)) = generation.object.aggregate.live().zip(generation.object.memory.as_ref()) else {
        return true;
    };
    let driven = memory.driver.as_ref().is_some_and(|driver| driver.epoch == live.attempt.epoch());
    let resumed = live.attempt.resumption.is_some_and(|resumption| resumption.resumed_at.is_some());
    !(driven && resumed) || (live.lifecycle == Lifecycle::Active) <= memory.reader
}

/// A place whose word was answered is counted by the tenant as the reservation has it.
fn places_agree(model: &HoldfastModel, state: &State) -> bool {
    let Some(most) = model.config.variants[state.variant].detached_max else { return true };
    let rows = &state.tenant.rows;
    let agrees = |(g, generation): (usize, &Generation)| {
        let Some(live) = generation.object.aggregate.live() else { return true };
        let told = live.deliveries.iter().all(|delivery| delivery.parcel != Parcel::Place);
        let hold = rows.hold(&model.identities[g].reservation).filter(|hold| hold.state == HoldState::Open);
        !told || live.resolution.is_some() || hold.is_none_or(|hold| hold.place.taken == live.place.taken)
    };
    rows.detached() <= most && state.generations.iter().enumerate().all(agrees)
}

fn audit_is_whole(rows: &TenantRows) -> bool {
    let mut head = ChainHead::default();
    let whole = rows.audit.len() == rows.postings.len()
        && rows.audit.iter().zip(&rows.postings).all(|(row, posting)| {
            let follows = row.follows(&head) && head.append(posting, row.at) == *row;
            head = row.head();
            follows
        });
    whole && head == rows.tenant.audit
}

fn sums_agree(model: &HoldfastModel, state: &State) -> bool {
    let rows = &state.tenant.rows;
    let mut balances = Balances::default();
    let mut held_by: BTreeMap<_, Micros> = BTreeMap::new();
    for posting in &rows.postings {
        let held = held_by.entry(posting.reservation.as_ref()).or_default();
        balances = balances.after(posting, *held).unwrap_or_default();
        *held = match posting.kind {
            PostingKind::Hold | PostingKind::HoldExtended => held.plus(posting.amount).unwrap_or_default(),
            PostingKind::HoldReduced => held.saturating_minus(posting.amount),
            PostingKind::Settle | PostingKind::Release => Micros::ZERO,
            _ => *held,
        };
    }
    let held: u64 = rows.holds.values().map(|hold| hold.held().get()).sum();
    let slots = rows.holds.values().filter(|hold| hold.has_slot()).count();
    let limit = model.settings[state.variant].tenant.concurrency;
    balances == rows.tenant.balances
        && held == rows.tenant.balances.held.get()
        && rows.periods.values().map(|period| period.held.get()).sum::<u64>() == held
        && rows.periods.values().map(|period| period.spent.get()).sum::<u64>() == rows.tenant.balances.spent.get()
        && rows.tenant.slots_in_use as usize == slots
        && rows.tenant.slots_in_use <= limit
        && rows.holds.len() <= state.generations.len()
}

/// The most that the provider can have billed for an operation: what it reported, or what it may have made before its
/// socket was closed, and after it where the work goes on.
#[must_use]
fn billed_at_most(model: &HoldfastModel, state: &State, provider: &Provider) -> u64 {
    let variant = &model.config.variants[state.variant];
    let sent = u64::from(provider.sent) * model.config.piece_bytes;
    let tokens = match provider.fate {
        Fate::Idle | Fate::NotReached | Fate::Unbilled => return 0,
        Fate::Completed(reported) | Fate::Cancelled(reported) => {
            match world::usage_of(reported, world::tokens_of(variant, sent)) {
                Some(usage) => return usage.input_tokens + usage.output_tokens,
                None => sent,
            }
        }
        Fate::Running if !variant.streaming || variant.hidden_output || variant.capabilities.outlives_socket() => {
            world::OUTPUT_TOKENS
        }
        Fate::Running => sent + holdfast_core::reservation::IN_FLIGHT_TOKENS,
    };
    world::BODY_BYTES + tokens.min(world::OUTPUT_TOKENS)
}

/// What the provider has told about all attempts together, if it has told about each that was sent.
fn told(live: &Reservation) -> bool {
    live.attempts()
        .filter(|attempt| attempt.submitted_at.is_some())
        .all(|attempt| attempt.accounted.is_some_and(|accounted| accounted.metered.is_exact()))
}

fn settled_at_least(model: &HoldfastModel, state: &State, generation: &Generation) -> bool {
    let billed: u64 = generation.operations().map(|operation| billed_at_most(model, state, operation)).sum();
    let live = match &*generation.object.aggregate {
        Aggregate::Vacant => return true,
        Aggregate::Tombstone(_) => return billed == 0,
        Aggregate::Live(live) => live,
    };
    if !live.lifecycle.is_terminal() {
        return billed == 0 || live.attempts().any(|attempt| attempt.submitted_at.is_some());
    }
    if decided_by_operator(live) || contradicts_itself(model, state) {
        return true;
    }
    let most = live.terms.hold.get() + live.extended.get();
    let cost = live.cost.map_or(0, Micros::get);
    match live.settlement {
        Settlement::Pending => false,
        // What is kept is enough, whatever becomes known.
        Settlement::Expired | Settlement::Disputed => live.hold().get() >= billed.min(most),
        // The provider's own count is charged as it is, whatever the hold.
        Settlement::Committed | Settlement::Released if told(live) => cost == billed,
        Settlement::Committed => cost >= billed.min(most),
        Settlement::Released => {
            let by_rule = live.resolution.as_ref().is_some_and(|resolution| resolution.by == ResolvedAs::Expiry);
            by_rule || billed == 0
        }
    }
}

/// A provider that says two things is believed in what it said first: nobody can be right by its second word.
fn contradicts_itself(model: &HoldfastModel, state: &State) -> bool {
    model.config.variants[state.variant].callbacks.contains(&Said::Contradiction)
}

/// Whether what is charged stands on an operator's word.
fn decided_by_operator(live: &Reservation) -> bool {
    let says = |attempt: &Attempt| attempt.reported.is_some_and(|said| said.usage_source == Source::Operator);
    let ended = live.resolution.as_ref().is_some_and(|resolution| resolution.by == ResolvedAs::Operator);
    ended || live.lifecycle == Lifecycle::Compensated || live.attempts().any(says)
}
