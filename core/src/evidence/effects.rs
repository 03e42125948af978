//! What a release set in motion: one by one, each with its own outcome (seed 3: "rather than collapsing the entire
//! operation into a single success flag").

use super::groups::Timed;
use crate::ids::AttemptId;
use crate::money::Micros;
use alloc::string::String;
use alloc::vec::Vec;
use serde::{Deserialize, Serialize};

/// What was to be done.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "effect", rename_all = "snake_case")]
pub enum EffectKind {
    /// Credit becomes available again.
    CreditReturned {
        /// How much, in micro-USD.
        amount: Micros,
    },
    /// The concurrency slot becomes available again.
    SlotReturned,
    /// A posting for the tenant's ledger; done when the tenant has acknowledged it.
    PostingAuthored {
        /// Its id.
        posting_id: String,
    },
    /// The driver of an attempt is told to stop.
    AbortRequested {
        /// Which attempt.
        attempt_id: AttemptId,
    },
    /// The provider is asked to cancel its operation.
    CancelRequested {
        /// The provider's id for it.
        provider_operation_id: String,
    },
    /// The provider is asked again later: the operation is watched beyond the release.
    WatchScheduled {
        /// When the watch ends.
        until: Timed,
    },
    /// Stored output is deleted.
    ContentDeleted {
        /// How much, in bytes.
        bytes: u64,
    },
    /// Somebody is told.
    Notification {
        /// By which way: `tenant` (its object takes the message, and tells whoever listens), `webhook`, `operator`.
        channel: String,
        /// Id of the message.
        message_id: String,
    },
    /// A further attempt.
    Retry {
        /// Which attempt.
        attempt_id: AttemptId,
    },
}

/// The list of [`ReleaseEffects`] in which an effect stands.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Group {
    Resource,
    Downstream,
    Notification,
    Retry,
}

impl EffectKind {
    /// The name in `partial_failures`.
    #[must_use]
    pub const fn as_str(&self) -> &'static str {
        match self {
            Self::CreditReturned { .. } => "credit_returned",
            Self::SlotReturned => "slot_returned",
            Self::PostingAuthored { .. } => "posting_authored",
            Self::AbortRequested { .. } => "abort_requested",
            Self::CancelRequested { .. } => "cancel_requested",
            Self::WatchScheduled { .. } => "watch_scheduled",
            Self::ContentDeleted { .. } => "content_deleted",
            Self::Notification { .. } => "notification",
            Self::Retry { .. } => "retry",
        }
    }

    const fn group(&self) -> Group {
        match self {
            Self::CreditReturned { .. } | Self::SlotReturned => Group::Resource,
            Self::PostingAuthored { .. }
            | Self::AbortRequested { .. }
            | Self::CancelRequested { .. }
            | Self::WatchScheduled { .. }
            | Self::ContentDeleted { .. } => Group::Downstream,
            Self::Notification { .. } => Group::Notification,
            Self::Retry { .. } => Group::Retry,
        }
    }
}

/// What became of it, as far as it was known when the record was written. A request that was sent is not a request that
/// was fulfilled.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(tag = "outcome", rename_all = "snake_case")]
pub enum Outcome {
    /// It has taken effect.
    Done {
        /// When.
        done_at: Timed,
    },
    /// It has been set in motion, and nothing is known yet.
    Pending,
    /// It has not taken effect.
    Failed {
        /// Why, in a stable word.
        why: String,
    },
}

/// One effect and its outcome; in JSON one object: `{"effect":"slot_returned","outcome":"pending"}`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Effect {
    /// What was to be done.
    #[serde(flatten)]
    pub what: EffectKind,
    /// What became of it.
    #[serde(flatten)]
    pub outcome: Outcome,
}

impl Effect {
    fn is_done(&self) -> bool {
        matches!(self.outcome, Outcome::Done { .. })
    }
}

/// Field group "release effects".
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReleaseEffects {
    /// What became available again.
    pub resources_returned: Vec<Effect>,
    /// What was asked of ledger, driver, provider and storage.
    pub downstream_actions: Vec<Effect>,
    /// Who was told.
    pub notifications: Vec<Effect>,
    /// What was tried again.
    pub retries: Vec<Effect>,
    /// Errors that belong to no single effect, in stable words. Those of an effect stand in its outcome.
    pub errors: Vec<String>,
    /// The names of all effects that are not done, pending ones included, in the order of the lists above: a release
    /// whose cleanup is still open does not look like a finished one.
    pub partial_failures: Vec<String>,
}

impl ReleaseEffects {
    /// Puts each effect into its list, in the given order, and names those that are not done.
    #[must_use]
    pub fn new(effects: Vec<Effect>, errors: Vec<String>) -> Self {
        Self { errors, ..Self::default() }.and(effects)
    }

    /// The same with further effects.
    #[must_use]
    pub fn and(mut self, effects: Vec<Effect>) -> Self {
        for effect in effects {
            self.list(effect.what.group()).push(effect);
        }
        self.partial_failures = self.not_done();
        self
    }

    fn list(&mut self, group: Group) -> &mut Vec<Effect> {
        match group {
            Group::Resource => &mut self.resources_returned,
            Group::Downstream => &mut self.downstream_actions,
            Group::Notification => &mut self.notifications,
            Group::Retry => &mut self.retries,
        }
    }

    const fn lists(&self) -> [(Group, &Vec<Effect>); 4] {
        [
            (Group::Resource, &self.resources_returned),
            (Group::Downstream, &self.downstream_actions),
            (Group::Notification, &self.notifications),
            (Group::Retry, &self.retries),
        ]
    }

    /// All effects, list by list.
    pub fn all(&self) -> impl Iterator<Item = &Effect> {
        self.lists().into_iter().flat_map(|(_, effects)| effects)
    }

    /// Whether every effect stands in its list and `partial_failures` names those that are not done.
    #[must_use]
    pub fn is_consistent(&self) -> bool {
        let in_place =
            self.lists().into_iter().all(|(group, effects)| effects.iter().all(|effect| effect.what.group() == group));
        in_place && self.partial_failures == self.not_done()
    }

    fn not_done(&self) -> Vec<String> {
        self.all().filter(|effect| !effect.is_done()).map(|effect| effect.what.as_str().into()).collect()
    }
}
