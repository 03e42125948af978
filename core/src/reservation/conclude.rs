//! How an attempt ended, and what follows for lifecycle, hold and readers. A table, first match wins.

use super::attempt::{AbortCause, Accounted, Reported};
use super::{Lifecycle, LogFacts, Reservation, ResponseHead, Settlement, UpstreamState};
use crate::dialect::{error_envelope, error_terminal};
use crate::finding::Source;
use crate::ledger::{Posting, ReasonCode};
use crate::meter::EndClass;
use crate::money::{Micros, MoneyError};
use crate::policy::Owner;
use crate::pricing::{MILLIONTHS, millionths_of, rounded_up};
use crate::reconcile::Outcome;
use crate::sse::BLANK_LINE;
use crate::time::UnixMillis;
use crate::usage::{Metered, Usage};
use alloc::string::String;
use alloc::vec;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// Output tokens that may have been produced, but not seen, when a stream was cut.
pub const IN_FLIGHT_TOKENS: u64 = 256;

/// The stored log was not read: what an attempt may have used is bounded by the most.
pub(super) const NOT_READ: u64 = u64::MAX;

/// How the source ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum SourceEnd {
    /// The body ended or broke; its class says how.
    Body(EndClass),
    /// No answer came. `provably_unsent`: the connection was never made.
    NoResponse {
        /// Nothing can have been executed.
        provably_unsent: bool,
    },
    /// The answer was larger than allowed, so we closed the socket.
    TooLarge,
    /// We closed the socket, as told.
    Aborted,
    /// The driver was lost with its socket.
    Lost,
}

/// What was observed at the end of an attempt.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpstreamEnd {
    /// How the source ended.
    pub source: SourceEnd,
    /// Status and headers, where they were not stored yet.
    pub head: Option<ResponseHead>,
    /// The body of an error answer is the provider's own error envelope.
    pub error_envelope: bool,
    /// The provider's operation id.
    pub operation_id: Option<String>,
    /// Why the provider stopped.
    pub finish_reason: Option<String>,
    /// Usage that the provider reported.
    pub usage: Option<Usage>,
    /// Content bytes seen, an upper bound of the output tokens seen. Not looked at when usage is exact.
    pub content_bytes: u64,
    /// Bytes that may have been received and lost with the driver: at most one batch.
    pub unseen_bytes_max: u64,
    /// An appended error event needs a blank line before it: the cut was inside an event.
    pub cut_inside_event: bool,
    /// The connection was lost inside of an answer in one piece: its status stands, and nobody gets the half body.
    #[serde(default, skip_serializing_if = "core::ops::Not::not")]
    pub broke_off: bool,
}

impl UpstreamEnd {
    /// An end of which nothing else was observed.
    #[must_use]
    pub const fn by(source: SourceEnd) -> Self {
        Self {
            source,
            head: None,
            error_envelope: false,
            operation_id: None,
            finish_reason: None,
            usage: None,
            content_bytes: 0,
            unseen_bytes_max: 0,
            cut_inside_event: false,
            broke_off: false,
        }
    }

    /// Whether no output of the attempt was seen. Who decides without having read the log knows only that it is empty.
    pub(super) fn shows_nothing(&self, log: &LogFacts) -> bool {
        let seen = if self.content_bytes == NOT_READ { log.length } else { self.content_bytes };
        seen == 0 && self.source != SourceEnd::Body(EndClass::Complete)
    }
}

/// What an attempt came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct Ended {
    /// Terminal lifecycle.
    pub lifecycle: Lifecycle,
    /// Terminal state of the attempt.
    pub upstream: UpstreamState,
    /// Why.
    pub reason: ReasonCode,
}

/// What follows from an end.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Conclusion {
    /// Lifecycle, upstream and reason.
    pub ended: Ended,
    /// State of the hold.
    pub settlement: Settlement,
    /// What the attempt is accounted with.
    pub accounted: Option<Accounted>,
    /// Usage that the hold is settled by, over all attempts.
    pub usage: Option<Metered>,
    /// The postings.
    pub postings: Vec<Posting>,
    /// All that is charged.
    pub cost: Micros,
    /// The answer head that readers get.
    pub head: Option<ResponseHead>,
    /// Appended to the log at close.
    pub terminal: Vec<u8>,
}

/// What all attempts used, and what it costs.
#[derive(Clone, Copy, Debug)]
pub(super) struct Total {
    /// The sum; `None` when no attempt used anything.
    pub(super) usage: Option<Metered>,
    /// The part of it that is a bound, where the rest is not.
    pub(super) estimated: Option<Usage>,
    /// All that is charged.
    pub(super) cost: Micros,
}

impl Total {
    /// What becomes of a hold that ends by it.
    pub(super) const fn settlement(&self) -> Settlement {
        if self.usage.is_some() { Settlement::Committed } else { Settlement::Released }
    }
}

/// One row of the table: what the attempt came to, and whether it is charged for.
#[derive(Clone, Copy)]
pub(super) struct Verdict {
    pub(super) ended: Ended,
    pub(super) charge: bool,
}

pub(super) const fn verdict(
    lifecycle: Lifecycle,
    upstream: UpstreamState,
    reason: ReasonCode,
    charge: bool,
) -> Verdict {
    Verdict { ended: Ended { lifecycle, upstream, reason }, charge }
}

impl Reservation {
    /// Draws the conclusion from an end.
    ///
    /// # Errors
    /// [`MoneyError`] when the cost is out of range.
    pub fn conclude(&self, end: &UpstreamEnd, now: UnixMillis) -> Result<Conclusion, MoneyError> {
        let status = self.status(end);
        self.conclude_as(self.verdict(end, status), end, now)
    }

    /// Draws the conclusion of a verdict: whatever it was reached by, the money follows from it in one way.
    pub(super) fn conclude_as(
        &self,
        verdict: Verdict,
        end: &UpstreamEnd,
        now: UnixMillis,
    ) -> Result<Conclusion, MoneyError> {
        let accounted = verdict.charge.then(|| self.accounted(end));
        let mut ended = self.clone();
        ended.learn(end, now);
        ended.account(accounted, verdict.ended.reason);
        if accounted.is_none() && verdict.ended.reason == ReasonCode::OperatorDecision {
            // An operator gives the whole hold back; a route, all of it that nobody with authority speaks against.
            ended.account_for_nothing();
        }
        let total = ended.total()?;
        let postings = ended.resolving_postings(&total, verdict.ended.reason, now);
        let (settlement, Total { usage, cost, .. }) = (total.settlement(), total);
        let (head, terminal) = self.answer(end, &verdict, self.status(end));
        Ok(Conclusion { ended: verdict.ended, settlement, accounted, usage, postings, cost, head, terminal })
    }

    /// What the attempts used, and what that costs. Each is priced by its own quality: what the provider counted at its
    /// price, whatever is held; a bound at no more than the attempt's own hold, which it takes whole where output is
    /// hidden. All bounds together cost no more than is held, and the sum is rounded up once.
    ///
    /// # Errors
    /// [`MoneyError`] when the sum is out of range.
    pub(super) fn total(&self) -> Result<Total, MoneyError> {
        let metered: Vec<Metered> = self.attempts().filter_map(|it| it.accounted).map(|it| it.metered).collect();
        let of_kind = |exact: bool| metered.iter().filter(move |part| part.is_exact() == exact);
        let mut counted = 0_u128;
        for part in of_kind(true) {
            counted = counted.saturating_add(millionths_of(&self.terms.price.cost_parts(part)?));
        }
        let whole = |hold: Micros| u128::from(hold.get()).saturating_mul(MILLIONTHS);
        let bounds =
            of_kind(false).fold(0_u128, |sum, part| sum.saturating_add(self.bound(part, whole(self.terms.hold))));
        let sum = |exact| Metered::sum(of_kind(exact)).map_err(|_| MoneyError);
        let estimated = sum(false)?;
        let some = |kind: bool| of_kind(kind).next().is_some();
        Ok(Total {
            usage: if metered.is_empty() { None } else { Some(sum(true)?.plus(&estimated).map_err(|_| MoneyError)?) },
            estimated: (some(true) && some(false)).then(|| *estimated.usage()),
            cost: rounded_up(counted.saturating_add(bounds.min(whole(self.hold()))))?,
        })
    }

    /// What a bound costs, in millionths. One beyond any price costs the most.
    fn bound(&self, metered: &Metered, most: u128) -> u128 {
        let price = &self.terms.price;
        let parts = price.cost_parts(metered).ok().filter(|_| !price.hidden_output);
        parts.map_or(most, |parts| millionths_of(&parts).min(most))
    }

    /// What the attempts are accounted with once the generation has ended for this reason.
    pub(super) fn account(&mut self, owning: Option<Accounted>, reason: ReasonCode) {
        self.attempt.accounted = owning;
        if gives_up_estimates(reason) {
            for attempt in self.past_attempts.iter_mut().chain([&mut self.attempt]) {
                attempt.accounted = attempt.accounted.filter(|accounted| accounted.metered.is_exact());
            }
        }
    }

    /// Nothing is charged for: what comes to light later stands alone.
    pub(super) fn account_for_nothing(&mut self) {
        for attempt in self.past_attempts.iter_mut().chain([&mut self.attempt]) {
            attempt.accounted = None;
        }
    }

    fn status(&self, end: &UpstreamEnd) -> Option<u16> {
        end.head.as_ref().or(self.head.as_ref()).map(|head| head.status)
    }

    /// Whether an end says nothing of an outcome that may still come: the operation outlives its socket, was sent, and
    /// nobody with authority has said what it came to.
    pub(super) fn end_leaves_open(&self, end: &UpstreamEnd) -> bool {
        let unsent = self.attempt.submitted_at.is_none()
            || matches!(end.source, SourceEnd::NoResponse { provably_unsent: true });
        let answered = match (end.source, self.status(end)) {
            (_, Some(300..=499)) => true,
            (SourceEnd::Body(_), Some(_)) if end.error_envelope => true,
            // Whole or not: what is no success and not the provider's own error may come from a gateway in front of it.
            (_, Some(status)) if !is_success(status) => false,
            (SourceEnd::Body(EndClass::Complete | EndClass::InBandError), _) => true,
            _ => false,
        };
        let told = self.attempt.reported.is_some() && !self.usage_is_open(end);
        self.terms.capabilities.outlives_socket() && !unsent && !answered && !told
    }

    /// Whether the provider called back that the work is done, and can be asked what it used: a callback tells none, and
    /// a bound is no match for a count. A failure of which nothing was seen is charged for nothing.
    pub(super) fn usage_is_open(&self, end: &UpstreamEnd) -> bool {
        let called = |said: Reported| said.source == Source::Callback && said.usage.is_none();
        let used = |said: Reported| said.outcome != Outcome::Failed || end.content_bytes > 0;
        self.attempt.reported.is_some_and(|said| called(said) && used(said))
            && self.can_be_asked()
            && !self.attempt.conflict
            && !self.accounted(end).metered.is_exact()
    }

    fn verdict(&self, end: &UpstreamEnd, status: Option<u16>) -> Verdict {
        use Lifecycle as L;
        use ReasonCode as R;
        use UpstreamState as U;
        let success = status.is_some_and(is_success);
        match (end.source, status) {
            // Completion wins against everything, a requested cancel included.
            (SourceEnd::Body(EndClass::Complete), _) if success => {
                verdict(L::Completed, U::Completed, self.completed_reason(end), true)
            }
            // A redirect says that it is done elsewhere; it is not followed, so it is not done.
            (_, Some(300..=499)) => verdict(L::Failed, U::Failed, R::ProviderRefused, false),
            // The whole answer is the provider's own error, whatever its status says. It costs nothing unless it tells what
            // it has used, as a failed response does.
            (SourceEnd::Body(_), Some(_)) if end.error_envelope => {
                verdict(L::Failed, U::Failed, R::ProviderFailed, terminal_usage(end).is_some())
            }
            // What the provider said outside of the stream stands above how the socket ended.
            _ if self.attempt.reported.is_some() => self.reported_verdict(end),
            (SourceEnd::TooLarge, _) => verdict(L::Failed, U::Incomplete, R::OutputTooLarge, true),
            (SourceEnd::Aborted, _) => self.abort_verdict(),
            (SourceEnd::Lost, _) => self.lost_verdict(),
            (SourceEnd::NoResponse { provably_unsent: true }, _) => {
                verdict(L::Failed, U::Failed, R::ProviderUnreachable, false)
            }
            (SourceEnd::NoResponse { .. }, _) => verdict(L::Failed, U::Unknown, R::ProviderUnreachable, true),
            (SourceEnd::Body(_), Some(_)) if !success => verdict(L::Failed, U::Unknown, R::ProviderUnreachable, true),
            (SourceEnd::Body(EndClass::InBandError), _) => verdict(L::Failed, U::Failed, R::ProviderErrorInBand, true),
            (SourceEnd::Body(_), _) => verdict(L::Failed, U::Incomplete, R::UpstreamInterrupted, true),
        }
    }

    fn completed_reason(&self, end: &UpstreamEnd) -> ReasonCode {
        let exact = self.accounted(end).metered.is_exact();
        if exact { ReasonCode::CompletedExact } else { ReasonCode::CompletedWithoutUsage }
    }

    /// What a lookup, a callback or a fenced driver said.
    pub(super) fn reported_verdict(&self, end: &UpstreamEnd) -> Verdict {
        use Lifecycle as L;
        use ReasonCode as R;
        use UpstreamState as U;
        let Some(Reported { outcome, usage, .. }) = self.attempt.reported else { return self.lost_verdict() };
        match outcome {
            Outcome::Completed => verdict(L::Completed, U::Completed, self.completed_reason(end), true),
            Outcome::Incomplete => verdict(L::Completed, U::Incomplete, self.completed_reason(end), true),
            // A failure is charged for what it is known to have used, or by a bound where anything was seen of it.
            Outcome::Failed => {
                verdict(L::Failed, U::Failed, R::OperationFailed, usage.is_some() || end.content_bytes > 0)
            }
            // It was stopped because there was too much of it.
            Outcome::Cancelled if self.attempt.abort == Some(AbortCause::TooLarge) => {
                verdict(L::Failed, U::Cancelled, R::OutputTooLarge, true)
            }
            Outcome::Cancelled => verdict(L::Cancelled, U::Cancelled, R::CancelConfirmed, true),
        }
    }

    /// The driver is gone, and the work died with it. Only an attempt that was never submitted proves that nothing was
    /// sent: its state stays `prepared`. One that was being stopped is stopped.
    pub(super) const fn lost_verdict(&self) -> Verdict {
        use Lifecycle as L;
        use ReasonCode as R;
        use UpstreamState as U;
        let charge = self.was_submitted();
        match self.attempt.abort {
            Some(AbortCause::Request) => verdict(L::Cancelled, U::Cancelled, R::CancelledByRequest, charge),
            Some(AbortCause::Disconnect) => verdict(L::Cancelled, U::Cancelled, R::CancelledOnDisconnect, charge),
            Some(AbortCause::DetachedMax) => verdict(L::Cancelled, U::Cancelled, R::DetachedExceeded, charge),
            Some(AbortCause::TooLarge) => verdict(L::Failed, U::Incomplete, R::OutputTooLarge, charge),
            _ if charge => verdict(L::Failed, U::Unknown, R::DriverLost, true),
            _ => verdict(L::Failed, U::Prepared, R::NeverSubmitted, false),
        }
    }

    /// The state of an attempt whose outcome stays open. Deciding about it sends nothing: what was never submitted stays
    /// `prepared`.
    pub(super) const fn open_upstream(&self) -> UpstreamState {
        if self.was_submitted() { UpstreamState::Unknown } else { UpstreamState::Prepared }
    }

    pub(super) const fn was_submitted(&self) -> bool {
        self.attempt.submitted_at.is_some()
    }

    fn abort_verdict(&self) -> Verdict {
        use Lifecycle as L;
        use ReasonCode as R;
        use UpstreamState as U;
        let charge = self.was_submitted();
        match self.attempt.abort {
            Some(AbortCause::Disconnect) => verdict(L::Cancelled, U::Cancelled, R::CancelledOnDisconnect, charge),
            Some(AbortCause::DetachedMax) => verdict(L::Cancelled, U::Cancelled, R::DetachedExceeded, charge),
            Some(AbortCause::FirstByteTimeout) => verdict(L::Failed, U::Incomplete, R::FirstByteTimeout, charge),
            Some(AbortCause::IdleTimeout) => verdict(L::Failed, U::Incomplete, R::IdleTimeout, charge),
            Some(AbortCause::TotalTimeout) => verdict(L::Failed, U::Incomplete, R::TotalTimeout, charge),
            Some(AbortCause::TooLarge) => verdict(L::Failed, U::Incomplete, R::OutputTooLarge, charge),
            Some(AbortCause::Request) | None => verdict(L::Cancelled, U::Cancelled, R::CancelledByRequest, charge),
        }
    }

    /// Exact usage of the owning attempt by the strongest source that gave any. One without a price counts for nothing:
    /// an end is never refused for what a provider counts.
    fn exact_usage(&self, end: &UpstreamEnd) -> Option<(Usage, Source)> {
        let streamed = terminal_usage(end).map(|usage| (usage, Source::Stream));
        let reported = self.attempt.reported.and_then(|said| said.usage.map(|usage| (usage, said.usage_source)));
        let stronger = match (reported, streamed) {
            (Some(reported), Some(streamed)) if reported.1.rank() < streamed.1.rank() => Some(streamed),
            (reported, streamed) => reported.or(streamed),
        };
        stronger.filter(|(usage, _)| self.terms.price.cost(usage).is_ok())
    }

    /// `Exact` where the provider's terminal usage is there; otherwise the upper bound of design 4.
    pub(super) fn accounted(&self, end: &UpstreamEnd) -> Accounted {
        if let Some((usage, source)) = self.exact_usage(end) {
            return Accounted { metered: Metered::Exact(usage), source };
        }
        // What a non-streaming provider has produced cannot be seen before it answers; and counts that are beyond any
        // price say nothing about it. Nor can what goes on at the provider after its socket is gone, or has gone on there
        // before its stream brought it: only a stream that came to its own end has shown all.
        let visible = self.terms.streaming && terminal_usage(end).is_none();
        let shown = matches!(end.source, SourceEnd::Body(EndClass::Complete | EndClass::InBandError))
            && self.status(end).is_some_and(is_success);
        let may_go_on = self.terms.capabilities.outlives_socket() && !shown;
        // A driver at the edge reads on while its appends are on their way or nobody takes them: what it saw last is no
        // bound of what it saw.
        let saw_more = end.source == SourceEnd::Lost && self.attempt.lease.owner == Owner::Edge;
        let seen = if visible && !may_go_on && !saw_more {
            let reported = end.usage.map_or(0, |usage| usage.output_tokens);
            end.content_bytes.max(reported).saturating_add(IN_FLIGHT_TOKENS).saturating_add(end.unseen_bytes_max)
        } else {
            u64::MAX
        };
        let bound = Usage {
            input_tokens: self.terms.input_bound_tokens,
            output_tokens: seen.min(self.terms.output_bound_tokens),
            ..Usage::default()
        };
        Accounted { metered: Metered::AtLeast(bound), source: Source::OwnCount }
    }

    /// What readers get: the provider's head where there is one, and at a bad end an error in their own dialect.
    /// EOF is not success: no SDK may take a broken answer for a whole one.
    fn answer(&self, end: &UpstreamEnd, verdict: &Verdict, status: Option<u16>) -> (Option<ResponseHead>, Vec<u8>) {
        let stored = self.head.clone();
        let passable = status.is_some_and(|status| is_passable(status, end.error_envelope));
        let provider_answered = matches!(end.source, SourceEnd::Body(_)) && passable && !end.broke_off;
        // A completion that was only reported leaves readers with the part that came: to them it is no success.
        let whole =
            verdict.ended.lifecycle == Lifecycle::Completed && end.source == SourceEnd::Body(EndClass::Complete);
        if whole || provider_answered {
            return (stored.or_else(|| end.head.clone()), Vec::new());
        }
        // Whatever it came to: readers have as much as is allowed, and hear that there was more.
        let reported = end.source == SourceEnd::TooLarge && self.attempt.reported.is_some();
        let too_large = reported || self.attempt.abort == Some(AbortCause::TooLarge);
        let (status, code, message) =
            error_of(if too_large { ReasonCode::OutputTooLarge } else { verdict.ended.reason });
        let elsewhere = self.result_elsewhere(verdict.ended.lifecycle);
        let message = elsewhere.as_deref().unwrap_or(message);
        if stored.is_some() {
            let reported = end.source == SourceEnd::Body(EndClass::InBandError) && !end.cut_inside_event;
            let mut terminal = Vec::new();
            if !reported {
                if end.cut_inside_event {
                    terminal.extend_from_slice(BLANK_LINE);
                }
                terminal.extend(error_terminal(self.terms.client_dialect(), code, message));
            }
            return (stored, terminal);
        }
        let mut headers = vec![(String::from("content-type"), String::from("application/json"))];
        // The official SDKs repeat a 409 by themselves: what somebody wanted stopped would be run, and paid, again.
        if status == 409 {
            headers.push((String::from("x-should-retry"), String::from("false")));
        }
        let envelope = error_envelope(self.terms.client_dialect(), status, code, message);
        (Some(ResponseHead { status, headers }), envelope)
    }
}

/// A route that releases at the deadline charges for what a provider told alone: a bound is no statement of anybody.
const fn gives_up_estimates(reason: ReasonCode) -> bool {
    matches!(reason, ReasonCode::ExpiredReleased | ReasonCode::ExpiredWatching)
}

/// Whether an error answer of the provider reaches the client as it is. Other statuses would be acted on by clients
/// (redirects), have no body, or are none at all.
#[must_use]
pub const fn is_passable(status: u16, error_envelope: bool) -> bool {
    matches!(status, 400..=599) || (is_success(status) && error_envelope)
}

/// Whether a status announces a whole answer with a body.
#[must_use]
pub const fn is_success(status: u16) -> bool {
    matches!(status, 200..=299) && !matches!(status, 204 | 205)
}

/// Whether the body of an error answer is the provider's own envelope: an object with a member `error`. Then the
/// provider itself reports that it failed; any other body may come from a gateway in front of it.
#[must_use]
pub fn is_error_envelope(body: &[u8]) -> bool {
    #[derive(Deserialize)]
    struct Envelope {
        error: Option<serde::de::IgnoredAny>,
    }
    serde_json::from_slice::<Envelope>(body).is_ok_and(|envelope| envelope.error.is_some())
}

/// The provider's own usage, if it is terminal: a count in mid-stream is a placeholder.
pub(super) fn terminal_usage(end: &UpstreamEnd) -> Option<Usage> {
    let terminal = end.source == SourceEnd::Body(EndClass::Complete) || end.finish_reason.is_some();
    end.usage.filter(|_| terminal)
}

/// Status (before the first byte), code and sentence for a client whose generation ended badly.
const fn error_of(reason: ReasonCode) -> (u16, &'static str, &'static str) {
    match reason {
        ReasonCode::CancelledByRequest => (409, "generation_cancelled", "The generation was cancelled by request."),
        ReasonCode::CancelledOnDisconnect => {
            (409, "generation_cancelled", "The generation was cancelled because its last reader left.")
        }
        ReasonCode::DetachedExceeded => {
            let message = "The generation was cancelled: its last reader left, and too many others run without one.";
            (409, "generation_cancelled", message)
        }
        ReasonCode::FirstByteTimeout => (504, "upstream_timeout", "The provider sent no first byte in time."),
        ReasonCode::IdleTimeout => (504, "upstream_timeout", "The provider stopped sending."),
        ReasonCode::TotalTimeout => (504, "upstream_timeout", "The generation ran longer than its route allows."),
        ReasonCode::OutputTooLarge => (502, "output_too_large", "The output was larger than allowed."),
        ReasonCode::ProviderRefused => (502, "upstream_failed", "The provider refused the request."),
        ReasonCode::ProviderUnreachable => (502, "upstream_failed", "The provider could not be reached."),
        ReasonCode::CancelConfirmed => (409, "generation_cancelled", "The generation was cancelled at the provider."),
        ReasonCode::OperationFailed => (502, "upstream_failed", "The provider reports that the operation failed."),
        ReasonCode::NeverSubmitted => (502, "upstream_failed", "The request was not sent to the provider."),
        ReasonCode::DriverLost => {
            (502, "upstream_interrupted", "The connection to the provider was lost; the stored part stays readable.")
        }
        _ => (502, "upstream_interrupted", "The provider's answer broke off; the stored part stays readable."),
    }
}
