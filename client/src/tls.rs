//! TLS of a connection: whom it trusts, how it proves its own name, and what is wrong when it does not come about.

use contract::{Error, Result, Timestamp};
use reqwest::{Certificate, ClientBuilder, Identity};
use rustls::pki_types::UnixTime;
use rustls::{AlertDescription, CertificateError, InvalidMessage};
use std::error::Error as StdError;
use std::fmt;
use std::io;
use std::path::{Path, PathBuf};

/// The files of TLS, all in PEM.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClientTls {
    /// The authorities that sign the broker's certificate. They are trusted instead of those of the machine.
    pub ca_file: Option<PathBuf>,
    /// The certificate of this program, for a broker that asks for one.
    pub cert_file: Option<PathBuf>,
    /// The private key of that certificate.
    pub key_file: Option<PathBuf>,
}

/// Why there is no encrypted connection that can be trusted.
#[derive(Debug, Clone, PartialEq, Eq)]
#[non_exhaustive]
pub enum TlsFault {
    /// The broker's certificate was not signed by a trusted authority.
    UnknownAuthority,
    /// The broker's certificate has expired, at this time if it is known.
    Expired(Option<String>),
    /// The broker's certificate is valid from a later time.
    NotYetValid(Option<String>),
    /// The broker's certificate is for other names: these.
    WrongName(Vec<String>),
    /// The broker's certificate is that of an authority.
    CertificateOfAuthority,
    /// The broker asks for a client certificate.
    ClientCertificateMissing,
    /// The broker refused the client certificate, for this reason.
    ClientCertificateRefused(&'static str),
    /// What answers does not speak TLS.
    NotTls,
    /// Anything else, in the words of the library.
    Other(String),
}

impl ClientTls {
    /// The builder with these files. `is_https`: whether the address is one of TLS.
    pub(crate) fn apply(&self, mut http: ClientBuilder, is_https: bool) -> Result<ClientBuilder> {
        match &self.ca_file {
            Some(path) => http = http.tls_certs_only(authorities(path)?),
            // The machine's roots are not needed, and a machine without any is none the worse.
            None if !is_https => http = http.tls_certs_only([]),
            None => (),
        }
        // HTTP/2 would put all requests on one connection, where waiting polls use up the number of requests in flight.
        http = http.http1_only();
        match (&self.cert_file, &self.key_file) {
            (Some(certificate), Some(key)) => Ok(http.identity(identity(certificate, key)?)),
            (None, None) => Ok(http),
            (Some(_), None) => Err(Error::invalid("/cert_file", "needs the private key in a key file")),
            (None, Some(_)) => Err(Error::invalid("/key_file", "needs the certificate in a certificate file")),
        }
    }
}

fn authorities(path: &Path) -> Result<Vec<Certificate>> {
    let refuse = |reason: String| Error::invalid("/ca_file", reason);
    let found = Certificate::from_pem_bundle(&read("/ca_file", path)?);
    let found = found.map_err(|_| refuse(format!("{}: is not valid PEM", path.display())))?;
    match found.is_empty() {
        true => Err(refuse(format!("{}: contains no certificate in PEM", path.display()))),
        false => Ok(found),
    }
}

fn identity(certificate: &Path, key: &Path) -> Result<Identity> {
    let pem = [read("/cert_file", certificate)?, b"\n".to_vec(), read("/key_file", key)?].concat();
    Identity::from_pem(&pem).map_err(|_| {
        let reason =
            format!("{}: the certificate, or its key without a password, is not in PEM", certificate.display());
        Error::invalid("/cert_file", reason)
    })
}

fn read(pointer: &str, path: &Path) -> Result<Vec<u8>> {
    std::fs::read(path).map_err(|error| Error::invalid(pointer, format!("{} cannot be read: {error}", path.display())))
}

impl TlsFault {
    /// The fault that is the cause of `error`, if it is one of TLS.
    pub(crate) fn of(error: &(dyn StdError + 'static)) -> Option<Self> {
        let mut cause = Some(error);
        while let Some(error) = cause {
            if let Some(found) = error.downcast_ref() {
                return Some(Self::of_rustls(found));
            }
            // The source of an I/O error is the source of what it contains, so that would be left out.
            cause = match error.downcast_ref::<io::Error>().and_then(io::Error::get_ref) {
                Some(inner) => Some(inner),
                None => error.source(),
            };
        }
        None
    }

    fn of_rustls(error: &rustls::Error) -> Self {
        match error {
            rustls::Error::InvalidCertificate(error) => Self::of_certificate(error),
            rustls::Error::AlertReceived(alert) => Self::of_alert(*alert),
            rustls::Error::InvalidMessage(InvalidMessage::InvalidContentType) => Self::NotTls,
            error => Self::Other(error.to_string()),
        }
    }

    fn of_certificate(error: &CertificateError) -> Self {
        match error {
            // A bad signature: an authority of the same name, with another key, is trusted.
            CertificateError::UnknownIssuer | CertificateError::BadSignature => Self::UnknownAuthority,
            CertificateError::Expired => Self::Expired(None),
            CertificateError::ExpiredContext { not_after, .. } => Self::Expired(Some(printed(*not_after))),
            CertificateError::NotValidYet => Self::NotYetValid(None),
            CertificateError::NotValidYetContext { not_before, .. } => Self::NotYetValid(Some(printed(*not_before))),
            CertificateError::NotValidForName => Self::WrongName(Vec::new()),
            CertificateError::NotValidForNameContext { presented, .. } => Self::WrongName(presented.clone()),
            // The type of the library behind rustls is not ours to name.
            CertificateError::Other(other) if format!("{other:?}").contains("CaUsedAsEndEntity") => {
                Self::CertificateOfAuthority
            }
            error => Self::Other(error.to_string()),
        }
    }

    fn of_alert(alert: AlertDescription) -> Self {
        match alert {
            AlertDescription::CertificateRequired => Self::ClientCertificateMissing,
            AlertDescription::UnknownCA => {
                Self::ClientCertificateRefused("it does not trust the authority that signed it")
            }
            AlertDescription::CertificateExpired => Self::ClientCertificateRefused("it has expired"),
            AlertDescription::CertificateRevoked => Self::ClientCertificateRefused("it was revoked"),
            AlertDescription::BadCertificate
            | AlertDescription::UnsupportedCertificate
            | AlertDescription::CertificateUnknown
            | AlertDescription::DecryptError
            | AlertDescription::AccessDenied => Self::ClientCertificateRefused("it is not valid"),
            alert => Self::Other(format!("the broker ended the handshake with the alert {alert:?}")),
        }
    }
}

impl fmt::Display for TlsFault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let on = |time: &Option<String>| time.as_ref().map(|time| format!(" ({time})")).unwrap_or_default();
        match self {
            Self::UnknownAuthority => {
                f.write_str("the certificate of the broker was not signed by a trusted authority")
            }
            Self::Expired(time) => write!(f, "the certificate of the broker has expired{}", on(time)),
            Self::NotYetValid(time) => write!(f, "the certificate of the broker is not valid yet{}", on(time)),
            Self::WrongName(names) if names.is_empty() => {
                f.write_str("the certificate of the broker is for another name")
            }
            Self::WrongName(names) => {
                write!(f, "the certificate of the broker is for other names: {}", names.join(", "))
            }
            Self::CertificateOfAuthority => {
                f.write_str("the certificate of the broker is that of an authority (CA:TRUE), not of a server")
            }
            Self::ClientCertificateMissing => f.write_str("the broker requires a client certificate"),
            Self::ClientCertificateRefused(reason) => {
                write!(f, "the broker refuses the client certificate: {reason}")
            }
            Self::NotTls => f.write_str("what answers there does not speak TLS"),
            Self::Other(text) => f.write_str(text),
        }
    }
}

fn printed(time: UnixTime) -> String {
    Timestamp::from_millis(i64::try_from(time.as_secs()).unwrap_or(i64::MAX).saturating_mul(1000)).to_string()
}
