//! Events: publishing and reading.
//!
//! - Whatever can be checked without the log is checked before the writer is bothered ([`prepare`]).
//! - The idempotency check, the expected-sequence check and the append are one decision ([`publish`]); the idempotency
//!   check comes first, so a retry gets its first answer.
//! - Reading never waits for the writer: it goes to the log, up to the tail the ledger shows ([`read`]).

mod bundle;
pub(crate) mod cloud_event_id;
mod fingerprint;
mod prepare;
mod publish;
mod read;
mod repeat;
mod spread;
mod text;

pub(crate) use bundle::{Bundle, Bundled};
pub(crate) use fingerprint::Parts;
pub(crate) use prepare::{Policy, destination, draft_of};
pub(crate) use publish::{Intake, stored_event};
pub(crate) use read::{Reader, stored_at, unreadable};
pub(crate) use repeat::{Repeat, Repeating, original_of};
