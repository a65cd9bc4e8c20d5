//! Handshakes that do not end, and bytes that are not TLS.

use super::*;

/// The beginning of a handshake whose rest never comes.
const UNFINISHED: &[u8] = &[0x16, 0x03, 0x01, 0x02, 0x00, 0x01];
/// More than all handshakes that may be under way.
const STALLED: usize = 300;

impl TlsServer {
    /// A connection without TLS that has sent these bytes.
    fn send(&self, bytes: &[u8]) -> TcpStream {
        let mut socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.write_all(bytes).unwrap();
        socket
    }

    fn start_and_set(variable: &str, value: &str) -> Self {
        let authority = Authority::new();
        let issued = authority.server();
        Self::start_and(authority, &issued, &[], &[(variable, value)])
    }
}

/// What a connection gets until it is closed.
fn rest(mut socket: TcpStream) -> String {
    let mut rest = Vec::new();
    if let Err(error) = socket.read_to_end(&mut rest) {
        assert_eq!(error.kind(), std::io::ErrorKind::ConnectionReset, "the server neither responds nor closes");
    }
    String::from_utf8_lossy(&rest).into_owned()
}

#[test]
fn a_handshake_that_never_ends_is_closed_after_the_time_for_a_head() {
    let tls = TlsServer::start_and_set("EVENT_BROKER__SERVER__HEADER_TIMEOUT_SECS", "1");
    // One that sends nothing, one that stops in the middle.
    for bytes in [&[][..], UNFINISHED] {
        assert_eq!(rest(tls.send(bytes)), "");
    }
    let logged = tls.server.logged();
    assert!(logged.contains("it was not finished within `server.header_timeout_secs`"), "{logged}");
    assert_eq!(logged.matches("a TLS handshake failed").count(), 1, "silence is no failure: {logged}");
}

#[tokio::test]
async fn an_address_whose_handshakes_stall_does_not_keep_others_out() {
    let tls = TlsServer::start();
    let before = connections(&tls.server);
    let stalled: Vec<_> = (0..STALLED).map(|_| tls.send(UNFINISHED)).collect();
    wait_for_connections(&tls.server, before + STALLED).await;
    let other = tls.authority.http().local_address(std::net::IpAddr::from([127, 0, 0, 2])).build().unwrap();
    let response = other.get(format!("{}/healthz", tls.server.url)).send().await.unwrap();
    assert_eq!(response.status(), 200);
    // It did not wait until their time was over.
    stalled[0].set_nonblocking(true).unwrap();
    let still_open = stalled[0].peek(&mut [0]).map_err(|error| error.kind());
    assert_eq!(still_open, Err(std::io::ErrorKind::WouldBlock));
}

#[test]
fn what_is_not_tls_is_told_so_or_closed() {
    let tls = TlsServer::start();
    let response = rest(tls.send(&get("/healthz")));
    assert!(response.starts_with("HTTP/1.1 400 ") && response.contains("use https://"), "{response}");
    assert_eq!(rest(tls.send(b"\0\0\0garbage")), "");
    let logged = tls.server.logged();
    assert!(logged.contains("the client may use http:// instead of https://"), "{logged}");
}

#[tokio::test]
async fn a_connection_beyond_the_limit_is_closed_without_plain_text() {
    let tls = TlsServer::start_and_set("EVENT_BROKER__SERVER__MAX_CONNECTIONS_PER_ADDRESS", "2");
    let before = connections(&tls.server);
    let _open = [tls.send(b""), tls.send(b"")];
    wait_for_connections(&tls.server, before + 2).await;
    assert_eq!(rest(tls.send(UNFINISHED)), "");
}
