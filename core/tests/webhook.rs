//! Webhooks to the tenant: where they may point, what is sent, and when. Numbers of faults are those of the reliability
//! reference (48: what receivers answer; 49: a receiver that is down for days; 50: a sender that dies).
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "webhook/deliveries.rs"]
mod deliveries;
#[path = "webhook/endpoints.rs"]
mod endpoints;
#[path = "webhook/events.rs"]
mod events;
#[path = "webhook/properties.rs"]
mod properties;
#[path = "webhook/urls.rs"]
mod urls;
