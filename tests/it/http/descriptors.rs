//! File descriptors: clients and segments use no more than their share, and the log has what it needs.

use super::attacks::BystanderPublisher;
use super::{CREATED, Deadline, Server, TOPIC, client, event, is_on_databases};
use reqwest::StatusCode;
use rustix::process::{Resource, getrlimit, setrlimit};
use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::path::Path;
use std::process::{Command, Stdio};
use tempfile::TempDir;
use tokio::net::TcpSocket;

/// Every batch starts a segment.
const SMALL_SEGMENTS: (&str, &str) = ("EVENT_BROKER__STORAGE__SEGMENT_BYTES", "1024");

/// Publishes until the log has this many segments.
async fn publish_segments(server: &Server, count: usize) {
    let deadline = Deadline::begin();
    while segments(server.path()) < count {
        deadline.check("segments");
        let mut large = event(CREATED, "s");
        large["data"]["text"] = "x".repeat(1024).into();
        let (status, answer) = server.post("/v1/events", &large).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
}

fn segments(folder: &Path) -> usize {
    let files = std::fs::read_dir(folder.join("log")).unwrap();
    files.filter(|file| file.as_ref().unwrap().path().extension().is_some_and(|it| it == "log")).count()
}

/// Connections that have sent a byte and then stay silent: as many as requested, or as this process may open.
fn idle_connections(server: &Server, count: usize) -> Vec<TcpStream> {
    let mut limit = getrlimit(Resource::Nofile);
    limit.current = limit.maximum;
    let _ = setrlimit(Resource::Nofile, limit);
    let address: SocketAddr = server.url.trim_start_matches("http://").parse().unwrap();
    let mut held = Vec::new();
    for _ in 0..count {
        match TcpStream::connect(address) {
            Ok(mut stream) => {
                // A refused connection may be closed already.
                let _ = stream.write_all(b"G");
                held.push(stream);
            }
            Err(_) => break,
        }
    }
    if held.len() < count {
        // The process has no descriptors left: this frees some for the requests that follow.
        held.truncate(held.len().saturating_sub(200));
    }
    held
}

fn open_files(server: &Server) -> usize {
    std::fs::read_dir(format!("/proc/{}/fd", server.pid())).unwrap().count()
}

#[tokio::test(flavor = "multi_thread")]
async fn idle_connections_and_a_thousand_segments_do_not_keep_the_log_from_being_written() {
    if is_on_databases() {
        return;
    }
    let server = Server::start_after("ulimit -n 1024", TempDir::new().unwrap(), &[SMALL_SEGMENTS]);
    server.register(CREATED).await;
    publish_segments(&server, 1000).await;
    assert!(open_files(&server) < 384, "{} files are open", open_files(&server));
    // The connections of the client and of the bystander are kept; later ones are refused.
    let mut bystander = BystanderPublisher::begin(&server);
    bystander.goes_on(1).await;
    let held = idle_connections(&server, 20_000);
    let own_limit = usize::try_from(getrlimit(Resource::Nofile).current.unwrap_or(u64::MAX)).unwrap();
    assert!(held.len() >= 20_000.min(own_limit.saturating_sub(1000)), "{} of {own_limit}", held.len());
    let before = segments(server.path());
    publish_segments(&server, before + 50).await;
    bystander.goes_on(50).await;
    assert!(open_files(&server) < 1024);
    bystander.end().await;
    let logged = server.logged();
    assert!(logged.contains("connections=640") || logged.contains("\"connections\":640"), "{logged}");
    drop(held);
    let (status, answer) = server.get("/readyz").await;
    assert_eq!((status, &answer["status"]), (StatusCode::OK, &"ready".into()), "{answer}");
}

#[tokio::test(flavor = "multi_thread")]
async fn a_broker_with_more_segments_than_files_it_may_open_starts_again() {
    if is_on_databases() {
        return;
    }
    let server = Server::start_with(&[SMALL_SEGMENTS], &[]);
    server.register(CREATED).await;
    publish_segments(&server, 121).await;
    server.terminate();
    let (_, folder) = server.wait();
    let server = Server::start_after("ulimit -n 256", folder, &[SMALL_SEGMENTS]);
    let before = segments(server.path());
    publish_segments(&server, before + 20).await;
    let (status, page) = server.get(&format!("/v1/events?topic={TOPIC}&offset=0")).await;
    assert_eq!((status, page["items"].as_array().map(Vec::len)), (StatusCode::OK, Some(100)));
    assert!(open_files(&server) < 256);
}

#[tokio::test]
async fn one_connection_too_many_is_turned_away_and_the_others_are_served() {
    // Of 112 connections one address may have 56.
    let server = Server::start_after("ulimit -n 256", TempDir::new().unwrap(), &[]);
    server.register(CREATED).await;
    let mut bystander = BystanderPublisher::begin(&server);
    bystander.goes_on(1).await;
    let held = idle_connections(&server, 600);
    let mut late = TcpStream::connect(server.url.trim_start_matches("http://")).unwrap();
    let mut reply = String::new();
    // When many are refused at once, some are closed without a response.
    let _ = late.read_to_string(&mut reply);
    assert!(reply.is_empty() || reply.starts_with("HTTP/1.1 429"), "{reply}");
    assert_eq!(server.post("/v1/events", &event(CREATED, "s")).await.0, StatusCode::CREATED);
    bystander.goes_on(10).await;
    bystander.end().await;
    drop(held);
}

#[test]
fn a_limit_too_low_to_serve_anybody_is_refused_with_its_numbers() {
    let folder = TempDir::new().unwrap();
    let mut shell = Command::new("bash");
    shell.args(["-c", "ulimit -n 120; exec \"$0\" serve --listen 127.0.0.1:0 --data \"$1\""]);
    let output =
        shell.arg(env!("CARGO_BIN_EXE_event-broker")).arg(folder.path()).stdin(Stdio::null()).output().unwrap();
    let said = String::from_utf8(output.stderr).unwrap();
    assert!(!output.status.success() && said.contains("the limit of open files is 120"), "{said}");
    assert!(!folder.path().join("log").exists(), "nothing was created");
}

/// Half of what the limit of open files leaves, so that one address cannot lock out all others.
#[tokio::test]
async fn one_address_does_not_take_every_connection_that_the_limit_of_open_files_leaves() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    let server = Server::start_after("ulimit -n 256", TempDir::new().unwrap(), &[]);
    server.register(CREATED).await;
    let mut bystander = BystanderPublisher::begin_with(&server, client());
    bystander.goes_on(1).await;
    let address: SocketAddr = server.url.trim_start_matches("http://").parse().unwrap();
    // All of 127.0.0.0/8 is this machine.
    let from = async |own: [u8; 4]| {
        let socket = TcpSocket::new_v4().unwrap();
        socket.bind(SocketAddr::from((own, 0))).unwrap();
        socket.connect(address).await.unwrap()
    };
    let mut held = Vec::new();
    for _ in 0..300 {
        let mut stream = from([127, 0, 0, 2]).await;
        // A refused connection may be closed already.
        let _ = stream.write_all(b"G").await;
        held.push(stream);
    }
    let mut late = from([127, 0, 0, 3]).await;
    late.write_all(b"GET /healthz HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n\r\n").await.unwrap();
    let mut reply = String::new();
    late.read_to_string(&mut reply).await.unwrap();
    assert!(reply.starts_with("HTTP/1.1 200 "), "{reply}");
    bystander.goes_on(10).await;
    bystander.end().await;
    drop(held);
}

#[tokio::test]
async fn past_their_share_of_open_files_no_more_side_logs_are_begun_and_the_refusal_names_the_limit() {
    if is_on_databases() {
        return;
    }
    let server = Server::start_after("ulimit -n 256", TempDir::new().unwrap(), &[]);
    let register = async |name: &str, streaming: &str| {
        let streaming: serde_json::Value = serde_json::from_str(streaming).unwrap();
        let id = format!("gts.hx.core.events.topic.v1~vendor.{name}.v1");
        server.post("/v1/topics", &serde_json::json!({"id": id, "streaming": streaming})).await
    };
    for name in ["one", "two"] {
        let (status, answer) = register(name, &format!(r#"{{"location": "file://{name}"}}"#)).await;
        assert_eq!(status, StatusCode::CREATED, "{answer}");
    }
    let refused = register("three", r#"{"location": "file://three"}"#).await;
    let problem = super::expect_problem(refused, 429, "EVENT_BROKER_OVERLOADED");
    let detail = problem["detail"].as_str().unwrap();
    assert!(detail.contains("may keep 2 logs in files") && detail.contains("ulimit -n"), "{detail}");
    // An existing log can be shared, and a memory log needs no files.
    assert_eq!(register("four", r#"{"location": "file://two"}"#).await.0, StatusCode::CREATED);
    assert_eq!(register("five", r#"{"type": "memory"}"#).await.0, StatusCode::CREATED);
}
