//! Work that goes on without a reader takes a place of its tenant's `detached_max` (design 5). Seed 1: "Monitor reservation age,
//! the number of detached reservations, …".

use super::model::Facts;
use super::world::*;
use holdfast_core::ledger::{PostingKind, ReasonCode};
use holdfast_core::policy::{OnDisconnect, OnExpiry, Terms};
use holdfast_core::refusal::{DETACHED_EXCEEDED, Refusal};
use holdfast_core::reservation::{
    AbortCause, Command, Delivery, Effect, IN_FLIGHT_TOKENS, Lifecycle, Parcel, Reservation, Settlement, SourceEnd,
};
use holdfast_core::usage::{Metered, Usage};

/// What the model says of the place.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Place {
    number: u32,
    taken: bool,
    /// The word about it is on its way.
    on_its_way: bool,
}

impl Place {
    pub(crate) fn of(live: &Reservation) -> Self {
        let mut words = live.deliveries.iter().filter(|delivery| delivery.parcel == Parcel::Place);
        let word = words.next();
        assert!(words.next().is_none(), "one word at a time: {:?}", live.deliveries);
        let on_its_way = word.is_some_and(|word| word.posting_id == id(live.place.number));
        assert_eq!(word.is_some(), on_its_way, "what is so now: {:?}", live.deliveries);
        Self { number: live.place.number, taken: live.place.taken, on_its_way }
    }
}

impl Facts {
    fn goes_on_alone(&self) -> bool {
        let policy = self.terms.on_disconnect == OnDisconnect::Detach;
        let lives = self.search.is_none() || self.outlives();
        let left = self.away_since.is_some() && self.asked.is_none() && self.end.is_none();
        policy && lives && left && self.own.stop.is_none()
    }

    /// After each command. `left`: the last reader of an active generation may have left just now.
    pub(crate) fn keep_place(&mut self, left: bool) {
        let left = left && self.away_since.is_some();
        let taken = self.goes_on_alone() && (self.place.taken || left);
        if taken != self.place.taken {
            self.place = Place { number: self.place.number + 1, taken, on_its_way: true };
        }
        self.place.on_its_way &= self.hold.holds();
    }

    /// What the outbox learns of the place's word.
    pub(crate) fn answered(&mut self, command: &Command, now: u64) -> String {
        let of_now = |posting_id: &String| self.place.on_its_way && *posting_id == id(self.place.number);
        match command {
            Command::Acknowledge { posting_id } if of_now(posting_id) => self.place.on_its_way = false,
            Command::DeliveryFailed { posting_id } if of_now(posting_id) => {}
            Command::DeliveryRefused { posting_id, refusal } if of_now(posting_id) => {
                self.place.on_its_way = false;
                if refusal == DETACHED_EXCEEDED && self.goes_on_alone() {
                    return self.stop(AbortCause::DetachedMax, now);
                }
            }
            _ => return "done=".into(),
        }
        "done".into()
    }
}

pub(crate) fn id(number: u32) -> String {
    format!("place:{number}")
}

/// Whether an answer of the outbox is about the place.
pub(crate) fn is_answer(command: &Command) -> bool {
    match command {
        Command::Acknowledge { posting_id }
        | Command::DeliveryFailed { posting_id }
        | Command::DeliveryRefused { posting_id, .. } => posting_id.starts_with("place:"),
        _ => false,
    }
}

fn given(number: u32) -> Command {
    Command::Acknowledge { posting_id: id(number) }
}

pub(crate) fn refused(number: u32) -> Command {
    let refusal = Refusal::DetachedExceeded { limit: 2 };
    assert!(refusal.is_permanent_for_posting(), "the answer stands");
    Command::DeliveryRefused { posting_id: id(number), refusal: refusal.code().into() }
}

/// The words about the place that are on their way: number and `take` or `free`.
fn words(world: &World) -> Vec<String> {
    let live = world.live();
    let of_place = |delivery: &&Delivery| delivery.parcel == Parcel::Place;
    let word = if live.detached().place.taken { "take" } else { "free" };
    live.deliveries.iter().filter(of_place).map(|delivery| format!("{} {word}", delivery.posting_id)).collect()
}

/// Who takes a place when the last reader leaves: work that goes on to its end, and nothing else.
#[test]
fn work_that_goes_on_takes_a_place() {
    for (what, terms, expected) in [
        ("detach", terms(), &["place:1 take"][..]),
        ("cancel at once", cancels(0), &[]),
        ("cancel after its grace", cancels(500), &[]),
        // Nothing prices the absence: it stops like `cancel`.
        ("auto without a price", Terms { on_disconnect: OnDisconnect::Auto, grace_ms: 500, ..terms() }, &[]),
    ] {
        let mut world = World::processing(&terms);
        assert_eq!(words(&world), Vec::<String>::new(), "{what}: with a reader");
        world.at(10).take(&readers(0)).unwrap();
        assert_eq!(words(&world), expected, "{what}");
        assert_eq!(world.live().place.taken, !expected.is_empty(), "{what}");
    }
}

/// One that never loses its last reader asks nobody for anything.
#[test]
fn a_generation_that_keeps_its_reader_makes_no_word() {
    let mut world = World::processing(&terms());
    world.take(&readers(2)).unwrap();
    world.take(&readers(1)).unwrap();
    world.take(&end(1, complete(10, 20))).unwrap();
    world.take(&readers(0)).unwrap();
    assert_eq!(words(&world), Vec::<String>::new());
    assert!(world.live().place.is_untouched());
    assert!(!serde_json::to_string(&world.aggregate).unwrap().contains("place"), "the row stays as it was");
}

#[test]
fn over_the_cap_it_is_aborted_and_settled_by_the_at_least_rule() {
    let mut world = World::processing(&terms());
    world.at(10).take(&readers(0)).unwrap();
    let transition = world.at(20).take(&refused(1)).unwrap();
    assert_eq!(transition.effects, [Effect::AbortUpstream { epoch: 1 }]);
    assert_eq!(world.lifecycle(), Lifecycle::CancellationRequested);
    assert_eq!(world.outcomes(), ["disconnected", "abort_detached_max"]);
    assert_eq!(world.live().settlement, Settlement::Pending, "requested is not confirmed");
    assert_eq!(world.say(&Command::Append { epoch: 1, bytes: 3 }), "stop=");
    let seen = holdfast_core::reservation::UpstreamEnd { content_bytes: 40, ..ended(SourceEnd::Aborted) };
    assert_eq!(world.say(&end(1, seen)), "done>cancelled+close");
    assert_eq!(world.live().reason, Some(ReasonCode::DetachedExceeded));
    let bound = Usage { input_tokens: 100, output_tokens: 40 + IN_FLIGHT_TOKENS, ..Usage::default() };
    assert_eq!(world.live().usage, Some(Metered::AtLeast(bound)));
    assert_eq!(world.books(), [("settle", 692)]);
    assert_eq!(words(&world), Vec::<String>::new(), "what ends the hold ends the place");
    let run = world.live().run_end().unwrap();
    assert!(!run.went_on && run.departure.is_some(), "to the route it is a run that its readers' leaving cancelled");
}

/// Nothing was sent yet: nothing is charged.
#[test]
fn over_the_cap_before_anything_was_sent_it_is_released() {
    let mut world = World::prepared(&terms());
    world.at(10).take(&readers(0)).unwrap();
    world.at(20).take(&refused(1)).unwrap();
    assert_eq!(world.say(&Command::Submit { epoch: 1 }), "stop=");
    world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
    assert_eq!(world.live().reason, Some(ReasonCode::DetachedExceeded));
    assert_eq!(world.books(), [("release", i64::try_from(HOLD).unwrap())]);
}

/// A completion that is faster than the abort is a completion.
#[test]
fn a_completion_wins_against_the_cap() {
    let mut world = World::processing(&terms());
    world.at(10).take(&readers(0)).unwrap();
    world.at(20).take(&refused(1)).unwrap();
    assert_eq!(world.say(&end(1, complete(10, 20))), "done>completed+close");
    assert_eq!(world.books(), [("settle", 50)]);
}

#[test]
fn a_reader_that_comes_back_frees_the_place() {
    let mut world = World::processing(&terms());
    world.at(10).take(&readers(0)).unwrap();
    assert_eq!(world.say(&given(1)), "done");
    assert_eq!(words(&world), Vec::<String>::new());
    world.at(20).take(&readers(1)).unwrap();
    assert_eq!(words(&world), ["place:2 free"]);
    // It leaves again before that was delivered: what is so now is told.
    world.at(30).take(&readers(0)).unwrap();
    assert_eq!(words(&world), ["place:3 take"]);
    assert_eq!(world.say(&given(2)), "done=", "late");
    assert_eq!(world.say(&given(3)), "done");
}

/// The answer to an earlier absence says nothing about this one.
#[test]
fn a_late_refusal_stops_nobody() {
    let mut world = World::processing(&terms());
    world.at(10).take(&readers(0)).unwrap();
    world.at(20).take(&readers(1)).unwrap();
    assert_eq!(world.say(&refused(1)), "done=");
    assert_eq!(world.lifecycle(), Lifecycle::Active);
    world.at(30).take(&readers(0)).unwrap();
    for late in [refused(1), refused(2)] {
        assert_eq!(world.say(&late), "done=");
    }
    assert_eq!(world.say(&refused(3)), "stop>cancellation_requested+abort");
    assert_eq!(world.say(&refused(3)), "done=", "repeated");
    assert_eq!(words(&world), ["place:4 free"], "should a repeated word have taken it after all");
}

/// A tenant that does not know the hold counts it nowhere: the work goes on.
#[test]
fn another_refusal_stops_nobody() {
    let mut world = World::processing(&terms());
    world.at(10).take(&readers(0)).unwrap();
    let unknown = Command::DeliveryRefused { posting_id: id(1), refusal: Refusal::NotFound.code().into() };
    assert_eq!(world.say(&unknown), "done");
    assert_eq!((world.lifecycle(), world.live().attempt.abort), (Lifecycle::Detached, None));
    assert_eq!((words(&world).len(), world.live().review), (0, None));
}

/// The word is repeated until it is answered, and keeps the alarm armed.
#[test]
fn the_word_is_delivered_until_it_is_answered() {
    let mut world = World::processing(&terms());
    world.at(10).take(&readers(0)).unwrap();
    assert_eq!(world.next_wake_ms(), Some(10), "due at once");
    assert_eq!(world.say(&Command::DeliveryFailed { posting_id: id(1) }), "done");
    let delivery = world.live().deliveries[0].clone();
    assert_eq!((delivery.attempts, delivery.next_at), (1, START.plus(1_010)));
    assert_eq!(world.next_wake_ms(), Some(1_010));
    assert_eq!(world.live().acknowledged_at, None);
    assert_eq!(world.at(1_010).say(&given(1)), "done");
    assert_eq!(world.live().acknowledged_at, None, "a place settles nothing");
}

/// Its end frees the place: with the posting that ends the hold, or by a word where the hold is kept.
#[test]
fn the_end_frees_the_place() {
    let mut settled = World::processing(&terms());
    settled.at(10).take(&readers(0)).unwrap();
    settled.take(&end(1, complete(10, 20))).unwrap();
    assert_eq!(words(&settled), Vec::<String>::new());
    assert_eq!(settled.postings[0].kind, PostingKind::Settle);
    assert!(!settled.live().place.taken);

    let kept = Terms { on_expiry: Some(OnExpiry::Quarantine), ..with(CALLBACK) };
    let mut kept = World::processing(&kept);
    kept.at(10).take(&readers(0)).unwrap();
    kept.take(&given(1)).unwrap();
    kept.at(9_000).take(&wake(false)).unwrap();
    assert_eq!((words(&kept).len(), kept.live().place.taken), (0, true), "the operation lives without its driver");
    kept.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!((kept.live().settlement, kept.books()), (Settlement::Expired, vec![]));
    assert_eq!(words(&kept), ["place:2 free"]);
}

/// Readers that were lost with their driver did not leave: they may be back at any moment. And what died with its driver
/// does not go on.
#[test]
fn a_lost_driver_takes_no_place() {
    for capabilities in [CALLBACK, Default::default()] {
        let terms = Terms { observation_ms: 5_000, ..with(capabilities) };
        let mut world = World::lost(&terms);
        assert_eq!((world.lifecycle(), words(&world).len()), (Lifecycle::Detached, 0));
        // One that comes back and leaves did leave.
        world.take(&readers(1)).unwrap();
        world.take(&readers(0)).unwrap();
        let expected: &[&str] = if capabilities == CALLBACK { &["place:1 take"] } else { &[] };
        assert_eq!(words(&world), expected);
    }
}

/// Over the cap, where the provider can be asked: it is asked to cancel.
#[test]
fn over_the_cap_the_provider_is_asked_to_cancel() {
    let mut world = World::identified(&with(CANCEL));
    world.at(10).take(&readers(0)).unwrap();
    assert_eq!(world.say(&refused(1)), "stop>cancellation_requested+abort+ask_cancel");
}
