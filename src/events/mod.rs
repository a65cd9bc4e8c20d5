//! Events: publishing and reading.
//!
//! - Everything that can be checked without the log is checked before the writer gets the request ([`prepare`]).
//! - The idempotency check, the expected-sequence check and the append are one decision ([`publish_decision`]). The
//!   idempotency check comes first, so a retry gets the first result.
//! - Reading never waits for the writer: it goes to the log, up to the tail that the ledger shows ([`read`]).

mod caller_context;
pub(crate) mod cloud_event_id;
mod damaged;
mod data_check;
mod envelope;
mod fingerprint;
mod import;
mod outcome;
mod prepare;
mod produced;
mod publish;
mod publish_decision;
mod read;
mod released_data;
mod removed;
mod republish;
mod scan;
mod scan_start;
mod split_by_log;

pub(crate) use caller_context::CallerContext;
pub(crate) use damaged::{EventLookup, TopicScanPage, damage_detail, find_event, is_damage, read_page, type_by_header};
pub(crate) use fingerprint::FingerprintBuilder;
pub(crate) use import::CopyLock;
pub(crate) use outcome::stored_event;
pub(crate) use prepare::{PublishRules, destination, draft_of};
pub(crate) use produced::{ProducedEvents, ProducedOutcome};
pub(crate) use read::{EventReader, stored_at};
pub(crate) use removed::removed;
pub(crate) use republish::{RepublishAs, RepublishEvents, original_of};
pub(crate) use scan_start::before_earliest;
