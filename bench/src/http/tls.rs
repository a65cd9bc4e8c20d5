//! TLS of a server under test: its certificate, and how the generator trusts it.

use crate::Outcome;
use rustls::pki_types::CertificateDer;
use rustls::{ClientConfig, RootCertStore};
use std::net::SocketAddr;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use tokio_rustls::TlsConnector;

/// Where a server listens, and how connections to it are encrypted.
#[derive(Clone)]
pub(crate) struct Endpoint {
    pub(crate) address: SocketAddr,
    pub(crate) tls: Option<TlsConnector>,
}

impl From<SocketAddr> for Endpoint {
    fn from(address: SocketAddr) -> Self {
        Self { address, tls: None }
    }
}

/// Gives a server a certificate for 127.0.0.1 (ECDSA P-256), in this folder; answers what trusts it.
pub(crate) fn encrypt(command: &mut Command, folder: &Path) -> Outcome<TlsConnector> {
    std::fs::create_dir_all(folder)?;
    let issued = rcgen::generate_simple_self_signed(["127.0.0.1".to_owned()])?;
    for (key, text) in [("CERTIFICATE", issued.cert.pem()), ("KEY", issued.signing_key.serialize_pem())] {
        let path = std::path::absolute(folder.join(format!("{key}.pem")))?;
        std::fs::write(&path, text)?;
        command.env(format!("EVENT_BROKER__SERVER__TLS__{key}"), path);
    }
    trusting(issued.cert.der().clone())
}

fn trusting(certificate: CertificateDer<'static>) -> Outcome<TlsConnector> {
    let mut roots = RootCertStore::empty();
    roots.add(certificate)?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let config = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions()?;
    Ok(TlsConnector::from(Arc::new(config.with_root_certificates(roots).with_no_client_auth())))
}
