//! What must hold in every reachable state: the invariants of `holdfast_core`, by their numbers there, and two promises
//! of the product beside them.

use crate::HoldfastModel;
use crate::drain;
use crate::object::was_submitted;
use crate::state::{Fate, Generation, Piece, State, TenantRows};
use crate::world::{self, length_of};
use holdfast_core::audit::ChainHead;
use holdfast_core::ledger::{Balances, Posting, PostingKind};
use holdfast_core::money::Micros;
use holdfast_core::refusal::Refusal;
use holdfast_core::reservation::Aggregate;
use holdfast_core::tenant::{AdmitContext, Hold, HoldState, PeriodState, admit};
use holdfast_core::usage::Usage;
use stateright::Property;

/// Invariant 1.
pub const ONE_SETTLEMENT: &str = "1: at most one settlement per reservation";
/// Invariant 2.
pub const BALANCED: &str = "2: held + settled + released = reserved; a cost above the hold is an overage";
/// Invariant 3.
pub const TERMINAL: &str = "3: the first terminal state is never overwritten";
/// Invariant 4.
pub const LIVE: &str = "4: nothing is released that the provider executes or executed";
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
pub const ONE_DISPATCH: &str = "12: an attempt is dispatched once";
/// Promise 3 of the product: settled from evidence, and never below it.
pub const AT_LEAST: &str = "at least: no settlement below what the provider can have billed, up to the hold";
/// Promise 2 of the product.
pub const POLICY: &str = "policy: a disconnect that stops the work reaches the driver";

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
    BALANCED: |_, state| state.tenant.rows.holds.values().all(|hold| balanced(&state.tenant.rows, hold)),
    TERMINAL: |_, state| state.generations.iter().all(first_end_stands),
    LIVE: |model, state| (0..state.generations.len()).all(|g| nothing_live_is_released(model, state, g)),
    // Whoever refuses a completion checks its record: see `Step::record_refused`.
    RECORDED: |_, _| true,
    COST_IS_KEPT: |_, state| state.generations.iter().all(|generation| cost_is_kept(state, generation)),
    DRAINS: |model, state| drain::converges(model, state),
    REPLAY: replays_and_other_bodies,
    GROWS: |model, state| state.generations.iter().all(|generation| log_and_cursors_agree(model, generation)),
    AUDIT: |_, state| audit_is_whole(&state.tenant.rows),
    SUMS: sums_agree,
    ONE_DISPATCH: |_, state| state.generations.iter().all(|generation| generation.provider.dispatches <= 1),
    AT_LEAST: |model, state| state.generations.iter().all(|generation| settled_at_least(model, state, generation)),
    // Whoever tells of a client that is gone checks the answer: see `Step::edge_append`.
    POLICY: |_, _| true,
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

/// What was reserved is held, settled with its rest returned, or released; and what costs more stands apart.
fn balanced(rows: &TenantRows, hold: &Hold) -> bool {
    let reserved = sum_of(rows, hold, PostingKind::Hold);
    let settled = sum_of(rows, hold, PostingKind::Settle);
    let released = sum_of(rows, hold, PostingKind::Release);
    let overage = sum_of(rows, hold, PostingKind::Overage);
    let resolved = of_hold(rows, hold).any(|posting| posting.kind.resolves_hold());
    reserved == hold.terms.hold.get()
        && match hold.state {
            HoldState::Open => !resolved && overage == 0,
            HoldState::Settled => {
                resolved && settled <= reserved && released == 0 && (overage == 0 || settled == reserved)
            }
            HoldState::Released => released == reserved && settled == 0 && overage == 0,
        }
}

fn first_end_stands(generation: &Generation) -> bool {
    let Some(first) = &generation.first_end else { return true };
    generation.object.aggregate.live().is_some_and(|live| {
        live.lifecycle == first.lifecycle
            && live.settlement == first.settlement
            && live.reason == first.reason
            && live.cost == first.cost
    })
}

/// Released means: the provider bills nothing, now and later.
fn nothing_live_is_released(model: &HoldfastModel, state: &State, g: usize) -> bool {
    let generation = &state.generations[g];
    let authored = generation.object.outbox.iter().any(|posting| posting.kind == PostingKind::Release);
    let hold = state.tenant.rows.hold(&model.identities[g].reservation);
    let applied = hold.is_some_and(|hold| hold.state == HoldState::Released);
    !(authored || applied) || matches!(generation.provider.fate, Fate::Idle | Fate::NotReached | Fate::Unbilled)
}

/// The cost of a reservation is what its outbox says, and each row of it is on its way or applied.
fn cost_is_kept(state: &State, generation: &Generation) -> bool {
    let object = &generation.object;
    let undelivered = object.undelivered();
    let kept = object.outbox.iter().all(|posting| {
        undelivered.contains(&posting.id.as_str())
            || state.tenant.rows.postings.iter().any(|applied| applied.id == posting.id)
    });
    let charged: u64 = object
        .outbox
        .iter()
        .filter(|posting| posting.kind != PostingKind::Release)
        .map(|posting| posting.amount.get())
        .sum();
    let cost = object.aggregate.live().and_then(|live| live.cost).map_or(0, Micros::get);
    kept && charged == cost
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
    for posting in &rows.postings {
        let hold = posting.reservation.as_ref().and_then(|reservation| rows.hold(reservation));
        let hold = hold.map_or(Micros::ZERO, |hold| hold.terms.hold);
        balances = balances.after(posting.kind, posting.amount, hold).unwrap_or_default();
    }
    let open = || rows.holds.values().filter(|hold| hold.state == HoldState::Open);
    let held: u64 = open().map(|hold| hold.terms.hold.get()).sum();
    let limit = model.settings[state.variant].tenant.concurrency;
    balances == rows.tenant.balances
        && held == rows.tenant.balances.held.get()
        && rows.periods.values().map(|period| period.held.get()).sum::<u64>() == held
        && rows.periods.values().map(|period| period.spent.get()).sum::<u64>() == rows.tenant.balances.spent.get()
        && rows.tenant.slots_in_use as usize == open().count()
        && rows.tenant.slots_in_use <= limit
        && rows.holds.len() <= state.generations.len()
}

/// The most that the provider can have billed: what it reported, or what it may have made before its socket was closed.
#[must_use]
pub(crate) fn billed_at_most(model: &HoldfastModel, state: &State, generation: &Generation) -> u64 {
    let variant = &model.config.variants[state.variant];
    let provider = &generation.provider;
    let sent = u64::from(provider.sent) * model.config.piece_bytes;
    let tokens = match provider.fate {
        Fate::Idle | Fate::NotReached | Fate::Unbilled => return 0,
        Fate::Completed(reported) => match world::usage_of(reported, world::tokens_of(variant, sent)) {
            Some(usage) => return usage.input_tokens + usage.output_tokens,
            None => sent,
        },
        Fate::Running if !variant.streaming || variant.hidden_output => world::OUTPUT_TOKENS,
        Fate::Running => sent + holdfast_core::reservation::IN_FLIGHT_TOKENS,
    };
    let usage =
        Usage { input_tokens: world::BODY_BYTES, output_tokens: tokens.min(world::OUTPUT_TOKENS), ..Usage::default() };
    usage.input_tokens + usage.output_tokens
}

fn settled_at_least(model: &HoldfastModel, state: &State, generation: &Generation) -> bool {
    let object = &generation.object;
    let billed = billed_at_most(model, state, generation);
    match &*object.aggregate {
        Aggregate::Vacant => true,
        Aggregate::Tombstone(_) => billed == 0,
        Aggregate::Live(live) if live.lifecycle.is_terminal() => {
            let cost = live.cost.map_or(0, Micros::get);
            // The provider's own count is charged as it is, whatever the hold.
            let reported = generation.driver().is_none() && matches!(generation.provider.fate, Fate::Completed(_));
            let exact =
                reported && live.usage.is_some_and(|usage| matches!(usage, holdfast_core::usage::Metered::Exact(_)));
            let bound = billed.min(live.terms.hold.get());
            cost >= bound && (!exact || cost == billed)
        }
        Aggregate::Live(live) => billed == 0 || was_submitted(live),
    }
}
