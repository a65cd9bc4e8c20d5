//! Encryption of connections, as libpq's `sslmode` and `sslrootcert` say.
//!
//! | `sslmode` | |
//! |---|---|
//! | `disable` | never |
//! | `prefer` (also `allow`, or nothing said) | where the server offers it; nobody's certificate is looked at |
//! | `require` | always; nobody's certificate is looked at |
//! | `verify-full` (also `verify-ca`, or any mode with `sslrootcert`) | always, and the server proves its name |
//!
//! The certificates a server is held against are the machine's own, or those in the file `sslrootcert`.

use crate::failure::refused;
use contract::BoxFuture;
use log::LogError;
use percent_encoding::percent_decode_str;
use rustls::client::danger::{HandshakeSignatureValid, ServerCertVerified, ServerCertVerifier};
use rustls::crypto::{CryptoProvider, verify_tls12_signature, verify_tls13_signature};
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, ServerName, UnixTime};
use rustls::{ClientConfig, DigitallySignedStruct, RootCertStore, SignatureScheme};
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio_postgres::tls::{ChannelBinding, MakeTlsConnect, TlsConnect};
use tokio_postgres::{Config, Socket};
use tokio_rustls::TlsConnector;

/// What connections are encrypted with.
#[derive(Clone)]
pub(crate) struct TlsSettings(Arc<ClientConfig>);

/// Reads a URL (or a list of `key=value`) as libpq does.
pub(crate) fn parse(url: &str) -> Result<(Config, TlsSettings), LogError> {
    let wanted = TlsParams::take(url);
    let config = wanted.rest.parse::<Config>();
    // The library's words may repeat a part of the address, with the password in it.
    let config = config.map_err(|_| refused("this is no address of a PostgreSQL database"))?;
    let provider = Arc::new(rustls::crypto::ring::default_provider());
    let trust: Arc<dyn ServerCertVerifier> = match (wanted.verified, wanted.roots) {
        (false, _) => Arc::new(AcceptAnyCertificate(Arc::clone(&provider))),
        (true, None) => Arc::new(machine_roots(&provider)?),
        (true, Some(file)) => file_roots(&file, &provider)?,
    };
    let builder = ClientConfig::builder_with_provider(provider).with_safe_default_protocol_versions();
    let builder = builder.map_err(|error| refused(format!("TLS cannot be set up: {error}")))?;
    let mut tls = builder.dangerous().with_custom_certificate_verifier(trust).with_no_client_auth();
    tls.alpn_protocols = vec![b"postgresql".to_vec()];
    Ok((config, TlsSettings(Arc::new(tls))))
}

/// What an address says of encryption, and the rest, which the library understands.
pub(crate) struct TlsParams {
    pub(crate) rest: String,
    pub(crate) verified: bool,
    roots: Option<String>,
}

impl TlsParams {
    pub(crate) fn take(url: &str) -> Self {
        let is_url = url.contains("://");
        let (front, parameters, separator) = match url.split_once('?') {
            Some((front, parameters)) if is_url => (format!("{front}?"), parameters, "&"),
            None if is_url => (url.to_owned(), "", "&"),
            _ => (String::new(), url, " "),
        };
        let mut wanted = Self { rest: String::new(), verified: false, roots: None };
        let mut kept = Vec::new();
        for parameter in parameters.split(separator) {
            match parameter.split_once('=') {
                Some(("sslmode", "verify-full" | "verify-ca")) => wanted.verified = true,
                Some(("sslmode", "allow")) => {}
                Some(("sslrootcert", file)) => wanted.roots = Some(percent_decode_str(file).decode_utf8_lossy().into()),
                _ => kept.push(parameter),
            }
        }
        wanted.verified |= wanted.roots.is_some();
        if wanted.verified {
            kept.retain(|parameter| !parameter.starts_with("sslmode="));
            kept.push("sslmode=require");
        }
        let question = if wanted.verified && is_url && !front.ends_with('?') { "?" } else { "" };
        wanted.rest = format!("{front}{question}{}", kept.join(separator).trim_start_matches(separator));
        wanted
    }
}

fn machine_roots(provider: &Arc<CryptoProvider>) -> Result<rustls_platform_verifier::Verifier, LogError> {
    rustls_platform_verifier::Verifier::new(Arc::clone(provider))
        .map_err(|error| refused(format!("the machine's certificates cannot be read: {error}")))
}

fn file_roots(file: &str, provider: &Arc<CryptoProvider>) -> Result<Arc<dyn ServerCertVerifier>, LogError> {
    let unread = |error: &dyn std::fmt::Display| refused(format!("`sslrootcert` cannot be read: {error}"));
    let mut roots = RootCertStore::empty();
    for certificate in CertificateDer::pem_file_iter(file).map_err(|error| unread(&error))? {
        roots.add(certificate.map_err(|error| unread(&error))?).map_err(|error| unread(&error))?;
    }
    let verifier = rustls::client::WebPkiServerVerifier::builder_with_provider(Arc::new(roots), Arc::clone(provider));
    Ok(verifier.build().map_err(|error| unread(&error))?)
}

/// Takes any certificate, as libpq does unless it is told to verify: against listeners, not against impostors.
#[derive(Debug)]
struct AcceptAnyCertificate(Arc<CryptoProvider>);

impl ServerCertVerifier for AcceptAnyCertificate {
    fn verify_server_cert(
        &self,
        _: &CertificateDer<'_>,
        _: &[CertificateDer<'_>],
        _: &ServerName<'_>,
        _: &[u8],
        _: UnixTime,
    ) -> Result<ServerCertVerified, rustls::Error> {
        Ok(ServerCertVerified::assertion())
    }

    fn verify_tls12_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls12_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn verify_tls13_signature(
        &self,
        message: &[u8],
        certificate: &CertificateDer<'_>,
        signature: &DigitallySignedStruct,
    ) -> Result<HandshakeSignatureValid, rustls::Error> {
        verify_tls13_signature(message, certificate, signature, &self.0.signature_verification_algorithms)
    }

    fn supported_verify_schemes(&self) -> Vec<SignatureScheme> {
        self.0.signature_verification_algorithms.supported_schemes()
    }
}

impl MakeTlsConnect<Socket> for TlsSettings {
    type Stream = EncryptedStream;
    type TlsConnect = TlsHandshake;
    type Error = io::Error;

    fn make_tls_connect(&mut self, host: &str) -> io::Result<TlsHandshake> {
        Ok(TlsHandshake { config: Arc::clone(&self.0), host: host.to_owned() })
    }
}

/// A handshake with one host.
pub(crate) struct TlsHandshake {
    config: Arc<ClientConfig>,
    host: String,
}

impl TlsConnect<Socket> for TlsHandshake {
    type Stream = EncryptedStream;
    type Error = io::Error;
    type Future = BoxFuture<'static, io::Result<EncryptedStream>>;

    fn connect(self, stream: Socket) -> Self::Future {
        Box::pin(async move {
            let name = ServerName::try_from(self.host).map_err(io::Error::other)?;
            Ok(EncryptedStream(TlsConnector::from(self.config).connect(name, stream).await?))
        })
    }
}

/// An encrypted connection.
pub(crate) struct EncryptedStream(tokio_rustls::client::TlsStream<Socket>);

impl tokio_postgres::tls::TlsStream for EncryptedStream {
    fn channel_binding(&self) -> ChannelBinding {
        ChannelBinding::none()
    }
}

impl AsyncRead for EncryptedStream {
    fn poll_read(mut self: Pin<&mut Self>, context: &mut Context<'_>, buf: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_read(context, buf)
    }
}

impl AsyncWrite for EncryptedStream {
    fn poll_write(mut self: Pin<&mut Self>, context: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.0).poll_write(context, bytes)
    }

    fn poll_flush(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_flush(context)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.0).poll_shutdown(context)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use tokio_postgres::config::SslMode;

    #[test]
    fn what_libpq_says_of_encryption_is_understood() {
        for (url, mode, verified) in [
            ("postgres://a@h/d", SslMode::Prefer, false),
            ("postgres://a@h/d?sslmode=disable", SslMode::Disable, false),
            ("postgres://a@h/d?sslmode=allow&application_name=x", SslMode::Prefer, false),
            ("postgres://a@h/d?application_name=x&sslmode=require", SslMode::Require, false),
            ("postgres://a@h/d?sslmode=verify-full", SslMode::Require, true),
            ("postgres://a@h/d?sslrootcert=%2Fx&application_name=x", SslMode::Require, true),
            ("host=h user=a sslmode=verify-full dbname=d", SslMode::Require, true),
        ] {
            let wanted = TlsParams::take(url);
            let config: Config = wanted.rest.parse().unwrap_or_else(|error| panic!("{}: {error}", wanted.rest));
            assert_eq!((config.get_ssl_mode(), wanted.verified), (mode, verified), "{url}");
            assert_eq!((config.get_dbname(), config.get_user()), (Some("d"), Some("a")), "{url}");
        }
        assert_eq!(TlsParams::take("postgres://h/d?sslrootcert=%2Fx").roots.as_deref(), Some("/x"));
    }

    #[test]
    fn a_wrong_address_is_refused_without_repeating_it() {
        let refusal = parse("postgres://a:secret@h:not-a-port/d").err().unwrap().to_string();
        assert!(!refusal.contains("secret") && refusal.contains("no address"), "{refusal}");
    }
}
