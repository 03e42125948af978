//! The circuit breakers of this isolate, one per provider: numbers in memory, nothing else. Their rules are those of
//! [`holdfast_core::breaker`].

use crate::clock;
use holdfast_core::breaker::Breaker;
use std::cell::RefCell;
use std::collections::BTreeMap;

thread_local! {
    static BREAKERS: RefCell<BTreeMap<String, Breaker>> = const { RefCell::new(BTreeMap::new()) };
}

fn with<T>(provider: &str, change: impl FnOnce(&mut Breaker) -> T) -> T {
    // The operator's table bounds their number.
    BREAKERS.with_borrow_mut(|breakers| change(breakers.entry(provider.into()).or_default()))
}

/// Whether a provider may be asked now.
///
/// # Errors
/// How long it is still left alone, in milliseconds.
pub fn ask(provider: &str) -> Result<(), u64> {
    with(provider, |breaker| breaker.ask(clock::now()))
}

/// What came of it: whether the provider could answer.
pub fn note(provider: &str, answered: bool) {
    with(provider, |breaker| if answered { breaker.succeeded() } else { breaker.failed(clock::now()) });
}
