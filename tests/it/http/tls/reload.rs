//! The certificate is replaced while the server serves.

use super::authority::{Authority, der};
use super::*;
use rcgen::date_time_ymd;
use reqwest::StatusCode;
use rustls::pki_types::CertificateDer;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

impl TlsServer {
    /// The certificate that a new connection gets.
    fn served_certificate(&self) -> CertificateDer<'static> {
        let mut wire = self.connect(self.authority.trusting(None));
        wire.write_all(&get("/healthz")).unwrap();
        assert_eq!(response_of(&mut wire).status, 200);
        wire.conn.peer_certificates().unwrap()[0].clone()
    }

    /// Waits until new connections get this certificate.
    async fn wait_for(&self, issued: &Issued) {
        let deadline = Deadline::begin();
        while self.served_certificate() != der(&issued.certificate) {
            deadline.check("the new certificate");
            tokio::task::yield_now().await;
        }
    }

    async fn degraded(&self) -> String {
        let (status, answer) = self.server.get("/readyz").await;
        assert_eq!(status, 200, "{answer}");
        answer["degraded"].to_string()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn certificates_are_replaced_under_load_without_a_failed_request() {
    let tls = TlsServer::start();
    let stop = Arc::new(AtomicBool::new(false));
    let mut callers = Vec::new();
    for number in 0..8 {
        // Half of the callers begin a connection for each request.
        let http = tls.authority.http().pool_max_idle_per_host(if number % 2 == 0 { 0 } else { 8 });
        let http = if number < 4 { http.http1_only() } else { http };
        let (client, url, stop) = (http.build().unwrap(), tls.server.url.clone(), Arc::clone(&stop));
        callers.push(tokio::spawn(async move {
            let mut served = 0;
            while !stop.load(Ordering::Relaxed) {
                let response = client.get(format!("{url}/healthz")).send().await.expect("a response");
                assert_eq!(response.status(), StatusCode::OK);
                served += 1;
            }
            served
        }));
    }
    for _ in 0..5 {
        let issued = tls.authority.server();
        issued.write(tls.path(), "server");
        tls.hang_up();
        tls.wait_for(&issued).await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        assert!(caller.await.unwrap() > 0, "a caller was never served");
    }
}

#[tokio::test]
async fn a_changed_file_is_noticed_without_a_signal() {
    let tls = TlsServer::start();
    let issued = tls.authority.server();
    issued.write(tls.path(), "server");
    let deadline = Deadline::begin();
    while tls.served_certificate() != der(&issued.certificate) {
        deadline.check("the new certificate");
        // A poll that times out: the server is not called all the time.
        assert_eq!(tls.server.get(&poll(TOPIC, 1)).await.0, 200);
    }
}

#[tokio::test]
async fn files_that_cannot_be_used_keep_the_old_ones_and_readyz_says_so() {
    let tls = TlsServer::start();
    let (old, new) = (tls.served_certificate(), tls.authority.server());
    let expired =
        tls.authority.issue(&["localhost", "127.0.0.1"], |params| params.not_after = date_time_ymd(2024, 1, 1));
    for (certificate, key, fault) in [
        (&new.certificate, &tls.authority.server().key, "server.tls.key: does not belong to the certificate"),
        (&new.certificate, &String::new(), "server.tls.key: contains no private key in PEM"),
        (&"nothing".to_owned(), &new.key, "server.tls.certificate: contains no certificate in PEM"),
        (&expired.certificate, &expired.key, "server.tls.certificate: has expired on 2024-01-01T00:00:00Z"),
    ] {
        write(tls.path(), "server.pem", certificate);
        write(tls.path(), "server.key", key);
        tls.hang_up();
        let deadline = Deadline::begin();
        while !tls.server.logged().contains(fault) {
            deadline.check(fault);
            tokio::task::yield_now().await;
        }
        assert_eq!(tls.served_certificate(), old, "{fault}");
        let key = fault.split(':').next().unwrap();
        let degraded = tls.degraded().await;
        assert!(degraded.contains(&format!("not used because of `{key}`")), "{degraded}");
        assert!(!degraded.contains(tls.path().to_str().unwrap()), "{degraded}");
    }
    new.write(tls.path(), "server");
    tls.hang_up();
    tls.wait_for(&new).await;
    assert_eq!(tls.degraded().await, "null");
}

#[tokio::test]
async fn a_certificate_that_expires_soon_and_a_key_that_others_may_read_are_reported() {
    let authority = Authority::new();
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap();
    let soon = now + Duration::from_secs(10 * 86_400);
    let issued = authority.issue(&["localhost", "127.0.0.1"], |params| {
        params.not_after = date_time_ymd(1970, 1, 1) + soon;
    });
    let tls = TlsServer::start_with(authority, &issued, &[]);
    let degraded = tls.degraded().await;
    assert!(degraded.contains("The TLS certificate of the server expires on "), "{degraded}");
    assert!(tls.server.logged().contains("The TLS certificate of the server expires on "), "{}", tls.server.logged());
    assert!(!tls.server.logged().contains("may be read by other users"), "{}", tls.server.logged());
    tls.authority.server().write(tls.path(), "server");
    open_to_others(&tls.path().join("server.key"));
    tls.hang_up();
    let deadline = Deadline::begin();
    while !tls.server.logged().contains("may be read by other users") {
        deadline.check("a warning about the key");
        tokio::task::yield_now().await;
    }
    assert_eq!(tls.degraded().await, "null");
}

fn open_to_others(path: &Path) {
    use std::os::unix::fs::PermissionsExt;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(0o644)).unwrap();
}
