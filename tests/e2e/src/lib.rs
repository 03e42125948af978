//! End-to-end harness: serves the real Wasm in real workerd, on local storage, beside the provider simulator.
//!
//! A test starts a [`World`], talks to it through a [`Client`] and asks the simulator what the provider saw. Clients
//! that misbehave (leave at byte *k*, stop reading) use the raw [`http::Exchange`]. Nothing sleeps as a means of
//! synchronisation: [`wait_for`] polls a condition until a deadline and reports what it saw last.
//!
//! | module | what it is |
//! |---|---|
//! | [`world`] | one workerd with its storage folder and its simulator: start, kill, restart |
//! | [`config`] | the operator's and the tenants' configuration, client keys, prices |
//! | [`client`] | a tenant's view over HTTP: chat, generation, stream, balance |
//! | [`chat`] | one request of an OpenAI client |
//! | [`jobs`] | operations in the background: requests, and what the provider was asked about them |
//! | [`http`] | a small HTTP/1.1 client on a socket, exact to the byte |
//! | [`simulator`] | what the provider sends and what it saw |
//! | [`bytes`] | comparing bodies |
//! | [`sse`] | reading event streams, and the ends that a broken stream must have |
//! | [`recordings`] | the recorded provider streams, where they are at hand |
//! | [`webhook`] | a tenant's webhook: what came, and whether it is signed |
//! | [`callback`] | a provider that calls back, by hand |
//! | [`hand`] | a provider that says whatever a test wants |
//! | [`sdk`] | runs the official SDKs |
//! | [`wait`], [`seed`], [`gate`] | polling, randomness with a printed seed, bounded parallelism |

pub mod bytes;
pub mod callback;
pub mod chat;
pub mod client;
pub mod config;
pub mod gate;
pub mod hand;
pub mod http;
pub mod jobs;
pub mod recordings;
pub mod sdk;
pub mod seed;
pub mod simulator;
pub mod sse;
pub mod wait;
pub mod webhook;
pub mod world;

pub use chat::{Api, Chat};
pub use client::{Balance, Client, Reply, assert_completed, assert_estimated};
pub use config::{Route, Tenant, price_micros};
pub use seed::{Seed, unique};
pub use simulator::{LogEntry, Simulator};
pub use wait::{now_ms, wait_for, wait_for_within};
pub use world::{Options, World};
