//! TLS: which receivers are trusted, and which certificate is sent.

use super::receiver::{HttpReceiver, Responder, answer};
use super::*;
use crate::delivery::credentials::certificates;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, date_time_ymd};
use rustls::RootCertStore;
use rustls::ServerConfig;
use rustls::pki_types::PrivateKeyDer;
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;

/// A root certificate of the test.
pub(super) struct CertificateAuthority {
    issuer: Issuer<'static, KeyPair>,
    root: CertificateDer<'static>,
}

impl CertificateAuthority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // A name of its own: two roots of one name would be taken for one another before their keys are looked at.
        params.distinguished_name.push(DnType::CommonName, uuid::Uuid::new_v4().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().der().clone();
        Self { issuer: Issuer::new(params, key), root }
    }

    /// A server with a certificate for these names, over HTTP/2 and HTTP/1.1.
    pub(super) fn server(&self, names: &[&str]) -> ServerConfig {
        self.server_with(&params(names), None)
    }

    fn server_with(&self, params: &CertificateParams, clients: Option<Arc<dyn ClientCertVerifier>>) -> ServerConfig {
        let (certificate, key) = self.issue(params);
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ServerConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = match clients {
            Some(clients) => builder.with_client_cert_verifier(clients),
            None => builder.with_no_client_auth(),
        };
        let key = PrivateKeyDer::Pkcs8(key.serialize_der().into());
        let mut config = builder.with_single_cert(vec![certificate.der().clone()], key).unwrap();
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        config
    }

    fn issue(&self, params: &CertificateParams) -> (rcgen::Certificate, KeyPair) {
        let key = KeyPair::generate().unwrap();
        (params.signed_by(&key, &self.issuer).unwrap(), key)
    }

    fn identity(&self, name: &str) -> ClientIdentity {
        let (certificate, key) = self.issue(&params(&[name]));
        ClientIdentity::parse("/auth", &certificate.pem(), &key.serialize_pem()).unwrap()
    }

    /// A deliverer that trusts this root, and knows where `hooks.test` is.
    pub(super) fn deliverer(&self, policy: DeliveryPolicy) -> WebhookDeliverer {
        let policy = DeliveryPolicy { extra_roots: vec![self.root.clone()], ..policy };
        WebhookDeliverer::with_resolver(policy, ResolverTable::of(&[("hooks.test", &[&["127.0.0.1"]])]))
    }
}

fn params(names: &[&str]) -> CertificateParams {
    CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap()
}

fn ok() -> Responder {
    Box::new(|_| answer(200, &[], "ok"))
}

async fn attempt(
    deliverer: &WebhookDeliverer,
    receiver: &HttpReceiver,
    identity: Option<ClientIdentity>,
) -> AttemptReport {
    let url = format!("https://hooks.test:{}/", receiver.address.port());
    DeliveryCase { identity, ..DeliveryCase::to(&url) }.deliver(deliverer).await
}

#[tokio::test]
async fn a_certificate_is_believed_only_if_it_is_trusted_in_date_and_for_the_host() {
    let (authority, stranger) = (CertificateAuthority::new(), CertificateAuthority::new());
    let mut expired = params(&["hooks.test"]);
    (expired.not_before, expired.not_after) = (date_time_ymd(2020, 1, 1), date_time_ymd(2021, 1, 1));
    for (config, complaint) in [
        (authority.server(&["hooks.test"]), None),
        (stranger.server(&["hooks.test"]), Some("UnknownIssuer")),
        (authority.server(&["other.test"]), Some("not valid for name")),
        (authority.server_with(&expired, None), Some("expired")),
    ] {
        let receiver = HttpReceiver::start(ok(), Some(config)).await;
        let attempt = attempt(&authority.deliverer(local()), &receiver, None).await;
        match complaint {
            None => assert_eq!(attempt.outcome, AttemptOutcome::Done, "{attempt:?}"),
            Some(complaint) => {
                expect_failure(&attempt, ErrorClass::Tls, true);
                assert!(attempt.error.as_ref().unwrap().1.contains(complaint), "{attempt:?}");
                assert_eq!(receiver.seen().len(), 0);
            }
        }
    }
}

#[tokio::test]
async fn a_certificate_can_be_for_an_address() {
    let authority = CertificateAuthority::new();
    let receiver = HttpReceiver::start(ok(), Some(authority.server(&["127.0.0.1"]))).await;
    let url = format!("https://127.0.0.1:{}/", receiver.address.port());
    assert_eq!(DeliveryCase::to(&url).deliver(&authority.deliverer(local())).await.outcome, AttemptOutcome::Done);
}

#[tokio::test]
async fn a_receiver_in_the_clear_is_no_encrypted_one() {
    let receiver = HttpReceiver::start(ok(), None).await;
    let attempt = attempt(&CertificateAuthority::new().deliverer(local()), &receiver, None).await;
    expect_failure(&attempt, ErrorClass::Tls, true);
}

#[tokio::test]
async fn a_receiver_that_wants_a_certificate_sees_the_right_one() {
    let authority = CertificateAuthority::new();
    let mut roots = RootCertStore::empty();
    roots.add(authority.root.clone()).unwrap();
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let clients = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider).build().unwrap();
    let receiver =
        HttpReceiver::start(ok(), Some(authority.server_with(&params(&["hooks.test"]), Some(clients)))).await;
    let deliverer = authority.deliverer(local());
    let (first, second) = (authority.identity("first"), authority.identity("second"));
    for _ in 0..2 {
        assert_eq!(attempt(&deliverer, &receiver, Some(first.clone())).await.outcome, AttemptOutcome::Done);
        assert_eq!(attempt(&deliverer, &receiver, Some(second.clone())).await.outcome, AttemptOutcome::Done);
    }
    // Each has a connection of its own.
    assert_eq!(receiver.connections(), 2);
    for identity in [None, Some(CertificateAuthority::new().identity("first"))] {
        expect_failure(&attempt(&deliverer, &receiver, identity).await, ErrorClass::Tls, true);
    }
    assert_eq!(receiver.seen().len(), 4);
}

#[test]
fn a_certificate_and_a_key_that_do_not_belong_together_are_refused() {
    let authority = CertificateAuthority::new();
    let (certificate, key) = authority.issue(&params(&["a"]));
    let (pem, key) = (certificate.pem(), key.serialize_pem());
    let other = KeyPair::generate().unwrap().serialize_pem();
    assert_eq!(certificates(&format!("{pem}{pem}")).unwrap().len(), 2);
    for (certificate, private, member, detail) in [
        (pem.as_str(), other.as_str(), "key", "must be the private key of the certificate"),
        (&pem, "", "key", "must be a private key in PEM, not encrypted"),
        (&pem, &pem, "key", "must be a private key in PEM, not encrypted"),
        ("", &key, "certificate", "must be one or more certificates in PEM"),
        (&key, &key, "certificate", "must be one or more certificates in PEM"),
        (
            "-----BEGIN CERTIFICATE-----\n%\n-----END CERTIFICATE-----\n",
            &key,
            "certificate",
            "must be one or more certificates in PEM",
        ),
        (&pem, &"x".repeat(65_537), "key", "is longer than 65536 bytes"),
    ] {
        let error = ClientIdentity::parse("/auth", certificate, private).unwrap_err();
        let violation = &error.violations()[0];
        assert_eq!(
            (violation.pointer.as_str(), violation.detail.as_str()),
            (format!("/auth/{member}").as_str(), detail)
        );
    }
}
