//! Receivers whose permission the broker requests first, and receivers that only the operator trusts.

use crate::http::{CREATED, Server, TOPIC, event};
use axum::Router;
use axum::http::HeaderMap;
use axum::response::IntoResponse;
use axum::routing::options;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair};
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use serde_json::json;
use std::sync::Arc;
use tempfile::TempDir;
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpListener;
use tokio_rustls::TlsAcceptor;

const PRIVATE: (&str, &str) = ("EVENT_BROKER__DISPATCH__ALLOW_PRIVATE_TARGETS", "true");

/// A receiver that permits `broker.example.com` to send at the given rate per minute.
async fn consenting(rate: &'static str) -> String {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("http://{}/", listener.local_addr().unwrap());
    let answer = async move |asked: HeaderMap| {
        assert_eq!(asked["webhook-request-origin"], "broker.example.com");
        [("webhook-allowed-origin", "broker.example.com"), ("webhook-allowed-rate", rate)].into_response()
    };
    let router = Router::new().route("/", options(answer)).route("/mute", options(async || ()));
    tokio::spawn(async move { axum::serve(listener, router).await.unwrap() });
    url
}

#[tokio::test]
async fn a_receiver_that_is_asked_first_must_consent_and_is_not_sent_more_than_it_allows() {
    let server = Server::start_with(&[PRIVATE, ("EVENT_BROKER__DISPATCH__ORIGIN", "broker.example.com")], &[]);
    let url = consenting("120").await;
    let (status, pool) =
        server.post("/v1/pools", &json!({"code": "slow", "concurrency": 1, "ratePerMinute": 120})).await;
    assert_eq!(status, 201, "{pool}");
    let new = |code: &str, target: &str, pool: &str| json!({"code": code, "topic": TOPIC, "target": target, "pool": pool, "handshake": true});
    for (target, pool, pointer) in [
        (format!("{url}mute"), "slow", "/target"),
        ("http://127.0.0.1:1/".to_owned(), "slow", "/target"),
        (url.clone(), "default", "/pool"),
    ] {
        let (status, problem) = server.post("/v1/subscriptions", &new("a", &target, pool)).await;
        assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!(pointer)), "{problem}");
    }
    let (status, made) = server.post("/v1/subscriptions", &new("a", &url, "slow")).await;
    assert_eq!((status.as_u16(), &made["handshake"]), (201, &json!(true)), "{made}");
    let change = server.request(reqwest::Method::PATCH, "/v1/subscriptions/a");
    let change = change.json(&json!({"target": format!("{url}mute")}));
    let (status, problem) = crate::http::answer(change).await;
    assert_eq!((status.as_u16(), &problem["errors"][0]["pointer"]), (422, &json!("/target")), "{problem}");
}

/// A receiver with a certificate of a private authority; returns its URL and the authority's root certificate.
async fn trusted_by_some() -> (String, String) {
    let mut root = CertificateParams::new(Vec::new()).unwrap();
    root.distinguished_name.push(DnType::CommonName, "an authority of our own");
    root.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
    let key = KeyPair::generate().unwrap();
    let pem = root.self_signed(&key).unwrap().pem();
    let issuer = Issuer::new(root, key);
    let key = KeyPair::generate().unwrap();
    let leaf = CertificateParams::new(vec!["localhost".to_owned()]).unwrap().signed_by(&key, &issuer).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
    let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
    let config = config.with_no_client_auth().with_single_cert(vec![leaf.der().clone()], key).unwrap();
    let acceptor = TlsAcceptor::from(Arc::new(config));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let url = format!("https://localhost:{}/", listener.local_addr().unwrap().port());
    tokio::spawn(async move {
        while let Ok((socket, _)) = listener.accept().await {
            let Ok(mut stream) = acceptor.accept(socket).await else { continue };
            let mut head = Vec::new();
            while !head.windows(4).any(|end| end == b"\r\n\r\n") && stream.read_buf(&mut head).await.unwrap() > 0 {}
            let answer = b"HTTP/1.1 200 OK\r\nconnection: close\r\ncontent-length: 0\r\n\r\n";
            let _ = stream.write_all(answer).await;
        }
    });
    (url, pem)
}

#[tokio::test]
async fn the_operator_can_trust_an_authority_of_their_own() {
    let (url, pem) = trusted_by_some().await;
    let folder = TempDir::new().unwrap();
    let file = folder.path().join("roots.pem");
    std::fs::write(&file, pem).unwrap();
    let server = Server::start_with(&[PRIVATE, ("EVENT_BROKER__DISPATCH__CA_FILE", file.to_str().unwrap())], &[]);
    server.register(CREATED).await;
    let new = json!({"code": "a", "topic": TOPIC, "target": url, "maxAttempts": 1});
    let (status, made) = server.post("/v1/subscriptions", &new).await;
    assert_eq!(status, 201, "{made}");
    let (status, tried) = server.post("/v1/subscriptions/a:test", &json!({})).await;
    assert_eq!((status.as_u16(), &tried["status"], tried.get("error")), (200, &json!(200), None), "{tried}");
    let (status, stored) = server.post("/v1/events", &event(CREATED, "a")).await;
    assert_eq!(status, 201, "{stored}");
    loop {
        let (_, jobs) = server.get("/v1/dispatch-jobs?subscription=a").await;
        let status = jobs["items"][0]["status"].as_str().unwrap();
        assert_ne!(status, "ERROR", "{jobs}");
        if status == "COMPLETED" {
            break;
        }
        tokio::task::yield_now().await;
    }
}
