//! The event broker: publishes, numbers, stores, reads and replays typed events.
//!
//! - Every change is a record appended to a log, and all state is a fold of the log. There is one log, unless a topic has a
//!   log of its own.
//! - `decide` and `apply` are pure. Writes go through the writer and the appender of the [`ledger`].
//! - Nothing is acknowledged, shown or used to refuse another request before it is durable.
//! - Time, randomness and disk are passed in as values ([`Clock`], `log::file::Disk`).
//!
//! Modules: [`Broker`] is the entry point in a process, and `rest` the one over HTTP. `topics`, `types`, `events`,
//! `consumers`, `shared_groups`, `claims`, `dead_letters`, `subscriptions` and `projections` implement the operations;
//! `filters` selects events; `delivery` makes one delivery attempt to a URL, and `dispatch` decides when; `idempotency` finds
//! the stored reply of a request; `logs` knows which log a topic is in; `ledger` owns the order and the state of one log. SQL
//! is in the crate `log-postgres`.

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
mod secrets;
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
