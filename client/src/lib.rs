//! The event broker over HTTP, for Rust programs.
//!
//! - [`Client`] is a broker over HTTP: it implements [`contract::EventBroker`], and every refusal is a [`contract::Error`].
//! - Requests are repeated while the broker is overloaded, unavailable or restarting, within the limits of [`RetryPolicy`] and
//!   [`Client::within`].
//! - [`handler::HandlerRunner`] does work once per event: under a claim with a fencing token, in order, with the result
//!   reported to the broker.
//! - [`projection::ProjectionRunner`] keeps a view up to date: it reads, applies in order, and reports its checkpoint.
//! - [`connection`] is the layer of requests and bytes below the client, for tools that print JSON as the broker sends it.
//!
//! The program provides the work ([`handler::EventHandler`]) and the view ([`projection::ProjectionView`]).

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
mod tls;
mod transport;

pub use client::{Client, WaitFor};
pub use retry::RetryPolicy;

/// The programs in the document are compiled by the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/clients.md")]
struct ClientDocument;
