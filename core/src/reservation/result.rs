//! The result of an operation that was learnt outside of its stream (design 6: "look up with backoff within limits; store
//! the result").
//!
//! The answer to a lookup, or to a cancel, has the whole output where it is the operation's final form. It is told before
//! the word that comes with it is: once that word is stored, nobody asks again.
//!
//! | told of | kept |
//! |---|---|
//! | `completed`, `incomplete` | yes, whatever the hold comes to |
//! | `cancelled`, with output | yes, if the route keeps partial output |
//! | `cancelled` without output, `failed` | no: what the log has is more |
//! | anything, once the log has the whole answer | no |
//! | anything, once the content is deleted | no: it came too late |
//! | anything above the bound | no, and that is noted |
//! | another attempt than the owning one, or one that was never sent | no |
//!
//! The first one stands. It is content like the log: what deletes that deletes it, too. The log itself stays as readers
//! have it.

use super::command::{Effect, Reply, Transition};
use super::{Lifecycle, LogFacts, Reservation};
use crate::operation::FinalForm;
use crate::reconcile::Outcome;
use crate::time::UnixMillis;
use alloc::format;
use alloc::string::String;
use serde::{Deserialize, Serialize};

/// A result that was told outside of the stream.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ToldResult {
    /// What the provider says that the operation came to.
    pub outcome: Outcome,
    /// How long it is, in bytes.
    pub length: u64,
    /// When it was told.
    pub told_at: UnixMillis,
    /// It was stored. One above the bound was not.
    pub kept: bool,
}

impl Reservation {
    /// The final form of an operation is there, `length` bytes; one above `max_bytes` is not kept.
    pub(super) fn result_told(
        &self,
        operation_id: &str,
        form: FinalForm,
        length: u64,
        max_bytes: u64,
        now: UnixMillis,
    ) -> Transition {
        let wanted = match form.outcome {
            Outcome::Completed | Outcome::Incomplete => true,
            Outcome::Cancelled => self.terms.keep_partial && !form.without_output,
            Outcome::Failed => false,
        };
        let owning = self.attempt.operation_id.as_deref() == Some(operation_id) && self.was_submitted();
        if !wanted || !owning || self.answered || self.content_deleted || self.result.is_some() {
            return Transition::unchanged(Reply::Done);
        }
        let kept = length <= max_bytes;
        let mut next = self.clone();
        next.result = Some(ToldResult { outcome: form.outcome, length, told_at: now, kept });
        let outcome = if kept { "kept" } else { "too_large" };
        let transition = next.changed(Reply::Done).with_history(now, "result_told", outcome, self.attempt.epoch());
        if kept { transition.with_effect(Effect::KeepResult) } else { transition }
    }

    /// The result that is read in the stead of the log: it was kept, and the log has no whole answer.
    #[must_use]
    pub fn result_to_read(&self) -> Option<ToldResult> {
        let there = !self.answered && !self.content_deleted && self.lifecycle.is_terminal();
        self.result.filter(|result| result.kept && there)
    }

    /// The log has the whole answer: nobody needs another form of it. The effect deletes what was kept.
    pub(super) fn answer_is_whole(&mut self) -> Option<Effect> {
        self.answered = true;
        self.result.take().filter(|result| result.kept).map(|_| Effect::ForgetResult)
    }

    /// Bytes of content that are stored.
    pub(super) fn content_bytes(&self, log: &LogFacts) -> u64 {
        let kept = self.result.filter(|result| result.kept).map_or(0, |result| result.length);
        log.length.saturating_add(kept)
    }

    /// What readers of a stream that broke off are told, where its operation completed and the result is kept. The stream
    /// ends badly all the same: a clean end would be a lie to whoever adds up its events, since some of them are missing.
    pub(super) fn result_elsewhere(&self, lifecycle: Lifecycle) -> Option<String> {
        let kept = self.result.is_some_and(|result| result.kept);
        let generation = &self.identity.generation;
        (kept && lifecycle == Lifecycle::Completed).then(|| {
            format!(
                "The provider's stream broke off, and the work completed: the whole answer is at \
                 /v1/generations/{generation}/result."
            )
        })
    }
}
