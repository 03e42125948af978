//! Webhooks to the tenant: what it is told, where, and how often it is tried (Standard Webhooks 1.0).
//!
//! A reservation is the author of what is told about its generation: its transition makes a [`Notice`], the body that is
//! sent byte for byte on every attempt. It travels with the posting of that transition, or by itself where there is none.
//! The tenant's side adds a [`Delivery`], the schedule of attempts.
//!
//! | question | module |
//! |---|---|
//! | which transition is told, and what about it? | [`crate::reservation`], `announce` |
//! | which bytes are sent? | [`event`] |
//! | may it be sent there? | [`url`] |
//! | is there anyone to tell, and signed by what? | [`endpoint`] |
//! | when is it tried, and what does the answer mean? | [`delivery`] |
//! | what does the API show of it? | [`view`] |
//! | how is it signed? | [`crate::signature`] |

pub mod delivery;
pub mod endpoint;
pub mod event;
pub mod retry_after;
pub mod url;
pub mod view;

pub use delivery::{Answer, Attempt, DeadReason, Delivery, DeliveryState, Finished, Schedule, StateName, Step};
pub use endpoint::{Disabled, DisabledBecause, Endpoint, Rotation, Secrets, StoredSecret, WebhookConfig};
pub use event::{Crowd, EventType, Notice, Recorded, record};
pub use retry_after::retry_after_ms;
pub use url::{Reach, UrlFault, check_url};
pub use view::{DeliveryPage, DeliveryView, WebhookView};
