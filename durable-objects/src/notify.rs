//! An in-memory wake-up for tasks of one object. It carries no data: whoever wakes looks at the state again.

use std::cell::{Cell, RefCell};
use std::future::poll_fn;
use std::task::{Poll, Waker};

/// Wakes all that wait whenever something has changed.
#[derive(Debug, Default)]
pub struct Notify {
    version: Cell<u64>,
    wakers: RefCell<Vec<Waker>>,
}

impl Notify {
    /// The current version; pass it to [`Notify::changed_since`] after having looked at the state.
    pub fn version(&self) -> u64 {
        self.version.get()
    }

    /// Something has changed.
    pub fn notify(&self) {
        self.version.set(self.version.get().wrapping_add(1));
        let wakers = std::mem::take(&mut *self.wakers.borrow_mut());
        wakers.into_iter().for_each(Waker::wake);
    }

    /// Waits until something has changed after `version` was read.
    pub async fn changed_since(&self, version: u64) {
        poll_fn(|context| {
            if self.version.get() != version {
                return Poll::Ready(());
            }
            let mut wakers = self.wakers.borrow_mut();
            if !wakers.iter().any(|waker| waker.will_wake(context.waker())) {
                wakers.push(context.waker().clone());
            }
            Poll::Pending
        })
        .await;
    }
}
