//! The routes and providers that are always explored. Each shows a part of the rules; nobody pays for all at once.

use crate::actors::operator::Operates;
use crate::actors::resume::Answers;
use crate::config::{Requests, Variant};
use crate::state::{Fate, Outcome, Reported, Said};
use holdfast_core::capability::Capabilities;
use holdfast_core::policy::{OnDisconnect, OnExpiry, OnInterruption, Owner, SlotOnExpiry};

const ENDS: [Outcome; 5] = [
    Outcome::Complete(Reported::Streamed),
    Outcome::Complete(Reported::Missing),
    Outcome::Interrupted,
    Outcome::Refused,
    Outcome::NoAnswer,
];
const HIDDEN_ENDS: [Outcome; 2] = [Outcome::Complete(Reported::AboveHold), Outcome::ErrorInBand];
const PLAIN_ENDS: [Outcome; 4] =
    [Outcome::Complete(Reported::Streamed), Outcome::Failed, Outcome::Gateway, Outcome::Unsent];
const COMPLETES: [Outcome; 1] = [Outcome::Complete(Reported::Streamed)];
const BREAKS: [Outcome; 1] = [Outcome::Interrupted];
const COMPLETES_OR_BREAKS: [Outcome; 2] = [Outcome::Complete(Reported::Streamed), Outcome::Interrupted];

const COMPLETES_UNSEEN: Fate = Fate::Completed(Reported::Unseen);
const ABOVE_HOLD_UNSEEN: Fate = Fate::Completed(Reported::AboveHold);

const CALLBACK: Capabilities =
    Capabilities { cancel: false, status: false, resume: false, callback: true, idempotency_key: false };
const STATUS: Capabilities = Capabilities { callback: false, status: true, ..CALLBACK };
const STATUS_AND_CALLBACK: Capabilities = Capabilities { status: true, ..CALLBACK };
const CANCEL: Capabilities = Capabilities { callback: false, cancel: true, ..CALLBACK };
const CANCEL_AND_STATUS: Capabilities = Capabilities { status: true, ..CANCEL };
const RESUME: Capabilities = Capabilities { callback: false, resume: true, ..CALLBACK };
const RESUME_AND_STATUS: Capabilities = Capabilities { status: true, ..RESUME };
const RESUME_AND_CANCEL: Capabilities = Capabilities { cancel: true, ..RESUME };
const CANCEL_AND_CALLBACK: Capabilities = Capabilities { callback: true, ..CANCEL };

impl Variant {
    /// Owner `object`, policy `detach`; the provider completes, or refuses; the client stays.
    #[must_use]
    pub fn object(name: &'static str) -> Self {
        Self {
            name,
            owner: Owner::Object,
            on_disconnect: OnDisconnect::Detach,
            grace_ticks: 0,
            observation_ticks: 0,
            streaming: true,
            hidden_output: false,
            requests: Requests::One,
            late_start: false,
            alarm_late_ticks: 0,
            disconnects: 0,
            returns: 0,
            cancels: 0,
            capabilities: Capabilities::default(),
            unseen: Vec::new(),
            callbacks: Vec::new(),
            slow_provider: false,
            resumes: Vec::new(),
            total_ticks: None,
            detached_max: None,
            on_expiry: None,
            slot_on_expiry: SlotOnExpiry::default(),
            on_interruption: OnInterruption::default(),
            high_value: false,
            watch_ticks: 0,
            tight_budget: false,
            operations: Vec::new(),
            operator_actions: 0,
            more_jumps: 0,
            brief: false,
            fewer_faults: 0,
            words_only: false,
            faults_max: u8::MAX,
            outcomes: vec![Outcome::Complete(Reported::Streamed), Outcome::Refused],
        }
    }

    /// The same, with the policy `cancel` and so much grace.
    #[must_use]
    pub fn cancelling(self, grace_ticks: u64) -> Self {
        Self { on_disconnect: OnDisconnect::Cancel, grace_ticks, ..self }
    }

    /// The same, where the provider may end only so.
    #[must_use]
    pub fn ending(self, outcomes: &[Outcome]) -> Self {
        Self { outcomes: outcomes.to_vec(), ..self }
    }

    /// The same, driven by the edge.
    #[must_use]
    pub fn at_edge(self) -> Self {
        Self { owner: Owner::Edge, ..self }
    }

    /// The same, with a client that leaves, comes back and asks to stop so often.
    #[must_use]
    pub fn client(self, disconnects: u8, returns: u8, cancels: u8) -> Self {
        Self { disconnects, returns, cancels, ..self }
    }

    /// The same, with a Start and with alarms that may be late.
    #[must_use]
    pub fn late(self) -> Self {
        Self { late_start: true, alarm_late_ticks: 1, ..self }
    }

    /// The same, where the work outlives its socket, may end so, and is observed for so long.
    #[must_use]
    pub fn outliving(self, capabilities: Capabilities, unseen: &[Fate], observation_ticks: u64) -> Self {
        let callbacks = if capabilities.callback { vec![Said::Truth] } else { Vec::new() };
        Self { capabilities, unseen: unseen.to_vec(), callbacks, observation_ticks, brief: true, ..self }
    }

    /// The same, with such a rule for an open outcome.
    #[must_use]
    pub fn expiring(self, on_expiry: OnExpiry) -> Self {
        Self { on_expiry: Some(on_expiry), ..self }
    }

    /// The same, where an interrupted call may be repeated.
    #[must_use]
    pub fn retrying(self) -> Self {
        Self { on_interruption: OnInterruption::Retry, ..self }
    }

    /// The same, where a try to take a stream up again may be answered so.
    #[must_use]
    pub fn resuming(self, resumes: &[Answers]) -> Self {
        Self { resumes: resumes.to_vec(), ..self }
    }

    /// The same, with an operator who may do these, so often.
    #[must_use]
    pub fn operated(self, operations: &[Operates], operator_actions: u8) -> Self {
        Self { operations: operations.to_vec(), operator_actions, ..self }
    }
}

/// All of them.
pub(crate) fn all() -> Vec<Variant> {
    [driven(), expiring(), provider_speaks(), retrying(), operated(), resuming(), detached()].concat()
}

/// The socket is the only lever.
fn driven() -> Vec<Variant> {
    let two =
        |requests, name| Variant { requests, fewer_faults: 1, ..Variant::object(name).ending(&[Outcome::Refused]) };
    vec![
        Variant::object("object: every end").ending(&ENDS),
        Variant::object("object: cancel at once").cancelling(0).client(1, 0, 1),
        Variant::object("object: cancel after grace").cancelling(1).client(1, 1, 0),
        Variant::object("object: cancelled twice").ending(&COMPLETES).client(0, 0, 2),
        Variant { observation_ticks: 1, ..Variant::object("object: observed").client(0, 1, 0) },
        Variant { hidden_output: true, ..Variant::object("object: hidden output").ending(&HIDDEN_ENDS) },
        Variant { streaming: false, ..Variant::object("object: plain answer").ending(&PLAIN_ENDS) },
        Variant::object("object: late start").ending(&COMPLETES).late(),
        Variant::object("edge: cancel at once").at_edge().cancelling(0).client(1, 0, 0),
        Variant { observation_ticks: 1, ..Variant::object("edge: observed").at_edge().ending(&COMPLETES) },
        Variant { brief: true, ..Variant::object("edge: late start").at_edge().ending(&COMPLETES).late() },
        two(Requests::SameKey, "two: one key"),
        two(Requests::OneSlot, "two: one slot"),
    ]
}

/// Every rule of seed 1 for an open outcome, and what becomes known after it.
fn expiring() -> Vec<Variant> {
    let open = |name| Variant {
        ..Variant::object(name).ending(&BREAKS).outliving(CALLBACK, &[COMPLETES_UNSEEN, ABOVE_HOLD_UNSEEN], 1)
    };
    let failing = |name| Variant { unseen: vec![COMPLETES_UNSEEN, Fate::Unbilled], ..open(name) };
    vec![
        failing("expiry: quarantine"),
        Variant { slot_on_expiry: SlotOnExpiry::Release, ..open("expiry: reduce, free the slot") }
            .expiring(OnExpiry::ReduceHold),
        Variant { watch_ticks: 20, more_jumps: 2, ..open("expiry: release and watch") }
            .outliving(STATUS, &[COMPLETES_UNSEEN], 1)
            .expiring(OnExpiry::ExpireAndWatch),
        failing("expiry: escalate").expiring(OnExpiry::Escalate),
        failing("expiry: release").expiring(OnExpiry::Release),
        open("expiry: settle by estimate").expiring(OnExpiry::SettleEstimate),
        Variant { high_value: true, ..failing("expiry: above escalate_above") }.expiring(OnExpiry::Release),
        Variant { on_interruption: OnInterruption::Quarantine, ..open("expiry: interrupted, quarantine") }
            .ending(&COMPLETES_OR_BREAKS),
        Variant { ..Variant::object("expiry: nothing outlives, release").ending(&COMPLETES_OR_BREAKS) }
            .expiring(OnExpiry::Release),
    ]
}

/// Callbacks, lookups and cancels: in every order, late, twice, lost, and against each other.
fn provider_speaks() -> Vec<Variant> {
    let says = |said: &[Said], variant| Variant { callbacks: said.to_vec(), ..variant };
    vec![
        says(
            &[Said::Runs, Said::Truth],
            Variant::object("callback: races with the stream").ending(&COMPLETES_OR_BREAKS).outliving(
                CALLBACK,
                &[COMPLETES_UNSEEN],
                1,
            ),
        ),
        says(
            &[Said::Truth, Said::Contradiction],
            Variant { fewer_faults: 1, ..Variant::object("callback: contradicts itself") }
                .ending(&COMPLETES_OR_BREAKS)
                .outliving(CALLBACK, &[COMPLETES_UNSEEN], 1)
                .expiring(OnExpiry::Quarantine),
        ),
        says(
            &[Said::Truth],
            Variant { slow_provider: true, ..Variant::object("lookup and callback") }.ending(&BREAKS).outliving(
                STATUS_AND_CALLBACK,
                &[COMPLETES_UNSEEN, Fate::Completed(Reported::Missing)],
                2,
            ),
        ),
        Variant { ..Variant::object("lookup: failures") }.ending(&BREAKS).outliving(STATUS, &[Fate::Unbilled], 2),
        Variant { ..Variant::object("cancel and lookup") }
            .ending(&COMPLETES)
            .outliving(CANCEL_AND_STATUS, &[COMPLETES_UNSEEN], 2)
            .client(0, 0, 1),
        Variant { fewer_faults: 1, slow_provider: true, ..Variant::object("cancel at the disconnect, and callback") }
            .ending(&COMPLETES)
            .outliving(CANCEL_AND_CALLBACK, &[COMPLETES_UNSEEN], 1)
            .cancelling(0)
            .client(1, 0, 0),
        Variant { ..Variant::object("cancel alone") }
            .ending(&COMPLETES)
            .outliving(CANCEL, &[COMPLETES_UNSEEN], 1)
            .client(0, 0, 1),
    ]
}

/// A further attempt under an extended hold.
fn retrying() -> Vec<Variant> {
    let again = |name| Variant { more_jumps: 1, ..Variant::object(name).ending(&COMPLETES_OR_BREAKS).retrying() };
    vec![
        Variant { ..again("retry: the first attempt died") }.client(0, 0, 1),
        Variant { fewer_faults: 1, more_jumps: 0, ..again("retry: the first attempt completes late") }
            .outliving(CALLBACK, &[COMPLETES_UNSEEN], 1)
            .ending(&BREAKS),
        Variant { more_jumps: 0, ..again("retry: the answer about the hold is lost") }
            .outliving(CALLBACK, &[], 1)
            .ending(&BREAKS),
        Variant { observation_ticks: 1, fewer_faults: 1, brief: true, ..again("retry: and a zombie at the edge") }
            .at_edge()
            .ending(&COMPLETES),
        Variant { tight_budget: true, ..again("retry: no credit for it") }.client(0, 0, 1),
    ]
}

/// Operators, who race with what the provider says.
fn operated() -> Vec<Variant> {
    use Operates::{Charge, Correct, Defer, Escalate, Finalize, Quarantine, Refund, Release, Retry};
    let open = |name| Variant {
        fewer_faults: 1,
        ..Variant::object(name).ending(&BREAKS).outliving(CALLBACK, &[COMPLETES_UNSEEN], 1)
    };
    vec![
        open("operator: ends an open hold").operated(&[Release, Finalize, Defer, Correct, Refund], 2),
        open("operator: keeps an open hold").operated(&[Quarantine, Escalate, Finalize, Release], 2),
        Variant { unseen: Vec::new(), ..open("operator: repeats the call") }.retrying().operated(&[Retry, Defer], 1),
        Variant { fewer_faults: 1, ..Variant::object("operator: after the end").ending(&COMPLETES) }
            .operated(&[Correct, Refund, Charge, Release], 2),
        Variant { observation_ticks: 1, fewer_faults: 1, ..Variant::object("operator: and a zombie").at_edge() }
            .ending(&COMPLETES)
            .operated(&[Release, Correct], 1),
    ]
}

/// Streams that are taken up again.
fn resuming() -> Vec<Variant> {
    use Answers::{Differs, Fails, Refuses, TakesUp};
    vec![
        Variant { slow_provider: true, ..Variant::object("resume: driver lost") }
            .ending(&COMPLETES)
            .outliving(RESUME, &[COMPLETES_UNSEEN], 1)
            .resuming(&[TakesUp, Refuses, Differs])
            .client(0, 1, 0),
        Variant { faults_max: 1, fewer_faults: 1, ..Variant::object("resume: broken stream, and lookup") }
            .ending(&COMPLETES_OR_BREAKS)
            .outliving(RESUME_AND_STATUS, &[COMPLETES_UNSEEN], 1)
            .resuming(&[TakesUp, Refuses]),
        Variant { faults_max: 1, total_ticks: Some(2), ..Variant::object("resume: lost bytes, and a cancel") }
            .ending(&COMPLETES)
            .outliving(RESUME_AND_CANCEL, &[], 1)
            .resuming(&[TakesUp])
            .client(0, 0, 1),
        Variant { total_ticks: Some(60), more_jumps: 6, fewer_faults: 1, ..Variant::object("resume: tries in vain") }
            .ending(&BREAKS)
            .outliving(RESUME, &[], 1)
            .resuming(&[Fails]),
        Variant::object("resume: driver at the edge lost")
            .at_edge()
            .ending(&COMPLETES)
            .outliving(RESUME, &[COMPLETES_UNSEEN], 1)
            .resuming(&[TakesUp]),
    ]
}

/// Generations without a reader, under a cap.
fn detached() -> Vec<Variant> {
    let capped = |variant| Variant { detached_max: Some(1), total_ticks: Some(1), streaming: false, ..variant };
    let two = Variant::object("detached: two, and one place");
    vec![
        Variant { requests: Requests::Two, brief: true, fewer_faults: 1, words_only: true, ..capped(two) }
            .ending(&COMPLETES)
            .client(1, 0, 0),
        capped(Variant::object("detached: back, and away again").ending(&COMPLETES).client(2, 1, 0)),
        capped(Variant::object("detached: the hold is kept").ending(&[Outcome::NoAnswer]))
            .outliving(CALLBACK, &[], 1)
            .client(1, 0, 0),
    ]
}
