//! Credentials of a delivery: a bearer token, a user name and password, an OAuth 2 client, a certificate.
//!
//! - Everything is checked when it is created, so that an attempt cannot fail because of it.
//! - None of it is ever printed.

use super::target::{DeliveryTarget, check_target};
use base64::Engine;
use base64::engine::general_purpose::STANDARD as BASE64;
use contract::limits::{CREDENTIAL_BYTES_MAX, PEM_BYTES_MAX};
use contract::{Error, Kind, Result};
use http::HeaderValue;
use rustls::pki_types::pem::PemObject;
use rustls::pki_types::{CertificateDer, PrivateKeyDer};
use std::fmt;
use std::path::Path;
use std::sync::Arc;
use url::form_urlencoded;

/// How a delivery is authorised, in addition to the signature.
#[derive(Debug, Clone, Default)]
pub(crate) enum AuthMethod {
    /// Not at all.
    #[default]
    None,
    /// By a fixed header.
    Header(HeaderValue),
    /// By an access token that is fetched, cached and renewed.
    OAuth2(Arc<OAuthClient>),
}

/// A client of an OAuth 2 authorisation server (RFC 6749, section 4.4: client credentials).
pub(crate) struct OAuthClient {
    pub(super) endpoint: DeliveryTarget,
    /// The request for a token.
    pub(super) form: String,
    /// The client's id and secret, if they are not part of the form.
    pub(super) authorization: Option<HeaderValue>,
    /// Two clients with the same fingerprint get the same tokens.
    pub(super) fingerprint: blake3::Hash,
}

/// The definition of an OAuth 2 client.
#[derive(Clone, Copy)]
pub(crate) struct OAuthGrant<'a> {
    /// The token endpoint; the rules for targets apply to it.
    pub(crate) token_url: &'a str,
    pub(crate) client_id: &'a str,
    pub(crate) client_secret: &'a str,
    pub(crate) scope: Option<&'a str>,
    pub(crate) audience: Option<&'a str>,
    /// Whether id and secret are sent in the form instead of a header, for servers that require it.
    pub(crate) secret_in_form: bool,
}

/// A client certificate with its private key.
#[derive(Clone)]
pub(crate) struct ClientIdentity {
    pub(super) chain: Vec<CertificateDer<'static>>,
    pub(super) key: Arc<PrivateKeyDer<'static>>,
    /// Connections are shared by requests with the same certificate.
    pub(super) fingerprint: blake3::Hash,
}

impl AuthMethod {
    /// `Authorization: Bearer …`.
    pub(crate) fn bearer(pointer: &str, token: &str) -> Result<Self> {
        check_text(pointer, token)?;
        secret_header(&format!("Bearer {token}")).map(Self::Header).ok_or_else(|| Error::invalid(pointer, NOT_ASCII))
    }

    /// `Authorization: Basic …` (RFC 7617, in UTF-8).
    pub(crate) fn basic(pointer: &str, user: &str, password: &str) -> Result<Self> {
        check_text(&format!("{pointer}/username"), user)?;
        if user.contains(':') {
            return Err(Error::invalid(format!("{pointer}/username"), "must have no colon"));
        }
        let password_pointer = format!("{pointer}/password");
        if password.len() > CREDENTIAL_BYTES_MAX || password.contains(char::is_control) {
            return Err(Error::invalid(password_pointer, NOT_TEXT));
        }
        basic_header(user, password).map(Self::Header).ok_or_else(|| Error::invalid(password_pointer, NOT_TEXT))
    }

    /// A token of this client, fetched when needed.
    pub(crate) fn oauth2(pointer: &str, grant: OAuthGrant<'_>, allow_private: bool) -> Result<Self> {
        let endpoint = check_target(&format!("{pointer}/tokenUrl"), grant.token_url, allow_private)?;
        if !allow_private && !endpoint.is_encrypted() {
            return Err(Error::invalid(
                format!("{pointer}/tokenUrl"),
                "must be https: the client's secret is sent there",
            ));
        }
        let given = [
            ("clientId", Some(grant.client_id)),
            ("clientSecret", Some(grant.client_secret)),
            ("scope", grant.scope),
            ("audience", grant.audience),
        ];
        for (name, text) in given {
            text.map_or(Ok(()), |text| check_text(&format!("{pointer}/{name}"), text))?;
        }
        Ok(Self::OAuth2(Arc::new(OAuthClient::new(endpoint, grant))))
    }
}

const NOT_ASCII: &str = "must be visible ASCII";
const NOT_TEXT: &str = "must be text without control characters, and not too long";

impl OAuthClient {
    fn new(endpoint: DeliveryTarget, grant: OAuthGrant<'_>) -> Self {
        let mut form = form_urlencoded::Serializer::new(String::new());
        form.append_pair("grant_type", "client_credentials");
        for (name, value) in [("scope", grant.scope), ("audience", grant.audience)] {
            if let Some(value) = value {
                form.append_pair(name, value);
            }
        }
        // RFC 6749, section 2.3.1: both are form-encoded before they become a user name and password.
        let encode = |text: &str| form_urlencoded::byte_serialize(text.as_bytes()).collect::<String>();
        let authorization = match grant.secret_in_form {
            true => {
                form.append_pair("client_id", grant.client_id).append_pair("client_secret", grant.client_secret);
                None
            }
            false => basic_header(&encode(grant.client_id), &encode(grant.client_secret)),
        };
        let form = form.finish();
        let mut hasher = blake3::Hasher::new();
        let parts = [
            endpoint.as_str().as_bytes(),
            form.as_bytes(),
            authorization.as_ref().map_or(&[], |header| header.as_bytes()),
        ];
        for part in parts {
            hasher.update(&part.len().to_le_bytes()).update(part);
        }
        Self { endpoint, form, authorization, fingerprint: hasher.finalize() }
    }
}

impl ClientIdentity {
    /// Reads a certificate chain and its private key, both in PEM, and checks that they belong together.
    pub(crate) fn parse(pointer: &str, certificate: &str, key: &str) -> Result<Self> {
        let certificate_pointer = format!("{pointer}/certificate");
        let key_pointer = format!("{pointer}/key");
        if certificate.len() > PEM_BYTES_MAX {
            return Err(Error::invalid(certificate_pointer, format!("is longer than {PEM_BYTES_MAX} bytes")));
        }
        if key.len() > PEM_BYTES_MAX {
            return Err(Error::invalid(key_pointer, format!("is longer than {PEM_BYTES_MAX} bytes")));
        }
        let chain = certificates(certificate).filter(|chain| !chain.is_empty());
        let chain =
            chain.ok_or_else(|| Error::invalid(certificate_pointer, "must be one or more certificates in PEM"))?;
        let key = PrivateKeyDer::from_pem_slice(key.as_bytes());
        let key = key.map_err(|_| Error::invalid(&key_pointer, "must be a private key in PEM, not encrypted"))?;
        let mut hasher = blake3::Hasher::new();
        for part in chain.iter().map(AsRef::as_ref).chain([key.secret_der()]) {
            hasher.update(&part.len().to_le_bytes()).update(part);
        }
        let identity = Self { chain, key: Arc::new(key), fingerprint: hasher.finalize() };
        match super::tls::is_key_pair(&identity) {
            true => Ok(identity),
            false => Err(Error::invalid(key_pointer, "must be the private key of the certificate")),
        }
    }
}

/// The root certificates in a PEM file.
pub(crate) fn roots(path: &Path) -> Result<Vec<CertificateDer<'static>>> {
    let text = std::fs::read_to_string(path)
        .map_err(|error| Error::new(Kind::Validation, "The file cannot be read.").with_source(error))?;
    let found = certificates(&text).filter(|found| !found.is_empty());
    found.ok_or_else(|| Error::new(Kind::Validation, "The file contains no certificates in PEM."))
}

/// Every certificate in a PEM text; `None` if one of them is not valid.
pub(super) fn certificates(pem: &str) -> Option<Vec<CertificateDer<'static>>> {
    CertificateDer::pem_slice_iter(pem.as_bytes()).collect::<Result<_, _>>().ok()
}

fn check_text(pointer: &str, text: &str) -> Result<()> {
    match text.is_empty() || text.len() > CREDENTIAL_BYTES_MAX || text.contains(char::is_control) {
        true => Err(Error::invalid(pointer, NOT_TEXT)),
        false => Ok(()),
    }
}

fn basic_header(user: &str, password: &str) -> Option<HeaderValue> {
    secret_header(&format!("Basic {}", BASE64.encode(format!("{user}:{password}"))))
}

/// A header value that is never printed.
pub(super) fn secret_header(text: &str) -> Option<HeaderValue> {
    let mut value = text.is_ascii().then(|| HeaderValue::from_str(text).ok()).flatten()?;
    value.set_sensitive(true);
    Some(value)
}

impl fmt::Debug for OAuthClient {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthClient").field("endpoint", &self.endpoint).finish_non_exhaustive()
    }
}

impl fmt::Debug for ClientIdentity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Identity({} certificates)", self.chain.len())
    }
}

impl fmt::Debug for OAuthGrant<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OAuthGrant").finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn header(auth: AuthMethod) -> String {
        match auth {
            AuthMethod::Header(value) => value.to_str().unwrap().to_owned(),
            other => panic!("{other:?}"),
        }
    }

    fn grant<'a>() -> OAuthGrant<'a> {
        OAuthGrant {
            token_url: "https://id.example.com/token",
            client_id: "me:1",
            client_secret: "s3cret/é",
            scope: Some("a b"),
            audience: None,
            secret_in_form: false,
        }
    }

    #[test]
    fn credentials_become_a_header() {
        assert_eq!(header(AuthMethod::bearer("/auth", "abc").unwrap()), "Bearer abc");
        // RFC 7617, section 2.1.
        assert_eq!(header(AuthMethod::basic("/auth", "test", "123£").unwrap()), "Basic dGVzdDoxMjPCow==");
    }

    #[test]
    fn credentials_that_cannot_be_sent_are_refused_by_pointer() {
        let long = "x".repeat(CREDENTIAL_BYTES_MAX + 1);
        for token in ["", "a\r\nb", "é", &long] {
            assert_eq!(AuthMethod::bearer("/auth/token", token).unwrap_err().violations()[0].pointer, "/auth/token");
        }
        for (user, password, member) in
            [("", "p", "username"), ("a:b", "p", "username"), ("a", "\0", "password"), ("a", &long, "password")]
        {
            let error = AuthMethod::basic("/auth", user, password).unwrap_err();
            assert_eq!(error.violations()[0].pointer, format!("/auth/{member}"));
        }
        for (grant, member) in [
            (OAuthGrant { token_url: "http://169.254.169.254/token", ..grant() }, "tokenUrl"),
            (OAuthGrant { client_id: "", ..grant() }, "clientId"),
            (OAuthGrant { client_secret: "\n", ..grant() }, "clientSecret"),
            (OAuthGrant { scope: Some(""), ..grant() }, "scope"),
        ] {
            let error = AuthMethod::oauth2("/auth", grant, false).unwrap_err();
            assert_eq!(error.violations()[0].pointer, format!("/auth/{member}"));
        }
    }

    #[test]
    fn an_oauth_client_says_who_it_is_in_a_header_or_in_the_form() {
        let AuthMethod::OAuth2(client) = AuthMethod::oauth2("/auth", grant(), false).unwrap() else { panic!() };
        assert_eq!(client.form, "grant_type=client_credentials&scope=a+b");
        let expected = format!("Basic {}", BASE64.encode("me%3A1:s3cret%2F%C3%A9"));
        assert_eq!(client.authorization.as_ref().unwrap().to_str().unwrap(), expected);
        let in_form = OAuthGrant { secret_in_form: true, audience: Some("x"), ..grant() };
        let AuthMethod::OAuth2(other) = AuthMethod::oauth2("/auth", in_form, false).unwrap() else { panic!() };
        assert_eq!(
            other.form,
            "grant_type=client_credentials&scope=a+b&audience=x&client_id=me%3A1&client_secret=s3cret%2F%C3%A9"
        );
        assert!(other.authorization.is_none() && other.fingerprint != client.fingerprint);
    }

    #[test]
    fn credentials_are_never_printed() {
        let printed = format!(
            "{:?} {:?} {:?} {:?}",
            AuthMethod::bearer("", "s3cret").unwrap(),
            AuthMethod::basic("", "u", "s3cret").unwrap(),
            AuthMethod::oauth2("", grant(), false).unwrap(),
            grant(),
        );
        assert!(!printed.contains("s3cret") && !printed.contains("dTpzM2NyZXQ"), "{printed}");
    }
}
