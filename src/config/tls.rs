//! The section `server.tls`: the files with which the server encrypts connections and checks client certificates.
//!
//! Only the names of the files are here. The server reads them at start, and again when they change.

use serde::{Deserialize, Serialize};
use std::path::PathBuf;

/// The files of TLS. Without a certificate the server speaks plain HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TlsConfig {
    /// The certificate of the server in PEM, followed by the certificates of the authorities between it and the root.
    pub certificate: Option<PathBuf>,
    /// The private key of the certificate, in PEM.
    pub key: Option<PathBuf>,
    /// The authorities that sign the certificates of clients, in PEM.
    pub client_ca: Option<PathBuf>,
    /// Whether clients have to send a certificate.
    pub client_auth: ClientAuth,
    /// Lists of revoked client certificates: several in PEM, or one in DER.
    pub crl: Option<PathBuf>,
}

/// Whether clients have to send a certificate.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClientAuth {
    /// No certificate is requested.
    #[default]
    Off,
    /// A client without a certificate is served; a certificate that does not verify is refused.
    Optional,
    /// A client without a certificate is refused.
    Required,
}

impl TlsConfig {
    /// Whether the server speaks TLS.
    #[must_use]
    pub const fn is_enabled(&self) -> bool {
        self.certificate.is_some()
    }

    /// What is inconsistent: the key to change, and the reason.
    /// `client_auth_is_set`: it does not have its value by default.
    pub(super) fn faults(&self, client_auth_is_set: bool) -> Vec<(&'static str, &'static str)> {
        let Self { certificate, key, client_ca, client_auth, crl } = self;
        let mut faults = Vec::new();
        match (certificate, key) {
            (Some(_), None) => faults.push(("server.tls.certificate", "is set, but `server.tls.key` is not")),
            (None, Some(_)) => faults.push(("server.tls.key", "is set, but `server.tls.certificate` is not")),
            (None, None) if client_ca.is_some() => {
                faults.push(("server.tls.client_ca", "has no effect without `server.tls.certificate`"));
            }
            _ => (),
        }
        match (client_ca, client_auth) {
            (None, ClientAuth::Optional | ClientAuth::Required) => faults.push((
                "server.tls.client_auth",
                "needs `server.tls.client_ca`: the authorities that sign the certificates of clients",
            )),
            (Some(_), ClientAuth::Off) if !client_auth_is_set => faults.push((
                "server.tls.client_ca",
                "has no effect without `server.tls.client_auth`: set that to `optional` or `required`",
            )),
            _ => (),
        }
        if crl.is_some() && client_ca.is_none() {
            faults.push(("server.tls.crl", "has no effect without `server.tls.client_ca`"));
        }
        faults
    }
}
