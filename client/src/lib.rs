//! The event broker over HTTP, for Rust programs.
//!
//! - [`Client`] is a broker over HTTP: it implements [`contract::EventBroker`], and every refusal is a [`contract::Error`].
//!   Beyond that trait it follows a topic ([`Client::follow`]) and imports history ([`Client::import`]).
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
mod event_stream;
pub mod handler;
mod import_report;
mod path;
mod problem;
pub mod projection;
mod query;
mod requests;
mod response;
mod retry;
mod retry_schedule;
mod sse;
mod stop;
mod tls;
mod topic_stream;
mod transport;

pub use client::{Client, WaitFor};
pub use event_stream::{EventStream, StreamedEvent};
pub use import_report::{ImportCounts, ImportLine, ImportReport};
pub use retry::RetryPolicy;

/// The programs in the document are compiled by the doc tests.
#[cfg(doctest)]
#[doc = include_str!("../../docs/clients.md")]
struct ClientDocument;
