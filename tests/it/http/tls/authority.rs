//! Authorities, and the certificates that they sign for tests.

use rcgen::{
    BasicConstraints, CertificateParams, CertificateRevocationListParams, DnType, IsCa, Issuer, KeyIdMethod, KeyPair,
    RevokedCertParams, SerialNumber, date_time_ymd,
};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use rustls::{ClientConfig, RootCertStore};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// The serial number of the certificates that can be revoked.
pub(super) const REVOCABLE: u64 = 4711;

/// A root that signs certificates.
pub(super) struct Authority {
    issuer: Issuer<'static, KeyPair>,
    pub(super) root: String,
}

/// A certificate with its key, in PEM.
pub(super) struct Issued {
    pub(super) certificate: String,
    pub(super) key: String,
}

impl Authority {
    pub(super) fn new() -> Self {
        let mut params = CertificateParams::new(Vec::new()).unwrap();
        // Roots of one name would be taken for one another.
        params.distinguished_name.push(DnType::CommonName, uuid::Uuid::new_v4().to_string());
        params.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let key = KeyPair::generate().unwrap();
        let root = params.self_signed(&key).unwrap().pem();
        Self { issuer: Issuer::new(params, key), root }
    }

    /// A certificate for the addresses of the tests.
    pub(super) fn server(&self) -> Issued {
        self.issue(&["localhost", "127.0.0.1"], |_| ())
    }

    pub(super) fn client(&self) -> Issued {
        self.issue(&["client.test"], |params| params.serial_number = Some(SerialNumber::from(REVOCABLE)))
    }

    pub(super) fn issue(&self, names: &[&str], change: impl FnOnce(&mut CertificateParams)) -> Issued {
        let mut params =
            CertificateParams::new(names.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>()).unwrap();
        change(&mut params);
        let key = KeyPair::generate().unwrap();
        Issued { certificate: params.signed_by(&key, &self.issuer).unwrap().pem(), key: key.serialize_pem() }
    }

    /// A list of revoked certificates.
    pub(super) fn revoke(&self, serials: &[u64]) -> String {
        let revoked_certs = serials.iter().map(|serial| RevokedCertParams {
            serial_number: SerialNumber::from(*serial),
            revocation_time: date_time_ymd(2024, 1, 1),
            reason_code: None,
            invalidity_date: None,
        });
        let list = CertificateRevocationListParams {
            this_update: date_time_ymd(2024, 1, 1),
            next_update: date_time_ymd(2090, 1, 1),
            crl_number: SerialNumber::from(1),
            issuing_distribution_point: None,
            revoked_certs: revoked_certs.collect(),
            key_identifier_method: KeyIdMethod::Sha256,
        };
        list.signed_by(&self.issuer).unwrap().pem().unwrap()
    }

    /// A client that trusts this authority, with a certificate if there is one.
    pub(super) fn trusting(&self, identity: Option<&Issued>) -> Arc<ClientConfig> {
        let mut roots = RootCertStore::empty();
        roots.add(der(&self.root)).unwrap();
        let provider = Arc::new(rustls::crypto::ring::default_provider());
        let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions().unwrap();
        let builder = builder.with_root_certificates(roots);
        Arc::new(match identity {
            None => builder.with_no_client_auth(),
            Some(Issued { certificate, key }) => {
                let key = PrivateKeyDer::from_pem_slice(key.as_bytes()).unwrap();
                builder.with_client_auth_cert(vec![der(certificate)], key).unwrap()
            }
        })
    }

    /// The same as a client of HTTP.
    pub(super) fn http(&self) -> reqwest::ClientBuilder {
        let _ = rustls::crypto::ring::default_provider().install_default();
        let root = reqwest::Certificate::from_pem(self.root.as_bytes()).unwrap();
        reqwest::Client::builder().no_proxy().tls_certs_only([root])
    }
}

impl Issued {
    /// Writes both into this folder; returns the paths.
    pub(super) fn write(&self, folder: &Path, name: &str) -> (PathBuf, PathBuf) {
        (write(folder, &format!("{name}.pem"), &self.certificate), write(folder, &format!("{name}.key"), &self.key))
    }
}

pub(super) fn der(pem: &str) -> CertificateDer<'static> {
    CertificateDer::from_pem_slice(pem.as_bytes()).unwrap()
}

/// Replaces a file in one step, readable by its owner only.
pub(super) fn write(folder: &Path, name: &str, text: &str) -> PathBuf {
    use std::os::unix::fs::PermissionsExt;
    let (path, new) = (folder.join(name), folder.join(format!("{name}.new")));
    std::fs::write(&new, text).unwrap();
    std::fs::set_permissions(&new, std::fs::Permissions::from_mode(0o600)).unwrap();
    std::fs::rename(new, &path).unwrap();
    path
}
