//! TLS: the real program serves https, replaces its certificate while it serves, and checks the certificates of clients.

mod authority;
mod clients;
mod handshakes;
mod reload;

use super::raw_http::response_of;
use super::waiting::{connections, wait_for_connections};
use super::{CREATED, Deadline, Server, TOPIC, event};
use authority::{Authority, Issued, write};
use futures_util::StreamExt;
use reqwest::{Method, Version};
use rustls::pki_types::ServerName;
use rustls::{ClientConfig, ClientConnection, StreamOwned};
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::time::Duration;
use tempfile::TempDir;

/// A topic without events.
const QUIET: &str = "gts.hx.core.events.topic.v1~vendor.app.quiet.v1";

/// A server with TLS, its authority, and the folder of its files.
struct TlsServer {
    server: Server,
    authority: Authority,
    folder: TempDir,
}

impl TlsServer {
    fn start() -> Self {
        let authority = Authority::new();
        let issued = authority.server();
        Self::start_with(authority, &issued, &[])
    }

    /// Starts with this certificate; `files` are more files, by their key below `server.tls`.
    fn start_with(authority: Authority, issued: &Issued, files: &[(&str, &str)]) -> Self {
        Self::start_and(authority, issued, files, &[])
    }

    fn start_and(authority: Authority, issued: &Issued, files: &[(&str, &str)], more: &[(&str, &str)]) -> Self {
        let folder = TempDir::new().unwrap();
        let mut variables = variables(folder.path(), issued);
        for (key, text) in files {
            let path = write(folder.path(), &format!("{key}.pem"), text);
            let variable = format!("EVENT_BROKER__SERVER__TLS__{}", key.to_uppercase());
            variables.push((variable, path.to_str().unwrap().to_owned()));
        }
        let variables: Vec<_> = variables.iter().map(|(name, value)| (name.as_str(), value.as_str())).collect();
        let mut server = Server::start_with(&[&variables, more].concat(), &[]);
        server.client = authority.http().build().unwrap();
        Self { server, authority, folder }
    }

    /// Its address without the scheme.
    fn address(&self) -> &str {
        self.server.url.strip_prefix("https://").expect("a server with TLS greets with https")
    }

    /// An encrypted connection; no byte was sent yet.
    fn connect(&self, config: Arc<ClientConfig>) -> StreamOwned<ClientConnection, TcpStream> {
        let socket = TcpStream::connect(self.address()).unwrap();
        socket.set_read_timeout(Some(Duration::from_secs(60))).unwrap();
        socket.set_nodelay(true).unwrap();
        let name = ServerName::try_from("localhost").unwrap();
        StreamOwned::new(ClientConnection::new(config, name).unwrap(), socket)
    }

    fn hang_up(&self) {
        let pid = self.server.pid().to_string();
        assert!(Command::new("kill").args(["-HUP", &pid]).status().unwrap().success());
    }

    fn path(&self) -> &Path {
        self.folder.path()
    }
}

/// The variables for a server with this certificate, whose files are written.
fn variables(folder: &Path, issued: &Issued) -> Vec<(String, String)> {
    let (certificate, key) = issued.write(folder, "server");
    let text = |path: std::path::PathBuf| path.to_str().unwrap().to_owned();
    vec![
        ("EVENT_BROKER__SERVER__TLS__CERTIFICATE".to_owned(), text(certificate)),
        ("EVENT_BROKER__SERVER__TLS__KEY".to_owned(), text(key)),
    ]
}

fn get(path: &str) -> Vec<u8> {
    format!("GET {path} HTTP/1.1\r\nhost: localhost\r\n\r\n").into_bytes()
}

fn poll(topic: &str, timeout: u64) -> String {
    format!("/v1/events:poll?topic={topic}&offset=0&timeout={timeout}")
}

/// Reads until this text has come.
fn read_until(stream: &mut impl Read, end: &str) -> String {
    let (mut text, mut piece) = (String::new(), [0; 4096]);
    while !text.contains(end) {
        let read = stream.read(&mut piece).unwrap();
        assert!(read > 0, "the connection ended after {text}");
        text.push_str(std::str::from_utf8(&piece[..read]).unwrap());
    }
    text
}

/// Waits until the polls that are already waiting have been parked.
async fn wait_long(server: &Server) {
    let (status, page) = server.get(&poll(QUIET, 1)).await;
    assert_eq!((status.as_u16(), &page["items"]), (200, &serde_json::json!([])), "{page}");
}

async fn register(server: &Server) {
    server.register(CREATED).await;
    let (status, answer) = server.post("/v1/topics", &serde_json::json!({"id": QUIET, "streaming": true})).await;
    assert_eq!(status, 201, "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn events_are_published_polled_and_streamed_over_both_versions_of_http() {
    let mut tls = TlsServer::start();
    tls.server.register(CREATED).await;
    for (number, version) in [(0, Version::HTTP_11), (1, Version::HTTP_2)] {
        let http = tls.authority.http();
        let http = if version == Version::HTTP_11 { http.http1_only() } else { http };
        tls.server.client = http.build().unwrap();
        let health = tls.server.request(Method::GET, "/healthz").send().await.unwrap();
        assert_eq!((health.version(), health.status().as_u16()), (version, 200));
        let path = format!("/v1/events:poll?topic={TOPIC}&offset={number}&timeout=30");
        let polled = tokio::spawn(super::answer(tls.server.request(Method::GET, &path)));
        let path = format!("/v1/events:stream?topic={TOPIC}&offset={number}");
        let stream = tls.server.request(Method::GET, &path).send().await.unwrap();
        let (status, stored) = tls.server.post("/v1/events", &event(CREATED, "s")).await;
        assert_eq!(status, 201, "{stored}");
        assert_eq!(polled.await.unwrap().1["items"][0], stored);
        let (_, streamed) = super::waiting::next_event(&mut stream.bytes_stream(), &mut String::new()).await;
        assert_eq!(streamed, stored);
    }
}

#[test]
fn curl_speaks_every_version_of_http_and_tls() {
    let tls = TlsServer::start();
    let root = write(tls.path(), "root.pem", &tls.authority.root);
    for (options, expected) in [
        (&["--http1.1"][..], "1.1 200"),
        (&["--http2"], "2 200"),
        (&["--http1.1", "--tlsv1.2", "--tls-max", "1.2"], "1.1 200"),
        (&["--http1.1", "--tlsv1.3"], "1.1 200"),
        // A client that negotiates no protocol speaks HTTP/1.1.
        (&["--no-alpn", "--http1.1"], "1.1 200"),
    ] {
        let mut curl = Command::new("curl");
        curl.args(["--silent", "--show-error", "--output", "/dev/null", "--write-out", "%{http_version} %{http_code}"]);
        let output = curl.arg("--cacert").arg(&root).args(options).arg(format!("{}/healthz", tls.server.url)).output();
        let output = output.unwrap();
        let text = |bytes: &[u8]| String::from_utf8_lossy(bytes).into_owned();
        assert_eq!(text(&output.stdout), expected, "{options:?}: {}", text(&output.stderr));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn polls_that_were_parked_over_tls_get_their_event_and_their_connections_go_on() {
    let tls = TlsServer::start();
    register(&tls.server).await;
    let config = tls.authority.trusting(None);
    let mut wires: Vec<_> = (0..10).map(|_| tls.connect(Arc::clone(&config))).collect();
    for wire in &mut wires {
        wire.write_all(&get(&poll(TOPIC, 30))).unwrap();
    }
    wait_long(&tls.server).await;
    // What arrives behind a poll while it is parked is answered behind it.
    wires[0].write_all(&get("/healthz")).unwrap();
    wait_long(&tls.server).await;
    let (_, stored) = tls.server.post("/v1/events", &event(CREATED, "s-1")).await;
    for wire in wires.iter_mut().skip(1) {
        assert_eq!(response_of(wire).json()["items"][0], stored);
    }
    let both = read_until(&mut wires[0], r#""status":"ok""#);
    let at = both.find(stored["id"].as_str().unwrap()).expect("the event comes first");
    assert!(at < both.rfind("HTTP/1.1 200 ").unwrap(), "{both}");
    for wire in &mut wires {
        wire.write_all(&get("/healthz")).unwrap();
        assert_eq!(response_of(wire).status, 200);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_client_that_ends_tls_while_its_poll_is_parked_is_forgotten_before_it_closes_its_socket() {
    let tls = TlsServer::start();
    register(&tls.server).await;
    let before = connections(&tls.server);
    let mut wire = tls.connect(tls.authority.trusting(None));
    wire.write_all(&get(&poll(QUIET, 30))).unwrap();
    wait_for_connections(&tls.server, before + 1).await;
    wait_long(&tls.server).await;
    wire.conn.send_close_notify();
    wire.flush().unwrap();
    let mut rest = Vec::new();
    let _ = wire.read_to_end(&mut rest);
    assert_eq!(String::from_utf8_lossy(&rest), "", "the poll was answered at its time-out");
}

#[tokio::test]
async fn a_stopping_server_ends_encrypted_streams_and_polls() {
    let tls = TlsServer::start();
    tls.server.register(CREATED).await;
    let path = format!("/v1/events:stream?topic={TOPIC}&offset=0");
    let mut stream = tls.server.request(Method::GET, &path).send().await.unwrap().bytes_stream();
    let mut wire = tls.connect(tls.authority.trusting(None));
    wire.write_all(&get(&poll(TOPIC, 30))).unwrap();
    wait_long_without_topic(&tls).await;
    tls.server.terminate();
    while stream.next().await.is_some_and(|piece| piece.is_ok()) {}
    assert_eq!(response_of(&mut wire).status, 200);
    assert!(tls.server.wait().0.success());
}

/// Waits until polls that are already waiting have been parked.
async fn wait_long_without_topic(tls: &TlsServer) {
    assert_eq!(tls.server.get(&poll(TOPIC, 1)).await.0, 200);
}
