//! HTTP: the methods of the broker as routes.
//!
//! - A file per resource owns its routes, parameters and handlers. A handler parses the request, calls the broker and renders the
//!   response.
//! - A stored event is returned as its bytes on disk; it is not serialized again.
//! - Every refusal is a problem document (`problem`); every response has a trace id (`middleware`).
//! - Memory and connections are bounded ([`HttpOptions`]); beyond a limit, a request is refused at once.
//! - A request that waits is counted and has no time-out (`request_context`); a long poll is parked (`parked`).
//!
//! The meaning of the methods is defined by the other modules; this one only knows their form over HTTP.

mod address_limiter;
mod aggregates;
mod body;
mod body_drain;
mod browser_policy;
mod claims;
mod cloudevents;
mod connection_memory;
mod connection_timer;
mod consumers;
mod custom_methods;
mod dead_letters;
mod dispatch;
mod dispatch_jobs;
mod event_types;
mod events;
mod handlers;
mod head_meter;
mod health;
mod http2_heads;
mod http2_responses;
mod idempotency;
mod import;
mod middleware;
mod negotiate;
mod openapi;
mod pages;
mod parked;
mod peer_stream;
mod pools;
mod problem;
mod projections;
mod query_params;
mod read;
mod reply;
mod request;
mod request_context;
mod request_head;
mod response_budget;
mod server;
mod socket;
mod stream;
mod subscriptions;
mod tls;
mod topics;
mod whole_numbers;

use crate::broker::{Broker, BrokerOutage, BrokerSlot, SlotState};
use crate::idempotency::InFlightKeys;
use crate::memory::{AddressLimit, ByteBudget, ByteReservation, PAGE_ROOM_MIN};
use address_limiter::AddressLimiter;
use axum::Router;
use browser_policy::BrowserPolicy;
use connection_memory::ConnectionMemory;
use contract::api::*;
use contract::{IdentifierProfile, limits};
use http2_heads::Http2HeadMeter;
use problem::Problem;
use response_budget::CompressWithinBudget;
use std::net::IpAddr;
use std::ops::Deref;
use std::sync::{Arc, PoisonError, RwLock};
use std::time::Duration;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tower_http::compression::predicate::DefaultPredicate;
use tower_http::compression::{CompressionLayer, Predicate as _};

pub use tls::{LOOK_INTERVAL, ReloadCause, ServerTls, TlsFileError};

/// The limits of the server.
#[derive(Debug, Clone)]
pub struct HttpOptions {
    /// Most connections at a time.
    pub connections_max: usize,
    /// A request's head must arrive within this time, counted from the end of the last request.
    pub header_timeout: Duration,
    /// Longest wait for the next piece of a body.
    pub body_timeout: Duration,
    /// Longest time for which a peer may read nothing of its response.
    pub write_timeout: Duration,
    /// Longest time for which the report of an import may not be read.
    pub import_unread_timeout: Duration,
    /// Longest time for a request that does not wait or stream.
    pub request_timeout: Duration,
    /// Largest head, in bytes of names and values.
    pub header_bytes_max: usize,
    /// Most connections from one address at a time.
    pub connections_per_address_max: usize,
    /// Most polls, streams and other requests that wait at a time.
    pub waits_max: usize,
    /// Most of them from one address.
    pub waits_per_address_max: usize,
    /// Most bytes of request bodies held at a time.
    pub inflight_bytes_max: usize,
    /// Most bytes of responses that are being sent.
    pub answer_bytes_max: usize,
    /// Most bytes of connections themselves.
    pub connection_bytes_max: usize,
    /// How much of each, and of imports, one address may hold, in percent.
    pub address_share_percent: usize,
    /// The time for requests in flight at shutdown.
    pub drain_timeout: Duration,
    /// Largest body of a batch, in bytes.
    pub batch_bytes_max: usize,
    /// Default number of events or rows in a response.
    pub limit_default: usize,
    /// Default time-out of a poll.
    pub wait_default: Duration,
    /// Hosts to serve besides loopback names and the address of the listener, as in `server.allowed_hosts`.
    pub allowed_hosts: Vec<String>,
    /// Web pages of these origins may call, besides the server's own.
    pub allowed_origins: Vec<String>,
    /// Whether responses are compressed for clients that accept it.
    pub compression: bool,
    /// TLS; without it the server speaks plain HTTP.
    pub tls: Option<Arc<ServerTls>>,
}

/// The state that every handler has. It is cheap to clone, and cloned for every request.
#[derive(Clone)]
pub(crate) struct AppState(Arc<AppStateInner>);

/// Shared application state behind `AppState`. It belongs to one broker; after a reopening, requests get another one.
pub(crate) struct AppStateInner {
    pub(crate) broker: Arc<Broker>,
    pub(crate) options: Arc<HttpOptions>,
    server: Arc<ServerState>,
    /// Idempotency keys whose first request is still running.
    in_flight: Arc<InFlightKeys>,
}

/// The state that all requests share, whichever broker is open.
pub(crate) struct ServerState {
    pub(crate) options: Arc<HttpOptions>,
    pub(crate) browsers: Arc<BrowserPolicy>,
    bodies: ByteBudget,
    imports: ByteBudget,
    answers: ByteBudget,
    /// Large heads over HTTP/1.
    heads: ByteBudget,
    /// Unfinished heads over HTTP/2.
    http2_heads: ByteBudget,
    memory: ConnectionMemory,
    connections: Arc<AddressLimiter>,
    waits: Arc<AddressLimiter>,
    draining: watch::Sender<bool>,
    slot: Arc<BrokerSlot>,
}

/// The state that every connection has: the shared one, and the routes of the open broker.
pub(crate) struct HttpFrontend {
    server: Arc<ServerState>,
    /// The routes of the broker; replaced together with it.
    router: RwLock<Router>,
}

impl Deref for HttpFrontend {
    type Target = ServerState;

    fn deref(&self) -> &ServerState {
        &self.server
    }
}

impl Deref for AppState {
    type Target = AppStateInner;

    fn deref(&self) -> &AppStateInner {
        &self.0
    }
}

/// Serves `broker` on `listener` until `stop` ends, then drains. The broker stays open. A broker that fails is not reopened; see
/// [`serve_slot`].
///
/// `Err`: the number of connections that were cut off when the time for draining had passed.
pub async fn serve(
    listener: TcpListener,
    broker: Arc<Broker>,
    options: HttpOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), usize> {
    serve_slot(listener, Arc::new(BrokerSlot::new(broker)), options, stop).await
}

/// The same for the broker in `slot`; while there is none, every request is refused with the reason.
pub async fn serve_slot(
    listener: TcpListener,
    slot: Arc<BrokerSlot>,
    options: HttpOptions,
    stop: impl Future<Output = ()>,
) -> Result<(), usize> {
    let changes = slot.watch();
    let listen = listener.local_addr().ok().map(|address| address.ip());
    let frontend = HttpFrontend::new(ServerState::new(slot, options, listen));
    server::serve(listener, Arc::new(frontend), changes, stop).await
}

/// The routes while no broker is open.
fn closed_router(common: &Arc<ServerState>, outage: &BrokerOutage) -> Router {
    let error = outage.error.clone();
    let refuse = move || {
        let problem = Problem::from(error.clone());
        async move { Err::<(), _>(problem) }
    };
    with_cors(health::routes(common).fallback(refuse), common)
}

fn router(app: &AppState) -> Router {
    let mut readable = Router::new().merge(read::routes()).merge(aggregates::routes());
    if app.options.compression {
        let within_budget = CompressWithinBudget(app.answers().clone());
        let predicate = DefaultPredicate::new().and(within_budget);
        readable = readable.layer(CompressionLayer::new().compress_when(predicate));
    }
    let router = readable
        .merge(events::routes())
        .merge(import::routes())
        .merge(stream::routes())
        .merge(topics::routes())
        .merge(event_types::routes())
        .merge(consumers::routes())
        .merge(claims::routes())
        .merge(handlers::routes())
        .merge(dead_letters::routes())
        .merge(projections::routes())
        .merge(subscriptions::routes())
        .merge(dispatch_jobs::routes())
        .merge(dispatch::routes())
        .merge(pools::routes())
        .merge(openapi::routes(app))
        .with_state(app.clone())
        .merge(health::routes(&app.server));
    with_cors(router, &app.server)
}

fn with_cors(router: Router, common: &ServerState) -> Router {
    match common.browsers.cors() {
        Some(cors) => router.layer(cors),
        None => router,
    }
}

impl HttpFrontend {
    fn new(common: Arc<ServerState>) -> Self {
        let router = RwLock::new(Self::current_router(&common));
        Self { server: common, router }
    }

    /// The routes for the current content of the slot.
    fn current_router(common: &Arc<ServerState>) -> Router {
        match common.slot.state() {
            SlotState::Open(broker) => router(&AppState::new(broker, Arc::clone(common))),
            SlotState::Closed(outage) => closed_router(common, &outage),
        }
    }

    /// Replaces the routes by those for the current content of the slot.
    pub(crate) fn refresh_router(&self) {
        let next = Self::current_router(&self.server);
        *self.router.write().unwrap_or_else(PoisonError::into_inner) = next;
    }

    /// The routes of the current broker.
    pub(crate) fn router(&self) -> Router {
        self.router.read().unwrap_or_else(PoisonError::into_inner).clone()
    }
}

/// The budgets of bodies, imports, responses, and heads over HTTP/1 and HTTP/2.
fn budgets(options: &HttpOptions) -> [ByteBudget; 5] {
    let bytes = options.inflight_bytes_max;
    // A body of the largest size must fit, although a part is reserved for small ones.
    let largest = options.batch_bytes_max.max(limits::EVENT_BYTES_MAX) + 128 * 1024;
    let reserve_of = |bytes: usize| (bytes / 4).min(bytes.saturating_sub(largest));
    let share_of = |bytes: usize, least: usize| (bytes / 100 * options.address_share_percent).max(least).min(bytes);
    let share = share_of(bytes, largest);
    let bodies = ByteBudget::new(bytes, "The server holds its maximum of request bodies; retry shortly.")
        .with_reserve(reserve_of(bytes))
        .with_address_limit(AddressLimit::of_bodies(share, reserve_of(share)));
    let import_bytes = (bytes / 4).max(IMPORT_BYTES_MIN);
    let imports = ByteBudget::new(import_bytes, "The server holds its maximum of imported lines; retry shortly.")
        .with_address_limit(AddressLimit::of_imports(share_of(import_bytes, IMPORT_BYTES_MIN)));
    let answer_bytes = options.answer_bytes_max;
    let answers = ByteBudget::new(answer_bytes, "The server is sending its maximum of responses; retry shortly.")
        .with_address_limit(AddressLimit::of_answers(share_of(answer_bytes, PAGE_ROOM_MIN)));
    let head_bytes = HEAD_BYTES_MAX.max(2 * (options.header_bytes_max + server::TARGET_BYTES_MAX));
    let heads = ByteBudget::new(head_bytes, "The server holds its maximum of request heads; retry shortly.")
        .with_address_limit(AddressLimit::of_heads(share_of(head_bytes, head_bytes / 2)));
    let unfinished = Http2HeadMeter::unfinished_bytes(options.header_bytes_max);
    let head_bytes = HTTP2_HEAD_BYTES_MAX.max(2 * unfinished);
    let http2_heads = ByteBudget::new(head_bytes, "The server holds its maximum of unfinished heads; retry shortly.")
        .with_address_limit(AddressLimit::of_http2_heads(share_of(head_bytes, unfinished)));
    [bodies, imports, answers, heads, http2_heads]
}

/// The minimum budget of all imports: the longest line, and a batch.
const IMPORT_BYTES_MIN: usize = 4 * 1024 * 1024;
/// One in so many connections is reserved for addresses that have only few.
const CONNECTIONS_RESERVED: usize = 8;
/// What large heads over HTTP/1 may hold, in bytes.
const HEAD_BYTES_MAX: usize = 16 * 1024 * 1024;
/// What unfinished heads over HTTP/2 may hold, in bytes.
const HTTP2_HEAD_BYTES_MAX: usize = 16 * 1024 * 1024;

impl ServerState {
    fn new(slot: Arc<BrokerSlot>, options: HttpOptions, listen: Option<IpAddr>) -> Arc<Self> {
        let [bodies, imports, answers, heads, http2_heads] = budgets(&options);
        let memory = ConnectionMemory::new(options.connection_bytes_max, options.address_share_percent);
        let reserve = options.connections_max / CONNECTIONS_RESERVED;
        let per_address = options.connections_per_address_max;
        let connections = AddressLimiter::with_reserve(options.connections_max, per_address, reserve);
        let waits = AddressLimiter::new(options.waits_max, options.waits_per_address_max);
        let browsers = Arc::new(BrowserPolicy::new(listen, &options.allowed_hosts, &options.allowed_origins));
        let (options, draining) = (Arc::new(options), watch::Sender::new(false));
        Arc::new(Self {
            options,
            browsers,
            bodies,
            imports,
            answers,
            heads,
            http2_heads,
            memory,
            connections,
            waits,
            draining,
            slot,
        })
    }

    /// The slot of the broker.
    pub(crate) fn slot(&self) -> &BrokerSlot {
        &self.slot
    }

    /// Ends waiting requests.
    pub(crate) fn drain(&self) {
        self.draining.send_replace(true);
    }

    /// Whether the server is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        *self.draining.borrow()
    }

    /// Ends when the server drains.
    pub(crate) async fn drained(&self) {
        // The sender lives as long as `self`.
        let _ = self.draining.subscribe().wait_for(|draining| *draining).await;
    }
}

impl AppState {
    fn new(broker: Arc<Broker>, common: Arc<ServerState>) -> Self {
        Self(Arc::new(AppStateInner {
            broker,
            options: Arc::clone(&common.options),
            server: common,
            in_flight: Arc::default(),
        }))
    }

    /// The broker as the trait of the contract.
    pub(crate) fn events(&self) -> &dyn EventBroker {
        self.broker.as_ref()
    }

    /// The profile of identifiers in requests.
    pub(crate) fn profile(&self) -> IdentifierProfile {
        self.broker.profile()
    }

    /// A reservation for a body of which nothing has arrived.
    pub(crate) fn reserve_body(&self) -> contract::Result<ByteReservation> {
        self.server.bodies.try_reserve(0)
    }

    /// A reservation for an import of which nothing has arrived.
    pub(crate) fn reserve_import(&self) -> contract::Result<ByteReservation> {
        self.server.imports.try_reserve(0)
    }

    /// The budget of responses.
    pub(crate) fn answers(&self) -> &ByteBudget {
        &self.server.answers
    }

    /// The limit of waiting requests.
    pub(crate) fn waits(&self) -> &Arc<AddressLimiter> {
        &self.server.waits
    }

    /// Whether the server is shutting down.
    pub(crate) fn is_draining(&self) -> bool {
        self.server.is_draining()
    }

    /// Ends when the server drains.
    pub(crate) async fn drained(&self) {
        self.server.drained().await;
    }
}

impl Default for HttpOptions {
    fn default() -> Self {
        Self {
            connections_max: 25_000,
            header_timeout: Duration::from_secs(30),
            body_timeout: Duration::from_secs(30),
            write_timeout: Duration::from_secs(30),
            import_unread_timeout: Duration::from_secs(600),
            request_timeout: Duration::from_secs(60),
            header_bytes_max: 32 * 1024,
            connections_per_address_max: 12_500,
            waits_max: 25_000,
            waits_per_address_max: 12_500,
            inflight_bytes_max: 48 * 1024 * 1024,
            answer_bytes_max: 48 * 1024 * 1024,
            connection_bytes_max: 96 * 1024 * 1024,
            address_share_percent: 50,
            drain_timeout: Duration::from_secs(25),
            batch_bytes_max: contract::limits::BATCH_BYTES_MAX,
            limit_default: contract::limits::READ_EVENTS_MAX,
            wait_default: Duration::from_secs(contract::limits::WAIT_SECONDS_MAX),
            allowed_hosts: Vec::new(),
            allowed_origins: Vec::new(),
            compression: true,
            tls: None,
        }
    }
}
