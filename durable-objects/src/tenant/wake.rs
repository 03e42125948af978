//! The one alarm of the object. What is armed is kept in memory, so that an admission under an earlier alarm writes no
//! alarm row. An alarm that rings too early finds nothing due; one that was lost is noticed by the next call.

use holdfast_core::time::UnixMillis;
use std::cell::Cell;
use std::time::Duration;
use worker::{Result, Storage};

/// An alarm that has not rung for so long after its time counts as lost.
const LOST_AFTER_MS: u64 = 60_000;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Armed {
    /// Not read since the object was loaded, or the last write failed.
    Unknown,
    Never,
    At(UnixMillis),
}

#[derive(Debug)]
pub(super) struct Wake {
    storage: Storage,
    armed: Cell<Armed>,
}

impl Wake {
    pub(super) fn new(storage: Storage) -> Self {
        Self { storage, armed: Cell::new(Armed::Unknown) }
    }

    /// Reads the alarm, once per load of the object. One that should have rung while nobody was there is not relied on.
    pub(super) async fn load(&self, now: UnixMillis) -> Result<()> {
        if self.armed.get() != Armed::Unknown {
            return Ok(());
        }
        let stored = self.storage.get_alarm().await?;
        // Another call may have armed it meanwhile.
        if self.armed.get() == Armed::Unknown {
            let at = stored.and_then(|at| u64::try_from(at).ok()).map(UnixMillis);
            self.armed.set(at.filter(|at| *at > now).map_or(Armed::Never, Armed::At));
        }
        Ok(())
    }

    /// Sees to it that the alarm rings at `due` at the latest.
    pub(super) async fn no_later_than(&self, due: UnixMillis, now: UnixMillis) -> Result<()> {
        match self.armed.get() {
            // One that rings now serves for all that is overdue.
            Armed::At(at) if at <= due.max(now) && now.since(at) < LOST_AFTER_MS => Ok(()),
            _ => self.at(due, now).await,
        }
    }

    /// Arms the alarm for `due` exactly; at once when that is past.
    pub(super) async fn at(&self, due: UnixMillis, now: UnixMillis) -> Result<()> {
        let at = due.max(now);
        if self.armed.get() == Armed::At(at) {
            return Ok(());
        }
        self.armed.set(Armed::At(at));
        self.stored(self.storage.set_alarm(Duration::from_millis(at.since(now))).await)
    }

    /// Nothing is known any more: the alarm is read again.
    pub(super) fn forget(&self) {
        self.armed.set(Armed::Unknown);
    }

    /// It has rung: nothing is armed any more, whatever memory says.
    pub(super) fn rang(&self) {
        self.armed.set(Armed::Never);
    }

    /// Nothing is due.
    pub(super) async fn never(&self) -> Result<()> {
        self.armed.set(Armed::Never);
        self.stored(self.storage.delete_alarm().await)
    }

    /// What is armed is unknown after a failed write.
    fn stored(&self, outcome: Result<()>) -> Result<()> {
        if outcome.is_err() {
            self.armed.set(Armed::Unknown);
        }
        outcome
    }
}
