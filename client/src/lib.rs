//! The event broker over HTTP, for Rust programs.
//!
//! - [`Client`] asks a broker: it is a [`contract::EventBroker`], and every refusal is a [`contract::Error`].
//! - What may be repeated is, when the broker is full, away or restarting, and not longer than [`Retry`] and
//!   [`Client::within`] allow.
//! - [`handler::Runner`] does a piece of work once per event: claimed, fenced, in order, told to the broker.
//! - [`projection::Runner`] keeps a view up to date: it reads, applies in order, and tells the broker how far it is.
//!
//! What the work is, and where a view is kept, is the program's own business ([`handler::Handle`],
//! [`projection::Project`]).

mod api;
mod client;
pub mod connection;
pub mod handler;
mod path;
mod problem;
pub mod projection;
mod query;
mod requests;
mod response;
mod retry;
mod stop;
mod transport;

pub use client::{Client, WaitFor};
pub use retry::RetryPolicy;

/// The programs in the document are compiled with the tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/clients.md")]
struct Document;
