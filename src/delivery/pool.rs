//! The connection pool: connections are kept for the next request, per origin and client certificate, within limits.
//!
//! - Each target has an HTTP client of its own; the least recently used ones are dropped, and their idle connections
//!   closed.
//! - Past the maximum number of connections, each request drops one more target. Requests in flight are never aborted:
//!   their number is limited by the caller.
//! - An idle connection is kept for less time than receivers commonly keep theirs, or a request would meet one that is
//!   just being closed.

use super::DeliveryPolicy;
use super::connect::{ConnectSettings, OriginConnector};
use super::credentials::ClientIdentity;
use super::failure::{DeliveryFailure, ErrorClass};
use super::lru::LruMap;
use super::target::{DeliveryTarget, TargetOrigin};
use super::tls::TrustStore;
use bytes::Bytes;
use http_body_util::Full;
use hyper_util::client::legacy;
use hyper_util::rt::{TokioExecutor, TokioTimer};
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

pub(super) type PooledClient = legacy::Client<OriginConnector, Full<Bytes>>;

/// Requests with the same key may share a connection.
type PoolKey = (TargetOrigin, Option<blake3::Hash>);

/// The clients of all targets.
pub(super) struct ClientPool {
    clients: Mutex<LruMap<PoolKey, PooledClient>>,
    builder: legacy::Builder,
    settings: Arc<ConnectSettings>,
    trust: TrustStore,
    connections_max: usize,
    allowed_hosts: Vec<String>,
}

/// HTTP/2 windows, per stream and per connection, in bytes.
const STREAM_WINDOW_BYTES: u32 = 64 * 1024;
const CONNECTION_WINDOW_BYTES: u32 = 1024 * 1024;
/// Largest head of a response, in bytes.
const HEAD_BYTES_MAX: u32 = 64 * 1024;
/// HTTP/2 keep-alive: a ping this often, and the time for its answer.
const PING_INTERVAL: Duration = Duration::from_secs(15);
const PING_TIMEOUT: Duration = Duration::from_secs(10);

impl ClientPool {
    pub(super) fn new(policy: &DeliveryPolicy, settings: ConnectSettings) -> Self {
        let mut builder = legacy::Client::builder(TokioExecutor::new());
        builder
            .timer(TokioTimer::new())
            .pool_timer(TokioTimer::new())
            .pool_idle_timeout(policy.idle_timeout)
            .pool_max_idle_per_host(policy.idle_per_target_max)
            .http1_max_buf_size(HEAD_BYTES_MAX as usize)
            .http2_max_header_list_size(HEAD_BYTES_MAX)
            .http2_initial_stream_window_size(STREAM_WINDOW_BYTES)
            .http2_initial_connection_window_size(CONNECTION_WINDOW_BYTES)
            .http2_keep_alive_interval(PING_INTERVAL)
            .http2_keep_alive_timeout(PING_TIMEOUT);
        Self {
            clients: Mutex::new(LruMap::new(policy.targets_max)),
            builder,
            settings: Arc::new(settings),
            trust: TrustStore::new(policy.extra_roots.clone()),
            connections_max: policy.connections_max,
            allowed_hosts: policy.allowed_hosts.clone(),
        }
    }

    /// The client for a target, if the target may be called at all.
    pub(super) fn client(
        &self,
        target: &DeliveryTarget,
        identity: Option<&ClientIdentity>,
    ) -> Result<PooledClient, DeliveryFailure> {
        target.permit(self.settings.allow_private)?;
        if !target.is_among(&self.allowed_hosts) {
            let message = "The target's host is not in `dispatch.allowed_hosts`; nothing was sent.";
            return Err(DeliveryFailure::new(ErrorClass::TargetRefused, message).for_good());
        }
        let identity = identity.filter(|_| target.origin().encrypted);
        let key = (target.origin().clone(), identity.map(|identity| identity.fingerprint));
        if let Some(client) = self.cached(&key) {
            return Ok(client);
        }
        // Without the lock: the first client reads the machine's certificates.
        let made = self.make(target.origin(), identity)?;
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(client) = clients.get(&key) {
            return Ok(client);
        }
        clients.put(key, made.clone());
        Ok(made)
    }

    /// Another client for a target, instead of one whose kept connections are being closed by the receiver.
    pub(super) fn renew(
        &self,
        target: &DeliveryTarget,
        identity: Option<&ClientIdentity>,
    ) -> Result<(), DeliveryFailure> {
        let identity = identity.filter(|_| target.origin().encrypted);
        let key = (target.origin().clone(), identity.map(|identity| identity.fingerprint));
        let made = self.make(target.origin(), identity)?;
        self.clients.lock().unwrap_or_else(PoisonError::into_inner).put(key, made);
        Ok(())
    }

    fn cached(&self, key: &PoolKey) -> Option<PooledClient> {
        let mut clients = self.clients.lock().unwrap_or_else(PoisonError::into_inner);
        let kept = clients.get(key);
        if self.settings.open.load(Ordering::Relaxed) >= self.connections_max {
            clients.forget_oldest();
        }
        kept
    }

    fn make(&self, origin: &TargetOrigin, identity: Option<&ClientIdentity>) -> Result<PooledClient, DeliveryFailure> {
        let encryption = origin.encrypted.then(|| self.trust.config(identity)).transpose()?;
        let connector =
            OriginConnector { settings: Arc::clone(&self.settings), origin: Arc::new(origin.clone()), encryption };
        Ok(self.builder.build(connector))
    }

    #[cfg(test)]
    pub(super) fn targets(&self) -> usize {
        self.clients.lock().unwrap().len()
    }

    #[cfg(test)]
    pub(super) fn open(&self) -> Arc<std::sync::atomic::AtomicUsize> {
        Arc::clone(&self.settings.open)
    }
}
