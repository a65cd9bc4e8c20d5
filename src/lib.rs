//! The event broker: typed events, published, numbered, kept durably in order, read and replayed.
//!
//! - Everything that happens is a record appended to a log, and all state is a fold of it. There is one log, unless a
//!   topic asks for another.
//! - `decide` and `apply` are pure; only the writer of the [`ledger`] does I/O.
//! - Nothing is acknowledged, shown or used to refuse another request before it is durable.
//! - Time, randomness and disk come in as values ([`Clock`], `log::file::Disk`).
//!
//! Rooms: [`Broker`] is the door; `topics`, `types`, `events`, `consumers`, `groups`, `claims`, `dead_letters`,
//! `subscriptions` and `projections` hold the verbs; `filters` says which events a reader wants; `delivery` brings one to a
//! URL, and `dispatch` says when; `answers` finds what a request was answered before; `logs` knows which log a topic lives
//! in; `ledger` owns one log's order and state. `rest` is the door for everybody else. SQL lives elsewhere.

mod broker;
mod claims;
mod clock;
pub mod config;
mod consumers;
mod dead_letters;
mod delivery;
mod dispatch;
mod events;
pub mod filters;
mod idempotency;
mod lag;
pub mod ledger;
mod logs;
mod memory;
mod projections;
pub mod rest;
mod shared_groups;
mod subscriptions;
mod topics;
mod types;

pub use broker::{
    Broker, BrokerOpener, BrokerOutage, BrokerSlot, OpenError, SlotState, Supervisor, check_declared, opener,
};
pub use clock::{Clock, ClockHold, ClockReading, LogClock, ManualClock, SystemClock, TrustedClock};
pub use config::{Config, StorageConfig, TopicRoute, UnregisteredPolicy};
pub use dispatch::pause_dispatch;
pub use ledger::ReclaimReport;
pub use logs::{
    LogFailure, RepairLosses, STATE_FOLDER, SalvageReport, acknowledged_state, open_folder, pending_repair, salvage,
};
pub use subscriptions::KEY_FILE;
