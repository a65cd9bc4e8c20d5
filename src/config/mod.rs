//! What an operator decides: where the log lies, what is declared, what is let through, how much is too much.
//!
//! - [`Config`] is plain values. Whatever is in force was typed, checked and has a source by the time it is one.
//! - [`load`] lays the layers over each other, weakest first: built-in defaults, the file, the environment, flags.
//! - A key that is not known, a value of another type and a value out of range are refused, each with its place.
//! - [`keys::KEYS`] lists every key; docs, checks and suggestions are made from it.
//!
//! Reading the environment and the command line is the caller's business; doing what a key says is the room's it names.

mod file_budget;
mod key;
pub mod keys;
mod load;
mod logging;
mod maintenance;
mod provenance;
mod sections;
mod storage;
mod suggestion;
mod validate;
mod web;
mod yaml;

pub use file_budget::{CONNECTIONS_MIN, FileBudget};
pub use load::{ConfigError, ConfigProblem, FlagSetting, LoadedConfig, load};
pub use logging::{LogFormat, LoggingConfig};
pub use maintenance::MaintenanceConfig;
pub use provenance::{ValueSource, ValueSources};
pub use sections::{
    BatchConfig, ClaimsConfig, ConsumerConfig, CorsConfig, DispatchConfig, GtsConfig, HttpServerConfig,
    IdempotencyConfig, PollingConfig, SecretKey, TenantConfig, TopicRoute, TypesConfig, UnregisteredPolicy,
};
pub use storage::{DatabaseUrl, StorageConfig, StorageEngine};
pub(crate) use suggestion::likely_name;
pub use web::{HostPattern, WebAuthority, WebHost, WebOrigin};

use contract::{NewEventType, NewTopic, TopicId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The broker's configuration. `Default` is a broker in memory that takes registered types only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// Where the log lies, and how long events stay in it.
    pub storage: StorageConfig,
    /// How large a batch may be.
    pub batch: BatchConfig,
    /// How long a long poll waits.
    pub polling: PollingConfig,
    /// How readers are served.
    pub consumer: ConsumerConfig,
    /// How work on events is tried.
    pub claims: ClaimsConfig,
    /// How events are pushed.
    pub dispatch: DispatchConfig,
    /// The HTTP server.
    pub server: HttpServerConfig,
    /// What the program says of itself.
    pub logging: LoggingConfig,
    /// Event types.
    pub types: TypesConfig,
    /// Identifiers.
    pub gts: GtsConfig,
    /// Tenants.
    pub tenant: TenantConfig,
    /// Requests that are sent again.
    pub idempotency: IdempotencyConfig,
    /// Topics registered at start.
    pub topics: Vec<NewTopic>,
    /// Event types registered at start.
    pub event_types: Vec<NewEventType>,
    /// Which topic the events of a type go to, where the type itself does not say.
    pub routes: Vec<TopicRoute>,
    /// Where everything else goes; registered at start.
    pub default_topic: Option<TopicId>,
    /// Chores.
    pub maintenance: MaintenanceConfig,
}

impl Config {
    /// A broker that keeps its log in this folder.
    pub fn folder(path: impl Into<PathBuf>) -> Self {
        Self { storage: StorageConfig::folder(path), ..Self::default() }
    }
}

impl Default for Config {
    fn default() -> Self {
        Self {
            storage: StorageConfig::default(),
            batch: BatchConfig::default(),
            polling: PollingConfig::default(),
            consumer: ConsumerConfig::default(),
            claims: ClaimsConfig::default(),
            dispatch: DispatchConfig::default(),
            server: HttpServerConfig::default(),
            logging: LoggingConfig::default(),
            types: TypesConfig::default(),
            gts: GtsConfig::default(),
            tenant: TenantConfig::default(),
            idempotency: IdempotencyConfig::default(),
            topics: Vec::new(),
            event_types: Vec::new(),
            routes: Vec::new(),
            default_topic: TopicId::parse("gts.hx.core.events.topic.v1~").ok(),
            maintenance: MaintenanceConfig::default(),
        }
    }
}
