//! The sections of the configuration, one struct each, with what is in force when nobody says otherwise.
//!
//! - Every member is a key of [`super::keys::KEYS`], spelt the same; a test holds the two against each other.
//! - Units are suffixes of a name (`max_timeout_secs`).

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
    /// How long a poll waits that does not say, in seconds.
    pub default_timeout_secs: u64,
    /// The longest a poll may ask to wait, in seconds.
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

/// How readers are served.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ConsumerConfig {
    /// Events in an answer when the request names no `limit`.
    pub default_limit: usize,
    /// The largest `limit` a request may name.
    pub max_limit: usize,
    /// How long a consumer lives without polling unless it says otherwise, in seconds.
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

/// How work on events is tried, where neither the claim nor its handler says otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClaimsConfig {
    /// How long a claim holds without a heartbeat, in seconds.
    pub lease_secs: u64,
    /// How often a worker is told to send a heartbeat, in seconds.
    pub heartbeat_secs: u64,
    /// After this many failed attempts an event is a dead letter.
    pub max_attempts: u32,
    /// The wait after a first failure, in seconds; it doubles with every further one.
    pub backoff_secs: u64,
    /// What order the events of one aggregate keep.
    pub order: ClaimOrder,
    /// After so many days handlers and groups that nobody uses are forgotten; 0: never.
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

/// How events are pushed to subscribers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DispatchConfig {
    /// Whether this broker pushes at all.
    pub enabled: bool,
    /// Whether targets in private networks may be called.
    pub allow_private_targets: bool,
    /// Hosts that may be called; empty: all.
    pub allowed_hosts: Vec<String>,
    /// Most deliveries at a time in the default pool.
    pub concurrency: u32,
    /// Most jobs of one log that failed and wait, or were given up.
    pub max_open_jobs: u32,
    /// How long one of several brokers has the jobs of a log to itself, in seconds.
    pub lease_secs: u64,
    /// What the broker calls itself when it asks a receiver for its consent.
    pub origin: String,
    /// A PEM file with roots that are trusted besides the machine's.
    pub ca_file: Option<PathBuf>,
    /// What the secrets of subscriptions are sealed with.
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

/// A secret of the operator's. Never shown.
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
    /// Where it listens; port 0 takes a free one.
    pub listen: SocketAddr,
    /// Listen beyond loopback without authentication.
    pub insecure: bool,
    /// Hosts it answers for besides loopback names and the address it listens on.
    pub allowed_hosts: Vec<String>,
    /// Most open connections.
    pub max_connections: usize,
    /// Most open connections from one address.
    pub max_connections_per_address: usize,
    /// Most polls, streams and other requests that wait at the same time, over all connections.
    pub max_waits: usize,
    /// Most of them from one address.
    pub max_waits_per_address: usize,
    /// How long the head of a request may take, counted from the end of the last one: a connection may idle this long.
    pub header_timeout_secs: u64,
    /// The longest wait between two pieces of a body, in seconds.
    pub body_timeout_secs: u64,
    /// How long a request may take altogether, in seconds; not for polls and streams.
    pub request_timeout_secs: u64,
    /// How long a client may take nothing of what is sent to it, in seconds.
    pub write_timeout_secs: u64,
    /// How long an import goes on whose report the client does not read, in seconds.
    pub import_unread_timeout_secs: u64,
    /// The largest head of a request, in bytes.
    pub max_header_bytes: usize,
    /// Bytes of request bodies held at the same time, over all connections.
    pub max_inflight_bytes: usize,
    /// Bytes of events in answers that are being sent at the same time, over all connections.
    pub max_answer_bytes: usize,
    /// How much of these one address may hold, in percent.
    pub address_share_percent: usize,
    /// How long a stopping server waits for what is in flight, in seconds.
    pub drain_timeout_secs: u64,
    /// Browsers.
    pub cors: CorsConfig,
    /// Whether answers are compressed for clients that take it.
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
            max_inflight_bytes: 96 * 1024 * 1024,
            max_answer_bytes: 64 * 1024 * 1024,
            address_share_percent: 50,
            drain_timeout_secs: 25,
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
    /// How strict they are.
    pub profile: IdentifierProfile,
}

/// Tenants.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TenantConfig {
    /// Whether an event must name its tenant.
    pub required: bool,
}

impl Default for TenantConfig {
    fn default() -> Self {
        Self { required: true }
    }
}

/// Requests that are sent again.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct IdempotencyConfig {
    /// How long the answer to a request with an `Idempotency-Key` is kept, in hours.
    pub key_retention_hours: u32,
}

impl IdempotencyConfig {
    /// The same in milliseconds.
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

/// Events whose type matches go to this topic; the most specific route wins.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct TopicRoute {
    /// Which types.
    #[serde(rename = "type")]
    pub pattern: IdPattern,
    /// Where to.
    pub topic: TopicId,
}
