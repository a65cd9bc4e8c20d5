//! The configuration by the operator: the place of the log, what is declared, what is permitted, and the limits.
//!
//! - [`Config`] has plain values, which were checked and have a known source.
//! - [`load`] combines the layers; later ones win: built-in defaults, the file, the environment, flags.
//! - An unknown key, a value of another type and a value out of range are refused, each with its place.
//! - [`keys::KEYS`] lists every key; documentation, checks and suggestions are made from it.
//!
//! The caller reads the environment and the command line; the modules that a key concerns do what it says.

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
mod tls;
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
pub use tls::{ClientAuth, TlsConfig};
pub use web::{HostPattern, WebAuthority, WebHost, WebOrigin};

use contract::{NewEventType, NewTopic, TopicId};
use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The broker's configuration. `Default` is a broker in memory that accepts registered types only.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Config {
    /// The place of the log, and how long events stay in it.
    pub storage: StorageConfig,
    /// How large a batch may be.
    pub batch: BatchConfig,
    /// How long a long poll waits.
    pub polling: PollingConfig,
    /// Readers.
    pub consumer: ConsumerConfig,
    /// Claims of events.
    pub claims: ClaimsConfig,
    /// Deliveries to subscribers.
    pub dispatch: DispatchConfig,
    /// The HTTP server.
    pub server: HttpServerConfig,
    /// Log lines.
    pub logging: LoggingConfig,
    /// Event types.
    pub types: TypesConfig,
    /// Identifiers.
    pub gts: GtsConfig,
    /// Tenants.
    pub tenant: TenantConfig,
    /// Repeated requests.
    pub idempotency: IdempotencyConfig,
    /// Topics registered at start.
    pub topics: Vec<NewTopic>,
    /// Event types registered at start.
    pub event_types: Vec<NewEventType>,
    /// The topics of events whose type names none.
    pub routes: Vec<TopicRoute>,
    /// The topic of all other events; registered at start.
    pub default_topic: Option<TopicId>,
    /// Periodic work.
    pub maintenance: MaintenanceConfig,
}

impl Config {
    /// A broker with its log in this folder.
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
