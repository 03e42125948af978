//! How an attempt ended, and what follows: every source of an end with every class of status, error body, cause of an
//! abort, usage, and whether it was submitted and its head stored.

use super::world::*;
use holdfast_core::dialect::{error_envelope, error_terminal};
use holdfast_core::ledger::{Posting, PostingKind, ReasonCode};
use holdfast_core::meter::EndClass;
use holdfast_core::reservation::{
    AbortCause, Conclusion, Effect, Lifecycle, Reservation, ResponseHead, Settlement, SourceEnd, UpstreamEnd,
    UpstreamState,
};
use holdfast_core::usage::Metered;

const SOURCES: [(&str, SourceEnd); 9] = [
    ("complete", SourceEnd::Body(EndClass::Complete)),
    ("incomplete", SourceEnd::Body(EndClass::Incomplete)),
    ("cut", SourceEnd::Body(EndClass::CutInsideEvent)),
    ("in-band", SourceEnd::Body(EndClass::InBandError)),
    ("unsent", SourceEnd::NoResponse { provably_unsent: true }),
    ("silent", SourceEnd::NoResponse { provably_unsent: false }),
    ("too large", SourceEnd::TooLarge),
    ("aborted", SourceEnd::Aborted),
    ("lost", SourceEnd::Lost),
];
/// A final answer has 200 to 599.
const STATUSES: [Option<u16>; 13] = [
    None,
    Some(200),
    Some(204),
    Some(205),
    Some(299),
    Some(300),
    Some(302),
    Some(399),
    Some(400),
    Some(429),
    Some(499),
    Some(500),
    Some(503),
];
const CAUSES: [Option<AbortCause>; 8] = [
    None,
    Some(AbortCause::Request),
    Some(AbortCause::Disconnect),
    Some(AbortCause::FirstByteTimeout),
    Some(AbortCause::IdleTimeout),
    Some(AbortCause::TotalTimeout),
    Some(AbortCause::DetachedMax),
    Some(AbortCause::TooLarge),
];

/// One end in one situation.
#[derive(Clone, Copy, Debug)]
struct Case {
    source: (&'static str, SourceEnd),
    status: Option<u16>,
    envelope: bool,
    cause: Option<AbortCause>,
    submitted: bool,
    /// The head came with `Respond`; otherwise it comes with the end.
    head_stored: bool,
    usage: bool,
    finish_reason: bool,
    inside_event: bool,
}

/// First match wins. `*` is anything; `-` is none.
///
/// source | status | envelope | cause | submitted → lifecycle, upstream, reason, charged
const TABLE: &str = "
complete   | 2xx | *   | *          | *   | completed completed  completed             yes  design 2: completion wins the race; seed 1: completion wins
*          | 3xx | *   | *          | *   | failed    failed     provider_refused      no   design 12: a redirect is not followed, so it is not done
*          | 4xx | *   | *          | *   | failed    failed     provider_refused      no   design 4: 4xx: release
body       | any | yes | *          | *   | failed    failed     provider_failed       told design 4: the provider's own error, under any status (fault 26); charged for what it tells to have used
too large  | *   | *   | *          | *   | failed    incomplete output_too_large      yes  design 12: a bound that is reached has a named error
aborted    | *   | *   | disconnect | yes | cancelled cancelled  cancelled_on_disconnect yes design 5: cancel
aborted    | *   | *   | disconnect | no  | cancelled cancelled  cancelled_on_disconnect no  design 4: prepared proves that nothing was sent
aborted    | *   | *   | detached   | yes | cancelled cancelled  detached_exceeded     yes  design 5: over the cap: abort, settle by the AtLeast rule
aborted    | *   | *   | detached   | no  | cancelled cancelled  detached_exceeded     no   design 4: prepared proves that nothing was sent
aborted    | *   | *   | first byte | yes | failed    incomplete first_byte_timeout    yes  design 4: timeout after sending
aborted    | *   | *   | idle       | yes | failed    incomplete idle_timeout          yes  design 4: timeout after sending
aborted    | *   | *   | total      | yes | failed    incomplete total_timeout         yes  design 5: over the cap: abort, settle
aborted    | *   | *   | first byte | no  | failed    incomplete first_byte_timeout    no   design 4: prepared
aborted    | *   | *   | idle       | no  | failed    incomplete idle_timeout          no   design 4: prepared
aborted    | *   | *   | total      | no  | failed    incomplete total_timeout         no   design 4: prepared
aborted    | *   | *   | too large  | yes | failed    incomplete output_too_large      yes  design 12: a bound that is reached has a named error
aborted    | *   | *   | too large  | no  | failed    incomplete output_too_large      no   design 4: prepared
aborted    | *   | *   | *          | yes | cancelled cancelled  cancelled_by_request  yes  seed 1: cancelled: release or settle under policy
aborted    | *   | *   | *          | no  | cancelled cancelled  cancelled_by_request  no   design 4: prepared
lost       | *   | *   | request    | yes | cancelled cancelled  cancelled_by_request  yes  design 7: told to stop, and dead with its socket
lost       | *   | *   | request    | no  | cancelled cancelled  cancelled_by_request  no   design 4: prepared
lost       | *   | *   | disconnect | yes | cancelled cancelled  cancelled_on_disconnect yes design 5: cancel; dead with its socket
lost       | *   | *   | disconnect | no  | cancelled cancelled  cancelled_on_disconnect no  design 4: prepared
lost       | *   | *   | detached   | yes | cancelled cancelled  detached_exceeded     yes  design 5: over the cap; dead with its socket
lost       | *   | *   | detached   | no  | cancelled cancelled  detached_exceeded     no   design 4: prepared
lost       | *   | *   | too large  | yes | failed    incomplete output_too_large      yes  design 12: a bound that is reached has a named error
lost       | *   | *   | too large  | no  | failed    incomplete output_too_large      no   design 4: prepared
lost       | *   | *   | *          | yes | failed    unknown    driver_lost           yes  design 7: dead socket, settle by the AtLeast rule
lost       | *   | *   | *          | no  | failed    prepared   never_submitted       no   design 2: only prepared proves that nothing was sent
unsent     | *   | *   | *          | *   | failed    failed     provider_unreachable  no   design 4: provably unsent: release
silent     | *   | *   | *          | *   | failed    unknown    provider_unreachable  yes  design 4: reset after sending: unknown
body       | err | no  | *          | *   | failed    unknown    provider_unreachable  yes  design 4: 5xx after sending: unknown
in-band    | *   | *   | *          | *   | failed    failed     provider_error_in_band yes design 4.5: ends without its terminal
body       | *   | *   | *          | *   | failed    incomplete upstream_interrupted  yes  design 4.5: EOF is not success
";

impl Case {
    fn cause_name(&self) -> &'static str {
        match self.cause {
            None => "-",
            Some(AbortCause::Request) => "request",
            Some(AbortCause::Disconnect) => "disconnect",
            Some(AbortCause::FirstByteTimeout) => "first byte",
            Some(AbortCause::IdleTimeout) => "idle",
            Some(AbortCause::TotalTimeout) => "total",
            Some(AbortCause::DetachedMax) => "detached",
            Some(AbortCause::TooLarge) => "too large",
        }
    }

    fn matches(&self, row: &[&str]) -> bool {
        let status = match self.status {
            // 204 and 205 have no body: no answer is whole under them.
            Some(204 | 205) => matches!(row[1], "err" | "any"),
            Some(200..=299) => matches!(row[1], "2xx" | "any"),
            Some(300..=399) => matches!(row[1], "3xx" | "err" | "any"),
            Some(400..=499) => matches!(row[1], "4xx" | "err" | "any"),
            Some(_) => matches!(row[1], "err" | "any"),
            None => false,
        };
        let yes_no = |value| if value { "yes" } else { "no" };
        (row[0] == "*" || row[0] == self.source.0 || row[0] == "body" && matches!(self.source.1, SourceEnd::Body(_)))
            && (row[1] == "*" || status)
            && (row[2] == "*" || row[2] == yes_no(self.envelope))
            && (row[3] == "*" || row[3] == self.cause_name())
            && (row[4] == "*" || row[4] == yes_no(self.submitted))
    }

    fn head(&self) -> Option<ResponseHead> {
        self.status.map(head)
    }

    fn end(&self) -> UpstreamEnd {
        UpstreamEnd {
            head: self.head().filter(|_| !self.head_stored),
            error_envelope: self.envelope,
            usage: self.usage.then(|| usage(10, 20)),
            finish_reason: self.finish_reason.then(|| "stop".into()),
            content_bytes: 5,
            cut_inside_event: self.inside_event,
            ..ended(self.source.1)
        }
    }

    fn reservation(&self) -> Reservation {
        let world = if self.submitted { World::submitted(&terms()) } else { World::prepared(&terms()) };
        let mut reservation = world.live().clone();
        reservation.attempt.abort = self.cause;
        reservation.head = self.head().filter(|_| self.head_stored);
        reservation
    }

    fn expect(&self, row: &[&str], conclusion: &Conclusion) {
        let expected: Vec<&str> = row[5].split_whitespace().collect();
        // Terminal usage: of a whole answer, or behind the finish reason. A count in mid-stream is a placeholder.
        let terminal = self.usage && (self.source.0 == "complete" || self.finish_reason);
        let charged = expected[3] == "yes" || (expected[3] == "told" && terminal);
        let word = |value: serde_json::Value| value.as_str().unwrap().to_string();
        let reason = word(serde_json::to_value(conclusion.ended.reason).unwrap());
        let expected_reason = match expected[2] {
            "completed" if terminal => "completed_exact",
            "completed" => "completed_without_usage",
            other => other,
        };
        assert_eq!(
            (
                conclusion.ended.lifecycle.as_str(),
                word(serde_json::to_value(conclusion.ended.upstream).unwrap()),
                reason
            ),
            (expected[0], expected[1].into(), expected_reason.into()),
        );
        // (100 + (5 + 256) × 2), or what the provider reported (20) beside what may be in flight.
        let estimate = usage(100, if self.usage { 20 + 256 } else { 5 + 256 });
        let metered = match (charged, terminal) {
            (false, _) => None,
            (true, true) => Some(Metered::Exact(usage(10, 20))),
            (true, false) => Some(Metered::AtLeast(estimate)),
        };
        assert_eq!(conclusion.usage, metered);
        let (kind, amount) = match metered {
            None => (PostingKind::Release, HOLD),
            Some(metered) => (PostingKind::Settle, metered.usage().input_tokens + 2 * metered.usage().output_tokens),
        };
        let settlement = if charged { Settlement::Committed } else { Settlement::Released };
        assert_eq!(conclusion.settlement, settlement);
        assert_eq!(conclusion.cost.get(), if charged { amount } else { 0 });
        let [posting] = conclusion.postings.as_slice() else { panic!("one posting: {:?}", conclusion.postings) };
        let made = (posting.kind, posting.amount.get(), posting.usage, posting.reason);
        assert_eq!(made, (kind, amount, metered, conclusion.ended.reason));
        assert_eq!(posting.id, format!("{}:1:{}:1", identity(1).reservation, kind.as_str()));
        self.expect_answer(conclusion);
    }

    /// What readers get (design 4.5): the provider's own answer, or an error in the client's dialect.
    fn expect_answer(&self, conclusion: &Conclusion) {
        let completed = conclusion.ended.lifecycle == Lifecycle::Completed;
        // A 3xx would be acted on by the client, a 204 has no body: neither is passed on.
        let passable = |status: u16| match status {
            204 | 205 | 300..=399 => false,
            200..=299 => self.envelope,
            _ => true,
        };
        let whole_error = matches!(self.source.1, SourceEnd::Body(_)) && self.status.is_some_and(passable);
        if completed || whole_error {
            assert_eq!((&conclusion.head, conclusion.terminal.as_slice()), (&self.head(), b"".as_slice()));
            return;
        }
        let dialect = terms().dialect;
        // Readers of what grew too large hear that, whatever the provider says of it.
        let too_large = self.cause == Some(AbortCause::TooLarge);
        let (status, code, message) =
            error_of(if too_large { ReasonCode::OutputTooLarge } else { conclusion.ended.reason });
        if self.head_stored && self.status.is_some() {
            let mut terminal = if self.inside_event { b"\n\n".to_vec() } else { Vec::new() };
            terminal.extend(error_terminal(dialect, code, message));
            if self.source.0 == "in-band" && !self.inside_event {
                terminal.clear();
            }
            assert_eq!(conclusion.head, self.head(), "the head that readers have seen stands");
            assert_eq!(String::from_utf8_lossy(&conclusion.terminal), String::from_utf8_lossy(&terminal));
        } else {
            let head = conclusion.head.as_ref().unwrap();
            assert_eq!(head.status, status);
            let mut headers = vec![("content-type".to_string(), "application/json".to_string())];
            headers.extend((status == 409).then(|| ("x-should-retry".to_string(), "false".to_string())));
            assert_eq!(head.headers, headers, "an SDK does not repeat what was cancelled");
            assert_eq!(conclusion.terminal, error_envelope(dialect, status, code, message));
        }
        let text = String::from_utf8_lossy(&conclusion.terminal).into_owned();
        assert!(!text.contains("[DONE]"), "no SDK takes it for a success");
    }
}

/// Status, code and sentence of each reason: part of the API.
fn error_of(reason: ReasonCode) -> (u16, &'static str, &'static str) {
    use ReasonCode as R;
    match reason {
        R::CancelledByRequest => (409, "generation_cancelled", "The generation was cancelled by request."),
        R::CancelledOnDisconnect => {
            (409, "generation_cancelled", "The generation was cancelled because its last reader left.")
        }
        R::DetachedExceeded => (
            409,
            "generation_cancelled",
            "The generation was cancelled: its last reader left, and too many others run without one.",
        ),
        R::FirstByteTimeout => (504, "upstream_timeout", "The provider sent no first byte in time."),
        R::IdleTimeout => (504, "upstream_timeout", "The provider stopped sending."),
        R::TotalTimeout => (504, "upstream_timeout", "The generation ran longer than its route allows."),
        R::OutputTooLarge => (502, "output_too_large", "The output was larger than allowed."),
        R::ProviderUnreachable => (502, "upstream_failed", "The provider could not be reached."),
        R::NeverSubmitted => (502, "upstream_failed", "The request was not sent to the provider."),
        R::DriverLost => {
            (502, "upstream_interrupted", "The connection to the provider was lost; the stored part stays readable.")
        }
        R::ProviderRefused => (502, "upstream_failed", "The provider refused the request."),
        R::UpstreamInterrupted | R::ProviderFailed | R::ProviderErrorInBand => {
            (502, "upstream_interrupted", "The provider's answer broke off; the stored part stays readable.")
        }
        other => panic!("{other:?} has no error of its own"),
    }
}

fn rows() -> Vec<Vec<&'static str>> {
    TABLE.trim().lines().map(|line| line.split('|').map(str::trim).collect()).collect()
}

fn cases() -> impl Iterator<Item = Case> {
    let switches = 0..64_u32;
    SOURCES.into_iter().flat_map(move |source| {
        let switches = switches.clone();
        STATUSES.into_iter().flat_map(move |status| {
            let switches = switches.clone();
            CAUSES.into_iter().flat_map(move |cause| {
                switches.clone().map(move |bits| Case {
                    source,
                    status,
                    cause,
                    envelope: bits & 1 != 0,
                    submitted: bits & 2 != 0,
                    head_stored: bits & 4 != 0,
                    usage: bits & 8 != 0,
                    finish_reason: bits & 16 != 0,
                    inside_event: bits & 32 != 0,
                })
            })
        })
    })
}

#[test]
fn every_end_in_every_situation() {
    let rows = rows();
    let mut used = vec![0_usize; rows.len()];
    for case in cases() {
        let which = rows.iter().position(|row| case.matches(row)).expect("the last row takes all that is left");
        used[which] += 1;
        let conclusion = case.reservation().conclude(&case.end(), START).unwrap();
        let held = std::panic::catch_unwind(|| case.expect(&rows[which], &conclusion));
        assert!(held.is_ok(), "{case:?}\nrow: {:?}\n{conclusion:?}", rows[which]);
    }
    let idle: Vec<_> = rows.iter().zip(&used).filter(|(_, used)| **used == 0).collect();
    assert!(idle.is_empty(), "rows that nothing tests: {idle:?}");
}

/// The conclusion is what `End` stores, and it closes the log in the same transition (design 4.5, invariant 6).
#[test]
fn the_end_stores_its_conclusion() {
    let mut world = World::processing(&terms());
    let end_of_it = UpstreamEnd {
        operation_id: Some("chatcmpl-1".into()),
        finish_reason: Some("length".into()),
        ..complete(10, 20)
    };
    let conclusion = world.live().conclude(&end_of_it, START).unwrap();
    let transition = world.take(&end(1, end_of_it)).unwrap();
    let live = world.live();
    assert_eq!(
        (live.lifecycle, live.settlement, live.attempt.upstream, live.reason, live.usage, live.cost, live.ended_at),
        (
            conclusion.ended.lifecycle,
            conclusion.settlement,
            UpstreamState::Completed,
            Some(ReasonCode::CompletedExact),
            conclusion.usage,
            Some(conclusion.cost),
            Some(START)
        )
    );
    assert_eq!(live.attempt.operation_id.as_deref(), Some("chatcmpl-1"));
    assert_eq!(live.attempt.finish_reason.as_deref(), Some("length"));
    let movements: Vec<_> = transition.postings.iter().map(Posting::without_notices).collect();
    assert_eq!(movements, conclusion.postings);
    let outbox: Vec<_> = live.deliveries.iter().map(|delivery| delivery.posting_id.as_str()).collect();
    assert_eq!(outbox, conclusion.postings.iter().map(|posting| posting.id.as_str()).collect::<Vec<_>>());
}

/// A terminal event in the log of a lost driver is completion, not a loss (design 7).
#[test]
fn a_lost_driver_that_had_stored_the_terminal_completed() {
    let mut world = World::processing(&terms());
    assert_eq!(world.at(9_000).say(&wake(false)), "done>detached+evidence");
    assert_eq!(world.say(&reconcile(2, complete(10, 20))), "done>completed+close");
    assert_eq!(world.live().cost, Some(micros(50)));
}

/// Half an error answer is nobody's answer: its status still says what it came to, and the reader gets a whole error.
#[test]
fn an_error_answer_that_broke_off_is_not_passed_on() {
    let incomplete = SourceEnd::Body(EndClass::Incomplete);
    for (status, settlement) in [(400, Settlement::Released), (429, Settlement::Released), (500, Settlement::Committed)]
    {
        let mut world = World::submitted(&terms());
        let broken = UpstreamEnd { head: Some(head(status)), broke_off: true, ..ended(incomplete) };
        let transition = world.take(&end(1, broken)).unwrap();
        let live = world.live();
        assert_eq!((live.settlement, live.head.as_ref().map(|head| head.status)), (settlement, Some(502)), "{status}");
        let [Effect::CloseLog { terminal }] = transition.effects.as_slice() else { panic!("{transition:?}") };
        assert!(terminal.starts_with(br#"{"error":{"#), "{status}");
    }
}
