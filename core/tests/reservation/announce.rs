//! What each transition tells the tenant: the table of `announce`. The rows name the sources of the states: seed 1, "A
//! Practical Reservation Lifecycle After Disconnection"; seed 2, its five settlements; design 7, late signals.

use super::signals::{completed, keeps, news, releases};
use super::world::*;
use holdfast_core::finding::Source;
use holdfast_core::ids::Identity;
use holdfast_core::ledger::ReasonCode;
use holdfast_core::meter::EndClass;
use holdfast_core::policy::{OnExpiry, Terms};
use holdfast_core::reconcile::Outcome;
use holdfast_core::reservation::{Aggregate, Command, Operation, Parcel, Report, Signal, SourceEnd, Subject};
use holdfast_core::webhook::{EventType, Notice};
use serde_json::{Value, json};

fn kinds(world: &World) -> Vec<EventType> {
    world.notices.iter().map(|notice| notice.kind).collect()
}

/// The `data` of a body.
fn about(notice: &Notice) -> Value {
    serde_json::from_str::<Value>(&notice.body).unwrap()["data"].take()
}

fn only(world: &World) -> &Notice {
    let [notice] = world.notices.as_slice() else { panic!("one notice: {:?}", world.notices) };
    notice
}

fn escalates() -> Terms {
    Terms { on_expiry: Some(OnExpiry::Escalate), ..keeps() }
}

fn signal(event_id: &str, report: Report) -> Command {
    signal_seen(news(event_id, report), None)
}

fn same_rank(event_id: &str, report: Report) -> Signal {
    Signal { source: Source::Callback, ..news(event_id, report) }
}

/// Each end has its event, with the money as it stands, in the very posting that ends the hold.
#[test]
fn each_end_is_told_with_its_posting() {
    use EventType as E;
    use ReasonCode as R;
    let cancelled = {
        let mut world = World::processing(&terms());
        world.take(&Command::Cancel).unwrap();
        world.take(&end(1, ended(SourceEnd::Aborted))).unwrap();
        world
    };
    let ended_by = |end_of_it| {
        let mut world = World::processing(&terms());
        world.take(&end(1, end_of_it)).unwrap();
        world
    };
    let releases = Terms { on_expiry: Some(OnExpiry::Release), ..keeps() };
    let estimates = Terms { on_expiry: Some(OnExpiry::SettleEstimate), ..keeps() };
    let watches = Terms { on_expiry: Some(OnExpiry::ExpireAndWatch), ..keeps() };
    for (world, kind, reason, cost) in [
        (ended_by(complete(10, 20)), E::Finished, R::CompletedExact, 50),
        (ended_by(complete(500, 5_000)), E::Finished, R::CompletedExact, 10_500),
        (ended_by(ended(SourceEnd::Body(EndClass::Complete))), E::Finished, R::CompletedWithoutUsage, 612),
        (ended_by(ended(SourceEnd::Body(EndClass::Incomplete))), E::Failed, R::UpstreamInterrupted, 612),
        (ended_by(ended(SourceEnd::NoResponse { provably_unsent: true })), E::Failed, R::ProviderUnreachable, 0),
        (cancelled, E::Cancelled, R::CancelledByRequest, 612),
        (World::expired(&releases), E::Expired, R::ExpiredReleased, 0),
        (World::expired(&estimates), E::Expired, R::ExpiredEstimated, 2_100),
        (World::expired(&watches), E::Expired, R::ExpiredWatching, 0),
    ] {
        let notice = only(&world);
        assert_eq!((notice.kind, notice.at), (kind, world.now), "{reason:?}");
        let (live, about) = (world.live(), about(notice));
        assert_eq!((&about["reason"], &about["cost_micros"]), (&json!(reason), &json!(cost)), "{kind:?}");
        let states = (&about["lifecycle"], &about["settlement"]);
        assert_eq!(states, (&json!(live.lifecycle), &json!(live.settlement)));
        let usage = live.usage.map(|usage| *usage.usage());
        let estimated = live.usage.is_some_and(|usage| !usage.is_exact());
        assert_eq!((&about["usage"], &about["estimated"]), (&json!(usage), &json!(estimated)));
        let Identity { generation, reservation, .. } = identity(1);
        assert_eq!((&about["generation_id"], &about["reservation_id"]), (&json!(generation), &json!(reservation)));
        assert_eq!((&about["route"], &about["review"]), (&json!("r"), &Value::Null));
        // It travels with the last posting: what it speaks of is in the ledger before it is told.
        let carriers: Vec<_> = world.postings.iter().map(|posting| posting.notices.len()).collect();
        assert_eq!((carriers.iter().sum::<usize>(), carriers.last()), (1, Some(&1)), "{kind:?}");
        assert!(live.deliveries.iter().all(|delivery| delivery.parcel == Parcel::Posting), "no delivery of its own");
        let hex = "01010101010101010101010101010101";
        assert_eq!(notice.id, format!("evt_{hex}_{}_{}", live.version, kind.short()));
    }
}

/// Design 4.2: a generation that never ran is told as failed, and nothing else ever is of it.
#[test]
fn what_never_started_is_told_as_failed() {
    let mut world = World::new();
    world.take(&never_started(1, &terms())).unwrap();
    let notice = only(&world).clone();
    assert_eq!((notice.kind, notice.id.ends_with("_0_failed")), (EventType::Failed, true));
    let about = about(&notice);
    assert_eq!((&about["reason"], &about["cost_micros"]), (&json!("never_started"), &json!(0)));
    assert_eq!((&about["lifecycle"], &about["settlement"]), (&json!("failed"), &json!("released")));
    world.take(&never_started(1, &terms())).unwrap();
    world.take(&signal("e-1", completed(1, 1))).unwrap();
    assert_eq!(world.notices, [notice]);
}

/// A kept hold has no posting: what is told travels by itself, and settles nothing.
#[test]
fn a_kept_hold_is_told_by_itself() {
    let mut world = World::expired(&keeps());
    let notice = only(&world).clone();
    let about = about(&notice);
    assert_eq!((notice.kind, &about["reason"]), (EventType::Expired, &json!("expired_quarantined")));
    assert_eq!((&about["settlement"], &about["cost_micros"]), (&json!("expired"), &Value::Null));
    assert_eq!(about["review"], "expired_quarantined");
    assert!(world.postings.is_empty());
    let [delivery] = world.live().deliveries.as_slice() else { panic!("{:?}", world.live().deliveries) };
    assert_eq!((delivery.posting_id.as_str(), delivery.parcel), (notice.id.as_str(), Parcel::Notice));
    assert_eq!(world.aggregate.due_deliveries(world.now).count(), 1, "at once");
    // A failed delivery is made up for; the receipt is no receipt of a settlement.
    world.take(&Command::DeliveryFailed { posting_id: notice.id.clone() }).unwrap();
    assert_eq!(world.aggregate.due_deliveries(world.now).count(), 0);
    world.take(&Command::Acknowledge { posting_id: notice.id }).unwrap();
    assert!(world.live().deliveries.is_empty() && world.live().acknowledged_at.is_none());
}

/// A notice that is refused for good is put down, and no operator is called for it.
#[test]
fn a_refused_notice_is_nobodys_balance() {
    let mut world = World::expired(&Terms { on_expiry: Some(OnExpiry::ReduceHold), ..with(Default::default()) });
    let review = world.live().review;
    world.aggregate = match world.aggregate.clone() {
        Aggregate::Live(mut live) => {
            for delivery in &mut live.deliveries {
                delivery.parcel = Parcel::Notice;
            }
            Aggregate::Live(live)
        }
        other => other,
    };
    let id = world.live().deliveries[0].posting_id.clone();
    world.take(&Command::DeliveryRefused { posting_id: id, refusal: "not_found".into() }).unwrap();
    let live = world.live();
    assert!(live.deliveries.is_empty() && live.refused_deliveries.is_empty());
    assert_eq!(live.review, review);
}

/// The postings of a transition that come before a notice of its own are settled without it.
#[test]
fn the_receipt_of_the_postings_is_what_settles() {
    let mut world = World::expired(&Terms { on_expiry: Some(OnExpiry::ReduceHold), ..terms() });
    let reduced = world.postings[0].id.clone();
    world.operate("a-1", Operation::Escalate);
    let [_, notice] = world.live().deliveries.as_slice() else { panic!("{:?}", world.live().deliveries) };
    let notice = notice.posting_id.clone();
    assert_eq!(kinds(&world), [EventType::Expired, EventType::Disputed]);
    world.at(50_000).take(&Command::Acknowledge { posting_id: reduced }).unwrap();
    assert_eq!(world.live().acknowledged_at, Some(world.now));
    let acknowledged_at = world.live().acknowledged_at;
    world.at(60_000).take(&Command::Acknowledge { posting_id: notice }).unwrap();
    assert_eq!(world.live().acknowledged_at, acknowledged_at);
}

/// An end whose evidence conflicts is told twice: how it ended, and that the hold waits for somebody.
#[test]
fn a_dispute_is_told_besides_the_end() {
    let world = World::expired(&escalates());
    assert_eq!(kinds(&world), [EventType::Expired, EventType::Disputed]);
    assert!(world.notices.iter().all(|notice| about(notice)["settlement"] == "disputed"));
    let ids: std::collections::BTreeSet<_> = world.notices.iter().map(|notice| &notice.id).collect();
    assert_eq!(ids.len(), 2, "each has an id of its own");
    assert_eq!(world.live().deliveries.len(), 2);

    // Two equals differ while the driver works: readers have their answer, the hold is disputed.
    let mut world = World::identified(&keeps());
    world.hear(same_rank("e-1", completed(10, 20)));
    world.hear(same_rank("e-2", completed(10, 21)));
    assert_eq!(kinds(&world), []);
    world.take(&end(1, complete(10, 20))).unwrap();
    assert_eq!(kinds(&world), [EventType::Finished, EventType::Disputed]);
    assert_eq!(about(&world.notices[1])["reason"], "evidence_conflict");

    // It becomes disputed after its end: that alone is told.
    let mut world = World::expired(&keeps());
    world.hear(same_rank("e-1", ended_as(Outcome::Cancelled, None)));
    let told = world.notices.len();
    world.hear(same_rank("e-2", completed(10, 20)));
    let after = &kinds(&world)[told..];
    assert!(!after.contains(&EventType::Finished), "{after:?}");
}

/// Design 7: settles a kept hold; `late_settlement` after a release by expiry; `correction` after anything else.
#[test]
fn late_completions() {
    let late = |mut world: World, report: Report| {
        let told = world.notices.len();
        world.hear(news("late-1", report));
        let new = world.notices[told..].to_vec();
        let before = world.notices.len();
        // The same event again, and the same words by another event: told once.
        world.hear(news("late-1", report));
        world.hear(news("late-2", report));
        assert_eq!(world.notices.len(), before, "{report:?}");
        new
    };
    let estimated = {
        let mut world = World::identified(&terms());
        world.take(&end(1, ended(SourceEnd::Body(EndClass::Incomplete)))).unwrap();
        world
    };
    for (world, cost) in [(World::expired(&keeps()), 50), (World::expired(&releases()), 50), (estimated.clone(), 50)] {
        let at = world.states();
        let [notice] = late(world, completed(10, 20)).try_into().unwrap();
        let about = about(&notice);
        assert_eq!((notice.kind, &about["reason"]), (EventType::LateCompletion, &json!("late_completion")), "{at:?}");
        assert_eq!((&about["cost_micros"], &about["lifecycle"]), (&json!(cost), &json!(at.0)), "invariant 3");
    }
    // The same cost: nothing changes, nothing is told. Nor of what is still processing.
    assert_eq!(late(estimated.clone(), completed(100, 256)), []);
    assert_eq!(late(estimated, Report::Processing), []);
    // It cannot be priced: an operator is asked, and the tenant is told.
    let [notice] = late(World::expired(&releases()), ended_as(Outcome::Completed, None)).try_into().unwrap();
    assert_eq!((notice.kind, &about(&notice)["review"]), (EventType::LateCompletion, &json!("late_completion")));
    // Of an operation that nobody here knows.
    let mut world = World::expired(&keeps());
    let told = world.notices.len();
    world.hear(callback("e-1", "op-of-another", completed(1, 1)));
    assert_eq!(world.notices.len(), told);
}

/// While it runs, and by an operator after the end, nothing is told.
#[test]
fn nothing_else_is_told() {
    let mut world = World::processing(&terms());
    for command in
        [readers(1), readers(0), Command::Append { epoch: 1, bytes: 5 }, identify(1), Command::Cancel, wake(true)]
    {
        world.take(&command).unwrap();
    }
    assert_eq!(kinds(&world), []);
    world.take(&end(1, complete(10, 20))).unwrap();
    world.operate("a-1", Operation::Correct { usage: usage(10, 30) });
    world.operate("a-2", Operation::Compensate { amount: micros(5), direction: Default::default() });
    assert_eq!(kinds(&world), [EventType::Finished]);
    let mut world = World::searching(&keeps());
    world.hear(lookup(2, Report::Processing));
    assert_eq!(kinds(&world), []);
    let subject = Subject::Epoch { epoch: 1 };
    world.hear(Signal { subject, ..lookup(2, completed(1, 1)) });
    assert_eq!(kinds(&world), [], "known, and concluded by the evidence");
    world.take(&reconcile(2, ended(SourceEnd::Lost))).unwrap();
    assert_eq!(kinds(&world), [EventType::Finished]);
}
