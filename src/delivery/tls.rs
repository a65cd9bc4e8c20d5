//! TLS: which roots are trusted, and which client certificate is sent.
//!
//! - The machine's root certificates are trusted, like in other programs on it: a company's own root that an operator
//!   adds or removes there, and updates of the machine, apply to the broker too. The configuration can add more. On a
//!   machine without roots no `https` target can be called, and the error says so.
//! - HTTP/2 and HTTP/1.1 are offered by ALPN, in that order. TLS 1.2 and 1.3; cryptography is ring's.

use super::credentials::ClientIdentity;
use super::failure::{DeliveryFailure, ErrorClass, tls};
use rustls::client::WebPkiServerVerifier;
use rustls::client::danger::ServerCertVerifier;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::CertificateDer;
use rustls::sign::CertifiedKey;
use rustls::{ClientConfig, RootCertStore};
use rustls_platform_verifier::Verifier;
use std::sync::{Arc, OnceLock};

/// The trusted roots; the machine's are read when the first encrypted connection is made.
pub(super) struct TrustStore {
    extra_roots: Vec<CertificateDer<'static>>,
    verifier: OnceLock<Result<Arc<dyn ServerCertVerifier>, DeliveryFailure>>,
    anonymous: OnceLock<Result<Arc<ClientConfig>, DeliveryFailure>>,
}

impl TrustStore {
    pub(super) fn new(extra_roots: Vec<CertificateDer<'static>>) -> Self {
        Self { extra_roots, verifier: OnceLock::new(), anonymous: OnceLock::new() }
    }

    /// The TLS configuration with this client certificate, or without one.
    pub(super) fn config(&self, identity: Option<&ClientIdentity>) -> Result<Arc<ClientConfig>, DeliveryFailure> {
        match identity {
            None => self.anonymous.get_or_init(|| self.build(None)).clone(),
            Some(identity) => self.build(Some(identity)),
        }
    }

    fn build(&self, identity: Option<&ClientIdentity>) -> Result<Arc<ClientConfig>, DeliveryFailure> {
        let verifier = self.verifier.get_or_init(|| verifier(&self.extra_roots)).clone()?;
        let builder = ClientConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| tls(&error))?
            .dangerous()
            .with_custom_certificate_verifier(verifier);
        let mut config = match identity {
            None => builder.with_no_client_auth(),
            Some(identity) => builder
                .with_client_auth_cert(identity.chain.clone(), identity.key.clone_key())
                .map_err(|error| tls(&error))?,
        };
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(Arc::new(config))
    }
}

/// Checks that certificate and key belong together and are of a supported kind.
pub(super) fn is_key_pair(identity: &ClientIdentity) -> bool {
    CertifiedKey::from_der(identity.chain.clone(), identity.key.clone_key(), &provider()).is_ok()
}

fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

fn verifier(extra_roots: &[CertificateDer<'static>]) -> Result<Arc<dyn ServerCertVerifier>, DeliveryFailure> {
    if let Ok(verifier) = Verifier::new_with_extra_roots(extra_roots.iter().cloned(), provider()) {
        return Ok(Arc::new(verifier));
    }
    // No roots on this machine: only those of the configuration are trusted.
    let mut roots = RootCertStore::empty();
    roots.add_parsable_certificates(extra_roots.iter().cloned());
    match WebPkiServerVerifier::builder_with_provider(Arc::new(roots), provider()).build() {
        Ok(verifier) => Ok(verifier),
        Err(_) => Err(DeliveryFailure::new(ErrorClass::Tls, "This machine has no root certificates to trust.")),
    }
}
