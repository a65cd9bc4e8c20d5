//! The event broker over HTTP, for Rust programs.
//!
//! - [`Client`] asks a broker: the contract's types go in and come out, every refusal is a [`contract::Error`].
//! - What may be repeated is, when the broker is full, away or restarting, and not longer than [`Retry`] allows.
//! - [`projection::Runner`] keeps a view up to date: it reads, applies in order, and tells the broker how far it is.
//!
//! What a view is and where it is kept is the program's own business ([`projection::Project`]).

mod answer;
mod client;
mod problem;
pub mod projection;
mod query;
mod retry;
mod stop;
mod transport;
mod verbs;

pub use client::{Client, WaitFor};
pub use retry::Retry;
