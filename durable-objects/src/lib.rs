//! The Durable Objects of Holdfast and what the edge shares with them: thin shells that load, apply, store, arm and
//! reply. Rules live in `holdfast-core`.
//!
//! | module | room |
//! |---|---|
//! | [`reservation`] | one generation: aggregate, chunk log, driver, readers, outbox |
//! | [`tenant`] | one tenant: keys, routes, holds, ledger, due list |
//! | [`directory`] | the list of tenants |
//! | [`pump`] | from the provider's body to a log; used by the object and by the edge |
//! | [`egress`] | the only place that calls a provider |
//! | [`breakers`] | which providers are left alone for a while |
//! | [`rpc`] | calls between edge and objects |
//! | [`schema`] | versions of the objects' tables |

#![forbid(unsafe_code)]

pub mod breakers;
pub mod clock;
pub mod directory;
pub mod egress;
pub mod notify;
pub mod pipe;
pub mod pump;
pub mod reservation;
pub mod rpc;
pub mod schema;
pub mod settings;
pub mod sql;
pub mod tenant;
#[cfg(feature = "test-hooks")]
pub mod test_hooks;

pub use directory::DirectoryObject;
pub use reservation::ReservationObject;
pub use tenant::TenantObject;
