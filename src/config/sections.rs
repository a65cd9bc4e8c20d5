//! The sections of the configuration, one struct each, with their defaults.
//!
//! - Every member is a key of [`super::keys::KEYS`], with the same spelling; a test compares the two.
//! - Units are suffixes of a name (`max_timeout_secs`).

use super::tls::TlsConfig;
use contract::{ClaimOrder, IdPattern, IdentifierProfile, TopicId, limits};
use serde::{Deserialize, Serialize};
use std::fmt;
use std::net::{Ipv4Addr, SocketAddr};
use std::path::PathBuf;

/// How large a batch may be.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BatchConfig {
    /// Most events in one batch.
    pub max_size: usize,
    /// Largest batch: the sum of its events' `data`, in bytes.
    pub max_payload_bytes: usize,
}

impl Default for BatchConfig {
    fn default() -> Self {
        Self { max_size: limits::BATCH_EVENTS_MAX, max_payload_bytes: limits::BATCH_BYTES_MAX }
    }
}

/// How long a long poll waits.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PollingConfig {
    /// How long a poll without a timeout waits, in seconds.
    pub default_timeout_secs: u64,
    /// The longest timeout of a poll, in seconds.
    pub max_timeout_secs: u64,
    /// Without effect: polls are woken by the append. Accepted so that existing configurations stay valid.
    pub poll_interval_ms: u64,
}

impl Default for PollingConfig {
    fn default() -> Self {
        Self {
            default_timeout_secs: limits::WAIT_SECONDS_MAX,
            max_timeout_secs: limits::WAIT_SECONDS_MAX,
            poll_interval_ms: 100,
        }
    }
}

/// Readers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerConfig {
    /// Events in a response if the request has no `limit`.
    pub default_limit: usize,
    /// The largest `limit` of a request.
    pub max_limit: usize,
    /// How long a consumer lives without polling, unless it has its own timeout, in seconds.
    pub session_timeout_secs: i64,
}

impl Default for ConsumerConfig {
    fn default() -> Self {
        Self {
            default_limit: limits::READ_EVENTS_MAX,
            max_limit: limits::READ_EVENTS_MAX,
            session_timeout_secs: limits::SESSION_SECONDS_DEFAULT,
        }
    }
}

/// Claims, unless the claim or its handler has its own settings.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimsConfig {
    /// How long a claim is valid without a heartbeat, in seconds.
    pub lease_secs: u64,
    /// How often a worker should send a heartbeat, in seconds.
    pub heartbeat_secs: u64,
    /// After this many failed attempts an event becomes a dead letter.
    pub max_attempts: u32,
    /// The back-off after the first failure, in seconds; it doubles with every further one.
    pub backoff_secs: u64,
    /// The order of the events of one aggregate.
    pub order: ClaimOrder,
    /// After how many days without use handlers and groups are removed; 0: never.
    pub unused_days: u64,
}

impl Default for ClaimsConfig {
    fn default() -> Self {
        Self {
            lease_secs: limits::LEASE_SECONDS_DEFAULT,
            heartbeat_secs: limits::HEARTBEAT_SECONDS_DEFAULT,
            max_attempts: limits::ATTEMPTS_DEFAULT,
            backoff_secs: limits::BACKOFF_SECONDS_DEFAULT,
            order: ClaimOrder::Latest,
            unused_days: limits::UNUSED_DAYS_DEFAULT,
        }
    }
}

/// Deliveries to subscribers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchConfig {
    /// Whether this broker delivers.
    pub enabled: bool,
    /// Whether targets in private networks may be called.
    pub allow_private_targets: bool,
    /// Hosts that may be called; empty: all.
    pub allowed_hosts: Vec<String>,
    /// Most deliveries at the same time in the default pool.
    pub concurrency: u32,
    /// Most jobs of one log that have failed and wait, or were given up.
    pub max_open_jobs: u32,
    /// The lease under which one of several brokers delivers the jobs of a log, in seconds.
    pub lease_secs: u64,
    /// The name by which the broker identifies itself when it requests a receiver's consent.
    pub origin: String,
    /// A PEM file with root certificates that are trusted in addition to the machine's.
    pub ca_file: Option<PathBuf>,
    /// The key that encrypts the secrets of subscriptions.
    pub secret_key: Option<SecretKey>,
}

impl Default for DispatchConfig {
    fn default() -> Self {
        Self {
            enabled: true,
            allow_private_targets: false,
            allowed_hosts: Vec::new(),
            concurrency: limits::POOL_CONCURRENCY_DEFAULT,
            max_open_jobs: limits::OPEN_JOBS_MAX,
            lease_secs: 15,
            origin: "event-broker".to_owned(),
            ca_file: None,
            secret_key: None,
        }
    }
}

/// A secret of the operator. It is never shown.
#[derive(Clone, PartialEq, Eq, Deserialize)]
#[serde(transparent)]
pub struct SecretKey(pub String);

impl fmt::Debug for SecretKey {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("SecretKey(***)")
    }
}

impl Serialize for SecretKey {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.serialize_str("***")
    }
}

/// The HTTP server.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct HttpServerConfig {
    /// The address it listens on; port 0 selects a free one.
    pub listen: SocketAddr,
    /// Listen beyond loopback without authentication.
    pub insecure: bool,
    /// Hosts that it accepts besides loopback names and the address it listens on.
    pub allowed_hosts: Vec<String>,
    /// Most open connections.
    pub max_connections: usize,
    /// Most open connections from one address.
    pub max_connections_per_address: usize,
    /// Most polls, streams and other requests that wait at the same time, over all connections.
    pub max_waits: usize,
    /// Most waiting requests from one address.
    pub max_waits_per_address: usize,
    /// The longest time until a request's head is complete, from the end of the last request; a connection may be idle
    /// this long.
    pub header_timeout_secs: u64,
    /// The longest wait between two parts of a body, in seconds.
    pub body_timeout_secs: u64,
    /// The longest time for a whole request, in seconds; not for polls, streams and `:test`.
    pub request_timeout_secs: u64,
    /// How long a client may accept nothing of what is sent to it, in seconds.
    pub write_timeout_secs: u64,
    /// How long an import continues while the client does not read its report, in seconds.
    pub import_unread_timeout_secs: u64,
    /// The largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Most bytes of request bodies in memory at the same time, over all connections.
    pub max_inflight_bytes: usize,
    /// Most bytes of events in responses that are being sent at the same time, over all connections.
    pub max_answer_bytes: usize,
    /// Most bytes of connections themselves: their buffers, and requests over HTTP/2.
    pub max_connection_bytes: usize,
    /// The share of these bytes that one address may hold, in percent.
    pub address_share_percent: usize,
    /// How long a stopping server waits for requests in flight, in seconds.
    pub drain_timeout_secs: u64,
    /// Encryption of connections. Boxed, so that the configuration stays small while it is moved.
    pub tls: Box<TlsConfig>,
    /// Browsers.
    pub cors: CorsConfig,
    /// Whether responses are compressed for clients that accept it.
    pub compression: bool,
    /// Threads that serve requests; absent: by the number of cores.
    pub threads: Option<usize>,
}

impl Default for HttpServerConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from((Ipv4Addr::LOCALHOST, 8087)),
            insecure: false,
            allowed_hosts: Vec::new(),
            max_connections: 25_000,
            max_connections_per_address: 12_500,
            max_waits: 25_000,
            max_waits_per_address: 12_500,
            header_timeout_secs: 30,
            body_timeout_secs: 30,
            request_timeout_secs: 60,
            write_timeout_secs: 30,
            import_unread_timeout_secs: 600,
            max_header_bytes: 32 * 1024,
            max_inflight_bytes: 48 * 1024 * 1024,
            max_answer_bytes: 48 * 1024 * 1024,
            max_connection_bytes: 96 * 1024 * 1024,
            address_share_percent: 50,
            drain_timeout_secs: 25,
            tls: Box::default(),
            cors: CorsConfig::default(),
            compression: true,
            threads: None,
        }
    }
}

/// Which web pages may call the server.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorsConfig {
    /// Origins such as `https://example.com`.
    pub allowed_origins: Vec<String>,
}

/// Event types.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TypesConfig {
    /// What happens to events of types nobody registered.
    pub unregistered: UnregisteredPolicy,
}

/// What happens to events of types nobody registered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum UnregisteredPolicy {
    /// They are refused.
    #[default]
    Refuse,
    /// They are stored without validation.
    Accept,
}

/// Identifiers.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct GtsConfig {
    /// Which identifiers are accepted.
    pub profile: IdentifierProfile,
}

/// Tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantConfig {
    /// Whether every event must have a tenant.
    pub required: bool,
}

impl Default for TenantConfig {
    fn default() -> Self {
        Self { required: true }
    }
}

/// Repeated requests.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdempotencyConfig {
    /// How long the response to a request with an `Idempotency-Key` is stored, in hours.
    pub key_retention_hours: u32,
}

impl IdempotencyConfig {
    /// This retention in milliseconds.
    #[must_use]
    pub fn key_retention_millis(&self) -> i64 {
        i64::from(self.key_retention_hours) * 3_600_000
    }
}

impl Default for IdempotencyConfig {
    fn default() -> Self {
        Self { key_retention_hours: limits::KEY_HOURS_DEFAULT }
    }
}

/// The topic of events whose type matches; the most specific route wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRoute {
    /// The types.
    #[serde(rename = "type")]
    pub pattern: IdPattern,
    /// The topic.
    pub topic: TopicId,
}
