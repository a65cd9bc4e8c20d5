//! Delivery: one attempt to bring one event to one URL, and nothing else.
//!
//! - An attempt always returns a report: everything that can go wrong is an [`AttemptOutcome`] with an [`ErrorClass`],
//!   the status if there was one, and the duration.
//! - Connections go only to addresses of the public internet, unless private ones are allowed. This is checked after
//!   the name was resolved, on the addresses that are dialled, at every connection (`connect`). Redirects are never
//!   followed, proxies never used.
//! - Everything is limited: the time of an attempt, what is read of a response, connections, targets, tokens.
//! - The time is a parameter (`DeliveryRequest::at`); durations are measured with a monotonic clock.
//!
//! When and how often to try, how many attempts run at a time, and what an outcome means for a job is the business of
//! `dispatch`.

mod addresses;
mod breaker;
mod connect;
mod credentials;
mod exchange;
mod failure;
mod handshake;
mod headers;
mod lru;
mod pool;
mod request;
mod resolve;
mod response;
mod signature;
mod target;
#[cfg(test)]
mod tests;
mod tls;
mod tokens;

pub(crate) use breaker::{BreakerChange, CircuitBreakers};
pub(crate) use credentials::{AuthMethod, ClientIdentity, OAuthGrant, roots};
pub(crate) use failure::{DeliveryFailure, ErrorClass};
pub(crate) use handshake::{ConsentAnswer, ConsentRequest};
pub(crate) use headers::{CustomHeaders, check_headers, check_no_credentials};
pub(crate) use request::{DeliveryPayload, DeliveryRequest, EventFormat};
pub(crate) use resolve::Resolve;
pub(crate) use response::AttemptOutcome;
pub(crate) use signature::{WebhookSecret, check_secrets};
pub(crate) use target::{DeliveryTarget, check_target};

use crate::secrets::redact;
use bytes::Bytes;
use connect::ConnectSettings;
use contract::{BoxFuture, Timestamp};
use exchange::ExchangeError;
use http::{HeaderValue, Request, StatusCode};
use http_body_util::Full;
use pool::ClientPool;
use resolve::SystemResolver;
use response::ReceiverResponse;
use rustls::pki_types::CertificateDer;
use std::sync::Arc;
use std::time::Duration;
use tokens::{GrantedToken, TokenCache, TokenFetch};
use tokio::sync::Semaphore;
use tokio::time::Instant;

/// Makes attempts: over HTTP, or as a test says.
pub(crate) trait Deliver: Send + Sync {
    /// Makes one attempt and reports its outcome.
    fn deliver<'a>(&'a self, delivery: DeliveryRequest<'a>) -> BoxFuture<'a, AttemptReport>;

    /// Asks a receiver whether it consents to deliveries.
    fn request_consent<'a>(&'a self, question: ConsentRequest<'a>) -> BoxFuture<'a, ConsentAnswer>;
}

impl Deliver for WebhookDeliverer {
    fn deliver<'a>(&'a self, delivery: DeliveryRequest<'a>) -> BoxFuture<'a, AttemptReport> {
        Box::pin(Self::deliver(self, delivery))
    }

    fn request_consent<'a>(&'a self, question: ConsentRequest<'a>) -> BoxFuture<'a, ConsentAnswer> {
        Box::pin(self.handshake(question))
    }
}

/// What an operator decides about deliveries.
#[derive(Debug, Clone)]
pub(crate) struct DeliveryPolicy {
    /// Whether targets in private networks may be called.
    pub(crate) allow_private_targets: bool,
    /// Hosts that may be called; empty: all.
    pub(crate) allowed_hosts: Vec<String>,
    /// No attempt takes longer, whatever its subscription says.
    pub(crate) timeout_max: Duration,
    /// For a connection: resolving, dialling, encrypting.
    pub(crate) connect_timeout: Duration,
    /// Most bytes that are read of a response.
    pub(crate) response_bytes_max: usize,
    /// Most bytes of it that are kept in the report.
    pub(crate) response_bytes_kept: usize,
    /// Most targets whose connections are pooled.
    pub(crate) targets_max: usize,
    /// Past this number of connections, idle ones are closed.
    pub(crate) connections_max: usize,
    /// Most connections: each is a file descriptor, and the log needs some too.
    pub(crate) sockets_max: usize,
    /// Most idle connections to one target.
    pub(crate) idle_per_target_max: usize,
    /// How long an idle connection is kept.
    pub(crate) idle_timeout: Duration,
    /// The `User-Agent` of the broker.
    pub(crate) user_agent: HeaderValue,
    /// Trusted roots in addition to the machine's ([`roots`] reads them).
    pub(crate) extra_roots: Vec<CertificateDer<'static>>,
}

impl Default for DeliveryPolicy {
    fn default() -> Self {
        Self {
            allow_private_targets: false,
            allowed_hosts: Vec::new(),
            timeout_max: Duration::from_secs(300),
            connect_timeout: Duration::from_secs(10),
            response_bytes_max: 64 * 1024,
            response_bytes_kept: 4 * 1024,
            targets_max: 1024,
            connections_max: 2048,
            sockets_max: 4096,
            idle_per_target_max: 256,
            // Common receivers close idle connections after five seconds.
            idle_timeout: Duration::from_secs(4),
            user_agent: HeaderValue::from_static(concat!("event-broker/", env!("CARGO_PKG_VERSION"))),
            extra_roots: Vec::new(),
        }
    }
}

/// Carries out attempts; cheap to clone, and the clones share connections and tokens.
#[derive(Clone)]
pub(crate) struct WebhookDeliverer(Arc<DelivererState>);

struct DelivererState {
    policy: DeliveryPolicy,
    pool: ClientPool,
    tokens: TokenCache,
}

/// How much of a response is searched for secrets behind the part that is kept.
const SECRET_BYTES_MAX: usize = 8 * 1024;

/// The result of an attempt.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct AttemptReport {
    pub(crate) outcome: AttemptOutcome,
    /// The status of the response, if there was one.
    pub(crate) status: Option<u16>,
    pub(crate) duration: Duration,
    /// The class and message of the error: always with a failure, sometimes with a success.
    pub(crate) error: Option<(ErrorClass, String)>,
    /// The beginning of the response body, as text.
    pub(crate) response: String,
}

impl WebhookDeliverer {
    /// A deliverer with this policy and the machine's resolver.
    pub(crate) fn new(policy: DeliveryPolicy) -> Self {
        Self::with_resolver(policy, Arc::new(SystemResolver::default()))
    }

    /// A deliverer with this policy and resolver.
    pub(crate) fn with_resolver(policy: DeliveryPolicy, resolver: Arc<dyn Resolve>) -> Self {
        let settings = ConnectSettings {
            resolver,
            allow_private: policy.allow_private_targets,
            connect_timeout: policy.connect_timeout,
            open: Arc::default(),
            places: Arc::new(Semaphore::new(policy.sockets_max)),
        };
        let pool = ClientPool::new(&policy, settings);
        Self(Arc::new(DelivererState { policy, pool, tokens: TokenCache::default() }))
    }

    /// Makes one attempt and reports its result.
    pub(crate) async fn deliver(&self, delivery: DeliveryRequest<'_>) -> AttemptReport {
        let begun = Instant::now();
        let deadline = begun + self.allowed_timeout(delivery.timeout);
        // The future of a delivery is large, and many are waiting at a time.
        let ended = Box::pin(self.attempt(&delivery, deadline)).await;
        let duration = begun.elapsed();
        match ended {
            Ok(answer) => self.report_response(&answer, after(delivery.at, duration), duration),
            Err(error) => self.report_failure(error, duration),
        }
    }

    /// Sends it, and once more if a cached token is refused.
    async fn attempt(
        &self,
        delivery: &DeliveryRequest<'_>,
        deadline: Instant,
    ) -> Result<ReceiverResponse, ExchangeError> {
        let granted = self.authorise(delivery.auth, None, deadline).await?;
        let answer = self.send(delivery, granted.as_ref(), deadline).await?;
        let Some(refused) = granted.filter(|token| token.was_cached && answer.status == StatusCode::UNAUTHORIZED)
        else {
            return Ok(answer);
        };
        let renewed = self.authorise(delivery.auth, Some(&refused.header), deadline).await?;
        self.send(delivery, renewed.as_ref(), deadline).await
    }

    async fn send(
        &self,
        delivery: &DeliveryRequest<'_>,
        token: Option<&GrantedToken>,
        deadline: Instant,
    ) -> Result<ReceiverResponse, ExchangeError> {
        let request = || request::request(delivery, token.map(|token| &token.header), self.user_agent());
        match self.exchange(delivery.target, delivery.identity, request()?, deadline).await {
            // The receiver was just closing the kept connection: that is not a failure of the delivery.
            Err(error) if error.is_stale => {
                tracing::debug!(failure = %error.failure, "a kept connection was closed; sent once more on a new one");
                self.0.pool.renew(delivery.target, delivery.identity)?;
                self.exchange(delivery.target, delivery.identity, request()?, deadline).await
            }
            ended => ended,
        }
    }

    async fn exchange(
        &self,
        target: &DeliveryTarget,
        identity: Option<&ClientIdentity>,
        request: Request<Full<Bytes>>,
        deadline: Instant,
    ) -> Result<ReceiverResponse, ExchangeError> {
        let client = self.0.pool.client(target, identity)?;
        exchange::exchange(&client, request, deadline, self.0.policy.response_bytes_max).await
    }

    /// The `Authorization` to send; with OAuth 2, another than the one that was `refused`.
    async fn authorise(
        &self,
        auth: &AuthMethod,
        refused: Option<&HeaderValue>,
        deadline: Instant,
    ) -> Result<Option<GrantedToken>, DeliveryFailure> {
        match auth {
            AuthMethod::None => Ok(None),
            AuthMethod::Header(header) => Ok(Some(GrantedToken { header: header.clone(), was_cached: false })),
            AuthMethod::OAuth2(client) => {
                let DelivererState { policy, pool, tokens } = &*self.0;
                let bytes_max = policy.response_bytes_max;
                let fetching = TokenFetch { pool, user_agent: &policy.user_agent, deadline, bytes_max };
                tokens.token(client, refused, fetching).await.map(Some)
            }
        }
    }

    fn report_response(&self, answer: &ReceiverResponse, now: Timestamp, duration: Duration) -> AttemptReport {
        let (outcome, failure) = answer.judge(now);
        AttemptReport {
            outcome,
            status: Some(answer.status.as_u16()),
            duration,
            error: failure.map(|failure| (failure.class, redact(&failure.message).into_owned())),
            response: self.kept_text(&answer.body),
        }
    }

    fn report_failure(&self, error: ExchangeError, duration: Duration) -> AttemptReport {
        let ExchangeError { failure, status, body, .. } = error;
        AttemptReport {
            outcome: AttemptOutcome::Failed { retryable: failure.retryable },
            status: status.map(|status| status.as_u16()),
            duration,
            error: Some((failure.class, redact(&failure.message).into_owned())),
            response: self.kept_text(&body),
        }
    }

    /// The kept part of a body, as text that can be stored: invalid Unicode, NUL and secrets are replaced.
    fn kept_text(&self, body: &[u8]) -> String {
        let bytes_max = self.0.policy.response_bytes_kept;
        // A secret at the end of the kept part is recognised only as a whole.
        let searched = body.get(..bytes_max + SECRET_BYTES_MAX).unwrap_or(body);
        let text = String::from_utf8_lossy(searched).replace('\0', "\u{fffd}");
        let text = redact(&text);
        // A character that was cut became a replacement, which may be longer.
        text.get(..text.floor_char_boundary(bytes_max)).unwrap_or_default().to_owned()
    }

    fn allowed_timeout(&self, requested: Duration) -> Duration {
        requested.min(self.0.policy.timeout_max)
    }

    fn user_agent(&self) -> &HeaderValue {
        &self.0.policy.user_agent
    }
}

fn after(at: Timestamp, duration: Duration) -> Timestamp {
    let millis = i64::try_from(duration.as_millis()).unwrap_or(i64::MAX);
    Timestamp::from_millis(at.millis().saturating_add(millis))
}
