//! Certificates that do not verify: those of the server, as clients report them, and those of clients.

use super::authority::REVOCABLE;
use super::*;
use crate::cli;
use contract::api::*;
use contract::{Kind, TopicId, TopicRead};
use event_broker_client::Client;
use event_broker_client::connection::{ClientTls, ConnectionOptions};
use rcgen::date_time_ymd;
use std::path::PathBuf;

impl TlsServer {
    /// The files of a client that trusts this server, with a certificate if there is one.
    fn client_files(&self, identity: Option<&Issued>) -> ClientTls {
        let ca_file = Some(write(self.path(), "root.pem", &self.authority.root));
        let (cert_file, key_file) = identity.map(|issued| issued.write(self.path(), "client")).unzip();
        ClientTls { ca_file, cert_file, key_file }
    }

    /// `topics list` of the command line with these files: the exit code, and what went wrong.
    fn list_topics(&self, url: &str, files: &ClientTls) -> (i32, String) {
        let mut arguments = vec!["topics", "list", "--url", url];
        let text = |path: &Option<PathBuf>| path.as_ref().map(|path| path.to_str().unwrap().to_owned());
        let [ca, certificate, key] = [&files.ca_file, &files.cert_file, &files.key_file].map(text);
        for (flag, path) in [("--ca-file", &ca), ("--cert-file", &certificate), ("--key-file", &key)] {
            arguments.extend(path.iter().flat_map(|path| [flag, path.as_str()]));
        }
        let run = cli::run(&arguments);
        (run.code, run.err)
    }
}

#[tokio::test]
async fn the_client_crate_trusts_the_authority_it_is_given_and_no_other() {
    let tls = TlsServer::start();
    let url = tls.server.url.as_str();
    let options = ConnectionOptions { tls: tls.client_files(None), ..ConnectionOptions::default() };
    let read = TopicRead::all(TopicId::parse(TOPIC).unwrap());
    let page = Client::with_options(url, options).unwrap().read(read.clone()).await.unwrap();
    assert!(page.items.is_empty());
    let error = Client::new(url).unwrap().read(read).await.unwrap_err();
    assert_eq!(error.kind(), Kind::Unavailable);
    let expected = "There is no trusted connection to the broker: the certificate of the broker was not signed by a \
        trusted authority.";
    assert_eq!(error.detail(), expected);
    for (pointer, tls) in [
        ("/ca_file", ClientTls { ca_file: Some("nowhere.pem".into()), ..ClientTls::default() }),
        ("/cert_file", ClientTls { cert_file: Some("client.pem".into()), ..ClientTls::default() }),
        ("/key_file", ClientTls { key_file: Some("client.key".into()), ..ClientTls::default() }),
    ] {
        let error = Client::with_options(url, ConnectionOptions { tls, ..ConnectionOptions::default() }).unwrap_err();
        assert_eq!(error.violations()[0].pointer, pointer, "{error}");
    }
}

#[test]
fn the_command_line_says_what_is_wrong_with_a_certificate() {
    const HERE: &[&str] = &["localhost", "127.0.0.1"];
    for (issue, expected) in [
        (
            (|authority| authority.issue(HERE, |params| params.not_after = date_time_ymd(2024, 1, 1)))
                as fn(&Authority) -> Issued,
            "the certificate of the broker has expired (2024-01-01T00:00:00.000Z)",
        ),
        (
            |authority| authority.issue(HERE, |params| params.not_before = date_time_ymd(2090, 1, 1)),
            "the certificate of the broker is not valid yet (2090-01-01T00:00:00.000Z)",
        ),
        (|authority| authority.issue(&["elsewhere.test"], |_| ()), "the certificate of the broker is for other names"),
        (
            |_| Authority::new().server(),
            "was not signed by a trusted authority; name the file of the authority with --ca-file",
        ),
    ] {
        let authority = Authority::new();
        let issued = issue(&authority);
        let tls = TlsServer::start_with(authority, &issued, &[]);
        let (code, error) = tls.list_topics(&tls.server.url, &tls.client_files(None));
        assert!(code == 1 && error.contains(expected), "{code}: {error} instead of {expected}");
        assert!(error.contains(&format!("no trusted connection to {}", tls.server.url)), "{error}");
    }
}

#[test]
fn the_command_line_says_which_end_speaks_tls() {
    let (tls, plain) = (TlsServer::start(), Server::start(&[]));
    let files = tls.client_files(None);
    assert_eq!(tls.list_topics(&tls.server.url, &files), (0, String::new()));
    let (code, error) = tls.list_topics(&plain.url.replace("http://", "https://"), &files);
    assert!(
        code == 1 && error.contains("does not speak TLS; if the broker has no TLS, use http:// in --url"),
        "{error}"
    );
    let (code, error) = tls.list_topics(&tls.server.url.replace("https://", "http://"), &ClientTls::default());
    assert!(code == 1 && error.contains("This port serves only TLS: use https:// instead of http://."), "{error}");
    let (code, error) = tls.list_topics(&tls.server.url, &ClientTls { ca_file: Some("nowhere".into()), ..files });
    assert!(code == 2 && error.contains("--ca-file nowhere cannot be read"), "{code}: {error}");
}

#[test]
fn a_client_certificate_is_required_and_verified() {
    let (clients, others) = (Authority::new(), Authority::new());
    let authority = Authority::new();
    let issued = authority.server();
    let revoked = clients.revoke(&[REVOCABLE]);
    let files = [("client_ca", clients.root.as_str()), ("crl", &revoked)];
    let required = [("EVENT_BROKER__SERVER__TLS__CLIENT_AUTH", "required")];
    let tls = TlsServer::start_and(authority, &issued, &files, &required);
    let valid = clients.issue(&["client.test"], |_| ());
    let expired = clients.issue(&["client.test"], |params| params.not_after = date_time_ymd(2024, 1, 1));
    for (identity, expected) in [
        (Some(&valid), ""),
        (None, "the broker requires a client certificate; name it with --cert-file and --key-file"),
        (Some(&others.client()), "the broker refuses the client certificate: it does not trust the authority"),
        (Some(&clients.client()), "the broker refuses the client certificate: it was revoked"),
        (Some(&expired), "the broker refuses the client certificate: it has expired"),
    ] {
        let (code, error) = tls.list_topics(&tls.server.url, &tls.client_files(identity));
        assert_eq!((code == 0, error.is_empty()), (expected.is_empty(), expected.is_empty()), "{error}");
        assert!(error.contains(expected), "{error} instead of {expected}");
    }
}

#[test]
fn an_optional_client_certificate_is_verified_if_there_is_one() {
    let (clients, authority) = (Authority::new(), Authority::new());
    let issued = authority.server();
    let optional = [("EVENT_BROKER__SERVER__TLS__CLIENT_AUTH", "optional")];
    let tls = TlsServer::start_and(authority, &issued, &[("client_ca", &clients.root)], &optional);
    for (identity, is_served) in
        [(None, true), (Some(clients.client()), true), (Some(Authority::new().client()), false)]
    {
        let (code, error) = tls.list_topics(&tls.server.url, &tls.client_files(identity.as_ref()));
        assert_eq!(code == 0, is_served, "{error}");
    }
}

#[tokio::test]
async fn a_client_that_was_revoked_cannot_resume_its_session() {
    let (clients, authority) = (Authority::new(), Authority::new());
    let issued = authority.server();
    let nobody = clients.revoke(&[]);
    let files = [("client_ca", clients.root.as_str()), ("crl", &nobody)];
    let required = [("EVENT_BROKER__SERVER__TLS__CLIENT_AUTH", "required")];
    let tls = TlsServer::start_and(authority, &issued, &files, &required);
    // One configuration: it has the tickets of the first connection.
    let config = tls.authority.trusting(Some(&clients.client()));
    let is_served = || {
        let mut wire = tls.connect(Arc::clone(&config));
        let asked = wire.write_all(&get("/healthz"));
        let served = asked.and_then(|()| wire.read(&mut [0; 1024])).is_ok_and(|read| read > 0);
        (served, wire.conn.handshake_kind())
    };
    assert_eq!(is_served(), (true, Some(rustls::HandshakeKind::Full)));
    assert_eq!(is_served(), (true, Some(rustls::HandshakeKind::Resumed)));
    write(tls.path(), "crl.pem", &clients.revoke(&[REVOCABLE]));
    tls.hang_up();
    let deadline = Deadline::begin();
    while is_served().0 {
        deadline.check("the new list");
        tokio::task::yield_now().await;
    }
}
