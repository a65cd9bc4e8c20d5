//! Memory for connections themselves: what the server holds for one besides large heads, bodies and responses.
//!
//! - A connection reserves [`OPEN_BYTES`] when it is accepted, and more as soon as hyper serves it. A parked poll releases that
//!   again, so many more polls than streams fit into the budget.
//! - With TLS it reserves [`TLS_BYTES`] in addition, from the beginning of the handshake to its end.
//! - A request over HTTP/2 reserves room in the budget of its connection until its response has been sent.
//! - A part of the memory is kept for addresses with few connections, so that a few addresses cannot lock out all others.

use super::address_limiter::PeerAddress;
use crate::memory::{AddressLimit, ByteBudget, ByteReservation};
use contract::Result;

/// What a connection takes that hyper does not serve: one that has sent nothing yet, or whose poll is parked.
pub(crate) const OPEN_BYTES: usize = 4800;
/// What an HTTP/1 connection takes that hyper serves: two buffers, of which one may double for a head of 8 KiB, and the futures.
pub(crate) const HTTP1_BYTES: usize = 24 * 1024;
/// What an HTTP/2 connection takes without requests: bytes that its client may send before they are read, the frame that is being
/// read, and the state of hyper.
pub(crate) const HTTP2_BYTES: usize = 96 * 1024;
/// What a TLS session takes besides that: its keys and buffers (about 7 KiB were measured while it is idle), and what is read ahead
/// while a poll is parked.
const TLS_BYTES: usize = 8 * 1024;
/// What a request over HTTP/2 takes at least, with a small response that its client does not take.
const REQUEST_BYTES_MIN: usize = 12 * 1024;
/// What a header takes besides its name and value.
const HEADER_BYTES: usize = 128;
/// This part of the memory is kept for addresses with few connections, and such an address may hold this part of that.
const RESERVED: usize = 8;
/// Memory is scarce when less than this part of it is free.
const SCARCE: usize = 4;

/// The memory of all connections.
pub(crate) struct ConnectionMemory {
    shared: ByteBudget,
    /// For addresses with few connections.
    reserve: ByteBudget,
    scarce_bytes: usize,
}

/// The memory of one connection.
pub(crate) struct ConnectionReservation {
    held: ByteReservation,
    budget: ConnectionBudget,
    /// What a TLS session takes in addition to any other size; 0: there is none.
    tls_bytes: usize,
}

/// The budget of one connection, for its requests.
#[derive(Clone)]
pub(crate) struct ConnectionBudget {
    budget: ByteBudget,
    /// The reserve, if this connection may use it.
    reserve: Option<ByteBudget>,
    scarce_bytes: usize,
}

impl ConnectionMemory {
    /// `bytes` in all, of which one address may hold `share_percent`.
    pub(crate) fn new(bytes: usize, share_percent: usize) -> Self {
        let reserved = bytes / RESERVED;
        let shared = bytes - reserved;
        let refusal = "The server has no memory for more connections or requests; retry shortly.";
        let share = shared.saturating_mul(share_percent) / 100;
        let reserve_limit = AddressLimit::of_few_connections(reserved / RESERVED);
        Self {
            shared: ByteBudget::new(shared, refusal).with_address_limit(AddressLimit::of_connections(share)),
            reserve: ByteBudget::new(reserved, refusal).with_address_limit(reserve_limit),
            scarce_bytes: share / SCARCE,
        }
    }

    /// Reserves memory for a new connection from this address, which has few of them or not.
    pub(crate) fn open(&self, peer: &PeerAddress, has_few: bool) -> Result<ConnectionReservation> {
        let reserve = has_few.then(|| self.reserve.charged_to(&peer.usage));
        let (budget, scarce_bytes) = (self.shared.charged_to(&peer.usage), self.scarce_bytes);
        let budget = ConnectionBudget { budget, reserve, scarce_bytes };
        Ok(ConnectionReservation { held: budget.try_reserve(OPEN_BYTES)?, budget, tls_bytes: 0 })
    }
}

impl ConnectionReservation {
    /// Grows to what a TLS handshake takes, and adds the session to every later size. A handshake takes no more than an HTTP/1
    /// connection, which takes its place.
    pub(crate) async fn grow_for_tls(&mut self) -> Result<()> {
        self.tls_bytes = TLS_BYTES;
        self.grow_to(HTTP1_BYTES).await
    }

    /// Grows to this size, and that of the TLS session. If others hold the memory, it waits for a moment.
    pub(crate) async fn grow_to(&mut self, bytes: usize) -> Result<()> {
        let bytes = bytes + self.tls_bytes;
        if self.held.grow_to(bytes).is_ok() {
            return Ok(());
        }
        match self.budget.reserve.as_ref().map(|reserve| reserve.try_reserve(bytes)) {
            Some(Ok(held)) => self.held = held,
            _ => self.held.grow_soon_to(bytes).await?,
        }
        Ok(())
    }

    /// Releases all but what an open connection takes, with its TLS session.
    pub(crate) fn shrink(&mut self) {
        self.held.shrink_to(OPEN_BYTES + self.tls_bytes);
    }

    /// The budget of the requests of this connection.
    pub(crate) const fn budget(&self) -> &ConnectionBudget {
        &self.budget
    }
}

impl ConnectionBudget {
    /// Whether others may soon need what this connection holds.
    pub(crate) fn is_scarce(&self) -> bool {
        self.budget.free() < self.scarce_bytes
    }

    /// Reserves room for a request over HTTP/2.
    pub(crate) fn reserve_request<B>(&self, request: &http::Request<B>) -> Result<ByteReservation> {
        let header = |(name, value): (&http::HeaderName, &http::HeaderValue)| name.as_str().len() + value.len();
        let headers = request.headers().iter().map(|pair| header(pair) + HEADER_BYTES).sum::<usize>();
        let target = request.uri().path_and_query().map_or(0, |target| target.as_str().len());
        self.try_reserve((headers + target).max(REQUEST_BYTES_MIN))
    }

    /// Reserves bytes; if there are none, of the reserve.
    fn try_reserve(&self, bytes: usize) -> Result<ByteReservation> {
        let refused = match self.budget.try_reserve(bytes) {
            Ok(reservation) => return Ok(reservation),
            Err(refused) => refused,
        };
        self.reserve.as_ref().map_or(Err(refused), |reserve| reserve.try_reserve(bytes))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::{IpAddr, Ipv4Addr};
    use std::sync::Arc;

    fn peer() -> PeerAddress {
        PeerAddress { address: IpAddr::V4(Ipv4Addr::LOCALHOST), usage: Arc::default() }
    }

    #[tokio::test(start_paused = true)]
    async fn two_addresses_cannot_take_the_memory_kept_for_addresses_with_few_connections() {
        let memory = ConnectionMemory::new(64 * HTTP1_BYTES, 50);
        let mut held = Vec::new();
        for peer in [peer(), peer()] {
            while let Ok(mut connection) = memory.open(&peer, false) {
                if connection.grow_to(HTTP1_BYTES).await.is_err() {
                    break;
                }
                held.push(connection);
            }
        }
        assert_eq!(held.len(), 56, "an eighth is left");
        let newcomer = peer();
        assert!(memory.open(&newcomer, false).is_err());
        let mut few = memory.open(&newcomer, true).unwrap();
        few.grow_to(HTTP1_BYTES).await.unwrap();
        few.shrink();
        assert!(few.budget().reserve_request(&http::Request::new(())).is_ok(), "its requests may use the reserve, too");
        few.grow_to(HTTP1_BYTES).await.unwrap();
        assert!(memory.open(&newcomer, true).is_err(), "one address has an eighth of the reserve");
    }

    #[tokio::test(start_paused = true)]
    async fn a_parked_poll_releases_what_another_connection_waits_for() {
        let memory = ConnectionMemory::new(3 * HTTP1_BYTES, 50);
        let peer = peer();
        let mut first = memory.open(&peer, false).unwrap();
        let mut second = memory.open(&peer, false).unwrap();
        first.grow_to(HTTP1_BYTES).await.unwrap();
        assert!(first.budget().is_scarce());
        assert!(second.grow_to(HTTP1_BYTES).await.is_err());
        let (grown, ()) = tokio::join!(second.grow_to(HTTP1_BYTES), async { first.shrink() });
        grown.unwrap();
    }

    #[tokio::test(start_paused = true)]
    async fn a_tls_session_is_counted_from_its_handshake_on_whatever_else_the_connection_releases() {
        let bytes = 64 * HTTP1_BYTES;
        let memory = ConnectionMemory::new(bytes, 100);
        let free = memory.shared.free();
        let mut connection = memory.open(&peer(), false).unwrap();
        assert_eq!(memory.shared.free(), free - OPEN_BYTES, "its client has sent nothing");
        connection.grow_for_tls().await.unwrap();
        assert_eq!(memory.shared.free(), free - HTTP1_BYTES - TLS_BYTES);
        connection.shrink();
        assert_eq!(memory.shared.free(), free - OPEN_BYTES - TLS_BYTES);
        connection.grow_to(HTTP2_BYTES).await.unwrap();
        assert_eq!(memory.shared.free(), free - HTTP2_BYTES - TLS_BYTES);
        drop(connection);
        assert_eq!(memory.shared.free(), free);
    }

    #[test]
    fn many_small_headers_of_a_request_are_counted_as_what_they_take() {
        let memory = ConnectionMemory::new(10 * 1024 * 1024, 100);
        let connection = memory.open(&peer(), false).unwrap();
        let mut request = http::Request::get("/healthz");
        assert_eq!(connection.budget().reserve_request(&http::Request::new(())).unwrap().bytes(), REQUEST_BYTES_MIN);
        for number in 0..900 {
            request = request.header(format!("x-{number}"), "");
        }
        let room = connection.budget().reserve_request(&request.body(()).unwrap()).unwrap();
        assert!(room.bytes() > 900 * HEADER_BYTES);
    }
}
