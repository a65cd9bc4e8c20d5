//! The files of TLS, and what is made of them: the configuration of new connections.
//!
//! - All files are read before any is parsed, so that one reading can be compared with the next.
//! - A refusal names the key of the configuration whose file is wrong. It quotes nothing of a file.

use crate::config::{ClientAuth, TlsConfig};
use jiff::Timestamp;
use rustls::crypto::{CryptoProvider, ring};
use rustls::pki_types::pem::{self, PemObject};
use rustls::pki_types::{CertificateDer, CertificateRevocationListDer, PrivateKeyDer};
use rustls::server::WebPkiClientVerifier;
use rustls::server::danger::ClientCertVerifier;
use rustls::sign::{CertifiedKey, SingleCertAndKey};
use rustls::{InconsistentKeys, RootCertStore, ServerConfig};
use std::fmt;
use std::fs::File;
use std::io::Read;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::sync::{Arc, OnceLock};
use x509_parser::prelude::{FromDer, X509Certificate};

/// The largest file, in bytes: a list of revoked certificates may be long.
const FILE_BYTES_MAX: u64 = 32 * 1024 * 1024;
/// The permissions that let others than the owner read a file.
const READABLE_BY_OTHERS: u32 = 0o044;

/// Why the files cannot be used.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TlsFileError {
    /// The key of the configuration that names the file.
    pub key: &'static str,
    /// What is wrong with it.
    pub detail: String,
}

/// The contents of all files.
pub(super) struct TlsFileContents {
    certificate: Vec<u8>,
    key: Vec<u8>,
    client_ca: Option<Vec<u8>>,
    crl: Option<Vec<u8>>,
}

/// What new connections use.
pub(super) struct LoadedTls {
    pub(super) config: Arc<ServerConfig>,
    /// When the first certificate of the chain expires.
    pub(super) expires_at: Timestamp,
}

impl TlsFileContents {
    pub(super) fn read(files: &TlsConfig) -> Result<Self, TlsFileError> {
        let optional = |key, path: &Option<_>| path.as_deref().map(|path| read(key, path)).transpose();
        let required = |key, path: &Option<_>| {
            optional(key, path)?.ok_or_else(|| TlsFileError { key, detail: "is not set".to_owned() })
        };
        Ok(Self {
            certificate: required("server.tls.certificate", &files.certificate)?,
            key: required("server.tls.key", &files.key)?,
            client_ca: optional("server.tls.client_ca", &files.client_ca)?,
            crl: optional("server.tls.crl", &files.crl)?,
        })
    }

    /// A digest that changes with any of the files.
    pub(super) fn digest(&self) -> [u8; 32] {
        let mut hasher = blake3::Hasher::new();
        let files = [Some(&self.certificate), Some(&self.key), self.client_ca.as_ref(), self.crl.as_ref()];
        for file in files.into_iter().flatten() {
            hasher.update(blake3::hash(file).as_bytes());
        }
        hasher.finalize().into()
    }

    /// The configuration of new connections.
    pub(super) fn build(&self, client_auth: ClientAuth) -> Result<LoadedTls, TlsFileError> {
        let chain = certificates("server.tls.certificate", &self.certificate)?;
        let expires_at = first_expiry(&chain)?;
        let resolver = SingleCertAndKey::from(self.key_pair(chain)?);
        let builder = ServerConfig::builder_with_provider(provider())
            .with_safe_default_protocol_versions()
            .map_err(|error| TlsFileError::new("server.tls.certificate", error))?;
        let builder = match self.client_verifier(client_auth)? {
            Some(verifier) => builder.with_client_cert_verifier(verifier),
            None => builder.with_no_client_auth(),
        };
        let mut config = builder.with_cert_resolver(Arc::new(resolver));
        config.alpn_protocols = vec![b"h2".to_vec(), b"http/1.1".to_vec()];
        Ok(LoadedTls { config: Arc::new(config), expires_at })
    }

    fn key_pair(&self, chain: Vec<CertificateDer<'static>>) -> Result<CertifiedKey, TlsFileError> {
        let refuse = |detail: &str| TlsFileError { key: "server.tls.key", detail: detail.to_owned() };
        let key = PrivateKeyDer::from_pem_slice(&self.key).map_err(|error| match error {
            pem::Error::NoItemsFound if contains(&self.key, b"ENCRYPTED PRIVATE KEY") => {
                refuse("is encrypted with a password; decrypt it with `openssl pkey`")
            }
            pem::Error::NoItemsFound => refuse("contains no private key in PEM"),
            _ => refuse("is not valid PEM"),
        })?;
        CertifiedKey::from_der(chain, key, &provider()).map_err(|error| match error {
            rustls::Error::InconsistentKeys(InconsistentKeys::KeyMismatch) => {
                refuse("does not belong to the certificate in `server.tls.certificate`")
            }
            rustls::Error::InvalidCertificate(error) => {
                TlsFileError::new("server.tls.certificate", format!("is not a valid certificate: {error}"))
            }
            _ => refuse("is of a kind that is not supported; use an RSA (2048 bits or more), ECDSA or Ed25519 key"),
        })
    }

    fn client_verifier(&self, client_auth: ClientAuth) -> Result<Option<Arc<dyn ClientCertVerifier>>, TlsFileError> {
        const KEY: &str = "server.tls.client_ca";
        let (Some(authorities), false) = (&self.client_ca, client_auth == ClientAuth::Off) else { return Ok(None) };
        let mut roots = RootCertStore::empty();
        for authority in certificates(KEY, authorities)? {
            roots
                .add(authority)
                .map_err(|error| TlsFileError::new(KEY, format!("contains an invalid certificate: {error}")))?;
        }
        let crls = self.crl.as_deref().map(revocation_lists).transpose()?.unwrap_or_default();
        let builder = WebPkiClientVerifier::builder_with_provider(Arc::new(roots), provider()).with_crls(crls);
        let builder = match client_auth {
            ClientAuth::Required => builder,
            ClientAuth::Optional | ClientAuth::Off => builder.allow_unauthenticated(),
        };
        let verifier =
            builder.build().map_err(|error| TlsFileError::new("server.tls.crl", format!("cannot be used: {error}")))?;
        Ok(Some(verifier))
    }
}

impl TlsFileError {
    fn new(key: &'static str, detail: impl fmt::Display) -> Self {
        Self { key, detail: detail.to_string() }
    }
}

impl fmt::Display for TlsFileError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.key, self.detail)
    }
}

impl std::error::Error for TlsFileError {}

/// The cryptography of the server.
pub(super) fn provider() -> Arc<CryptoProvider> {
    static PROVIDER: OnceLock<Arc<CryptoProvider>> = OnceLock::new();
    Arc::clone(PROVIDER.get_or_init(|| Arc::new(ring::default_provider())))
}

/// Whether others than the owner may read this file.
pub(super) fn is_readable_by_others(path: &Path) -> bool {
    std::fs::metadata(path).is_ok_and(|file| file.permissions().mode() & READABLE_BY_OTHERS != 0)
}

fn read(key: &'static str, path: &Path) -> Result<Vec<u8>, TlsFileError> {
    let unreadable = |reason: &dyn fmt::Display| {
        TlsFileError::new(key, format!("the file {} cannot be read: {reason}", path.display()))
    };
    let mut contents = Vec::new();
    let file = File::open(path).map_err(|error| unreadable(&error))?;
    file.take(FILE_BYTES_MAX + 1).read_to_end(&mut contents).map_err(|error| unreadable(&error))?;
    match contents.len() as u64 > FILE_BYTES_MAX {
        true => Err(unreadable(&format!("it has more than {FILE_BYTES_MAX} bytes"))),
        false => Ok(contents),
    }
}

/// All certificates of a file: at least one.
fn certificates(key: &'static str, text: &[u8]) -> Result<Vec<CertificateDer<'static>>, TlsFileError> {
    let found: Result<Vec<_>, _> = CertificateDer::pem_slice_iter(text).collect();
    match found {
        Ok(found) if found.is_empty() => Err(TlsFileError::new(key, "contains no certificate in PEM")),
        Ok(found) => Ok(found),
        Err(_) => Err(TlsFileError::new(key, "is not valid PEM")),
    }
}

fn revocation_lists(file: &[u8]) -> Result<Vec<CertificateRevocationListDer<'static>>, TlsFileError> {
    if !contains(file, b"-----BEGIN") {
        return Ok(vec![CertificateRevocationListDer::from(file.to_vec())]);
    }
    let found: Result<Vec<_>, _> = CertificateRevocationListDer::pem_slice_iter(file).collect();
    match found {
        Ok(found) if found.is_empty() => {
            Err(TlsFileError::new("server.tls.crl", "contains no list of revoked certificates"))
        }
        Ok(found) => Ok(found),
        Err(_) => Err(TlsFileError::new("server.tls.crl", "is not valid PEM")),
    }
}

/// When the first of these certificates expires.
fn first_expiry(chain: &[CertificateDer<'_>]) -> Result<Timestamp, TlsFileError> {
    let mut first = Timestamp::MAX;
    for certificate in chain {
        let invalid = |_| TlsFileError::new("server.tls.certificate", "contains an invalid certificate");
        let (_, parsed) = X509Certificate::from_der(certificate).map_err(invalid)?;
        // A time that cannot be represented is further away than the program will run.
        let end = Timestamp::from_second(parsed.validity().not_after.timestamp()).unwrap_or(Timestamp::MAX);
        first = first.min(end);
    }
    Ok(first)
}

fn contains(text: &[u8], part: &[u8]) -> bool {
    text.windows(part.len()).any(|window| window == part)
}
