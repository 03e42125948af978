//! The tenant's document: its form, its faults, its routes, its versions.
#![allow(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::indexing_slicing,
    clippy::arithmetic_side_effects,
    reason = "a test fails by panicking"
)]

#[path = "config/capabilities.rs"]
mod capabilities;
#[path = "config/faults.rs"]
mod faults;
#[path = "config/properties.rs"]
mod properties;
#[path = "config/routing.rs"]
mod routing;
#[path = "config/schema.rs"]
mod schema;
#[path = "config/versions.rs"]
mod versions;
#[path = "config/world.rs"]
mod world;
