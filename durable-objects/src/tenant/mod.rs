//! One tenant: keys, routes, holds, ledger, audit chain, due list.
//!
//! | module | does |
//! |---|---|
//! | `object` | the platform's side: reads a call, replies; rings |
//! | `answers` | one function per call: load rows, apply the rules of [`holdfast_core::tenant`], store rows |
//! | `books` | pages of the ledger, and the check |
//! | `account` | the tenant as configured, read once |
//! | `config` | the versions of the tenant's document |
//! | `store`, `schema` | rows in SQLite |
//! | `operations` | which generation has which operation at a provider; callbacks that came first |
//! | `runs` | the runs of each route: the measures of policy `auto` and its report |
//! | `sweep` | what the alarm does: ask after overdue holds, send what is due |
//! | `tokens` | who may act with which token, and from which page |
//! | `webhooks` | what the tenant is told, and its deliveries |
//! | `wake` | when the alarm rings |

mod account;
mod answers;
mod books;
mod config;
mod object;
mod operations;
mod runs;
mod schema;
mod store;
mod sweep;
mod tokens;
mod wake;
mod webhooks;

pub use object::TenantObject;

use account::Settings;
use holdfast_core::refusal::Refusal;
use runs::Measures;
use store::Store;
use wake::Wake;
use worker::{Env, Error, State};

/// The parts of the object. No borrow of theirs outlives a step, and rows are never kept in memory.
#[derive(Debug)]
struct Tenant {
    env: Env,
    store: Store,
    settings: Settings,
    wake: Wake,
    measures: Measures,
}

impl Tenant {
    fn new(state: &State, env: Env) -> Self {
        let settings = Settings::new(state.id().name());
        let (store, wake) = (Store::new(state.storage()), Wake::new(state.storage()));
        Self { env, store, settings, wake, measures: Measures::default() }
    }
}

/// Why a call has no positive answer.
#[derive(Debug)]
enum Failure {
    /// The rules refuse it: the caller is told why.
    Refused(Refusal),
    /// Storage or platform failed: the call fails, and the caller may repeat it.
    Broken(Error),
}

impl From<Refusal> for Failure {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

impl From<Error> for Failure {
    fn from(error: Error) -> Self {
        Self::Broken(error)
    }
}
