//! One tenant: keys, routes, holds, ledger, audit chain, due list.
//!
//! | module | does |
//! |---|---|
//! | `object` | reads a call, asks for the answer, replies |
//! | `answers` | one function per call: load rows, apply the rules of [`holdfast_core::tenant`], store rows |
//! | `account` | the tenant as configured, read once |
//! | `store`, `schema` | rows in SQLite |
//! | `sweep` | what the alarm does: ask after overdue holds |
//! | `wake` | when the alarm rings |

mod account;
mod answers;
mod object;
mod schema;
mod store;
mod sweep;
mod wake;

pub use object::TenantObject;

use holdfast_core::refusal::Refusal;
use worker::Error;

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
