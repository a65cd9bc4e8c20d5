//! Connections: resolved, checked, dialled, encrypted, counted.
//!
//! - The addresses that are checked are the addresses that are dialled: the name is not resolved a second time, so it
//!   cannot mean one address to the check and another one to the socket.
//! - A connection always goes to the target's origin, whatever URI the HTTP client passes. There are no proxies.
//! - Connecting has its own time-out: the pool may finish a connection in the background after its request has gone.

use super::addresses::not_public;
use super::failure::{DeliveryFailure, ErrorClass, tls};
use super::resolve::Resolve;
use super::target::{TargetHost, TargetOrigin};
use contract::BoxFuture;
use hyper::rt::{Read, ReadBufCursor, Write};
use hyper_util::client::legacy;
use hyper_util::client::legacy::connect::{Connected, Connection};
use hyper_util::rt::TokioIo;
use rustls::ClientConfig;
use rustls::pki_types::ServerName;
use std::io::{self, IoSlice};
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::task::{Context, Poll};
use std::time::Duration;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::timeout;
use tokio_rustls::TlsConnector;

/// What all connections share.
pub(super) struct ConnectSettings {
    pub(super) resolver: Arc<dyn Resolve>,
    pub(super) allow_private: bool,
    /// For resolving, dialling and encrypting together.
    pub(super) connect_timeout: Duration,
    /// The number of open connections.
    pub(super) open: Arc<AtomicUsize>,
    /// Permits for further connections. Without one a request waits, at most for the connect time-out.
    pub(super) places: Arc<Semaphore>,
}

/// Makes connections to one origin.
#[derive(Clone)]
pub(super) struct OriginConnector {
    pub(super) settings: Arc<ConnectSettings>,
    pub(super) origin: Arc<TargetOrigin>,
    /// `None`: not encrypted.
    pub(super) encryption: Option<Arc<ClientConfig>>,
}

/// A connection in the form that the HTTP client needs.
pub(super) struct OriginConnection {
    stream: TokioIo<Box<dyn ByteStream>>,
    is_http2: bool,
    _open: OpenConnection,
}

/// Whether a connection has carried a response: kept along, so that a request that fails on it is known to have met a
/// connection that the receiver was closing.
#[derive(Debug, Clone, Default)]
pub(super) struct ConnectionUse(Arc<AtomicBool>);

impl ConnectionUse {
    /// Notes that a response came on the connection.
    pub(super) fn responded(extensions: &http::Extensions) {
        if let Some(Self(is_used)) = extensions.get() {
            is_used.store(true, Ordering::Relaxed);
        }
    }

    /// Whether a failed request was sent on a connection that had carried a response before.
    pub(super) fn was_used(error: &legacy::Error) -> bool {
        let mut extensions = http::Extensions::new();
        let Some(connection) = error.connect_info() else { return false };
        connection.get_extras(&mut extensions);
        extensions.get::<Self>().is_some_and(|it| it.0.load(Ordering::Relaxed))
    }
}

/// A stream of bytes, encrypted or not.
trait ByteStream: AsyncRead + AsyncWrite + Send + Unpin {}

impl<T: AsyncRead + AsyncWrite + Send + Unpin> ByteStream for T {}

/// Counts an open connection until it is dropped.
struct OpenConnection {
    count: Arc<AtomicUsize>,
    _place: OwnedSemaphorePermit,
}

/// Most addresses of one name that are tried.
const ADDRESSES_MAX: usize = 8;
/// How long one address is tried before the next.
const DIAL_TIMEOUT: Duration = Duration::from_secs(3);

impl OriginConnector {
    async fn connect(self) -> Result<OriginConnection, DeliveryFailure> {
        let allowed = self.settings.connect_timeout;
        timeout(allowed, self.open()).await.unwrap_or_else(|_| {
            let message = format!("No connection within {} seconds.", allowed.as_secs_f32());
            Err(DeliveryFailure::new(ErrorClass::Timeout, message))
        })
    }

    async fn open(&self) -> Result<OriginConnection, DeliveryFailure> {
        let addresses = self.addresses().await?;
        let place = Arc::clone(&self.settings.places).acquire_owned().await;
        let place = place.map_err(|_| DeliveryFailure::new(ErrorClass::Connect, "The broker stops."))?;
        let open = OpenConnection::new(&self.settings.open, place);
        let socket = dial(&addresses, self.origin.port).await?;
        // Best effort: without it small requests wait for acknowledgements of earlier packets.
        let _ = socket.set_nodelay(true);
        let Some(config) = &self.encryption else {
            return Ok(OriginConnection { stream: TokioIo::new(Box::new(socket)), is_http2: false, _open: open });
        };
        let name = server_name(&self.origin.host)?;
        let stream = TlsConnector::from(Arc::clone(config)).connect(name, socket).await;
        let stream = stream.map_err(|error| handshake_failure(&error))?;
        let is_http2 = stream.get_ref().1.alpn_protocol() == Some(b"h2");
        Ok(OriginConnection { stream: TokioIo::new(Box::new(stream)), is_http2, _open: open })
    }

    /// The addresses that may be called. A private address among public ones is skipped. If private networks must not
    /// be called, callers do not learn which names exist in them either.
    async fn addresses(&self) -> Result<Vec<IpAddr>, DeliveryFailure> {
        let found = match &self.origin.host {
            TargetHost::Address(address) => vec![*address],
            TargetHost::Name(name) => self.settings.resolver.resolve(name).await.map_err(|_| self.unresolved())?,
        };
        let Some(first) = found.first().copied() else { return Err(self.unresolved()) };
        let permitted =
            found.into_iter().filter(|address| self.settings.allow_private || not_public(*address).is_none());
        let permitted: Vec<_> = permitted.take(ADDRESSES_MAX).collect();
        match permitted.is_empty() {
            false => Ok(permitted),
            true => {
                let network = not_public(first).unwrap_or("reserved");
                tracing::debug!(host = ?self.origin.host, network, "a target is in no public network");
                Err(target_refused())
            }
        }
    }

    fn unresolved(&self) -> DeliveryFailure {
        if self.settings.allow_private {
            return DeliveryFailure::new(ErrorClass::Dns, "The target's host name cannot be resolved.");
        }
        tracing::debug!(host = ?self.origin.host, "a target's name cannot be resolved");
        target_refused()
    }
}

/// A connection to the first address that accepts one.
async fn dial(addresses: &[IpAddr], port: u16) -> Result<TcpStream, DeliveryFailure> {
    let mut last = io::ErrorKind::AddrNotAvailable;
    for address in addresses {
        match timeout(DIAL_TIMEOUT, TcpStream::connect(SocketAddr::new(*address, port))).await {
            Ok(Ok(socket)) => return Ok(socket),
            Ok(Err(error)) => last = error.kind(),
            Err(_) => last = io::ErrorKind::TimedOut,
        }
    }
    Err(DeliveryFailure::new(ErrorClass::Connect, format!("The connection was not accepted: {last}.")))
}

fn target_refused() -> DeliveryFailure {
    let message = "The target's host has no address in the public internet; nothing was sent. \
        `dispatch.allow_private_targets: true` allows others.";
    DeliveryFailure::new(ErrorClass::TargetRefused, message)
}

fn server_name(host: &TargetHost) -> Result<ServerName<'static>, DeliveryFailure> {
    match host {
        TargetHost::Address(address) => Ok(ServerName::from(*address)),
        TargetHost::Name(name) => ServerName::try_from(name.trim_end_matches('.').to_owned()).map_err(|_| {
            DeliveryFailure::new(ErrorClass::Tls, "No certificate can be for a host of that name.").for_good()
        }),
    }
}

fn handshake_failure(error: &io::Error) -> DeliveryFailure {
    match error.get_ref().and_then(|inner| inner.downcast_ref::<rustls::Error>()) {
        Some(error) => tls(error),
        None => DeliveryFailure::new(ErrorClass::Tls, format!("The encrypted connection broke off: {}.", error.kind())),
    }
}

impl OpenConnection {
    fn new(count: &Arc<AtomicUsize>, place: OwnedSemaphorePermit) -> Self {
        count.fetch_add(1, Ordering::Relaxed);
        Self { count: Arc::clone(count), _place: place }
    }
}

impl Drop for OpenConnection {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Ordering::Relaxed);
    }
}

impl tower::Service<http::Uri> for OriginConnector {
    type Response = OriginConnection;
    type Error = DeliveryFailure;
    type Future = BoxFuture<'static, Result<OriginConnection, DeliveryFailure>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), DeliveryFailure>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: http::Uri) -> Self::Future {
        Box::pin(self.clone().connect())
    }
}

impl Connection for OriginConnection {
    fn connected(&self) -> Connected {
        let connected = Connected::new().extra(ConnectionUse::default());
        if self.is_http2 { connected.negotiated_h2() } else { connected }
    }
}

impl Read for OriginConnection {
    fn poll_read(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        bytes: ReadBufCursor<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_read(context, bytes)
    }
}

impl Write for OriginConnection {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.stream).poll_shutdown(context)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
        pieces: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.stream).poll_write_vectored(context, pieces)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::delivery::tests::ResolverTable;

    #[tokio::test]
    async fn an_inner_address_among_public_ones_is_left_out() {
        let names =
            ResolverTable::of(&[("mixed.test", &[&["127.0.0.1", "8.8.8.8", "::1", "2606:4700::1111", "10.0.0.1"]])]);
        let origin = TargetOrigin { encrypted: false, host: TargetHost::Name("mixed.test".to_owned()), port: 80 };
        let origin = Arc::new(origin);
        for (allow_private, expected) in [(false, 2), (true, 5)] {
            let resolver = Arc::<ResolverTable>::clone(&names);
            let (connect_timeout, places) = (Duration::ZERO, Arc::new(Semaphore::new(1)));
            let settings = ConnectSettings { resolver, allow_private, connect_timeout, open: Arc::default(), places };
            let connector =
                OriginConnector { settings: Arc::new(settings), origin: Arc::clone(&origin), encryption: None };
            let addresses = connector.addresses().await.unwrap();
            assert_eq!(addresses.len(), expected, "{addresses:?}");
        }
    }
}
